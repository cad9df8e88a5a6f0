"""What a hushgrid service answers. Nothing here needs Home Assistant."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp

TIMEOUT = 10  # [s]


class AnswerError(Exception):
    """A service that cannot be read.

    Args:
        key: Why, as translations have it: cannot_connect, unknown_zone or refused.
        detail: One sentence of the service, if it answered.
    """

    def __init__(self, key: str, detail: str = "") -> None:
        super().__init__(detail or key)
        self.key = key


class Client:
    """The prices of one zone.

    Args:
        session: Makes the requests.
        url: Address of the service.
        zone: Id of the zone; empty where the service has one alone.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, zone: str = "") -> None:
        self._session, self._zone = session, zone
        self.url = url.strip().rstrip("/")

    async def price(self) -> dict[str, Any]:
        """The price in force, and the next one."""
        return await self._get("price", {})

    async def prices(self, start: str | None, end: str | None) -> dict[str, Any]:
        """Published prices and expected ones, in lists of their own.

        Args:
            start: When the first begins (ISO 8601 with an offset); None: a day ago.
            end: Prices start before it; None: to the end of the forecast.
        """
        return await self._get("prices", {"from": start, "to": end})

    async def _get(self, path: str, parameters: dict[str, str | None]) -> dict[str, Any]:
        parameters = {"zone": self._zone or None, **parameters}
        query = {name: value for name, value in parameters.items() if value is not None}
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._session.get(f"{self.url}/v1/{path}", params=query) as answer,
            ):
                body = await answer.json(content_type=None)
                if answer.status in (400, 404) and isinstance(body, dict) and "field" in body:
                    key = "unknown_zone" if body["field"] == "zone" else "refused"
                    raise AnswerError(key, body["detail"])
                answer.raise_for_status()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise AnswerError("cannot_connect") from error
        if not isinstance(body, dict) or "zone" not in body:
            raise AnswerError("cannot_connect")
        return body
