"""The app on a socket, in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
import time

import uvicorn
from starlette.applications import Starlette

from hushgrid.errors import ServiceError

log = logging.getLogger("hushgrid.http")


class Server:
    """uvicorn from `start` to `stop`; the port is bound at once, so that a taken one is told."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._socket = _bound(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=1000,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=10,
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
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(30)
        self._socket.close()

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except SystemExit as error:
            log.error("http stopped", extra={"reason": str(error.code)})


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted ones have it too
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServiceError(
            f"http host and port are {host!r} and {port}, which cannot be bound"
            f" ({error.strerror}); give free ones."
        ) from None
    return bound
