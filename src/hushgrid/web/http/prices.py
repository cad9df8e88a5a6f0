"""Routes of prices: feeds, the stream of server-sent events, promise and trade-off.

A new release is passed to the server's event loop, so listeners never delay a tick. Each listener
has a queue; one that falls behind is disconnected and may resume with Last-Event-ID. Ranges of
prices and events sent again have few threads of their own and are refused when many wait; the
newest price and the usual range are never behind them. Promise and
trade-off follow from the terms of a zone: each is computed once and kept as bytes.
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

from hushgrid.curator.clock import Clock, utc
from hushgrid.curator.promise import promise_json, tradeoff_json
from hushgrid.curator.publishers import price
from hushgrid.errors import HushgridError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.extensions import by_key
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.feeds import (
    CSV,
    JSON,
    LIMIT,
    MOST,
    USUAL,
    Feed,
    PriceQuery,
    PriceRange,
    csv,
    emhass,
    evcc,
    evcc_feed_in,
    octopus,
    prices,
)
from hushgrid.web.http import models
from hushgrid.web.http.common import (
    OF_ZONE,
    RETRY,
    Heavy,
    ParameterError,
    Refusal,
    Sending,
    refusals,
)
from hushgrid.web.http.languages import translate
from hushgrid.web.http.middleware import caller_name, page_answer
from hushgrid.web.prices import History, Page, Pages

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
        limit: listeners at the same time; a quarter of them, or `FEW`, of one caller.
    """

    def __init__(self, topics: Iterable[str], limit: int) -> None:
        self._limit, self._closed = limit, False
        self._callers = Counter[str]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Queue[Event]]] = {topic: set() for topic in topics}

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
        on_end: Callable[[], None] = lambda: None,
    ) -> Response:
        """Make the streaming answer to a listener.

        Args:
            request: its request.
            topic: events that it gets.
            first: returns its first events and the number of the last; called once it listens.
            retry: pause before a browser connects again [ms].
            on_end: called when the first events are sent, or the listener has gone.

        Returns:
            The response.

        Raises:
            Refusal: if too many listen already, or the server stops.
        """
        caller = caller_name(request.scope)
        if self._closed:
            raise Refusal(503, "The service stops; connect again later.", RETRY)
        if len(self) >= self._limit or self._callers[caller] >= max(self._limit // 4, FEW):
            raise Refusal(503, "Too many listen already; try again later.", RETRY)
        # nginx passes events on at once
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if request.method == "HEAD":
            on_end()
            return Response(headers=headers, media_type="text/event-stream")
        stream = self._events(topic, caller, first, retry, on_end)
        return Sending(stream, on_end, headers=headers, media_type="text/event-stream")

    async def _events(
        self,
        topic: str,
        caller: str,
        first: Callable[[], tuple[Iterable[bytes], int]],
        retry: int,
        on_end: Callable[[], None],
    ) -> AsyncIterator[bytes]:
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._listeners[topic].add(queue)
        self._callers[caller] += 1
        try:
            if self._closed:
                return
            texts, last_number = first()
            yield b"retry: %d\n\n" % retry
            for text in texts:  # as the listener reads them
                yield text
            on_end()
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT):
                        number, text = await queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if number < 0:
                    return
                if 0 < number <= last_number:
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
        start of the release's interval [UTC s] and the bytes.
    """
    data = json.dumps(price(zone, release), separators=(",", ":"))
    return release.start, f"id: {release.t}\nevent: release\ndata: {data}\n\n".encode()


def price_event(price: dict[str, Any]) -> Event:
    """Encode the price in force as a server-sent event, which has no id.

    Args:
        price: what /v1/price says.

    Returns:
        0 and the bytes.
    """
    return 0, f"event: price\ndata: {json.dumps(price, separators=(',', ':'))}\n\n".encode()


def _releases_after(
    history: History, zone: str, last_step: int | None
) -> tuple[list[ReleaseRecord], int]:
    """Return the releases after a step, or the newest without one, and the newest one's start."""
    newest = history.newest(zone)
    newest_start = 0 if newest is None else newest.start
    start = None if last_step is None else last_step * history.zones[zone].seconds
    if start is not None and start > newest_start:  # of another ledger, or of shorter steps
        start = None
    releases = history.last(zone, 1 if start is None else AGAIN)
    later_releases = [release for release in releases if start is None or release.start > start]
    return later_releases, later_releases[-1].start if later_releases else newest_start


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
    """Refuse a number, which pydantic takes for Unix seconds."""
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
    def _octopus_names(cls, parameters: dict[str, Any]) -> dict[str, Any]:
        names = {"period_from": "from", "period_to": "to", "page_size": "limit"}
        return {names.get(name, name): value for name, value in parameters.items()}

    def resolve(self, zones: Mapping[str, ZoneService]) -> tuple[str, PriceRange]:
        """Return the zone and the range [UTC s]; ParameterError if they cannot be used."""
        since, until = (
            None if instant is None else int(instant.timestamp())
            for instant in (self.since, self.until)
        )
        if since is not None and until is not None and until < since:
            raise ParameterError("to", utc(until), "give an instant that is not before from")
        return requested_zone(self.zone, zones), PriceRange(since, until, self.limit)


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
    return list(by_key("hushgrid.feeds", lambda feed: [feed.path]).values())


def add_feeds(
    router: APIRouter, pages: Pages, zones: Mapping[str, ZoneService], clock: Clock, heavy: Heavy
) -> None:
    """Add the routes of the price feeds.

    Args:
        router: gets the routes.
        pages: answers by path, zone and range; made on demand.
        zones: zones by id.
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
        )(_feed(feed, pages, zones, clock, usual, heavy))


def _feed(
    feed: Feed,
    pages: Pages,
    zones: Mapping[str, ZoneService],
    clock: Clock,
    usual: CapacityLimiter,
    heavy: Heavy,
) -> Callable[..., Any]:
    async def answer(request: Request, name: str, span: PriceRange) -> Response:
        page, work = pages.ready(feed.path, name, span), partial(pages.page, feed.path, name, span)
        if page is None and feed.shape is None:
            page = work(patience=0.0)  # takes no time, unless nothing was published for now
        if page is None and span == USUAL:
            page = await to_thread.run_sync(work, limiter=usual)
        elif page is None:
            sender = caller_name(request.scope)
            response: Response = await heavy.run(lambda: answer_of(request, name, work()), sender)
            return response
        return answer_of(request, name, page)

    def answer_of(request: Request, name: str, page: Page | None) -> Response:
        if page is None:
            detail = f"The price of zone {name!r} is not ready; ask again in a few seconds."
            raise Refusal(503, detail, RETRY)
        return page_answer(request, page, clock.now())

    async def newest(request: Request, zone: ZoneName = None) -> Response:
        return await answer(request, requested_zone(zone, zones), USUAL)

    async def ranged(request: Request, query: PriceQuery) -> Response:
        return await answer(request, *query.resolve(zones))

    # the class is the feed's
    ranged.__annotations__["query"] = Annotated[feed.query or RangeQuery, Query()]
    return newest if feed.shape is None else ranged


def add_stream(
    router: APIRouter, history: History, limit: int, heavy: Heavy, clock: Clock
) -> Channel:
    """Add the route of the stream.

    Args:
        router: gets the route.
        history: releases of the zones.
        limit: listeners at the same time.
        heavy: threads of events that are sent again.
        clock: which price is in force.

    Returns:
        The channel of the listeners.
    """
    channel = Channel(history.zones, limit)
    events: dict[tuple[str, int, str], Event] = {}

    def encode(zone: ZoneService, release: ReleaseRecord) -> Event:
        key = (zone.id, release.start, release.head)
        encoding = events.get(key) or event(zone, release)
        if len(events) > AGAIN * (len(history.zones) + 1):
            events.clear()
        events[key] = encoding
        return encoding

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
        last_step = int(last) if last.isascii() and last.isdigit() and len(last) < 19 else None
        cleanup = ExitStack()

        def parts(releases: Sequence[ReleaseRecord]) -> Iterator[bytes]:
            for i in range(0, len(releases), PART):
                yield b"".join(
                    encode(history.zones[name], release)[1] for release in releases[i : i + PART]
                )

        def largest() -> int:
            return max(map(len, parts(_releases_after(history, name, last_step)[0])), default=0)

        def first() -> tuple[Iterable[bytes], int]:
            releases, last_start = _releases_after(history, name, last_step)
            price = history.in_force(name, clock.now())  # where it is not ready it comes later
            present = [] if price is None else [price_event(price)[1]]
            return chain(parts(releases), present), last_start

        if last_step is not None:
            # encoded in a thread; again, with what has come since, as it is sent
            caller = caller_name(request.scope)
            size = await heavy.run(largest, caller)
            cleanup.callback(await heavy.under_way.take(caller, size))
        try:
            return channel.answer(request, name, first, on_end=cleanup.close)
        except Refusal:
            cleanup.close()
            raise

    history.watch(lambda zone, release: channel.send(zone.id, event(zone, release)))
    history.watch_prices(lambda zone, price: channel.send(zone.id, price_event(price)))
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
         _CachedAnswers(lambda zone: promise_json(zone, mode))),
        ("tradeoff", "What other promises would cost.", models.TradeoffAnswer,
         _CachedAnswers(tradeoff_json)),
    )  # fmt: skip
    for name, summary, model, answers in makers:
        # only the promise has sentences
        route = answers.route(zones) if name == "tradeoff" else answers.in_languages(zones)
        router.get(
            f"/v1/{name}",
            summary=summary,
            name=name,
            response_class=Response,
            responses={200: {"model": model}, **OF_ZONE},
        )(route)


class _CachedAnswers:
    """Answer for each zone, computed once; in one thread."""

    def __init__(self, make: Callable[[ZoneService], dict[str, Any]]) -> None:
        self._make, self._bodies = make, dict[str, bytes]()
        self._thread = CapacityLimiter(1)

    def route(self, zones: Mapping[str, ZoneService]) -> Callable[..., Any]:
        async def answer(zone: ZoneName = None) -> Response:
            return _response(await self._body(zones[requested_zone(zone, zones)]))

        return answer

    def in_languages(self, zones: Mapping[str, ZoneService]) -> Callable[..., Any]:
        @lru_cache(1000)
        def translate_body(body: bytes, language: str) -> bytes:
            values = json.loads(body)
            for key in ("words", "sentence"):
                values[key] = translate(values[key], language)
            for key in ("assumptions", "not_covered"):
                values[key] = [translate(text, language) for text in values[key]]
            return json.dumps(values, allow_nan=False).encode()

        async def answer(zone: ZoneName = None, lang: Language = "en") -> Response:
            body = await self._body(zones[requested_zone(zone, zones)])
            return _response(body if lang == "en" else translate_body(body, lang))

        return answer

    async def _body(self, zone: ZoneService) -> bytes:
        try:
            if zone.id not in self._bodies:
                await to_thread.run_sync(self._make_body, zone, limiter=self._thread)
        except HushgridError as error:
            raise Refusal(404, f"There is no such figure: {error}") from None
        return self._bodies[zone.id]

    def _make_body(self, zone: ZoneService) -> None:
        if zone.id not in self._bodies:
            values = self._make(zone)
            self._bodies[zone.id] = json.dumps(values, allow_nan=False).encode()


def _response(body: bytes) -> Response:
    return Response(body, 200, {"Cache-Control": "public, max-age=300"}, "application/json")
