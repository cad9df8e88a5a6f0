"""The demo's clock: so many times as fast as life, and never past the work in hand."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

LOOK = 0.25  # [s] between two looks at whether to stop


class SimulatedPace:
    """Simulated time from `origin` [UTC epoch s] on, at most `speed` times as fast as life.

    It goes as far as `reach` was told to and waits there, so a slow machine makes a slow day, not
    one with holes. Infinite speed: as fast as the work allows, without any sleep.
    """

    def __init__(
        self, origin: float, speed: float, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed, self._steady = speed, steady
        self._mark, self._since, self._limit = origin, steady(), origin

    def now(self) -> float:
        """UTC epoch seconds."""
        if math.isinf(self._speed):
            return self._limit
        run = self._mark + self._speed * (self._steady() - self._since)
        return min(run, self._limit)

    def reach(self, at: float, wake: threading.Event) -> bool:
        """Go on to an instant; False where `wake` was set before."""
        self._limit = max(at, self._limit)
        while (left := at - self.now()) > 0:
            if wake.wait(min(left / self._speed, LOOK)):
                return False
        self._mark, self._since = self.now(), self._steady()
        return not wake.is_set()
