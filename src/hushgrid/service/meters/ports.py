"""The interface of meter stores, with rosters, columns of readings, and counts.

Accepted means durable: when `put` has returned, no crash loses what it counted as accepted. A
reading counted otherwise has changed nothing. Intervals begin at multiples of their length since
1970 (UTC) and are named by their start [epoch s].
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._kernels.readings import ACCEPTED, END, sieve, tally_codes
from hushgrid._numbers import Bools, Indices, Int8s, Int32s, Ints, is_whole
from hushgrid.errors import MeterError
from hushgrid.model.zone import Tally, tally

LONGEST = 86_400  # [s] a day
_MOST = 2**31 - 1  # houses


@dataclass(frozen=True, slots=True)
class Roster:
    """The houses of a zone and the length of its intervals, fixed for an epoch.

    Attributes:
        houses: Number of houses.
        interval: Length of an interval [s].
        digest: SHA-256 (hex) over the meter ids in house order and the interval.
        divisors: Divisors of the interval [s], the largest first.
    """

    houses: int
    interval: int
    digest: str
    divisors: Int32s = field(init=False, compare=False, repr=False)  # of the interval

    def __post_init__(self) -> None:
        whole = np.arange(self.interval, 0, -1, dtype=np.int32)
        object.__setattr__(self, "divisors", whole[self.interval % whole == 0])

    @classmethod
    def of(cls, zone: str, meters: Sequence[str], interval: int) -> Roster:
        """The roster of meter ids in house order.

        >>> Roster.of("elm-street", ["m1", "m2"], 900).houses
        2
        """
        check_zone(zone)
        if not is_whole(interval) or not 1 <= interval <= LONGEST:
            raise MeterError(
                f"interval of zone {zone!r} is {interval}; give whole seconds, 1 to {LONGEST}."
            )
        if isinstance(meters, str) or not 1 <= len(meters) < _MOST:
            raise MeterError(f"roster of zone {zone!r} is no list of meters; give at least one id.")
        if not all(isinstance(meter, str) and meter for meter in meters):
            raise MeterError(f"roster of zone {zone!r} holds an id that is no text; give names.")
        if len(set(meters)) != len(meters):
            raise MeterError(f"roster of zone {zone!r} names a meter twice; give each id once.")
        return cls(len(meters), int(interval), _digest(meters, int(interval)))

    def interval_at(self, start: int, zone: str) -> int:
        """Check the start of an interval [epoch s]."""
        if not is_whole(start) or not 0 <= start < END or start % self.interval:
            raise MeterError(
                f"interval of zone {zone!r} is asked at {start};"
                f" give epoch seconds that are a multiple of {self.interval}."
            )
        return int(start)


def check_zone(zone: str) -> None:
    """Require a zone id to be text, short enough for a file name.

    Args:
        zone: The id.

    Raises:
        MeterError: It is not.
    """
    if not isinstance(zone, str) or not zone or "\0" in zone or len(zone.encode()) > 64:
        raise MeterError(f"zone is {zone!r}; give a name of 1 to 64 bytes.")


def _digest(meters: Sequence[str], interval: int) -> str:
    lengths = ",".join(str(len(meter)) for meter in meters)  # so that no two rosters read the same
    text = f"hushgrid-roster/1 {interval} {lengths} " + "".join(meters)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class RosterEpoch:
    """A roster, and which of its intervals are closed or purged.

    Attributes:
        roster: The roster.
        closed_end: Intervals that begin before it are closed [epoch s]; -1: none.
        floor: Intervals that begin before it are purged or of an earlier roster [epoch s]; -1:
            none.
    """

    roster: Roster
    closed_end: int = -1
    floor: int = -1

    @property
    def last_closed(self) -> int | None:
        """Start of the last interval that is closed, on the grid of this roster."""
        length = self.roster.interval
        return None if self.closed_end < 0 else (self.closed_end - 1) // length * length

    def closed(self, start: int) -> RosterEpoch:
        """After the interval at `start` is closed."""
        return RosterEpoch(
            self.roster, max(self.closed_end, start + self.roster.interval), self.floor
        )

    def purged(self, before: int) -> RosterEpoch:
        """After the closed intervals that ended by `before` are purged."""
        if not is_whole(before):
            raise MeterError(f"readings are to be purged before {before}; give epoch seconds.")
        length = self.roster.interval
        floor = min(int(before), self.closed_end) // length * length
        return RosterEpoch(self.roster, self.closed_end, max(self.floor, floor))

    def ended(self, begins: int) -> RosterEpoch:
        """After all intervals that start before `begins` are closed."""
        if not is_whole(begins):
            raise MeterError(f"a new epoch begins at {begins}; give epoch seconds.")
        return RosterEpoch(self.roster, max(self.closed_end, int(begins)), self.floor)

    def renewed(self, roster: Roster) -> RosterEpoch:
        """With another roster: what is closed stays so and belongs to the old one."""
        return RosterEpoch(roster, self.closed_end, max(self.floor, self.closed_end))

    def check_readable(self, start: int, zone: str) -> None:
        """Refuse an interval whose readings are gone, so that they are not taken for missing."""
        if start < self.floor:
            raise MeterError(
                f"interval {start} of zone {zone!r} is purged or of an earlier roster;"
                f" ask for one from {self.floor} on."
            )

    def check_same(self, roster: Roster, zone: str) -> None:
        """Refuse a roster that is not the one of this epoch."""
        if roster != self.roster:
            raise MeterError(
                f"zone {zone!r} is kept for a roster of {self.roster.houses} meters and intervals"
                f" of {self.roster.interval} s with digest {self.roster.digest[:12]}, not"
                f" {roster.digest[:12]}; give the same, or start a new epoch with reopen."
            )

    def check_renewable(self, opened: Sequence[int], zone: str) -> None:
        """Refuse a new epoch while accepted readings are still open."""
        if opened:
            raise MeterError(
                f"zone {zone!r} cannot be reopened while interval {opened[0]} is open;"
                " close every interval that holds readings first, or begin after them."
            )


# ---- readings to be stored: columns of equal length, sorted by interval


class Columns(NamedTuple):
    """Readings as columns of equal length.

    Attributes:
        house: Place in the roster.
        start: [epoch s]
        duration: [s]
        wh: Energy [Wh].
    """

    house: Int32s
    start: Ints
    duration: Int32s
    wh: Ints

    @classmethod
    def of(cls, house: ArrayLike, start: ArrayLike, duration: ArrayLike, wh: ArrayLike) -> Columns:
        """Check and convert columns; numbers too large for one become such that are refused."""
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
    """Concatenate readings in their order.

    Args:
        parts: One or more batches.

    Returns:
        All readings.
    """
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
    """The readings of a batch that belong to one interval.

    Attributes:
        opens: Start of the interval [epoch s].
        columns: The readings.
        codes: Their codes; changed where a reading is not accepted.
        uniform: Whether all have the same start and duration.
    """

    opens: int
    columns: Columns
    codes: Int8s
    uniform: bool


class Sorted(NamedTuple):
    """A batch sorted by interval.

    Attributes:
        codes: The codes of the batch, complete once `gather_codes` has run.
        shares: The readings of each open interval.
        rows: Rows of each share; none where the share is the whole batch.
    """

    codes: Int8s
    shares: tuple[Share, ...]
    rows: tuple[Indices, ...]  # of each share; none where the share is the whole batch

    def gather_codes(self) -> Int8s:
        """The codes of the batch, including those changed in the shares."""
        for share, rows in zip(self.shares, self.rows, strict=False):
            self.codes[rows] = share.codes
        return self.codes


def sort(columns: Columns, epoch: RosterEpoch) -> Sorted:
    """Sort a batch by interval.

    Args:
        columns: The readings.
        epoch: The roster and which intervals are closed.

    Returns:
        The code of each reading as far as it is known without the others, and the readings of each
        open interval.
    """
    house, start, duration, _ = columns
    codes = np.empty(house.size, np.int8)
    houses, interval = epoch.roster.houses, epoch.roster.interval
    low, high, uniform = sieve(house, start, duration, houses, interval, epoch.closed_end, codes)
    if high < 0:
        return Sorted(codes, (), ())
    if low == high:
        return Sorted(codes, (Share(low, columns, codes, uniform),), ())
    rows = tuple(_groups(codes, start - start % interval))
    shares = tuple(
        Share(int(start[some[0]] - start[some[0]] % interval), columns.at(some), codes[some], False)
        for some in rows
    )
    return Sorted(codes, shares, rows)


def _groups(codes: Int8s, opens: Ints) -> list[Indices]:
    """Rows of each interval, in their order."""
    kept = np.flatnonzero(codes == ACCEPTED)
    order = kept[np.argsort(opens[kept], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(opens[order])) + 1)


def marks_of(marked: ArrayLike | None, readings: int) -> Bools | None:
    """Marks as an array.

    Args:
        marked: True or False for each reading, or None.
        readings: Number of readings.

    Returns:
        The marks; None where no reading is marked.

    Raises:
        MeterError: There is not one for each reading.
    """
    if marked is None:
        return None
    marks = np.asarray(marked)
    if marks.shape != (readings,) or (readings and marks.dtype != np.bool_):
        raise MeterError(f"marked is not {readings} times True or False; give one per reading.")
    return marks if marks.any() else None


def check_ends(ends: Sequence[int], readings: int) -> None:
    """Refuse ends of deliveries that leave readings out or decrease.

    Args:
        ends: Where each delivery ends.
        readings: Number of readings.

    Raises:
        MeterError: They do.
    """
    if not ends or list(ends) != sorted(ends) or ends[0] < 0 or ends[-1] != readings:
        raise MeterError(
            f"ends are no rising numbers up to {readings}; say where each delivery ends."
        )


def counts_of(codes: Int8s, ends: Sequence[int], marks: Bools | None) -> list[Counts]:
    """Counts of each delivery.

    Args:
        codes: The code of every reading.
        ends: Where each delivery ends.
        marks: Which readings are marked; None: none.

    Returns:
        For each delivery how many readings have each code, and how many accepted ones are marked.
    """
    fine, made, begin = not codes.any(), [], 0
    for end in ends:
        some = codes[begin:end]
        found = Counts(accepted=end - begin) if fine else Counts(*tally_codes(some))
        if marks is not None:
            found = found._replace(marked=int((some[marks[begin:end]] == ACCEPTED).sum()))
        made.append(found)
        begin = end
    return made


class Counts(NamedTuple):
    """Results of a `put`; each reading is counted once.

    Whether a repeated reading is a duplicate or conflicting would let a sender check a guess of it:
    answer senders with the sum of the two.

    Attributes:
        accepted: Stored.
        duplicate: The same was accepted before.
        conflicting: Another Wh was accepted for the same time, or another duration for the same
            house and interval; the first is kept.
        late: Its interval is closed.
        malformed: A house outside the roster, a duration that does not divide the interval, or a
            start that is no multiple of the duration (it would straddle a border or overlap).
        marked: How many of the accepted ones were marked by the caller.
    """

    accepted: int = 0
    duplicate: int = 0
    conflicting: int = 0
    late: int = 0
    malformed: int = 0
    marked: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The readings of one interval of a zone in house order. Secret.

    A house is present when its readings cover the interval; shorter ones are added up.

    Attributes:
        wh: [Wh], 0 where not present.
        present: Whether the readings of a house cover the interval.
    """

    wh: Ints
    present: Bools

    def __repr__(self) -> str:
        return f"Interval({self.present.size} houses)"  # a log must not show readings

    @property
    def houses(self) -> int:
        """How many houses there are."""
        return int(self.present.size)

    @property
    def missing(self) -> int:
        """How many of them are not present."""
        return int((~self.present).sum())

    def tally(self, bound: Int32s, expected: Expected) -> Tally:
        """Clamp to 0..bound and add, with `expected` where a reading is missing."""
        if not self.missing:
            return tally(self.wh, bound)
        return tally(np.where(self.present, self.wh, expected()), bound)


Expected = Callable[[], Ints]  # of every house [Wh]; asked only where one is missing


class Closed(Protocol):
    """A closed interval as a tick uses it. Secret except for the number of houses."""

    @property
    def houses(self) -> int:
        """How many houses there are."""
        ...

    @property
    def missing(self) -> int:
        """How many of them have readings that do not cover the interval."""
        ...

    def tally(self, bound: Int32s, expected: Expected) -> Tally:
        """Clamp to 0..bound and add, with `expected` where a reading is missing."""
        ...


class IntervalSource(Protocol):
    """Where a curator's closed intervals come from: a meter store, or sums made elsewhere."""

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """Fix a zone's roster (meter ids in house order) and interval length [s].

        The first call starts the zone; every later one must give the same. MeterError otherwise.
        """
        ...

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """Start a new epoch with another roster at `begins` [epoch s].

        Intervals that start before are closed with it. Refused while one that stays open holds
        readings. What is closed stays closed; readings of the old epoch can only be purged.
        """
        ...

    def get(self, zone: str, start: int) -> Closed:
        """The interval that starts at `start` [epoch s]."""
        ...

    def close(self, zone: str, start: int) -> None:
        """Close an interval and all before it, durably: later readings of them are late."""
        ...

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [epoch s]; None before the first, or not known.

        Also of a zone that is not open here, whatever its roster.
        """
        ...

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """Starts of the intervals that hold readings and are not closed, in order [epoch s]."""
        ...

    def purge(self, zone: str, before: int) -> int:
        """Delete the readings of closed intervals that ended by `before` [epoch s]; how many."""
        ...


class MeterStore(IntervalSource, Protocol):
    """Readings of one or more zones, durable. Safe for threads."""

    def put(
        self,
        zone: str,
        house: ArrayLike,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
        *,
        marked: ArrayLike | None = None,
    ) -> Counts:
        """Store readings: house (place in the roster), start [epoch s], duration [s], Wh.

        `marked`: True or False for each; how many marked ones are accepted is counted, with no
        other effect. Durable on return. The first reading for a house and time is kept. Raises
        MeterRetryError when nothing was counted and the same should be sent again.
        """
        everything = [np.size(house)]
        return self.put_each(zone, house, start, duration, wh, ends=everything, marked=marked)[0]

    def put_each(
        self,
        zone: str,
        house: ArrayLike,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
        *,
        ends: Sequence[int],
        marked: ArrayLike | None = None,
    ) -> list[Counts]:
        """Store several deliveries, each ending before `ends[i]`; counts of each.

        As `put` for one after the other, but all or none of them are counted.
        """
        ...

    def get(self, zone: str, start: int) -> Interval:
        """The readings of an interval, open or closed. MeterError when they are purged."""
        ...

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [epoch s]; None before the first.

        Also of a zone that is not open here, whatever its roster.
        """
        ...

    def shut(self) -> None:
        """Close files and connections; the store cannot be used afterwards."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()
