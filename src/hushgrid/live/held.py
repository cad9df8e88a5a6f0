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

    That one is opened with the first zone: whoever asks holds the zone's lock by then, so a second
    process hears which zone is taken. Where it cannot be used any more, `doubtful` is set and
    senders are told to send again later; `renew` opens another with the same zones. Safe for
    threads, as the one behind it.
    """

    def __init__(self, make: Callable[[], MeterStore]) -> None:
        self._make, self._mutex = make, threading.Lock()
        self._opened: MeterStore | None = None
        self._zones: dict[str, tuple[Sequence[str], int]] = {}
        self.doubtful = False

    @property
    def _store(self) -> MeterStore:
        with self._mutex:
            if self._opened is None:
                self._opened = self._make()
            return self._opened

    def renew(self) -> None:
        """Shut the store and open it again."""
        with self._mutex:
            if self._opened is not None:
                with suppress(MeterError, OSError):
                    self._opened.shut()
            store = self._make()
            try:
                for zone, (meters, interval) in self._zones.items():
                    store.open_zone(zone, meters, interval)
            except BaseException:
                store.shut()  # it holds the lock that the next attempt needs
                raise
            self._opened, self.doubtful = store, False
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

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """Start a new epoch with another roster."""
        self._store.reopen(zone, meters, interval, begins)
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

    def peek(self, zone: str, start: int) -> Interval | None:
        """The readings of an interval for somebody who only looks; None where there are none.

        Nothing follows from it: a look that fails casts no doubt on the store.
        """
        try:
            return self._store.get(zone, start)
        except (MeterError, OSError):
            return None

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
            if self._opened is not None:
                self._opened.shut()

    def __enter__(self) -> HeldMeters:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()
