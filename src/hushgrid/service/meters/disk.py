"""Files that survive a crash, group commit, and a meter store that can be reopened while in use."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from hushgrid._numbers import Int8s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.service.meters.ports import (
    Columns,
    Counts,
    Interval,
    MeterStore,
    check_ends,
    counts_of,
    marks_of,
)

_MODE = 0o600  # readings are secret


def make_folder(path: Path) -> None:
    """Create a folder for its owner alone, with those above it, durably.

    Args:
        path: The folder.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make created and deleted names of a folder durable.

    Args:
        path: The folder.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(path: Path) -> int:
    """Lock a file for this process until the descriptor is closed.

    Args:
        path: The lock file; created where it is absent.

    Returns:
        The descriptor.

    Raises:
        MeterError: Another process holds the lock.
    """
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise MeterError(
            f"meter store {path.parent} is in use by another process; stop that one first."
        ) from None
    return held


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Replace a small file durably as a whole, with a checksum.

    Args:
        path: The file.
        state: JSON values.
    """
    text = json.dumps({**state, "crc": _crc(state)}, indent=1) + "\n"
    fresh = path.with_suffix(".tmp")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    try:
        write_all(file, [text.encode()])
        os.fsync(file)
    finally:
        os.close(file)
    fresh.replace(path)
    sync_folder(path.parent)


def read_state(path: Path) -> dict[str, Any]:
    """Read what `write_state` wrote.

    Args:
        path: The file.

    Returns:
        The JSON values.

    Raises:
        MeterError: The file is damaged.
    """
    try:
        state = json.loads(path.read_bytes())
        if state.pop("crc") == _crc(state):
            return dict(state)
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    raise MeterError(f"meter file {path} is damaged; restore it from a copy.")


def _crc(state: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True).encode())


class Appender:
    """A file that grows by whole synced appends.

    Args:
        file: Descriptor, open for appending.
        salt: Random bytes of the file's frames.
        end: Where the durable part ends [bytes].
    """

    __slots__ = ("_file", "end", "salt")

    def __init__(self, file: int, salt: bytes, end: int) -> None:
        self._file, self.salt, self.end = file, salt, end

    @classmethod
    def create(cls, path: Path, salt: bytes, head: bytes) -> Appender:
        """A new file that begins with `head`; an old file of that name is replaced."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        made = cls(os.open(path, flags, _MODE), salt, 0)
        try:
            made.append([head])
            sync_folder(path.parent)
        except BaseException:
            made.release()
            path.unlink(missing_ok=True)  # a log without a head would look damaged later
            raise
        return made

    @classmethod
    def resume(cls, path: Path, salt: bytes, end: int) -> Appender:
        """A file whose good part ends at `end`."""
        sync_folder(path.parent)  # its name may be younger than the last sync
        return cls(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), salt, end)

    def append(self, buffers: Sequence[Any]) -> None:
        """Write and sync. After an error the file is as before, or `NotCut` is raised."""
        try:
            written = write_all(self._file, buffers)
        except BaseException:
            self.cut(self.end)
            raise
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise NotCut from error  # what a failed sync leaves on the disk is unknown
        self.end += written

    def cut(self, end: int) -> None:
        """Truncate to an earlier end."""
        try:
            os.ftruncate(self._file, end)
        except OSError as error:
            raise NotCut from error
        self.end = end

    def release(self) -> None:
        """Close the file."""
        os.close(self._file)


class NotCut(Exception):  # noqa: N818
    """The content of a file is not known any more."""


def write_all(file: int, buffers: Sequence[Any]) -> int:
    """Write all buffers, with as many calls as needed.

    Args:
        file: A descriptor.
        buffers: Buffers, written in order.

    Returns:
        The number of bytes.
    """
    total = sum(memoryview(part).nbytes for part in buffers)
    done = os.writev(file, buffers)
    if done < total:
        rest = b"".join(bytes(part) for part in buffers)
        while done < total:
            done += os.write(file, memoryview(rest)[done:])
    return total


class _WaitingCommit:
    __slots__ = ("codes", "columns", "error")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.codes: Int8s | None = None
        self.error: Exception | None = None


class GroupCommit:
    """Callers that wait for the same disk share one write.

    The thread that gets the lock stores the batches of all that wait; the others then find theirs
    stored.

    Args:
        lock: Serialises writes.
        commit: Stores several batches at once; returns the code of every reading.
    """

    def __init__(self, lock: threading.RLock, commit: Callable[[Sequence[Columns]], Int8s]) -> None:
        self._lock, self._commit = lock, commit
        self._waiting: deque[_WaitingCommit] = deque()

    def put(
        self, columns: Columns, ends: Sequence[int], marked: ArrayLike | None = None
    ) -> list[Counts]:
        """Store deliveries that end at `ends`, alone or with those of other threads.

        Each caller counts its own deliveries, outside the lock.
        """
        marks = marks_of(marked, columns.house.size)
        check_ends(ends, columns.house.size)
        mine = _WaitingCommit(columns)
        self._waiting.append(mine)
        with self._lock:
            if mine.codes is None and mine.error is None:
                self._store([self._waiting.popleft() for _ in range(len(self._waiting))])
        if mine.error is not None:
            raise mine.error
        assert mine.codes is not None
        return counts_of(mine.codes, ends, marks)

    def _store(self, group: list[_WaitingCommit]) -> None:
        try:
            codes = self._commit([each.columns for each in group])
        except BaseException as error:
            for each in group:
                each.error = _own(error)
            if not isinstance(error, Exception):
                raise
            return
        end = 0
        for each in group:
            begin, end = end, end + each.columns.house.size
            each.codes = codes[begin:end]


def _own(error: BaseException) -> Exception:
    """An error for each caller: one object raised in two threads would mix their traces."""
    if isinstance(error, MeterError):
        return type(error)(*error.args)
    if isinstance(error, Exception):
        return error
    return MeterRetryError("the thread that stored for others was stopped; send again.")


log = logging.getLogger("hushgrid.meters")


class HeldMeters(MeterStore):
    """A MeterStore that delegates to another one and can reopen it. Safe for threads.

    The store behind it is opened with the first zone: by then the caller holds the zone's lock, so
    that a second process gets an error that names the zone. When the store fails, `doubtful` is set
    and senders are asked to send again later; `renew` opens it again with the same zones.

    Args:
        make: Opens the store.

    Attributes:
        doubtful: Whether the store failed and must be reopened.
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
        """Close the store and open it again."""
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
        """Store several deliveries; MeterRetryError whenever they should be sent again."""
        try:
            with self._trying() as store:
                return store.put_each(zone, house, start, duration, wh, ends=ends, marked=marked)
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
        """The readings of an interval for display; None where there are none.

        A failure is ignored and does not set `doubtful`.
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
        """Close files and connections."""
        with self._mutex:
            if self._opened is not None:
                self._opened.shut()
