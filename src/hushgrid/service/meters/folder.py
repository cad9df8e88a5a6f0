"""The embedded meter store: append-only logs in a folder, open intervals in memory.

One process at a time. A folder holds `lock` and a folder for each zone, with `zone.json` (the
epoch) and `START.log` for each interval with readings. A log is a head, then frames that hold
accepted readings, all little-endian:

    head     "hushgrid-meters/2", salt (8 random bytes), start, interval [s], houses, roster
             digest, CRC-32
    frame    salt, length of the payload, its XXH64 (of its head, which is the seed for that of
             the first column, and so on), CRC-32 of this frame head and its offset in the file;
             then the payload
    payload  number of readings, start and duration [s] if all have the same (else -1, 0), then
             the columns house (int32), start (int64) and duration (int32) if they differ, Wh
             (int64)

A frame is synced before the next one is written, so only the last one can be torn. A bad frame
before a good one is damage, and its content is not guessed. The salt keeps readings from looking
like frames.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._kernels.readings import (
    ACCEPTED,
    CONFLICTING,
    DUPLICATE,
    END,
    MALFORMED,
    REPEATED,
    forget,
    gather,
    merge_readings,
    merge_whole_readings,
    xxh64,
)
from hushgrid._numbers import Int8s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.service.meters.disk import (
    Appender,
    GroupCommit,
    NotCut,
    lock,
    make_folder,
    read_state,
    sync_folder,
    write_state,
)
from hushgrid.service.meters.ports import (
    Columns,
    Counts,
    Interval,
    MeterStore,
    Roster,
    RosterEpoch,
    Share,
    joined,
    sort,
)

# ---- one interval in memory


class IntervalMemory:
    """One interval of a zone in memory: what was accepted for each house.

    21 bytes a house, and 9 for each piece of a house whose readings are shorter. Whole readings
    are kept in the order they came until they are requested. Arrays begin as zeros, which take up
    memory only where they are touched.

    Args:
        opens: Start of the interval [epoch s].
        roster: The zone's roster.
    """

    __slots__ = (
        "_before", "_begun", "_cell", "_kind", "_opens", "_piece", "_roster", "_taken", "_used",
        "_waiting", "_waiting_house", "_waiting_wh",
    )  # fmt: skip

    def __init__(self, opens: int, roster: Roster) -> None:
        self._opens, self._roster, houses = opens, roster, roster.houses
        self._begun = np.zeros(-(-houses // 8), np.uint8)
        self._kind, self._cell = np.zeros(houses, np.uint8), np.zeros(houses, np.int64)
        self._piece, self._taken = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        self._waiting_house = np.zeros(houses, np.int32)
        self._waiting_wh = np.zeros(houses, np.int64)
        self._used = self._waiting = 0  # places of `_piece`, whole readings that wait
        self._before = (0, 0)  # both, before the last `merge`

    def reuse(self, opens: int) -> None:
        """Become the empty memory of another interval: allocated pages need no zeroing."""
        self._opens = opens
        self._begun.fill(0)
        if self._used:
            self._kind.fill(0)
        self._used = self._waiting = 0

    def merge(self, share: Share) -> Columns:
        """Write into the share's codes which readings are accepted; keep those and return them."""
        self._before = self._used, self._waiting
        accepted = share.columns
        if self._set_codes(share):
            accepted = share.columns.at(share.codes == ACCEPTED)
        self._queue(accepted, share.uniform)
        repeated = np.flatnonzero(share.codes == REPEATED) if accepted is not share.columns else ()
        if len(repeated):
            self._apply_waiting()
            same = self._cell[share.columns.house[repeated]] == share.columns.wh[repeated]
            share.codes[repeated] = np.where(same, DUPLICATE, CONFLICTING)
        return accepted

    def _set_codes(self, share: Share) -> int:
        """Set codes; the number of readings that are not accepted."""
        house, codes = share.columns.house, share.codes
        if share.uniform and share.columns.duration[0] == self._roster.interval:
            return int(merge_whole_readings(house, codes, self._begun, self._kind))
        begin, end, refused = 0, share.codes.size, 0
        while True:
            begin, self._used, more = merge_readings(
                *share.columns, share.codes, self._opens, self._roster.divisors,
                self._begun, self._kind, self._cell, self._piece, self._taken, self._used, begin,
            )  # fmt: skip
            refused += int(more)
            if begin == end:
                return refused
            self._grow(self._roster.interval // int(share.columns.duration[begin]))

    def _queue(self, accepted: Columns, uniform: bool) -> None:
        house, _, duration, wh = accepted
        if not uniform:
            whole = duration == self._roster.interval
            house, wh = house[whole], wh[whole]
        elif house.size and duration[0] != self._roster.interval:
            return
        begin, end = self._waiting, self._waiting + house.size
        self._waiting_house[begin:end], self._waiting_wh[begin:end] = house, wh
        self._waiting = end

    def _apply_waiting(self) -> None:
        self._cell[self._waiting_house[: self._waiting]] = self._waiting_wh[: self._waiting]
        self._waiting = 0

    def forget(self, share: Share) -> None:
        """Undo the last `merge`."""
        house, start, duration, _ = share.columns
        self._used, waiting = self._before
        self._waiting = min(self._waiting, waiting)  # 0 when they were asked for meanwhile
        forget(
            house, start, duration, share.codes, self._opens, self._roster.interval,
            self._begun, self._kind, self._cell, self._taken, self._used,
        )  # fmt: skip

    def load(self, columns: Columns) -> bool:
        """Take readings from a store; False when some cannot have been accepted."""
        codes, shares, _ = sort(columns, RosterEpoch(self._roster))
        if len(shares) != 1 or shares[0].opens != self._opens:
            return not codes.size
        self.merge(shares[0])
        return bool((codes == ACCEPTED).all())

    def __bool__(self) -> bool:
        """Whether there is any reading."""
        return bool(self._begun.any())

    def interval(self) -> Interval:
        """The readings, added up."""
        self._apply_waiting()
        houses = self._roster.houses
        wh, present = np.empty(houses, np.int64), np.empty(houses, np.bool_)
        gather(
            self._roster.divisors, self._begun, self._kind, self._cell, self._piece, self._taken,
            wh, present,
        )  # fmt: skip
        wh.flags.writeable = present.flags.writeable = False
        return Interval(wh, present)

    def _grow(self, least: int) -> None:
        used = self._used
        size = max(2 * self._piece.size, used + least, 1024)
        piece, taken = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        piece[:used], taken[:used] = self._piece[:used], self._taken[:used]
        self._piece, self._taken = piece, taken


# ---- the log of one interval

MAGIC = b"hushgrid-meters/2\n"
_HEAD = struct.Struct("<18s8sqii32s")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<8sQQ")  # then its CRC
_PAYLOAD = struct.Struct("<Qqi4x")
HEAD_SIZE = _HEAD.size + _CRC.size
FRAME_SIZE = _FRAME.size + _CRC.size
_TYPES = {"house": "<i4", "start": "<i8", "duration": "<i4", "wh": "<i8"}


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Header of a log.

    Attributes:
        salt: 8 random bytes.
        start: Start of the interval [epoch s].
        roster: The zone's roster.
    """

    salt: bytes
    start: int
    roster: Roster

    def pack(self) -> bytes:
        """The header as bytes at the beginning of the file."""
        roster = self.roster
        digest = bytes.fromhex(roster.digest)
        head = _HEAD.pack(MAGIC, self.salt, self.start, roster.interval, roster.houses, digest)
        return head + _CRC.pack(zlib.crc32(head))


def frame(salt: bytes, offset: int, columns: Columns, uniform: bool) -> list[Any]:
    """Encode readings as a frame.

    Args:
        salt: The log's salt.
        offset: Where the frame begins in the file [bytes].
        columns: The readings.
        uniform: Whether all have the same start and duration.

    Returns:
        Buffers to be written in order.
    """
    start, duration = (int(columns.start[0]), int(columns.duration[0])) if uniform else (-1, 0)
    payload: list[Any] = [_PAYLOAD.pack(columns.house.size, start, duration)]
    payload += [columns.house, columns.wh] if uniform else columns
    length = sum(memoryview(part).nbytes for part in payload)
    head = _FRAME.pack(salt, length, _digest(payload))
    return [head + _CRC.pack(_frame_crc(head, offset)), *payload]


def _digest(parts: Iterable[Any]) -> int:
    found = np.uint64(0)
    for part in parts:
        raw = np.frombuffer(part, np.uint8)
        whole = raw.size & ~7
        words = raw[:whole].view(np.uint64)
        if not words.flags.aligned:
            words = words.copy()
        found = np.uint64(xxh64(words, raw[whole:], found))
    return int(found)


def _frame_crc(head: bytes, offset: int) -> int:
    return zlib.crc32(offset.to_bytes(8, "little"), zlib.crc32(head))


class LogReader:
    """A log on disk.

    Args:
        path: The file.
        data: Its content.
        head: Its header.

    Attributes:
        head: The header.
        end: Where the last whole frame ends, once all frames are read [bytes].
    """

    def __init__(self, path: Path, data: mmap.mmap, head: LogHeader) -> None:
        self._path, self._data, self.head = path, data, head
        self.end = HEAD_SIZE

    @classmethod
    def open(cls, path: Path) -> LogReader | None:
        """Open a log; None when its header is incomplete, so that nothing was ever accepted."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEAD_SIZE:
                return None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head = _head(data, path)
        return None if head is None else cls(path, data, head)

    @property
    def torn(self) -> int:
        """Bytes after the last whole frame, once all frames are read."""
        return len(self._data) - self.end

    def frames(self) -> Iterator[Columns]:
        """The readings of each whole frame. A torn frame at the end is left out."""
        data = self._data
        while self.end < len(data):
            found = _frame_at(data, self.end, self.head.salt)
            if found is None:
                if _frame_behind(data, self.end, self.head.salt):
                    raise damaged(self._path, self.end)
                return
            length, digest = found
            begin, end = self.end + FRAME_SIZE, self.end + FRAME_SIZE + length
            columns = _columns(memoryview(data)[begin:end], length, digest)
            if columns is None:
                if end < len(data):
                    raise damaged(self._path, self.end)
                return
            yield columns
            self.end = end


def damaged(path: Path, offset: int) -> MeterError:
    """The error for a damaged log.

    Args:
        path: The file.
        offset: Where the damage begins [bytes].

    Returns:
        The error, to be raised.
    """
    return MeterError(f"meter log {path} is damaged at byte {offset}; restore it from a copy.")


def _head(data: mmap.mmap, path: Path) -> LogHeader | None:
    raw = data[: _HEAD.size]
    magic, salt, start, interval, houses, digest = _HEAD.unpack(raw)
    if magic == MAGIC and data[_HEAD.size : HEAD_SIZE] == _CRC.pack(zlib.crc32(raw)):
        return LogHeader(salt, start, Roster(houses, interval, digest.hex()))
    if len(data) > HEAD_SIZE:
        raise damaged(path, 0)
    return None


def _frame_at(data: mmap.mmap, offset: int, salt: bytes) -> tuple[int, int] | None:
    """(length, digest of the payload) of a valid frame head at `offset`; None: there is none."""
    raw = data[offset : offset + FRAME_SIZE]
    if len(raw) < FRAME_SIZE:
        return None
    if raw[_FRAME.size :] != _CRC.pack(_frame_crc(raw[: _FRAME.size], offset)):
        return None
    found, length, digest = _FRAME.unpack(raw[: _FRAME.size])
    return (length, digest) if found == salt else None


def _frame_behind(data: mmap.mmap, offset: int, salt: bytes) -> bool:
    """Whether another frame begins somewhere after a bad one."""
    while (offset := data.find(salt, offset + 1)) >= 0:
        if _frame_at(data, offset, salt) is not None:
            return True
    return False


def _columns(payload: memoryview, length: int, digest: int) -> Columns | None:
    """The columns of a payload; None when it is not the one that was written."""
    if len(payload) != length or length < _PAYLOAD.size:
        return None
    count, start, duration = _PAYLOAD.unpack_from(payload)
    names = ("house", "wh") if start >= 0 else tuple(_TYPES)
    if len(payload) != _PAYLOAD.size + count * sum(np.dtype(_TYPES[n]).itemsize for n in names):
        return None
    found, at = {}, _PAYLOAD.size
    for name in names:
        column = np.frombuffer(payload, _TYPES[name], count, at)
        found[name] = np.require(column, requirements="A")  # compiled loops want them aligned
        at += column.nbytes
    if _digest([payload[: _PAYLOAD.size], *found.values()]) != digest:
        return None
    if start >= 0:
        found["start"] = np.full(count, start, np.int64)
        found["duration"] = np.full(count, duration, np.int32)
    return Columns(**found)


# ---- the files of one zone

FORMAT = "hushgrid-meter-zone/1"
_LOG = re.compile(r"(\d+)\.log")
_MOST_FILES = 16  # kept open at a time, per zone

_logger = logging.getLogger(__name__)


class ZoneFolder:
    """The files of a zone. Not safe for threads: one writer at a time.

    Args:
        root: The store's folder.
        zone: The zone.
    """

    def __init__(self, root: Path, zone: str) -> None:
        self._zone = zone
        self._folder = root / f"zone-{quote(zone, safe='')}"
        self._writers: OrderedDict[int, Appender] = OrderedDict()
        self._broken = False

    # ---- the epoch

    def read_epoch(self) -> RosterEpoch | None:
        """The zone's epoch; None for a zone that was never opened."""
        path = self._folder / "zone.json"
        if not path.exists():
            if self._folder.is_dir() and self._starts():
                raise MeterError(f"meter file {path} is missing; restore it from a copy.")
            return None
        state = read_state(path)
        if state["format"] != FORMAT or state["zone"] != self._zone:
            raise MeterError(f"meter file {path} is not about zone {self._zone!r}; move it away.")
        roster = Roster(state["houses"], state["interval"], state["roster"])
        return RosterEpoch(roster, state["closed_end"], state["floor"])

    def write_epoch(self, epoch: RosterEpoch) -> None:
        """Make an epoch durable."""
        self.check_sound()
        state = {
            "format": FORMAT,
            "zone": self._zone,
            "houses": epoch.roster.houses,
            "interval": epoch.roster.interval,
            "roster": epoch.roster.digest,
            "closed_end": epoch.closed_end,
            "floor": epoch.floor,
        }
        try:
            make_folder(self._folder)
            write_state(self._folder / "zone.json", state)
        except OSError as error:
            raise _unavailable(self._folder, error) from error

    # ---- readings

    def append(self, shares: Sequence[tuple[int, Columns, bool]], roster: Roster) -> None:
        """Make readings durable: (interval, readings, whether uniform) of each. All or none."""
        self.check_sound()
        done: list[tuple[int, int]] = []
        opens = -1
        try:
            for opens, columns, uniform in shares:
                writer = self._writer(opens, roster)
                end = writer.end
                writer.append(frame(writer.salt, end, columns, uniform))
                done.append((opens, end))
        except NotCut as error:
            self.distrust()
            raise _unavailable(self._path(opens), error.__cause__) from error
        except BaseException as error:
            self._undo(done, roster)
            if isinstance(error, OSError):
                raise _unavailable(self._path(opens), error) from error
            raise

    def _undo(self, done: Sequence[tuple[int, int]], roster: Roster) -> None:
        try:
            for opens, end in done:
                self._writer(opens, roster).cut(end)
        except (NotCut, OSError):
            self.distrust()

    def distrust(self) -> None:
        """Refuse everything until the store is reopened: memory and disk may differ."""
        self._broken = True

    def check_sound(self) -> None:
        """Refuse where memory and disk may differ."""
        if self._broken:
            raise MeterError(f"meter store {self._folder} failed halfway; shut and open it again.")

    def _writer(self, opens: int, roster: Roster) -> Appender:
        writer = self._writers.get(opens)
        if writer is None:
            writer = self._writers[opens] = self._open_log(opens, roster)
            if len(self._writers) > _MOST_FILES:
                self._writers.popitem(last=False)[1].release()
        else:
            self._writers.move_to_end(opens)
        return writer

    def _open_log(self, opens: int, roster: Roster) -> Appender:
        path = self._path(opens)
        reader = LogReader.open(path) if path.exists() else None
        if reader is None:
            salt = os.urandom(8)
            return Appender.create(path, salt, LogHeader(salt, opens, roster).pack())
        self._check_head(reader.head, opens, roster)
        return Appender.resume(path, reader.head.salt, path.stat().st_size)

    def load(self, opens: int, roster: Roster) -> IntervalMemory | None:
        """An open interval from its log; None when it holds no readings.

        A torn end is cut off and logged.
        """
        path = self._path(opens)
        try:
            memory, reader = self._read(opens, roster)
            if reader is None or not memory:
                path.unlink()
                return None
            if reader.torn:
                self._cut(path, reader)
        except OSError as error:
            raise _unavailable(path, error) from error
        return memory

    def _cut(self, path: Path, reader: LogReader) -> None:
        reason = f"{reader.torn} bytes behind byte {reader.end}"
        _logger.warning("torn end cut", extra={"zone": self._zone, "reason": reason})
        with path.open("r+b") as file:
            file.truncate(reader.end)
            os.fsync(file.fileno())

    def load_closed(self, opens: int, roster: Roster) -> IntervalMemory:
        """A closed interval. It was whole when it was closed, so anything torn is damage."""
        path = self._path(opens)
        if not path.exists():
            return IntervalMemory(opens, roster)
        memory, reader = self._read(opens, roster)
        if reader is None or reader.torn:
            raise damaged(path, 0 if reader is None else reader.end)
        return memory

    def _read(self, opens: int, roster: Roster) -> tuple[IntervalMemory, LogReader | None]:
        memory = IntervalMemory(opens, roster)
        reader = LogReader.open(self._path(opens))
        if reader is not None:
            self._check_head(reader.head, opens, roster)
            for columns in reader.frames():
                if not memory.load(columns):
                    raise damaged(self._path(opens), reader.end)
        return memory, reader

    def _check_head(self, head: LogHeader, opens: int, roster: Roster) -> None:
        if head.start != opens or head.roster != roster:
            raise MeterError(
                f"meter log {self._path(opens)} is of another interval or roster; move it away."
            )

    def starts_from(self, start: int) -> list[int]:
        """Intervals with a log that begin at `start` [epoch s] or later, in order."""
        return sorted(found for found in self._starts() if found >= start)

    def release_to(self, opens: int) -> None:
        """Close the files of intervals up to one that accepts no more readings."""
        for old in [found for found in self._writers if found <= opens]:
            self._writers.pop(old).release()

    def remove_before(self, floor: int) -> int:
        """Delete the logs of intervals that begin before `floor` [epoch s], durably; how many."""
        return self._remove([found for found in self._starts() if found < floor])

    def remove_from(self, start: int) -> None:
        """Delete the logs of open intervals, which hold no readings."""
        self.release()
        self._remove(self.starts_from(start))

    def _remove(self, old: Sequence[int]) -> int:
        try:
            for opens in old:
                self._path(opens).unlink()
            if old:
                sync_folder(self._folder)
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        return len(old)

    def release(self) -> None:
        """Close all files."""
        while self._writers:
            self._writers.popitem()[1].release()

    def _starts(self) -> list[int]:
        found = (_LOG.fullmatch(entry.name) for entry in os.scandir(self._folder))
        return [int(match[1]) for match in found if match]

    def _path(self, opens: int) -> Path:
        return self._folder / f"{opens}.log"


def _unavailable(path: Path, error: BaseException | None) -> MeterRetryError:
    why = error.strerror if isinstance(error, OSError) else error
    return MeterRetryError(
        f"meter store cannot write {path} ({why}); nothing was accepted,"
        " make it writable or make room and send again."
    )


# ---- the store

MOST_OPEN = 1000  # intervals of a zone that may be open at a time


class SegmentMeters(MeterStore):
    """Meter store in a folder. See `MeterStore` for each method.

    Args:
        folder: The folder; created where it is absent.
    """

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
        with self._lock:
            self._check_open()
            found = self._zones.get(zone)
            epoch = found.epoch if found else ZoneFolder(self._root, zone).read_epoch()
        return None if epoch is None else epoch.last_closed

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

    A writer holds `_writing`, also while it waits for the disk, and so does a reader of an open
    interval: it sees only what is durable.
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
        merged: list[Share] = []
        try:
            kept = [
                (share.opens, self._merge(share, merged), share.uniform) for share in batch.shares
            ]
            self._folder.append([each for each in kept if each[1].house.size], self.epoch.roster)
        except MeterError:
            for share in merged:
                self._forget(share)
            raise
        except BaseException:  # no memory, Ctrl-C: how much is done is unknown
            self._folder.distrust()
            raise
        return batch.gather_codes()

    def _merge(self, share: Share, merged: list[Share]) -> Columns:
        """The readings of a share that are to be stored."""
        memory = self._memories.get(share.opens)
        if memory is None:
            if len(self._memories) >= MOST_OPEN:
                share.codes[share.codes == ACCEPTED] = MALFORMED
                return share.columns.at(share.codes == ACCEPTED)
            memory = self._memories[share.opens] = self._fresh(share.opens)
        merged.append(share)
        return memory.merge(share)

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
        """Make an epoch durable, then use it; older intervals leave memory."""
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
