"""Many names as bytes in one buffer: told apart and looked up without making a text of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Int32s, Ints, UInt8s
from hushgrid.kernels.names import hashes, intern, look_up, tell

# Where names lie in a table depends on it, results do not. It differs from process to process, as
# the hash of a text does, so that no sender can know which names collide.
MISSED = 64  # names not told where expected, beyond which an order is called new
SEED = np.uint64(hash("hushgrid.intake.names") & (2**64 - 1))


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
