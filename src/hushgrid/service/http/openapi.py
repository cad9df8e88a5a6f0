"""OpenAPI 3.1 description of the service, as JSON and as a page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hushgrid.files.readings import BY_MEDIA_TYPE
from hushgrid.service.http.common import COOKIE, Route
from hushgrid.service.prices import MOST

Schema = dict[str, Any]
Answer = tuple[str, str | None, Schema | None]

JSON, PROBLEM_JSON = "application/json", "application/problem+json"
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"}
SOURCE: Schema = {"enum": ["readings", "forecast", "fallback"]}


def _object(optional: dict[str, Schema] | None = None, /, **fields: Schema) -> Schema:
    return {
        "type": "object",
        "properties": fields | (optional or {}),
        "required": list(fields),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_none(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_OWN = {"start": TIME, "end": TIME, "price": NUMBER}
_RANGE_OF_RATE = {"low": NUMBER, "high": NUMBER}
_RECEIPT = dict.fromkeys(
    ("accepted", "duplicate", "late", "clamped", "unknown", "malformed"), COUNT
)
_STATUS = {
    "zone": TEXT, "t": {"type": "integer"}, "spent": NUMBER, "left": _or_none(NUMBER),
    "state": TEXT, "curator": _or_none(TEXT),
    "leakage": _or_none(NUMBER),
}  # fmt: skip
_NUMBER_OR_NONE, _COUNT_OR_NONE = _or_none(NUMBER), _or_none(COUNT)
_POINT = {"epsilon": NUMBER, "raw": NUMBER, "estimated": NUMBER}
_PROMISED = {
    "sentence": TEXT, "assumptions": _list(TEXT),
    "secret": {"enum": ["step", "interval", "trajectory", "window"]},
    "epsilon": NUMBER, "delta": NUMBER, "eta": NUMBER,
}  # fmt: skip
_OPERATOR: dict[str, Schema] = {
    "Session": _object(client=TEXT, scopes=_list(TEXT)),
    "Promise": _object(
        zone=TEXT, mode=TEXT, **_PROMISED, horizon=COUNT, houses=COUNT, interval_s=COUNT,
        time_zone=TEXT,
        currency=TEXT, error=_NUMBER_OR_NONE,
        tariff=_object(alpha=NUMBER, beta=NUMBER, floor=NUMBER, cap=_NUMBER_OR_NONE),
    ),
    "Tradeoff": _object(
        zone=TEXT, secret=TEXT, unit=TEXT, chosen=_object(eta=NUMBER, **_POINT),
        curves=_list(_object(eta=NUMBER, points=_list(_object(**_POINT)))), forecast=NUMBER,
    ),
    "Operator": _object(
        now=TIME,
        zones=_list(
            _object(zone=TEXT, state=TEXT, t=_COUNT_OR_NONE, missing=_COUNT_OR_NONE, alerts=COUNT)
        ),
    ),
    "OperatorZone": _object(
        zone=TEXT, mode=TEXT, state=TEXT, now=TIME, t=_COUNT_OR_NONE, interval_s=COUNT,
        time_zone=TEXT,
        currency=TEXT, houses=COUNT,
        promise=_object(**_PROMISED, eta_set_by=_or_none(TEXT)),
        noise=_object(
            scale=_NUMBER_OR_NONE, house=_COUNT_OR_NONE, model=_COUNT_OR_NONE,
            epsilon=_NUMBER_OR_NONE, epsilon_any=_NUMBER_OR_NONE, protected=_COUNT_OR_NONE,
            why=TEXT,
        ),
        budget=_object(
            spent=_NUMBER_OR_NONE, total=_NUMBER_OR_NONE, left=_NUMBER_OR_NONE,
            runs_out=_or_none(TIME), per_release=_NUMBER_OR_NONE, horizon_ends=TIME,
        ),
        missing=_object(meters=_COUNT_OR_NONE, share=_NUMBER_OR_NONE),
        series=_list(
            _object(
                t=COUNT, start=TIME, applies_from=TIME, load=_COUNT_OR_NONE,
                optimal=_NUMBER_OR_NONE, rate=NUMBER, load_hat=_or_none({"type": "integer"}),
                scale=NUMBER, missing=_COUNT_OR_NONE, source=SOURCE,
            )
        ),
        alerts=_list(_object(level={"enum": ["error", "warning"]}, text=TEXT)),
        head=_or_none(TEXT),
    ),
}  # fmt: skip
SCHEMAS: dict[str, Schema] = {
    **_OPERATOR,
    "Price": _object(
        zone=TEXT, **_OWN, currency=TEXT, rule=TEXT, source=SOURCE, simulated={"type": "boolean"},
        head=TEXT, signature=TEXT,
    ),
    "Prices": _object(
        zone=TEXT, currency=TEXT, unit=TEXT, interval_s=COUNT, simulated={"type": "boolean"},
        head=TEXT, published=_list(_object(_RANGE_OF_RATE, **_OWN, source=SOURCE)),
        forecast=_list(_object(_RANGE_OF_RATE, **_OWN)), next=_or_none(TIME),
    ),
    "Evcc": _list(_object(start=TIME, end=TIME, value=NUMBER)),
    "Emhass": _object(load_cost_forecast={"type": "object", "additionalProperties": NUMBER}),
    "Octopus": _object(
        count=COUNT, next={"type": "null"}, previous={"type": "null"},
        results=_list(
            _object(value_exc_vat=NUMBER, value_inc_vat=NUMBER, valid_from=TIME, valid_to=TIME)
        ),
    ),
    "Status": _object(
        zones=_list(_object({"missing": _COUNT_OR_NONE}, **_STATUS))  # for operators
    ),
    "State": _object(
        {"zones": _list(TEXT), "forecast_until_resumed": _list(TEXT)}, status=TEXT
    ),
    "Receipt": _object(**_RECEIPT, problems=_list(TEXT)),
    "Token": _object(
        access_token=TEXT, token_type={"const": "Bearer"}, expires_in=COUNT, scope=TEXT
    ),
    "TokenError": _object(error=TEXT, error_description=TEXT),
    "Problem": {
        "type": "object",
        "properties": {
            "type": TEXT, "status": {"type": "integer"}, "detail": TEXT, "field": TEXT,
            "value": _or_none(TEXT), "fix": TEXT,
        },
        "required": ["type", "status", "detail"],
    },
}  # fmt: skip


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


PROBLEM = _ref("Problem")
ZONE: Schema = {
    "name": "zone",
    "in": "query",
    "schema": TEXT,
    "description": "The zone; may be omitted if there is only one.",
}
_RANGE: list[Schema] = [
    ZONE,
    {
        "name": "from",
        "in": "query",
        "schema": {"type": "string", "format": "date-time"},
        "description": "Prices that start then or later; by default from a day before the newest.",
    },
    {
        "name": "to",
        "in": "query",
        "schema": {"type": "string", "format": "date-time"},
        "description": "Prices that start before; by default to the end of the forecast.",
    },
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST},
        "description": "Maximum number of prices; default 1000.",
    },
]
_RANGED = ("/v1/prices", "/v1/prices.csv", "/v1/evcc", "/v1/emhass", "/v1/octopus")
_OF_ZONE = ("/v1/price", "/v1/ledger", "/v1/promise", "/v1/tradeoff", "/v1/operator/zone")
_ZONE = [ZONE]
PARAMETERS: dict[str, list[Schema]] = {
    **dict.fromkeys(_RANGED, _RANGE),
    **dict.fromkeys(_OF_ZONE, _ZONE),
    "/v1/operator/certificate": [
        ZONE,
        {
            "name": "format",
            "in": "query",
            "schema": {"enum": ["json", "html"]},
            "description": "As JSON (default), or as a page.",
        },
    ],
    "/v1/stream": [
        ZONE,
        {
            "name": "Last-Event-ID",
            "in": "header",
            "schema": TEXT,
            "description": "Id of the last event received; later events are sent first.",
        },
    ],
    "/v1/readings": [
        {
            "name": "mapping",
            "in": "query",
            "schema": {"enum": ["canonical", "lcl", "pecan"]},
            "description": "Meaning of the columns of a table.",
        }
    ],
}
BODIES: dict[str, Schema] = {
    "POST /v1/session": {
        "required": True,
        "content": {JSON: {"schema": _object(client=TEXT, secret=TEXT)}},
    },
    "/v1/token": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "grant_type": {"const": "client_credentials"},
                        "client_id": TEXT,
                        "client_secret": TEXT,
                        "scope": TEXT,
                    },
                    "required": ["grant_type"],
                }
            }
        },
    },
}


def _feed(media: str, schema: Schema | None, text: str) -> dict[str, Answer]:
    return {
        "200": (text, media, schema),
        "304": ("Nothing new since the ETag in If-None-Match.", None, None),
        "400": ("A parameter cannot be used.", PROBLEM_JSON, PROBLEM),
        "404": ("No such zone, or no price yet.", PROBLEM_JSON, PROBLEM),
    }


def _of_zone(schema: Schema, text: str) -> dict[str, Answer]:
    return {
        "200": (text, JSON, schema),
        "400": ("A parameter cannot be used.", PROBLEM_JSON, PROBLEM),
        "404": ("No such zone, or no such figure for it.", PROBLEM_JSON, PROBLEM),
    }


_REFUSED: Answer = ("The body cannot be taken.", PROBLEM_JSON, PROBLEM)
_NO_TOKEN: Answer = ("No token.", JSON, _ref("TokenError"))
RESPONSES: dict[str, dict[str, Answer]] = {
    "/v1/price": _feed(JSON, _ref("Price"), "The newest price."),
    "/v1/prices": _feed(JSON, _ref("Prices"), "Published prices and, separately, the forecast."),
    "/v1/prices.csv": _feed("text/csv", None, "start, end, price, currency, kind."),
    "/v1/evcc": _feed(JSON, _ref("Evcc"), "start, end, value."),
    "/v1/emhass": _feed(JSON, _ref("Emhass"), "Prices by time."),
    "/v1/octopus": _feed(JSON, _ref("Octopus"), "Unit rates, newest first."),
    "/v1/stream": {
        **_feed("text/event-stream", None, "An event for each release; its id is t."),
        "503": ("Too many listeners.", PROBLEM_JSON, PROBLEM),
    },
    "/v1/token": {
        "200": ("A token.", JSON, _ref("Token")),
        "400": _NO_TOKEN,
        "401": ("The id or the secret is wrong.", JSON, _ref("TokenError")),
        "429": ("Too many wrong secrets.", JSON, _ref("TokenError")),
        "503": _NO_TOKEN,
    },
    "POST /v1/session": {
        "204": ("Logged in; the session is in a cookie.", None, None),
        **dict.fromkeys(("400", "403", "408", "413", "415", "503"), _REFUSED),
        "401": ("The id or the secret is wrong.", PROBLEM_JSON, PROBLEM),
        "429": ("Too many wrong secrets.", PROBLEM_JSON, PROBLEM),
    },
    "GET /v1/session": {
        "200": ("Who is logged in.", JSON, _ref("Session")),
        "401": ("No session.", PROBLEM_JSON, PROBLEM),
    },
    "DELETE /v1/session": {
        "204": ("Logged out.", None, None),
        "403": ("Another site's page sent this.", PROBLEM_JSON, PROBLEM),
    },
    "/v1/promise": _of_zone(_ref("Promise"), "The promise in a sentence and in figures."),
    "/v1/tradeoff": _of_zone(_ref("Tradeoff"), "The error of the price by epsilon and eta."),
    "/v1/operator": {"200": ("All zones.", JSON, _ref("Operator"))},
    "/v1/operator/zone": _of_zone(_ref("OperatorZone"), "Loads, noise and budget of a zone."),
    "/v1/operator/certificate": {
        **_of_zone({"type": "object"}, "The certificate; docs/certificate.md has its keys."),
        "503": ("The ledger cannot be read now.", PROBLEM_JSON, PROBLEM),
    },
    "/v1/readings": {
        "200": ("How many readings were accepted, and why others were not.", JSON, _ref("Receipt")),
        **dict.fromkeys(("400", "408", "413", "415", "503"), _REFUSED),
    },
    "/v1/status": {"200": ("Status of each zone.", JSON, _ref("Status"))},
    "/v1/ledger": {
        "200": (
            "Records, one a line; docs/ledger.md has the format.",
            "application/x-ndjson",
            None,
        ),
        "400": ("A parameter cannot be used.", PROBLEM_JSON, PROBLEM),
        "404": ("No such zone.", PROBLEM_JSON, PROBLEM),
    },
    "/v1/openapi.json": {"200": ("OpenAPI 3.1.", JSON, {"type": "object"})},
    "/v1/docs": {"200": ("This page.", "text/html", None)},
    "/healthz": {"200": ("The process is up.", JSON, _ref("State"))},
    "/readyz": {
        "200": ("All zones are ready.", JSON, _ref("State")),
        "503": ("Some zones are not ready.", JSON, _ref("State")),
    },
    "/metrics": {"200": ("The text format.", "text/plain", None)},
}


STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "vertical-align:top}code{background:#eee;padding:0 .2rem}h2{margin-top:2rem;font-size:1.1rem}"
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_POLICY = (
    f"default-src 'self'; style-src 'sha256-{_DIGEST}'; frame-ancestors 'none';"
    " base-uri 'none'; form-action 'none'"
)
HOUR = "public, max-age=3600"


class Description:
    """Handlers of the description.

    Args:
        table: all routes.
    """

    def __init__(self, table: Sequence[Route]) -> None:
        self._openapi, self._page = describe(table), docs_page(table)
        self.handlers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "openapi": self._as_json,
            "docs": self._as_page,
        }

    async def _as_json(self, request: Request) -> Response:
        del request
        return JSONResponse(self._openapi, headers={"Cache-Control": HOUR})

    async def _as_page(self, request: Request) -> Response:
        del request
        headers = {"Cache-Control": HOUR, "Content-Security-Policy": PAGE_POLICY}
        return HTMLResponse(self._page, headers=headers)


def describe(table: Sequence[Route]) -> dict[str, Any]:
    """Make the OpenAPI description.

    Args:
        table: the routes.

    Returns:
        The OpenAPI document.
    """
    from hushgrid import __version__

    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hushgrid",
            "version": __version__,
            "description": "Real-time electricity prices that protect the occupancy of homes."
            " Prices per kWh, times in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    answers: dict[str, Any] = {
        status: _answer(*one) for status, one in _lookup(RESPONSES, route).items()
    }
    refusals = ["429", "500", "401"] + (["403"] if route.scopes else [])
    for status in refusals:
        answers.setdefault(status, _answer("Refused.", "application/problem+json", PROBLEM))
    made: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "responses": answers,
    }
    if route.path in PARAMETERS:
        made["parameters"] = PARAMETERS[route.path]
    if _lookup(BODIES, route):
        made["requestBody"] = _lookup(BODIES, route)
    if route.path == "/v1/readings":
        one = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": True, "content": dict.fromkeys(BY_MEDIA_TYPE, one)}
    if route.path == "/v1/operator/certificate":
        answers["200"]["content"]["text/html"] = {}
    if route.scopes:
        made["security"] = [{"bearer": list(route.scopes)}]
        if route.session:
            made["security"].append({"session": list(route.scopes)})
    return made


def _lookup(about: Mapping[str, Any], route: Route) -> Any:
    """Return the entry of a route: by method and path, or by path alone."""
    return about.get(f"{route.method} {route.path}", about.get(route.path))


def _name(route: Route) -> str:
    name = route.path.removeprefix("/v1/").replace("/", "-").replace(".", "-")
    return f"{route.method.lower()}-{name}" if route.path == "/v1/session" else name


def _answer(text: str, media: str | None = None, schema: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"description": text}
    if media is not None:
        made["content"] = {media: {"schema": schema} if schema is not None else {}}
    return made


def docs_page(table: Sequence[Route]) -> str:
    """Make the description as one HTML page that loads no other file.

    Args:
        table: the routes.

    Returns:
        The HTML.
    """
    parts = [_section(route) for route in table]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>hushgrid</title>'
        f"<style>{STYLE}</style></head><body><h1>hushgrid</h1>"
        "<p>Real-time electricity prices that protect the occupancy of homes. Prices per kWh,"
        ' times in UTC. As OpenAPI: <a href="/v1/openapi.json">openapi.json</a>.</p>'
        f"{''.join(parts)}</body></html>"
    )


def _section(route: Route) -> str:
    who = f"needs the scope {' or '.join(route.scopes)}" if route.scopes else "for anyone"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['description'])}</td></tr>"
        for one in PARAMETERS.get(route.path, ())
    )
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(one[0])}</td></tr>"
        for status, one in _lookup(RESPONSES, route).items()
    )
    return (
        f"<h2>{route.method} <code>{escape(route.path)}</code></h2>"
        f"<p>{escape(route.summary)} ({escape(who)})</p>"
        + (f"<table>{rows}</table>" if rows else "")
        + f"<table>{answers}</table>"
    )
