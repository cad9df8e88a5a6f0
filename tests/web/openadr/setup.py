"""A VTN on a port of its own, clients that may use it, and a judge of everything it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from hushgrid.curator.ingest import Ingest
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Http, OpenAdr
from hushgrid.mechanism.release import Release
from hushgrid.stores.clients import KINDS, Client, ClientStore, hash_secret
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.openadr import VtnStore
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.http.server import Server
from hushgrid.web.openadr.app import BASE, Vtn, mount_vtn
from hushgrid.web.prices import History
from hushgrid.web.tokens import Access
from tests.curator.worlds import START, MemoryMeters, service
from tests.web.brokers import until
from tests.web.openadr.judge import judged

SECONDS = 900
ZONES = (service("elm-street"), service("oak-lane", 3))
SECRET = "a secret that is long enough"
CLIENTS: dict[str, tuple[str, ...]] = {
    "ven-1": KINDS["ven"],
    "ven-2": KINDS["ven"],
    "business": KINDS["business"],
    "operator": (*KINDS["operator"], "write_vens", "write_subscriptions"),
    "meters": KINDS["meters"],
}
HOSTILE = [
    "'; DROP TABLE hushgrid_vtn; --", "x' OR '1'='1", 'x" OR ""="', "%s %(a)s ?1 :a $1", "a\0b",
    "\ud800", "\r\nSet-Cookie: a=b", "../../etc/passwd", "ｆｕｌｌ", " ", "{0} {a}", "a" * 128,
]  # fmt: skip


@cache
def kept_secret() -> Any:
    return hash_secret(SECRET)  # once: it takes a while on purpose


def release(zone: str, t: int, rate: float = 0.25, **changes: Any) -> ReleaseRecord:
    """The release of step t, made when its interval was over."""
    start = t * SECONDS
    own: dict[str, Any] = {
        "zone": zone, "t": t, "applies_from": t + 2, "load_hat": 2000, "put_back": 0.0,
        "estimate": None, "rate": rate, "scale": 1000.0, "epsilon": 0.5,
        "epsilon_any": 1.0, "rule": "block", "digest": None, "simulated": False,
    }  # fmt: skip
    rest: dict[str, Any] = {
        "source": "readings", "start": start, "applies_start": start + 2 * SECONDS,
        "published_at": start + SECONDS + 1, "counts": {"houses": 6}, "seq": t,
        "head": "ab" * 32, "signature": "cd" * 64,
    }  # fmt: skip
    own = {name: changes.pop(name, value) for name, value in own.items()}
    return ReleaseRecord(Release(**own), **(rest | changes))


class Clock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.wall = float(START + 100)

    def now(self) -> float:
        return self.wall


FIRST = START // SECONDS  # the step in which the clock stands


class World:
    """A running VTN; `get`, `post`... judge what they are answered."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        zones: tuple[ZoneService, ...] = ZONES,
        clients: dict[str, tuple[str, ...]] = CLIENTS,
        store: str = "",
        mqtt_uris: tuple[str, ...] = (),
        fill: int = 3,
        **settings: Any,
    ) -> None:
        self.clock, self.history = Clock(), History(zones)
        for zone in zones:
            steps = range(FIRST - fill, FIRST)
            self.history.fill(zone.id, [release(zone.id, t, 0.2 + t % 7 / 100) for t in steps])
        self.clients = stack.enter_context(ClientStore(str(folder / "clients.sqlite")))
        for name, scopes in clients.items():
            ven = "VEN-2" if name == "ven-2" else None
            self.clients.add(Client(name, tuple(scopes), kept_secret(), 0, ven))
        self.access = Access(self.clients, b"k" * 32, self.clock)
        self.store = VtnStore(store or str(folder / "vtn.sqlite"))
        made = OpenAdr(**({"allow_private_callbacks": True} | settings))
        self.metrics = Metrics()
        self.vtn = Vtn(
            self.history,
            self.store,
            self.access,
            self.clock,
            made,
            mqtt_uris=mqtt_uris,
            under_way=self.metrics.under_way,
        )
        stack.enter_context(self.vtn)
        # a price notified again at the start must not reach a test's own subscribers
        assert until(lambda: not self.vtn.webhooks._notes)
        http = Http(rate_limit=1e6)
        self.app = make_app(
            Ingest(zones, MemoryMeters(*zones)),
            ZoneStates(zone.id for zone in zones),
            self.metrics,
            http,
            history=self.history,
            access=self.access,
            clock=self.clock,
            routes=[mount_vtn(self.vtn.app)],
        )
        self.server = Server(self.app, "127.0.0.1", 0, http)
        self.server.start()
        stack.callback(self.server.stop)
        self.root = f"http://127.0.0.1:{self.server.port}"
        self.url = self.root + BASE
        self.http = stack.enter_context(httpx.Client(base_url=self.url, timeout=60))
        self._tokens: dict[tuple[str, ...], str] = {}
        self._mutex = threading.Lock()

    def auth(self, client: str | None, *scopes: str) -> dict[str, str]:
        if client is None:
            return {}
        with self._mutex:
            key = (client, *scopes)
            if key not in self._tokens:
                self._tokens[key] = self.access.token(client, SECRET, scopes).access_token
        return {"Authorization": f"Bearer {self._tokens[key]}"}

    def ask(self, method: str, path: str, client: str | None = None, **rest: Any) -> httpx.Response:
        scopes = rest.pop("scopes", ())
        headers = rest.pop("headers", {}) | self.auth(client, *scopes)
        if "json" in rest:  # in ASCII, so that any text can be sent
            rest["content"] = json.dumps(rest.pop("json")).encode()
        answer = self.http.request(method, path, headers=headers, **rest)
        judged(answer, path)
        return answer

    def get(self, path: str, client: str | None = None, **rest: Any) -> httpx.Response:
        return self.ask("GET", path, client, **rest)

    def post(self, path: str, body: Any, client: str | None = None, **rest: Any) -> httpx.Response:
        return self.ask("POST", path, client, json=body, **rest)

    def put(self, path: str, body: Any, client: str | None = None, **rest: Any) -> httpx.Response:
        return self.ask("PUT", path, client, json=body, **rest)

    def delete(self, path: str, client: str | None = None, **rest: Any) -> httpx.Response:
        return self.ask("DELETE", path, client, **rest)


@contextmanager
def world(folder: Path, **more: Any) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(folder, stack, **more)


def ven(name: str = "VEN-1", **more: Any) -> dict[str, Any]:
    return {"objectType": "VEN_VEN_REQUEST", "venName": name} | more


def resource(ven_id: str, name: str = "battery", **more: Any) -> dict[str, Any]:
    made = {"objectType": "VEN_RESOURCE_REQUEST", "resourceName": name, "venID": ven_id}
    return made | more


def subscription(url: str = "http://192.0.2.1/hook", **more: Any) -> dict[str, Any]:
    operation = {"objects": ["EVENT"], "operations": ["CREATE"], "callbackUrl": url}
    return {"clientName": "a client", "objectOperations": [operation]} | more


USAGE = 313_370_271_828.5  # so long that no clock, port or address in a log has its digits


def report(event: str = "elm-street-20250615T153000Z-1944444", **more: Any) -> dict[str, Any]:
    payload = {"type": "USAGE", "values": [USAGE]}
    interval = {"id": 0, "payloads": [payload]}
    data = {"resourceName": "battery", "intervals": [interval]}
    return {"eventID": event, "clientName": "a client", "resources": [data]} | more
