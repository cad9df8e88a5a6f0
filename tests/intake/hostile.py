"""Parquet that is not what it says."""

from __future__ import annotations

import struct

from tests.intake.renderings import Row, as_parquet

ROWS: list[Row] = [("a", 900 * i, 900, i % 7) for i in range(40)]


HISTOGRAM = as_parquet(ROWS).replace(b"\x29\x06\x19\x26\x00\x50", b"\x29\x26\x00\x50\x19\x06")


NO_ENCODING = as_parquet(ROWS).replace(b"\x2c\x15\x50\x15", b"\x2c\x15\x50\x25")


_SCHEMA = b"\x15\x02\x19\xfc\x80\x89\x7a" + bytes(10)  # claims 2 million elements


CLAIM = b"PAR1" + _SCHEMA + struct.pack("<I", len(_SCHEMA)) + b"PAR1"
