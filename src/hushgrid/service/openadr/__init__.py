"""Where vens, resources, subscriptions and reports are kept: SQLite or PostgreSQL, by URL."""

from __future__ import annotations

from hushgrid.errors import ExtraError, VtnError
from hushgrid.service.openadr.store import StoredObject, TakenError, VtnStore

__all__ = ["StoredObject", "TakenError", "VtnStore", "open_vtn"]


def open_vtn(url: str) -> VtnStore:
    """A store by a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`; made where absent."""
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        try:
            from hushgrid.service.openadr.postgres import PostgresVtn
        except ImportError:
            raise ExtraError(
                "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
            ) from None
        return PostgresVtn(url)
    from hushgrid.service.openadr.store import SqliteVtn

    if colon and scheme == "sqlite":
        return SqliteVtn(rest.removeprefix("//"))
    if rest.startswith("//"):
        raise VtnError(
            f"vtn has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://..."
        )
    return SqliteVtn(url)
