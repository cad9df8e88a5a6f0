"""Lists of prices published ahead: when one is due, and what is in it.

A list covers whole local days and is published on the day before its first, at a time of day that
the zone's file gives. It is made of the public forecast alone: late or missing readings change
nothing but the next list. Where a day has begun without its list, as after an outage, the rest of
the day gets the list before, scaled to the forecast. Pure: the clock is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hushgrid.belief.estimate import LoadMixture
from hushgrid.belief.followed import Knowledge
from hushgrid.files.deployment import ZoneService
from hushgrid.model.zone import feed_in_rate, public_rate
from hushgrid.stores.ledger.entries import ListSource, PricesRecord
from hushgrid.stores.ledger.state import LedgerState

_DAY = timedelta(days=1)


class DueList(NamedTuple):
    """A list that is to be published now.

    Attributes:
        first: When its first interval begins [UTC s].
        number: How many intervals it has.
        late: Whether its day has begun.
    """

    first: int
    number: int
    late: bool


def due_list(service: ZoneService, standing: LedgerState, now: float) -> DueList | None:
    """The list of a zone that is due.

    Args:
        service: The zone.
        standing: Its ledger.
        now: [UTC s]

    Returns:
        None where none is due, or prices are not published ahead.
    """
    ahead, terms, seconds = service.ahead, standing.terms, service.seconds
    if ahead is None or terms is None:
        return None
    zone = ZoneInfo(service.time_zone)

    def at(day: date, second: int = 0) -> float:
        clock = time(second // 3600, second % 3600 // 60)
        return datetime.combine(day, clock, zone).timestamp()

    def border(instant: float) -> int:
        return math.ceil(instant / seconds) * seconds

    today = datetime.fromtimestamp(now, zone).date()
    listed = standing.lists[-1].ends if standing.lists else 0
    midnight, following = border(at(today + _DAY)), (math.floor(now) // seconds + 1) * seconds
    first = max(listed, following)
    # these terms were in force when the list of today was due
    owed = standing.lists and terms.begins <= at(today - _DAY, ahead.publish_at)
    if owed and first < midnight:
        return DueList(first, (midnight - first) // seconds, late=True)
    first = max(listed, midnight)
    day = datetime.fromtimestamp(first, zone).date()
    if now < at(day - _DAY, ahead.publish_at):
        return None
    end = border(at(day + ahead.ahead * _DAY))
    return DueList(first, (end - first) // seconds, late=False)


def price_list(
    service: ZoneService,
    due: DueList,
    standing: LedgerState,
    knowledge: Knowledge | None,
    t: int,
    rates: Sequence[float],
    now: float,
) -> PricesRecord:
    """The list that is due, from public figures alone.

    Args:
        service: The zone.
        due: Its intervals.
        standing: The zone's ledger.
        knowledge: What the public knows before step t; None: no model can be used.
        t: The zone's step that is published next.
        rates: Rates of the week so far [currency/kWh].
        now: [UTC s]

    Returns:
        The record to append.
    """
    tariff, digest = service.scenario.tariff, None
    source: ListSource = "fallback"
    list_rates = [service.fallback_rate] * due.number
    feed_in = [feed_in_rate(None, tariff)] * due.number
    if knowledge is not None and standing.terms is not None:
        digest = standing.terms.digest
        laws = _expected_loads(knowledge, due.first // service.seconds - t, due.number, rates)
        means = [float((law.weights * law.mean).sum()) for law in laws]
        source, feed_in = "ahead", [feed_in_rate(mean, tariff) for mean in means]
        list_rates = [public_rate(mean, tariff) for mean in means]
        if due.late and standing.lists:
            source, list_rates = "carried", _carried(service, due, standing.lists[-1], list_rates)
    return PricesRecord(
        zone=service.id,
        digest=digest,
        source=source,
        first=due.first,
        seconds=service.seconds,
        rates=tuple(map(float, list_rates)),
        published_at=math.floor(now),
        simulated=standing.mode == "simulation",
        feed_in=tuple(rate for rate in feed_in if rate is not None) or None,
    )


def _expected_loads(
    knowledge: Knowledge, steps: int, count: int, rates: Sequence[float]
) -> list[LoadMixture]:
    """The laws of `count` loads, of which the first is so many steps ahead."""
    knowledge, laws = knowledge.passed(steps), []
    for _ in range(count):
        laws.append(knowledge.predicted(rates))
        knowledge = knowledge.passed()
    return laws


def _carried(
    service: ZoneService, due: DueList, last: PricesRecord, expected: Sequence[float]
) -> list[float]:
    """The prices of the list before at the same times of day, scaled to the expected ones.

    Where the list before has no such time, or prices are not above 0, the expected price stays.
    """
    zone, tariff = ZoneInfo(service.time_zone), service.scenario.tariff

    def clock(start: int) -> time:
        return datetime.fromtimestamp(start, zone).time()

    by_clock = {clock(last.first + i * last.seconds): rate for i, rate in enumerate(last.rates)}
    clocks = [clock(due.first + i * service.seconds) for i in range(due.number)]
    pairs = [
        (by_clock[at], rate) for at, rate in zip(clocks, expected, strict=True) if at in by_clock
    ]
    before, now = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    if before <= 0 or now <= 0:
        return list(expected)
    return [
        min(max(by_clock[at] * now / before, tariff.floor), tariff.cap) if at in by_clock else rate
        for at, rate in zip(clocks, expected, strict=True)
    ]
