"""The HTTP face: readings in (authenticated), prices and figures out (anonymous).

A body is parsed while it arrives, in a thread that asks for the next piece when it has stored the
last: memory stays bounded, and a slow disk slows the sender down.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from typing import Any

import anyio
from anyio import from_thread, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hushgrid.errors import ExtraError, IntakeError, MeterError
from hushgrid.live.delivery import Delivery
from hushgrid.live.deployment import Http
from hushgrid.live.formats import BY_MEDIA_TYPE, mapping_named
from hushgrid.live.gate import Gate
from hushgrid.live.web.board import Board
from hushgrid.live.web.metrics import Metrics

log = logging.getLogger("hushgrid.http")

AT_ONCE = 16  # bodies parsed at the same time; more wait
PATIENCE = 300.0  # [s] for all of a body, so that slow senders cannot hold the threads for ever
RETRY = "5"  # [s]
FIRST = 1 << 16  # [bytes] of a body that are taken before it is its turn to be parsed
TOGETHER = 1 << 18  # [bytes] of a body that are handed over at a time
PARQUET = "application/vnd.apache.parquet"


class _TooLarge(Exception):  # noqa: N818
    """No OSError or ValueError: those are the parsers' own."""


class _TooSlow(Exception):  # noqa: N818
    pass


def make_app(gate: Gate, board: Board, metrics: Metrics, http: Http) -> Starlette:
    """The app of a process; `http.tokens` are the digests of who may send."""
    ways = _Ways(gate, board, metrics, http)
    routes = [
        Route("/v1/readings", ways.readings, methods=["POST"]),
        Route("/v1/price", ways.price, methods=["GET"]),
        Route("/v1/status", ways.status, methods=["GET"]),
        Route("/healthz", ways.healthy, methods=["GET"]),
        Route("/readyz", ways.ready, methods=["GET"]),
        Route("/metrics", ways.figures, methods=["GET"]),
    ]
    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        HTTPException: _refused,
        Exception: _failed,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


class _Ways:
    def __init__(self, gate: Gate, board: Board, metrics: Metrics, http: Http) -> None:
        self._gate, self._board, self._metrics, self._http = gate, board, metrics, http
        self._threads: anyio.CapacityLimiter | None = None  # made inside the event loop
        self._one_parquet = threading.Lock()  # one is held whole

    async def readings(self, request: Request) -> Response:
        """POST /v1/readings."""
        if not _known(request, self._http.tokens):
            return problem(
                401,
                "The bearer token is missing or unknown; send one that the service was given.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        delivery = Delivery()
        answer = await self._answer(request, delivery)
        self._metrics.received("http", delivery.receipt)
        told = {k: v for k, v in delivery.receipt._asdict().items() if k != "clamped"}
        log.info("readings", extra={"status": answer.status_code, **told})
        return answer

    async def _answer(self, request: Request, delivery: Delivery) -> Response:
        """Take the body. On an error, what was taken before it is durable and told."""
        refused = self._unfit(request)
        if refused is not None:
            return refused
        try:
            await self._take(request, delivery)
        except IntakeError as error:
            return problem(400, str(error), delivery)
        except ExtraError as error:
            return problem(415, str(error), delivery)
        except _TooLarge:
            return self._too_large(delivery)
        except _TooSlow:
            return problem(408, f"The body took more than {PATIENCE:g} s; send less.", delivery)
        except ClientDisconnect:
            return problem(400, "The body ended before its end; send it again.", delivery)
        except (MeterError, OSError):
            return problem(
                503,
                "The meter store cannot take readings now; send the same again later.",
                delivery,
                headers={"Retry-After": RETRY},
            )
        return JSONResponse(delivery.receipt._asdict() | {"problems": list(delivery.problems)})

    def _unfit(self, request: Request) -> Response | None:
        """What the head of a request already rules out."""
        media = _media_type(request)
        if media not in BY_MEDIA_TYPE:
            known = ", ".join(BY_MEDIA_TYPE)
            return problem(415, f"The content type is {media[:60]!r}; send one of {known}.")
        if request.headers.get("content-encoding", "identity") != "identity":
            return problem(415, "The body is compressed; send it as it is.")
        try:
            mapping_named(request.query_params.get("mapping", "canonical"))
        except IntakeError as error:
            return problem(400, str(error))
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:19]) > self._http.limit:
            return self._too_large(Delivery())
        return None

    def _too_large(self, delivery: Delivery) -> Response:
        return problem(
            413, f"The body is beyond {self._http.limit} bytes; send it in parts.", delivery
        )

    async def _take(self, request: Request, delivery: Delivery) -> None:
        media = _media_type(request)
        mapping = mapping_named(request.query_params.get("mapping", "canonical"))
        chunks = await self._chunks(request)

        def work() -> None:
            if media == PARQUET:
                with self._one_parquet:
                    delivery.take(self._gate, BY_MEDIA_TYPE[media](chunks, mapping))
            else:
                delivery.take(self._gate, BY_MEDIA_TYPE[media](chunks, mapping))

        if self._threads is None:
            self._threads = anyio.CapacityLimiter(AT_ONCE)
        await to_thread.run_sync(work, limiter=self._threads)

    async def _chunks(self, request: Request) -> Iterator[bytes]:
        """The body piece by piece, asked for from a worker thread; the first is there already.

        Small pieces come together: each way from one thread to another and back takes time.
        """
        body = _Body(request, anyio.current_time() + PATIENCE)

        def pieces(found: list[bytes]) -> Iterator[bytes]:
            taken = 0
            while True:
                for piece in found:
                    taken += len(piece)
                    if taken > self._http.limit:
                        raise _TooLarge
                    yield piece
                if body.ended:
                    return
                found = from_thread.run(body.more, TOGETHER)

        return pieces(await body.more(FIRST))

    async def price(self, request: Request) -> Response:
        """GET /v1/price."""
        zone = self._asked(request)
        if isinstance(zone, Response):
            return zone
        shown = self._board.price(zone)
        if shown is None:
            return problem(404, f"Zone {zone!r} has no price yet; ask again after an interval.")
        return JSONResponse(shown, headers={"Cache-Control": "no-cache"})

    def _asked(self, request: Request) -> str | Response:
        zones = self._board.zones
        zone = request.query_params.get("zone")
        if zone is None:
            if len(zones) == 1:
                return zones[0]
            return problem(400, f"zone is missing; give one of {', '.join(zones)}.")
        if zone not in zones:
            return problem(404, f"zone is {zone[:60]!r}; give one of {', '.join(zones)}.")
        return zone

    async def status(self, request: Request) -> Response:
        """GET /v1/status: what `hushgrid status` shows."""
        del request
        return JSONResponse({"zones": [asdict(status) for status in self._board.statuses]})

    async def healthy(self, request: Request) -> Response:
        """GET /healthz: the process answers."""
        del request
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """GET /readyz: every zone is open and ticking."""
        del request
        waiting = self._board.waiting()
        if waiting:
            return JSONResponse({"status": "waiting", "zones": waiting}, status_code=503)
        return JSONResponse({"status": "ready"})

    async def figures(self, request: Request) -> Response:
        """GET /metrics."""
        del request
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")


class _Body:
    """A body as it comes in; what came before an error is given before the error."""

    def __init__(self, request: Request, deadline: float) -> None:
        self._stream, self._deadline = request.stream(), deadline
        self._error: Exception | None = None
        self.ended = False

    async def more(self, enough: int) -> list[bytes]:
        """The next pieces, until there are `enough` bytes or no more."""
        found: list[bytes] = []
        try:
            if self._error is not None:
                raise self._error
            with anyio.fail_after(self._deadline - anyio.current_time()):
                while sum(map(len, found)) < enough and not self.ended:
                    piece = await anext(self._stream, None)
                    self.ended = piece is None
                    found += [piece] if piece else []
        except (TimeoutError, ClientDisconnect) as error:
            self._error = _TooSlow() if isinstance(error, TimeoutError) else error
            if not found:
                raise self._error from None
        return found


def problem(
    status: int,
    detail: str,
    delivery: Delivery | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """An error as RFC 9457 has it; with what was taken before it, where something was."""
    body: dict[str, Any] = {"type": "about:blank", "status": status, "detail": detail}
    if delivery is not None and any(delivery.receipt):
        body |= delivery.receipt._asdict() | {"problems": list(delivery.problems)}
    return JSONResponse(
        body, status_code=status, headers=headers, media_type="application/problem+json"
    )


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _known(request: Request, digests: tuple[str, ...]) -> bool:
    """Whether the token is one of those; every digest is compared, each in constant time."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    found = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
    matches = [hmac.compare_digest(found, digest.lower()) for digest in digests]
    return scheme.lower() == "bearer" and any(matches)


async def _refused(request: Request, error: Exception) -> Response:
    del request
    status = error.status_code if isinstance(error, HTTPException) else 500
    said = {404: "There is nothing here.", 405: "This method is not for this path."}
    return problem(status, said.get(status, "The request cannot be answered."))


async def _failed(request: Request, error: Exception) -> Response:
    del request, error  # uvicorn logs its type and place
    return problem(500, "The service failed; the fault is logged.")
