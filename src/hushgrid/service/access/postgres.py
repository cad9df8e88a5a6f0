"""Clients in a table of a PostgreSQL database."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from hushgrid.errors import AccessError
from hushgrid.service.access.clients import SqlClients

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
_LOCK = int.from_bytes(hashlib.sha256(b"hushgrid-clients/1").digest()[:8], "big", signed=True)

Session = psycopg.Connection[tuple[Any, ...]]


class PostgresClients(SqlClients):
    """A ClientStore on a PostgreSQL server.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
        create: make the table if it is absent.
    """

    _table = "hushgrid_clients"

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

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement; once more on a new connection if the old one was lost."""
        text = statement.replace("?", "%s").encode()
        with self._mutex, self._errors():
            try:
                return self._session.execute(text, values).fetchall()
            except psycopg.OperationalError:
                if not self._session.closed:
                    raise
            self._session = self._connected()
            return self._session.execute(text, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        with self._mutex, suppress(psycopg.Error):
            self._session.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the driver into AccessError with one line."""
        try:
            yield
        except psycopg.Error as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise AccessError(
                "server_error",
                f"clients at {self._place} cannot be used ({why}); see that the server is there.",
            ) from None
