"""The ledger of one active curator while others stand by: one row of PostgreSQL decides.

The row says who is active (`holder`), how often that has changed (`number`) and until when it is
valid, by the clock of the database. The active curator renews it, and another takes it when it has
expired. A clock that is wrong costs a change of the active curator and nothing else.

Every append looks for the row with its own number, in its own transaction, and for the zone's last
record. A curator that was paused or cut off has another number, an expired row, or a record that
does not follow the last one: it appends nothing. Whoever takes the row waits for an append under
way, and ends the sessions of the curator before it: a paused process keeps its locks otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import LedgerError, LedgerHeldError
from hushgrid.stores.database import Database, lock_key
from hushgrid.stores.ledger.duties import held_elsewhere, not_held
from hushgrid.stores.ledger.records import Record, digest_of, from_fields
from hushgrid.stores.ledger.store import (
    COLUMNS,
    HOME,
    LEDGER,
    PAGE,
    SERVERS,
    PostgresLedger,
    lock_of,
    row_of,
)

# A new number changes the primary key, which waits for appends (FOR KEY SHARE); a renewal does not.
_TABLE = sa.text("""
CREATE TABLE IF NOT EXISTS hushgrid_active (
  number bigint PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS hushgrid_active_alone ON hushgrid_active ((true));
INSERT INTO hushgrid_active VALUES (0, '', '-infinity') ON CONFLICT DO NOTHING
""")
_LOOK = sa.text("""
SELECT number, holder, until > clock_timestamp() AS valid FROM hushgrid_active
""")
_END = sa.text("""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'hushgrid-' || CAST(:holder AS text) AND usename = current_user
AND EXISTS (SELECT FROM hushgrid_active WHERE number = :number AND until <= clock_timestamp())
""")
_TAKE = sa.text("""
UPDATE hushgrid_active SET number = number + 1, holder = :me,
  until = clock_timestamp() + make_interval(secs => :lease)
WHERE number = :number AND until <= clock_timestamp() RETURNING number
""")
_RENEW = sa.text("""
UPDATE hushgrid_active SET until = clock_timestamp() + make_interval(secs => :lease)
WHERE number = :number AND holder = :me RETURNING number
""")
_GIVE = sa.text("""
UPDATE hushgrid_active SET until = '-infinity' WHERE number = :number AND holder = :me
""")
_FENCE = """SELECT FROM hushgrid_active
WHERE number = :number AND holder = :me AND until > clock_timestamp() FOR KEY SHARE"""
_APPEND = sa.text(f"""
WITH fence AS ({_FENCE})
INSERT INTO hushgrid_ledger (zone, seq, kind, t, body, prev, digest, signature)
SELECT :zone, :seq, :kind, CAST(:t AS bigint), :body, :prev, :digest, :signature FROM fence
WHERE (:prev, CAST(:seq AS bigint) - 1) = (
  SELECT digest, seq FROM (
    SELECT digest, seq, kind FROM hushgrid_ledger WHERE zone = :zone ORDER BY seq DESC LIMIT 1
  ) AS last WHERE kind <> 'closed'
)
""")
_AFTER = sa.text(f"""
SELECT {", ".join(f"record.{name}" for name in COLUMNS)}
FROM unnest(CAST(:zones AS text[]), CAST(:seqs AS bigint[])) AS last (zone, seq)
CROSS JOIN LATERAL (
  SELECT {", ".join(COLUMNS)} FROM hushgrid_ledger AS later
  WHERE later.zone = last.zone AND later.seq > last.seq ORDER BY later.seq LIMIT {PAGE}
) AS record ORDER BY record.zone, record.seq
""")


class Lease(NamedTuple):
    """How often the active curator renews its row, and how long a renewal is valid.

    >>> Lease.of(2), Lease.of(900)
    (Lease(beat=0.25, seconds=2.0), Lease(beat=0.75, seconds=6.0))

    Attributes:
        beat: Between two renewals [s].
        seconds: How long a renewal is valid [s].
    """

    beat: float
    seconds: float

    @classmethod
    def of(cls, interval: int) -> Lease:
        """For zones with intervals of so many seconds.

        The row of a curator that was killed or paused is taken one lease and one beat later:
        6.75 s at most. Opening the zones comes on top.
        """
        seconds = min(max(float(interval), 2.0), 6.0)
        return cls(seconds / 8, seconds)


class ActiveRow(NamedTuple):
    """The row that decides which curator is active.

    Attributes:
        number: How often the active curator has changed.
        holder: The name of the active curator; empty before the first.
        valid: Whether the row has not expired, by the clock of the database.
    """

    number: int
    holder: str
    valid: bool


class FencedLedger(PostgresLedger):
    """A LedgerStore on one session, for the active curator alone. Threads may share it.

    With the session end the locks of all zones and an append under way. Nothing is tried again on
    another session; a zone that is opened again begins one.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        me: The name of this curator, which no other process has.
        lease: How often the row is renewed.
        steady: A clock that cannot be set [s].
    """

    def __init__(self, url: str, me: str, lease: Lease, steady: Callable[[], float]) -> None:
        super().__init__(session_url(url, me))
        self._me, self._lease, self._steady = me, lease, steady
        self._number = -1  # while this curator is not active
        self._renewed = -math.inf  # when the last renewal that went through was begun
        self._server: str | None = None  # that the row was taken on
        self._unfenced = set[str]()
        self._session: sa.Connection | None = None
        with self.begin() as link:
            link.execute(sa.select(sa.func.pg_advisory_xact_lock(lock_key("hushgrid-active/1"))))
            link.execute(_TABLE)

    # ---- the row

    def look(self) -> ActiveRow:
        """The row as it is now."""
        return ActiveRow(*self.rows(_LOOK)[0])

    def take(self, row: ActiveRow) -> bool:
        """Become the active curator, unless the row has changed or is valid.

        Args:
            row: As it was last read.

        Returns:
            Whether this curator is active now.

        Raises:
            LedgerError: The database cannot be used.
        """
        start, server = self._steady(), self.server()
        if row.holder not in ("", self._me):
            self.rows(_END, holder=row.holder, number=row.number)
        values = {"me": self._me, "lease": self._lease.seconds, "number": row.number}
        with self.begin() as link:
            link.execute(sa.text("SET LOCAL lock_timeout = '1s'"))
            new_row = link.execute(_TAKE, values).first()
        if new_row is not None:
            self._number, self._renewed, self._server = int(new_row.number), start, server
        return new_row is not None

    def renew(self) -> bool:
        """Renew the row; False where another curator has it, or another server answers.

        A server that took over may lack what this curator or its successor has recorded.

        Raises:
            LedgerError: The database cannot be used.
        """
        start, server = self._steady(), self.server()
        if None not in (server, self._server) and server != self._server:
            return False
        values = {"me": self._me, "lease": self._lease.seconds, "number": self._number}
        with self.begin() as link:
            active = link.execute(_RENEW, values).first() is not None
        if active:
            self._renewed = start
        return active

    def give(self) -> None:
        """Stop being active; another curator may take the row at once."""
        with suppress(LedgerError), self.begin() as link:  # else it expires
            link.execute(_GIVE, {"me": self._me, "number": self._number})
        self._number = -1

    # ---- records

    def after(self, last: dict[str, int]) -> list[Record]:
        """The next records of many zones, each from the one after its number on; a page of each."""
        rows = self.rows(_AFTER, zones=list(last), seqs=list(last.values()))
        return [from_fields(*row) for row in rows]

    def append(self, record: Record) -> None:
        """Add the next record; committed to the server's disk before it returns."""
        with self._mutex:
            if record.zone not in self._held:
                raise not_held(record.zone)
            if record.zone in self._unfenced or not self._append_at_once(record):
                self._append(record)  # or the reason why not

    def _append_at_once(self, record: Record) -> bool:
        """The usual append, in one statement; whether it took place."""
        self._check_renewed()
        if record.digest != digest_of(record):
            return False
        fence = {"me": self._me, "number": self._number}
        with self.on(self._held[record.zone], at_once=True) as session:
            try:
                return session.execute(_APPEND, {**fence, **row_of(record)}).rowcount == 1
            except IntegrityError:
                return False

    def _append(self, record: Record) -> None:
        with self.on(self._held[record.zone]) as session:
            if record.zone not in self._unfenced:
                self._check_renewed()
                fence = {"me": self._me, "number": self._number}
                if session.execute(sa.text(_FENCE), fence).first() is None:
                    raise _not_active()
            self._insert(session, record)

    def _check_renewed(self) -> None:
        if self._steady() - self._renewed >= self._lease.seconds:
            raise _not_active()

    @contextmanager
    def writer(self, zone: str) -> Iterator[None]:
        """The right to append, for as long as the session lasts in which it began."""
        with self._mutex:
            if zone in self._held:
                raise held_elsewhere(zone)
            if self._session is None or self._session.closed:
                self._session = self.session()
            session = self._session
            with self.on(session):
                if not session.scalar(sa.select(sa.func.pg_try_advisory_lock(lock_of(zone)))):
                    raise held_elsewhere(zone)
            self._held[zone] = session
        try:
            yield
        finally:
            with self._mutex:
                del self._held[zone]
                if not session.closed:
                    with suppress(LedgerError), self.on(session):
                        session.execute(sa.select(sa.func.pg_advisory_unlock(lock_of(zone))))

    @contextmanager
    def recovering(self, zone: str) -> Iterator[None]:
        """The right to append again what the store has lost, with the zone's lock alone."""
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
        elsewhere = HOME.c.zone.in_(zones) & (HOME.c.server != now)
        servers = [row.server for row in self.rows(sa.select(SERVERS))]
        return bool(
            (servers and now not in servers)
            or self.rows(sa.select(HOME.c.zone).where(elsewhere).limit(1))
        )

    def close(self) -> None:
        """Close the session and all connections."""
        if self._session is not None:
            self._session.close()
        super().close()


def session_url(url: str, me: str) -> str:
    """A store's URL whose sessions carry this curator's name, so that its successor can end them.

    >>> session_url("postgresql://hushgrid@localhost/prices", "8080-1f")
    'postgresql://hushgrid@localhost/prices?application_name=hushgrid-8080-1f'

    Args:
        url: The store's URL.
        me: The name of this curator.

    Returns:
        The URL with an application name.
    """
    return f"{url}{'&' if '?' in url else '?'}application_name=hushgrid-{me}"


def active_curator(url: str) -> str | None:
    """The name of the active curator.

    Args:
        url: The ledger's URL.

    Returns:
        Its name; None where no curator is active.

    Raises:
        LedgerError: The database cannot be used.
    """
    with Database(url, LEDGER, create=False, read_only=True) as database:
        if not database.rows(sa.select(sa.func.to_regclass("hushgrid_active")))[0][0]:
            return None
        row = ActiveRow(*database.rows(_LOOK)[0])
    return row.holder if row.valid else None


def _not_active() -> LedgerHeldError:
    return LedgerHeldError("another curator is active; this one appends nothing and stands by.")
