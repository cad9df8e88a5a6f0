"""Clients of the service, their secrets, tokens and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushgrid.errors import ExtraError

if TYPE_CHECKING:
    from hushgrid.service.access.store import ClientStore


def open_clients(url: str, *, create: bool = True) -> ClientStore:
    """Open the store of clients.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: make the store if it is absent.

    Returns:
        The open store.

    Raises:
        AccessError: if the scheme is unknown, or the store is absent and `create` is False.
        ExtraError: if sqlalchemy, or psycopg where it is needed, is not installed.
    """
    try:
        from hushgrid.service.access.store import ClientStore
    except ImportError:
        raise ExtraError(
            "sqlalchemy is not installed; get it with pip install 'hushgrid[serve]'."
        ) from None
    return ClientStore(url, create=create)
