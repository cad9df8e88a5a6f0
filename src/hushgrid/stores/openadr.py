"""The store of VEN objects: one table in an SQLite file or a PostgreSQL database.

Every text from outside is a bound parameter, never part of a statement, and is stored as ASCII
JSON, because databases differ in the characters they can hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import VtnError
from hushgrid.stores.database import Database, Schema

Kind = Literal["VEN", "RESOURCE", "SUBSCRIPTION", "REPORT"]


class TakenError(VtnError):
    """The name belongs to another object."""


class FullError(VtnError):
    """The objects of the client leave no room for this one."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a client.

    Attributes:
        kind: its type.
        id: unique over all kinds.
        client: id of the client that owns it.
        created: UTC [s].
        modified: UTC [s].
        text: members as the client sent them, JSON in ASCII; may hold secrets.
    """

    kind: Kind
    id: str
    client: str
    created: int
    modified: int
    text: str = field(repr=False)

    @property
    def body(self) -> dict[str, Any]:
        """The members; decoded each time."""
        return dict(json.loads(self.text))


def to_text(value: Any) -> str:
    """Encode a value as JSON in ASCII, so that any text a client sent can be stored and sent on.

    Args:
        value: a JSON value.

    Returns:
        The text.

    Raises:
        ValueError: if a number is not finite.
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


class Json(sa.TypeDecorator[Any]):
    """A JSON value as ASCII text; None is NULL."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: Any) -> str | None:
        """Encode a value."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, _dialect: Any) -> Any:
        """Decode a text of the database."""
        return None if value is None else json.loads(value)


OBJECTS = sa.Table(
    "hushgrid_vtn",
    sa.MetaData(),
    sa.Column(
        "seq",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        sa.Identity(always=True),
        primary_key=True,
    ),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("id", Json, nullable=False, unique=True),
    sa.Column("client", Json, nullable=False),
    sa.Column("name", Json),
    sa.Column("program", Json),
    sa.Column("event", Json),
    sa.Column("ven", Json),
    sa.Column("only_name", Json),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("modified", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("kind", "only_name"),
    sqlite_autoincrement=True,
)
sa.Index("hushgrid_vtn_client", OBJECTS.c.kind, OBJECTS.c.client, OBJECTS.c.seq)

VTN = Schema(
    "vtn",
    VtnError,
    {"sqlite": [OBJECTS], "postgresql": [OBJECTS]},
    application=0x48475631,  # "HGV1"
    version=1,
)

MOST = 10_000  # objects of one kind and client
SUBSCRIPTIONS = 100  # of one client
SIZE = 32 << 20  # [bytes] of all bodies of one client
CHUNK, ROWS = 1 << 20, 100  # [bytes] and objects of a list that are read at a time
COLUMNS = ("name", "program", "event", "ven")  # by which lists can be filtered
_ROW = [OBJECTS.c[name] for name in ("kind", "id", "client", "created", "modified", "body")]
_NAMES = {"VEN": "venName", "RESOURCE": "resourceName"}


class VtnStore(Database):
    """Durable store of objects in the order of their creation. Thread-safe.

    Names of vens are unique, and names of resources within their ven. Removing a ven removes its
    resources. A client has room for `MOST` objects of a kind, `SUBSCRIPTIONS` and `SIZE` bytes: the
    oldest reports are removed for new ones, all else is refused. Raises VtnError if the store
    cannot be used.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`; made if absent.
    """

    def __init__(self, url: str | Path) -> None:
        super().__init__(url, VTN)
        self._spare: dict[str, int] = {}  # [bytes] that a client had at least, when last counted

    def add(self, item: StoredObject) -> None:
        """Store a new object; TakenError if its name belongs to another, FullError if no room."""
        values = {"kind": item.kind, "id": item.id, "created": item.created, **_changing(item)}
        with self.begin() as connection:
            self._make_room(connection, item, 1)
            try:
                connection.execute(sa.insert(OBJECTS), values)
            except IntegrityError:
                raise _name_taken() from None

    def get(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Return the object with this id, or None."""
        rows = self.rows(sa.select(*_ROW).where(_is(kind, id)))
        return StoredObject(*rows[0]) if rows else None

    def find(
        self,
        kind: Kind,
        *,
        client: str | None = None,
        columns: Mapping[str, str] | None = None,
        condition: Callable[[StoredObject], bool] | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> Iterator[StoredObject]:
        """Yield objects, oldest first: of a client, with these `COLUMNS`, that satisfy `condition`.

        At most `CHUNK` bytes, or one object, are in memory at a time. An object that is removed
        meanwhile gives its place to the next one.
        """
        clause = OBJECTS.c.kind == kind
        for name in COLUMNS:
            if columns and name in columns:
                clause &= OBJECTS.c[name] == columns[name]
        if client is not None:
            clause &= OBJECTS.c.client == client
        sizes = sa.select(OBJECTS.c.seq, OBJECTS.c.size).where(clause).order_by(OBJECTS.c.seq)
        offset, skips, last = (skip, 0, 0) if condition is None else (0, skip, 0)
        while limit is None or limit > 0:
            row_limit = ROWS if limit is None or condition is not None else min(ROWS, limit)
            coming = self.rows(sizes.where(OBJECTS.c.seq > last).offset(offset).limit(row_limit))
            if not coming:
                return
            totals = accumulate(size for _, size in coming)
            number = sum(total <= CHUNK for total in totals) or 1
            first, last, offset = coming[0][0], coming[number - 1][0], 0
            chunk = clause & OBJECTS.c.seq.between(first, last)
            for values in self.rows(sa.select(*_ROW).where(chunk).order_by(OBJECTS.c.seq)):
                item = StoredObject(*values)
                if condition is not None and not condition(item):
                    continue
                if skips > 0:
                    skips -= 1
                    continue
                yield item
                if limit is not None:
                    limit -= 1
                    if not limit:
                        return

    def count(self, kind: Kind, client: str) -> int:
        """Return the number of objects of a client."""
        query = sa.select(sa.func.count()).where(OBJECTS.c.kind == kind, OBJECTS.c.client == client)
        return int(self.rows(query)[0][0])

    def _make_room(self, connection: sa.Connection, item: StoredObject, new: int) -> None:
        """Refuse an object that there is no room for, or remove the client's oldest reports.

        A hundredth more is removed than need be, and bytes are counted only when those known to be
        spare are used up: counting reads all bodies.
        """
        siblings = (OBJECTS.c.client == item.client) & (OBJECTS.c.id != item.id)
        limit = SUBSCRIPTIONS if item.kind == "SUBSCRIPTION" else MOST
        siblings_query = sa.select(sa.func.count()).where(siblings, OBJECTS.c.kind == item.kind)
        excess = new * ((connection.scalar(siblings_query) or 0) + 1 - limit)
        size, length = len(item.text), OBJECTS.c.size
        spare = self._spare.get(item.client, 0) - size
        if spare < 0:
            total = connection.scalar(sa.select(sa.func.sum(length)).where(siblings)) or 0
            spare = SIZE - total - size
        if excess > 0 and item.kind != "REPORT":
            raise FullError("the client has too many of them; remove some first.")
        if excess > 0 or spare < 0:
            excess += MOST // 100 if excess > 0 else 0
            reserve, last = SIZE // 100 if spare < 0 else 0, 0
            reports = siblings & (OBJECTS.c.kind == "REPORT")
            query = sa.select(OBJECTS.c.seq, length).where(reports).order_by(OBJECTS.c.seq)
            for seq, report_size in connection.execute(query):
                last, excess, spare = seq, excess - 1, spare + report_size
                if excess <= 0 and spare >= reserve:
                    break
            if spare < 0:
                raise FullError("the client's objects are too large together; remove some first.")
            connection.execute(sa.delete(OBJECTS).where(reports, OBJECTS.c.seq <= last))
        self._spare[item.client] = spare

    def replace(self, item: StoredObject) -> bool:
        """Replace the object with the same id; False if there is none, FullError if no room.

        If a ven changes its client, its resources change theirs with it.
        """
        owner = sa.select(OBJECTS.c.client).where(_is("VEN", item.id)).scalar_subquery()
        with self.begin() as connection:
            self._make_room(connection, item, 0)
            if item.kind == "VEN":
                connection.execute(
                    sa.update(OBJECTS)
                    .where(_resources(item.id), OBJECTS.c.client == owner)
                    .values(client=item.client)
                )
            try:
                result = connection.execute(
                    sa.update(OBJECTS).where(_is(item.kind, item.id)).values(_changing(item))
                )
            except IntegrityError:
                raise _name_taken() from None
            return bool(result.rowcount)

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Remove an object and return it, or None if there was none."""
        with self.begin() as connection:
            if kind == "VEN":
                connection.execute(sa.delete(OBJECTS).where(_resources(id)))
            row = connection.execute(
                sa.delete(OBJECTS).where(_is(kind, id)).returning(*_ROW)
            ).first()
        return StoredObject(*row) if row else None


def _is(kind: str, name: str) -> Any:
    return (OBJECTS.c.kind == kind) & (OBJECTS.c.id == name)


def _resources(ven: str) -> Any:
    return (OBJECTS.c.kind == "RESOURCE") & (OBJECTS.c.ven == ven)


def _changing(item: StoredObject) -> dict[str, Any]:
    """The columns that replacing an object changes."""
    body = item.body
    name = body.get(_NAMES.get(item.kind, "clientName"))
    return {
        "client": item.client,
        "name": name,
        "program": body.get("programID"),
        "event": body.get("eventID"),
        "ven": body.get("venID"),
        "only_name": {"VEN": name, "RESOURCE": f"{body.get('venID')}/{name}"}.get(item.kind),
        "modified": item.modified,
        "body": item.text,
        "size": len(item.text),
    }


def _name_taken() -> TakenError:
    return TakenError("the name is another's; give another one.")
