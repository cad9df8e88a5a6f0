"""A PostgreSQL server of the tests' own, and a proxy that cuts connections at chosen words."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A cluster in a folder of its own; PostgreSQL refuses root, so it runs as `postgres`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._data = binaries, folder / "data"
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        self.port = free_port()
        self._run("initdb", "-D", self._data, "-NA", "trust", "-U", "hushgrid", "-E", "UTF8")
        self._options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {folder}"
        self.start()

    def _run(self, program: str, *words: str | Path) -> None:
        command = [*self._as, self._binaries / program, *words]
        # the server keeps standard output open, so it may not be a pipe that is read to its end
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, check=False, cwd="/"
            )
            said.seek(0)
            assert done.returncode == 0, said.read().decode()

    def start(self) -> None:
        log = self._data / "log"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", self._options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def url(self, schema: str = "public", port: int | None = None) -> str:
        place = f"hushgrid@127.0.0.1:{port or self.port}/postgres"
        return f"postgresql://{place}?options=-csearch_path%3D{schema}"


@contextmanager
def running() -> Iterator[Server]:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if found := shutil.which("initdb"):
        places.append(Path(found).parent)
    if not places or not (places[-1] / "initdb").exists():
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hushgrid-postgres-"))
    try:
        server = Server(places[-1], folder)
        try:
            yield server
        finally:
            with suppress(AssertionError):  # a test may have left it stopped
                server.stop("immediate")
    finally:
        shutil.rmtree(folder)


class Proxy:
    """Hands bytes to and fro; cuts the client off once at `word` in what it sends.

    `answered`: the word reaches the server and is answered, but the client never hears of it.
    `zombie`: it does not reach the server, which is left waiting on an open connection.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.word: bytes | None = None
        self.answered = self.zombie = False
        self.inserts = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._back, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                self.inserts += data.count(b"INSERT INTO hushgrid_ledger ")
                if self.word is not None and self.word in data:
                    self._cut(client, server, data)
                    return
                server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        self.word = None
        client.shutdown(socket.SHUT_RDWR)
        if self.answered:
            server.sendall(data)
        if not self.zombie:
            server.shutdown(socket.SHUT_WR)  # after what was sent: that is still done

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                with suppress(OSError):  # a client that was cut off hears nothing
                    client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
