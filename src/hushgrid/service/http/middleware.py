"""ASGI middleware of the service: caller, rate limit, security headers, prepared price pages.

A prepared price page is answered with two messages, without routing or a request object.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hushgrid.errors import AccessError
from hushgrid.files.deployment import Http
from hushgrid.service.access.clients import ANONYMOUS, Grant
from hushgrid.service.access.tokens import Access, Sessions, sender_network
from hushgrid.service.clock import Clock
from hushgrid.service.http.common import (
    Headers,
    access_problem,
    on_failure,
    openadr_problem,
    problem,
    same_origin,
    security_headers,
    session_cookie,
    with_headers,
)
from hushgrid.service.prices import FEEDS, Page, Pages

BURST = 5.0  # [s] of its rate that a sender may save up
KEPT = 10_000  # senders remembered; the one silent for longest is dropped first


class Buckets:
    """Token buckets by name, for at most `kept` names.

    Args:
        rate: tokens a second.
        steady: monotonic clock [s].
        kept: names remembered.

    >>> now = [0.0]
    >>> buckets = Buckets(2.0, lambda: now[0])
    >>> [buckets.take("a") for _ in range(10)] == [0.0] * 10
    True
    >>> buckets.take("a"), buckets.take("b")
    (0.5, 0.0)
    """

    def __init__(self, rate: float, steady: Callable[[], float], kept: int = KEPT) -> None:
        self._rate, self._steady, self._kept = rate, steady, kept
        self._most = max(rate * BURST, 1.0)
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, when

    def take(self, name: Hashable) -> float:
        """Take a token; return 0, or the time to wait [s] if there is none."""
        now, left = self._steady(), self._most
        known = self._left.get(name)
        if known is not None:
            left = min(known[0] + (now - known[1]) * self._rate, self._most)
            self._left.move_to_end(name)
        elif len(self._left) >= self._kept:
            self._left.popitem(last=False)
        if left < 1.0:
            self._left[name] = (left, now)
            return (1.0 - left) / self._rate
        self._left[name] = (left - 1.0, now)
        return 0.0


class Senders:
    """Addresses of senders behind known proxies.

    Args:
        proxies: networks whose X-Forwarded-For is trusted.
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._networks = [ip_network(one) for one in proxies]
        self._known = lru_cache(maxsize=KEPT)(self._is_proxy)
        self._near = lru_cache(maxsize=KEPT)(sender_network)

    def of(self, peer: str | None, forwarded: str | None) -> str:
        """Return the sender of a request: the last address that is not a known proxy.

        >>> Senders(["10.0.0.0/8"]).of("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.0.0.2")
        '192.0.2.7'
        >>> Senders([]).of("198.51.100.1", "192.0.2.7")
        '198.51.100.1'
        """
        address = peer or ""
        if forwarded is not None and self._networks:
            named = [part.strip() for part in forwarded.split(",")[-20:]]
            while named and self._known(address):
                address = named.pop()[:60]
        return self._near(address)

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)


Handler = Callable[[Request], Awaitable[Response]]


def merge_methods(handlers: Iterable[tuple[str, str, Handler]]) -> list[Route]:
    """Make one route a path, so that Allow names all of its methods.

    Args:
        handlers: method, path and handler of each operation.

    Returns:
        The routes, in the order of the paths.
    """
    paths: dict[str, dict[str, Handler]] = {}
    for method, path, handler in handlers:
        paths.setdefault(path, {})[method] = handler
    return [Route(path, _by_method(own), methods=list(own)) for path, own in paths.items()]


def _by_method(own: Mapping[str, Handler]) -> Handler:
    if len(own) == 1:
        return next(iter(own.values()))

    async def chosen(request: Request) -> Response:
        return await own["GET" if request.method == "HEAD" else request.method](request)

    return chosen


LARGEST = 16_384  # [bytes] of a head
OPENADR = "/openadr3/"  # its errors have another shape

CALLER = "hushgrid.caller"  # key of the caller in a scope


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of a request.

    Attributes:
        grant: client and scopes.
        sender: address or network.
    """

    grant: Grant
    sender: str


def caller_of(scope: Scope) -> Caller:
    """Return the caller that the middleware found.

    Args:
        scope: ASGI scope of the request.

    Returns:
        The caller; anonymous without middleware.
    """
    found = scope.get(CALLER)
    return found if isinstance(found, Caller) else Caller(ANONYMOUS, "")


class Middleware:
    """The whole app: checks, prepared pages, then `inner` for the rest.

    Args:
        inner: the routed app.
        pages: prepared price pages.
        access: grants of tokens.
        http: section [http] of the service file.
        clock: time of the pages' age.
        steady: monotonic clock [s] of the rate limit.
        direct: handlers by method and path that skip the router.
        sessions: grants of cookies.
        by_session: paths that a session's cookie may read.
    """

    def __init__(
        self,
        inner: ASGIApp,
        pages: Pages,
        access: Access,
        http: Http,
        clock: Clock,
        steady: Callable[[], float] = time.monotonic,
        direct: Mapping[tuple[str, str], Handler] = MappingProxyType({}),
        sessions: Sessions | None = None,
        by_session: Collection[str] = (),
    ) -> None:
        self._direct = direct
        self._sessions, self._by_session = sessions, frozenset(by_session)
        self._inner, self._pages, self._access, self._clock = inner, pages, access, clock
        self._senders, self._buckets = Senders(http.proxies), Buckets(http.rate_limit, steady)
        self._always = security_headers(http.tls_certificate is not None)
        self._usual = _usual(pages)
        self.ending: list[Callable[[], None]] = []  # called before the server stops

    def end(self) -> None:
        """End the open streams."""
        for one in self.ending:
            one()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        authorization = unless = forwarded = None
        lengths = 0
        length = len(scope["path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            length += len(name) + len(value)
            if name == b"if-none-match":
                unless = value if unless is None else unless + b"," + value
            elif name == b"authorization":
                # two headers make a value that no token has
                authorization = value if authorization is None else authorization + b"," + value
            elif name in (b"content-length", b"transfer-encoding"):
                lengths |= 1 if name == b"content-length" else 2
            elif name == b"x-forwarded-for":
                forwarded = value if forwarded is None else forwarded + b"," + value
        peer = scope["client"]
        sender = self._senders.of(
            peer[0] if peer else None, None if forwarded is None else forwarded.decode("latin-1")
        )
        grant, refusal = ANONYMOUS, None
        try:
            if authorization is not None:
                grant = await self._grant(authorization.decode("latin-1"))
            elif scope["path"] in self._by_session and scope["method"] in ("GET", "HEAD"):
                grant = await self._session(scope)
        except AccessError as error:
            refusal = access_problem(error)
        wait = self._buckets.take(grant.client or sender)
        if wait > 0:
            refusal = _too_many(wait)
        elif length > LARGEST:
            refusal = problem(431, f"The head is beyond {LARGEST} bytes; send a shorter one.")
        elif lengths == 3:  # request smuggling: a proxy may use the other one
            refusal = problem(
                400,
                "Content-Length and Transfer-Encoding are both there; send one of them.",
                headers={"Connection": "close"},
            )
        if refusal is not None:
            if scope["path"].startswith(OPENADR):
                refusal = openadr_problem(refusal)
            await refusal(scope, receive, self._adorning(send))
            return
        if scope["method"] in ("GET", "HEAD"):
            usual = self._usual.get((scope["path"], scope["query_string"]))
            page = self._pages.ready(*usual) if usual is not None else None
            if page is not None:
                await self._give(page, unless, send)
                return
        scope[CALLER] = Caller(grant, sender)
        handler = self._direct.get((scope["method"], scope["path"]))
        if handler is None:
            await self._inner(scope, receive, self._adorning(send))
        else:
            await _answered(handler, scope, receive, self._adorning(send))

    async def _grant(self, authorization: str) -> Grant:
        """Return the grant of a token; uses a thread only if the store must be read."""
        found = self._access.cached_grant(authorization)
        if found is not None:
            return found
        return await to_thread.run_sync(self._access.grant, authorization)

    async def _session(self, scope: Scope) -> Grant:
        """Return the grant of a cookie; for reading only."""
        found = session_cookie(scope["headers"])
        if (
            self._sessions is None
            or found is None
            or not same_origin(scope["headers"], required=False)
        ):
            return ANONYMOUS
        grant = self._sessions.cached_grant(found)
        return await to_thread.run_sync(self._sessions.grant, found) if grant is None else grant

    async def _give(self, page: Page, unless: bytes | None, send: Send) -> None:
        headers = page_headers(page, self._clock.now())
        known = unless is not None and matches(unless, page.etag)
        await send(
            {
                "type": "http.response.start",
                "status": 304 if known else 200,
                "headers": (headers[:2] if known else headers) + self._always,
            }
        )
        await send({"type": "http.response.body", "body": b"" if known else page.body})

    def _adorning(self, send: Send) -> Send:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = with_headers(list(message.get("headers", [])), self._always)
            await send(message)

        return sent


async def _answered(handler: Handler, scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive, send)
    try:
        answer = await handler(request)
    except Exception as error:
        await (await on_failure(request, error))(scope, receive, send)
        raise  # so that the server logs it
    await answer(scope, receive, send)


def page_headers(page: Page, now: float) -> Headers:
    """Return the headers of an answer with a page.

    Args:
        page: the page.
        now: UTC epoch [s].

    Returns:
        Names and values; the first two are those of a 304.
    """
    return [
        (b"etag", page.etag),
        (b"cache-control", b"public, max-age=%d" % page.age(now)),
        (b"content-type", page.media),
        (b"content-length", b"%d" % len(page.body)),
    ]


def page_answer(page: Page, unless: str | None, now: float) -> Response:
    """Make the answer with a page, or a 304.

    Args:
        page: the page.
        unless: value of If-None-Match.
        now: UTC epoch [s].

    Returns:
        The response.
    """
    headers = page_headers(page, now)
    if unless is not None and matches(unless.encode("latin-1"), page.etag):
        answer = Response(status_code=304)
        answer.raw_headers = headers[:2]
        return answer
    answer = Response(page.body)
    answer.raw_headers = headers
    return answer


def matches(unless: bytes, etag: bytes) -> bool:
    """Compare If-None-Match with a tag.

    Args:
        unless: value of the header.
        etag: tag of the page.

    Returns:
        True if the header names the tag.

    >>> matches(b'W/"a", "b"', b'"b"'), matches(b"*", b'"b"'), matches(b'"a"', b'"b"')
    (True, True, False)
    """
    if unless == etag:
        return True
    named = (one.strip().removeprefix(b"W/") for one in unless.split(b","))
    return any(one in (etag, b"*") for one in named)


def _usual(pages: Pages) -> dict[tuple[str, bytes], tuple[str, str]]:
    """Map path and query of the usual requests to path and zone."""
    from urllib.parse import quote, quote_plus

    found: dict[tuple[str, bytes], tuple[str, str]] = {}
    for feed in FEEDS:
        for zone in pages.zones:
            for name in {quote(zone), quote(zone, safe=""), quote_plus(zone)}:
                found[feed.path, f"zone={name}".encode()] = (feed.path, zone)
        if len(pages.zones) == 1:
            found[feed.path, b""] = (feed.path, pages.zones[0])
    return found


def _too_many(wait: float) -> Response:
    seconds = max(math.ceil(wait), 1)
    return problem(
        429,
        f"Too many requests; send the next one in {seconds} s.",
        headers={"Retry-After": str(seconds)},
    )
