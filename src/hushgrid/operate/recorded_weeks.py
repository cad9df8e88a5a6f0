"""What is on record for a zone, week by week, for an audit; the records need not be valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hushgrid.audit.evidence import (
    Evidence,
    LostSteps,
    RecordedList,
    RecordedRelease,
    RecordedTariff,
    RecordedWeek,
)
from hushgrid.curator.price_lists import same_clock
from hushgrid.errors import LedgerError, ZoneError
from hushgrid.files.weeks import week_of
from hushgrid.mechanism.digest import tariff_from
from hushgrid.mechanism.release import renumbered
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.rules import HOUSE_DIGITS
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord


class _Weeks:
    """The weeks of a zone's records, which need not be valid."""

    def __init__(self) -> None:
        self._terms: TermsRecord | None = None
        self._place = 0
        self._weeks: list[RecordedWeek] = []
        self._entries: dict[int, list[RecordedRelease]] = {}  # by the number of their week
        self._lost: dict[int, set[int]] = {}
        self._lists: dict[int, list[RecordedList]] = {}
        self._listed: PricesRecord | None = None  # the last list
        self._tariffs: list[RecordedTariff] = []
        self._next = 0  # the step after the last one published

    @property
    def seconds(self) -> int:
        """Length of a step [s]; 0 before any terms."""
        return 0 if self._terms is None else self._terms.seconds

    def begin(self, record: Record, place: int) -> None:
        """Take terms."""
        self._terms, self._place = TermsRecord.from_record(record), place
        self._at(self._terms.first)
        self._next = self._terms.first

    def price(self, record: Record, place: int) -> None:
        """Take a tariff."""
        try:
            tariff = tariff_from(TariffRecord.from_record(record).figures)
        except ZoneError:
            tariff = None
        self._tariffs.append(RecordedTariff(place, tariff))

    def publish(self, record: Record, place: int) -> None:
        """Take a release; nothing without terms."""
        if self._terms is not None:
            release = ReleaseRecord.from_record(record)
            week = self._at(release.t)
            entry = _entry(release, place, self._weeks[week].first)
            self._entries.setdefault(week, []).append(entry)
            self._next = release.t + 1

    def list_prices(self, record: Record, place: int) -> None:
        """Take a list of prices; nothing without terms."""
        entry, terms, before = PricesRecord.from_record(record), self._terms, self._listed
        if terms is None:
            return
        week = self._at(max(self._next, entry.published_at // terms.seconds))
        clock: tuple[float | None, ...] = ()
        if entry.source == "carried" and before is not None:
            clock = same_clock(before, entry.first, len(entry.rates), terms.time_zone or "UTC")
        first = entry.first // entry.seconds - self._weeks[week].first + 1
        feed_in = None if entry.feed_in is None else tuple(entry.feed_in)
        prices = RecordedList(place, first, entry.source, tuple(entry.rates), feed_in, clock)
        self._lists.setdefault(week, []).append(prices)
        self._listed = entry

    def lose(self, first: int, last: int) -> None:
        """Take steps that may have been published and lost; nothing without terms."""
        for t in range(first, last + 1) if self._terms is not None else ():
            week = self._at(t)
            self._lost.setdefault(week, set()).add(t - self._weeks[week].first + 1)

    def _at(self, t: int) -> int:
        """The number of the week with a step under the present terms."""
        assert self._terms is not None
        for n in range(len(self._weeks) - 1, -1, -1):
            week = self._weeks[n]
            if week.place == self._place and week.first <= t < week.first + week.steps:
                return n
        terms, seconds = self._terms, self._terms.seconds
        first = t - (t - terms.first) % terms.turn
        end = first + terms.turn
        if terms.time_zone is not None:
            begins, ends = week_of(t * seconds, seconds, terms.time_zone)
            first, end = max(begins // seconds, terms.first), ends // seconds
        text, n = terms.houses, HOUSE_DIGITS
        names = tuple(text[at : at + n] for at in range(0, len(text), n))
        week = RecordedWeek(
            self._place, terms.digest, first, max(end - first, 1), (), terms.roster, seconds,
            secret=terms.promise["secret"], houses=names,
        )  # fmt: skip
        self._weeks.append(week)
        return len(self._weeks) - 1

    def to_tuple(self) -> tuple[RecordedWeek, ...]:
        """The weeks in the order of their records and steps."""
        weeks = [
            replace(
                week,
                entries=tuple(self._entries.get(n, ())),
                lost=frozenset(self._lost.get(n, ())),
                lists=tuple(self._lists.get(n, ())),
                tariffs=tuple(self._tariffs),
            )
            for n, week in enumerate(self._weeks)
        ]
        return tuple(sorted(weeks, key=lambda week: (week.place, week.first)))


def evidence_of(zone: str, records: Sequence[Record], places: Mapping[int, int]) -> Evidence:
    """The evidence of a zone's records, whether or not its chain is valid.

    Args:
        zone: Id of the zone.
        records: Its records in order.
        places: Number of each record by its `id`.

    Returns:
        The evidence, up to a body with a wrong field.
    """
    weeks, steps = _Weeks(), set[tuple[int, int]]()  # steps with their length [s]
    mode, repeated = "simulation", None
    charges: list[tuple[int, float]] = []
    gaps: list[LostSteps] = []
    for record in records:
        body, place = record.body, places[id(record)]
        try:
            if record.kind == "genesis":
                mode = str(body["mode"])
            elif record.kind == "terms":
                weeks.begin(record, place)
            elif record.kind == "tariff":
                weeks.price(record, place)
            elif record.kind == "release":
                step = (int(body["t"]), weeks.seconds)
                if step in steps and repeated is None:
                    repeated = place
                elif step not in steps:
                    weeks.publish(record, place)
                steps.add(step)
            elif record.kind == "prices":
                weeks.list_prices(record, place)
            elif record.kind == "charge":
                charges.append((place, float(body["epsilon"])))
            elif record.kind == "gap" and weeks.seconds:
                first, last = int(body["first"]), int(body["last"])
                if gaps and gaps[-1].epsilon is None:  # the open one, extended
                    gaps.pop()
                least = float(body.get("least", 0.0))
                gaps.append(LostSteps(place, first, last, seconds=weeks.seconds, least=least))
                weeks.lose(first, last)
            elif record.kind == "resume" and gaps:
                cost = math.inf if body["epsilon"] is None else float(body["epsilon"])
                gaps[-1] = replace(gaps[-1], place=place, epsilon=cost)
        except (KeyError, TypeError, ValueError, LedgerError):
            break  # a body with a wrong field, which the check of the chain reports
    return Evidence(zone, "ledger", weeks.to_tuple(), mode, repeated, tuple(charges), tuple(gaps))


def _entry(record: ReleaseRecord, place: int, first: int) -> RecordedRelease:
    houses = record.counts.get("houses")
    times = (record.published_at, record.applies_start)
    release = renumbered(record.release, 1 - first)
    return RecordedRelease(place, release, record.source, houses, record.start, *times)
