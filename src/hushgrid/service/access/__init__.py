"""Clients of the service, their secrets, tokens and sessions.

`open_clients` opens the store of clients: an SQLite file or a PostgreSQL server, by URL.
"""

from __future__ import annotations

from hushgrid.errors import AccessError, ExtraError
from hushgrid.service.access.clients import ClientStore, SqliteClients


def open_clients(url: str, *, create: bool = True) -> ClientStore:
    """Open the store of clients.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: make the store if it is absent.

    Returns:
        The open store.

    Raises:
        AccessError: if the scheme is unknown, or the store is absent and `create` is False.
        ExtraError: if psycopg is needed and not installed.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        try:
            from hushgrid.service.access.postgres import PostgresClients
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None
        return PostgresClients(url, create=create)
    if colon and scheme == "sqlite":
        return SqliteClients(rest.removeprefix("//"), create=create)
    if rest.startswith("//"):
        raise AccessError(
            "server_error",
            f"clients has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://...",
        )
    return SqliteClients(url, create=create)
