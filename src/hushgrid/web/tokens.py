"""Tokens, backoff after wrong secrets, and sessions of browsers.

    access = Access(store, key, clock)
    token = access.token("ven-7", secret, ["read_all"], address="192.0.2.7")
    access.grant(f"Bearer {token.access_token}")    # Grant(client='ven-7', ...)

A token is a JSON Web Token (RFC 7519) under HMAC-SHA256 and is not stored. Its client is looked up
at every use (and cached for `CACHED` seconds), so a revoked client loses access within that time,
whatever its tokens claim.

A session is a random text in a browser's cookie. Only its digest is kept, in memory: a session that
was ended cannot come back, and a restart ends all of them. Sessions and bearer tokens are not
interchangeable.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from hushgrid.curator.clock import Clock
from hushgrid.errors import AccessError
from hushgrid.stores.clients import (
    ANONYMOUS,
    CACHED,
    NO_CLIENT,
    Client,
    ClientStore,
    Grant,
    secret_matches,
)

ALGORITHM = "HS256"
LONGEST = 4096  # characters; a longer text is no token of this service


@dataclass(frozen=True, slots=True)
class Claims:
    """Content of a token.

    Attributes:
        client: id of the client.
        scopes: what the token allows, if its client still has these scopes.
        expires: UTC [s].
    """

    client: str
    scopes: tuple[str, ...]
    expires: int


def make_token(key: bytes, client: str, scopes: Sequence[str], expires: int, nonce: bytes) -> str:
    """Make a bearer token.

    Args:
        key: secret key of the MAC.
        client: id of the client.
        scopes: what the token allows.
        expires: UTC [s].
        nonce: random bytes that make equal claims differ.

    Returns:
        The token.

    >>> token = make_token(b"k" * 32, "ven-7", ["read_all"], 1_700_000_000, b"n" * 16)
    >>> read_token(b"k" * 32, token)
    Claims(client='ven-7', scopes=('read_all',), expires=1700000000)
    >>> read_token(b"another key".ljust(32), token) is None
    True
    """
    claims = {"sub": client, "scopes": list(scopes), "exp": expires, "jti": nonce.hex()}
    return jwt.encode({"alg": ALGORITHM}, claims, _jwk(key))


def read_token(key: bytes, token: str) -> Claims | None:
    """Check a token's MAC and read its claims.

    Args:
        key: secret key of the MAC.
        token: text that a client sent.

    Returns:
        The claims, expired or not; None if this service did not make the token.
    """
    if len(token) > LONGEST:
        return None
    try:
        claims = jwt.decode(token, _jwk(key), algorithms=[ALGORITHM]).claims
    except (JoseError, ValueError):
        return None
    return Claims(claims["sub"], tuple(claims["scopes"]), claims["exp"])


@lru_cache(maxsize=4)
def _jwk(key: bytes) -> OctKey:
    return OctKey.import_key(key)


KEPT = 10_000  # names remembered; the one that failed longest ago is dropped first


class Backoff:
    """Counts failures by name: after `free` of them a pause, twice as long after each further one.

    Args:
        steady: monotonic clock [s].
        free: failures without a pause.
        first: first pause [s].
        longest: longest pause [s].
        size: names remembered at most.

    >>> now = [0.0]
    >>> slow = Backoff(lambda: now[0], free=2, first=1.0, longest=60.0)
    >>> for _ in range(4): slow.failed("a")
    >>> slow.wait("a"), slow.wait("b")
    (2.0, 0.0)
    """

    def __init__(
        self,
        steady: Callable[[], float],
        *,
        free: int,
        first: float,
        longest: float,
        size: int = KEPT,
    ) -> None:
        self._steady, self._free, self._first, self._longest = steady, free, first, longest
        self._size = size
        # failures, and the end of the pause
        self._entries: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def wait(self, name: Hashable) -> float:
        """Return the time to wait before the next attempt [s]."""
        failures, end = self._entries.get(name, (0, 0.0))
        return max(end - self._steady(), 0.0) if failures > self._free else 0.0

    def failed(self, name: Hashable) -> None:
        """Count a failure; the count restarts after twice the longest pause."""
        now = self._steady()
        failures, end = self._entries.pop(name, (0, now))
        if now - end > 2 * self._longest:
            failures = 0
        failures += 1
        pause = 0.0
        if failures > self._free:
            pause = min(self._first * 2.0 ** min(failures - self._free - 1, 60), self._longest)
        self._entries[name] = (failures, now + pause)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def succeeded(self, name: Hashable) -> None:
        """Reset the count of a name."""
        self._entries.pop(name, None)


def sender_network(address: str | None) -> str:
    """Return what counts as one sender: an IPv4 address, or the /64 network of an IPv6 address.

    Args:
        address: IP address, None if unknown.

    Returns:
        Text of the address or network; empty if `address` is none.

    >>> sender_network("2001:db8::1:2:3:4"), sender_network("::ffff:192.0.2.7"), sender_network("")
    ('2001:db8::', '192.0.2.7', '')
    """
    try:
        ip = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(ip) >> 64 << 64))
    return str(ip)


K = TypeVar("K")
V = TypeVar("V")

LIFETIME = 3600  # [s] of a token
AT_ONCE = 4  # secrets hashed at the same time: each takes 16 MiB


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its client gets it.

    Attributes:
        access_token: value of the Authorization header after "Bearer".
        expires_in: lifetime [s].
        scopes: what it allows.
    """

    access_token: str = field(repr=False)
    expires_in: int
    scopes: tuple[str, ...]


class Access:
    """Grants and tokens of one service. Thread-safe.

    Args:
        clients: store of clients; None if there are only static tokens.
        key: secret key of tokens, 32 bytes.
        clock: clock by which tokens expire.
        lifetime: of a token [s].
        static: SHA-256 digests (hex) of tokens that never expire and may send readings.
        steady: monotonic clock [s] of cache and backoff.
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
        self._cache: OrderedDict[str, tuple[float, Client | None]] = OrderedDict()
        self._homes: OrderedDict[tuple[str, str], None] = OrderedDict()
        # An address that guesses is slowed soon, and a client whose secret others guess later. A
        # client at an address it used before has a count of its own, which no other one at that
        # address, and none elsewhere, can raise: otherwise anyone could lock it out. Signing in
        # resets that count alone: otherwise one's own secret would pay for guesses of others.
        self._addresses = Backoff(steady, free=5, first=1.0, longest=300.0)
        self._names = Backoff(steady, free=20, first=1.0, longest=60.0)
        self._pairs = Backoff(steady, free=5, first=1.0, longest=60.0)
        self._mutex = threading.Lock()
        self._hashing = threading.BoundedSemaphore(AT_ONCE)

    def grant(self, authorization: str | None) -> Grant:
        """Return what the value of an Authorization header allows; AccessError for a bad token.

        Other schemes than Bearer are ignored: such a header may be meant for a proxy.
        """
        claims = self._claims(authorization)
        if isinstance(claims, Grant):
            return claims
        return _client_grant(claims, self.client(claims.client))

    def cached_grant(self, authorization: str | None) -> Grant | None:
        """Return `grant` from the cache; None if a client must be looked up in the store."""
        claims = self._claims(authorization)
        if isinstance(claims, Grant):
            return claims
        cached, client = self.cached_client(claims.client)
        return _client_grant(claims, client) if cached else None

    def _claims(self, authorization: str | None) -> Claims | Grant:
        """Return the claims of a token, or the grant itself if it belongs to no client."""
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer":
            return ANONYMOUS
        token = token.strip()
        grant = self._static_grant(token)
        if grant is not None:
            return grant
        claims = read_token(self._key, token)
        if claims is None:
            raise _bad("The bearer token is missing or unknown; ask for one with your secret.")
        if claims.expires <= self._clock.now():
            raise _bad("The bearer token has expired; ask for another one.")
        return claims

    def _static_grant(self, token: str) -> Grant | None:
        """Compare with every digest, each in constant time."""
        token_digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        matches = [hmac.compare_digest(token_digest, digest) for digest in self._static]
        if not any(matches):
            return None
        return Grant(f"token:{token_digest[:8]}", frozenset({"write_readings"}))

    def token(
        self,
        client_id: str,
        secret: str,
        scopes: Sequence[str] = (),
        address: str | None = None,
    ) -> Token:
        """Make a token for a client's secret, with these scopes or all that the client has.

        Raises AccessError of kind `invalid_client`, `invalid_scope` or `slow_down` (with `wait`
        [s]). Takes tens of milliseconds of processor time: call it in a worker thread.
        """
        client = self.authenticate(client_id, secret, address)
        return self._make_token(client, tuple(dict.fromkeys(scopes)) or client.scopes)

    def authenticate(self, client_id: str, secret: str, address: str | None = None) -> Client:
        """Return the client with this secret; AccessError and duration as for `token`."""
        place = sender_network(address)
        self._slow(client_id[:100], place)
        client = self._clients.find(client_id) if self._clients is not None else None
        with self._hashing:
            self._slow(client_id[:100], place)  # others may have failed while this one waited
            right = secret_matches(secret, NO_CLIENT if client is None else client.secret)
        if client is None or not right or client.revoked is not None:
            with self._mutex:
                if (client_id, place) in self._homes:
                    self._pairs.failed((client_id, place))
                else:
                    self._addresses.failed(place)
                    self._names.failed(client_id[:100])
            raise AccessError(
                "invalid_client",
                "The client id or its secret is wrong; give those of hushgrid client add.",
            )
        with self._mutex:
            self._pairs.succeeded((client.id, place))
            _remember(self._homes, (client.id, place), None)
        return client

    def _slow(self, name: str, place: str) -> None:
        """Refuse while a pause lasts, before the secret is hashed."""
        with self._mutex:
            wait = self._pairs.wait((name, place))
            if (name, place) not in self._homes:
                wait = max(self._addresses.wait(place), self._names.wait(name))
        if wait > 0:
            raise AccessError(
                "slow_down",
                f"Too many wrong secrets; try again in {math.ceil(wait)} s.",
                wait=wait,
            )

    def _make_token(self, client: Client, scopes: tuple[str, ...]) -> Token:
        if not set(scopes) <= set(client.scopes):
            raise AccessError(
                "invalid_scope",
                "The client does not have every scope that is asked for; ask for some of"
                f" {' '.join(client.scopes)}.",
            )
        expires = math.floor(self._clock.now()) + self._lifetime
        text = make_token(self._key, client.id, scopes, expires, secrets.token_bytes(16))
        return Token(text, self._lifetime, scopes)

    def reserving(self, ven: str) -> frozenset[str]:
        """Return the ids of clients for which the name of a VEN is reserved."""
        return frozenset() if self._clients is None else self._clients.reserving(ven)

    def cached_client(self, name: str) -> tuple[bool, Client | None]:
        """Return (True, what was found) if an id was looked up in the last `CACHED` seconds."""
        with self._mutex:
            expiry, client = self._cache.get(name, (-math.inf, None))
        return self._steady() < expiry, client

    def client(self, name: str) -> Client | None:
        """Look up a client; the answer may be `CACHED` seconds old."""
        cached, client = self.cached_client(name)
        if cached:
            return client
        client = self._clients.find(name) if self._clients is not None else None
        with self._mutex:
            _remember(self._cache, name, (self._steady() + CACHED, client))
        return client


def _client_grant(claims: Claims, client: Client | None) -> Grant:
    if client is None or client.revoked is not None:
        raise _bad("The bearer token's client was revoked; ask the operator for another one.")
    return Grant(client.id, frozenset(claims.scopes) & set(client.scopes), client.ven)


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > KEPT:
        cache.popitem(last=False)


def _bad(message: str) -> AccessError:
    return AccessError("invalid_token", message)


SESSIONS_KEPT = 1_000  # sessions; the oldest is dropped first
LONGEST_SESSION = 128  # characters; a longer text is no session of this service


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the browser gets it.

    Attributes:
        text: value of the cookie.
        expires_in: lifetime [s].
        client: id of the client that logged in.
        scopes: what the client may do.
    """

    text: str = field(repr=False)
    expires_in: int
    client: str
    scopes: tuple[str, ...]


class Sessions:
    """The sessions of one process. Thread-safe.

    Args:
        access: checks secrets and looks up clients.
        lifetime: of a session [s].
        steady: monotonic clock [s]; the service's own clock may be simulated or be set.
    """

    def __init__(
        self,
        access: Access,
        *,
        lifetime: int = LIFETIME,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._lifetime, self._steady = access, lifetime, steady
        self._live: OrderedDict[str, tuple[str, float]] = OrderedDict()  # digest: client, until
        self._mutex = threading.Lock()

    def begin(self, client_id: str, secret: str, address: str | None = None) -> Session:
        """Begin a session for a client's secret; AccessError and duration as for a token."""
        client = self._access.authenticate(client_id, secret, address)
        text = secrets.token_urlsafe(32)
        with self._mutex:
            now = self._steady()
            self._live[_digest(text)] = (client.id, now + self._lifetime)
            for digest in [d for d, (_, expiry) in self._live.items() if expiry <= now]:
                del self._live[digest]
            while len(self._live) > SESSIONS_KEPT:
                self._live.popitem(last=False)
        return Session(text, self._lifetime, client.id, client.scopes)

    def end(self, text: str | None) -> None:
        """End a session; does nothing if it has ended already."""
        if text is not None:
            with self._mutex:
                self._live.pop(_digest(text), None)

    def grant(self, text: str) -> Grant:
        """Return all that the session's client may do; nothing if the session has ended."""
        name = self._client_of(text)
        return ANONYMOUS if name is None else _session_grant(self._access.client(name))

    def cached_grant(self, text: str) -> Grant | None:
        """Return `grant` from the cache; None if a client must be looked up in the store."""
        name = self._client_of(text)
        if name is None:
            return ANONYMOUS
        cached, client = self._access.cached_client(name)
        return _session_grant(client) if cached else None

    def _client_of(self, text: str) -> str | None:
        if len(text) > LONGEST_SESSION:
            return None
        with self._mutex:
            name, expiry = self._live.get(_digest(text), (None, 0.0))
        return name if self._steady() < expiry else None


def _session_grant(client: Client | None) -> Grant:
    if client is None or client.revoked is not None:
        return ANONYMOUS
    return Grant(client.id, frozenset(client.scopes), client.ven)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
