"""Who is in a zone and how long its intervals are, fixed for an epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hushgrid.arrays import Int32s
from hushgrid.checks import is_whole
from hushgrid.errors import MeterError
from hushgrid.kernels.meters import END

LONGEST = 86_400  # [s] a day
_MOST = 2**31 - 1  # houses


@dataclass(frozen=True, slots=True)
class Roster:
    """`digest` (SHA-256, hex) stands for the meter ids in house order and the interval [s]."""

    houses: int
    interval: int
    digest: str
    divisors: Int32s = field(init=False, compare=False, repr=False)  # of the interval

    def __post_init__(self) -> None:
        whole = np.arange(self.interval, 0, -1, dtype=np.int32)
        object.__setattr__(self, "divisors", whole[self.interval % whole == 0])

    @classmethod
    def of(cls, zone: str, meters: Sequence[str], interval: int) -> Roster:
        """Of meter ids in house order.

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
        """The start of an interval [epoch s], checked."""
        if not is_whole(start) or not 0 <= start < END or start % self.interval:
            raise MeterError(
                f"interval of zone {zone!r} is asked at {start};"
                f" give epoch seconds that are a multiple of {self.interval}."
            )
        return int(start)


def check_zone(zone: str) -> None:
    """A zone id is text, short enough for a file name."""
    if not isinstance(zone, str) or not zone or "\0" in zone or len(zone.encode()) > 64:
        raise MeterError(f"zone is {zone!r}; give a name of 1 to 64 bytes.")


def _digest(meters: Sequence[str], interval: int) -> str:
    lengths = ",".join(str(len(meter)) for meter in meters)  # so that no two rosters read the same
    text = f"hushgrid-roster/1 {interval} {lengths} " + "".join(meters)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class RosterEpoch:
    """What a store remembers of a zone beside its readings.

    Times in [epoch s], -1 for never. Intervals that begin before `closed_end` are closed; those
    that begin before `floor` are purged or were kept for another roster.
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
        """Refuse an interval whose readings are gone, so that nobody takes them for missing."""
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
        """Refuse a new epoch that would strand accepted readings."""
        if opened:
            raise MeterError(
                f"zone {zone!r} cannot be reopened while interval {opened[0]} is open;"
                " close every interval that holds readings first, or begin after them."
            )
