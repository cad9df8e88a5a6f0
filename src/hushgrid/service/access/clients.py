"""Clients in an SQLite file that only its owner may read."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from hushgrid.errors import AccessError
from hushgrid.files.toml import shown

# --------------------------------------------------------------------------------------------------
# Scopes, and what a request may do.


# of OpenADR 3.1, whose description says where each is needed
OPENADR = (
    "read_all",
    "read_targets",
    "read_ven_objects",
    "write_programs",
    "write_events",
    "write_reports",
    "write_subscriptions",
    "write_vens",
)
# our own: meters send, operators look at a zone's inside, auditors at its ledger
OWN = ("write_readings", "operate", "audit")
SCOPES = OPENADR + OWN

# what people call those who connect, and the scopes they need
KINDS: dict[str, tuple[str, ...]] = {
    "meters": ("write_readings",),
    "operator": ("operate", "audit"),
    "auditor": ("audit",),
    "ven": (
        "read_targets",
        "read_ven_objects",
        "write_reports",
        "write_subscriptions",
        "write_vens",
    ),
    "business": ("read_all", "write_programs", "write_events", "write_subscriptions", "write_vens"),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """What a request may do: as which client, with which scopes. Anybody has neither.

    `ven`: the VEN whose objects the client may see, where it is one.

    >>> Grant("meters-north", frozenset({"write_readings"})).may("write_readings")
    True
    >>> NOBODY.may("operate")
    False
    """

    client: str | None = None
    scopes: frozenset[str] = frozenset()
    ven: str | None = None

    def may(self, *scopes: str) -> bool:
        """Whether it has one of these scopes."""
        return not self.scopes.isdisjoint(scopes)


NOBODY = Grant()


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """Those that do not exist, in their order."""
    return [scope for scope in scopes if scope not in SCOPES]


def scopes_named(names: Iterable[str]) -> tuple[str, ...]:
    """Scopes from scopes and kinds of clients, each once, in the order of `SCOPES`.

    >>> scopes_named(["operator", "audit", "write_readings"])
    ('write_readings', 'operate', 'audit')
    """
    wanted: set[str] = set()
    for name in names:
        if name not in KINDS and name not in SCOPES:
            raise AccessError(
                "invalid_scope",
                f"scope is {shown(name)}; give one of {', '.join((*KINDS, *SCOPES))}.",
            )
        wanted.update(KINDS.get(name, (name,)))
    return tuple(scope for scope in SCOPES if scope in wanted)


# --------------------------------------------------------------------------------------------------
# Client secrets as they are kept: scrypt with a salt of its own for each (RFC 7914).


COST, BLOCK = 1 << 14, 8  # 16 MiB and some tens of milliseconds a try
SECRET = 32  # random bytes of a new secret
LONGEST = 512  # characters that are looked at: a longer one is nobody's


@dataclass(frozen=True, slots=True)
class Hashed:
    """What is kept of a secret."""

    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "Hashed(...)"

    @property
    def text(self) -> str:
        """As stored: the rule, the salt, the digest."""
        return f"scrypt${COST}${BLOCK}${self.salt.hex()}${self.digest.hex()}"

    @classmethod
    def of(cls, text: str) -> Hashed:
        """From what is stored; only our own rule is known."""
        try:
            rule, cost, block, salt, digest = text.split("$")
            made = cls(bytes.fromhex(salt), bytes.fromhex(digest))
        except ValueError:
            rule = ""
        if rule != "scrypt" or (cost, block) != (str(COST), str(BLOCK)):
            raise AccessError(
                "server_error", "A stored secret is of no known form; add the client again."
            )
        return made


def new_secret() -> str:
    """A secret nobody can guess, in letters that need no quoting."""
    return secrets.token_urlsafe(SECRET)


def hashed(secret: str, salt: bytes | None = None) -> Hashed:
    """What to keep of a secret."""
    salt = secrets.token_bytes(16) if salt is None else salt
    return Hashed(salt, _scrypt(secret, salt))


def fits(secret: str, kept: Hashed) -> bool:
    """Whether it is that secret; takes equally long either way."""
    found = _scrypt(secret[:LONGEST], kept.salt)
    return hmac.compare_digest(found, kept.digest) and len(secret) <= LONGEST


def _scrypt(secret: str, salt: bytes) -> bytes:
    text = secret.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=COST, r=BLOCK, p=1, maxmem=64 << 20, dklen=32)


# held against the secret of a client that does not exist, so that time does not tell
NO_CLIENT = Hashed(bytes(16), bytes(32))


# --------------------------------------------------------------------------------------------------
# Clients and where they are kept: a file (SQLite) or a server (PostgreSQL), by URL.


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


def taken(client: str) -> AccessError:
    """An id that is or was another's."""
    return AccessError(
        "invalid_client", f"client id {shown(client)} was used before; give another one."
    )


APPLICATION = 0x48474331  # "HGC1" in the file's header
VERSION = 1
BUSY = 10.0  # [s] to wait for another writer

_SCHEMA = """
CREATE TABLE clients (
  id TEXT PRIMARY KEY, scopes TEXT NOT NULL, secret TEXT NOT NULL, created INTEGER NOT NULL,
  ven TEXT, revoked INTEGER
) WITHOUT ROWID
"""
_COLUMNS = "id, scopes, secret, created, ven, revoked"


class SqliteClients:
    """A ClientStore in a file."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self.path = Path(path)
        self._mutex = threading.Lock()
        if not create and not self.path.is_file():
            raise AccessError("server_error", f"clients {self.path} does not exist; add one first.")
        if not self.path.parent.is_dir():
            raise AccessError(
                "server_error",
                f"clients {self.path} is in no folder; make {path!s}'s folder first.",
            )
        with self._errors():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # the mode of a new one
            self._database = sqlite3.connect(
                self.path, timeout=BUSY, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        application = database.execute("PRAGMA application_id").fetchone()[0]
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables and not application:
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {VERSION}")
        elif application != APPLICATION:
            raise AccessError(
                "server_error", f"{self.path} is a database of something else; give another name."
            )
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("COMMIT")
        if version != VERSION:
            raise AccessError(
                "server_error",
                f"clients {self.path} has schema version {version} where {VERSION} is known;"
                " use the hushgrid that wrote it.",
            )

    def add(self, client: Client) -> None:
        """Keep a new client."""
        try:
            self._run(f"INSERT INTO clients ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", *row(client))
        except sqlite3.IntegrityError:
            raise taken(client.id) from None

    def find(self, client: str) -> Client | None:
        """A client by its id."""
        if not could_be(client):
            return None
        found = self._run(f"SELECT {_COLUMNS} FROM clients WHERE id = ?", client)
        return from_row(*found[0]) if found else None

    def all(self) -> list[Client]:
        """Every client."""
        return [from_row(*one) for one in self._run(f"SELECT {_COLUMNS} FROM clients ORDER BY id")]

    def revoke(self, client: str, at: int) -> bool:
        """Have it end."""
        if not could_be(client):
            return False
        found = self._run(
            "UPDATE clients SET revoked = ? WHERE id = ? AND revoked IS NULL RETURNING id",
            at,
            client,
        )
        return bool(found)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
            return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._mutex, suppress(sqlite3.Error):
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's and the disk's errors as ours."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise AccessError(
                "server_error",
                f"clients {self.path} cannot be used ({error}); see that the disk is there and the"
                " file is a store of clients.",
            ) from None


def row(client: Client) -> tuple[Any, ...]:
    """A client as columns."""
    made = checked(client)
    scopes = " ".join(made.scopes)
    return (made.id, scopes, made.secret.text, made.created, made.ven, made.revoked)


def from_row(
    name: str, scopes: str, secret: str, created: int, ven: str | None, revoked: int | None
) -> Client:
    """A client from columns."""
    return Client(name, tuple(scopes.split()), Hashed.of(secret), created, ven, revoked)
