"""The token endpoint: form and HTTP Basic, RFC 6749's errors, slow for those who guess."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.web.openadr.judge import judged
from tests.web.openadr.setup import CLIENTS, SECRET, World, world

FORM = {"grant_type": "client_credentials", "client_id": "ven-1", "client_secret": SECRET}


def asked(vtn: World, form: Any, **rest: Any) -> httpx.Response:
    answer = vtn.http.post("/auth/token", data=form, **rest)
    judged(answer, "/auth/token")
    assert answer.headers["cache-control"] == "no-store"
    assert SECRET not in answer.text
    return answer


def basic(name: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


def test_where_tokens_are(vtn: World) -> None:
    found = vtn.get("/auth/server").json()
    assert found == {"tokenURL": f"{vtn.url}/auth/token"}


def test_a_service_behind_a_proxy_says_how_it_is_known(tmp_path: Any) -> None:
    with world(tmp_path, clients={}, url="https://prices.example/") as vtn:
        assert vtn.get("/auth/server").json() == {
            "tokenURL": "https://prices.example/openadr3/3.1.0/auth/token"
        }


def test_form_and_basic_give_tokens_that_work(vtn: World) -> None:
    plain = {"grant_type": "client_credentials"}
    for form, headers in (
        (FORM, {}), (plain, basic("ven-1", SECRET)), (FORM, basic("ven-1", SECRET)),
        (plain | {"client_id": "ven-1"}, basic("ven-1", SECRET)),
    ):  # fmt: skip
        answer = asked(vtn, form, headers=headers)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["token_type"] == "Bearer"
        assert body["expires_in"] == 3600
        assert set(body["scope"].split()) == set(CLIENTS["ven-1"])
        sent = {"Authorization": f"Bearer {body['access_token']}"}
        assert vtn.get("/vens", headers=sent).status_code == 200


def test_the_scope_that_was_asked_for_comes_back(vtn: World) -> None:
    for scope in ("write_vens read_targets", "read_ven_objects"):
        body = asked(vtn, FORM | {"scope": scope}).json()
        assert body["scope"] == scope
    sent = {"Authorization": f"Bearer {body['access_token']}"}
    assert vtn.get("/vens", headers=sent).status_code == 200
    assert vtn.post("/vens", {}, headers=sent).status_code == 403, "not more than was asked for"


@pytest.mark.parametrize(
    ("form", "status", "word"),
    [
        ({}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        (FORM | {"grant_type": "authorization_code"}, 400, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        (FORM | {"client_secret": "wrong"}, 401, "invalid_client"),
        (FORM | {"client_id": "nobody"}, 401, "invalid_client"),
        (FORM | {"client_id": "'; DROP TABLE clients; --"}, 401, "invalid_client"),
        (FORM | {"scope": "read_all"}, 400, "invalid_scope"),
        (FORM | {"scope": "no_such_scope"}, 400, "invalid_scope"),
        (FORM | {"client_id": ["ven-1", "ven-1"]}, 400, "invalid_request"),
        (FORM | {"scope": "a" * 20_000}, 400, "invalid_request"),
    ],
)
@pytest.mark.sampled
def test_errors_are_those_of_the_standard(tmp_path: Any, form: Any, status: int, word: str) -> None:
    with world(tmp_path, clients={"ven-1": CLIENTS["ven-1"]}) as vtn:
        answer = asked(vtn, form)
        assert (answer.status_code, answer.json()["error"]) == (status, word)
        assert ("www-authenticate" in answer.headers) == (status == 401)


def test_what_is_no_form_is_refused(vtn: World) -> None:
    for text in (b"\xff\xfe", b"{}", b"&".join(b"a=b" for _ in range(100))):
        answer = vtn.http.post("/auth/token", content=text)
        assert answer.status_code == 400
        assert answer.json()["error"] == "invalid_request"


def test_who_guesses_is_slowed_and_told_for_how_long(tmp_path: Any) -> None:
    with world(tmp_path, clients={"ven-1": CLIENTS["ven-1"]}) as vtn:
        wrong = FORM | {"client_secret": "wrong"}
        answers = [asked(vtn, wrong) for _ in range(8)]
        assert {one.status_code for one in answers} == {401}
        assert int(answers[-1].headers["retry-after"]) >= 1
        right = asked(vtn, FORM)
        assert right.status_code == 401, "even a right guess is not told now"
