"""News of the demo as server-sent events: one queue a listener, and none holds up the day."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hushgrid.live.web.problems import RETRY, problem
from hushgrid.live.web.stream import HEADERS, HEARTBEAT

QUEUE, MOST = 16, 200  # events a listener may be behind, and listeners
END = b""


class Channel:
    """All listeners; `tell` and `close` may be called from any thread, the rest by the server."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[asyncio.Queue[bytes]] = set()

    def __len__(self) -> int:
        return len(self._listeners)

    def tell(self, name: str, data: dict[str, Any]) -> None:
        """Send an event to everybody; returns at once."""
        self._later(f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode())

    def close(self) -> None:
        """Let everybody go."""
        self._later(END)

    def _later(self, event: bytes) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(self._spread, event)

    def _spread(self, event: bytes) -> None:
        for queue in tuple(self._listeners):
            if event == END or queue.qsize() >= QUEUE:
                self._listeners.discard(queue)
                queue.put_nowait(END)
            else:
                queue.put_nowait(event)

    async def stream(self, request: Request) -> Response:
        """GET /demo/stream."""
        del request
        if len(self) >= MOST:
            return problem(503, "Too many listen already; try again later.", headers=RETRY)
        return _DemoListening(self)

    def join(self) -> asyncio.Queue[bytes]:
        """A new listener's queue."""
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._listeners.add(queue)
        return queue

    def leave(self, queue: asyncio.Queue[bytes]) -> None:
        """A listener has gone."""
        self._listeners.discard(queue)


class _DemoListening(Response):
    """The answer to one listener, until either side ends it."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        queue = self._channel.join()
        watch = asyncio.create_task(_gone(receive, queue))
        text = b"retry: 2000\n\n"
        try:
            while text != END:
                await send({"type": "http.response.body", "body": text, "more_body": True})
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT)
                except TimeoutError:
                    text = b": still here\n\n"
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._channel.leave(queue)
            watch.cancel()


async def _gone(receive: Receive, queue: asyncio.Queue[bytes]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    queue.put_nowait(END)
