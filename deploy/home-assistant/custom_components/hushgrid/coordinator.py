"""The price in force, read once a minute and at each border of intervals."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator, UpdateFailed
from homeassistant.util import dt as dt_util

from .client import AnswerError, Client

DOMAIN = "hushgrid"
LONGEST, SHORTEST = timedelta(minutes=1), timedelta(seconds=5)
AFTER = timedelta(seconds=1)  # the border

log = logging.getLogger(__package__)


class PriceCoordinator(DataUpdateCoordinator[dict[str, Any]]):
    """What /v1/price says; no price where it cannot be read."""

    def __init__(self, hass: HomeAssistant, entry: ConfigEntry, client: Client) -> None:
        super().__init__(hass, log, config_entry=entry, name=entry.title, update_interval=LONGEST)
        self.client = client

    async def _async_update_data(self) -> dict[str, Any]:
        try:
            price = await self.client.price()
        except AnswerError as error:
            raise UpdateFailed(str(error)) from error
        end = dt_util.parse_datetime(price["end"], raise_on_error=True)
        self.update_interval = min(LONGEST, max(end - dt_util.utcnow() + AFTER, SHORTEST))
        return price
