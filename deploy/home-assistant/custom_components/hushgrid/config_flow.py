"""Asks for the address of a service and a zone, and reads the price once."""

from __future__ import annotations

from typing import Any

import voluptuous as vol
from homeassistant.config_entries import ConfigFlow, ConfigFlowResult
from homeassistant.const import CONF_URL
from homeassistant.helpers.aiohttp_client import async_get_clientsession

from .client import AnswerError, Client
from .coordinator import DOMAIN

USER = vol.Schema({vol.Required(CONF_URL): str, vol.Optional("zone", default=""): str})


class HushgridConfigFlow(ConfigFlow, domain=DOMAIN):
    """One entry is one zone of one service."""

    VERSION = 1

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> ConfigFlowResult:
        """Ask, and make the entry where the price can be read."""
        errors: dict[str, str] = {}
        if user_input is not None:
            session = async_get_clientsession(self.hass)
            client = Client(session, user_input[CONF_URL], user_input["zone"])
            try:
                zone = (await client.price())["zone"]
            except AnswerError as error:
                errors["base"] = error.key
            else:
                await self.async_set_unique_id(f"{client.url} {zone}")
                self._abort_if_unique_id_configured()
                data = {CONF_URL: client.url, "zone": zone}
                return self.async_create_entry(title=zone, data=data)
        schema = self.add_suggested_values_to_schema(USER, user_input)
        return self.async_show_form(step_id="user", data_schema=schema, errors=errors)
