"""Every path with every scope: who gets in, and nobody else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.stores.clients import SCOPES
from tests.curator.worlds import TOKEN
from tests.web.http.guarded import NOW, WHO, Guarded
from tests.web.http.ways import ways

DOCS = Path(__file__).parents[3] / "docs"
BY_HAND = {  # the paths that are not for everyone, written here on their own
    "/v1/readings": {"write_readings"},
    "/v1/ledger": {"audit"},
    "/v1/operator": {"operate"},
    "/v1/operator/zone": {"operate"},
    "/v1/operator/certificate": {"operate", "audit"},
}
BY_SECRET = ("/v1/token", "/v1/session")  # ask for a secret themselves: tested with it


@pytest.fixture
def guarded(tmp_path: Path) -> Any:
    made = Guarded(tmp_path)
    yield made
    made.clients.close()


def gets_in(answer: httpx.Response) -> bool:
    """Whether the request came to the handler, whatever that said."""
    assert answer.status_code != 500
    return answer.status_code not in (401, 403)


def test_the_table_is_what_it_is_meant_to_be(tmp_path: Path) -> None:
    for metrics, operators in (("public", set()), ("operate", {"operate"})):
        (tmp_path / metrics).mkdir()
        guarded = Guarded(tmp_path / metrics, metrics=metrics)
        needed = {way.path: set(way.scopes) for way in ways(guarded.app) if way.scopes}
        assert needed == BY_HAND | ({"/metrics": operators} if operators else {})
        by_session = {way.path for way in ways(guarded.app) if way.session}
        assert by_session == {*BY_HAND, "/v1/session"} - {"/v1/readings"}
        guarded.clients.close()


@pytest.mark.parametrize("metrics", ["public", "operate"])
def test_every_path_with_every_scope(tmp_path: Path, metrics: str) -> None:
    guarded = Guarded(tmp_path, metrics=metrics)
    needed = BY_HAND | ({"/metrics": {"operate"}} if metrics == "operate" else {})
    for way in ways(guarded.app):
        if way.path in BY_SECRET:
            continue
        scopes = needed.get(way.path, set())
        nobody = guarded.status(way, None)
        assert gets_in(nobody) == (not scopes), way
        if scopes:
            assert nobody.status_code == 401
            assert nobody.headers["www-authenticate"] == "Bearer"
        for scope in SCOPES:
            answer = guarded.status(way, guarded.header(scope))
            assert gets_in(answer) == (not scopes or scope in scopes), (way, scope)
            assert gets_in(answer) or answer.status_code == 403
        static = guarded.status(way, f"Bearer {TOKEN}")
        assert gets_in(static) == (not scopes or "write_readings" in scopes), way
    guarded.clients.close()


def test_a_bad_token_opens_nothing_not_even_what_is_public(guarded: Guarded) -> None:
    scope = "operate"
    bad = [
        guarded.header(scope, expires=NOW),
        guarded.header(scope, key=b"other".ljust(32)),
        guarded.header(scope) + "x",
        "Bearer ",
        "Bearer a b",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
    ]
    for way in ways(guarded.app):
        if way.path != "/v1/token":
            for header in bad:
                assert guarded.status(way, header).status_code == 401, (way, header)
    guarded.clients.revoke(str(WHO["write_readings"]), 1)
    readings = next(way for way in ways(guarded.app) if way.path == "/v1/readings")
    assert guarded.status(readings, guarded.header("write_readings")).status_code == 401


def test_a_token_of_two_headers_is_none(guarded: Guarded) -> None:
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    assert guarded.call("POST", "/v1/readings", headers=twice).status_code == 401


def test_the_ledger_comes_line_by_line(guarded: Guarded) -> None:
    headers = {"Authorization": guarded.header("audit")}
    answer = guarded.call("GET", "/v1/ledger?zone=elm-street", headers=headers)
    assert answer.text == '{"zone":"elm-street"}\n'
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert guarded.call("GET", "/v1/ledger?zone=x", headers=headers).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONE"])
def test_other_methods_are_refused(guarded: Guarded, method: str) -> None:
    allowed: dict[str, set[str]] = {}
    for way in ways(guarded.app):
        allowed.setdefault(way.path, set()).add(way.method)
    for path, methods in allowed.items():
        if method not in methods:
            answer = guarded.call(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
            assert answer.status_code == 405, path
            assert methods <= set(answer.headers["allow"].split(", "))


def test_every_path_is_in_the_guide(guarded: Guarded) -> None:
    guide = (DOCS / "http.md").read_text()
    named = set(re.findall(r"`(?:GET|POST) (/[\w./]+)|, `(/[\w./]+)`", guide))
    assert {way.path for way in ways(guarded.app)} <= {a or b for a, b in named}
