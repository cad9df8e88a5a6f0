"""What a handler is asked and may refuse; answers in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from hushgrid.live.access.grants import Grant


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose sender may do this; `now` in UTC epoch s. A body may be secret."""

    grant: Grant
    path: Mapping[str, str]
    query: Mapping[str, Any]
    now: int
    body: Any = field(default=None, repr=False)

    @property
    def client(self) -> str:
        """Who asks."""
        return self.grant.client or ""


class Refused(Exception):  # noqa: N818
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


def written(value: Any) -> bytes:
    """JSON in ASCII: whatever text somebody sent can be sent on."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(written(value), status, dict(headers or {}), "application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as OpenADR has it: a Problem of the type application/json."""
    title = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return answer(body, status, {"Cache-Control": "no-store", **(headers or {})})


def nothing(what: str) -> Refused:
    """There is none, or none that the sender may see: both look the same."""
    return Refused(404, f"There is no such {what}; ask for the list of those there are.")
