"""Leases in PostgreSQL, beside the ledger and on its session.

A curator has one row that it renews; its leases hold as long as that row does and its session is
there. Times are the server's alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from hushgrid.live.ledger.stores.shared import SharedLedger
from hushgrid.live.share.rules import LeasePace, LeaseTable, Peer

# a curator's row is written many times a minute and worth nothing after a crash, so it has no log
_SCHEMA = """
CREATE UNLOGGED TABLE IF NOT EXISTS hushgrid_curator (
  id text COLLATE "C" PRIMARY KEY, service text NOT NULL,
  pid integer NOT NULL, started timestamptz NOT NULL, until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS hushgrid_lease (name text COLLATE "C" PRIMARY KEY, curator text);
"""
_JOIN = """
INSERT INTO hushgrid_curator
SELECT %s, %s, pid, backend_start, clock_timestamp() + make_interval(secs => %s)
FROM pg_stat_get_activity(pg_backend_pid())
ON CONFLICT (id) DO UPDATE SET service = excluded.service, pid = excluded.pid,
  started = excluded.started, until = excluded.until
"""
_NAMES = """
INSERT INTO hushgrid_lease SELECT * FROM unnest(%s::text[]) ORDER BY 1 ON CONFLICT DO NOTHING
"""
_LOOK = """
SELECT true, id, service, extract(epoch FROM until)::float8, EXISTS (
  SELECT FROM pg_stat_get_activity(pid) AS session WHERE session.backend_start = started
), extract(epoch FROM clock_timestamp())::float8 FROM hushgrid_curator
UNION ALL
SELECT false, name, curator, NULL, NULL, NULL FROM hushgrid_lease WHERE name = ANY(%s)
"""
_TAKE = """
UPDATE hushgrid_lease SET curator = %s WHERE name IN (
  SELECT name FROM hushgrid_lease JOIN unnest(%s::text[], %s::text[]) AS free (name, of)
  USING (name) WHERE curator IS NOT DISTINCT FROM free.of
  ORDER BY name FOR UPDATE OF hushgrid_lease SKIP LOCKED
) RETURNING name
"""
_GIVE = "UPDATE hushgrid_lease SET curator = NULL WHERE name = ANY(%s) AND curator = %s"
_BEAT = """
WITH renewed AS (
  UPDATE hushgrid_curator SET until = clock_timestamp() + make_interval(secs => %s)
  WHERE id = %s AND pid = pg_backend_pid()
), ended AS (
  DELETE FROM hushgrid_curator WHERE until < clock_timestamp() AND id <> %s RETURNING id
)
SELECT pg_terminate_backend(session.pid) FROM pg_stat_activity AS session
JOIN ended ON session.application_name = 'hushgrid-' || ended.id
WHERE session.usename = current_user
"""
_WHO = """
SELECT lease.name, lease.curator FROM hushgrid_lease AS lease
JOIN hushgrid_curator AS one ON one.id = lease.curator
WHERE one.until > clock_timestamp() AND EXISTS (
  SELECT FROM pg_stat_get_activity(one.pid) AS session WHERE session.backend_start = one.started
)
"""


class Leases:
    """The leases of one curator and what it sees of others."""

    def __init__(self, store: SharedLedger, me: str, names: Sequence[str], pace: LeasePace) -> None:
        self._store, self._me, self._pace = store, me, pace
        self._names = sorted(names)
        self._service = hashlib.sha256("\n".join(self._names).encode()).hexdigest()[:16]

    def join(self) -> None:
        """Say that this curator is there, in the session that there is now."""
        store = self._store
        store.run("SELECT pg_advisory_lock(%s)", _SCHEMA_LOCK)
        try:
            if not store.run("SELECT to_regclass('hushgrid_lease')")[0][0]:
                store.run(_SCHEMA)
        finally:
            store.run("SELECT pg_advisory_unlock(%s)", _SCHEMA_LOCK)
        store.run(_NAMES, self._names)
        store.run(_JOIN, self._me, self._service, self._pace.lease)

    def beat(self) -> None:
        """Renew what this curator has, and end every session of those whose time is over.

        They may be asleep with locks.
        """
        self._store.run(_BEAT, self._pace.lease, self._me, self._me)

    def look(self) -> LeaseTable:
        """All curators and the leases of this service."""
        rows = self._store.run(_LOOK, self._names)
        curators = sorted(row[1:] for row in rows if row[0])
        now = max((row[4] for row in curators), default=0.0)
        leases = {name: curator for is_peer, name, curator, *_ in rows if not is_peer}
        return LeaseTable(now, tuple(Peer(*row[:4]) for row in curators), leases)

    def take(self, names: Collection[str], seen: LeaseTable) -> frozenset[str]:
        """Take leases that are still as they were seen; those that were taken."""
        if not names:
            return frozenset()
        before = [seen.leases.get(name) for name in names]
        return frozenset(row[0] for row in self._store.run(_TAKE, self._me, list(names), before))

    def give(self, names: Collection[str]) -> None:
        """Give leases back."""
        self._store.run(_GIVE, list(names), self._me)

    def leave(self) -> None:
        """Give everything back."""
        self.give(self._names)
        self._store.run("DELETE FROM hushgrid_curator WHERE id = %s", self._me)


_SCHEMA_LOCK = int.from_bytes(hashlib.sha256(b"hushgrid-lease/1").digest()[:8], "big", signed=True)


def marked(url: str, me: str) -> str:
    """A store's URL for sessions that are known as this curator's, so that others can end them.

    >>> marked("postgresql://hushgrid@localhost/prices", "8080-1f")
    'postgresql://hushgrid@localhost/prices?application_name=hushgrid-8080-1f'
    """
    return f"{url}{'&' if '?' in url else '?'}application_name=hushgrid-{me}"


def owners(url: str) -> dict[str, str]:
    """Who has which lease, of those who live; nobody where there are no leases."""
    with SharedLedger(url, create=False) as store:
        if not store.run("SELECT to_regclass('hushgrid_lease')")[0][0]:
            return {}
        return dict(store.run(_WHO))
