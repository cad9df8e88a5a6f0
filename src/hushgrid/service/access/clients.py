"""Clients: their scopes, the hashes of their secrets, and the store in SQLite.

A client's secret is kept as its scrypt hash (RFC 7914) with a salt of its own. The SQLite file is
readable by its owner only; `postgres.py` keeps the same table on a server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from hushgrid.errors import AccessError
from hushgrid.files.toml import display

# scopes of OpenADR 3.1, as its description requires them
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
# further scopes: meters send readings, operators see loads, auditors read the ledger
SCOPES = (*OPENADR, "write_readings", "operate", "audit")

# kinds of clients and the scopes each needs
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
    """Client and scopes of a request.

    Attributes:
        client: id of the client, None for an anonymous request.
        scopes: what the request may do; empty for an anonymous request.
        ven: name of the VEN whose objects the client may see, if it is one.

    >>> Grant("meters-north", frozenset({"write_readings"})).may("write_readings")
    True
    >>> ANONYMOUS.may("operate")
    False
    """

    client: str | None = None
    scopes: frozenset[str] = frozenset()
    ven: str | None = None

    def may(self, *scopes: str) -> bool:
        """Return True if the grant has at least one of these scopes."""
        return not self.scopes.isdisjoint(scopes)


ANONYMOUS = Grant()


def expand_scopes(names: Iterable[str]) -> tuple[str, ...]:
    """Expand names of scopes and of kinds of clients to scopes.

    Args:
        names: members of `SCOPES` or keys of `KINDS`.

    Returns:
        The scopes, each once, in the order of `SCOPES`.

    Raises:
        AccessError: if a name is unknown.

    >>> expand_scopes(["operator", "audit", "write_readings"])
    ('write_readings', 'operate', 'audit')
    """
    wanted: set[str] = set()
    for name in names:
        if name not in KINDS and name not in SCOPES:
            raise AccessError(
                "invalid_scope",
                f"scope is {display(name)}; give one of {', '.join((*KINDS, *SCOPES))}.",
            )
        wanted.update(KINDS.get(name, (name,)))
    return tuple(scope for scope in SCOPES if scope in wanted)


COST, BLOCK = 1 << 14, 8  # 16 MiB and some tens of milliseconds a try
SECRET = 32  # random bytes of a new secret
LONGEST = 512  # characters hashed; a longer secret is never right


@dataclass(frozen=True, slots=True)
class SecretHash:
    """Stored hash of a secret.

    Attributes:
        salt: random bytes of this secret alone.
        digest: scrypt of the secret with that salt, 32 bytes.
    """

    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        return "SecretHash(...)"

    @property
    def text(self) -> str:
        """Stored form: function, cost, block size, salt, digest."""
        return f"scrypt${COST}${BLOCK}${self.salt.hex()}${self.digest.hex()}"

    @classmethod
    def of(cls, text: str) -> SecretHash:
        """Parse the stored form; AccessError for any other function or cost."""
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
    """Make a random secret of 32 bytes.

    Returns:
        The secret in URL-safe base64.
    """
    return secrets.token_urlsafe(SECRET)


def hash_secret(secret: str) -> SecretHash:
    """Hash a secret with a new random salt.

    Args:
        secret: the secret as its client sends it.

    Returns:
        What to store.
    """
    salt = secrets.token_bytes(16)
    return SecretHash(salt, _scrypt(secret, salt))


def secret_matches(secret: str, stored: SecretHash) -> bool:
    """Compare a secret with a stored hash in a time that does not depend on the result.

    Args:
        secret: what a client sent.
        stored: hash of the right secret.

    Returns:
        True if it is that secret.
    """
    found = _scrypt(secret[:LONGEST], stored.salt)
    return hmac.compare_digest(found, stored.digest) and len(secret) <= LONGEST


def _scrypt(secret: str, salt: bytes) -> bytes:
    text = secret.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=COST, r=BLOCK, p=1, maxmem=64 << 20, dklen=32)


# compared with the secret for an unknown client, so that the time of an answer reveals nothing
NO_CLIENT = SecretHash(bytes(16), bytes(32))

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VEN = 128  # characters of a VEN's name, as OpenADR has it


@dataclass(frozen=True, slots=True)
class Client:
    """A client that may ask for tokens.

    Attributes:
        id: 1 to 64 characters that match `NAME`.
        scopes: members of `SCOPES`, at least one.
        secret: hash of its secret.
        created: UTC epoch [s].
        ven: name of its VEN, if it is one; at most `VEN` characters.
        revoked: UTC epoch [s], None while it is valid.
    """

    id: str
    scopes: tuple[str, ...]
    secret: SecretHash = field(repr=False)
    created: int
    ven: str | None = None
    revoked: int | None = None


def is_client_id(name: str) -> bool:
    """Check the form of a client id.

    Args:
        name: text of any length.

    Returns:
        True if a client may have that id.
    """
    return re.fullmatch(NAME, name) is not None


def check_client(client: Client) -> None:
    """Check the fields of a client.

    Args:
        client: a client before it is stored.

    Raises:
        AccessError: if its id, a scope or the name of its VEN is not allowed.
    """
    if not is_client_id(client.id):
        raise AccessError(
            "invalid_client",
            f"client id is {display(client.id)}; give 1 to 64 letters, digits, dots, dashes or"
            " underscores that begin with a letter or digit.",
        )
    wrong = [scope for scope in client.scopes if scope not in SCOPES]
    if wrong or not client.scopes:
        found = display(wrong[0]) if wrong else "missing"
        raise AccessError("invalid_scope", f"scope is {found}; give one of {', '.join(SCOPES)}.")
    if client.ven is not None and not (client.ven.isprintable() and 0 < len(client.ven) <= VEN):
        raise AccessError(
            "invalid_client",
            f"ven is {display(client.ven)}; give 1 to {VEN} printable characters.",
        )


class ClientStore(Protocol):
    """Store of clients. Every call sees what any process wrote before it. Thread-safe."""

    def add(self, client: Client) -> None:
        """Store a new client durably; AccessError if its id was ever used."""
        ...

    def find(self, client: str) -> Client | None:
        """Return the client with this id, revoked or not, or None."""
        ...

    def all(self) -> list[Client]:
        """Return all clients, sorted by id."""
        ...

    def revoke(self, client: str, at: int) -> bool:
        """Revoke a client at a UTC epoch [s]; False if none with this id is valid."""
        ...

    def close(self) -> None:
        """Close the file or connection."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


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


class SqlClients(ABC):
    """A ClientStore on a database: the statements that SQLite and PostgreSQL share."""

    _table: ClassVar[str]

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement (a ? for each value) durably and return its rows."""

    @abstractmethod
    def close(self) -> None:
        """See ClientStore."""

    def add(self, client: Client) -> None:
        """See ClientStore."""
        check_client(client)
        insert = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        values = (client.secret.text, client.created, client.ven, client.revoked)
        if not self._run(
            f"{insert} ON CONFLICT (id) DO NOTHING RETURNING id",
            client.id,
            " ".join(client.scopes),
            *values,
        ):
            raise AccessError(
                "invalid_client",
                f"client id {display(client.id)} was used before; give another one.",
            )

    def find(self, client: str) -> Client | None:
        """See ClientStore."""
        if not is_client_id(client):
            return None
        found = self._run(f"SELECT {_COLUMNS} FROM {self._table} WHERE id = ?", client)
        return _from_row(*found[0]) if found else None

    def all(self) -> list[Client]:
        """See ClientStore."""
        found = self._run(f"SELECT {_COLUMNS} FROM {self._table} ORDER BY id")
        return [_from_row(*one) for one in found]

    def revoke(self, client: str, at: int) -> bool:
        """See ClientStore."""
        if not is_client_id(client):
            return False
        update = f"UPDATE {self._table} SET revoked = ? WHERE id = ? AND revoked IS NULL"
        return bool(self._run(f"{update} RETURNING id", at, client))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SqliteClients(SqlClients):
    """A ClientStore in an SQLite file.

    Args:
        path: the file; its folder must exist.
        create: make the file if it is absent.
    """

    _table = "clients"

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

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
            return self._database.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._mutex, suppress(sqlite3.Error):
            self._database.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the disk into AccessError."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise AccessError(
                "server_error",
                f"clients {self.path} cannot be used ({error}); see that the disk is there and the"
                " file is a store of clients.",
            ) from None


def _from_row(
    name: str, scopes: str, secret: str, created: int, ven: str | None, revoked: int | None
) -> Client:
    return Client(name, tuple(scopes.split()), SecretHash.of(secret), created, ven, revoked)
