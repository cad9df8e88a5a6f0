"""The releases that can be asked for: those of the ledger, then each new one as it is shown.

Written by the loop, read by any thread. A release enters when it is durable, and never changes.
"""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import ReleaseRecord

log = logging.getLogger("hushgrid.history")

KEPT = 100_000  # releases of a zone: more than two years of quarter hours

ReleaseWatcher = Callable[[ZoneService, ReleaseRecord], None]


class History:
    """Releases of each zone in order of time; also a publisher."""

    def __init__(self, zones: Iterable[ZoneService]) -> None:
        self.zones = {zone.id: zone for zone in zones}
        self._releases: dict[str, list[ReleaseRecord]] = {zone: [] for zone in self.zones}
        self._watchers: list[tuple[ReleaseWatcher, bool]] = []
        self._told: dict[str, int] = {}  # the last step of a zone that was made here
        self._mutex = threading.Lock()

    def fill(self, zone: str, releases: Sequence[ReleaseRecord], *, told: bool = True) -> None:
        """Take what a ledger holds; nobody is told. Not `told`: another may have failed to."""
        with self._mutex:
            self._releases[zone] = list(releases[-KEPT:])
            if told and releases:
                self._told[zone] = releases[-1].t

    def watch(self, watcher: ReleaseWatcher, *, own: bool = False) -> Callable[[], None]:
        """Have every new release told, by a call that must not wait; returns how to end that.

        `own`: those alone that this process answers for, not those it only follows.
        """
        entry = (watcher, own)
        with self._mutex:
            self._watchers.append(entry)

        def end() -> None:
            with self._mutex:
                if entry in self._watchers:
                    self._watchers.remove(entry)

        return end

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Add a release and tell it; one that is here already is neither.

        One that was only followed so far is told to those who wait for this process's own.
        """
        with self._mutex:
            new, first = self._add(zone.id, release), release.t > self._told.get(zone.id, 0)
            self._told[zone.id] = max(release.t, self._told.get(zone.id, 0))
            some = [one for one, own in self._watchers if new or (own and first)]
        _tell(some, zone, release)

    def follow(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Add a release of another process; whoever made it tells its subscribers."""
        with self._mutex:
            new = self._add(zone.id, release)
            some = [one for one, own in self._watchers if new and not own]
        _tell(some, zone, release)

    def _add(self, zone: str, release: ReleaseRecord) -> bool:
        known = self._releases[zone]
        if known and known[-1].t >= release.t:
            return False
        known.append(release)
        del known[:-KEPT]
        return True

    def newest(self, zone: str) -> ReleaseRecord | None:
        """The last release; None before the first."""
        known = self._releases[zone]
        return known[-1] if known else None

    def between(self, zone: str, since: int, until: int) -> list[ReleaseRecord]:
        """Releases that apply from an instant of since..until on [UTC epoch s, until not in]."""
        known = self._releases[zone]
        low = bisect.bisect_left(known, since, key=_applies)
        return known[low : bisect.bisect_left(known, until, key=_applies)]

    def at(self, zone: str, t: int) -> ReleaseRecord | None:
        """The release of step t, where it can be asked for."""
        known = self._releases[zone]
        place = bisect.bisect_left(known, t, key=_step)
        return known[place] if place < len(known) and known[place].t == t else None

    def last(self, zone: str, number: int) -> list[ReleaseRecord]:
        """The newest releases, oldest first."""
        return self._releases[zone][-number:] if number > 0 else []


def _tell(watchers: Iterable[ReleaseWatcher], zone: ZoneService, release: ReleaseRecord) -> None:
    for watcher in watchers:
        try:
            watcher(zone, release)
        except Exception as error:  # a watcher's trouble is not the tick's
            log.warning("watcher failed", extra={"error": type(error).__name__})


def _applies(release: ReleaseRecord) -> int:
    return release.applies_start


def _step(release: ReleaseRecord) -> int:
    return release.release.t
