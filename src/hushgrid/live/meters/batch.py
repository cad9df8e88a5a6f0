"""Readings on their way into a store: columns of one length, sorted by interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.arrays import Bools, Indices, Int8s, Int32s, Ints
from hushgrid.errors import MeterError
from hushgrid.kernels.meters import ACCEPTED, sieve, tally_codes
from hushgrid.live.meters.ports import Counts
from hushgrid.live.meters.roster import RosterEpoch


class Columns(NamedTuple):
    """Reading i: house `house[i]` counted `wh[i]` in `duration[i]` [s] from `start[i]`."""

    house: Int32s
    start: Ints
    duration: Int32s
    wh: Ints

    @classmethod
    def of(cls, house: ArrayLike, start: ArrayLike, duration: ArrayLike, wh: ArrayLike) -> Columns:
        """Checked; numbers too large for their column become such that are refused anyway."""
        made = cls(
            _column(house, "house", np.int32),
            _column(start, "start", np.int64),
            _column(duration, "duration", np.int32),
            _column(wh, "wh", np.int64),
        )
        sizes = [column.size for column in made]
        if len(set(sizes)) != 1:
            raise MeterError(f"columns have lengths {sizes}; give one entry for each reading.")
        return made

    def at(self, rows: NDArray[Any]) -> Columns:
        """Some of the readings."""
        return Columns(*(column[rows] for column in self))


def joined(parts: Sequence[Columns]) -> Columns:
    """All readings in one, in their order."""
    if len(parts) == 1:
        return parts[0]
    return Columns(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _column(values: ArrayLike, what: str, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    column = np.asarray(values)
    if not column.size:
        column = column.astype(dtype)
    if column.ndim != 1 or column.dtype.kind not in "iu" or column.dtype == np.uint64:
        raise MeterError(f"{what} is no list of whole numbers of 64 bits; give one per reading.")
    if column.dtype != dtype:
        limits = np.iinfo(dtype)
        column = np.clip(column.astype(np.int64), limits.min, limits.max).astype(dtype)
    return np.ascontiguousarray(column)


@dataclass(frozen=True, slots=True)
class Share:
    """The readings of a batch that belong to the interval at `opens`, and their codes.

    `alike`: all have the same start and duration.
    """

    opens: int
    columns: Columns
    codes: Int8s
    alike: bool


class Sorted(NamedTuple):
    """A batch by intervals. `codes` are those of the batch once `gather_codes` has run."""

    codes: Int8s
    shares: tuple[Share, ...]
    rows: tuple[Indices, ...]  # of each share; none where the share is the whole batch

    def gather_codes(self) -> Int8s:
        """The codes of the batch, with those that were changed in the shares."""
        for share, rows in zip(self.shares, self.rows, strict=False):
            self.codes[rows] = share.codes
        return self.codes


def sort(columns: Columns, epoch: RosterEpoch) -> Sorted:
    """Codes from what each reading alone tells, and the shares of the intervals that are open."""
    house, start, duration, _ = columns
    codes = np.empty(house.size, np.int8)
    houses, interval = epoch.roster.houses, epoch.roster.interval
    low, high, alike = sieve(house, start, duration, houses, interval, epoch.closed_end, codes)
    if high < 0:
        return Sorted(codes, (), ())
    if low == high:
        return Sorted(codes, (Share(low, columns, codes, alike),), ())
    rows = tuple(_groups(codes, start - start % interval))
    shares = tuple(
        Share(int(start[some[0]] - start[some[0]] % interval), columns.at(some), codes[some], False)
        for some in rows
    )
    return Sorted(codes, shares, rows)


def _groups(codes: Int8s, opens: Ints) -> list[Indices]:
    """Rows of each interval, in the order they came."""
    kept = np.flatnonzero(codes == ACCEPTED)
    order = kept[np.argsort(opens[kept], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(opens[order])) + 1)


def marks_of(marked: ArrayLike | None, readings: int) -> Bools | None:
    """Marks as an array; None where no reading is marked."""
    if marked is None:
        return None
    marks = np.asarray(marked)
    if marks.shape != (readings,) or (readings and marks.dtype != np.bool_):
        raise MeterError(f"marked is not {readings} times True or False; give one per reading.")
    return marks if marks.any() else None


def check_ends(ends: Sequence[int], readings: int) -> None:
    """Refuse ends of deliveries that leave readings out or go back."""
    if not ends or list(ends) != sorted(ends) or ends[0] < 0 or ends[-1] != readings:
        raise MeterError(
            f"ends are no rising numbers up to {readings}; say where each delivery ends."
        )


def counts_of(codes: Int8s, ends: Sequence[int], marks: Bools | None) -> list[Counts]:
    """Of each delivery how many readings of each code, and how many of the accepted are marked."""
    fine, made, begin = not codes.any(), [], 0
    for end in ends:
        some = codes[begin:end]
        found = Counts(accepted=end - begin) if fine else Counts(*tally_codes(some))
        if marks is not None:
            found = found._replace(marked=int((some[marks[begin:end]] == ACCEPTED).sum()))
        made.append(found)
        begin = end
    return made
