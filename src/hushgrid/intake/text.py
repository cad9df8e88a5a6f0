"""Text to readings: decimal numbers as whole Wh, and mappings of columns.

`ColumnMapping` says which columns of a table hold the readings, and in which units, forms and time
zone. Numbers are converted in exact integer arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Context, Decimal
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from hushgrid._numbers import Bools, Ints, is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake._times import Written, text_times
from hushgrid.intake.readings import (
    FAULTS_END,
    MAX_DURATION,
    MAX_ID,
    MAX_WH,
    Fault,
    Parsed,
    clean_meter,
)

if TYPE_CHECKING:
    pass
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


def whole_seconds(text: str) -> int:
    """Whole seconds from text; 900.0 and 9e2 are whole.

    Args:
        text: A decimal number.

    Returns:
        The seconds, or `Fault.DURATION`.

    >>> whole_seconds("900"), whole_seconds("900.0"), whole_seconds("0.5") is Fault.DURATION
    (900, 900, True)
    """
    number = number_of(text)
    if isinstance(number, Fault) or abs(number) > MAX_DURATION or number != int(number):
        return Fault.DURATION
    return int(number)


_STEP = re.compile(r"PT([0-9]{1,8})(H|M|MIN|S)")  # MIN is not of ISO 8601, but is in use


def step_of(text: str) -> int:
    """Whole seconds of a duration of ISO 8601 in one unit.

    Args:
        text: Such as PT15M.

    Returns:
        The seconds, or `Fault.DURATION`.

    >>> step_of("PT15M"), step_of("PT1H"), step_of("15") is Fault.DURATION
    (900, 3600, True)
    """
    parts = _STEP.fullmatch(text.strip())
    if parts is None:
        return Fault.DURATION
    return int(parts[1]) * {"H": 3600, "S": 1}.get(parts[2], 60)


Unit = Literal["wh", "kwh", "mwh", "w", "kw"]
DurationUnit = Literal["s", "min", "iso"]
Encoding = Literal["utf-8", "utf-16", "latin-1", "cp1252"]
Marks = Literal["start", "end"]
Header = Literal["first", "find", "repeated"]
Form = Literal["table", "json", "nem12", "dsmr_p1"]
OTHERWISE = " | "  # between names of a column that differ by version
HEADING = "*"  # in `only` and `fed_in`: what names the block of a row


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """How an input names meter, time, duration and value.

    Values are rounded to whole Wh, halves to even. A time with an offset is exact; one without is a
    local time of `time_zone`. Names of columns are compared without surrounding and repeated
    spaces, in a CSV also without case where no column fits exactly; `A | B` is either of two names.

    Attributes:
        time: Column of times.
        value: Column of values.
        unit: "wh", "kwh", "mwh", or "w" and "kw" (mean power over the duration).
        meter: Column of meter ids.
        meter_id: Id of the one meter of the input, in place of what `meter` says, or without it.
        duration: Column of durations; else `duration_s`, `end` or `until` is set.
        duration_unit: "s", "min" or "iso" (PT15M), of `duration`.
        duration_s: Duration of every row [s].
        end: Column of the ends of readings.
        end_shift_s: Added to an end as written [s]: 60 where it is the last minute, such as 00:59.
        until: Text between start and end where the column `time` holds both.
        date: Column of dates, where `time` holds the time of day only.
        end_date: The same for `end`.
        time_zone: IANA name of the zone of times without an offset.
        time_format: "iso", or a strptime pattern.
        marks: Whether a time is the "start" or the "end" of a reading.
        shift_s: Added to a time as written [s]: 1 where times are a second before the border.
        newest_first: Whether the rows of a meter go back in time, which says what comes first of
            an hour that clocks repeat.
        last_value: Last column of values of a table with a day a row. `value` is the first, those
            between follow each other in time, and `time` is the column of dates. With columns for
            24 h a column is a time of the clock, with 25 h one of the time since midnight.
        plus: Further columns that are added to `value`; an empty cell is 0.
        minus: Columns that are subtracted, such as one of energy fed in; an empty cell is 0.
        only: Columns, each with the beginnings of cells of rows that are read; others are left out.
        fed_in: The same for rows of energy fed in; in a column that `only` names, too, it counts
            in place of that. Such rows are read for meters of `registers`, else left out. In both,
            the column `*` is the name of the column of values where headers are repeated, and of
            the array of the row where `rows` of nested JSON has a `*`.
        delimiter: Character between the fields of a CSV.
        decimal: Decimal mark of a CSV: "." or ",".
        encoding: Encoding of a CSV: "utf-8", "utf-16", "latin-1" or "cp1252".
        ragged: Whether rows of a CSV may lack fields at their end that are not read.
        skip: Lines of a CSV before the header.
        header: "first": the first line; "find": the first that names the columns; "repeated": each
            that names them, and lines with another number of fields end its rows.
        preamble: The first two lines are names and values that hold for all rows; implies "find".
        form: "table", or a format with a parser of its own: "json" (nested), "nem12", "dsmr_p1".
        rows: Path of the rows of nested JSON, such as "data.attributes.*"; `A | B` is both.
        registers: By meter id the id under which energy fed in is read, of the homes with a
            register for each direction; a service sets it.

    >>> ColumnMapping(meter="id", time="at", value="kWh", unit="kwh", duration_s=900).time_zone
    'UTC'
    """

    time: str = ""
    value: str = ""
    unit: Unit = "wh"
    meter: str | None = None
    meter_id: str | None = None
    duration: str | None = None
    duration_unit: DurationUnit = "s"
    duration_s: int | None = None
    end: str | None = None
    end_shift_s: int = 0
    until: str | None = None
    date: str | None = None
    end_date: str | None = None
    time_zone: str = "UTC"
    time_format: str = "iso"
    marks: Marks = "start"
    shift_s: int = 0
    newest_first: bool = False
    last_value: str | None = None
    plus: tuple[str, ...] = ()
    minus: tuple[str, ...] = ()
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fed_in: tuple[tuple[str, tuple[str, ...]], ...] = ()
    delimiter: str = ","
    decimal: str = "."
    encoding: Encoding = "utf-8"
    ragged: bool = False
    skip: int = 0
    header: Header = "first"
    preamble: bool = False
    form: Form = "table"
    rows: str = ""
    registers: Mapping[str, str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_choice("form", self.form, get_args(Form))
        if self.form in ("table", "json"):
            self._check_columns()
        _check_choice("unit", self.unit, get_args(Unit))
        _check_choice("duration_unit", self.duration_unit, get_args(DurationUnit))
        _check_choice("marks", self.marks, get_args(Marks))
        _check_choice("decimal", self.decimal, (".", ","))
        _check_choice("encoding", self.encoding, get_args(Encoding))
        _check_choice("header", self.header, get_args(Header))
        if self.meter_id is not None and clean_meter(str(self.meter_id)) != self.meter_id:
            raise IntakeError(f"meter_id is {self.meter_id!r}; give 1 to 128 printable characters.")
        for name, low, high in (
            ("duration_s", 1, MAX_DURATION),
            ("shift_s", -86_400, 86_400),
            ("end_shift_s", 0, 86_400),
            ("skip", 0, 1000),
        ):
            value = getattr(self, name)
            unset = value is None and name == "duration_s"
            if not unset and not (is_whole(value) and low <= value <= high):
                raise IntakeError(f"{name} is {value!r}; give a whole number, {low} to {high}.")
        _check_delimiter(self.delimiter, self.decimal)
        for name in ("rows", "time_format", "time_zone"):
            if not isinstance(getattr(self, name), str):
                raise IntakeError(f"{name} is {getattr(self, name)!r}; give a text.")
        for name in ("preamble", "newest_first", "ragged"):
            if not isinstance(getattr(self, name), bool):
                raise IntakeError(f"{name} is {getattr(self, name)!r}; give true or false.")
        text_times(self.time_format, self.time_zone)

    def _check_columns(self) -> None:
        for name in ("time", "value"):
            _check_name(name, getattr(self, name))
        for name in ("meter", "end", "date", "end_date", "last_value"):
            if getattr(self, name) is not None:
                _check_name(name, getattr(self, name))
        if self.end is None and self.until is None:
            _check_either("duration", self.duration, "duration_s", self.duration_s)
        elif (self.duration, self.duration_s, self.marks) != (None, None, "start"):
            raise IntakeError(
                "end or until says how long a reading is; leave duration, duration_s and marks out."
            )
        if self.until is not None and not (isinstance(self.until, str) and self.until):
            raise IntakeError(f"until is {self.until!r}; give the text between two times.")
        for name in ("plus", "minus"):
            if not _are_texts(value := getattr(self, name)):
                raise IntakeError(f"{name} is {value!r}; give a list of columns.")
        for name in ("only", "fed_in"):
            value = getattr(self, name)
            if not (isinstance(value, tuple) and all(map(_is_rule, value))):
                raise IntakeError(f"{name} is {value!r}; give each column a list of texts.")
        if self.last_value is not None:
            self._check_wide()
        if len(set(self.columns)) != len(self.columns):
            raise IntakeError(f"columns are {self.columns}; give each a column of its own.")

    def _check_wide(self) -> None:
        if (
            self.form != "table"
            or self.duration_s is None
            or self.time_format in ("iso", "%s")
            or "%z" in self.time_format
            or (self.date, self.plus, self.minus, self.marks) != (None, (), (), "start")
        ):
            raise IntakeError(
                "last_value is of a table with a day a row; give duration_s and the time_format of"
                " its dates without an offset, and no date, marks, plus or minus."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, without surrounding spaces."""
        names = (
            self.meter, self.date, self.time, self.duration, self.end_date, self.end, self.value,
            self.last_value, *self.plus, *self.minus, *(name for name, _ in self.only),
            *(name for name, _ in self.fed_in if name not in dict(self.only)),
        )  # fmt: skip
        blocks = self.header == "repeated" or self.form == "json"
        return tuple(n.strip() for n in names if n is not None and not (blocks and n == HEADING))

    def register(self, meter: str) -> str | None:
        """Id under which energy that a meter has fed in is read; None: it is not."""
        return None if self.registers is None else self.registers.get(meter)

    @property
    def plain(self) -> bool:
        """Whether it only names columns of a table whose header is the first line."""
        return all(
            getattr(self, field.name) == field.default
            for field in fields(self)
            if field.name not in _PLAIN
        )


_PLAIN = (
    "time", "value", "unit", "meter", "meter_id", "duration", "duration_s", "time_zone",
    "time_format", "marks", "delimiter", "decimal", "registers",
)  # fmt: skip


def alternatives(column: str) -> list[str]:
    """The names of a column of a mapping, without surrounding and repeated spaces.

    Args:
        column: A name, or several with " | " between them.

    Returns:
        The names.

    >>> alternatives(" a  b | c ")
    ['a b', 'c']
    """
    return [" ".join(name.split()) for name in column.split(OTHERWISE)]


def perhaps(missing: str, names: Iterable[str]) -> str:
    """The name among those given that is close to a missing one; any other may be a value.

    Args:
        missing: The name that is missing.
        names: Names as written.

    Returns:
        " (perhaps 'NAME')", or nothing.

    >>> perhaps("wh", ["meter_id", "Wh"]), perhaps("wh", ["7.5"])
    (" (perhaps 'Wh')", '')
    """
    return _perhaps(
        missing.strip().casefold(), tuple(item.strip()[:64] for item in islice(names, 64))
    )


@lru_cache(maxsize=64)
def _perhaps(missing: str, header: tuple[str, ...]) -> str:
    names = {name.casefold()[:64]: name for name in header}
    close = get_close_matches(missing, names, 1)
    return f" (perhaps {names[close[0]]!r})" if close else ""


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise IntakeError(f"{field} is {value!r}; give the name of a column.")


def _are_texts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(text, str) and text for text in value)


def _is_rule(value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return _are_texts(value[:1]) and bool(value[1]) and _are_texts(value[1])


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
        rows: How many rows such an input says it has, without reading them; None: it does not say.
    """

    media: tuple[str, ...]
    suffixes: tuple[str, ...]
    batches: Callable[[Any, ColumnMapping], Iterator[Parsed]]
    seeks: bool = False
    rows: Callable[[Any], int] | None = None


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
    """Clean meter ids, which may be equal, or be so afterwards.

    Args:
        names: Ids as written, and None for a missing one.

    Returns:
        The distinct ids, and for each name the number of its id or a `Fault`.

    >>> clean_meters(["a", " a", ""])[0]
    ['a']
    """
    ids = [name for name in names if name]
    text = "".join(ids)  # most senders need no cleaning, and one look at all is faster
    if (
        len(set(ids)) == len(names)
        and text.isprintable()
        and " " not in text
        and max(map(len, ids), default=0) <= MAX_ID
    ):
        return ids, np.arange(len(ids))
    codes: dict[str, int] = {}
    cleaned = [clean_meter(name or "") for name in names]
    code = [Fault.METER if c is None else codes.setdefault(c, len(codes)) for c in cleaned]
    return list(codes), np.array(code, np.int64)


def durations(texts: Sequence[str], unit: DurationUnit) -> Ints:
    """Durations from text.

    Args:
        texts: (n,) durations as written.
        unit: As `ColumnMapping.duration_unit`.

    Returns:
        (n,) whole seconds, or a `Fault`.

    >>> durations(["15", "30"], "min").tolist()
    [900, 1800]
    """
    seconds = _each(texts, step_of if unit == "iso" else whole_seconds)
    return np.where(seconds < FAULTS_END, seconds, seconds * 60) if unit == "min" else seconds


def values(
    texts: Sequence[str],
    unit: Unit,
    duration: Ints,
    decimal: str = ".",
    longest: int = LONGEST,
) -> Ints:
    """Energy from text; mean power is multiplied by its duration.

    Args:
        texts: (n,) values as written.
        unit: As `ColumnMapping.unit`.
        duration: (n,) durations [s]; used for mean power.
        decimal: Decimal mark.
        longest: Most characters of a number.

    Returns:
        (n,) whole Wh, halves to even, or a `Fault`.

    >>> values(["0.115", "1.0"], "kw", np.array([3600, 900])).tolist()
    [115, 250]
    """
    if decimal == ",":
        texts = ["." if "." in text else text.replace(",", ".") for text in texts]
    factor = {"mwh": 10**6, "kwh": WH_PER_KWH, "kw": WH_PER_KWH}.get(unit, 1)
    if unit not in ("w", "kw"):
        return _each(texts, lambda text: scaled(text, factor, longest=longest))

    def from_power(cell: tuple[str, int]) -> int:
        text, duration = cell
        return scaled(text, factor * max(duration, 0), SECONDS_PER_HOUR, longest)

    return _each(list(zip(texts, duration.tolist(), strict=True)), from_power)


def select_rows(
    by: ColumnMapping,
    ids: list[str],
    code: Ints,
    cells: Callable[[str], Sequence[str]],
) -> tuple[list[str], Ints]:
    """Rows that `only` and `fed_in` of a mapping choose; others are left out.

    Args:
        by: The mapping.
        ids: The distinct meter ids.
        code: (n,) number of each row's id, or a `Fault`.
        cells: Gives the n cells of a column as texts, by its name in the mapping.

    Returns:
        The ids with those of registers of energy fed in, and the codes.
    """
    if not (by.only or by.fed_in):
        return ids, code
    mask = _matching(by.only, cells, len(code))
    if by.fed_in:
        fed_in = _matching((dict(by.only) | dict(by.fed_in)).items(), cells, len(code))
        ids, register_code = _registers(by, ids, code)
        code, mask = np.where(fed_in, register_code, code), mask | fed_in
    return ids, np.where(mask, code, Fault.LEFT_OUT)


def _matching(
    rules: Iterable[tuple[str, tuple[str, ...]]], cells: Callable[[str], Sequence[str]], rows: int
) -> Bools:
    """Rows whose cells begin with one of the texts in the column of each rule."""
    mask = np.ones(rows, bool)
    for name, prefixes in rules:
        accepted = tuple(text.casefold() for text in prefixes)
        texts = cells(name)
        mask &= np.array([t.strip().casefold().startswith(accepted) for t in texts], bool)
    return mask


def _registers(by: ColumnMapping, ids: list[str], code: Ints) -> tuple[list[str], Ints]:
    """Ids with those of registers of energy fed in, and for each row the number of its own."""
    seconds = [by.register(name) for name in ids]
    names = list(dict.fromkeys([*ids, *filter(None, seconds)]))
    place = {name: i for i, name in enumerate(names)}
    numbers = np.array([Fault.LEFT_OUT if s is None else place[s] for s in seconds], np.int64)
    valid = code >= 0
    return names, np.where(valid, numbers[np.where(valid, code, 0)] if numbers.size else code, code)


def summed(by: ColumnMapping, wh: Ints, cells: Callable[[str], Ints]) -> Ints:
    """Values with the columns `plus` added and the columns `minus` subtracted.

    Args:
        by: The mapping.
        wh: (n,) values of its column `value` [Wh], or a `Fault`.
        cells: Gives the n values [Wh] of a further column, 0 for an empty cell, or a `Fault`.

    Returns:
        (n,) sums [Wh], or a `Fault`.
    """
    for name, sign in (
        *((column, 1) for column in by.plus),
        *((column, -1) for column in by.minus),
    ):
        more = cells(name)
        wrong = np.minimum(wh, more)
        wh = np.where(wrong < FAULTS_END, wrong, wh + sign * np.maximum(more, -MAX_WH))
    return wh


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
    valid = (marked >= FAULTS_END) & (duration >= FAULTS_END)
    return np.where(valid, marked - np.where(valid, duration, 0), marked)


def _each(cells: Sequence[Written], convert: Callable[[Written], int]) -> Ints:
    numbers = {item: convert(item) for item in set(cells)}
    return np.fromiter(map(numbers.__getitem__, cells), np.int64, len(cells))
