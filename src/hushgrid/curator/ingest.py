"""Ingest: parsed readings to the houses of the zones, counted, durable on return.

Small batches of a delivery are stored together, so that one sync makes many readings durable.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Int32s, Ints
from hushgrid.curator.clock import Clock, times_of
from hushgrid.errors import MeterError
from hushgrid.files.deployment import ZoneService
from hushgrid.intake.readings import PROBLEMS, Parsed, Readings, Reason, merge_reasons
from hushgrid.intake.text import ColumnMapping
from hushgrid.stores.clients import Senders, SenderTerms
from hushgrid.stores.meters import Counts, MeterStore
from hushgrid.stores.meters.columns import Columns

ROWS = 1 << 16  # readings stored with one sync; also what one delivery holds in memory
PAST = 1000  # intervals before the present of which readings are stored
UNKNOWN = "meter is of no zone of this service, or of another sender"
EARLY = (
    "a reading starts further after the present than service.early_limit allows; set the clock of"
    " its sender."
)
DAMAGED = (
    "a reading is of an interval whose stored readings are damaged, so that it gets no price of its"
    " own; do not send it again."
)

FEWEST, SMALL = 20, 0.1  # meters of a delivery, and share of a usual value, to look at its unit
TOO_SMALL = f"every value is below {100 * SMALL:.0f} % of what is usual in its zone and perhaps kWh"


class Delivery:
    """Counts of a delivery so far; what is counted is durable, even if the rest fails.

    Args:
        sender: Who sent it; None: the operator, who may send readings of every meter.
    """

    def __init__(self, sender: str | None = None) -> None:
        self.sender, self.receipt = sender, Receipt()
        self.problems: tuple[str, ...] = ()
        self._reasons: tuple[Reason, ...] = ()
        self._readings = 0  # so far
        self._small: dict[str, frozenset[int] | None] = {}  # by zone, as `DeliveryOutcome.small`

    def take(self, ingest: Ingest, batches: Iterable[Parsed]) -> Receipt:
        """Store all batches; returns when they are durable."""
        for group in _groups(batches):
            (outcome,) = ingest.take_each([group], [self.sender])
            if isinstance(outcome, Exception):
                raise outcome
            self.count(outcome, group)
        ingest.note(self)
        return self.receipt

    def count(self, outcome: DeliveryOutcome, parts: Sequence[Parsed]) -> None:
        """Add what became of some batches."""
        self.receipt += outcome.receipt
        for part in parts:
            self.problems = (*self.problems, *part.problems)[:PROBLEMS]
        for text, count in ((EARLY, outcome.receipt.early), (DAMAGED, outcome.receipt.damaged)):
            if count and text not in self.problems:
                self.problems = (text, *self.problems)[:PROBLEMS]
        reasons = [
            Reason(text, count, f"reading {self._readings + first + 1}")
            for text, count, first in outcome.refused
        ]
        self._reasons = merge_reasons(self._reasons, *(part.reasons for part in parts), reasons)
        self._readings += sum(len(part.readings) for part in parts)
        for zone, meters in outcome.small.items():
            before = self._small.get(zone, frozenset())
            union = None if before is None or meters is None else before | meters
            self._small[zone] = union if union is None else frozenset(sorted(union)[:FEWEST])

    @property
    def sizes(self) -> dict[str, bool]:
        """For each zone with readings of enough homes: whether all values are far too small."""
        return {
            zone: meters is not None
            for zone, meters in self._small.items()
            if meters is None or len(meters) >= FEWEST
        }

    @property
    def warnings(self) -> list[str]:
        """What the sender should look at, although the readings were taken."""
        fix = 'send Wh, or a table with a mapping of unit = "kwh".'
        return [f"zone {zone}: {TOO_SMALL}; {fix}" for zone, small in self.sizes.items() if small]

    @property
    def reasons(self) -> dict[str, dict[str, Any]]:
        """Why rows were not taken: `count` and `first` row by reason."""
        return {text: {"count": count, "first": first} for text, count, first in self._reasons}

    @property
    def futile(self) -> str | None:
        """What is wrong where no row is of use: each is malformed, unknown or left out."""
        counts = self.receipt._replace(malformed=0, unknown=0, clamped=0)
        if any(counts) or not (self._reasons or any(self.receipt)):
            return None
        reasons = [f"{count} rows, first {first}: {text}" for text, count, first in self._reasons]
        return (
            f"no row is a reading of a meter of this service ({'; '.join(reasons)}); correct them."
        )


def take_each(
    ingest: Ingest, deliveries: Sequence[tuple[Delivery, Iterable[Parsed]]]
) -> list[Exception | None]:
    """Store small deliveries together; returns when they are durable.

    Batches before a broken one are stored and counted, as they are for a single delivery.

    Args:
        ingest: Stores readings.
        deliveries: Each delivery with its batches.

    Returns:
        For each delivery the error that ended it, or None.
    """
    read = [_read(batches) for _, batches in deliveries]
    senders = [delivery.sender for delivery, _ in deliveries]
    outcomes = ingest.take_each([parts for parts, _ in read], senders)
    errors: list[Exception | None] = []
    for (delivery, _), (parts, broken), outcome in zip(deliveries, read, outcomes, strict=True):
        if isinstance(outcome, Exception):
            errors.append(outcome)
            continue
        delivery.count(outcome, parts)
        ingest.note(delivery)
        errors.append(broken)
    return errors


def _read(batches: Iterable[Parsed]) -> tuple[list[Parsed], Exception | None]:
    parts: list[Parsed] = []
    try:
        parts.extend(batches)
    except Exception as error:
        return parts, error
    return parts, None


def _groups(batches: Iterable[Parsed]) -> Iterator[list[Parsed]]:
    """Small batches joined into lists. Those before a broken batch come first, then the error."""
    group: list[Parsed] = []
    rows, source = 0, iter(batches)
    while True:
        try:
            batch = next(source, None)
        except Exception:
            if group:
                yield group
            raise
        if batch is None:
            break
        group.append(batch)
        rows += len(batch.readings)
        if rows >= ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


class DeliveryOutcome(NamedTuple):
    """What became of some batches of one delivery.

    Attributes:
        receipt: Counts.
        refused: Reason, count and place (from 0) of the first of the readings that are of no meter
            of the sender, or do not fit the intervals of their zone.
        small: By zone the houses of readings, at most `FEWEST`, where all values are far below the
            usual one; None where one is not. Registers of energy fed in do not count.
    """

    receipt: Receipt
    refused: Sequence[tuple[str, int, int]] = ()
    small: Mapping[str, frozenset[int] | None] = MappingProxyType({})


class Receipt(NamedTuple):
    """Counts of the readings of one delivery; each is counted once, except in `clamped`.

    Attributes:
        accepted: Stored.
        duplicate: Repeated, whether or not equal to the first one, which is kept.
        late: Of an interval that is closed, or too old to be published.
        clamped: How many of the accepted lie outside -export..bound, so that they will be clamped.
        unknown: Of a meter of no zone, or of another sender.
        malformed: Not a reading.
        early: Of an interval too far after the present.
        damaged: Of an interval whose stored readings are damaged; not stored.
    """

    accepted: int = 0
    duplicate: int = 0
    late: int = 0
    clamped: int = 0
    unknown: int = 0
    malformed: int = 0
    early: int = 0
    damaged: int = 0

    def __add__(self, other: object) -> Receipt:
        if not isinstance(other, Receipt):
            return NotImplemented
        return Receipt(*map(add, self, other))


class Ingest:
    """Maps meter ids to houses of the zones and stores readings in the meter store.

    Args:
        zones: The zones of the service.
        store: The meter store.
        senders: Which meters belong to which sender; None: all belong to each.

    Attributes:
        clock: Readings too far from its time are not stored. None: the operator's own, of any time.
        units: Senders whose values are perhaps in another unit.
    """

    def __init__(
        self, zones: Sequence[ZoneService], store: MeterStore, senders: Senders | None = None
    ) -> None:
        self._zones, self._store, self._senders = tuple(zones), store, senders
        self.clock: Clock | None = None
        self._places: dict[str, int] = {}  # of each meter among all zones; its first one
        for place, name in enumerate(chain.from_iterable(zone.all_meters for zone in self._zones)):
            self._places.setdefault(name, place)
        self._recent: dict[tuple[str | None, str], _Recent] = {}  # by sender and first id
        self._room = 0  # ids that may still be kept there
        self._first = list(accumulate((len(zone.all_meters) for zone in self._zones), initial=0))
        self._bounds = [_bounds(zone) for zone in self._zones]
        # a value is small below this [Wh/s]; 0: it is not known
        self._least = np.array([SMALL * _usual(zone) / zone.seconds for zone in self._zones])
        lengths = np.array([len(zone.meters) for zone in self._zones], np.int64)
        self._homes = lengths + self._first[:-1]  # where the homes of each zone end
        self.units = Units()
        self._registers = {k: v for zone in self._zones for k, v in zone.fed_in.items()}

    def mapped(self, mapping: ColumnMapping) -> ColumnMapping:
        """A mapping that knows which homes have a register of energy fed in."""
        return replace(mapping, registers=self._registers) if self._registers else mapping

    def most_rows(self, sender: str | None) -> int:
        """How many rows a table of a sender may have: its meters times intervals that may be open.

        At least `ROWS`: a table of one batch costs no more than its refusal.
        """
        terms = None if self._senders is None else self._senders.terms()
        owns = (lambda _: True) if terms is None else terms.test_of(sender)
        return max(
            ROWS,
            sum(
                sum(map(owns, zone.all_meters)) * (PAST + 1 + zone.early_limit)
                for zone in self._zones
            ),
        )

    def note(self, delivery: Delivery) -> None:
        """Note for the operator what is odd about a delivery that ended."""
        if self.clock is not None:
            self.units.note(delivery, self.clock.now())

    def take(self, *parsed: Parsed, sender: str | None = None) -> Receipt:
        """Store parsed readings; durable on return."""
        (outcome,) = self.take_each([parsed], [sender])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.receipt

    def take_each(
        self, deliveries: Sequence[Sequence[Parsed]], senders: Sequence[str | None]
    ) -> list[DeliveryOutcome | Exception]:
        """Store several deliveries, each of its sender, all of a zone at once; durable on return.

        Returns:
            For each delivery what became of it, or why it cannot be stored now. A zone that fails
            affects only the deliveries with readings of it.
        """
        terms = None if self._senders is None else self._senders.terms()
        sources = [
            (part.readings, sender)
            for delivery, sender in zip(deliveries, senders, strict=True)
            for part in delivery
            if len(part.readings)
        ]
        parts = [part for part, _ in sources]
        sizes = [sum(len(p.readings) for p in delivery) for delivery in deliveries]
        results = [
            _DeliveryResult(Receipt(malformed=sum(p.malformed for p in delivery), unknown=size))
            for delivery, size in zip(deliveries, sizes, strict=True)
        ]
        if parts:
            columns = _columns(
                parts, [self._place(part, sender, terms) for part, sender in sources]
            )
            ends = list(accumulate(sizes))
            self._compare(columns, ends, results)
            if (unknown := columns.house < 0).any():
                _refuse(UNKNOWN, unknown, ends, results)
            self._put(columns, ends, results)
        return [
            result.error or DeliveryOutcome(result.receipt, result.refused, result.small)
            for result in results
        ]

    def small(self, parsed: Sequence[Parsed]) -> bool:
        """Whether all values of many homes are far too small in a zone; nothing is stored."""
        parts = [part.readings for part in parsed if len(part.readings)]
        if not parts:
            return False
        result = _DeliveryResult(Receipt())
        columns = _columns(parts, [self._place(part) for part in parts])
        self._compare(columns, [len(columns.house)], [result])
        delivery = Delivery()
        delivery.count(DeliveryOutcome(Receipt(), small=result.small), ())
        return any(delivery.sizes.values())

    def _compare(self, columns: Columns, ends: list[int], results: list[_DeliveryResult]) -> None:
        """Note where the values of a delivery are far below the usual ones of a zone."""
        for result, (begin, end) in zip(results, pairwise([0, *ends]), strict=True):
            result.small = self._sizes(columns, begin, min(begin + FEWEST, end))
            if None in result.small.values() and len(self._zones) == 1:
                continue  # most bodies: a usual value is among the first
            result.small = self._sizes(columns, begin, end)

    def _sizes(self, columns: Columns, begin: int, end: int) -> dict[str, frozenset[int] | None]:
        """Of some readings as `DeliveryOutcome.small`."""
        house, duration, wh = (
            column[begin:end] for column in (columns.house, columns.duration, columns.wh)
        )
        zone_of = np.searchsorted(self._first, house, side="right") - 1
        least = self._least[zone_of]
        homes = (house >= 0) & (house < self._homes[zone_of]) & (least > 0)
        large = homes & (np.abs(wh) >= least * duration)
        usual, sizes = set(zone_of[large].tolist()), dict[str, frozenset[int] | None]()
        for k in np.unique(zone_of[homes]).tolist():
            small = None if k in usual else np.unique(house[homes & (zone_of == k)])[:FEWEST]
            sizes[self._zones[k].id] = None if small is None else frozenset(small.tolist())
        return sizes

    def _place(
        self, readings: Readings, sender: str | None = None, terms: SenderTerms | None = None
    ) -> Int32s:
        """The place of each reading's meter; -1 where it is unknown or another sender's.

        Senders list the same meters in the same order each time. Ids of one batch lie next to each
        other in memory, so that comparing all is several times faster than finding each.
        """
        ids = readings.ids
        recent_ids, (under, place) = self._recent.get((sender, ids[0]), _NEVER)
        if recent_ids != ids or under is not terms:
            places: Mapping[str, int] = self._places
            if terms is not None and sender is not None and self._senders is not None:
                names = [name for name in ids if name in places]
                places = {
                    name: places[name] for name in self._senders.meters_of(sender, names, terms)
                }
            place = np.array([places.get(name, -1) for name in ids], np.int32)
            if self._room < len(ids):
                self._recent.clear()
                self._room = 2 * len(self._places)
            if self._room >= len(ids):
                self._room -= len(ids)
                self._recent[sender, ids[0]] = ids, (terms, place)
        return place[readings.code]

    def _put(self, columns: Columns, ends: list[int], results: list[_DeliveryResult]) -> None:
        """Store readings of which `house` is the place among the meters of all zones."""
        zone_of = np.searchsorted(self._first, columns.house, side="right") - 1
        times = None if self.clock is None else times_of(self.clock)
        for k in np.unique(zone_of[columns.house >= 0]).tolist():
            zone, first, bound = self._zones[k], self._first[k], self._bounds[k]
            of_zone = zone_of == k
            if times is not None and not self._near(
                zone, columns.start, times, of_zone, ends, results
            ):
                continue
            house, start, duration, wh = columns.at(of_zone)
            house = house - np.int32(first)
            low, high = bound
            outside = (wh < low[house]) | (wh > high[house])
            upto = _upto(of_zone, ends)
            try:
                counts = self._store.put_each(
                    zone.id, house, start, duration, wh, ends=upto, marked=outside
                )
            except (MeterError, OSError) as error:
                for result, size in zip(results, _sizes(upto), strict=True):
                    result.error = error if size else result.error
                continue
            for result, count, size in zip(results, counts, _sizes(upto), strict=True):
                result.receipt += _receipt(count, size)
            if any(count.malformed for count in counts):
                _refuse_lengths(zone, columns, of_zone, ends, results)

    def _near(
        self,
        zone: ZoneService,
        start: Ints,
        times: Sequence[float],
        of_zone: Bools,
        ends: list[int],
        results: list[_DeliveryResult],
    ) -> bool:
        """Count the zone's readings far from the present and take them out; whether any is left.

        Each interval has its place by the time alone, so that no sender takes it from another.
        """
        seconds, near = zone.seconds, np.zeros(start.size, np.bool_)
        for now in times:
            opens = int(now) // seconds * seconds
            after = opens + (zone.early_limit + 1) * seconds
            near |= (opens - PAST * seconds <= start) & (start < after)
        far, early = of_zone & ~near, start > min(times)
        if far.any():
            counts = zip(
                _sizes(_upto(far & early, ends)), _sizes(_upto(far & ~early, ends)), strict=True
            )
            for result, (soon, late) in zip(results, counts, strict=True):
                result.receipt += Receipt(early=soon, late=late, unknown=-soon - late)
            of_zone &= near
        return bool(of_zone.any())


class Units:
    """When a sender's last delivery of many homes had values that are far too small.

    It names senders, never homes, and nothing of it is a metric: homes that are away send small
    values too.
    """

    def __init__(self) -> None:
        self._small: dict[tuple[str, str], float] = {}  # [UTC s] by zone and sender
        self._mutex = threading.Lock()

    def note(self, delivery: Delivery, now: float) -> None:
        """Note a delivery that ended."""
        with self._mutex:
            for zone, small in delivery.sizes.items():
                self._small.pop((zone, delivery.sender or ""), None)
                if small:
                    self._small[zone, delivery.sender or ""] = now

    def of(self, zone: str, since: float) -> list[str]:
        """Senders with such a delivery of a zone since then [UTC s]."""
        with self._mutex:
            return [
                sender for (name, sender), at in self._small.items() if name == zone and at >= since
            ]


DISAGREEMENTS = 1000  # kept of a zone; the oldest is dropped first


class Disagreements:
    """Meters and intervals for which readings came that contradict each other. Thread-safe.

    Args:
        zones: The zones of the service.
    """

    def __init__(self, zones: Iterable[ZoneService]) -> None:
        self._zones = {zone.id: zone for zone in zones}
        self._pairs: dict[str, dict[tuple[str, int], None]] = {zone: {} for zone in self._zones}
        self._mutex = threading.Lock()

    def add(self, zone: str, house: Int32s, start: Ints) -> None:
        """Note readings by house and start [UTC s]."""
        zone_service = self._zones[zone]
        meters = zone_service.all_meters
        opens = start - start % zone_service.seconds
        pairs = dict.fromkeys(zip(house.tolist(), opens.tolist(), strict=True))
        with self._mutex:
            disagreements = self._pairs[zone]
            for h, at in list(pairs)[-DISAGREEMENTS:]:
                disagreements.pop((meters[h], at), None)
                disagreements[meters[h], at] = None
            for old in list(disagreements)[:-DISAGREEMENTS]:
                del disagreements[old]

    def of(self, zone: str) -> list[tuple[str, int]]:
        """Meters and starts of intervals [UTC s], the newest last."""
        with self._mutex:
            return list(self._pairs[zone])


# ids, and their places under terms
_Recent = tuple[tuple[str, ...], tuple[SenderTerms | None, Int32s]]
_NEVER: _Recent = ((), (None, np.empty(0, np.int32)))


@dataclass(slots=True)
class _DeliveryResult:
    """What became of a delivery, or the error that ended it."""

    receipt: Receipt
    error: Exception | None = None
    refused: list[tuple[str, int, int]] = field(default_factory=list)
    small: dict[str, frozenset[int] | None] = field(default_factory=dict)


def _refuse(text: str, mask: Bools, ends: list[int], results: list[_DeliveryResult]) -> None:
    """Note a reason for some of the readings of all deliveries."""
    for result, (begin, end) in zip(results, pairwise([0, *ends]), strict=True):
        if (at := np.flatnonzero(mask[begin:end])).size:
            result.refused.append((text, at.size, int(at[0])))


def _refuse_lengths(
    zone: ZoneService,
    columns: Columns,
    of_zone: Bools,
    ends: list[int],
    results: list[_DeliveryResult],
) -> None:
    """Note the readings of a zone that are not inside one of its intervals, as the store has it.

    Each delivery by itself: what others sent changes no answer.
    """
    duration = np.maximum(columns.duration, 1).astype(np.int64)
    divides = zone.seconds % duration == 0
    wrong, astray = of_zone & ~divides, of_zone & divides & (columns.start % duration != 0)
    for result, (begin, end) in zip(results, pairwise([0, *ends]), strict=True):
        misfits, lengths = wrong[begin:end], duration[begin:end]
        for length in np.unique(lengths[misfits])[:PROBLEMS].tolist():
            at = np.flatnonzero(misfits & (lengths == length))
            text = (
                f"lasts {length} s, but the intervals of zone {zone.id} last {zone.seconds} s: one"
                f" reading must not enter two releases; send readings of {zone.seconds} s or a"
                " divisor"
            )
            result.refused.append((text, at.size, int(at[0])))
        if (at := np.flatnonzero(astray[begin:end])).size:
            text = "starts between two borders of readings of its own length"
            result.refused.append((text, at.size, int(at[0])))


def _bounds(zone: ZoneService) -> tuple[Ints, Ints]:
    """The lowest and highest Wh of each meter's readings, further registers included."""
    houses = zone.scenario.zone
    low, high = -houses.export.astype(np.int64), (houses.bound - houses.export).astype(np.int64)
    highest = [
        high[register.house] if register.sign > 0 else houses.export[register.house]
        for register in zone.registers
    ]
    return np.append(low, np.zeros_like(highest)), np.append(high, highest).astype(np.int64)


def _usual(zone: ZoneService) -> float:
    """What a home usually uses in an interval [Wh], by what is public; 0: nothing says it."""
    if zone.policy.usual or zone.scenario.zone.export.any():
        return zone.policy.usual
    return float(np.mean([law.mean for law in zone.scenario.consumption.laws]))


def _upto(mask: Bools, ends: list[int]) -> list[int]:
    """How many of some readings come before each end."""
    return list(np.concatenate([[0], np.cumsum(mask)])[ends].tolist())


def _sizes(ends: list[int]) -> list[int]:
    """
    >>> _sizes([2, 2, 5])
    [2, 0, 3]
    """
    return [end - begin for begin, end in pairwise([0, *ends])]


def _columns(parts: list[Readings], places: list[Int32s]) -> Columns:
    """Readings of which `house` is the place among the meters of all zones."""
    return Columns(
        _joined(places),
        _joined([part.start for part in parts]),
        _joined([part.duration for part in parts]),
        _joined([part.wh for part in parts]),
    )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _receipt(counts: Counts, size: int) -> Receipt:
    """The change to a receipt in which these readings were counted as unknown."""
    again = counts.duplicate + counts.conflicting
    return Receipt(
        counts.accepted, again, counts.late, counts.marked, -size, counts.malformed,
        damaged=counts.damaged,
    )  # fmt: skip
