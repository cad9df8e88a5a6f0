"""Readings to intervals: each reading counts in exactly one interval, or in none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Indices, Int32s, Ints, is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import MAX_WH, PROBLEMS, Fault, Readings

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
    done, lacking = by_time[full[by_time]], by_time[~full[by_time]]
    complete = Readings(
        readings.ids,
        meter[done],
        start=opens[done],
        duration=np.full(len(done), length),
        wh=np.clip(wh[done], -MAX_WH, MAX_WH),  # a zone's bound cuts it further
    )
    incomplete = Incomplete(readings.ids, _read_only(meter[lacking]), _read_only(opens[lacking]))
    malformed = len(readings) - int(inside.sum())
    return IntervalReadings(
        length, complete, incomplete, duplicates, conflicts, malformed, problems
    )


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
    other = readings.wh[order] != readings.wh[order[first]]
    return order[~again], int((again & ~other).sum()), int(other.sum())


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
