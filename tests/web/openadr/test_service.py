"""The VTN of a whole service: a tick becomes an event, over HTTP and over MQTT."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.curator.clock import SystemClock
from hushgrid.errors import ConfigError
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http, Mqtt, OpenAdr
from hushgrid.operate import serve
from hushgrid.stores.clients import KINDS, Client, ClientStore
from hushgrid.web.mqtt import hang_up
from tests.curator.setups import example
from tests.curator.worlds import deployment, service
from tests.web.brokers import Broker, free_port, until
from tests.web.openadr.hooks import hooks
from tests.web.openadr.judge import check_as, judged, standard
from tests.web.openadr.setup import SECRET, kept_secret, subscription

SECONDS = 2


def test_a_tick_becomes_an_event_on_every_way_out(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.start()
    port = free_port()
    made = deployment(
        tmp_path,
        service(begins=int(time.time()) // SECONDS * SECONDS, seconds=SECONDS),
        http=Http(port=port),
        mqtt=Mqtt("127.0.0.1", broker.port),
        openadr=OpenAdr(allow_private_callbacks=True),
    )
    with ClientStore(made.client_store) as clients:
        clients.add(Client("ven-1", KINDS["ven"], kept_secret(), 0))
    heard: list[tuple[str, bool, Any]] = []
    listener = paho.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = lambda _c, _d, m: heard.append((m.topic, m.retain, json.loads(m.payload)))
    listener.on_connect = lambda c, *_: c.subscribe("OpenADR/#", 1)
    listener.connect("127.0.0.1", broker.port)
    listener.loop_start()
    stop = threading.Event()
    running = threading.Thread(
        target=serve, args=(made,), kwargs={"clock": SystemClock(), "stop": stop}
    )
    running.start()
    base = f"http://127.0.0.1:{port}/openadr3/3.1.0"

    def events() -> list[Any]:
        try:
            answer = httpx.get(f"{base}/events?programID=elm-street")
        except httpx.TransportError:
            return []
        judged(answer, "/events")
        return answer.json()  # type: ignore[no-any-return]

    try:
        assert until(lambda: len(events()) > 0)
        form = {"grant_type": "client_credentials"}
        token = httpx.post(f"{base}/auth/token", data=form, auth=("ven-1", SECRET)).json()
        auth = {"Authorization": f"Bearer {token['access_token']}"}
        with hooks() as taken:
            body = subscription(f"{taken.url}/ok/a", programID="elm-street")
            assert httpx.post(f"{base}/subscriptions", json=body, headers=auth).status_code == 201
            ahead = "OpenADR/3.1.0/programs/elm-street-forecast/events/update"
            assert until(lambda: len(taken.came) > 0 and ahead in {one[0] for one in heard})
            told = taken.came[0].body["object"]
        assert httpx.get(f"{base}/events/{told['id']}").json() == told
        assert told["eventName"].endswith("(simulated)")
        price = httpx.get(f"http://127.0.0.1:{port}/v1/price").json()
        rates = [e["intervals"][0]["payloads"][0]["values"][0] for e in events()]
        assert price["kind"] == "forecast" or price["price"] in rates
        assert {topic for topic, _, _ in heard} == {
            "OpenADR/3.1.0/programs/elm-street/events/create", "OpenADR/3.1.0/events/create",
            ahead, "OpenADR/3.1.0/events/update",
        }  # fmt: skip
        coming = next(note for topic, _, note in heard if topic == ahead)
        assert (coming["operation"], coming["object"]["id"]) == ("UPDATE", "elm-street-forecast")
        assert not any(retained for _, retained, _ in heard)
        note = next(one for topic, _, one in heard if topic.endswith("create"))
        assert httpx.get(f"{base}/events/{note['object']['id']}").json() == note["object"]
        if standard() is not None:
            check_as("notification", note)
    finally:
        stop.set()
        running.join(60)
        hang_up(listener)
        broker.stop()
    assert (tmp_path / "vtn.sqlite").exists(), "beside the ledger"


def test_a_service_file_says_how_the_vtn_is(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    plain = example(1_767_571_200)
    file.write_text(plain)
    assert load_deployment(file).openadr == OpenAdr()
    file.write_text(
        plain + '\n[openadr]\nanonymous = false\nwebhooks = false\nurl = "https://a.example/"\n'
        'allow_private_callbacks = true\nmqtt = true\nmqtt_uris = ["mqtts://b.example:8883"]\n'
    )
    assert load_deployment(file).openadr == OpenAdr(
        False, False, True, "https://a.example", True, ("mqtts://b.example:8883",)
    )
    file.write_text(plain + "\n[openadr]\nenabled = false\n")
    assert load_deployment(file).openadr is None
    file.write_text(
        plain + '\n[openadr]\nanonymous = 1\nurl = "a.example"\nmqtt_uris = "mqtt://a"\nother = 1\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_deployment(file)
    wrong = {problem.key for problem in caught.value.problems}
    assert {"openadr.anonymous", "openadr.url", "openadr.mqtt_uris"} < wrong
    assert len(wrong) == 4


def test_where_notifications_can_be_heard(tmp_path: Path) -> None:
    broker = Mqtt("broker.example", 1884)
    for mqtt, openadr, uris in (
        (broker, OpenAdr(), ("mqtt://broker.example:1884",)),
        (broker, OpenAdr(mqtt_uris=("mqtts://a",)), ("mqtts://a",)),
        (broker, OpenAdr(mqtt=False), ()),
        (None, OpenAdr(), ()),
        (broker, None, ()),
    ):
        assert deployment(tmp_path, mqtt=mqtt, openadr=openadr).mqtt_uris == uris
