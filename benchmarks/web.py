"""How fast prices are given out: over a bare endpoint of the same framework, and to listeners.

Load comes from `wrk` where it is installed, else from processes with raw sockets; both keep
connections open. Server, load and whatever else runs share the machine, so what counts is requests
a second of the server's own processor time: it answers in one thread and is never idle under load.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Question, Result, sized

SECONDS = sized(1.0, 0.1)  # of load in one round
ROUNDS = sized(10, 1)  # of each, in turn, so that a busy moment hits both; the best of each counts
CONNECTIONS = 16
LISTENERS, LAZY = sized((2000, 50), (20, 2))  # the lazy ones never read
ASK = b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"
RELEASES = 5


# servers, each in a process of its own: python -m benchmarks.web bare|ours


def _bare(body: bytes) -> Any:
    """The least a FastAPI endpoint can do."""
    from fastapi import FastAPI, Response

    app = FastAPI()

    @app.get("/v1/price")
    async def answer() -> Response:
        return Response(body, media_type="application/json")

    @app.get("/conditional")
    async def unchanged() -> Response:
        return Response(status_code=304, headers={"ETag": '"a"'})

    return app


class _Zone:
    """Releases for a zone that has no meters."""

    def __init__(self) -> None:
        from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
        from hushgrid.files.deployment import ZoneService
        from hushgrid.web.prices import History

        theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0])
        f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=[0])
        scenario = Scenario(Zone("elm-street", [1000]), Tariff(1.0, 62.5), [theta], f)
        self.zone = ZoneService(scenario, Policy(0.5, horizon=500), ("elm-0",), begins=900)
        self.history = History([self.zone])

    def publish(self, t: int) -> None:
        """Release t, of an interval of its own: a second release of one would not be sent."""
        from hushgrid.mechanism.release import Release
        from hushgrid.stores.ledger.entries import ReleaseRecord

        end = int(time.time()) // 900 * 900 + 900 * (t - 1)
        fields: dict[str, Any] = dict.fromkeys(Release.__dataclass_fields__, 0)
        fields |= {
            "zone": "elm-street", "t": t, "rate": 0.2317, "rule": "eta=1 block union",
            "simulated": True, "noise": "none", "load_hat": 500, "scale": 100.0,
        }  # fmt: skip
        place = {"head": f"{t:064x}", "signature": "cd" * 64}
        record = ReleaseRecord(Release(**fields), "readings", end - 900, end, end, {}, **place)
        self.history.publish(self.zone, record)


def _ours(zone: _Zone) -> Any:
    from hushgrid.curator.ingest import Ingest
    from hushgrid.files.settings import Http
    from hushgrid.web.http.app import make_app
    from hushgrid.web.http.metrics import Metrics, ZoneStates

    # every limit is on, and none is reached
    ingest: Ingest = Ingest([zone.zone], None)  # type: ignore[arg-type]
    http = Http(rate_limit=1e7, connections=LISTENERS * 2)
    return make_app(ingest, ZoneStates(["elm-street"]), Metrics(), http, history=zone.history)


def _serve(kind: str) -> None:
    """Serve until standard input ends; a line there publishes a release."""
    import httpx

    from hushgrid.files.settings import Http
    from hushgrid.web.http.server import Server

    zone = _Zone()
    zone.publish(1)
    ours = _ours(zone)
    app = ours

    if kind == "bare":

        async def body() -> bytes:
            transport = httpx.ASGITransport(app=ours)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                return (await client.get("/v1/price")).content

        app = _bare(asyncio.run(body()))
    server = Server(app, "127.0.0.1", 0, Http(connections=400 + LISTENERS * 2))
    server.start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    for t, _ in enumerate(sys.stdin, start=2):
        begun = time.perf_counter()
        zone.publish(t)
        sys.stdout.write(f"{time.perf_counter() - begun}\n")
        sys.stdout.flush()
    server.stop()


@contextmanager
def _served(kind: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.web", kind],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline()), process
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


# load


def load(port: int, path: str, headers: dict[str, str], seconds: float = SECONDS) -> float:
    """Requests a second that a server answers."""
    if seconds < 1:  # wrk takes whole seconds, and processes longer to start
        return _raw(port, path, headers, seconds, CONNECTIONS) / seconds
    if shutil.which("wrk"):
        return _wrk(port, path, headers, seconds)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [(port, path, headers, seconds, CONNECTIONS // 2)] * 2
        return sum(pool.starmap(_raw, jobs)) / seconds


def _wrk(port: int, path: str, headers: dict[str, str], seconds: float) -> float:
    words = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    said = subprocess.run(
        ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", *words,
         f"http://127.0.0.1:{port}{path}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"Requests/sec:\s+([\d.]+)", said)
    if found is None or "Socket errors" in said:
        raise RuntimeError(said)
    return float(found[1])


def _raw(port: int, path: str, headers: dict[str, str], seconds: float, connections: int) -> int:
    """Requests answered to so many sockets, one after the other on each."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    lengths: list[int] = []
    answered, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        for sock in socks:
            sock.sendall(request)
        for sock in socks:
            if not lengths:
                time.sleep(0.05)
                lengths.append(len(sock.recv(65_536)))
            else:
                left = lengths[0]
                while left > 0:
                    left -= len(sock.recv(left))
            answered += 1
    for sock in socks:
        sock.close()
    return answered


def _busy(port: int, pid: int, path: str, headers: dict[str, str]) -> float:
    """Requests a second of the server's processor time."""
    before, begun = _processor_time(pid), time.perf_counter()
    rate = load(port, path, headers)
    passed = time.perf_counter() - begun
    return rate * min(SECONDS, passed) / (_processor_time(pid) - before)


def _processor_time(pid: int) -> float:
    """Seconds a process computed; on other systems than Linux, seconds that passed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return time.perf_counter()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _etag(port: int) -> str:
    import httpx

    answer = httpx.get(f"http://127.0.0.1:{port}/v1/price")
    answer.raise_for_status()
    return answer.headers["etag"]


def _compared(path: str, peer_path: str, conditional: bool, goal: str) -> Result:
    """Requests a second, in turn with the bare endpoint."""
    rates, bases = [], []
    with _served("bare") as (bare, bare_process), _served("ours") as (ours, process):
        peer_headers = {"If-None-Match": '"a"'} if conditional else {}
        headers = {"If-None-Match": _etag(ours)} if conditional else {}
        load(bare, peer_path, peer_headers)
        load(ours, path, headers)
        for _ in range(ROUNDS):
            bases.append(_busy(bare, bare_process.pid, peer_path, peer_headers))
            rates.append(_busy(ours, process.pid, path, headers))
    return Result(max(rates), "1/s", max(rates) / max(bases), goal)


def price() -> Result:
    """The newest price."""
    return _compared("/v1/price", "/v1/price", False, ">= 0.8")


def conditional() -> Result:
    """Requests of those who have it already."""
    return _compared("/v1/price", "/conditional", True, ">= 0.9")


# listeners


class _Listeners:
    """Many listeners in one event loop, each counting its events; some never read."""

    def __init__(self, port: int) -> None:
        self._port, self._ready = port, 0
        self.counts = [0] * LISTENERS
        self._lazy: list[socket.socket] = []

    async def _listen(self, i: int) -> None:
        here = (f"127.0.1.{1 + i % 100}", 0)  # one caller may have a part of all listeners alone
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=here)
        writer.write(ASK)
        await reader.readuntil(b"\nid: ")  # the newest release, which every listener is sent first
        self._ready += 1
        while True:
            await reader.readuntil(b"\nid: ")
            self.counts[i] += 1

    async def run(self, process: Any) -> tuple[list[float], list[float]]:
        """Seconds until the last had each release, and seconds each release was held up."""
        for _ in range(LAZY):
            self._lazy.append(socket.create_connection(("127.0.0.1", self._port)))
            self._lazy[-1].sendall(ASK)
        tasks: list[asyncio.Task[None]] = []
        for first in range(0, LISTENERS, 20):
            tasks += [asyncio.create_task(self._listen(i)) for i in range(first, first + 20)]
            while self._ready < first + 20:
                failed = [task for task in tasks if task.done()]
                if failed:
                    failed[0].result()  # raises
                await asyncio.sleep(0.02)
        late, held = [], []
        for n in range(1, RELEASES + 1):
            begun = time.perf_counter()
            process.stdin.write("\n")
            process.stdin.flush()
            held.append(float(await asyncio.to_thread(process.stdout.readline)))
            while min(self.counts) < n and time.perf_counter() - begun < 60:
                await asyncio.sleep(0.005)
            late.append(time.perf_counter() - begun)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._lazy:
            sock.close()
        return late, held


@lru_cache(maxsize=1)
def _listened() -> tuple[float, float, float]:
    """The share of events that came, seconds until the last had one, seconds of a tick."""
    _more_files()
    with _served("ours") as (port, process):
        found = _Listeners(port)
        late, held = asyncio.run(found.run(process))
    return sum(found.counts) / (LISTENERS * RELEASES), median(late), median(held)


def stream() -> Result:
    """Every one of many listeners gets each release."""
    share, late, _ = _listened()
    return Result(late, "s until the last has it", share, ">= 1")


def tick() -> Result:
    """How long a release is held up by telling listeners, of one second that the loop may sleep."""
    *_, held = _listened()
    return Result(1000 * held, "ms", held / 1.0, "<= 0.05")


def _more_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LISTENERS + LAZY + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


QUESTIONS: dict[str, Question] = {
    "web_price": price,
    "web_conditional": conditional,
    "web_stream_2000": stream,
    "web_stream_tick": tick,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["bare", "ours"])
    _serve(parser.parse_args().kind)
