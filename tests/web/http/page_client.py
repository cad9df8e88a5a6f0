"""A client of the pages."""

from __future__ import annotations

import asyncio

import httpx
from starlette.applications import Starlette

from hushgrid.web.http.app import page_routes


class Client:
    """Asks the pages without a server."""

    def __init__(self, zones: tuple[str, ...], demo: bool) -> None:
        self._app = httpx.ASGITransport(app=Starlette(routes=page_routes(zones, demo=demo)))

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._app, base_url="http://x") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


def client(*zones: str, demo: bool = False) -> Client:
    return Client(zones, demo)
