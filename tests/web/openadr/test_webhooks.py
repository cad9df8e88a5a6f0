"""Notifications reach those who asked for them, and nowhere they must not go."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.web.openadr import webhooks as module
from hushgrid.web.openadr.events import event_of
from hushgrid.web.openadr.webhooks import (
    Callback,
    ForbiddenTargetError,
    Note,
    Webhooks,
    check_callback,
    is_public,
    resolve_target,
)
from tests.examples import examples
from tests.web.brokers import until
from tests.web.openadr.callbacks import NOTE, Sending, callback, certificate, names
from tests.web.openadr.hooks import Hooks, hooks
from tests.web.openadr.judge import check_as, standard
from tests.web.openadr.setup import FIRST, ZONES, World, release, report, subscription, ven, world


@pytest.fixture
def taken() -> Iterator[Hooks]:
    with hooks() as made:
        yield made


def test_a_subscriber_is_told_of_each_release(tmp_path: Path, taken: Hooks) -> None:
    with world(tmp_path) as vtn:
        body = subscription(f"{taken.url}/ok/elm", programID="elm-street")
        body["objectOperations"][0]["bearerToken"] = "a-bearer"
        assert vtn.post("/subscriptions", body, "ven-1").status_code == 201
        other = subscription(f"{taken.url}/ok/oak", programID="oak-lane")
        assert vtn.post("/subscriptions", other, "ven-2").status_code == 201
        made = [release("elm-street", t) for t in range(FIRST, FIRST + 5)]
        for one in made:
            vtn.history.publish(ZONES[0], one)
        assert until(lambda: taken.paths()["/ok/elm"] == 5)
        assert taken.paths() == {"/ok/elm": 5}, "the other zone's subscriber is not told"
        assert [one.body["object"] for one in taken.came] == [event_of(ZONES[0], r) for r in made]
        assert {one.bearer for one in taken.came} == {"Bearer a-bearer"}
        for one in taken.came:
            assert (one.body["objectType"], one.body["operation"]) == ("EVENT", "CREATE")
            if standard() is not None:
                check_as("notification", one.body)


def test_a_client_hears_of_its_own_objects_alone(tmp_path: Path, taken: Hooks) -> None:
    with world(tmp_path) as vtn:
        everything = {
            "objects": ["VEN", "RESOURCE", "REPORT", "SUBSCRIPTION", "EVENT", "PROGRAM"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
        }
        clients = ("ven-1", "ven-2", "business", "operator")
        for client in clients:
            body = subscription()
            body["objectOperations"] = [everything | {"callbackUrl": f"{taken.url}/ok/{client}"}]
            assert vtn.post("/subscriptions", body, client).status_code == 201
        one = vtn.post("/vens", ven("mine"), "ven-1").json()
        vtn.put(f"/vens/{one['id']}", ven("still mine"), "ven-1")
        vtn.post("/reports", report(), "ven-1")
        vtn.delete(f"/vens/{one['id']}", "ven-1")
        vtn.history.publish(ZONES[0], release("elm-street", FIRST))

        def heard(client: str) -> list[tuple[str, str]]:
            found = [one.body for one in list(taken.came) if one.path == f"/ok/{client}"]
            pairs = [(body["objectType"], body["operation"]) for body in found]
            return [pair for pair in pairs if pair[0] != "SUBSCRIPTION"]

        # a forecast follows the price as (EVENT, UPDATE), from a thread of its own
        assert until(lambda: all(("EVENT", "CREATE") in heard(client) for client in clients))
        assert [pair for pair in heard("ven-1") if pair[0] != "EVENT"] == [
            ("VEN", "CREATE"), ("VEN", "UPDATE"), ("REPORT", "CREATE"), ("VEN", "DELETE"),
        ]  # fmt: skip
        others = [c.body for c in taken.came if c.path != "/ok/ven-1"]
        assert {b["objectType"] for b in others} <= {"EVENT", "SUBSCRIPTION"}


def test_after_a_restart_the_price_that_applies_is_told_again(tmp_path: Path, taken: Hooks) -> None:
    with world(tmp_path) as vtn:
        vtn.post("/subscriptions", subscription(f"{taken.url}/ok/a"), "ven-1")
    with world(tmp_path, clients={}):
        assert until(lambda: taken.paths()["/ok/a"] == 2), "one of each zone"
    newest = {f"{zone.id}-{FIRST - 1}" for zone in ZONES}
    told = {one.body["object"]["id"].partition("-2")[0] for one in taken.came}
    assert told == {name.rpartition("-")[0] for name in newest}


def test_what_fails_is_tried_again_and_given_up_in_the_end(taken: Hooks) -> None:
    with Sending(
        callback(0, f"{taken.url}/later/a"), callback(1, f"{taken.url}/500/b"),
        callback(2, f"{taken.url}/302/c"), callback(3, f"{taken.url}/404/d"),
        callback(4, f"{taken.url}/ok/e"), callback(5, "http://127.0.0.1:1/nobody"),
    ) as sending:  # fmt: skip
        sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted.count("dropped") == 2)
    assert taken.paths() == {
        "/later/a": 3, "/500/b": module.ATTEMPTS, "/302/c": 1, "/404/d": 1, "/ok/e": 1,
    }, "redirects are not followed"  # fmt: skip
    assert sending.counted.count("delivered") == 2
    assert sending.counted.count("refused") == 2


def test_pauses_grow(taken: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def noted(_: Any, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Webhooks, "_sleep", noted)
    with Sending(callback(0, f"{taken.url}/500/b"), pause=16.0) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: "dropped" in sending.counted)
    full = [16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0]
    assert len(pauses) == len(full)
    assert all(most / 2 <= each <= most for each, most in zip(pauses, full, strict=True))
    assert len({each / most for each, most in zip(pauses, full, strict=True)}) > 1, "jitter"


def test_a_slow_subscriber_holds_up_nobody_else(taken: Hooks) -> None:
    taken.open.clear()
    slow = [callback(i, f"{taken.url}/slow/{i}") for i in range(10)]
    with Sending(*slow, callback(99, f"{taken.url}/ok/a"), patience=30.0) as sending:
        for _ in range(3):
            sending.webhooks.notify(NOTE)
        assert until(lambda: taken.paths()["/ok/a"] == 3)
        assert all(taken.paths()[f"/slow/{i}"] <= 1 for i in range(10)), "one at a time each"
        taken.open.set()


@pytest.mark.soak
def test_a_thousand_subscribers_of_which_a_third_fails_never_delay_a_tick(taken: Hooks) -> None:
    """Telling only puts into a queue: no call to a subscriber happens in the thread that ticks."""
    part = examples(150)  # of a thousand; a quarter of them but in make soak
    well = 1000 * part // 150 - 2 * part
    some = [callback(i, f"{taken.url}/ok/{i}") for i in range(well)]
    some += [callback(well + i, f"{taken.url}/500/{i}") for i in range(part)]
    some += [callback(well + part + i, "http://127.0.0.1:1/") for i in range(part)]
    looked: list[str] = []

    with Sending(pause=60.0) as sending:
        sending.callbacks = some
        sending.webhooks._callbacks = lambda: (
            looked.append(threading.current_thread().name) or iter(some)
        )
        for n in range(2):
            sending.webhooks.notify(Note("EVENT", "CREATE", None, None, b'{"n": %d}' % n))
        assert until(lambda: sending.counted.count("delivered") == 2 * well), len(sending.counted)
        assert threading.current_thread().name not in looked
    paths = taken.paths()
    assert all(paths[f"/ok/{i}"] == 2 for i in range(well))
    for path in ("/ok/0", f"/ok/{well - 1}"):
        assert [one.body["n"] for one in taken.came if one.path == path] == [0, 1], "in order"


def test_telling_does_not_wait_even_where_the_store_hangs(taken: Hooks) -> None:
    hangs = threading.Event()
    with Sending() as sending:
        sending.webhooks._callbacks = lambda: (hangs.wait(60), iter(()))[1]
        for _ in range(2 * module.WAITING):
            sending.webhooks.notify(NOTE)
        assert len(sending.webhooks._notes) <= module.WAITING
        hangs.set()


def test_a_note_reaches_a_subscriber_that_came_while_subscribers_were_read(taken: Hooks) -> None:
    with Sending() as sending:
        asked = threading.Event()

        def callbacks() -> list[Callback]:
            found = list(sending.callbacks)
            if not asked.is_set():
                asked.set()
                sending.callbacks = [callback(0, f"{taken.url}/ok/a")]
                sending.webhooks.notify(NOTE)
            return found

        sending.webhooks._callbacks = callbacks
        sending.webhooks.notify(NOTE)
        assert until(lambda: taken.paths()["/ok/a"] == 1, 10)


def test_a_subscriber_that_is_gone_is_not_called_again(taken: Hooks) -> None:
    with Sending(callback(0, f"{taken.url}/500/a"), pause=60.0) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted == ["failed"])
        sending.callbacks = []
        sending.webhooks.notify(NOTE)
        assert until(lambda: not sending.webhooks._lanes)
        assert sending.counted == ["failed"]


def test_a_lane_is_bounded(taken: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    taken.open.clear()
    with Sending(callback(0, f"{taken.url}/slow/a"), patience=30.0) as sending:
        for _ in range(3 * module.LANE):
            sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted.count("dropped") >= module.LANE)
        (lane,) = sending.webhooks._lanes.values()
        assert len(lane.waiting) <= module.LANE
        monkeypatch.setattr(module, "GRACE", 0.1)
        taken.open.set()


def test_no_secret_of_a_subscriber_is_told(taken: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    one = callback(0, f"{taken.url}/404/a-secret-path", bearer="a-bearer")
    with Sending(one) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: "refused" in sending.counted)
    assert taken.came[0].bearer == "Bearer a-bearer"
    said = repr(one) + " ".join(
        f"{r.getMessage()} {r.__dict__}" for r in caplog.records if r.name.startswith("hushgrid")
    )
    assert "secret" not in said
    assert "a-bearer" not in said


# ---- where a callback may go

INSIDE = [
    "127.0.0.1", "127.1", "0.0.0.0", "0", "10.0.0.1", "172.16.0.1", "192.168.1.1",
    "169.254.169.254", "100.64.0.1",
    "127.0.0.1.", "10.0.0.1.", "2130706433.",
    "2130706433", "0x7f000001", "0x7f.1", "017700000001", "255.255.255.255",
    "224.0.0.1", "192.0.2.1", "198.18.0.1", "240.0.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:10.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]",
    "[fec0::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]",
    "[::127.0.0.1]", "[2001:db8::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
]  # fmt: skip


@pytest.mark.parametrize("host", INSIDE)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    for port in ("", ":8080"):
        with pytest.raises(ForbiddenTargetError):
            check_callback(f"http://{host}{port}/hook", private=False)
    check_callback(f"http://{host}/hook", private=True)


@pytest.mark.parametrize("host", ["1.1.1.1", "[2606:4700::1111]", "[::ffff:1.1.1.1]", "a.example"])
def test_public_ones_are_not(host: str) -> None:
    assert check_callback(f"https://{host}/hook?a=b", private=False).scheme == "https"


@pytest.mark.parametrize("url", ["", "http://", "//a/b", "ftp://a/", "file:///etc/passwd",
    "http://user:word@a.example/", "http://user@a.example/", "http://[::1/", "gopher://a/",
    "http://a.example:0/", "http://a.example:99999/", "javascript:alert(1)",
    "http:///a"])  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    for private in (False, True):
        with pytest.raises(ForbiddenTargetError):
            check_callback(url, private=private)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_one_is_judged_as_itself(inner: Any) -> None:
    mapped = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + inner.packed)
    nat64 = ipaddress.IPv6Address(bytes.fromhex("0064ff9b" + "00" * 8) + inner.packed)
    assert is_public(mapped) == is_public(inner) == is_public(nat64)
    if not inner.is_global:
        assert not is_public(inner)


@pytest.mark.parametrize("host", INSIDE)
def test_a_subscription_to_one_is_refused(closed: World, host: str) -> None:
    answer = closed.post("/subscriptions", subscription(f"http://{host}/hook"), "ven-1")
    assert answer.status_code in (400, 403)
    assert closed.get("/subscriptions", "ven-1").json() == []


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("closed")
    with world(folder, allow_private_callbacks=False) as made:
        yield made


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%eth0"]]
)
def test_a_name_of_an_address_inside_is_refused(
    taken: Hooks, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    asked = names(monkeypatch, addresses)
    port = taken.server.server_port
    with Sending(callback(0, f"http://ven.example:{port}/ok/a"), private=False) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted == ["refused"])
    assert asked == ["ven.example"]
    assert not taken.came


def test_a_name_is_resolved_once_and_that_address_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that answers something else the second time (DNS rebinding) gains nothing."""
    first = ["1.1.1.1"]

    async def run() -> Any:
        calls = []

        async def resolve(host: str, port: int) -> list[str]:
            calls.append(host)
            return first if len(calls) == 1 else ["127.0.0.1"]

        target = await resolve_target(
            "https://ven.example:8443/hook?a=b", private=False, resolve=resolve
        )
        return calls, target

    calls, target = asyncio.run(run())
    assert calls == ["ven.example"]
    assert str(target.url) == "https://1.1.1.1:8443/hook?a=b"
    assert (target.host, target.name) == ("ven.example:8443", "ven.example")


def test_the_address_that_was_checked_is_connected_to(
    taken: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = names(monkeypatch, ["127.0.0.1"], ["203.0.113.9"])
    port = taken.server.server_port
    with Sending(callback(0, f"http://ven.example:{port}/ok/a")) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted == ["delivered"])
    assert asked == ["ven.example"], "httpx asked for no name of its own"
    assert taken.came[0].host == f"ven.example:{port}"


def test_each_address_of_a_name_has_its_turn(taken: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, ["127.0.0.9", "127.0.0.1"])
    port = taken.server.server_port
    with Sending(callback(0, f"http://ven.example:{port}/ok/a")) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: "delivered" in sending.counted)
    assert sending.counted == ["failed", "delivered"]


def test_tls_is_checked_against_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate(tmp_path, "ven.example")
    names(monkeypatch, ["127.0.0.1"])
    trust = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    with hooks() as secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
        secure.server.socket = context.wrap_socket(secure.server.socket, server_side=True)
        port = secure.server.server_port
        one = callback(0, f"https://ven.example:{port}/ok/a")
        other = callback(1, f"https://other.example:{port}/ok/b")
        with Sending(one, other, trust=trust) as sending:
            sending.webhooks.notify(NOTE)
            assert until(lambda: "dropped" in sending.counted)
        assert secure.paths() == {"/ok/a": 1}


def test_without_webhooks_nobody_can_subscribe(tmp_path: Path) -> None:
    with world(tmp_path, webhooks=False) as vtn:
        answer = vtn.post("/subscriptions", subscription(), "ven-1")
        assert answer.status_code == 403
        assert vtn.get("/subscriptions", "ven-1").json() == []


def test_a_release_while_the_store_is_away_ends_no_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with world(tmp_path) as vtn:
        vtn.store.close()
        (tmp_path / "vtn.sqlite").write_bytes(b"no database" * 1000)
        vtn.vtn._forecast(ZONES[0], release(ZONES[0].id, FIRST, 0.2))
    assert "subscriptions away" in caplog.text
