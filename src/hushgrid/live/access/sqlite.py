"""Clients in an SQLite file that only its owner may read."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from hushgrid.errors import AccessError
from hushgrid.live.access.clients import Client, checked, could_be, taken
from hushgrid.live.access.hashing import Hashed

APPLICATION = 0x48474331  # "HGC1" in the file's header
VERSION = 1
BUSY = 10.0  # [s] to wait for another writer

_SCHEMA = """
CREATE TABLE clients (
  id TEXT PRIMARY KEY, scopes TEXT NOT NULL, secret TEXT NOT NULL, created INTEGER NOT NULL,
  ven TEXT, revoked INTEGER
) WITHOUT ROWID
"""
_COLUMNS = "id, scopes, secret, created, ven, revoked"


class SqliteClients:
    """A ClientStore in a file."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        self._mutex = threading.Lock()
        if not create and not self.path.is_file():
            raise AccessError("server_error", f"clients {self.path} does not exist; add one first.")
        if not self.path.parent.is_dir():
            raise AccessError(
                "server_error",
                f"clients {self.path} is in no folder; make {path!s}'s folder first.",
            )
        with self._errors():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # the mode of a new one
            self._database = sqlite3.connect(
                self.path, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        application = database.execute("PRAGMA application_id").fetchone()[0]
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application:
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION:
            raise AccessError(
                "server_error", f"{self.path} is a database of something else; give another name."
            )
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("COMMIT")
        if version != VERSION:
            raise AccessError(
                "server_error",
                f"clients {self.path} has schema version {version} where {VERSION} is known;"
                " use the hushgrid that wrote it.",
            )

    def add(self, client: Client) -> None:
        """Keep a new client."""
        try:
            self._run(f"INSERT INTO clients ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", *row(client))
        except sqlite3.IntegrityError:
            raise taken(client.id) from None

    def find(self, client: str) -> Client | None:
        """A client by its id."""
        if not could_be(client):
            return None
        found = self._run(f"SELECT {_COLUMNS} FROM clients WHERE id = ?", client)
        return from_row(*found[0]) if found else None

    def all(self) -> list[Client]:
        """Every client."""
        return [from_row(*one) for one in self._run(f"SELECT {_COLUMNS} FROM clients ORDER BY id")]

    def revoke(self, client: str, at: int) -> bool:
        """Have it end."""
        if not could_be(client):
            return False
        found = self._run(
            "UPDATE clients SET revoked = ? WHERE id = ? AND revoked IS NULL RETURNING id",
            at,
            client,
        )
        return bool(found)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
            return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._mutex, suppress(sqlite3.Error):
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's and the disk's errors as ours."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise AccessError(
                "server_error",
                f"clients {self.path} cannot be used ({error}); see that the disk is there and the"
                " file is a store of clients.",
            ) from None


def row(client: Client) -> tuple[Any, ...]:
    """A client as columns."""
    made = checked(client)
    scopes = " ".join(made.scopes)
    return (made.id, scopes, made.secret.text, made.created, made.ven, made.revoked)


def from_row(
    name: str, scopes: str, secret: str, created: int, ven: str | None, revoked: int | None
) -> Client:
    """A client from columns."""
    return Client(name, tuple(scopes.split()), Hashed.of(secret), created, ven, revoked)
