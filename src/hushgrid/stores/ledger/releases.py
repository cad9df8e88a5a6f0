"""Releases of a ledger, most of which a start need not read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, overload

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.records import Columns, from_verified

PAGE = 499  # records read at once, and the one before them

AccountName = Literal["account", "windows"]
ACCOUNTS: tuple[AccountName, ...] = ("account", "windows")  # that a release may state


class UnreadRelease:
    """A release that was verified before, as its store has it until it is asked for.

    Args:
        row: Its columns.

    Attributes:
        seq: The number of its record.
    """

    __slots__ = ("_read", "_row", "seq")

    def __init__(self, row: Columns) -> None:
        self._row: Columns | None = row
        self._read: ReleaseRecord | None = None
        self.seq = int(row[1])

    def read(self) -> ReleaseRecord:
        """The release."""
        row = self._row  # two threads may read it at the same time
        if row is not None:
            self._read = ReleaseRecord.from_record(from_verified(row), checked=True)
            self._row = None
        assert self._read is not None
        return self._read

    def has(self, name: str) -> bool:
        """Whether it has a value of an optional field."""
        row = self._row
        if row is not None and f'"{name}"' not in row[3]:  # it need not be read
            return False
        return getattr(self.read(), name) is not None


class StoredReleases:
    """The releases among the first records of a zone, read a page at a time when asked for.

    Args:
        read: Reads so many records after a number, and verifies them.
        others: Numbers of the records that are no releases, in order.
        last: The number of the last of these records.
    """

    def __init__(
        self, read: Callable[[int, int], Iterable[Columns]], others: Sequence[int], last: int
    ) -> None:
        self._read, self._others, self._last = read, tuple(others), last
        self._starts = [self.until(border) for border in range(0, last, PAGE)]
        self._pages: dict[int, list[UnreadRelease]] = {}

    def until(self, seq: int) -> int:
        """How many releases there are up to a record, from its number."""
        last = min(seq, self._last)
        return last - bisect_right(self._others, last)

    def __getitem__(self, n: int) -> UnreadRelease:
        page = bisect_right(self._starts, n) - 1
        if page not in self._pages:
            after = page * PAGE
            rows = self._read(after, min(PAGE, self._last - after))
            releases = [UnreadRelease(row) for row in rows if row[2] == "release"]
            if len(releases) != self.until(after + PAGE) - self._starts[page]:
                raise LedgerError(f"a record after {after} has another kind; it was changed.")
            self._pages[page] = releases
        return self._pages[page][n - self._starts[page]]


class Releases(Sequence[ReleaseRecord]):
    """Releases in order: some of a store's, which are read when asked for, then further ones.

    Copies and parts share the list of the further ones, each with the places that are its own.

    Args:
        items: The further ones; or releases, to copy.
    """

    __slots__ = ("_further", "_newest", "_places", "_stored", "_tail")

    def __init__(self, items: Iterable[ReleaseRecord | UnreadRelease] = ()) -> None:
        self._stored: StoredReleases | None = None
        self._places = range(0)  # of the stored ones
        self._newest = dict[str, tuple[int, int]]()
        self._tail: list[ReleaseRecord | UnreadRelease]
        self._further: range  # places in the list
        if isinstance(items, Releases):
            self._stored, self._places = items._stored, items._places
            self._newest, self._tail, self._further = (
                dict(items._newest),
                items._tail,
                items._further,
            )
            return
        self._tail = list(items)
        self._further = range(len(self._tail))

    def __len__(self) -> int:
        return len(self._places) + len(self._further)

    def _item(self, n: int) -> ReleaseRecord | UnreadRelease:
        stored = len(self._places)
        if n >= stored or self._stored is None:
            return self._tail[self._further[n - stored]]
        return self._stored[self._places[n]]

    @overload
    def __getitem__(self, place: int) -> ReleaseRecord: ...

    @overload
    def __getitem__(self, place: slice) -> Releases: ...

    def __getitem__(self, place: int | slice) -> ReleaseRecord | Releases:
        if isinstance(place, slice):
            return self._part(range(*place.indices(len(self))))
        release = self._item(range(len(self))[place])
        return release.read() if isinstance(release, UnreadRelease) else release

    def _part(self, places: range) -> Releases:
        if places.step != 1:
            return Releases(self._item(n) for n in places)
        stored = len(self._places)
        part = Releases()
        part._stored, part._tail = self._stored, self._tail
        part._further = self._further[max(places.start - stored, 0) : max(places.stop - stored, 0)]
        part._places = self._places[min(places.start, stored) : min(places.stop, stored)]
        return part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Releases({len(self)})"

    def append(self, release: ReleaseRecord | UnreadRelease) -> None:
        """Add the next release."""
        if self._further.stop != len(self._tail):  # a copy has gone on by itself
            self._tail = [self._tail[n] for n in self._further]
            self._further = range(len(self._tail))
        self._tail.append(release)
        self._further = range(self._further.start, len(self._tail))

    def extend(self, stored: StoredReleases, seq: int) -> None:
        """Add the stored releases up to a record, after which none were added but stored ones."""
        self._stored, self._places = stored, range(stored.until(seq))

    def clear(self) -> None:
        """Forget all."""
        self._stored, self._places = None, range(0)
        self._tail, self._further = [], range(0)
        self._newest.clear()

    def until(self, seq: int) -> int:
        """How many of them are on record up to a number of the chain."""
        stored = 0
        if self._stored is not None:
            stored = self._stored.until(seq) - self._places.start
        if stored < len(self._places):
            return max(stored, 0)
        first, end = self._further.start, self._further.stop
        later = bisect_right(self._tail, seq, first, end, key=lambda release: release.seq)
        return len(self._places) + later - first

    def skip(self, name: AccountName) -> None:
        """None of these releases has an account of that name."""
        self._newest[name] = (-1, len(self))

    def newest(self, name: AccountName) -> ReleaseRecord | None:
        """The newest release with an account of that name; None without one.

        Releases that were looked at before are not looked at again.
        """
        place, looked = self._newest.get(name, (-1, 0))
        for n in range(len(self) - 1, looked - 1, -1):
            release = self._item(n)
            unread = isinstance(release, UnreadRelease)
            if release.has(name) if unread else getattr(release, name) is not None:
                place = n
                break
        self._newest[name] = (place, len(self))
        return None if place < 0 else self[place]


def until(releases: Sequence[ReleaseRecord], seq: int) -> int:
    """How many releases are on record up to a number of the chain.

    Args:
        releases: Releases in order.
        seq: The number of a record.

    Returns:
        The count.
    """
    if isinstance(releases, Releases):
        return releases.until(seq)
    return bisect_right(releases, seq, key=lambda release: release.seq)


def place_of(releases: Sequence[ReleaseRecord], t: int, after: int) -> int:
    """The place of the first release of a step or a later one, searched from the end.

    Args:
        releases: Releases in order.
        t: The step.
        after: Its least place.

    Returns:
        The place; the number of releases where there is none.
    """
    end, back = len(releases), 1
    while end - back > after and releases[end - back].t >= t:
        back *= 2
    return bisect_left(releases, t, lo=max(end - back, after), key=lambda release: release.t)
