"""The VTN over HTTP: routes, scopes, OAuth 2 tokens, webhooks and MQTT.

The models of `models` describe the routes. Errors are OpenADR Problems. Programs and events come
from the ledger: their writing operations are closed.
"""

import logging
import math
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from copy import copy
from functools import partial, wraps
from inspect import Parameter, signature
from itertools import chain, islice
from typing import Annotated, Any, Literal, Self

from fastapi import Depends, FastAPI, Query
from fastapi import Path as PathParameter
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from hushgrid.curator.clock import Clock
from hushgrid.curator.publishers import PresentPrices
from hushgrid.errors import AccessError, VtnError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.settings import Mqtt, OpenAdr
from hushgrid.stores.clients import OPENADR, Grant
from hushgrid.stores.ledger.entries import PricesRecord, ReleaseRecord
from hushgrid.stores.openadr import CHUNK, Kind, VtnStore, to_text
from hushgrid.web.http.common import (
    ERRORS,
    RETRY,
    Heavy,
    Pieces,
    Refusal,
    UnderWay,
    openadr_problem,
    problem,
)
from hushgrid.web.http.middleware import REPORT, PublicReads, caller_name, caller_of, scopes
from hushgrid.web.http.models import TokenForm
from hushgrid.web.http.sessions import Tokens
from hushgrid.web.mqtt import MqttOut
from hushgrid.web.openadr import _generated as models
from hushgrid.web.openadr.events import (
    event_of,
    forecast_event,
    forecast_id,
    list_event,
    notification,
    topics,
)
from hushgrid.web.openadr.objects import Objects, PublicObjects
from hushgrid.web.openadr.webhooks import Callback, Note, Webhooks
from hushgrid.web.prices import History
from hushgrid.web.tokens import Access

log = logging.getLogger("hushgrid.openadr")

BASE = "/openadr3/3.1.0"
_READABLE = re.compile(rf"{BASE}/((programs|events)(/[^/]+)?|notifiers)")  # for scripts of any site
LONGEST = 600.0  # [s] for a forecast that subscribers are notified of
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
    body = {"error": word, "error_description": str(error)}
    return JSONResponse(body, status, headers)


# ---- bodies, answers and errors


async def _read_body(request: Request) -> AsyncIterator[bytes]:
    """Read a body; a dependency of its own, so that the scope has been checked before."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(400, "The body is compressed; send it as it is.")
    length = request.headers.get("content-length", "")
    size = int(length[:19]) if length.isascii() and length.isdigit() else REPORT[0]
    under_way: UnderWay = request.app.heavy.under_way
    end = await under_way.take(caller_name(request.scope), min(size, REPORT[0]))
    try:
        yield await request.body()
    except ClientDisconnect:
        raise Refusal(400, "The body ended before its end; send it again.") from None
    finally:
        end()


_Sent = Annotated[bytes, Depends(_read_body)]


def _parse(model: TypeAdapter[Any], body: bytes) -> Any:
    """Parse a body, in a thread; JSON has finite numbers only, nested in at most 200 levels."""
    try:
        return model.validate_python(from_json(body, allow_inf_nan=False))
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_input=False)[0]
        raise RequestValidationError([mistake | {"loc": ("body", *mistake["loc"])}]) from None
    except ValueError:
        raise Refusal(400, "The body cannot be read; send JSON in UTF-8.", field="body") from None


GATHERED = 1 << 18  # [bytes] of a list that are encoded at a time


def _array(texts: Iterator[str]) -> Iterator[bytes]:
    """Encode a list object by object."""
    waiting, size, mark = list[str](), 0, "["
    for text in texts:
        waiting += (mark, text)
        size, mark = size + len(text), ","
        if size > GATHERED:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    yield "".join((*waiting, mark.strip(","), "]")).encode()


def _answer(answer: Any, status: int, headers: Mapping[str, str]) -> Response | Pieces:
    """Make an answer in ASCII: stored texts may have surrogates, which UTF-8 lacks.

    Objects of clients are not validated: what a client stored before is answered as it is.
    """
    if isinstance(answer, Iterator):
        pieces = _array(answer)
        first = list(islice(pieces, 2))
        if len(first) > 1:
            return Pieces(chain(first, pieces), 2 * CHUNK, headers, "application/json")
        text = first[0].decode()
    else:
        text = answer if isinstance(answer, str) else to_text(answer)
    return Response(text, status, headers, "application/json")


async def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    """Answer with the first mistake: which member, and what it should be, never its value."""
    del request
    mistake = error.errors()[0]
    place, *names = mistake["loc"]
    if place == "path":
        return problem(404, "There is no object of such an id; ids are letters, digits, - and _.")
    should = mistake["msg"]
    if mistake["type"].startswith("union_tag"):
        should = f"objectType should be {mistake['ctx'].get('expected_tags', 'given')}"
    member = ".".join(map(str, names)) or "The body"
    return problem(400, f"{member} cannot be used: {should}; send JSON as it is described.")


async def _on_store_error(request: Request, error: VtnError) -> Response:
    del request
    log.error("vtn store away", extra={"error": type(error).__name__})
    return problem(503, "The store cannot be used now; try again later.", RETRY)


def _for_openadr(handler: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(request: Request, error: Exception) -> Response:
        return openadr_problem(await handler(request, error))

    return answer


_TEXTS = {
    400: "does not match the schema", 401: "no valid token", 403: "not allowed for this client",
    404: "no such object is visible to this client", 409: "the name is in use", 413: "too large",
    503: "temporarily unavailable",
}  # fmt: skip


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"description": _TEXTS[code], "content": content} for code in codes}


# ---- scopes

OWN = ("read_ven_objects", "read_all", "operate")
PUBLIC = ("read_targets", *OWN)
OAUTH2 = {
    "type": "oauth2",
    "flows": {
        "clientCredentials": {
            "tokenUrl": f"{BASE}/auth/token",
            "scopes": {name: name.replace("_", " ") for name in (*OPENADR, "operate")},
        }
    },
}


async def _grant(request: Request) -> Grant:
    return caller_of(request.scope).grant


async def _caller(request: Request) -> str:
    return caller_name(request.scope)


_Sender = Annotated[Grant, Depends(_grant)]
_CALLER = Parameter("caller", Parameter.KEYWORD_ONLY, annotation=Annotated[str, Depends(_caller)])


def _refuse_change(*_: Any) -> None:
    raise Refusal(403, "Programs and events come from the ledger alone; read them.")


# Of OpenADR 3.0. A subscription keeps the words of its client, whose models refuse the others.
_VERBS = {"GET": "READ", "POST": "CREATE", "PUT": "UPDATE"}


async def _each_once(request: Request) -> None:
    names = [name for name, _ in request.query_params.multi_items() if name in _ONCE]
    if len(names) > len(set(names)):  # FastAPI takes the last
        raise Refusal(400, "A parameter comes twice; give each once.")


_ONCE = {
    "skip", "limit", "active", "programID", "eventID", "clientName", "venName", "resourceName",
    "venID",
}  # fmt: skip


# ---- routes


class VtnApp(FastAPI):
    """The app of the VTN; its operations have threads of their own.

    Args:
        under_way: counts the bytes of bodies and answers.
        settings: of FastAPI.
    """

    def __init__(self, under_way: UnderWay | None = None, **settings: Any) -> None:
        self.heavy = Heavy(4, 256, under_way)
        self._bodies: dict[str, TypeAdapter[Any]] = {}  # of operations, by their names
        super().__init__(**settings)

    def add(
        self, method: str, path: str, name: str, work: Callable[..., Any], model: Any,
        *errors: int, status: int = 200, needs: Iterable[Any] = (), cache: str = "no-store",
        body: TypeAdapter[Any] | None = None,
    ) -> None:  # fmt: skip
        """Add an operation of the standard, with its model, its own errors and dependencies."""
        if body is not None:
            self._bodies[name] = body

        def answer(*args: Any, **kwargs: Any) -> Response | Pieces:
            return _answer(work(*args, **kwargs), status, {"Cache-Control": cache})

        @wraps(work)
        async def respond(*args: Any, caller: str, **kwargs: Any) -> Any:
            return await self.heavy.run(partial(answer, *args, **kwargs), caller)

        work_signature = signature(work)
        parameters = [*work_signature.parameters.values(), _CALLER]
        respond.__signature__ = work_signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        self.add_api_route(
            path,
            respond,
            methods=[method, "HEAD"] if method == "GET" else [method],
            operation_id=name,
            status_code=status,
            response_model=None,
            responses={status: {"model": model}, **_errors(*errors)},
            dependencies=list(needs),
        )

    def openapi(self) -> dict[str, Any]:
        """Describe the routes: one scope is enough, no parameter is null, no answer is a 422."""
        if self.openapi_schema is None:
            routes = [copy(route) for route in self.routes if isinstance(route, APIRoute)]
            for route in routes:
                route.methods = (route.methods or set()) - {"HEAD"}
            description = get_openapi(
                title=self.title, version=self.version, routes=routes, servers=self.servers
            )
            for name in ("HTTPValidationError", "ValidationError"):
                del description["components"]["schemas"][name]
            kind: Literal["validation"] = "validation"
            bodies, definitions = TypeAdapter.json_schemas(
                [(name, kind, body) for name, body in self._bodies.items()],
                ref_template="#/components/schemas/{model}",
            )
            schemas = jsonable_encoder(definitions["$defs"], exclude_none=True)
            description["components"]["schemas"] = schemas | description["components"]["schemas"]
            for operation in (
                operation for path in description["paths"].values() for operation in path.values()
            ):
                if schema := bodies.get((operation["operationId"], kind)):
                    content = {"application/json": {"schema": schema}}
                    operation["requestBody"] = {"content": content, "required": True}
                operation["responses"].pop("422", None)
                for parameter in operation.get("parameters", ()):
                    schema = parameter["schema"]
                    parameter["schema"] = schema.get("anyOf", [schema])[0]
                if "security" in operation:
                    scope_names = [
                        scope
                        for requirement in operation["security"]
                        for scope in requirement["bearer"]
                    ]
                    operation["security"] = [{"oauth2": [scope]} for scope in scope_names]
            description["components"]["securitySchemes"] = {"oauth2": OAUTH2}
            self.openapi_schema = description
        return self.openapi_schema


def make_vtn(
    public: PublicObjects,
    objects: Objects,
    access: Access,
    *,
    anonymous: bool = True,
    url: str | None = None,
    under_way: UnderWay | None = None,
) -> VtnApp:
    """Make the app of the VTN, to be mounted at `BASE`.

    Args:
        public: programs and events.
        objects: objects of clients.
        access: makes tokens.
        anonymous: public objects need no token.
        url: public address of the service, if it differs from the one of a request.
        under_way: counts the bytes of bodies and answers.

    Returns:
        The app.
    """
    handlers = ERRORS | {RequestValidationError: _on_invalid, VtnError: _on_store_error}
    app = VtnApp(
        under_way,
        title="hushgrid: OpenADR 3.1.0 VTN",
        version="3.1.0",
        servers=[{"url": BASE}],
        root_path_in_servers=False,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
        exception_handlers={kind: _for_openadr(handler) for kind, handler in handlers.items()},
        responses=_errors(401, 403, 503),
        middleware=[Middleware(PublicReads, public=_READABLE.fullmatch)] if anonymous else [],
    )
    dependencies = [] if anonymous else [scopes(*PUBLIC)]
    _add_public(app, public, dependencies)
    _add_topics(app, public, objects, dependencies)
    for row in KINDS:
        _add_kind(app, objects, *row)
    _add_tokens(app, access, url)
    return app


def mount_vtn(app: FastAPI) -> Mount:
    """Mount the app at `BASE`, for any rest of the path, line breaks included.

    Args:
        app: the app of `make_vtn`.

    Returns:
        The route.
    """
    mount = Mount(BASE, app)
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    return mount


def _add_public(app: VtnApp, public: PublicObjects, dependencies: list[Any]) -> None:
    def add(path: str, name: str, work: Callable[..., Any], model: Any, *errors: int) -> None:
        needs = [*dependencies, Depends(_each_once)]
        app.add("GET", path, name, work, model, *errors, needs=needs, cache="no-cache")

    add("/programs", "searchAllPrograms", public.programs, list[models.Program], 400)
    add(
        "/programs/{programID}",
        "searchProgramByProgramId",
        public.program,
        models.Program,
        400,
        404,
    )
    add("/events", "searchAllEvents", public.events, list[models.Event], 400)
    add("/events/{eventID}", "searchEventsByID", public.event, models.Event, 400, 404)
    add("/notifiers", "listAllNotifiers", public.notifiers, models.NotifiersResponse, 400)

    def program(programID: models.ObjectID) -> None:
        _refuse_change(public.program(programID))

    def event(eventID: models.ObjectID) -> None:
        _refuse_change(public.event(eventID))

    for kind, handler in (("Program", program), ("Event", event)):
        path, model = f"/{kind.lower()}s", models.Problem
        app.add("POST", path, f"create{kind}", lambda: _refuse_change(), model, status=403)
        path = f"{path}/{{{kind.lower()}ID}}"
        for method, verb in (("PUT", "update"), ("DELETE", "delete")):
            name = f"{verb}{kind}"
            app.add(method, path, name, handler, model, 404, status=403, needs=dependencies)


def _add_topics(
    app: VtnApp, public: PublicObjects, objects: Objects, dependencies: list[Any]
) -> None:
    def add(name: str, path: str, work: Callable[..., Any], needs: Iterable[Any]) -> None:
        path, name = f"/notifiers/mqtt/topics/{path}", f"listAllMqttNotifierTopics{name}"
        cache = "no-cache" if needs is dependencies else "no-store"
        model = models.NotifierTopicsResponse
        app.add("GET", path, name, work, model, 404, needs=needs, cache=cache)

    def of_ven(topic_path: str | None) -> Callable[..., Any]:
        def work(venID: models.ObjectID, grant: _Sender) -> Any:
            objects.get("VEN", grant, venID)
            return public.topics(topic_path)  # of all: no program or event has targets

        return work

    add("Programs", "programs", lambda: public.topics("programs"), dependencies)
    add("Program", "programs/{programID}", public.topics_of_program, dependencies)
    add("Events", "events", lambda: public.topics("events"), dependencies)
    add("ProgramEvents", "programs/{programID}/events", public.topics_of_events, dependencies)
    for name in ("Reports", "Subscriptions", "Vens", "Resources"):
        add(name, name.lower(), lambda: public.topics(None), [scopes("read_all", "operate")])
    owner_dependencies = [scopes(*OWN)]
    add("Ven", "vens/{venID}", of_ven(None), owner_dependencies)
    add("VenEvents", "vens/{venID}/events", of_ven("events"), owner_dependencies)
    add("VenPrograms", "vens/{venID}/programs", of_ven("programs"), owner_dependencies)
    add("VenResources", "vens/{venID}/resources", of_ven(None), owner_dependencies)


KINDS: tuple[tuple[Kind, Any, Any, Any, str, str], ...] = (
    ("REPORT", models.Report, models.ReportRequest, models.ReportsGetParametersQuery,
     "write_reports",
     "searchAllReports searchReportsByReportID createReport updateReport deleteReport"),
    ("SUBSCRIPTION", models.Subscription, models.SubscriptionRequest,
     models.SubscriptionsGetParametersQuery, "write_subscriptions",
     "searchSubscriptions searchSubscriptionByID"
     " createSubscription updateSubscription deleteSubscription"),
    ("VEN", models.Ven, models.VenRequest, models.VensGetParametersQuery, "write_vens",
     "searchVens searchVenByID createVen updateVen deleteVen"),
    ("RESOURCE", models.Resource, models.ResourceRequest, models.ResourcesGetParametersQuery,
     "write_vens",
     "searchVenResources searchVenResourceByID"
     " createResource updateVenResource deleteVenResource"),
)  # fmt: skip


def _add_kind(
    app: VtnApp, objects: Objects, kind: Kind, model: Any, body: Any, query: Any,
    scope: str, names: str,
) -> None:  # fmt: skip
    """Add the routes of one kind of objects of clients; `names` are those of the operations."""
    key = f"{kind.lower()}ID"
    collection_path, item_path = f"/{kind.lower()}s", f"/{kind.lower()}s/{{{key}}}"
    read, write = [scopes(*OWN), Depends(_each_once)], [scopes(scope)]
    Id = Annotated[models.ObjectID, PathParameter(alias=key)]
    Parameters = Annotated[query, Query()]
    body_type: TypeAdapter[Any] = TypeAdapter(body)

    def search(grant: _Sender, parameters: Parameters) -> Any:
        return objects.list(kind, grant, parameters)

    def get(grant: _Sender, name: Id) -> Any:
        return objects.get(kind, grant, name)

    def create(grant: _Sender, content: _Sent) -> Any:
        return objects.add(kind, grant, _parse(body_type, content))

    def update(grant: _Sender, name: Id, content: _Sent) -> Any:
        return objects.change(kind, grant, name, _parse(body_type, content))

    def delete(grant: _Sender, name: Id) -> Any:
        return objects.remove(kind, grant, name)

    searches, gets, creates, updates, deletes = names.split()
    app.add("GET", collection_path, searches, search, list[model], 400, needs=read)
    app.add("GET", item_path, gets, get, model, 400, 404, needs=read)
    refusals = (400, 404, 409, 413)
    for method, path, name, work, status in (
        ("POST", collection_path, creates, create, 201),
        ("PUT", item_path, updates, update, 200),
    ):
        app.add(
            method, path, name, work, model, *refusals, status=status, needs=write, body=body_type
        )
    app.add("DELETE", item_path, deletes, delete, model, 404, needs=write)


def _add_tokens(app: VtnApp, access: Access, url: str | None) -> None:
    def server(request: Request) -> Any:
        base = url.rstrip("/") if url else f"{request.url.scheme}://{request.url.netloc}"
        return {"tokenURL": f"{base}{BASE}/auth/token"}

    app.add("GET", "/auth/server", "getAuthServerInfo", server, models.AuthServerInfo)
    # RFC 6749 with the error words that OpenADR lists
    tokens = Tokens(access, _token_refusal, _FRESH, echo=True)
    form = {"application/x-www-form-urlencoded": {"schema": TokenForm.model_json_schema()}}
    error: dict[str, Any] = {"model": models.AuthError, "description": "No token."}
    app.post(
        "/auth/token",
        operation_id="fetchToken",
        response_model=models.ClientCredentialResponse,
        responses={400: error, 401: error, **_errors(413)},
        openapi_extra={"requestBody": {"required": True, "content": form}},
    )(tokens.token)


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
        counted: called with the outcome of each webhook.
        under_way: counts the bytes of bodies and answers.
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
        counted: Callable[[str], None] = lambda _: None,
        under_way: UnderWay | None = None,
    ) -> None:
        self._history, self._store, self._clock = history, store, clock
        private = settings.allow_private_callbacks
        self.webhooks = Webhooks(self.callbacks, private=private, counted=counted)
        self._sends = settings.webhooks
        public = PublicObjects(history, clock, mqtt_uris, settings.event_age)
        objects = Objects(
            store,
            public,
            clock,
            private_callbacks=private,
            webhooks=self._sends,
            notify=self._notify_change,
            reserving=access.reserving,
        )
        self.app = make_vtn(
            public,
            objects,
            access,
            anonymous=settings.anonymous,
            url=settings.url,
            under_way=under_way,
        )
        self._unwatch = ExitStack()

    def __enter__(self) -> Self:
        if self._sends:
            self.webhooks.start()
            self._unwatch.callback(self._history.watch(self._notify_release))
            self._unwatch.callback(self._history.watch_lists(self._notify_list))
            self._renotify()
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch.close()
        if self._sends:
            self.webhooks.stop()
        self._store.close()

    def callbacks(self) -> Iterator[Callback]:
        """Yield every callback of every subscription."""
        for subscription in self._store.find("SUBSCRIPTION"):
            body = subscription.body
            for i, operation in enumerate(body["objectOperations"]):
                yield Callback(
                    (subscription.id, i),
                    subscription.client,
                    body.get("programID"),
                    frozenset(operation["objects"]),
                    frozenset(_VERBS.get(verb, verb) for verb in operation["operations"]),
                    operation["callbackUrl"],
                    operation.get("bearerToken"),
                )

    def _renotify(self) -> None:
        """Notify again of prices that still apply: who was notified before a restart is unknown."""
        for zone in self._history.zones.values():
            newest = self._history.newest(zone.id)
            for record in self._history.lists(zone.id)[-1:]:
                if record.ends > self._clock.now():
                    self._notify_list(zone, record)
            if newest and newest.applies_start + zone.seconds > self._clock.now():
                self._notify_release(zone, newest)

    def _notify_list(self, zone: ZoneService, record: PricesRecord) -> None:
        self._notify_event("CREATE", list_event(zone, record))

    def _notify_release(self, zone: ZoneService, release: ReleaseRecord) -> None:
        if self._history.list_at(zone.id, release.applies_start) is None:
            self._notify_event("CREATE", event_of(zone, release))
        threading.Thread(target=self._forecast, args=(zone, release), daemon=True).start()

    def _forecast(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Notify of the new forecast, which is made only where a callback wants it."""
        programs, callbacks = (None, forecast_id(zone.id)), list[Callback]()
        try:
            callbacks += self.callbacks()
        except VtnError:
            log.warning("subscriptions away")
        for callback in callbacks:
            events = "EVENT" in callback.objects and "UPDATE" in callback.operations
            if callback.program in programs and events:
                coming = self._history.ahead(zone.id, self._clock.now(), LONGEST, listed=False)
                if coming:
                    event = forecast_event(zone, coming, int(release.published_at))
                    self._notify_event("UPDATE", event)
                return

    def _notify_event(self, operation: str, event: dict[str, Any]) -> None:
        self._notify_change("EVENT", operation, to_text(event), event["programID"], None)

    def _notify_change(
        self, kind: str, operation: str, text: str, program: str | None, client: str | None
    ) -> None:
        """Notify of a change: all subscriptions, or those of the client that owns the object."""
        if self._sends:
            content = notification(kind, operation, text).encode()
            self.webhooks.notify(Note(kind, operation, program, client, content))


class MqttEvents(MqttOut):
    """Publishes releases and forecasts on the MQTT topics of a program's and of all events."""

    def __init__(self, mqtt: Mqtt, client_id: str) -> None:
        self._pending: dict[str, ReleaseRecord] = {}  # by zone: whose forecast is not out
        self._listed: dict[str, int] = {}  # by zone: where its lists of prices end [UTC s]
        super().__init__(mqtt, client_id)

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Publish and wait for the broker's acknowledgement; OSError if it does not come."""
        if release.applies_start >= self._listed.get(zone.id, 0):  # else its price is not in force
            self._notify("CREATE", event_of(zone, release))
        self._pending[zone.id] = release

    def publish_list(self, zone: ZoneService, record: PricesRecord) -> None:
        """Publish a list and wait for the broker's acknowledgement; OSError without one."""
        self._notify("CREATE", list_event(zone, record))
        self._listed[zone.id] = record.ends

    def show(self, zone: ZoneService, present: PresentPrices) -> None:
        """Publish the forecast of the newest release, once it is there."""
        release = self._pending.get(zone.id)
        if release is not None and (coming := present.forecast()) is not None:
            if coming:
                self._notify("UPDATE", forecast_event(zone, coming, int(release.published_at)))
            del self._pending[zone.id]

    def _notify(self, operation: str, event: dict[str, Any]) -> None:
        text = notification("EVENT", operation, to_text(event))
        for path in (f"programs/{event['programID']}/events", "events"):
            self.send(topics(path)[operation], text, retain=False)


def open_events(deployment: Deployment, client: str) -> MqttEvents | None:
    """Open the publisher of OpenADR events, where the service file names brokers of OpenADR.

    Args:
        deployment: The service.
        client: Name of this process at brokers.

    Returns:
        The publisher, or None.
    """
    if deployment.mqtt is None or not deployment.mqtt_events:
        return None
    return MqttEvents(deployment.mqtt, f"hushgrid-openadr-{client}")
