"""Records in PostgreSQL for curators that share zones: every lock and every append on one session.

Whoever ends the session ends all of it at once: the locks, an append under way, and the right to
append. Nothing is tried again on another session by itself, since another curator may be the
writer by then; `connect` begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from hushgrid.errors import LedgerError
from hushgrid.live.ledger.record import Record, canonical, digest_of, from_fields
from hushgrid.live.ledger.stores.ports import held_elsewhere, not_held
from hushgrid.live.ledger.stores.postgres import (
    COLUMNS,
    PAGE,
    SESSION,
    PostgresLedger,
    Session,
    lock_of,
    make_durable,
)

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

    `me`: the curator that must have the lease of a zone for each append; without it none is asked.
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
        query = "SELECT FROM hushgrid_ledger_home WHERE zone = ANY(%s) AND server <> %s LIMIT 1"
        return bool(self.run(query, list(zones), now))

    def _select(self, query: Any, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
            return self._reader.execute(query, values).fetchall()
