"""Crowds: what one client keeps, calls and sends leaves the others their share."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Http
from hushgrid.stores import openadr as kept
from hushgrid.stores.clients import KINDS
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web import prices
from hushgrid.web.feeds import USUAL, Feed, PriceRange
from hushgrid.web.forecast import Forecaster
from hushgrid.web.http import common, readings
from hushgrid.web.http import prices as feeds_module
from hushgrid.web.http.common import Heavy
from hushgrid.web.http.prices import feeds
from hushgrid.web.http.server import Server
from hushgrid.web.openadr import webhooks
from hushgrid.web.prices import History, Pages
from tests.web.brokers import until
from tests.web.http.faces import Still
from tests.web.openadr.callbacks import NOTE, Sending, callback, certificate, names
from tests.web.openadr.hooks import hooks
from tests.web.openadr.setup import (
    FIRST,
    SECONDS,
    ZONES,
    World,
    release,
    report,
    subscription,
    ven,
    world,
)


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
        sent = [it.post("/subscriptions", subscription(more=large), "ven-1") for _ in range(8)]
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
        with Sending(*several, other, patience=2.0) as sending:
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
@pytest.mark.sampled
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


# ---- heavy requests


class Held:
    """Work that does not end until it is let go."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), 0

    def wait(self) -> None:
        self.begun += 1
        self.go.wait(60)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.go.set()


@pytest.mark.parametrize(
    "path", ["/v1/prices?zone=elm-street&limit=", "/openadr3/3.1.0/reports?n="]
)
@pytest.mark.sampled
def test_heavy_requests_are_shed_and_delay_no_reading_and_no_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Held, path: str
) -> None:
    body, find = Pages._body, kept.VtnStore.find

    def slow_body(self: Pages, feed: Feed, *rest: Any) -> tuple[bytes | None, bool]:
        if USUAL not in rest:
            held.wait()
        return body(self, feed, *rest)

    def slow_find(store: kept.VtnStore, kind: kept.Kind, **more: Any) -> Any:
        if kind == "REPORT":
            held.wait()
        return find(store, kind, **more)

    async def crowd(it: World) -> None:
        head, limits = it.auth("ven-1"), httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=it.root, limits=limits, timeout=60) as http:
            many = [
                asyncio.create_task(http.get(path + str(n), headers=head)) for n in range(1, 81)
            ]
            done, _ = await asyncio.wait(many, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            assert {one.result().status_code for one in done} == {503}
            assert all("retry-after" in one.result().headers for one in done)
            it.history.publish(ZONES[0], release("elm-street", FIRST, head="ef" * 32))
            meters = it.auth("meters") | {"Content-Type": "application/x-ndjson"}
            sent = await http.post("/v1/readings", content=b"\n", headers=meters)
            assert sent.status_code == 200
            for feed in ("/v1/price", "/v1/prices"):
                assert (await http.get(f"{feed}?zone=elm-street")).status_code == 200
            assert held.begun <= 2
            held.go.set()
            statuses = [one.status_code for one in await asyncio.gather(*many)]
            assert set(statuses) == {200, 503}

    monkeypatch.setattr(common, "SHED", 0.1)
    with world(tmp_path) as it:
        it.vtn.app.heavy = Heavy(2)
        monkeypatch.setattr(Pages, "_body", slow_body)
        monkeypatch.setattr(kept.VtnStore, "find", slow_find)
        asyncio.run(crowd(it))


def test_long_answers_that_are_not_read_are_few_and_of_many_senders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, large = Pages._body, b"0" * (16 << 20)

    def long(self: Pages, *rest: Any) -> tuple[bytes | None, bool]:
        return body(self, *rest) if USUAL in rest else (large, True)

    monkeypatch.setattr(Pages, "_body", long)
    monkeypatch.setattr(common, "SHED", 0.0)
    numbers = itertools.count(1)

    def status(stack: ExitStack, it: World, source: str, path: str = "limit={}") -> str:
        link = socket.create_connection(("127.0.0.1", it.server.port), 60, (source, 0))
        stack.enter_context(link)
        path = f"/v1/prices?zone=elm-street&{path.format(next(numbers))}".rstrip("&")
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return link.recv(12).decode()[9:]

    with world(tmp_path) as it, ExitStack() as stack:
        most = it.metrics.under_way  # as many of these as usual ones of 1 MiB
        most.caller_limit, most.total_limit = most.caller_limit << 4, most.total_limit << 4
        of_one = [status(stack, it, "127.0.0.2") for _ in range(20)]
        assert of_one == ["200"] * 8 + ["503"] * 12
        others = [status(stack, it, f"127.0.0.{3 + n % 8}") for n in range(64)]
        assert others == ["200"] * 24 + ["503"] * 40
        assert most.total == most.total_limit // 2, "the other half is for clients"
        assert status(stack, it, "127.0.0.2", "") == "200", "the usual range is not behind them"
        stack.close()
        assert until(lambda: not most.total)
        assert until(lambda: status(stack, it, "127.0.0.2") == "200")
        stack.close()


def test_a_query_ends_where_releases_come_faster_than_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history, body, t = History(ZONES), Pages._body, itertools.count(FIRST)

    def publish() -> None:
        number = next(t)
        history.publish(ZONES[0], release("elm-street", number, head=f"{number:064x}"))

    def overtaken(self: Pages, *rest: Any) -> tuple[bytes | None, bool]:
        made = body(self, *rest)
        publish()
        assert next(tries) < 10, "it never ends"
        return made

    publish()
    tries, pages = itertools.count(), Pages(history, feeds(), Still())
    monkeypatch.setattr(Pages, "_body", overtaken)
    first, second = (pages.page("/v1/prices", "elm-street") for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.etag != second.etag
    found = json.loads(first.body)
    assert int(found["head"], 16) == FIRST + 1
    assert len(found["published"]) == 2, "none that is later than its head"


def test_long_ranges_are_made_once_and_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(ZONES)
    history.fill("elm-street", [release("elm-street", t) for t in range(FIRST - 3000, FIRST)])
    pages, since = Pages(history, feeds(), Still()), (FIRST - 3000) * SECONDS
    span = PriceRange(since, None, 10_000)
    large = pages.page("/v1/prices", "elm-street", span)
    assert large is not None
    assert len(large.body) > 200_000
    assert pages.page("/v1/prices", "elm-street", span) is large
    monkeypatch.setattr(prices, "HELD_SIZE", 3 * len(large.body))
    usual = pages.page("/v1/prices", "elm-street")
    for n in range(5):
        pages.page("/v1/prices", "elm-street", PriceRange(since + n, None, 10_000))
    sizes = [len(one.body) for one in pages._pages["elm-street"][1].values() if one is not usual]
    assert sum(sizes) <= 3 * len(large.body)
    assert pages.ready("/v1/prices", "elm-street") is usual, "others do not push it out"


def test_events_are_encoded_once_for_all_that_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    encode = feeds_module.event

    def counted(zone: ZoneService, one: ReleaseRecord) -> Any:
        made.append(one.t)
        return encode(zone, one)

    monkeypatch.setattr(feeds_module, "event", counted)
    with world(tmp_path, fill=100) as it:
        head = {"Last-Event-ID": str(FIRST - 100)}
        for _ in range(3):
            with httpx.stream(
                "GET", f"{it.root}/v1/stream?zone=elm-street", headers=head
            ) as answer:
                text = ""
                for piece in answer.iter_text():
                    text += piece
                    if f"id: {FIRST - 1}\n" in text:
                        break
            ids = [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
            assert ids == list(range(FIRST - 99, FIRST))
    assert sorted(made) == list(range(FIRST - 99, FIRST))


def test_silent_connections_of_one_address_are_counted_before_tls(tmp_path: Path) -> None:
    certificate(tmp_path, "localhost")
    http = Http(tls_certificate=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    server = Server(PlainTextResponse("ok"), "127.0.0.1", 0, http)
    server._socket.address_limit = 5
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)

        def silent(source: str) -> socket.socket:
            made = socket.create_connection(
                ("127.0.0.1", server.port), 20, source_address=(source, 0)
            )
            return stack.enter_context(made)

        links = [silent("127.0.0.2") for _ in range(5)]
        with suppress(ConnectionResetError):
            assert silent("127.0.0.2").recv(1) == b""
        url = f"https://127.0.0.1:{server.port}/"
        assert httpx.get(url, verify=False, timeout=20).text == "ok"  # another address
        assert until(lambda: sum(server._socket.counts.values()) == 5)
        links[0].close()
        assert until(lambda: sum(server._socket.counts.values()) == 4)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_silent_connections_of_others_make_room(tmp_path: Path, loop: str) -> None:
    """Where all are taken by silent ones of few addresses, a new address still gets in."""
    pytest.importorskip("uvloop")
    http, scheme = Http(connections=40), "http"
    if loop == "asyncio":
        certificate(tmp_path, "localhost")
        http, scheme = (
            Http(
                connections=40, tls_certificate=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem"
            ),
            "https",
        )
    server = Server(PlainTextResponse("ok"), "127.0.0.1", 0, http)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        links = [
            stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", server.port), 20, source_address=(f"127.0.0.{2 + n % 3}", 0)
                )
            )
            for n in range(90)
        ]
        assert until(lambda: sum(map(_ended, links)) >= 50)
        kept = stack.enter_context(httpx.Client(verify=False, timeout=20))
        for _ in range(5):
            assert kept.get(f"{scheme}://127.0.0.1:{server.port}/").text == "ok"
        others = [one for one in links if not _ended(one)]
        assert len(others) >= 9, "one gave way, not all"


def _ended(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return link.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    ("seconds", "steps"), [(900, 96), (300, 288), (60, 1440), (10, 240), (2, 96)]
)
def test_a_forecast_is_made_before_the_next_release(seconds: int, steps: int) -> None:
    """A day of 10 s intervals took as long as an interval, so that queries waited for good."""
    zone = replace(ZONES[0], seconds=seconds)
    one = release("elm-street", zone.begins // seconds, source="fallback", start=zone.begins)
    assert len(Forecaster(zone).after([one]).guesses) == steps
