"""/v1/token: OAuth 2 client credentials (RFC 6749, 4.4). /v1/session: log in and out."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
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
    COOKIE,
    NO_STORE,
    ParameterError,
    access_problem,
    problem,
    same_origin,
    session_cookie,
)
from hushgrid.service.http.middleware import caller_of

LARGEST = 10_000  # [bytes] of a form
PATIENCE = 10.0  # [s] for a form to arrive
AT_ONCE = 8
STATUS = {"invalid_client": 401, "slow_down": 429, "server_error": 503}


class TokenRequest(NamedTuple):
    """Fields of a token request.

    Attributes:
        client: id of the client.
        secret: its secret.
        scopes: the requested scopes; empty for all of the client's.
    """

    client: str
    secret: str
    scopes: tuple[str, ...]


class Tokens:
    """Handler of a token endpoint.

    Args:
        access: makes the tokens.
        refuse: makes the answer to an error; `token_error` if absent.
        headers: of an answer with a token.
        echo: the answer repeats the requested scope instead of the granted one.
    """

    def __init__(
        self,
        access: Access,
        refuse: Callable[[AccessError], Response] | None = None,
        headers: Mapping[str, str] = NO_STORE,
        *,
        echo: bool = False,
    ) -> None:
        self._access, self._refuse = access, refuse or token_error
        self._headers, self._echo = headers, echo
        self._threads: CapacityLimiter | None = None

    async def token(self, request: Request) -> Response:
        """POST of a client's credentials."""
        try:
            wanted = await read_token_request(request)
            if self._threads is None:
                self._threads = CapacityLimiter(AT_ONCE)
            made = await to_thread.run_sync(
                self._access.token, *wanted, caller_of(request.scope).sender, limiter=self._threads
            )
        except AccessError as error:
            return self._refuse(error)
        return JSONResponse(
            {
                "access_token": made.access_token,
                "token_type": "Bearer",
                "expires_in": made.expires_in,
                "scope": " ".join((self._echo and wanted.scopes) or made.scopes),
            },
            headers=self._headers,
        )


def token_error(error: AccessError) -> Response:
    """Make an error answer of the token endpoint (RFC 6749, 5.2).

    Args:
        error: the reason.

    Returns:
        The response.
    """
    headers = dict(NO_STORE)
    if error.kind == "invalid_client":
        headers["WWW-Authenticate"] = 'Basic realm="hushgrid"'
    if error.kind in ("slow_down", "server_error"):
        headers["Retry-After"] = str(max(math.ceil(error.wait), 1))
    away = "Clients cannot be looked up now; try again."
    detail = away if error.kind == "server_error" else str(error)
    body = {"error": error.kind, "error_description": detail}
    return JSONResponse(body, STATUS.get(error.kind, 400), headers)


async def read_token_request(request: Request) -> TokenRequest:
    """Read the form of a token request, with credentials in the form or by HTTP Basic.

    Args:
        request: the request.

    Returns:
        Its fields.

    Raises:
        AccessError: if the form is too large, late, malformed or incomplete.
    """
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
    return TokenRequest(client, secret, tuple(form.get("scope", "").split()))


def _basic(header: str) -> tuple[str, str] | None:
    """Read id and secret of HTTP Basic; both are form-encoded (RFC 6749, 2.3.1)."""
    scheme, _, coded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(coded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    client, colon, secret = text.partition(":")
    return (unquote_plus(client), unquote_plus(secret)) if colon else None


class SessionHandlers:
    """Handlers of /v1/session.

    Args:
        sessions: the sessions of the process.
        tls: this server has TLS of its own.
    """

    def __init__(self, sessions: Sessions, tls: bool) -> None:
        self._sessions, self._tls = sessions, tls
        self._threads: CapacityLimiter | None = None

    async def begin(self, request: Request) -> Response:
        """POST: begin a session in a cookie and end the one of the request."""
        if not same_origin(request.scope["headers"], required=False):
            return _cross_site()
        try:
            client, secret = await _credentials(request)
            if self._threads is None:
                self._threads = CapacityLimiter(AT_ONCE)
            made = await to_thread.run_sync(
                self._sessions.begin,
                client,
                secret,
                caller_of(request.scope).sender,
                limiter=self._threads,
            )
        except AccessError as error:
            return access_problem(error)
        self._sessions.end(session_cookie(request.scope["headers"]))
        answer = Response(status_code=204, headers=NO_STORE)
        self._set(request, answer, made.text, made.expires_in)
        return answer

    async def see(self, request: Request) -> Response:
        """GET: client and scopes of the session."""
        grant = caller_of(request.scope).grant
        if grant is ANONYMOUS:
            return problem(401, "No session; log in with POST.", headers=BEARER)
        return JSONResponse(
            {"client": grant.client, "scopes": sorted(grant.scopes)}, headers=NO_STORE
        )

    async def end(self, request: Request) -> Response:
        """DELETE: end the session, here and in the browser."""
        found = session_cookie(request.scope["headers"])
        if found is not None and not same_origin(request.scope["headers"], required=True):
            return _cross_site()
        self._sessions.end(found)
        answer = Response(status_code=204, headers=NO_STORE)
        self._set(request, answer, "", 0)
        return answer

    def _set(self, request: Request, answer: Response, text: str, seconds: int) -> None:
        # a proxy may have TLS; a false claim only withholds the sender's own cookie
        forwarded = request.headers.get("x-forwarded-proto", "").strip().lower() == "https"
        answer.set_cookie(
            COOKIE,
            text,
            max_age=seconds,
            path="/",
            secure=self._tls or forwarded,
            httponly=True,
            samesite="strict",
        )


def _cross_site() -> Response:
    return problem(403, "Another site's page sent this; do it on the service's own page.")


async def _credentials(request: Request) -> tuple[str, str]:
    """Read id and secret from a JSON body."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":  # which no other site's form can send
        raise ParameterError("Content-Type", media, "send application/json", status=415)
    body = b""
    try:
        with fail_after(PATIENCE):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST:
                    raise ParameterError("body", "too long", f"send at most {LARGEST} bytes", 413)
    except (TimeoutError, ClientDisconnect):
        raise ParameterError("body", "incomplete", "send it at once", 408) from None
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ParameterError("body", "no JSON object", 'send {"client": ..., "secret": ...}')
    for name in ("client", "secret"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise ParameterError(name, None, "give the text of hushgrid client add")
    return found["client"], found["secret"]
