"""OAuth2 client credentials (RFC 6749): secrets in a form or as HTTP Basic."""

from __future__ import annotations

import base64
import binascii
import math
from urllib.parse import parse_qsl

from starlette.responses import Response

from hushgrid.errors import AccessError
from hushgrid.live.access import Access
from hushgrid.live.vtn.answers import answer

LIMIT = 16 << 10  # [bytes] of a form
_FRESH = {"Cache-Control": "no-store", "Pragma": "no-cache"}


def token(access: Access, form: bytes, authorization: str | None, address: str | None) -> Response:
    """POST /auth/token. Takes some time of a processor: call it in a thread."""
    try:
        pairs = parse_qsl(form.decode("ascii"), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return _error(400, "invalid_request", "The body is not a form; send one.")
    given = dict(pairs)
    if len(given) < len(pairs):
        return _error(400, "invalid_request", "A parameter comes twice; send each once.")
    grant_type = given.get("grant_type")
    if grant_type is None:
        return _error(400, "invalid_request", "grant_type is missing; give client_credentials.")
    if grant_type != "client_credentials":
        return _error(400, "unsupported_grant_type", "grant_type must be client_credentials.")
    found = _credentials(given, authorization)
    if found is None:
        return _unknown("client_id and client_secret are missing, or not the same twice.")
    scope = given.get("scope", "")
    try:
        made = access.token(*found, scope.split(), address)
    except AccessError as error:
        return _refused(error)
    body = {
        "access_token": made.access_token,
        "token_type": "Bearer",
        "expires_in": made.expires_in,
        "scope": scope if scope.split() else " ".join(made.scopes),
    }
    return answer(body, headers=_FRESH)


def _credentials(given: dict[str, str], authorization: str | None) -> tuple[str, str] | None:
    """Id and secret; those of the form and of the header must not contradict each other."""
    name, secret = given.get("client_id"), given.get("client_secret")
    scheme, _, text = (authorization or "").strip().partition(" ")
    if scheme.lower() == "basic":
        try:
            told = base64.b64decode(text.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return None
        user, colon, password = told.partition(":")
        if not colon or name not in (None, user) or secret not in (None, password):
            return None
        name, secret = user, password
    return (name, secret) if name and secret else None


def _refused(error: AccessError) -> Response:
    if error.kind == "invalid_client":
        return _unknown(str(error))
    if error.kind == "slow_down":
        # the standard's list of errors has no word for it; Retry-After says how long
        headers = {"Retry-After": str(math.ceil(error.wait)), "WWW-Authenticate": "Basic"}
        return _error(401, "invalid_client", str(error), headers)
    if error.kind == "invalid_scope":
        return _error(400, "invalid_scope", str(error))
    raise error


def _unknown(text: str) -> Response:
    return _error(401, "invalid_client", text, {"WWW-Authenticate": 'Basic realm="hushgrid"'})


def _error(status: int, word: str, text: str, headers: dict[str, str] | None = None) -> Response:
    said = {"error": word, "error_description": text}
    return answer(said, status, _FRESH | (headers or {}))
