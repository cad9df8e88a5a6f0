"""Record batches of plain columns, read where they lie in memory.

Plain is what most senders write: no nulls, ids of printable ASCII, timestamps that are exact, whole
numbers. Whatever is not, be it one row, is left to `tables.py`, which knows every case and says
what is wrong; so this file never judges, it only answers or does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Ints
from hushgrid.intake.mapping import ColumnMapping
from hushgrid.intake.names import Names
from hushgrid.intake.readings import END, MAX_DURATION, MAX_ID, MAX_WH, Readings
from hushgrid.kernels.plain import all_within, bounded_plain, whole_seconds

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSETS: dict[str, np.dtype[Any]] = {"string": np.dtype("<i4"), "large_string": np.dtype("<i8")}
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TICKS = np.dtype("<i8")
_NUMBERS: dict[str, np.dtype[Any]] = {
    kind: np.dtype(kind)
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
}  # uint64 reaches beyond int64


class PlainColumns(NamedTuple):
    """Where the plain columns of a table are, and how they are laid out."""

    meter: str
    time: str
    duration: str
    value: str
    offsets: np.dtype[Any]
    unit: int  # ticks in a second
    seconds: np.dtype[Any]
    wh: np.dtype[Any]


def plain(schema: pa.Schema, own: dict[str | None, str], by: ColumnMapping) -> PlainColumns | None:
    """How to read a table quickly, its columns named by `own`; None where that cannot be."""
    if by.meter is None or by.duration is None or by.unit != "wh" or by.marks != "start":
        return None
    names = own[by.meter], own[by.time], own[by.duration], own[by.value]
    meter, time, duration, value = (schema.field(name).type for name in names)
    unit = _UNITS.get(getattr(time, "unit", ""))
    exact = by.time_zone == "UTC" or getattr(time, "tz", None) is not None
    offsets = _OFFSETS.get(str(meter))
    seconds, wh = _NUMBERS.get(str(duration)), _NUMBERS.get(str(value))
    if unit is None or not exact or offsets is None or seconds is None or wh is None:
        return None
    return PlainColumns(*names, offsets, unit, seconds, wh)


def readings(batch: pa.RecordBatch, how: PlainColumns) -> Readings | None:
    """All rows of a batch; None where one is not plain, or not good."""
    n = batch.num_rows
    start = _numbers(batch.column(how.time), n, _TICKS)
    duration = _numbers(batch.column(how.duration), n, how.seconds)
    wh = _numbers(batch.column(how.value), n, how.wh)
    if start is None or duration is None or wh is None:
        return None
    if how.unit != 1:
        ticks, start = start, np.empty(n, np.int64)
        if not whole_seconds(ticks, how.unit, start):
            return None
    if duration.dtype != np.int32:
        duration = duration.astype(np.int64, copy=False)
    wh = wh.astype(np.int64, copy=False)
    if not all_within(start, duration, wh, END, MAX_DURATION, MAX_WH):
        return None
    names = _names(batch.column(how.meter), n, how.offsets)
    if names is None:
        return None
    return Readings.told(names, start=start, duration=duration.astype(np.int32, copy=False), wh=wh)


def _numbers(column: pa.Array, n: int, kind: np.dtype[Any]) -> NDArray[Any] | None:
    """The numbers in the buffer of a column; None where some are missing."""
    valid, data = column.buffers()
    if n < 1 or len(column) != n or valid is not None or column.null_count:
        return None
    return _at(data, kind, n, column.offset)


def _at(data: pa.Buffer | None, kind: np.dtype[Any], n: int, first: int) -> NDArray[Any] | None:
    """`n` numbers from number `first` on; None where the buffer is too short, or lies oddly."""
    if data is None or data.size < (first + n) * kind.itemsize:
        return None
    found = np.frombuffer(data, kind, n, first * kind.itemsize)
    return found if found.flags.aligned else None


def _names(column: pa.Array, n: int, kind: np.dtype[Any]) -> Names | None:
    """The ids of a column of text; None where one is not plain."""
    valid, raw, texts = column.buffers()
    if len(column) != n or valid is not None or column.null_count or texts is None:
        return None
    offsets = _at(raw, kind, n + 1, column.offset)
    if offsets is None:
        return None
    data = np.frombuffer(texts, np.uint8)
    bounds: Ints = np.empty(n + 1, np.int64)
    if not bounded_plain(data, offsets, MAX_ID, bounds):
        return None
    return Names(data, bounds[:-1], bounds[1:])
