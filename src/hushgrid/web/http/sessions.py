"""/v1/token: OAuth 2 client credentials (RFC 6749, 4.4). /v1/session: log in and out."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import AccessError
from hushgrid.stores.clients import ANONYMOUS
from hushgrid.web.http import models
from hushgrid.web.http.common import (
    COOKIE,
    ParameterError,
    Refusal,
    refusals,
    same_origin,
    session_cookie,
)
from hushgrid.web.http.middleware import BY_SESSION, caller_of
from hushgrid.web.tokens import Access, Sessions

NO_STORE = {"Cache-Control": "no-store"}
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
        self._threads = CapacityLimiter(AT_ONCE)

    async def token(self, request: Request) -> Response:
        """POST of a client's credentials."""
        try:
            token_request = await read_token_request(request)
            grant = await to_thread.run_sync(
                self._access.token,
                *token_request,
                caller_of(request.scope).sender,
                limiter=self._threads,
            )
        except AccessError as error:
            return self._refuse(error)
        return JSONResponse(
            {
                "access_token": grant.access_token,
                "token_type": "Bearer",
                "expires_in": grant.expires_in,
                "scope": " ".join((self._echo and token_request.scopes) or grant.scopes),
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
    unavailable = "Clients cannot be looked up now; try again."
    detail = unavailable if error.kind == "server_error" else str(error)
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
    try:
        body = await request.body()
    except Refusal as error:
        raise AccessError("invalid_request", error.detail) from None
    except ClientDisconnect:
        raise AccessError("invalid_request", "The form ended before its end.") from None
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
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    client, colon, secret = text.partition(":")
    return (unquote_plus(client), unquote_plus(secret)) if colon else None


def add_token(router: APIRouter, access: Access) -> None:
    """Add the route of tokens.

    Args:
        router: gets the route.
        access: makes tokens.
    """
    form = {"application/x-www-form-urlencoded": {"schema": models.TokenForm.model_json_schema()}}
    error: dict[str, Any] = {"model": models.TokenError, "description": "No token."}
    router.post(
        "/v1/token",
        summary="A token for a client's id and secret.",
        response_class=JSONResponse,
        response_model=models.TokenAnswer,
        responses=dict.fromkeys((400, 401, 429, 503), error),
        openapi_extra={"requestBody": {"required": True, "content": form}},
    )(Tokens(access).token)


def add_session(router: APIRouter, sessions: Sessions, tls: bool) -> None:
    """Add the routes that log in and out.

    Args:
        router: gets the routes.
        sessions: the sessions of the process.
        tls: this server has TLS of its own.
    """
    threads = CapacityLimiter(AT_ONCE)

    def with_cookie(request: Request, text: str, seconds: int) -> Response:
        # a proxy may have TLS; a false claim only withholds the sender's own cookie
        forwarded = request.headers.get("x-forwarded-proto", "").strip().lower() == "https"
        answer = Response(status_code=204)
        answer.set_cookie(
            COOKIE,
            text,
            max_age=seconds,
            path="/",
            secure=tls or forwarded,
            httponly=True,
            samesite="strict",
        )
        return answer

    @router.post(
        "/v1/session",
        summary="Log in: a session in a cookie.",
        status_code=204,
        responses=refusals(
            dict.fromkeys((400, 403, 408, 413, 415, 503), "The body cannot be taken.")
            | {401: "The id or the secret is wrong.", 429: "Too many wrong secrets."}
        ),
        dependencies=[Depends(_same_origin), Depends(json_only)],
    )
    async def log_in(request: Request, login: models.Login) -> Response:
        sender = caller_of(request.scope).sender
        session = await to_thread.run_sync(
            sessions.begin, login.client, login.secret, sender, limiter=threads
        )
        sessions.end(session_cookie(request.scope["headers"]))
        return with_cookie(request, session.text, session.expires_in)

    @router.get(
        "/v1/session",
        summary="Who is logged in.",
        response_model=models.SessionAnswer,
        dependencies=[BY_SESSION],
    )
    async def session(request: Request) -> dict[str, Any]:
        grant = caller_of(request.scope).grant
        if grant is ANONYMOUS:
            raise Refusal(401, "No session; log in with POST.", {"WWW-Authenticate": "Bearer"})
        return {"client": grant.client, "scopes": sorted(grant.scopes)}

    @router.delete(
        "/v1/session",
        summary="Log out.",
        status_code=204,
        responses=refusals({403: "Another site's page sent this."}),
    )
    async def log_out(request: Request) -> Response:
        cookie = session_cookie(request.scope["headers"])
        if cookie is not None:
            _check_origin(request, required=True)
        sessions.end(cookie)
        return with_cookie(request, "", 0)


def _check_origin(request: Request, *, required: bool) -> None:
    if not same_origin(request.scope["headers"], required=required):
        raise Refusal(403, "Another site's page sent this; do it on the service's own page.")


async def _same_origin(request: Request) -> None:
    _check_origin(request, required=False)


async def json_only(request: Request) -> None:
    """Refuse other bodies than JSON, which no other site's form can send.

    Args:
        request: the request.

    Raises:
        ParameterError: if its content type is another one.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise ParameterError("Content-Type", media, "send application/json", status=415)
