"""Meter stores on a database: what they share, and the one in a SQLite file.

All state is in the database: several processes may write. A `put` is one transaction that locks
its zone's row, reads what is stored for the houses it names, decides in memory and inserts what
is accepted.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._kernels.readings import ACCEPTED
from hushgrid._numbers import Int8s, Int32s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.service.meters.disk import GroupCommit, make_folder, sync_folder
from hushgrid.service.meters.folder import IntervalMemory
from hushgrid.service.meters.ports import (
    Columns,
    Counts,
    Interval,
    MeterStore,
    Roster,
    RosterEpoch,
    Share,
    joined,
    sort,
)

# `span` is the start of the interval: readings of an interval lie side by side in the primary key
TABLES = (
    """CREATE TABLE IF NOT EXISTS hushgrid_meter_zone (
        key {identity}, zone text NOT NULL UNIQUE, houses integer NOT NULL,
        interval_s integer NOT NULL, roster text NOT NULL,
        closed_end bigint NOT NULL, floor_s bigint NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS hushgrid_meter_reading (
        zone integer NOT NULL, span bigint NOT NULL, house integer NOT NULL,
        start bigint NOT NULL, duration integer NOT NULL, wh bigint NOT NULL,
        PRIMARY KEY (zone, span, house, start, duration)){clustered}""",
)


class _Row(NamedTuple):
    """A zone in the database."""

    key: int
    epoch: RosterEpoch


class SqlMeters(MeterStore, ABC):
    """Meter store on a database. See `MeterStore` for each method."""

    def __init__(self) -> None:
        self._writing = threading.RLock()
        self._rosters: dict[str, Roster] = {}
        self._groups: dict[str, GroupCommit] = {}

    # ---- what a database brings along

    @abstractmethod
    def _write(self) -> AbstractContextManager[Any]:
        """A transaction that is durable when it ends well; one thread at a time."""

    @abstractmethod
    def _read(self) -> AbstractContextManager[Any]:
        """A transaction that sees one state of the database."""

    @abstractmethod
    def _ask(self, link: Any, query: str, *values: Any) -> Any:
        """Run a query with a ? for each value; its cursor."""

    @abstractmethod
    def _lock_zone(self, link: Any, zone: str) -> None:
        """Lock a zone until the transaction ends."""

    @abstractmethod
    def _insert(self, link: Any, key: int, opens: int, columns: Columns) -> None:
        """Insert readings of one interval."""

    @abstractmethod
    def _interval(self, link: Any, key: int, opens: int) -> Columns:
        """All readings of an interval."""

    @abstractmethod
    def _of_houses(self, link: Any, key: int, opens: int, houses: Int32s) -> Columns:
        """The readings of some houses in an interval."""

    @abstractmethod
    def shut(self) -> None:
        """See MeterStore."""

    # ---- zones

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """See MeterStore."""
        roster = Roster.of(zone, meters, interval)
        with self._write() as link:
            self._ask(
                link,
                "INSERT INTO hushgrid_meter_zone"
                " (zone, houses, interval_s, roster, closed_end, floor_s)"
                " VALUES (?, ?, ?, ?, -1, -1) ON CONFLICT (zone) DO NOTHING",
                zone, roster.houses, roster.interval, roster.digest,
            )  # fmt: skip
            self._row(link, zone).epoch.check_same(roster, zone)
        self._know(zone, roster)

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """See MeterStore."""
        roster = Roster.of(zone, meters, interval)
        with self._write() as link:
            self._lock_zone(link, zone)
            key, epoch = self._row(link, zone)
            if roster != epoch.roster:
                epoch = epoch.ended(begins)
                epoch.check_renewable([*self._spans(link, key, epoch.closed_end)][:1], zone)
                self._update(link, key, epoch.renewed(roster))
        self._know(zone, roster)

    def _know(self, zone: str, roster: Roster) -> None:
        with self._writing:
            self._rosters[zone] = roster
            if zone not in self._groups:
                self._groups[zone] = GroupCommit(
                    self._writing, lambda batches: self._commit(zone, batches)
                )

    def _row(self, link: Any, zone: str) -> _Row:
        """A zone as the transaction sees it."""
        found = self._ask(
            link,
            "SELECT key, houses, interval_s, roster, closed_end, floor_s"
            " FROM hushgrid_meter_zone WHERE zone = ?",
            zone,
        ).fetchone()
        if found is None:
            raise MeterError(f"zone {zone!r} is new; call open_zone.")
        key, houses, interval, digest, closed_end, floor = found
        return _Row(key, RosterEpoch(Roster(houses, interval, digest), closed_end, floor))

    def _known_row(self, link: Any, zone: str) -> _Row:
        """A zone with the roster that this process opened it with."""
        roster = self._rosters.get(zone)
        if roster is None:
            raise MeterError(f"zone {zone!r} is not open; call open_zone with its roster first.")
        row = self._row(link, zone)
        row.epoch.check_same(roster, zone)
        return row

    def _update(self, link: Any, key: int, epoch: RosterEpoch) -> None:
        roster = epoch.roster
        self._ask(
            link,
            "UPDATE hushgrid_meter_zone SET houses = ?, interval_s = ?, roster = ?,"
            " closed_end = ?, floor_s = ? WHERE key = ?",
            roster.houses, roster.interval, roster.digest, epoch.closed_end, epoch.floor, key,
        )  # fmt: skip

    # ---- readings

    def put_each(
        self,
        zone: str,
        house: ArrayLike,
        start: ArrayLike,
        duration: ArrayLike,
        wh: ArrayLike,
        *,
        ends: Sequence[int],
        marked: ArrayLike | None = None,
    ) -> list[Counts]:
        """See MeterStore."""
        columns = Columns.of(house, start, duration, wh)
        group = self._groups.get(zone)
        if group is None:
            raise MeterError(f"zone {zone!r} is not open; call open_zone with its roster first.")
        return group.put(columns, ends, marked)

    def _commit(self, zone: str, batches: Sequence[Columns]) -> Int8s:
        with self._write() as link:
            self._lock_zone(link, zone)
            key, epoch = self._known_row(link, zone)
            batch = sort(joined(batches), epoch)
            for share in batch.shares:
                self._store(link, key, epoch.roster, share)
        return batch.gather_codes()

    def _store(self, link: Any, key: int, roster: Roster, share: Share) -> None:
        memory = IntervalMemory(share.opens, roster)
        houses = np.unique(share.columns.house[share.codes == ACCEPTED])
        _load(memory, self._of_houses(link, key, share.opens, houses), share.opens)
        accepted = memory.merge(share)
        if accepted.house.size:
            self._insert(link, key, share.opens, accepted)

    def get(self, zone: str, start: int) -> Interval:
        """See MeterStore."""
        with self._read() as link:
            key, epoch = self._known_row(link, zone)
            opens = epoch.roster.interval_at(start, zone)
            epoch.check_readable(opens, zone)
            columns = self._interval(link, key, opens)
        memory = IntervalMemory(opens, epoch.roster)
        _load(memory, columns, opens)
        return memory.interval()

    def close(self, zone: str, start: int) -> None:
        """See MeterStore."""
        with self._write() as link:
            self._lock_zone(link, zone)
            key, epoch = self._known_row(link, zone)
            self._update(link, key, epoch.closed(epoch.roster.interval_at(start, zone)))

    def last_closed(self, zone: str) -> int | None:
        """See MeterStore."""
        with self._read() as link:
            if zone in self._rosters:
                return self._known_row(link, zone).epoch.last_closed
            row = self._ask(
                link, "SELECT 1 FROM hushgrid_meter_zone WHERE zone = ?", zone
            ).fetchone()
            return None if row is None else self._row(link, zone).epoch.last_closed

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """See MeterStore."""
        with self._read() as link:
            key, epoch = self._known_row(link, zone)
            return tuple(self._spans(link, key, epoch.closed_end))

    def purge(self, zone: str, before: int) -> int:
        """See MeterStore."""
        with self._write() as link:
            self._lock_zone(link, zone)
            key, epoch = self._known_row(link, zone)
            epoch = epoch.purged(before)
            old = list(self._spans(link, key, -1, epoch.floor))
            self._update(link, key, epoch)
            self._ask(
                link,
                "DELETE FROM hushgrid_meter_reading WHERE zone = ? AND span < ?",
                key,
                epoch.floor,
            )
        return len(old)

    def _spans(self, link: Any, key: int, first: int, end: int = 2**62) -> Iterator[int]:
        """Intervals with readings from `first` on, one index lookup for each."""
        while True:
            (found,) = self._ask(
                link,
                "SELECT min(span) FROM hushgrid_meter_reading"
                " WHERE zone = ? AND span >= ? AND span < ?",
                key,
                first,
                end,
            ).fetchone()
            if found is None:
                return
            yield found
            first = found + 1


def _load(memory: IntervalMemory, columns: Columns, opens: int) -> None:
    if not memory.load(columns):
        raise MeterError(
            f"meter database holds readings in interval {opens} that cannot have been accepted;"
            " restore it from a copy."
        )


# ---- SQLite

_WAIT = 30.0  # [s] for another process to finish its transaction


class SqliteMeters(SqlMeters):
    """Meter store in one SQLite file: write-ahead log, synced at every commit.

    Args:
        path: The file; created where it is absent.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = Path(path).absolute()
        self._reading = threading.RLock()
        self._links: list[sqlite3.Connection] = []
        try:
            make_folder(self._path.parent)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._links.append(self._connect())
            for table in TABLES:
                self._links[0].execute(
                    table.format(identity="integer PRIMARY KEY", clustered=" WITHOUT ROWID")
                )
            self._links.append(self._connect())
            sync_folder(self._path.parent)
        except (OSError, sqlite3.Error) as error:
            self.shut()
            raise MeterError(
                f"meter store {self._path} cannot be opened ({_why(error)});"
                " give a SQLite file that can be written."
            ) from None

    def _connect(self) -> sqlite3.Connection:
        link = sqlite3.connect(
            self._path, timeout=_WAIT, isolation_level=None, check_same_thread=False
        )
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = FULL")
        link.execute("PRAGMA secure_delete = ON")  # purged readings are overwritten
        return link

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._transaction(0, "BEGIN IMMEDIATE") as link:
            yield link

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._reading, self._transaction(1, "BEGIN") as link:
            yield link

    @contextmanager
    def _transaction(self, which: int, begin: str) -> Iterator[sqlite3.Connection]:
        if not self._links:
            raise MeterError(f"meter store {self._path} is shut; open it again.")
        link = self._links[which]
        try:
            link.execute(begin)
            yield link
            link.execute("COMMIT")
        except BaseException as error:
            _roll_back(link)
            if not isinstance(error, sqlite3.Error):
                raise
            kind = MeterRetryError if isinstance(error, sqlite3.OperationalError) else MeterError
            raise kind(
                f"meter store {self._path} failed ({_why(error)}); nothing was accepted,"
                " make it writable or make room and try again."
            ) from None

    def _ask(self, link: Any, query: str, *values: Any) -> Any:
        return link.execute(query, values)

    def _lock_zone(self, link: Any, zone: str) -> None:
        """BEGIN IMMEDIATE holds the whole file."""

    def _insert(self, link: Any, key: int, opens: int, columns: Columns) -> None:
        rows = zip(*(column.tolist() for column in columns), strict=True)
        link.executemany(
            "INSERT INTO hushgrid_meter_reading (zone, span, house, start, duration, wh)"
            f" VALUES ({key:d}, {opens:d}, ?, ?, ?, ?)",
            rows,
        )

    def _interval(self, link: Any, key: int, opens: int) -> Columns:
        return _columns(
            link.execute(
                "SELECT house, start, duration, wh FROM hushgrid_meter_reading"
                " WHERE zone = ? AND span = ?",
                (key, opens),
            )
        )

    def _of_houses(self, link: Any, key: int, opens: int, houses: Int32s) -> Columns:
        return _columns(
            link.execute(
                "SELECT r.house, r.start, r.duration, r.wh FROM json_each(?) AS j"
                " CROSS JOIN hushgrid_meter_reading AS r"
                " ON r.zone = ? AND r.span = ? AND r.house = j.value",
                (json.dumps(houses.tolist()), key, opens),
            )
        )

    def shut(self) -> None:
        """See MeterStore."""
        with self._writing, self._reading:
            while self._links:
                self._links.pop().close()


def _columns(found: sqlite3.Cursor) -> Columns:
    types = (np.int32, np.int64, np.int32, np.int64)
    rows = found.fetchall()
    columns = zip(*rows, strict=True) if rows else ((),) * 4
    return Columns(*(np.array(c, t) for c, t in zip(columns, types, strict=True)))


def _roll_back(link: sqlite3.Connection) -> None:
    try:
        if link.in_transaction:
            link.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # the transaction is gone with the file; the next one says so again


def _why(error: BaseException) -> str:
    """The reason of an error, without the values of the query."""
    if isinstance(error, OSError):
        return str(error.strerror)
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
