"""Canonical meter readings in columns, and what a parser answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._kernels.ndjson import hashes, intern, look_up, tell
from hushgrid._numbers import Int32s, Ints, UInt8s
from hushgrid.errors import IntakeError

# --------------------------------------------------------------------------------------------------
# Why a row is malformed, as numbers no reading can have.
#
# A converter answers a column with whole numbers only; an answer below `FAULTS_END` is a reason.
# So a column stays one integer array and bad rows cost nothing until somebody asks for their
# reason.


_LOWEST = -(2**63)


class Fault(IntEnum):
    """One reason why a row cannot be used; the text never shows what stood there.

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
    """The text of a fault.

    >>> reason(Fault.VALUE)
    'value is not a number'
    """
    return list(Fault)[code - _LOWEST].text


# --------------------------------------------------------------------------------------------------
# Many names as bytes in one buffer: told apart and looked up without making a text of each.


# Where names lie in a table depends on it, results do not. It differs from process to process, as
# the hash of a text does, so that no sender can know which names collide.
MISSED = 64  # names not told where expected, beyond which an order is called new
SEED = np.uint64(hash("hushgrid.intake.readings") & (2**64 - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Name i is the UTF-8 text `data[begin[i]:end[i]]`.

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
        """Each as a text."""
        raw = self.data.tobytes()
        pairs = zip(self.begin.tolist(), self.end.tolist(), strict=True)
        return tuple(raw[begin:end].decode("utf-8", "surrogatepass") for begin, end in pairs)

    def at(self, rows: NDArray[Any]) -> Names:
        """Some of them."""
        return Names(self.data, self.begin[rows], self.end[rows])

    def numbered(self) -> tuple[Names, Int32s]:
        """The different ones in the order they first come, and the place of each among them.

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


def joined(parts: Sequence[Names]) -> Names:
    """All names in one, in their order.

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


class NamePlaces(NamedTuple):
    """The place of each name, -1 where it has none, and that among the different known ones.

    `strange`: they did not come as they were told before.
    """

    place: Int32s
    known: Int32s
    strange: bool


class NameIndex:
    """Finds names among known ones; of a name that stands twice the first place.

    >>> NameIndex(Names.of(["a", "b", "c"])).find(Names.of(["c", "x"])).place.tolist()
    [2, -1]
    """

    def __init__(self, names: Names) -> None:
        _, self._rows, self._table = names._table()
        self._all_differ = self._rows.size == len(names)
        self._names = names if self._all_differ else names.at(self._rows)
        self._told = Told.room(len(self._names), self._names.data.size)

    def find(self, names: Names) -> NamePlaces:
        """The place of each among the known ones, -1 where it is none of them."""
        place, known, told = np.empty(len(names), np.int32), self._names, self._told
        missed = look_up(
            names.data, names.begin, names.end, SEED, known.data, known.begin, known.end,
            self._table, told.data, told.end, told.place, told.where, told.used,
            np.empty(len(names), np.uint64), place,
        )  # fmt: skip
        first = place if self._all_differ else np.where(place < 0, place, self._rows[place])
        return NamePlaces(first, place, missed > MISSED + len(names) // 16)

    def tell(self, names: Names, found: NamePlaces) -> None:
        """Remember in which order they came; one thread at a time, while others may look."""
        told, size = self._told, int((names.end - names.begin).sum())
        if not told.fits(len(names), size):
            told = Told.room(max(len(self._names), len(names)), max(self._names.data.size, size))
        self._told = told.with_(names, found.known)


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Names of known places in the order they were told, `used` of them; `where` each was last.

    What is used never changes, so whoever holds one reads it while another thread writes behind it.
    Of `where` any number may be old or new: it only says where to look first.
    """

    data: UInt8s
    end: Ints
    place: Int32s
    where: Int32s
    used: int = 0

    @classmethod
    def room(cls, names: int, size: int) -> Told:
        """Room for that many names of that many bytes together, and some more."""
        many = names + names // 4 + 1024
        return cls(
            np.empty(size + size // 4 + 1024 * 16, np.uint8),
            np.empty(many, np.int64),
            np.empty(many, np.int32),
            np.full(names, -1, np.int32),
        )

    def fits(self, names: int, size: int) -> bool:
        """Whether there is room for so many more."""
        filled = int(self.end[self.used - 1]) if self.used else 0
        return self.used + names <= self.end.size and filled + size <= self.data.size

    def with_(self, names: Names, place: Int32s) -> Told:
        """With these names behind the others."""
        used = tell(
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

    `start` is in seconds UTC since 1970. Negative Wh are export; they are clamped later.

    >>> r = Readings(["a", "b"], [0, 1], start=[0, 0], duration=[900, 900], wh=[12, -3])
    >>> len(r), list(r.rows())
    (2, [('a', 0, 900, 12), ('b', 0, 900, -3)])
    """

    start: Ints
    duration: Int32s
    wh: Ints
    _each: Names | None  # a name for each row, where nobody has numbered them yet
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
        """From columns that the caller has checked already, and gives away."""
        made = object.__new__(cls)
        made._fill(None, (names, code), start=start, duration=duration, wh=wh)
        return made

    @classmethod
    def told(cls, names: Names, *, start: Ints, duration: Int32s, wh: Ints) -> Readings:
        """The same with a name for each row: they are numbered only for whoever asks."""
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
        """The different ids as bytes."""
        return self._number()[0]

    @property
    def code(self) -> Int32s:
        """Whose each reading is: the place of its id among the different ones."""
        return self._number()[1]

    def looked_up(self, find: Callable[[Names], Int32s]) -> Int32s:
        """What `find` says of names, for the id of each reading."""
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
        """The different meter ids."""
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
    """The id without spaces around it; None when nothing printable is left, or too much.

    Ids are compared by code point: case, form and inner spaces count.

    >>> clean_meter(" MAC000002 "), clean_meter(" "), clean_meter("a\\x00")
    ('MAC000002', None, None)
    """
    bare = text.strip(" \t")
    return bare if 0 < len(bare) <= MAX_ID and bare.isprintable() else None


def concat(parts: Iterable[Readings]) -> Readings:
    """All readings in one, in their order.

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
    """Good readings, how many rows were bad, and where the first of those are and why."""

    readings: Readings
    malformed: int
    problems: tuple[str, ...]


def collect(batches: Iterable[Parsed]) -> Parsed:
    """All batches of one input in one; a bad row is named only while there are few."""
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
    """Columns as they were read: at each place a whole number or a `Fault`.

    `ids` as bytes are such that each is used.
    """

    ids: Sequence[str] | Names
    code: Ints
    start: Ints
    duration: Ints
    wh: Ints


def sift(
    word: str, number: Ints, columns: RawColumns, broken: Sequence[tuple[int, Fault]] = ()
) -> Parsed:
    """Part good rows from bad ones; `word` and `number` say where a row stands.

    `broken` are rows that could not even be told into columns.
    """
    wrong = _first_fault(columns)
    if isinstance(columns.ids, Names) and not (broken or wrong.any()):
        return Parsed(_all_good(columns, columns.ids), 0, ())
    ids = columns.ids.texts() if isinstance(columns.ids, Names) else columns.ids
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
