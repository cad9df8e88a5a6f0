"""Readings as JSON: an array of objects, or one object a line (NDJSON).

Each object holds `meter_id` (text), `start_utc` (RFC 3339 with Z or an offset), `duration_s` (a
whole number; 1800.0 is one, true and "1800" are not) and `wh` (a number, rounded to a whole one,
halves to even, from the decimal as written). Other keys are ignored; of a repeated key the last
value counts. In an array, an element that is no reading is malformed, but a syntax error makes the
whole array unusable, since the start of the next element is unknown; in NDJSON a line with a syntax
error is malformed and the next is read. An element or a line holds at most 64 KiB.

Lines are decoded by msgspec. It needs a whole document at once, so the elements of an array are
decoded by `json`, one after another in bounded memory; so are the few lines that msgspec refuses
though their reading has a fault of its own, such as NaN.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, compress, islice
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Ints, is_real, is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake._times import TimeReader, text_times
from hushgrid.intake.lines import (
    BLOCK,
    LINE_LIMIT,
    ByteSource,
    ByteStream,
    decoded,
    open_bytes,
    raw_lines,
)
from hushgrid.intake.readings import (
    MAX_DURATION,
    MAX_WH,
    Fault,
    Parsed,
    RawColumns,
    check_rows,
)
from hushgrid.intake.text import ColumnMapping, Format, meter_codes, perhaps, scaled, whole_seconds

_SPACE = re.compile(r"[ \t\r\n]*")
_BATCH = 1 << 12  # elements
_FIX = "; give one array of flat objects, or NDJSON, where a broken line affects only itself."


class Row(NamedTuple):
    """The values of an object, not yet checked; None where one is missing."""

    meter_id: Any = None
    start_utc: Any = None
    duration_s: Any = None
    wh: Any = None


class _Decimal(str):
    """A number with a point or an exponent, as it is written: a float would round it once more."""

    __slots__ = ()


_decoder = json.JSONDecoder(parse_float=_Decimal)
# Python's int() refuses thousands of digits; None is no number here either.
_decoder_of_long = json.JSONDecoder(parse_float=_Decimal, parse_int=lambda _: None)


def json_batches(source: ByteSource) -> Iterator[Parsed]:
    """The readings of a JSON array or of NDJSON, some thousand at a time.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If an array is broken, or no line of NDJSON is an object.
    """
    stream = open_bytes(source)
    opening = stream.read(BLOCK)
    text = opening.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")
    again = open_bytes(chain([opening], iter(lambda: stream.read(BLOCK), b"")))
    yield from _array_batches(again) if text.startswith(b"[") else _line_batches(again)


def parse_records(records: Iterable[object]) -> Parsed:
    """Readings from Python objects, as a queue or a database gives them.

    Args:
        records: Mappings with the keys of the module's format.

    Returns:
        The readings and the malformed records.

    >>> row = {"meter_id": "a", "start_utc": "1970-01-01T01:00+01:00", "duration_s": 900, "wh": 7}
    >>> list(parse_records([row]).readings.rows())
    [('a', 0, 900, 7)]
    """
    return _parsed("record", 1, list(map(_row, records)), text_times("iso", None))


# ---- objects to columns


def missing_field(names: Sequence[str], value: Mapping[Any, Any]) -> str | None:
    """Why an object is no reading, where it lacks a field.

    Args:
        names: The fields of a reading.
        value: An object.

    Returns:
        The first missing field, a name that may be meant for it, and all fields; None: all are
        there.
    """
    for name in names:
        if name not in value:
            close = perhaps(name, (key for key in value if isinstance(key, str)))
            return f"field {name} is missing{close}; a reading has {', '.join(names)}"
    return None


def _row(value: object) -> Row | Fault | str:
    if not isinstance(value, Mapping):
        return Fault.NOT_OBJECT
    if (missing := missing_field(Row._fields, value)) is not None:
        return missing
    meter, start, seconds, wh = map(value.get, Row._fields)
    return Row(
        meter if type(meter) is str else None,
        start if type(start) is str else "",
        whole_seconds(seconds) if isinstance(seconds, _Decimal) else seconds,
        scaled(wh) if isinstance(wh, _Decimal) else wh,
    )


def _parsed(
    word: str, first: int, items: Sequence[Row | Fault | str | None], clock: TimeReader[str]
) -> Parsed:
    number = np.arange(first, first + len(items))
    rows: Sequence[Any] = items
    broken: list[tuple[int, Fault | str]] = []
    if {Fault, str, type(None)} & set(map(type, items)):
        broken = [(at, row) for at, row in enumerate(items, first) if isinstance(row, Fault | str)]
        good = [not isinstance(row, Fault | str | None) for row in items]
        number, rows = number[good], list(compress(items, good))
    ids, code = meter_codes([row.meter_id for row in rows])
    columns = RawColumns(
        ids,
        code,
        clock.instants([row.start_utc for row in rows], ids, code),
        _numbers([row.duration_s for row in rows], {int}, _seconds),
        _numbers([row.wh for row in rows], {int, float}, _watt_hours),
    )
    return check_rows(word, number, columns, broken)


def _numbers(column: list[Any], plain: set[type], convert: Callable[[Any], int]) -> Ints:
    """Whole numbers of a column, all at once where each is of a plain type."""
    if set(map(type, column)) <= plain:
        with suppress(OverflowError):
            numbers = np.array(column, np.float64)  # exact up to 2^53, far beyond the limits
            if np.isfinite(numbers).all():
                return np.rint(numbers).clip(-MAX_WH - 1, MAX_WH + 1).astype(np.int64)
    return np.array([convert(value) for value in column], np.int64)


def _seconds(value: Any) -> int:
    return int(value) if is_whole(value) and 1 <= value <= MAX_DURATION else Fault.DURATION


def _watt_hours(value: Any) -> int:
    if isinstance(value, Fault):
        return value
    if is_real(value):
        wh = round(value)  # halves to even
        return wh if abs(wh) <= MAX_WH else Fault.VALUE_SIZE
    if isinstance(value, int) and not isinstance(value, bool):
        return Fault.VALUE_SIZE
    return Fault.VALUE_MISSING if value is None else Fault.VALUE


# ---- lines


@cache
def _line_decoder() -> Callable[[bytes], Any] | None:
    """The decoder of a line to a `Row`; it refuses the line where a value is not of its type."""
    try:
        import msgspec
    except ImportError:
        return None
    kinds = zip(Row._fields, (str, str, int, int | float), strict=True)
    return msgspec.json.Decoder(msgspec.defstruct("Row", kinds, gc=False)).decode


def _line_batches(stream: ByteStream) -> Iterator[Parsed]:
    clock, filled, objects = text_times("iso", None), False, False
    for first, raw in raw_lines(stream):
        rows = list(_rows_of(raw))
        filled = filled or any(row is not None for row in rows)
        objects = objects or any(not isinstance(row, Fault | None) for row in rows)
        yield _parsed("line", first, rows, clock)
    if filled and not objects:
        raise IntakeError("input holds no JSON object; give an array of objects, or one a line.")


def _rows_of(raw: list[bytes]) -> Iterator[Row | Fault | str | None]:
    decode = _line_decoder()
    if decode is None:  # slower, with the same result
        yield from map(_row_of_line, raw)
        return
    for line in raw:
        try:
            row = decode(line)
            # A float lies on the same side of a half as its decimal, but may be one by rounding.
            exact = type(row.wh) is not float or row.wh % 1 != 0.5
        except (ValueError, RecursionError):
            exact = False
        yield row if exact and len(line) <= LINE_LIMIT else _row_of_line(line)


def _row_of_line(line: bytes) -> Row | Fault | str | None:
    """The object of any line; None where the line is empty."""
    text = decoded(line)
    if isinstance(text, Fault):
        return text
    if not text.strip():
        return None
    try:
        return _row(_decoder.decode(text))
    except (ValueError, RecursionError):
        return Fault.NOT_OBJECT


# ---- arrays


def _array_batches(stream: ByteStream) -> Iterator[Parsed]:
    clock, rows, first = text_times("iso", None), map(_row, _elements(stream)), 1
    while batch := list(islice(rows, _BATCH)):
        yield _parsed("record", first, batch, clock)
        first += len(batch)


def _elements(stream: ByteStream) -> Iterator[object]:
    """The elements of an array, each as soon as it is whole."""
    window = _Window(stream)
    window.take("[")
    if window.peek() == "]":
        window.take("]")
    else:
        yield window.element()
        while window.peek() == ",":
            window.take(",")
            yield window.element()
        window.take("]")
    if window.peek():
        raise IntakeError("JSON array is followed by more text; give one array, or NDJSON.")


class _Window:
    """The part of a text that is being read; it holds a block and an element, no more."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._ended = "", 0, False

    def peek(self) -> str:
        """The next character that is no space; none at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def take(self, character: str) -> None:
        if self.peek() != character:
            raise IntakeError(f"JSON array lacks {character!r} where one is needed{_FIX}")
        self._at += 1

    def element(self) -> object:
        self.peek()
        while True:
            value, end = self._decoded()
            # 12 at the end may be 123 or 12e+3, once the rest is read
            if end and (end + len("e+") < len(self._text) or self._ended):
                break
            if self._ended or (not end and len(self._text) - self._at > LINE_LIMIT):
                raise IntakeError(f"JSON array is broken{_FIX}")
            self._more()
        if end - self._at > LINE_LIMIT:
            raise IntakeError(f"JSON array has an element beyond 64 KiB{_FIX}")
        self._at = end
        return value

    def _decoded(self) -> tuple[object, int]:
        for decoder in (_decoder, _decoder_of_long):
            try:
                return decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                break
            except ValueError:
                continue
            except RecursionError:
                raise IntakeError(f"JSON array nests too deep{_FIX}") from None
        return None, 0

    def _more(self) -> None:
        block = self._stream.read(BLOCK)
        self._ended = not block
        try:
            self._text = self._text[self._at :] + self._utf8.decode(block, final=self._ended)
        except UnicodeDecodeError:
            raise IntakeError("JSON is not UTF-8; write it so.") from None
        self._at = 0


def _own_meters(source: ByteSource, mapping: ColumnMapping) -> ByteSource:
    if mapping.meter_id is not None:
        raise IntakeError("JSON readings name their meters (field meter_id); give no other id.")
    return source


FORMAT = Format(  # these names are always those of the fields above; see `exports` for others
    media=("application/json", "application/x-ndjson", "application/ndjson"),
    suffixes=(".json", ".ndjson", ".jsonl"),
    batches=lambda source, mapping: json_batches(_own_meters(source, mapping)),
)
