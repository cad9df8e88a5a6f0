"""The VTN over HTTP: its operations and scopes, OAuth2 tokens, description, webhooks and MQTT.

`OPERATIONS` is the one table of routes; the description is made from it. Errors are OpenADR
Problems. Programs and events come from the ledger: their writing operations are closed.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from hushgrid.errors import AccessError, VtnError
from hushgrid.files.deployment import OpenAdr, ZoneService
from hushgrid.service.access.clients import OPENADR, Grant
from hushgrid.service.access.tokens import Access
from hushgrid.service.clock import Clock
from hushgrid.service.http.common import Refusal
from hushgrid.service.http.middleware import caller_of
from hushgrid.service.http.sessions import Tokens
from hushgrid.service.ledger.records import ReleaseRecord
from hushgrid.service.mqtt import MqttOut
from hushgrid.service.openadr.objects import (
    KEYS,
    Call,
    Objects,
    PublicObjects,
    VtnRefusal,
    answer,
    event_of,
    notification,
    problem,
    program_id,
    to_json,
    topics,
)
from hushgrid.service.openadr.schemas import (
    ANSWERS,
    KINDS,
    LIMIT,
    NAME,
    OBJECT_ID,
    REQUESTS,
    SKIP,
    Schema,
    SchemaError,
    array_of,
    enum_of,
    parse_json,
    reference,
    validate,
)
from hushgrid.service.openadr.store import Kind, VtnStore
from hushgrid.service.openadr.webhooks import Callback, Note, Webhooks
from hushgrid.service.prices import History

_FRESH = {"Cache-Control": "no-store", "Pragma": "no-cache"}


def _token_refusal(error: AccessError) -> Response:
    """Make an error answer by RFC 6749, 5.2; a server error is raised again."""
    if error.kind == "server_error":
        raise error
    headers = dict(_FRESH)
    word, status = error.kind, 400
    if error.kind in ("invalid_client", "slow_down"):
        # the RFC has no word for too many attempts: Retry-After carries the time to wait
        word, status = "invalid_client", 401
        headers["WWW-Authenticate"] = 'Basic realm="hushgrid"'
        if error.wait:
            headers["Retry-After"] = str(math.ceil(error.wait))
    return answer({"error": word, "error_description": str(error)}, status, headers)


PAGE: dict[str, Schema] = {"skip": SKIP, "limit": LIMIT}
TARGETED: dict[str, Schema] = {"targets": array_of(NAME)}
PUBLIC = ("read_targets", "read_all", "read_ven_objects", "operate")
OWN = ("read_ven_objects", "read_all", "operate")
TOPICS = "/notifiers/mqtt/topics"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path.

    Attributes:
        name: operationId of the standard.
        method: HTTP method.
        path: path under `BASE`, with parameters in braces.
        scopes: one of them is needed.
        public: no scope is needed while anonymous reading is on.
        closed: always refused; programs and events come from the ledger.
        query: known parameters and their schemas.
        body: name of the request's schema in `REQUESTS`.
        answer: name of the answer's schema in `ANSWERS`.
        many: the answer is a list.
        status: HTTP status of success.
    """

    name: str
    method: str
    path: str
    scopes: tuple[str, ...] = ()
    public: bool = False
    closed: bool = False
    query: tuple[tuple[str, Schema], ...] = ()
    body: str | None = None
    answer: str = "problem"
    many: bool = False
    status: int = 200


def _read(
    name: str, path: str, scopes: tuple[str, ...], answer: str, public: bool = False
) -> Operation:
    return Operation(name, "GET", path, scopes, public, answer=answer)


def _list(
    name: str, path: str, scopes: tuple[str, ...], answer: str, public: bool, **query: Schema
) -> Operation:
    known = tuple((query | PAGE).items())
    return Operation(name, "GET", path, scopes, public, query=known, answer=answer, many=True)


def _writes(what: str, plural: str, key: str, scope: str) -> tuple[Operation, ...]:
    title, request, one = what.capitalize(), f"{what}Request", f"/{plural}/{{{key}}}"
    title = "VenResource" if what == "resource" else title
    made = "createResource" if what == "resource" else f"create{title}"
    return (
        Operation(made, "POST", f"/{plural}", (scope,), body=request, answer=what, status=201),
        Operation(f"update{title}", "PUT", one, (scope,), body=request, answer=what),
        Operation(f"delete{title}", "DELETE", one, (scope,), answer=what),
    )


def _closed(what: str, plural: str, key: str) -> tuple[Operation, ...]:
    title, one = what.capitalize(), f"/{plural}/{{{key}}}"
    return (
        Operation(f"create{title}", "POST", f"/{plural}", closed=True),
        Operation(f"update{title}", "PUT", one, closed=True),
        Operation(f"delete{title}", "DELETE", one, closed=True),
    )


def _topics(name: str, path: str, scopes: tuple[str, ...], public: bool = False) -> Operation:
    return Operation(
        f"listAllMqttNotifierTopics{name}", "GET", f"{TOPICS}/{path}", scopes, public,
        answer="notifierTopicsResponse",
    )  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    _list("searchAllPrograms", "/programs", PUBLIC, "program", True, **TARGETED),
    _read("searchProgramByProgramId", "/programs/{programID}", PUBLIC, "program", public=True),
    *_closed("program", "programs", "programID"),
    _list(
        "searchAllEvents", "/events", PUBLIC, "event", True,
        programID=OBJECT_ID, active={"type": "boolean"}, **TARGETED,
    ),
    _read("searchEventsByID", "/events/{eventID}", PUBLIC, "event", public=True),
    *_closed("event", "events", "eventID"),
    _list(
        "searchAllReports", "/reports", OWN, "report", False,
        programID=OBJECT_ID, eventID=OBJECT_ID, clientName=NAME,
    ),
    _read("searchReportsByReportID", "/reports/{reportID}", OWN, "report"),
    *_writes("report", "reports", "reportID", "write_reports"),
    _list(
        "searchSubscriptions", "/subscriptions", OWN, "subscription", False,
        programID=OBJECT_ID, clientName=NAME, objects=array_of(enum_of(*KINDS)),
    ),
    _read("searchSubscriptionByID", "/subscriptions/{subscriptionID}", OWN, "subscription"),
    *_writes("subscription", "subscriptions", "subscriptionID", "write_subscriptions"),
    _list("searchVens", "/vens", OWN, "ven", False, venName=NAME, **TARGETED),
    _read("searchVenByID", "/vens/{venID}", OWN, "ven"),
    *_writes("ven", "vens", "venID", "write_vens"),
    _list(
        "searchVenResources", "/resources", OWN, "resource", False,
        resourceName=NAME, venID=OBJECT_ID, **TARGETED,
    ),
    _read("searchVenResourceByID", "/resources/{resourceID}", OWN, "resource"),
    *_writes("resource", "resources", "resourceID", "write_vens"),
    _read("listAllNotifiers", "/notifiers", PUBLIC, "notifiersResponse", public=True),
    _topics("Programs", "programs", PUBLIC, True),
    _topics("Program", "programs/{programID}", PUBLIC, True),
    _topics("Events", "events", PUBLIC, True),
    _topics("ProgramEvents", "programs/{programID}/events", PUBLIC, True),
    _topics("Reports", "reports", ("read_all", "operate")),
    _topics("Subscriptions", "subscriptions", ("read_all", "operate")),
    _topics("Vens", "vens", ("read_all", "operate")),
    _topics("Ven", "vens/{venID}", OWN),
    _topics("Resources", "resources", ("read_all", "operate")),
    _topics("VenEvents", "vens/{venID}/events", OWN),
    _topics("VenPrograms", "vens/{venID}/programs", OWN),
    _topics("VenResources", "vens/{venID}/resources", OWN),
)  # fmt: skip


_ERRORS = {
    "400": "does not match the schema", "401": "no valid token",
    "403": "not allowed for this client", "404": "no such object is visible to this client",
    "409": "the name is in use", "413": "too large", "503": "temporarily unavailable",
}  # fmt: skip


@cache
def description(base: str) -> dict[str, Any]:
    """Make the OpenAPI description from the table of operations.

    Args:
        base: path where the VTN is served.

    Returns:
        The OpenAPI document.
    """
    paths: dict[str, dict[str, Any]] = {}
    for one in OPERATIONS:
        path = paths.setdefault(one.path, _path(one.path))
        path[one.method.lower()] = _operation(one)
    paths["/auth/server"] = {
        "get": {"operationId": "getAuthServerInfo", "responses": _answers("authServerInfo", ())}
    }
    paths["/auth/token"] = {"post": _token()}
    flow = {
        "tokenUrl": f"{base}/auth/token",
        "scopes": {name: name.replace("_", " ") for name in (*OPENADR, "operate")},
    }
    oauth = {"type": "oauth2", "flows": {"clientCredentials": flow}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "hushgrid: OpenADR 3.1.0 VTN", "version": "3.1.0"},
        "servers": [{"url": base}],
        "paths": paths,
        "components": {"schemas": REQUESTS | ANSWERS, "securitySchemes": {"oauth2": oauth}},
    }


def _path(path: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    if not names:
        return {}
    given = [{"name": n, "in": "path", "required": True, "schema": OBJECT_ID} for n in names]
    return {"parameters": given}


def _operation(one: Operation) -> dict[str, Any]:
    errors = ["401", "403", "503"]
    errors += ["404"] * ("{" in one.path or "topics" in one.path)
    errors += ["400"] * bool(one.query or one.body)
    errors += ["409", "413", "404"] * (one.body is not None)
    made: dict[str, Any] = {"operationId": one.name}
    if one.query:
        made["parameters"] = [
            {"name": name, "in": "query", "schema": schema} for name, schema in one.query
        ]
    if one.body is not None:
        content = {"application/json": {"schema": reference(one.body)}}
        made["requestBody"] = {"required": True, "content": content}
    if one.closed:
        made["responses"] = _errors(errors)
    else:
        made["responses"] = _answers(one.answer, errors, one.status, many=one.many)
        needed = [{"oauth2": [scope]} for scope in one.scopes]
        made["security"] = [{}, *needed] if one.public else needed
    return made


def _answers(name: str, errors: Any, status: int = 200, *, many: bool = False) -> dict[str, Any]:
    schema: Schema = array_of(reference(name)) if many else reference(name)
    content = {"application/json": {"schema": schema}}
    return {str(status): {"description": name, "content": content}} | _errors(errors)


def _errors(codes: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": reference("problem")}}
    return {code: {"description": _ERRORS[code], "content": content} for code in sorted(codes)}


def _token() -> dict[str, Any]:
    text = {"type": "string", "maxLength": 4096}
    form = {
        "type": "object",
        "required": ["grant_type"],
        "properties": {
            "grant_type": {"type": "string", "enum": ["client_credentials"]},
            "client_id": text,
            "client_secret": text,
            "scope": text,
        },
    }
    wrong = {"application/json": {"schema": reference("authError")}}
    errors = {code: {"description": _ERRORS[code], "content": wrong} for code in ("400", "401")}
    return {
        "operationId": "fetchToken",
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": form}},
        },
        "responses": _answers("clientCredentialResponse", ["413", "503"]) | errors,
    }


log = logging.getLogger("hushgrid.openadr")

BASE = "/openadr3/3.1.0"
AT_ONCE = 16  # requests answered at the same time; more wait
RETRY = {"Retry-After": "5"}

Handler = Callable[[Call], Any]
RequestHandler = Callable[[Request], Awaitable[Response]]


def make_vtn(
    public: PublicObjects,
    objects: Objects,
    access: Access,
    clock: Clock,
    *,
    anonymous: bool = True,
    url: str | None = None,
) -> Starlette:
    """Make the app of the VTN, to be mounted at `BASE`.

    Args:
        public: handlers of programs and events.
        objects: handlers of the objects of clients.
        access: makes tokens.
        clock: time of requests.
        anonymous: public objects need no token.
        url: public address of the service, if it differs from the one of a request.

    Returns:
        The ASGI app.
    """
    handlers = _handlers(public, objects)
    # RFC 6749 with the error words that OpenADR lists
    tokens = Tokens(access, _token_refusal, _FRESH, echo=True)
    dispatcher = _Dispatcher(clock, anonymous, url)
    operations: list[tuple[str, str, RequestHandler]] = [
        (one.method, one.path, partial(dispatcher.answer, one, handlers.get(one.name)))
        for one in OPERATIONS
    ]
    operations += [
        ("GET", "/auth/server", dispatcher.server),
        ("POST", "/auth/token", tokens.token),
        ("GET", "/openapi.json", dispatcher.describe),
    ]
    errors: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
        VtnRefusal: _refusal,
        HTTPException: _unrouted,
        VtnError: _away,
        AccessError: _unknown,
        Exception: _failed,
    }
    return Starlette(routes=_merge_methods(operations), exception_handlers=errors)


def _merge_methods(handlers: Iterable[tuple[str, str, RequestHandler]]) -> list[Route]:
    """Make one route a path, so that Allow names all of its methods."""
    paths: dict[str, dict[str, RequestHandler]] = {}
    for method, path, handler in handlers:
        paths.setdefault(path, {})[method] = handler
    return [Route(path, _by_method(own), methods=list(own)) for path, own in paths.items()]


def _by_method(own: dict[str, RequestHandler]) -> RequestHandler:
    async def chosen(request: Request) -> Response:
        return await own["GET" if request.method == "HEAD" else request.method](request)

    return chosen


def mount_vtn(app: Starlette) -> Mount:
    """Mount the app at `BASE`, for any rest of the path, line breaks included.

    Args:
        app: the app of `make_vtn`.

    Returns:
        The route.
    """
    made = Mount(BASE, app)
    made.path_regex = re.compile(made.path_regex.pattern, re.DOTALL)
    return made


def _handlers(public: PublicObjects, objects: Objects) -> dict[str, Handler]:
    """Return the handler of each operation that is not closed."""
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
    """Return the public topics: no program or event has targets."""
    objects.check_ven(call)
    return public.topics(call, under)


def _unpublished(objects: Objects, call: Call) -> Any:
    if "venID" in call.path:
        objects.check_ven(call)
    raise VtnRefusal(404, "These objects are not published over MQTT; subscribe with a callback.")


class _Dispatcher:
    """Checks scope, parameters and body of each request, then calls its handler in a thread."""

    def __init__(self, clock: Clock, anonymous: bool, url: str | None) -> None:
        self._clock, self._anonymous = clock, anonymous
        self._url = url.rstrip("/") if url else None
        self._threads = CapacityLimiter(AT_ONCE)

    async def answer(self, one: Operation, handler: Handler | None, request: Request) -> Response:
        """Answer an operation of the table."""
        grant = caller_of(request.scope).grant
        self._check(one, grant)
        if handler is None:
            raise VtnRefusal(403, "Programs and events come from the ledger alone; read them.")
        try:
            query = query_of(one, request)
            body = None
            if one.body is not None:
                if request.headers.get("content-encoding", "identity") != "identity":
                    raise SchemaError("The body is compressed; send it as it is.")
                body = validate(REQUESTS[one.body], parse_json(await request.body()))
        except SchemaError as error:
            raise VtnRefusal(400, str(error)) from None
        except ClientDisconnect:
            raise VtnRefusal(400, "The body ended before its end; send it again.") from None
        path = {name: str(value) for name, value in request.path_params.items()}
        if not all(re.fullmatch(OBJECT_ID["pattern"], each) for each in path.values()):
            raise VtnRefusal(
                404, "There is no object of such an id; ids are letters, digits, - and _."
            )
        call = Call(grant, path, query, int(self._clock.now()), body)
        kept = "no-cache" if one.public else "no-store"  # objects of clients are not cached
        made = await to_thread.run_sync(handler, call, limiter=self._threads)
        return answer(made, one.status, {"Cache-Control": kept})

    def _check(self, one: Operation, grant: Grant) -> None:
        if one.closed or (one.public and self._anonymous) or grant.may(*one.scopes):
            return
        needed = f"one of the scopes {', '.join(one.scopes)}"
        if grant.client is None:
            raise VtnRefusal(401, f"This needs a bearer token with {needed}.", _CHALLENGE)
        raise VtnRefusal(403, f"The token has not {needed}; ask the operator for it.")

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


def query_of(one: Operation, request: Request) -> dict[str, Any]:
    """Read the query parameters that an operation knows; others are ignored.

    Args:
        one: the operation.
        request: the request.

    Returns:
        Validated values by name.

    Raises:
        SchemaError: if a value does not match its schema or comes twice.
    """
    found = {}
    for name, schema in one.query:
        given = request.query_params.getlist(name)
        if not given:
            continue
        if schema["type"] == "array":
            found[name] = validate(schema, given, name)
        elif len(given) > 1:
            raise SchemaError(f"{name} comes twice; give it once.")
        else:
            found[name] = validate(schema, _from_text(schema, given[0]), name)
    return found


def _from_text(schema: Schema, text: str) -> Any:
    if schema["type"] == "integer" and re.fullmatch("-?[0-9]{1,15}", text):
        return int(text)
    if schema["type"] == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


async def _refusal(request: Request, error: VtnRefusal) -> Response:
    del request
    return problem(error.status, error.detail, error.headers)


async def _unrouted(request: Request, error: HTTPException) -> Response:
    del request
    details = {404: "There is nothing here.", 405: "This method is not for this path."}
    detail = details.get(error.status_code, "The request cannot be answered.")
    if isinstance(error, Refusal):
        detail = error.detail
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


class Vtn:
    """The VTN of a running process: its app, store and webhooks. Closes the store at exit.

        with Vtn(history, VtnStore("vtn.sqlite"), access, clock, OpenAdr()) as vtn:
            mount_vtn(vtn.app)

    Args:
        history: releases of the zones.
        store: objects of clients.
        access: makes tokens.
        clock: time of requests.
        settings: section [openadr] of the service file.
        mqtt_uris: brokers on which events are published.
        alone: no other curator publishes these zones.
        counted: called with the outcome of each webhook.
    """

    def __init__(
        self,
        history: History,
        store: VtnStore,
        access: Access,
        clock: Clock,
        settings: OpenAdr,
        *,
        mqtt_uris: Iterable[str] = (),
        alone: bool = True,
        counted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._history, self._store, self._clock = history, store, clock
        private = settings.allow_private_callbacks
        self.webhooks = Webhooks(self.callbacks, private=private, counted=counted)
        self._sends, self._alone = settings.webhooks, alone
        public = PublicObjects(history, mqtt_uris)
        objects = Objects(
            store, public, private_callbacks=private, webhooks=self._sends, notify=self._changed
        )
        self.app = make_vtn(
            public, objects, access, clock, anonymous=settings.anonymous, url=settings.url
        )
        self._unwatch: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self._sends:
            self.webhooks.start()
            self._unwatch = self._history.watch(self._released, own=True)
            if self._alone:  # otherwise the curator that takes a zone over does it
                self._renotify()
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch()
        if self._sends:
            self.webhooks.stop()
        self._store.close()

    def callbacks(self) -> Iterator[Callback]:
        """Yield every callback of every subscription."""
        for one in self._store.find("SUBSCRIPTION"):
            for i, each in enumerate(one.body["objectOperations"]):
                yield Callback(
                    (one.id, i),
                    one.client,
                    one.body.get("programID"),
                    frozenset(each["objects"]),
                    frozenset(each["operations"]),
                    each["callbackUrl"],
                    each.get("bearerToken"),
                )

    def _renotify(self) -> None:
        """Notify again of prices that still apply: who was notified before a restart is unknown."""
        for zone in self._history.zones.values():
            newest = self._history.newest(zone.id)
            if newest and newest.applies_start + zone.seconds > self._clock.now():
                self._released(zone, newest)

    def _released(self, zone: ZoneService, release: ReleaseRecord) -> None:
        event = event_of(zone, release)
        content = to_json(notification("EVENT", "CREATE", event))
        self.webhooks.notify(Note("EVENT", "CREATE", event["programID"], None, content))

    def _changed(self, kind: str, operation: str, thing: dict[str, Any], client: str) -> None:
        """Notify a client's own subscriptions of a change of its objects."""
        if self._sends:
            content = to_json(notification(kind, operation, thing))
            self.webhooks.notify(Note(kind, operation, thing.get("programID"), client, content))


class MqttEvents(MqttOut):
    """Publishes releases on the MQTT topics of a program's events and of all events."""

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish and wait for the broker's acknowledgement; OSError if it does not come."""
        text = to_json(notification("EVENT", "CREATE", event_of(zone, release))).decode()
        for under in (f"programs/{program_id(zone.id)}/events", "events"):
            self.send(topics(under)["CREATE"], text, retain=False)
