"""What every request passes first: headers, limits, slow and hostile clients, TLS, tokens."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import io
import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.curator.clock import JsonLines
from hushgrid.curator.ingest import Ingest
from hushgrid.errors import ServiceError
from hushgrid.files.settings import Http
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.web.http import common, middleware
from hushgrid.web.http import server as protocol
from hushgrid.web.http.app import make_app
from hushgrid.web.http.middleware import BodyLimit
from hushgrid.web.http.server import Server
from hushgrid.web.tokens import Access
from tests.curator.worlds import TOKEN
from tests.web.http.credentials import HOSTILE, KEPT, KEY, SECRET
from tests.web.http.faces import AUTH, DIGEST, NDJSON, ROWS, Face, Still, as_ndjson, refused
from tests.web.http.ways import ways
from tests.web.releases import release

WAIT = 20.0


class Limited(Face):
    """A face with clients, and a steady clock of its own."""

    def __init__(self, folder: Path, **http: Any) -> None:
        super().__init__()
        self.steady = 0.0
        self.clients = ClientStore(str(folder / "clients.sqlite"))
        self.clients.add(Client("ven-7", ("read_all", "write_reports"), KEPT, 1))
        self.http = Http(tokens=(DIGEST,), **http)
        self.history.publish(self.zone, release(0))
        steady = lambda: self.steady  # noqa: E731
        access = Access(self.clients, KEY, Still(), static=self.http.tokens, steady=steady)
        self.app = make_app(
            Ingest([self.zone], self.meters),
            self.board,
            self.metrics,
            self.http,
            history=self.history,
            access=access,
            clock=Still(),
        )

    def token(self, authorization: str | None = None, **form: str) -> httpx.Response:
        headers = {"Authorization": authorization} if authorization else {}
        return self.call("POST", "/v1/token", data=form, headers=headers)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    made = Limited(tmp_path, rate_limit=2.0)
    yield made
    made.clients.close()


GRANT = {"grant_type": "client_credentials"}
OURS = {**GRANT, "client_id": "ven-7", "client_secret": SECRET}


# headers


def test_every_answer_tells_browsers_to_keep_out(tmp_path: Path) -> None:
    limited = Limited(tmp_path)
    answers = [
        limited.call(method, path, headers=headers)
        for method in ("GET", "POST", "PUT")
        for path in (*(way.path for way in ways(limited.app)), "/", "/nothing", "/%2e%2e/x")
        for headers in ({}, AUTH, {"Authorization": "Bearer bad"})
        if path != "/v1/stream"
    ]
    assert {200, 304, 400, 401, 403, 404, 405, 415, 503} - {304} <= {
        answer.status_code for answer in answers
    }
    for answer in answers:
        head = answer.headers
        assert head["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in head["content-security-policy"]
        assert head["content-security-policy"].startswith("default-src ")
        assert head["referrer-policy"] == "no-referrer"
        assert head["x-frame-options"] == "DENY"
        assert "server" not in head
        assert "strict-transport-security" not in head, "without TLS it would lock people out"
        assert len(head.get_list("content-security-policy")) == 1
        assert len(head.get_list("cache-control")) == 1, "no-store where nothing else is said"
    limited.meters.fail = RuntimeError("a fault")
    failed = limited.call("POST", "/v1/readings", content=as_ndjson(ROWS), headers=NDJSON)
    assert (failed.status_code, failed.headers["x-frame-options"]) == (500, "DENY")
    limited.clients.close()


# limits


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "SHED", 0.0)


def test_a_refused_sender_waits(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    monkeypatch.setattr(common, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(common, "SHED", 3.5)
    codes = [limited.call("GET", "/v1/price").status_code for _ in range(12)]
    assert paused == [3.5] * codes.count(429)
    assert paused, "and those before do not"


def test_refusals_of_a_crowd_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        await asyncio.sleep(0)

    async def crowd() -> None:
        await asyncio.gather(*(common.pause() for _ in range(2000)))
        await common.pause()

    monkeypatch.setattr(common, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(common, "SHED", 1.0)
    asyncio.run(crowd())
    assert paused[:3] == pytest.approx([1.0, 1.01, 1.02]), "not all at the same time"
    assert (max(paused), paused[-1]) == (10.0, 1.0)


def test_a_sender_has_so_many_requests_a_second(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = 1000.0
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=lambda: wall))
    answers = [limited.call("GET", "/v1/price").status_code for _ in range(12)]
    assert answers == [200] * 10 + [429] * 2, "five seconds of 2 a second"
    answer = limited.call("GET", "/v1/price")
    refused(answer, 429)
    assert answer.headers["retry-after"] == "5"
    with_token = limited.call("GET", "/v1/price", headers=AUTH)
    assert with_token.status_code == 200, "a client has its own"
    assert limited.call("GET", "/v1/price", headers={"Authorization": "Bearer x"}).status_code == (
        429
    ), "a made-up one has the address's"
    wall += 5
    answers = [limited.call("GET", "/healthz").status_code for _ in range(11)]
    assert answers == [200] * 10 + [429]


@pytest.mark.parametrize("others", [False, True])
def test_a_refusal_does_not_depend_on_others(
    limited: Limited, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """When the next request may come would show whether another sender was there just before."""
    wall = 1002.0
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=lambda: wall))
    if others:
        limited.call("GET", "/v1/price", headers=AUTH)
    wall = 1003.5
    answers = [limited.call("GET", "/v1/price") for _ in range(11)]
    assert [one.status_code for one in answers] == [200] * 10 + [429]
    assert answers[-1].headers["retry-after"] == "2"


def test_an_address_is_believed_from_known_proxies_alone(tmp_path: Path) -> None:
    def calls(proxies: tuple[str, ...], *forwarded: str) -> list[int]:
        folder = tmp_path / f"{len(proxies)}{len(forwarded)}{forwarded[0]}"
        folder.mkdir()
        face = Limited(folder, rate_limit=0.2, proxies=proxies)
        found = [
            face.call("GET", "/v1/price", headers={"X-Forwarded-For": one}).status_code
            for one in forwarded
        ]
        face.clients.close()
        return found

    assert calls((), "192.0.2.1", "192.0.2.2") == [200, 429], "nobody asked for that header"
    ours = ("127.0.0.0/8",)
    assert calls(ours, "192.0.2.1", "192.0.2.2", "192.0.2.1") == [200, 200, 429]
    made_up = ("1.1.1.1, 192.0.2.1", "2.2.2.2, 192.0.2.1", "junk, 192.0.2.1, 127.0.0.9")
    assert calls(ours, *made_up) == [200, 429, 429], "only what our proxy wrote counts"


@given(st.binary(max_size=200))
def test_no_forwarded_header_breaks_anything(value: bytes) -> None:
    answer = PROXIED.call("GET", "/healthz", headers={"X-Forwarded-For": value})
    assert answer.status_code == 200


PROXIED = Face(proxies=("127.0.0.1", "::/0"), rate_limit=1e9)


@pytest.mark.parametrize(("rate", "many"), [(2.0, 10), (0.2, 1), (0.01, 1), (3.3, 16)])
def test_a_rate_is_a_number_of_requests_in_some_seconds(rate: float, many: int) -> None:
    face = Face(rate_limit=rate)
    codes = [face.call("GET", "/healthz").status_code for _ in range(many + 2)]
    assert codes == [200] * many + [429] * 2


# tokens over HTTP


def test_a_client_gets_a_token_by_form_or_basic(tmp_path: Path) -> None:
    limited = Limited(tmp_path)
    basic = "Basic " + base64.b64encode(f"ven-7:{SECRET.replace(' ', '+')}".encode()).decode()
    for answer in (
        limited.token(scope="write_reports", **OURS),
        limited.token(basic, scope="write_reports", **GRANT),
    ):
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert set(found) == {"access_token", "token_type", "expires_in", "scope"}
        assert (found["token_type"], found["scope"]) == ("Bearer", "write_reports")
        assert answer.headers["cache-control"] == "no-store"
        header = {"Authorization": f"Bearer {found['access_token']}"}
        assert limited.call("POST", "/v1/readings", headers=header).status_code == 403
        assert limited.call("GET", "/v1/price", headers=header).status_code == 200
    limited.clients.close()


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({"a": "b"}, 400, "invalid_request"),
        ({**OURS, "grant_type": "password"}, 400, "unsupported_grant_type"),
        (GRANT, 401, "invalid_client"),
        ({**OURS, "client_secret": "no"}, 401, "invalid_client"),
        ({**OURS, "scope": "operate"}, 400, "invalid_scope"),
        ({**OURS, "scope": "x" * 20_000}, 400, "invalid_request"),
        ({f"a{i}": "" for i in range(100)}, 400, "invalid_request"),
    ],
)
def test_a_bad_form_is_told_as_oauth_has_it(
    tmp_path: Path, form: dict[str, str], status: int, error: str
) -> None:
    limited = Limited(tmp_path)
    answer = limited.token(**form)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert set(answer.json()) == {"error", "error_description"}
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert SECRET not in answer.text
    limited.clients.close()


def test_other_bodies_are_no_form(tmp_path: Path) -> None:
    limited = Limited(tmp_path)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for content, headers in (
        (json.dumps(OURS), {"Content-Type": "application/json"}),
        (b"\xff\xfe", form),
        (b"grant_type=client_credentials&client_id=a&client_id=b", form),
        (b"grant_type=client_credentials&client_id=%ff&client_secret=%00", form),
        (b"grant_type=client_credentials", {**form, "Authorization": "Basic !!!"}),
    ):
        answer = limited.call("POST", "/v1/token", content=content, headers=headers)
        assert answer.status_code in (400, 401), answer.text
    limited.clients.close()


def test_guessing_over_http_is_slowed(tmp_path: Path) -> None:
    limited = Limited(tmp_path)
    codes = [limited.token(**{**OURS, "client_secret": f"no {i}"}).status_code for i in range(8)]
    assert codes == [401] * 6 + [429] * 2
    answer = limited.token(**OURS)
    assert (answer.status_code, answer.json()["error"]) == (429, "slow_down")
    assert int(answer.headers["retry-after"]) >= 1
    limited.clients.close()


# what people try


def strings(face: Limited, text: str) -> list[httpx.Response]:
    """A text in every place a request has for one."""
    encoded = text.encode("utf-8", "surrogatepass")
    params = {"zone": encoded.decode("latin-1")}
    plain = bytes(byte for byte in encoded if byte not in (0, 10, 13)) or b"x"
    return [
        *(face.call("GET", way.path, params=params) for way in ways(face.app)),
        *(
            face.call("GET", "/v1/prices", params={name: text.encode("ascii", "replace").decode()})
            for name in ("from", "to", "limit")
        ),
        face.call("POST", "/v1/readings", params={"mapping": params["zone"]}, headers=AUTH),
        face.call("GET", "/v1/price", headers={"Authorization": b"Bearer " + plain}),
        face.call("GET", "/v1/price", headers={"If-None-Match": plain}),
        face.call("GET", "/v1/price", headers={"X-Forwarded-For": plain}),
        face.call("GET", "/v1/stream?zone=none", headers={"Last-Event-ID": plain}),
        face.call("POST", "/v1/readings", headers={**AUTH, "Content-Type": plain}),
        face.call("POST", "/v1/readings", headers={**AUTH, "Content-Encoding": plain}),
    ]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.sampled
def test_no_text_is_more_than_text_in_any_place(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    face = Limited(tmp_path)
    caplog.set_level(logging.DEBUG)
    for answer in strings(face, text):
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert "set-cookie" not in answer.headers
        assert "passwd" not in answer.text or "is '" in answer.text, "at most said back"
        if answer.headers["content-type"] == "application/problem+json":
            assert "\n" not in answer.json()["detail"]
    for name in ("client_id", "client_secret", "scope"):
        given = {**OURS, name: text.encode("utf-8", "replace").decode()}
        if name != "client_secret":
            given["client_secret"] = SECRET
        assert face.token(**given).status_code in (200, 400, 401, 429)
    lines = [JsonLines().format(record) for record in caplog.records]
    assert all(json.loads(line) and "\n" not in line for line in lines)
    assert face.clients.find("ven-7") is not None
    face.clients.close()


def raw(port: int, *pieces: bytes) -> bytes:
    """What a server says to some bytes, until it hangs up; each is sent after an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as sock:
        said = b""
        for piece in pieces:
            sock.sendall(piece)
            if piece is not pieces[-1]:
                said += sock.recv(65_536)
        while more := sock.recv(65_536):
            said += more
        return said


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    made = Limited(tmp_path)
    server = Server(made.app, "127.0.0.1", 0)
    server.start()
    yield server.port
    server.stop()
    made.clients.close()


@pytest.mark.parametrize(
    "path",
    [
        b"/../../etc/passwd", b"/v1/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd",
        b"/v1/price/../../etc/passwd", b"//etc/passwd", b"/v1/prices/%2e%2e%2f%2e%2e%2fetc/passwd",
        b"/v1//price", b"/v1/price/", b"/V1/PRICE", b"/v1/price%00", b"/v1/price%0d%0aX:%20y",
        b"http://elsewhere/etc/passwd",
    ],
)  # fmt: skip
@pytest.mark.sampled
def test_no_path_leads_to_a_file(port: int, path: bytes) -> None:
    said = raw(port, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.split()[1] == b"404"
    assert b"root:" not in said
    assert json.loads(body)["detail"] == "There is nothing here."
    assert b"location:" not in head.lower()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/price HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/price HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/price\r\nX: y HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/price HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_head_that_is_none_is_refused_and_hung_up_on(port: int, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as sock:
        sock.sendall(head + b"\r\n\r\n")
        said = b""
        try:
            while more := sock.recv(65_536):
                said += more
        except ConnectionResetError:
            pass  # it hung up while we were still sending
    assert not said or said.split()[1] in (b"400", b"431")
    assert not said or b"x-content-type-options: nosniff" in said
    assert b"server:" not in said.lower()


def test_a_value_said_back_stays_in_its_answer(port: int) -> None:
    request = b"GET /v1/price?zone=a%0d%0aSet-Cookie:%20b=c HTTP/1.1\r\nHost: x\r\n"
    said = raw(port, request + b"Connection: close\r\n\r\n")
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"set-cookie" not in head.lower()
    assert json.loads(body)["value"] == "a\r\nSet-Cookie: b=c"
    assert b"\r\n" not in body


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"GET /v1/price HT",),
        (b"GET /v1/price HTTP/1.1\r\nHost: x\r\n",),
        (b"GET /v1/price HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1"),
    ],
)
def test_a_head_that_never_ends_is_hung_up_on(
    limited: Limited, pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD", 0.2)
    server = Server(limited.app, "127.0.0.1", 0)
    server.start()
    try:
        said = raw(server.port, *pieces)  # returns when the server hangs up
        assert said.count(b"HTTP/1.1 200") == max(len(pieces) - 1, 0)
        assert httpx.get(f"http://127.0.0.1:{server.port}/healthz").status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize("length", [b"3", b"0", b"40"])
def test_a_body_of_two_lengths_is_refused_and_hung_up_on(port: int, length: bytes) -> None:
    """Where a proxy believes the one and we the other, a request is smuggled in."""
    head = b"POST /v1/token HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n"
    hidden = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    said = raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.split()[1] == b"400"
    assert b"Transfer-Encoding" in said


@pytest.mark.parametrize("path", [b"/v1/readings", b"/nowhere", b"/v1/price"])
def test_a_body_that_never_ends_after_its_answer_is_hung_up_on(
    limited: Limited, path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD", 0.3)
    server = Server(limited.app, "127.0.0.1", 0)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as sock:
            sock.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n")
            said = sock.recv(65_536)
            assert said.startswith(b"HTTP/1.1 4")
            with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
                for _ in range(200):
                    sock.sendall(b"a")
                    time.sleep(0.05)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
            whole = [client.post(path.decode(), content=b"a" * 10).status_code for _ in range(3)]
            assert set(whole) <= {401, 404, 405}  # who sends all of it goes on
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("path", "status"),
    [(b"/v1/readings", b"408"), (b"/v1/token", b"400"), (b"/v1/session", b"408")],
)
def test_a_body_that_comes_too_slowly_is_refused(
    limited: Limited, path: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow sender, byte by byte, without a proxy."""
    call = BodyLimit.__call__

    async def impatient(self: BodyLimit, *rest: Any) -> None:
        self._paths = {path.decode(): (10_000, 0.3)}
        await call(self, *rest)

    monkeypatch.setattr(BodyLimit, "__call__", impatient)
    monkeypatch.setattr(protocol, "HEAD", 0.3)
    server = Server(limited.app, "127.0.0.1", 0)
    server.start()
    media = {b"/v1/readings": b"application/x-ndjson", b"/v1/session": b"application/json"}
    form = media.get(path, b"application/x-www-form-urlencoded")
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as sock:
            sock.sendall(
                b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n"
                b"Content-Type: "
                + form
                + b"\r\nAuthorization: Bearer "
                + TOKEN.encode()
                + b"\r\n\r\n"
            )
            begun = time.monotonic()
            with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
                while time.monotonic() < begun + WAIT:
                    sock.sendall(b" ")
                    time.sleep(0.05)
        assert time.monotonic() < begun + WAIT / 2
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as sock:
            sock.sendall(
                b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n"
                b"Content-Type: "
                + form
                + b"\r\nAuthorization: Bearer "
                + TOKEN.encode()
                + b"\r\n\r\n"
            )
            assert sock.recv(65_536).split()[1] == status
    finally:
        server.stop()


@pytest.mark.parametrize("rest", [b"0\r\nX: ", b"1;", b"1\r\n \r\n0\r\n"])
def test_a_body_of_endless_trailers_is_hung_up_on(port: int, rest: bytes) -> None:
    """They are part of no body, so that no limit of a body sees them."""
    media = b"Content-Type: application/x-ndjson\r\nAuthorization: Bearer " + TOKEN.encode()
    head = b"POST /v1/readings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + media
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as sock:
        sock.sendall(head + b"\r\n\r\n" + rest)
        more = b"a: b\r\n" * 700 if rest.endswith(b"\n") else b"a" * 5000
        with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
            for _ in range(100):
                sock.sendall(more)
                time.sleep(0.02)


def test_slow_heads_do_not_hold_up_others(port: int) -> None:
    slow = [socket.create_connection(("127.0.0.1", port), timeout=WAIT) for _ in range(50)]
    for sock in slow:
        sock.sendall(b"GET /v1/price HTTP/1.1\r\nX: ")
    assert httpx.get(f"http://127.0.0.1:{port}/v1/price").status_code == 200
    for sock in slow:
        sock.close()


def test_connections_beyond_the_limit_are_hung_up_on(limited: Limited) -> None:
    server = Server(limited.app, "127.0.0.1", 0, Http(connections=3))
    server.start()
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) for _ in range(3)]
    try:
        for sock in held:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/healthz")
    finally:
        for sock in held:
            sock.close()
        server.stop()


def test_a_websocket_is_not_spoken(port: int) -> None:
    head = b"GET /v1/price HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade, close"
    assert raw(port, head + b"\r\n\r\n").startswith(b"HTTP/1.1 200"), "the header is ignored"


def test_other_protocols_get_nothing(limited: Limited) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    asyncio.run(limited.app({"type": "websocket"}, never, never))


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, private


def test_with_a_certificate_the_server_speaks_tls(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    chain, private = certificate
    limited = Limited(tmp_path, tls_certificate=chain, tls_key=private)
    server = Server(limited.app, "127.0.0.1", 0, limited.http)
    server.start()
    try:
        context = ssl.create_default_context(cafile=str(chain))
        with httpx.Client(verify=context) as client:
            answer = client.get(f"https://localhost:{server.port}/v1/price")
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/v1/price")
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with httpx.Client(verify=context) as client:
            assert client.get(f"https://localhost:{server.port}/healthz").status_code == 200
    finally:
        server.stop()
        limited.clients.close()


def test_a_certificate_that_cannot_be_used_is_said_at_once(
    limited: Limited, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    chain, private = certificate
    (tmp_path / "junk.pem").write_text("hello")
    for pair in (
        (chain, tmp_path / "absent.pem"),
        (tmp_path / "junk.pem", private),
        (chain, chain),
    ):
        http = Http(tls_certificate=pair[0], tls_key=pair[1])
        with pytest.raises(ServiceError, match="cannot be used"):
            Server(limited.app, "127.0.0.1", 0, http)


def test_tokens_are_not_logged(limited: Limited) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    try:
        limited.call("POST", "/v1/readings", headers=AUTH)
        limited.token(**OURS)
        limited.call("GET", f"/v1/price?zone={TOKEN}")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    ours = [json.loads(line) for line in stream.getvalue().splitlines()]
    hushgrid = json.dumps([line for line in ours if line["logger"].startswith("hushgrid")])
    assert TOKEN not in hushgrid
    assert SECRET not in stream.getvalue()
