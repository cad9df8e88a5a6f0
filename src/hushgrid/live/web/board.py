"""What the running process tells about itself: prices, where each zone stands, what is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hushgrid.live.curator import Status
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.standing import Published
from hushgrid.live.publish import price

STALE = 60.0  # [s] without a pass of the loop, then a zone is not ready


class Board:
    """The newest of each zone, written by the loop and read by anyone; also a publisher."""

    def __init__(
        self, zones: Iterable[str] = (), steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.zones, self._steady = tuple(zones), steady
        self._prices: dict[str, dict[str, Any]] = {}
        self._statuses: dict[str, Status] = {}
        self._passed: dict[str, float] = {}

    def publish(self, zone: ZoneService, release: Published) -> None:
        """Show a price."""
        self._prices[zone.id] = price(zone, release)

    def price(self, zone: str) -> dict[str, Any] | None:
        """The newest price; None before the first."""
        return self._prices.get(zone)

    def passed(self, status: Status) -> None:
        """The loop went over an open zone."""
        self._statuses[status.zone] = status
        self._passed[status.zone] = self._steady()

    def failed(self, zone: str) -> None:
        """A zone was closed after an error."""
        self._passed.pop(zone, None)
        if zone in self._statuses:
            self._statuses[zone] = replace(self._statuses[zone], state="closed after an error")

    @property
    def statuses(self) -> list[Status]:
        """Where each zone stands."""
        return [self._statuses[zone] for zone in self.zones if zone in self._statuses]

    def waiting(self) -> list[str]:
        """The zones that are not open and ticking; none means ready."""
        since = self._steady() - STALE
        return [zone for zone in self.zones if self._passed.get(zone, -1e300) < since]
