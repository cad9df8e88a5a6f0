"""A meter store that can be opened again under those who use it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from numpy.typing import ArrayLike

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.live.meters.ports import Counts, Interval, MeterStore

log = logging.getLogger("hushgrid.meters")


class HeldMeters:
    """A MeterStore that passes everything on to one behind it.

    Where that one cannot be used any more, `doubtful` is set and senders are told to send again
    later; `renew` opens another with the same zones. Safe for threads, as the one behind it.
    """

    def __init__(self, make: Callable[[], MeterStore]) -> None:
        self._make, self._store, self._mutex = make, make(), threading.Lock()
        self._zones: dict[str, tuple[Sequence[str], int]] = {}
        self.doubtful = False

    def renew(self) -> None:
        """Shut the store and open it again."""
        with self._mutex:
            with suppress(MeterError, OSError):
                self._store.shut()
            store = self._make()
            for zone, (meters, interval) in self._zones.items():
                store.open_zone(zone, meters, interval)
            self._store, self.doubtful = store, False
        log.warning("meter store opened again")

    @contextmanager
    def _trying(self) -> Iterator[MeterStore]:
        try:
            yield self._store
        except MeterRetryError:
            raise
        except (MeterError, OSError):
            self.doubtful = True
            raise

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """Fix a zone's roster and interval length [s]."""
        self._store.open_zone(zone, meters, interval)
        self._zones[zone] = (meters, interval)

    def reopen(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """Start a new epoch with another roster."""
        self._store.reopen(zone, meters, interval)
        self._zones[zone] = (meters, interval)

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
        """Take readings; MeterRetryError whenever they should be sent again."""
        try:
            with self._trying() as store:
                return store.put(zone, house, start, duration, wh, marked=marked)
        except MeterRetryError:
            raise
        except (MeterError, OSError) as error:
            raise MeterRetryError(
                f"meter store of zone {zone!r} cannot take readings"
                f" ({type(error).__name__}); send them again."
            ) from None

    def get(self, zone: str, start: int) -> Interval:
        """The readings of an interval."""
        with self._trying() as store:
            return store.get(zone, start)

    def close(self, zone: str, start: int) -> None:
        """Close an interval and all before it."""
        with self._trying() as store:
            store.close(zone, start)

    def last_closed(self, zone: str) -> int | None:
        """Start of the last closed interval [epoch s]."""
        with self._trying() as store:
            return store.last_closed(zone)

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """Starts of the open intervals that hold readings [epoch s]."""
        with self._trying() as store:
            return store.open_intervals(zone)

    def purge(self, zone: str, before: int) -> int:
        """Delete the readings of closed intervals that ended by `before` [epoch s]."""
        with self._trying() as store:
            return store.purge(zone, before)

    def shut(self) -> None:
        """Let go of files and connections."""
        with self._mutex:
            self._store.shut()

    def __enter__(self) -> HeldMeters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()
