"""An operator's desk at a real process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from hushgrid.curator.clock import WatchedClock
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Http
from hushgrid.operate.process import Process
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature
from tests.curator.worlds import START, deployment, service
from tests.web.http.credentials import KEPT as HASHED
from tests.web.http.credentials import SECRET

ELM, OAK = "elm-street", "oak-lane"


class Clock:
    def __init__(self) -> None:
        self.wall = float(START)

    def now(self) -> float:
        return self.wall


def reading(zone: str, house: int, i: int) -> int:
    """What a house counts in interval i [Wh]; now and then outside 0..bound."""
    return (len(zone) * 31 + house * 317 + i * 211) % 1300 - 100


def absent(house: int, i: int) -> bool:
    return i == 2 and house == 0


class Desk:
    """A process in a folder, its clock, and a browser that is logged in."""

    def __init__(self, folder: Path, stack: ExitStack, *zones: ZoneService, **more: Any) -> None:
        own = {"http": Http(port=0, rate_limit=1e6)}
        self.made = deployment(folder, *zones, **(own | more))
        with ClientStore(self.made.client_store) as clients:
            if clients.find("op") is None:
                clients.add(Client("op", ("operate", "audit"), HASHED, 1))
        self.inner = Clock()
        self.clock = WatchedClock(self.inner, steady=self.inner.now)
        self.process = Process(self.made, stack)
        self.i = 0

    def open(self) -> Desk:
        self.process.open(self.clock.now(), False)
        self.process.listen(self.clock)
        assert self.process.server is not None
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{self.process.server.port}", timeout=60)
        self.process._stack.callback(self.web.close)
        answer = self.web.post("/v1/session", json={"client": "op", "secret": SECRET})
        assert answer.status_code == 204
        self.process.turn(self.clock)
        return self

    def interval(self, number: int = 1, *, silent: bool = False) -> None:
        """Let intervals pass: readings come unless all meters are silent, then they close."""
        for _ in range(number):
            start = START + 900 * self.i
            for zone in () if silent else self.made.zones:
                here = [h for h in range(len(zone.meters)) if not absent(h, self.i)]
                wh = [reading(zone.id, h, self.i) for h in here]
                self.process._meters.put(zone.id, here, [start] * len(here), [900] * len(here), wh)
            self.i += 1
            self.inner.wall = START + 900.0 * self.i
            self.clock.now()
            self.clock.jumps = 0  # our own steps of the clock are no jumps
            self.process.turn(self.clock)

    def get(self, path: str) -> Any:
        answer = self.web.get(path)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    def zone(self, name: str = ELM) -> Any:
        return self.get(f"/v1/operator/zone?zone={name}")

    def standing(self) -> LedgerState:
        with open_store(self.made.ledger, create=False) as store:
            return check(store.records(ELM), verify_signature).standings[ELM]

    def alerts(self, name: str = ELM) -> list[str]:
        return [f"{one['level']}: {one['text']}" for one in self.zone(name)["alerts"]]


@contextmanager
def desk(folder: Path, *zones: ZoneService, **more: Any) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(folder, stack, *(zones or (service(),)), **more).open()
