"""The HTTP face: prices and figures out for anyone, the rest for those who have the scope.

front (who, how often, what is ready) -> the route's scopes -> its handler
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from hushgrid.live.access import NOBODY, Access
from hushgrid.live.access.sessions import Sessions
from hushgrid.live.clock import Clock, SystemClock
from hushgrid.live.curator import UNTIL_RESUMED
from hushgrid.live.deployment import Http
from hushgrid.live.feeds.pages import Pages
from hushgrid.live.gate import Gate
from hushgrid.live.history import History
from hushgrid.live.operator.view import Operator
from hushgrid.live.web.board import Board
from hushgrid.live.web.feeds import Feeds, zone_asked
from hushgrid.live.web.front import Front, Handler, asked
from hushgrid.live.web.metrics import Metrics
from hushgrid.live.web.openapi import Description
from hushgrid.live.web.operators import Certify, OperatorWays, no_certificate
from hushgrid.live.web.problems import BEARER, UnfitError, failed, problem, refused
from hushgrid.live.web.promises import PromiseWays
from hushgrid.live.web.readings import TakeReadings
from hushgrid.live.web.routes import Route, ways
from hushgrid.live.web.sessions import SessionWays
from hushgrid.live.web.stream import Streams
from hushgrid.live.web.tokens import Tokens

BY_CALLER = {"Cache-Control": "no-store", "Vary": "Authorization"}  # operators get more
Lines = Callable[[str], Iterator[str]]  # a zone's records, each as one line


def make_app(
    gate: Gate,
    board: Board,
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
    certify: Certify = no_certificate,
) -> Front:
    """The app of a process. `more` are routes that look after their own scopes.

    Without `access` there are no clients, only the tokens of `http`. `certify` makes the
    certificate of a zone, as JSON.
    """
    clock = SystemClock() if clock is None else clock
    history = History(()) if history is None else history
    if access is None:
        access = Access(None, secrets.token_bytes(32), clock, static=http.tokens)
    pages, table = Pages(history), ways(http)
    streams = Streams(history, http.connections * 3 // 4)
    sessions = Sessions(access, lifetime=http.token_lifetime)
    if operator is None:
        operator = Operator(history, board, clock, mode=mode)
    session_ways = SessionWays(sessions, http.tls_certificate is not None)
    promises = PromiseWays(history.zones, mode)
    handlers: dict[str, Handler] = {
        "feed": Feeds(pages, clock).feed,
        "stream": streams.stream,
        "token": Tokens(access).token,
        "log_in": session_ways.begin,
        "session": session_ways.see,
        "log_out": session_ways.end,
        "readings": TakeReadings(gate, metrics, http.limit).take,
        "promise": promises.promise,
        "tradeoff": promises.tradeoff,
        **OperatorWays(operator, board.zones, certify).handlers,
        **_telling(board, metrics, lines),
        **Description(table).handlers,
    }
    routes = _routes(table, handlers)
    errors: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        HTTPException: refused,
        Exception: failed,
    }
    inner = Starlette(routes=[*routes, *more], exception_handlers=errors)
    inner.router.redirect_slashes = False
    direct = {
        (way.method, way.path): guarded(handlers[way.name], *way.scopes)
        for way in table
        if way.name == "readings"
    }
    front = Front(
        inner,
        pages,
        access,
        http,
        clock,
        direct=direct,
        sessions=sessions,
        by_session={way.path for way in table if way.session},
    )
    front.ending.append(streams.close)
    return front


def _routes(table: Sequence[Route], handlers: Mapping[str, Handler]) -> list[HttpRoute]:
    """One for each path: so that what it is not for is told with all that it is for."""
    by_path: dict[str, dict[str, Handler]] = {}
    for way in table:
        own = by_path.setdefault(way.path, {})
        own[way.method] = guarded(handlers[way.name], *way.scopes)
    return [HttpRoute(path, _by_method(own), methods=list(own)) for path, own in by_path.items()]


def _by_method(own: Mapping[str, Handler]) -> Handler:
    if len(own) == 1:
        return next(iter(own.values()))

    async def chosen(request: Request) -> Response:
        return await own["GET" if request.method == "HEAD" else request.method](request)

    return chosen


def guarded(handler: Handler, *scopes: str) -> Handler:
    """A handler for those alone who have one of these scopes; for anybody where there are none."""
    if not scopes:
        return handler

    async def looked_at(request: Request) -> Response:
        grant = asked(request.scope).grant
        if grant is NOBODY:
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

    return looked_at


def _telling(board: Board, metrics: Metrics, lines: Lines) -> dict[str, Handler]:
    """What the process tells about itself."""

    async def status(request: Request) -> Response:
        zones = [asdict(one) for one in board.statuses]
        if not asked(request.scope).grant.may("operate"):
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
        text = metrics.text(operator=asked(request.scope).grant.may("operate"))
        return Response(text, media_type="text/plain; version=0.0.4", headers=BY_CALLER)

    async def ledger(request: Request) -> Response:
        try:
            zone = zone_asked(request.query_params, board.zones)
        except UnfitError as error:
            return error.answer()
        return StreamingResponse(
            lines(zone),
            media_type="application/x-ndjson",
            headers={"Cache-Control": "no-store"},
        )

    return {
        "status": status,
        "healthy": healthy,
        "ready": ready,
        "figures": figures,
        "ledger": ledger,
    }
