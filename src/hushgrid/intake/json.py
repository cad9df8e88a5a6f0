"""Readings as JSON: an array of objects, or one object a line (NDJSON).

Each object holds `meter_id` (text), `start_utc` (RFC 3339 with Z or an offset), `duration_s` (a
whole number; 1800.0 is one, true and "1800" are not) and `wh` (a number, rounded to a whole one,
halves to even, from the decimal as written). Other keys are ignored; of a repeated key the last
value counts, as in Python's json. In an array, an element that is no reading is malformed, but a
syntax error makes the whole array unusable, since the start of the next element is unknown; in
NDJSON a line with a syntax error is malformed and the next is read. An element or a line holds at
most 64 KiB. Plain lines of NDJSON (see `_kernels/ndjson.py`) are read by a compiled loop.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from hushgrid._kernels.ndjson import (
    DURATION,
    METER,
    METER_END,
    SHORTEST,
    START,
    STATE,
    WH,
    plain_lines,
)
from hushgrid._numbers import Ints, is_real, is_whole
from hushgrid.errors import IntakeError
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
    collect,
)
from hushgrid.intake.text import (
    LINE_LIMIT,
    ByteSource,
    blocks,
    decoded,
    meter_codes,
    scaled,
    whole,
    whole_lines,
)
from hushgrid.intake.times import Moment, TimeReader, read_iso

_LIMITS = np.array([1, MAX_ID, 0, END - 1, 1, MAX_DURATION, -MAX_WH, MAX_WH])
_ODD = 64  # lines; few bodies have more that are not plain


class PlainLines(NamedTuple):
    """Plain lines as good readings, and all other lines.

    Attributes:
        line: (n,) line of each reading, from 0.
        names: (n,) meter id of each reading.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s].
        wh: (n,) energy [Wh].
        others: Number and bytes of the other lines.
    """

    line: Ints
    names: Names  # one for each reading
    start: Ints
    duration: Ints
    wh: Ints
    others: list[tuple[int, bytes]]


def plain(data: bytes) -> PlainLines:
    """Separate plain lines from others.

    Args:
        data: Lines, each ended by a line feed.

    Returns:
        The readings of the plain lines, and the other lines.

    >>> text = b'{"meter_id":"a","start_utc":"1970-01-01T00:00:00Z","duration_s":900,"wh":7}'
    >>> found = plain(text + b"\\nnonsense\\n")
    >>> found.names.texts(), found.wh.tolist(), found.others
    (('a',), [7], [(1, b'nonsense')])
    """
    room = len(data) // SHORTEST
    line, found, odd = _room(room), _room(5, room), _room(3, _ODD)
    raw, known = np.frombuffer(data, np.uint8), _room(STATE)
    n, k = plain_lines(raw, _LIMITS, LINE_LIMIT, known, line, found, odd)
    if k > _ODD:  # now it is known how many; reading them takes far longer than finding them again
        odd = _room(3, k)
        plain_lines(raw, _LIMITS, LINE_LIMIT, known, line, found, odd)
    others = [(number, data[begin:end]) for number, begin, end in odd[:, :k].T.tolist()]
    names = Names(raw, found[METER, :n], found[METER_END, :n])
    return PlainLines(line[:n], names, found[START, :n], found[DURATION, :n], found[WH, :n], others)


def _room(*shape: int) -> Ints:
    return np.empty(shape, np.int64)


_SPACE = re.compile(r"[ \t\r\n]*")
_BRACKETS = 64  # in one element; a reading has two, so more is nesting without end
_BATCH = 1 << 12  # elements


class _Decimal(NamedTuple):
    """A number with a point or an exponent, as it is written: a float would round it once more."""

    text: str


_decode = json.JSONDecoder(parse_float=_Decimal).decode
_decode_at = json.JSONDecoder(parse_float=_Decimal).raw_decode
# Python's int() refuses thousands of digits; None is no number here either.
_decode_long_at = json.JSONDecoder(parse_float=_Decimal, parse_int=lambda _: None).raw_decode
_FIX = "; give one array of flat objects, or NDJSON, where a broken line affects only itself."

Broken = tuple[int, Fault]


def parse_json(source: ByteSource) -> Parsed:
    """All readings of a JSON array or of NDJSON; an empty input has none.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Returns:
        The readings and the malformed rows.

    >>> text = b'[{"meter_id":"a","start_utc":"2013-01-01T00:00:00Z","duration_s":900,"wh":1.5}]'
    >>> parse_json(text).readings.wh.tolist()
    [2]
    """
    return collect(json_batches(source))


def json_batches(source: ByteSource) -> Iterator[Parsed]:
    """The readings of a JSON array or of NDJSON, some thousand at a time.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Yields:
        The readings and the malformed rows of each batch.
    """
    stream = blocks(source)
    opening = next(stream, b"")
    text = opening.removeprefix(codecs.BOM_UTF8).lstrip(b" \t\r\n")
    whole = chain([opening], stream)
    yield from _array_batches(whole) if text.startswith(b"[") else _line_batches(whole)


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
    return _parsed(enumerate(records, 1), _clock())


def _clock() -> TimeReader[str | None]:
    return TimeReader(_read_time, lambda _: ())


def _read_time(time: str | None) -> Moment | Fault:
    moment = Fault.TIME_MISSING if time is None else read_iso(time)
    if isinstance(moment, Moment) and moment.offset is None:
        return Fault.TIME_ZONE
    return moment


def _objects(
    elements: Iterable[tuple[int, object]],
) -> tuple[list[int], list[Mapping[str, Any]], list[Broken]]:
    number: list[int] = []
    kept: list[Mapping[str, Any]] = []
    broken: list[Broken] = []
    for at, element in elements:
        if isinstance(element, Mapping):
            number.append(at)
            kept.append(element)
        else:
            broken.append((at, Fault.NOT_OBJECT))
    return number, kept, broken


def _parsed(records: Iterable[tuple[int, object]], clock: TimeReader[str | None]) -> Parsed:
    number, objects, broken = _objects(records)
    return check_rows("record", np.array(number, np.int64), _columns(objects, clock), broken)


def _columns(objects: list[Mapping[str, Any]], clock: TimeReader[str | None]) -> RawColumns:
    ids, code = meter_codes([_text(item.get("meter_id")) for item in objects])
    return RawColumns(
        ids,
        code,
        clock.instants([_text(item.get("start_utc")) for item in objects], ids, code),
        np.array([_seconds(item.get("duration_s")) for item in objects], np.int64),
        np.array([_watt_hours(item.get("wh")) for item in objects], np.int64),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(value: Any) -> int:
    if isinstance(value, _Decimal):
        return whole(value.text)
    if type(value) is int or is_whole(value):
        return int(value) if 1 <= value <= MAX_DURATION else Fault.DURATION
    return Fault.DURATION


def _watt_hours(value: Any) -> int:
    if isinstance(value, _Decimal):
        return scaled(value.text)
    if type(value) is int or is_real(value):
        wh = round(value)  # halves to even
        return wh if -MAX_WH <= wh <= MAX_WH else Fault.VALUE_SIZE
    return Fault.VALUE_MISSING if value is None else Fault.VALUE


def _line_batches(stream: Iterable[bytes]) -> Iterator[Parsed]:
    clock, filled, objects, first = _clock(), 0, 0, 1
    for data in whole_lines(stream):
        found = plain(data)
        number, kept, broken = _others(found.others, first)
        filled += len(found.line) + len(number) + len(broken)
        objects += len(found.line) + len(kept)
        if number or broken:
            yield _mixed(found, first, np.array(number, np.int64), _columns(kept, clock), broken)
        else:
            yield Parsed(_all_plain(found), 0, ())
        first += len(found.line) + len(found.others)
    if filled and not objects:
        raise IntakeError("input holds no JSON object; give an array of objects, or one a line.")


def _others(
    others: list[tuple[int, bytes]], first: int
) -> tuple[list[int], list[Mapping[str, Any]], list[Broken]]:
    """The objects and the faults of lines that are not plain."""
    texts: list[tuple[int, object]] = []
    broken: list[Broken] = []
    for at, raw in others:
        part = decoded(first + at, [raw])
        broken += part.broken
        texts += [(first + at, _decoded(text)) for text in part.text if text.strip()]
    number, kept, more = _objects(texts)
    return number, kept, [*more, *broken]


def _all_plain(found: PlainLines) -> Readings:
    return Readings.named(
        found.names, start=found.start, duration=found.duration.astype(np.int32), wh=found.wh
    )


def _mixed(
    found: PlainLines, first: int, number: Ints, rest: RawColumns, broken: Sequence[Broken]
) -> Parsed:
    """Plain readings and the rest in the order of their lines."""
    names, code = found.names.numbered()
    codes = {name: i for i, name in enumerate(names.texts())}
    places = np.array([codes.setdefault(name, len(codes)) for name in rest.texts], np.int64)
    known = rest.code >= 0
    code_of_rest = rest.code.copy()
    code_of_rest[known] = places[rest.code[known]]
    numbers = np.concatenate([found.line + first, number])
    order = np.argsort(numbers, kind="stable")
    columns = RawColumns(
        list(codes),
        np.concatenate([code, code_of_rest])[order],
        np.concatenate([found.start, rest.start])[order],
        np.concatenate([found.duration, rest.duration])[order],
        np.concatenate([found.wh, rest.wh])[order],
    )
    return check_rows("line", numbers[order], columns, broken)


def _decoded(text: str) -> object:
    """The value of a line; None, which is no reading, where it has none."""
    if text.count("{") + text.count("[") > _BRACKETS:
        return None
    try:
        return _decode(text)
    except ValueError:
        return None


def _array_batches(source: Iterable[bytes]) -> Iterator[Parsed]:
    clock = _clock()
    elements = enumerate(_elements(source), 1)
    while batch := list(islice(elements, _BATCH)):
        yield _parsed(batch, clock)


def _elements(source: Iterable[bytes]) -> Iterator[object]:
    """The elements of an array, each as soon as it is whole."""
    window = _Window(source)
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

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source = iter(source)
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
        nested = sum(self._text.count(mark, self._at, end) for mark in "[{") > _BRACKETS
        self._at = end
        return None if nested else value

    def _decoded(self) -> tuple[object, int]:
        for decode in (_decode_at, _decode_long_at):
            try:
                return decode(self._text, self._at)
            except json.JSONDecodeError:
                break
            except ValueError:
                continue
            except RecursionError:
                raise IntakeError(f"JSON array nests too deep{_FIX}") from None
        return None, 0

    def _more(self) -> None:
        block = next(self._source, b"")
        self._ended = not block
        try:
            self._text = self._text[self._at :] + self._utf8.decode(block, final=self._ended)
        except UnicodeDecodeError:
            raise IntakeError("JSON is not UTF-8; write it so.") from None
        self._at = 0
