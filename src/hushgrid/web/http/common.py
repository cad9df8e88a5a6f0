"""What the HTTP modules share: errors, cached answers, cookies, zone states, metrics.

Metrics have two parts. The public part depends on readings only through releases. Counts of
readings, missing meters and the duration of a tick depend on who reports, and attempts to notify
subscribers also count usage reports: these are for operators only. The count of clamped readings
depends on values and is in neither part.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter as Counts
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from hushgrid.errors import AccessError

RETRY = {"Retry-After": "5"}

PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}


def refusals(texts: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route.

    Args:
        texts: what each status means.

    Returns:
        The argument `responses` of a route.
    """
    return {status: {"description": text, "content": PROBLEM} for status, text in texts.items()}


OF_ZONE = refusals({400: "A parameter cannot be used.", 404: "No such zone, or nothing of it yet."})


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """Make an error answer by RFC 9457; it never contains a reading.

    Args:
        status: HTTP status.
        detail: one sentence with the fix.
        headers: further headers.
        members: further members of the body.

    Returns:
        The response.
    """
    body = {"type": "about:blank", "status": status, "detail": detail, **members}
    return JSONResponse(body, status, headers, "application/problem+json")


class Refusal(HTTPException):
    """A request that is refused.

    Args:
        status: HTTP status.
        detail: one sentence with the fix.
        headers: further headers of the answer.
        members: further members of its body.
    """

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(status, detail, headers)
        self.members = members


SHED, MANY, LONGEST = 1.0, 100, 10  # [s], refusals in that time, and how many times as long


class _Pause:
    """Wait before a refusal: a crowd that asks again at once takes no time of others."""

    _waiting = 0

    async def __call__(self) -> None:
        self._waiting += 1
        try:
            await asyncio.sleep(SHED * min(1 + (self._waiting - 1) / MANY, LONGEST))
        finally:
            self._waiting -= 1


pause = _Pause()
PART = 1 << 16  # [bytes] of an answer that are sent at a time


class InParts(Response):
    """An answer that is sent as its client reads it, so that it is not copied as a whole.

    Args:
        answer: the answer.
        on_end: called when it is sent, or its client has gone.
    """

    def __init__(self, answer: Response, on_end: Callable[[], None] = lambda: None) -> None:
        super().__init__(answer.body, answer.status_code, background=answer.background)
        self.raw_headers, self._on_end = answer.raw_headers, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del scope, receive
        body, start = bytes(self.body), {"status": self.status_code, "headers": self.raw_headers}
        try:
            await send({"type": "http.response.start", **start})
            for i in range(0, len(body) or 1, PART):
                part = {"body": body[i : i + PART], "more_body": i + PART < len(body)}
                await send({"type": "http.response.body", **part})
        finally:
            self._on_end()
        if self.background is not None:
            await self.background()


class Sending(StreamingResponse):
    """An answer that is made while its client reads it.

    Args:
        parts: its parts.
        on_end: called when it is sent, or its client has gone.
        settings: of the response.
    """

    def __init__(
        self, parts: AsyncIterable[bytes], on_end: Callable[[], None], **settings: Any
    ) -> None:
        super().__init__(parts, **settings)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


class Pieces(NamedTuple):
    """An answer whose pieces are made in threads of `Heavy`, each when the last one is sent.

    Attributes:
        pieces: bytes, none of them empty.
        size: most bytes of it that are in memory at a time.
        headers: of the answer.
        media: its content type.
    """

    pieces: Iterator[bytes]
    size: int
    headers: Mapping[str, str]
    media: str


STRANGER = "address "  # begins the name of a caller that is no client; ids have no space


def _of_strangers(counts: Mapping[str, int]) -> int:
    return sum(count for caller, count in counts.items() if caller.startswith(STRANGER))


class UnderWay:
    """Bytes of bodies and answers in memory: those beyond a caller's or all callers' are refused.

    Strangers together have half. A caller without any may have one answer of any size. Belongs to
    one event loop.

    Args:
        caller_limit: most bytes of one caller.
        total_limit: most bytes of all callers.
        refused: called for each request that is refused.
    """

    def __init__(
        self,
        caller_limit: int = 8 << 20,
        total_limit: int = 64 << 20,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self.caller_limit, self.total_limit = caller_limit, total_limit
        self._on_refusal, self._sizes = on_refusal, Counts[str]()

    @property
    def total(self) -> int:
        """Bytes of all callers."""
        return self._sizes.total()

    async def take(self, caller: str, size: int) -> Callable[[], None]:
        """Count bytes of a caller.

        Args:
            caller: its name.
            size: bytes.

        Returns:
            What ends it; it may be called more than once.

        Raises:
            Refusal: if there are too many, after a pause.
        """
        limits = [(self._sizes[caller], self.caller_limit), (self.total, self.total_limit)]
        if caller.startswith(STRANGER):
            limits.append((_of_strangers(self._sizes), self.total_limit // 2))
        if any(count and count + size > limit for count, limit in limits):
            self._on_refusal()
            await pause()
            raise Refusal(503, "Too many bytes are under way; read the answers first.", RETRY)
        self._sizes[caller] += size
        ends = iter((size,))

        def end() -> None:
            self._sizes -= Counts({caller: next(ends, 0)})  # a caller without any is forgotten

        return end


class Heavy:
    """Few threads for requests that take long, so that ticks and other requests get their turns.

    Args:
        threads: requests that are computed at the same time; half of them of one sender.
        waiting: requests that wait, or whose answers are being sent; more are refused, and more
            than a quarter of one sender, or half of all that are no clients.
        under_way: counts the bytes of answers.
    """

    def __init__(
        self, threads: int = 1, waiting: int = 64, under_way: UnderWay | None = None
    ) -> None:
        self._threads, self._limit = CapacityLimiter(threads), threads + waiting
        self._share = max(threads // 2, 1)
        self._turns: dict[str, CapacityLimiter] = {}  # of each sender that is here
        self._requests = Counts[str]()
        self.under_way = UnderWay() if under_way is None else under_way

    async def run(self, work: Callable[[], Any], sender: str = "") -> Any:
        """Run it in a thread; Refusal, after a pause, if too many wait already."""
        present = self._requests[sender] if sender else 0
        full = self._requests.total() >= self._limit or present >= self._limit // 4
        if sender.startswith(STRANGER):
            full |= _of_strangers(self._requests) >= self._limit // 2
        if full:
            await pause()
            raise Refusal(503, "Too many such requests at once; try again later.", RETRY)
        (await self.under_way.take(sender, 1))()  # before the work, where the answer has no room
        self._requests[sender] += 1  # at once: a limiter counts it only when it waits for a thread
        cleanup = ExitStack()
        cleanup.callback(self._leave, sender)
        try:
            answer = await self._turn(work, sender)
            if isinstance(answer, Pieces):
                cleanup.callback(await self.under_way.take(sender, answer.size))
                parts = self._parts(answer.pieces, sender)
                return Sending(
                    parts, cleanup.close, headers=answer.headers, media_type=answer.media
                )
            if isinstance(answer, Response):
                cleanup.callback(await self.under_way.take(sender, len(answer.body)))
                return InParts(answer, cleanup.close)
            cleanup.close()
            return answer
        except BaseException:
            cleanup.close()
            raise

    async def _turn(self, work: Callable[[], Any], sender: str) -> Any:
        turns = self._turns.setdefault(sender, CapacityLimiter(self._share))
        async with turns if sender else nullcontext():
            return await to_thread.run_sync(work, limiter=self._threads)

    async def _parts(self, pieces: Iterator[bytes], sender: str) -> AsyncIterator[bytes]:
        while piece := await self._turn(partial(next, pieces, b""), sender):
            for i in range(0, len(piece), PART):
                yield piece[i : i + PART]

    def _leave(self, sender: str) -> None:
        self._requests -= Counts([sender])  # a sender without any is forgotten
        if sender not in self._requests:
            self._turns.pop(sender, None)


class ParameterError(Refusal):
    """A parameter that cannot be used.

    Args:
        field: its name.
        value: its value, None if it is missing or secret.
        fix: what to give instead, without a full stop.
        status: HTTP status.
    """

    def __init__(self, field: str, value: str | None, fix: str, status: int = 400) -> None:
        value = None if value is None else value[:60]
        text = "missing" if value is None else repr(value)
        detail = f"{field} is {text}; {fix}."
        super().__init__(status, detail, field=field, value=value, fix=f"{fix}.")


def access_problem(error: AccessError) -> Response:
    """Make the answer to a request without valid credentials.

    Args:
        error: the reason.

    Returns:
        A problem with status 401, 429 or 503.
    """
    if error.kind == "slow_down":
        return problem(429, str(error), {"Retry-After": str(math.ceil(error.wait))})
    if error.kind == "server_error":
        return problem(503, "Clients cannot be looked up now; try again.", RETRY)
    return problem(401, str(error), {"WWW-Authenticate": "Bearer"})


def openadr_problem(refusal: Response) -> Response:
    """Convert a problem to the form of OpenADR: plain JSON with a title.

    Args:
        refusal: an answer of `problem`.

    Returns:
        The response.
    """
    body = json.loads(bytes(refusal.body))
    members = {"title": HTTPStatus(refusal.status_code).phrase, **body}
    headers = {k: v for k, v in refusal.headers.items() if not k.startswith("content-")}
    return JSONResponse(members, refusal.status_code, headers)


_DETAILS = {404: "There is nothing here.", 405: "This method is not for this path."}


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    if isinstance(error, Refusal):
        return problem(error.status_code, error.detail, error.headers, **error.members)
    if error.status_code == 400:  # of FastAPI, which read it
        return problem(400, "The body cannot be read; send JSON in UTF-8.", field="body")
    detail = _DETAILS.get(error.status_code, "The request cannot be answered.")
    headers = error.headers
    if error.status_code == 405:
        routes = (
            route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE
        )
        methods = {method for route in routes for method in getattr(route, "methods", ())}
        headers = {"Allow": ", ".join(sorted(methods))} if methods else headers
    return problem(error.status_code, detail, headers)


async def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    """Answer with the first mistake; values of bodies are not repeated."""
    del request
    mistake = error.errors()[0]
    place, *names = mistake["loc"] or ("body",)
    field = names[-1] if names and isinstance(names[-1], str) else place
    missing = mistake["type"] == "missing"
    value = None if place == "body" or missing else str(mistake["input"])
    fix = mistake["msg"][:1].lower() + mistake["msg"][1:]
    refusal = ParameterError(field, value, fix)
    in_body = value is None and not missing
    detail = f"{field} is not valid; {fix}." if in_body else refusal.detail
    return problem(400, detail, **refusal.members)


async def _on_access_error(request: Request, error: AccessError) -> Response:
    del request
    return access_problem(error)


async def _on_failure(request: Request, error: Exception) -> Response:
    del request, error  # uvicorn logs its type and place
    return problem(500, "The service failed; the fault is logged.")


ERRORS: dict[Any, Any] = {
    HTTPException: _on_http_error,
    RequestValidationError: _on_invalid,
    AccessError: _on_access_error,
    Exception: _on_failure,
}


def conditional(
    request: Request,
    body: bytes,
    media: str,
    etag: str,
    cache: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make an answer that a client may have already.

    Args:
        request: the request.
        body: the body.
        media: its content type.
        etag: its entity tag.
        cache: value of Cache-Control.
        headers: further headers.

    Returns:
        The body, or a 304 if If-None-Match names its tag.
    """
    headers = {"ETag": etag, "Cache-Control": cache, **(headers or {})}
    header = ",".join(request.headers.getlist("if-none-match"))
    tags = {tag.strip().removeprefix("W/") for tag in header.split(",")}
    if cache != "no-store" and (etag in tags or "*" in tags):
        return Response(status_code=304, headers=headers)
    response = Response(body, 200, headers, media)
    return InParts(response) if len(body) > PART else response


COOKIE = "hushgrid_session"

Pairs = Iterable[tuple[bytes, bytes]]  # headers as in ASGI, names in lower case


def session_cookie(headers: Pairs) -> str | None:
    """Return the session's cookie of a request.

    Args:
        headers: of the request.

    Returns:
        Its value; None if there is none, or more than one (one of them would be forged).

    >>> session_cookie([(b"cookie", b"a=1; hushgrid_session=x"), (b"cookie", b"b=2")])
    'x'
    >>> session_cookie([(b"cookie", b"hushgrid_session=x; hushgrid_session=y")]) is None
    True
    """
    values: list[str] = []
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, equals, text = part.strip().partition("=")
                if equals and key == COOKIE:
                    values.append(text)
    return values[0] if len(values) == 1 and values[0] else None


def same_origin(headers: Pairs, *, required: bool) -> bool:
    """Return True if a request is same-origin or does not come from a browser.

    Judged by Sec-Fetch-Site, else by Origin: headers that no page can set.

    Args:
        headers: of the request.
        required: one of these headers must be present and prove the same origin.

    Returns:
        False for a request of another site's page.

    >>> same_origin([(b"sec-fetch-site", b"same-origin")], required=True)
    True
    >>> same_origin([(b"origin", b"https://a.example"), (b"host", b"b.example")], required=False)
    False
    >>> same_origin([], required=False), same_origin([], required=True)
    (True, False)
    """
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        by_name.setdefault(name, []).append(value.strip())
    site, origin = by_name.get(b"sec-fetch-site"), by_name.get(b"origin")
    if site is not None:  # "none": typed into the address bar, which changes nothing
        return site == [b"same-origin"] or (site == [b"none"] and not required)
    if origin is not None:
        host = by_name.get(b"host", [])
        return len(origin) == len(host) == 1 and _place(origin[0]) == host[0].lower()
    return not required


def _place(origin: bytes) -> bytes:
    """Return host and port of an origin; its scheme may be the one of a proxy."""
    return origin.lower().partition(b"://")[2]
