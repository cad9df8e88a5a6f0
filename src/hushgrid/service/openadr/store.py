"""The store of VEN objects: one table in an SQLite file or a PostgreSQL database.

Every text from outside is a bound parameter, never part of a statement, and is stored as ASCII
JSON, because databases differ in the characters they can hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import VtnError
from hushgrid.service.database import Database, Schema

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


class Json(TypeDecorator[Any]):
    """A JSON value as ASCII text; None is NULL."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: Any) -> str | None:
        """Encode a value."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, _dialect: Any) -> Any:
        """Decode a text of the database."""
        return None if value is None else json.loads(value)


OBJECTS = Table(
    "hushgrid_vtn",
    MetaData(),
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        Identity(always=True),
        primary_key=True,
    ),
    Column("kind", Text, nullable=False),
    Column("id", Json, nullable=False, unique=True),
    Column("client", Json, nullable=False),
    Column("name", Json),
    Column("program", Json),
    Column("event", Json),
    Column("ven", Json),
    Column("only_name", Json),
    Column("created", BigInteger, nullable=False),
    Column("modified", BigInteger, nullable=False),
    Column("body", Json, nullable=False),
    UniqueConstraint("kind", "only_name"),
    sqlite_autoincrement=True,
)
Index("hushgrid_vtn_client", OBJECTS.c.kind, OBJECTS.c.client, OBJECTS.c.seq)

VTN = Schema(
    "vtn",
    VtnError,
    {"sqlite": [OBJECTS], "postgresql": [OBJECTS]},
    application=0x48475631,  # "HGV1"
    version=1,
)

COLUMNS = ("name", "program", "event", "ven")  # by which lists can be filtered
_ROW = [OBJECTS.c[name] for name in ("kind", "id", "client", "created", "modified", "body")]
_NAMES = {"VEN": "venName", "RESOURCE": "resourceName"}


class VtnStore:
    """Durable store of objects in the order of their creation. Thread-safe.

    Names of vens are unique, and names of resources within their ven. Removing a ven removes its
    resources. Raises VtnError if the store cannot be used.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`; made if absent.
    """

    def __init__(self, url: str | Path) -> None:
        self._database = Database(url, VTN)

    def add(self, one: StoredObject) -> None:
        """Store a new object; TakenError if its name belongs to another."""
        values = {"kind": one.kind, "id": one.id, "created": one.created, **_changing(one)}
        with self._database.begin() as connection:
            try:
                connection.execute(insert(OBJECTS), values)
            except IntegrityError:
                raise _taken() from None

    def get(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Return the object with this id, or None."""
        rows = self._database.rows(select(*_ROW).where(_is(kind, id)))
        return StoredObject(*rows[0]) if rows else None

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
        equal = {name: where[name] for name in COLUMNS if where and name in where}
        equal |= {} if client is None else {"client": client}
        query = select(*_ROW).where(OBJECTS.c.kind == kind).order_by(OBJECTS.c.seq)
        for name, value in equal.items():
            query = query.where(OBJECTS.c[name] == value)
        if such is None and limit is not None:
            query, skip = query.limit(limit).offset(skip), 0
        found = filter(such, (StoredObject(*row) for row in self._database.rows(query)))
        return list(islice(found, skip, None if limit is None else skip + limit))

    def count(self, kind: Kind, client: str) -> int:
        """Return the number of objects of a client."""
        query = select(func.count()).where(OBJECTS.c.kind == kind, OBJECTS.c.client == client)
        return int(self._database.rows(query)[0][0])

    def replace(self, one: StoredObject) -> bool:
        """Replace the object with the same id; False if there is none.

        If a ven changes its client, its resources change theirs with it.
        """
        before = select(OBJECTS.c.client).where(_is("VEN", one.id)).scalar_subquery()
        with self._database.begin() as connection:
            if one.kind == "VEN":
                connection.execute(
                    update(OBJECTS)
                    .where(_resources(one.id), OBJECTS.c.client == before)
                    .values(client=one.client)
                )
            try:
                found = connection.execute(
                    update(OBJECTS).where(_is(one.kind, one.id)).values(_changing(one))
                )
            except IntegrityError:
                raise _taken() from None
            return bool(found.rowcount)

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Remove an object and return it, or None if there was none."""
        with self._database.begin() as connection:
            if kind == "VEN":
                connection.execute(delete(OBJECTS).where(_resources(id)))
            row = connection.execute(delete(OBJECTS).where(_is(kind, id)).returning(*_ROW)).first()
        return StoredObject(*row) if row else None

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is(kind: str, name: str) -> Any:
    return (OBJECTS.c.kind == kind) & (OBJECTS.c.id == name)


def _resources(ven: str) -> Any:
    return (OBJECTS.c.kind == "RESOURCE") & (OBJECTS.c.ven == ven)


def _changing(one: StoredObject) -> dict[str, Any]:
    """The columns that replacing an object changes."""
    body = one.body
    name = body.get(_NAMES.get(one.kind, "clientName"))
    return {
        "client": one.client,
        "name": name,
        "program": body.get("programID"),
        "event": body.get("eventID"),
        "ven": body.get("venID"),
        "only_name": {"VEN": name, "RESOURCE": f"{body.get('venID')}/{name}"}.get(one.kind),
        "modified": one.modified,
        "body": body,
    }


def _taken() -> TakenError:
    return TakenError("the name is another's; give another one.")
