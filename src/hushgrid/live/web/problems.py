"""Errors as RFC 9457 has them: one sentence each, and nothing of a reading."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import AccessError
from hushgrid.live.delivery import Delivery

BEARER = {"WWW-Authenticate": "Bearer"}


def problem(
    status: int,
    detail: str,
    delivery: Delivery | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """An error; with what was taken before it, where something was."""
    body: dict[str, Any] = {"type": "about:blank", "status": status, "detail": detail, **more}
    if delivery is not None and any(delivery.receipt):
        body |= delivery.receipt._asdict() | {"problems": list(delivery.problems)}
    return JSONResponse(
        body,
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/problem+json",
    )


class UnfitError(Exception):
    """A parameter that cannot be used: its name, its value and the fix."""

    def __init__(self, field: str, value: str | None, fix: str, status: int = 400) -> None:
        super().__init__(field)
        self.field, self.value, self.fix, self.status = field, value, fix, status

    def answer(self) -> Response:
        """As a problem."""
        said = "missing" if self.value is None else repr(self.value[:60])
        return problem(
            self.status,
            f"{self.field} is {said}; {self.fix}.",
            field=self.field,
            value=None if self.value is None else self.value[:60],
            fix=f"{self.fix}.",
        )


def turned_away(error: AccessError) -> Response:
    """Why somebody may not."""
    if error.kind == "slow_down":
        return problem(429, str(error), headers={"Retry-After": str(math.ceil(error.wait))})
    if error.kind == "server_error":
        return problem(503, "Clients cannot be looked up now; try again.", headers=RETRY)
    return problem(401, str(error), headers=BEARER)


def openadr(refusal: Response) -> Response:
    """A problem as OpenADR has it: plain JSON with a title."""
    body = json.loads(bytes(refusal.body))
    made = {"title": HTTPStatus(refusal.status_code).phrase, **body}
    headers = {k: v for k, v in refusal.headers.items() if not k.startswith("content-")}
    return JSONResponse(made, refusal.status_code, headers)


RETRY = {"Retry-After": "5"}


async def refused(request: Request, error: Exception) -> Response:
    """What the framework refuses."""
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = {404: "There is nothing here.", 405: "This method is not for this path."}
    headers = getattr(error, "headers", None)
    return problem(status, said.get(status, "The request cannot be answered."), headers=headers)


async def failed(request: Request, error: Exception) -> Response:
    """What nobody foresaw."""
    del request, error  # uvicorn logs its type and place
    return problem(500, "The service failed; the fault is logged.")
