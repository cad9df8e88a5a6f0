"""What the service offers, for machines (OpenAPI 3.1) and as a page of its own for people."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hushgrid.live.formats import BY_MEDIA_TYPE
from hushgrid.live.web.cookies import NAME
from hushgrid.live.web.routes import Route
from hushgrid.live.web.schemas import BODIES, PARAMETERS, PROBLEM, RESPONSES, SCHEMAS

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
    """Made once from the table of paths."""

    def __init__(self, table: Sequence[Route]) -> None:
        self._openapi, self._page = described(table), page(table)
        self.handlers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "openapi": self._machines,
            "docs": self._people,
        }

    async def _machines(self, request: Request) -> Response:
        del request
        return JSONResponse(self._openapi, headers={"Cache-Control": HOUR})

    async def _people(self, request: Request) -> Response:
        del request
        headers = {"Cache-Control": HOUR, "Content-Security-Policy": PAGE_POLICY}
        return HTMLResponse(self._page, headers=headers)


def described(table: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI description of some paths."""
    from hushgrid import __version__

    paths: dict[str, dict[str, Any]] = {}
    for way in table:
        paths.setdefault(way.path, {})[way.method.lower()] = _operation(way)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hushgrid",
            "version": __version__,
            "description": "Real-time electricity prices that give away nobody's occupancy."
            " Everything per kWh, times in UTC.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": NAME},
            },
        },
    }


def _operation(way: Route) -> dict[str, Any]:
    answers: dict[str, Any] = {
        status: _answer(*said) for status, said in _said(RESPONSES, way).items()
    }
    refusals = ["429", "500", "401"] + (["403"] if way.scopes else [])
    for status in refusals:
        answers.setdefault(status, _answer("Refused.", "application/problem+json", PROBLEM))
    made: dict[str, Any] = {
        "operationId": _name(way),
        "summary": way.summary,
        "responses": answers,
    }
    if way.path in PARAMETERS:
        made["parameters"] = PARAMETERS[way.path]
    if _said(BODIES, way):
        made["requestBody"] = _said(BODIES, way)
    if way.path == "/v1/readings":
        one = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": True, "content": dict.fromkeys(BY_MEDIA_TYPE, one)}
    if way.path == "/v1/operator/certificate":
        answers["200"]["content"]["text/html"] = {}
    if way.scopes:
        made["security"] = [{"bearer": list(way.scopes)}]
        if way.session:
            made["security"].append({"session": list(way.scopes)})
    return made


def _said(about: Mapping[str, Any], way: Route) -> Any:
    """What is said of a way: under its method and path, or under its path alone."""
    return about.get(f"{way.method} {way.path}", about.get(way.path))


def _name(way: Route) -> str:
    name = way.path.removeprefix("/v1/").replace("/", "-").replace(".", "-")
    return f"{way.method.lower()}-{name}" if way.path == "/v1/session" else name


def _answer(text: str, media: str | None = None, schema: Any = None) -> dict[str, Any]:
    made: dict[str, Any] = {"description": text}
    if media is not None:
        made["content"] = {media: {"schema": schema} if schema is not None else {}}
    return made


def page(table: Sequence[Route]) -> str:
    """The description as one page that loads nothing."""
    parts = [_section(way) for way in table]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>hushgrid</title>'
        f"<style>{STYLE}</style></head><body><h1>hushgrid</h1>"
        "<p>Real-time electricity prices that give away nobody's occupancy. Everything per kWh,"
        ' times in UTC. For machines: <a href="/v1/openapi.json">openapi.json</a>.</p>'
        f"{''.join(parts)}</body></html>"
    )


def _section(way: Route) -> str:
    who = f"needs the scope {' or '.join(way.scopes)}" if way.scopes else "for anyone"
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['description'])}</td></tr>"
        for one in PARAMETERS.get(way.path, ())
    )
    answers = "".join(
        f"<tr><td>{status}</td><td>{escape(said[0])}</td></tr>"
        for status, said in _said(RESPONSES, way).items()
    )
    return (
        f"<h2>{way.method} <code>{escape(way.path)}</code></h2>"
        f"<p>{escape(way.summary)} ({escape(who)})</p>"
        + (f"<table>{rows}</table>" if rows else "")
        + f"<table>{answers}</table>"
    )
