"""Prices of a hushgrid service: sensors of the price in force, and an action for lists."""

from __future__ import annotations

from typing import cast

import voluptuous as vol
from homeassistant.config_entries import ConfigEntry, ConfigEntryState
from homeassistant.const import CONF_URL, Platform
from homeassistant.core import HomeAssistant, ServiceCall, ServiceResponse, SupportsResponse
from homeassistant.exceptions import HomeAssistantError, ServiceValidationError
from homeassistant.helpers import config_validation as cv
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.selector import ConfigEntrySelector
from homeassistant.helpers.typing import ConfigType
from homeassistant.util import dt as dt_util

from .client import AnswerError, Client
from .coordinator import DOMAIN, PriceCoordinator

CONFIG_SCHEMA = cv.config_entry_only_config_schema(DOMAIN)
PLATFORMS = [Platform.SENSOR]
GET_PRICES = vol.Schema(
    {
        vol.Required("config_entry"): ConfigEntrySelector({"integration": DOMAIN}),
        vol.Optional("start"): cv.datetime,
        vol.Optional("end"): cv.datetime,
    }
)


async def async_setup(hass: HomeAssistant, config: ConfigType) -> bool:
    """Register the action."""
    del config  # there is none in YAML

    async def get_prices(call: ServiceCall) -> ServiceResponse:
        entry = hass.config_entries.async_get_entry(call.data["config_entry"])
        if entry is None or entry.domain != DOMAIN or entry.state is not ConfigEntryState.LOADED:
            raise ServiceValidationError(translation_domain=DOMAIN, translation_key="not_loaded")
        instants = (call.data.get(name) for name in ("start", "end"))
        start, end = (  # without an offset it is Home Assistant's local time
            None if instant is None else dt_util.as_utc(instant).isoformat() for instant in instants
        )
        try:
            return cast(ServiceResponse, await entry.runtime_data.client.prices(start, end))
        except AnswerError as error:
            raise HomeAssistantError(
                translation_domain=DOMAIN,
                translation_key=error.key,
                translation_placeholders={"detail": str(error)},
            ) from error

    hass.services.async_register(
        DOMAIN, "get_prices", get_prices, GET_PRICES, supports_response=SupportsResponse.ONLY
    )
    return True


async def async_setup_entry(hass: HomeAssistant, entry: ConfigEntry) -> bool:
    """Set up a zone."""
    client = Client(async_get_clientsession(hass), entry.data[CONF_URL], entry.data["zone"])
    entry.runtime_data = PriceCoordinator(hass, entry, client)
    await entry.runtime_data.async_config_entry_first_refresh()
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    return True


async def async_unload_entry(hass: HomeAssistant, entry: ConfigEntry) -> bool:
    """Remove a zone."""
    return await hass.config_entries.async_unload_platforms(entry, PLATFORMS)
