"""Records in PostgreSQL. The writer of a zone holds a session with an advisory lock on it.

The lock ends with its session, and a session ends only after its transaction did. So a process
that gets the lock back after a lost connection reads the final outcome of an append that was cut
off. Connect to the server itself: a pooler that shares sessions shares their locks.

Curators that share zones have every lock and every append on one session (`SharedLedger`). With the
session all of it ends at once: the locks, an append under way, and the right to append. Nothing is
tried again on another session, since another curator may be the writer by then; `connect` begins
anew.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import psycopg

from hushgrid.errors import LedgerError
from hushgrid.service.ledger.ports import check_next, held_elsewhere, not_held, twice
from hushgrid.service.ledger.records import Record, canonical, digest_of, from_fields

VERSION = 1
PAGE = 500  # records read at once
PATIENCE = 30.0  # [s] to wait for a server that went away
PAUSE = 0.2  # [s] between attempts

_SCHEMA = """
CREATE TABLE hushgrid_ledger (
  zone text COLLATE "C" NOT NULL, seq bigint NOT NULL, kind text NOT NULL, t bigint,
  body text NOT NULL, prev text NOT NULL, digest text NOT NULL, signature text NOT NULL,
  PRIMARY KEY (zone, seq), UNIQUE (zone, t)
);
CREATE TABLE hushgrid_ledger_version (version integer NOT NULL);
CREATE FUNCTION hushgrid_ledger_grows() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'records are never changed or removed'; END $$;
CREATE TRIGGER hushgrid_ledger_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON hushgrid_ledger
  FOR EACH STATEMENT EXECUTE FUNCTION hushgrid_ledger_grows();
"""
# which server a zone was last opened on; a promoted standby has another timeline, and a dump that
# was restored has another number of the table. Earlier versions did not note the number.
_HOME = """
CREATE TABLE IF NOT EXISTS hushgrid_ledger_home (
  zone text COLLATE "C" PRIMARY KEY, server text NOT NULL
)
"""
_SERVER = """
SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
  || '/' || 'hushgrid_ledger'::regclass::oid
FROM pg_control_system()
"""
COLUMNS = "zone, seq, kind, body, prev, digest, signature"
SESSION: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "fallback_application_name": "hushgrid",
}

Session = psycopg.Connection[tuple[Any, ...]]


class PostgresLedger:
    """A LedgerStore on a server.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        create: Make its tables where they are absent.
        patience: How long to wait for a server that went away [s].

    Raises:
        LedgerError: The server cannot be reached, or has no ledger or one of another version.
    """

    _options = SESSION

    def __init__(self, url: str, *, create: bool = True, patience: float = PATIENCE) -> None:
        self._url, self._patience = url, patience
        self._mutex = threading.RLock()
        self._held: dict[str, Session] = {}
        self._place = _place(url)
        self._reader = self._connected()
        with self._errors():
            try:
                self._check_schema(create)
            except BaseException:
                self._reader.close()
                raise

    def append(self, record: Record) -> None:
        """Add the next record; committed to the server's disk before it returns."""
        with self._mutex, self._errors():
            if record.zone not in self._held:
                raise not_held(record.zone)
            deadline = time.monotonic() + self._patience
            try:
                self._insert(record)
            except psycopg.OperationalError:
                if not self._held[record.zone].closed:
                    raise
                self._resolve(record, deadline)

    def _insert(self, record: Record) -> None:
        session = self._held[record.zone]
        row = (record.zone, record.seq, record.kind, record.t, canonical(record.body))
        try:
            with session.transaction():
                self._admit(session, record.zone)
                check_next(record.zone, _head(session, record.zone), record)
                session.execute(
                    "INSERT INTO hushgrid_ledger"
                    " (zone, seq, kind, t, body, prev, digest, signature)"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
                    (*row, record.prev, record.digest, record.signature),
                )
        except psycopg.errors.UniqueViolation:  # the number was free, so it is the step
            raise twice(record) from None

    def _admit(self, session: Session, zone: str) -> None:
        """What else must hold in the transaction of an append; LedgerError where it does not."""

    def _resolve(self, record: Record, deadline: float) -> None:
        """Whether an append took place whose connection died: ask, and only then do it again."""
        while True:
            self._held[record.zone] = self._relocked(record.zone, deadline)
            try:
                head = _head(self._held[record.zone], record.zone)
                if head is None or head.digest != record.digest:
                    self._insert(record)
                return
            except psycopg.OperationalError:
                if not self._held[record.zone].closed or time.monotonic() > deadline:
                    raise

    def _relocked(self, zone: str, deadline: float) -> Session:
        """A new session with the zone's lock, as soon as the server has ended the old one."""
        self._held[zone].close()
        while True:
            try:
                return self._locked(zone)
            except (psycopg.OperationalError, LedgerError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def _locked(self, zone: str) -> Session:
        session = self._connected()
        try:
            make_durable(session)
            row = session.execute("SELECT pg_try_advisory_lock(%s)", (lock_of(zone),)).fetchone()
            if not (row and row[0]):
                raise held_elsewhere(zone)
        except BaseException:
            session.close()
            raise
        return session

    def records(self, zone: str, after_seq: int = 0) -> Iterator[Record]:
        """A zone's records in order, a page at a time."""
        while True:
            page = self._select(
                f"SELECT {COLUMNS} FROM hushgrid_ledger WHERE zone = %s AND seq > %s"
                " ORDER BY seq LIMIT %s",
                (zone, after_seq, PAGE),
            )
            for row in page:
                yield from_fields(*row)
            if len(page) < PAGE:
                return
            after_seq = page[-1][1]

    def head(self, zone: str) -> Record | None:
        """A zone's last record."""
        rows = self._select(_HEAD, (zone,))
        return from_fields(*rows[0]) if rows else None

    def witness(self, zone: str) -> str | None:  # noqa: ARG002
        """None is kept: the server checks its log itself."""
        return None

    def server(self) -> str | None:
        """Which server answers, on which timeline, with which table; None where it does not say."""
        try:
            return str(self._select(_SERVER, ())[0][0])
        except LedgerError:
            if self._reader.closed:
                raise
            return None

    def moved(self, zone: str) -> bool | None:
        """Whether another server answers than when the zone was last opened."""
        if not self._select("SELECT to_regclass('hushgrid_ledger_home')", ())[0][0]:
            return None
        rows = self._select("SELECT server FROM hushgrid_ledger_home WHERE zone = %s", (zone,))
        now = self.server()
        return None if not rows or now is None else rows[0][0] not in _names(now)

    def settle(self, zone: str) -> None:
        """Note the server that answers now as the zone's."""
        now = self.server()
        with self._mutex, self._errors():
            if zone not in self._held:
                raise not_held(zone)
            if now is None:
                return
            session = self._held[zone]
            if not session.execute("SELECT to_regclass('hushgrid_ledger_home')").fetchall()[0][0]:
                with session.transaction():
                    session.execute("SELECT pg_advisory_xact_lock(%s)", (lock_of(""),))
                    session.execute(_HOME)
            session.execute(
                "INSERT INTO hushgrid_ledger_home VALUES (%s, %s) ON CONFLICT (zone) DO UPDATE"
                " SET server = excluded.server WHERE hushgrid_ledger_home.server <> %s",
                (zone, now, now),
            )

    def zones(self) -> tuple[str, ...]:
        """The zones that have records, sorted."""
        rows = self._select("SELECT DISTINCT zone FROM hushgrid_ledger ORDER BY zone", ())
        return tuple(row[0] for row in rows)

    def _select(self, query: Any, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Read; once more on a new connection where the old one is gone."""
        with self._mutex, self._errors():
            try:
                return self._reader.execute(query, values).fetchall()
            except psycopg.OperationalError:
                if not self._reader.closed:
                    raise
            self._reader = self._connected()
            return self._reader.execute(query, values).fetchall()

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The lock of a zone, on a session of its own."""
        with self._mutex, self._errors():
            if zone in self._held:
                raise held_elsewhere(zone)
            self._held[zone] = self._locked(zone)
        try:
            yield
        finally:
            with self._mutex:
                session = self._held.pop(zone)
                # the server ends a session when it comes to it, so the lock is given up first
                with suppress(psycopg.Error):
                    session.execute("SELECT pg_advisory_unlock(%s)", (lock_of(zone),))
                session.close()

    def close(self) -> None:
        """Close the connections."""
        with self._mutex, suppress(psycopg.Error):
            self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connected(self) -> Session:
        with self._errors():
            try:
                return psycopg.connect(self._url, autocommit=True, **self._options)
            except psycopg.ProgrammingError:  # its message would show the URL, password and all
                raise LedgerError(
                    "store is no URL that PostgreSQL knows; give postgresql://USER@HOST/DATABASE."
                ) from None

    def _check_schema(self, create: bool) -> None:
        with self._reader.transaction():
            self._reader.execute("SELECT pg_advisory_xact_lock(%s)", (lock_of(""),))
            row = self._reader.execute("SELECT to_regclass('hushgrid_ledger_version')").fetchone()
            if not (row and row[0]):
                if not create:
                    raise LedgerError(f"{self._place} has no ledger; give the one that has it.")
                self._reader.execute(_SCHEMA)
                self._reader.execute("INSERT INTO hushgrid_ledger_version VALUES (%s)", (VERSION,))
            row = self._reader.execute("SELECT version FROM hushgrid_ledger_version").fetchone()
        if row is None or row[0] != VERSION:
            raise LedgerError(
                f"the ledger at {self._place} has schema version {row and row[0]} where {VERSION}"
                " is known; use the hushgrid that wrote it."
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The driver's errors as errors of this package, in one line."""
        try:
            yield
        except psycopg.Error as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise LedgerError(
                f"ledger at {self._place} cannot be used ({why}); see that the server is there,"
                " and open it again."
            ) from None


_HEAD = f"SELECT {COLUMNS} FROM hushgrid_ledger WHERE zone = %s ORDER BY seq DESC LIMIT 1"


def _names(server: str) -> list[str]:
    """A server as it is noted, and as earlier versions did."""
    return [server, server.rpartition("/")[0]]


def _head(session: Session, zone: str) -> Record | None:
    row = session.execute(_HEAD, (zone,)).fetchone()
    return from_fields(*row) if row else None


def standbys(url: str) -> tuple[str, int]:
    """How a server is followed by standbys.

    Args:
        url: The database.

    Returns:
        `synchronous_standby_names`, and how many standbys follow the server now.

    Raises:
        LedgerError: The server cannot be asked.
    """
    try:
        with psycopg.connect(url, autocommit=True, **(SESSION | {"connect_timeout": 3})) as session:
            row = session.execute(
                "SELECT current_setting('synchronous_standby_names'), count(*)"
                " FROM pg_stat_replication"
            ).fetchone()
    except psycopg.Error as error:
        why = "" if isinstance(error, psycopg.ProgrammingError) else " ".join(str(error).split())
        raise LedgerError(
            f"the database cannot be asked ({why or type(error).__name__}); see that it is there."
        ) from None
    return (str(row[0]).strip(), int(row[1])) if row else ("", 0)


def make_durable(session: Session) -> None:
    """Make commits of a session wait for the disk, and let it outlast pauses between appends.

    Args:
        session: An open session.

    Raises:
        LedgerError: The server has fsync off.
    """
    row = session.execute("SHOW fsync").fetchone()
    if row is None or row[0] != "on":
        raise LedgerError("the server has fsync off, so nothing is durable; turn it on.")
    row = session.execute("SHOW synchronous_commit").fetchone()
    if row is None or row[0] in ("off", "local", "remote_write"):
        session.execute("SET synchronous_commit = on")
    session.execute("SET lock_timeout = '10s'")  # on a row of someone who ignores our lock
    if session.info.server_version >= 140000:
        session.execute("SET idle_session_timeout = 0")


def lock_of(zone: str) -> int:
    """The number of a zone's advisory lock, the same in every process and version.

    Args:
        zone: The zone's name.

    Returns:
        A signed number of 64 bits.
    """
    name = f"hushgrid-ledger/1 writer\n{zone}\n"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _place(url: str) -> str:
    """The server and database in words, without the password."""
    return url.partition("://")[2].rpartition("@")[2].partition("?")[0]


_AFTER = f"""
SELECT {", ".join(f"found.{name}" for name in COLUMNS.split(", "))}
FROM unnest(%s::text[], %s::bigint[]) AS known (zone, seq)
CROSS JOIN LATERAL (
  SELECT {COLUMNS} FROM hushgrid_ledger AS one
  WHERE one.zone = known.zone AND one.seq > known.seq ORDER BY one.seq LIMIT {PAGE}
) AS found ORDER BY found.zone, found.seq
"""
_LOCK = """
SELECT wanted.zone FROM unnest(%s::text[], %s::bigint[]) AS wanted (zone, key)
WHERE pg_try_advisory_lock(wanted.key)
"""

# with a lease's row held until the commit: who would take the lease waits, and reads this record
_APPEND = """
WITH fence AS (SELECT FROM hushgrid_lease WHERE name = %(zone)s AND curator = %(me)s FOR SHARE)
INSERT INTO hushgrid_ledger (zone, seq, kind, t, body, prev, digest, signature)
SELECT %(zone)s, %(seq)s, %(kind)s, %(t)s, %(body)s, %(prev)s, %(digest)s, %(signature)s FROM fence
WHERE (%(prev)s::text, %(seq)s::bigint - 1) = (
  SELECT digest, seq FROM hushgrid_ledger WHERE zone = %(zone)s ORDER BY seq DESC LIMIT 1
)
"""
_FENCE = "SELECT FROM hushgrid_lease WHERE name = %s AND curator = %s FOR SHARE"


class SharedLedger(PostgresLedger):
    """A LedgerStore on one session. Threads may share it.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        me: The curator that must have the lease of a zone for each append; without it no lease is
            asked for.
        create: Make its tables where they are absent.
    """

    def __init__(self, url: str, me: str | None = None, *, create: bool = True) -> None:
        self._me, self._mine, self._unfenced = me, set[str](), set[str]()
        self._options = SESSION | {"connect_timeout": 2, "tcp_user_timeout": 5_000}
        super().__init__(url, create=create)
        self._prepare()

    def _prepare(self) -> None:
        with self._errors():
            try:
                make_durable(self._reader)
                self._reader.execute("SET lock_timeout = '1s'")  # who is stuck will be ended
            except BaseException:
                self._reader.close()
                raise

    @property
    def connected(self) -> bool:
        """Whether the session goes on, as far as is known here."""
        return not self._reader.closed

    def connect(self) -> None:
        """Begin a new session: without any lock."""
        session = self._connected()
        with self._mutex:
            self._reader.close()
            self._reader = session
            self._mine.clear()
            self._prepare()

    def run(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """A statement of its own; its rows."""
        with self._mutex, self._errors():
            found = self._reader.execute(query.encode(), values)
            return found.fetchall() if found.description else []

    def lock(self, zones: Collection[str]) -> frozenset[str]:
        """Try to lock what is not locked yet; those of the zones that are."""
        with self._mutex, self._errors():
            wanted = [zone for zone in zones if zone not in self._mine]
            if wanted:
                rows = self._reader.execute(_LOCK, (wanted, [lock_of(zone) for zone in wanted]))
                self._mine |= {zone for (zone,) in rows}
            return frozenset(self._mine.intersection(zones))

    def unlock(self, zone: str) -> None:
        """Let go of a zone."""
        with self._mutex:
            if zone in self._mine:
                self._mine.discard(zone)
                with suppress(psycopg.Error):
                    self._reader.execute("SELECT pg_advisory_unlock(%s)", (lock_of(zone),))

    def cut_off(self, zone: str) -> bool:
        """Whether a writer here began in a session that is over."""
        return self._held.get(zone, self._reader) is not self._reader

    def resume(self, zone: str) -> None:
        """Let a writer that was cut off go on, with the lock of the present session.

        Only for one that is sure of the zone's last record: read it after the lock was taken.
        """
        with self._mutex:
            if zone not in self._mine or zone not in self._held:
                raise not_held(zone)
            self._held[zone] = self._reader

    def after(self, known: dict[str, int]) -> list[Record]:
        """The next records of many zones, each from the one after its number on; a page of each."""
        rows = self._select(_AFTER.encode(), (list(known), list(known.values())))
        return [from_fields(*row) for row in rows]

    def append(self, record: Record) -> None:
        """Add the next record; committed to the server's disk before it returns."""
        with self._mutex, self._errors():
            if record.zone not in self._held:
                raise not_held(record.zone)
            alone = self._me is None or record.zone in self._unfenced
            if alone or not self._append_at_once(record):
                self._insert(record)  # or the reason why not

    def _append_at_once(self, record: Record) -> bool:
        """The usual append, in one statement; whether it was one."""
        if record.digest != digest_of(record):
            return False
        values = {
            "me": self._me,
            **{name: getattr(record, name) for name in COLUMNS.split(", ")},
            "t": record.t,
            "body": canonical(record.body),
        }
        try:
            return self._held[record.zone].execute(_APPEND.encode(), values).rowcount == 1
        except psycopg.errors.UniqueViolation:
            return False

    def _admit(self, session: Session, zone: str) -> None:
        if self._me is None or zone in self._unfenced:
            return
        if session.execute(_FENCE, (zone, self._me)).fetchone() is None:
            raise LedgerError(f"zone {zone!r} is another curator's now; it goes on there.")

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The right to append, for as long as the session lasts in which it began."""
        with self._mutex:
            if zone in self._held or zone not in self.lock([zone]):
                raise held_elsewhere(zone)
            self._held[zone] = self._reader
        try:
            yield
        finally:
            with self._mutex:
                if self._held.pop(zone) is self._reader:
                    self.unlock(zone)

    @contextmanager
    def recovering(self, zone: str) -> Iterator[None]:
        """The right to append again what the store has lost, with the lock and without a lease."""
        with self.writer(zone):
            self._unfenced.add(zone)
            try:
                yield
            finally:
                self._unfenced.discard(zone)

    def any_moved(self, zones: Collection[str]) -> bool:
        """Whether one of the zones was last opened on another server, or timeline of it."""
        now = self.server()
        if now is None or not self.run("SELECT to_regclass('hushgrid_ledger_home')")[0][0]:
            return False
        query = (
            "SELECT FROM hushgrid_ledger_home WHERE zone = ANY(%s) AND server <> ALL(%s) LIMIT 1"
        )
        return bool(self.run(query, list(zones), _names(now)))

    def _select(self, query: Any, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
            return self._reader.execute(query, values).fetchall()
