"""Who a request comes from, and tokens for those who know a secret.

    access = Access(store, key, clock)
    token = access.token("ven-7", secret, ["read_all"], address="192.0.2.7")
    access.grant(f"Bearer {token.access_token}")    # Grant(client='ven-7', ...)

A token is a claim under a MAC, so none is stored. Its client is looked up at every use (and held
for `HELD` seconds), so a revoked one ends at once, whatever its tokens say.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hushgrid.errors import AccessError
from hushgrid.service.access.clients import NO_CLIENT, NOBODY, Client, ClientStore, Grant, fits
from hushgrid.service.clock import Clock

# --------------------------------------------------------------------------------------------------
# Short-lived bearer tokens: what is granted and until when, under a MAC. Pure.
#
# A token is two base64url texts joined by a dot: a JSON text, and HMAC-SHA256 of the first one.
# Nothing is stored for a token; who may still use it is asked of the store of clients.


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


# --------------------------------------------------------------------------------------------------
# Slower after every failure; memory for so many at most.


KEPT = 10_000  # names remembered; the one that failed longest ago goes first


class Backoff:
    """Counts failures by name: after `free` of them a pause, twice as long after each further one.

    >>> now = [0.0]
    >>> slow = Backoff(lambda: now[0], free=2, first=1.0, most=60.0)
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
        most: float,
        kept: int = KEPT,
    ) -> None:
        self._steady, self._free, self._first, self._most = steady, free, first, most
        self._kept = kept
        self._seen: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()  # failures, until

    def wait(self, name: Hashable) -> float:
        """How long to wait before the next try [s]."""
        failures, until = self._seen.get(name, (0, 0.0))
        return max(until - self._steady(), 0.0) if failures > self._free else 0.0

    def failed(self, name: Hashable) -> None:
        """One more failure; what was long ago is forgotten."""
        now = self._steady()
        failures, until = self._seen.pop(name, (0, now))
        if now - until > 2 * self._most:
            failures = 0
        failures += 1
        pause = 0.0
        if failures > self._free:
            pause = min(self._first * 2.0 ** min(failures - self._free - 1, 60), self._most)
        self._seen[name] = (failures, now + pause)
        while len(self._seen) > self._kept:
            self._seen.popitem(last=False)

    def succeeded(self, name: Hashable) -> None:
        """All is forgiven."""
        self._seen.pop(name, None)


def neighbourhood(address: str | None) -> str:
    """What is counted as one sender: an IPv4 address, or the /64 of an IPv6 one.

    >>> neighbourhood("2001:db8::1:2:3:4"), neighbourhood("::ffff:192.0.2.7"), neighbourhood(None)
    ('2001:db8::', '192.0.2.7', '')
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
    return str(found)


K = TypeVar("K")
V = TypeVar("V")

LIFETIME = 3600  # [s] of a token
HELD = 3.0  # [s] a client that was looked up is held
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


# --------------------------------------------------------------------------------------------------
# Sessions of people at a browser: begun with a client's secret, ended by them or by time.
#
# A session is a random text that only the browser has; here its digest is kept, in memory alone. So
# whoever logs out is out, nothing that was ended comes back, and a restart ends them all. A session
# is no bearer token, and no bearer token is a session.


SESSIONS_KEPT = 1_000  # sessions; the oldest goes first
LONGEST_SESSION = 128  # characters; no session of ours is longer


@dataclass(frozen=True, slots=True)
class Session:
    """What a browser keeps, and for how long [s]."""

    text: str = field(repr=False)
    expires_in: int
    client: str
    scopes: tuple[str, ...]


class Sessions:
    """The sessions of one process; any thread may call it."""

    def __init__(
        self,
        access: Access,
        *,
        lifetime: int = LIFETIME,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        # a steady clock, not the service's: that one may be a simulation's, or be set
        self._access, self._lifetime, self._steady = access, lifetime, steady
        self._live: OrderedDict[str, tuple[str, float]] = OrderedDict()  # digest: client, until
        self._mutex = threading.Lock()

    def begin(self, client_id: str, secret: str, address: str | None = None) -> Session:
        """A session for a client's secret; AccessError as for a token, and as slow."""
        client = self._access.proved(client_id, secret, address)
        text = secrets.token_urlsafe(32)
        with self._mutex:
            now = self._steady()
            self._live[_digest(text)] = (client.id, now + self._lifetime)
            for digest in [d for d, (_, until) in self._live.items() if until <= now]:
                del self._live[digest]
            while len(self._live) > SESSIONS_KEPT:
                self._live.popitem(last=False)
        return Session(text, self._lifetime, client.id, client.scopes)

    def end(self, text: str | None) -> None:
        """End it; one that is not there has ended."""
        if text is not None:
            with self._mutex:
                self._live.pop(_digest(text), None)

    def grant(self, text: str) -> Grant:
        """What a session allows: all that its client may, nothing where it has ended."""
        name = self._client_of(text)
        return NOBODY if name is None else _sessions_granted(self._access.client(name))

    def at_once(self, text: str) -> Grant | None:
        """`grant`, where that has to wait for nothing; None where a client must be looked up."""
        name = self._client_of(text)
        if name is None:
            return NOBODY
        known, client = self._access.held(name)
        return _sessions_granted(client) if known else None

    def _client_of(self, text: str) -> str | None:
        if len(text) > LONGEST_SESSION:
            return None
        with self._mutex:
            name, until = self._live.get(_digest(text), (None, 0.0))
        return name if self._steady() < until else None


def _sessions_granted(client: Client | None) -> Grant:
    if client is None or client.revoked is not None:
        return NOBODY
    return Grant(client.id, frozenset(client.scopes), client.ven)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
