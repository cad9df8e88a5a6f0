"""Wall clocks of the edge: now, and what to say when it jumps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("hushgrid.clock")

JUMP = 2.0  # [s] by which a clock may drift between two looks before it is called a jump


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """UTC epoch seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """UTC epoch seconds."""
        return time.time()


class FastClock:
    """A clock for simulations: from `origin` [UTC epoch s] on, `speed` times as fast."""

    def __init__(self, origin: float, speed: float) -> None:
        self._origin, self._speed, self._begun = origin, speed, time.monotonic()

    def now(self) -> float:
        """UTC epoch seconds."""
        return self._origin + self._speed * (time.monotonic() - self._begun)


class WatchedClock:
    """A clock that is held against one that cannot be set; a jump is logged, not mended.

    Back: what is on record is not published again, the next interval waits. Forward: what passed is
    left out.
    """

    def __init__(
        self, clock: Clock, speed: float = 1.0, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._speed, self._steady = clock, speed, steady
        self._seen = clock.now(), steady()
        self.jumps = 0

    def now(self) -> float:
        """UTC epoch seconds."""
        wall, steady = self._clock.now(), self._steady()
        ahead = wall - self._seen[0] - self._speed * (steady - self._seen[1])
        self._seen = wall, steady
        if abs(ahead) > JUMP:
            self.jumps += 1
            log.warning("clock jumped", extra={"seconds": round(ahead, 3)})
        return wall
