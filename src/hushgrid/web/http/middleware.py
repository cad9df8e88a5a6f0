"""ASGI middleware of the service, and the dependencies that check scopes.

security headers -> trusted proxies (uvicorn's) -> callers and their rate -> scripts of other sites
-> prices in memory -> limits of bodies -> routes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer, SecurityScopes
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushgrid.curator.clock import Clock
from hushgrid.errors import AccessError
from hushgrid.stores.clients import ANONYMOUS, Grant
from hushgrid.web.http.common import (
    COOKIE,
    STRANGER,
    Refusal,
    access_problem,
    conditional,
    openadr_problem,
    pause,
    problem,
    same_origin,
    session_cookie,
)
from hushgrid.web.prices import Page, Pages
from hushgrid.web.tokens import Access, sender_network

NOTHING = b"default-src 'none'; frame-ancestors 'none'"  # for data: a browser runs no part of it
OPENADR = "/openadr3/"  # its errors have another shape


def security_headers(tls: bool) -> list[tuple[bytes, bytes]]:
    """Return the security headers of an answer.

    Args:
        tls: the server has TLS of its own.

    Returns:
        Names and values; an answer may have its own values of the first two.
    """
    return [
        (b"content-security-policy", NOTHING),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
        *([(b"strict-transport-security", b"max-age=31536000")] if tls else []),
    ]


class SecurityHeaders:
    """Adds the security headers to every answer, and no-store if it does not say otherwise.

    Args:
        app: the app.
        tls: the server has TLS of its own.
    """

    def __init__(self, app: ASGIApp, *, tls: bool = False) -> None:
        self._app, self._headers = app, security_headers(tls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; other protocols are not spoken."""
        if scope["type"] != "http":
            return

        async def forward(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                defaults = [header for header in self._headers if header[0] not in names]
                message["headers"] = [*message["headers"], *defaults]
            await send(message)

        await self._app(scope, receive, forward)


FORM = (10_000, 10.0)  # [bytes] and [s] of a form
REPORT = (1 << 18, 30.0)  # of a usage report
BODY = (1 << 16, 30.0)  # of any other body


class BodyLimit:
    """Refuses a body that is too large or too slow, when it is read.

    Args:
        app: the app.
        usual: most bytes and seconds of a body.
        paths: the same for some paths and those directly below.
    """

    def __init__(
        self,
        app: ASGIApp,
        usual: tuple[int, float] = BODY,
        paths: Mapping[str, tuple[int, float]] = MappingProxyType({}),
    ) -> None:
        self._app, self._usual, self._paths = app, usual, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; reading its body raises Refusal beyond a limit."""
        path = scope["path"]
        below = self._paths.get(path.rpartition("/")[0], self._usual)
        limit, patience = self._paths.get(path, below)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        size, deadline, ended = int(declared[:19]) if declared.isdigit() else 0, 0.0, False
        large = Refusal(413, f"The body is beyond {limit} bytes; send it in parts.", field="body")
        if size <= limit:
            size = 0

        async def limited() -> Message:
            nonlocal size, deadline, ended
            if ended:
                return await receive()
            if size > limit:
                raise large
            deadline = deadline or asyncio.get_running_loop().time() + patience
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                slow = f"The body took more than {patience:g} s; send less, or faster."
                raise Refusal(408, slow, field="body") from None
            size += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if size > limit:
                raise large
            return message

        await self._app(scope, limited, send)


class Caller(NamedTuple):
    """Sender of a request.

    Attributes:
        grant: client and scopes.
        sender: address or network.
    """

    grant: Grant
    sender: str


BURST = 5  # [s] of its rate that a sender may use at once


class Callers:
    """Finds the caller of each request and limits its rate; a bad token opens nothing.

    Args:
        app: the app.
        access: grants of tokens.
        rate: requests a second of one caller.
    """

    def __init__(self, app: ASGIApp, access: Access, rate: float) -> None:
        self._app, self._access = app, access
        self._seconds = max(BURST, math.ceil(1 / rate))
        self._limit, self._window = max(int(rate * self._seconds), 1), 0.0
        self._requests = Counter[str]()  # of each sender, until the count begins again
        self._sender = lru_cache(10_000)(sender_network)
        self._threads = CapacityLimiter(4)  # no other request keeps a sender of readings waiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller, or refuse it."""
        peer = scope["client"]
        sender, grant, refusal = self._sender(peer[0] if peer else None), ANONYMOUS, None
        # two headers make a value that no token has
        authorization = b",".join(
            value for name, value in scope["headers"] if name == b"authorization"
        )
        try:
            if authorization:
                grant = await self._grant(authorization.decode("latin-1"))
        except AccessError as error:
            refusal = access_problem(error)
        # by the clock alone: when a count begins must not depend on requests of others
        window, elapsed = divmod(time.monotonic(), self._seconds)
        if window != self._window:
            self._window = window
            self._requests.clear()
        self._requests[grant.client or sender] += 1
        if self._requests[grant.client or sender] > self._limit:
            refusal = self._too_many(math.ceil(self._seconds - elapsed))
            await pause()
        if refusal is None:
            scope["caller"] = Caller(grant, sender)
            await self._app(scope, receive, send)
        elif scope["path"].startswith(OPENADR):
            await openadr_problem(refusal)(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    async def _grant(self, authorization: str) -> Grant:
        """Return the grant of a token; uses a thread only if the store must be read."""
        grant = self._access.cached_grant(authorization)
        if grant is not None:
            return grant
        return await to_thread.run_sync(self._access.grant, authorization, limiter=self._threads)

    def _too_many(self, seconds: int) -> Response:
        return problem(
            429,
            f"Too many requests; send the next one in {seconds} s.",
            {"Retry-After": str(seconds)},
        )


class PublicReads:
    """Lets scripts of other sites read what anyone may read (CORS), without cookies or tokens.

    The headers are the same whatever site asks: a proxy keeps one answer for all.

    Args:
        app: the app.
        public: true of a path that anyone may read.
    """

    def __init__(self, app: ASGIApp, public: Callable[[str], object]) -> None:
        self._app, self._public = app, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer a browser that asks whether it may send it."""
        app, method = self._app, scope["method"]
        preflight = method == "OPTIONS" and b"access-control-request-method" in dict(
            scope["headers"]
        )
        if not self._public(scope["path"]) or not (preflight or method in ("GET", "HEAD")):
            await app(scope, receive, send)
            return

        async def forward(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *READS]
            await send(message)

        if preflight:
            app = Response(status_code=204, headers=MAY_ASK)
        await app(scope, receive, forward)


READS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"ETag, Retry-After"),
]
# a token is not among the headers of "*"
MAY_ASK = {
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "86400",
}


class ReadyPrices:
    """Answers requests for prices that are in memory, without routing.

    Args:
        app: answers all other requests.
        pages: the price feeds.
        clock: time of the pages' age.
    """

    def __init__(self, app: ASGIApp, pages: Pages, clock: Clock) -> None:
        self._app, self._pages, self._clock = app, pages, clock
        self._usual = {
            (feed.path, f"zone={name}".encode()): (feed.path, zone)
            for feed in pages.feeds.values()
            for zone in pages.zones
            for name in (quote(zone), quote(zone, safe=""), quote_plus(zone))
        }
        if len(pages.zones) == 1:
            self._usual |= {(path, b""): (path, pages.zones[0]) for path in pages.feeds}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from memory, or pass the request on."""
        usual = self._usual.get((scope["path"], scope["query_string"]))
        page = None
        if usual is not None and scope["method"] in ("GET", "HEAD"):
            page = self._pages.ready(*usual)
        app = self._app if page is None else page_answer(Request(scope), page, self._clock.now())
        await app(scope, receive, send)


def page_answer(request: Request, page: Page, now: float) -> Response:
    """Make the answer with a price page, or a 304.

    Args:
        request: the request.
        page: the page.
        now: UTC [s].

    Returns:
        The response.
    """
    cache = f"public, max-age={page.age(now)}"
    return conditional(request, page.body, page.media, page.etag, cache)


# ---- scopes


def caller_of(scope: Scope) -> Caller:
    """Return the caller that `Callers` found.

    Args:
        scope: ASGI scope of the request.

    Returns:
        The caller; anonymous without the middleware.
    """
    caller = scope.get("caller")
    return caller if isinstance(caller, Caller) else Caller(ANONYMOUS, "")


def caller_name(scope: Scope) -> str:
    """Return who answers for a request: its client, else its address or network.

    Args:
        scope: ASGI scope of the request.

    Returns:
        The name; empty without the middleware `Callers`.
    """
    caller = caller_of(scope)
    return caller.grant.client or (caller.sender and STRANGER + caller.sender)


class _ByToken(HTTPBearer):
    """Dependency of routes that need a scope; `Callers` has checked the token."""

    async def __call__(self, request: Request, security_scopes: SecurityScopes) -> None:  # type: ignore[override]
        grant, names = caller_of(request.scope).grant, " or ".join(security_scopes.scopes)
        if grant is ANONYMOUS:
            raise Refusal(
                401,
                f"The bearer token is missing or unknown; send one that has the scope {names}.",
                {"WWW-Authenticate": "Bearer"},
            )
        if not grant.may(*security_scopes.scopes):
            raise Refusal(
                403,
                f"The bearer token lacks the scope {names}; ask for one that has it.",
                {"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )


class _BySession(APIKeyCookie):
    """Dependency of routes that take a session's cookie in place of a token."""

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        caller, headers = caller_of(request.scope), request.scope["headers"]
        cookie, sessions = session_cookie(headers), request.app.state.sessions
        if caller.grant is ANONYMOUS and cookie and same_origin(headers, required=False):
            grant = sessions.cached_grant(cookie)
            if grant is None:
                grant = await to_thread.run_sync(sessions.grant, cookie)
            request.scope["caller"] = caller._replace(grant=grant)


BY_SESSION = Depends(_BySession(name=COOKIE, scheme_name="session"))
_TOKEN = _ByToken(scheme_name="bearer")


def scopes(*names: str) -> Any:
    """Make a dependency: the caller has one of these scopes.

    Args:
        names: one of them is needed.

    Returns:
        The dependency of a route; after `BY_SESSION` a session counts as a token.
    """
    return Security(_TOKEN, scopes=list(names))
