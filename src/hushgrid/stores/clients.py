"""Clients: their scopes, the hashes of their secrets, their store, and whose meters are whose.

A client's secret is kept as its Argon2id hash (RFC 9106) with a salt of its own.

A client is bound to meters by its operator. In production a sender that is bound to none sends
nothing. Otherwise it keeps the meters of which it was the first sender, unless a client is bound to
them.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from sqlalchemy.exc import IntegrityError

from hushgrid.errors import AccessError, MeterRetryError, ServiceError
from hushgrid.files.deployment import Deployment
from hushgrid.files.toml import display
from hushgrid.stores.database import SORTED_TEXT, Database, Schema

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
    scopes: set[str] = set()
    for name in names:
        if name not in KINDS and name not in SCOPES:
            raise AccessError(
                "invalid_scope",
                f"scope is {display(name)}; give one of {', '.join((*KINDS, *SCOPES))}.",
            )
        scopes.update(KINDS.get(name, (name,)))
    return tuple(scope for scope in SCOPES if scope in scopes)


SECRET = 32  # random bytes of a new secret
LONGEST = 512  # characters hashed; a longer secret is never right
# RFC 9106 with the cost that OWASP's password storage cheat sheet asks for: 19 MiB, two passes
HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def new_secret() -> str:
    """Make a random secret of 32 bytes.

    Returns:
        The secret in URL-safe base64.
    """
    return secrets.token_urlsafe(SECRET)


def hash_secret(secret: str) -> str:
    """Hash a secret with Argon2id and a new random salt.

    Args:
        secret: the secret as its client sends it.

    Returns:
        What to store: function, cost, salt and digest in one text.
    """
    return HASHER.hash(secret.encode("utf-8", "surrogatepass"))


def secret_matches(secret: str, digest: str) -> bool:
    """Compare a secret with a stored hash in a time that does not depend on the result.

    Args:
        secret: what a client sent.
        digest: text of `hash_secret`.

    Returns:
        True if it is that secret.

    Raises:
        AccessError: if the stored text is none.
    """
    secret_bytes = secret[:LONGEST].encode("utf-8", "surrogatepass")
    try:
        right = HASHER.verify(digest, secret_bytes)
    except VerifyMismatchError:
        return False
    except (InvalidHashError, VerificationError):
        raise AccessError(
            "server_error", "A stored secret is of no known form; add the client again."
        ) from None
    return right and len(secret) <= LONGEST


# compared with the secret for an unknown client, so that the time of an answer reveals nothing
NO_CLIENT = f"$argon2id$v=19$m=19456,t=2,p=1${'A' * 22}${'A' * 43}"

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VEN = 128  # characters of a VEN's name, as OpenADR has it
METER = 128  # characters of a meter id


@dataclass(frozen=True, slots=True)
class Client:
    """A client that may ask for tokens.

    Attributes:
        id: 1 to 64 characters that match `NAME`.
        scopes: members of `SCOPES`, at least one.
        secret: hash of its secret.
        created: UTC [s].
        ven: name of its VEN, if it is one; at most `VEN` characters.
        revoked: UTC [s], None while it is valid.
        meters: the meters whose readings it may send: ids, or prefixes that end in `*`; empty: it
            is bound to none.
    """

    id: str
    scopes: tuple[str, ...]
    secret: str = field(repr=False)
    created: int
    ven: str | None = None
    revoked: int | None = None
    meters: tuple[str, ...] = ()

    @property
    def sends(self) -> bool:
        """True while the client may send readings."""
        return self.revoked is None and "write_readings" in self.scopes


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
        AccessError: if its id, a scope, the name of its VEN or a meter is not allowed.
    """
    if not is_client_id(client.id):
        raise AccessError(
            "invalid_client",
            f"client id is {display(client.id)}; give 1 to 64 letters, digits, dots, dashes or"
            " underscores that begin with a letter or digit.",
        )
    wrong = [scope for scope in client.scopes if scope not in SCOPES]
    if wrong or not client.scopes:
        text = display(wrong[0]) if wrong else "missing"
        raise AccessError("invalid_scope", f"scope is {text}; give one of {', '.join(SCOPES)}.")
    if client.ven is not None and not (client.ven.isprintable() and 0 < len(client.ven) <= VEN):
        raise AccessError(
            "invalid_client",
            f"ven is {display(client.ven)}; give 1 to {VEN} printable characters.",
        )
    for meters in client.meters:
        if not (meters.isprintable() and 0 < len(meters) <= METER):
            raise AccessError(
                "invalid_client",
                f"meters is {display(meters)}; give a meter id, or a prefix and an asterisk such"
                " as 'north-*'.",
            )
    if client.meters and "write_readings" not in client.scopes:
        raise AccessError(
            "invalid_client",
            f"client {display(client.id)} is bound to meters but has no scope to send readings;"
            " give --scope meters as well.",
        )


def _clients(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", SORTED_TEXT, primary_key=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("ven", sa.Text),
        sa.Column("revoked", sa.BigInteger),
        sqlite_with_rowid=False,
    )


def _bindings() -> list[sa.Table]:
    """Meters by client, first senders, and how often clients or their meters were changed."""
    key = partial(sa.Column, type_=SORTED_TEXT, primary_key=True)
    sender = sa.Column("sender", SORTED_TEXT, nullable=False)
    return [
        sa.Table("hushgrid_client_meters", sa.MetaData(), key("client"), key("meters")),
        sa.Table("hushgrid_first_senders", sa.MetaData(), key("meter"), sender),
        sa.Table(
            "hushgrid_client_changes",
            sa.MetaData(),
            sa.Column("key", sa.Integer, primary_key=True, autoincrement=False),  # always 1
            sa.Column("number", sa.BigInteger, nullable=False),
        ),
    ]


CLIENTS = Schema(
    "clients",
    partial(AccessError, "server_error"),
    {
        "sqlite": [_clients("clients"), *_bindings()],
        "postgresql": [_clients("hushgrid_clients"), *_bindings()],
    },
    application=0x48474331,  # "HGC1"
    version=1,
)


class ClientStore(Database):
    """Store of clients. Every call sees what any process wrote before it. Thread-safe.

    Args:
        url: a path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: make the store if it is absent.
        read_only: leave it as it is.
    """

    def __init__(self, url: str | Path, *, create: bool = True, read_only: bool = False) -> None:
        super().__init__(url, CLIENTS, create=create, read_only=read_only, still=read_only)
        self._table, self._meters, self._first, self._changes = self.tables

    def add(self, client: Client) -> None:
        """Store a new client durably; AccessError if its id was ever used."""
        check_client(client)
        values = asdict(client) | {"scopes": " ".join(client.scopes)}
        meters = values.pop("meters")
        with self.begin() as connection:
            try:
                connection.execute(sa.insert(self._table), values)
            except IntegrityError:
                raise AccessError(
                    "invalid_client",
                    f"client id {display(client.id)} was used before; give another one.",
                ) from None
            self._bind(connection, client.id, meters)

    def bind(self, client: str, meters: Sequence[str]) -> bool:
        """Bind a client to these meters and no others; False if none with this id is valid."""
        entry = self.find(client)
        if entry is None or entry.revoked is not None:
            return False
        check_client(replace(entry, meters=tuple(meters)))
        with self.begin() as connection:
            self._bind(connection, client, meters)
        return True

    def _bind(self, connection: sa.Connection, client: str, meters: Sequence[str]) -> None:
        connection.execute(_CHANGED)
        connection.execute(sa.delete(self._meters).where(self._meters.c.client == client))
        rows = [{"client": client, "meters": pattern} for pattern in dict.fromkeys(meters)]
        if rows:
            connection.execute(sa.insert(self._meters), rows)

    def find(self, client: str) -> Client | None:
        """Return the client with this id, revoked or not, or None."""
        if not is_client_id(client):
            return None
        clients = self._find(self._table.c.id == client, self._meters.c.client == client)
        return clients[0] if clients else None

    def all(self) -> list[Client]:
        """Return all clients, sorted by id."""
        return self._find(sa.true(), sa.true())

    def _find(self, client_clause: Any, meter_clause: Any) -> list[Client]:
        meters: dict[str, list[str]] = {}
        query = sa.select(self._meters).where(meter_clause).order_by("meters")
        for client, pattern in self.rows(query):
            meters.setdefault(client, []).append(pattern)
        rows = self.rows(sa.select(self._table).where(client_clause).order_by("id"))
        return [
            Client(
                **row._asdict() | {"scopes": tuple(row.scopes.split())},
                meters=tuple(meters.get(row.id, ())),
            )
            for row in rows
        ]

    def reserving(self, ven: str) -> frozenset[str]:
        """Return the ids of valid clients that were added for a VEN of this name."""
        if not ven.isprintable():  # no name of a VEN, and perhaps no text for a database
            return frozenset()
        columns = self._table.c
        clause = (columns.ven == ven) & columns.revoked.is_(None)
        return frozenset(row.id for row in self.rows(sa.select(columns.id).where(clause)))

    def changes(self) -> int:
        """Return how often a client was added, bound or revoked: one row, however many clients."""
        return sum(row.number for row in self.rows(sa.select(self._changes.c.number)))

    def sender_terms(self) -> SenderTerms:
        """Return who may send what."""
        clients, meters = self._table.c, self._meters.c
        sends = clients.revoked.is_(None) & clients.scopes.contains("write_readings")
        bound: dict[str, tuple[str, ...]] = {}
        of_senders = sa.select(meters.client, meters.meters).where(meters.client == clients.id)
        for client, pattern in self.rows(of_senders.where(sends).order_by(meters.client, "meters")):
            bound[client] = (*bound.get(client, ()), pattern)
        refused = self.rows(sa.select(clients.id).where(~sends))
        return SenderTerms(bound, frozenset(row.id for row in refused))

    def first_senders(self) -> dict[str, str]:
        """Return the kept sender of each meter."""
        return {row.meter: row.sender for row in self.rows(sa.select(self._first))}

    def keep_first(self, sender: str, meters: Sequence[str]) -> dict[str, str]:
        """Keep a sender for those meters that have none; return the sender of each."""
        senders: dict[str, str] = {}
        with self.begin() as connection:
            keep = sa.text(_KEEP.format(self._first.name))
            connection.execute(keep, [{"meter": meter, "sender": sender} for meter in meters])
            for begin in range(0, len(meters), 500):
                clause = self._first.c.meter.in_(meters[begin : begin + 500])
                query = sa.select(self._first).where(clause)
                senders |= {row.meter: row.sender for row in connection.execute(query)}
        return senders

    def revoke(self, client: str, at: int) -> bool:
        """Revoke a client at a UTC [s]; False if none with this id is valid."""
        if not is_client_id(client):
            return False
        valid = (self._table.c.id == client) & self._table.c.revoked.is_(None)
        with self.begin() as connection:
            result = connection.execute(sa.update(self._table).where(valid).values(revoked=at))
            connection.execute(sa.delete(self._first).where(self._first.c.sender == client))
            connection.execute(_CHANGED)
        return bool(result.rowcount)


# both databases know these, SQLAlchemy has a word for them in each dialect only
_CHANGED = sa.text(
    "INSERT INTO hushgrid_client_changes VALUES (1, 1)"
    " ON CONFLICT (key) DO UPDATE SET number = hushgrid_client_changes.number + 1"
)
_KEEP = "INSERT INTO {} (meter, sender) VALUES (:meter, :sender) ON CONFLICT (meter) DO NOTHING"


# ---- which meters belong to which sender

T = TypeVar("T")
CACHED = 3.0  # [s] that a client is cached after it was looked up


@dataclass(frozen=True, slots=True)
class SenderTerms:
    """Who may send what, as the store of clients has it.

    Attributes:
        bound: meters of each client that is bound to some.
        refused: clients that may send nothing.
    """

    bound: Mapping[str, tuple[str, ...]]
    refused: frozenset[str]

    def test_of(self, sender: str | None) -> Callable[[str], bool]:
        """Make the test whether a meter may be a sender's; of one that is bound to none all may."""
        return covers(self.bound.get(sender or "", ("*",)))


class Senders:
    """The meters of each sender; a change of the store is seen within `CACHED` s. Thread-safe.

    Args:
        clients: store of clients.
        production: a sender that is bound to no meters sends nothing.
        steady: monotonic clock [s].
    """

    def __init__(
        self,
        clients: ClientStore,
        *,
        production: bool,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients, self._production, self._steady = clients, production, steady
        self._terms, self._expiry = SenderTerms({}, frozenset()), -1.0
        self._changes = -1  # of the store, when the terms were read
        self._first: dict[str, str] | None = None  # sender by meter
        self._mutex = threading.Lock()

    def terms(self) -> SenderTerms:
        """Return the terms, the same object while they are the same; MeterRetryError if away."""
        with self._mutex:
            if self._steady() >= self._expiry:
                changes = _ask(self._clients.changes)  # first: what changes meanwhile is seen next
                if changes != self._changes:
                    terms = _ask(self._clients.sender_terms)
                    if terms != self._terms:
                        self._terms, self._first = terms, None
                    self._changes = changes
                self._expiry = self._steady() + CACHED
            return self._terms

    def meters_of(self, sender: str, meters: Sequence[str], terms: SenderTerms) -> frozenset[str]:
        """Return those of some meters that a sender may send; keeps it for those without one."""
        if sender in terms.bound:
            return frozenset(filter(covers(terms.bound[sender]), meters))
        if self._production or sender in terms.refused:
            return frozenset()
        bound = covers(pattern for patterns in terms.bound.values() for pattern in patterns)
        free = [meter for meter in meters if not bound(meter)]
        with self._mutex:
            if self._first is None:
                self._first = _ask(self._clients.first_senders)
            new = [meter for meter in free if meter not in self._first]
            if new:
                self._first |= _ask(lambda: self._clients.keep_first(sender, new))
            return frozenset(meter for meter in free if self._first[meter] == sender)


def _ask(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except AccessError:
        raise MeterRetryError("the store of clients is away; send again.") from None


def covers(meters: Iterable[str]) -> Callable[[str], bool]:
    """Make the test whether a meter is among ids and prefixes.

    Args:
        meters: ids, or prefixes that end in an asterisk.

    Returns:
        The test.

    >>> [covers(["north-*", "m7"])(meter) for meter in ("north-1", "m7", "m77")]
    [True, True, False]
    """
    names = frozenset(meters)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return lambda meter: meter in names or meter.startswith(prefixes)


def check_bound(deployment: Deployment, clients: Iterable[Client]) -> None:
    """Refuse senders of a production service that are bound to no meters.

    Args:
        deployment: the service.
        clients: its clients.

    Raises:
        ServiceError: if there is one.
    """
    if deployment.mode != "production":
        return
    for client in clients:
        if client.sends and not client.meters:
            raise ServiceError(
                f"client {client.id!r} may send readings and is bound to no meters; bind it with"
                f" hushgrid client bind {client.id} --meters 'PREFIX*', or revoke it."
            )
    if deployment.http is not None and deployment.http.tokens:
        raise ServiceError(
            f"http.token_digests holds {len(deployment.http.tokens)} tokens, which are bound to no"
            " meters; remove them, and add clients with hushgrid client add ID --scope meters"
            " --meters 'PREFIX*'."
        )
