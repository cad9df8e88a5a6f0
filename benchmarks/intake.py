"""Durable intake: readings a second as a share of a bare writer's that does the same fsyncs.

The service runs as it does: uvicorn, ingest, embedded meter store on the project's disk. Senders
are another process, with deliveries made beforehand: 1,000 readings (a data concentrator) over
16 connections, 50,000 (a head-end) over 4; over MQTT messages of 1,000 through mosquitto, QoS 1,
none of them held back. Time runs until all are durable: to the last answer over HTTP, to the last
acknowledgement to the broker over MQTT.

The peer sits at the end of the same wire: an endpoint of the same server and framework (or a client
of the same broker) that reads nothing. It appends each delivery to a file as it came, syncs the
file as often as our store synced its own, and answers when that is done. What is missing to 1 is
what it takes to read the readings, to find their meters and to refuse what comes twice.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from anyio import to_thread
from paho.mqtt.enums import CallbackAPIVersion
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tests.services import free_port

from benchmarks.measure import Question, Result
from benchmarks.meters import folder
from benchmarks.running import INTERVAL
from benchmarks.running import service as zone_of
from benchmarks.sender import BARE, TOKEN, TOPIC
from hushgrid.files.deployment import Http, Mqtt
from hushgrid.service.http.app import make_app
from hushgrid.service.http.common import Metrics, ZoneStates
from hushgrid.service.http.server import Server
from hushgrid.service.ingest import Ingest, Receipt
from hushgrid.service.meters import open_meters
from hushgrid.service.mqtt import MqttReadings

ROUNDS = 5  # the first is not counted
SMALL, LARGE = (1_000, 200, 16), (50_000, 10, 4)  # readings, deliveries, connections


@dataclass
class Written:
    """How often our store synced its files."""

    syncs: int = 0


@contextmanager
def watched() -> Iterator[Written]:
    """Count the syncs of this process."""
    found, real = Written(), (os.fdatasync, os.fsync)

    def counted(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(file: int) -> None:
            found.syncs += 1
            sync(file)

        return call

    os.fdatasync, os.fsync = counted(real[0]), counted(real[1])
    try:
        yield found
    finally:
        os.fdatasync, os.fsync = real


class Bare:
    """Appends what comes to a file, and syncs it as often as it is told to."""

    def __init__(self, place: Path) -> None:
        self._place, self._number, self._mutex = place, 0, threading.Lock()

    def open(self, deliveries: int, written: Written) -> None:
        """A new file; so many deliveries will come, and share ours' syncs."""
        self._number += 1
        path = self._place / f"{self._number}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._share, self._owed = written.syncs / deliveries, 0.0

    def write(self, body: bytes) -> None:
        with self._mutex:
            os.write(self._file, body)
            self._owed += self._share
            while self._owed > 0.999:
                os.fdatasync(self._file)
                self._owed -= 1


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


def http(form: str, shape: tuple[int, int, int]) -> Result:
    """Over HTTP, one delivery a request."""
    size, deliveries, _ = shape
    readings = size * deliveries
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        ingest, store = _ingest(place, readings, stack)
        tokens = (hashlib.sha256(TOKEN.encode()).hexdigest(),)
        settings = Http(tokens=tokens, rate_limit=1e9)
        bare = Bare(place)
        servers = [
            Server(make_app(ingest, ZoneStates(), Metrics(), settings), "127.0.0.1", 0),
            Server(bare_app(bare, size), "127.0.0.1", 0),
        ]
        senders = []
        for each in servers:
            each.start()
            stack.callback(each.stop)
            senders.append(Senders(form, each.port, *shape))
            stack.callback(senders[-1].stop)
        ours, its = [], []
        for k in range(1, ROUNDS + 1):
            for sender in senders:
                sender.prepare(k * INTERVAL)
            with watched() as written:
                seconds, accepted = senders[0].send()
            assert accepted == readings
            store.close("bench", k * INTERVAL)
            ours.append(seconds)
            bare.open(deliveries, written)
            its.append(senders[1].send()[0])
    return _result(readings, ours, its)


def bare_app(bare: Bare, size: int) -> Any:
    """The least that makes a delivery durable, in the same framework."""

    async def take(request: Request) -> JSONResponse:
        await to_thread.run_sync(bare.write, await request.body())
        return JSONResponse({"accepted": size})

    return Starlette(routes=[Route("/v1/readings", take, methods=["POST"])])


def mqtt() -> Result:
    """Over MQTT, one delivery a message."""
    size, deliveries, _ = SMALL
    readings = size * deliveries
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        ingest, store = _ingest(place, readings, stack)
        port = stack.enter_context(mosquitto(place))
        counted = Counted(readings)
        inlet = MqttReadings(Mqtt("127.0.0.1", port, readings=TOPIC), ingest, counted.received)
        inlet.start()
        stack.callback(inlet.stop)
        assert inlet.listening.wait(30)
        bare, its_count = Bare(place), Counted(readings)
        stack.enter_context(bare_client(port, bare, lambda: its_count.received("", _ONE)))
        senders = [Senders(way, port, *SMALL) for way in ("mqtt", "mqtt-bare")]
        for sender in senders:
            stack.callback(sender.stop)
        ours, its = [], []
        for k in range(1, ROUNDS + 1):
            for sender in senders:
                sender.prepare(k * INTERVAL)
            with watched() as written:
                ours.append(counted.seconds(senders[0]))
            store.close("bench", k * INTERVAL)
            bare.open(deliveries, written)
            its.append(its_count.seconds(senders[1]))
    return _result(readings, ours, its)


_ONE = Receipt(accepted=SMALL[0])


@contextmanager
def bare_client(port: int, bare: Bare, came: Callable[[], None]) -> Iterator[None]:
    """The least that makes a message durable before it is acknowledged."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "bare", clean_session=False, manual_ack=True)
    here = threading.Event()

    def take(_client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        bare.write(message.payload)
        client.ack(message.mid, message.qos)
        came()

    client.on_message = take
    client.on_subscribe = lambda *_: here.set()
    client.connect("127.0.0.1", port)
    client.subscribe(BARE, qos=1)
    client.loop_start()
    assert here.wait(30)
    try:
        yield
    finally:
        client.disconnect()
        client.loop_stop()


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


def _ingest(place: Path, houses: int, stack: ExitStack) -> tuple[Ingest, Any]:
    service = zone_of(houses)
    store = stack.enter_context(open_meters(str(place / "meters")))
    store.open_zone(service.id, service.meters, INTERVAL)
    return Ingest([service], store), store


def _result(readings: int, ours: list[float], its: list[float]) -> Result:
    mine, peer = min(ours[1:]), min(its[1:])
    return Result(readings / mine, "readings/s", peer / mine, ">= 0.5")


QUESTIONS: dict[str, Question] = {
    "intake_arrow_1k": lambda: http("arrow", SMALL),
    "intake_arrow_50k": lambda: http("arrow", LARGE),
    "intake_ndjson_1k": lambda: http("ndjson", SMALL),
    "intake_ndjson_50k": lambda: http("ndjson", LARGE),
}
if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"):
    QUESTIONS |= {"intake_mqtt_1k": mqtt}
