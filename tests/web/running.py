"""A service that runs, and a clock on the wall."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid import SimulatedNoise
from hushgrid.files.deployment import Deployment
from hushgrid.files.settings import Http, OpenAdr
from hushgrid.operate.process import Process
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.feeds import discovery
from tests.curator.worlds import deployment, service
from tests.web.brokers import Broker

SECONDS, GRACE = 900, 60


WINTER = int(datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp())


class Wall:
    """A clock that stands still until it is set."""

    def __init__(self, wall: float) -> None:
        self.wall = wall

    def now(self) -> float:
        return self.wall


class Running:
    """A service, passed by hand, and all that it shows of one zone."""

    def __init__(self, made: Deployment, clock: Wall, stack: ExitStack) -> None:
        self.clock, self.zone, self.file = clock, made.zones[0], made.price_file
        self.process = Process(made, stack, noise=lambda: SimulatedNoise(3))
        self.process.open(clock.now())
        self.process.listen(clock)
        assert self.process.server is not None
        self.url = f"http://127.0.0.1:{self.process.server.port}"
        self.client = stack.enter_context(httpx.Client(base_url=self.url, timeout=60))
        self.events: list[tuple[str, dict[str, Any]]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            with httpx.stream("GET", f"{self.url}/v1/stream", timeout=60) as answer:
                name = ""
                for line in answer.iter_lines():
                    name = line[7:] if line.startswith("event: ") else name
                    if line.startswith("data: "):
                        self.events.append((name, json.loads(line[6:])))
        except httpx.HTTPError:
            pass  # the service has stopped

    def at(self, now: float) -> dict[str, Any]:
        """What /v1/price says then; readings of the intervals so far have come."""
        self.clock.wall = now
        houses = np.arange(len(self.zone.meters))
        start = int(now) // SECONDS * SECONDS
        self.process._meters.put(
            self.zone.id,
            houses,
            np.full(houses.size, start),
            np.full(houses.size, SECONDS),
            200 + (houses * 37 + start // SECONDS * 101) % 600,
        )
        self.process.turn(self.clock)
        return dict(self.get("/v1/price"))

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def releases(self) -> tuple[ReleaseRecord, ...]:
        (zone,) = self.process._zones
        assert zone.curator is not None
        return zone.curator.releases

    def applying(self, start: int) -> ReleaseRecord | None:
        found = [one for one in self.releases if one.applies_start == start]
        return found[-1] if found else None


@contextmanager
def running(folder: Path, clock: Wall, **changes: Any) -> Iterator[Running]:
    own = {"http": Http(port=0), "openadr": OpenAdr(), "price_file": folder / "prices.json"}
    zone = changes.pop("zone", {})
    made = deployment(
        folder,
        service(begins=int(clock.wall) // SECONDS * SECONDS, grace=GRACE, **zone)
        if "begins" not in zone
        else service(grace=GRACE, **zone),
        **(own | changes),
    )
    with ExitStack() as stack:
        yield Running(made, clock, stack)


class Heard:
    """The newest message of each topic of a broker."""

    def __init__(self, broker: Broker) -> None:
        self.newest: dict[str, bytes] = {}
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda c, *_: c.subscribe("#", qos=1)
        self.client.on_message = lambda _c, _d, m: self.newest.update({m.topic: m.payload})
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()

    def json(self, topic: str) -> Any:
        return json.loads(self.newest.get(topic, b"{}"))


def found_by_discovery() -> dict[str, Any]:
    topics = ("prices/elm-street", "prices/elm-street/forecast", "prices/available/curator")
    return dict(json.loads(discovery(service(), "homeassistant", *topics)[1]))
