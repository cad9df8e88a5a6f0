"""Canonical meter readings in columns, and the result of a parser.

`Readings` holds whole Wh by meter, start and duration. A converter returns a column of integers; a
value below `FAULTS_END` is a `Fault`, the reason why the row is malformed. So a column is one
integer array, and malformed rows cost nothing until their reason is needed. `check_rows` separates
the good rows from the malformed ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Int32s, Ints
from hushgrid.errors import IntakeError

_LOWEST = -(2**63)


class Fault(IntEnum):
    """Reason why a row cannot be used, as an integer that no reading can have.

    Attributes:
        text: The reason in words; it never holds the value.

    >>> Fault.TIME < FAULTS_END < 0
    True
    """

    text: str

    def __new__(cls, text: str) -> Fault:  # noqa: D102
        member = int.__new__(cls, _LOWEST + len(cls.__members__))
        member._value_ = int(member)
        member.text = text
        return member

    TOO_LONG = "is longer than 64 KiB"
    NOT_UTF8 = "is not UTF-8 text"
    QUOTES = "has a quote that does not close, or text after one that does"
    FIELDS = "has another number of fields than the header"
    NOT_OBJECT = "is not one flat JSON object"
    METER = "meter id is not 1 to 128 printable characters"
    TIME_MISSING = "time is missing"
    TIME = "time is not in the expected form, or no such date exists"
    TIME_ZONE = "time has no UTC offset"
    TIME_GAP = "time does not exist in its zone, as clocks went forward"
    TIME_RANGE = "time is outside the years 1970 to 2099"
    TIME_SECOND = "time is not on a whole second"
    DURATION = "duration is not in whole seconds from 1 to 31622400"
    VALUE_MISSING = "value is missing"
    VALUE = "value is not a number"
    VALUE_SIZE = "value is beyond 10^12 Wh"
    NO_READING_TYPE = "no ReadingType is known for the reading"
    NO_USAGE_POINT = "no link names the UsagePoint of the reading, and no meter id was given"
    UNIT = "unit of measure (uom) is not 72, Wh"
    FLOW = "flow direction is neither 1, delivered, nor 19, received"
    COMMODITY = "commodity is not electricity"
    REGISTER = "accumulation is of a register, not of an interval"
    MULTIPLIER = "powerOfTenMultiplier is not from -12 to 12"
    TOO_WIDE = "is longer than the interval"
    STRADDLES = "straddles the border of two intervals"


FAULTS_END = _LOWEST + len(Fault)


def reason(code: int) -> str:
    """Text of a fault.

    Args:
        code: Value of a `Fault`.

    Returns:
        The reason in words.

    >>> reason(Fault.VALUE)
    'value is not a number'
    """
    return list(Fault)[code - _LOWEST].text


END = 4_102_444_800  # [s] 2100-01-01T00:00:00Z, the first start that is refused
MAX_DURATION = 366 * 86_400  # [s]
MAX_WH = 10**12  # [Wh]; far beyond any meter, far below 2^63 when a day of seconds is added
MAX_ID = 128  # characters
PROBLEMS = 10  # how many bad rows are named; all are counted


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Readings:
    """Row i: meter `ids[code[i]]` counted `wh[i]` [Wh] over `duration[i]` [s] from `start[i]`.

    Negative Wh are export; they are clamped later. The columns are read-only.

    Args:
        ids: The distinct meter ids, each 1 to 128 printable characters.
        code: (n,) number of each reading's id.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s], 1 to 31622400.
        wh: (n,) energy [Wh].

    Raises:
        IntakeError: If a column is not of whole numbers within its limits, or lengths differ.

    >>> r = Readings(["a", "b"], [0, 1], start=[0, 0], duration=[900, 900], wh=[12, -3])
    >>> len(r), list(r.rows())
    (2, [('a', 0, 900, 12), ('b', 0, 900, -3)])
    """

    ids: tuple[str, ...]
    code: Int32s
    start: Ints
    duration: Int32s
    wh: Ints

    def __init__(
        self,
        ids: Iterable[str],
        code: ArrayLike,
        *,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
    ) -> None:
        own = tuple(ids)
        if len(set(own)) != len(own) or any(clean_meter(name) != name for name in own):
            raise IntakeError(
                f"meter ids repeat or are not 1 to {MAX_ID} printable characters; give each once."
            )
        columns = {
            "code": _column(code, "code", 0, len(own) - 1, np.int32),
            "start": _column(start, "start", 0, END - 1, np.int64),
            "duration": _column(duration, "duration", 1, MAX_DURATION, np.int32),
            "wh": _column(wh, "wh", -MAX_WH, MAX_WH, np.int64),
        }
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise IntakeError(f"columns have lengths {lengths}; give one entry for each reading.")
        self._fill(own, **columns)

    def _fill(self, ids: tuple[str, ...], **columns: NDArray[Any]) -> None:
        object.__setattr__(self, "ids", ids)
        for name, column in columns.items():
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    @classmethod
    def trusted(
        cls, ids: Iterable[str], code: Int32s, *, start: Ints, duration: Int32s, wh: Ints
    ) -> Readings:
        """From columns that the caller has checked; they become read-only."""
        made = object.__new__(cls)
        made._fill(tuple(ids), code=code, start=start, duration=duration, wh=wh)
        return made

    @classmethod
    def of(
        cls, meter: Sequence[str], start: ArrayLike, duration: ArrayLike, wh: ArrayLike
    ) -> Readings:
        """From one meter id for each reading."""
        codes: dict[str, int] = {}
        code = [codes.setdefault(name, len(codes)) for name in meter]
        return cls(codes, code, start=start, duration=duration, wh=wh)

    @classmethod
    def empty(cls) -> Readings:
        """No readings."""
        return cls((), (), start=(), duration=(), wh=())

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: NDArray[Any] | slice) -> Readings:
        """Some of the readings, by rows, mask or slice; `ids` are those that occur."""
        used, code = np.unique(self.code[rows], return_inverse=True)
        return Readings.trusted(
            [self.ids[i] for i in used],
            code.astype(np.int32),
            start=self.start[rows],
            duration=self.duration[rows],
            wh=self.wh[rows],
        )

    @property
    def meter(self) -> NDArray[np.object_]:
        """The meter id of each reading."""
        return np.array(self.ids, object)[self.code]

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """(meter id, start, duration, Wh) of each reading."""
        columns, ids = (self.code, self.start, self.duration, self.wh), self.ids
        for code, *rest in zip(*(column.tolist() for column in columns), strict=True):
            yield (ids[code], *rest)


def _column(
    values: ArrayLike, what: str, low: int, high: int, dtype: type[np.signedinteger[Any]]
) -> NDArray[Any]:
    given = np.asarray(values)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and given.size):
        raise IntakeError(f"{what} is not a list of whole numbers; give one for each reading.")
    if given.size and not (given.min() >= low and given.max() <= high):
        raise IntakeError(f"{what} is not always within {low} to {high}; drop such readings first.")
    return given.astype(dtype)


def clean_meter(text: str) -> str | None:
    """The meter id without surrounding spaces.

    Ids are compared by code point: case, form and inner spaces count.

    Args:
        text: An id as written.

    Returns:
        The id; None if it is not 1 to 128 printable characters.

    >>> clean_meter(" MAC000002 "), clean_meter(" "), clean_meter("a\\x00")
    ('MAC000002', None, None)
    """
    bare = text.strip(" \t")
    return bare if 0 < len(bare) <= MAX_ID and bare.isprintable() else None


def concat(parts: Iterable[Readings]) -> Readings:
    """Concatenate readings.

    Args:
        parts: Readings to join, in order.

    Returns:
        All readings in one.

    >>> one = Readings.of(["a"], [0], [900], [1])
    >>> concat([one, Readings.of(["b", "a"], [0, 900], [900, 900], [2, 3])]).ids
    ('a', 'b')
    """
    kept = [part for part in parts if len(part)]
    if len(kept) < 2:
        return kept[0] if kept else Readings.empty()
    codes: dict[str, int] = {}
    code = [
        np.array([codes.setdefault(name, len(codes)) for name in part.ids], np.int32)[part.code]
        for part in kept
    ]
    return Readings.trusted(
        codes,
        np.concatenate(code),
        start=np.concatenate([part.start for part in kept]),
        duration=np.concatenate([part.duration for part in kept]),
        wh=np.concatenate([part.wh for part in kept]),
    )


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of a parser.

    Attributes:
        readings: The good rows.
        malformed: Number of malformed rows.
        problems: Position and reason of the first of them, at most 10.
    """

    readings: Readings
    malformed: int
    problems: tuple[str, ...]


def collect(batches: Iterable[Parsed]) -> Parsed:
    """Join the batches of one input.

    Args:
        batches: Results in order.

    Returns:
        One result; it names at most 10 malformed rows.
    """
    readings: list[Readings] = []
    problems: list[str] = []
    malformed = 0
    for batch in batches:
        readings.append(batch.readings)
        malformed += batch.malformed
        problems += batch.problems[: PROBLEMS - len(problems)]
    return Parsed(concat(readings), malformed, tuple(problems))


@dataclass(frozen=True, slots=True, eq=False)
class RawColumns:
    """Columns as read: each entry is a whole number or a `Fault`.

    Attributes:
        ids: Distinct meter ids.
        code: (n,) number of each row's id.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s].
        wh: (n,) energy [Wh].
    """

    ids: Sequence[str]
    code: Ints
    start: Ints
    duration: Ints
    wh: Ints


def check_rows(
    word: str, number: Ints, columns: RawColumns, broken: Sequence[tuple[int, Fault]] = ()
) -> Parsed:
    """Separate good rows from malformed ones.

    Args:
        word: What a row is called in a problem: "line", "row", "record".
        number: (n,) number of each row in the input.
        columns: The rows, entries with a fault included.
        broken: Rows that could not be split into columns: number and fault.

    Returns:
        The good rows, and the malformed ones by position and reason.
    """
    wrong = _first_fault(columns)
    readings = Readings.trusted(
        columns.ids,
        columns.code.astype(np.int32),
        start=columns.start,
        duration=columns.duration.astype(np.int32),
        wh=columns.wh,
    )
    bad = np.flatnonzero(wrong)
    if bad.size or not wrong.size:
        readings = readings.at(wrong == 0)
    named = bad[:PROBLEMS]
    where = [*zip(number[named].tolist(), wrong[named].tolist(), strict=True), *broken]
    first = heapq.nsmallest(PROBLEMS, where)
    problems = tuple(f"{word} {at}: {reason(why)}" for at, why in first)
    return Parsed(readings, len(bad) + len(broken), problems)


def _first_fault(columns: RawColumns) -> Ints:
    wrong = np.zeros(len(columns.code), np.int64)
    checks = (
        (columns.wh, -MAX_WH, MAX_WH, Fault.VALUE_SIZE),
        (columns.duration, 1, MAX_DURATION, Fault.DURATION),
        (columns.start, 0, END - 1, Fault.TIME_RANGE),
        (columns.code, 0, len(columns.ids) - 1, Fault.METER),
    )
    for column, low, high, outside in checks:  # the last one named is the leftmost field
        beyond = (column < low) | (column > high)
        if beyond.any():
            wrong[beyond] = np.where(column < FAULTS_END, column, outside)[beyond]
    return wrong
