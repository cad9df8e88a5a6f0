"""A server that takes callbacks, in a thread of its own."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Came(NamedTuple):
    path: str
    bearer: str | None
    host: str
    body: Any


class Hooks:
    """What came, by path. The path's first part says how it is answered: ok, 500, 302, ..."""

    def __init__(self) -> None:
        self.came: list[Came] = []
        self.mutex, self.open = threading.Lock(), threading.Event()
        self.open.set()
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with hooks.mutex:
                    bearer, host = self.headers["Authorization"], self.headers["Host"]
                    hooks.came.append(Came(self.path, bearer, host, json.loads(body)))
                    tries = hooks.tries[self.path]
                    hooks.tries[self.path] += 1
                how = self.path.split("/")[1]
                if how == "slow":
                    hooks.open.wait(60)
                if how == "later" and tries < 2:
                    how = "503"
                status = int(how) if how.isdecimal() else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/ok/redirected")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 1024

        self.tries: Counter[str] = Counter()
        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def paths(self) -> Counter[str]:
        with self.mutex:
            return Counter(one.path for one in self.came)


@contextmanager
def hooks() -> Iterator[Hooks]:
    made = Hooks()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.open.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()
