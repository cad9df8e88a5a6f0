"""Text to readings: lines of bytes, decimal numbers as whole Wh, and mappings of columns.

`ColumnMapping` says which columns of a table hold the readings, and in which units, forms and time
zone. Lines are read with bounded memory; numbers are converted in exact integer arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hushgrid._numbers import Ints, is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import FAULTS_END, MAX_DURATION, MAX_WH, Fault, clean_meter
from hushgrid.intake.times import Written, local_instants, reader

# ---- bytes to lines

LINE_LIMIT = 1 << 16  # [bytes] a longer line or record is malformed
BLOCK = 1 << 18  # [bytes] read at a time

ByteSource = bytes | Iterable[bytes]


def chunks(source: ByteSource) -> Iterator[bytes | bytearray | memoryview]:
    """The chunks of a source, checked to be bytes.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Yields:
        The chunks, in order.

    Raises:
        IntakeError: If a chunk is not bytes.
    """
    for chunk in [source] if isinstance(source, (bytes, bytearray, memoryview)) else source:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise IntakeError(f"input gives {type(chunk).__name__}; give bytes.")
        yield chunk


def blocks(source: ByteSource, size: int = BLOCK) -> Iterator[bytes]:
    """Join or cut chunks to blocks of `size` to 2 `size` bytes, the last one smaller.

    Args:
        source: Bytes, or an iterable of byte chunks.
        size: Least length of a block [bytes].

    Yields:
        The blocks, in order.

    >>> [len(block) for block in blocks([b"ab", b"c", b"defgh"], size=3)]
    [3, 3, 2]
    """
    held = bytearray()
    for chunk in chunks(source):
        view = memoryview(chunk)
        for at in range(0, len(view), size):
            held += view[at : at + size]
            if len(held) >= size:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


class Lines(NamedTuple):
    """Some lines of a text, without their ends.

    Attributes:
        first: Number of the first line, from 1.
        text: The lines; empty where a line is broken.
        broken: Number and fault of the lines that cannot be read.
    """

    first: int
    text: list[str]
    broken: list[tuple[int, Fault]]


def lines(source: ByteSource, limit: int = LINE_LIMIT) -> Iterator[Lines]:
    """The lines of UTF-8 text, block by block; a line beyond `limit` is dropped while it is read.

    Args:
        source: Bytes, or an iterable of byte chunks.
        limit: Longest line [bytes].

    Yields:
        The lines of each block.

    >>> [tuple(part) for part in lines(b"a\\r\\nb\\n")]
    [(1, ['a', 'b'], [])]
    """
    number = 1
    for data in whole_lines(blocks(source), limit):
        raw = data.split(b"\n")[:-1]
        yield decoded(number, raw, limit)
        number += len(raw)


def whole_lines(stream: Iterable[bytes], limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """Blocks of whole lines, each ended by a line feed, without a byte order mark.

    Of a line beyond `limit` only the beginning is kept, which is itself longer than `limit`.

    Args:
        stream: Blocks of bytes.
        limit: Longest line [bytes].

    Yields:
        Blocks of whole lines.

    >>> list(whole_lines([b"a\\nb"]))
    [b'a\\n', b'b\\n']
    """
    held, dropping, mark = b"", False, b"\xef\xbb\xbf"
    for block in stream:
        if dropping:
            end = block.find(b"\n")
            if end < 0:
                continue
            block, dropping = block[end + 1 :], False
        data = held + block
        end = data.rfind(b"\n") + 1
        data, held = data[:end], data[end:]
        if len(held) > limit:  # report it now: its end may never come
            data, held, dropping = data + held + b"\n", b"", True
        if data:
            yield data.removeprefix(mark)
            mark = b""
    if held:
        yield held.removeprefix(mark) + b"\n"


def decoded(first: int, raw: list[bytes], limit: int = LINE_LIMIT) -> Lines:
    """Lines of bytes as texts.

    Args:
        first: Number of the first line.
        raw: The lines, without line feeds.
        limit: Longest line [bytes].

    Returns:
        The lines; those that are too long or not UTF-8 are broken.
    """
    try:
        text = b"\n".join(raw).decode().split("\n")
        if max(map(len, raw)) <= limit:
            return Lines(first, [line.removesuffix("\r") for line in text], [])
    except UnicodeDecodeError:
        pass
    return _decoded_singly(first, raw, limit)


def _decoded_singly(first: int, raw: list[bytes], limit: int) -> Lines:
    text, broken = [], []
    for number, line in enumerate(raw, first):
        try:
            fault = Fault.TOO_LONG if len(line) > limit else None
            text.append("" if fault else line.decode().removesuffix("\r"))
        except UnicodeDecodeError:
            fault = Fault.NOT_UTF8
            text.append("")
        if fault:
            broken.append((number, fault))
    return Lines(first, text, broken)


# ---- decimal text to whole Wh, in exact integer arithmetic

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
LONGEST = 64  # characters; a longer text is no measurement


def scaled(
    text: str, numerator: int = 1, denominator: int = 1, longest: int | None = LONGEST
) -> int:
    """text * numerator / denominator in whole units.

    A fraction is rounded once, from the exact decimal, halves to even (decimal's ROUND_HALF_EVEN).

    Args:
        text: A decimal number.
        numerator: Factor.
        denominator: Divisor.
        longest: Most characters of a number; None: any length.

    Returns:
        The whole number, or a `Fault`.

    >>> scaled("0.115", 1000), scaled("-0.0015", 1000), scaled("2.5"), scaled("2.51")
    (115, -2, 2, 3)
    """
    parts = _parts(text, longest)
    if isinstance(parts, Fault):
        return parts
    sign, digits, exponent = parts
    n = digits * numerator * 10 ** max(exponent, 0)
    d = denominator * 10 ** max(-exponent, 0)
    magnitude, rest = divmod(n, d)
    magnitude += 2 * rest > d or (2 * rest == d and magnitude % 2 == 1)
    return sign * magnitude if magnitude <= MAX_WH else Fault.VALUE_SIZE


def whole(text: str) -> int:
    """Whole seconds from text; 900.0 and 9e2 are whole.

    Args:
        text: A decimal number.

    Returns:
        The seconds, or `Fault.DURATION`.

    >>> whole("900"), whole("900.0"), whole("0.5") is Fault.DURATION
    (900, 900, True)
    """
    parts = _parts(text)
    if isinstance(parts, Fault):
        return Fault.DURATION
    sign, digits, exponent = parts
    if digits % 10 ** max(-exponent, 0):
        return Fault.DURATION
    magnitude = digits * 10 ** max(exponent, 0) // 10 ** max(-exponent, 0)
    return sign * magnitude if magnitude <= MAX_DURATION else Fault.DURATION


def _parts(text: str, longest: int | None = LONGEST) -> tuple[int, int, int] | Fault:
    bare = text.strip(" \t")
    if not bare:
        return Fault.VALUE_MISSING
    found = _NUMBER.fullmatch(bare) if longest is None or len(bare) <= longest else None
    if found is None:
        return Fault.VALUE
    sign, before, after, exponent = found.groups(default="")
    if not before + after:
        return Fault.VALUE
    return -1 if sign == "-" else 1, int(before + after), int(exponent or "0") - len(after)


Unit = Literal["wh", "kwh", "kw"]
Marks = Literal["start", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """How a CSV or Parquet table names meter, time, duration and value.

    Values are rounded to whole Wh, halves to even. A time with an offset is exact; one without is a
    local time of `time_zone`.

    Attributes:
        time: Column of times.
        value: Column of values.
        unit: "wh", "kwh" or "kw" (mean power over the duration).
        meter: Column of meter ids; or `meter_id` is set.
        meter_id: The one meter of the table.
        duration: Column of durations [s]; or `duration_s` is set.
        duration_s: Duration of every row [s].
        time_zone: IANA name of the zone of times without an offset.
        time_format: "iso", or a strptime pattern.
        marks: Whether a time is the "start" or the "end" of a reading.
        delimiter: Character between the fields of a CSV.
        decimal: Decimal mark of a CSV: "." or ",".

    >>> ColumnMapping(meter="id", time="at", value="kWh", unit="kwh", duration_s=900).time_zone
    'UTC'
    """

    time: str
    value: str
    unit: Unit
    meter: str | None = None
    meter_id: str | None = None
    duration: str | None = None
    duration_s: int | None = None
    time_zone: str = "UTC"
    time_format: str = "iso"
    marks: Marks = "start"
    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        for name in ("time", "value"):
            _check_name(name, getattr(self, name))
        _check_either("meter", self.meter, "meter_id", self.meter_id)
        _check_either("duration", self.duration, "duration_s", self.duration_s)
        _check_choice("unit", self.unit, get_args(Unit))
        _check_choice("marks", self.marks, get_args(Marks))
        _check_choice("decimal", self.decimal, (".", ","))
        if self.meter_id is not None and clean_meter(str(self.meter_id)) != self.meter_id:
            raise IntakeError(f"meter_id is {self.meter_id!r}; give 1 to 128 printable characters.")
        if self.duration_s is not None and not (
            is_whole(self.duration_s) and 1 <= self.duration_s <= MAX_DURATION
        ):
            raise IntakeError(
                f"duration_s is {self.duration_s}; give whole seconds, 1 to {MAX_DURATION}."
            )
        _check_delimiter(self.delimiter, self.decimal)
        if len(set(self.columns)) != len(self.columns):
            raise IntakeError(f"columns are {self.columns}; give each a column of its own.")
        reader(self.time_format)
        local_instants(self.time_zone)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, without surrounding spaces."""
        named = (self.meter, self.time, self.duration, self.value)
        return tuple(name.strip() for name in named if name is not None)


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise IntakeError(f"{field} is {value!r}; give the name of a column.")


def _check_either(column: str, name: Any, constant: str, value: Any) -> None:
    if (name is None) == (value is None):
        raise IntakeError(
            f"{column} is {name!r} and {constant} is {value!r};"
            f" give either the column {column} or {constant} for all rows."
        )
    if name is not None:
        _check_name(column, name)


def _check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise IntakeError(f"{field} is {value!r}; give one of {', '.join(choices)}.")


def _check_delimiter(delimiter: Any, decimal: str) -> None:
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or delimiter in "\r\n\"'"
        or delimiter == decimal
    ):
        raise IntakeError(
            f"delimiter is {delimiter!r}; give one character other than a quote, a line end"
            " and the decimal mark."
        )


CANONICAL = ColumnMapping(
    meter="meter_id", time="start_utc", duration="duration_s", value="wh", unit="wh"
)

LOW_CARBON_LONDON = ColumnMapping(
    meter="LCLid",
    time="DateTime",
    value="KWH/hh (per half hour) ",
    unit="kwh",
    duration_s=1800,
    time_zone="UTC",  # British meters keep UTC the year round
)

PECAN_STREET = ColumnMapping(
    meter="dataid", time="local_15min", value="grid", unit="kw", duration_s=900
)


# ---- columns of text to whole numbers; equal texts are converted once

WH_PER_KWH = 1000
SECONDS_PER_HOUR = 3600


def meter_codes(names: Sequence[str | None]) -> tuple[list[str], Ints]:
    """Number the distinct meter ids.

    Args:
        names: The id of each row as written; None where there is none.

    Returns:
        The distinct ids, and for each row the number of its id or a `Fault`.

    >>> meter_codes(["b", "a", " b "])
    (['b', 'a'], array([0, 1, 0]))
    """
    codes: dict[str, int] = {}
    known: dict[str | None, int] = {}
    for name in dict.fromkeys(names):
        bare = None if name is None else clean_meter(name)
        known[name] = Fault.METER if bare is None else codes.setdefault(bare, len(codes))
    return list(codes), np.fromiter(map(known.__getitem__, names), np.int64, len(names))


def durations(texts: Sequence[str]) -> Ints:
    """Durations from text.

    Args:
        texts: (n,) durations as written.

    Returns:
        (n,) whole seconds, or a `Fault`.
    """
    return _each(texts, whole)


def values(
    texts: Sequence[str],
    unit: Unit,
    duration: Ints,
    decimal: str = ".",
    longest: int | None = LONGEST,
) -> Ints:
    """Energy from text; mean power in kW is multiplied by its duration.

    Args:
        texts: (n,) values as written.
        unit: "wh", "kwh" or "kw".
        duration: (n,) durations [s]; used for "kw".
        decimal: Decimal mark.
        longest: Most characters of a number; None: any length.

    Returns:
        (n,) whole Wh, halves to even, or a `Fault`.

    >>> values(["0.115", "1.0"], "kw", np.array([3600, 900])).tolist()
    [115, 250]
    """
    if decimal == ",":
        texts = ["." if "." in text else text.replace(",", ".") for text in texts]
    if unit == "wh":
        return _each(texts, lambda text: scaled(text, longest=longest))
    if unit == "kwh":
        return _each(texts, lambda text: scaled(text, WH_PER_KWH, longest=longest))

    def from_power(written: tuple[str, int]) -> int:
        text, duration = written
        return scaled(text, WH_PER_KWH * max(duration, 0), SECONDS_PER_HOUR, longest)

    return _each(list(zip(texts, duration.tolist(), strict=True)), from_power)


def starts_of(marked: Ints, duration: Ints, marks: Marks) -> Ints:
    """Starts of readings from their times.

    Args:
        marked: (n,) times [s UTC since 1970], or a `Fault`.
        duration: (n,) durations [s], or a `Fault`.
        marks: Whether a time is the "start" or the "end" of a reading.

    Returns:
        (n,) starts [s UTC since 1970], or a `Fault`.
    """
    if marks == "start":
        return marked
    known = (marked >= FAULTS_END) & (duration >= FAULTS_END)
    return np.where(known, marked - np.where(known, duration, 0), marked)


def _each(written: Sequence[Written], convert: Callable[[Written], int]) -> Ints:
    known = {item: convert(item) for item in set(written)}
    return np.fromiter(map(known.__getitem__, written), np.int64, len(written))
