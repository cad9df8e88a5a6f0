"""MQTT messages sent and heard."""

from __future__ import annotations

import json
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.web.mqtt import hang_up
from tests.web.brokers import Broker, until


def send(broker: Broker, *payloads: bytes, sender: str = "gateway-1") -> None:
    """Each payload, confirmed by the broker."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    for payload in payloads:
        sent = client.publish(f"hushgrid/{sender}/readings", payload, qos=1)
        sent.wait_for_publish(30)
        assert sent.is_published()
    hang_up(client)


def heard(broker: Broker, topic: str) -> dict[str, Any]:
    """The retained message of a topic."""
    found: list[bytes] = []
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda c, *_: c.subscribe(topic, qos=1)
    client.on_message = lambda _c, _d, message: found.append(bytes(message.payload))
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    assert until(lambda: bool(found))
    hang_up(client)
    return dict(json.loads(found[0]))
