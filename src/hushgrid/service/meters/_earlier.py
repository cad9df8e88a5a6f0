"""Meter stores of earlier versions, converted once: a folder of logs, or a row for each reading.

A folder held `zone-ID/zone.json` (the epoch) and `zone-ID/START.log` for each interval with
readings. A log is a head, then frames of accepted readings, all little-endian:

    head     "hushgrid-meters/2", salt (8 bytes), start, interval [s], houses, roster digest, CRC-32
    frame    salt, length of the payload, its XXH64 (of its head, which is the seed for that of the
             first column, and so on), CRC-32 of this frame head and its offset in the file; then
             the payload
    payload  number of readings, start and duration [s] if all have the same (else -1, 0), then the
             columns house (int32), start (int64) and duration (int32) if they differ, Wh (int64)

A frame was synced before the next one was written, so only the last one can be torn, and only in
an open interval. Any other bad frame is damage.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    exists,
    inspect,
    select,
)

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.files.results import sync_folder
from hushgrid.service.database import Database
from hushgrid.service.meters.columns import Columns, Roster, RosterEpoch
from hushgrid.service.meters.tables import ADD_DELIVERY, DELIVERY, add_zone, find_zone

log = logging.getLogger(__name__)
Item = TypeVar("Item")

_MAGIC = b"hushgrid-meters/2\n"
_HEAD, _FRAME, _PAYLOAD = (struct.Struct(f"<{f}") for f in ("18s8sqii32sI", "8sQQI", "Qqi4x"))
_LOG = re.compile(r"(\d+)\.log")
_ROW = Table(
    "hushgrid_meter_reading",
    MetaData(),
    Column("zone", Integer),
    Column("span", BigInteger),
    Column("house", Integer),
    Column("start", BigInteger),
    Column("duration", Integer),
    Column("wh", BigInteger),
)


def _track(items: Sequence[Item]) -> Iterable[Item]:
    """With a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    silent = not items or not sys.stderr.isatty()
    console = Console(stderr=True)
    return track(items, "importing readings", console=console, disable=silent, transient=True)


def _store(link: Connection, key: int, opens: int, parts: Iterable[Columns]) -> None:
    for number, columns in enumerate(parts):
        values = {"zone": key, "opens": opens, "number": number, "readings": columns.pack()}
        link.execute(ADD_DELIVERY, values)


def convert_rows(database: Database) -> None:
    """Turn a table with a row for each reading into deliveries, whole or not at all.

    Args:
        database: The store's database.
    """
    if _ROW.name not in database.found():
        return
    with database.begin() as link:
        if database.path is None:  # as those who write to it do
            link.exec_driver_sql("LOCK TABLE hushgrid_meter_zone IN EXCLUSIVE MODE")
        if not inspect(link).has_table(_ROW.name):
            return
        spans = link.execute(select(_ROW.c.zone, _ROW.c.span).distinct()).all()
        for key, opens in _track(spans):
            columns = _ROW.c.house, _ROW.c.start, _ROW.c.duration, _ROW.c.wh
            query = select(*columns).where(_ROW.c.zone == key, _ROW.c.span == opens)
            parts = link.execute(query).partitions(1 << 16)
            _store(link, key, opens, (Columns.of(*zip(*part, strict=True)) for part in parts))
        _ROW.drop(link)
    log.warning("rows of readings became deliveries")


def import_folder(database: Database, folder: Path) -> None:
    """Import the zones of a folder, each log whole or not at all.

    What a stopped import has stored is left out when it is repeated. The old files are kept as
    `imported-zone-ID` until their readings are purged.

    Args:
        database: Where the readings go.
        folder: The folder.

    Raises:
        MeterError: A file is damaged.
    """
    zones = {path: read_epoch(path) for path in sorted(folder.glob("zone-*"))}
    keys = {}
    for path, (zone, epoch) in zones.items():
        with database.begin() as link:
            add_zone(link, zone, epoch)
            keys[path], _ = find_zone(link, zone) or (0, None)
    logs = [(path, opens) for path in zones for opens in _starts(path)]
    for path, opens in _track(logs):
        there = exists().where(DELIVERY.c.zone == keys[path], DELIVERY.c.opens == opens)
        with database.begin() as link:
            if opens >= zones[path][1].floor and not link.scalar(select(there)):
                _store(link, keys[path], opens, _deliveries(path, opens, *zones[path]))
    for path in zones:
        path.rename(path.with_name(f"imported-{path.name}"))
        log.warning(
            "zone imported; its files are kept as imported-* until they are purged",
            extra={"zone": zones[path][0]},
        )
    sync_folder(folder)


def remove_imported(folder: Path, zone: str, floor: int) -> None:
    """Delete the old files of an imported zone, as far as their readings are purged.

    Args:
        folder: The folder that was imported.
        zone: The zone.
        floor: Intervals that begin before it are purged [epoch s].

    Raises:
        MeterRetryError: They cannot be deleted.
    """
    old = folder / f"imported-zone-{quote(zone, safe='')}"
    if not old.is_dir():
        return
    try:
        for opens in _starts(old):
            if opens < floor:
                (old / f"{opens}.log").unlink()
        if not _starts(old):
            shutil.rmtree(old)
    except OSError as error:
        raise MeterRetryError(
            f"{old} holds purged readings and cannot be deleted ({error.strerror}); delete it."
        ) from None


def read_epoch(path: Path) -> tuple[str, RosterEpoch]:
    """Read the state of a zone.

    Args:
        path: The zone's folder.

    Returns:
        The zone and its epoch.

    Raises:
        MeterError: The state is missing or damaged.
    """
    file = path / "zone.json"
    if not file.exists():
        raise MeterError(f"meter file {file} is missing; restore it from a copy.")
    try:
        state: dict[str, Any] = json.loads(file.read_bytes())
        if state.pop("crc") == zlib.crc32(json.dumps(state, sort_keys=True).encode()):
            roster = Roster(state["houses"], state["interval"], state["roster"])
            return state["zone"], RosterEpoch(roster, state["closed_end"], state["floor"])
    except (ValueError, KeyError, AttributeError, TypeError):
        pass
    raise MeterError(f"meter file {file} is damaged; restore it from a copy.")


def _starts(path: Path) -> list[int]:
    """Starts of the intervals with a log [epoch s]."""
    found = (_LOG.fullmatch(each.name) for each in path.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _deliveries(path: Path, opens: int, zone: str, epoch: RosterEpoch) -> Iterator[Columns]:
    """The readings of each whole frame of a log. A torn end of an open interval is left out."""
    file, closed = path / f"{opens}.log", opens < epoch.closed_end
    data = file.read_bytes()
    if len(data) < _HEAD.size or (len(data) == _HEAD.size and not _sound(data, _HEAD, 0)):
        if closed:
            raise _damaged(file, 0)
        return  # nothing was ever accepted
    magic, salt, start, interval, houses, digest, _ = _HEAD.unpack_from(data)
    if magic != _MAGIC or not _sound(data, _HEAD, 0):
        raise _damaged(file, 0)
    if start != opens or Roster(houses, interval, digest.hex()) != epoch.roster:
        raise MeterError(f"meter log {file} is of another interval or roster; move it away.")
    at = _HEAD.size
    while at < len(data):
        length = _payload_size(data, at, salt)
        end = at + _FRAME.size + (length or 0)
        columns = None if length is None else _columns(data, at, end)
        if columns is None:
            behind = _frame_behind(data, at, salt) if length is None else end < len(data)
            if closed or behind:
                raise _damaged(file, at)
            reason = f"{len(data) - at} bytes behind byte {at}"
            log.warning("torn end left out", extra={"zone": zone, "reason": reason})
            return
        yield columns
        at = end


def _damaged(path: Path, offset: int) -> MeterError:
    return MeterError(
        f"meter log {path} is damaged at byte {offset}; restore it from a copy, or move it away."
    )


def _sound(data: bytes, head: struct.Struct, at: int, seed: bytes = b"") -> bool:
    """Whether a head ends with its checksum."""
    raw = data[at : at + head.size]
    return len(raw) == head.size and zlib.crc32(seed, zlib.crc32(raw[:-4])) == int.from_bytes(
        raw[-4:], "little"
    )


def _payload_size(data: bytes, at: int, salt: bytes) -> int | None:
    """The length that a valid frame head states; None: there is none."""
    if not _sound(data, _FRAME, at, at.to_bytes(8, "little")):
        return None
    found, length, _, _ = _FRAME.unpack_from(data, at)
    return int(length) if found == salt else None


def _frame_behind(data: bytes, at: int, salt: bytes) -> bool:
    """Whether another frame begins somewhere after a bad one."""
    while (at := data.find(salt, at + 1)) >= 0:
        if _payload_size(data, at, salt) is not None:
            return True
    return False


def _columns(data: bytes, at: int, end: int) -> Columns | None:
    """The readings of a frame; None when they are not what was written."""
    payload, (_, _, digest, _) = data[at + _FRAME.size : end], _FRAME.unpack_from(data, at)
    if end > len(data) or len(payload) < _PAYLOAD.size:
        return None
    count, start, duration = _PAYLOAD.unpack_from(payload)
    types = ("<i4", "<i8") if start >= 0 else ("<i4", "<i8", "<i4", "<i8")
    ends = np.cumsum([_PAYLOAD.size, *(count * int(dtype[2]) for dtype in types)]).tolist()
    if ends[-1] != len(payload):
        return None
    parts = [payload[begin:end] for begin, end in pairwise([0, *ends])]
    if reduce(lambda seed, part: xxh64(part, seed), parts, 0) != digest:
        return None
    columns = [np.frombuffer(p, dtype) for p, dtype in zip(parts[1:], types, strict=True)]
    if start >= 0:
        columns[1:1] = [np.full(count, start), np.full(count, duration, np.int32)]
    return Columns.of(*columns)


_P = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)  # fmt: skip
_M = 2**64 - 1


def _turned(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & _M


def _mixed(lane: int, word: int) -> int:
    x = lane + word * _P[1] & _M
    return (x << 31 | x >> 33) * _P[0] & _M


def xxh64(data: bytes, seed: int) -> int:
    """The XXH64 checksum (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

    Args:
        data: The bytes.
        seed: Seed of 64 bits.

    Returns:
        64 bits.
    """
    words = np.frombuffer(data, "<u8", len(data) // 8).tolist()
    h, k, tail = seed + _P[4], 0, data[8 * len(words) :]
    if len(data) >= 32:
        a, b, c, d = seed + _P[0] + _P[1], seed + _P[1], seed, seed - _P[0]
        for k in range(4, len(words) + 1, 4):
            a, b = _mixed(a, words[k - 4]), _mixed(b, words[k - 3])
            c, d = _mixed(c, words[k - 2]), _mixed(d, words[k - 1])
        h = _turned(a & _M, 1) + _turned(b & _M, 7) + _turned(c & _M, 12) + _turned(d & _M, 18)
        for lane in (a, b, c, d):
            h = ((h ^ _mixed(0, lane)) * _P[0] + _P[3]) & _M
    h += len(data)
    for word in words[k:]:
        h = _turned((h ^ _mixed(0, word)) & _M, 27) * _P[0] + _P[3]
    if len(tail) >= 4:
        h = _turned((h ^ int.from_bytes(tail[:4], "little") * _P[0]) & _M, 23) * _P[1] + _P[2]
        tail = tail[4:]
    for byte in tail:
        h = _turned((h ^ byte * _P[4]) & _M, 11) * _P[0]
    h &= _M
    h = (h ^ h >> 33) * _P[1] & _M
    h = (h ^ h >> 29) * _P[2] & _M
    return h ^ h >> 32
