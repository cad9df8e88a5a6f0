"""Writes a meter folder as earlier versions did; see `hushgrid.service.meters._earlier`."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from urllib.parse import quote

import numpy as np

from hushgrid.service.meters._earlier import xxh64
from hushgrid.service.meters.columns import Columns, RosterEpoch

SALT = b"saltsalt"
HEAD_SIZE = 78


def sealed(head: bytes, more: bytes = b"") -> bytes:
    return head + struct.pack("<I", zlib.crc32(more, zlib.crc32(head)))


def frame(offset: int, columns: Columns) -> bytes:
    """The bytes of a batch that begins at `offset` of the file."""
    house, start, duration, wh = columns
    same = len(np.unique(start)) == len(np.unique(duration)) == 1
    of_all = (int(start[0]), int(duration[0])) if same else (-1, 0)
    parts = [struct.pack("<Qqi4x", house.size, *of_all)]
    parts += [column.tobytes() for column in ([house, wh] if same else columns)]
    digest = reduce(lambda seed, part: xxh64(part, seed), parts, 0)
    head = struct.pack("<8sQQ", SALT, sum(map(len, parts)), digest)
    return sealed(head, offset.to_bytes(8, "little")) + b"".join(parts)


def write_zone(
    folder: Path, zone: str, epoch: RosterEpoch, logs: Mapping[int, Sequence[Columns]]
) -> Path:
    """A zone with the batches of its intervals; where its files are."""
    roster, path = epoch.roster, folder / f"zone-{quote(zone, safe='')}"
    path.mkdir(parents=True)
    (folder / "lock").touch()
    state = {
        "format": "hushgrid-meter-zone/1", "zone": zone, "houses": roster.houses,
        "interval": roster.interval, "roster": roster.digest, "closed_end": epoch.closed_end,
        "floor": epoch.floor,
    }  # fmt: skip
    crc = zlib.crc32(json.dumps(state, sort_keys=True).encode())
    (path / "zone.json").write_text(json.dumps({**state, "crc": crc}, indent=1) + "\n")
    for opens, batches in logs.items():
        head = struct.pack(
            "<18s8sqii32s", b"hushgrid-meters/2\n", SALT, opens, roster.interval, roster.houses,
            bytes.fromhex(roster.digest),
        )  # fmt: skip
        data = sealed(head)
        for batch in batches:
            data += frame(len(data), batch)
        (path / f"{opens}.log").write_bytes(data)
    return path
