"""Rosters, and the readings of an interval: which are accepted, how they are stored as columns,
what they add up to, and where a curator gets closed intervals from.

Intervals begin at multiples of their length since 1970 (UTC) and are named by their start
[UTC s].
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Bools, Indices, Int8s, Int32s, Ints, is_whole
from hushgrid.errors import MeterDamageError, MeterError
from hushgrid.intake.readings import MOST_METERS, Register
from hushgrid.model.zone import Tally, Zone, tally

LONGEST = 86_400  # [s] a day
END = 1 << 40  # [UTC s] no reading is that young; keeps sums of times far from 2^63
_MOST = 2**31 - 1  # houses


@dataclass(frozen=True, slots=True)
class Roster:
    """The houses of a zone and the length of its intervals, fixed as long as its terms.

    Attributes:
        houses: Number of houses, and of further registers, which have places after them.
        interval: Length of an interval [s].
        digest: SHA-256 (hex) over the meter ids in house order and the interval.
    """

    houses: int
    interval: int
    digest: str

    @classmethod
    def of(
        cls, zone: str, meters: Sequence[str], interval: int, registers: Sequence[Register] = ()
    ) -> Roster:
        """The roster of meter ids in house order, and of further registers by house.

        >>> Roster.of("elm-street", ["m1", "m2"], 900).houses
        2
        """
        if not isinstance(zone, str) or not zone or "\0" in zone or len(zone.encode()) > 64:
            raise MeterError(f"zone is {zone!r}; give a name of 1 to 64 bytes.")
        if not is_whole(interval) or not 1 <= interval <= LONGEST:
            raise MeterError(
                f"interval of zone {zone!r} is {interval}; give whole seconds, 1 to {LONGEST}."
            )
        if isinstance(meters, str) or not 1 <= len(meters) < _MOST:
            raise MeterError(f"roster of zone {zone!r} is no list of meters; give at least one id.")
        if not all(isinstance(meter, str) and meter for meter in meters):
            raise MeterError(f"roster of zone {zone!r} holds an id that is no text; give names.")
        houses = np.array([register.house for register in registers], np.int64)
        if houses.size and (
            not 0 <= houses[0] <= houses[-1] < len(meters) or (np.diff(houses) < 0).any()
        ):
            raise MeterError(f"registers of zone {zone!r} are not in house order; sort them.")
        if houses.size and np.bincount(houses).max() >= MOST_METERS:
            raise MeterError(
                f"a house of zone {zone!r} has more than {MOST_METERS} meters; give it fewer."
            )
        meters = [*meters, *(register.meter for register in registers)]
        if len(set(meters)) != len(meters):
            raise MeterError(f"roster of zone {zone!r} names a meter twice; give each id once.")
        lengths = ",".join(str(len(meter)) for meter in meters)  # no two rosters read the same
        text = f"hushgrid-roster/1 {int(interval)} {lengths} " + "".join(meters)
        if registers:  # no two rosters read the same: what precedes has no meter id in it
            signed = ",".join(f"{house}:{sign}" for house, _, sign in registers)
            text = f"registers {signed} {text}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(len(meters), int(interval), digest)

    def interval_at(self, start: int, zone: str) -> int:
        """Check the start of an interval [UTC s]."""
        if not is_whole(start) or not 0 <= start < END or start % self.interval:
            raise MeterError(
                f"interval of zone {zone!r} is asked at {start};"
                f" give Unix seconds that are a multiple of {self.interval}."
            )
        return int(start)


@dataclass(frozen=True, slots=True)
class HeldRoster:
    """A roster, and which of its intervals are closed or purged.

    Attributes:
        roster: The roster.
        closed_end: Intervals that begin before it are closed [UTC s]; -1: none.
        floor: Intervals that begin before it are purged or of an earlier roster [UTC s]; -1:
            none.
        begins: Intervals that begin before it are left out by the zone, without being closed
            [UTC s]; -1: none.
    """

    roster: Roster
    closed_end: int = -1
    floor: int = -1
    begins: int = -1

    @property
    def last_closed(self) -> int | None:
        """Start of the last interval that is closed, on the grid of this roster."""
        length = self.roster.interval
        return None if self.closed_end < 0 else (self.closed_end - 1) // length * length

    def closed(self, start: int) -> HeldRoster:
        """After the interval at `start` is closed."""
        return replace(self, closed_end=max(self.closed_end, start + self.roster.interval))

    def purged(self, before: int) -> HeldRoster:
        """After the closed intervals that ended by `before` are purged."""
        if not is_whole(before):
            raise MeterError(f"readings are to be purged before {before}; give Unix seconds.")
        length = self.roster.interval
        floor = min(int(before), self.closed_end) // length * length
        return replace(self, floor=max(self.floor, floor))

    def ended(self, begins: int) -> HeldRoster:
        """After all intervals that start before `begins` are closed."""
        if not is_whole(begins):
            raise MeterError(f"a new roster begins at {begins}; give Unix seconds.")
        return replace(self, closed_end=max(self.closed_end, int(begins)))

    def renewed(self, roster: Roster) -> HeldRoster:
        """With another roster: what is closed stays so and belongs to the old one."""
        return HeldRoster(roster, self.closed_end, max(self.floor, self.closed_end))

    def with_begin(self, start: int, first: int) -> HeldRoster:
        """With the first interval that is published: `start`, unless one from `first` on is set."""
        return replace(self, begins=min(self.begins, start) if self.begins >= first else start)

    def check_same(self, roster: Roster, zone: str) -> None:
        """Refuse a roster that is not this one."""
        if roster != self.roster:
            raise MeterError(
                f"zone {zone!r} is kept for a roster of {self.roster.houses} meters and intervals"
                f" of {self.roster.interval} s with digest {self.roster.digest[:12]}, not"
                f" {roster.digest[:12]}; give the same, or begin new terms with hushgrid serve"
                " --yes."
            )


class Counts(NamedTuple):
    """Results of a `put`; each reading is counted once.

    Whether a repeated reading is a duplicate or conflicting would let a sender check a guess of it:
    answer senders with the sum of the two.

    Attributes:
        accepted: Stored.
        duplicate: The same was accepted before.
        conflicting: Another Wh was accepted for the same time, or another duration for the same
            house and interval; the first is kept, but a whole reading takes the place of pieces
            that do not cover the interval.
        late: Its interval is closed, or left out before the first that is published.
        malformed: A house outside the roster, a duration that does not divide the interval, or a
            start that is no multiple of the duration (it would straddle a border or overlap).
        damaged: Of an interval of which a stored delivery is damaged; not stored.
        marked: How many of the accepted ones were marked by the caller.
    """

    accepted: int = 0
    duplicate: int = 0
    conflicting: int = 0
    late: int = 0
    malformed: int = 0
    damaged: int = 0
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

    def tally(self, zone: Zone, expected: Expected) -> Tally:
        """Clamp to the zone's bounds and add, with `expected` where a reading is missing."""
        wh = self.wh
        if self.missing:
            wh = np.where(self.present, wh, expected() - zone.export)
        return tally(wh, zone.bound, zone.export)


class NoiseBlock(NamedTuple):
    """A block of steps with one noise, whose size M a store keeps sealed.

    Attributes:
        terms: Digest of the record of its terms.
        start: When its first step begins [UTC s]; its key is that of this second.
        scale: Scale of its noise [Wh].
        mark: Public mark of the draw: its releases state it, so an M of another draw is not used.
    """

    terms: str
    start: int
    scale: float
    mark: int


Expected = Callable[[], Ints]  # of every house, offset [Wh]; asked only where one is missing


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

    def tally(self, zone: Zone, expected: Expected) -> Tally:
        """Clamp to the zone's bounds and add, with `expected` where a reading is missing."""
        ...


# ---- columns

ACCEPTED, DUPLICATE, CONFLICTING, LATE, MALFORMED, DAMAGED = range(6)  # in the order of Counts


class Columns(NamedTuple):
    """Readings as columns of equal length.

    Attributes:
        house: Place in the roster.
        start: [UTC s]
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
        columns = cls(
            _column(house, "house", np.int32),
            _column(start, "start", np.int64),
            _column(duration, "duration", np.int32),
            _column(wh, "wh", np.int64),
        )
        sizes = [column.size for column in columns]
        if len(set(sizes)) != 1:
            raise MeterError(f"columns have lengths {sizes}; give one entry for each reading.")
        return columns

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """One or more batches, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def at(self, rows: NDArray[Any]) -> Columns:
        """Some of the readings."""
        return Columns(*(column[rows] for column in self))

    def pack(self) -> bytes:
        """As they are stored, little-endian; other columns than house once if all are equal.

        CRC-32 of the rest, the number of values of each column, then start, Wh, house, duration.
        """
        columns = (self.start, self.wh, self.house, self.duration)
        parts = [
            column if column is self.house or (column != column[0]).any() else column[:1]
            for column in columns
        ]
        sizes = np.array([part.size for part in parts], "<u4")
        typed = (part.astype(t, copy=False) for part, t in zip(parts, _TYPES, strict=True))
        data = b"".join(part.tobytes() for part in (sizes, *typed))
        return zlib.crc32(data).to_bytes(8, "little") + data

    @classmethod
    def unpack(cls, data: bytes) -> Columns:
        """What `pack` made, read-only."""
        if len(data) < 24 or zlib.crc32(memoryview(data)[8:]) != int.from_bytes(data[:8], "little"):
            raise MeterDamageError("its readings are damaged")
        columns, at = [], 24
        sizes = np.frombuffer(data, "<u4", 4, 8).tolist()
        for size, dtype in zip(sizes, _TYPES, strict=True):
            columns.append(np.frombuffer(data, dtype, size, at))
            at += columns[-1].nbytes
        start, wh, house, duration = np.broadcast_arrays(*columns)
        return cls(house, start, duration, wh)


_TYPES = ("<i8", "<i8", "<i4", "<i4")


def _column(values: ArrayLike, name: str, dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
    column = np.asarray(values)
    if not column.size:
        column = column.astype(dtype)
    if column.ndim != 1 or column.dtype.kind not in "iu" or column.dtype == np.uint64:
        raise MeterError(f"{name} is no list of whole numbers of 64 bits; give one per reading.")
    if column.dtype != dtype:
        limits = np.iinfo(dtype)
        column = np.clip(column.astype(np.int64), limits.min, limits.max).astype(dtype)
    return np.ascontiguousarray(column)


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
    counts, begin = [], 0
    for end in ends:
        part = codes[begin:end]
        marked = 0 if marks is None else int((part[marks[begin:end]] == ACCEPTED).sum())
        counts.append(
            Counts(*np.bincount(part, minlength=DAMAGED + 1).tolist())._replace(marked=marked)
        )
        begin = end
    return counts


# ---- which are accepted


def first_codes(columns: Columns, held: HeldRoster) -> Int8s:
    """Judge each reading without the others.

    Args:
        columns: The readings.
        held: The roster and which intervals are closed.

    Returns:
        ACCEPTED, LATE or MALFORMED for each.
    """
    house, start, duration, _ = columns
    houses, interval = held.roster.houses, held.roster.interval
    length = np.maximum(duration, 1)
    bad = (house < 0) | (house >= houses) | (duration < 1) | (start < 0) | (start >= END)
    bad |= (interval % length != 0) | (start % length != 0)
    late = start - start % interval < max(held.closed_end, held.begins)
    return np.where(bad, MALFORMED, np.where(late, LATE, ACCEPTED)).astype(np.int8)


def by_interval(start: Ints, rows: Indices, interval: int) -> Iterator[tuple[int, Indices]]:
    """Group readings by interval.

    Args:
        start: Start of every reading [UTC s].
        rows: The readings to group.
        interval: Length of an interval [s].

    Yields:
        Start of an interval [UTC s] and its readings, in their order.
    """
    opens = start[rows] - start[rows] % interval
    if rows.size and opens.min() == opens.max():
        yield int(opens[0]), rows
        return
    order = np.argsort(opens, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(opens[order])) + 1):
        if group.size:
            yield int(opens[group[0]]), rows[group]


class OpenInterval:
    """What was accepted for each house in an open interval.

    The first reading of a house decides how long its readings are, and so how many pieces it has.
    A whole reading takes the place of pieces as long as these do not cover the interval: a short
    one cannot keep it out. 25 bytes a house, and 9 for each further piece.

    Args:
        opens: Start of the interval [UTC s].
        roster: The zone's roster.

    Attributes:
        deliveries: Number of the next delivery.
    """

    def __init__(self, opens: int, roster: Roster) -> None:
        self._opens, self._roster, houses = opens, roster, roster.houses
        self._length = np.zeros(houses, np.int32)  # [s] of each reading of a house; 0: none came
        self._missing = np.zeros(houses, np.int32)  # readings that a house still lacks
        self._shift = np.zeros(houses, np.int64)  # from a house to its first place below
        self._wh, self._present = np.zeros(houses, np.int64), np.zeros(houses, np.bool_)
        self._places, self.deliveries = houses, 0  # a place for each house, then those of pieces

    def merge(self, columns: Columns) -> Int8s:
        """Keep the readings that are accepted; the code of each."""
        house, duration = columns.house, columns.duration
        codes = np.full(house.size, CONFLICTING, np.int8)
        if (duration == duration[:1]).all():
            self._begin(columns, self._turns(columns, np.arange(house.size)))
            self._keep(columns, np.arange(house.size), codes)
            return codes
        rows = np.arange(house.size)
        while (turns := self._turns(columns, rows)).size:  # at most twice for each house
            turns = turns[np.argsort(house[turns])]
            at = np.searchsorted(house[turns], house[rows])
            turn = turns[np.minimum(at, turns.size - 1)]
            before = (house[turn] != house[rows]) | (rows < turn)
            self._keep(columns, rows[before], codes)
            rows = rows[~before]
            self._begin(columns, self._turns(columns, rows))  # less those now covered by pieces
        self._keep(columns, rows, codes)
        return codes

    def _turns(self, columns: Columns, rows: Indices) -> Indices:
        """Of each house the first reading that changes how long its readings are."""
        house = columns.house[rows]
        length, duration = self._length[house], columns.duration[rows]
        full = duration == self._roster.interval
        turns: Indices = rows[
            (length == 0) | (full & (length < duration) & (self._missing[house] > 0))
        ]
        return turns[_firsts(columns.house[turns])]

    def _keep(self, columns: Columns, rows: Indices, codes: Int8s) -> None:
        """Keep readings of houses whose length is decided, with their codes."""
        house, start, duration, wh = columns
        rows = rows[duration[rows] == self._length[house[rows]]]
        place = house[rows]
        if self._places > self._length.size:  # some have pieces
            place = place + self._shift[place] + (start[rows] - self._opens) // duration[rows]
        accepted = _firsts(place) & ~self._present[place]
        new, again = rows[accepted], rows[~accepted]
        self._wh[place[accepted]], self._present[place[accepted]] = wh[new], True
        codes[new] = ACCEPTED
        codes[again] = np.where(self._wh[place[~accepted]] == wh[again], DUPLICATE, CONFLICTING)
        np.subtract.at(self._missing, house[new], 1)

    def load(self, columns: Columns) -> None:
        """Include a stored delivery; MeterError where its readings cannot have been accepted."""
        inside = columns.start - columns.start % self._roster.interval == self._opens
        if not inside.all() or first_codes(columns, HeldRoster(self._roster)).any():
            raise not_accepted()
        if self.merge(columns).any():
            raise not_accepted()

    def _begin(self, columns: Columns, rows: Indices) -> None:
        """Note how long the readings of houses are, with places for their pieces."""
        new, length = columns.house[rows], columns.duration[rows]
        self._length[new], self._missing[new] = length, self._roster.interval // length
        self._shift[new] = 0
        new, length = new[length < self._roster.interval], length[length < self._roster.interval]
        pieces = self._roster.interval // length
        self._shift[new] = self._places + np.cumsum(pieces) - pieces - new
        self._places += int(pieces.sum())
        if (more := self._places - self._wh.size) > 0:
            more = max(more, self._wh.size)
            self._wh = np.append(self._wh, np.zeros(more, np.int64))
            self._present = np.append(self._present, np.zeros(more, np.bool_))


def _firsts(places: NDArray[Any]) -> Bools:
    """Which of some places come for the first time."""
    ordered = np.sort(places)
    if (ordered[1:] != ordered[:-1]).all():
        return np.ones(places.size, np.bool_)
    firsts = np.zeros(places.size, np.bool_)
    firsts[np.unique(places, return_index=True)[1]] = True
    return firsts


# ---- what they add up to

_LOW, _MOST = 0xFFFFFFFF, 0x7FFFFFFF


def add_up(parts: Iterable[Columns], roster: Roster) -> Interval:
    """Add up the accepted readings of one interval.

    Args:
        parts: The readings, in batches.
        roster: The zone's roster.

    Returns:
        Each house's Wh where its readings cover the interval. A sum beyond 64 bits becomes the
        nearest number that fits.

    Raises:
        MeterError: They cannot have been accepted.
    """
    wh, present = np.zeros(roster.houses, np.int64), np.zeros(roster.houses, np.bool_)
    pieces = []
    for columns in parts:
        if not 0 <= columns.house.min() <= columns.house.max() < roster.houses:
            raise not_accepted()
        full = columns.duration == roster.interval
        wh[columns.house[full]], present[columns.house[full]] = columns.wh[full], True
        if not full.all():
            pieces.append(columns.at(~full))
    if pieces:
        short = Columns.joined(pieces)  # a whole reading took the place of some
        house, total, covers = _sums(short.at(~present[short.house]), roster.interval)
        wh[house], present[house] = np.where(covers, total, 0), covers
    wh.flags.writeable = present.flags.writeable = False
    return Interval(wh, present)


_FAR = 1 << 55  # [Wh] beyond every bound; the sum of a home's meters fits 64 bits


def netted(interval: Interval, registers: Sequence[Register]) -> Interval:
    """Add to each house what its further meters have counted, less what it has fed in.

    Args:
        interval: Houses, then one place for each register.
        registers: The registers.

    Returns:
        The houses alone. One with further registers is present when all of them are.
    """
    if not registers:
        return interval
    n = interval.houses - len(registers)
    houses = np.array([register.house for register in registers])
    signs = np.array([register.sign for register in registers])
    wh, present = interval.wh[:n].copy(), interval.present[:n].copy()
    wh[houses] = np.clip(wh[houses], -_FAR, _FAR)
    np.add.at(wh, houses, signs * np.clip(interval.wh[n:], -_FAR, _FAR))
    np.logical_and.at(present, houses, interval.present[n:])
    wh[houses] = np.where(present[houses], wh[houses], 0)
    wh.flags.writeable = present.flags.writeable = False
    return Interval(wh, present)


def _sums(columns: Columns, interval: int) -> tuple[Int32s, Ints, Bools]:
    """Houses, their sums, and whether they cover the interval."""
    house, of = np.unique(columns.house, return_inverse=True)
    seconds, low, high = (np.zeros(house.size, np.int64) for _ in range(3))
    np.add.at(seconds, of, columns.duration)
    np.add.at(low, of, columns.wh & _LOW)  # halves of 32 bits keep the sum exact
    np.add.at(high, of, columns.wh >> 32)
    if (seconds > interval).any():
        raise not_accepted()
    high += low >> 32
    low_bits = np.where(high > _MOST, _LOW, np.where(high < -_MOST - 1, 0, low & _LOW))
    return house, np.clip(high, -_MOST - 1, _MOST) << 32 | low_bits, seconds == interval


def not_accepted() -> MeterError:
    """The error for stored readings that contradict each other or the roster.

    Returns:
        The error, to be raised.
    """
    return MeterDamageError(
        "the meter store holds readings that cannot have been accepted; restore it from a copy."
    )
