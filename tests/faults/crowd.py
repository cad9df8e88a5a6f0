"""A crowd of strangers: python -m tests.faults.crowd KIND PORT CONNECTIONS [TLS]

They come from several addresses of this machine and stay until they are killed. Silent ones open
connections and send nothing, slow ones send one byte; heavy ones ask for ranges that no other asks
for, and for streams from their beginning, one after the other. Those with bodies send reports of
1 MiB without a token, every fourth one never to its end. `unread` is a VEN that asks for lists,
ranges and replays and does not read them, and `tables` a sender of Parquet with millions of rows in
few bytes. A line for each second: open connections, and answers by status.
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
from datetime import UTC, datetime
from functools import cache

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.serving import SECRET

ADDRESSES = [f"127.0.0.{n}" for n in range(2, 10)]
VTN = "/openadr3/3.1.0"
RANGE = "/v1/prices?zone=elm&limit={}&from=2020-01-01T00:00:00Z"
PARQUET = "application/vnd.apache.parquet"
BODY = b'{"resources":[' + b"0," * ((1 << 19) - 20) + b"0]}"


@cache
def table() -> bytes:
    """Ten million readings in few bytes."""
    rows = 1_000_000
    start = pa.scalar(datetime(2020, 1, 1, tzinfo=UTC), pa.timestamp("s", "UTC"))
    columns = {
        "meter_id": pa.repeat("elm-0", rows).dictionary_encode(),
        "start_utc": pa.repeat(start, rows),
        "duration_s": pa.repeat(2, rows),
        "wh": pa.repeat(1.0, rows),
    }
    group, sink = pa.table(columns), pa.BufferOutputStream()
    with pq.ParquetWriter(sink, group.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(group)
    return bytes(sink.getvalue())


class Crowd:
    def __init__(self, port: int, tls: bool) -> None:
        self._port, self._numbers = port, itertools.count(1)
        self._tls = ssl.create_default_context() if tls else None
        if self._tls is not None:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self.open, self.answers = 0, Counter[str]()
        self._tokens, self._mutex = dict[str, str](), asyncio.Lock()

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

    async def bodies(self, address: str) -> None:
        """Reports of 1 MiB without a token."""
        number = next(self._numbers)
        head = f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
        sent = BODY[: -1 if number % 4 == 0 else None]
        await self._again(address, f"POST {VTN}/reports", head, sent)

    async def unread(self, address: str) -> None:
        """Long answers of a VEN, of which nothing is read but the status."""
        number = next(self._numbers)
        path = (f"{VTN}/reports", "/v1/stream?zone=elm", RANGE.format(10_000 - number))[number % 3]
        more = "Last-Event-ID: 1\r\n" if "stream" in path else await self._token("ven")
        await self._again(address, f"GET {path}", more, patience=40.0)

    async def tables(self, address: str) -> None:
        """Tables that are small until they are read."""
        more = f"Content-Type: {PARQUET}\r\nContent-Length: {len(table())}\r\n"
        token = await self._token("tables")
        await self._again(address, "POST /v1/readings", more + token, table())

    async def _again(
        self, address: str, line: str, more: str, body: bytes = b"", patience: float = 0.0
    ) -> None:
        """Send a request over and over, read its status and stay for a while."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                stream, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(address, 0), ssl=self._tls, limit=1 << 12
                )
                self.open += 1
                try:
                    writer.write(f"{line} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode() + body)
                    await writer.drain()
                    status = (await stream.readexactly(12))[9:].decode()
                    self.answers[status] += 1
                    await asyncio.sleep(patience if status == "200" else 0.0)
                finally:
                    self.open -= 1
                    writer.transport.abort()
            await asyncio.sleep(0.01)

    async def _token(self, client: str) -> str:
        """The header with a client's token; made once, since a wrong attempt takes long."""
        async with self._mutex:
            if client not in self._tokens:
                self._tokens[client] = await asyncio.to_thread(self._fetch, client)
        return f"Authorization: Bearer {self._tokens[client]}\r\n"

    def _fetch(self, client: str) -> str:
        scheme = "https" if self._tls else "http"
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": SECRET}
        url = f"{scheme}://127.0.0.1:{self._port}{VTN}/auth/token"
        answer = httpx.post(url, data=form, verify=False, timeout=60)
        return str(answer.raise_for_status().json()["access_token"])

    async def _ask(
        self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter, n: int
    ) -> None:
        path, more = RANGE.format(10_000 - n % 5000), ""
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
    work = getattr(crowd, kind)
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
    kind, port, connections, *more = sys.argv[1:]
    if kind == "tables":
        table()  # before it is slow
    os.nice(10)  # the service is judged, not who gets the processor
    if kind in ("bodies", "unread", "tables"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    asyncio.run(main(kind, int(port), int(connections), bool(more)))
