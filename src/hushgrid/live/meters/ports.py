"""What a meter store promises: the secret side, where readings wait for their interval to close.

Accepted means durable: when `put` has returned, no crash loses what it counted as accepted. What is
counted otherwise changed nothing. Intervals begin at multiples of their length since 1970 (UTC) and
are named by their start [epoch s].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Bools, Int32s, Ints
from hushgrid.grid import Tally, tally


class Counts(NamedTuple):
    """What became of each reading of a `put`; each is counted once.

    malformed: a house outside the roster, a duration that does not divide the interval, or a start
    that is no multiple of the duration (such a reading would straddle a border or overlap).
    late: its interval is closed. duplicate: the same was accepted before. conflicting: another Wh
    was accepted for the same time, or another duration for the same house and interval; the first
    stays. Whether a repeated reading is a duplicate or conflicting tells whether a guess of it is
    right: answer senders with the sum of the two. marked: how many of the accepted ones were
    marked by the caller.
    """

    accepted: int = 0
    duplicate: int = 0
    conflicting: int = 0
    late: int = 0
    malformed: int = 0
    marked: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """One interval of a zone in house order: `wh` [Wh], 0 where not `present`. Secret.

    A house is present when its readings cover the interval; shorter ones are added up.
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
        """Clamped to 0..bound and added, with what is `expected` where a reading is missing."""
        if not self.missing:
            return tally(self.wh, bound)
        return tally(np.where(self.present, self.wh, expected()), bound)


Expected = Callable[[], Ints]  # of every house [Wh]; asked only where one is missing


class Closed(Protocol):
    """All that a tick asks of a closed interval. Secret but for how many houses there are."""

    @property
    def houses(self) -> int:
        """How many houses there are."""
        ...

    @property
    def missing(self) -> int:
        """How many of them have readings that do not cover the interval."""
        ...

    def tally(self, bound: Int32s, expected: Expected) -> Tally:
        """Clamped to 0..bound and added, with what is `expected` where a reading is missing."""
        ...


class IntervalSource(Protocol):
    """Where a curator's closed intervals come from: a meter store, or sums made elsewhere."""

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """Fix a zone's roster and interval length [s]."""
        ...

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """Start a new epoch with another roster at `begins` [epoch s]."""
        ...

    def get(self, zone: str, start: int) -> Closed:
        """The interval that starts at `start` [epoch s]."""
        ...

    def close(self, zone: str, start: int) -> None:
        """Close an interval and all before it."""
        ...

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [epoch s]; None before the first, or not known."""
        ...

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """Starts of the intervals that hold readings and are not closed, in order [epoch s]."""
        ...

    def purge(self, zone: str, before: int) -> int:
        """Delete the readings of closed intervals that ended by `before` [epoch s]; how many."""
        ...


class MeterStore(Protocol):
    """Readings of one or more zones, durable. Safe for threads."""

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
        """Take readings: house (place in the roster), start [epoch s], duration [s], Wh.

        `marked`: True or False for each; how many of the marked are accepted is counted, and
        nothing else comes of it. Durable on return. The first reading for a house and time stays.
        Raises MeterRetryError when nothing was counted and the same should be sent again.
        """
        ...

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
        """Take several deliveries one behind another, each ending before `ends[i]`; counts of each.

        As `put` for one after the other, but all or none of them are counted.
        """
        ...

    def get(self, zone: str, start: int) -> Interval:
        """The readings of an interval, open or closed. MeterError when they are purged."""
        ...

    def close(self, zone: str, start: int) -> None:
        """Close an interval and all before it, durably: what comes for them now is late."""
        ...

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [epoch s]; None before the first."""
        ...

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """Starts of the intervals that hold readings and are not closed, in order [epoch s]."""
        ...

    def purge(self, zone: str, before: int) -> int:
        """Delete the readings of closed intervals that ended by `before` [epoch s]; how many."""
        ...

    def shut(self) -> None:
        """Let go of files and connections; the store cannot be used afterwards."""
        ...

    def __enter__(self) -> MeterStore: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
