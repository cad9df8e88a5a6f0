"""Sessions of people at a browser: begun with a client's secret, ended by them or by time.

A session is a random text that only the browser has; here its digest is kept, in memory alone. So
whoever logs out is out, nothing that was ended comes back, and a restart ends them all. A session
is no bearer token, and no bearer token is a session.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from hushgrid.live.access.access import LIFETIME, Access
from hushgrid.live.access.clients import Client
from hushgrid.live.access.grants import NOBODY, Grant

KEPT = 1_000  # sessions; the oldest goes first
LONGEST = 128  # characters; no session of ours is longer


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
            while len(self._live) > KEPT:
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
        return NOBODY if name is None else _granted(self._access.client(name))

    def at_once(self, text: str) -> Grant | None:
        """`grant`, where that has to wait for nothing; None where a client must be looked up."""
        name = self._client_of(text)
        if name is None:
            return NOBODY
        known, client = self._access.held(name)
        return _granted(client) if known else None

    def _client_of(self, text: str) -> str | None:
        if len(text) > LONGEST:
            return None
        with self._mutex:
            name, until = self._live.get(_digest(text), (None, 0.0))
        return name if self._steady() < until else None


def _granted(client: Client | None) -> Grant:
    if client is None or client.revoked is not None:
        return NOBODY
    return Grant(client.id, frozenset(client.scopes), client.ven)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
