"""Leases in PostgreSQL, in the ledger's database and session: which curator runs which zone.

A curator has one row that it renews; it lives as long as that row is valid and its session exists.
A lease that was not given back is taken after one lease without a word of its owner, by the clock
of the one that takes it: an owner that is cut off knows by then that it has lapsed. Other times are
the server's. All curators plan by the same rules on what each has read, so that they take different
leases; where two try to take one, the database lets one have it.

`SharedLedger` is the ledger of such curators: every lock and every append on one session. With the
session all of it ends at once: the locks, an append under way, and the right to append. Nothing is
tried again on another session, since another curator may be the writer by then; `connect` begins
anew.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import inspect, text
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import LedgerError
from hushgrid.service.database import Database, lock_key
from hushgrid.service.ledger.chain import held_elsewhere, not_held
from hushgrid.service.ledger.records import Record, digest_of, from_fields
from hushgrid.service.ledger.store import (
    COLUMNS,
    HOME,
    LEDGER,
    PAGE,
    SERVERS,
    PostgresLedger,
    lock_of,
    names_of,
    row_of,
)


class LeasePace(NamedTuple):
    """How often a curator renews its row, and how long that is valid.

    >>> LeasePace.of(2), LeasePace.of(900)
    (LeasePace(beat=0.25, lease=2.0), LeasePace(beat=2.0, lease=16.0))

    Attributes:
        beat: Between two renewals [s].
        lease: How long a renewal is valid [s].
    """

    beat: float
    lease: float

    @classmethod
    def of(cls, seconds: int) -> LeasePace:
        """For intervals of so many seconds.

        Zones of a dead curator are taken over after a lease and at most two beats. 16 s are enough
        to notice a dead link and to try two hosts, and little where an interval has minutes.
        """
        lease = min(max(float(seconds), 2.0), 16.0)
        return cls(lease / 8, lease)

    @property
    def settled(self) -> float:
        """How long a curator that joins waits for others that join as well [s]."""
        return 2 * self.beat


@dataclass(frozen=True, slots=True)
class Peer:
    """A curator as the database knows it.

    Attributes:
        id: Its name.
        service: Digest of its zones.
        until: How long its row is valid [s, database clock].
        connected: Whether its session with the database exists.
    """

    id: str
    service: str
    until: float
    connected: bool = True

    def lives(self, now: float) -> bool:
        """Whether its leases are valid."""
        return self.connected and now < self.until


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """All curators and leases at one time.

    Attributes:
        now: The time [s, database clock].
        peers: All curators.
        leases: The curator of each lease, or None.
    """

    now: float
    peers: tuple[Peer, ...]
    leases: Mapping[str, str | None]

    @property
    def living(self) -> frozenset[str]:
        """The curators whose leases are valid."""
        return frozenset(peer.id for peer in self.peers if peer.lives(self.now))

    def peers_of(self, me: str) -> list[str]:
        """The living curators of the same zones, `me` included."""
        own = next((peer.service for peer in self.peers if peer.id == me), None)
        some = {p.id for p in self.peers if p.lives(self.now) and p.service == own}
        return sorted(some | {me})

    @property
    def free(self) -> list[str]:
        """Leases that no living curator has, in order."""
        living = self.living
        return sorted(name for name, owner in self.leases.items() if owner not in living)

    def of(self, curator: str) -> frozenset[str]:
        """The leases of a curator."""
        return frozenset(name for name, owner in self.leases.items() if owner == curator)


class LeasePlan(NamedTuple):
    """What a curator should do now.

    Attributes:
        take: Leases to take.
        give: How many to give back.
    """

    take: tuple[str, ...] = ()
    give: int = 0


def plan(
    seen: LeaseTable, me: str, overdue: Collection[str] = (), refused: Collection[str] = ()
) -> LeasePlan:
    """What a curator should do now.

    A curator takes at most an equal share, rounded up; those with least take first.

    >>> plan(LeaseTable(0.0, (Peer("a", "", 1.0), Peer("b", "", 1.0)), dict.fromkeys("xyz")), "b")
    LeasePlan(take=('y',), give=0)

    Args:
        seen: All curators and leases.
        me: This curator.
        overdue: Leases that were free for long because another curator did not take its share; they
            are taken beyond the share.
        refused: Leases that this curator cannot run now.

    Returns:
        Leases to take, and how many to give back.
    """
    peers = seen.peers_of(me)
    held = Counter(owner for owner in seen.leases.values() if owner in peers)
    most = math.ceil(len(seen.leases) / len(peers))
    take = [name for name in _reach(seen.free, peers, held, most, me) if name not in refused]
    take += [name for name in seen.free if name in overdue and name not in (*take, *refused)]
    room = sum(max(most - held[peer], 0) for peer in peers if peer != me)
    return LeasePlan(tuple(take), min(max(held[me] - most, 0), room))


def _reach(
    free: Sequence[str], peers: Sequence[str], held: Counter[str], most: int, me: str
) -> Sequence[str]:
    """This curator's part of the free leases: each goes to the curator with the fewest."""
    count = {peer: held[peer] for peer in peers}
    mine = []
    for name in free:
        needy = min(peers, key=lambda peer: (count[peer], peer))
        if count[needy] >= most:
            break
        count[needy] += 1
        if needy == me:
            mine.append(name)
    return mine


# a curator's row is written many times a minute and worth nothing after a crash, so it has no log
_SCHEMA = text("""
CREATE UNLOGGED TABLE IF NOT EXISTS hushgrid_curator (
  id text COLLATE "C" PRIMARY KEY, service text NOT NULL,
  pid integer NOT NULL, started timestamptz NOT NULL, until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS hushgrid_lease (name text COLLATE "C" PRIMARY KEY, curator text);
""")
_JOIN = text("""
INSERT INTO hushgrid_curator
SELECT :me, :service, pid, backend_start, clock_timestamp() + make_interval(secs => :lease)
FROM pg_stat_get_activity(pg_backend_pid())
ON CONFLICT (id) DO UPDATE SET service = excluded.service, pid = excluded.pid,
  started = excluded.started, until = excluded.until
""")
_NAMES = text("""
INSERT INTO hushgrid_lease SELECT * FROM unnest(CAST(:names AS text[])) ORDER BY 1
ON CONFLICT DO NOTHING
""")
_LOOK = text("""
SELECT true, id, service, CAST(extract(epoch FROM until) AS float8), EXISTS (
  SELECT FROM pg_stat_get_activity(pid) AS session WHERE session.backend_start = started
), CAST(extract(epoch FROM clock_timestamp()) AS float8) FROM hushgrid_curator
UNION ALL
SELECT false, name, curator, NULL, NULL, NULL FROM hushgrid_lease WHERE name = ANY(:names)
""")
_TAKE = text("""
WITH words AS (
  SELECT id, CAST(extract(epoch FROM until) AS float8) AS word FROM hushgrid_curator
  WHERE id = ANY(CAST(:owners AS text[])) ORDER BY id FOR SHARE
)
UPDATE hushgrid_lease SET curator = :me WHERE name IN (
  SELECT name FROM hushgrid_lease
  JOIN unnest(CAST(:names AS text[]), CAST(:owners AS text[]), CAST(:words AS float8[]))
    AS free (name, of, word)
  USING (name) WHERE curator IS NOT DISTINCT FROM free.of
  AND free.word IS NOT DISTINCT FROM (SELECT word FROM words WHERE id = free.of)
  ORDER BY name FOR UPDATE OF hushgrid_lease SKIP LOCKED
) RETURNING name
""")
_GIVE = text("UPDATE hushgrid_lease SET curator = NULL WHERE name = ANY(:names) AND curator = :me")
_LEAVE = text("DELETE FROM hushgrid_curator WHERE id = :me")
_BEAT = text("""
WITH renewed AS (
  UPDATE hushgrid_curator SET until = clock_timestamp() + make_interval(secs => :lease)
  WHERE id = :me AND pid = pg_backend_pid()
), ended AS (
  SELECT id, until FROM hushgrid_curator WHERE until < clock_timestamp() AND id <> :me
), gone AS (
  DELETE FROM hushgrid_curator
  WHERE until < clock_timestamp() - make_interval(secs => :lease) AND id <> :me
)
SELECT pg_terminate_backend(session.pid) FROM pg_stat_activity AS session
JOIN ended ON session.application_name = 'hushgrid-' || ended.id
WHERE session.usename = current_user AND session.backend_start < ended.until
""")
_WHO = text("""
SELECT lease.name, lease.curator FROM hushgrid_lease AS lease
JOIN hushgrid_curator AS one ON one.id = lease.curator
WHERE one.until > clock_timestamp() AND EXISTS (
  SELECT FROM pg_stat_get_activity(one.pid) AS session WHERE session.backend_start = one.started
)
""")


class Leases:
    """The leases of one curator in the database.

    Args:
        store: The ledger's session.
        me: This curator.
        names: All leases of the service.
        pace: How often rows are renewed.
    """

    def __init__(self, store: SharedLedger, me: str, names: Sequence[str], pace: LeasePace) -> None:
        self._store, self._me, self._pace = store, me, pace
        self._names = sorted(names)
        self._service = hashlib.sha256("\n".join(self._names).encode()).hexdigest()[:16]

    def join(self) -> None:
        """Register this curator with the present session."""
        self._store.make("hushgrid-lease/1", _SCHEMA)
        self._store.rows(_NAMES, names=self._names)
        self._store.rows(_JOIN, me=self._me, service=self._service, lease=self._pace.lease)

    def beat(self) -> None:
        """Renew this curator's row, and end every session of curators whose row has expired.

        Such a session may be suspended while it holds locks.
        """
        self._store.rows(_BEAT, lease=self._pace.lease, me=self._me)

    def look(self) -> LeaseTable:
        """All curators and the leases of this service."""
        rows = self._store.rows(_LOOK, names=self._names)
        curators = sorted(row[1:] for row in rows if row[0])
        now = max((row[4] for row in curators), default=0.0)
        leases = {name: curator for is_peer, name, curator, *_ in rows if not is_peer}
        return LeaseTable(now, tuple(Peer(*row[:4]) for row in curators), leases)

    def take(self, names: Collection[str], seen: LeaseTable) -> frozenset[str]:
        """Take leases that have not changed since they were read; returns those taken.

        Nor may their owners have renewed their rows since.
        """
        if not names:
            return frozenset()
        before = [seen.leases.get(name) for name in names]
        valid = {peer.id: peer.until for peer in seen.peers}
        words = [valid.get(owner or "") for owner in before]
        rows = self._store.rows(_TAKE, me=self._me, names=list(names), owners=before, words=words)
        return frozenset(row.name for row in rows)

    def give(self, names: Collection[str]) -> None:
        """Give leases back."""
        self._store.rows(_GIVE, names=list(names), me=self._me)

    def leave(self) -> None:
        """Give back all leases and unregister."""
        self.give(self._names)
        self._store.rows(_LEAVE, me=self._me)


def session_url(url: str, me: str) -> str:
    """A store's URL whose sessions carry this curator's name, so that others can end them.

    >>> session_url("postgresql://hushgrid@localhost/prices", "8080-1f")
    'postgresql://hushgrid@localhost/prices?application_name=hushgrid-8080-1f'

    Args:
        url: The store's URL.
        me: This curator.

    Returns:
        The URL with an application name.
    """
    return f"{url}{'&' if '?' in url else '?'}application_name=hushgrid-{me}"


def owners(url: str) -> dict[str, str]:
    """The living curator of each lease.

    Args:
        url: The ledger's URL.

    Returns:
        Curators by lease; empty where there are no leases.
    """
    with Database(url, LEDGER, create=False, read_only=True) as database, database.read() as link:
        if not inspect(link).has_table("hushgrid_lease"):
            return {}
        return {row.name: row.curator for row in link.execute(_WHO)}


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
        known = [row.server for row in self.rows(sa.select(SERVERS))]
        return bool(
            (known and now not in known) or self.rows(sa.select(HOME.c.zone).where(other).limit(1))
        )

    def close(self) -> None:
        """Close the session."""
        self._session.close()
        super().close()
