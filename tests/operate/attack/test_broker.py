"""The broker between meters and service: who may connect, take over a session, or listen in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.curator.clock import utc
from hushgrid.files.settings import Http, Mqtt, OpenAdr
from hushgrid.operate.check import examine
from hushgrid.operate.process import Process
from hushgrid.stores.ledger.writer import load
from hushgrid.web.mqtt import MqttOut, MqttReadings, hang_up
from hushgrid.web.openadr.app import open_events
from tests.curator.worlds import START, deployment, service
from tests.secured import Secured, certify
from tests.web.brokers import Broker, until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    made.start()
    yield made
    made.stop()


def send(port: int, topic: str, user: str | None = None, name: str = "", **more: Any) -> None:
    """One reading of the first house, confirmed by the broker."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name)
    if user is not None:
        client.username_pw_set(user, f"secret of {user}")
    if "trust" in more:
        client.tls_set(str(more["trust"]))
    client.connect("localhost", port)
    client.loop_start()
    row = {"meter_id": "elm-street-0", "start_utc": utc(START), "duration_s": 900, "wh": 321}
    sent = client.publish(topic, json.dumps([row]), qos=1)
    sent.wait_for_publish(30)
    assert sent.is_published()
    hang_up(client)


def listening(process: Process) -> MqttReadings:
    inlet = process._make_readings()
    assert inlet is not None
    inlet.start()
    assert inlet.listening.wait(60)
    return inlet


def stored(process: Process) -> bool:
    return bool(process._meters.get("elm-street", START).present[0])


def test_no_stranger_ends_the_session_that_readings_wait_in(tmp_path: Path, broker: Broker) -> None:
    mqtt = Mqtt("127.0.0.1", broker.port, readings="hushgrid/readings/#", prices="prices")
    made = deployment(tmp_path, service(), mqtt=mqtt)
    public = load(made.key).public
    with ExitStack() as stack:
        process = Process(made, stack)
        process.open(START)
        listening(process).stop()
        send(broker.port, "hushgrid/readings/north")  # while the service is away
        for name in (public, public[:12]):  # as any reader of the ledger could
            for kind in ("readings", "prices", "openadr"):
                send(broker.port, "another/topic", name=f"hushgrid-{kind}-{name}")
        out = [p._publisher for p in process._publishers if isinstance(p._publisher, MqttOut)]
        assert out
        ids = {one._client._client_id.decode() for one in out}
        inlet = listening(process)
        assert until(lambda: stored(process))
        inlet.stop()
        ids.add(inlet._client._client_id.decode())
    assert not any(public[:12] in one for one in ids)
    with ExitStack() as stack:  # the same after a restart
        again = Process(made, stack)._make_readings()
        assert again is not None
        assert again._client._client_id.decode() in ids


def secure(secured: Secured, folder: Path, **more: Any) -> Mqtt:
    word = folder / "word"
    word.write_text("secret of hushgrid\n")
    own: dict[str, Any] = {"username": "hushgrid", "password_file": word, "tls": True,
                           "tls_ca": folder / "tls.crt"}  # fmt: skip
    return Mqtt("localhost", secured.secure, readings="hushgrid/readings/#", **(own | more))


def test_readings_come_over_tls_with_a_password(secured: Secured, tmp_path: Path) -> None:
    mqtt = secure(secured, tmp_path)
    with ExitStack() as stack:
        process = Process(deployment(tmp_path, service(), mqtt=mqtt), stack)
        process.open(START)
        inlet = listening(process)
        trust = tmp_path / "tls.crt"
        send(secured.secure, "hushgrid/readings/meters-north/7", "meters-north", trust=trust)
        assert until(lambda: stored(process))
        inlet.stop()


# paho leaves the socket of a failed handshake to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broker_of_another_certificate_is_not_spoken_to(secured: Secured, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    certify(other)
    tried = []
    for ca in (other / "tls.crt", None):  # another authority, and the system's
        inlet = MqttReadings(secure(secured, tmp_path, tls_ca=ca), None)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            inlet._client.connect("localhost", secured.secure)
        tried.append(inlet.listening.is_set())
    assert tried == [False, False]


def test_a_client_certificate_is_enough(tmp_path: Path) -> None:
    certify(tmp_path)
    broker = Broker(tmp_path)
    files = {one: str(tmp_path / f"tls.{one}") for one in ("crt", "key")}
    broker._file.write_text(
        f"user root\nlistener {broker.port} 127.0.0.1\ncafile {files['crt']}\n"
        f"certfile {files['crt']}\nkeyfile {files['key']}\nrequire_certificate true\n"
        "use_identity_as_username true\n"
    )
    broker.start()
    try:
        more = {"tls_ca": tmp_path / "tls.crt", "tls_certificate": tmp_path / "tls.crt"}
        mqtt = Mqtt("localhost", broker.port, readings="r/#", tls=True, **more,
                    tls_key=tmp_path / "tls.key")  # fmt: skip
        inlet = MqttReadings(mqtt, None)  # type: ignore[arg-type]
        inlet.start()
        assert inlet.listening.wait(60)
        inlet.stop()
    finally:
        broker.stop()


def test_check_warns_of_a_broker_in_the_clear(tmp_path: Path) -> None:
    certify(tmp_path)
    word = tmp_path / "word"
    word.write_text("w")
    made = deployment(tmp_path, service(), mqtt=Mqtt("broker", readings="r/#"))
    found = examine(made)
    assert found.problems == []
    assert [one.partition(",")[0] for one in found.remarks] == [
        "mqtt.tls is not set",
        "mqtt has neither username and password_file nor tls_certificate",
    ]
    named = Mqtt("broker", username="u", password_file=word, tls=True, tls_ca=tmp_path / "tls.crt")
    word.chmod(0o604)
    found = examine(replace(made, mqtt=named))
    assert found.problems == []
    mode = f"{word} has mode 0604, so that others can use it; chmod 600 {word}."
    assert found.remarks == [f"mqtt.password_file: {mode}"]
    word.chmod(0o600)
    found = examine(replace(made, mqtt=named))
    assert (found.problems, found.remarks) == ([], [])
    for broken in ({"tls_ca": word}, {"tls_certificate": word, "tls_key": word}):
        (problem,) = examine(replace(made, mqtt=replace(named, **broken))).problems
        assert problem.startswith("mqtt: mqtt tls_")


def test_notifiers_announce_what_the_broker_asks(tmp_path: Path) -> None:
    plain = Mqtt("broker", readings="r/#")
    named = replace(plain, username="u", tls=True, port=8883)
    uris = ("mqtts://prices.example:8884",)
    made = deployment(tmp_path, service(), http=Http(), mqtt=plain, openadr=OpenAdr())

    def announced(mqtt: Mqtt, **more: Any) -> tuple[str, ...]:
        return replace(made, mqtt=mqtt, openadr=OpenAdr(**more)).mqtt_uris

    assert announced(plain) == ("mqtt://broker:1883",)
    assert announced(named) == announced(named, mqtt_uris=uris) == (), "it asks for a name"
    assert announced(plain, mqtt_anonymous=False) == ()
    assert announced(named, mqtt_uris=uris, mqtt_anonymous=True) == uris
    assert announced(named, mqtt_anonymous=True) == ("mqtts://broker:8883",)
    events = open_events(replace(made, mqtt=named), "x")
    assert events is not None, "those with a name still get them"
    events.stop()


def test_what_the_broker_has_saved_survives_its_kill(secured: Secured, tmp_path: Path) -> None:
    """The shipped settings save every second; docs/operations.md says what a kill loses."""
    assert "autosave_interval 1\n" in secured._file.read_text()
    mqtt = secure(secured, tmp_path)
    with ExitStack() as stack:
        process = Process(deployment(tmp_path, service(), mqtt=mqtt), stack)
        process.open(START)
        listening(process).stop()
        trust, kept = tmp_path / "tls.crt", tmp_path / "mosquitto.db"
        send(secured.secure, "hushgrid/readings/meters-north/7", "meters-north", trust=trust)
        assert until(lambda: kept.exists() and b"elm-street-0" in kept.read_bytes())
        assert secured._process is not None
        secured._process.kill()
        secured._process.wait(30)
        secured.start()
        inlet = listening(process)
        assert until(lambda: stored(process))
        inlet.stop()
