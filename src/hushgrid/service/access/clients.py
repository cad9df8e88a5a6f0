"""Clients, their scopes, and the hashes of their secrets.

A client's secret is kept as its scrypt hash (RFC 7914) with a salt of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

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
