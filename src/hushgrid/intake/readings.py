"""Canonical meter readings in columns, and the result of a parser.

`Readings` holds whole Wh by meter, start and duration; `Names` holds many meter ids as bytes in one
buffer. A converter returns a column of integers; a value below `FAULTS_END` is a `Fault`, the
reason why the row is malformed. So a column is one integer array, and malformed rows cost nothing
until their reason is needed. `check_rows` separates the good rows from the malformed ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._kernels.ndjson import append_names, hashes, intern, look_up
from hushgrid._numbers import Int32s, Ints, UInt8s
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


# ---- meter ids as bytes

MISSED = 64  # names not at their expected position, beyond which the order counts as new
# The seed places names in the hash table and does not change results. It differs between
# processes, as Python's string hash does, so that no sender can choose names that collide.
SEED = np.uint64(hash("hushgrid.intake.readings") & (2**64 - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Texts in one buffer: name i is the UTF-8 text `data[begin[i]:end[i]]`.

    Attributes:
        data: (bytes,) the buffer.
        begin: (n,) first byte of each name.
        end: (n,) byte after each name.

    >>> names = Names.of(["a", "bc"])
    >>> len(names), names.texts()
    (2, ('a', 'bc'))
    """

    data: UInt8s
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """From texts."""
        raw = [text.encode("utf-8", "surrogatepass") for text in texts]
        end = np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)))
        begin = np.concatenate([np.zeros(min(1, len(raw)), np.int64), end[:-1]])
        return cls(np.frombuffer(b"".join(raw), np.uint8), begin, end)

    def __len__(self) -> int:
        return int(self.begin.size)

    def texts(self) -> tuple[str, ...]:
        """Each name as a text."""
        raw = self.data.tobytes()
        pairs = zip(self.begin.tolist(), self.end.tolist(), strict=True)
        return tuple(raw[begin:end].decode("utf-8", "surrogatepass") for begin, end in pairs)

    def at(self, rows: NDArray[Any]) -> Names:
        """The names of some rows."""
        return Names(self.data, self.begin[rows], self.end[rows])

    def numbered(self) -> tuple[Names, Int32s]:
        """The distinct names in order of first appearance, and the number of each row's name.

        >>> different, code = Names.of(["b", "a", "b"]).numbered()
        >>> different.texts(), code.tolist()
        (('b', 'a'), [0, 1, 0])
        """
        code, first, _ = self._table()
        return (self, code) if first.size == len(self) else (self.at(first), code)

    def _table(self) -> tuple[Int32s, Int32s, Ints]:
        table = np.zeros(1 << (2 * len(self)).bit_length(), np.int64)
        code, first = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        many = intern(self.data, self.begin, self.end, self._hashes(), table, code, first)
        return code, first[:many], table

    def _hashes(self) -> NDArray[np.uint64]:
        found = np.empty(len(self), np.uint64)
        hashes(self.data, self.begin, self.end, SEED, found)
        return found


def texts_of(ids: Sequence[str] | Names) -> Sequence[str]:
    """Names as texts.

    Args:
        ids: Texts, or names in a buffer.

    Returns:
        The same names as texts.
    """
    return ids.texts() if isinstance(ids, Names) else ids


def joined(parts: Sequence[Names]) -> Names:
    """Concatenate names.

    Args:
        parts: Names to join, in order.

    Returns:
        All names in one buffer.

    >>> joined([Names.of(["a"]), Names.of(["b", "a"])]).texts()
    ('a', 'b', 'a')
    """
    shifts = np.cumsum([0, *(part.data.size for part in parts)])
    pairs = list(zip(parts, shifts, strict=False))
    return Names(
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.begin + shift for part, shift in pairs]),
        np.concatenate([part.end + shift for part, shift in pairs]),
    )


class NamePositions(NamedTuple):
    """Positions of names among the known ones.

    Attributes:
        place: (n,) row of each name among the known names; -1 where it is unknown.
        known: (n,) the same among the distinct known names.
        reordered: True if many names did not come in the order of an earlier input.
    """

    place: Int32s
    known: Int32s
    reordered: bool


class NameIndex:
    """Lookup of names among known ones; a name that is known twice has its first position.

    Args:
        names: The known names.

    >>> NameIndex(Names.of(["a", "b", "c"])).find(Names.of(["c", "x"])).place.tolist()
    [2, -1]
    """

    def __init__(self, names: Names) -> None:
        _, self._rows, self._table = names._table()
        self._all_differ = self._rows.size == len(names)
        self._names = names if self._all_differ else names.at(self._rows)
        self._order = NameOrder.room(len(self._names), self._names.data.size)

    def find(self, names: Names) -> NamePositions:
        """Positions of names among the known ones."""
        place, known, order = np.empty(len(names), np.int32), self._names, self._order
        missed = look_up(
            names.data, names.begin, names.end, SEED, known.data, known.begin, known.end,
            self._table, order.data, order.end, order.place, order.where, order.used,
            np.empty(len(names), np.uint64), place,
        )  # fmt: skip
        first = place if self._all_differ else np.where(place < 0, place, self._rows[place])
        return NamePositions(first, place, missed > MISSED + len(names) // 16)

    def remember(self, names: Names, found: NamePositions) -> None:
        """Store the order of an input, so that the next in this order is found faster.

        One thread at a time may call it, while others call `find`.
        """
        order, size = self._order, int((names.end - names.begin).sum())
        if not order.fits(len(names), size):
            known = self._names
            order = NameOrder.room(max(len(known), len(names)), max(known.data.size, size))
        self._order = order.with_(names, found.known)


@dataclass(frozen=True, slots=True, eq=False)
class NameOrder:
    """Known names in the order of an earlier input.

    The first `used` entries never change, so one thread may read them while another appends. An
    entry of `where` may be old or new: it only says where to look first.

    Attributes:
        data: Bytes of the names, one after another.
        end: Byte after each name.
        place: Position of each name among the known ones.
        where: For each known name, where in this order it came last; -1 where it did not.
        used: Number of names stored.
    """

    data: UInt8s
    end: Ints
    place: Int32s
    where: Int32s
    used: int = 0

    @classmethod
    def room(cls, names: int, size: int) -> NameOrder:
        """An empty order with room for that many names and bytes, and a quarter more."""
        many = names + names // 4 + 1024
        return cls(
            np.empty(size + size // 4 + 1024 * 16, np.uint8),
            np.empty(many, np.int64),
            np.empty(many, np.int32),
            np.full(names, -1, np.int32),
        )

    def fits(self, names: int, size: int) -> bool:
        """True if there is room for that many more names and bytes."""
        filled = int(self.end[self.used - 1]) if self.used else 0
        return self.used + names <= self.end.size and filled + size <= self.data.size

    def with_(self, names: Names, place: Int32s) -> NameOrder:
        """With these names appended."""
        used = append_names(
            names.data, names.begin, names.end, place, self.data, self.end, self.place, self.used
        )
        self.where[self.place[self.used : used]] = np.arange(self.used, used, dtype=np.int32)
        return replace(self, used=used)


END = 4_102_444_800  # [s] 2100-01-01T00:00:00Z, the first start that is refused
MAX_DURATION = 366 * 86_400  # [s]
MAX_WH = 10**12  # [Wh]; far beyond any meter, far below 2^63 when a day of seconds is added
MAX_ID = 128  # characters
PROBLEMS = 10  # how many bad rows are named; all are counted


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Readings:
    """Row i: meter `ids[code[i]]` counted `wh[i]` [Wh] over `duration[i]` [s] from `start[i]`.

    Negative Wh are export; they are clamped later.

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

    start: Ints
    duration: Int32s
    wh: Ints
    _each: Names | None  # the name of each row, before they are numbered
    _numbered: tuple[Names, Int32s] | None

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
        self._fill(None, (Names.of(own), columns.pop("code")), **columns)

    def _fill(
        self,
        each: Names | None,
        numbered: tuple[Names, Int32s] | None,
        **columns: NDArray[Any],
    ) -> None:
        object.__setattr__(self, "_each", each)
        object.__setattr__(self, "_numbered", numbered)
        if numbered is not None:
            numbered[1].flags.writeable = False
        for name, column in columns.items():
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    @classmethod
    def trusted(
        cls,
        names: Names,
        code: Int32s,
        *,
        start: Ints,
        duration: Int32s,
        wh: Ints,
    ) -> Readings:
        """From columns that the caller has checked; they become read-only."""
        made = object.__new__(cls)
        made._fill(None, (names, code), start=start, duration=duration, wh=wh)
        return made

    @classmethod
    def named(cls, names: Names, *, start: Ints, duration: Int32s, wh: Ints) -> Readings:
        """As `trusted` with one name for each row; names are numbered when first needed."""
        made = object.__new__(cls)
        made._fill(names, None, start=start, duration=duration, wh=wh)
        return made

    def _number(self) -> tuple[Names, Int32s]:
        if self._numbered is None:
            assert self._each is not None
            names, code = self._each.numbered()
            code.flags.writeable = False
            object.__setattr__(self, "_numbered", (names, code))
        assert self._numbered is not None
        return self._numbered

    @property
    def names(self) -> Names:
        """The distinct ids as bytes."""
        return self._number()[0]

    @property
    def code(self) -> Int32s:
        """Number of each reading's id among the distinct ids."""
        return self._number()[1]

    def map_names(self, find: Callable[[Names], Int32s]) -> Int32s:
        """`find` applied to the names, as one value for each reading."""
        if self._numbered is None and self._each is not None:
            return find(self._each)
        names, code = self._number()
        return find(names)[code]

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

    @property
    def ids(self) -> tuple[str, ...]:
        """The distinct meter ids."""
        return self.names.texts()

    @property
    def meter(self) -> NDArray[np.object_]:
        """The meter id of each reading."""
        names = np.empty(len(self.names), object)
        names[:] = self.ids
        return names[self.code]

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
    names, place = joined([part.names for part in kept]).numbered()
    shifts = np.cumsum([0, *(len(part.names) for part in kept)])
    code = [place[part.code + shift] for part, shift in zip(kept, shifts, strict=False)]
    return Readings.trusted(
        names,
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
        ids: Distinct meter ids; if given as bytes, each occurs in `code`.
        code: (n,) number of each row's id.
        start: (n,) start [s UTC since 1970].
        duration: (n,) duration [s].
        wh: (n,) energy [Wh].
    """

    ids: Sequence[str] | Names
    code: Ints
    start: Ints
    duration: Ints
    wh: Ints

    @property
    def texts(self) -> Sequence[str]:
        """The ids as texts."""
        return texts_of(self.ids)


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
    if isinstance(columns.ids, Names) and not (broken or wrong.any()):
        return Parsed(_all_good(columns, columns.ids), 0, ())
    ids = columns.texts
    good = wrong == 0
    bad = np.flatnonzero(~good)
    named = bad[:PROBLEMS]
    where = [*zip(number[named].tolist(), wrong[named].tolist(), strict=True), *broken]
    first = heapq.nsmallest(PROBLEMS, where)
    used, code = np.unique(columns.code[good], return_inverse=True)
    readings = Readings(
        [ids[i] for i in used],
        code,
        start=columns.start[good],
        duration=columns.duration[good],
        wh=columns.wh[good],
    )
    malformed = len(bad) + len(broken)
    return Parsed(readings, malformed, tuple(f"{word} {at}: {reason(why)}" for at, why in first))


def _all_good(columns: RawColumns, names: Names) -> Readings:
    return Readings.trusted(
        names,
        columns.code.astype(np.int32),
        start=columns.start,
        duration=columns.duration.astype(np.int32),
        wh=columns.wh,
    )


def _first_fault(columns: RawColumns) -> Ints:
    wrong = np.zeros(len(columns.code), np.int64)
    checks = (
        (columns.wh, -MAX_WH, MAX_WH, Fault.VALUE_SIZE),
        (columns.duration, 1, MAX_DURATION, Fault.DURATION),
        (columns.start, 0, END - 1, Fault.TIME_RANGE),
        (columns.code, 0, len(columns.ids) - 1, Fault.METER),
    )
    for column, low, high, outside in checks:  # the last one named is the leftmost field
        wrong[(column < low) | (column > high)] = outside
        faulty = column < FAULTS_END
        wrong[faulty] = column[faulty]
    return wrong
