"""Price feeds: the releases of each zone, the forecast, and the bodies that the feeds serve.

A body is made once for a release and kept as bytes. It is valid until the next release is due, so
that a proxy can serve it from its cache. The forecast is post-processing of published releases
and the public model; no reading is used.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from hushgrid.belief.load_filter import informed
from hushgrid.belief.rate_interval import LEVEL, noise_interval, posterior_interval, rate_range
from hushgrid.files.deployment import ZoneService
from hushgrid.model.zone import public_rate
from hushgrid.service.curator import price, utc
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.replay import PublicReplay

DAY = 86_400  # [s]
LIMIT = 1000  # prices of an answer where nothing else is asked for
MOST = 10_000  # prices of an answer


class Range(NamedTuple):
    """The rates between which the optimal one lies with 95 per cent.

    Attributes:
        low: [currency/kWh]
        high: [currency/kWh]
    """

    low: float
    high: float


class Guess(NamedTuple):
    """An expected price.

    Attributes:
        start: When it begins [UTC epoch s].
        rate: [currency/kWh]
        within: Where the optimal rate lies; None: not known.
    """

    start: int
    rate: float
    within: Range | None = None


class PriceRange(NamedTuple):
    """The prices that a request asks for.

    Attributes:
        since: Start of the first [UTC epoch s]; None: a day before the newest.
        until: Prices start before it [UTC epoch s]; None: the end of the forecast.
        limit: The most prices of an answer.
    """

    since: int | None = None
    until: int | None = None
    limit: int = LIMIT


USUAL = PriceRange()
NO_RANGES: Mapping[int, Range] = {}


class PriceEntry(NamedTuple):
    """One price.

    Attributes:
        start: Start of its interval [UTC epoch s].
        end: End of its interval [UTC epoch s].
        rate: [currency/kWh]
        forecast: Whether it is expected and not published.
        source: What it is made from.
        within: Where the optimal rate lies; None: not known.
    """

    start: int
    end: int
    rate: float
    forecast: bool
    source: str
    within: Range | None = None


class Series(NamedTuple):
    """Prices of a zone in order of time.

    Attributes:
        zone: The zone.
        currency: Of the rates.
        seconds: Length of an interval [s].
        simulated: Whether noise is simulated.
        head: Digest of the newest release's record.
        entries: The prices.
        following: Where the rest begins that the limit left out [UTC epoch s].
    """

    zone: str
    currency: str
    seconds: int
    simulated: bool
    head: str
    entries: tuple[PriceEntry, ...]
    following: int | None


def latest_by_interval(releases: Iterable[ReleaseRecord]) -> list[ReleaseRecord]:
    """The newest release for each interval.

    After an outage several intervals are published together, all for the next one.

    Args:
        releases: Releases in order.

    Returns:
        Those that apply.
    """
    return list({one.applies_start: one for one in releases}.values())


def bounds(newest: ReleaseRecord, span: PriceRange) -> tuple[int, int]:
    """The range of a request with defaults filled in.

    Args:
        newest: The newest release.
        span: The request.

    Returns:
        Since and until [UTC epoch s].
    """
    since = newest.applies_start - DAY if span.since is None else span.since
    return since, 2**53 if span.until is None else span.until


def series(
    zone: str,
    currency: str,
    seconds: int,
    newest: ReleaseRecord,
    releases: Iterable[ReleaseRecord],
    guesses: Sequence[Guess],
    span: PriceRange = USUAL,
    ranges: Mapping[int, Range] = NO_RANGES,
) -> Series:
    """The prices of a request.

    Args:
        zone: The zone.
        currency: Of the rates.
        seconds: Length of an interval [s].
        newest: The newest release.
        releases: The releases of the range.
        guesses: Expected prices, which begin after the newest.
        span: The request.
        ranges: Where the optimal rate lies, by the step of a release.

    Returns:
        Published prices, then expected ones.
    """
    since, until = bounds(newest, span)
    found = [
        PriceEntry(
            one.applies_start,
            one.applies_start + seconds,
            one.rate,
            False,
            one.source,
            ranges.get(one.t),
        )
        for one in islice(
            (one for one in latest_by_interval(releases) if since <= one.applies_start < until),
            span.limit + 1,
        )
    ] + [
        PriceEntry(g.start, g.start + seconds, g.rate, True, "forecast", g.within) for g in guesses
    ]
    within = [entry for entry in found if since <= entry.start < until]
    rest = within[span.limit : span.limit + 1]
    return Series(
        zone,
        currency,
        seconds,
        newest.simulated,
        newest.head,
        tuple(within[: span.limit]),
        rest[0].start if rest else None,
    )


# ---- a series of prices as each consumer reads it: per kWh, UTC with Z


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def prices(found: Series) -> bytes:
    """Body of /v1/prices: published and expected prices in two lists.

    Args:
        found: The prices.

    Returns:
        JSON.
    """
    rest = found.following
    return _json(
        {
            "zone": found.zone,
            "currency": found.currency,
            "unit": f"{found.currency}/kWh",
            "interval_s": found.seconds,
            "simulated": found.simulated,
            "head": found.head,
            "published": [_own(e) | {"source": e.source} for e in found.entries if not e.forecast],
            "forecast": [_own(e) for e in found.entries if e.forecast],
            "next": None if rest is None else utc(rest),
        }
    )


def _own(entry: PriceEntry) -> dict[str, Any]:
    own = {"start": utc(entry.start), "end": utc(entry.end), "price": entry.rate}
    return own if entry.within is None else own | entry.within._asdict()


def evcc(found: Series) -> bytes:
    """A `forecast` of evcc's custom tariff.

    Args:
        found: The prices.

    Returns:
        JSON.
    """
    return _json(
        [{"start": utc(e.start), "end": utc(e.end), "value": e.rate} for e in found.entries]
    )


def emhass(found: Series) -> bytes:
    """EMHASS's `load_cost_forecast`, by time.

    Args:
        found: The prices.

    Returns:
        JSON.
    """
    return _json({"load_cost_forecast": {utc(e.start): e.rate for e in found.entries}})


def octopus(found: Series) -> bytes:
    """Unit rates as Octopus's API lists them, the newest first; VAT is unknown.

    `next` and `previous` are pages there; here all prices are on one.

    Args:
        found: The prices.

    Returns:
        JSON.
    """
    rates = [
        {
            "value_exc_vat": e.rate,
            "value_inc_vat": e.rate,
            "valid_from": utc(e.start),
            "valid_to": utc(e.end),
        }
        for e in reversed(found.entries)
    ]
    return _json({"count": len(rates), "next": None, "previous": None, "results": rates})


def csv(found: Series) -> bytes:
    """A table with a header; numbers as Python writes them.

    Args:
        found: The prices.

    Returns:
        CSV.
    """
    lines = [
        f"{utc(e.start)},{utc(e.end)},{e.rate!r},{found.currency},"
        f"{'forecast' if e.forecast else 'published'}\n"
        for e in found.entries
    ]
    return ("start,end,price,currency,kind\n" + "".join(lines)).encode()


def discovery(zone: ZoneService, prefix: str, state_topic: str) -> tuple[str, str]:
    """A zone's discovery message for Home Assistant over MQTT.

    Args:
        zone: The zone.
        prefix: Home Assistant's discovery prefix.
        state_topic: The topic of the zone's prices.

    Returns:
        Topic and text of the message.
    """
    name = object_id(zone.id)
    config = {
        "name": "Electricity price",
        "unique_id": name,
        "object_id": name,
        "state_topic": state_topic,
        "value_template": "{{ value_json.price }}",
        "json_attributes_topic": state_topic,
        "unit_of_measurement": f"{zone.currency}/kWh",
        "state_class": "measurement",
        "suggested_display_precision": 4,
        "device": {
            "identifiers": [name],
            "name": f"hushgrid {zone.id}",
            "manufacturer": "hushgrid",
        },
        "origin": {"name": "hushgrid"},
    }
    return f"{prefix}/sensor/{name}/config", json.dumps(config)


def object_id(zone: str) -> str:
    """A unique name of letters, digits, dashes and underscores for a zone.

    >>> object_id("elm-street"), object_id("Ulmenstraße 7")
    ('hushgrid_elm-street', 'hushgrid_Ulmenstra_e_7_5e2102ce')

    Args:
        zone: The zone's id.

    Returns:
        The name.
    """
    plain = re.sub("[^A-Za-z0-9_-]", "_", zone)
    if plain == zone:
        return f"hushgrid_{zone}"
    return f"hushgrid_{plain}_{hashlib.sha256(zone.encode()).hexdigest()[:8]}"


# ---- the forecast

RANGED = 1000  # intervals back from the newest whose releases have a range


class ForecastPrices(NamedTuple):
    """Expected prices, and ranges of published ones.

    Attributes:
        guesses: Expected prices, in order.
        ranges: Where the optimal rate lies, by the step of a release.
    """

    guesses: tuple[Guess, ...] = ()
    ranges: Mapping[int, Range] = {}


NOTHING = ForecastPrices()


class Forecaster:
    """Public knowledge of one zone, updated with each release. Safe for threads.

    Args:
        zone: The zone.
    """

    def __init__(self, zone: ZoneService) -> None:
        self._zone, self._first = zone, zone.begins // zone.seconds
        self._mutex = threading.Lock()
        self._public = PublicReplay(zone, self._first)
        self._last: ReleaseRecord | None = None
        self._ranges: dict[int, Range] = {}
        self._known = NOTHING

    def after(self, releases: Sequence[ReleaseRecord]) -> ForecastPrices:
        """Expected prices after the newest of these releases; all there are, in order.

        Of a day, where intervals have a minute or more. A step takes about a millisecond, so of
        shorter intervals there are fewer: none is newer before its forecast is made.

        None from private models, whose expectations reveal something about the homes they were
        fitted to.
        """
        if not self._zone.may_forecast:
            return NOTHING
        with self._mutex:
            newest = releases[-1] if releases else None
            if newest is None or newest.start < self._zone.begins:
                return NOTHING
            if self._last is None or self._last.start < newest.start:
                since = self._zone.begins if self._last is None else self._last.start + 1
                new = _from(releases, since)
                if self._last is None:
                    earlier = releases[: len(releases) - len(new)]
                    self._public = PublicReplay(self._zone, self._first, earlier)
                for one in new:
                    self._fold(one, since=newest.t - RANGED)
                ranges = {t: one for t, one in self._ranges.items() if t > newest.t - RANGED}
                self._ranges = ranges
                self._known = ForecastPrices(tuple(self._guesses(newest)), dict(ranges))
            return self._known

    def _fold(self, one: ReleaseRecord, since: int) -> None:
        """Take a release of the present epoch, with its range where it is later than `since`."""
        self._public.reach(one.t)
        if one.t > since and one.source != "fallback":
            self._ranges[one.t] = self._range(one)
        self._public.take(one)
        self._last = one

    def _range(self, one: ReleaseRecord) -> Range:
        """Where the optimal rate lies, given what was public when the release was published."""
        public, rates = informed(self._public.knowledge, one.covariates), self._public.rates
        if one.source != "readings" or one.load_hat is None:
            loads = public.predicted(rates).interval(LEVEL)
        elif self._zone.policy.publish == "raw":
            loads = noise_interval(public, one.load_hat, one.scale, rates)
        else:
            loads = posterior_interval(public, one.load_hat, one.scale, rates)
        return Range(*rate_range(loads, self._zone.scenario.tariff))

    def _guesses(self, newest: ReleaseRecord) -> list[Guess]:
        """The rate of the expected load at each step; each has the newest release's delay."""
        public, scenario, made = self._public.knowledge, self._zone.scenario, list[Guess]()
        steps = min(DAY // self._zone.seconds, max(24 * self._zone.seconds, 96))
        for ahead in range(1, steps + 1):
            start, tariff = newest.applies_start + ahead * self._zone.seconds, scenario.tariff
            if newest.source == "fallback":
                made.append(Guess(start, self._zone.fallback_rate))
                continue
            law = public.predicted(self._public.rates)
            load = float((law.weights * law.mean).sum())
            within = Range(*rate_range(law.interval(LEVEL), tariff))
            made.append(Guess(start, public_rate(load, tariff), within))
            public = public.passed()
        return made


def _from(releases: Sequence[ReleaseRecord], since: int) -> list[ReleaseRecord]:
    """Releases of intervals that start at `since` [UTC epoch s] or later; searched from the end."""
    found: list[ReleaseRecord] = []
    for one in reversed(releases):
        if one.start < since:
            break
        found.append(one)
    return found[::-1]


# ---- releases that can be requested

log = logging.getLogger("hushgrid.history")

KEPT = 100_000  # releases of a zone: more than two years of quarter hours

ReleaseWatcher = Callable[[ZoneService, ReleaseRecord], None]


class History:
    """Releases of each zone in order of time; a publisher that notifies subscribers.

    The loop writes, any thread reads. A release is added when it is durable, and never changes.

    Args:
        zones: The zones of the service.

    Attributes:
        zones: The zones by id.
    """

    def __init__(self, zones: Iterable[ZoneService]) -> None:
        self.zones = {zone.id: zone for zone in zones}
        self._releases: dict[str, list[ReleaseRecord]] = {zone: [] for zone in self.zones}
        self._watchers: list[tuple[ReleaseWatcher, bool]] = []
        self._notified: dict[str, int] = {}  # start of a zone's last interval made here [epoch s]
        self._mutex = threading.Lock()

    def fill(self, zone: str, releases: Sequence[ReleaseRecord], *, notified: bool = True) -> None:
        """Set the releases of a zone from its ledger; subscribers are not notified.

        Args:
            zone: The zone's id.
            releases: Its releases.
            notified: Whether subscribers of this process have had them; False: another process may
                have failed to notify them.
        """
        with self._mutex:
            self._releases[zone] = list(releases[-KEPT:])
            if notified and releases:
                self._notified[zone] = releases[-1].start

    def watch(self, watcher: ReleaseWatcher, *, own: bool = False) -> Callable[[], None]:
        """Call `watcher` with every new release; it must not block.

        Args:
            watcher: The subscriber.
            own: Only releases of this process, not those that it follows.

        Returns:
            A function that ends the subscription.
        """
        entry = (watcher, own)
        with self._mutex:
            self._watchers.append(entry)

        def end() -> None:
            with self._mutex:
                if entry in self._watchers:
                    self._watchers.remove(entry)

        return end

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Append a release and notify subscribers. Does nothing if it is already stored.

        A release that was only followed so far is sent to the subscribers of this process's own.
        """
        with self._mutex:
            notified = self._notified.get(zone.id, 0)
            new, first = self._add(zone.id, release), release.start > notified
            self._notified[zone.id] = max(release.start, notified)
            some = [one for one, own in self._watchers if new or (own and first)]
        _notify(some, zone, release)

    def follow(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Append a release of another process, which notifies its own subscribers."""
        with self._mutex:
            new = self._add(zone.id, release)
            some = [one for one, own in self._watchers if new and not own]
        _notify(some, zone, release)

    def _add(self, zone: str, release: ReleaseRecord) -> bool:
        known = self._releases[zone]
        if known and known[-1].start >= release.start:
            return False
        known.append(release)
        del known[:-KEPT]
        return True

    def newest(self, zone: str) -> ReleaseRecord | None:
        """The last release; None before the first."""
        known = self._releases[zone]
        return known[-1] if known else None

    def between(self, zone: str, since: int, until: int) -> list[ReleaseRecord]:
        """Releases that apply from an instant of since..until on [UTC epoch s, until not in]."""
        known = self._releases[zone]
        low, high = (
            bisect.bisect_left(known, at, key=lambda one: one.applies_start)
            for at in (since, until)
        )
        return known[low:high]

    def at(self, zone: str, t: int) -> ReleaseRecord | None:
        """The release of step t; None where it is not kept."""
        return next((one for one in reversed(self._releases[zone]) if one.t == t), None)

    def last(self, zone: str, number: int) -> list[ReleaseRecord]:
        """The newest releases, oldest first."""
        return self._releases[zone][-number:] if number > 0 else []


def _notify(watchers: Iterable[ReleaseWatcher], zone: ZoneService, release: ReleaseRecord) -> None:
    for watcher in watchers:
        try:
            watcher(zone, release)
        except Exception as error:  # a subscriber that fails must not stop the tick
            log.warning("watcher failed", extra={"error": type(error).__name__})


# ---- bodies

FORM = 2  # incremented when a shape changes, so that no proxy serves an old one
HELD, HELD_SIZE = 200, 16 << 20  # bodies of a zone and their bytes that are cached
LARGE = 2 << 20  # [bytes] a larger body is not cached, unless its range is the usual one

JSON, CSV = "application/json", "text/csv; charset=utf-8"


class Feed(NamedTuple):
    """One path of the price feeds, found by the entry points `hushgrid.feeds`.

    Attributes:
        path: The path.
        media: Content type of its body.
        shape: Makes the body; None: the newest price alone.
        summary: One sentence for the description of the service.
        model: Pydantic model of the body, or None.
        ranges: Whether the body has the intervals of published prices too.
    """

    path: str
    media: str
    shape: Callable[[Series], bytes] | None
    summary: str
    model: Any = None
    ranges: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A body and how long it is valid.

    Attributes:
        body: The body.
        media: Its content type.
        etag: Its entity tag.
        due: When the next release is due [UTC epoch s].
    """

    body: bytes
    media: str
    etag: str
    due: int

    def age(self, now: float) -> int:
        """How long it may be cached [s]; one second where the next release is late."""
        return max(math.ceil(self.due - now), 1)


class Pages:
    """The price feeds of all zones.

    Args:
        history: The releases.
        feeds: The feeds.
    """

    def __init__(self, history: History, feeds: Iterable[Feed]) -> None:
        self._history, self.feeds = history, {feed.path: feed for feed in feeds}
        self._forecasters = {zone: Forecaster(one) for zone, one in history.zones.items()}
        self._kept: dict[str, tuple[str, OrderedDict[tuple[str, PriceRange], Page]]] = {}
        self._mutex = threading.Lock()

    @property
    def zones(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._history.zones)

    def ready(self, path: str, zone: str, span: PriceRange = USUAL) -> Page | None:
        """A page that is in the cache."""
        newest = self._history.newest(zone)
        head, pages = self._kept.get(zone, ("", None))
        if newest is None or pages is None or head != newest.head:
            return None
        return pages.get((path, span))

    def page(self, path: str, zone: str, span: PriceRange = USUAL) -> Page | None:
        """A page of the newest release; None before the first. It may have to be computed."""
        page = None
        for _ in range(2):
            newest, ready = self._history.newest(zone), self.ready(path, zone, span)
            if newest is None or ready is not None:
                return ready
            page = self._made(self.feeds[path], self._history.zones[zone], newest, span)
            if self._history.newest(zone) is newest:
                self._keep(zone, newest.head, (path, span), page)
                return page
        # overtaken twice: releases come faster than bodies; the forecast may be a later one's
        return page and replace(page, etag=f'"{hashlib.sha256(page.body).hexdigest()[:40]}"')

    def _made(self, feed: Feed, zone: ZoneService, newest: ReleaseRecord, span: PriceRange) -> Page:
        due = newest.start + 2 * zone.seconds + zone.grace
        etag = f'"{FORM}-{newest.head[:40]}"'
        return Page(self._body(feed, zone, newest, span), feed.media, etag, due)

    def _body(
        self, feed: Feed, zone: ZoneService, newest: ReleaseRecord, span: PriceRange
    ) -> bytes:
        if feed.shape is None:
            return json.dumps(price(zone, newest), separators=(",", ":")).encode()
        since, until = bounds(newest, span)
        releases = self._history.between(zone.id, since, until)
        while releases and releases[-1].start > newest.start:  # published since
            releases.pop()
        known = NOTHING
        if until > newest.applies_start or feed.ranges:
            known = self._forecasters[zone.id].after(self._history.last(zone.id, KEPT))
        named = (zone.id, zone.currency, zone.seconds)
        return feed.shape(series(*named, newest, releases, known.guesses, span, known.ranges))

    def _keep(self, zone: str, head: str, key: tuple[str, PriceRange], page: Page) -> None:
        if len(page.body) > LARGE and key[1] != USUAL:
            return
        with self._mutex:
            known, pages = self._kept.get(zone, ("", OrderedDict()))
            if known != head:
                pages = OrderedDict()
            pages[key] = page
            others = [(other, len(one.body)) for other, one in pages.items() if other[1] != USUAL]
            size = sum(length for _, length in others)
            for other, length in others:  # the oldest first
                if len(pages) <= HELD and size <= HELD_SIZE:
                    break
                del pages[other]
                size -= length
            self._kept[zone] = (head, pages)
