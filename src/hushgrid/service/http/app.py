"""The ASGI app of the service and its pages.

middleware (caller, rate limit, prepared pages) -> scopes of the route -> handler. A page is a frame
filled with names of zones; its script reads all figures from /v1, so the bytes of a page do not
depend on readings.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import escape
from importlib import resources
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from hushgrid.files.deployment import Http
from hushgrid.service.access.clients import ANONYMOUS
from hushgrid.service.access.tokens import Access, Sessions
from hushgrid.service.clock import Clock, SystemClock
from hushgrid.service.curator import UNTIL_RESUMED
from hushgrid.service.http.common import (
    BEARER,
    NO_STORE,
    Metrics,
    ParameterError,
    ZoneStates,
    on_failure,
    on_http_error,
    on_parameter_error,
    problem,
    routes_of,
)
from hushgrid.service.http.middleware import Handler, Middleware, caller_of, matches, merge_methods
from hushgrid.service.http.openapi import Description
from hushgrid.service.http.operator import Certify, Operator, OperatorHandlers, without_ledger
from hushgrid.service.http.prices import Feeds, PromiseHandlers, Streams, requested_zone
from hushgrid.service.http.readings import ReadingsHandler
from hushgrid.service.http.sessions import SessionHandlers, Tokens
from hushgrid.service.ingest import Ingest
from hushgrid.service.prices import History, Pages

BY_CALLER = {"Cache-Control": "no-store", "Vary": "Authorization"}  # operators get more
Lines = Callable[[str], Iterator[str]]  # a zone's records, each as one line


def make_app(
    ingest: Ingest,
    board: ZoneStates,
    metrics: Metrics,
    http: Http,
    *,
    history: History | None = None,
    access: Access | None = None,
    clock: Clock | None = None,
    lines: Lines = lambda _: iter(()),
    more: Sequence[BaseRoute] = (),
    mode: str = "simulation",
    operator: Operator | None = None,
    certify: Certify = without_ledger,
) -> Middleware:
    """Make the app of a process.

    Args:
        ingest: stores readings.
        board: status of the zones.
        metrics: counts of the process.
        http: section [http] of the service file.
        history: releases of the zones; none if absent.
        access: clients and tokens; without it only the static tokens of `http`.
        clock: time of the service.
        lines: records of a zone's ledger, each as one line.
        more: further routes that check their own scopes.
        mode: simulation or production.
        operator: figures for operators; made from the above if absent.
        certify: makes the certificate of a zone, as JSON.

    Returns:
        The app.
    """
    clock = SystemClock() if clock is None else clock
    history = History(()) if history is None else history
    if access is None:
        access = Access(None, secrets.token_bytes(32), clock, static=http.tokens)
    pages, table = Pages(history), routes_of(http)
    streams = Streams(history, http.connections * 3 // 4)
    sessions = Sessions(access, lifetime=http.token_lifetime)
    if operator is None:
        operator = Operator(history, board, clock, mode=mode)
    session = SessionHandlers(sessions, http.tls_certificate is not None)
    promises = PromiseHandlers(history.zones, mode)
    handlers: dict[str, Handler] = {
        "feed": Feeds(pages, clock).feed,
        "stream": streams.stream,
        "token": Tokens(access).token,
        "log_in": session.begin,
        "session": session.see,
        "log_out": session.end,
        "readings": ReadingsHandler(ingest, metrics, http.limit).take,
        "promise": promises.promise,
        "tradeoff": promises.tradeoff,
        **OperatorHandlers(operator, board.zones, certify).handlers,
        **_status_handlers(board, metrics, lines),
        **Description(table).handlers,
    }
    routes = merge_methods(
        (one.method, one.path, guarded(handlers[one.name], *one.scopes)) for one in table
    )
    errors: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        ParameterError: on_parameter_error,
        HTTPException: on_http_error,
        Exception: on_failure,
    }
    inner = Starlette(routes=[*routes, *more], exception_handlers=errors)
    inner.router.redirect_slashes = False
    direct = {
        (route.method, route.path): guarded(handlers[route.name], *route.scopes)
        for route in table
        if route.name == "readings"
    }
    front = Middleware(
        inner,
        pages,
        access,
        http,
        clock,
        direct=direct,
        sessions=sessions,
        by_session={route.path for route in table if route.session},
    )
    front.ending.append(streams.close)
    return front


def guarded(handler: Handler, *scopes: str) -> Handler:
    """Restrict a handler to callers with one of these scopes.

    Args:
        handler: the handler.
        scopes: one of them is needed; without any the handler is public.

    Returns:
        A handler that refuses other callers with 401 or 403.
    """
    if not scopes:
        return handler

    async def checked(request: Request) -> Response:
        grant = caller_of(request.scope).grant
        if grant is ANONYMOUS:
            return problem(
                401,
                "The bearer token is missing or unknown; send one that has the scope"
                f" {' or '.join(scopes)}.",
                headers=BEARER,
            )
        if not grant.may(*scopes):
            return problem(
                403,
                f"The bearer token lacks the scope {' or '.join(scopes)}; ask for one that has it.",
                headers={"WWW-Authenticate": 'Bearer error="insufficient_scope"'},
            )
        return await handler(request)

    return checked


def _status_handlers(board: ZoneStates, metrics: Metrics, lines: Lines) -> dict[str, Handler]:
    """Make the handlers of status, health, metrics and ledger."""

    async def status(request: Request) -> Response:
        zones = [asdict(one) for one in board.statuses]
        if not caller_of(request.scope).grant.may("operate"):
            for one in zones:
                del one["missing"]
        return JSONResponse({"zones": zones}, headers=BY_CALLER)

    async def healthy(request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        del request
        waiting = board.waiting()
        if waiting:
            return JSONResponse({"status": "waiting", "zones": waiting}, status_code=503)
        gaps = [one.zone for one in board.statuses if one.state == UNTIL_RESUMED]
        found: dict[str, object] = {"status": "ready"}
        return JSONResponse(found | ({"forecast_until_resumed": gaps} if gaps else {}))

    async def figures(request: Request) -> Response:
        text = metrics.text(operator=caller_of(request.scope).grant.may("operate"))
        return Response(text, media_type="text/plain; version=0.0.4", headers=BY_CALLER)

    async def ledger(request: Request) -> Response:
        zone = requested_zone(request.query_params, board.zones)
        return StreamingResponse(lines(zone), media_type="application/x-ndjson", headers=NO_STORE)

    return {
        "status": status,
        "healthy": healthy,
        "ready": ready,
        "figures": figures,
        "ledger": ledger,
    }


# ---- pages

MEDIA = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",  # licences
}
# no inline script or style, nothing from other hosts, no framing
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class StaticBody:
    """A body that does not change while the process runs.

    Attributes:
        body: its bytes.
        media: content type.
        etag: tag made of its digest.
    """

    body: bytes
    media: str
    etag: str

    @staticmethod
    def of(body: bytes, media: str) -> StaticBody:
        """Make one with the tag of its digest."""
        return StaticBody(body, media, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def answer(self, request: Request, cache: str = "no-cache", status: int = 200) -> Response:
        """Answer a request; 304 if the browser has the body already."""
        headers = {
            "Cache-Control": cache,
            "ETag": self.etag,
            "Content-Security-Policy": POLICY,
        }
        unless = request.headers.get("if-none-match", "").encode("latin-1")
        if status == 200 and cache != "no-store" and matches(unless, self.etag.encode()):
            return Response(status_code=304, headers=headers)
        return Response(self.body, status, headers, media_type=self.media)


@cache
def assets() -> dict[str, StaticBody]:
    """Read the files under static/ once; no other file is served.

    Returns:
        Bodies by path under static/.

    >>> sorted(name for name in assets() if name.endswith(".css"))
    ['style.css', 'vendor/uplot/uPlot.min.css']
    """
    found: dict[str, StaticBody] = {}
    waiting = [("", resources.files(__package__) / "static")]
    while waiting:
        under, place = waiting.pop()
        for one in place.iterdir():
            name = f"{under}{one.name}"
            if one.is_dir():
                waiting.append((f"{name}/", one))
            else:
                found[name] = StaticBody.of(one.read_bytes(), MEDIA[PurePosixPath(name).suffix])
    return found


@cache
def frame(name: str) -> str:
    """Read an HTML frame with {{fields}}.

    Args:
        name: its name under frames/.

    Returns:
        The text.
    """
    place = resources.files(__package__) / "frames" / f"{name}.html"
    return place.read_text(encoding="utf-8")


HTML = "text/html; charset=utf-8"
PageHandler = Callable[[Request], Awaitable[Response]]

TITLES = {
    "zone": "Electricity price",
    "zones": "Zones",
    "how": "How the promise is kept",
    "explore": "Privacy against price error",
    "operator": "Operator",
    "demo": "The adversary",
    "missing": "Nothing here",
}
NAMES = {  # of the links on top, by page
    "zone": "Price",
    "how": 'How<span class="roomy"> it works</span>',  # short on a phone
    "explore": "Trade-off",
    "operator": "Operator",
    "demo": "Adversary",
}


def page_routes(zones: Sequence[str], *, demo: bool = False) -> list[BaseRoute]:
    """Return the routes of the pages.

    Args:
        zones: ids of all zones.
        demo: add the page of the adversary, whose data only the demo has.

    Returns:
        The routes.
    """
    pages = _Pages(tuple(zones), demo)
    routes: dict[str, PageHandler] = {
        "/": pages.home,
        "/zones/{zone:path}": pages.zone,
        "/how": pages.of("how"),
        "/explore": pages.of("explore"),
        "/operator": pages.of("operator", cache="no-store"),
        "/assets/{name:path}": _asset,
        "/favicon.ico": _icon,
    }
    if demo:
        routes["/demo"] = pages.of("demo")
    return [HttpRoute(path, handler, methods=["GET"]) for path, handler in routes.items()]


async def _asset(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        return Response("There is nothing here.\n", 404, media_type="text/plain")
    return found.answer(request)


async def _icon(request: Request) -> Response:
    return assets()["icon.svg"].answer(request)


class _Pages:
    """Pages by name and zone, each made once."""

    def __init__(self, zones: tuple[str, ...], demo: bool) -> None:
        self._zones, self._demo = zones, demo
        self._made = cache(self._make)

    async def home(self, request: Request) -> Response:
        """GET /: the page of the only zone, or the list of zones."""
        if len(self._zones) == 1:
            return self._made("zone", self._zones[0]).answer(request)
        return self._made("zones", None).answer(request)

    async def zone(self, request: Request) -> Response:
        """GET /zones/{zone}."""
        return self._give(request, "zone", request.path_params["zone"])

    def of(self, name: str, cache: str = "no-cache") -> PageHandler:
        """Make the handler of a page that may be about a zone."""

        async def given(request: Request) -> Response:
            zone = request.query_params.get("zone")
            if zone is None and len(self._zones) == 1:
                zone = self._zones[0]
            return self._give(request, name, zone, cache)

        return given

    def _give(
        self, request: Request, name: str, zone: str | None, cache: str = "no-cache"
    ) -> Response:
        if zone is not None and zone not in self._zones:
            return self._made("missing", None).answer(request, "no-store", 404)
        return self._made(name, zone).answer(request, cache)

    def _make(self, name: str, zone: str | None) -> StaticBody:
        fields = {
            "title": escape(TITLES[name] + (f", {zone}" if name == "zone" else "")),
            "page": name,
            "zone": "" if zone is None else escape(zone),
            "links": self._links(name, zone),
            "script": "" if name == "missing" else _script(name),
            "list": "".join(_item(one) for one in self._zones),
            "choice": self._choice(name, zone),
        }
        fields["main"] = fill(frame(name), fields)
        return StaticBody.of(fill(frame("layout"), fields).encode(), HTML)

    def _links(self, name: str, zone: str | None) -> str:
        """Return the links of the header; they keep the zone."""
        many = len(self._zones) > 1
        about = f"?zone={quote(zone, safe='')}" if many and zone is not None else ""
        links = [("zones", "/", "Zones")] if many else []
        if not many or zone is not None:
            links.append(("zone", _address(zone) if many and zone else "/", NAMES["zone"]))
        if self._demo:
            links.append(("demo", "/demo", NAMES["demo"]))
        links += [(one, f"/{one}{about}", NAMES[one]) for one in ("how", "explore")]
        links.append(("operator", f"/operator{about}", NAMES["operator"]))
        return "".join(
            f'<li><a href="{escape(where)}"{_here(one == name)}>{text}</a></li>'
            for one, where, text in links
        )

    def _choice(self, name: str, zone: str | None) -> str:
        """Return the form to choose a zone; empty if there is only one."""
        if len(self._zones) == 1 or name not in ("how", "explore"):
            return ""
        first = "" if zone is not None else '<option value="" selected disabled>choose</option>'
        options = "".join(
            f'<option value="{escape(one)}"{" selected" * (one == zone)}>{escape(one)}</option>'
            for one in self._zones
        )
        return (
            f'<form class="choice" action="/{name}" method="get"><label for="zone">Zone</label>'
            f'<select id="zone" name="zone" required>{first}{options}</select>'
            '<button class="button">Show</button></form>'
        )


def fill(text: str, fields: Mapping[str, str]) -> str:
    """Fill the fields of a frame; inserted text is not searched for fields.

    Args:
        text: frame with {{fields}}.
        fields: values by name.

    Returns:
        The filled text.

    >>> fill("<p>{{one}}, {{two}}</p>", {"one": "{{two}}", "two": "2"})
    '<p>{{two}}, 2</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda found: fields[found[1]], text)


def _address(zone: str) -> str:
    return f"/zones/{quote(zone)}"


def _here(now: bool) -> str:
    return ' aria-current="page"' if now else ""


def _item(zone: str) -> str:
    return (
        f'<tr data-zone="{escape(zone)}"><th scope="row"><a href="{escape(_address(zone))}">'
        f'{escape(zone)}</a></th><td class="number" data-field="price">–</td>'
        '<td data-field="holds">–</td><td data-field="state">–</td></tr>'
    )


def _script(name: str) -> str:
    charts = '<script src="/assets/vendor/uplot/uPlot.iife.min.js" defer></script>'
    own = f'<script src="/assets/js/{name}.js" type="module"></script>'
    return (charts if name in ("zone", "explore", "operator", "demo") else "") + own
