"""The log of one interval: a head, then frames that hold accepted readings.

    head     "hushgrid-meters/2", salt (8 random bytes), start, interval [s], houses, roster digest,
             CRC-32
    frame    salt, length of the payload, its XXH64 (of its head, which is the seed for that of the
             first column, and so on), CRC-32 of this frame head and its offset in the file; then
             the payload
    payload  number of readings, start and duration [s] if all have the same (else -1, 0), then the
             columns house (int32), start (int64) and duration (int32) if they differ, Wh (int64)

All little-endian. A frame is synced before the next one is written, so only the last one can be
torn. A bad frame with another one behind it is damage, and nobody may guess what it held. The salt
keeps readings from looking like frames.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.errors import MeterError
from hushgrid.kernels.digest import xxh64
from hushgrid.live.meters.batch import Columns
from hushgrid.live.meters.roster import Roster

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
    """What a log is about."""

    salt: bytes
    start: int
    roster: Roster

    def pack(self) -> bytes:
        """As it stands at the beginning of the file."""
        roster = self.roster
        digest = bytes.fromhex(roster.digest)
        head = _HEAD.pack(MAGIC, self.salt, self.start, roster.interval, roster.houses, digest)
        return head + _CRC.pack(zlib.crc32(head))


def frame(salt: bytes, offset: int, columns: Columns, alike: bool) -> list[Any]:
    """Buffers of a frame that will stand at `offset`; `alike`: one start and duration for all."""
    start, duration = (int(columns.start[0]), int(columns.duration[0])) if alike else (-1, 0)
    payload: list[Any] = [_PAYLOAD.pack(columns.house.size, start, duration)]
    payload += [columns.house, columns.wh] if alike else columns
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
    """A log as it lies on disk: its head, its readings frame by frame, where the good part ends."""

    def __init__(self, path: Path, data: mmap.mmap, head: LogHeader) -> None:
        self._path, self._data, self.head = path, data, head
        self.end = HEAD_SIZE

    @classmethod
    def open(cls, path: Path) -> LogReader | None:
        """None when not even the head is whole, so that nothing was ever accepted."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < HEAD_SIZE:
                return None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        head = _head(data, path)
        return None if head is None else cls(path, data, head)

    @property
    def torn(self) -> int:
        """Bytes behind the last whole frame, once all frames are read."""
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
    """The error for a log that nobody may guess about."""
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
    """(length, digest of the payload) when a good frame head stands there."""
    raw = data[offset : offset + FRAME_SIZE]
    if len(raw) < FRAME_SIZE:
        return None
    if raw[_FRAME.size :] != _CRC.pack(_frame_crc(raw[: _FRAME.size], offset)):
        return None
    found, length, digest = _FRAME.unpack(raw[: _FRAME.size])
    return (length, digest) if found == salt else None


def _frame_behind(data: mmap.mmap, offset: int, salt: bytes) -> bool:
    """Whether another frame begins somewhere behind a bad one."""
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
