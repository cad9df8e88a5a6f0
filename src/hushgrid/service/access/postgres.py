"""Clients in PostgreSQL, in a table of their own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self

import psycopg

from hushgrid.errors import AccessError
from hushgrid.service.access.clients import Client, could_be, from_row, row, taken

CLIENTS_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS hushgrid_clients (
  id text COLLATE "C" PRIMARY KEY, scopes text NOT NULL, secret text NOT NULL,
  created bigint NOT NULL, ven text, revoked bigint
);
CREATE TABLE IF NOT EXISTS hushgrid_clients_version (version integer NOT NULL);
INSERT INTO hushgrid_clients_version
  SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM hushgrid_clients_version);
"""
_COLUMNS = "id, scopes, secret, created, ven, revoked"
_LOCK = int.from_bytes(hashlib.sha256(b"hushgrid-clients/1").digest()[:8], "big", signed=True)

Session = psycopg.Connection[tuple[Any, ...]]


class PostgresClients:
    """A ClientStore on a server."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._url = url
        self._place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
        self._mutex = threading.Lock()
        with self._errors():
            self._session = self._connected()
            try:
                self._prepare(create)
            except BaseException:
                self._session.close()
                raise

    def _connected(self) -> Session:
        try:
            return psycopg.connect(
                self._url, autocommit=True, connect_timeout=5, fallback_application_name="hushgrid"
            )
        except psycopg.ProgrammingError:  # its message would show the URL, password and all
            raise AccessError(
                "server_error",
                "clients is no URL that PostgreSQL knows; give postgresql://USER@HOST/DATABASE.",
            ) from None

    def _prepare(self, create: bool) -> None:
        with self._session.transaction():
            self._session.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            there = self._session.execute("SELECT to_regclass('hushgrid_clients')").fetchone()
            if not (there and there[0]):
                if not create:
                    raise AccessError(
                        "server_error", f"{self._place} has no clients; add one first."
                    )
                self._session.execute(_SCHEMA)
            found = self._session.execute("SELECT version FROM hushgrid_clients_version").fetchone()
        if found is None or found[0] != CLIENTS_VERSION:
            raise AccessError(
                "server_error",
                f"the clients at {self._place} have schema version {found and found[0]} where"
                f" {CLIENTS_VERSION} is known; use the hushgrid that wrote them.",
            )

    def add(self, client: Client) -> None:
        """Keep a new client."""
        try:
            self._run(
                f"INSERT INTO hushgrid_clients ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)"
                " RETURNING id",
                *row(client),
            )
        except psycopg.errors.UniqueViolation:
            raise taken(client.id) from None

    def find(self, client: str) -> Client | None:
        """A client by its id."""
        if not could_be(client):
            return None
        found = self._run(f"SELECT {_COLUMNS} FROM hushgrid_clients WHERE id = %s", client)
        return from_row(*found[0]) if found else None

    def all(self) -> list[Client]:
        """Every client."""
        found = self._run(f"SELECT {_COLUMNS} FROM hushgrid_clients ORDER BY id")
        return [from_row(*one) for one in found]

    def revoke(self, client: str, at: int) -> bool:
        """Have it end."""
        if not could_be(client):
            return False
        found = self._run(
            "UPDATE hushgrid_clients SET revoked = %s WHERE id = %s AND revoked IS NULL"
            " RETURNING id",
            at,
            client,
        )
        return bool(found)

    def _run(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        """Do it; once more on a new connection where the old one is gone."""
        with self._mutex, self._errors():
            try:
                return self._session.execute(statement, values).fetchall()
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
            self._session = self._connected()
            return self._session.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        with self._mutex, suppress(psycopg.Error):
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The driver's errors as ours, in one line."""
        try:
            yield
        except psycopg.errors.UniqueViolation:
            raise
        except psycopg.Error as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise AccessError(
                "server_error",
                f"clients at {self._place} cannot be used ({why}); see that the server is there.",
            ) from None
