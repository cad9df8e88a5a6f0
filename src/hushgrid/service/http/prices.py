"""Routes of prices: feeds, the stream of server-sent events, promise and trade-off.

A new release is passed to the server's event loop, so listeners never delay a tick. Each listener
has a queue; one that falls behind is disconnected and may resume with Last-Event-ID. Ranges of
prices and events sent again have few threads of their own and are refused when many wait; the
newest price and the usual range are never behind them. Promise and
trade-off follow from the terms of an epoch: each is computed once and kept as bytes.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import chain
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Query
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from hushgrid.errors import HushgridError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.extensions import by_key
from hushgrid.service.clock import Clock
from hushgrid.service.curator import price, utc
from hushgrid.service.http import models
from hushgrid.service.http.common import RETRY, Heavy, ParameterError, Refusal, Sending
from hushgrid.service.http.languages import translated
from hushgrid.service.http.middleware import caller_name, page_answer
from hushgrid.service.http.models import OF_ZONE, refusals
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.prices import (
    CSV,
    JSON,
    LIMIT,
    MOST,
    USUAL,
    Feed,
    History,
    Page,
    Pages,
    PriceRange,
    csv,
    emhass,
    evcc,
    evcc_feed_in,
    octopus,
    prices,
)
from hushgrid.service.promise import promise_json, tradeoff_json

HEARTBEAT = 15.0  # [s] without an event, then a comment: proxies close silent connections
QUEUE = 16  # events a listener may be behind
AGAIN = 1000  # releases sent again at most to a listener that resumes
PART = 32  # of them sent at a time
FEW = 64  # listeners that one caller may have where a quarter of all is less
THREADS = 2  # of the usual ranges

Event = tuple[int, bytes]  # number, bytes to send; number 0 for events that are not counted
END: Event = (-1, b"")


class Channel:
    """Server-sent events to many listeners, by topic, with a queue for each.

    `send` and `close` are thread-safe and return at once; the rest runs in the server's event loop.

    Args:
        topics: all topics.
        most: listeners at the same time; a quarter of them, or `FEW`, of one caller.
    """

    def __init__(self, topics: Iterable[str], most: int) -> None:
        self._most, self._closed = most, False
        self._callers = Counter[str]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Queue[Event]]] = {one: set() for one in topics}

    def __len__(self) -> int:
        return sum(map(len, self._listeners.values()))

    def send(self, topic: str, event: Event) -> None:
        """Send an event to the listeners of a topic."""
        self._later(self._spread, topic, event)

    def close(self) -> None:
        """Disconnect all listeners and refuse new ones."""
        self._closed = True
        self._later(self._end)

    def _later(self, work: Callable[..., None], *values: Any) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(work, *values)

    def _spread(self, topic: str, event: Event) -> None:
        for queue in tuple(self._listeners[topic]):
            if queue.qsize() >= QUEUE:
                self._let_go(topic, queue)
            else:
                queue.put_nowait(event)

    def _end(self) -> None:
        for topic, queues in self._listeners.items():
            for queue in tuple(queues):
                self._let_go(topic, queue)

    def _let_go(self, topic: str, queue: asyncio.Queue[Event]) -> None:
        self._listeners[topic].discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(END)

    def answer(
        self,
        request: Request,
        topic: str,
        first: Callable[[], tuple[Iterable[bytes], int]] = lambda: ((), 0),
        retry: int = 5000,
        ended: Callable[[], None] = lambda: None,
    ) -> Response:
        """Make the streaming answer to a listener.

        Args:
            request: its request.
            topic: events that it gets.
            first: returns its first events and the number of the last; called once it listens.
            retry: pause before a browser connects again [ms].
            ended: called when the first events are sent, or the listener has gone.

        Returns:
            The response.

        Raises:
            Refusal: if too many listen already, or the server stops.
        """
        caller = caller_name(request.scope)
        if self._closed:
            raise Refusal(503, "The service stops; connect again later.", RETRY)
        if len(self) >= self._most or self._callers[caller] >= max(self._most // 4, FEW):
            raise Refusal(503, "Too many listen already; try again later.", RETRY)
        # nginx passes events on at once
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            ended()
            return Response(headers=headers, media_type="text/event-stream")
        stream = self._events(topic, caller, first, retry, ended)
        return Sending(stream, ended, headers=headers, media_type="text/event-stream")

    async def _events(
        self,
        topic: str,
        caller: str,
        first: Callable[[], tuple[Iterable[bytes], int]],
        retry: int,
        ended: Callable[[], None],
    ) -> AsyncIterator[bytes]:
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners[topic].add(queue)
        self._callers[caller] += 1
        try:
            if self._closed:
                return
            texts, sent = first()
            yield b"retry: %d\n\n" % retry
            for text in texts:  # as the listener reads them
                yield text
            ended()
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        number, text = await queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if number < 0:
                    return
                if 0 < number <= sent:
                    continue  # sent with the first events
                yield text
        finally:
            self._listeners[topic].discard(queue)
            self._callers -= Counter([caller])  # a caller without any is forgotten


def event(zone: ZoneService, release: ReleaseRecord) -> Event:
    """Encode a release as a server-sent event with t as its id.

    Args:
        zone: the zone of the release.
        release: the release.

    Returns:
        start of the release's interval [UTC epoch s] and the bytes.
    """
    data = json.dumps(price(zone, release), separators=(",", ":"))
    return release.start, f"id: {release.t}\nevent: release\ndata: {data}\n\n".encode()


def price_event(found: dict[str, Any]) -> Event:
    """Encode the price in force as a server-sent event, which has no id.

    Args:
        found: what /v1/price says.

    Returns:
        0 and the bytes.
    """
    return 0, f"event: price\ndata: {json.dumps(found, separators=(',', ':'))}\n\n".encode()


def _missed(history: History, zone: str, after: int | None) -> tuple[list[ReleaseRecord], int]:
    """Return the releases after a step, or the newest without one, and the newest one's start."""
    newest = history.newest(zone)
    sent = 0 if newest is None else newest.start
    since = None if after is None else after * history.zones[zone].seconds
    if since is not None and since > sent:  # of another ledger, or of shorter steps
        since = None
    known = history.last(zone, 1 if since is None else AGAIN)
    missed = [one for one in known if since is None or one.start > since]
    return missed, missed[-1].start if missed else sent


def requested_zone(zone: str | None, zones: Iterable[str]) -> str:
    """Return the zone of a request; it may be omitted if there is only one.

    Args:
        zone: parameter of the request.
        zones: ids of all zones.

    Returns:
        Id of the zone.

    Raises:
        ParameterError: if it is missing or unknown.
    """
    names = tuple(zones)
    if zone is None and len(names) == 1:
        return names[0]
    if zone not in names:
        fix = f"give one of {', '.join(names)}"
        raise ParameterError("zone", zone, fix, 400 if zone is None else 404)
    return zone


ZONE = "The zone; may be omitted if there is only one."
ZoneName = Annotated[str | None, Query(description=ZONE)]
Language = Annotated[
    Literal["en", "de", "fr"], Query(description="Language of the sentence and the assumptions.")
]
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)", re.ASCII | re.IGNORECASE
)


def _instant(text: str) -> str:
    """Refuse a number, which pydantic takes for epoch seconds."""
    text = text.replace(" ", "+")  # of a plus sign in a query
    if not _INSTANT.fullmatch(text):
        fix = "give a date and time with Z or an offset, such as 2026-01-31T12:00:00Z"
        raise PydanticCustomError("instant", fix)
    return text


Instant = Annotated[
    AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC)), BeforeValidator(_instant)
]


class RangeQuery(BaseModel):
    """Parameters of a request for prices, by our names or by those of Octopus.

    Attributes:
        zone: id of the zone.
        since: start of the first price.
        until: prices start before it.
        limit: most prices of an answer.
    """

    zone: str | None = Field(None, description=ZONE)
    since: Instant | None = Field(
        None,
        alias="from",
        description="Prices that start then or later, the oldest first where the limit is reached;"
        " by default the newest of the last day, and the forecast.",
    )
    until: Instant | None = Field(
        None,
        alias="to",
        description="Prices that start before; by default to the end of the forecast.",
    )
    limit: int = Field(LIMIT, ge=1, le=MOST, description="Maximum number of prices.")

    @model_validator(mode="before")
    @classmethod
    def _own_names(cls, given: dict[str, Any]) -> dict[str, Any]:
        names = {"period_from": "from", "period_to": "to", "page_size": "limit"}
        return {names.get(name, name): value for name, value in given.items()}

    def span(self) -> PriceRange:
        """Return the range [UTC epoch s]; ParameterError if it ends before it begins."""
        since, until = (
            None if one is None else int(one.timestamp()) for one in (self.since, self.until)
        )
        if since is not None and until is not None and until < since:
            raise ParameterError("to", utc(until), "give an instant that is not before from")
        return PriceRange(since, until, self.limit)


PRICE = Feed("/v1/price", JSON, None, "The price in force, and the next one.", models.Price)
PRICES = Feed(
    "/v1/prices", JSON, prices, "Published prices and the forecast.", models.Prices, ranges=True
)
TABLE = Feed("/v1/prices.csv", CSV, csv, "The same as a table.")
EVCC = Feed("/v1/evcc", JSON, evcc, "Prices as evcc's custom forecast reads them.", models.Evcc)
EVCC_FEED_IN = Feed(
    "/v1/evcc/feed_in", JSON, evcc_feed_in, "Feed-in prices as evcc reads them.", models.Evcc
)
EMHASS = Feed("/v1/emhass", JSON, emhass, "Prices as EMHASS reads them.", models.Emhass)
OCTOPUS = Feed(
    "/v1/octopus", JSON, octopus, "Prices as Octopus-style tools read them.", models.Octopus
)


def feeds() -> list[Feed]:
    """Load the price feeds.

    Returns:
        The built-in feeds and those of other packages.

    Raises:
        ServiceError: If an extension cannot be loaded, or two have the same path.
    """
    return list(by_key("hushgrid.feeds", lambda one: [one.path]).values())


def add_feeds(router: APIRouter, pages: Pages, clock: Clock, heavy: Heavy) -> None:
    """Add the routes of the price feeds.

    Args:
        router: gets the routes.
        pages: answers by path, zone and range; made on demand.
        clock: time of the pages' age.
        heavy: threads of other ranges than the usual one.
    """
    usual = CapacityLimiter(THREADS)
    for feed in pages.feeds.values():
        answer = {"model": feed.model} if feed.model else {"content": {feed.media: {}}}
        unchanged = {"description": "Nothing new since the ETag in If-None-Match."}
        router.get(
            feed.path,
            summary=feed.summary,
            name=feed.path,
            response_class=Response,
            responses={
                200: answer,
                304: unchanged,
                **OF_ZONE,
                **refusals({503: "Too many at once."}),
            },
        )(_feed(feed, pages, clock, usual, heavy))


def _feed(
    feed: Feed, pages: Pages, clock: Clock, usual: CapacityLimiter, heavy: Heavy
) -> Callable[..., Any]:
    async def answer(request: Request, zone: str | None, span: PriceRange) -> Response:
        name = requested_zone(zone, pages.zones)
        page, work = pages.ready(feed.path, name, span), partial(pages.page, feed.path, name, span)
        if page is None and feed.shape is None:
            page = work(patience=0.0)  # takes no time, unless nothing was published for now
        if page is None and span == USUAL:
            page = await to_thread.run_sync(work, limiter=usual)
        elif page is None:
            sender = caller_name(request.scope)
            made: Response = await heavy.run(lambda: answered(request, name, work()), sender)
            return made
        return answered(request, name, page)

    def answered(request: Request, name: str, page: Page | None) -> Response:
        if page is None:
            detail = f"The price of zone {name!r} is not ready; ask again in a few seconds."
            raise Refusal(503, detail, RETRY)
        return page_answer(request, page, clock.now())

    async def newest(request: Request, zone: ZoneName = None) -> Response:
        return await answer(request, zone, USUAL)

    async def ranged(request: Request, query: Annotated[RangeQuery, Query()]) -> Response:
        return await answer(request, query.zone, query.span())

    return newest if feed.shape is None else ranged


def add_stream(
    router: APIRouter, history: History, most: int, heavy: Heavy, clock: Clock
) -> Channel:
    """Add the route of the stream.

    Args:
        router: gets the route.
        history: releases of the zones.
        most: listeners at the same time.
        heavy: threads of events that are sent again.
        clock: which price is in force.

    Returns:
        The channel of the listeners.
    """
    channel = Channel(history.zones, most)
    known: dict[tuple[str, int, str], Event] = {}

    def encoded(zone: ZoneService, release: ReleaseRecord) -> Event:
        key = (zone.id, release.start, release.head)
        made = known.get(key) or event(zone, release)
        if len(known) > AGAIN * (len(history.zones) + 1):
            known.clear()
        known[key] = made
        return made

    @router.get(
        "/v1/stream",
        summary="Prices as they come (server-sent events).",
        response_description="An event `price` with what /v1/price says whenever that changes,"
        " and an event `release` for each release, whose id is t.",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {}}},
            **OF_ZONE,
            **refusals({503: "Too many listeners."}),
        },
    )
    async def stream(
        request: Request,
        zone: ZoneName = None,
        last_event_id: Annotated[
            str | None,
            Header(description="Id of the last event received; later events are sent first."),
        ] = None,
    ) -> Response:
        name, last = requested_zone(zone, history.zones), last_event_id or ""
        after = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        ended = ExitStack()

        def parts(missed: Sequence[ReleaseRecord]) -> Iterator[bytes]:
            for i in range(0, len(missed), PART):
                yield b"".join(encoded(history.zones[name], one)[1] for one in missed[i : i + PART])

        def largest() -> int:
            return max(map(len, parts(_missed(history, name, after)[0])), default=0)

        def first() -> tuple[Iterable[bytes], int]:
            missed, sent = _missed(history, name, after)
            found = history.in_force(name, clock.now())  # where it is not ready it comes later
            present = [] if found is None else [price_event(found)[1]]
            return chain(parts(missed), present), sent

        if after is not None:  # encoded in a thread; again, with what has come since, as it is sent
            caller = caller_name(request.scope)
            size = await heavy.run(largest, caller)
            ended.callback(await heavy.under_way.take(caller, size))
        try:
            return channel.answer(request, name, first, ended=ended.close)
        except Refusal:
            ended.close()
            raise

    history.watch(lambda zone, release: channel.send(zone.id, event(zone, release)))
    history.watch_prices(lambda zone, found: channel.send(zone.id, price_event(found)))
    return channel


def add_promises(router: APIRouter, zones: Mapping[str, ZoneService], mode: str) -> None:
    """Add the routes of promise and trade-off.

    Args:
        router: gets the routes.
        zones: zones by id.
        mode: simulation or production.
    """
    makers = (
        ("promise", "The promise to a zone's homes.", models.PromiseTerms,
         _Once(lambda zone: promise_json(zone, mode))),
        ("tradeoff", "What other promises would cost.", models.TradeoffAnswer,
         _Once(tradeoff_json)),
    )  # fmt: skip
    for name, summary, model, made in makers:
        # only the promise has sentences
        route = made.route(zones) if name == "tradeoff" else made.in_languages(zones)
        router.get(
            f"/v1/{name}",
            summary=summary,
            name=name,
            response_class=Response,
            responses={200: {"model": model}, **OF_ZONE},
        )(route)


class _Once:
    """Answer for each zone, computed once; in one thread."""

    def __init__(self, make: Callable[[ZoneService], dict[str, Any]]) -> None:
        self._make, self._known = make, dict[str, bytes]()
        self._thread = CapacityLimiter(1)

    def route(self, zones: Mapping[str, ZoneService]) -> Callable[..., Any]:
        async def answer(zone: ZoneName = None) -> Response:
            return _kept(await self._body(zones[requested_zone(zone, zones)]))

        return answer

    def in_languages(self, zones: Mapping[str, ZoneService]) -> Callable[..., Any]:
        @lru_cache(1000)
        def said(body: bytes, language: str) -> bytes:
            found = json.loads(body)
            for key in ("words", "sentence"):
                found[key] = translated(found[key], language)
            for key in ("assumptions", "not_covered"):
                found[key] = [translated(one, language) for one in found[key]]
            return json.dumps(found, allow_nan=False).encode()

        async def answer(zone: ZoneName = None, lang: Language = "en") -> Response:
            body = await self._body(zones[requested_zone(zone, zones)])
            return _kept(body if lang == "en" else said(body, lang))

        return answer

    async def _body(self, zone: ZoneService) -> bytes:
        try:
            if zone.id not in self._known:
                await to_thread.run_sync(self._made, zone, limiter=self._thread)
        except HushgridError as error:
            raise Refusal(404, f"There is no such figure: {error}") from None
        return self._known[zone.id]

    def _made(self, zone: ZoneService) -> None:
        if zone.id not in self._known:
            made = self._make(zone)
            self._known[zone.id] = json.dumps(made, allow_nan=False).encode()


def _kept(body: bytes) -> Response:
    return Response(body, 200, {"Cache-Control": "public, max-age=300"}, "application/json")
