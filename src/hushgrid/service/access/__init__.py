"""Clients and where they are kept: a file (SQLite) or a server (PostgreSQL), by URL."""

from __future__ import annotations

from collections.abc import Callable

from hushgrid.errors import AccessError, ExtraError
from hushgrid.service.access.clients import ClientStore


def open_clients(url: str, *, create: bool = True) -> ClientStore:
    """A store by a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.

    `create` makes it where it is absent; else AccessError.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return _postgres()(url, create=create)
    from hushgrid.service.access.clients import SqliteClients

    if colon and scheme == "sqlite":
        return SqliteClients(rest.removeprefix("//"), create=create)
    if rest.startswith("//"):
        raise AccessError(
            "server_error",
            f"clients has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://...",
        )
    return SqliteClients(url, create=create)


def _postgres() -> Callable[..., ClientStore]:
    try:
        from hushgrid.service.access.postgres import PostgresClients
    except ImportError:
        raise ExtraError(
            "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
        ) from None
    return PostgresClients
