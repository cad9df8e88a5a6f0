"""The VTN over HTTP: who asks, what is asked, what is answered; errors are Problems."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from hushgrid.errors import AccessError, VtnError
from hushgrid.live.access import Access, Grant
from hushgrid.live.clock import Clock
from hushgrid.live.vtn.answers import Call, Refused, answer, problem
from hushgrid.live.vtn.checking import Unfit, fitting, parsed
from hushgrid.live.vtn.description import description
from hushgrid.live.vtn.objects import KEYS, Objects
from hushgrid.live.vtn.public import PublicObjects
from hushgrid.live.vtn.schemas import OBJECT_ID, REQUESTS, Schema
from hushgrid.live.vtn.store.ports import Kind
from hushgrid.live.vtn.table import OPERATIONS, Operation
from hushgrid.live.vtn.tokens import OpenAdrTokens
from hushgrid.live.web.front import asked as sender_of

log = logging.getLogger("hushgrid.openadr")

BASE = "/openadr3/3.1.0"
LIMIT = 1 << 20  # [bytes] of a body
PATIENCE = 30.0  # [s] for all of a body
AT_ONCE = 16  # requests answered at the same time; more wait
RETRY = {"Retry-After": "5"}

Handler = Callable[[Call], Any]


def make_vtn(
    public: PublicObjects,
    objects: Objects,
    access: Access,
    clock: Clock,
    *,
    anonymous: bool = True,
    url: str | None = None,
) -> Starlette:
    """The app, to be mounted at `BASE`. `url`: how others know the service."""
    handlers = _handlers(public, objects)
    door = _Door(clock, anonymous, url)
    routes = [
        Route(one.path, partial(door.answer, one, handlers.get(one.name)), methods=[one.method])
        for one in OPERATIONS
    ]
    routes += [
        Route("/auth/server", door.server, methods=["GET"]),
        Route("/auth/token", OpenAdrTokens(access).token, methods=["POST"]),
        Route("/openapi.json", door.describe, methods=["GET"]),
    ]
    errors: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        Refused: _refused,
        HTTPException: _unrouted,
        VtnError: _away,
        AccessError: _unknown,
        Exception: _failed,
    }
    return Starlette(routes=_merged(routes), exception_handlers=errors)


def mounted(app: Starlette) -> Mount:
    """The app at its place, whatever the rest of a path holds: a line break too is ours."""
    made = Mount(BASE, app)
    made.path_regex = re.compile(made.path_regex.pattern, re.DOTALL)
    return made


def _merged(routes: list[Route]) -> list[Route]:
    """One route a path, so that Allow names every method of it."""
    paths: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for route in routes:
        for method in route.methods or ():
            paths.setdefault(route.path, {})[method] = route.endpoint
    return [
        Route(path, partial(_by_method, ways), methods=list(ways)) for path, ways in paths.items()
    ]


async def _by_method(
    ways: dict[str, Callable[[Request], Awaitable[Response]]], request: Request
) -> Response:
    return await ways[request.method](request)


def _handlers(public: PublicObjects, objects: Objects) -> dict[str, Handler]:
    """What answers each operation that is not closed."""
    made: dict[str, Handler] = {
        "searchAllPrograms": public.programs,
        "searchProgramByProgramId": public.program,
        "searchAllEvents": public.events,
        "searchEventsByID": public.event,
        "listAllNotifiers": public.notifiers,
    }
    for kind in KEYS:
        for one in OPERATIONS:
            if one.answer.upper() == kind:
                verb = "list" if one.many else one.method
                made[one.name] = partial(_VERBS[verb], objects, kind)
    for name, under, create in (
        ("Programs", "programs", True),
        ("Program", "programs/{programID}", False),
        ("Events", "events", True),
        ("ProgramEvents", "programs/{programID}/events", True),
    ):
        made[f"listAllMqttNotifierTopics{name}"] = partial(
            public.topics, under=under, create=create
        )
    for name, under in (("VenEvents", "events"), ("VenPrograms", "programs")):
        made[f"listAllMqttNotifierTopics{name}"] = partial(_of_ven, public, objects, under)
    for name in ("Reports", "Subscriptions", "Vens", "Ven", "Resources", "VenResources"):
        made[f"listAllMqttNotifierTopics{name}"] = partial(_unpublished, objects)
    return made


_VERBS: dict[str, Callable[[Objects, Kind, Call], Any]] = {
    "list": Objects.list,
    "GET": Objects.get,
    "POST": Objects.add,
    "PUT": Objects.change,
    "DELETE": Objects.remove,
}


def _of_ven(public: PublicObjects, objects: Objects, under: str, call: Call) -> Any:
    """A ven hears what everybody hears: nothing here has targets."""
    objects.check_ven(call)
    return public.topics(call, under)


def _unpublished(objects: Objects, call: Call) -> Any:
    if "venID" in call.path:
        objects.check_ven(call)
    raise Refused(404, "These objects are not published over MQTT; subscribe with a callback.")


class _Door:
    """Looks at each request before a handler does."""

    def __init__(self, clock: Clock, anonymous: bool, url: str | None) -> None:
        self._clock, self._anonymous = clock, anonymous
        self._url = url.rstrip("/") if url else None
        self._threads: anyio.CapacityLimiter | None = None  # made inside the event loop

    async def answer(self, one: Operation, handler: Handler | None, request: Request) -> Response:
        """Every operation of the table."""
        grant = sender_of(request.scope).grant
        self._check(one, grant)
        if handler is None:
            raise Refused(403, "Programs and events come from the ledger alone; read them.")
        try:
            query = asked(one, request)
            body = None
            if one.body is not None:
                given = parsed(await read_body(request, LIMIT))
                body = fitting(REQUESTS[one.body], given)
        except Unfit as error:
            raise Refused(400, str(error)) from None
        path = {name: str(value) for name, value in request.path_params.items()}
        if not all(re.fullmatch(OBJECT_ID["pattern"], each) for each in path.values()):
            raise Refused(
                404, "There is no object of such an id; ids are letters, digits, - and _."
            )
        call = Call(grant, path, query, int(self._clock.now()), body)
        kept = "no-cache" if one.public else "no-store"  # what is a client's own stays nowhere
        made = await self._in_thread(handler, call)
        return answer(made, one.status, {"Cache-Control": kept})

    def _check(self, one: Operation, grant: Grant) -> None:
        if one.closed or (one.public and self._anonymous) or grant.may(*one.scopes):
            return
        needed = f"one of the scopes {', '.join(one.scopes)}"
        if grant.client is None:
            raise Refused(401, f"This needs a bearer token with {needed}.", _CHALLENGE)
        raise Refused(403, f"The token has not {needed}; ask the operator for it.")

    async def _in_thread(self, work: Callable[..., Any], *values: Any) -> Any:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(AT_ONCE)
        return await to_thread.run_sync(work, *values, limiter=self._threads)

    async def server(self, request: Request) -> Response:
        """GET /auth/server."""
        base = self._url or f"{request.url.scheme}://{request.url.netloc}"
        return answer(
            {"tokenURL": f"{base}{BASE}/auth/token"}, headers={"Cache-Control": "no-store"}
        )

    async def describe(self, request: Request) -> Response:
        """GET /openapi.json."""
        del request
        return answer(description(BASE))


_CHALLENGE = {"WWW-Authenticate": "Bearer"}


async def read_body(request: Request, limit: int) -> bytes:
    """All of a body, if it is not too much and does not take too long."""
    declared = request.headers.get("content-length", "")
    large = Refused(413, f"The body is beyond {limit} bytes; send less.")
    if declared.isdecimal() and int(declared[:19]) > limit:
        raise large
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(400, "The body is compressed; send it as it is.")
    body = bytearray()
    try:
        with anyio.fail_after(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > limit:
                    raise large
    except TimeoutError:
        raise Refused(408, f"The body took more than {PATIENCE:g} s; send less.") from None
    except ClientDisconnect:
        raise Refused(400, "The body ended before its end; send it again.") from None
    return bytes(body)


def asked(one: Operation, request: Request) -> dict[str, Any]:
    """The parameters of a query that this operation knows; others are not looked at."""
    found = {}
    for name, schema in one.query:
        given = request.query_params.getlist(name)
        if not given:
            continue
        if schema["type"] == "array":
            found[name] = fitting(schema, given, name)
        elif len(given) > 1:
            raise Unfit(f"{name} comes twice; give it once.")
        else:
            found[name] = fitting(schema, _read(schema, given[0]), name)
    return found


def _read(schema: Schema, text: str) -> Any:
    if schema["type"] == "integer" and re.fullmatch("-?[0-9]{1,15}", text):
        return int(text)
    if schema["type"] == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


async def _refused(request: Request, error: Refused) -> Response:
    del request
    return problem(error.status, error.detail, error.headers)


async def _unrouted(request: Request, error: HTTPException) -> Response:
    del request
    said = {404: "There is nothing here.", 405: "This method is not for this path."}
    detail = said.get(error.status_code, "The request cannot be answered.")
    return problem(error.status_code, detail, error.headers)


async def _away(request: Request, error: VtnError) -> Response:
    del request
    log.error("vtn store away", extra={"error": type(error).__name__})
    return problem(503, "The store cannot be used now; try again later.", RETRY)


async def _unknown(request: Request, error: AccessError) -> Response:
    del request
    log.error("clients away", extra={"error": error.kind})
    return problem(503, "Clients cannot be looked up now; try again later.", RETRY)


async def _failed(request: Request, error: Exception) -> Response:
    del request
    log.error("request failed", extra={"error": type(error).__name__})
    return problem(500, "The service failed; the fault is logged.")
