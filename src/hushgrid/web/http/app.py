"""The ASGI app of the service and its pages.

The routes are FastAPI's, the models of `models` describe them. A page is a template filled with
names of zones; its script reads all figures from /v1, so the bytes of a page do not depend on
readings.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from hushgrid import __version__
from hushgrid.curator.clock import Clock, SystemClock
from hushgrid.curator.ingest import Ingest
from hushgrid.curator.status import IN_DOUBT, NOT_BEGUN, UNTIL_RESUMED
from hushgrid.files.readings import NO_MAPPINGS
from hushgrid.files.settings import Http
from hushgrid.intake.text import ColumnMapping
from hushgrid.web.http import models, readings
from hushgrid.web.http.common import ERRORS, OF_ZONE, Heavy, Pieces, conditional, refusals
from hushgrid.web.http.languages import ENGLISH, NAMES, catalogue, preferred_language
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.http.middleware import (
    BY_SESSION,
    FORM,
    REPORT,
    BodyLimit,
    Callers,
    PublicReads,
    ReadyPrices,
    SecurityHeaders,
    caller_name,
    caller_of,
    scopes,
)
from hushgrid.web.http.operator import Certify, Operator, add_operator
from hushgrid.web.http.prices import (
    ZoneName,
    add_feeds,
    add_promises,
    add_stream,
    feeds,
    requested_zone,
)
from hushgrid.web.http.readings import add_readings
from hushgrid.web.http.sessions import add_session, add_token
from hushgrid.web.prices import History, Pages
from hushgrid.web.tokens import Access, Sessions

FORMS = ("/v1/token", "/v1/session", "/openadr3/3.1.0/auth/token", "/demo/day", "/demo/cold")
HOUR = "public, max-age=3600"
# what scripts of other sites may read, besides the price feeds
READABLE = frozenset(
    f"/v1/{name}" for name in ("stream", "promise", "tradeoff", "status", "openapi.json")
)
Lines = Callable[[str], Iterator[str]]  # a zone's records, each as one line
GATHERED, UNREAD = 1 << 18, 1 << 20  # [bytes] of a ledger encoded at a time; in memory in all


class App(FastAPI):
    """The app of a process. `state` has `streams`, `sessions` and `batcher`.

    Args:
        tls: the server has TLS of its own.
        settings: of FastAPI.
    """

    def __init__(self, *, tls: bool, **settings: Any) -> None:
        self._tls = tls
        super().__init__(
            title="hushgrid",
            version=__version__,
            description="Real-time electricity prices that protect the occupancy of homes."
            " Prices per kWh, times in UTC.",
            openapi_url=None,
            redirect_slashes=False,
            exception_handlers=ERRORS,
            generate_unique_id_function=_operation_id,
            # it would record messages of errors, which may hold a reading
            telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
            responses=refusals(
                {401: "The token is not valid.", 429: "Too many requests.", 500: "A fault."}
            ),
            **settings,
        )

    def build_middleware_stack(self) -> ASGIApp:
        """Put the security headers around everything, faults included."""
        return SecurityHeaders(super().build_middleware_stack(), tls=self._tls)

    def openapi(self) -> dict[str, Any]:
        """Describe the routes; a request that does not fit gets 400, not FastAPI's 422."""
        if not self.openapi_schema:  # made when it is first asked for: it takes a while
            self.answer_head(False)  # which needs no description
            description = super().openapi()
            self.answer_head(True)
            schemas = description["components"]["schemas"]
            schemas["ErrorAnswer"] = models.ErrorAnswer.model_json_schema()
            for name in ("HTTPValidationError", "ValidationError"):
                del schemas[name]
            for schema in schemas.values():
                _describe_fields(schema)
            for path in description["paths"].values():
                for operation in path.values():
                    if "Validation" in operation["responses"].get("422", {}).get("description", ""):
                        del operation["responses"]["422"]
                    if "security" in operation:
                        answers = refusals({403: "The scope is missing."})
                        operation["responses"].setdefault("403", answers[403])
        return self.openapi_schema or {}

    def answer_head(self, on: bool) -> None:
        """Let all routes that answer GET answer HEAD as well, or no longer."""
        for route in self.routes:
            if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
                route.methods = {"GET", "HEAD"} if on else {"GET"}

    def end(self) -> None:
        """End the open streams."""
        self.state.streams.close()


def _describe_fields(schema: dict[str, Any]) -> None:
    """Move what the model's docstring says of its attributes to the fields."""
    summary, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    schema["description"] = summary
    for name, words in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", attributes, re.MULTILINE):
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", " ".join(words.split()))


def _operation_id(route: APIRoute) -> str:
    name = re.sub(r"\W", "-", route.path.removeprefix("/v1/").removeprefix("/"))
    return f"{min(route.methods or ()).lower()}-{name}" if name == "session" else name


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
    routes: Sequence[BaseRoute] = (),
    mode: str = "simulation",
    operator: Operator | None = None,
    certify: Certify | None = None,
    mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS,
) -> App:
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
        routes: further routes that check their own scopes.
        mode: simulation or production.
        operator: figures for operators; made from the above if absent.
        certify: makes the certificate of a zone, as JSON.
        mappings: mappings of readings by name, beyond those built in.

    Returns:
        The app.
    """
    clock = SystemClock() if clock is None else clock
    history = History(()) if history is None else history
    if access is None:
        access = Access(None, secrets.token_bytes(32), clock, static=http.tokens)
    if operator is None:
        operator = Operator(history, board, clock, mode=mode)
    pages, tls = Pages(history, feeds(), clock), http.tls_certificate is not None
    proxies = list(http.proxies)
    limits = {"/v1/readings": (http.limit, readings.PATIENCE)}
    limits |= dict.fromkeys(FORMS, FORM) | {"/openadr3/3.1.0/reports": REPORT}
    app = App(
        tls=tls,
        middleware=[
            *([Middleware(ProxyHeadersMiddleware, proxies)] if proxies else []),
            Middleware(Callers, access=access, rate=http.rate_limit),
            Middleware(PublicReads, public=READABLE.union(pages.feeds).__contains__),
            Middleware(ReadyPrices, pages=pages, clock=clock),
            Middleware(BodyLimit, paths=limits),
        ],
    )
    app.state.sessions = Sessions(access, lifetime=http.token_lifetime)
    app.state.batcher = add_readings(app.router, ingest, metrics, mappings)
    heavy = Heavy(under_way=metrics.under_way)
    add_feeds(app.router, pages, history.zones, clock, heavy)
    app.state.streams = add_stream(app.router, history, http.connections * 3 // 4, heavy, clock)
    add_promises(app.router, history.zones, mode)
    add_token(app.router, access)
    add_session(app.router, app.state.sessions, tls)
    add_operator(app.router, operator, board.zones, certify)
    _add_status(app.router, board, metrics, http, lines, heavy)
    _add_description(app)
    app.answer_head(True)
    app.router.routes.extend(routes)
    return app


def _add_status(
    router: APIRouter,
    board: ZoneStates,
    metrics: Metrics,
    http: Http,
    lines: Lines,
    heavy: Heavy,
) -> None:
    """Add the routes of status, health, metrics and ledger."""

    def operates(request: Request) -> bool:
        return caller_of(request.scope).grant.may("operate")

    @router.get(
        "/v1/status",
        summary="Status of each zone.",
        response_model=models.StatusList,
        response_model_exclude_unset=True,
    )
    async def status(request: Request) -> dict[str, Any]:
        zones = [asdict(zone_status) for zone_status in board.statuses]
        if not operates(request):
            for zone_status in zones:
                del zone_status["missing"]
        return {"zones": zones}

    @router.get(
        "/healthz",
        summary="The process is up.",
        response_model=models.Health,
        response_model_exclude_unset=True,
    )
    async def healthy() -> dict[str, Any]:
        return {"status": "ok"}

    @router.get(
        "/readyz",
        summary="Every zone is open and ticking.",
        response_model=models.Health,
        response_model_exclude_unset=True,
        responses={503: {"model": models.Health, "description": "Some zones are not ready."}},
    )
    async def ready() -> Any:
        waiting = board.waiting()
        doubt = [
            zone_status.zone for zone_status in board.statuses if zone_status.state in IN_DOUBT
        ]
        if waiting or doubt:
            details = {"clock_in_doubt": doubt} if doubt else {}
            zones = [zone for zone in board.zones if zone in waiting or zone in doubt]
            return JSONResponse({"status": "waiting", "zones": zones, **details}, 503)
        zones_by_state = {
            name: [entry.zone for entry in board.statuses if entry.state.startswith(state)]
            for name, state in (("forecast_until_resumed", UNTIL_RESUMED), ("not_begun", NOT_BEGUN))
        }
        return {
            "status": "ready",
            **{name: zones for name, zones in zones_by_state.items() if zones},
        }

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus.",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}},
        dependencies=[] if http.metrics == "public" else [scopes("operate")],
    )
    async def figures(request: Request) -> Response:
        text = metrics.text(operator=operates(request))
        return Response(text, media_type="text/plain; version=0.0.4")

    @router.get(
        "/v1/ledger",
        summary="A zone's signed records, one a line.",
        response_description="Records, one a line; docs/ledger.md has the format.",
        response_class=Response,
        responses={
            200: {"content": {"application/x-ndjson": {}}},
            **OF_ZONE,
            **refusals({503: "Too many at once."}),
        },
        dependencies=[BY_SESSION, scopes("audit")],
    )
    async def ledger(request: Request, zone: ZoneName = None) -> Response:
        name = requested_zone(zone, board.zones)
        pieces = Pieces(_encoded(lines(name)), UNREAD, {}, "application/x-ndjson")
        answer: Response = await heavy.run(lambda: pieces, caller_name(request.scope))
        return answer


def _encoded(lines: Iterator[str]) -> Iterator[bytes]:
    """Encode lines, some at a time."""
    waiting, size = list[str](), 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size > GATHERED:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode()


def _add_description(app: App) -> None:
    @app.get("/v1/openapi.json", summary="This description.", response_model=dict[str, Any])
    async def openapi() -> Response:
        return JSONResponse(app.openapi(), headers={"Cache-Control": HOUR})


# ---- pages

HERE = Path(__file__).parent
NO_DIGITS: Mapping[str, int] = {}
PUBLIC = ("zone", "zones", "how", "explore", "missing")  # pages that have several languages


@cache
def _templates(language: str) -> Environment:
    """The templates; their texts are calls of `_`, which looks them up in the catalogue."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "frames"), autoescape=True, trim_blocks=True
    )
    texts = catalogue(language)["page"]
    environment.globals["_"] = lambda text, **values: Markup(texts.get(text, text)).format(**values)
    return environment


TEMPLATES = _templates(ENGLISH)
# no inline script or style, nothing from other hosts, no framing
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)


class Assets(StaticFiles):
    """Static files that browsers ask for again each time, with their ETag."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Make the answer with a file, or a 304."""
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


def page_routes(
    zones: Sequence[str], digits: Mapping[str, int] = NO_DIGITS, *, demo: bool = False
) -> list[BaseRoute]:
    """Return the routes of the pages.

    Args:
        zones: ids of all zones.
        digits: digits after the point of a price, by zone, where the tariff has a number.
        demo: add the page of the adversary, whose data only the demo has.

    Returns:
        The routes.
    """
    sole_zone = zones[0] if len(zones) == 1 else None

    @cache
    def page(name: str, zone: str | None, language: str, choice: str) -> tuple[bytes, str]:
        root = name in ("zones", "missing") or (name == "zone" and sole_zone)
        place = "/" if root else f"/{name}"
        if zone is not None and not sole_zone:
            place = f"/zones/{quote(zone)}" if name == "zone" else f"{place}?zone={quote(zone)}"

        def to(path: str, code: str = choice) -> str:
            return f"{path}{'&' if '?' in path else '?'}lang={code}" if code else path

        fields: dict[str, Any] = {"page": name, "zone": zone, "zones": zones, "many": not sole_zone}
        fields |= {"demo": demo, "digits": digits, "lang": language, "chosen": choice}
        fields |= {"to": to, "here": place, "languages": NAMES if name in PUBLIC else {}}
        scripts = catalogue(language)["script"]
        fields["words"] = json.dumps(scripts, ensure_ascii=False) if scripts else ""
        body = _templates(language).get_template(f"{name}.html").render(fields).encode()
        return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    def answer(request: Request, name: str, zone: str | None, cache: str = "no-cache") -> Response:
        status = 200 if zone is None or zone in zones else 404
        name, zone = (name, zone) if status == 200 else ("missing", None)
        choice = request.query_params.get("lang", "")
        choice = choice if choice in NAMES else ""
        language = choice or preferred_language(request.headers.get("accept-language", ""))
        headers = {"Content-Security-Policy": POLICY}
        if name in PUBLIC:
            headers |= {"Vary": "Accept-Language"}
        else:
            language = ENGLISH
        body, etag = page(name, zone, language, choice)
        headers["Content-Language"] = language
        if status == 404:
            return Response(body, 404, headers, "text/html")
        return conditional(request, body, "text/html", etag, cache, headers)

    async def home(request: Request) -> Response:
        return answer(request, "zone" if sole_zone else "zones", sole_zone)

    async def of_zone(request: Request) -> Response:
        return answer(request, "zone", request.path_params["zone"])

    async def named_page(request: Request) -> Response:
        name = request.scope["path"].removeprefix("/")  # request.url depends on the Host header
        cache = "no-store" if name == "operator" else "no-cache"
        return answer(request, name, request.query_params.get("zone", sole_zone), cache)

    async def icon(request: Request) -> Response:
        del request
        return FileResponse(HERE / "static" / "icon.svg", headers={"Cache-Control": "no-cache"})

    names = ("how", "explore", "operator", *(["demo"] if demo else []))
    return [
        Route("/", home),
        Route("/zones/{zone:path}", of_zone),
        *(Route(f"/{name}", named_page) for name in names),
        Route("/favicon.ico", icon),
        Mount("/assets", Assets(directory=HERE / "static")),
    ]
