"""The store of clients: one table in an SQLite file or a PostgreSQL database."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import BigInteger, Column, MetaData, Row, Table, Text, insert, select, update
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import AccessError
from hushgrid.files.toml import display
from hushgrid.service.access.clients import Client, check_client, is_client_id
from hushgrid.service.database import SORTED_TEXT, Database, Schema


def _clients(name: str) -> Table:
    return Table(
        name,
        MetaData(),
        Column("id", SORTED_TEXT, primary_key=True),
        Column("scopes", Text, nullable=False),
        Column("secret", Text, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("ven", Text),
        Column("revoked", BigInteger),
        sqlite_with_rowid=False,
    )


CLIENTS = Schema(
    "clients",
    partial(AccessError, "server_error"),
    {"sqlite": [_clients("clients")], "postgresql": [_clients("hushgrid_clients")]},
    application=0x48474331,  # "HGC1"
    version=1,
)


class ClientStore:
    """Store of clients. Every call sees what any process wrote before it. Thread-safe.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: make the store if it is absent.

    Attributes:
        path: the SQLite file; None for PostgreSQL.
    """

    def __init__(self, url: str | Path, *, create: bool = True) -> None:
        self._database = Database(url, CLIENTS, create=create)
        (self._table,) = self._database.tables
        self.path = self._database.path

    def add(self, client: Client) -> None:
        """Store a new client durably; AccessError if its id was ever used."""
        check_client(client)
        values = {
            "id": client.id,
            "scopes": " ".join(client.scopes),
            "secret": client.secret,
            "created": client.created,
            "ven": client.ven,
            "revoked": client.revoked,
        }
        with self._database.begin() as connection:
            try:
                connection.execute(insert(self._table), values)
            except IntegrityError:
                raise AccessError(
                    "invalid_client",
                    f"client id {display(client.id)} was used before; give another one.",
                ) from None

    def find(self, client: str) -> Client | None:
        """Return the client with this id, revoked or not, or None."""
        if not is_client_id(client):
            return None
        rows = self._database.rows(select(self._table).where(self._table.c.id == client))
        return _from_row(rows[0]) if rows else None

    def all(self) -> list[Client]:
        """Return all clients, sorted by id."""
        rows = self._database.rows(select(self._table).order_by(self._table.c.id))
        return [_from_row(row) for row in rows]

    def revoke(self, client: str, at: int) -> bool:
        """Revoke a client at a UTC epoch [s]; False if none with this id is valid."""
        if not is_client_id(client):
            return False
        valid = (self._table.c.id == client) & self._table.c.revoked.is_(None)
        with self._database.begin() as connection:
            return bool(
                connection.execute(update(self._table).where(valid).values(revoked=at)).rowcount
            )

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _from_row(row: Row[Any]) -> Client:
    return Client(
        row.id,
        tuple(row.scopes.split()),
        row.secret,
        row.created,
        row.ven,
        row.revoked,
    )
