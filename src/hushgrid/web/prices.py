"""Price feeds: the releases of each zone, the forecast, and the bodies that the feeds serve.

A body is made once for a release and kept as bytes. It is valid until the next release is due, so
that a proxy can serve it from its cache. The forecast is post-processing of published releases
and the public model; no reading is used.
"""

from __future__ import annotations

import bisect
import hashlib
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from hushgrid.curator.clock import Clock, utc
from hushgrid.curator.publishers import PresentPrices, price
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.digest import tariff_fields
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.stores.ledger.releases import Releases
from hushgrid.web.feeds import (
    USUAL,
    Feed,
    Guess,
    PriceRange,
    bounds,
    encoded,
    fallback,
    series,
)
from hushgrid.web.forecast import NOTHING, Forecaster, ForecastPrices

# ---- releases that can be requested

log = logging.getLogger("hushgrid.history")

KEPT = 100_000  # releases of a zone: more than two years of quarter hours

ReleaseWatcher = Callable[[ZoneService, ReleaseRecord], None]
ListWatcher = Callable[[ZoneService, PricesRecord], None]
PriceWatcher = Callable[[ZoneService, dict[str, Any]], None]
PATIENCE = 0.5  # [s] for a forecast that is being made; then an answer has what is known
LOOP_PATIENCE = 0.0  # [s] the same, of the loop: it has ticks to do and comes again


class History:
    """Releases and lists of prices of each zone in order of time; it notifies subscribers.

    The loop writes, any thread reads. A release is added when it is durable, and never changes.

    Args:
        zones: The zones of the service.
        simulated: Whether noise is simulated.
        unread: Whether ledgers are yet to be read: a zone has no price before `fill`.

    Attributes:
        zones: The zones by id.
        simulated: See above.
        unread: Zones whose ledgers were not read yet.
    """

    def __init__(
        self, zones: Iterable[ZoneService], *, simulated: bool = False, unread: bool = False
    ) -> None:
        self.zones, self.simulated = {zone.id: zone for zone in zones}, simulated
        self.unread = set(self.zones) if unread else set[str]()
        self._forecasters = {name: Forecaster(zone) for name, zone in self.zones.items()}
        self._priced_since = dict.fromkeys(self.zones, 0)
        self._turn = threading.Lock()  # one forecast at a time: the loop needs the interpreter
        # by zone and whether all of it is made: the last release and instants that it is of
        self._making: dict[
            tuple[str, bool], tuple[tuple[int, int, int | None], Future[ForecastPrices]]
        ] = {}
        self._present: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {}
        self._releases = {zone: Releases() for zone in self.zones}
        self._lists: dict[str, list[PricesRecord]] = {zone: [] for zone in self.zones}
        self._watchers: list[ReleaseWatcher] = []
        self._list_watchers: list[ListWatcher] = []
        self._price_watchers: list[PriceWatcher] = []
        self._prices: dict[str, dict[str, Any]] = {}
        # start of the last interval of each zone that was made here [UTC s]
        self._mutex = threading.Lock()

    def fill(
        self,
        zone: str,
        releases: Sequence[ReleaseRecord],
        lists: Iterable[PricesRecord] = (),
        *,
        priced_since: int = 0,
    ) -> None:
        """Set the releases and lists of a zone from its ledger; subscribers are not notified.

        Args:
            zone: The zone's id.
            releases: Its releases.
            lists: Its lists of prices.
            priced_since: When its tariff began [UTC s].
        """
        with self._mutex:
            self.unread.discard(zone)
            if priced_since != self._priced_since[zone]:
                self._priced_since[zone] = priced_since
                self._forecasters[zone] = Forecaster(self.zones[zone], priced_since)
            self._releases[zone] = Releases(releases[-KEPT:])
            self._lists[zone] = list(lists)

    def renew(self, zone: ZoneService) -> None:
        """Go on with a zone over another week.

        Args:
            zone: The zone over that week.
        """
        with self._mutex:
            self.zones[zone.id] = zone
            self._forecasters[zone.id] = Forecaster(zone, self._priced_since[zone.id])

    def watch(self, watcher: ReleaseWatcher) -> Callable[[], None]:
        """Call `watcher` with every new release; it must not block.

        Args:
            watcher: The subscriber.

        Returns:
            A function that ends the subscription.
        """
        with self._mutex:
            self._watchers.append(watcher)

        def end() -> None:
            with self._mutex:
                if watcher in self._watchers:
                    self._watchers.remove(watcher)

        return end

    def watch_lists(self, watcher: ListWatcher) -> Callable[[], None]:
        """Call `watcher` with every new list of prices; it must not block.

        Args:
            watcher: The subscriber.

        Returns:
            A function that ends the subscription.
        """
        with self._mutex:
            self._list_watchers = [*self._list_watchers, watcher]

        def end() -> None:
            with self._mutex:
                self._list_watchers = [
                    listener for listener in self._list_watchers if listener != watcher
                ]

        return end

    def watch_prices(self, watcher: PriceWatcher) -> None:
        """Call `watcher` with what /v1/price says whenever it changes; it must not block."""
        self._price_watchers.append(watcher)

    def show(self, zone: ZoneService, prices: PresentPrices) -> None:
        """Notify subscribers where the price in force or the next one is new."""
        if self._prices.get(zone.id) != prices.price:
            self._prices[zone.id] = prices.price
            _notify(self._price_watchers, zone, prices.price)

    def of_tariff(self, zone: str, release: ReleaseRecord) -> bool:
        """Whether a release is priced by the zone's present tariff."""
        return release.start >= self._priced_since[zone]

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Append a release and notify subscribers. Does nothing if it is already stored."""
        with self._mutex:
            releases = self._releases[zone.id]
            if releases and releases[-1].start >= release.start:
                return
            releases.append(release)
            if len(releases) > KEPT:
                self._releases[zone.id] = releases[-KEPT:]
            watchers = list(self._watchers)
        _notify(watchers, zone, release)

    def publish_list(self, zone: ZoneService, record: PricesRecord) -> None:
        """Append a list of prices and notify subscribers. Does nothing if it is stored."""
        with self._mutex:
            lists = self._lists[zone.id]
            if lists and lists[-1].first >= record.first:
                return
            self._lists[zone.id] = [*lists, record]
            watchers = self._list_watchers
        _notify(watchers, zone, record)

    def list_at(self, zone: str, start: int) -> PricesRecord | None:
        """The list that has the price of the interval at `start` [UTC s]; None: there is none."""
        lists = self._lists[zone]
        record = lists[bisect.bisect_right(lists, start, key=lambda record: record.first) - 1 :][:1]
        return record[0] if record and record[0].first <= start < record[0].ends else None

    def lists(self, zone: str) -> Sequence[PricesRecord]:
        """All lists of prices, in order."""
        return self._lists[zone]

    def newest(self, zone: str) -> ReleaseRecord | None:
        """The last release; None before the first."""
        releases = self._releases[zone]
        return releases[-1] if releases else None

    def head(self, zone: str) -> str:
        """Digest of the newest release's or list's record; empty before any."""
        records = [*self._lists[zone][-1:], *self._releases[zone][-1:]]
        return max(records, key=lambda record: record.seq).head if records else ""

    def between(
        self, zone: str, since: int, until: int, newest: ReleaseRecord | None = None
    ) -> list[ReleaseRecord]:
        """Prices that apply from an instant of since..until on [UTC s, until not in].

        The price of an interval is that of a list, and of a release where no list has it.

        Args:
            zone: The zone's id.
            since: See above.
            until: See above.
            newest: The last release to look at; None: there may be later ones.

        Returns:
            Releases, and listed prices as such, in order.
        """
        releases = self._releases[zone]
        low, high = (
            bisect.bisect_left(releases, at, key=lambda release: release.applies_start)
            for at in (since, until)
        )
        span = list(releases[low:high])
        while span and newest and span[-1].start > newest.start:  # published since
            span.pop()
        lists = [x for x in self._lists[zone] if x.first < until and x.ends > since]
        if not lists:
            return span
        span = [release for release in span if self.list_at(zone, release.applies_start) is None]
        span += chain.from_iterable(record.prices(since, until) for record in lists)
        return sorted(span, key=lambda price: price.applies_start)

    def at(self, zone: str, t: int) -> ReleaseRecord | None:
        """The release of step t; None where it is not kept."""
        return next((release for release in reversed(self._releases[zone]) if release.t == t), None)

    def last(self, zone: str, number: int) -> list[ReleaseRecord]:
        """The newest releases, oldest first."""
        return list(self._releases[zone][-number:]) if number > 0 else []

    def applying(self, zone: str, start: int) -> ReleaseRecord | None:
        """The release or listed price that is for the interval at `start` [UTC s]."""
        releases = self.between(zone, start, start + 1)
        return releases[-1] if releases else None

    def has_release(self, zone: str) -> bool:
        """Whether the present week has a release."""
        newest = self.newest(zone)
        return newest is not None and newest.start >= self.zones[zone].begins

    def expected(
        self, zone: str, now: float, patience: float, until: int | None = None
    ) -> tuple[ForecastPrices, bool]:
        """Expected prices of a zone at an instant, made once for a release in another thread.

        Args:
            zone: The zone's id.
            now: [UTC s]
            patience: How long to wait for them [s].
            until: Where they end [UTC s], if they need not be all there are.

        Returns:
            Them and True; those of an earlier release and False where they are not ready.
        """
        start = 0 if self.has_release(zone) else interval(self.zones[zone], now)
        with self._mutex:
            key: tuple[int, int, int | None] = (self._last(zone), start, None)
            work_key, work = self._making.get((zone, True), (None, None))
            if work is None or work_key != key or (until is not None and not work.done()):
                key = (*key[:2], until)
                work_key, work = self._making.get((zone, until is None), (None, None))
            if work is None or work_key != key:
                releases, work = self._releases[zone][-KEPT:], Future[ForecastPrices]()
                self._making[zone, until is None] = key, work
                threading.Thread(
                    target=self._make, args=(zone, releases, start, until, work), daemon=True
                ).start()
        try:
            return work.result(patience), True
        except TimeoutError:
            return self._forecasters[zone].forecast, False

    def _make(
        self,
        zone: str,
        releases: list[ReleaseRecord],
        start: int,
        until: int | None,
        work: Future[ForecastPrices],
    ) -> None:
        with self._turn:
            try:
                work.set_result(self._forecasters[zone].after(releases, start, until))
            except Exception as error:  # then there is no forecast: neither feed nor tick fails
                log.error("no forecast", extra={"zone": zone, "error": type(error).__name__})
                work.set_result(NOTHING)

    def in_force(self, zone: str, now: float, patience: float = 0.0) -> dict[str, Any] | None:
        """The price whose interval holds an instant, as price consumers read it.

        Where nothing was released for it, what was expected, else the fallback: `kind` says so.

        Args:
            zone: The zone's id.
            now: [UTC s]
            patience: How long to wait for an expected price that is not ready [s].

        Returns:
            The fields of /v1/price; None where it is not ready.
        """
        if zone in self.unread:
            return None
        zone_service = self.zones[zone]
        key = (self._last(zone), interval(zone_service, now), len(self._lists[zone]))
        fields_key, fields = self._present.get(zone, (None, None))
        if fields is not None and fields_key == key:
            return fields
        holds, follows = (self.applying(zone, key[1] + i * zone_service.seconds) for i in (0, 1))
        if holds is not None:
            fields = price(zone_service, holds)
        else:
            forecast, ready = self.expected(zone, now, patience, key[1] + zone_service.seconds)
            if not ready:
                return None
            guess = forecast.at(key[1]) or fallback(zone_service, key[1])
            fields = expected_price(zone_service, guess, simulated=self.simulated)
        fields = fields | {"next": None if follows is None else price(zone_service, follows)}
        self._present[zone] = key, fields
        return fields

    def present(self, zone: str, now: float) -> PresentPrices | None:
        """What publishers show of a zone at an instant [UTC s]; None while not ready."""
        fields = self.in_force(zone, now, LOOP_PATIENCE)
        return (
            None
            if fields is None
            else PresentPrices(fields, partial(self.ahead, zone, now, LOOP_PATIENCE))
        )

    def ahead(
        self, zone: str, now: float, patience: float, *, listed: bool = True
    ) -> list[dict[str, Any]] | None:
        """Listed and expected prices from an instant [UTC s] on, as consumers read them.

        Args:
            zone: The zone's id.
            now: [UTC s]
            patience: How long to wait for expected prices [s].
            listed: Whether prices of a list are among them; else expected ones alone.

        Returns:
            `start`, `end`, `price` and `total` of each, in order; None where they are not ready.
        """
        forecast, ready = self.expected(zone, now, patience)
        if not ready:
            return None
        zone_service = self.zones[zone]
        start, seconds = interval(zone_service, now), zone_service.seconds
        prices: list[tuple[int, int, float, float | None]] = [
            (guess.start, seconds, guess.rate, guess.feed_in)
            for guess in forecast.guesses
            if guess.start >= start and self.list_at(zone, guess.start) is None
        ]
        if listed:
            records = [record for record in self._lists[zone] if record.ends > start]
            prices += [
                (price.applies_start, record.seconds, price.rate, price.feed_in)
                for record in records
                for price in record.prices(start)
            ]
        return [
            {"start": utc(begin), "end": utc(begin + length)}
            | zone_service.amounts(rate, begin, feed_in)
            for begin, length, rate, feed_in in sorted(prices)
        ]

    def _last(self, zone: str) -> int:
        """The interval of the last release [UTC s]."""
        newest = self.newest(zone)
        return -1 if newest is None else newest.start


def interval(zone: ZoneService, now: float) -> int:
    """Start of a zone's interval that holds an instant.

    Args:
        zone: The zone.
        now: [UTC s]

    Returns:
        [UTC s]
    """
    return math.floor(now) // zone.seconds * zone.seconds


def expected_price(zone: ZoneService, guess: Guess, *, simulated: bool) -> dict[str, Any]:
    """A price that was not published, as price consumers read it: no record, no signature.

    Args:
        zone: The zone.
        guess: The price.
        simulated: Whether noise is simulated.

    Returns:
        The fields of the JSON object.
    """
    return {
        "zone": zone.id,
        "start": utc(guess.start),
        "end": utc(guess.start + zone.seconds),
        **zone.amounts(guess.rate, guess.start, guess.feed_in),
        "currency": zone.currency,
        "rule": guess.source,
        "source": guess.source,
        "kind": "forecast",
        "simulated": simulated,
        "head": "",
        "signature": "",
    }


def _notify(watchers: Iterable[Callable[..., None]], zone: ZoneService, new: Any) -> None:
    for watcher in watchers:
        try:
            watcher(zone, new)
        except Exception as error:  # a subscriber that fails must not stop the tick
            log.warning("watcher failed", extra={"error": type(error).__name__})


# ---- bodies

FORM = 5  # incremented when a shape changes, so that no proxy serves an old one
HELD, HELD_SIZE = 200, 16 << 20  # bodies of a zone and their bytes that are cached
LARGE = 2 << 20  # [bytes] a larger body is not cached, unless its range is the usual one


@dataclass(frozen=True, slots=True)
class Page:
    """A body and how long it is valid.

    Attributes:
        body: The body.
        media: Its content type.
        etag: Its entity tag.
        due: When the next release is due [UTC s].
        ends: When it no longer holds even without one [UTC s].
    """

    body: bytes
    media: str
    etag: str
    due: float
    ends: float = math.inf

    def age(self, now: float) -> int:
        """How long it may be cached [s]; one second where the next release is late."""
        return int(max(min(max(math.ceil(self.due - now), 1), self.ends - now), 0))


def _presentation(zone: ZoneService) -> str:
    """Digest of what a file may change without a release: the same head then has other bodies."""
    tariff = (tariff_fields(zone.scenario.tariff), zone.fallback_rate)  # of expected prices
    settings = (zone.currency, zone.time_zone, zone.charges, zone.digits, tariff)
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:8]


class Pages:
    """The price feeds of all zones.

    Args:
        history: The releases.
        feeds: The feeds.
        clock: Which price is in force.
    """

    def __init__(self, history: History, feeds: Iterable[Feed], clock: Clock) -> None:
        self._history, self.feeds = history, {feed.path: feed for feed in feeds}
        self._clock = clock
        self._pages: dict[str, tuple[str, OrderedDict[tuple[str, PriceRange], Page]]] = {}
        self._mutex = threading.Lock()

    @property
    def zones(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._history.zones)

    def ready(self, path: str, zone: str, span: PriceRange = USUAL) -> Page | None:
        """A page that is in the cache."""
        head, pages = self._pages.get(zone, ("", None))
        if pages is None or head != self._history.head(zone):
            return None
        page = pages.get((path, span))
        return None if page is None or page.ends <= self._clock.now() else page

    def page(
        self, path: str, zone: str, span: PriceRange = USUAL, patience: float | None = None
    ) -> Page | None:
        """A page of the newest release. It may have to be computed.

        Args:
            path: The feed's.
            zone: The zone's id.
            span: What is asked for.
            patience: How long to wait for a forecast [s]; None: `PATIENCE`.

        Returns:
            The page; None where the ledger is not read, or the price in force not ready.
        """
        patience, page = PATIENCE if patience is None else patience, None
        for _ in range(2):
            newest, head = self._history.newest(zone), self._history.head(zone)
            ready = self.ready(path, zone, span)
            if ready is not None:
                return ready
            zone_service, now = self._history.zones[zone], self._clock.now()
            body, fresh = self._body(self.feeds[path], zone_service, newest, span, now, patience)
            if body is None:
                return None
            in_epoch, start = self._history.has_release(zone), interval(zone_service, now)
            border = (
                math.inf if in_epoch and self.feeds[path].shape else start + zone_service.seconds
            )
            due = border
            if newest is not None:
                due = newest.start + 2 * zone_service.seconds + zone_service.grace
            etag = f'"{FORM}{_presentation(zone_service)}-{head[:40]}'
            etag += '"' if border == math.inf else f'-{start}"'
            page = Page(body, self.feeds[path].media, etag, due, border)
            if fresh and self._history.head(zone) == head:
                self._keep(zone, head, (path, span), page)
                return page
            page = replace(page, due=now)
            if not fresh:
                break
        # overtaken twice: releases come faster than bodies; the forecast may be another release's
        return page and replace(page, etag=f'"{hashlib.sha256(page.body).hexdigest()[:40]}"')

    def _body(
        self,
        feed: Feed,
        zone: ZoneService,
        newest: ReleaseRecord | None,
        span: PriceRange,
        now: float,
        patience: float,
    ) -> tuple[bytes | None, bool]:
        """The body, and whether its forecast is that of the newest release."""
        if zone.id in self._history.unread:
            return None, True
        if feed.shape is None:
            present = self._history.in_force(zone.id, now, patience)
            return None if present is None else encoded(present), True
        since, until = bounds(newest, span)
        releases = self._history.between(zone.id, since, until, newest)
        forecast, fresh = self._history.expected(zone.id, now, patience)
        last = newest.applies_start if newest else 0
        later = (guess for guess in forecast.guesses if guess.start > last)
        guesses = [
            guess
            for guess in (*forecast.between, *later)
            if self._history.list_at(zone.id, guess.start) is None
        ]
        answer = series(
            zone,
            newest,
            releases,
            guesses,
            span,
            forecast.ranges,
            simulated=self._history.simulated,
        )
        return feed.shape(answer), fresh

    def _keep(self, zone: str, head: str, key: tuple[str, PriceRange], page: Page) -> None:
        if len(page.body) > LARGE and key[1] != USUAL:
            return
        with self._mutex:
            pages_head, pages = self._pages.get(zone, ("", OrderedDict()))
            if pages_head != head:
                pages = OrderedDict()
            pages[key] = page
            lengths = {at: len(pages[at].body) for at in pages if at[1] != USUAL}
            size = sum(lengths.values())
            for at, length in lengths.items():  # the oldest first
                if len(pages) <= HELD and size <= HELD_SIZE:
                    break
                del pages[at]
                size -= length
            self._pages[zone] = (head, pages)
