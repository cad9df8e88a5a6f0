"""The ledger: records, the rules of their chain, and stores by URL (SQLite or PostgreSQL)."""

from __future__ import annotations

from hushgrid.errors import ExtraError, LedgerError
from hushgrid.service.ledger.ports import LedgerStore

__all__ = ["LedgerStore", "open_store", "standby_remark"]


def open_store(url: str, *, create: bool = True, still: bool = False) -> LedgerStore:
    """Open a ledger store.

    Args:
        url: A path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: Create the store where it is absent; False: open it for reading only.
        still: Reading a file that nothing writes leaves no further file.

    Returns:
        The store, a context manager.

    Raises:
        ExtraError: PostgreSQL is asked for and psycopg is not installed.
        LedgerError: The scheme is unknown, or the store cannot be opened.
    """
    from hushgrid.service.database import is_postgres
    from hushgrid.service.ledger.store import PostgresLedger, SqliteLedger

    if is_postgres(url):
        return PostgresLedger(url, create=create)
    return SqliteLedger(url, create=create, still=still)


def standby_remark(url: str) -> str | None:
    """A warning about the ledger's standby servers; queries the database.

    Args:
        url: The ledger's URL.

    Returns:
        One sentence; None for a file, or where commits wait for a standby.
    """
    from hushgrid.service.database import is_postgres
    from hushgrid.service.ledger.store import standbys

    if not is_postgres(url):
        return None
    try:
        names, connected = standbys(url)
    except ExtraError:
        return None  # opening the ledger will say so
    except LedgerError as error:
        return (
            f"stores.ledger: {str(error).partition(';')[0]}, so it is not known whether commits"
            " wait for a standby."
        )
    if names:
        return None
    fix = "set synchronous_standby_names on the server, see docs/operations.md."
    if connected:
        return (
            f"stores.ledger: {connected} standby servers follow and synchronous_standby_names is"
            f" empty: a fail-over loses the newest releases; {fix}"
        )
    return (
        "stores.ledger: no standby follows this PostgreSQL server. Keep stores.witness on another"
        f" disk than the database; before a standby is added, {fix}"
    )
