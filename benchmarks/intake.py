"""Durable intake: readings a second of the service's processor time, over what is needed.

100 million meters that report every five minutes send 0.33 million readings a second, so that one
service should take 0.3 million from data concentrators, and a million from head-ends.

The service runs as it does: uvicorn, ingest, SQLite meter store on the project's disk. Senders are
another process, with deliveries made beforehand: 1,000 readings (a data concentrator) over 16
connections, 50,000 (a head-end) over 4; over MQTT messages of 1,000 through mosquitto, QoS 1, none
of them held back. Time is what the service's process computes, in all its threads, until all are
durable: to the last answer over HTTP, to the last acknowledgement to the broker over MQTT. Senders
and broker are not in it, nor is the wait for the disk. So the figure is what one core takes.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.services import free_port

from benchmarks.measure import Question, Result, sized
from benchmarks.meters import folder
from benchmarks.running import INTERVAL
from benchmarks.running import service as zone_of
from benchmarks.sender import TOKEN, TOPIC
from hushgrid.curator.ingest import Ingest, Receipt
from hushgrid.files.settings import Http, Mqtt
from hushgrid.stores.meters import open_meters
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.http.server import Server
from hushgrid.web.mqtt import MqttReadings

ROUNDS = sized(5, 2)  # the first is not counted
# readings, deliveries, connections
SMALL, LARGE = sized(((1_000, 200, 16), (50_000, 10, 4)), ((20, 4, 2), (50, 2, 2)))
CONCENTRATORS, HEAD_ENDS = 0.3e6, 1e6  # [readings/s] needed


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

    def send(self) -> int:
        """How many readings were accepted, or sent where the broker confirms them."""
        return int(self._tell("go\n"))

    def _tell(self, text: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def http(form: str, shape: tuple[int, int, int], need: float) -> Result:
    """Over HTTP, one delivery a request."""
    size, deliveries, _ = shape
    readings = size * deliveries
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        ingest, store = _ingest(place, readings, stack)
        tokens = (hashlib.sha256(TOKEN.encode()).hexdigest(),)
        settings = Http(tokens=tokens, rate_limit=1e9)
        server = Server(make_app(ingest, ZoneStates(), Metrics(), settings), "127.0.0.1", 0)
        server.start()
        stack.callback(server.stop)
        senders = Senders(form, server.port, *shape)
        stack.callback(senders.stop)
        times = []
        for k in range(1, ROUNDS + 1):
            senders.prepare(k * INTERVAL)
            begin = time.process_time()
            assert senders.send() == readings
            times.append(time.process_time() - begin)
            store.close("bench", k * INTERVAL)
    return _result(readings, times, need)


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
        senders = Senders("mqtt", port, *SMALL)
        stack.callback(senders.stop)
        times = []
        for k in range(1, ROUNDS + 1):
            senders.prepare(k * INTERVAL)
            times.append(counted.seconds(senders))
            store.close("bench", k * INTERVAL)
    return _result(readings, times, CONCENTRATORS)


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
        begin = time.process_time()
        senders.send()
        assert self._done.wait(120), "readings are missing"
        return time.process_time() - begin


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
    store = stack.enter_context(open_meters(str(place / "meters.db")))
    store.open_zone(service.id, service.meters, INTERVAL)
    return Ingest([service], store), store


def _result(readings: int, times: list[float], need: float) -> Result:
    pace = readings / min(times[1:])
    return Result(pace, "readings/s of processor time", pace / need, ">= 1")


QUESTIONS: dict[str, Question] = {
    "intake_arrow_1k": lambda: http("arrow", SMALL, CONCENTRATORS),
    "intake_arrow_50k": lambda: http("arrow", LARGE, HEAD_ENDS),
    "intake_ndjson_1k": lambda: http("ndjson", SMALL, CONCENTRATORS),
    "intake_ndjson_50k": lambda: http("ndjson", LARGE, CONCENTRATORS),
}
if shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"):
    QUESTIONS |= {"intake_mqtt_1k": mqtt}
