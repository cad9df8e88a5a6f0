"""/v1/operator: what operators see. Nothing of it may be kept on the way to them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from hushgrid.errors import HushgridError
from hushgrid.live.operator.view import Operator
from hushgrid.live.web.feeds import zone_asked
from hushgrid.live.web.front import Handler
from hushgrid.live.web.problems import RETRY, UnfitError, problem

NO_STORE = {"Cache-Control": "no-store"}
FORMATS = ("json", "html")

Certify = Callable[[str], dict[str, Any]]


def no_certificate(zone: str) -> dict[str, Any]:
    """Where there is no ledger to certify from."""
    raise HushgridError(f"zone {zone!r} has no ledger here; ask a running hushgrid serve.")


class OperatorWays:
    """Handlers, by name."""

    def __init__(self, operator: Operator, zones: Iterable[str], certify: Certify) -> None:
        self._operator, self._zones, self._certify = operator, tuple(zones), certify
        self._threads: dict[str, CapacityLimiter] = {}
        self.handlers: dict[str, Handler] = {
            "zones": self._all,
            "zone": self._zone,
            "certificate": self._certificate,
        }

    async def _all(self, request: Request) -> Response:
        del request
        found = await to_thread.run_sync(self._operator.summary, limiter=self._limiter("zones", 2))
        return JSONResponse(found, headers=NO_STORE)

    async def _zone(self, request: Request) -> Response:
        try:
            name = zone_asked(request.query_params, self._zones)
        except UnfitError as error:
            return error.answer()
        found = await to_thread.run_sync(
            self._operator.zone, name, limiter=self._limiter("zone", 4)
        )
        return JSONResponse(found, headers=NO_STORE)

    async def _certificate(self, request: Request) -> Response:
        try:
            name = zone_asked(request.query_params, self._zones)
            form = request.query_params.get("format", "json")
            if form not in FORMATS:
                raise UnfitError("format", form, f"give one of {', '.join(FORMATS)}")
        except UnfitError as error:
            return error.answer()
        try:
            values = await to_thread.run_sync(
                self._certify, name, limiter=self._limiter("certificate", 1)
            )
        except (HushgridError, OSError):  # a store's own words may name a host or a file
            return problem(503, "The ledger cannot be read now; try again.", headers=RETRY)
        if form == "json":
            return JSONResponse(values, headers=NO_STORE)
        return await to_thread.run_sync(_page, values)

    def _limiter(self, name: str, most: int) -> CapacityLimiter:
        """Threads of our own: who waits for a store holds up no one else."""
        if name not in self._threads:
            self._threads[name] = CapacityLimiter(most)
        return self._threads[name]


def _page(values: dict[str, Any]) -> Response:
    from hushgrid.report import certificate_page

    page = certificate_page(values)
    styles = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in styles]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = (
        f"default-src 'none'; style-src {allowed}; frame-ancestors 'none'; base-uri 'none';"
        " form-action 'none'"
    )
    return HTMLResponse(page, headers={**NO_STORE, "Content-Security-Policy": policy})
