"""Shapes of prices: what evcc, Octopus-style tools, EMHASS, Home Assistant and tables read."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, get_args

from hushgrid.curator.clock import utc
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges
from hushgrid.mechanism.release import Release
from hushgrid.model.zone import feed_in_rate
from hushgrid.stores.ledger.entries import ListSource, ReleaseRecord

DAY = 86_400  # [s]
LIMIT = 3000  # prices of an answer where nothing else is asked for: two days of minutes
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
        start: When it begins [UTC s].
        rate: [currency/kWh]
        within: Where the optimal rate lies; None: not known.
        source: What it is made from.
        feed_in: Rate of what is fed in [currency/kWh]; None: the tariff has none.
    """

    start: int
    rate: float
    within: Range | None = None
    source: str = "forecast"
    feed_in: float | None = None


def fallback(zone: ZoneService, start: int) -> Guess:
    """The price of an interval where nothing can be expected.

    Args:
        zone: The zone.
        start: Start of the interval [UTC s].

    Returns:
        The fallback rate, and the feed-in rate of no load.
    """
    feed_in = feed_in_rate(None, zone.scenario.tariff)
    return Guess(start, zone.fallback_rate, source="fallback", feed_in=feed_in)


class PriceRange(NamedTuple):
    """The prices that a request asks for.

    Attributes:
        since: Start of the first [UTC s]; None: a day before the newest, or later where the
            limit leaves out the oldest.
        until: Prices start before it [UTC s]; None: the end of the forecast.
        limit: The most prices of an answer.
        options: What the feed's shape reads besides the prices; what an answer depends on.
    """

    since: int | None = None
    until: int | None = None
    limit: int = LIMIT
    options: tuple[str, ...] = ()


USUAL = PriceRange()
NO_RANGES: Mapping[int, Range] = {}


class PriceEntry(NamedTuple):
    """One price.

    Attributes:
        start: Start of its interval [UTC s].
        end: End of its interval [UTC s].
        rate: Price of energy [currency/kWh].
        forecast: Whether it is expected and not published.
        source: What it is made from.
        within: Where the optimal rate lies; None: not known.
        total: The price with charges [currency/kWh].
        total_within: Where the optimal rate lies with charges; None: not known, or no charges.
        feed_in: Rate of what is fed in [currency/kWh]; None: there is none.
    """

    start: int
    end: int
    rate: float
    forecast: bool
    source: str
    within: Range | None
    total: float
    total_within: Range | None
    feed_in: float | None = None


class Series(NamedTuple):
    """Prices of a zone in order of time.

    Attributes:
        zone: The zone.
        currency: Of the rates.
        seconds: Length of an interval [s].
        simulated: Whether noise is simulated.
        head: Digest of the newest release's record.
        entries: The prices.
        following: Where the rest begins that the limit left out [UTC s].
        digits: Digits after the point of a price; None: all.
        published_at: When the newest of its published prices was [UTC s]; None without any.
        time_zone: IANA name of the zone's time of day.
        charges: Grid fees and taxes, which the totals have.
        options: Those of the request.
    """

    zone: str
    currency: str
    seconds: int
    simulated: bool
    head: str
    entries: tuple[PriceEntry, ...]
    following: int | None
    digits: int | None = None
    published_at: int | None = None
    time_zone: str = "UTC"
    charges: Charges = Charges()
    options: tuple[str, ...] = ()

    def parts(self, entry: PriceEntry) -> tuple[float, float]:
        """A total's parts: energy and charges, each with its share of the taxes.

        Args:
            entry: The price.

        Returns:
            Both [currency/kWh].
        """
        if self.charges == Charges():
            return entry.total, 0.0
        digits = 9 if self.digits is None else self.digits
        grid = round(self.charges.total(0.0, entry.start, self.time_zone), digits)
        return round(entry.total - grid, digits) + 0.0, grid  # never -0.0


def latest_by_interval(releases: Iterable[ReleaseRecord]) -> list[ReleaseRecord]:
    """The newest release for each interval.

    After an outage several intervals are published together, all for the next one.

    Args:
        releases: Releases in order.

    Returns:
        Those that apply.
    """
    return list({release.applies_start: release for release in releases}.values())


def bounds(newest: ReleaseRecord | None, span: PriceRange) -> tuple[int, int]:
    """The range of a request with defaults filled in.

    Args:
        newest: The newest release; None before the first.
        span: The request.

    Returns:
        Since and until [UTC s].
    """
    first = 0 if newest is None else newest.applies_start - DAY
    since = first if span.since is None else span.since
    return since, 2**53 if span.until is None else span.until


def series(
    zone: ZoneService,
    newest: ReleaseRecord | None,
    releases: Iterable[ReleaseRecord],
    guesses: Sequence[Guess],
    span: PriceRange = USUAL,
    ranges: Mapping[int, Range] = NO_RANGES,
    *,
    simulated: bool = False,
) -> Series:
    """The prices of a request.

    A request that says where to begin gets the oldest from there on. Any other gets the newest
    published prices and the nearest expected ones, half of the limit each where both are longer.

    Args:
        zone: The zone.
        newest: The newest release; None before the first.
        releases: The releases of the range.
        guesses: Expected prices, of intervals for which nothing was released.
        span: The request.
        ranges: Where the optimal rate lies, by the step of a release.
        simulated: Whether noise is simulated, where no release says it.

    Returns:
        Published and expected prices in order of time.
    """
    since, until = bounds(newest, span)

    def entry(start: int, price: Release | Guess, source: str, within: Range | None) -> PriceEntry:
        amounts, ends = zone.amounts(price.rate, start, price.feed_in), None
        if within is not None:
            low, high = (zone.amounts(rate, start, None) for rate in within)
            within = Range(low["price"], high["price"])
            if zone.charges != Charges():
                ends = Range(low["total"], high["total"])
        place = (start, start + zone.seconds, amounts["price"], isinstance(price, Guess))
        return PriceEntry(*place, source, within, amounts["total"], ends, amounts.get("feed_in"))

    applying = [
        release
        for release in latest_by_interval(releases)
        if since <= release.applies_start < until
    ]
    part = slice(-span.limit, None) if span.since is None else slice(span.limit + 1)
    entries = [
        entry(
            release.applies_start,
            release.release,
            release.source,
            ranges.get(release.t) if release.source not in get_args(ListSource) else None,
        )
        for release in applying[part]
    ]
    entries += [entry(guess.start, guess, guess.source, guess.within) for guess in guesses]
    within = sorted(price for price in entries if since <= price.start < until)
    first = 0
    if span.since is None and newest is not None:
        past = sum(price.start <= newest.applies_start for price in within)
        first = max(0, min(len(within) - span.limit, past - (span.limit + 1) // 2))
    last = first + span.limit
    return Series(
        zone.id,
        zone.currency,
        zone.seconds,
        simulated if newest is None else newest.simulated,
        "" if newest is None else newest.head,
        tuple(within[first:last]),
        within[last].start if len(within) > last else None,
        zone.digits,
        max((release.published_at for release in applying), default=None),
        zone.time_zone,
        zone.charges,
        span.options,
    )


# ---- a series of prices as each consumer reads it: per kWh, UTC with Z


def encoded(value: Any) -> bytes:
    """A body of JSON.

    Args:
        value: What is encoded.

    Returns:
        UTF-8.

    Raises:
        ValueError: A number is not finite.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def prices(series: Series) -> bytes:
    """Body of /v1/prices: published and expected prices in two lists.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    head = {
        "zone": series.zone,
        "currency": series.currency,
        "unit": f"{series.currency}/kWh",
        "interval_s": series.seconds,
        "simulated": series.simulated,
        "head": series.head,
    }
    published = b",".join([_price_json(e) for e in series.entries if not e.forecast])
    forecast = b",".join([_price_json(e) for e in series.entries if e.forecast])
    following = None if series.following is None else utc(series.following)
    parts = (encoded(head)[:-1], published, forecast, encoded(following))
    return b'%b,"published":[%b],"forecast":[%b],"next":%b}' % parts


@lru_cache(1 << 15)  # which long answers have in common
def _price_json(entry: PriceEntry) -> bytes:
    fields: dict[str, Any] = {"start": utc(entry.start), "end": utc(entry.end)}
    fields |= {"price": entry.rate, "total": entry.total}
    fields |= {} if entry.feed_in is None else {"feed_in": entry.feed_in}
    fields |= {} if entry.within is None else entry.within._asdict()
    if entry.total_within is not None:
        fields |= {f"total_{name}": value for name, value in entry.total_within._asdict().items()}
    return encoded(fields if entry.forecast else fields | {"source": entry.source})


SLOT = 900  # [s] evcc cuts every rate into slots of this length, and makes shorter ones as long


def evcc(series: Series) -> bytes:
    """A `forecast` of evcc's custom tariff.

    Args:
        series: The prices.

    Returns:
        JSON: a row an interval; where slots of evcc do not fit into intervals, a row a slot with
        the mean of its prices.
    """
    return _evcc_rows(series, [(e.start, e.end, e.total) for e in series.entries])


def evcc_feed_in(series: Series) -> bytes:
    """The same of what is fed in; no row where the tariff has no such price.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    rates = [(e.start, e.end, e.feed_in) for e in series.entries if e.feed_in is not None]
    return _evcc_rows(series, rates)


def _evcc_rows(series: Series, rates: Sequence[tuple[int, int, float]]) -> bytes:
    if series.seconds % SLOT:
        rates = [
            (start, start + SLOT, mean if series.digits is None else round(mean, series.digits))
            for start, mean in _slot_means(rates).items()
        ]
    return encoded([{"start": utc(a), "end": utc(b), "value": value} for a, b, value in rates])


def _slot_means(rates: Iterable[tuple[int, int, float]]) -> dict[int, float]:
    """The mean of the rates that fall into each slot, by their time in it."""
    sums, times = defaultdict[int, float](float), defaultdict[int, int](int)
    for start, end, value in rates:
        for slot in range(start // SLOT * SLOT, end, SLOT):
            seconds = min(end, slot + SLOT) - max(start, slot)
            sums[slot] += value * seconds
            times[slot] += seconds
    return {slot: sums[slot] / seconds for slot, seconds in times.items()}


def emhass(series: Series) -> bytes:
    """EMHASS's `load_cost_forecast`, and `prod_price_forecast` of what is fed in, by time.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    feed_in = {utc(e.start): e.feed_in for e in series.entries if e.feed_in is not None}
    body = {"load_cost_forecast": {utc(e.start): e.total for e in series.entries}}
    return encoded(body | ({"prod_price_forecast": feed_in} if feed_in else {}))


def octopus(series: Series) -> bytes:
    """Unit rates as Octopus's API lists them: hundredths of the currency, the newest first.

    `next` and `previous` are pages there; here all prices are on one. With charges is with VAT.

    Args:
        series: The prices.

    Returns:
        JSON.
    """
    rates = [
        {
            "value_exc_vat": round(100 * e.rate, 9),
            "value_inc_vat": round(100 * e.total, 9),
            "valid_from": utc(e.start),
            "valid_to": utc(e.end),
        }
        for e in reversed(series.entries)
    ]
    return encoded({"count": len(rates), "next": None, "previous": None, "results": rates})


def csv(series: Series) -> bytes:
    """A table with a header; numbers as Python writes them.

    Args:
        series: The prices.

    Returns:
        CSV.
    """
    feed_in = any(e.feed_in is not None for e in series.entries)
    lines = [
        f"{utc(e.start)},{utc(e.end)},{e.rate!r},{series.currency},"
        f"{'forecast' if e.forecast else 'published'},{e.total!r}"
        + feed_in
        * f",{'' if e.feed_in is None else repr(e.feed_in)}"
        for e in series.entries
    ]
    head = "start,end,price,currency,kind,total" + feed_in * ",feed_in"
    return "".join(f"{line}\n" for line in (head, *lines)).encode()


def discovery(
    zone: ZoneService,
    prefix: str,
    state_topic: str,
    attributes: str,
    available: str,
    *,
    feed_in: bool = False,
) -> tuple[str, str]:
    """A zone's discovery message for Home Assistant over MQTT.

    Args:
        zone: The zone.
        prefix: Home Assistant's discovery prefix.
        state_topic: The topic of the zone's price in force.
        attributes: The topic of that price with the forecast.
        available: The topic that says whether the service is there.
        feed_in: Of the feed-in price instead of the price.

    Returns:
        Topic and text of the message.
    """
    device = object_id(zone.id)
    name = f"{device}_feed_in" if feed_in else device
    entity = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    config = {
        "name": "Feed-in price" if feed_in else "Electricity price",
        "unique_id": name,
        "default_entity_id": f"sensor.{entity}",  # from 2025.10 on
        "object_id": entity,  # before
        "state_topic": state_topic,
        "value_template": f"{{{{ value_json.{'feed_in' if feed_in else 'total'} }}}}",
        "json_attributes_topic": attributes,
        "availability_topic": available,
        "expire_after": zone.seconds + EXPIRES,
        "unit_of_measurement": f"{zone.currency}/kWh",
        "state_class": "measurement",
        "suggested_display_precision": 4 if zone.digits is None else zone.digits,
        "device": {
            "identifiers": [device],
            "name": f"hushgrid {zone.id}",
            "manufacturer": "hushgrid",
        },
        "origin": {"name": "hushgrid"},
    }
    return f"{prefix}/sensor/{name}/config", json.dumps(config)


EXPIRES = 60  # [s] after the next border, at which a new price is due


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


JSON, CSV = "application/json", "text/csv; charset=utf-8"


class PriceQuery(Protocol):
    """Parameters of a feed's requests: a Pydantic model whose fields are their names."""

    def resolve(self, zones: Mapping[str, ZoneService]) -> tuple[str, PriceRange]:
        """What is asked for.

        Args:
            zones: The zones by id.

        Returns:
            Id of a zone, and its prices.

        Raises:
            ParameterError: Of `hushgrid.web.http.common`, if a parameter cannot be used.
        """
        ...


class Feed(NamedTuple):
    """One path of the price feeds, found by the entry points `hushgrid.feeds`.

    Attributes:
        path: The path.
        media: Content type of its body.
        shape: Makes the body; None: the price in force.
        summary: One sentence for the description of the service.
        model: Pydantic model of the body, or None.
        ranges: Whether the body has the intervals of published prices too.
        query: Class of its `PriceQuery`; None: zone, from, to and limit.
    """

    path: str
    media: str
    shape: Callable[[Series], bytes] | None
    summary: str
    model: Any = None
    ranges: bool = False
    query: type[PriceQuery] | None = None
