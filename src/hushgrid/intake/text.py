"""Text to readings: lines of bytes, decimal numbers as whole Wh, and mappings of columns.

`ColumnMapping` says which columns of a table hold the readings, and in which units, forms and time
zone. Lines are read with bounded memory; numbers are converted in exact integer arithmetic.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from hushgrid._numbers import Ints, is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import (
    FAULTS_END,
    MAX_DURATION,
    MAX_ID,
    MAX_WH,
    Fault,
    Parsed,
    clean_meter,
)
from hushgrid.intake.times import Written, text_times

if TYPE_CHECKING:
    from typing_extensions import Buffer

# ---- bytes to lines

LINE_LIMIT = 1 << 16  # [bytes] a longer line or record is malformed
BLOCK = 1 << 18  # [bytes] read at a time

ByteSource = bytes | Iterable[bytes]
ByteStream = io.BufferedIOBase  # in memory: nothing here opens a file


class _Chunks(io.RawIOBase):
    """Chunks as a raw file."""

    def __init__(self, source: Iterable[bytes]) -> None:
        self._source, self._rest = iter(source), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer)
        while not self._rest:
            chunk = next(self._source, None)
            if chunk is None:
                return 0
            if not isinstance(chunk, (bytes, bytearray, memoryview)):
                raise IntakeError(f"input gives {type(chunk).__name__}; give bytes.")
            self._rest = memoryview(chunk)
        size = min(len(into), len(self._rest))
        into[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def open_bytes(source: ByteSource) -> ByteStream:
    """Bytes as a file; chunks are taken as they are needed.

    Args:
        source: Bytes, or an iterable of byte chunks.

    Returns:
        A file to read from.

    >>> open_bytes([b"ab", b"", b"cde"]).read(4)
    b'abcd'
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    return io.BufferedReader(_Chunks(source), BLOCK)


def raw_lines(stream: ByteStream, limit: int = LINE_LIMIT) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file, block by block.

    Args:
        stream: A file, as `open_bytes` gives it.
        limit: Longest line [bytes]; of a longer one more than `limit` bytes are kept.

    Yields:
        Number of the first line, from 1, and the lines without line feeds.

    >>> list(raw_lines(open_bytes(b"a\\nb")))
    [(1, [b'a', b'b'])]
    """
    number, mark = 1, codecs.BOM_UTF8
    while block := stream.read(BLOCK):
        if not block.endswith(b"\n"):
            block += stream.readline(limit + 1)
        raw = block.removeprefix(mark).split(b"\n")
        if not raw[-1]:
            raw.pop()
        elif len(raw[-1]) > limit:  # its end may never come: pass over it
            while (more := stream.readline(BLOCK)) and not more.endswith(b"\n"):
                pass
        yield number, raw
        number, mark = number + len(raw), b""


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


def lines(stream: ByteStream, limit: int = LINE_LIMIT) -> Iterator[Lines]:
    """The lines of UTF-8 text, block by block; a line beyond `limit` is dropped while it is read.

    Args:
        stream: A file, as `open_bytes` gives it.
        limit: Longest line [bytes].

    Yields:
        The lines of each block.

    >>> [tuple(part) for part in lines(open_bytes(b"a\\r\\nb\\n"))]
    [(1, ['a', 'b'], [])]
    """
    for first, raw in raw_lines(stream, limit):
        found = [decoded(line, limit) for line in raw]
        broken = [(at, why) for at, why in enumerate(found, first) if isinstance(why, Fault)]
        yield Lines(first, ["" if isinstance(line, Fault) else line for line in found], broken)


def decoded(line: bytes, limit: int = LINE_LIMIT) -> str | Fault:
    """Text of a line.

    Args:
        line: The line, without its line feed.
        limit: Longest line [bytes].

    Returns:
        The text; a `Fault` where it is too long or not UTF-8.
    """
    try:
        return Fault.TOO_LONG if len(line) > limit else line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        return Fault.NOT_UTF8


# ---- decimal text to whole Wh

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
LONGEST = 64  # characters; a longer text is no measurement
_EXACT = Context(prec=120)  # digits: the 76 of Arrow's decimals times a factor of 11


def number_of(text: str, longest: int = LONGEST) -> Decimal | Fault:
    """The exact value of a decimal number.

    Args:
        text: A decimal number, without NaN, infinity or separators of thousands.
        longest: Most characters of a number.

    Returns:
        The number, or a `Fault`.

    >>> number_of("0.115"), number_of(" ").text
    (Decimal('0.115'), 'value is missing')
    """
    bare = text.strip(" \t")
    if not bare:
        return Fault.VALUE_MISSING
    return Decimal(bare) if len(bare) <= longest and _NUMBER.fullmatch(bare) else Fault.VALUE


def scaled(text: str, factor: int = 1, divisor: int = 1, longest: int = LONGEST) -> int:
    """text * factor / divisor in whole units.

    A fraction is rounded once, from the exact decimal, halves to even.

    Args:
        text: A decimal number.
        factor: Factor.
        divisor: Divisor.
        longest: Most characters of a number.

    Returns:
        The whole number, or a `Fault`.

    >>> scaled("0.115", 1000), scaled("-0.0015", 1000), scaled("2.5"), scaled("2.51")
    (115, -2, 2, 3)
    """
    number = number_of(text, longest)
    if isinstance(number, Fault):
        return number
    product = _EXACT.multiply(number, factor)
    wh = round(product) if divisor == 1 else round(Fraction(product) / divisor)
    return wh if abs(wh) <= MAX_WH else Fault.VALUE_SIZE


def whole(text: str) -> int:
    """Whole seconds from text; 900.0 and 9e2 are whole.

    Args:
        text: A decimal number.

    Returns:
        The seconds, or `Fault.DURATION`.

    >>> whole("900"), whole("900.0"), whole("0.5") is Fault.DURATION
    (900, 900, True)
    """
    number = number_of(text)
    if isinstance(number, Fault) or abs(number) > MAX_DURATION or number != int(number):
        return Fault.DURATION
    return int(number)


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
        text_times(self.time_format, self.time_zone)

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


class Format(NamedTuple):
    """A format of readings, found by the entry points `hushgrid.intake`.

    Attributes:
        media: Media types of bodies in this format.
        suffixes: Suffixes of files in this format, such as ".csv".
        batches: Called with the input and a mapping; yields readings and malformed rows.
        seeks: Whether `batches` takes all bytes or a file that seeks, in place of chunks. It is
            then a function of a module, since it runs in a process of its own.
    """

    media: tuple[str, ...]
    suffixes: tuple[str, ...]
    batches: Callable[[Any, ColumnMapping], Iterator[Parsed]]
    seeks: bool = False


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
    distinct = list(dict.fromkeys(names))
    ids, code = clean_meters(distinct)
    if len(distinct) == len(names):
        return ids, code
    place = {name: i for i, name in enumerate(distinct)}
    return ids, code[np.fromiter(map(place.__getitem__, names), np.int64, len(names))]


def clean_meters(names: list[str | None]) -> tuple[list[str], Ints]:
    """Clean distinct meter ids, which may be equal afterwards.

    Args:
        names: Distinct ids as written, and None for a missing one.

    Returns:
        The distinct ids, and for each name the number of its id or a `Fault`.

    >>> clean_meters(["a", " a", ""])[0]
    ['a']
    """
    given = [name for name in names if name]
    together = "".join(given)  # most senders need no cleaning, and one look at all is faster
    if (
        len(given) == len(names)
        and together.isprintable()
        and " " not in together
        and max(map(len, given), default=0) <= MAX_ID
    ):
        return given, np.arange(len(given))
    codes: dict[str, int] = {}
    cleaned = [clean_meter(name or "") for name in names]
    code = [Fault.METER if c is None else codes.setdefault(c, len(codes)) for c in cleaned]
    return list(codes), np.array(code, np.int64)


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
    longest: int = LONGEST,
) -> Ints:
    """Energy from text; mean power in kW is multiplied by its duration.

    Args:
        texts: (n,) values as written.
        unit: "wh", "kwh" or "kw".
        duration: (n,) durations [s]; used for "kw".
        decimal: Decimal mark.
        longest: Most characters of a number.

    Returns:
        (n,) whole Wh, halves to even, or a `Fault`.

    >>> values(["0.115", "1.0"], "kw", np.array([3600, 900])).tolist()
    [115, 250]
    """
    if decimal == ",":
        texts = ["." if "." in text else text.replace(",", ".") for text in texts]
    if unit != "kw":
        factor = WH_PER_KWH if unit == "kwh" else 1
        return _each(texts, lambda text: scaled(text, factor, longest=longest))

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
