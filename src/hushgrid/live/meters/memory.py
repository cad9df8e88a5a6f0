"""One interval of a zone in memory: what was accepted for each house."""

from __future__ import annotations

import numpy as np

from hushgrid.kernels.meters import (
    ACCEPTED,
    CONFLICTING,
    DUPLICATE,
    REPEATED,
    forget,
    gather,
    weigh,
    weigh_whole,
)
from hushgrid.live.meters.batch import Columns, Share, sort
from hushgrid.live.meters.ports import Interval
from hushgrid.live.meters.roster import Roster, RosterEpoch


class IntervalMemory:
    """21 bytes a house, and 9 for each piece of a house whose readings are shorter.

    Whole readings wait in the order they came until somebody asks for them. Arrays begin as zeros,
    which take up memory only where they are touched.
    """

    __slots__ = (
        "_before", "_begun", "_cell", "_kind", "_opens", "_piece", "_roster", "_taken", "_used",
        "_waiting", "_waiting_house", "_waiting_wh",
    )  # fmt: skip

    def __init__(self, opens: int, roster: Roster) -> None:
        self._opens, self._roster, houses = opens, roster, roster.houses
        self._begun = np.zeros(-(-houses // 8), np.uint8)
        self._kind, self._cell = np.zeros(houses, np.uint8), np.zeros(houses, np.int64)
        self._piece, self._taken = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        self._waiting_house = np.zeros(houses, np.int32)
        self._waiting_wh = np.zeros(houses, np.int64)
        self._used = self._waiting = 0  # places of `_piece`, whole readings that wait
        self._before = (0, 0)  # both, before the last `weigh`

    def reuse(self, opens: int) -> None:
        """Become the empty memory of another interval: pages that are there need no zeroing."""
        self._opens = opens
        self._begun.fill(0)
        if self._used:
            self._kind.fill(0)
        self._used = self._waiting = 0

    def weigh(self, share: Share) -> Columns:
        """Write into the share's codes which readings are accepted, keep those and return them."""
        self._before = self._used, self._waiting
        accepted = share.columns
        if self._judge(share):
            accepted = share.columns.at(share.codes == ACCEPTED)
        self._await(accepted, share.alike)
        repeated = np.flatnonzero(share.codes == REPEATED) if accepted is not share.columns else ()
        if len(repeated):
            self._settle()
            same = self._cell[share.columns.house[repeated]] == share.columns.wh[repeated]
            share.codes[repeated] = np.where(same, DUPLICATE, CONFLICTING)
        return accepted

    def _judge(self, share: Share) -> int:
        """How many readings are not accepted."""
        if share.alike and share.columns.duration[0] == self._roster.interval:
            return int(weigh_whole(share.columns.house, share.codes, self._begun, self._kind))
        begin, end, refused = 0, share.codes.size, 0
        while True:
            begin, self._used, more = weigh(
                *share.columns, share.codes, self._opens, self._roster.divisors,
                self._begun, self._kind, self._cell, self._piece, self._taken, self._used, begin,
            )  # fmt: skip
            refused += int(more)
            if begin == end:
                return refused
            self._grow(self._roster.interval // int(share.columns.duration[begin]))

    def _await(self, accepted: Columns, alike: bool) -> None:
        house, _, duration, wh = accepted
        if not alike:
            whole = duration == self._roster.interval
            house, wh = house[whole], wh[whole]
        elif house.size and duration[0] != self._roster.interval:
            return
        begin, end = self._waiting, self._waiting + house.size
        self._waiting_house[begin:end], self._waiting_wh[begin:end] = house, wh
        self._waiting = end

    def _settle(self) -> None:
        self._cell[self._waiting_house[: self._waiting]] = self._waiting_wh[: self._waiting]
        self._waiting = 0

    def forget(self, share: Share) -> None:
        """Take back what the last `weigh` kept."""
        house, start, duration, _ = share.columns
        self._used, waiting = self._before
        self._waiting = min(self._waiting, waiting)  # 0 when they were asked for meanwhile
        forget(
            house, start, duration, share.codes, self._opens, self._roster.interval,
            self._begun, self._kind, self._cell, self._taken, self._used,
        )  # fmt: skip

    def load(self, columns: Columns) -> bool:
        """Take readings from a store; False when some cannot have been accepted."""
        codes, shares, _ = sort(columns, RosterEpoch(self._roster))
        if len(shares) != 1 or shares[0].opens != self._opens:
            return not codes.size
        self.weigh(shares[0])
        return bool((codes == ACCEPTED).all())

    def __bool__(self) -> bool:
        """Whether there is any reading."""
        return bool(self._begun.any())

    def interval(self) -> Interval:
        """The readings, added up."""
        self._settle()
        houses = self._roster.houses
        wh, present = np.empty(houses, np.int64), np.empty(houses, np.bool_)
        gather(
            self._roster.divisors, self._begun, self._kind, self._cell, self._piece, self._taken,
            wh, present,
        )  # fmt: skip
        wh.flags.writeable = present.flags.writeable = False
        return Interval(wh, present)

    def _grow(self, least: int) -> None:
        used = self._used
        size = max(2 * self._piece.size, used + least, 1024)
        piece, taken = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        piece[:used], taken[:used] = self._piece[:used], self._taken[:used]
        self._piece, self._taken = piece, taken
