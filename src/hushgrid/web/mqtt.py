"""Readings in and prices out over MQTT 3.1.1, QoS 1.

Each message is acknowledged by itself, when its readings are durable or when they never can be. A
message that the store could not take stays with the broker, which sends it again after a
reconnect: the session is kept under a client id that is always the same and that no stranger knows:
a broker lets any client take over, or end, a session whose id it gives.

The sender of a message is the level of its topic that the first wildcard of `mqtt.readings` is for:
the broker lets a user write below its own name only.
"""

from __future__ import annotations

import json
import logging
import select
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from hushgrid.curator.ingest import Delivery, Ingest, Receipt, take_each
from hushgrid.curator.publishers import PresentPrices
from hushgrid.errors import IntakeError, MeterError, ServiceError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.readings import message_batches
from hushgrid.files.settings import Mqtt
from hushgrid.intake.readings import Parsed, Readings, collect
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.feeds import discovery

log = logging.getLogger("hushgrid.mqtt")

LIMIT = 16 << 20  # [bytes] a longer message is malformed
TOGETHER = 64  # messages stored with one sync at most
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0  # [s] between attempts
AWAY = 1.0  # [s] the longest while the broker is there and the meter store is not
CONFIRM = 5.0  # [s] for a broker to confirm a price
KEEP_ALIVE = 30  # [s]
AHEAD = 96  # prices of a forecast: Home Assistant's recorder takes attributes up to 16 KiB

Message = tuple[int, int, str, bytes]  # mid, qos, sender, payload


class MqttReadings:
    """Takes readings from a broker in its own thread, from `start` to `stop`.

    Args:
        mqtt: The broker and its topics.
        ingest: Stores readings.
        received: Called with "mqtt" and the receipt of each stored batch.
        client_id: Names the session that the broker keeps.

    Attributes:
        listening: Set while the subscription is active.
    """

    def __init__(
        self,
        mqtt: Mqtt,
        ingest: Ingest,
        received: Callable[[str, Receipt], None] = lambda _way, _receipt: None,
        client_id: str = "hushgrid-readings",
    ) -> None:
        if not mqtt.readings:
            raise ServiceError("mqtt readings is missing; give the topic readings come in on.")
        self._mqtt, self._ingest, self._received = mqtt, ingest, received
        self._waiting: list[Message] = []
        self._stop = threading.Event()
        self.listening = threading.Event()  # set while the broker sends us what comes
        self._thread = threading.Thread(target=self._run, name="mqtt-readings", daemon=True)
        self._pause, self._was_here = FIRST_PAUSE, False
        self._client = _client(mqtt, client_id, keep=True)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def start(self) -> None:
        """Connect, and reconnect until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Store the messages received so far and disconnect."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._was_here = False
            try:
                self._client.connect(self._mqtt.host, self._mqtt.port, KEEP_ALIVE)
                self._listen()
            except OSError as error:  # no broker
                self._pause = FIRST_PAUSE if self._was_here else self._pause
                log.warning("broker away", extra={"error": type(error).__name__})
            except MeterError:
                self._pause = min(self._pause, AWAY)
                log.warning("readings left with the broker")
            except Exception as error:  # nothing a sender does may end this thread
                log.exception("mqtt failed", extra={"error": type(error).__name__})
            self.listening.clear()
            self._waiting.clear()  # whatever was not acknowledged comes again
            with suppress(OSError, ValueError):
                self._client.disconnect()
                self._client.loop(0.1)
            _close_socket(self._client)
            self._stop.wait(self._pause)
            self._pause = min(2 * self._pause, LAST_PAUSE)

    def _listen(self) -> None:
        while not self._stop.is_set():
            status = self._client.loop(timeout=0.5)
            while self._waiting and len(self._waiting) < TOGETHER and self._can_read():
                status = self._client.loop(timeout=0.0)
            self._take()
            if status != MQTTErrorCode.MQTT_ERR_SUCCESS:
                raise ConnectionError

    def _can_read(self) -> bool:
        """Whether another message can be read without waiting."""
        sock = self._client.socket()
        return sock is not None and bool(select.select([sock], [], [], 0)[0])

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, code: Any, _p: Any) -> None:
        if code.is_failure:
            log.warning("broker refused", extra={"reason": str(code)})
            return
        client.subscribe(self._mqtt.readings or "", qos=1)

    def _on_subscribe(
        self, _client: paho.Client, _data: Any, _mid: int, codes: list[Any], _p: Any
    ) -> None:
        if any(code.is_failure for code in codes):
            log.warning("broker refused", extra={"reason": "subscription"})
            return
        self._was_here = True
        self.listening.set()
        log.info("broker here", extra={"host": self._mqtt.host, "port": self._mqtt.port})

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        sender = sender_of(self._mqtt.readings or "", message.topic)
        self._waiting.append((message.mid, message.qos, sender, bytes(message.payload)))

    def _take(self) -> None:
        """Store the messages received, and acknowledge each that is stored or never can be."""
        if not self._waiting:
            return
        # lazy: a message too large for the memory is its own trouble
        deliveries = [
            (Delivery(sender), map(_parse_message, [text])) for _, _, sender, text in self._waiting
        ]
        errors = take_each(self._ingest, deliveries)
        receipt, messages = Receipt(), 0
        for (mid, qos, _, _), (delivery, _), error in zip(
            self._waiting, deliveries, errors, strict=True
        ):
            if error is None:
                self._client.ack(mid, qos)
                receipt, messages = receipt + delivery.receipt, messages + 1
        self._waiting.clear()
        if messages:
            self._received("mqtt", receipt)
            counts = {k: v for k, v in receipt._asdict().items() if k != "clamped"}
            log.info("readings", extra={"messages": messages, **counts})
        for error in filter(None, errors):
            raise error
        self._pause = FIRST_PAUSE


def sender_of(pattern: str, topic: str) -> str:
    """The sender of a message.

    >>> sender_of("hushgrid/readings/#", "hushgrid/readings/meters-north/7")
    'meters-north'
    >>> sender_of("$share/curators/+/readings", "south/readings"), sender_of("readings", "readings")
    ('south', 'mqtt')

    Args:
        pattern: The topic of the subscription, perhaps with wildcards.
        topic: The topic of the message.

    Returns:
        The level for which the first wildcard is; `mqtt` where there is none.
    """
    if pattern.startswith("$share/"):
        pattern = pattern.split("/", 2)[2]
    for level, name in zip(pattern.split("/"), topic.split("/"), strict=False):
        if level in ("+", "#"):
            return name
    return "mqtt"


def _parse_message(payload: bytes) -> Parsed:
    """The readings of a message; an unreadable one counts as one malformed reading."""
    try:
        if len(payload) > LIMIT:
            raise IntakeError(f"message is beyond {LIMIT} bytes; send it in parts.")
        return collect(message_batches(payload))
    except IntakeError as error:
        return Parsed(Readings.empty(), 1, (str(error),))
    except MemoryError:  # to be sent again
        raise
    except Exception as error:  # one sender's message must not hold back those of all others
        log.exception("message not read", extra={"error": type(error).__name__})
        return Parsed(Readings.empty(), 1, ("message cannot be read.",))


class MqttOut:
    """A connection to a broker for publishing; `stop` ends it.

    Args:
        mqtt: The broker.
        client_id: Must differ from that of every other connection.
        available: Topic that says `online` while this connection lasts, and `offline` after it.
    """

    def __init__(self, mqtt: Mqtt, client_id: str, available: str | None = None) -> None:
        self._client = _client(mqtt, client_id, keep=False)
        self._available, self._connections = available, 0
        if available is not None:
            self._client.will_set(available, "offline", 1, retain=True)
        self._client.on_connect = self._greet
        self._client.reconnect_delay_set(1, int(LAST_PAUSE))
        self._silent_until = 0.0
        self._client.connect_async(mqtt.host, mqtt.port, KEEP_ALIVE)
        self._client.loop_start()

    def _greet(self, client: paho.Client, *_: Any) -> None:
        self._connections += 1
        if self._available is not None:
            client.publish(self._available, "online", 1, retain=True)

    def send(self, topic: str, text: str, *, retain: bool) -> None:
        """Publish with QoS 1 and wait for the confirmation; OSError where it does not come."""
        if not self._client.is_connected() or time.monotonic() < self._silent_until:
            raise ConnectionError("broker away")
        message = self._client.publish(topic, text, 1, retain=retain)
        try:
            message.wait_for_publish(CONFIRM)
        except (RuntimeError, ValueError):
            raise ConnectionError("broker away") from None
        if not message.is_published():
            self._silent_until = time.monotonic() + CONFIRM  # other zones shall not wait as well
            raise TimeoutError("broker silent")

    def stop(self) -> None:
        """Disconnect."""
        if self._available is not None:
            with suppress(OSError):  # a broker that is away sends the will
                self.send(self._available, "offline", retain=True)
        hang_up(self._client)


class MqttPrices(MqttOut):
    """Publishes the price in force, the next one and the forecast, retained.

    `{zone}` in the topic becomes the zone's name; where it is missing, the name comes last. If the
    service file asks for it, Home Assistant gets a discovery message before each price: a broker
    may have lost the one of before.

    Args:
        mqtt: The broker and its topics.
        client_id: Must differ from that of every other connection.
        name: Name of this curator among those of the service.
    """

    def __init__(
        self, mqtt: Mqtt, client_id: str = "hushgrid-prices", name: str = "curator"
    ) -> None:
        if not mqtt.prices:
            raise ServiceError("mqtt prices is missing; give the topic prices go out on.")
        self._topic = mqtt.prices
        self._prefix = mqtt.home_assistant_prefix if mqtt.home_assistant else None
        self._last: dict[str, tuple[int, str]] = {}  # price by topic, and the connection it went on
        root = mqtt.prices.partition("{zone}")[0].strip("/") or "hushgrid"
        super().__init__(mqtt, client_id, available=topic_of(f"{root}/available", name))

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Nothing: a price goes out when it is in force, or next."""

    def show(self, zone: ZoneService, prices: PresentPrices) -> None:
        """Publish what is new and wait for confirmations; OSError where one does not come."""
        topic, text = topic_of(self._topic, zone.id), json.dumps(prices.price)
        root = topic.removesuffix("/price")
        next_topic, forecast_topic = f"{root}/next", f"{root}/forecast"
        new = self._connections, text
        if self._last.get(topic) != new:
            if self._prefix is not None:
                topics = (topic, forecast_topic, self._available or "")
                for feed_in in (False, True)[: 1 + (zone.scenario.tariff.feed_in is not None)]:
                    text_of = discovery(zone, self._prefix, *topics, feed_in=feed_in)
                    self.send(*text_of, retain=True)
            self.send(next_topic, json.dumps(prices.price["next"]), retain=True)
            self.send(topic, text, retain=True)
            self._last[topic] = new
        if self._last.get(forecast_topic) != new and (forecast := prices.forecast()) is not None:
            coming = {"forecast": forecast[:AHEAD]}
            self.send(forecast_topic, json.dumps(prices.price | coming), retain=True)
            self._last[forecast_topic] = new


def open_prices(deployment: Deployment, client: str) -> MqttPrices | None:
    """Open the publisher of prices, where the service file asks for it.

    Args:
        deployment: The service.
        client: Name of this process at brokers.

    Returns:
        The publisher, or None.
    """
    if deployment.mqtt is None or not deployment.mqtt.prices:
        return None
    return MqttPrices(deployment.mqtt, f"hushgrid-prices-{client}", deployment.name)


def hang_up(client: paho.Client) -> None:
    """Disconnect a client that has a thread, and wait until the thread has ended.

    Args:
        client: The client; `loop_start` was called.
    """
    client.disconnect()
    with suppress(AttributeError):  # paho drops a thread that ends, also while loop_stop joins it
        client.loop_stop()
    _close_socket(client)


def _close_socket(client: paho.Client) -> None:
    """Close the socket where the client has not: the broker may answer a disconnect too late."""
    with suppress(OSError, ValueError):
        if (line := client.socket()) is not None:
            line.close()


def topic_of(pattern: str, zone: str) -> str:
    """The topic of a zone's prices; characters that a topic cannot hold are percent-encoded.

    >>> topic_of("hushgrid/{zone}/price", "elm-street"), topic_of("prices", "a/b")
    ('hushgrid/elm-street/price', 'prices/a%2Fb')

    Args:
        pattern: A topic in which `{zone}` may occur.
        zone: The zone's id.

    Returns:
        The topic.
    """
    name = "".join(f"%{ord(c):02X}" if c in "%+#/\0" else c for c in zone)
    return (pattern if "{zone}" in pattern else f"{pattern}/{{zone}}").replace("{zone}", name)


def _client(mqtt: Mqtt, client_id: str, *, keep: bool) -> paho.Client:
    client = paho.Client(
        CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=not keep, manual_ack=keep
    )
    if mqtt.username is not None:
        client.username_pw_set(mqtt.username, password_of(mqtt))
    if mqtt.tls:
        client.tls_set_context(tls_of(mqtt))
    return client


def tls_of(mqtt: Mqtt) -> ssl.SSLContext:
    """The TLS settings of a broker whose certificate and name are checked.

    Args:
        mqtt: The broker.

    Returns:
        The settings, with this client's certificate where it has one.

    Raises:
        ServiceError: A file cannot be read or is no certificate or key.
    """
    key = "tls_ca"
    try:
        context = ssl.create_default_context(cafile=mqtt.tls_ca)
        if mqtt.tls_certificate is not None:
            key = "tls_certificate"
            context.load_cert_chain(mqtt.tls_certificate, mqtt.tls_key, password="")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ServiceError(
            f"mqtt {key} or its key cannot be used ({type(error).__name__}); give PEM files that"
            " can be read, the key without a password."
        ) from None
    return context


def password_of(mqtt: Mqtt) -> str | None:
    """The broker's password, from the file that the service file names.

    Args:
        mqtt: The broker.

    Returns:
        The password; None where no file is named.

    Raises:
        ServiceError: The file cannot be read.
    """
    if mqtt.password_file is None:
        return None
    try:
        return mqtt.password_file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise ServiceError(
            f"mqtt password_file {mqtt.password_file} cannot be read; give a readable text file."
        ) from None
