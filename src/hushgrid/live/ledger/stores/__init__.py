"""Where records are kept: a file (SQLite) or a server (PostgreSQL), by URL."""

from __future__ import annotations

from hushgrid.errors import ExtraError, LedgerError
from hushgrid.live.ledger.stores.ports import LedgerStore

__all__ = ["LedgerStore", "open_store"]


def open_store(url: str, *, create: bool = True) -> LedgerStore:
    """A store by a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.

    `create` makes it where it is absent; without it a store is opened for reading alone.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        try:
            from hushgrid.live.ledger.stores.postgres import PostgresLedger
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None
        return PostgresLedger(url, create=create)
    from hushgrid.live.ledger.stores.sqlite import SqliteLedger

    if colon and scheme == "sqlite":
        return SqliteLedger(rest.removeprefix("//"), create=create)
    if rest.startswith("//"):
        raise LedgerError(
            f"store has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://..."
        )
    return SqliteLedger(url, create=create)
