"""Strangers with a valid token: what they can send for, and learn of, the meters of others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
import sqlalchemy as sa
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.cli import main
from hushgrid.curator.clock import utc
from hushgrid.curator.ingest import Ingest, Receipt
from hushgrid.errors import ServiceError
from hushgrid.files.deployment import Deployment
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http, Mqtt
from hushgrid.operate.check import examine
from hushgrid.operate.process import Process
from hushgrid.stores import clients as senders_module
from hushgrid.stores.clients import CACHED, Client, ClientStore, Senders, hash_secret
from hushgrid.stores.ledger.writer import load
from hushgrid.web.mqtt import MqttReadings, hang_up
from hushgrid.web.tokens import make_token
from tests.curator.worlds import START, TOKEN, MemoryMeters, deployment, service
from tests.operate.ready_folder import PRODUCTION, REAL, Folder
from tests.web.brokers import Broker, free_port, until

SECRET = hash_secret("a secret")
METERS = ("write_readings",)


class Clock:
    wall = float(START)

    def now(self) -> float:
        return self.wall


class World:
    """A process that answers over HTTP, and its clients by name."""

    def __init__(self, made: Deployment, stack: ExitStack) -> None:
        self.made, self.clock = made, Clock()
        self.process = Process(made, stack)
        self.process.open(self.clock.now(), False)
        self.process.listen(self.clock)
        assert self.process.server is not None
        self.web = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{self.process.server.port}", timeout=60)
        )
        self._key = load(made.key).derive("access tokens")

    def auth(self, client: str, *scopes: str) -> dict[str, str]:
        if client == "static":
            return {"Authorization": f"Bearer {TOKEN}"}
        token = make_token(self._key, client, scopes or METERS, 1 << 40, b"n" * 16)
        return {"Authorization": f"Bearer {token}"}

    def send(self, client: str, *rows: tuple[str, int, int, int]) -> dict[str, Any]:
        """What the answer to readings (meter, start, duration, wh) says."""
        names = ("meter_id", "start_utc", "duration_s", "wh")
        body = [dict(zip(names, (m, utc(s), d, w), strict=True)) for m, s, d, w in rows]
        answer = self.web.post("/v1/readings", json=body, headers=self.auth(client))
        told = answer.json()
        found = {kind: told[kind] for kind in (*Receipt._fields, "problems") if told[kind]}
        used = {"accepted", "duplicate", "late", "early"} & set(found)
        assert answer.status_code == (200 if used else 422), answer.text
        return found

    def zone(self) -> Any:
        path, auth = "/v1/operator/zone", self.auth("op", "operate")
        return self.web.get(path, params={"zone": "elm-street"}, headers=auth).json()

    def change(self, how: Callable[[Any], object]) -> None:
        """Change the clients as another process does, and wait until the service has seen it."""
        with ClientStore(self.made.client_store) as clients:
            how(clients)
        senders = self.process._ingest._senders
        assert senders is not None
        senders._expiry = -1.0


@contextmanager
def world(folder: Path, *clients: Client, **more: Any) -> Iterator[World]:
    http = Http(port=free_port(), tokens=more.pop("tokens", ()))
    made = deployment(folder, service(), http=http, **more)
    with ClientStore(made.client_store) as store:
        for one in (*clients, Client("op", ("operate",), SECRET, 1)):
            if store.find(one.id) is None:
                store.add(one)
    with ExitStack() as stack:
        yield World(made, stack)


def client(name: str, *meters: str) -> Client:
    return Client(name, METERS, SECRET, 1, meters=meters)


def reading(house: int, wh: int = 100, duration: int = 900) -> tuple[str, int, int, int]:
    return f"elm-street-{house}", START, duration, wh


def test_a_meter_of_another_sender_is_unknown(tmp_path: Path) -> None:
    north, south = client("north", "elm-street-0", "elm-street-1"), client("south", "elm-street-2*")
    with world(tmp_path, north, south, mode="production") as it:
        assert it.send("north", reading(0), reading(1)) == {"accepted": 2}
        assert it.send("north", reading(0), reading(1, 99)) == {"duplicate": 2}
        # the stored one, another value, one that is not stored, one of no zone: the same answer
        for odd in (reading(0), reading(0, 1), reading(3), ("none", START, 900, 1)):
            assert it.send("south", odd) == {"unknown": 1}
        assert it.send("south", reading(0), reading(2)) == {"unknown": 1, "accepted": 1}
        it.clock.wall += 900
        it.process.turn(it.clock)
        assert it.send("north", reading(0)) == {"late": 1}
        assert it.send("south", reading(0), reading(3)) == {"unknown": 2}
        # senders with the same list of meters, one after the other
        assert it.send("south", reading(1), reading(2)) == {"unknown": 1, "late": 1}
        assert it.send("north", reading(1), reading(2)) == {"unknown": 1, "late": 1}


def test_clients_are_read_again_only_after_a_change(tmp_path: Path) -> None:
    now, statements = [0.0], list[str]()
    with (
        ClientStore(tmp_path / "clients") as store,
        ClientStore(tmp_path / "clients") as elsewhere,
    ):
        store.add(client("north", "elm-street-0"))
        store.add(Client("ven", ("write_vens",), SECRET, 1))
        senders = Senders(store, production=True, steady=lambda: now[0])
        terms = senders.terms()
        assert (terms.bound, terms.refused) == ({"north": ("elm-street-0",)}, {"ven"})
        sa.event.listen(
            store.engine, "before_cursor_execute", lambda *each: statements.append(each[2])
        )
        for _ in range(3):
            now[0] += CACHED
            assert senders.terms() is terms
        assert statements
        assert not [one for one in statements if "FROM clients" in one]
        for change in (
            lambda: elsewhere.add(client("south", "elm-street-1")),
            lambda: elsewhere.bind("north", ["elm-street-2", "elm-street-3"]),
            lambda: elsewhere.revoke("south", 2),
        ):
            change()
            now[0] += CACHED
            terms, before = senders.terms(), terms
            assert terms != before
        assert terms.bound == {"north": ("elm-street-2", "elm-street-3")}
        assert terms.refused == {"ven", "south"}


def test_production_takes_nothing_from_an_unbound_client(tmp_path: Path) -> None:
    with world(tmp_path, mode="production") as it:
        it.change(lambda clients: clients.add(client("late-comer")))
        assert it.send("late-comer", reading(0)) == {"unknown": 1}
        it.change(lambda clients: clients.bind("late-comer", ["elm-street-0"]))
        assert it.send("late-comer", reading(0), reading(1)) == {"accepted": 1, "unknown": 1}
        it.change(lambda clients: clients.add(client("other")))
    with pytest.raises(ServiceError, match="client 'other' may send readings and is bound to no"):
        world(tmp_path, mode="production").__enter__()
    with pytest.raises(ServiceError, match="token_digests holds 1 tokens"):
        world(tmp_path / "a", mode="production", tokens=("0" * 64,)).__enter__()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()


def test_the_first_sender_is_kept_until_the_operator_changes_it(tmp_path: Path) -> None:
    digest, clients = sha256(TOKEN.encode()).hexdigest(), [client("one"), client("two")]
    with world(tmp_path, *clients, tokens=(digest,)) as it:
        assert it.send("one", reading(0), reading(1)) == {"accepted": 2}
        assert it.send("two", reading(0), reading(2)) == {"accepted": 1, "unknown": 1}
        assert it.send("static", reading(0), reading(3)) == {"accepted": 1, "unknown": 1}
    with world(tmp_path, tokens=(digest,)) as it:  # a restart forgets nothing
        assert it.send("two", reading(0), reading(2), reading(3)) == {"duplicate": 1, "unknown": 2}
        it.change(lambda clients: clients.bind("two", ["elm-street-0", "elm-street-4"]))
        assert it.send("two", reading(0), reading(2)) == {"duplicate": 1, "unknown": 1}
        assert it.send("one", reading(0), reading(1)) == {"duplicate": 1, "unknown": 1}
        assert it.send("one", reading(4)) == {"unknown": 1}
        it.change(lambda clients: clients.revoke("one", 5))
        assert it.send("static", reading(1)) == {"duplicate": 1}, "a revoked sender keeps nothing"


def test_two_processes_keep_one_first_sender(tmp_path: Path) -> None:
    with ClientStore(str(tmp_path / "clients.sqlite")) as one:
        here = senders_module.Senders(one, production=False)
        there = senders_module.Senders(one, production=False)
        terms = here.terms(), there.terms()
        assert here.meters_of("a", ["m1"], terms[0]) == {"m1"}
        assert there.meters_of("b", ["m1", "m2"], terms[1]) == {"m2"}
        assert here.meters_of("a", ["m1", "m2"], terms[0]) == {"m1"}


def test_the_operator_sees_disagreements_without_values(tmp_path: Path) -> None:
    with world(tmp_path, client("one", "*")) as it:
        it.send("one", reading(0, 123), reading(1), reading(2))
        assert it.zone()["disagreements"] == []
        receipt = it.send("one", reading(0, 456), reading(1), reading(2, 7, 300))
        assert receipt == {"duplicate": 3}, "no answer says which of them differ"
        it.process.turn(it.clock)
        found, start = it.zone(), utc(START)
        assert found["disagreements"] == [
            {"meter": f"elm-street-{house}", "start": start} for house in (0, 2)
        ]
        (alert,) = (a["text"] for a in found["alerts"] if "contradict" in a["text"])
        assert alert.startswith("Readings of 2 meters and intervals")
        assert "456" not in json.dumps(found["disagreements"]) + alert
        assert it.web.get("/v1/operator/zone", headers=it.auth("one")).status_code == 403


def test_a_short_duration_displaces_no_whole_reading(tmp_path: Path) -> None:
    with world(tmp_path, client("one", "*")) as it:
        assert it.send("one", *(reading(h, 1, 1) for h in range(6))) == {"accepted": 6}
        assert it.send("one", *(reading(h, 500) for h in range(6))) == {"accepted": 6}
        assert it.send("one", *(reading(h, 1, 1) for h in range(6))) == {"duplicate": 6}
        found = it.process._meters.get("elm-street", START)
        assert found.present.all()
        assert found.wh.tolist() == [500] * 6


def run(folder: Folder, *words: str) -> int:
    """The exit code of hushgrid client."""
    with pytest.raises(SystemExit) as found:
        main(["client", *words, "--config", str(folder.file)])
    return int(found.value.code or 0)


def problems(folder: Folder) -> list[str]:
    return examine(load_deployment(folder.file)).problems


def test_check_exits_1_on_unbound_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(tmp_path)
    assert run(folder, "add", "north", "--scope", "meters") == 0
    assert problems(folder) == []
    folder.edit(PRODUCTION, *REAL)
    capsys.readouterr()
    assert folder.check("--json", "-") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem.startswith("stores.clients: client 'north' may send readings and is bound to no")
    assert run(folder, "bind", "north") == 2
    assert run(folder, "bind", "nord", "--meters", "gk-*") == 2
    assert run(folder, "bind", "north", "--meters", "gk-*") == 0
    assert problems(folder) == []
    capsys.readouterr()
    assert run(folder, "add", "south", "--scope", "meters") == 2
    assert "client 'south' may send readings and is bound to no meters" in capsys.readouterr().err
    assert run(folder, "add", "x", "--scope", "audit", "--meters", "gk-1") == 2
    assert run(folder, "add", "south", "--scope", "meters", "--meters", "gk-1") == 0
    capsys.readouterr()
    assert run(folder, "list", "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["clients"]
    assert {row["client_id"]: row["meters"] for row in rows} == {
        "north": ["gk-*"],
        "south": ["gk-1"],
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    made.start()
    yield made
    made.stop()


def test_meters_belong_to_senders_at_the_broker_too(tmp_path: Path, broker: Broker) -> None:
    zone, receipts = service(), list[Receipt]()
    meters = MemoryMeters(zone)
    mqtt = Mqtt("127.0.0.1", broker.port, readings="hushgrid/readings/#")
    with ClientStore(str(tmp_path / "clients.sqlite")) as clients:
        clients.add(client("north", "elm-street-0"))
        clients.add(client("south", "elm-street-1"))
        senders = senders_module.Senders(clients, production=True)
        ingest = Ingest([zone], meters, senders)  # type: ignore[arg-type]
        way = MqttReadings(mqtt, ingest, lambda _, receipt: receipts.append(receipt))
        way.start()
        assert way.listening.wait(60)
        sender = paho.Client(CallbackAPIVersion.VERSION2)
        sender.connect("127.0.0.1", broker.port)
        sender.loop_start()
        try:
            for name in ("north", "south/deep", "none", "south"):
                row = {"meter_id": "elm-street-0", "start_utc": utc(START), "duration_s": 900}
                body = json.dumps([row | {"wh": len(name)}])
                sender.publish(f"hushgrid/readings/{name}", body, qos=1).wait_for_publish(30)
            assert until(lambda: sum(receipts, Receipt()).unknown == 3)
        finally:
            hang_up(sender)
            way.stop()
    assert sum(receipts, Receipt()) == Receipt(accepted=1, unknown=3)
    assert meters.rows == {("elm-street", 0, START): len("north")}


def test_without_the_clients_nothing_is_taken(tmp_path: Path) -> None:
    with world(tmp_path, client("one", "*")) as it:
        it.process._clients.close()
        path = Path(it.made.client_store)
        for one in tmp_path.glob("clients.sqlite*"):
            one.unlink()
        path.mkdir()
        senders = it.process._ingest._senders
        assert senders is not None
        senders._expiry = -1.0
        auth = it.auth("one")
        row = {"meter_id": "elm-street-0", "start_utc": utc(START), "duration_s": 900, "wh": 1}
        answer = it.web.post("/v1/readings", json=[row], headers=auth)
        assert answer.status_code == 503
