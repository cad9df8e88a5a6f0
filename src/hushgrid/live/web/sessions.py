"""/v1/session: log in with a client's secret, see who one is, log out."""

from __future__ import annotations

import json
from typing import Any

from anyio import CapacityLimiter, fail_after, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import AccessError
from hushgrid.live.access import NOBODY
from hushgrid.live.access.sessions import Sessions
from hushgrid.live.web.cookies import NAME, ours, session_in
from hushgrid.live.web.front import asked
from hushgrid.live.web.problems import BEARER, UnfitError, problem, turned_away

LARGEST = 10_000  # [bytes] of a body
PATIENCE = 10.0  # [s] for it to arrive
AT_ONCE = 8
NO_STORE = {"Cache-Control": "no-store"}


class SessionWays:
    """Handlers; `tls`: this server has TLS of its own."""

    def __init__(self, sessions: Sessions, tls: bool) -> None:
        self._sessions, self._tls = sessions, tls
        self._threads: CapacityLimiter | None = None

    async def begin(self, request: Request) -> Response:
        """POST: a session in a cookie; the one that came along ends."""
        if not ours(request.scope["headers"], told=False):
            return _elsewhere()
        try:
            client, secret = await _wanted(request)
            if self._threads is None:
                self._threads = CapacityLimiter(AT_ONCE)
            made = await to_thread.run_sync(
                self._sessions.begin,
                client,
                secret,
                asked(request.scope).sender,
                limiter=self._threads,
            )
        except UnfitError as error:
            return error.answer()
        except AccessError as error:
            return turned_away(error)
        self._sessions.end(session_in(request.scope["headers"]))
        answer = Response(status_code=204, headers=NO_STORE)
        self._set(request, answer, made.text, made.expires_in)
        return answer

    async def see(self, request: Request) -> Response:
        """GET: who one is."""
        grant = asked(request.scope).grant
        if grant is NOBODY:
            return problem(401, "Nobody is logged in; log in with POST.", headers=BEARER)
        return JSONResponse(
            {"client": grant.client, "scopes": sorted(grant.scopes)}, headers=NO_STORE
        )

    async def end(self, request: Request) -> Response:
        """DELETE: the session has ended, here and in the browser."""
        found = session_in(request.scope["headers"])
        if found is not None and not ours(request.scope["headers"], told=True):
            return _elsewhere()
        self._sessions.end(found)
        answer = Response(status_code=204, headers=NO_STORE)
        self._set(request, answer, "", 0)
        return answer

    def _set(self, request: Request, answer: Response, text: str, seconds: int) -> None:
        # a proxy in front may have TLS; who lies about that keeps only their own cookie back
        forwarded = request.headers.get("x-forwarded-proto", "").strip().lower() == "https"
        answer.set_cookie(
            NAME,
            text,
            max_age=seconds,
            path="/",
            secure=self._tls or forwarded,
            httponly=True,
            samesite="strict",
        )


def _elsewhere() -> Response:
    return problem(403, "Another site's page sent this; do it on the service's own page.")


async def _wanted(request: Request) -> tuple[str, str]:
    """Id and secret of a body."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":  # which no other site's form can send
        raise UnfitError("Content-Type", media, "send application/json", status=415)
    body = b""
    try:
        with fail_after(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST:
                    raise UnfitError("body", "too long", f"send at most {LARGEST} bytes", 413)
    except (TimeoutError, ClientDisconnect):
        raise UnfitError("body", "incomplete", "send it at once", 408) from None
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnfitError("body", "no JSON object", 'send {"client": ..., "secret": ...}')
    for name in ("client", "secret"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise UnfitError(name, None, "give the text of hushgrid client add")
    return found["client"], found["secret"]
