"""What the running process tells about itself: where each zone stands, what is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from hushgrid.live.curator import Status

STALE = 60.0  # [s] without a pass of the loop, then a zone is not ready


class Board:
    """The newest of each zone, written by the loop and read by anyone."""

    def __init__(
        self, zones: Iterable[str] = (), steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.zones, self._steady = tuple(zones), steady
        self._statuses: dict[str, Status] = {}
        self._passed: dict[str, float] = {}

    def passed(self, status: Status) -> None:
        """The loop went over an open zone."""
        self._statuses[status.zone] = status
        self._passed[status.zone] = self._steady()

    def failed(self, zone: str) -> None:
        """A zone was closed after an error."""
        self._passed.pop(zone, None)
        if zone in self._statuses:
            self._statuses[zone] = replace(self._statuses[zone], state="closed after an error")

    def follows(self, status: Status, *, runs: bool) -> None:
        """Another process has the zone; whether it runs there."""
        self._statuses[status.zone] = status
        if runs:
            self._passed[status.zone] = self._steady()
        else:
            self._passed.pop(status.zone, None)

    @property
    def statuses(self) -> list[Status]:
        """Where each zone stands."""
        return [self._statuses[zone] for zone in self.zones if zone in self._statuses]

    def waiting(self) -> list[str]:
        """The zones that are not open and ticking; none means ready."""
        since = self._steady() - STALE
        return [zone for zone in self.zones if self._passed.get(zone, -1e300) < since]
