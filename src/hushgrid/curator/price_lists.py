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

from hushgrid.belief.followed import Knowledge
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.price_list import carried_rates, expected_rates, fallback_rates
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
    ahead, seconds = service.ahead, service.seconds
    if ahead is None or standing.terms is None:
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
    # the tariff of then asked for the list of today when it was due
    due_at = at(today - _DAY, ahead.publish_at)
    before = [tariff for tariff in standing.tariffs if tariff.begins <= due_at]
    owed = standing.lists and before and before[-1].ahead is not None
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
    listed = fallback_rates(service.fallback_rate, due.number, tariff)
    if knowledge is not None and standing.terms is not None:
        source, digest = "ahead", standing.terms.digest
        steps = due.first // service.seconds - t
        listed = expected_rates(knowledge, steps, due.number, rates, tariff)
        if due.late and standing.lists:
            before = same_clock(standing.lists[-1], due.first, due.number, service.time_zone)
            source, listed = "carried", carried_rates(listed, before, tariff)
    return PricesRecord(
        zone=service.id,
        digest=digest,
        source=source,
        first=due.first,
        seconds=service.seconds,
        rates=listed.rates,
        published_at=math.floor(now),
        simulated=standing.mode == "simulation",
        feed_in=listed.feed_in,
    )


def same_clock(
    record: PricesRecord, first: int, number: int, time_zone: str
) -> tuple[float | None, ...]:
    """The rates of a list at the times of day of other intervals.

    Args:
        record: The list.
        first: When the first of the other intervals begins [UTC s].
        number: How many there are.
        time_zone: IANA name of the zone of times of day.

    Returns:
        For each its rate [currency/kWh], the last one where the list has several; None: no such
        time.
    """
    zone, seconds = ZoneInfo(time_zone), record.seconds

    def clock(start: int) -> time:
        return datetime.fromtimestamp(start, zone).time()

    by_clock = {clock(record.first + i * seconds): rate for i, rate in enumerate(record.rates)}
    return tuple(by_clock.get(clock(first + i * seconds)) for i in range(number))
