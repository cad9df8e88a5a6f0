"""Logging in and out at a browser: who gets a session, what it opens, and what ends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.curator.ingest import Ingest
from hushgrid.files.settings import Http
from hushgrid.stores.clients import Client, ClientStore
from hushgrid.web.http.app import make_app
from hushgrid.web.http.common import COOKIE, same_origin, session_cookie
from hushgrid.web.tokens import SESSIONS_KEPT, Access, Sessions
from tests.web.http.credentials import KEPT as HASHED
from tests.web.http.credentials import KEY, SECRET
from tests.web.http.faces import DIGEST, Face, Still, refused
from tests.web.http.ways import ways
from tests.web.releases import release

OURS = {"Sec-Fetch-Site": "same-origin"}
WHO = {"client": "op", "secret": SECRET}


class Desk(Face):
    """A face with an operator, an auditor and a meter, and a steady clock of its own."""

    def __init__(self, folder: Path, **http: Any) -> None:
        super().__init__()
        self.steady = 1000.0
        self.clients = ClientStore(str(folder / "clients.sqlite"))
        for name, scopes in {
            "op": ("operate", "audit"),
            "auditor": ("audit",),
            "meter": ("write_readings",),
        }.items():
            self.clients.add(Client(name, scopes, HASHED, 1))
        self.http = Http(tokens=(DIGEST,), rate_limit=1e9, **http)
        self.history.publish(self.zone, release(0))
        self.access = Access(self.clients, KEY, Still(), steady=lambda: self.steady)
        self.app = make_app(
            Ingest([self.zone], self.meters),
            self.board,
            self.metrics,
            self.http,
            history=self.history,
            access=self.access,
            clock=Still(),
            certify=lambda zone: {"zone": zone},
        )
        self.sessions: Sessions = self.app.state.sessions
        self.sessions._steady = lambda: self.steady

    def log_in(self, body: Any = WHO, **headers: str) -> httpx.Response:
        return self.call("POST", "/v1/session", json=body, headers=headers)

    def look(self, path: str, cookie: str | None, method: str = "GET", **more: str) -> Any:
        headers = {**more, **({} if cookie is None else {"Cookie": f"{COOKIE}={cookie}"})}
        return self.call(method, path, headers=headers)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.clients.close()


def cookie_of(answer: httpx.Response) -> str:
    assert answer.status_code == 204, answer.text
    found = re.match(f"{COOKIE}=([^;]*);", answer.headers["set-cookie"])
    assert found
    return found[1]


def test_a_session_is_in_a_cookie_that_no_page_can_read(desk: Desk) -> None:
    answer = desk.log_in()
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["cache-control"] == "no-store"
    value, *said = answer.headers["set-cookie"].split("; ")
    assert set(said) == {"HttpOnly", "Max-Age=3600", "Path=/", "SameSite=strict"}
    assert len(value.removeprefix(f"{COOKIE}=")) == 43, "256 random bits"
    mine = desk.look("/v1/session", cookie_of(answer))
    assert mine.json() == {"client": "op", "scopes": ["audit", "operate"]}
    assert mine.headers["cache-control"] == "no-store"


def test_with_tls_the_cookie_never_travels_in_the_clear(tmp_path: Path) -> None:
    desk = Desk(tmp_path, tls_certificate=tmp_path, token_lifetime=60)
    said = desk.log_in().headers["set-cookie"]
    assert "; Secure" in said
    assert "Max-Age=60;" in said
    desk.clients.close()


def test_behind_a_proxy_with_tls_likewise(desk: Desk) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    answer = desk.call("POST", "/v1/session", json=WHO, headers=headers)
    assert "; Secure" in answer.headers["set-cookie"]


def test_the_wrong_secret_is_a_problem_and_slows_down(desk: Desk) -> None:
    wrong = {**WHO, "secret": "wrong"}
    for body in (wrong, {"client": "nobody", "secret": SECRET}):
        answer = desk.log_in(body)
        said = refused(answer, 401)
        assert said == "The client id or its secret is wrong; give those of hushgrid client add."
        assert "set-cookie" not in answer.headers
        assert answer.headers["www-authenticate"] == "Bearer", "Basic would open a window"
    for _ in range(4):
        desk.log_in(wrong)
    slow = desk.log_in(wrong)
    refused(slow, 429)
    assert slow.headers["retry-after"] == "1"
    refused(desk.log_in(), 429)
    token = {"grant_type": "client_credentials", "client_id": "op", "client_secret": SECRET}
    assert desk.call("POST", "/v1/token", data=token).status_code == 429, "one count for both"
    desk.steady += 2
    assert desk.log_in().status_code == 204


@pytest.mark.parametrize(
    ("content", "media", "status", "field"),
    [
        (b"{", "application/json", 400, "body"),
        (b"[]", "application/json", 400, "body"),
        (b"[" * 5000, "application/json", 400, "body"),
        (b"\xff", "application/json", 400, "body"),
        (b'{"client": "op"}', "application/json", 400, "secret"),
        (b'{"client": 7, "secret": "x"}', "application/json", 400, "client"),
        (b'{"client": "", "secret": "x"}', "application/json", 400, "client"),
        (b" " * 10_001, "application/json", 413, "body"),
        (b"client=op&secret=x", "application/x-www-form-urlencoded", 415, "Content-Type"),
        (b'{"client": "op", "secret": "x"}', "text/plain", 415, "Content-Type"),
    ],
)
def test_a_bad_body_is_named(
    desk: Desk, content: bytes, media: str, status: int, field: str
) -> None:
    headers = {"Content-Type": media}
    answer = desk.call("POST", "/v1/session", content=content, headers=headers)
    refused(answer, status)
    assert answer.json()["field"] == field
    assert len(answer.content) < 500


def test_a_session_opens_what_its_client_may_and_nothing_else(desk: Desk) -> None:
    """Only looking, only these paths: whatever else there is needs a token."""
    for name in ("op", "auditor", "meter"):
        cookie = cookie_of(desk.log_in({**WHO, "client": name}))
        client = desk.clients.find(name)
        assert client is not None
        for way in ways(desk.app):
            if way.path in ("/v1/stream", "/v1/session") or not way.scopes:
                continue
            answer = desk.look(way.path, cookie, way.method)
            taken = way.path.startswith("/v1/operator") or way.path == "/v1/ledger"
            may = set(way.scopes) & set(client.scopes)
            wanted = 401 if not taken else 200 if may else 403
            assert answer.status_code == wanted, (name, way)
            if taken:
                assert answer.headers["cache-control"] == "no-store"
    assert desk.look("/v1/operator", cookie, "HEAD").status_code == 403
    assert desk.look("/v1/status", "unknown").status_code == 200, "no cookie spoils what is public"


def test_a_token_counts_before_a_cookie(desk: Desk) -> None:
    cookie = cookie_of(desk.log_in())
    bad = desk.look("/v1/operator", cookie, Authorization="Bearer wrong")
    assert bad.status_code == 401


def test_a_session_is_no_token_and_a_token_no_session(desk: Desk) -> None:
    cookie = cookie_of(desk.log_in())
    answer = desk.call("GET", "/v1/operator", headers={"Authorization": f"Bearer {cookie}"})
    assert answer.status_code == 401
    token = desk.access.token("op", SECRET).access_token
    assert desk.look("/v1/operator", token).status_code == 401


def test_logging_out_ends_it_here_too(desk: Desk) -> None:
    cookie, other = cookie_of(desk.log_in()), cookie_of(desk.log_in())
    out = desk.look("/v1/session", cookie, "DELETE", **OURS)
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    refused(desk.look("/v1/session", cookie), 401)
    refused(desk.look("/v1/operator", cookie), 401)
    assert desk.look("/v1/operator", other).status_code == 200, "another browser stays"
    assert desk.look("/v1/session", cookie, "DELETE", **OURS).status_code == 204, "again"
    assert desk.call("DELETE", "/v1/session").status_code == 204, "nobody was there"


def test_logging_in_again_ends_the_session_before(desk: Desk) -> None:
    first = cookie_of(desk.log_in())
    second = cookie_of(desk.log_in(WHO, Cookie=f"{COOKIE}={first}"))
    assert desk.look("/v1/session", first).status_code == 401
    assert desk.look("/v1/session", second).status_code == 200


def test_time_and_revocation_end_it(desk: Desk) -> None:
    cookie = cookie_of(desk.log_in())
    desk.steady += 3599
    assert desk.look("/v1/operator", cookie).status_code == 200
    desk.steady += 1
    assert desk.look("/v1/operator", cookie).status_code == 401
    cookie = cookie_of(desk.log_in())
    assert desk.look("/v1/operator", cookie).status_code == 200
    desk.clients.revoke("op", 1)
    desk.steady += 4
    assert desk.look("/v1/operator", cookie).status_code == 401
    refused(desk.log_in(), 401)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://x.evil.example"},
        {"Origin": "http://xx"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://x"},
    ],
)
def test_another_sites_page_can_do_nothing(desk: Desk, headers: dict[str, str]) -> None:
    cookie = cookie_of(desk.log_in())
    assert desk.look("/v1/session", cookie, "DELETE", **headers).status_code == 403
    assert desk.look("/v1/operator", cookie, **headers).status_code == 401
    answer = desk.log_in(WHO, **headers)
    refused(answer, 403)
    assert "set-cookie" not in answer.headers
    assert desk.look("/v1/session", cookie).status_code == 200, "it is still there"


def test_what_changes_something_must_be_known_to_come_from_our_page(desk: Desk) -> None:
    cookie = cookie_of(desk.log_in())
    assert desk.look("/v1/session", cookie, "DELETE").status_code == 403, "who knows"
    assert desk.look("/v1/session", cookie, "DELETE", Origin="https://X").status_code == 204


def test_two_cookies_of_the_name_are_none(desk: Desk) -> None:
    cookie = cookie_of(desk.log_in())
    for value in (
        f"{COOKIE}={cookie}; {COOKIE}=other",
        f"{COOKIE}=",
        COOKIE,
        f"x{COOKIE}={cookie}",
    ):
        assert desk.call("GET", "/v1/session", headers={"Cookie": value}).status_code == 401
    assert session_cookie([(b"cookie", f"a=b; {COOKIE}=x".encode())]) == "x"
    assert same_origin([(b"sec-fetch-site", b"none")], required=False)
    assert not same_origin([(b"sec-fetch-site", b"none")], required=True)


def test_the_memory_for_sessions_is_bounded(desk: Desk) -> None:
    first = desk.sessions.begin("op", SECRET).text
    client = desk.sessions._live[next(iter(desk.sessions._live))]
    for i in range(SESSIONS_KEPT - 1):
        desk.sessions._live[str(i)] = client
    assert desk.sessions.grant(first).client == "op"
    desk.sessions.begin("op", SECRET)
    assert len(desk.sessions._live) == SESSIONS_KEPT
    assert desk.sessions.grant(first).client is None, "the oldest went"
    desk.steady += 3600
    desk.sessions.begin("op", SECRET)
    assert len(desk.sessions._live) == 1, "what has ended is not kept"
    assert desk.sessions.grant("x" * 10_000).client is None


def test_no_session_shows_in_a_text(desk: Desk) -> None:
    made = desk.sessions.begin("op", SECRET)
    assert made.text not in repr(made)
    assert made.text not in repr(desk.sessions._live), "only its digest is kept"
