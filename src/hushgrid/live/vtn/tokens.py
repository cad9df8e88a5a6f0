"""OAuth2 client credentials as OpenADR has them: /auth/token with the errors of its list alone."""

from __future__ import annotations

import math

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response

from hushgrid.errors import AccessError
from hushgrid.live.access import Access
from hushgrid.live.vtn.answers import answer
from hushgrid.live.web.front import asked
from hushgrid.live.web.tokens import wanted_by

AT_ONCE = 8
_FRESH = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OpenAdrTokens:
    """Gives out tokens; the scope that was asked for comes back as it was."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._threads: CapacityLimiter | None = None  # made inside the event loop

    async def token(self, request: Request) -> Response:
        """POST /auth/token."""
        if self._threads is None:
            self._threads = CapacityLimiter(AT_ONCE)
        try:
            wanted = await wanted_by(request)
            made = await to_thread.run_sync(
                self._access.token, *wanted, asked(request.scope).sender, limiter=self._threads
            )
        except AccessError as error:
            return _refused(error)
        body = {
            "access_token": made.access_token,
            "token_type": "Bearer",
            "expires_in": made.expires_in,
            "scope": " ".join(wanted.scopes or made.scopes),
        }
        return answer(body, headers=_FRESH)


def _refused(error: AccessError) -> Response:
    """An error by the words of RFC 6749, 5.2; the others go on."""
    if error.kind == "server_error":
        raise error
    headers = dict(_FRESH)
    word, status = error.kind, 400
    if error.kind in ("invalid_client", "slow_down"):
        # the list has no word for guessing too often: Retry-After says how long to wait
        word, status = "invalid_client", 401
        headers["WWW-Authenticate"] = 'Basic realm="hushgrid"'
        if error.wait:
            headers["Retry-After"] = str(math.ceil(error.wait))
    return answer({"error": word, "error_description": str(error)}, status, headers)
