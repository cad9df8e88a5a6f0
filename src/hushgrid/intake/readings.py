"""Canonical meter readings in columns, and what a parser answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.arrays import Int32s, Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.faults import FAULTS_END, Fault, reason
from hushgrid.intake.names import Names, joined

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
