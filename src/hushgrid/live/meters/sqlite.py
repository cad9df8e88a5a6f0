"""Meter store in a SQLite file: write-ahead log, synced at every commit."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid.arrays import Int32s
from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.live.meters.batch import Columns
from hushgrid.live.meters.disk import make_folder, sync_folder
from hushgrid.live.meters.sql import TABLES, SqlMeters

_WAIT = 30.0  # [s] for another process to finish its transaction


class SqliteMeters(SqlMeters):
    """Meter store in one file. See `MeterStore`."""

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
    """What went wrong, without what the query held."""
    if isinstance(error, OSError):
        return str(error.strerror)
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
