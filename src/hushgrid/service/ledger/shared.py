"""The ledger of curators that share zones: every lock and every append on one session.

With the session all of it ends at once: the locks, an append under way, and the right to append.
Nothing is tried again on another session, since another curator may be the writer by then;
`connect` begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import LedgerError
from hushgrid.service.database import lock_key
from hushgrid.service.ledger.ports import held_elsewhere, not_held
from hushgrid.service.ledger.records import Record, digest_of, from_fields
from hushgrid.service.ledger.store import (
    COLUMNS,
    HOME,
    LEDGER,
    PAGE,
    PostgresLedger,
    lock_of,
    names_of,
    row_of,
)

_LEASE = sa.table("hushgrid_lease", sa.column("name"), sa.column("curator"))
_AFTER = sa.text(f"""
SELECT {", ".join(f"found.{name}" for name in COLUMNS)}
FROM unnest(CAST(:zones AS text[]), CAST(:seqs AS bigint[])) AS known (zone, seq)
CROSS JOIN LATERAL (
  SELECT {", ".join(COLUMNS)} FROM hushgrid_ledger AS one
  WHERE one.zone = known.zone AND one.seq > known.seq ORDER BY one.seq LIMIT {PAGE}
) AS found ORDER BY found.zone, found.seq
""")
_LOCK = sa.text("""
SELECT wanted.zone
FROM unnest(CAST(:zones AS text[]), CAST(:keys AS bigint[])) AS wanted (zone, key)
WHERE pg_try_advisory_lock(wanted.key)
""")
# with a lease's row held until the commit: who would take the lease waits, and reads this record
_APPEND = sa.text("""
WITH fence AS (SELECT FROM hushgrid_lease WHERE name = :zone AND curator = :me FOR SHARE)
INSERT INTO hushgrid_ledger (zone, seq, kind, t, body, prev, digest, signature)
SELECT :zone, :seq, :kind, CAST(:t AS bigint), :body, :prev, :digest, :signature FROM fence
WHERE (:prev, CAST(:seq AS bigint) - 1) = (
  SELECT digest, seq FROM hushgrid_ledger WHERE zone = :zone ORDER BY seq DESC LIMIT 1
)
""")


class SharedLedger(PostgresLedger):
    """A LedgerStore on one session. Threads may share it.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        me: The curator that must have the lease of a zone for each append; without it no lease is
            asked for.
    """

    _schema = replace(LEDGER, session={"connect_timeout": 2, "tcp_user_timeout": 5_000})

    def __init__(self, url: str, me: str | None = None) -> None:
        super().__init__(url)
        self._me, self._mine, self._unfenced = me, set[str](), set[str]()
        self._session = self._begun()

    def _begun(self) -> sa.Connection:
        session = self.session()
        with self.on(session, at_once=True):
            session.execute(sa.text("SET lock_timeout = '1s'"))  # who is stuck will be ended
        return session

    @property
    def connected(self) -> bool:
        """Whether the session goes on, as far as is known here."""
        return not self._session.closed

    def connect(self) -> None:
        """Begin a new session: without any lock."""
        session = self._begun()
        with self._mutex:
            self._session.close()
            self._session = session
            self._mine.clear()

    def rows(self, statement: sa.Executable, **values: Any) -> list[Any]:
        """A statement of its own; its rows."""
        with self._mutex, self.on(self._session, at_once=True) as session:
            found = session.execute(statement, values)
            return list(found) if found.returns_rows else []

    def make(self, name: str, tables: sa.Executable) -> None:
        """Make tables, one process at a time."""
        with self._mutex, self.on(self._session) as session:
            session.execute(sa.select(sa.func.pg_advisory_xact_lock(lock_key(name))))
            session.execute(tables)

    def lock(self, zones: Collection[str]) -> frozenset[str]:
        """Try to lock what is not locked yet; those of the zones that are."""
        with self._mutex:
            wanted = [zone for zone in zones if zone not in self._mine]
            if wanted:
                rows = self.rows(_LOCK, zones=wanted, keys=[lock_of(zone) for zone in wanted])
                self._mine |= {row.zone for row in rows}
            return frozenset(self._mine.intersection(zones))

    def unlock(self, zone: str) -> None:
        """Let go of a zone."""
        with self._mutex:
            if zone in self._mine:
                self._mine.discard(zone)
                with suppress(LedgerError):
                    self.rows(sa.select(sa.func.pg_advisory_unlock(lock_of(zone))))

    def cut_off(self, zone: str) -> bool:
        """Whether a writer here began in a session that is over."""
        return self._held.get(zone, self._session) is not self._session

    def resume(self, zone: str) -> None:
        """Let a writer that was cut off go on, with the lock of the present session.

        Only for one that is sure of the zone's last record: read it after the lock was taken.
        """
        with self._mutex:
            if zone not in self._mine or zone not in self._held:
                raise not_held(zone)
            self._held[zone] = self._session

    def after(self, known: dict[str, int]) -> list[Record]:
        """The next records of many zones, each from the one after its number on; a page of each."""
        rows = self.rows(_AFTER, zones=list(known), seqs=list(known.values()))
        return [from_fields(*row) for row in rows]

    def append(self, record: Record) -> None:
        """Add the next record; committed to the server's disk before it returns."""
        with self._mutex:
            if record.zone not in self._held:
                raise not_held(record.zone)
            if self._alone(record.zone) or not self._append_at_once(record):
                self._append(record)  # or the reason why not

    def _alone(self, zone: str) -> bool:
        return self._me is None or zone in self._unfenced

    def _append_at_once(self, record: Record) -> bool:
        """The usual append, in one statement; whether it was one."""
        if record.digest != digest_of(record):
            return False
        with self.on(self._held[record.zone], at_once=True) as session:
            try:
                found = session.execute(_APPEND, {"me": self._me, **row_of(record)})
            except IntegrityError:
                return False
            return found.rowcount == 1

    def _append(self, record: Record) -> None:
        with self.on(self._held[record.zone]) as session:
            if not self._alone(record.zone):
                fence = sa.select(_LEASE.c.name).with_for_update(read=True)
                mine = (_LEASE.c.name == record.zone) & (_LEASE.c.curator == self._me)
                if session.execute(fence.where(mine)).first() is None:
                    raise LedgerError(
                        f"zone {record.zone!r} is another curator's now; it goes on there."
                    )
            self._insert(session, record)

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The right to append, for as long as the session lasts in which it began."""
        with self._mutex:
            if zone in self._held or zone not in self.lock([zone]):
                raise held_elsewhere(zone)
            self._held[zone] = self._session
        try:
            yield
        finally:
            with self._mutex:
                if self._held.pop(zone) is self._session:
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
        if now is None:
            return False
        other = HOME.c.zone.in_(zones) & HOME.c.server.not_in(names_of(now))
        return bool(self.rows(sa.select(HOME.c.zone).where(other).limit(1)))

    def close(self) -> None:
        """Close the session."""
        self._session.close()
        super().close()
