"""The store of clients: one table in an SQLite file or a PostgreSQL database."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import AccessError
from hushgrid.files.toml import display
from hushgrid.service.access.clients import Client, check_client, is_client_id
from hushgrid.service.database import SORTED_TEXT, Database, Schema


def _clients(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", SORTED_TEXT, primary_key=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("ven", sa.Text),
        sa.Column("revoked", sa.BigInteger),
        sqlite_with_rowid=False,
    )


CLIENTS = Schema(
    "clients",
    partial(AccessError, "server_error"),
    {"sqlite": [_clients("clients")], "postgresql": [_clients("hushgrid_clients")]},
    application=0x48474331,  # "HGC1"
    version=1,
)


class ClientStore(Database):
    """Store of clients. Every call sees what any process wrote before it. Thread-safe.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: make the store if it is absent.
    """

    def __init__(self, url: str | Path, *, create: bool = True) -> None:
        super().__init__(url, CLIENTS, create=create)
        (self._table,) = self.tables

    def add(self, client: Client) -> None:
        """Store a new client durably; AccessError if its id was ever used."""
        check_client(client)
        values = asdict(client) | {"scopes": " ".join(client.scopes)}
        with self.begin() as connection:
            try:
                connection.execute(sa.insert(self._table), values)
            except IntegrityError:
                raise AccessError(
                    "invalid_client",
                    f"client id {display(client.id)} was used before; give another one.",
                ) from None

    def find(self, client: str) -> Client | None:
        """Return the client with this id, revoked or not, or None."""
        if not is_client_id(client):
            return None
        rows = self.rows(sa.select(self._table).where(self._table.c.id == client))
        return _from_row(rows[0]) if rows else None

    def all(self) -> list[Client]:
        """Return all clients, sorted by id."""
        return [_from_row(row) for row in self.rows(sa.select(self._table).order_by("id"))]

    def revoke(self, client: str, at: int) -> bool:
        """Revoke a client at a UTC epoch [s]; False if none with this id is valid."""
        if not is_client_id(client):
            return False
        valid = (self._table.c.id == client) & self._table.c.revoked.is_(None)
        with self.begin() as connection:
            found = connection.execute(sa.update(self._table).where(valid).values(revoked=at))
        return bool(found.rowcount)


def _from_row(row: Any) -> Client:
    name, scopes, *more = row
    return Client(name, tuple(scopes.split()), *more)
