"""The demo's own paths: /demo/state, /demo/stream and /demo/day."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from anyio import fail_after
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hushgrid.live.demo.channel import Channel
from hushgrid.live.demo.setting import LIMITS, Dials
from hushgrid.live.demo.show import Show
from hushgrid.live.web.problems import UnfitError, problem

LARGEST, PATIENCE = 10_000, 10.0  # [bytes] of a body, [s] for it to come
JSON = "application/json"


def demo_routes(show: Show, channel: Channel, ask: Callable[[Dials], None]) -> list[BaseRoute]:
    """The paths of the adversary panel; `ask` has the day begin again under other dials."""

    async def state(request: Request) -> Response:
        del request
        return JSONResponse(show.state(), headers={"Cache-Control": "no-store"})

    async def day(request: Request) -> Response:
        try:
            dials = _dials(await _body(request))
        except UnfitError as error:
            return error.answer()
        except (ClientDisconnect, TimeoutError):
            return problem(408, "The body did not come; send it at once.")
        ask(dials)
        told = {"epsilon": dials.epsilon, "eta": dials.eta}
        return JSONResponse(told, 202, {"Cache-Control": "no-store"})

    return [
        Route("/demo/state", state, methods=["GET"]),
        Route("/demo/stream", channel.stream, methods=["GET"]),
        Route("/demo/day", day, methods=["POST"]),
    ]


async def _body(request: Request) -> Any:
    # A page of another origin cannot send this type without asking first, and nobody answers it.
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != JSON:
        raise UnfitError("Content-Type", media, f"send {JSON}", 415)
    body = b""
    with fail_after(PATIENCE):
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST:
                raise UnfitError("body", None, f"send at most {LARGEST} bytes", 413)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UnfitError("body", "not JSON", 'send {"epsilon": 1, "eta": 0.05}') from None


def _dials(body: Any) -> Dials:
    if not isinstance(body, dict):
        raise UnfitError("body", "no object", 'send {"epsilon": 1, "eta": 0.05}')
    found: dict[str, float] = {}
    for name, (low, high) in LIMITS.items():
        value = body.get(name)
        fix = f"give a number from {low:g} to {high:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnfitError(name, None if value is None else str(value), fix)
        if not low <= value <= high:  # nor is NaN
            raise UnfitError(name, str(value), fix)
        found[name] = float(value)
    return Dials(**found)
