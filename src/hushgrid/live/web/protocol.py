"""HTTP/1.1 on a connection, with limits on those who are slow or many.

uvicorn waits for ever for the end of a head, and for ever for a client that does not read.
"""

from __future__ import annotations

import asyncio
import logging

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from hushgrid.live.web.security import security_headers

HEAD = 10.0  # [s] for the whole head of a request
STALLED = 30.0  # [s] a client may leave what was sent unread
PARTING = 2.0  # [s] of that when the server stops

log = logging.getLogger("hushgrid.http")


class Patient(H11Protocol):
    """uvicorn's protocol, but nobody holds a connection by being slow."""

    most = 4096  # connections at the same time
    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _parting: asyncio.TimerHandle | None = None
    _rest: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; beyond the limit, hang up."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._head = self.loop.call_later(HEAD, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and see whether a head is under way."""
        super().data_received(data)
        waiting = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if not waiting:
            _end(self._head)
            self._head = None
        elif self._head is None and self.timeout_keep_alive_task is None:
            self._head = self.loop.call_later(HEAD, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        for timer in (self._head, self._unread, self._parting, self._rest):
            _end(timer)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """An answer may come before the end of a body; the rest of it does not last for ever."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and self._rest is None:
            self._rest = self.loop.call_later(HEAD, self._no_end)

    def _no_end(self) -> None:
        self._rest = None
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self.transport.abort()

    def shutdown(self) -> None:
        """The server stops: finish what is under way, but wait for no one who does not read."""
        super().shutdown()
        if self.transport.get_write_buffer_size() > 0:
            self._parting = self.loop.call_later(PARTING, self.transport.abort)

    def pause_writing(self) -> None:
        """The client is behind."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        """It has caught up."""
        _end(self._unread)
        self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all gets a plain answer, with the headers of every other."""
        body = msg.encode("ascii")
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *security_headers(self.scheme == "https"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _too_slow(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()


def _end(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
