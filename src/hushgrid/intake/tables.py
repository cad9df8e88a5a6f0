"""Record batches of Arrow to readings, by a mapping of their columns.

Accepted types: text or integers for a meter id; timestamps of any unit, or text, for a time;
integers, whole floats or Arrow durations for a duration; integers, floats, decimals or text for a
value, rounded to whole Wh, halves to even. A timestamp with a zone is exact; one without is a local
time of the mapping's zone, UTC by default. A null is malformed. Batches of plain columns (no nulls,
ids of printable ASCII, exact timestamps, whole numbers) are read from their buffers; any other
batch, or one with a malformed row, takes the general path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid._kernels.ndjson import all_plain, all_within, bounded_plain, whole_seconds
from hushgrid._numbers import Bools, Ints
from hushgrid.errors import ExtraError, IntakeError
from hushgrid.intake.readings import (
    END,
    MAX_DURATION,
    MAX_ID,
    MAX_WH,
    Fault,
    Names,
    Parsed,
    RawColumns,
    Readings,
    check_rows,
    texts_of,
)
from hushgrid.intake.text import ColumnMapping, meter_codes, starts_of, values
from hushgrid.intake.times import Moment, TimeReader, local_instants, reader

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
    """Names and layout of the plain columns of a table.

    Attributes:
        meter: Column of meter ids.
        time: Column of times.
        duration: Column of durations.
        value: Column of values.
        offsets: Type of the offsets of the ids.
        unit: Ticks in a second.
        seconds: Type of the durations.
        wh: Type of the values.
    """

    meter: str
    time: str
    duration: str
    value: str
    offsets: np.dtype[Any]
    unit: int  # ticks in a second
    seconds: np.dtype[Any]
    wh: np.dtype[Any]


def plain(schema: pa.Schema, own: dict[str | None, str], by: ColumnMapping) -> PlainColumns | None:
    """Layout of a table whose columns are plain.

    Args:
        schema: Schema of the table.
        own: The table's name of each column of the mapping.
        by: The mapping.

    Returns:
        The layout; None where a column is not plain.
    """
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
    """Readings of a batch with plain columns.

    Args:
        batch: A record batch.
        how: Its layout.

    Returns:
        All rows; None where one is not plain or malformed.
    """
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
    return Readings.named(names, start=start, duration=duration.astype(np.int32, copy=False), wh=wh)


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


_SMALL = 1 << 12  # [bytes] schemas up to that are remembered


def arrow() -> Any:
    """Import pyarrow.

    Returns:
        The module `pyarrow`.

    Raises:
        ExtraError: If it is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise ExtraError(
            "Parquet and Arrow need pyarrow, which is not installed;"
            " install the extra hushgrid[intake]."
        ) from None
    return pa


def _checked(schema: pa.Schema, mapping: ColumnMapping) -> dict[str | None, str]:
    """The table's own name of each column of the mapping, its type checked."""
    accepted: tuple[tuple[str | None, Callable[[Any], bool], str], ...] = (
        (mapping.meter, lambda t: _is_text(t) or _is_integer(t), "text or integers"),
        (mapping.time, lambda t: arrow().types.is_timestamp(t) or _is_text(t), "timestamps"),
        (mapping.duration, _is_duration, "whole seconds"),
        (mapping.value, lambda t: _is_number(t) or _is_text(t), "numbers"),
    )
    own: dict[str | None, str] = {}
    for name, fits, wanted in accepted:
        if name is None:
            continue
        named = [field for field in schema if field.name.strip() == name.strip()]
        if len(named) != 1:
            raise IntakeError(
                f"table has the column {name!r} {len(named)} times;"
                " give a table of the mapping, or the mapping of the table."
            )
        if not fits(named[0].type):
            raise IntakeError(f"column {name!r} has type {named[0].type}; give {wanted}.")
        own[name] = named[0].name
    return own


def _known(
    schema: pa.Schema, mapping: ColumnMapping
) -> tuple[dict[str | None, str], PlainColumns | None]:
    """The names of `_checked`, and how to read such a table quickly.

    A sender's schema stays the same, and to look through one takes longer than a small batch.
    """
    raw = bytes(schema.serialize())
    return _remembered(raw, mapping) if len(raw) <= _SMALL else _looked_up(schema, mapping)


@lru_cache(maxsize=64)
def _remembered(
    raw: bytes, mapping: ColumnMapping
) -> tuple[dict[str | None, str], PlainColumns | None]:
    return _looked_up(arrow().ipc.read_schema(arrow().py_buffer(raw)), mapping)


def _looked_up(
    schema: pa.Schema, mapping: ColumnMapping
) -> tuple[dict[str | None, str], PlainColumns | None]:
    own = _checked(schema, mapping)
    return own, plain(schema, own, mapping)


def _is_text(kind: pa.DataType) -> bool:
    types = arrow().types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_integer(kind: pa.DataType) -> bool:
    return bool(arrow().types.is_integer(kind))


def _is_number(kind: pa.DataType) -> bool:
    types = arrow().types
    return bool(_is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_duration(kind: pa.DataType) -> bool:
    types = arrow().types
    return bool(_is_integer(kind) or types.is_floating(kind) or types.is_duration(kind))


class Table:
    """The batches of one table, in order.

    Args:
        schema: Schema of the table.
        mapping: Names and forms of its columns.
    """

    def __init__(self, schema: pa.Schema, mapping: ColumnMapping) -> None:
        self._mapping, self._row = mapping, 1
        self._own, self._plain = _known(schema, mapping)
        instants = local_instants(mapping.time_zone)
        self._texts: TimeReader[str] = TimeReader(reader(mapping.time_format), instants)
        self._walls: TimeReader[int] = TimeReader(lambda wall: Moment(wall, None), instants)

    @property
    def names(self) -> list[str]:
        """The columns that are read, by the table's names."""
        return list(self._own.values())

    def parsed(self, batch: pa.RecordBatch) -> Parsed:
        """Readings of the next batch; offsets and text are checked before use."""
        found = readings(batch, self._plain) if self._plain else None
        if found is None:
            return self._checked(batch)
        self._row += batch.num_rows
        return Parsed(found, 0, ())

    def _checked(self, batch: pa.RecordBatch) -> Parsed:
        """As `parsed`, for any columns and rows."""
        batch = batch.select(self.names)
        batch.validate(full=True)
        by, own, n = self._mapping, self._own, batch.num_rows
        number = np.arange(self._row, self._row + n)
        self._row += n
        ids: list[str] | Names
        if by.meter_id is not None:
            ids, code = [by.meter_id], np.zeros(n, np.int64)
        else:
            ids, code = _meters(batch.column(own[by.meter]))
        duration = (
            np.full(n, by.duration_s, np.int64)
            if by.duration_s is not None
            else _seconds(batch.column(own[by.duration]))
        )
        marked = self._instants(batch.column(own[by.time]), ids, code)
        wh = _watt_hours(batch.column(own[by.value]), by, duration)
        start = starts_of(marked, duration, by.marks)
        return check_rows("row", number, RawColumns(ids, code, start, duration, wh))

    def _instants(self, column: pa.Array, ids: list[str] | Names, code: Ints) -> Ints:
        if _is_text(column.type):
            return self._texts.instants(_texts(column), texts_of(ids), code)
        ticks, null = _filled(column.cast(arrow().int64()))
        unit = _UNITS[column.type.unit]
        wall = np.clip(ticks // unit, -(2**62), 2**62)  # no fault by accident
        local = column.type.tz is None and self._mapping.time_zone != "UTC"
        start = self._walls.instants(wall.tolist(), texts_of(ids), code) if local else wall
        start[ticks % unit != 0] = Fault.TIME_SECOND
        start[null] = Fault.TIME_MISSING
        return start


def _filled(column: pa.Array) -> tuple[NDArray[Any], Bools]:
    """The numbers of a column, 0 for a null, and where its nulls are."""
    null = column.is_null().to_numpy(zero_copy_only=False)
    if column.null_count:
        column = column.fill_null(0)
    return np.array(column.to_numpy(zero_copy_only=False)), null


def _texts(column: pa.Array) -> list[str]:
    return [item or "" for item in column.cast(arrow().large_string()).to_pylist()]


def _meters(column: pa.Array) -> tuple[list[str] | Names, Ints]:
    """As `meter_codes`; as bytes where nothing has to be cleaned, else by way of distinct ids."""
    pa = arrow()
    names = _stored_names(column)
    if names is not None and all_plain(names.data, names.begin, names.end, MAX_ID):
        different, places = names.numbered()
        return different, places.astype(np.int64)
    coded = column.cast(pa.large_string()).dictionary_encode()
    ids, code_of = meter_codes(coded.dictionary.to_pylist())
    place, null = _filled(coded.indices)
    code = code_of[place] if len(code_of) else np.zeros(len(place), np.int64)
    code[null] = Fault.METER
    return ids, code


def _stored_names(column: pa.Array) -> Names | None:
    """The texts as they lie in memory; None where some are missing or coded."""
    if column.null_count or arrow().types.is_dictionary(column.type):
        return None
    column = column.cast(arrow().large_string())
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return None
    end = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return Names(np.frombuffer(data, np.uint8), end[:-1], end[1:])


def _seconds(column: pa.Array) -> Ints:
    unit = 1
    if arrow().types.is_duration(column.type):
        unit = _UNITS[column.type.unit]
        column = column.cast(arrow().int64())
    found, null = _filled(column)
    seconds = _wholes(found, MAX_DURATION * unit, Fault.DURATION, Fault.DURATION)
    seconds = np.where(seconds % unit == 0, seconds // unit, Fault.DURATION)
    seconds[null] = Fault.DURATION
    return seconds


def _watt_hours(column: pa.Array, by: ColumnMapping, duration: Ints) -> Ints:
    if _is_text(column.type):
        return values(_texts(column), by.unit, duration)
    if arrow().types.is_decimal(column.type):
        return values(_texts(column), by.unit, duration, longest=None)
    found, null = _filled(column)
    if by.unit == "wh":
        if found.dtype.kind == "f":
            found = np.rint(found)  # halves to even
        wh = _wholes(found, MAX_WH, Fault.VALUE_SIZE, Fault.VALUE)
    else:  # the shortest decimal of a float is the number that was meant
        distinct, back = np.unique(found, return_inverse=True)
        texts = [np.format_float_scientific(x, trim="-") for x in distinct]
        wh = values([texts[i] for i in back], by.unit, duration)
    wh[null] = Fault.VALUE_MISSING
    return wh


def _wholes(found: NDArray[Any], most: int, beyond: Fault, unusable: Fault) -> Ints:
    """Whole numbers up to `most` either way; a float must be one already."""
    finite = np.isfinite(found)
    within = finite & (found >= -most) & (found <= most)
    wholes = np.where(within, found, 0).astype(np.int64)
    wholes[finite & ~within] = beyond
    wholes[~finite | (within & (wholes != found))] = unusable
    return wholes
