"""Meter store in PostgreSQL (extra `postgres`): COPY in binary, commits that wait for the disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hushgrid._numbers import Int32s
from hushgrid.errors import ExtraError, MeterError, MeterRetryError
from hushgrid.service.meters.ports import Columns
from hushgrid.service.meters.sql import TABLES, SqlMeters

try:
    import psycopg
except ModuleNotFoundError:
    raise ExtraError(
        "a meter store in PostgreSQL needs psycopg; install hushgrid[postgres]."
    ) from None

_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TAIL = b"\xff\xff"
_SCHEMA_LOCK = 0x6875_7368  # so that two processes do not make the tables at once


def _binary(**fields: str) -> np.dtype[Any]:
    """A row of COPY's binary format: number of fields, then each with its length before it."""
    parts = [("fields", ">i2")]
    for name, kind in fields.items():
        parts += [(f"{name} length", ">i4"), (name, kind)]
    return np.dtype(parts)


_IN = _binary(zone=">i4", span=">i8", house=">i4", start=">i8", duration=">i4", wh=">i8")
_OUT = _binary(house=">i4", start=">i8", duration=">i4", wh=">i8")


class PostgresMeters(SqlMeters):
    """Meter store in a PostgreSQL database. See `MeterStore` for each method.

    A call that finds the database unavailable raises MeterRetryError; the next one connects again.

    Args:
        url: postgresql://user@host/name.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._shut = url, False
        self._writer = _Link(self._writing, psycopg.IsolationLevel.READ_COMMITTED)
        self._reader = _Link(threading.RLock(), psycopg.IsolationLevel.REPEATABLE_READ)
        self._closer = _Link(threading.RLock(), psycopg.IsolationLevel.READ_COMMITTED)
        with self._write() as link:
            link.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
            for table in TABLES:
                identity = "integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
                link.execute(table.format(identity=identity, clustered=""))

    @contextmanager
    def _write(self) -> Iterator[Any]:
        with self._using(self._writer) as link, link.transaction():
            yield link

    @contextmanager
    def _read(self) -> Iterator[Any]:
        with self._using(self._reader) as link, link.transaction():
            yield link

    @contextmanager
    def _using(self, link: _Link) -> Iterator[psycopg.Connection[Any]]:
        with link.lock:
            if self._shut:
                raise MeterError("meter store in PostgreSQL is shut; open it again.")
            try:
                if link.connection is None:
                    link.connection = _connect(self._url, link.isolation)
                yield link.connection
            except psycopg.Error as error:
                link.drop()
                # no cause: what a database says of a row may hold its readings
                raise _failure(error) from None

    def _ask(self, link: Any, query: str, *values: Any) -> Any:
        return link.execute(query.replace("?", "%s"), values)

    def _lock_zone(self, link: Any, zone: str) -> None:
        link.execute("SELECT 1 FROM hushgrid_meter_zone WHERE zone = %s FOR UPDATE", (zone,))

    def _insert(self, link: Any, key: int, opens: int, columns: Columns) -> None:
        rows = np.empty(columns.house.size, _IN)
        values = {"zone": key, "span": opens, **columns._asdict()}
        rows["fields"] = len(values)
        for name, value in values.items():
            rows[name], rows[f"{name} length"] = value, _IN[name].itemsize
        with (
            link.cursor() as cursor,
            cursor.copy(
                "COPY hushgrid_meter_reading (zone, span, house, start, duration, wh)"
                " FROM STDIN (FORMAT BINARY)"
            ) as copy,
        ):
            copy.write(_HEAD + rows.tobytes() + _TAIL)

    def _interval(self, link: Any, key: int, opens: int) -> Columns:
        return _copied(link, f"zone = {key:d} AND span = {opens:d}")

    def _of_houses(self, link: Any, key: int, opens: int, houses: Int32s) -> Columns:
        some = ",".join(map(str, houses.tolist()))
        return _copied(link, f"zone = {key:d} AND span = {opens:d} AND house = ANY('{{{some}}}')")

    def close(self, zone: str, start: int) -> None:
        """See MeterStore. One statement, which waits only for senders of this zone."""
        roster = self._rosters.get(zone)
        if roster is not None:
            end = roster.interval_at(start, zone) + roster.interval
            with self._using(self._closer) as link:
                done = link.execute(
                    "UPDATE hushgrid_meter_zone SET closed_end = greatest(closed_end, %s)"
                    " WHERE zone = %s AND houses = %s AND interval_s = %s AND roster = %s",
                    (end, zone, roster.houses, roster.interval, roster.digest),
                )
            if done.rowcount:
                return
        super().close(zone, start)  # says what is wrong

    def shut(self) -> None:
        """See MeterStore."""
        with self._writer.lock, self._reader.lock, self._closer.lock:
            self._shut = True
            for link in (self._writer, self._reader, self._closer):
                link.drop()


class _Link:
    """A connection that is opened when it is needed."""

    __slots__ = ("connection", "isolation", "lock")

    def __init__(self, lock: threading.RLock, isolation: psycopg.IsolationLevel) -> None:
        self.lock, self.isolation = lock, isolation
        self.connection: psycopg.Connection[Any] | None = None

    def drop(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def _connect(url: str, isolation: psycopg.IsolationLevel) -> psycopg.Connection[Any]:
    try:
        link = psycopg.connect(
            url, autocommit=True, connect_timeout=10, tcp_user_timeout=30_000,
            fallback_application_name="hushgrid-meters",
        )  # fmt: skip
    except psycopg.OperationalError as error:
        why = str(error).strip().splitlines()[0]
        raise MeterRetryError(f"meter database cannot be reached ({why}); start it.") from None
    try:
        link.isolation_level = isolation
        (sync,) = link.execute("SHOW fsync").fetchone() or ("off",)
        if sync != "on":
            raise MeterError("database has fsync off, so nothing is durable; turn fsync on.")
        if link.execute("SHOW synchronous_commit").fetchone() == ("off",):
            link.execute("SET synchronous_commit TO on")
    except BaseException:
        link.close()
        raise
    return link


def _copied(link: Any, condition: str) -> Columns:
    """The readings that meet a condition (made of numbers)."""
    query = f"SELECT house, start, duration, wh FROM hushgrid_meter_reading WHERE {condition}"
    with link.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
        data = b"".join(copy)
    rows = np.frombuffer(data, _OUT, (len(data) - len(_HEAD) - len(_TAIL)) // _OUT.itemsize, 19)
    return Columns(
        rows["house"].astype(np.int32),
        rows["start"].astype(np.int64),
        rows["duration"].astype(np.int32),
        rows["wh"].astype(np.int64),
    )


def _failure(error: psycopg.Error) -> MeterError:
    kind = f"{type(error).__name__} {error.sqlstate or ''}".strip()
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return MeterError("database URL cannot be read; give postgresql://user@host:port/name.")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return MeterRetryError(
            f"meter database cannot be used now ({kind}); try again:"
            " what was accepted nevertheless will count as duplicate."
        )
    return MeterError(f"meter database refused ({kind}); see its log.")
