"""VEN objects in a table of a PostgreSQL database."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from typing import Any

import psycopg

from hushgrid.errors import VtnError
from hushgrid.service.openadr.store import INDEX, SCHEMA, VERSION, SqlVtn, TakenError

_LOCK = int.from_bytes(hashlib.sha256(b"hushgrid-vtn/1").digest()[:8], "big", signed=True)

Session = psycopg.Connection[tuple[Any, ...]]
Statement = tuple[str, tuple[Any, ...]]


class PostgresVtn(SqlVtn):
    """A VtnStore on a PostgreSQL server.

    Args:
        url: `postgresql://USER@HOST/DATABASE`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
        self._mutex = threading.Lock()
        self._session = self._connected()
        try:
            self._prepare()
        except BaseException as error:
            self._session.close()
            if isinstance(error, psycopg.Error):
                raise self._away(error) from None
            raise

    def _connected(self) -> Session:
        try:
            return psycopg.connect(
                self._url, autocommit=True, connect_timeout=5, fallback_application_name="hushgrid"
            )
        except psycopg.ProgrammingError:  # its message would show the URL, password and all
            raise VtnError(
                "vtn is no URL that PostgreSQL knows; give postgresql://USER@HOST/DATABASE."
            ) from None
        except psycopg.Error as error:
            raise self._away(error) from None

    def _prepare(self) -> None:
        identity = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        with self._session.transaction():
            self._session.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            self._session.execute("SET LOCAL client_min_messages = warning")
            self._session.execute(
                "CREATE TABLE IF NOT EXISTS hushgrid_vtn_version (version integer NOT NULL)"
            )
            found = self._session.execute("SELECT version FROM hushgrid_vtn_version").fetchone()
            if found is None:
                self._session.execute(SCHEMA.format(identity=identity).encode())
                self._session.execute(INDEX.encode())
                self._session.execute("INSERT INTO hushgrid_vtn_version VALUES (%s)", (VERSION,))
        if found is not None and found[0] != VERSION:
            raise VtnError(
                f"the vtn at {self._place} has schema version {found[0]} where {VERSION} is known;"
                " use the hushgrid that wrote it."
            )

    def _run(self, *statements: Statement) -> list[tuple[Any, ...]]:
        """Run statements; once more on a new connection if the old one was lost."""
        with self._mutex:
            try:
                try:
                    return self._once(statements)
                except psycopg.OperationalError:
                    if not self._session.closed:
                        raise
                self._session = self._connected()
                return self._once(statements)
            except psycopg.errors.UniqueViolation:
                raise TakenError("the name is another's; give another one.") from None
            except psycopg.Error as error:
                raise self._away(error) from None

    def _once(self, statements: tuple[Statement, ...]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self._session.transaction():
            for statement, values in statements:
                found = self._session.execute(statement.replace("?", "%s").encode(), values)
                rows = found.fetchall() if found.description else []
        return rows

    def _away(self, error: BaseException) -> VtnError:
        return VtnError(
            f"vtn at {self._place} cannot be used ({type(error).__name__}); see that the server is"
            " there."
        )

    def close(self) -> None:
        """Close the connection."""
        with self._mutex, suppress(psycopg.Error):
            self._session.close()
