"""The description tells the truth: requests made up from it are answered as it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hushgrid.web.http.server import Server
from hushgrid.web.tokens import make_token
from tests.curator.worlds import TOKEN
from tests.web.http.credentials import KEY
from tests.web.http.faces import Face
from tests.web.http.guarded import NOW, WHO, Guarded
from tests.web.http.ways import ways

EXAMPLES = int(os.environ.get("HUSHGRID_EXAMPLES", "3"))  # requests of each kind; 25 in make soak
APP = Face().app
TABLE = ways(APP)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
FINITE = [way for way in TABLE if way.path != "/v1/stream"]  # that one has tests of its own
CHECKS: list[Any] = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    made = Guarded(Path(tmp_path_factory.mktemp("openapi")))
    server = Server(made.app, "127.0.0.1", 0)
    server.start()
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    made.clients.close()


def test_the_service_describes_itself(url: str) -> None:
    answer = httpx.get(f"{url}/v1/openapi.json")
    assert answer.json() == APP.openapi()
    assert set(answer.json()["paths"]) == {way.path for way in TABLE}


def test_times_are_described_as_times() -> None:
    """Generated clients then have them as instants, not as texts."""
    found = APP.openapi()
    named = ("start", "end", "valid_from", "valid_to", "next")
    times = [
        each
        for schema in found["components"]["schemas"].values()
        for name, one in schema.get("properties", {}).items()
        if name in named
        for each in one.get("anyOf", [one])
        if each.get("type") == "string"
    ]
    assert len(times) > 10
    assert all(one.get("format") == "date-time" for one in times)
    for path in ("/v1/prices", "/v1/evcc", "/v1/octopus"):
        asked = {one["name"]: one["schema"] for one in found["paths"][path]["get"]["parameters"]}
        for name in ("from", "to"):
            assert asked[name]["anyOf"][0]["format"] == "date-time"


@pytest.mark.parametrize("way", TABLE, ids=lambda way: f"{way.method} {way.path}")
def test_scripts_of_other_sites_read_what_is_public_and_no_more(way: Any, url: str) -> None:
    public = way.method == "GET" and not way.scopes and not way.session
    public = public and way.path.startswith("/v1/")
    asks = {"Origin": "https://site.example", "Access-Control-Request-Method": way.method}
    may = httpx.options(f"{url}{way.path}", headers=asks)
    assert (may.headers.get("access-control-allow-origin") == "*") == public
    assert (may.status_code == 204) == public
    if public:
        assert may.headers["access-control-allow-methods"] == "GET, HEAD"
    plain = {} if way.path != "/v1/prices" else {"zone": "none"}  # an error, too
    with httpx.stream(way.method, f"{url}{way.path}", params=plain) as answer:
        allowed = answer.headers.get("access-control-allow-origin")
    assert (allowed == "*") == public, "whatever site asks: a proxy keeps one answer"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("way", FINITE, ids=lambda way: f"{way.method} {way.path}")
@pytest.mark.sampled
def test_what_is_made_up_from_the_description_is_answered_as_it_says(way: Any, url: str) -> None:
    operation = SCHEMA[way.path][way.method]
    modes = [schemathesis.GenerationMode.POSITIVE]
    if {"parameters", "requestBody"} & set(operation.definition.raw):
        modes.append(schemathesis.GenerationMode.NEGATIVE)
    for mode in modes:
        made = operation.as_strategy(generation_mode=mode)
        for token in (None, TOKEN, *map(token_of, way.scopes[:1])):
            check(made, url, None if token is None else {"Authorization": f"Bearer {token}"})


def token_of(scope: str) -> str:
    return make_token(KEY, str(WHO[scope]), [scope], NOW + 60, b"n")


def check(made: Any, url: str, headers: dict[str, str] | None) -> None:
    """Requests, answered as described."""

    @given(case=made)
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    def answered(case: Any) -> None:
        answer = case.call(base_url=url, headers=headers)
        assert answer.status_code != 500
        case.validate_response(answer, checks=CHECKS)

    answered()
