"""POST /v1/token: a token for a client's id and secret, as OAuth 2 has it (RFC 6749, 4.4)."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from anyio import CapacityLimiter, fail_after, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import AccessError
from hushgrid.service.access.clients import ANONYMOUS
from hushgrid.service.access.tokens import Access, Sessions
from hushgrid.service.http.common import (
    BEARER,
    NAME,
    UnfitError,
    ours,
    problem,
    session_in,
    turned_away,
)
from hushgrid.service.http.middleware import caller_of

LARGEST = 10_000  # [bytes] of a form
PATIENCE = 10.0  # [s] for a form to arrive
AT_ONCE = 8
STATUS = {"invalid_client": 401, "slow_down": 429, "server_error": 503}


class Wanted(NamedTuple):
    """What a form asks for."""

    client: str
    secret: str
    scopes: tuple[str, ...]


class Tokens:
    """Gives out tokens."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._threads: CapacityLimiter | None = None

    async def token(self, request: Request) -> Response:
        """POST /v1/token."""
        try:
            wanted = await wanted_by(request)
            if self._threads is None:
                self._threads = CapacityLimiter(AT_ONCE)
            made = await to_thread.run_sync(
                self._access.token, *wanted, caller_of(request.scope).sender, limiter=self._threads
            )
        except AccessError as error:
            return error_answer(error)
        return JSONResponse(
            {
                "access_token": made.access_token,
                "token_type": "Bearer",
                "expires_in": made.expires_in,
                "scope": " ".join(made.scopes),
            },
            headers={"Cache-Control": "no-store"},
        )


def error_answer(error: AccessError) -> Response:
    """An error of the token endpoint (RFC 6749, 5.2)."""
    headers = {"Cache-Control": "no-store"}
    if error.kind == "invalid_client":
        headers["WWW-Authenticate"] = 'Basic realm="hushgrid"'
    if error.kind in ("slow_down", "server_error"):
        headers["Retry-After"] = str(max(math.ceil(error.wait), 1))
    said = "Clients cannot be looked up now; try again."
    said = said if error.kind == "server_error" else str(error)
    body = {"error": error.kind, "error_description": said}
    return JSONResponse(body, STATUS.get(error.kind, 400), headers)


async def wanted_by(request: Request) -> Wanted:
    """What a request asks for; AccessError where it cannot be read."""
    body = b""
    try:
        with fail_after(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST:
                    raise AccessError("invalid_request", f"The form is beyond {LARGEST} bytes.")
    except (TimeoutError, ClientDisconnect):
        raise AccessError("invalid_request", "The form did not come in time.") from None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise AccessError(
            "invalid_request", "The body is no form; send application/x-www-form-urlencoded."
        )
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise AccessError("invalid_request", "The form cannot be read; encode it.") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise AccessError("invalid_request", "A field comes twice; give each once.")
    if "grant_type" not in form:
        raise AccessError("invalid_request", "grant_type is missing; give client_credentials.")
    if form["grant_type"] != "client_credentials":
        raise AccessError("unsupported_grant_type", "grant_type must be client_credentials.")
    basic = _basic(request.headers.get("authorization", ""))
    client, secret = basic or (form.get("client_id", ""), form.get("client_secret", ""))
    if not client or not secret:
        raise AccessError(
            "invalid_client", "client_id and client_secret are missing; give both, or HTTP Basic."
        )
    return Wanted(client, secret, tuple(form.get("scope", "").split()))


def _basic(header: str) -> tuple[str, str] | None:
    """Id and secret of HTTP Basic; both are encoded as in a form (RFC 6749, 2.3.1)."""
    scheme, _, coded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(coded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    client, colon, secret = text.partition(":")
    return (unquote_plus(client), unquote_plus(secret)) if colon else None


# --------------------------------------------------------------------------------------------------
# /v1/session: log in with a client's secret, see who one is, log out.


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
                caller_of(request.scope).sender,
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
        grant = caller_of(request.scope).grant
        if grant is ANONYMOUS:
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
