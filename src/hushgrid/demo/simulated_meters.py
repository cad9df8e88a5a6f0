"""Simulated meters: the people of a service's zones, their readings, and channels to a curator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.curator.clock import utc
from hushgrid.curator.ingest import Receipt
from hushgrid.errors import ServiceError, connection_reason
from hushgrid.files.deployment import ZoneService
from hushgrid.files.weeks import Steps, settled
from hushgrid.intake.readings import Readings, Register
from hushgrid.model.world import World
from hushgrid.model.zone import Scenario

ATTEMPTS, PAUSE = 6, 0.5  # how often a delivery is tried; the pause [s] doubles
BODY, MESSAGE = 50_000, 1000  # readings in an HTTP body, in an MQTT message


class MeterChannel(Protocol):
    """Where a fleet sends its readings."""

    def send(self, readings: Readings) -> Receipt | None:
        """Deliver; the receipt where the channel gives one."""
        ...

    def rate(self, zone: str) -> float | None:
        """The current rate [currency/kWh]; None where the channel does not provide it."""
        ...

    def shut(self) -> None:
        """Disconnect."""
        ...


class Fleet:
    """The meters of one zone, interval by interval from the one that `now` lies in.

    Args:
        zone: The zone.
        seed: Random seed of its people.
        now: The time [UTC s].

    Attributes:
        zone: The zone.
        start: Start of the next interval [UTC s].
        world: The simulated people.
    """

    def __init__(self, zone: ZoneService, seed: int, now: float) -> None:
        self.zone = zone
        step = max(int(now - zone.begins) // zone.seconds, 0)
        self.start = zone.begins + step * zone.seconds
        self.world = World(_from_step(zone, step), (seed,))
        self._codes = np.arange(len(zone.all_meters), dtype=np.int32)
        self._rates: list[float] = []

    @property
    def end(self) -> int:
        """When the next interval ends [UTC s]."""
        return self.start + self.zone.seconds

    def _split(self, wh: Ints, register: Register) -> int:
        """Take from a house's reading what a further register counts of it: half, or all fed in."""
        house = register.house
        part = int(wh[house]) // 2 if register.sign > 0 else max(-int(wh[house]), 0)
        wh[house] -= register.sign * part
        return part

    def interval(self, rate: float | None, factor: float = 1.0) -> Readings:
        """All readings of the next interval, after `rate` was published (None: no new rate).

        With a `factor` every house uses that many times as much, up to its bound.
        """
        if rate is not None:
            self._rates.append(rate)
        self.world.step(self._rates)
        if factor != 1:
            use = np.rint(factor * self.world.readings)
            self.world.readings[:] = np.minimum(use, self.zone.scenario.zone.bound)
        unit = np.full(len(self._codes), 1, np.int64)
        wh = self.world.readings.astype(np.int64) - self.zone.scenario.zone.export
        further = [self._split(wh, register) for register in self.zone.registers]
        readings = Readings(
            self.zone.all_meters,
            self._codes,
            start=self.start * unit,
            duration=self.zone.seconds * unit,
            wh=np.append(wh, np.array(further, np.int64)),
        )
        self.start = self.end
        return readings


def _from_step(zone: ZoneService, step: int) -> Scenario:
    """The zone from a step on; patterns of a file over the year that follows."""
    if zone.pattern is None:
        return zone.scenario.starting(step)
    begins, year = zone.begins + step * zone.seconds, 366 * 86_400 // zone.seconds
    return settled(zone.pattern, Steps(begins, zone.seconds, year, zone.time_zone))


def parts(readings: Readings, size: int) -> Iterator[Readings]:
    """Split readings into batches.

    Args:
        readings: The readings.
        size: Readings of a batch.

    Yields:
        Batches in order.
    """
    for begin in range(0, len(readings), size):
        yield readings.at(slice(begin, begin + size))


def ndjson(readings: Readings) -> bytes:
    r"""Readings as NDJSON, one object a line.

    >>> ndjson(Readings.of(["a"], [0], [900], [7]))
    b'{"meter_id": "a", "start_utc": "1970-01-01T00:00:00Z", "duration_s": 900, "wh": 7}\n'

    Args:
        readings: The readings.

    Returns:
        UTF-8 text.
    """
    time = {start: utc(start) for start in np.unique(readings.start).tolist()}
    return "".join(
        f'{{"meter_id": {json.dumps(m)}, "start_utc": "{time[s]}", "duration_s": {d}, "wh": {w}}}\n'
        for m, s, d, w in readings.rows()
    ).encode()


class HttpChannel:
    """POST /v1/readings, repeated while the service or its store is unavailable.

    Args:
        url: The service's address.
        tokens: Gives a bearer token, anew where the last one is refused; empty: none.
    """

    def __init__(self, url: str, tokens: Callable[[], str]) -> None:
        import httpx

        self._client = httpx.Client(base_url=url, timeout=60)
        self._tokens = tokens
        self._token: str | None = None  # until the first delivery

    def check(self) -> None:
        """Send a body without readings: a service that would refuse readings says so at once.

        Raises:
            ServiceError: It refuses, or does not answer.
        """
        self._post(b"")

    def send(self, readings: Readings) -> Receipt:
        """Deliver and add up the receipts."""
        total = Receipt()
        for part in parts(readings, BODY):
            total += self._post(ndjson(part))
        return total

    def _post(self, body: bytes) -> Receipt:
        import httpx

        reason = "no answer"
        if self._token is None:
            self._token = self._tokens()
        for attempt in range(ATTEMPTS):
            headers = {"Content-Type": "application/x-ndjson"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            try:
                answer = self._client.post("/v1/readings", content=body, headers=headers)
            except (httpx.ProtocolError, httpx.InvalidURL, UnicodeError) as error:
                reason = connection_reason(error)
                break
            except httpx.TransportError as error:
                reason = connection_reason(error)
            else:
                if answer.status_code == 200:
                    counts = answer.json()
                    return Receipt(*(counts[name] for name in Receipt._fields))
                reason = f"{answer.status_code} {_detail(answer)}"
                if answer.status_code == 401 and self._renewed():
                    continue
                if answer.status_code < 500:
                    break
            time.sleep(PAUSE * 2**attempt)
        raise ServiceError(
            f"service {self._client.base_url} took no readings ({reason}); see that it runs and"
            " that the token is one of its own."
        )

    def _renewed(self) -> bool:
        """Whether there is another token than the refused one, which may have ended."""
        refused, self._token = self._token, self._tokens()
        return self._token != refused

    def rate(self, zone: str) -> float | None:
        """The newest price."""
        import httpx

        try:
            answer = self._client.get("/v1/price", params={"zone": zone})
            return float(answer.json()["price"]) if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError, KeyError):
            return None

    def shut(self) -> None:
        """Disconnect."""
        self._client.close()


def _detail(answer: Any) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


class MqttChannel:
    """NDJSON messages, QoS 1, each confirmed by the broker; there are no receipts.

    Args:
        host: The broker's host.
        port: Its port.
        topic: The topic of the messages.
    """

    def __init__(self, host: str, port: int, topic: str) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self._topic, self._place = topic, f"{host}:{port}"
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        try:
            self._client.connect(host, port)
        except OSError as error:
            reason = connection_reason(error)
            raise ServiceError(
                f"broker {self._place} does not answer ({reason}); start it first."
            ) from None
        self._client.loop_start()

    def send(self, readings: Readings) -> None:
        """Deliver to the broker."""
        for part in parts(readings, MESSAGE):
            message = self._client.publish(self._topic, ndjson(part), qos=1)
            with suppress(RuntimeError, ValueError):
                message.wait_for_publish(60)
            if not message.is_published():
                raise ServiceError(f"broker {self._place} confirms nothing; see that it runs.")

    def rate(self, zone: str) -> None:
        """Always None: the channel is for readings only."""
        del zone

    def shut(self) -> None:
        """Disconnect."""
        from hushgrid.web.mqtt import hang_up

        hang_up(self._client)


def open_channel(target: str, tokens: Callable[[], str], pattern: str | None) -> MeterChannel:
    """Open a channel to a curator. Over HTTP it is asked first whether it takes readings.

    Args:
        target: http://HOST:PORT, https://HOST:PORT or mqtt://HOST:PORT.
        tokens: Gives a bearer token for HTTP; empty: none.
        pattern: The topic that the service subscribes to over MQTT; None: the usual one.

    Returns:
        The channel.

    Raises:
        ServiceError: The target is no such URL, or refuses readings.
    """
    url = urlsplit(target)
    try:
        host, port = url.hostname or "", url.port
    except ValueError:
        host, port = "", None
    if url.scheme in ("http", "https") and host:
        with ExitStack() as stack:
            channel = HttpChannel(target, tokens)
            stack.callback(channel.shut)
            channel.check()
            stack.pop_all()
        return channel
    if url.scheme == "mqtt" and host:
        topic = (pattern or "hushgrid/+/readings").replace("+", "fleet").replace("#", "fleet")
        return MqttChannel(host, port or 1883, topic)
    raise ServiceError(f"to is {target!r}; give http://HOST:PORT or mqtt://HOST:PORT.")
