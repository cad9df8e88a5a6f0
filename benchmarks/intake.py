"""Durable intake: readings a second as a share of a bare writer's that does the same fsyncs.

The service runs as it does: uvicorn, gate, embedded meter store on the project's disk. Senders are
a process of their own, with deliveries made beforehand: 1,000 readings (a data concentrator) over
16 connections, 50,000 (a head-end) over 4; over MQTT messages of 1,000 through mosquitto, QoS 1,
none of them held back. Time runs until all are durable: to the last answer over HTTP, to the last
acknowledgement to the broker over MQTT.

The peer is a bare writer. It has the bytes that our store wrote in that round in its memory, and
writes them in the same pieces, each with its sync. It receives nothing and reads nothing: where a
sync takes no time, the ratio says what receiving and reading cost. The questions that end in _wire
put the same readings through a bare receiver: the same server (or broker and client) takes each
delivery, parses nothing, and writes those bytes with those syncs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services import free_port

from benchmarks.measure import Question, Result
from benchmarks.meters import folder
from benchmarks.running import INTERVAL
from benchmarks.running import service as zone_of
from benchmarks.sender import TOKEN, TOPIC
from hushgrid.live.deployment import Http, Mqtt
from hushgrid.live.gate import Gate, Receipt
from hushgrid.live.meters import open_meters
from hushgrid.live.mqtt import MqttReadings
from hushgrid.live.web.app import make_app
from hushgrid.live.web.board import Board
from hushgrid.live.web.metrics import Metrics
from hushgrid.live.web.server import Server

ROUNDS = 5  # the first is not counted
SMALL, LARGE = (1_000, 200, 16), (50_000, 10, 4)  # readings, deliveries, connections


@dataclass
class Written:
    """What was written and synced: the pieces of a log between its syncs, and the other syncs."""

    pieces: list[bytes] = field(default_factory=list)
    folders: int = 0


@contextmanager
def watched() -> Iterator[Written]:
    """Count the syncs of this process, and keep what it writes before each."""
    found, real = Written(), (os.writev, os.fdatasync, os.fsync)

    def writev(file: int, buffers: Any) -> int:
        found.pieces.append(b"".join(bytes(part) for part in buffers))
        return real[0](file, buffers)

    def fsync(file: int) -> None:
        found.folders += 1
        real[2](file)

    os.writev, os.fsync = writev, fsync
    try:
        yield found
    finally:
        os.writev, os.fsync = real[0], real[2]


class Bare:
    """Writes pieces to a file, each with its sync."""

    def __init__(self, place: Path) -> None:
        self._place, self._number = place, 0

    def open(self, written: Written) -> None:
        self._number += 1
        path = self._place / f"{self._number}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for _ in range(written.folders):
            place = os.open(self._place, os.O_RDONLY)
            os.fsync(place)
            os.close(place)

    def write(self, piece: bytes) -> None:
        os.write(self._file, piece)
        os.fdatasync(self._file)

    def seconds(self, written: Written) -> float:
        begin = time.perf_counter()
        self.open(written)
        for piece in written.pieces:
            self.write(piece)
        return time.perf_counter() - begin


class Senders:
    """The other process."""

    def __init__(self, way: str, port: int, size: int, deliveries: int, connections: int) -> None:
        numbers = map(str, (port, size, deliveries, connections))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sender", way, *numbers],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def prepare(self, start: int) -> None:
        assert self._tell(f"{start}\n") == "ready\n", "the sender failed"

    def send(self) -> tuple[float, int]:
        seconds, accepted = json.loads(self._tell("go\n"))
        return seconds, accepted

    def _tell(self, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def http(form: str, shape: tuple[int, int, int], wire: bool = False) -> Result:
    """Over HTTP, one delivery a request."""
    size, deliveries, _ = shape
    readings = size * deliveries
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        gate, store = _gate(place, readings, stack)
        tokens = (hashlib.sha256(TOKEN.encode()).hexdigest(),)
        server = Server(make_app(gate, Board(), Metrics(), Http(tokens=tokens)), "127.0.0.1", 0)
        bare = Bare(place)
        receiver = Receiver(bare, size, deliveries)
        both = [server, Server(receiver, "127.0.0.1", 0)]  # type: ignore[arg-type]
        senders = []
        for each in both[: 1 + wire]:
            each.start()
            stack.callback(each.stop)
            senders.append(Senders(form, each.port, *shape))
            stack.callback(senders[-1].stop)
        ours, its = [], []
        for k in range(1, ROUNDS + 1):
            for each in senders:
                each.prepare(k * INTERVAL)
            with watched() as written:
                seconds, accepted = senders[0].send()
            assert accepted == readings
            store.close("bench", k * INTERVAL)
            ours.append(seconds)
            if wire:
                receiver.take(written)
                its.append(senders[1].send()[0])
            else:
                its.append(bare.seconds(written))
    return _result(readings, ours, its, None if wire else ">= 0.5")


class Receiver:
    """An ASGI app that takes bodies and writes what our store wrote for as many readings."""

    def __init__(self, bare: Bare, size: int, deliveries: int) -> None:
        self._bare, self._size, self._deliveries = bare, size, deliveries

    def take(self, written: Written) -> None:
        """The pieces of the next round; some of ours were of several deliveries at once."""
        self._bare.open(written)
        self._left, self._came, self._pieces = self._deliveries, 0, list(written.pieces)
        self._share = len(self._pieces) / self._deliveries

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        del scope
        while (await receive()).get("more_body", False):
            pass
        self._came += 1
        while self._pieces and (
            self._came == self._deliveries
            or len(self._pieces) > (self._deliveries - self._came) * self._share
        ):
            self._bare.write(self._pieces.pop(0))
        body = json.dumps({"accepted": self._size}).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def mqtt() -> Result:
    """Over MQTT, one delivery a message."""
    size, deliveries, _ = SMALL
    readings = size * deliveries
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        gate, store = _gate(place, readings, stack)
        port = stack.enter_context(mosquitto(place))
        broker, counted = Mqtt("127.0.0.1", port, readings=TOPIC), Counted(readings)
        inlet = MqttReadings(broker, gate, counted.received)
        inlet.start()
        stack.callback(inlet.stop)
        assert inlet.listening.wait(30)
        senders = Senders("mqtt", port, *SMALL)
        stack.callback(senders.stop)
        bare, ours, its = Bare(place), [], []
        for k in range(1, ROUNDS + 1):
            senders.prepare(k * INTERVAL)
            with watched() as written:
                ours.append(counted.seconds(senders))
            store.close("bench", k * INTERVAL)
            its.append(bare.seconds(written))
    return _result(readings, ours, its, ">= 0.5")


class Counted:
    """Waits until all readings are stored."""

    def __init__(self, readings: int) -> None:
        self._readings, self._done, self._left = readings, threading.Event(), 0

    def received(self, _way: str, receipt: Receipt) -> None:
        self._left -= receipt.accepted
        if self._left <= 0:
            self._done.set()

    def seconds(self, senders: Senders) -> float:
        self._left = self._readings
        self._done.clear()
        begin = time.perf_counter()
        senders.send()
        assert self._done.wait(120), "readings are missing"
        return time.perf_counter() - begin


@contextmanager
def mosquitto(place: Path) -> Iterator[int]:
    """A broker that holds no message back."""
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    assert program is not None
    port, file = free_port(), place / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        "max_inflight_messages 0\nmax_queued_messages 0\n"
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([program, "-c", str(file)], **quiet)  # type: ignore[call-overload]
    try:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _gate(place: Path, houses: int, stack: ExitStack) -> tuple[Gate, Any]:
    service = zone_of(houses)
    store = stack.enter_context(open_meters(str(place / "meters")))
    store.open_zone(service.id, service.meters, INTERVAL)
    return Gate([service], store), store


def _result(readings: int, ours: list[float], its: list[float], goal: str | None) -> Result:
    mine, peer = min(ours[1:]), min(its[1:])
    return Result(readings / mine, "readings/s", peer / mine, goal)


QUESTIONS: dict[str, Question] = {
    "intake_arrow_1k": lambda: http("arrow", SMALL),
    "intake_arrow_50k": lambda: http("arrow", LARGE),
    "intake_ndjson_1k": lambda: http("ndjson", SMALL),
    "intake_ndjson_50k": lambda: http("ndjson", LARGE),
    "intake_arrow_50k_wire": lambda: http("arrow", LARGE, wire=True),
    "intake_ndjson_50k_wire": lambda: http("ndjson", LARGE, wire=True),
}
if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"):
    QUESTIONS |= {"intake_mqtt_1k": mqtt}
