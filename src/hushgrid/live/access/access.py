"""Who a request comes from, and tokens for those who know a secret.

    access = Access(store, key, clock)
    token = access.token("ven-7", secret, ["read_all"], address="192.0.2.7")
    access.grant(f"Bearer {token.access_token}")    # Grant(client='ven-7', ...)

A token is a claim under a MAC, so none is stored. Its client is looked up at every use (and held
for `HELD` seconds), so a revoked one ends at once, whatever its tokens say.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hushgrid.errors import AccessError
from hushgrid.live.access.backoff import Backoff, neighbourhood
from hushgrid.live.access.clients import Client, ClientStore
from hushgrid.live.access.grants import NOBODY, Grant
from hushgrid.live.access.hashing import NO_CLIENT, fits
from hushgrid.live.access.tokens import Claims, opened, sealed
from hushgrid.live.clock import Clock

K = TypeVar("K")
V = TypeVar("V")

LIFETIME = 3600  # [s] of a token
HELD = 3.0  # [s] a client that was looked up is held
KEPT = 10_000  # clients held, and places a client is known to come from
AT_ONCE = 4  # secrets looked at at the same time: each takes 16 MiB


@dataclass(frozen=True, slots=True)
class Token:
    """What a client gets for its secret; `expires_in` [s]."""

    access_token: str = field(repr=False)
    expires_in: int
    scopes: tuple[str, ...]


class Access:
    """Grants and tokens of one service; any thread may call it.

    `key` (32 bytes) seals tokens; `static` are digests (SHA-256, hex) of tokens that never expire
    and may send readings.
    """

    def __init__(
        self,
        clients: ClientStore | None,
        key: bytes,
        clock: Clock,
        *,
        lifetime: int = LIFETIME,
        static: Sequence[str] = (),
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients, self._key, self._clock, self._steady = clients, key, clock, steady
        self._lifetime = lifetime
        self._static = tuple(digest.lower() for digest in static)
        self._held: OrderedDict[str, tuple[float, Client | None]] = OrderedDict()
        self._homes: OrderedDict[tuple[str, str], None] = OrderedDict()
        # An address that guesses is slowed soon. A client that others guess at is slowed later,
        # and never where it is known to come from: else anybody could shut it out.
        self._addresses = Backoff(steady, free=5, first=1.0, most=300.0)
        self._names = Backoff(steady, free=20, first=1.0, most=60.0)
        self._mutex = threading.Lock()
        self._hashing = threading.BoundedSemaphore(AT_ONCE)

    def grant(self, authorization: str | None) -> Grant:
        """What the value of an Authorization header allows; AccessError where its token is bad.

        A header of another scheme is not for us: it may be a proxy's.
        """
        claims = self._claims(authorization)
        if isinstance(claims, Grant):
            return claims
        return _granted(claims, self.client(claims.client))

    def at_once(self, authorization: str | None) -> Grant | None:
        """`grant`, where that has to wait for nothing; None where a client must be looked up."""
        claims = self._claims(authorization)
        if isinstance(claims, Grant):
            return claims
        known, client = self.held(claims.client)
        return _granted(claims, client) if known else None

    def _claims(self, authorization: str | None) -> Claims | Grant:
        """What a token claims under our seal; the grant itself where no client stands behind it."""
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer":
            return NOBODY
        token = token.strip()
        found = self._static_grant(token)
        if found is not None:
            return found
        claims = opened(self._key, token)
        if claims is None:
            raise _bad("The bearer token is missing or unknown; ask for one with your secret.")
        if claims.expires <= self._clock.now():
            raise _bad("The bearer token has expired; ask for another one.")
        return claims

    def _static_grant(self, token: str) -> Grant | None:
        """Every digest is compared, each in constant time."""
        found = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        matches = [hmac.compare_digest(found, digest) for digest in self._static]
        if not any(matches):
            return None
        return Grant(f"token:{found[:8]}", frozenset({"write_readings"}))

    def token(
        self,
        client_id: str,
        secret: str,
        scopes: Sequence[str] = (),
        address: str | None = None,
    ) -> Token:
        """A token for a secret, with these scopes or all that the client has.

        AccessError of kind `invalid_client`, `invalid_scope` or `slow_down` (with `wait` [s]).
        Takes some tens of milliseconds of a processor: call it in a thread of its own.
        """
        client = self.proved(client_id, secret, address)
        return self._made(client, tuple(dict.fromkeys(scopes)) or client.scopes)

    def proved(self, client_id: str, secret: str, address: str | None = None) -> Client:
        """The client whose secret it is; AccessError and time as for `token`."""
        place = neighbourhood(address)
        self._slow(client_id[:100], place)
        client = self._clients.find(client_id) if self._clients is not None else None
        with self._hashing:
            self._slow(client_id[:100], place)  # others may have failed while this one waited
            right = fits(secret, NO_CLIENT if client is None else client.secret)
        if client is None or not right or client.revoked is not None:
            with self._mutex:
                self._addresses.failed(place)
                self._names.failed(client_id[:100])
            raise AccessError(
                "invalid_client",
                "The client id or its secret is wrong; give those of hushgrid client add.",
            )
        with self._mutex:
            self._addresses.succeeded(place)
            _hold(self._homes, (client.id, place), None)
        return client

    def _slow(self, name: str, place: str) -> None:
        """Refuse without a look at the secret while a pause lasts."""
        with self._mutex:
            wait = self._addresses.wait(place)
            if (name, place) not in self._homes:
                wait = max(wait, self._names.wait(name))
        if wait > 0:
            raise AccessError(
                "slow_down",
                f"Too many wrong secrets; try again in {math.ceil(wait)} s.",
                wait=wait,
            )

    def _made(self, client: Client, scopes: tuple[str, ...]) -> Token:
        if not set(scopes) <= set(client.scopes):
            raise AccessError(
                "invalid_scope",
                "The client does not have every scope that is asked for; ask for some of"
                f" {' '.join(client.scopes)}.",
            )
        expires = math.floor(self._clock.now()) + self._lifetime
        made = sealed(self._key, client.id, scopes, expires, secrets.token_bytes(16))
        return Token(made, self._lifetime, scopes)

    def held(self, name: str) -> tuple[bool, Client | None]:
        """Whether a client was looked up in the last `HELD` seconds, and what was found."""
        with self._mutex:
            until, client = self._held.get(name, (-math.inf, None))
        return self._steady() < until, client

    def client(self, name: str) -> Client | None:
        """The client of a token of ours, at most `HELD` seconds old."""
        known, client = self.held(name)
        if known:
            return client
        client = self._clients.find(name) if self._clients is not None else None
        with self._mutex:
            _hold(self._held, name, (self._steady() + HELD, client))
        return client


def _granted(claims: Claims, client: Client | None) -> Grant:
    if client is None or client.revoked is not None:
        raise _bad("The bearer token's client was revoked; ask the operator for another one.")
    return Grant(client.id, frozenset(claims.scopes) & set(client.scopes), client.ven)


def _hold(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > KEPT:
        kept.popitem(last=False)


def _bad(message: str) -> AccessError:
    return AccessError("invalid_token", message)
