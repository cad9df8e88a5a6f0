"""VEN objects in an SQLite file that only its owner may read."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from hushgrid.errors import VtnError
from hushgrid.live.vtn.store.ports import TakenError
from hushgrid.live.vtn.store.sql import INDEX, SCHEMA, VERSION, SqlVtn

APPLICATION = 0x48475631  # "HGV1" in the file's header
BUSY = 10.0  # [s] to wait for another writer


class SqliteVtn(SqlVtn):
    """A VtnStore in a file."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._mutex = threading.Lock()
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # the mode of a new one
            self._database = sqlite3.connect(
                self._path, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise self._away(error) from None
        try:
            self._prepare()
        except BaseException as error:
            self._database.close()
            if isinstance(error, sqlite3.Error):
                raise self._away(error) from None
            raise

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = ON")  # removed reports are overwritten
        database.execute("BEGIN IMMEDIATE")
        application = database.execute("PRAGMA application_id").fetchone()[0]
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application:
            database.execute(SCHEMA.format(identity="integer PRIMARY KEY AUTOINCREMENT"))
            database.execute(INDEX)
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION:
            raise VtnError(f"vtn {self._path} is a database of something else; give another name.")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("COMMIT")
        if version != VERSION:
            raise VtnError(
                f"vtn {self._path} has schema version {version} where {VERSION} is known;"
                " use the hushgrid that wrote it."
            )

    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self._mutex:
            try:
                self._database.execute("BEGIN" if _reads(statements) else "BEGIN IMMEDIATE")
                for statement, values in statements:
                    rows = self._database.execute(statement, values).fetchall()
                self._database.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.IntegrityError):
                    raise TakenError("the name is another's; give another one.") from None
                if isinstance(error, (sqlite3.Error, OverflowError)):
                    raise self._away(error) from None
                raise
        return rows

    def _away(self, error: BaseException) -> VtnError:
        why = getattr(error, "sqlite_errorname", None) or getattr(error, "strerror", None)
        return VtnError(
            f"vtn {self._path} cannot be used ({why or type(error).__name__}); give a file that"
            " can be written."
        )

    def close(self) -> None:
        """Close the file."""
        with self._mutex, suppress(sqlite3.Error):
            self._database.close()


def _reads(statements: tuple[tuple[str, tuple[Any, ...]], ...]) -> bool:
    return all(statement.startswith("SELECT") for statement, _ in statements)
