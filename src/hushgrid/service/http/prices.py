"""Handlers of prices: feeds, the stream of server-sent events, promise and trade-off.

A new release is passed to the server's event loop, so listeners never delay a tick. Each listener
has a queue; one that falls behind is disconnected and may resume with Last-Event-ID. Promise and
trade-off follow from the terms of an epoch: each is computed once and kept as bytes.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hushgrid.errors import HushgridError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.toml import instant_of
from hushgrid.service.clock import Clock
from hushgrid.service.curator import price
from hushgrid.service.http.common import RETRY, ParameterError, problem
from hushgrid.service.http.middleware import page_answer
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.prices import BY_PATH, LIMIT, MOST, USUAL, History, Pages, PriceRange
from hushgrid.service.promise import promise_json, tradeoff_json

HEARTBEAT = 15.0  # [s] without an event, then a comment: proxies close silent connections
QUEUE = 16  # events a listener may be behind
AGAIN = 1000  # releases sent again at most to a listener that resumes
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes events on at once
]

Event = tuple[int, bytes]  # t, bytes to send
END: Event = (-1, b"")


def event(zone: ZoneService, release: ReleaseRecord) -> Event:
    """Encode a release as a server-sent event with t as its id.

    Args:
        zone: the zone of the release.
        release: the release.

    Returns:
        t and the bytes.
    """
    data = json.dumps(price(zone, release), separators=(",", ":"))
    return release.t, f"id: {release.t}\nevent: price\ndata: {data}\n\n".encode()


class Streams:
    """Listeners of the stream. All but `send` and `close` runs in the server's event loop.

    Args:
        history: releases of the zones.
        most: listeners at the same time.
    """

    def __init__(self, history: History, most: int) -> None:
        self._history, self._most = history, most
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Queue[Event]]] = {z: set() for z in history.zones}
        self._unwatch: Callable[[], None] = history.watch(self.send)

    def __len__(self) -> int:
        return sum(map(len, self._listeners.values()))

    def send(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Pass a release to the event loop. Returns at once. Thread-safe."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(self._spread, zone.id, event(zone, release))

    def close(self) -> None:
        """Disconnect all listeners."""
        self._unwatch()
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end)

    def _spread(self, zone: str, made: Event) -> None:
        for queue in tuple(self._listeners[zone]):
            if queue.qsize() >= QUEUE:
                self._let_go(zone, queue)
            else:
                queue.put_nowait(made)

    def _end(self) -> None:
        for zone, queues in self._listeners.items():
            for queue in tuple(queues):
                self._let_go(zone, queue)

    def _let_go(self, zone: str, queue: asyncio.Queue[Event]) -> None:
        self._listeners[zone].discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(END)

    async def stream(self, request: Request) -> Response:
        """GET /v1/stream."""
        zone = requested_zone(request.query_params, self._listeners)
        if len(self) >= self._most:
            return problem(503, "Too many listen already; try again later.", headers=RETRY)
        last = request.headers.get("last-event-id", "")
        return _Listening(self, zone, int(last) if re.fullmatch("[0-9]{1,18}", last) else None)

    def join(self, zone: str, after: int | None) -> tuple[asyncio.Queue[Event], list[Event], int]:
        """Add a listener; return its queue, its first events (missed or newest) and the last t."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners[zone].add(queue)
        newest = self._history.newest(zone)
        t = 0 if newest is None else newest.t
        if after is not None and after > t:  # of another ledger: it would wait for ever
            after = None
        known = self._history.last(zone, 1 if after is None else AGAIN)
        missed = [one for one in known if after is None or one.t > after]
        sent = missed[-1].t if missed else t
        return queue, [event(self._history.zones[zone], one) for one in missed], sent

    def leave(self, zone: str, queue: asyncio.Queue[Event]) -> None:
        """Remove a listener."""
        self._listeners[zone].discard(queue)


class _Listening(Response):
    """Streaming answer to one listener, until either side ends it."""

    def __init__(self, streams: Streams, zone: str, after: int | None) -> None:
        super().__init__()
        self._streams, self._zone, self._after = streams, zone, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            await send({"type": "http.response.body", "body": b""})
            return
        queue, first, sent = self._streams.join(self._zone, self._after)
        watch = asyncio.create_task(_gone(receive, queue))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            await self._write(queue, first, sent, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.leave(self._zone, queue)
            watch.cancel()

    async def _write(
        self, queue: asyncio.Queue[Event], first: list[Event], sent: int, send: Send
    ) -> None:
        begin = b"retry: 5000\n\n" + b"".join(text for _, text in first)
        await send({"type": "http.response.body", "body": begin, "more_body": True})
        while True:
            try:
                t, text = await asyncio.wait_for(queue.get(), HEARTBEAT)
            except TimeoutError:
                t, text = sent + 1, b": still here\n\n"
            else:
                if t < 0:
                    return
                if t <= sent:
                    continue  # sent with the first events
                sent = t
            await send({"type": "http.response.body", "body": text, "more_body": True})


async def _gone(receive: Receive, queue: asyncio.Queue[Event]) -> None:
    """Wait until the listener disconnects, then end its queue."""
    while (await receive())["type"] != "http.disconnect":
        pass
    queue.put_nowait(END)


# parameters by the names of Octopus
ALIASES = {"period_from": "from", "period_to": "to", "page_size": "limit"}


class Feeds:
    """Handler of the price feeds.

    Args:
        pages: answers by path, zone and range; made on demand.
        clock: time of the pages' age.
    """

    def __init__(self, pages: Pages, clock: Clock) -> None:
        self._pages, self._clock = pages, clock

    async def feed(self, request: Request) -> Response:
        """GET of any feed."""
        path = request.scope["path"]  # request.url depends on the Host header
        zone = requested_zone(request.query_params, self._pages.zones)
        span = USUAL if BY_PATH[path].shape is None else requested_range(request.query_params)
        page = self._pages.ready(path, zone, span)
        if page is None:
            page = await to_thread.run_sync(self._pages.page, path, zone, span)
        if page is None:
            return problem(404, f"Zone {zone!r} has no price yet; ask again after an interval.")
        return page_answer(page, request.headers.get("if-none-match"), self._clock.now())


def requested_zone(query: Mapping[str, str], zones: Iterable[str]) -> str:
    """Return the zone of a request; it may be omitted if there is only one.

    Args:
        query: parameters of the query.
        zones: ids of all zones.

    Returns:
        Id of the zone.

    Raises:
        ParameterError: if it is missing or unknown.
    """
    names, zone = tuple(zones), query.get("zone")
    fix = f"give one of {', '.join(names)}"
    if zone is None:
        if len(names) == 1:
            return names[0]
        raise ParameterError("zone", None, fix)
    if zone not in names:
        raise ParameterError("zone", zone, fix, status=404)
    return zone


def requested_range(query: Mapping[str, str]) -> PriceRange:
    """Return the range of a request for prices.

    Args:
        query: parameters of the query.

    Returns:
        The range.

    Raises:
        ParameterError: if a time or limit cannot be used.
    """
    given = {ALIASES.get(name, name): (name, value) for name, value in query.items()}
    since, until = (_instant(*given[name]) if name in given else None for name in ("from", "to"))
    if since is not None and until is not None and until < since:
        raise ParameterError(*given["to"], "give an instant that is not before from")
    return PriceRange(since, until, _limit(*given["limit"]) if "limit" in given else LIMIT)


def _instant(name: str, value: str) -> int:
    # a plus sign in a query is a space once it is read
    found = instant_of(value.replace(" ", "+")) if len(value) < 40 and value.isascii() else None
    if found is None:
        raise ParameterError(
            name, value, "give a date-time with its offset such as 2026-01-01T00:00:00Z"
        )
    return found


def _limit(name: str, value: str) -> int:
    number = int(value) if re.fullmatch("[0-9]{1,6}", value) else 0
    if not 1 <= number <= MOST:
        raise ParameterError(name, value, f"give a whole number from 1 to {MOST}")
    return number


KEEP = {"Cache-Control": "public, max-age=300"}

Make = Callable[[ZoneService], dict[str, Any]]


class PromiseHandlers:
    """Handlers of /v1/promise and /v1/tradeoff; computations share one thread.

    Args:
        zones: zones by id.
        mode: simulation or production.
    """

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
        zone = self._zones[requested_zone(request.query_params, self._zones)]
        try:
            body = made.known.get(zone.id) or await made.of(zone)
        except HushgridError as error:
            return problem(404, f"There is no such figure: {error}")
        return Response(body, media_type="application/json", headers=KEEP)


class _Once:
    """Answer for each zone, computed once."""

    def __init__(self, make: Make) -> None:
        self._make, self.known = make, dict[str, bytes]()
        self._mutex = threading.Lock()
        self._thread: CapacityLimiter | None = None

    async def of(self, zone: ZoneService) -> bytes:
        """Return the answer; HushgridError if there is none."""
        if self._thread is None:
            self._thread = CapacityLimiter(1)
        return await to_thread.run_sync(self._made, zone, limiter=self._thread)

    def _made(self, zone: ZoneService) -> bytes:
        with self._mutex:
            if zone.id not in self.known:
                made = self._make(zone)
                self.known[zone.id] = json.dumps(made, allow_nan=False).encode()
            return self.known[zone.id]
