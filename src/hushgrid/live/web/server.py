"""The app on a socket, in a thread of its own."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from hushgrid.errors import ServiceError
from hushgrid.live.deployment import Http
from hushgrid.live.web.front import LARGEST
from hushgrid.live.web.protocol import Patient

log = logging.getLogger("hushgrid.http")

USUAL = Http()


class Server:
    """uvicorn from `start` to `stop`; the port is bound at once, so that a taken one is told."""

    def __init__(self, app: ASGIApp, host: str, port: int, http: Http = USUAL) -> None:
        check_tls(http)
        self._socket = bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        _allow_files(http.connections)
        self._end: Callable[[], None] = getattr(app, "end", lambda: None)
        config = uvicorn.Config(
            app,
            http=type("Limited", (Patient,), {"most": http.connections}),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # the front knows which proxies to believe
            h11_max_incomplete_event_size=LARGEST,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
            ssl_certfile=http.tls_certificate,
            ssl_keyfile=http.tls_key,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Serve; returns when requests are answered."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        log.info("listening", extra={"host": self.host, "port": self.port})

    def stop(self) -> None:
        """Finish the requests in hand, for some seconds, and stop."""
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


def bound(host: str, port: int) -> socket.socket:
    """A socket at an address, before it listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once (TCP_NODELAY) only where the protocol is named
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ServiceError(
            f"http host and port are {host!r} and {port}, which cannot be bound"
            f" ({error.strerror}); give free ones."
        ) from None
    return made


def check_tls(http: Http) -> None:
    """Refuse a certificate or key that cannot be used before anything listens."""
    if http.tls_certificate is None or http.tls_key is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(http.tls_certificate, http.tls_key, password=lambda: b"")
    except (OSError, ValueError) as error:  # ssl's own is an OSError
        why = error.strerror or type(error).__name__ if isinstance(error, OSError) else "password"
        raise ServiceError(
            f"http tls_certificate {http.tls_certificate} and tls_key {http.tls_key} cannot be used"
            f" ({why}); give a certificate chain and its key in PEM, without a password."
        ) from None


def _allow_files(connections: int) -> None:
    """A connection is an open file; the usual limit of 1024 is too low for a city."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 500
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
