"""MQTT against a real broker: acknowledged when durable, sent again otherwise."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.curator.ingest import Ingest, Receipt
from hushgrid.curator.publishers import PresentPrices, price
from hushgrid.files.readings import message_batches
from hushgrid.files.settings import Mqtt
from hushgrid.stores.meters import open_meters
from hushgrid.web.mqtt import MqttPrices, MqttReadings, hang_up
from tests.curator.worlds import START, MemoryMeters, service, unavailable
from tests.web.brokers import Broker, until
from tests.web.http.faces import ROWS, as_csv, as_json, as_ndjson, shown
from tests.web.messages import heard, send

TOPIC = "hushgrid/+/readings"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    made.start()
    yield made
    made.stop()


def at(broker: Broker, **more: Any) -> Mqtt:
    return Mqtt("127.0.0.1", broker.port, readings=TOPIC, **more)


class Inlet:
    """A zone that listens, and the sum of its receipts."""

    def __init__(self, mqtt: Mqtt) -> None:
        zone = service()
        self.meters = MemoryMeters(zone)
        self.meters.close(zone.id, START - 900)
        self.total = Receipt()
        self.way = MqttReadings(mqtt, Ingest([zone], self.meters), self._count)
        self.way.start()
        assert self.way.listening.wait(60)

    def _count(self, way: str, receipt: Receipt) -> None:
        assert way == "mqtt"
        self.total += receipt


@pytest.fixture
def inlet(broker: Broker) -> Iterator[Inlet]:
    made = Inlet(at(broker))
    yield made
    made.way.stop()


def test_every_kind_of_payload_is_counted_once(broker: Broker, inlet: Inlet) -> None:
    send(broker, as_json(ROWS), as_ndjson(ROWS), as_csv(ROWS), b"hello", b"", b"[1", b"\xff" * 9)
    # the first delivery as over HTTP, the same twice more, and what cannot be read: one each
    assert until(lambda: inlet.total.malformed == 3 * 1 + 4)
    assert inlet.total[:3] == (4, 1 + 2 * 5, 3)
    assert inlet.total.unknown == 3
    assert inlet.way._thread.is_alive()


def test_a_message_that_breaks_the_parser_holds_no_other_back(
    broker: Broker, inlet: Inlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged, so that the broker does not send it again and again."""

    def parse(payload: bytes) -> Any:
        if payload == b"poison":
            raise OverflowError(payload)
        return message_batches(payload)

    monkeypatch.setattr("hushgrid.web.mqtt.message_batches", parse)
    send(broker, b"poison", as_ndjson(ROWS[:1]))
    assert until(lambda: inlet.total == Receipt(accepted=1, malformed=1))


def test_what_the_store_cannot_take_comes_again(broker: Broker, inlet: Inlet) -> None:
    tried = threading.Event()

    class Full(MemoryMeters):
        def put(self, *columns: Any, **more: Any) -> Any:
            tried.set()
            raise unavailable()

    good = inlet.way._ingest._store
    inlet.way._ingest._store = Full(service())
    send(broker, as_ndjson(ROWS[:1]), as_ndjson(ROWS[1:2]))
    assert tried.wait(60)
    assert inlet.total == Receipt(), "nothing is counted that was not stored"
    inlet.way._ingest._store = good
    assert until(lambda: inlet.total.accepted == 2)
    assert set(inlet.meters.rows) == {("elm-street", 0, START), ("elm-street", 1, START)}


class Zones:
    """Two zones with a store on disk, of which those in `opened` are open."""

    def __init__(self, mqtt: Mqtt, folder: Path, *opened: str) -> None:
        self._file, self.zones = folder / "meters", {name: service(name) for name in ("elm", "oak")}
        self.store, self.total = open_meters(self._file), Receipt()
        for name in opened:
            self.open(name)
        ingest = Ingest(list(self.zones.values()), self.store)
        self.way = MqttReadings(mqtt, ingest, self._count)

    def open(self, name: str) -> None:
        self.store.open_zone(name, self.zones[name].meters, 900)

    def damage(self, name: str) -> None:
        """A stored delivery that its checksum does not fit."""
        assert self.store.put(name, [0], [START], [900], [1]).accepted == 1
        with sqlite3.connect(self._file) as link:
            found = link.execute(
                "UPDATE hushgrid_meter_delivery SET readings = zeroblob(8) WHERE zone ="
                " (SELECT key FROM hushgrid_meter_zone WHERE zone = ?)", [name],
            )  # fmt: skip
            assert found.rowcount == 1
        self.store.shut()
        self.store = open_meters(self._file)
        for each in self.zones:
            self.open(each)
        self.way._ingest = Ingest(list(self.zones.values()), self.store)

    def _count(self, _way: str, receipt: Receipt) -> None:
        self.total += receipt


@pytest.fixture
def zones(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., Zones]]:
    made: list[Zones] = []

    def start(*opened: str, damaged: str | None = None) -> Zones:
        made.append(Zones(at(broker), tmp_path, *opened))
        if damaged is not None:
            made[0].damage(damaged)
        made[0].way.start()
        assert made[0].way.listening.wait(60)
        return made[0]

    yield start
    for each in made:
        each.way.stop()
        each.store.shut()


def rows_of(zone: str, *houses: int) -> bytes:
    return as_ndjson([(f"{zone}-{house}", START, 900, 10) for house in houses])


def test_damage_of_one_zone_holds_back_no_message_of_another(
    broker: Broker, zones: Callable[..., Zones], caplog: pytest.LogCaptureFixture
) -> None:
    """Readings of the interval are counted and never asked for again: they can never be stored."""
    it = zones("elm", "oak", damaged="elm")
    send(broker, rows_of("elm", 1), rows_of("oak", 0), rows_of("elm", 2, 3), rows_of("oak", 1))
    assert until(lambda: it.total.accepted == 2, 20)
    assert until(lambda: it.total == Receipt(accepted=2, damaged=3), 20)
    assert it.store.get("oak", START).missing == 4
    assert it.way.listening.is_set()
    it.way.stop()
    assert not [one for one in caplog.records if one.msg == "readings left with the broker"]
    again = MqttReadings(at(broker), it.way._ingest, it._count)
    again.start()
    assert again.listening.wait(60)
    send(broker, rows_of("oak", 2))  # after all that the broker may still have
    assert until(lambda: it.total == Receipt(accepted=3, damaged=3), 20)
    again.stop()


def test_only_what_could_not_be_stored_comes_again(
    broker: Broker, zones: Callable[..., Zones]
) -> None:
    it = zones("elm")  # the store does not take readings of oak yet
    send(broker, rows_of("oak", 0), rows_of("elm", 0), rows_of("oak", 1), rows_of("elm", 1))
    assert until(lambda: it.total == Receipt(accepted=2), 20)
    send(broker, rows_of("elm", 2))
    assert until(lambda: it.total == Receipt(accepted=3), 20)
    it.open("oak")
    assert until(lambda: it.total == Receipt(accepted=5), 20), "none of elm twice"


def test_a_broker_that_was_away_is_found_again(broker: Broker, inlet: Inlet) -> None:
    send(broker, as_ndjson(ROWS[:1]))
    assert until(lambda: inlet.total.accepted == 1)
    broker.stop()
    assert until(lambda: not inlet.way.listening.is_set())
    broker.start()
    send(broker, as_ndjson(ROWS[1:2]))  # kept for us: the session outlives both
    assert until(lambda: inlet.total.accepted == 2)


KILLED = """
    import os, sys
    from hushgrid.files.settings import Mqtt
    from hushgrid.curator.ingest import Ingest
    from hushgrid.web.mqtt import MqttReadings
    from tests.curator.worlds import MemoryMeters, service

    def say(line):  # whole, whichever thread says it
        os.write(1, f"{line}\\n".encode())

    class Dies(MemoryMeters):
        def put(self, *columns, **more):
            say("came")
            if sys.argv[2] == "die":
                os.kill(os.getpid(), 9)  # it came, and nothing is stored
            counts = super().put(*columns, **more)
            say(f"stored {counts.accepted}")
            return counts

    zone = service()
    mqtt = Mqtt("127.0.0.1", int(sys.argv[1]), readings="hushgrid/+/readings")
    way = MqttReadings(mqtt, Ingest([zone], Dies(zone)), client_id="the-same")
    way.start()
    way.listening.wait(60)
    say("listening")
    sys.stdin.readline()
    way.stop()
"""


class Listener:
    """The script in a process of its own, and what it says, which comes in no fixed order."""

    def __init__(self, broker: Broker, fate: str) -> None:
        root = Path(__file__).parents[2]
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), str(broker.port), fate],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said.extend(line.strip() for line in iter(self.process.stdout.readline, ""))

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            try:
                self.process.wait(60)
            finally:
                self.process.kill()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def says(self, line: str) -> bool:
        return until(lambda: line in self.said)


def test_a_process_killed_before_the_store_has_it_gets_it_again(broker: Broker) -> None:
    with Listener(broker, "die") as first:
        assert first.says("listening")
        send(broker, as_ndjson(ROWS[:1]))
        assert first.process.wait(60) == -signal.SIGKILL
    assert first.said == ["listening", "came"]
    with Listener(broker, "live") as second:
        assert second.says("stored 1"), "what was not stored comes again"
    with Listener(broker, "live") as third:
        assert third.says("listening")
        send(broker, as_ndjson(ROWS[1:3]))
        assert third.says("stored 2")
    assert "stored 1" not in third.said, "what was acknowledged does not come again"


def test_prices_go_out_retained_and_confirmed(broker: Broker) -> None:
    prices = MqttPrices(at(broker, prices="hushgrid/{zone}/price"))
    try:
        assert until(prices._client.is_connected)
        prices.show(service(), present(0.25))
        prices.show(service(), present(0.5))
        assert heard(broker, "hushgrid/elm-street/price") == present(0.5).price
        broker.stop()
        assert until(lambda: not prices._client.is_connected())
        with pytest.raises(OSError, match="away"):
            prices.show(service(), present(0.75))
        broker.start()
        assert until(prices._client.is_connected)
        prices.show(service(), present(0.75))
        assert heard(broker, "hushgrid/elm-street/price")["price"] == 0.75
    finally:
        prices.stop()


def present(rate: float) -> PresentPrices:
    return PresentPrices(price(service(), shown(rate=rate)) | {"next": None}, list)


class Stopping(paho.Client):
    """Its thread ends between the two looks that paho's loop_stop takes at it."""

    looks = 0

    @property
    def _thread(self) -> Any:
        if sys._getframe(1).f_code.co_name == "loop_stop":
            self.looks += 1
        return None if self.looks > 1 else self.__dict__.get("thread")

    @_thread.setter
    def _thread(self, thread: Any) -> None:
        self.__dict__["thread"] = thread


def test_a_thread_may_end_while_it_is_stopped(broker: Broker) -> None:
    client = Stopping(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    client.disconnect = lambda *_: None  # type: ignore[assignment, method-assign]
    with pytest.raises(AttributeError):
        client.loop_stop()
    client.looks = 0
    hang_up(client)
    assert client.looks > 1
    assert client.socket() is None or client.socket().fileno() == -1
