"""The OpenADR 3.1 VTN: prices as events; vens, resources, subscriptions and reports of clients.

`open_vtn` opens the store of the clients' objects: SQLite or PostgreSQL, by URL.
"""

from __future__ import annotations

from hushgrid.errors import ExtraError, VtnError
from hushgrid.service.openadr.store import SqliteVtn, StoredObject, TakenError, VtnStore

__all__ = ["StoredObject", "TakenError", "VtnStore", "open_vtn"]


def open_vtn(url: str) -> VtnStore:
    """Open the store of VEN objects; it is made if absent.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.

    Returns:
        The open store.

    Raises:
        VtnError: if the scheme is unknown.
        ExtraError: if psycopg is needed and not installed.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        try:
            from hushgrid.service.openadr.postgres import PostgresVtn
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None
        return PostgresVtn(url)
    if colon and scheme == "sqlite":
        return SqliteVtn(rest.removeprefix("//"))
    if rest.startswith("//"):
        raise VtnError(
            f"vtn has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://..."
        )
    return SqliteVtn(url)
