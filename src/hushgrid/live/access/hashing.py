"""Client secrets as they are kept: scrypt with a salt of its own for each (RFC 7914)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from hushgrid.errors import AccessError

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
