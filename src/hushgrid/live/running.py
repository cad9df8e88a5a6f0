"""One zone of a running process: open, ticking, or waiting to be opened again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from hushgrid.errors import HushgridError
from hushgrid.live.curator import Curator
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import ReleaseRecord

log = logging.getLogger("hushgrid.serve")

FIRST_PAUSE, LAST_PAUSE = 1.0, 60.0  # [s] before a zone that failed is opened again

OpenCurator = Callable[[ZoneService, float, bool], AbstractContextManager[Curator]]


class ZoneRun:
    """A zone, its curator while it is open, and when to try again while it is not."""

    def __init__(
        self,
        service: ZoneService,
        make: OpenCurator,
        steady: Callable[[], float] = time.monotonic,
        first_pause: float | None = None,
    ) -> None:
        self.service, self._make, self._steady = service, make, steady
        self._first = FIRST_PAUSE if first_pause is None else first_pause
        self.failures = 0  # in a row
        self._stack = ExitStack()
        self.curator: Curator | None = None
        self._pause, self._again = self._first, 0.0

    def open(self, now: float, *, new_epoch: bool = False) -> Curator:
        """Take the zone's lock and fold its ledger."""
        stack = ExitStack()
        with stack:
            self.curator = stack.enter_context(self._make(self.service, now, new_epoch))
            self._stack = stack.pop_all()
        log.info("zone open", extra={"zone": self.service.id, "t": self.curator.status.t})
        return self.curator

    def close(self) -> None:
        """Let go of the zone."""
        self.curator = None
        self._stack.close()

    def run(self, now: float) -> list[ReleaseRecord] | None:
        """Publish what is due. None where the zone is closed, or was closed just now."""
        if self.curator is None and self._steady() < self._again:
            return None
        try:
            made = (self.curator or self.open(now)).run(now)
        except Exception as error:  # one zone's trouble is not another's
            self._fail(error)
            return None
        self.refresh()
        return made

    def refresh(self) -> None:
        """Forget failures: what made them may be over."""
        self._pause, self._again, self.failures = self._first, 0.0, 0

    def _fail(self, error: Exception) -> None:
        # our own errors say no secret; of others the type is all that is safe to tell
        reason = str(error) if isinstance(error, HushgridError) else type(error).__name__
        foreign = not isinstance(error, (HushgridError, OSError))
        told = {"zone": self.service.id, "error": type(error).__name__, "reason": reason}
        log.error("zone failed", extra=told, exc_info=error if foreign else None)
        try:
            self.close()
        except Exception as again:
            log.warning(
                "zone not closed cleanly",
                extra={"zone": self.service.id, "error": type(again).__name__},
            )
        self.failures += 1
        self._again = self._steady() + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE)

    def next_due(self) -> float:
        """When the next interval closes [UTC epoch s]; never, while the zone is closed."""
        return self.curator.next_due() if self.curator else float("inf")
