"""The HTTP server: uvicorn in a thread, limits on slow connections, and an exchangeable app.

uvicorn alone limits neither the head of a request nor a client that does not read.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hushgrid.errors import ServiceError
from hushgrid.files.settings import Http
from hushgrid.web.http.common import ERRORS, RETRY, problem
from hushgrid.web.http.middleware import FORM, BodyLimit, SecurityHeaders, security_headers
from hushgrid.web.tokens import sender_network

if TYPE_CHECKING:
    from hushgrid.web.http.app import App

LARGEST = 16_384  # [bytes] of a head
TOO_LARGE = f"The head is beyond {LARGEST} bytes; send a shorter one."
HEAD = 10.0  # [s] for the whole head of a request, or for the rest of a body after its answer
STALLED = 30.0  # [s] that a client may not read
RESERVED = 500  # open files of stores, brokers and callbacks
CLOSING = 200  # connections that were ended and are not closed yet
TURN = 64  # connections taken, or closed, before those that are open get their turn
PARTING = 2.0  # [s] of that when the server stops

log = logging.getLogger("hushgrid.http")


Client = tuple[str, int] | None  # address and port


class _Silent:
    """Connections that wait for a request, by sender: room for others where all are taken.

    Attributes:
        new: those that have made no request yet.
    """

    def __init__(self) -> None:
        self.new: set[Client] = set()
        self._ends: defaultdict[str, dict[Client, Callable[[], object]]] = defaultdict(dict)
        self._sender = lru_cache(10_000)(sender_network)

    def add(self, client: Client, end: Callable[[], object]) -> None:
        """Note a connection, and what ends it, unless it is noted."""
        self._ends[self._sender(client and client[0])].setdefault(client, end)

    def discard(self, client: Client) -> None:
        """Forget a connection."""
        sender = self._sender(client and client[0])
        self.new.discard(client)
        if sender in self._ends:
            self._ends[sender].pop(client, None)
            if not self._ends[sender]:
                del self._ends[sender]

    def make_room(self, client: Client) -> bool:
        """End the oldest one of the sender that has most, unless this client's has as many."""
        ends = max(self._ends.values(), key=len, default={})
        if len(ends) <= len(self._ends.get(self._sender(client and client[0]), ())) + 1:
            return False
        oldest = next(iter(ends))
        ends[oldest]()
        self.discard(oldest)
        return True


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on heads, on slow clients and on connections.

    Attributes:
        connection_limit: connections at the same time.
        silent: those that wait for a request.
    """

    connection_limit = 4096
    silent: _Silent
    _in_head = False
    _moved, _size = False, 0  # the last read brought a part on; [bytes] read since one did
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the head; beyond the limit of connections, end a silent one."""
        super().connection_made(transport)
        if len(self.connections) > self.connection_limit and not self.silent.make_room(self.client):
            transport.abort()
        self.silent.add(self.client, transport.abort)
        self._head_timer = self.loop.call_later(HEAD, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; limit a head, and what comes while no request is being answered."""
        self._moved = False
        super().data_received(data)
        if self._in_head or self.cycle is None or self.cycle.response_complete:
            self._head_timer = self._head_timer or self.loop.call_later(HEAD, self.transport.abort)
        self._size = 0 if self._moved else self._size + len(data)
        if self._size > LARGEST and self._in_head:
            self._refuse(431, TOO_LARGE)
        elif self._size > LARGEST:  # trailers or extensions of chunks
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head = self._moved = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._moved = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """End the head and its time limit."""
        self._in_head, self._moved = False, True
        self.silent.discard(self.client)
        _cancel(self._head_timer)
        self._head_timer = None
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > LARGEST:
            self._refuse(431, TOO_LARGE)
            raise ValueError(TOO_LARGE)  # ends the parser
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("HTTP/0.9")  # refused as no HTTP
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self.silent.add(self.client, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self.silent.discard(self.client)
        _cancel(self._head_timer)
        _cancel(self._write_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(STALLED, self.transport.abort)

    def resume_writing(self) -> None:
        """End that time limit."""
        _cancel(self._write_timer)
        self._write_timer = None
        super().resume_writing()

    def shutdown(self) -> None:
        """Finish open answers; close connections whose clients do not read, or do not send on."""
        super().shutdown()
        sends = self.cycle is not None and self.cycle.more_body
        if sends or self.transport.get_write_buffer_size() > 0:
            self.loop.call_later(PARTING, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; of two lengths a proxy may believe the other one."""
        del msg
        self._refuse(400, "This is no HTTP/1.1, or has Content-Length and Transfer-Encoding.")

    def _refuse(self, status: int, text: str) -> None:
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(text)),
            (b"connection", b"close"),
            *security_headers(self.scheme == "https"),
        ]
        if not self.transport.is_closing():
            head = b"".join(b"%b: %b\r\n" % header for header in headers)
            self.transport.write(STATUS_LINE[status] + head + b"\r\n" + text.encode("ascii"))
            self.transport.close()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


PATIENCE, LOOK = 30.0, 0.05  # [s] a request waits for the next app; time between two checks


class SwappableApp:
    """An ASGI app that can be exchanged while its server runs; requests wait between two apps.

    Args:
        between: routes that are answered while there is no app.
        stale: browsers revalidate cached answers each time, for simulated clocks.
        absent: why requests are refused while there is no app; None: they wait for one.
        answers: whether the app may answer now; False: as if there were none.
    """

    def __init__(
        self,
        between: Sequence[BaseRoute] = (),
        *,
        stale: bool = False,
        absent: str | None = None,
        answers: Callable[[], bool] = lambda: True,
    ) -> None:
        self._app: App | None = None
        self._absent, self._answers = absent, answers
        limits = [Middleware(BodyLimit, usual=FORM)]
        app = Starlette(routes=between, middleware=limits, exception_handlers=ERRORS)
        self._between = SecurityHeaders(app)
        self._immediate_paths = tuple(str(getattr(route, "path", "/")) for route in between)
        self._stale, self._ended = stale, False

    def set_app(self, app: App) -> None:
        """Let this app answer from now on."""
        self._app = app

    def clear(self) -> None:
        """Remove the app and end its streams."""
        app, self._app = self._app, None
        if app is not None:
            app.end()

    def end(self) -> None:
        """Remove the app for good: requests are refused."""
        self._ended = True
        self.clear()

    def _present(self) -> App | None:
        return self._app if self._answers() else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._present() is None and scope["path"] in self._immediate_paths:
            await self._between(scope, receive, send)
            return
        deadline = time.monotonic() + PATIENCE
        while (app := self._present()) is None:
            if self._absent or self._ended or time.monotonic() > deadline:
                reason = self._absent or "The service begins again; try later."
                refusal = problem(503, reason, RETRY)
                await SecurityHeaders(refusal)(scope, receive, send)
                return
            await asyncio.sleep(LOOK)
        fresh = self._stale and scope["path"].startswith("/v1/")
        await app(scope, receive, _revalidated(send) if fresh else send)


def _revalidated(send: Send) -> Send:
    async def forward(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                (name, b"no-cache" if name == b"cache-control" and b"max-age" in value else value)
                for name, value in message["headers"]
            ]
        await send(message)

    return forward


class _Accepted(socket.socket):
    """A connection that its door counts from before the TLS handshake until it is closed."""

    leave: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


class _Door(socket.socket):
    """A listening socket that counts connections before the TLS handshake, by address too.

    Where all are taken, or a quarter by those that have made no request, a silent one of the
    address that has most is ended for one that comes from another address. What is beyond is
    closed.
    """

    connection_limit, address_limit = 4096, 1024
    counts: Counter[str]
    total = _turn = 0
    silent: _Silent
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        self._turn = (self._turn + 1) % TURN
        for _ in range(TURN if self._turn else 0):
            if self.total >= self.connection_limit + CLOSING:
                break  # it waits until those that were ended are closed
            file, address = self._accept()  # type: ignore[attr-defined]
            connection, sender = _Accepted(fileno=file), sender_network(address[0])
            proxy = any(
                ip_address(address[0].partition("%")[0]) in network for network in self.proxies
            )
            count, client = 0 if proxy else self.counts[sender], address[:2]
            full = self.total >= self.connection_limit
            full |= not proxy and len(self.silent.new) >= self.connection_limit // 4
            if count >= self.address_limit or (full and not self.silent.make_room(client)):
                connection.close()
                continue
            connection.setblocking(False)
            self.total += 1
            self.counts[sender] += 1
            connection.leave = partial(self._forget, sender, client)
            self.silent.add(client, partial(_end, connection))
            self.silent.new.add(client)
            return connection, address
        raise BlockingIOError  # asyncio goes on with those it has, and comes back

    def _forget(self, sender: str, client: Client) -> None:
        self.total -= 1
        self.counts[sender] -= 1
        if not self.counts[sender]:
            del self.counts[sender]
        self.silent.discard(client)


def _end(connection: socket.socket) -> None:
    """End a connection that asyncio has; it closes it when it reads the end."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


USUAL = Http()


class Server:
    """uvicorn in a thread, from `start` to `stop`. The port is bound by the constructor.

    Args:
        app: the ASGI app; its `end` is called before the server stops.
        host: address to bind.
        port: port to bind, 0 for a free one.
        http: TLS and limits.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, http: Http = USUAL) -> None:
        check_tls(http)
        self._socket = bind_socket(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._socket.connection_limit = limit = _allow_files(http.connections)
        self._socket.address_limit = max(limit // 4, 64)
        self._socket.proxies = tuple(map(ip_network, http.proxies))
        self._end: Callable[[], None] = getattr(app, "end", lambda: None)
        inside = http.proxies or host in ("127.0.0.1", "::1", "localhost")
        exposed = http.tls_certificate is not None or not inside
        limits = {"connection_limit": limit, "silent": self._socket.silent}
        config = uvicorn.Config(
            app,
            http=type("Limited", (LimitedProtocol,), limits),
            loop="asyncio" if exposed else "auto",  # uvloop would pass by the door
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # the app has the middleware, with the proxies it trusts
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            ssl_certfile=http.tls_certificate,
            ssl_keyfile=http.tls_key,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread; returns when requests are answered."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        log.info("listening", extra={"host": self.host, "port": self.port})

    def stop(self) -> None:
        """Wait some seconds for open requests, then stop."""
        self._end()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(30)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except SystemExit as error:
            log.error("http stopped", extra={"reason": str(error.code)})


def bind_socket(host: str, port: int) -> _Door:
    """Bind a socket that does not listen yet.

    Args:
        host: IPv4 or IPv6 address, or host name.
        port: 0 for a free one.

    Returns:
        The socket.

    Raises:
        ServiceError: if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named
    listener = _Door(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.counts, listener.silent = Counter(), _Silent()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"http host and port are {host!r} and {port}, which cannot be bound"
            f" ({error.strerror}); give free ones."
        ) from None
    return listener


def check_tls(http: Http) -> None:
    """Check certificate and key before the server starts.

    Args:
        http: section [http] of the service file.

    Raises:
        ServiceError: if they cannot be used.
    """
    if http.tls_certificate is None or http.tls_key is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(http.tls_certificate, http.tls_key, password=lambda: b"")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        name = type(error).__name__
        reason = error.strerror or name if isinstance(error, OSError) else "password"
        raise ServiceError(
            f"http tls_certificate {http.tls_certificate} and tls_key {http.tls_key} cannot be used"
            f" ({reason}); give a certificate chain and its key in PEM, without a password."
        ) from None


def _allow_files(connections: int) -> int:
    """Raise the limit of open files (often 1024); the connections that leave some for stores."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        soft = max(soft, limit)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(soft - RESERVED, soft // 2))
