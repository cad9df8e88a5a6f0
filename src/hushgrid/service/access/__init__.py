"""Clients of the service, their secrets, tokens and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hushgrid.service.access.clients import ClientStore


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
    from hushgrid.service.access.clients import ClientStore

    return ClientStore(url, create=create)
