"""POST /v1/readings: meter readings in any format.

A large body is parsed while it arrives, in a thread that reads the next piece after it has stored
the last: memory stays bounded, and a slow disk slows the sender down. Each client has a share of
these threads, which no other request uses. Of the bodies that are held whole and parsed in a
process of their own each client has one at a time, and all together two. Small bodies that arrive
while others are being stored form the next group: one thread parses and stores a group with one
sync, because a thread and a sync for each would take most of the time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import partial
from tempfile import TemporaryFile
from typing import Annotated, Any, NamedTuple

from anyio import CapacityLimiter, from_thread, to_thread
from fastapi import APIRouter, Query
from pydantic import create_model
from starlette.requests import ClientDisconnect, Request

from hushgrid.curator.ingest import Delivery, Ingest, Receipt, take_each
from hushgrid.errors import ExtraError, IntakeError, MeterError
from hushgrid.files.apart import batches_apart, limited
from hushgrid.files.readings import BUILT_IN, format_by, formats_by_media, mapping_named
from hushgrid.intake.readings import Parsed
from hushgrid.intake.text import ColumnMapping, Format
from hushgrid.web.http.common import RETRY, Refusal, refusals
from hushgrid.web.http.metrics import Metrics
from hushgrid.web.http.middleware import caller_of, scopes
from hushgrid.web.http.models import AnswerModel, Count

MOST = 64  # bodies of a group


class _WaitingBatch(NamedTuple):
    delivery: Delivery
    batches: Iterator[Parsed]
    future: asyncio.Future[None]


class Batcher:
    """Stores small deliveries in groups; belongs to one event loop.

    Args:
        ingest: stores readings.
    """

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._waiting: deque[_WaitingBatch] = deque()
        self._thread = CapacityLimiter(1)
        self._storing: asyncio.Task[None] | None = None

    async def take(self, delivery: Delivery, batches: Iterator[Parsed]) -> None:
        """Store all batches; returns when they are durable, as `Delivery.take` does."""
        batch = _WaitingBatch(delivery, batches, asyncio.get_running_loop().create_future())
        self._waiting.append(batch)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        await batch.future

    async def _store(self) -> None:
        """Store group after group until none waits."""
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            try:
                errors = await to_thread.run_sync(
                    take_each,
                    self._ingest,
                    [(batch.delivery, batch.batches) for batch in group],
                    limiter=self._thread,
                )
            except Exception as error:
                errors = [error] * len(group)
            for batch, failure in zip(group, errors, strict=True):
                if batch.future.done():  # the sender disconnected; the readings are durable
                    continue
                if failure is None:
                    batch.future.set_result(None)
                else:
                    batch.future.set_exception(failure)
        self._storing = None


log = logging.getLogger("hushgrid.http")

AT_ONCE, OWN = 16, 4  # bodies parsed at the same time, and of one client; more wait
APART = 2  # of these in processes of their own, each in memory as a whole; of one client one
PATIENCE = 300.0  # [s] for a whole body, so that slow senders cannot keep the threads
FIRST = 1 << 17  # [bytes] of a body read before it waits for a thread
MUCH = 1 << 22  # [bytes] of a body read before a thread parses it
PIECE = 1 << 18  # [bytes] of a longer body passed to the thread at a time

_COUNTS: dict[str, Any] = dict.fromkeys(Receipt._fields, (Count, ...))


class ReasonAnswer(AnswerModel):
    """Rows that were not taken for one reason.

    Attributes:
        count: how many.
        first: the first of them.
    """

    count: Count
    first: str


ReceiptAnswer = create_model(
    "Receipt",
    __base__=AnswerModel,
    **_COUNTS,
    problems=(list[str], ...),
    warnings=(list[str], ...),
    reasons=(dict[str, ReasonAnswer], ...),
)
MeterId = Annotated[
    str | None, Query(description="Id of the one meter of the body, where it has another or none.")
]
_FIELDS = {
    "meter_id": {"type": "string", "description": "Meter of a zone of this service."},
    "start_utc": {
        "type": "string",
        "format": "date-time",
        "description": "Start, with Z or offset.",
    },
    "duration_s": {"type": "integer", "description": "Whole seconds that divide the interval."},
    "wh": {"type": "number", "description": "Energy taken from the grid [Wh]."},
}
_EXAMPLE = {
    "meter_id": "house-1",
    "start_utc": "2026-01-05T12:00:00Z",
    "duration_s": 900,
    "wh": 120,
}
_ANY = {"schema": {"type": "string", "format": "binary"}}
_LINE = json.dumps(_EXAMPLE) + "\n"
_BODIES: dict[str, dict[str, Any]] = {
    "application/json": {
        "schema": {
            "type": "array",
            "items": {"type": "object", "required": list(_FIELDS), "properties": _FIELDS},
        },
        "example": [_EXAMPLE],
    },
    "application/x-ndjson": {"schema": {"type": "string"}, "example": _LINE},
    "application/ndjson": {"schema": {"type": "string"}, "example": _LINE},
    "text/csv": {
        "schema": {"type": "string"},
        "example": ",".join(_EXAMPLE) + "\n" + ",".join(map(str, _EXAMPLE.values())) + "\n",
    },
}


def add_readings(
    router: APIRouter, ingest: Ingest, metrics: Metrics, mappings: Mapping[str, ColumnMapping]
) -> Batcher:
    """Add the route that takes readings.

    Args:
        router: gets the route.
        ingest: stores readings.
        metrics: counts them.
        mappings: those of the service file, by name.

    Returns:
        The batcher of small bodies.
    """
    batcher, turns = Batcher(ingest), CapacityLimiter(AT_ONCE)
    sender_turns: defaultdict[str, CapacityLimiter] = defaultdict(partial(CapacityLimiter, OWN))
    process_turns = CapacityLimiter(APART)
    sender_parses: defaultdict[str, CapacityLimiter] = defaultdict(partial(CapacityLimiter, 1))
    formats = formats_by_media()
    name: str = Query(
        "canonical",
        description="Mapping of the columns, or format of an export.",
        json_schema_extra={"enum": [*BUILT_IN, *mappings]},
    )

    async def store(request: Request, columns: ColumnMapping, delivery: Delivery) -> None:
        form = format_by(columns, lambda: _format(request, formats))
        if request.headers.get("content-encoding", "identity") != "identity":
            raise Refusal(415, "The body is compressed; send it as it is.")
        body = _Body(request)
        first = await body.read(FIRST)

        def parsed_batches() -> Iterator[Parsed]:  # lazy: runs in the thread that iterates
            yield from form.batches(_pieces(body, first), columns)

        def work() -> None:
            delivery.take(ingest, parsed_batches())

        def work_apart() -> None:
            file.seek(0)
            parse = limited(form, ingest.most_rows(delivery.sender))
            delivery.take(ingest, batches_apart(parse, file.read(), columns))

        if body.ended and not form.seeks:
            await batcher.take(delivery, parsed_batches())
            return
        sender = delivery.sender or ""
        async with sender_turns[sender]:
            if not body.ended:
                first += await body.read(MUCH)
            if not form.seeks:
                await to_thread.run_sync(work, limiter=turns)
                return
            with TemporaryFile() as file:  # a slow sender keeps no place
                await to_thread.run_sync(file.writelines, _pieces(body, first), limiter=turns)
                async with sender_parses[sender]:
                    await to_thread.run_sync(work_apart, limiter=process_turns)

    @router.post(
        "/v1/readings",
        summary="Take meter readings.",
        response_description="How many readings were accepted, and why others were not.",
        response_model=ReceiptAnswer,
        responses=refusals(
            dict.fromkeys((400, 408, 413, 415, 503), "The body cannot be taken, or only in part.")
            | {422: "Every row is malformed or of an unknown meter; `reasons` says why."}
        ),
        dependencies=[scopes("write_readings")],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {media: _BODIES.get(media, _ANY) for media in formats},
            }
        },
    )
    async def take(
        request: Request, mapping: str = name, meter_id: MeterId = None
    ) -> dict[str, Any]:
        # no grant without a client has the scope; an empty name owns no meters
        delivery, refusal = Delivery(caller_of(request.scope).grant.client or ""), None
        try:
            columns = ingest.mapped(mapping_named(mapping, meter_id, mappings))
            await store(request, columns, delivery)
        except Refusal as error:
            refusal = error
        except IntakeError as error:
            refusal = Refusal(400, str(error))
        except ExtraError as error:
            refusal = Refusal(415, str(error))
        except ClientDisconnect:
            refusal = Refusal(400, "The body ended before its end; send it again.")
        except (MeterError, OSError):
            detail = "The meter store cannot take readings now; send the same again later."
            refusal = Refusal(503, detail, RETRY)
        if refusal is None and delivery.futile is not None:
            refusal = Refusal(422, f"Of this body {delivery.futile}")
        metrics.received("http", delivery.receipt)
        counts = {k: v for k, v in delivery.receipt._asdict().items() if k != "clamped"}
        status = 200 if refusal is None else refusal.status_code
        log.info("readings", extra={"status": status, **counts})
        receipt = delivery.receipt._asdict() | {
            "problems": list(delivery.problems),
            "warnings": delivery.warnings,
            "reasons": delivery.reasons,
        }
        if refusal is None:
            return receipt
        if any(delivery.receipt):  # stored before the error, and durable
            refusal.members |= receipt
        raise refusal

    return batcher


def _format(request: Request, formats: Mapping[str, Format]) -> Format:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in formats:
        media_types = ", ".join(formats)
        raise Refusal(415, f"The content type is {media[:60]!r}; send one of {media_types}.")
    return formats[media]


class _Body:
    """A body as it arrives; pieces before an error are returned before it is raised."""

    def __init__(self, request: Request) -> None:
        self._stream, self.ended = request.stream(), False
        self._error: Exception | None = None

    async def read(self, enough: int) -> list[bytes]:
        """Return the next pieces, until there are `enough` bytes or no more."""
        pieces: list[bytes] = []
        try:
            if self._error is not None:
                raise self._error
            while sum(map(len, pieces)) < enough and not self.ended:
                piece = await anext(self._stream, None)
                self.ended = piece is None
                pieces += [piece] if piece else []
        except (Refusal, ClientDisconnect) as error:
            self._error = error
            if not pieces:
                raise
        return pieces


def _pieces(body: _Body, first: list[bytes]) -> Iterator[bytes]:
    """Yield the body piece by piece in a worker thread; `first` are the first pieces.

    Pieces are read in groups, because each change of thread takes time.
    """
    yield from first
    while not body.ended:
        yield from from_thread.run(body.read, PIECE)
