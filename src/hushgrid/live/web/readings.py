"""Readings in, over HTTP.

A body is parsed while it arrives, in a thread that asks for the next piece when it has stored the
last: memory stays bounded, and a slow disk slows the sender down.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import anyio
from anyio import from_thread, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import ExtraError, IntakeError, MeterError
from hushgrid.live.delivery import Delivery
from hushgrid.live.formats import BY_MEDIA_TYPE, mapping_named
from hushgrid.live.gate import Gate
from hushgrid.live.web.metrics import Metrics
from hushgrid.live.web.problems import problem

log = logging.getLogger("hushgrid.http")

AT_ONCE = 16  # bodies parsed at the same time; more wait
PATIENCE = 300.0  # [s] for all of a body, so that slow senders cannot hold the threads for ever
RETRY = "5"  # [s]
PARQUET = "application/vnd.apache.parquet"


class _TooLarge(Exception):  # noqa: N818
    """No OSError or ValueError: those are the parsers' own."""


class _TooSlow(Exception):  # noqa: N818
    pass


class TakeReadings:
    """POST /v1/readings; `limit` is the most one body may hold [bytes]."""

    def __init__(self, gate: Gate, metrics: Metrics, limit: int) -> None:
        self._gate, self._metrics, self._limit = gate, metrics, limit
        self._threads: anyio.CapacityLimiter | None = None  # made inside the event loop
        self._one_parquet = threading.Lock()  # one is held whole

    async def take(self, request: Request) -> Response:
        """POST /v1/readings."""
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
        if declared.isdecimal() and int(declared[:19]) > self._limit:
            return self._too_large(Delivery())
        return None

    def _too_large(self, delivery: Delivery) -> Response:
        return problem(413, f"The body is beyond {self._limit} bytes; send it in parts.", delivery)

    async def _take(self, request: Request, delivery: Delivery) -> None:
        media = _media_type(request)
        mapping = mapping_named(request.query_params.get("mapping", "canonical"))
        chunks = self._chunks(request)

        def work() -> None:
            if media == PARQUET:
                with self._one_parquet:
                    delivery.take(self._gate, BY_MEDIA_TYPE[media](chunks, mapping))
            else:
                delivery.take(self._gate, BY_MEDIA_TYPE[media](chunks, mapping))

        if self._threads is None:
            self._threads = anyio.CapacityLimiter(AT_ONCE)
        await to_thread.run_sync(work, limiter=self._threads)

    def _chunks(self, request: Request) -> Iterator[bytes]:
        """The body piece by piece, asked for from a worker thread."""
        stream, limit = request.stream(), self._limit
        deadline = anyio.current_time() + PATIENCE

        async def following() -> bytes | None:
            with anyio.fail_after(deadline - anyio.current_time()):
                return await anext(stream, None)

        def pieces() -> Iterator[bytes]:
            taken = 0
            while True:
                try:
                    piece = from_thread.run(following)
                except TimeoutError:
                    raise _TooSlow from None
                if piece is None:
                    return
                taken += len(piece)
                if taken > limit:
                    raise _TooLarge
                yield piece

        return pieces()


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
