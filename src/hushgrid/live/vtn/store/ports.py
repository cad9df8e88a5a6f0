"""What a store of VEN objects promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from hushgrid.errors import VtnError

Kind = Literal["VEN", "RESOURCE", "SUBSCRIPTION", "REPORT"]


class TakenError(VtnError):
    """A name that another object has."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a client; `created` and `modified` in UTC epoch s. Its body may be secret."""

    kind: Kind
    id: str
    client: str
    created: int
    modified: int
    body: Mapping[str, Any] = field(repr=False)


class VtnStore(Protocol):
    """Keeps objects durably, in the order of their making. Threads may share one.

    Names of vens are unique, and names of resources within their ven. A ven that goes takes its
    resources along. VtnError where the store cannot do its work.
    """

    def add(self, one: StoredObject) -> None:
        """Keep a new object; TakenError where its name is another's."""
        ...

    def get(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """An object by its id."""
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
        """Objects, oldest first: of a client, with these values of `COLUMNS`, such as asked."""
        ...

    def count(self, kind: Kind, client: str) -> int:
        """How many a client has."""
        ...

    def replace(self, one: StoredObject) -> bool:
        """Put this in the place of the object with its id; False where there is none.

        Resources of a ven that becomes another client's become that client's, too.
        """
        ...

    def remove(self, kind: Kind, id: str) -> StoredObject | None:  # noqa: A002
        """Remove an object, and say what it was."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


COLUMNS = ("name", "program", "event", "ven")  # what lists can be narrowed to


_NAMES = {"VEN": "venName", "RESOURCE": "resourceName"}


def columns_of(one: StoredObject) -> dict[str, str | None]:
    """The columns of an object, and the name that nobody else may have."""
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
