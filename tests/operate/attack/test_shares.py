"""Bodies and answers: who has no scope costs nothing, and one caller leaves the others theirs."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter, ValidationError
from starlette.routing import BaseRoute, Mount

from hushgrid.stores import openadr as kept
from hushgrid.stores.clients import Grant
from hushgrid.web.http import common
from hushgrid.web.http.app import FORMS, UNREAD, make_app
from hushgrid.web.http.middleware import BODY, REPORT, Caller, caller_name
from hushgrid.web.openadr import app as vtn_app
from hushgrid.web.openadr._generated import ReportRequest
from hushgrid.web.openadr.app import BASE
from tests.web.brokers import until
from tests.web.openadr import setup
from tests.web.openadr.setup import FIRST, ZONES, World, release, report, ven, world

SIZE = 200_000  # [bytes] of a long report
MANY = 45  # of them in a list: more than sockets hold
READ_ONLY = {"GET", "HEAD"}


def ways(routes: list[BaseRoute], under: str = "") -> Iterator[tuple[str, str]]:
    """Each method and path that may have a body."""
    for route in routes:
        if isinstance(route, Mount):
            yield from ways(route.routes, under + route.path)
        else:
            path = under + re.sub("{.*?}", "x", getattr(route, "path", ""))
            for method in sorted((getattr(route, "methods", None) or set()) - READ_ONLY):
                yield method, path


async def asked(world: World, method: str, path: str, token: str = "") -> int:
    """The status for a request whose body must not be read."""
    begun: list[int] = []

    async def receive() -> Any:
        raise AssertionError(f"{method} {path}: the body was read")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            begun.append(message["status"])

    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    headers += [(b"authorization", token.encode())] if token else []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": headers, "client": ("192.0.2.1", 9),
             "server": ("x", 80), "scheme": "http", "root_path": "", "http_version": "1.1",
             "asgi": {"version": "3.0"}}  # fmt: skip
    await world.app(scope, receive, send)
    return begun[0]


def test_a_scope_is_checked_before_one_byte_of_a_body_on_every_route(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        found = [one for one in ways(list(it.app.routes)) if one[1] not in FORMS]
        writing = {f"{BASE}/{kind}" for kind in ("reports", "subscriptions", "vens", "resources")}
        assert {"/v1/readings", *writing} <= {path for method, path in found if method == "POST"}
        assert len(found) >= 19
        other_scope = it.auth("business", "read_all")["Authorization"]
        for method, path in found:
            closed = re.fullmatch(f"{BASE}/(programs|events)(/x)?", path) is not None
            wanted = {403, 404} if closed else {401}
            assert asyncio.run(asked(it, method, path)) in wanted, (method, path)
            assert asyncio.run(asked(it, method, path, other_scope)) in wanted | {403}
            assert asyncio.run(asked(it, method, path, "Bearer x")) == 401, (method, path)


def long_report(size: int, **more: Any) -> bytes:
    empty = len(json.dumps(report(more="", **more)))
    return json.dumps(report(more="a" * (size - empty), **more)).encode()


def test_a_body_has_the_limit_of_its_kind(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        largest = long_report(REPORT[0])
        assert len(largest) == REPORT[0]
        stored = it.ask("POST", "/reports", "ven-1", content=largest)
        assert stored.status_code == 201
        place = f"/reports/{stored.json()['id']}"
        assert it.ask("PUT", place, "ven-1", content=largest).status_code == 200
        for method, path in (("POST", "/reports"), ("PUT", place)):
            assert it.ask(method, path, "ven-1", content=largest + b" ").status_code == 413
        assert it.post("/vens", ven("V", more="a" * BODY[0]), "ven-1").status_code == 413
        assert it.post("/vens", ven("V", more="a" * (BODY[0] - 200)), "ven-1").status_code == 201


def test_a_body_is_parsed_outside_the_loop_and_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    sizes: list[int] = []
    parse, encode = vtn_app.from_json, json.dumps

    def parsing(*values: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name)
        return parse(*values, **more)

    def encoding(*values: Any, **more: Any) -> str:
        text = encode(*values, **more)
        sizes.extend([len(text)] if len(text) > SIZE // 2 else [])
        return text

    with world(tmp_path) as it:
        body = long_report(SIZE)
        monkeypatch.setattr(vtn_app, "from_json", parsing)
        monkeypatch.setattr(json, "dumps", encoding)
        assert it.ask("POST", "/reports", "ven-1", content=body).status_code == 201
        assert len(threads) == 1
        assert threads[0] != it.server._thread.name
        assert len(sizes) == 1


def test_of_many_mistakes_the_first_is_enough() -> None:
    body = report() | {"resources": [0] * 1000}
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(ReportRequest).validate_python(body)
    assert caught.value.error_count() == 1


def fill(it: World, client: str, number: int = MANY, size: int = SIZE) -> list[str]:
    text = kept.to_text({"eventID": "e", "clientName": "c", "resources": [], "more": "a" * size})
    names = [f"{client}-{i}" for i in range(number)]
    for name in names:
        it.store.add(kept.StoredObject("REPORT", name, client, 0, 0, text))
    return names


def unread(stack: ExitStack, it: World, path: str, head: dict[str, str], source: str) -> Any:
    """A connection whose answer is not read, but for its status."""
    link = socket.socket()
    stack.enter_context(link)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.bind((source, 0))
    link.settimeout(60)
    link.connect(("127.0.0.1", it.server.port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    return link, link.recv(12).decode()[9:]


def test_a_list_is_read_from_the_store_as_its_client_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    rows = kept.VtnStore.rows

    def counted(store: kept.VtnStore, *values: Any, **more: Any) -> list[Any]:
        found = rows(store, *values, **more)
        texts = [each for row in found for each in row if isinstance(each, str)]
        fetched.append(sum(map(len, texts)))
        return found

    with world(tmp_path) as it, ExitStack() as stack:
        names = fill(it, "ven-1")
        monkeypatch.setattr(kept.VtnStore, "rows", counted)
        link, status = unread(stack, it, f"{BASE}/reports", it.auth("ven-1"), "127.0.0.1")
        assert status == "200"
        assert until(lambda: it.metrics.under_way.total > 0)
        assert max(fetched) <= kept.CHUNK
        assert sum(fetched) < MANY * SIZE, "the rest waits for the client"
        text = b""
        while not text.endswith(b"0\r\n\r\n"):
            text += link.recv(1 << 20)
        assert sum(fetched) > MANY * SIZE
        assert until(lambda: it.metrics.under_way.total == 0)
        listed = it.get("/reports", "ven-1").json()
        assert [one["id"] for one in listed] == names, "never a short page"
        assert listed[0] == it.get(f"/reports/{names[0]}", "ven-1").json()
        few = it.get("/reports", "ven-1", params={"skip": 40}).json()
        assert [one["id"] for one in few] == names[40:]


def test_unread_lists_of_one_ven_leave_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)
    with world(tmp_path) as it, ExitStack() as stack:
        fill(it, "ven-1")
        names, most = fill(it, "ven-2", 3), it.metrics.under_way
        head = it.auth("ven-1")
        statuses = [
            unread(stack, it, f"{BASE}/reports", head, f"127.0.0.{2 + n % 4}")[1] for n in range(30)
        ]
        allowed = statuses.count("200")
        assert 1 < allowed <= most.caller_limit // (2 * kept.CHUNK)
        assert set(statuses) == {"200", "503"}
        assert most.total <= most.caller_limit
        assert [one["id"] for one in it.get("/reports", "ven-2").json()] == names
        assert len(it.get("/events").json()) == 8, "three releases and a forecast of each zone"
        text = it.metrics.text(operator=True).decode()
        size = re.search("^hushgrid_bytes_under_way (.*)$", text, re.MULTILINE)
        assert size is not None
        assert float(size[1]) == most.total
        assert f"hushgrid_bytes_refused_total {30.0 - allowed}" in text
        assert "bytes_under_way" not in it.metrics.text().decode()
        stack.close()
        assert until(lambda: most.total == 0)


def test_unfinished_bodies_of_one_ven_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)
    with world(tmp_path) as it, ExitStack() as stack:
        most, token = it.metrics.under_way, it.auth("ven-1")["Authorization"]
        head = f"POST {BASE}/reports HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
        links = []
        for n in range(40):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", it.server.port), 60))
            size = "Transfer-Encoding: chunked" if n % 2 else f"Content-Length: {REPORT[0]}"
            link.sendall(f"{head}{size}\r\n\r\n".encode())
            links.append(link)
        fits = most.caller_limit // REPORT[0]
        answers = [link.recv(12) for link in links[fits:]]
        assert answers == [b"HTTP/1.1 503"] * (40 - fits)
        assert most.total == most.caller_limit
        assert it.post("/reports", report(), "ven-2").status_code == 201
        stack.close()
        assert until(lambda: most.total == 0)


def test_a_page_is_full_although_objects_are_removed_meanwhile(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        names = fill(it, "ven-1", 30, kept.CHUNK // 3)
        page = it.store.find("REPORT", client="ven-1", limit=20)
        seen = [next(page).id]
        for name in (names[0], names[10]):
            it.store.remove("REPORT", name)
        seen += [one.id for one in page]
        assert seen == [name for name in names[:21] if name != names[10]]


def test_slow_requests_of_one_ven_leave_threads_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, go = kept.VtnStore.find, threading.Event()

    def slow(store: kept.VtnStore, kind: kept.Kind, **more: Any) -> Any:
        if more.get("client") == "ven-1":
            go.wait(60)
        return find(store, kind, **more)

    async def crowd(it: World) -> None:
        async with httpx.AsyncClient(base_url=it.url, timeout=60) as http:
            many = [
                asyncio.create_task(http.get("/reports", headers=it.auth("ven-1")))
                for _ in range(12)
            ]
            await asyncio.sleep(0.2)
            async with asyncio.timeout(30):
                answer = await http.get("/reports", headers=it.auth("ven-2"))
            assert answer.status_code == 200
            go.set()
            assert {one.status_code for one in await asyncio.gather(*many)} == {200}

    monkeypatch.setattr(kept.VtnStore, "find", slow)
    with world(tmp_path) as it:
        try:
            asyncio.run(crowd(it))
        finally:
            go.set()


def test_replays_that_are_not_read_are_bounded_and_made_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)
    with world(tmp_path) as it, ExitStack() as stack:
        steps = range(FIRST - 900, FIRST)
        rows = [release("elm-street", t, rule="x" * 20_000) for t in steps]
        it.history.fill("elm-street", rows)
        most, head = it.metrics.under_way, {"Last-Event-ID": str(steps[0])}
        path = f"/v1/stream?zone={ZONES[0].id}"
        statuses = [unread(stack, it, path, head, "127.0.0.2")[1] for _ in range(20)]
        assert 1 < statuses.count("200") < 20
        assert set(statuses) == {"200", "503"}
        assert 0 < most.total <= most.caller_limit
        _, status = unread(stack, it, path, head, "127.0.0.3")
        assert status == "200", "of another caller"
        stack.close()
        assert until(lambda: most.total == 0)


def test_listeners_of_one_caller_are_a_share(tmp_path: Path) -> None:
    with world(tmp_path) as it, ExitStack() as stack:
        it.app.state.streams._limit = 80
        path = f"/v1/stream?zone={ZONES[0].id}"
        statuses = [unread(stack, it, path, {}, "127.0.0.2")[1] for _ in range(66)]
        assert statuses == ["200"] * 64 + ["503"] * 2
        assert unread(stack, it, path, {}, "127.0.0.3")[1] == "200"


def name(client: str | None, address: str = "192.0.2.99") -> str:
    return caller_name({"caller": Caller(Grant(client), address)})


def test_strangers_of_many_addresses_leave_half_of_the_bytes_to_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)
    under_way, size = common.UnderWay(), 2 << 20

    async def held() -> int:
        for i in range(40):
            with suppress(common.Refusal):
                await under_way.take(name(None, f"192.0.2.{i}"), size)
        strangers = under_way.total
        for i in range(10):
            await under_way.take(name(f"ven-{i}"), size)
        return strangers

    assert 0 < asyncio.run(held()) <= under_way.total_limit // 2


def test_strangers_of_many_addresses_leave_half_of_the_places_to_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)
    heavy, waits = common.Heavy(), threading.Event()

    async def asked() -> object:
        strangers = [
            asyncio.create_task(heavy.run(waits.wait, name(None, f"192.0.2.{i % 30}")))
            for i in range(200)
        ]
        await asyncio.sleep(0)
        client = asyncio.create_task(heavy.run(lambda: "answer", name("ven")))
        await asyncio.sleep(0)
        waits.set()
        await asyncio.gather(*strangers, return_exceptions=True)
        return await client

    assert asyncio.run(asked()) == "answer"


def test_unread_ledgers_of_one_auditor_are_bounded_and_made_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[int] = []

    def lines(_: str) -> Iterator[str]:
        for number in range(MANY):
            records.append(number)
            yield "a" * SIZE + "\n"

    monkeypatch.setattr(common, "SHED", 0.0)
    monkeypatch.setattr(setup, "make_app", partial(make_app, lines=lines))
    with world(tmp_path, clients={"auditor": ["audit"]}) as it, ExitStack() as stack:
        head, path, most = (
            it.auth("auditor"),
            f"/v1/ledger?zone={ZONES[0].id}",
            it.metrics.under_way,
        )
        statuses = [unread(stack, it, path, head, "127.0.0.1")[1] for _ in range(30)]
        allowed = statuses.count("200")
        assert 1 < allowed <= most.caller_limit // UNREAD
        assert set(statuses) == {"200", "503"}
        assert 0 < most.total <= most.caller_limit
        assert len(records) < allowed * MANY, "the rest waits for the client"
        stack.close()
        assert until(lambda: most.total == 0)
        text = httpx.get(f"{it.root}{path}", headers=head, timeout=60).text
        assert text == ("a" * SIZE + "\n") * MANY
