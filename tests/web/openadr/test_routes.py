"""Who may do what on which route, and what everybody is answered."""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import Any
from urllib.parse import quote

import pytest

from hushgrid.curator.clock import utc
from hushgrid.stores.clients import SCOPES
from hushgrid.stores.openadr import StoredObject, to_text
from hushgrid.web.http.middleware import REPORT
from hushgrid.web.openadr.events import event_id, event_of
from tests.web.openadr.judge import Operation, check_as, operations, standard
from tests.web.openadr.setup import (
    FIRST,
    HOSTILE,
    SECONDS,
    USAGE,
    ZONES,
    World,
    release,
    report,
    resource,
    subscription,
    ven,
    world,
)  # fmt: skip

SURROGATE = "\ud800"

# ---- the matrix

OPERATIONS = operations()


def test_the_table_is_the_standards() -> None:
    book = standard()
    if book is None:
        pytest.skip("The standard's description is not at hand.")
    theirs = {
        (method.upper(), path): operation["operationId"]
        for path, item in book["paths"].items()
        for method, operation in item.items()
        if method != "parameters" and not path.startswith("/auth")
    }
    assert {(one.method, one.path): one.name for one in OPERATIONS} == theirs
    for one in OPERATIONS:
        asked = book["paths"][one.path][one.method.lower()].get("parameters", ())
        assert one.query == {each["name"] for each in asked}, one.name


BODIES: dict[str, Any] = {
    "vens": ven(), "resources": resource("x"),
    "subscriptions": subscription(), "reports": report(),
}  # fmt: skip
# the standard's scope of each operation; read_bl, which it uses undeclared, is read_all here
WANTED = {
    "GET programs": "read_targets", "GET events": "read_targets", "GET notifiers": "read_all",
    "GET reports": "read_ven_objects", "GET subscriptions": "read_ven_objects",
    "GET vens": "read_ven_objects", "GET resources": "read_ven_objects",
    "reports": "write_reports", "subscriptions": "write_subscriptions", "vens": "write_vens",
    "resources": "write_vens",
}  # fmt: skip


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No anonymous readers; one client for each scope, and one with none of OpenADR's."""
    clients = {f"only-{scope}": (scope,) for scope in SCOPES}
    with world(tmp_path_factory.mktemp("closed"), clients=clients, anonymous=False) as made:
        yield made


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
@pytest.mark.sampled
def test_every_route_wants_one_of_its_scopes(closed: World, one: Operation) -> None:
    event = event_id(release("elm-street", FIRST - 1)) if one.closed else "none"
    path = one.path.replace("{programID}", "elm-street").replace("{eventID}", event)
    path = path.replace("{", "").replace("}", "")
    body = BODIES[one.path.split("/")[1]] if one.body else None
    answer = closed.ask(one.method, path, json=body)
    assert answer.status_code == (403 if one.closed and one.method == "POST" else 401)
    assert one.closed or answer.headers["www-authenticate"] == "Bearer"
    for scope in SCOPES:
        answer = closed.ask(one.method, path, f"only-{scope}", json=body)
        may = not one.closed and scope in one.scopes
        assert (answer.status_code != 403) == may, (one.name, scope, answer.text)
    if not one.closed:
        first = one.path.split("/")[1]
        wanted = WANTED.get(f"{one.method} {first}") or WANTED[first]
        assert wanted in one.scopes, "the standard's own scope is enough"


def test_anonymous_readers_see_prices_and_nothing_else(vtn: World) -> None:
    for one in OPERATIONS:
        path = one.path.replace("{programID}", "elm-street").replace("{eventID}", "none")
        path = path.replace("{", "").replace("}", "")
        if one.closed:
            continue
        body = BODIES[one.path.split("/")[1]] if one.body else None
        status = vtn.ask(one.method, path, json=body).status_code
        assert (status != 401) == one.public, one.name
    assert {one.path.split("/")[1] for one in OPERATIONS if one.public} == {
        "programs", "events", "notifiers",
    }  # fmt: skip


def test_a_bad_token_is_told_even_where_none_is_needed(vtn: World) -> None:
    for value in ("Bearer nonsense", "Bearer", "bearer a.b", "Bearer é".encode().decode("latin1")):
        answer = vtn.get("/programs", headers={"Authorization": value.encode("latin1")})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_expires(vtn: World) -> None:
    kept = vtn.auth("ven-1", "read_ven_objects")
    assert vtn.get("/vens", headers=kept).status_code == 200
    vtn.clock.wall += 3601
    try:
        answer = vtn.get("/vens", headers=kept)
    finally:
        vtn.clock.wall -= 3601
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]


@pytest.mark.parametrize("client", [None, "business", "operator"])
def test_programs_and_events_are_the_curators_alone(vtn: World, client: str | None) -> None:
    before = vtn.get("/programs").content, vtn.get("/events").content
    event = vtn.get("/events").json()[0]
    one = f"/events/{event['id']}"
    for method, path in (
        ("POST", "/programs"), ("PUT", "/programs/elm-street"), ("DELETE", "/programs/elm-street"),
        ("POST", "/events"), ("PUT", one), ("DELETE", one),
    ):  # fmt: skip
        assert vtn.ask(method, path, client, json=event).status_code == 403
    assert (vtn.get("/programs").content, vtn.get("/events").content) == before


# ---- programs and events


def test_programs_are_the_zones(vtn: World) -> None:
    programs = vtn.get("/programs").json()
    names = [zone.id for zone in ZONES]
    assert [one["id"] for one in programs] == [*names, *(f"{name}-forecast" for name in names)]
    assert vtn.get("/programs/oak-lane").json() == programs[1]
    assert vtn.get("/programs/other").status_code == 404
    assert vtn.get("/programs?limit=1&skip=1").json() == programs[1:2]
    assert vtn.get("/programs?targets=group-1&targets=b").json() == programs, "none has targets"


def test_events_are_the_releases_newest_first(vtn: World) -> None:
    events = vtn.get("/events?programID=elm-street").json()
    known = vtn.history.last("elm-street", 99)
    assert events == [event_of(ZONES[0], one) for one in reversed(known)]
    both = vtn.get("/events").json()
    starts = [one["intervalPeriod"]["start"] for one in both[:6]]
    assert starts == sorted(starts, reverse=True)
    assert {one["programID"] for one in both[:6]} == {"elm-street", "oak-lane"}
    assert [one["id"] for one in both[6:]] == ["elm-street-forecast", "oak-lane-forecast"]
    pages = [vtn.get(f"/events?skip={i}&limit=2").json() for i in (0, 2, 4, 6, 8)]
    assert [one for page in pages for one in page] == both
    assert vtn.get("/events?limit=0").json() == []
    for one in both:
        assert vtn.get(f"/events/{one['id']}").json() == one
    assert vtn.get("/events?programID=other").json() == []
    later = both[0]["id"].replace("T", "X"), both[0]["id"][:-1], both[0]["id"] + "1", "é", "a%00"
    for wrong in later:
        assert vtn.get(f"/events/{wrong}").status_code == 404


def test_active_is_what_holds_now(vtn: World) -> None:
    # the clock stands in step FIRST: the price of step FIRST - 2 applies, that of FIRST - 3 is
    # over, that of FIRST - 1 is the next one
    active = vtn.get("/events?active=true&programID=elm-street").json()
    assert [one["id"] for one in active] == [event_id(release("elm-street", FIRST - 2))]
    both = vtn.get("/events?active=true").json()
    assert {one["programID"] for one in both} == {"elm-street", "oak-lane"}
    assert len(both) == 2
    assert len(vtn.get("/events?active=false&programID=elm-street").json()) == 3


def test_of_several_prices_for_one_interval_the_newest_comes_first(tmp_path: Any) -> None:
    with world(tmp_path) as made:
        applies = (FIRST + 6) * SECONDS
        for t in range(FIRST, FIRST + 5):
            made.history.publish(ZONES[0], release("elm-street", t, applies_start=applies))
        events = made.get("/events?programID=elm-street&limit=5").json()
        assert len({one["id"] for one in events}) == 5
        assert {one["intervalPeriod"]["start"] for one in events} == {
            events[0]["intervalPeriod"]["start"]
        }
        best = min(events, key=lambda one: one["priority"])
        assert best["id"] == event_id(release("elm-street", FIRST + 4, applies_start=applies))
        assert best == events[0]
        assert len({one["priority"] for one in events}) == 5


@pytest.mark.parametrize(
    "query",
    ["limit=51", "limit=-1", "limit=x", "skip=-1", "skip=2147483648", "skip=1.5", "active=maybe",
     "programID=a/b", "programID=", "limit=1&limit=2", "targets=", "skip=１", "limit="],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_refused(vtn: World, query: str) -> None:
    assert vtn.get(f"/events?{query}").status_code == 400


def test_parameters_that_are_not_known_are_ignored(vtn: World) -> None:
    plain = vtn.get("/events").content
    odd = "dateStart=2026-01-01T00:00:00Z&targetType=GROUP&targetValues=a&clientName=x&venName=y"
    assert vtn.get(f"/events?{odd}").content == plain


def test_the_same_is_answered_byte_for_byte(vtn: World) -> None:
    for path in ("/programs", "/events", "/notifiers", "/openapi.json", "/events?limit=1"):
        first = vtn.http.get(path)
        vtn.clock.wall += 1
        assert vtn.http.get(path).content == first.content


# ---- vens, resources, subscriptions, reports


def made(vtn: World, path: str, body: Any, client: str) -> dict[str, Any]:
    answer = vtn.post(path, body, client)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_ven_keeps_its_objects_and_nobody_else_sees_them(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        mine = made(vtn, "/vens", ven("VEN-1", attributes=None), "ven-1")
        assert mine["clientID"] == "ven-1"
        assert mine["objectType"] == "VEN"
        thing = made(vtn, "/resources", resource(mine["id"]), "ven-1")
        hook = subscription("http://192.0.2.1/h", programID="elm-street")
        hook["objectOperations"][0]["bearerToken"] = "a-bearer"
        heard = made(vtn, "/subscriptions", hook, "ven-1")
        used = made(vtn, "/reports", report(), "ven-1")
        assert used["programID"] == "elm-street", "named by its event"
        places = {
            f"/vens/{mine['id']}": mine, f"/resources/{thing['id']}": thing,
            f"/subscriptions/{heard['id']}": heard, f"/reports/{used['id']}": used,
        }  # fmt: skip
        for path, one in places.items():
            above = path.rpartition("/")[0]
            assert vtn.get(path, "ven-1").headers["cache-control"] == "no-store"
            assert vtn.get(path, "ven-1").json() == one
            assert vtn.get(above, "ven-1").json() == [one]
            assert vtn.get(path, "ven-2").status_code == 404
            assert vtn.get(above, "ven-2").json() == []
            assert vtn.delete(path, "ven-2").status_code == 404
            assert vtn.put(path, one, "ven-2").status_code in (400, 404)
            assert vtn.get(path, "meters").status_code == 403
            other = vtn.get(path, "business")
            if above == "/reports":
                assert other.status_code == 404, "raw usage is for its owner and operators"
                assert vtn.get(above, "business").json() == []
            else:
                assert other.status_code == 200
                assert "a-bearer" not in other.text
            assert vtn.get(path, "operator").status_code == 200
        gone = vtn.delete(f"/vens/{mine['id']}", "ven-1")
        assert gone.json() == mine
        assert vtn.get("/resources", "ven-1").json() == [], "a ven takes its resources along"
        assert vtn.get(f"/vens/{mine['id']}", "ven-1").status_code == 404


def test_what_is_changed_keeps_its_id_and_first_time(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        first = made(vtn, "/vens", ven(), "ven-1")
        vtn.clock.wall += 60
        second = vtn.put(f"/vens/{first['id']}", ven("VEN-1b", x=[None]), "ven-1").json()
        assert second["id"] == first["id"]
        assert second["createdDateTime"] == first["createdDateTime"]
        assert second["modificationDateTime"] > first["modificationDateTime"]
        assert second["venName"] == "VEN-1b"
        assert second["x"] == [None], "what is not known is kept"
        assert vtn.get("/vens?venName=VEN-1b", "ven-1").json() == [second]
        assert vtn.get("/vens?venName=VEN-1", "ven-1").json() == []


def test_what_the_server_says_cannot_be_said_by_a_client(vtn: World) -> None:
    lies = {"id": "mine", "createdDateTime": "x", "clientID": "ven-2", "targets": ["group-1"]}
    one = made(vtn, "/vens", ven("liar", **lies), "ven-1")
    assert one["id"] != "mine"
    assert one["clientID"] == "ven-1"
    assert one["targets"] is None
    vtn.delete(f"/vens/{one['id']}", "ven-1")


def test_business_logic_sets_targets_and_a_ven_cannot(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        asked = {"objectType": "BL_VEN_REQUEST", "clientID": "ven-1", "venName": "VEN-1"}
        assert vtn.post("/vens", asked, "ven-1").status_code == 403
        one = made(vtn, "/vens", asked | {"targets": ["group-1"]}, "business")
        assert one["clientID"] == "ven-1"
        path = f"/vens/{one['id']}"
        assert vtn.get(path, "ven-1").json() == one
        after = vtn.put(path, ven("VEN-1", targets=["group-2"]), "ven-1").json()
        assert after["targets"] == ["group-1"]
        assert vtn.get("/vens?targets=group-1&targets=z", "business").json() == [after]
        assert vtn.get("/vens?targets=group-2", "business").json() == []
        wanted = {"objectType": "BL_RESOURCE_REQUEST", "clientID": "ven-1", "venID": one["id"]}
        thing = made(vtn, "/resources", wanted | {"resourceName": "r"}, "business")
        assert vtn.get(f"/resources/{thing['id']}", "ven-1").status_code == 200
        assert vtn.post("/resources", wanted | {"resourceName": "s"}, "ven-1").status_code == 403
        assert vtn.post("/resources", resource(one["id"]), "ven-2").status_code == 404


def test_a_client_of_a_named_ven_is_that_ven(vtn: World) -> None:
    assert vtn.post("/vens", ven("VEN-9"), "ven-2").status_code == 403
    one = made(vtn, "/vens", ven("VEN-2"), "ven-2")
    assert vtn.put(f"/vens/{one['id']}", ven("VEN-9"), "ven-2").status_code == 403
    vtn.delete(f"/vens/{one['id']}", "ven-2")


def test_names_are_taken_once(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        one, two = (
            made(vtn, "/vens", ven(name), client)
            for name, client in (("a", "ven-1"), ("b", "business"))
        )
        assert vtn.post("/vens", ven("a"), "operator").status_code == 409
        assert vtn.put(f"/vens/{two['id']}", ven("a"), "business").status_code == 409
        made(vtn, "/resources", resource(one["id"]), "ven-1")
        made(vtn, "/resources", resource(two["id"]), "business")
        assert vtn.post("/resources", resource(one["id"]), "ven-1").status_code == 409


def test_lists_are_narrowed_and_paged(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        everything = [
            made(vtn, "/subscriptions", subscription(clientName=f"c{i % 2}"), "ven-1")
            for i in range(5)
        ]
        assert vtn.get("/subscriptions?skip=1&limit=3", "ven-1").json() == everything[1:4]
        found = vtn.get("/subscriptions?clientName=c1&limit=50", "ven-1").json()
        assert found == everything[1::2]
        assert vtn.get("/subscriptions?objects=PROGRAM", "ven-1").json() == []
        found = vtn.get("/subscriptions?objects=EVENT&objects=VEN&skip=4", "ven-1").json()
        assert found == everything[4:]
        assert vtn.get("/subscriptions?objects=NONE", "ven-1").status_code == 400
        for name in ("programID=elm-street", "eventID=e", "clientName=x"):
            assert vtn.get(f"/reports?{name}", "ven-1").json() == []
        used = made(vtn, "/reports", report(), "ven-1")
        assert vtn.get("/reports?programID=elm-street", "ven-1").json() == [used]
        assert vtn.get("/reports?eventID=" + used["eventID"], "ven-1").json() == [used]


def test_a_client_cannot_keep_without_end(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("hushgrid.stores.openadr.MOST", 2)
    with world(tmp_path) as vtn:
        own, other = made(vtn, "/vens", ven("a"), "ven-1"), made(vtn, "/vens", ven(), "business")
        for name in "ab":
            made(vtn, "/resources", resource(own["id"], name), "ven-1")
        assert vtn.post("/resources", resource(own["id"], "c"), "ven-1").status_code == 403
        made(vtn, "/resources", resource(other["id"], "c"), "business")


def test_a_client_has_one_ven(tmp_path: Any) -> None:
    """As others' servers have it: 409 for a second one, also where business logic gives it."""
    given = {"objectType": "BL_VEN_REQUEST", "clientID": "ven-1", "venName": "b"}
    with world(tmp_path) as vtn:
        one = made(vtn, "/vens", ven("a"), "ven-1")
        refused = vtn.post("/vens", ven("b"), "ven-1")
        assert refused.status_code == 409
        assert "has a ven already" in refused.json()["detail"]
        assert vtn.post("/vens", given, "business").status_code == 409
        assert vtn.put(f"/vens/{one['id']}", ven("b"), "ven-1").status_code == 200
        two = made(vtn, "/vens", ven("c"), "business")
        assert vtn.put(f"/vens/{two['id']}", given, "business").status_code == 409
        vtn.delete(f"/vens/{one['id']}", "ven-1")
        assert vtn.put(f"/vens/{two['id']}", given, "business").status_code == 200


def test_what_is_not_there_cannot_be_written(vtn: World) -> None:
    for path in ("/programs/none", "/events/none", "/programs/none-forecast"):
        assert vtn.put(path, {}, "business").status_code == 404
        assert vtn.delete(path, "business").status_code == 404
    for path in ("/programs/elm-street", "/events/elm-street-forecast"):
        assert vtn.put(path, {}, "business").status_code == 403
        assert vtn.delete(path, "business").status_code == 403
    for path, body in (("vens", ven()), ("subscriptions", subscription()), ("reports", report())):
        assert vtn.put(f"/{path}/none", body, "ven-1").status_code == 404
        assert vtn.delete(f"/{path}/none", "ven-1").status_code == 404


def test_a_report_is_about_an_event_that_there_is(vtn: World) -> None:
    refused = vtn.post("/reports", report("elm-street-20250615T153000Z-1"), "ven-1")
    assert refused.status_code == 409
    assert "give one of GET /events" in refused.json()["detail"]
    one = made(vtn, "/reports", report("elm-street-forecast"), "ven-1")
    assert one["programID"] == "elm-street-forecast"
    vtn.delete(f"/reports/{one['id']}", "ven-1")


def test_the_verbs_of_before_are_echoed_and_taken_for_operations(vtn: World) -> None:
    """The standard's own description has no such verbs: these answers are not judged by it."""
    body, auth = subscription(), vtn.auth("ven-1")
    verbs = body["objectOperations"][0]["operations"] = ["POST", "PUT", "DELETE", "GET", "CREATE"]
    one = vtn.http.post("/subscriptions", json=body, headers=auth).json()
    path = f"/subscriptions/{one['id']}"
    changed = vtn.http.put(path, json=body, headers=auth).json()
    for found in (one, changed, vtn.http.get(path, headers=auth).json()):
        assert found["objectOperations"][0]["operations"] == verbs
    (callback,) = vtn.vtn.callbacks()
    assert callback.operations == {"CREATE", "UPDATE", "DELETE", "READ"}
    removed = vtn.http.delete(path, headers=auth)
    assert removed.json()["objectOperations"][0]["operations"] == verbs


def test_a_subscription_to_nothing_is_refused(vtn: World) -> None:
    body = subscription()
    body["objectOperations"][0]["operations"] = ["PATCH"]
    assert vtn.post("/subscriptions", body, "ven-1").status_code == 400
    body["objectOperations"] = [1, None, {"operations": 1}]
    assert vtn.post("/subscriptions", body, "ven-1").status_code == 400
    body["objectOperations"] = []
    refused = vtn.post("/subscriptions", body, "ven-1")
    assert refused.status_code == 400
    assert "objectOperations cannot be used" in refused.json()["detail"]
    assert vtn.get("/subscriptions", "ven-1").json() == []


def test_a_report_has_a_name_as_long_as_any_other(vtn: World) -> None:
    for length, status in ((128, 201), (129, 400)):
        answer = vtn.post("/reports", report(reportName="n" * length), "ven-1")
        assert answer.status_code == status
    assert "reportName cannot be used" in answer.json()["detail"]
    (one,) = vtn.get("/reports", "ven-1").json()
    vtn.delete(f"/reports/{one['id']}", "ven-1")


def test_scripts_of_other_sites_read_public_objects_alone(vtn: World, tmp_path: Any) -> None:
    event = vtn.get("/events").json()[0]["id"]
    asks = {"Origin": "https://site.example", "Access-Control-Request-Method": "GET"}
    for path in ("/programs", "/programs/elm-street", "/events", f"/events/{event}", "/notifiers"):
        assert vtn.get(path).headers["access-control-allow-origin"] == "*"
        assert vtn.http.options(path, headers=asks).status_code == 204
    for path in ("/vens", "/reports", "/subscriptions", "/resources"):
        assert "access-control-allow-origin" not in vtn.get(path, "ven-1").headers
        assert vtn.http.options(path, headers=asks).status_code == 405
    assert "access-control-allow-origin" not in vtn.post("/programs", {}).headers
    with world(tmp_path, anonymous=False) as closed:
        assert "access-control-allow-origin" not in closed.get("/events").headers


def test_a_resource_without_a_ven_is_of_the_senders(vtn: World) -> None:
    sent = {"objectType": "VEN_RESOURCE_REQUEST", "resourceName": "heat pump"}
    refused = vtn.post("/resources", sent, "ven-1")
    assert refused.status_code == 404
    assert "register one first" in refused.json()["detail"]
    mine = made(vtn, "/vens", ven("mine"), "ven-1")
    made(vtn, "/vens", ven("VEN-2"), "ven-2")
    one = made(vtn, "/resources", sent, "ven-1")
    assert (one["venID"], one["clientID"]) == (mine["id"], "ven-1")
    path = f"/resources/{one['id']}"
    changed = vtn.put(path, sent | {"resourceName": "boiler"}, "ven-1").json()
    assert (changed["venID"], changed["resourceName"]) == (mine["id"], "boiler")
    by_other = vtn.put(path, sent, "operator").json()
    assert (by_other["venID"], by_other["clientID"]) == (mine["id"], "ven-1"), "its owner's"
    business = {"objectType": "BL_RESOURCE_REQUEST", "clientID": "ven-1", "resourceName": "b"}
    assert vtn.post("/resources", business, "business").status_code == 400
    for client in ("ven-1", "ven-2"):
        (own,) = vtn.get("/vens", client).json()
        vtn.delete(f"/vens/{own['id']}", client)


def test_the_forecast_is_one_event_of_a_program_that_binds_no_one(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        program = vtn.get("/programs/elm-street-forecast").json()
        assert {"type": "BINDING_EVENTS", "values": [False]} in program["attributes"]
        (event,) = vtn.get("/events?programID=elm-street-forecast").json()
        check_as("event", event)
        newest = vtn.history.last("elm-street", 1)[0]
        expected = vtn.history.expected("elm-street", vtn.clock.now(), 60.0)[0].guesses
        values = [one["payloads"][0]["values"][0] for one in event["intervals"]]
        assert values == [one.rate for one in expected]
        assert len(values) >= 94
        start = utc(newest.applies_start + SECONDS)
        assert event["intervalPeriod"] == {"start": start, "duration": "PT15M"}
        assert vtn.get("/events?programID=elm-street-forecast&active=true").json() == []
        vtn.history.publish(ZONES[0], release("elm-street", FIRST, 0.4))
        (after,) = vtn.get("/events?programID=elm-street-forecast").json()
        assert (after["id"], after["createdDateTime"]) == (event["id"], event["createdDateTime"])
        assert after["modificationDateTime"] > event["modificationDateTime"]
        assert after["intervalPeriod"]["start"] == utc(newest.applies_start + 2 * SECONDS)
        vtn.clock.wall += 3600  # an outage: it holds now
        (active,) = vtn.get("/events?active=true&programID=elm-street-forecast").json()
        assert active["intervalPeriod"]["start"] == utc(int(vtn.clock.now()) // 900 * 900)


def test_a_client_that_pages_through_all_events_ends(tmp_path: Any) -> None:
    with world(tmp_path, fill=2000, event_age=86_400) as vtn:
        found: list[Any] = []
        while page := vtn.get(f"/events?programID=elm-street&skip={len(found)}").json():
            found += page
        assert len(found) == 96 + 2  # of a day, with the one in force and the next
        old = vtn.history.last("elm-street", 2000)[0]
        assert vtn.get(f"/events/{event_id(old)}").status_code == 200


WRONG: list[Any] = [
    None, [], "x", 1, {}, {"clientName": "a"}, subscription("ftp://a/b"), subscription("http://"),
    subscription("http://a b/"), subscription("http://u:p@a/"), subscription("http://é.example/"),
    subscription(clientName=""), subscription(clientName="a" * 129), subscription(clientName=1),
    subscription(programID="a b"), subscription(programID="a\n"), subscription(targets="x"),
    subscription(targets=[1]), subscription(objectOperations=[{}]),
    subscription(objectOperations={}), subscription(objectOperations=[None]),
]  # fmt: skip


@pytest.mark.parametrize("body", WRONG, ids=range(len(WRONG)))
def test_bodies_that_do_not_fit_are_refused(vtn: World, body: Any) -> None:
    assert vtn.post("/subscriptions", body, "ven-1").status_code == 400


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b"[" * 100_000, b"9" * 5000, b"\0",
     b'{"a":' * 40 + b"1" + b"}" * 40, b"{}" * 2],
)  # fmt: skip
def test_what_is_not_json_is_refused(vtn: World, text: bytes) -> None:
    assert vtn.ask("POST", "/reports", "ven-1", content=text).status_code == 400


def test_nulls_mean_absent(vtn: World) -> None:
    body = report(reportName=None, payloadDescriptors=None, programID=None)
    body["resources"][0]["intervalPeriod"] = None
    body["resources"][0]["intervals"][0]["intervalPeriod"] = {"start": None, "duration": "PT5M"}
    one = made(vtn, "/reports", body, "ven-1")
    assert "reportName" not in one
    assert "intervalPeriod" not in one["resources"][0]
    assert one["resources"][0]["intervals"][0]["intervalPeriod"] == {"duration": "PT5M"}
    made(vtn, "/subscriptions", subscription(programID=None, targets=None), "ven-1")


def test_nested_members_are_kept_to_a_depth(vtn: World) -> None:
    def nested(depth: int) -> Any:
        return json.loads('{"a":' * depth + "1" + "}" * depth)

    one = made(vtn, "/reports", report(other=nested(150)), "ven-1")
    assert vtn.get(f"/reports/{one['id']}", "ven-1").json()["other"] == nested(150)
    assert vtn.post("/reports", report(other=nested(250)), "ven-1").status_code == 400
    vtn.delete(f"/reports/{one['id']}", "ven-1")


def test_numbers_are_those_of_json(vtn: World) -> None:
    descriptor = {"objectType": "REPORT_PAYLOAD_DESCRIPTOR", "payloadType": "USAGE"}
    for value, status in ((3, 201), (3.0, 201), ("3", 400), (True, 400), (3.5, 400), (101, 400)):
        body = report(payloadDescriptors=[descriptor | {"confidence": value}])
        answer = vtn.post("/reports", body, "ven-1")
        assert answer.status_code == status, value
        if status == 201:
            vtn.delete(f"/reports/{answer.json()['id']}", "ven-1")


@pytest.mark.parametrize(
    ("start", "status"),
    [("2026-01-31T12:00:00Z", 201), ("2026-01-31t12:00:00.123+01:30", 201),
     ("2026-02-30T12:00:00Z", 400), ("2026-01-31T12:00:00", 400), ("2026-01-31 12:00:00Z", 400),
     ("1769860800", 400), (1769860800, 400), ("2026-01-31T24:00:00Z", 400)],
)  # fmt: skip
def test_times_are_those_of_rfc_3339(vtn: World, start: Any, status: int) -> None:
    body = report()
    body["resources"][0]["intervalPeriod"] = {"start": start}
    answer = vtn.post("/reports", body, "ven-1")
    assert answer.status_code == status
    if status == 201:
        assert answer.json()["resources"][0]["intervalPeriod"] == {"start": start}
        vtn.delete(f"/reports/{answer.json()['id']}", "ven-1")


def test_large_bodies_are_refused(vtn: World) -> None:
    body = json.dumps(report(reportName="a" * REPORT[0])).encode()
    assert vtn.ask("POST", "/reports", "ven-1", content=body).status_code == 413
    assert vtn.ask("POST", "/reports", "ven-1", content=iter([body])).status_code == 413
    packed = vtn.ask(
        "POST", "/reports", "ven-1", content=b"x", headers={"Content-Encoding": "gzip"}
    )
    assert packed.status_code == 400


@pytest.mark.soak
def test_hostile_text_is_text_in_every_field(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        for i, text in enumerate(one for one in HOSTILE if one != SURROGATE):
            values = [{"type": text, "values": [text, {"x": 1, "y": 2}, True, 0.5]}]
            one = made(vtn, "/vens", ven(text, attributes=values, other={text: text}), "ven-1")
            assert one["venName"] == text
            body = resource(one["id"], text, attributes=values)
            thing = made(vtn, "/resources", body, "ven-1")
            hook = made(
                vtn, "/subscriptions", subscription(clientName=text, targets=[text]), "ven-1"
            )
            body = report(clientName=text, reportName=text)
            body["resources"][0]["resourceName"] = text
            body["payloadDescriptors"] = [
                {"objectType": "REPORT_PAYLOAD_DESCRIPTOR", "payloadType": text, "units": text,
                 "readingType": text, "accuracy": None, "confidence": 3}
            ]  # fmt: skip
            used = made(vtn, "/reports", body, "ven-1")
            for path, name, found in (
                ("/vens", "venName", one), ("/resources", "resourceName", thing),
                ("/subscriptions", "clientName", hook), ("/reports", "clientName", used),
            ):  # fmt: skip
                assert vtn.get(path, "ven-1", params={name: text}).json() == [found]
                assert vtn.get(f"{path}/{found['id']}", "ven-1").json() == found
                many = 1 if path in ("/vens", "/resources") else i + 1
                assert len(vtn.get(path, "ven-1").json()) == many, "nothing else went"
            for name in ("programID", "eventID", "venID", "objects", "targets", "skip", "active"):
                for path in ("/reports", "/resources", "/subscriptions", "/events", "/vens"):
                    assert vtn.get(path, "ven-1", params={name: text}).status_code in (200, 400)
            for path in ("/vens", "/programs", "/events", "/reports"):
                place = f"{path}/{quote(text, safe='')}"
                assert vtn.get(place, "ven-1").status_code == 404
            vtn.delete(f"/vens/{one['id']}", "ven-1")


def test_a_surrogate_is_no_text_but_one_stored_before_is_read(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        assert vtn.post("/vens", ven(SURROGATE), "ven-1").status_code == 400
        assert vtn.post("/vens", ven(other={SURROGATE: 1}), "ven-1").status_code == 400
        vtn.store.add(StoredObject("VEN", "a", "ven-1", 0, 0, to_text({"venName": SURROGATE})))
        assert vtn.get("/vens", "ven-1").json() == [vtn.get("/vens/a", "ven-1").json()]
        assert vtn.get("/vens/a", "ven-1").json()["venName"] == SURROGATE


def test_reports_reach_no_log(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    digits = str(int(USAGE))
    with caplog.at_level(logging.DEBUG), world(tmp_path) as vtn:
        one = made(vtn, "/reports", report(), "ven-1")
        broken = report()
        broken["resources"][0]["intervals"] = [{"id": str(USAGE), "payloads": USAGE}]
        refused = vtn.post("/reports", broken, "ven-1")
        assert refused.status_code == 400
        assert digits not in refused.text
        assert "resources.0.intervals.0.id" in refused.json()["detail"]
        refused = vtn.post("/vens", {"objectType": digits, "venName": "a"}, "ven-1")
        assert refused.status_code == 400
        assert digits not in refused.text
        assert "'VEN_VEN_REQUEST'" in refused.json()["detail"]
        assert digits in vtn.get(f"/reports/{one['id']}", "ven-1").text
        for path in ("/programs", "/events", "/notifiers", "/openapi.json"):
            assert digits.encode() not in vtn.http.get(path).content
    said = " ".join(f"{r.getMessage()} {r.__dict__}" for r in caplog.records)
    assert digits not in said


def test_what_is_not_there_is_a_problem_too(vtn: World) -> None:
    for method, path, status in (
        ("GET", "/nothing", 404), ("GET", "/", 404), ("PATCH", "/vens", 405),
        ("POST", "/notifiers", 405), ("DELETE", "/programs", 405),
    ):  # fmt: skip
        answer = vtn.http.request(method, path)
        assert answer.status_code == status
        assert answer.json()["status"] == status
        assert answer.headers["content-type"] == "application/json"
    assert set(vtn.http.patch("/vens").headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_a_store_that_is_away_is_told_and_comes_back(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        made(vtn, "/vens", ven(), "ven-1")
        file = sqlite3.connect(tmp_path / "vtn.sqlite")
        file.execute("ALTER TABLE hushgrid_vtn RENAME TO away")
        answer = vtn.get("/vens", "ven-1")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
        assert vtn.get("/events").status_code == 200, "prices do not depend on it"
        file.execute("ALTER TABLE away RENAME TO hushgrid_vtn")
        file.close()
        assert len(vtn.get("/vens", "ven-1").json()) == 1


# ---- notifiers


def test_notifiers_and_topics(vtn: World) -> None:
    assert vtn.get("/notifiers").json()["MQTT"]["URIS"] == ["mqtt://127.0.0.1:1883"]
    base = "/notifiers/mqtt/topics"
    found = vtn.get(f"{base}/programs/elm-street/events").json()["topics"]
    assert found["CREATE"] == "OpenADR/3.1.0/programs/elm-street/events/create"
    assert "CREATE" not in vtn.get(f"{base}/programs/elm-street").json()["topics"]
    assert vtn.get(f"{base}/programs/other/events").status_code == 404
    assert vtn.get(f"{base}/events").json()["topics"]["CREATE"] == "OpenADR/3.1.0/events/create"
    assert vtn.get(f"{base}/programs").status_code == 200
    one = made(vtn, "/vens", ven("topical"), "ven-1")
    assert (
        vtn.get(f"{base}/vens/{one['id']}/events", "ven-1").json()["topics"]
        == (vtn.get(f"{base}/events").json()["topics"])
    )
    assert vtn.get(f"{base}/vens/{one['id']}/events", "ven-2").status_code == 404
    for path in ("reports", "vens", "subscriptions", "resources"):
        assert vtn.get(f"{base}/{path}", "business").status_code == 404, "never published"


def test_without_a_broker_there_are_no_topics(tmp_path: Any) -> None:
    with world(tmp_path) as vtn:
        assert vtn.get("/notifiers").json() == {"WEBHOOK": True}
        assert vtn.get("/notifiers/mqtt/topics/events").status_code == 404
