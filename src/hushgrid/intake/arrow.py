"""Readings as Arrow IPC streams and as Parquet files, by a mapping of their columns.

Accepted types: text or integers for a meter id; timestamps of any unit, or text, for a time;
integers, whole floats or Arrow durations for a duration; integers, floats, decimals or text for a
value, rounded to whole Wh, halves to even. A timestamp with a zone is exact; one without is a local
time of the mapping's zone, UTC by default. A null is malformed, but 0 in a column that is added or
subtracted. Columns of `only` and `fed_in` are text or integers. The canonical columns are
`meter_id, start_utc, duration_s, wh`.

pyarrow allocates what the input claims, so the claims of a stream are checked before pyarrow sees
them. A message holds at most 64 MiB and is not compressed; texts that share their memory hold at
most 64 MiB when they do not. Those of a Parquet file are not checked: one from others belongs into
a process of its own, as in `hushgrid.files.apart`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Ints
from hushgrid.errors import ExtraError, IntakeError
from hushgrid.intake._times import TimeReader, local_instants, text_times
from hushgrid.intake.lines import ByteSource, open_bytes
from hushgrid.intake.readings import (
    MAX_DURATION,
    MAX_WH,
    Fault,
    Parsed,
    RawColumns,
    check_rows,
)
from hushgrid.intake.text import (
    CANONICAL,
    ColumnMapping,
    Format,
    clean_meters,
    perhaps,
    select_rows,
    starts_of,
    summed,
    values,
)

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT = 1 << 26  # [bytes]


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


# ---- Arrow IPC streams


def arrow_batches(source: ByteSource, mapping: ColumnMapping = CANONICAL) -> Iterator[Parsed]:
    """The readings of an Arrow IPC stream, one record batch at a time.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Names and forms of the columns.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the stream is damaged, compressed, or lacks a column of the mapping.
    """
    pa = arrow()
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        checked = _Checked(source)
        stream = pa.ipc.open_stream(pa.PythonFile(checked, "r"), options=options)
        table = Table(stream.schema, mapping)
        for batch in stream:
            yield table.parsed(batch)
        if checked.goes_on():
            raise IntakeError("input goes on after the end of its Arrow stream; give one stream.")
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, IntakeError):
            raise
        raise IntakeError(
            f"input is not a sound Arrow IPC stream ({type(error).__name__}); write it again."
        ) from None


class _Limited:
    """A file for pyarrow that refuses to read much at once."""

    closed = False

    def __init__(self, source: ByteSource) -> None:
        self._stream = open_bytes(source)

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LIMIT:
            raise IntakeError(
                "input is no Arrow IPC stream, or has a message beyond 64 MiB; write smaller record"
                " batches."
            )
        return self._stream.read(size)


class _Checked:
    """The messages of a stream as a file for pyarrow, each checked before it is decoded."""

    closed = False

    def __init__(self, source: ByteSource) -> None:
        self._source = arrow().PythonFile(_Limited(source), "r")
        self._message = arrow().BufferReader(b"")

    def read(self, size: int) -> bytes:
        """The next bytes of a message; pyarrow asks for none beyond it."""
        piece: bytes = self._message.read(size)
        if piece or not size:
            return piece
        try:
            message = arrow().ipc.read_message(self._source)
        except EOFError:
            return b""
        if _is_compressed(message):
            raise IntakeError("Arrow stream is compressed; write it uncompressed.")
        self._message = arrow().BufferReader(message.serialize())
        return bytes(self._message.read(size))

    def goes_on(self) -> bool:
        """Whether there are bytes after the end of the stream."""
        return bool(self._source.read(1))


def _is_compressed(message: pa.Message) -> bool:
    """Whether a message has BodyCompression (Message.fbs). pyarrow has no way to ask for it.

    A compressed buffer claims its length, and pyarrow allocates as much.
    """
    data = bytes(message.metadata)  # a sound flatbuffer: read_message has verified it
    batch = _field(data, _table(data, 0), 2)
    if message.type == "dictionary":
        batch = _field(data, _table(data, batch), 1)
    elif message.type != "record batch":
        return False
    return _field(data, _table(data, batch), 3) != 0


def _table(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Offset of a field of a flatbuffers table; 0 where the table lacks it."""
    fields = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, fields)
    if size < 6 + 2 * number:
        return 0
    (at,) = struct.unpack_from("<H", data, fields + 4 + 2 * number)
    return table + int(at) if at else 0


# ---- Parquet files

_ROWS = 1 << 17  # in a batch
_THRIFT = {"thrift_string_size_limit": LIMIT, "thrift_container_size_limit": 1 << 16}


def parquet_batches(
    source: bytes | BinaryIO, mapping: ColumnMapping = CANONICAL
) -> Iterator[Parsed]:
    """The readings of a Parquet file, some 100,000 rows at a time.

    Args:
        source: Its bytes, or an open file that can seek.
        mapping: Names and forms of the columns.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the file is damaged, or lacks a column of the mapping.
    """
    with _parquet_file(source) as file:
        table = Table(file.schema_arrow, mapping)
        for batch in file.iter_batches(_ROWS, columns=table.names, use_threads=False):
            yield table.parsed(batch)


def parquet_rows(source: bytes | BinaryIO) -> int:
    """How many rows a Parquet file has by its footer; none is read.

    Args:
        source: Its bytes, or an open file that can seek.

    Returns:
        The rows of all row groups: these are read, whatever the footer states as their sum.

    Raises:
        IntakeError: If the footer is damaged.
    """
    with _parquet_file(source) as file:
        footer = file.metadata
        return sum(footer.row_group(i).num_rows for i in range(footer.num_row_groups))


@contextmanager
def _parquet_file(source: bytes | BinaryIO) -> Iterator[Any]:
    """Open a Parquet file; errors of the block become one sentence."""
    pa = arrow()
    from pyarrow import parquet

    if isinstance(source, str) or not (isinstance(source, bytes) or hasattr(source, "seek")):
        raise IntakeError(f"source is a {type(source).__name__}; give bytes or an open file.")
    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    try:
        yield parquet.ParquetFile(file, **_THRIFT)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, IntakeError):
            raise
        raise IntakeError(
            f"input is not a sound Parquet file ({type(error).__name__}); give another copy."
        ) from None


# ---- record batches to readings

_DECIMAL = 100  # characters of a decimal; 76 digits, and zeros before them
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _is_text(kind: pa.DataType) -> bool:
    types = arrow().types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind))


def _own_names(schema: pa.Schema, mapping: ColumnMapping) -> dict[str | None, str]:
    """The table's own name of each column of the mapping, its type checked."""
    types = arrow().types

    def is_name(kind: pa.DataType) -> bool:
        return _is_text(kind) or bool(types.is_integer(kind))

    def is_amount(kind: pa.DataType) -> bool:
        return _is_number(kind) or bool(types.is_decimal(kind)) or _is_text(kind)

    accepted: tuple[tuple[str | None, Callable[[Any], bool], str], ...] = (
        (mapping.meter, is_name, "text or integers"),
        (mapping.time, lambda t: types.is_timestamp(t) or _is_text(t), "timestamps"),
        (mapping.duration, lambda t: _is_number(t) or types.is_duration(t), "whole seconds"),
        *((name, is_amount, "numbers") for name in (mapping.value, *mapping.plus, *mapping.minus)),
        *((name, is_name, "text or integers") for name in dict((*mapping.only, *mapping.fed_in))),
    )
    table_names: dict[str | None, str] = {}
    for name, fits, type_words in accepted:
        if name is None:
            continue
        matches = [field for field in schema if field.name.strip() == name.strip()]
        if len(matches) != 1:
            count = len(matches)
            state = f"there {count} times" if count else f"missing{perhaps(name, schema.names)}"
            raise IntakeError(
                f"table: column {name!r} is {state}; the expected columns are"
                f" {', '.join(mapping.columns)}: give a table of the mapping, or the mapping of the"
                " table."
            )
        if not fits(matches[0].type):
            raise IntakeError(f"column {name!r} has type {matches[0].type}; give {type_words}.")
        table_names[name] = matches[0].name
    return table_names


class Table:
    """The batches of one table, in order.

    Args:
        schema: Schema of the table.
        mapping: Names and forms of its columns.
    """

    def __init__(self, schema: pa.Schema, mapping: ColumnMapping) -> None:
        plain = replace(mapping, plus=(), minus=(), only=(), fed_in=()).plain
        if not plain or (mapping.meter is None) == (mapping.meter_id is None):
            raise IntakeError(
                "mapping is for text, or names the meters twice or not at all; give Arrow and"
                " Parquet tables a mapping of columns alone."
            )
        self._mapping, self._row = mapping, 1
        self._own = _own_names(schema, mapping)
        self._texts = text_times(mapping.time_format, mapping.time_zone)
        self._walls: TimeReader[int] = TimeReader(local_instants(mapping.time_zone))

    @property
    def names(self) -> list[str]:
        """The columns that are read, by the table's names."""
        return list(self._own.values())

    def parsed(self, batch: pa.RecordBatch) -> Parsed:
        """Readings of the next batch; offsets and text are checked before use."""
        batch = batch.select(self.names)
        batch.validate(full=True)
        by, n = self._mapping, batch.num_rows
        column = {name: batch.column(table_name) for name, table_name in self._own.items()}
        number = np.arange(self._row, self._row + n)
        self._row += n
        if by.meter is not None:
            ids, code = _meters(column[by.meter])
        else:
            ids, code = [str(by.meter_id)], np.zeros(n, np.int64)
        # before the times, as in a CSV: what is left out repeats no hour
        ids, code = select_rows(by, ids, code, lambda name: _texts(_as_text(column[name])))
        if by.duration is not None:
            duration = _seconds(column[by.duration])
        else:
            duration = np.full(n, by.duration_s, np.int64)
        marked = self._instants(column[by.time], ids, code)

        def further(name: str) -> Ints:
            further_wh = _watt_hours(column[name], by, duration)
            return np.where(further_wh == Fault.VALUE_MISSING, 0, further_wh)

        wh = summed(by, _watt_hours(column[by.value], by, duration), further)
        start = starts_of(marked, duration, by.marks)
        return check_rows("row", number, RawColumns(ids, code, start, duration, wh))

    def _instants(self, column: pa.Array, ids: list[str], code: Ints) -> Ints:
        if _is_text(column.type):
            return self._texts.instants(_texts(column), ids, code)
        ticks, null = _filled(column.cast(arrow().int64()))
        unit = _UNITS[column.type.unit]
        wall = np.clip(ticks // unit, -(2**62), 2**62)  # no fault by accident
        local = column.type.tz is None and self._mapping.time_zone != "UTC"
        start = self._walls.instants(wall.tolist(), ids, code) if local else wall
        start[ticks % unit != 0] = Fault.TIME_SECOND
        start[null] = Fault.TIME_MISSING
        return start


def _filled(column: pa.Array) -> tuple[NDArray[Any], Bools]:
    """The numbers of a column, 0 for a null, and where its nulls are."""
    # pyarrow's own to_numpy imports pandas where it is installed, which takes longer than to parse
    null = np.from_dlpack(column.is_null().cast(arrow().uint8())).astype(bool)
    if column.null_count:
        column = column.fill_null(0)
    return np.from_dlpack(column), null


def _distinct(column: pa.Array) -> tuple[list[str | None], Ints]:
    """Distinct texts of a column, None for a null, and the number of each row's text."""
    if not arrow().types.is_dictionary(column.type):
        _check_views(column)
        coded = column.dictionary_encode(null_encoding="encode")
        return coded.dictionary.to_pylist(), np.from_dlpack(coded.indices).astype(np.int64)
    texts = column.dictionary
    _check_views(texts)
    rows = np.from_dlpack(column.indices.cast(arrow().int64()).fill_null(-1))
    codes, place = np.unique(rows, return_inverse=True)
    used_texts = texts.take(arrow().array(codes[codes >= 0])).to_pylist()
    return ([None, *used_texts] if len(used_texts) < len(codes) else used_texts), place


def _check_views(column: pa.Array) -> None:
    """Views may share their text, so that a small message holds far more than its length."""
    if arrow().types.is_string_view(column.type):
        lengths = np.frombuffer(column.buffers()[1], "<i4")[::4]
        if lengths[column.offset : column.offset + len(column)].sum(dtype=np.int64) > LIMIT:
            raise IntakeError("Arrow stream has a column of text beyond 64 MiB; write it in parts.")


def _texts(column: pa.Array) -> list[str]:
    texts, place = _distinct(column)
    return [texts[i] or "" for i in place.tolist()]


def _as_text(column: pa.Array) -> pa.Array:
    return column if _is_text(column.type) else column.cast(arrow().string())


def _meters(column: pa.Array) -> tuple[list[str], Ints]:
    """The distinct ids, and for each row the number of its id or a `Fault`."""
    texts, place = _distinct(_as_text(column))
    ids, code = clean_meters(texts)
    return ids, code[place]


def _seconds(column: pa.Array) -> Ints:
    unit = 1
    if arrow().types.is_duration(column.type):
        unit = _UNITS[column.type.unit]
        column = column.cast(arrow().int64())
    numbers, null = _filled(column)
    seconds = _wholes(numbers, MAX_DURATION * unit, Fault.DURATION, Fault.DURATION)
    seconds = np.where(seconds % unit == 0, seconds // unit, Fault.DURATION)
    seconds[null] = Fault.DURATION
    return seconds


def _watt_hours(column: pa.Array, by: ColumnMapping, duration: Ints) -> Ints:
    if _is_text(column.type):
        return values(_texts(column), by.unit, duration)
    if arrow().types.is_decimal(column.type):
        texts = column.cast(arrow().string())
        return values(_texts(texts), by.unit, duration, longest=_DECIMAL)
    numbers, null = _filled(column)
    if by.unit == "wh":
        if numbers.dtype.kind == "f":
            numbers = np.rint(numbers)  # halves to even
        wh = _wholes(numbers, MAX_WH, Fault.VALUE_SIZE, Fault.VALUE)
    else:  # the shortest decimal of a float is the number that was meant
        distinct, back = np.unique(numbers, return_inverse=True)
        texts = [np.format_float_scientific(x, trim="-") for x in distinct]
        wh = values([texts[i] for i in back], by.unit, duration)
    wh[null] = Fault.VALUE_MISSING
    return wh


def _wholes(numbers: NDArray[Any], most: int, beyond: Fault, unusable: Fault) -> Ints:
    """Whole numbers up to `most` either way; a float must be one already."""
    finite = np.isfinite(numbers)
    within = finite & (numbers >= -most) & (numbers <= most)
    wholes = np.where(within, numbers, 0).astype(np.int64)
    wholes[finite & ~within] = beyond
    wholes[~finite | (within & (wholes != numbers))] = unusable
    return wholes


ARROW = Format(("application/vnd.apache.arrow.stream",), (".arrows", ".arrow"), arrow_batches)
PARQUET = Format(
    ("application/vnd.apache.parquet",), (".parquet",), parquet_batches, seeks=True,
    rows=parquet_rows,
)  # fmt: skip
