"""Stores of VEN objects: the protocol, the statements on any database, and SQLite.

Every text from outside is a bound parameter, never part of a statement, and is stored as ASCII
JSON, because databases differ in the characters they can hold. The SQLite file is readable by its
owner only.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from hushgrid.errors import VtnError

Kind = Literal["VEN", "RESOURCE", "SUBSCRIPTION", "REPORT"]


class TakenError(VtnError):
    """The name belongs to another object."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a client.

    Attributes:
        kind: its type.
        id: unique over all kinds.
        client: id of the client that owns it.
        created: UTC epoch [s].
        modified: UTC epoch [s].
        body: members as the client sent them; may hold secrets.
    """

    kind: Kind
    id: str
    client: str
    created: int
    modified: int
    body: Mapping[str, Any] = field(repr=False)


class VtnStore(Protocol):
    """Durable store of objects in the order of their creation. Thread-safe.

    Names of vens are unique, and names of resources within their ven. Removing a ven removes its
    resources. Raises VtnError if the store cannot be used.
    """

    def add(self, one: StoredObject) -> None:
        """Store a new object; TakenError if its name belongs to another."""
        ...

    def get(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Return the object with this id, or None."""
        ...

    def find(
        self,
        kind: Kind,
        *,
        client: str | None = None,
        where: Mapping[str, str] | None = None,
        such: Callable[[StoredObject], bool] | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> list[StoredObject]:
        """Return objects, oldest first: of a client, with these `COLUMNS`, that satisfy `such`."""
        ...

    def count(self, kind: Kind, client: str) -> int:
        """Return the number of objects of a client."""
        ...

    def replace(self, one: StoredObject) -> bool:
        """Replace the object with the same id; False if there is none.

        If a ven changes its client, its resources change theirs with it.
        """
        ...

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Remove an object and return it, or None if there was none."""
        ...

    def close(self) -> None:
        """Close the file or connection."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


COLUMNS = ("name", "program", "event", "ven")  # by which lists can be filtered

_NAMES = {"VEN": "venName", "RESOURCE": "resourceName"}


def columns_of(one: StoredObject) -> dict[str, str | None]:
    """Return the indexed columns of an object.

    Args:
        one: the object.

    Returns:
        `COLUMNS`, and `only`: the name that must be unique for its kind.
    """
    body = one.body
    name = body.get(_NAMES.get(one.kind, "clientName"))
    unique = {"VEN": name, "RESOURCE": f"{body.get('venID')}/{name}"}.get(one.kind)
    return {
        "name": name,
        "program": body.get("programID"),
        "event": body.get("eventID"),
        "ven": body.get("venID"),
        "only": unique,
    }


VERSION = 1
SCHEMA = """CREATE TABLE IF NOT EXISTS hushgrid_vtn (
  seq {identity}, kind text NOT NULL, id text NOT NULL UNIQUE, client text NOT NULL,
  name text, program text, event text, ven text, only_name text,
  created bigint NOT NULL, modified bigint NOT NULL, body text NOT NULL,
  UNIQUE (kind, only_name))"""
INDEX = "CREATE INDEX IF NOT EXISTS hushgrid_vtn_client ON hushgrid_vtn (kind, client, seq)"
_ROW = "kind, id, client, created, modified, body"


class SqlVtn(ABC):
    """A VtnStore on a database: the statements that SQLite and PostgreSQL share."""

    @abstractmethod
    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run statements (a ? for each value) as one transaction; return the last one's rows."""

    @abstractmethod
    def close(self) -> None:
        """See VtnStore."""

    def add(self, one: StoredObject) -> None:
        """See VtnStore."""
        own = map(text, columns_of(one).values())
        values = (one.kind, text(one.id), text(one.client), *own, one.created, one.modified)
        self._run(
            (
                "INSERT INTO hushgrid_vtn (kind, id, client, name, program, event, ven, only_name,"
                " created, modified, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                (*values, text(one.body)),
            )
        )

    def get(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """See VtnStore."""
        found = self._run(
            (f"SELECT {_ROW} FROM hushgrid_vtn WHERE kind = ? AND id = ?", (kind, text(id)))
        )
        return _from_row(found[0]) if found else None

    def find(
        self,
        kind: Kind,
        *,
        client: str | None = None,
        where: Mapping[str, str] | None = None,
        such: Callable[[StoredObject], bool] | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> list[StoredObject]:
        """See VtnStore."""
        equal = {name: where[name] for name in COLUMNS if where and name in where}
        equal |= {} if client is None else {"client": client}
        narrowed = "".join(f" AND {name} = ?" for name in equal)
        query = f"SELECT {_ROW} FROM hushgrid_vtn WHERE kind = ?{narrowed} ORDER BY seq"
        values: tuple[Any, ...] = (kind, *map(text, equal.values()))
        if such is None and limit is not None:
            query, values = f"{query} LIMIT ? OFFSET ?", (*values, limit, skip)
            skip = 0
        found = map(_from_row, self._run((query, values)))
        return list(islice(filter(such, found), skip, None if limit is None else skip + limit))

    def count(self, kind: Kind, client: str) -> int:
        """See VtnStore."""
        query = "SELECT count(*) FROM hushgrid_vtn WHERE kind = ? AND client = ?"
        return int(self._run((query, (kind, text(client))))[0][0])

    def replace(self, one: StoredObject) -> bool:
        """See VtnStore."""
        own = map(text, columns_of(one).values())
        values = (text(one.client), *own, one.modified, text(one.body), one.kind, text(one.id))
        statement = (
            "UPDATE hushgrid_vtn SET client = ?, name = ?, program = ?, event = ?, ven = ?,"
            " only_name = ?, modified = ?, body = ? WHERE kind = ? AND id = ? RETURNING id"
        )
        with_it = (  # resources follow the client of their ven
            "UPDATE hushgrid_vtn SET client = ? WHERE kind = 'RESOURCE' AND ven = ? AND client ="
            " (SELECT client FROM hushgrid_vtn WHERE kind = 'VEN' AND id = ?)",
            (text(one.client), text(one.id), text(one.id)),
        )
        found = self._run(*([with_it] if one.kind == "VEN" else []), (statement, values))
        return bool(found)

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """See VtnStore."""
        with_it = (
            "DELETE FROM hushgrid_vtn WHERE kind = 'RESOURCE' AND ven = ?",
            (text(id),),
        )
        itself = (
            f"DELETE FROM hushgrid_vtn WHERE kind = ? AND id = ? RETURNING {_ROW}",
            (kind, text(id)),
        )
        found = self._run(*([with_it] if kind == "VEN" else []), itself)
        return _from_row(found[0]) if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def text(value: Any) -> str | None:
    """Encode a value for the database.

    Args:
        value: a JSON value, or None.

    Returns:
        Its JSON in ASCII; None for None.
    """
    return None if value is None else json.dumps(value)


def _from_row(row: tuple[Any, ...]) -> StoredObject:
    kind, name, client, created, modified, body = row
    return StoredObject(
        kind, json.loads(name), json.loads(client), created, modified, json.loads(body)
    )


APPLICATION = 0x48475631  # "HGV1" in the file's header
BUSY = 10.0  # [s] to wait for another writer


class SqliteVtn(SqlVtn):
    """A VtnStore in an SQLite file.

    Args:
        path: the file; made if absent.
    """

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
