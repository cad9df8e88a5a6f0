"""Crowds: what one client keeps, calls and sends leaves the others their share."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hushgrid.service.access.clients import KINDS
from hushgrid.service.http import readings
from hushgrid.service.openadr import store as kept
from hushgrid.service.openadr import webhooks
from tests.service.brokers import until
from tests.service.openadr.hooks import hooks
from tests.service.openadr.setup import report, subscription, ven, world
from tests.service.openadr.test_webhooks import NOTE, Sending, callback, names


def test_reports_are_never_refused_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST", 10)
    with world(tmp_path) as it:
        theirs = it.post("/reports", report(), "ven-2").json()
        made = [it.post("/reports", report(), "ven-1") for _ in range(25)]
        assert {one.status_code for one in made} == {201}
        ids = [one.json()["id"] for one in made]
        assert [one["id"] for one in it.get("/reports", "ven-1").json()] == ids[-10:]
        assert it.get("/reports", "ven-2").json() == [theirs]
        changed = it.put(f"/reports/{ids[-10]}", report(reportName="b"), "ven-1")
        assert changed.status_code == 200
        assert len(it.get("/reports", "ven-1").json()) == 10


def test_what_a_client_keeps_is_bounded_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SIZE", 20_000)
    large = "a" * 3000
    with world(tmp_path) as it:
        assert it.post("/vens", ven("V", more=large), "ven-1").status_code == 201
        for _ in range(20):
            assert it.post("/reports", report(more=large), "ven-1").status_code == 201
        (mine,) = it.get("/vens", "ven-1").json()  # what is no report stays
        assert 3 <= len(it.get("/reports", "ven-1").json()) <= 5
        # reports give room to other objects, which never do
        sent = [it.post("/vens", ven(f"V{n}", more=large), "ven-1") for n in range(8)]
        assert [one.status_code for one in sent] == [201] * 5 + [403] * 3
        assert it.get("/reports", "ven-1").json() == []
        grown = it.put(f"/vens/{mine['id']}", ven("V", more=large * 5), "ven-1")
        assert grown.status_code == 403
        assert it.put(f"/vens/{mine['id']}", ven("V", more="b"), "ven-1").status_code == 200
        assert it.post("/vens", ven("VEN-2", more=large), "ven-2").status_code == 201


def test_subscriptions_and_their_callbacks_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SUBSCRIPTIONS", 2)
    with world(tmp_path) as it:
        many = subscription()
        many["objectOperations"] *= 9
        assert it.post("/subscriptions", many, "ven-1").status_code == 403
        del many["objectOperations"][0]
        mine = it.post("/subscriptions", many, "ven-1")
        assert mine.status_code == 201
        assert it.post("/subscriptions", many, "ven-1").status_code == 201
        assert it.post("/subscriptions", many, "ven-1").status_code == 403
        monkeypatch.setattr(kept, "SUBSCRIPTIONS", 1)  # those of before can still be changed
        place = f"/subscriptions/{mine.json()['id']}"
        assert it.put(place, many, "ven-1").status_code == 200
        many["objectOperations"] *= 2
        assert it.put(place, many, "ven-1").status_code == 403


def test_slow_callbacks_of_one_client_leave_slots_to_another() -> None:
    with hooks() as taken:
        taken.open.clear()
        slow = [callback(i, f"{taken.url}/slow/{i}", client="slow") for i in range(300)]
        other = callback(999, f"{taken.url}/ok/a", client="other")
        with Sending(*slow, other, patience=60.0) as sending:
            sending.webhooks.notify(NOTE)
            assert until(lambda: taken.paths()["/ok/a"] == 1)
            assert sum(taken.paths().values()) <= webhooks.OWN[False] + 1
            sending.callbacks = [other]
            sending.webhooks.notify(NOTE)
            assert until(lambda: taken.paths()["/ok/a"] == 2)
            taken.open.set()


def test_a_callback_that_answers_late_loses_its_place_among_the_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "SLOW", -1.0)
    with hooks() as taken, Sending(callback(0, f"{taken.url}/ok/a")) as sending:
        sending.webhooks.notify(NOTE)
        assert until(lambda: sending.counted == ["delivered"])
        (lane,) = sending.webhooks._lanes.values()
        assert until(lambda: lane.failing)


def test_a_callback_that_always_fails_gets_one_attempt_for_each_further_note() -> None:
    with hooks() as taken, Sending(callback(0, f"{taken.url}/500/a")) as sending:
        for n in (1, 2, 3):
            sending.webhooks.notify(NOTE)
            assert until(lambda n=n: sending.counted.count("dropped") == n)
        assert taken.paths()["/500/a"] == webhooks.ATTEMPTS + 2


def test_names_that_hang_take_the_threads_of_their_client_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = threading.Event()
    asked = names(monkeypatch, ["127.0.0.1"])
    quick = webhooks.socket.getaddrinfo

    def slow(host: str, port: int, **more: int) -> object:
        found = quick(host, port, **more)
        if host == "slow.example":
            hanging.wait(60)
        return found

    monkeypatch.setattr(webhooks.socket, "getaddrinfo", slow)
    with hooks() as taken:
        port = taken.server.server_port
        several = [
            callback(i, f"http://slow.example:{port}/ok/{i}", client="slow") for i in range(100)
        ]
        other = callback(999, f"http://fast.example:{port}/500/a", client="other")
        with Sending(*several, other, patience=0.1) as sending:
            sending.webhooks.notify(NOTE)
            # its later attempts too, which use the threads of those that fail
            assert until(lambda: taken.paths()["/500/a"] == webhooks.ATTEMPTS)
            assert asked.count("slow.example") <= sum(webhooks.OWN.values())
            hanging.set()


def test_large_notes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "LANE_SIZE", 20)
    with hooks() as taken:
        taken.open.clear()
        with Sending(callback(0, f"{taken.url}/slow/a"), patience=30.0) as sending:
            sending.webhooks.notify(NOTE)
            assert until(lambda: taken.paths()["/slow/a"] == 1)
            for _ in range(9):
                sending.webhooks.notify(NOTE)
            assert until(lambda: sending.counted == ["dropped"] * 7)
            taken.open.set()


@pytest.mark.parametrize("media", ["application/x-ndjson", "application/vnd.apache.parquet"])
def test_slow_bodies_of_one_client_leave_threads_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, media: str
) -> None:
    if "parquet" in media:
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(readings, "MUCH", 1)  # a thread takes the body early
    senders = {"slow": KINDS["meters"], "other": KINDS["meters"]}
    body = b"\n" * 300_000
    with world(tmp_path, clients=senders) as it, ExitStack() as stack:
        head = {"Content-Type": media, "Content-Length": str(len(body))} | it.auth("slow")
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        for _ in range(20):
            link = socket.create_connection(("127.0.0.1", it.server.port))
            stack.callback(link.close)
            link.sendall(f"POST /v1/readings HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
            link.sendall(body[:200_000])
        other = {"Content-Type": media} | it.auth("other")
        sent = httpx.post(f"{it.root}/v1/readings", content=body, headers=other, timeout=15)
        assert sent.status_code == (400 if "parquet" in media else 200)
