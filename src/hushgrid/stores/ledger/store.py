"""Records in an SQLite file or a PostgreSQL database: one table that only grows.

A file is read by anyone at any time; the writer of a zone holds its small file (`sidecar.py`).

On a server the writer of a zone holds a session with an advisory lock on it. The lock ends with its
session, and a session ends only after its transaction did. So a process that gets the lock back
after a lost connection reads the final outcome of an append that was cut off. Connect to the server
itself: a pooler that shares sessions shares their locks.

A copy of a file gets its name only when every record in it is verified and none that was durable
before is missing. The small files next to it are no part of a copy: they show that it is older.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import LedgerAwayError, LedgerError
from hushgrid.files.results import sync_folder
from hushgrid.stores.database import SORTED_TEXT, TIMELINE, Database, Schema, lock_key
from hushgrid.stores.ledger.chain import ChainReport, Verify, check
from hushgrid.stores.ledger.duties import check_next, held_elsewhere, not_held, twice
from hushgrid.stores.ledger.records import Head, Record, from_fields
from hushgrid.stores.ledger.sidecar import Sidecar, read_witness, sidecar_path

PAGE = 500  # records read at once
PAUSE = 0.2  # [s] between attempts


def _records(name: str, *rules: str) -> sa.Table:
    """The table of records; triggers against slips, the chain is there against intent."""
    table = sa.Table(
        name,
        sa.MetaData(),
        sa.Column("zone", SORTED_TEXT, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("t", sa.BigInteger),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("prev", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
        sa.UniqueConstraint("zone", "t"),
    )
    no_release = table.c.kind != "release"  # a few among many, looked for at each start
    sa.Index(
        f"{name}_others", table.c.zone, table.c.seq,
        sqlite_where=no_release, postgresql_where=no_release,
    )  # fmt: skip
    for rule in rules:
        sa.event.listen(table, "after_create", sa.DDL(rule))  # type: ignore[no-untyped-call]
    return table


IN_FILE = _records(
    "records",
    "CREATE TRIGGER records_stay BEFORE UPDATE ON records"
    " BEGIN SELECT RAISE(ABORT, 'records are never changed'); END",
    "CREATE TRIGGER records_remain BEFORE DELETE ON records"
    " BEGIN SELECT RAISE(ABORT, 'records are never removed'); END",
)
ON_SERVER = _records(
    "hushgrid_ledger",
    "CREATE OR REPLACE FUNCTION hushgrid_ledger_grows() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'records are never changed or removed'; END $$",
    "CREATE TRIGGER hushgrid_ledger_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON hushgrid_ledger"
    " FOR EACH STATEMENT EXECUTE FUNCTION hushgrid_ledger_grows()",
)
# which server a zone was last opened on; a promoted standby has another timeline, and a dump that
# was restored has another number of the table
HOME = sa.Table(
    "hushgrid_ledger_home",
    sa.MetaData(),
    sa.Column("zone", SORTED_TEXT, primary_key=True),
    sa.Column("server", sa.Text, nullable=False),
)
# the servers that a ledger was on, each since when it was noted there [UTC s]; 0: it began
# there
SERVERS = sa.Table(
    "hushgrid_ledger_servers",
    sa.MetaData(),
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("since", sa.BigInteger, nullable=False),
)
SERVER = (
    f"SELECT {TIMELINE} || '/' || CAST(CAST('hushgrid_ledger' AS regclass) AS oid)"
    " FROM pg_control_system()"
)
_SETTLE = sa.text("""
INSERT INTO hushgrid_ledger_home VALUES (:zone, :server) ON CONFLICT (zone) DO UPDATE
SET server = excluded.server WHERE hushgrid_ledger_home.server <> excluded.server
""")
_SINCE = sa.text("""
INSERT INTO hushgrid_ledger_servers SELECT :server, CASE
  WHEN EXISTS (SELECT FROM hushgrid_ledger_servers)
    OR EXISTS (SELECT FROM hushgrid_ledger_home WHERE server <> :server)
  THEN CAST(EXTRACT(EPOCH FROM now()) AS bigint) ELSE 0 END
ON CONFLICT DO NOTHING
""")
# one for each zone; any of them may be removed at any time
CHECKPOINTS = sa.Table(
    "hushgrid_ledger_checkpoint",
    sa.MetaData(),
    sa.Column("zone", SORTED_TEXT, primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("terms", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("state", sa.LargeBinary, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
)
LEDGER = Schema(
    "ledger",
    LedgerError,
    {"sqlite": [IN_FILE, CHECKPOINTS], "postgresql": [ON_SERVER, HOME, SERVERS, CHECKPOINTS]},
    application=0x48474C31,  # "HGL1"
    version=1,
    retry=LedgerAwayError,
    private=False,
    session={"connect_timeout": 2, "tcp_user_timeout": 5_000},
)
COLUMNS = ("zone", "seq", "kind", "body", "prev", "digest", "signature")


class SqlLedger(Database):
    """A LedgerStore: what files and servers have in common. Threads may share it.

    Args:
        url: A path or URL.
        schema: The tables.
        create: Make the ledger where it is absent; otherwise it is only read.
        still: See `Database`.
    """

    def __init__(
        self,
        url: str | Path,
        schema: Schema,
        *,
        create: bool = True,
        still: bool = False,
    ) -> None:
        super().__init__(url, schema, create=create, read_only=not create, still=still)
        self._mutex, table = threading.RLock(), self.tables[0]
        rows = sa.select(*(table.c[name] for name in COLUMNS)).where(
            table.c.zone == sa.bindparam("zone")
        )
        self._page = (
            rows.where(table.c.seq > sa.bindparam("after")).order_by(table.c.seq).limit(PAGE)
        )
        self._last = rows.order_by(table.c.seq.desc()).limit(1)
        self._last_of = self._last.where(table.c.kind == sa.bindparam("kind"))
        self._others = rows.where(table.c.kind != sa.literal_column("'release'"))
        self._newest_other = self._others.where(table.c.kind == sa.bindparam("kind")).order_by(
            table.c.seq.desc()
        )
        self._zones = sa.select(table.c.zone).distinct().order_by(table.c.zone)
        self._add = sa.insert(table)

    def records(self, zone: str, after_seq: int = 0) -> Iterator[Record]:
        """A zone's records in order, a page at a time: no long read holds up the log."""
        for row in self.columns(zone, after_seq):
            yield from_fields(*row)

    def columns(self, zone: str, after_seq: int = 0) -> Iterator[Sequence[Any]]:
        """The same as they are stored, without a check of their form."""
        while True:
            page = self.rows(self._page, zone=zone, after=after_seq)
            yield from page
            if len(page) < PAGE:
                return
            after_seq = page[-1].seq

    def others(self, zone: str) -> Iterator[Record]:
        """A zone's records that are no releases."""
        for row in self.rows(self._others.order_by(sa.asc("seq")), zone=zone):
            yield from_fields(*row)

    def checkpoint(self, zone: str) -> Sequence[Any] | None:
        """The zone's checkpoint; None where there is none."""
        rows = self.rows(sa.select(CHECKPOINTS).where(CHECKPOINTS.c.zone == zone))
        return tuple(rows[0]) if rows else None

    def keep_checkpoint(self, checkpoint: Sequence[Any]) -> None:
        """Keep a checkpoint in place of the zone's last one."""
        row = dict(zip(CHECKPOINTS.c.keys(), checkpoint, strict=True))
        with self.begin() as connection:
            connection.execute(sa.delete(CHECKPOINTS).where(CHECKPOINTS.c.zone == row["zone"]))
            connection.execute(sa.insert(CHECKPOINTS), row)

    def newest(self, zone: str, kind: str) -> Record | None:
        """A zone's last record of a kind."""
        newest = self._last_of if kind == "release" else self._newest_other.limit(1)
        rows = self.rows(newest, zone=zone, kind=kind)
        return from_fields(*rows[0]) if rows else None

    def head(self, zone: str) -> Record | None:
        """A zone's last record."""
        rows = self.rows(self._last, zone=zone)
        return from_fields(*rows[0]) if rows else None

    def zones(self) -> tuple[str, ...]:
        """The zones that have records, sorted."""
        return tuple(row.zone for row in self.rows(self._zones))

    def _insert(self, connection: sa.Connection, *records: Record) -> None:
        """Add the next records in a transaction of their zone's writer."""
        row = connection.execute(self._last, {"zone": records[0].zone}).first()
        former = from_fields(*row) if row else None
        for record in records:
            check_next(record.zone, former, record)
            try:
                connection.execute(self._add, row_of(record))
            except IntegrityError:  # the number was free, so it is the step
                raise twice(record) from None
            former = record


def row_of(record: Record) -> dict[str, Any]:
    """The columns of a record.

    Args:
        record: The record.

    Returns:
        Values by column.
    """
    row = {name: getattr(record, name) for name in COLUMNS}
    # an interval is published once
    start = None if record.t is None else record.body.get("start")
    return {**row, "t": start, "body": record.text}


class SqliteLedger(SqlLedger):
    """A LedgerStore in a file: one for all zones of a publisher.

    Args:
        path: The file.
        create: Make it where it is absent; otherwise it is only read.
        still: Where nothing is written at the time, reading leaves no further file of SQLite.

    Raises:
        LedgerError: The file is absent, no ledger, or cannot be used.
    """

    def __init__(self, path: Path | str, *, create: bool = True, still: bool = False) -> None:
        super().__init__(path, LEDGER, create=create, still=still)
        self._held: dict[str, Sidecar] = {}
        self._missing: dict[str, str] = {}  # by zone: the digest that was noted and is not here

    def append_all(self, records: Sequence[Record]) -> None:
        """Add a zone's next records in one transaction, on the disk before it returns."""
        with self._mutex:
            sidecar = self._sidecar(records[0].zone)
            with self.begin() as connection:
                self._insert(connection, *records)
            sidecar.note(Head(records[-1].seq, records[-1].digest))

    def append(self, record: Record) -> None:
        """Add the next record; in the log and on the disk before it returns."""
        with self._mutex:
            sidecar = self._sidecar(record.zone)
            with self.begin() as connection:
                self._insert(connection, record)
            if self._missing.get(record.zone) == record.digest:
                del self._missing[record.zone]
            if record.zone not in self._missing:
                sidecar.note(Head(record.seq, record.digest))

    def settle(self, zone: str) -> None:
        """Note the last record in the small file, also where a later one is missing."""
        with self._mutex:
            sidecar = self._sidecar(zone)
            head = self.head(zone)
            missing = self._missing.pop(zone, None)
            if head is not None and (missing or self.witness(zone) is None):
                sidecar.note(Head(head.seq, head.digest))

    def _sidecar(self, zone: str) -> Sidecar:
        sidecar = self._held.get(zone)
        if sidecar is None or not sidecar.is_mine():
            raise not_held(zone)
        return sidecar

    def _small(self, zone: str) -> Path:
        return sidecar_path(Path(self.place), zone)

    def witness(self, zone: str) -> str | None:
        """The last record noted in the small file."""
        head = read_witness(self._small(zone))
        return head.digest if head else None

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The lock of a zone, on its small file."""
        with self._mutex:
            sidecar = Sidecar(self._small(zone), zone)
            self._held[zone] = sidecar
        try:
            self._look_for_noted(zone)
            yield
        finally:
            with self._mutex:
                del self._held[zone]
                self._missing.pop(zone, None)
                sidecar.release()

    def _look_for_noted(self, zone: str) -> None:
        """A record that was durable and is missing stays noted until that is judged."""
        head = read_witness(self._small(zone))
        record = next(self.records(zone, head.seq - 1), None) if head else None
        if head and (record is None or record.digest != head.digest):
            self._missing[zone] = head.digest


class PostgresLedger(SqlLedger):
    """A LedgerStore on a server.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        create: Make its tables where they are absent; otherwise it is only read.
        patience: How long an append waits for a server that went away [s].

    Raises:
        LedgerError: The server cannot be reached, or has no ledger or one of another version.
    """

    def __init__(self, url: str, *, create: bool = True, patience: float = 30.0) -> None:
        super().__init__(url, LEDGER, create=create)
        self._patience = patience
        self._held: dict[str, sa.Connection] = {}

    def append_all(self, records: Sequence[Record]) -> None:
        """Add a zone's next records in one transaction, committed before it returns."""
        with self._mutex, self.on(self._held[records[0].zone]) as session:
            self._insert(session, *records)

    def append(self, record: Record) -> None:
        """Add the next record; committed to the server's disk before it returns."""
        with self._mutex:
            if record.zone not in self._held:
                raise not_held(record.zone)
            deadline = time.monotonic() + self._patience
            try:
                self._append(record)
            except LedgerError:
                if not self._held[record.zone].closed:
                    raise
                self._resolve(record, deadline)

    def _append(self, record: Record) -> None:
        with self.on(self._held[record.zone]) as session:
            self._insert(session, record)

    def _resolve(self, record: Record, deadline: float) -> None:
        """Whether an append took place whose connection died: ask, and only then do it again."""
        while True:
            self._held[record.zone] = self._relocked(record.zone, deadline)
            try:
                with self.on(self._held[record.zone]) as session:
                    row = session.execute(self._last, {"zone": record.zone}).first()
                if row is None or row.digest != record.digest:
                    self._append(record)
                return
            except LedgerError:
                if not self._held[record.zone].closed or time.monotonic() > deadline:
                    raise

    def _relocked(self, zone: str, deadline: float) -> sa.Connection:
        """A new session with the zone's lock, as soon as the server has ended the old one."""
        self._held[zone].close()
        while True:
            try:
                return self._locked(zone)
            except LedgerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    def _locked(self, zone: str) -> sa.Connection:
        session = self.session()
        try:
            with self.on(session):
                if not session.scalar(sa.select(sa.func.pg_try_advisory_lock(lock_of(zone)))):
                    raise held_elsewhere(zone)
        except BaseException:
            session.close()
            raise
        return session

    def witness(self, zone: str) -> str | None:  # noqa: ARG002
        """None is kept: the server checks its log itself."""
        return None

    def server(self) -> str | None:
        """Which server answers, on which timeline, with which table; None where it does not say."""
        return self.about(SERVER)

    def moved(self, zone: str) -> bool | None:
        """Whether another server may answer than when the zone was last opened.

        None: it was not noted.
        """
        homes = self.rows(sa.select(HOME.c.server).where(HOME.c.zone == zone))
        return homes[0].server != self.server() if homes else None

    def settle(self, zone: str) -> None:
        """Note the server that answers now as the zone's."""
        now = self.server()
        with self._mutex:
            if zone not in self._held:
                raise not_held(zone)
            with self.on(self._held[zone]) as session:
                if now is None:
                    session.execute(sa.delete(HOME).where(HOME.c.zone == zone))
                else:  # before the note of the zone, which may be the only one of a server before
                    session.execute(_SINCE, {"server": now})
                    session.execute(_SETTLE, {"zone": zone, "server": now})

    def since(self) -> int:
        """When the ledger was noted on the server that answers; 0: it began there."""
        now = self.server()
        since_of = {row.server: int(row.since) for row in self.rows(sa.select(SERVERS))}
        if now is None or now in since_of:
            return since_of.get(now or "", 0)
        elsewhere = sa.select(HOME.c.zone).where(HOME.c.server != now).limit(1)
        return int(time.time()) if since_of or self.rows(elsewhere) else 0

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The lock of a zone, on a session of its own."""
        with self._mutex:
            if zone in self._held:
                raise held_elsewhere(zone)
            self._held[zone] = self._locked(zone)
        try:
            yield
        finally:
            with self._mutex:
                session = self._held.pop(zone)
                # the server ends a session when it comes to it, so the lock is given up first
                with suppress(LedgerError), self.on(session):
                    session.execute(sa.select(sa.func.pg_advisory_unlock(lock_of(zone))))
                session.close()


def standbys(url: str) -> tuple[str, int]:
    """How a server is followed by standbys.

    Args:
        url: The database.

    Returns:
        `synchronous_standby_names`, and how many standbys follow the server now.

    Raises:
        LedgerError: The server cannot be asked.
    """
    query = "SELECT current_setting('synchronous_standby_names'), count(*) FROM pg_stat_replication"
    with Database(url, LEDGER, read_only=True, check=False) as database, database.read() as link:
        names, connected = link.execute(sa.text(query)).one()
    return str(names).strip(), int(connected)


def lock_of(zone: str) -> int:
    """The number of a zone's advisory lock, the same in every process and version.

    Args:
        zone: The zone's name.

    Returns:
        A signed number of 64 bits.
    """
    return lock_key(f"hushgrid-ledger/1 writer\n{zone}\n")


def back_up(store: Path, target: Path, verify: Verify | None = None) -> ChainReport:
    """Copy a ledger file as it is now; its writers need not stop.

    Args:
        store: The ledger.
        target: The copy; it must not exist.
        verify: Judges signatures; None: they are not judged.

    Returns:
        What the check of the copy found.

    Raises:
        LedgerError: A record does not verify or is missing, or the copy cannot be written.
    """
    with SqliteLedger(store, create=False) as source:
        check_known_zones(store, source.zones())
        durable = {d: zone for zone in source.zones() if (d := source.witness(zone))}
        return _copied(source, target, durable, verify)


def restore(copy: Path, store: Path, verify: Verify | None = None) -> ChainReport:
    """Put a copy where a ledger was.

    Args:
        copy: The copy.
        store: Where the ledger was; its small files may still be there.
        verify: Judges signatures; None: they are not judged.

    Returns:
        What the check of the restored ledger found.

    Raises:
        LedgerError: A record is missing that was known there, or the ledger exists.
    """
    for end in ("", "-wal", "-shm"):  # SQLite would play an old log into the copy
        if (path := store.with_name(store.name + end)).exists():
            raise LedgerError(f"{path} exists already; move it away, with its -wal and -shm.")
    with SqliteLedger(copy, create=False) as source, ExitStack() as locks:
        zones = source.zones()
        check_known_zones(store, zones)
        for zone in zones:  # a service that still runs holds them
            locks.callback(Sidecar(sidecar_path(store, zone), zone).release)
        heads = {zone: read_witness(sidecar_path(store, zone)) for zone in zones}
        durable = {head.digest: zone for zone, head in heads.items() if head}
        return _copied(source, store, durable, verify)


def check_known_zones(store: Path, zones: Collection[str]) -> None:
    """Refuse a ledger without a zone that a small file knows.

    Args:
        store: The ledger, or where it was.
        zones: The zones that it has, or its copy.

    Raises:
        LedgerError: All records of a zone are lost.
    """
    zone_files = {sidecar_path(store, zone) for zone in zones}
    for path in sorted(store.parent.glob("*")):
        of_zone = re.fullmatch(re.escape(store.name) + r"\.[0-9a-f]{16}", path.name)
        if of_zone and path not in zone_files and read_witness(path):
            raise LedgerError(
                f"{path} knows a zone that is not in the ledger or its copy; give a newer copy of"
                f" {store.name}."
            )


def _copied(
    source: SqliteLedger, target: Path, durable: Mapping[str, str], verify: Verify | None
) -> ChainReport:
    if not target.parent.is_dir():
        raise LedgerError(f"{target} is in no folder; make {target.parent} first.")
    if target.exists():
        raise LedgerError(f"{target} exists already; give another name, or move it away.")
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        source.copy_to(part)
        report = _checked(part, durable, verify)
        part.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise LedgerError(
            f"{target} cannot be written ({error.strerror}); see that its disk is writable and not"
            " full."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()  # gone already where all went well
    return report


def _checked(path: Path, durable: Mapping[str, str], verify: Verify | None) -> ChainReport:
    with SqliteLedger(path, create=False) as copy:
        records = (record for zone in copy.zones() for record in copy.records(zone))
        report = check(records, verify, durable)
    if not report.records and report.first_bad is None:
        raise LedgerError("the ledger has no records yet; there is nothing to copy.")
    if report.first_bad is not None:
        reason = str(report.reason).rstrip(".")
        raise LedgerError(
            f"nothing was copied: record {report.first_bad}: {reason}; take a newer copy, or see"
            " docs/ledger.md on how to go on after a loss."
        )
    return report
