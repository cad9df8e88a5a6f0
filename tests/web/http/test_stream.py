"""Server-sent events: everyone gets each release, who was away resumes, the slow are let go."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from hushgrid.curator.publishers import PresentPrices, price
from hushgrid.web.http import prices as stream
from hushgrid.web.http import server as protocol
from hushgrid.web.http.server import Server
from tests.curator.worlds import TOKEN
from tests.web.http.faces import Face
from tests.web.releases import release

WAIT = 20.0  # [s] for what must come; nothing is timed by it


class Served(Face):
    """A face on a socket."""

    def __init__(self, *zones: str, **http: Any) -> None:
        super().__init__(*zones, **http)
        self.server = Server(self.app, "127.0.0.1", 0)
        self.server.start()
        self.listeners: list[Listener] = []

    def stop(self) -> None:
        self.server.stop()
        for listener in self.listeners:
            listener.sock.close()

    def publish(self, i: int, **changes: Any) -> None:
        self.history.publish(self.zone, release(i, **changes))

    def listen(self, last: str | None = None, zone: str = "elm-street") -> Listener:
        self.listeners.append(Listener(self.server.port, last, zone))
        return self.listeners[-1]

    @property
    def streams(self) -> Any:
        return self.app.state.streams


class Listener:
    """A raw client that reads when it is told to."""

    def __init__(self, port: int, last: str | None, zone: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        resume = "" if last is None else f"Last-Event-ID: {last}\r\n"
        head = f"GET /v1/stream?zone={zone} HTTP/1.1\r\nHost: x\r\n{resume}\r\n"
        self.sock.sendall(head.encode())
        self.seen, self._looked = bytearray(), 0

    def until(self, text: bytes) -> bytes:
        while self.seen.find(text, self._looked) < 0:
            self._looked = max(len(self.seen) - len(text), 0)
            piece = self.sock.recv(1 << 20)
            assert piece, f"hung up before {text!r}: {self.seen[-300:]!r}"
            self.seen += piece
        return bytes(self.seen)

    def ended(self) -> bool:
        while piece := self.sock.recv(65_536):
            self.seen += piece
        return True

    @property
    def ids(self) -> list[int]:
        lines = bytes(self.seen).replace(b"\r\n", b"\n").split(b"\n")
        return [int(line[4:]) for line in lines if line.startswith(b"id: ")]


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.stop()


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not check():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


T0 = release(0).t


def test_a_listener_gets_the_newest_and_then_each_release(served: Served) -> None:
    served.publish(0)
    served.publish(1)
    served.clock.wall = float(release(1).applies_start)
    listener = served.listen()
    head = listener.until(b"id: %d\n" % (T0 + 1)).lower()
    assert b"content-type: text/event-stream" in head
    assert b"cache-control: no-store" in head
    assert b"x-content-type-options: nosniff" in head
    for i in (2, 3, 4):
        served.publish(i)
        served.publish(i)  # shown again: told once
    listener.until(b"id: %d\n" % (T0 + 4))
    assert listener.ids == [T0 + i for i in (1, 2, 3, 4)]
    found = httpx.get(f"http://127.0.0.1:{served.server.port}/v1/price").json()
    assert events(listener, "price") == [found | {"next": None}], "with the first events"
    assert events(listener, "release")[-1] == price(served.zone, release(4))
    served.history.show(served.zone, PresentPrices(found | {"price": 9.0}, list))
    served.history.show(served.zone, PresentPrices(found | {"price": 9.0}, list))
    served.publish(5)
    listener.until(b"id: %d\n" % (T0 + 5))
    assert [one["price"] for one in events(listener, "price")] == [found["price"], 9.0], "once"


def events(listener: Listener, name: str) -> list[Any]:
    """The data of the events of a name."""
    parts = bytes(listener.seen).replace(b"\r\n", b"\n").split(b"event: " + name.encode())[1:]
    return [json.loads(part.split(b"data: ")[1].split(b"\n")[0]) for part in parts]


def test_who_was_away_resumes(served: Served) -> None:
    for i in range(6):
        served.publish(i)
    listener = served.listen(last=str(T0 + 2))
    served.publish(6)
    listener.until(b"id: %d\n" % (T0 + 6))
    assert listener.ids == [T0 + i for i in (3, 4, 5, 6)]
    late = []  # what comes next reaches them, too
    for odd in ("x", "-1", "9" * 30, "1; DROP TABLE", str(T0 + 7), "9" * 18):
        other = served.listen(last=odd)
        other.until(b"id: %d\n" % (T0 + 6))
        assert other.ids == [T0 + 6]
        late.append(other)
    new = served.listen(last=str(T0 + 6))
    served.publish(7)
    new.until(b"id: %d\n" % (T0 + 7))
    assert new.ids == [T0 + 7]
    for other in late:
        other.until(b"id: %d\n" % (T0 + 7))


def test_a_silent_stream_has_a_heartbeat(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
    listener = served.listen()
    listener.until(b": still here\n\n")
    served.publish(0)
    listener.until(b"id: %d\n" % T0)


def test_many_listeners_all_get_each_release(served: Served) -> None:
    listeners = [served.listen() for _ in range(100)]
    eventually(lambda: len(served.streams) == 100)
    for i in range(5):
        served.publish(i)
    for listener in listeners:
        listener.until(b"id: %d\n" % (T0 + 4))
        assert listener.ids == [T0 + i for i in range(5)]


def test_one_that_does_not_read_is_let_go_and_delays_nobody(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "QUEUE", 4)
    _, eager = served.listen(), served.listen()
    eventually(lambda: len(served.streams) == 2)
    told = threading.Event()

    def publish() -> None:
        for i in range(150):
            served.publish(i, rule="x" * 100_000)  # more than sockets hold
            if i % 3 == 0:
                eager.until(b"id: %d\n" % (T0 + i))
        told.set()

    threading.Thread(target=publish, daemon=True).start()
    assert told.wait(4 * WAIT), "the loop that publishes was held up"
    eager.until(b"id: %d\n" % (T0 + 149))
    assert eager.ids == [T0 + i for i in range(150)]
    eventually(lambda: len(served.streams) == 1)


def test_a_client_that_never_reads_is_hung_up_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALLED", 0.2)
    served.listen()
    eventually(lambda: len(served.streams) == 1)
    served.publish(0, rule="x" * 30_000_000)  # more than sockets hold
    eventually(lambda: not served.server._server.server_state.connections)


def test_who_hangs_up_is_forgotten(served: Served) -> None:
    listener = served.listen()
    eventually(lambda: len(served.streams) == 1)
    listener.sock.close()
    eventually(lambda: len(served.streams) == 0)


def test_zones_are_apart_and_only_so_many_listen() -> None:
    served = Served("elm-street", "oak-lane", connections=8)
    try:
        listeners = [served.listen() for _ in range(5)] + [served.listen(zone="oak-lane")]
        eventually(lambda: len(served.streams) == 6)
        url = f"http://127.0.0.1:{served.server.port}"
        answer = httpx.get(f"{url}/v1/stream?zone=oak-lane")
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert httpx.get(f"{url}/v1/stream").status_code == 400
        assert httpx.get(f"{url}/healthz").status_code == 200
        served.publish(0)
        for listener in listeners[:5]:
            listener.until(b"id: %d\n" % T0)
        served.server.stop()
        assert all(listener.ended() for listener in listeners), "a stop ends every stream"
        assert listeners[5].ids == []
    finally:
        served.stop()


def test_a_server_that_stopped_is_told_nothing() -> None:
    served = Served()
    listener = served.listen()
    eventually(lambda: len(served.streams) == 1)
    served.server.stop()
    assert listener.ended()
    served.publish(0)
    assert listener.ids == []
    served.stop()


def test_a_stop_refuses_a_listener_that_comes_again_at_once(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    listener = served.listen()
    eventually(lambda: len(served.streams) == 1)
    served.app.end()  # as a stop begins
    listener.until(b"\r\n0\r\n\r\n")
    again = served.listen()
    again.until(b"HTTP/1.1 503 ")
    served.server.stop()
    assert again.ended()
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_a_stop_does_not_wait_for_the_rest_of_a_body(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=WAIT) as line:
        head = "POST /v1/readings HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: 900\r\n"
        line.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert b" 100 " in line.recv(100), "the body is being read"
        served.server.stop()
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
