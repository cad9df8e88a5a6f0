"""A proxy in front of a database that cuts connections at chosen words."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


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
