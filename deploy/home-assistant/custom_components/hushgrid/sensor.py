"""Sensors of the price in force; the energy dashboard takes their state for the price of now."""

from __future__ import annotations

from typing import Any

from homeassistant.components.sensor import SensorEntity, SensorStateClass
from homeassistant.config_entries import ConfigEntry
from homeassistant.const import UnitOfEnergy
from homeassistant.core import HomeAssistant
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback
from homeassistant.helpers.update_coordinator import CoordinatorEntity

from .coordinator import DOMAIN, PriceCoordinator

FIELDS = {"price": "total", "feed_in": "feed_in"}  # of /v1/price, by the name of the sensor
ATTRIBUTES = ("start", "end", "price", "kind", "source", "simulated", "next")


async def async_setup_entry(
    hass: HomeAssistant, entry: ConfigEntry, async_add_entities: AddConfigEntryEntitiesCallback
) -> None:
    """Add the price, and the feed-in price where the tariff has one."""
    del hass
    coordinator: PriceCoordinator = entry.runtime_data
    async_add_entities(
        PriceSensor(coordinator, entry, name)
        for name, field in FIELDS.items()
        if field in coordinator.data
    )


class PriceSensor(CoordinatorEntity[PriceCoordinator], SensorEntity):
    """A price in the zone's currency for a kWh."""

    _attr_has_entity_name = True
    _attr_state_class = SensorStateClass.MEASUREMENT
    _attr_suggested_display_precision = 4

    def __init__(self, coordinator: PriceCoordinator, entry: ConfigEntry, name: str) -> None:
        super().__init__(coordinator)
        self._field = FIELDS[name]
        self._attr_translation_key = name
        self._attr_unique_id = f"{entry.entry_id}_{name}"
        currency = coordinator.data["currency"]
        self._attr_native_unit_of_measurement = f"{currency}/{UnitOfEnergy.KILO_WATT_HOUR}"
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            entry_type=DeviceEntryType.SERVICE,
            name=f"hushgrid {entry.title}",
            manufacturer="hushgrid",
            configuration_url=coordinator.client.url,
        )

    @property
    def native_value(self) -> float | None:
        """The price of now."""
        return self.coordinator.data.get(self._field)

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        """When it holds, what it is made from, and the next one."""
        return {name: self.coordinator.data.get(name) for name in ATTRIBUTES}
