"""Rosters, the readings of an interval, and where a curator gets closed intervals from.

Intervals begin at multiples of their length since 1970 (UTC) and are named by their start
[epoch s].
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid._numbers import Bools, Int32s, Ints, is_whole
from hushgrid.errors import MeterError
from hushgrid.model.zone import Tally, tally

LONGEST = 86_400  # [s] a day
END = 1 << 40  # [epoch s] no reading is that young; keeps sums of times far from 2^63
_MOST = 2**31 - 1  # houses


@dataclass(frozen=True, slots=True)
class Roster:
    """The houses of a zone and the length of its intervals, fixed for an epoch.

    Attributes:
        houses: Number of houses.
        interval: Length of an interval [s].
        digest: SHA-256 (hex) over the meter ids in house order and the interval.
    """

    houses: int
    interval: int
    digest: str

    @classmethod
    def of(cls, zone: str, meters: Sequence[str], interval: int) -> Roster:
        """The roster of meter ids in house order.

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
        if len(set(meters)) != len(meters):
            raise MeterError(f"roster of zone {zone!r} names a meter twice; give each id once.")
        lengths = ",".join(str(len(meter)) for meter in meters)  # no two rosters read the same
        text = f"hushgrid-roster/1 {int(interval)} {lengths} " + "".join(meters)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(len(meters), int(interval), digest)

    def interval_at(self, start: int, zone: str) -> int:
        """Check the start of an interval [epoch s]."""
        if not is_whole(start) or not 0 <= start < END or start % self.interval:
            raise MeterError(
                f"interval of zone {zone!r} is asked at {start};"
                f" give epoch seconds that are a multiple of {self.interval}."
            )
        return int(start)


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
        return replace(self, closed_end=max(self.closed_end, start + self.roster.interval))

    def purged(self, before: int) -> RosterEpoch:
        """After the closed intervals that ended by `before` are purged."""
        if not is_whole(before):
            raise MeterError(f"readings are to be purged before {before}; give epoch seconds.")
        length = self.roster.interval
        floor = min(int(before), self.closed_end) // length * length
        return replace(self, floor=max(self.floor, floor))

    def ended(self, begins: int) -> RosterEpoch:
        """After all intervals that start before `begins` are closed."""
        if not is_whole(begins):
            raise MeterError(f"a new epoch begins at {begins}; give epoch seconds.")
        return replace(self, closed_end=max(self.closed_end, int(begins)))

    def renewed(self, roster: Roster) -> RosterEpoch:
        """With another roster: what is closed stays so and belongs to the old one."""
        return RosterEpoch(roster, self.closed_end, max(self.floor, self.closed_end))

    def check_same(self, roster: Roster, zone: str) -> None:
        """Refuse a roster that is not the one of this epoch."""
        if roster != self.roster:
            raise MeterError(
                f"zone {zone!r} is kept for a roster of {self.roster.houses} meters and intervals"
                f" of {self.roster.interval} s with digest {self.roster.digest[:12]}, not"
                f" {roster.digest[:12]}; give the same, or begin a new epoch with hushgrid serve"
                " --new-epoch."
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
