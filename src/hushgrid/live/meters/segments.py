"""The embedded meter store: append-only logs in a folder, open intervals in memory.

One process at a time. A folder holds `lock` and one folder for each zone (`zonefolder.py`); the
logs are described in `frames.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Int8s
from hushgrid.errors import MeterError
from hushgrid.kernels.meters import ACCEPTED, END, MALFORMED
from hushgrid.live.meters.batch import Columns, Share, joined, sort
from hushgrid.live.meters.commit import GroupCommit
from hushgrid.live.meters.disk import lock, make_folder
from hushgrid.live.meters.memory import IntervalMemory
from hushgrid.live.meters.ports import Counts, Interval
from hushgrid.live.meters.roster import Roster, RosterEpoch
from hushgrid.live.meters.zonefolder import ZoneFolder

MOST_OPEN = 1000  # intervals of a zone that may be open at a time


class SegmentMeters:
    """Meter store in a folder. See `MeterStore` for what each method promises."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(folder).absolute()
        self._zones: dict[str, _Zone] = {}
        self._lock = threading.Lock()
        try:
            make_folder(self._root)
            self._held: int | None = lock(self._root / "lock")
        except OSError as error:
            raise MeterError(
                f"meter store {self._root} cannot be opened ({error.strerror});"
                " give a folder that can be written."
            ) from error

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """See MeterStore."""
        roster = Roster.of(zone, meters, interval)
        with self._lock:
            if zone in self._zones:
                self._zones[zone].epoch.check_same(roster, zone)
                return
            self._check_open()
            folder = ZoneFolder(self._root, zone)
            epoch = folder.read_epoch()
            if epoch is None:
                epoch = RosterEpoch(roster)
                folder.write_epoch(epoch)
            epoch.check_same(roster, zone)
            self._zones[zone] = _Zone(zone, folder, epoch)

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """See MeterStore."""
        roster = Roster.of(zone, meters, interval)
        with self._lock:
            self._check_open()
            if zone not in self._zones:
                folder = ZoneFolder(self._root, zone)
                epoch = folder.read_epoch()
                if epoch is None:
                    raise MeterError(f"zone {zone!r} is new; call open_zone.")
                self._zones[zone] = _Zone(zone, folder, epoch)
            self._zones[zone].renew(roster, begins)

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
        """See MeterStore."""
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
        """See MeterStore."""
        columns = Columns.of(house, start, duration, wh)
        return self._zone(zone).group.put(columns, ends, marked)

    def get(self, zone: str, start: int) -> Interval:
        """See MeterStore."""
        return self._zone(zone).get(start)

    def close(self, zone: str, start: int) -> None:
        """See MeterStore."""
        self._zone(zone).close(start)

    def last_closed(self, zone: str) -> int | None:
        """See MeterStore."""
        return self._zone(zone).epoch.last_closed

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """See MeterStore."""
        return self._zone(zone).open_intervals()

    def purge(self, zone: str, before: int) -> int:
        """See MeterStore."""
        return self._zone(zone).purge(before)

    def shut(self) -> None:
        """See MeterStore."""
        with self._lock:
            for zone in self._zones.values():
                zone.shut()
            self._zones.clear()
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def __enter__(self) -> SegmentMeters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()

    def _zone(self, zone: str) -> _Zone:
        found = self._zones.get(zone)
        if found is None:
            self._check_open()
            raise MeterError(f"zone {zone!r} is not open; call open_zone with its roster first.")
        return found

    def _check_open(self) -> None:
        if self._held is None:
            raise MeterError(f"meter store {self._root} is shut; open it again.")


class _Zone:
    """A zone with its open intervals, and the last closed one, in memory.

    Who writes holds `_writing`, also while it waits for the disk, and so does who reads an open
    interval: it sees nothing that is not durable.
    """

    def __init__(self, zone: str, folder: ZoneFolder, epoch: RosterEpoch) -> None:
        self._zone, self._folder, self.epoch = zone, folder, epoch
        self._writing = threading.RLock()
        self.group = GroupCommit(self._writing, self._commit)
        self._memories: dict[int, IntervalMemory] = {}
        self._spare: list[IntervalMemory] = []  # at most one, so that a steady zone allocates none
        self._shut = False
        for opens in folder.starts_from(epoch.closed_end):
            memory = folder.load(opens, epoch.roster)
            if memory is not None:
                self._memories[opens] = memory

    def _commit(self, batches: Sequence[Columns]) -> Int8s:
        self._check_open()
        batch = sort(joined(batches), self.epoch)
        weighed: list[Share] = []
        try:
            kept = [
                (share.opens, self._weigh(share, weighed), share.alike) for share in batch.shares
            ]
            self._folder.append([each for each in kept if each[1].house.size], self.epoch.roster)
        except MeterError:
            for share in weighed:
                self._forget(share)
            raise
        except BaseException:  # no memory, Ctrl-C: nobody knows how far it came
            self._folder.distrust()
            raise
        return batch.gather_codes()

    def _weigh(self, share: Share, weighed: list[Share]) -> Columns:
        """The readings of a share that are to be stored."""
        memory = self._memories.get(share.opens)
        if memory is None:
            if len(self._memories) >= MOST_OPEN:
                share.codes[share.codes == ACCEPTED] = MALFORMED
                return share.columns.at(share.codes == ACCEPTED)
            memory = self._memories[share.opens] = self._fresh(share.opens)
        weighed.append(share)
        return memory.weigh(share)

    def _fresh(self, opens: int) -> IntervalMemory:
        if not self._spare:
            return IntervalMemory(opens, self.epoch.roster)
        memory = self._spare.pop()
        memory.reuse(opens)
        return memory

    def _forget(self, share: Share) -> None:
        memory = self._memories[share.opens]
        memory.forget(share)
        if not memory:
            del self._memories[share.opens]

    def get(self, start: int) -> Interval:
        """See MeterStore."""
        with self._writing:
            epoch = self.epoch
            opens = epoch.roster.interval_at(start, self._zone)
            epoch.check_readable(opens, self._zone)
            self._folder.check_sound()
            memory = self._memories.get(opens)
            if memory is not None:
                return memory.interval()
        if opens >= epoch.closed_end:
            return IntervalMemory(opens, epoch.roster).interval()
        found = self._folder.load_closed(opens, epoch.roster).interval()
        self.epoch.check_readable(opens, self._zone)  # it may have been purged meanwhile
        return found

    def close(self, start: int) -> None:
        """See MeterStore."""
        with self._writing:
            opens = self.epoch.roster.interval_at(start, self._zone)
            self._enter(self.epoch.closed(opens), keep_from=opens)
            self._folder.release_to(opens)

    def open_intervals(self) -> tuple[int, ...]:
        """See MeterStore."""
        with self._writing:
            return tuple(sorted(s for s in self._memories if s >= self.epoch.closed_end))

    def purge(self, before: int) -> int:
        """See MeterStore."""
        with self._writing:
            epoch = self.epoch.purged(before)
            self._enter(epoch, keep_from=epoch.floor)
            return self._folder.remove_before(epoch.floor)

    def renew(self, roster: Roster, begins: int) -> None:
        """See MeterStore.reopen."""
        with self._writing:
            if roster != self.epoch.roster:
                self._folder.check_sound()
                ended = self.epoch.ended(begins)
                still = [opens for opens in self.open_intervals() if opens >= ended.closed_end]
                ended.check_renewable(still, self._zone)
                self._folder.remove_from(ended.closed_end)
                self._enter(ended.renewed(roster), keep_from=END)

    def _enter(self, epoch: RosterEpoch, keep_from: int) -> None:
        """Make an epoch durable, then true; older intervals leave memory."""
        self._check_open()
        if epoch == self.epoch:
            return
        self._folder.write_epoch(epoch)
        same = epoch.roster == self.epoch.roster
        self.epoch = epoch
        old = [self._memories.pop(opens) for opens in list(self._memories) if opens < keep_from]
        self._spare = [*self._spare, *old][:1] if same else []

    def shut(self) -> None:
        """See MeterStore."""
        with self._writing:
            self._shut = True
            self._folder.release()

    def _check_open(self) -> None:
        if self._shut:
            raise MeterError(f"the meter store of zone {self._zone!r} is shut; open it again.")
