"""An app that can be exchanged while its server runs: one address, one process after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushgrid.live.web.front import Front
from hushgrid.live.web.problems import RETRY, problem
from hushgrid.live.web.security import adorned, security_headers

PATIENCE, LOOK = 30.0, 0.05  # [s] a request waits between two apps; how often it looks


class Stage:
    """Whatever app is shown; between two of them requests wait, but for those of `between`.

    `stale`: what browsers may keep is looked at again each time, for clocks faster than theirs.
    """

    def __init__(self, between: Sequence[BaseRoute] = (), *, stale: bool = False) -> None:
        self._shown: Front | None = None
        self._between: ASGIApp = Router(routes=list(between))
        self._at_once = tuple(str(getattr(one, "path", "/")) for one in between)
        self._stale = stale
        self._ended = False

    def show(self, app: Front) -> None:
        """Let this app answer from now on."""
        self._shown = app

    def clear(self) -> None:
        """Take the app away; who listens to it is let go."""
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.end()

    def end(self) -> None:
        """No app comes any more."""
        self._ended = True
        self.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        if self._shown is None and scope["path"] in self._at_once:
            await self._between(scope, receive, _plain(send))
            return
        until = time.monotonic() + PATIENCE
        while (app := self._shown) is None:
            if self._ended or time.monotonic() > until:
                gone = problem(503, "The service begins again; try later.", headers=RETRY)
                await gone(scope, receive, _plain(send))
                return
            await asyncio.sleep(LOOK)
        fresh = self._stale and scope["path"].startswith("/v1/")
        await app(scope, receive, _checked_each_time(send) if fresh else send)


def _plain(send: Send) -> Send:
    """With the headers that every answer carries."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            always = security_headers(False)
            message["headers"] = adorned(list(message.get("headers", [])), always)
        await send(message)

    return sent


def _checked_each_time(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, b"no-cache" if name == b"cache-control" and b"max-age" in value else value)
                for name, value in message["headers"]
            ]
        await send(message)

    return sent
