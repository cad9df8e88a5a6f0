"""Canonical meter readings in columns, and the result of a parser.

`Readings` holds whole Wh by meter, start and duration. A converter returns a column of integers; a
value below `FAULTS_END` is a `Fault`, the reason why the row is malformed. So a column is one
integer array, and malformed rows cost nothing until their reason is needed. `check_rows` separates
the good rows from the malformed ones, and `to_intervals` counts each reading in one interval or in
none.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Bools, Indices, Int32s, Ints, is_whole
from hushgrid.errors import IntakeError

_LOWEST = -(2**63)


class Fault(IntEnum):
    """Reason why a row cannot be used, as an integer that no reading can have.

    Attributes:
        text: The reason in words; it never holds the value.

    >>> Fault.TIME < FAULTS_END < 0
    True
    """

    text: str

    def __new__(cls, text: str) -> Fault:  # noqa: D102
        member = int.__new__(cls, _LOWEST + len(cls.__members__))
        member._value_ = int(member)
        member.text = text
        return member

    TOO_LONG = "is longer than 64 KiB"
    NOT_UTF8 = "is not UTF-8 text, or not of the encoding of the mapping"
    QUOTES = "has a quote that does not close, or text after one that does"
    FIELDS = "has another number of fields than the header"
    NOT_OBJECT = "is not one flat JSON object"
    LEFT_OUT = "is not energy taken from the grid (the mapping's `only`) and is left out"
    OTHER_METER = "is of another meter than the first row, but one meter id was given for all"
    CHECKSUM = "has a wrong checksum, or no end"
    RECORD = "is no record of its place in the format"
    METER = "meter id is not 1 to 128 printable characters"
    TIME_MISSING = "time is missing"
    TIME = "time is not in the expected form, or no such date exists"
    TIME_ZONE = "time has no UTC offset"
    TIME_GAP = "time does not exist in its zone, as clocks went forward"
    TIME_RANGE = "time is outside the years 1970 to 2099"
    TIME_SECOND = "time is not on a whole second"
    DURATION = "duration is not in whole seconds from 1 to 31622400"
    END = "end is not a time after the start"
    VALUE_MISSING = "value is missing"
    VALUE = "value is not a number"
    VALUE_SIZE = "value is beyond 10^12 Wh"
    COUNTER = "counter is lower than before"
    NO_READING_TYPE = "no ReadingType is known for the reading"
    NO_USAGE_POINT = "no link names the UsagePoint of the reading, and no meter id was given"
    UNIT = "unit is not one of energy: 72 (uom), Wh, kWh or MWh"
    FLOW = (
        "flow direction is none of 1, delivered, 19, received, and 4, net, of intervals"
        " (accumulationBehaviour 4)"
    )
    NET = "value is net, but the home has a register for each direction"
    COMMODITY = "commodity is not electricity"
    REGISTER = "accumulation is of a register, not of an interval"
    MULTIPLIER = "powerOfTenMultiplier is not from -12 to 12"
    TOO_WIDE = "is longer than the interval"
    STRADDLES = "straddles the border of two intervals"


FAULTS_END = _LOWEST + len(Fault)


def reason(code: int) -> str:
    """Text of a fault.

    Args:
        code: Value of a `Fault`.

    Returns:
        The reason in words.

    >>> reason(Fault.VALUE)
    'value is not a number'
    """
    return list(Fault)[code - _LOWEST].text


END = 4_102_444_800  # [s] 2100-01-01T00:00:00Z, the first start that is refused
MAX_DURATION = 366 * 86_400  # [s]
MAX_WH = 10**12  # [Wh]; far beyond any meter, far below 2^63 when a day of seconds is added
MAX_ID = 128  # characters
PROBLEMS = 10  # how many bad rows are named; all are counted
REASONS = 20  # different ones that are kept of an input


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Readings:
    """Row i: meter `ids[code[i]]` counted `wh[i]` [Wh] over `duration[i]` [s] from `start[i]`.

    Negative Wh are export; they are clamped later. The columns are read-only.

    Args:
        ids: The distinct meter ids, each 1 to 128 printable characters.
        code: (n,) number of each reading's id.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s], 1 to 31622400.
        wh: (n,) energy [Wh].

    Raises:
        IntakeError: If a column is not of whole numbers within its limits, or lengths differ.

    >>> r = Readings(["a", "b"], [0, 1], start=[0, 0], duration=[900, 900], wh=[12, -3])
    >>> len(r), list(r.rows())
    (2, [('a', 0, 900, 12), ('b', 0, 900, -3)])
    """

    ids: tuple[str, ...]
    code: Int32s
    start: Ints
    duration: Int32s
    wh: Ints

    def __init__(
        self,
        ids: Iterable[str],
        code: ArrayLike,
        *,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
    ) -> None:
        names = tuple(ids)
        if len(set(names)) != len(names) or any(clean_meter(name) != name for name in names):
            raise IntakeError(
                f"meter ids repeat or are not 1 to {MAX_ID} printable characters; give each once."
            )
        columns = {
            "code": _column(code, "code", 0, len(names) - 1, np.int32),
            "start": _column(start, "start", 0, END - 1, np.int64),
            "duration": _column(duration, "duration", 1, MAX_DURATION, np.int32),
            "wh": _column(wh, "wh", -MAX_WH, MAX_WH, np.int64),
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise IntakeError(f"columns have lengths {lengths}; give one entry for each reading.")
        self._fill(names, **columns)

    def _fill(self, ids: tuple[str, ...], **columns: NDArray[Any]) -> None:
        object.__setattr__(self, "ids", ids)
        for name, column in columns.items():
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    @classmethod
    def trusted(
        cls, ids: Iterable[str], code: Int32s, *, start: Ints, duration: Int32s, wh: Ints
    ) -> Readings:
        """From columns that the caller has checked; they become read-only."""
        readings = object.__new__(cls)
        readings._fill(tuple(ids), code=code, start=start, duration=duration, wh=wh)
        return readings

    @classmethod
    def of(
        cls, meter: Sequence[str], start: ArrayLike, duration: ArrayLike, wh: ArrayLike
    ) -> Readings:
        """From one meter id for each reading."""
        codes: dict[str, int] = {}
        code = [codes.setdefault(name, len(codes)) for name in meter]
        return cls(codes, code, start=start, duration=duration, wh=wh)

    @classmethod
    def empty(cls) -> Readings:
        """No readings."""
        return cls((), (), start=(), duration=(), wh=())

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: NDArray[Any] | slice) -> Readings:
        """Some of the readings, by rows, mask or slice; `ids` are those that occur."""
        codes, code = np.unique(self.code[rows], return_inverse=True)
        return Readings.trusted(
            [self.ids[i] for i in codes],
            code.astype(np.int32),
            start=self.start[rows],
            duration=self.duration[rows],
            wh=self.wh[rows],
        )

    @property
    def meter(self) -> NDArray[np.object_]:
        """The meter id of each reading."""
        return np.array(self.ids, object)[self.code]

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """(meter id, start, duration, Wh) of each reading."""
        columns, ids = (self.code, self.start, self.duration, self.wh), self.ids
        for code, *numbers in zip(*(column.tolist() for column in columns), strict=True):
            yield (ids[code], *numbers)


def _column(
    values: ArrayLike, label: str, low: int, high: int, dtype: type[np.signedinteger[Any]]
) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise IntakeError(f"{label} is not a list of whole numbers; give one for each reading.")
    if array.size and not (array.min() >= low and array.max() <= high):
        raise IntakeError(
            f"{label} is not always within {low} to {high}; drop such readings first."
        )
    return array.astype(dtype)


def clean_meter(text: str) -> str | None:
    """The meter id without surrounding spaces.

    Ids are compared by code point: case, form and inner spaces count.

    Args:
        text: An id as written.

    Returns:
        The id; None if it is not 1 to 128 printable characters.

    >>> clean_meter(" MAC000002 "), clean_meter(" "), clean_meter("a\\x00")
    ('MAC000002', None, None)
    """
    bare = text.strip(" \t")
    return bare if 0 < len(bare) <= MAX_ID and bare.isprintable() else None


def concat(parts: Iterable[Readings]) -> Readings:
    """Concatenate readings.

    Args:
        parts: Readings to join, in order.

    Returns:
        All readings in one.

    >>> one = Readings.of(["a"], [0], [900], [1])
    >>> concat([one, Readings.of(["b", "a"], [0, 900], [900, 900], [2, 3])]).ids
    ('a', 'b')
    """
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else Readings.empty()
    codes: dict[str, int] = {}
    code = [
        np.array([codes.setdefault(name, len(codes)) for name in part.ids], np.int32)[part.code]
        for part in filled
    ]
    return Readings.trusted(
        codes,
        np.concatenate(code),
        start=np.concatenate([part.start for part in filled]),
        duration=np.concatenate([part.duration for part in filled]),
        wh=np.concatenate([part.wh for part in filled]),
    )


class Reason(NamedTuple):
    """Why some rows gave no reading.

    Attributes:
        text: The reason, without any value.
        rows: How many rows.
        first: The first of them, such as "line 3".
    """

    text: str
    rows: int
    first: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of a parser.

    Attributes:
        readings: The good rows.
        malformed: Number of malformed rows.
        problems: Position and reason of the first of them, at most 10.
        reasons: All rows that gave no reading, by reason. Rows that a mapping leaves out (export)
            are here and not among the malformed.
    """

    readings: Readings
    malformed: int
    problems: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()


def merge_reasons(*groups: Iterable[Reason]) -> tuple[Reason, ...]:
    """Add up reasons of equal text; at most `REASONS` different ones are kept.

    Args:
        groups: Reasons of successive parts of an input.

    Returns:
        One reason for each text, with the first row of the first part.

    >>> merge_reasons([Reason("a", 1, "line 2")], [Reason("a", 2, "line 7")])
    (Reason(text='a', rows=3, first='line 2'),)
    """
    merged: dict[str, Reason] = {}
    for reason in chain.from_iterable(groups):
        if (first := merged.get(reason.text)) is not None:
            merged[reason.text] = first._replace(rows=first.rows + reason.rows)
        elif len(merged) < REASONS:
            merged[reason.text] = reason
    return tuple(merged.values())


def collect(batches: Iterable[Parsed]) -> Parsed:
    """Join the batches of one input.

    Args:
        batches: Results in order.

    Returns:
        One result; it names at most 10 malformed rows.
    """
    readings: list[Readings] = []
    problems: list[str] = []
    reasons: tuple[Reason, ...] = ()
    malformed = 0
    for batch in batches:
        readings.append(batch.readings)
        malformed += batch.malformed
        problems += batch.problems[: PROBLEMS - len(problems)]
        reasons = merge_reasons(reasons, batch.reasons)
    return Parsed(concat(readings), malformed, tuple(problems), reasons)


@dataclass(frozen=True, slots=True, eq=False)
class RawColumns:
    """Columns as read: each entry is a whole number or a `Fault`.

    Attributes:
        ids: Distinct meter ids.
        code: (n,) number of each row's id.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s].
        wh: (n,) energy [Wh].
    """

    ids: Sequence[str]
    code: Ints
    start: Ints
    duration: Ints
    wh: Ints


def check_rows(
    word: str, number: Ints, columns: RawColumns, broken: Sequence[tuple[int, Fault | str]] = ()
) -> Parsed:
    """Separate good rows from malformed ones.

    Args:
        word: What a row is called in a problem: "line", "row", "record".
        number: (n,) number of each row in the input.
        columns: The rows, entries with a fault included.
        broken: Rows that could not be split into columns: number, and fault or reason in words.

    Returns:
        The good rows, and the malformed ones by position and reason.
    """
    wrong = _first_fault(columns)
    readings = Readings.trusted(
        columns.ids,
        columns.code.astype(np.int32),
        start=columns.start,
        duration=columns.duration.astype(np.int32),
        wh=columns.wh,
    )
    bad = np.flatnonzero(wrong)
    if bad.size or not wrong.size:
        readings = readings.at(wrong == 0)
    if not bad.size and not broken:
        return Parsed(readings, 0, ())
    unread = [(at, fault if isinstance(fault, str) else fault.text) for at, fault in broken]
    faults, first, count = np.unique(wrong[bad], return_index=True, return_counts=True)
    places = zip(number[bad[first]].tolist(), map(reason, faults.tolist()), strict=True)
    by_reason = [
        *zip(places, count.tolist(), strict=True),
        *((entry, 1) for entry in unread),
    ]
    reasons = merge_reasons(Reason(text, n, f"{word} {at}") for (at, text), n in sorted(by_reason))
    listed = bad[wrong[bad] != Fault.LEFT_OUT][:PROBLEMS]
    worst = [*zip(number[listed].tolist(), map(reason, wrong[listed].tolist()), strict=True)]
    worst += [(at, text) for at, text in unread if text != Fault.LEFT_OUT.text]
    problems = tuple(f"{word} {at}: {text}" for at, text in heapq.nsmallest(PROBLEMS, worst))
    left_out = sum(entry.rows for entry in reasons if entry.text == Fault.LEFT_OUT.text)
    return Parsed(readings, len(bad) + len(broken) - left_out, problems, reasons)


def _first_fault(columns: RawColumns) -> Ints:
    wrong = np.zeros(len(columns.code), np.int64)
    checks = (
        (columns.wh, -MAX_WH, MAX_WH, Fault.VALUE_SIZE),
        (columns.duration, 1, MAX_DURATION, Fault.DURATION),
        (columns.start, 0, END - 1, Fault.TIME_RANGE),
        (columns.code, 0, len(columns.ids) - 1, Fault.METER),
    )
    for column, low, high, outside in checks:  # the last one named is the leftmost field
        beyond = (column < low) | (column > high)
        if beyond.any():
            wrong[beyond] = np.where(column < FAULTS_END, column, outside)[beyond]
    return wrong


_DAY = 86_400  # [s]


@dataclass(frozen=True, slots=True, eq=False)
class Incomplete:
    """Intervals that a meter's readings do not fill.

    Attributes:
        ids: Meter ids.
        code: (n,) number of the meter.
        start: (n,) start of the interval [s UTC since 1970].
    """

    ids: tuple[str, ...]
    code: Int32s
    start: Ints

    def __len__(self) -> int:
        return len(self.code)


@dataclass(frozen=True, slots=True)
class IntervalReadings:
    """Energy of each meter in each interval, by interval and then by meter.

    Attributes:
        interval_s: Length of an interval [s].
        complete: One reading for every interval that a meter's readings fill without overlap.
        incomplete: Intervals that are not filled; they count as missing.
        duplicates: Readings that repeat an earlier one of the same meter, start, duration and Wh.
        conflicts: The same with other Wh; the first reading counts.
        malformed: Readings that are not inside one interval.
        problems: Position and reason of the first of those.
    """

    interval_s: int
    complete: Readings
    incomplete: Incomplete
    duplicates: int
    conflicts: int
    malformed: int
    problems: tuple[str, ...]


def to_intervals(readings: Readings, interval_s: int) -> IntervalReadings:
    """Sum readings over intervals that begin at multiples of `interval_s` [s] since 1970.

    One reading must not enter two releases, so a reading that is longer than the interval or
    straddles its border is malformed and never divided.

    Args:
        readings: Readings of any durations, in any order.
        interval_s: Length of an interval [s], 1 to 86400.

    Returns:
        Complete and incomplete intervals, and what was not used.

    Raises:
        IntakeError: If `interval_s` is not a whole number within its limits.

    >>> halves = Readings.of(["a", "a", "b"], [0, 900, 0], [900] * 3, [10, 20, 5])
    >>> done = to_intervals(halves, 1800)
    >>> list(done.complete.rows()), len(done.incomplete)
    ([('a', 0, 1800, 30)], 1)
    """
    if not is_whole(interval_s) or not 1 <= interval_s <= _DAY:
        raise IntakeError(f"interval_s is {interval_s}; give whole seconds, 1 to {_DAY}.")
    length = int(interval_s)
    inside, problems = _within(readings, length)
    order, duplicates, conflicts = _once(readings, np.flatnonzero(inside))
    meter, opens, wh, full = _filled(readings, order, length)
    by_time = np.lexsort((meter, opens))
    complete_rows, lacking = by_time[full[by_time]], by_time[~full[by_time]]
    complete = Readings(
        readings.ids,
        meter[complete_rows],
        start=opens[complete_rows],
        duration=np.full(len(complete_rows), length),
        wh=np.clip(wh[complete_rows], -MAX_WH, MAX_WH),  # a zone's bound cuts it further
    )
    incomplete = Incomplete(readings.ids, _read_only(meter[lacking]), _read_only(opens[lacking]))
    malformed = len(readings) - int(inside.sum())
    return IntervalReadings(
        length, complete, incomplete, duplicates, conflicts, malformed, problems
    )


MOST_METERS = 64  # of a home


class Register(NamedTuple):
    """A further register of a home, whose readings enter the home's own.

    Attributes:
        house: Place of the home among those of its zone.
        meter: Id that its readings name.
        sign: 1 for another meter of what the home consumes, -1 for one of energy fed in.
    """

    house: int
    meter: str
    sign: int


def net_of(readings: Readings, registers: Mapping[str, str]) -> Readings:
    """Take from each meter what its register of energy fed in has counted.

    Args:
        readings: One reading for each meter and interval, as `IntervalReadings.complete` has them.
        registers: Id of the register of energy fed in by meter id.

    Returns:
        Net readings. An interval that one of the two lacks is left out; other meters stay.

    >>> both = Readings.of(["a", "a-out", "b"], [0] * 3, [900] * 3, [10, 25, 5])
    >>> [(row[0], row[3]) for row in net_of(both, {"a": "a-out"}).rows()]
    [('a', -15), ('b', 5)]
    """
    if not registers:
        return readings
    place = {name: code for code, name in enumerate(readings.ids)}
    second = np.array([place.get(registers.get(n, ""), -1) for n in readings.ids], np.int64)
    split = np.array([name in registers for name in readings.ids], bool)
    is_register = np.isin(readings.code, [place[n] for n in registers.values() if n in place])
    width = len(readings.ids) or 1
    key = readings.start * width
    fed_in = np.flatnonzero(is_register)
    fed_in = fed_in[np.argsort((key + readings.code)[fed_in])]
    register_keys = (key + readings.code)[fed_in]
    keys = key + second[readings.code]
    at = np.minimum(np.searchsorted(register_keys, keys), max(len(register_keys) - 1, 0))
    is_net = (second[readings.code] >= 0) & (
        register_keys[at] == keys if len(register_keys) else False
    )
    wh = readings.wh.copy()
    wh[is_net] -= readings.wh[fed_in[at[is_net]]]
    net = Readings.trusted(
        readings.ids, readings.code, start=readings.start, duration=readings.duration, wh=wh
    )
    return net.at(~is_register & (is_net | ~split[readings.code]))


def _within(readings: Readings, length: int) -> tuple[Bools, tuple[str, ...]]:
    """Which readings lie in one interval, and the first that do not."""
    wide = readings.duration > length
    last = readings.start + readings.duration - 1
    astride = (readings.start // length != last // length) & ~wide
    first = np.flatnonzero(wide | astride)[:PROBLEMS].tolist()
    problems = tuple(
        f"reading {at + 1}: {(Fault.TOO_WIDE if wide[at] else Fault.STRADDLES).text}"
        for at in first
    )
    return ~(wide | astride), problems


def _once(readings: Readings, rows: Indices) -> tuple[Indices, int, int]:
    """Rows by meter and time, each start and duration once: the first in the input stays."""
    code, start, duration = readings.code[rows], readings.start[rows], readings.duration[rows]
    order = rows[np.lexsort((rows, duration, start, code))]
    again = np.zeros(len(order), bool)
    columns = (readings.code, readings.start, readings.duration)
    again[1:] = np.logical_and.reduce([np.diff(column[order]) == 0 for column in columns])
    first = np.maximum.accumulate(np.where(again, 0, np.arange(len(order))))
    conflicting = readings.wh[order] != readings.wh[order[first]]
    return order[~again], int((again & ~conflicting).sum()), int(conflicting.sum())


def _filled(readings: Readings, order: Indices, length: int) -> tuple[Int32s, Ints, Ints, Bools]:
    """Meter, start, sum [Wh] of each interval with a reading, and whether it is filled."""
    code, start = readings.code[order], readings.start[order]
    duration, wh = readings.duration[order].astype(np.int64), readings.wh[order]
    opens = start // length * length
    if not len(order):
        return code, opens, wh, np.zeros(0, bool)
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(code) != 0) | (np.diff(opens) != 0)
    edge = np.flatnonzero(new)
    overlaps = np.zeros(len(order), bool)
    overlaps[1:] = (start[1:] < (start + duration)[:-1]) & ~new[1:]
    covered = np.add.reduceat(duration, edge)
    full = (covered == length) & ~np.logical_or.reduceat(overlaps, edge)
    return code[edge], opens[edge], np.add.reduceat(wh, edge), full


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    column.flags.writeable = False
    return column
