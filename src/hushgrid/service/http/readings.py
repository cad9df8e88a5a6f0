"""POST /v1/readings: meter readings in any format.

A large body is parsed while it arrives, in a thread that reads the next piece after it has stored
the last: memory stays bounded, and a slow disk slows the sender down. Small bodies that arrive
while others are being stored form the next group: one thread parses and stores a group with one
sync, because a thread and a sync for each would take most of the time.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import anyio
from anyio import from_thread, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hushgrid.errors import ExtraError, IntakeError, MeterError
from hushgrid.files.readings import BY_MEDIA_TYPE, mapping_named
from hushgrid.intake.readings import Parsed
from hushgrid.service.http.common import Metrics, problem
from hushgrid.service.ingest import Delivery, Ingest, take_each

MOST = 64  # bodies of a group


class _WaitingBatch(NamedTuple):
    delivery: Delivery
    batches: Iterator[Parsed]
    done: asyncio.Future[None]


class Batcher:
    """Stores small deliveries in groups; belongs to one event loop.

    Args:
        ingest: stores readings.
    """

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._waiting: deque[_WaitingBatch] = deque()
        self._storing: asyncio.Task[None] | None = None

    async def take(self, delivery: Delivery, batches: Iterator[Parsed]) -> None:
        """Store all batches; returns when they are durable, as `Delivery.take` does."""
        mine = _WaitingBatch(delivery, batches, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        await mine.done

    async def _store(self) -> None:
        """Store group after group until none waits."""
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            try:
                errors = await to_thread.run_sync(
                    take_each, self._ingest, [(one.delivery, one.batches) for one in group]
                )
            except Exception as error:
                errors = [error] * len(group)
            for one, why in zip(group, errors, strict=True):
                if one.done.done():  # the sender disconnected; the readings are durable
                    continue
                if why is None:
                    one.done.set_result(None)
                else:
                    one.done.set_exception(why)
        self._storing = None


log = logging.getLogger("hushgrid.http")

AT_ONCE = 16  # bodies parsed at the same time; more wait
PATIENCE = 300.0  # [s] for a whole body, so that slow senders cannot keep the threads
RETRY = "5"  # [s]
FIRST = 1 << 17  # [bytes] of a body read before it waits for a thread
MUCH = 1 << 22  # [bytes] of a body read before a thread parses it
PIECE = 1 << 18  # [bytes] of a longer body passed to the thread at a time
PARQUET = "application/vnd.apache.parquet"


class _TooLarge(Exception):  # noqa: N818
    """Not an OSError or ValueError: parsers raise those."""


class _TooSlow(Exception):  # noqa: N818
    pass


class ReadingsHandler:
    """Handler of POST /v1/readings.

    Args:
        ingest: stores readings.
        metrics: counts them.
        limit: most bytes of a body.
    """

    def __init__(self, ingest: Ingest, metrics: Metrics, limit: int) -> None:
        self._ingest, self._metrics, self._limit = ingest, metrics, limit
        self._turns: anyio.Semaphore | None = None  # made inside the event loop
        self._one_parquet = threading.Lock()  # a Parquet body is in memory as a whole
        self._batcher = Batcher(ingest)

    async def take(self, request: Request) -> Response:
        """POST /v1/readings."""
        delivery = Delivery()
        answer = await self._answer(request, delivery)
        self._metrics.received("http", delivery.receipt)
        counts = {k: v for k, v in delivery.receipt._asdict().items() if k != "clamped"}
        log.info("readings", extra={"status": answer.status_code, **counts})
        return answer

    async def _answer(self, request: Request, delivery: Delivery) -> Response:
        """Store the body. On an error, readings stored before it are durable and counted."""
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
        """Return a refusal if the headers already rule the body out."""
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
        body = _Body(request, anyio.current_time() + PATIENCE)
        first = await body.more(FIRST)

        def parsed() -> Iterator[Parsed]:  # lazy: runs in the thread that iterates
            yield from BY_MEDIA_TYPE[media](self._pieces(body, first), mapping)

        if body.ended and media != PARQUET:
            await self._batcher.take(delivery, parsed())
            return

        def work() -> None:
            if media == PARQUET:
                with self._one_parquet:
                    delivery.take(self._ingest, parsed())
            else:
                delivery.take(self._ingest, parsed())

        if self._turns is None:
            self._turns = anyio.Semaphore(AT_ONCE)
        async with self._turns:
            if not body.ended:
                first += await body.more(MUCH)
            await to_thread.run_sync(work)

    def _pieces(self, body: _Body, found: list[bytes]) -> Iterator[bytes]:
        """Yield the body piece by piece in a worker thread; `found` are the first pieces.

        Pieces are read in groups, because each change of thread takes time.
        """
        taken = 0
        while True:
            for piece in found:
                taken += len(piece)
                if taken > self._limit:
                    raise _TooLarge
                yield piece
            if body.ended:
                return
            found = from_thread.run(body.more, PIECE)


class _Body:
    """A body as it arrives; pieces before an error are returned before it is raised."""

    def __init__(self, request: Request, deadline: float) -> None:
        self._stream, self._deadline = request.stream(), deadline
        self._error: Exception | None = None
        self.ended = False

    async def more(self, enough: int) -> list[bytes]:
        """Return the next pieces, until there are `enough` bytes or no more."""
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


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
