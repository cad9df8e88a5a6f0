"""What the stores on a database share.

Every text that comes from outside is bound, never written into a statement, and is kept as the
ASCII text of its JSON: databases differ in which characters they can hold.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Self

from hushgrid.live.vtn.store.ports import COLUMNS, Kind, StoredObject, columns_of

VERSION = 1
SCHEMA = """CREATE TABLE IF NOT EXISTS hushgrid_vtn (
  seq {identity}, kind text NOT NULL, id text NOT NULL UNIQUE, client text NOT NULL,
  name text, program text, event text, ven text, only_name text,
  created bigint NOT NULL, modified bigint NOT NULL, body text NOT NULL,
  UNIQUE (kind, only_name))"""
INDEX = "CREATE INDEX IF NOT EXISTS hushgrid_vtn_client ON hushgrid_vtn (kind, client, seq)"
_ROW = "kind, id, client, created, modified, body"


class SqlVtn(ABC):
    """A VtnStore on a database."""

    @abstractmethod
    def _run(self, *statements: tuple[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Do statements (a ? for each value) as one transaction; the rows of the last one."""

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
        return _kept(*found[0]) if found else None

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
        asked = {name: where[name] for name in COLUMNS if where and name in where}
        asked |= {} if client is None else {"client": client}
        narrowed = "".join(f" AND {name} = ?" for name in asked)
        query = f"SELECT {_ROW} FROM hushgrid_vtn WHERE kind = ?{narrowed} ORDER BY seq"
        values: tuple[Any, ...] = (kind, *map(text, asked.values()))
        if such is None and limit is not None:
            query, values = f"{query} LIMIT ? OFFSET ?", (*values, limit, skip)
            skip = 0
        kept = (_kept(*row) for row in self._run((query, values)))
        fitting = kept if such is None else filter(such, kept)
        return list(islice(fitting, skip, None if limit is None else skip + limit))

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
        with_it = (  # a ven that becomes another client's takes its resources along
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
        return _kept(*found[0]) if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def text(value: Any) -> str | None:
    """A value as ASCII; None stays None."""
    return None if value is None else json.dumps(value)


def _kept(
    kind: Any, name: str, client: str, created: int, modified: int, body: str
) -> StoredObject:
    return StoredObject(
        kind, json.loads(name), json.loads(client), created, modified, json.loads(body)
    )
