"""Paths of the pages: each a frame filled with names of zones, and nothing else.

What a page shows it asks for itself, from the ways under /v1 that anybody (or, on the operator's
page, an operator) may ask. So a page's bytes are the same whatever the meters say.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from html import escape
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hushgrid.live.pages.files import StaticBody, assets, frame

HTML = "text/html; charset=utf-8"
Handler = Callable[[Request], Awaitable[Response]]

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
    """The pages of a service; `demo` adds the adversary, whose data only the demo has."""
    pages = _Pages(tuple(zones), demo)
    routes: dict[str, Handler] = {
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
    return [Route(path, handler, methods=["GET"]) for path, handler in routes.items()]


async def _asset(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        return Response("There is nothing here.\n", 404, media_type="text/plain")
    return found.answer(request)


async def _icon(request: Request) -> Response:
    return assets()["icon.svg"].answer(request)


class _Pages:
    """Pages by their name and zone, each made once."""

    def __init__(self, zones: tuple[str, ...], demo: bool) -> None:
        self._zones, self._demo = zones, demo
        self._made = cache(self._make)

    async def home(self, request: Request) -> Response:
        """The zone's page where there is one alone, else the list."""
        if len(self._zones) == 1:
            return self._made("zone", self._zones[0]).answer(request)
        return self._made("zones", None).answer(request)

    async def zone(self, request: Request) -> Response:
        """GET /zones/{zone}."""
        return self._give(request, "zone", request.path_params["zone"])

    def of(self, name: str, cache: str = "no-cache") -> Handler:
        """A page that may be about a zone."""

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
        fields["main"] = filled(frame(name), fields)
        return StaticBody.of(filled(frame("layout"), fields).encode(), HTML)

    def _links(self, name: str, zone: str | None) -> str:
        """The links on top; they stay with the zone."""
        many = len(self._zones) > 1
        about = f"?zone={quote(zone, safe='')}" if many and zone is not None else ""
        shown = [("zones", "/", "Zones")] if many else []
        if not many or zone is not None:
            shown.append(("zone", _address(zone) if many and zone else "/", NAMES["zone"]))
        if self._demo:
            shown.append(("demo", "/demo", NAMES["demo"]))
        shown += [(one, f"/{one}{about}", NAMES[one]) for one in ("how", "explore")]
        shown.append(("operator", f"/operator{about}", NAMES["operator"]))
        return "".join(
            f'<li><a href="{escape(where)}"{_here(one == name)}>{text}</a></li>'
            for one, where, text in shown
        )

    def _choice(self, name: str, zone: str | None) -> str:
        """A list to choose a zone from; nothing where there is one alone."""
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


def filled(text: str, fields: Mapping[str, str]) -> str:
    """A frame with its fields in place; what is filled in is not looked at again.

    >>> filled("<p>{{one}}, {{two}}</p>", {"one": "{{two}}", "two": "2"})
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
