"""Short-lived bearer tokens: what is granted and until when, under a MAC. Pure.

A token is two base64url texts joined by a dot: a JSON text, and HMAC-SHA256 of the first one.
Nothing is stored for a token; who may still use it is asked of the store of clients.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass

VERSION = 1
LONGEST = 4096  # characters; no token of ours is longer


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says; `expires` in UTC epoch s."""

    client: str
    scopes: tuple[str, ...]
    expires: int


def sealed(key: bytes, client: str, scopes: Sequence[str], expires: int, nonce: bytes) -> str:
    """A token.

    >>> token = sealed(b"k" * 32, "ven-7", ["read_all"], 1_700_000_000, b"n" * 16)
    >>> opened(b"k" * 32, token)
    Claims(client='ven-7', scopes=('read_all',), expires=1700000000)
    >>> opened(b"another key".ljust(32), token) is None
    True
    """
    said = json.dumps([VERSION, client, list(scopes), expires, nonce.hex()], separators=(",", ":"))
    text = _written(said.encode())
    return f"{text}.{_written(_mac(key, text))}"


def opened(key: bytes, token: str) -> Claims | None:
    """What a token says, expired or not; None where it is not ours."""
    text, dot, mac = token.partition(".")
    if not dot or len(token) > LONGEST or not token.isascii():
        return None
    try:
        given = base64.urlsafe_b64decode(mac + "=" * (-len(mac) % 4))
    except binascii.Error:
        return None
    if not hmac.compare_digest(given, _mac(key, text)) or _written(given) != mac:
        return None  # nothing of it is looked at before the MAC is right
    version, client, scopes, expires, _ = json.loads(
        base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    )
    return Claims(client, tuple(scopes), expires) if version == VERSION else None


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, b"hushgrid token\n" + text.encode(), "sha256")


def _written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
