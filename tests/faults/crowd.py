"""A crowd of strangers: python -m tests.faults.crowd silent|slow|heavy PORT CONNECTIONS [TLS]

They come from several addresses of this machine and stay until they are killed. Silent ones open
connections and send nothing, slow ones send one byte; heavy ones ask for ranges that no other asks
for, and for streams from their beginning, one after the other. A line for each second: open
connections, and answers by status.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import ssl
import sys
from collections import Counter
from contextlib import suppress

ADDRESSES = [f"127.0.0.{n}" for n in range(2, 10)]


class Crowd:
    def __init__(self, port: int, tls: bool) -> None:
        self._port, self._numbers = port, itertools.count(1)
        self._tls = ssl.create_default_context() if tls else None
        if self._tls is not None:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self.open, self.answers = 0, Counter[str]()

    async def silent(self, address: str, first: bytes = b"") -> None:
        """Before TLS, so that the service waits for the handshake."""
        while True:
            with suppress(OSError):
                stream, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(address, 0)
                )
                self.open += 1
                try:
                    writer.write(first)
                    await stream.read(1)
                finally:
                    self.open -= 1
                    writer.close()
            await asyncio.sleep(0.5)

    async def slow(self, address: str) -> None:
        """One byte, of a head or of TLS, and nothing more."""
        await self.silent(address, b"\x16" if self._tls else b"G")

    async def heavy(self, address: str) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                stream, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(address, 0), ssl=self._tls, limit=1 << 22
                )
                self.open += 1
                try:
                    for n in self._numbers:
                        await self._ask(stream, writer, n)
                finally:
                    self.open -= 1
                    writer.close()
            await asyncio.sleep(0.1)

    async def _ask(
        self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter, n: int
    ) -> None:
        path, more = f"/v1/prices?zone=elm&limit={10_000 - n % 5000}&from=2020-01-01T00:00:00Z", ""
        if n % 4 == 0:
            path, more = "/v1/stream?zone=elm", f"Last-Event-ID: {n % 1000}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        head = await stream.readuntil(b"\r\n\r\n")
        self.answers[head.split(b" ", 2)[1].decode()] += 1
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if b"content-length" in fields:
            await stream.readexactly(int(fields[b"content-length"]))
        else:  # of a stream the first events
            await stream.read(1 << 20)
            raise ConnectionError


async def main(kind: str, port: int, connections: int, tls: bool) -> None:
    crowd = Crowd(port, tls)
    work = {"silent": crowd.silent, "slow": crowd.slow, "heavy": crowd.heavy}[kind]
    tasks = []
    for n in range(connections):
        tasks.append(asyncio.create_task(work(ADDRESSES[n % len(ADDRESSES)])))
        if n % 200 == 199:
            await asyncio.sleep(0.05)
    while True:
        sys.stdout.write(json.dumps({"open": crowd.open, "answers": crowd.answers}) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(1)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(10)  # the service is judged, not who gets the processor
    kind, port, connections, *more = sys.argv[1:]
    asyncio.run(main(kind, int(port), int(connections), bool(more)))
