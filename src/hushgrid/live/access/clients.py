"""Clients and where they are kept: a file (SQLite) or a server (PostgreSQL), by URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self

from hushgrid.errors import AccessError, ExtraError
from hushgrid.live.access.grants import SCOPES
from hushgrid.live.access.hashing import Hashed
from hushgrid.tables import shown

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VEN = 128  # characters of a VEN's name, as OpenADR has it


@dataclass(frozen=True, slots=True)
class Client:
    """Who may ask for tokens; `created` and `revoked` in UTC epoch s, `ven` its VEN's name."""

    id: str
    scopes: tuple[str, ...]
    secret: Hashed = field(repr=False)
    created: int
    ven: str | None = None
    revoked: int | None = None


def could_be(name: str) -> bool:
    """Whether a client may have that id; others need not be looked for."""
    return re.fullmatch(NAME, name) is not None


def checked(client: Client) -> Client:
    """The client, or why it cannot be one."""
    if not could_be(client.id):
        raise AccessError(
            "invalid_client",
            f"client id is {shown(client.id)}; give 1 to 64 letters, digits, dots, dashes or"
            " underscores that begin with a letter or digit.",
        )
    wrong = [scope for scope in client.scopes if scope not in SCOPES]
    if wrong or not client.scopes:
        said = shown(wrong[0]) if wrong else "missing"
        raise AccessError("invalid_scope", f"scope is {said}; give one of {', '.join(SCOPES)}.")
    if client.ven is not None and not (client.ven.isprintable() and 0 < len(client.ven) <= VEN):
        raise AccessError(
            "invalid_client",
            f"ven is {shown(client.ven)}; give 1 to {VEN} printable characters.",
        )
    return client


class ClientStore(Protocol):
    """Keeps clients. Every call sees what any process wrote before it; threads may share one."""

    def add(self, client: Client) -> None:
        """Keep a new client, durably; refused where its id was ever used."""
        ...

    def find(self, client: str) -> Client | None:
        """A client by its id, revoked or not."""
        ...

    def all(self) -> list[Client]:
        """Every client, by id."""
        ...

    def revoke(self, client: str, at: int) -> bool:
        """Have it end; False where there is none that is not revoked already."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_clients(url: str, *, create: bool = True) -> ClientStore:
    """A store by a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.

    `create` makes it where it is absent; else AccessError.
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return _postgres()(url, create=create)
    from hushgrid.live.access.sqlite import SqliteClients

    if colon and scheme == "sqlite":
        return SqliteClients(rest.removeprefix("//"), create=create)
    if rest.startswith("//"):
        raise AccessError(
            "server_error",
            f"clients has the scheme {scheme!r}; give a path, sqlite:PATH or postgresql://...",
        )
    return SqliteClients(url, create=create)


def _postgres() -> Callable[..., ClientStore]:
    try:
        from hushgrid.live.access.postgres import PostgresClients
    except ImportError:
        raise ExtraError(
            "psycopg is not installed; get it with pip install 'hushgrid[postgres]'."
        ) from None
    return PostgresClients


def taken(client: str) -> AccessError:
    """An id that is or was another's."""
    return AccessError(
        "invalid_client", f"client id {shown(client)} was used before; give another one."
    )
