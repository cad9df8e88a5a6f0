"""/v1/promise and /v1/tradeoff: what is promised and what else could be, for anyone.

Both follow from the terms of an epoch alone: each is computed once and kept as bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from hushgrid.errors import HushgridError
from hushgrid.live.deployment import ZoneService
from hushgrid.live.promise import promise_json, tradeoff_json
from hushgrid.live.web.feeds import zone_asked
from hushgrid.live.web.problems import UnfitError, problem

KEEP = {"Cache-Control": "public, max-age=300"}

Make = Callable[[ZoneService], dict[str, Any]]


class PromiseWays:
    """Handlers. Whoever waits for a computation waits in line, not in a thread each."""

    def __init__(self, zones: Mapping[str, ZoneService], mode: str) -> None:
        self._zones = zones
        self._promises = _Once(lambda zone: promise_json(zone, mode))
        self._tradeoffs = _Once(tradeoff_json)

    async def promise(self, request: Request) -> Response:
        """GET /v1/promise."""
        return await self._answer(request, self._promises)

    async def tradeoff(self, request: Request) -> Response:
        """GET /v1/tradeoff."""
        return await self._answer(request, self._tradeoffs)

    async def _answer(self, request: Request, made: _Once) -> Response:
        try:
            zone = self._zones[zone_asked(request.query_params, self._zones)]
            body = made.known.get(zone.id) or await made.of(zone)
        except UnfitError as error:
            return error.answer()
        except HushgridError as error:
            return problem(404, f"There is no such figure: {error}")
        return Response(body, media_type="application/json", headers=KEEP)


class _Once:
    """The answer for each zone, made in one thread at a time."""

    def __init__(self, make: Make) -> None:
        self._make, self.known = make, dict[str, bytes]()
        self._mutex = threading.Lock()
        self._thread: CapacityLimiter | None = None

    async def of(self, zone: ZoneService) -> bytes:
        """The answer; HushgridError where there is none."""
        if self._thread is None:
            self._thread = CapacityLimiter(1)
        return await to_thread.run_sync(self._made, zone, limiter=self._thread)

    def _made(self, zone: ZoneService) -> bytes:
        with self._mutex:
            if zone.id not in self.known:
                made = self._make(zone)
                self.known[zone.id] = json.dumps(made, allow_nan=False).encode()
            return self.known[zone.id]
