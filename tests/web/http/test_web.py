"""The HTTP face: the same receipt for every content type, and an answer to every bad request."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid.curator import ingest as delivery
from hushgrid.curator.clock import utc
from hushgrid.curator.ingest import UNKNOWN, Ingest
from hushgrid.curator.status import Status
from hushgrid.errors import ConfigError, ServiceError
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import CountedPublisher
from hushgrid.web.http.server import Server
from tests.curator.setups import example
from tests.curator.worlds import START, TOKEN, unavailable
from tests.intake.hostile import CLAIM, HISTOGRAM, NO_ENCODING
from tests.web.http.faces import (
    AUTH,
    DIGEST,
    FORMATS,
    NDJSON,
    ROWS,
    Face,
    as_arrow,
    as_json,
    as_ndjson,
    objects,
    refused,
    shown,
)

RECEIPT = {
    "accepted": 4, "duplicate": 1, "late": 1, "clamped": 2, "unknown": 1, "malformed": 1,
    "early": 0, "damaged": 0,
}  # fmt: skip


@pytest.fixture
def face() -> Face:
    return Face()


@pytest.mark.parametrize("media", FORMATS)
def test_every_content_type_gives_the_same_receipt(face: Face, media: str) -> None:
    body = FORMATS[media](ROWS)
    answer = face.post(body, {"Content-Type": media, **AUTH})
    assert answer.status_code == 200
    found = answer.json()
    assert found.pop("warnings") == []
    assert {
        name: (each["count"], each["first"]) for name, each in found.pop("reasons").items()
    } == {
        UNKNOWN: (1, "reading 7"),
        "lasts 700 s, but the intervals of zone elm-street last 900 s: one reading must not enter"
        " two releases; send readings of 900 s or a divisor": (1, "reading 8"),
    }
    assert found == {**RECEIPT, "problems": []}
    assert face.meters.rows["elm-street", 0, START] == 120, "the first reading stays"
    again = face.post(body, {"Content-Type": media, **AUTH}).json()
    assert (again["accepted"], again["duplicate"], again["clamped"]) == (0, 5, 0)
    assert len(face.meters.rows) == 4


def test_other_tables_are_read_by_the_name_of_their_mapping() -> None:
    face = Face()
    pecan = b"dataid,local_15min,grid\nelm-street-0,2025-06-15 15:15:00+00:00,0.4\n"
    csv = {"Content-Type": "text/csv", **AUTH}
    assert face.post(pecan, csv, "?mapping=pecan").json()["accepted"] == 1
    assert face.meters.rows["elm-street", 0, START] == 100  # 0.4 kW over a quarter of an hour
    assert "mapping is 'other'" in refused(face.post(pecan, csv, "?mapping=other"), 400)
    assert "meter_id" in refused(face.post(pecan, csv), 400)


def test_a_mapping_of_the_service_file_is_used_by_its_name(tmp_path: Path) -> None:
    """The blocks of the guide, as they are written there; the description names it as well."""
    guide = (Path(__file__).parents[3] / "docs" / "meter-data.md").read_text()
    own, named, *_ = re.findall(r"```toml\n(.*?)```", guide, re.S)
    (tmp_path / "acme.toml").write_text(own)
    (tmp_path / "service.toml").write_text(f"{example(START - START % 900)}\n{named}")
    face = Face(mappings=load_deployment(tmp_path / "service.toml").mappings)
    table = "Stand\nvon heute\nZähler;Datum;Uhrzeit;Verbrauch;Richtung\n"
    table += "elm-street-0;15.06.2025;17:30;50,0;Bezug\nelm-street-0;15.06.2025;17:30;7;Abgabe\n"
    plain = {"Content-Type": "text/plain", **AUTH}
    csv = {"Content-Type": "text/csv", **AUTH}
    assert face.post(table.encode(), csv, "?mapping=acme").json()["accepted"] == 1
    assert face.meters.rows["elm-street", 0, START] == 50
    assert "text/plain" in refused(face.post(table.encode(), plain, "?mapping=acme"), 415)
    assert ", smt, acme." in refused(face.post(b"", csv, "?mapping=other"), 400)
    (taken,) = (
        one["schema"]["enum"]
        for one in face.app.openapi()["paths"]["/v1/readings"]["post"]["parameters"]
        if one["name"] == "mapping"
    )
    assert taken[-1] == "acme"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ('lcl = "acme.toml"', "mappings.lcl is built in or no name"),
        ('"a b" = "acme.toml"', "is built in or no name"),
        ("acme = 1", "mappings.acme is 1; give the path of a mapping"),
        ('acme = "none.toml"', "none.toml"),
        ('acme = "acme.toml"', "field 'colour' is unknown"),
    ],
)
def test_a_mistake_in_a_mapping_is_found_with_the_file(
    tmp_path: Path, said: str, wanted: str
) -> None:
    (tmp_path / "acme.toml").write_text('base = "lcl"\ncolour = "red"\n')
    (tmp_path / "service.toml").write_text(f"{example(1_767_571_200)}\n[mappings]\n{said}\n")
    with pytest.raises(ConfigError) as caught:
        load_deployment(tmp_path / "service.toml")
    assert wanted in str(caught.value)
    assert len(caught.value.problems) == 1


def test_exports_are_read_by_the_name_of_their_mapping(face: Face) -> None:
    """Whatever their content type; an export of one meter is given its id."""
    row = {"consumption": 0.05, "interval_start": utc(START), "interval_end": utc(START + 900)}
    page = json.dumps({"results": [row, {**row, "consumption": "much"}]})
    plain = {"Content-Type": "text/plain", **AUTH}
    found = face.post(page, plain, "?mapping=octopus_json&meter_id=elm-street-0")
    assert (found.json()["accepted"], found.json()["malformed"]) == (1, 1)
    assert face.meters.rows["elm-street", 0, START] == 50
    assert "&meter_id=ID" in refused(face.post(page, plain, "?mapping=octopus_json"), 400)
    assert "text/plain" in refused(face.post(page, plain), 415)
    packed = {**plain, "Content-Encoding": "gzip"}
    assert "compressed" in refused(face.post(page, packed, "?mapping=nem12"), 415)
    assert "mapping is '/etc/own.toml'" in refused(
        face.post(page, plain, "?mapping=/etc/own.toml"), 400
    )
    hour = {**row, "interval_start": utc(START - 900), "interval_end": utc(START + 2700)}
    hourly = face.post(
        json.dumps({"results": [hour]}), plain, "?mapping=octopus_json&meter_id=elm-street-0"
    )
    assert "lasts 3600 s, but the intervals of zone elm-street last 900 s" in refused(hourly, 422)
    assert "name their meters" in refused(face.post(b"{}", NDJSON, "?meter_id=elm-street-0"), 400)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer other"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {DIGEST}"},
        {"Authorization": "Bearer \xff\xfe".encode("latin-1")},
    ],
)
def test_nobody_sends_without_a_known_token(face: Face, headers: dict[str, Any]) -> None:
    answer = face.post(as_ndjson(ROWS), {"Content-Type": "application/x-ndjson", **headers})
    assert TOKEN not in refused(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert not face.meters.puts


def test_a_service_without_tokens_takes_nothing() -> None:
    face = Face()
    face.app = make_app(Ingest([face.zone], face.meters), face.board, face.metrics, Http())
    refused(face.post(as_ndjson(ROWS)), 401)
    refused(face.post(as_ndjson(ROWS), {"Authorization": "Bearer "}), 401)


def test_a_body_beyond_the_limit_is_refused_declared_or_not() -> None:
    face = Face(limit=1000)
    assert "1000 bytes" in refused(face.post(as_ndjson(ROWS * 9)), 413)
    assert not face.meters.puts, "a declared length is refused before anything is read"

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield as_ndjson(ROWS[:1])

    refused(face.post(pieces()), 413)
    assert face.post(as_ndjson(ROWS[:2])).status_code == 200


HOSTILE = {
    "no array": (b"[1, 2", "application/json"),
    "deep": (b"[" * 100_000, "application/json"),
    "not text": (bytes(range(128, 256)) * 10, "application/x-ndjson"),
    "prose": (b"hello\n", "application/x-ndjson"),
    "no header": (b"", "text/csv"),
    "other header": (b"a,b\n1,2\n", "text/csv"),
    "no arrow": (b"PAR1" * 10, "application/vnd.apache.arrow.stream"),
    "cut arrow": (as_arrow(ROWS)[:300], "application/vnd.apache.arrow.stream"),
    "no parquet": (b"PAR1" * 10, "application/vnd.apache.parquet"),
    "parquet histogram": (HISTOGRAM, "application/vnd.apache.parquet"),
    "parquet encoding": (NO_ENCODING, "application/vnd.apache.parquet"),
    "parquet claim": (CLAIM, "application/vnd.apache.parquet"),
    "entities": (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "application/atom+xml"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_that_is_not_of_its_type_is_one_sentence(face: Face, name: str) -> None:
    body, media = HOSTILE[name]
    said = refused(face.post(body, {"Content-Type": media, **AUTH}), 400)
    assert said.endswith(".")
    assert not face.meters.rows


def test_bad_rows_are_counted_and_named_without_their_values(face: Face) -> None:
    rows = [
        *objects(ROWS[:1]),
        *({"meter_id": f"m{i}", "start_utc": "soon", "wh": 987654} for i in range(30)),
    ]
    answer = face.post(json.dumps(rows), {"Content-Type": "application/json", **AUTH}).json()
    assert (answer["accepted"], answer["malformed"]) == (1, 30)
    assert len(answer["problems"]) == 10
    assert answer["problems"][0].startswith("record 2: ")
    assert "987654" not in json.dumps(answer["problems"])


def test_a_body_without_a_usable_row_is_an_error(face: Face) -> None:
    """Every row malformed or unknown: 422 and each reason once; the same again is no error."""
    media = {"Content-Type": "application/json", **AUTH}
    rows = [{"meter_id": "elm-street-0", "start_utc": utc(START), "duration_s": 900, "Wh": 987654}]
    rows = [*rows * 3, {**rows[0], "start": 1}, *objects([("nobody", START, 900, 1)])]
    answer = face.post(json.dumps(rows), media)
    detail = refused(answer, 422)
    expected = "a reading has meter_id, start_utc, duration_s, wh"
    assert answer.json()["reasons"] == {
        f"field wh is missing (perhaps 'Wh'); {expected}": {"count": 4, "first": "record 1"},
        UNKNOWN: {"count": 1, "first": "reading 1"},
    }
    assert (answer.json()["malformed"], answer.json()["unknown"]) == (4, 1)
    assert f"4 rows, first record 1: field wh is missing (perhaps 'Wh'); {expected}" in detail
    assert "987654" not in answer.text
    hourly = refused(face.post(as_ndjson([("elm-street-0", START, 3600, 9)])), 422)
    assert "lasts 3600 s, but the intervals of zone elm-street last 900 s" in hourly
    for _ in range(2):
        assert face.post(as_ndjson(ROWS[:1])).status_code == 200
    late = face.post(as_ndjson([ROWS[5], ("nobody", START, 900, 1)]))
    assert (late.status_code, late.json()["late"]) == (200, 1)
    assert face.post(b"").status_code == 200


def test_a_column_that_is_missing_is_named_with_those_expected(face: Face) -> None:
    csv = {"Content-Type": "text/csv", **AUTH}
    text = b"meter_id,start_utc,duration,wh\nelm-street-0,2025-06-15T15:15:00Z,900,987654\n"
    detail = refused(face.post(text, csv), 400)
    assert "column 'duration_s' is missing (perhaps 'duration')" in detail
    assert "meter_id, start_utc, duration_s, wh" in detail
    detail = refused(face.post(text.splitlines()[1], csv), 400)
    assert "987654" not in detail, "a first line may be a reading"


def test_what_came_before_a_break_is_kept_and_told(face: Face) -> None:
    body = as_json(ROWS[:2])[:-1] + b", oh"
    answer = face.post(body, {"Content-Type": "application/json", **AUTH})
    refused(answer, 400)
    assert answer.json().get("accepted", 0) == len(face.meters.rows)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"Content-Type": "text/html"}, "text/html"),
        ({}, "content type"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "compressed"),
    ],
)
def test_other_types_and_compression_are_refused(
    face: Face, headers: dict[str, str], says: str
) -> None:
    assert says in refused(face.post(b"[]", {**headers, **AUTH}), 415)


@pytest.mark.parametrize("error", [unavailable(), OSError(28, "No space left on device")])
def test_a_store_that_cannot_take_readings_is_asked_again(face: Face, error: Any) -> None:
    face.meters.fail = error
    answer = face.post(as_ndjson(ROWS))
    refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    face.meters.fail = None
    assert face.post(as_ndjson(ROWS)).json()["accepted"] == 4


def test_an_unforeseen_error_says_nothing(face: Face) -> None:
    face.meters.fail = RuntimeError("the reading was 123456")
    assert "123456" not in face.post(as_ndjson(ROWS)).text
    refused(face.post(as_ndjson(ROWS)), 500)
    refused(face.call("GET", "/docs"), 404)
    refused(face.call("GET", "/v1/readings"), 405)


def test_many_small_batches_share_a_sync(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("elm-street-1", START + 900 * i, 900, i) for i in range(9000)]
    assert face.post(as_json(rows), {"Content-Type": "application/json", **AUTH}).json() == {
        **dict.fromkeys(RECEIPT, 0), "accepted": 9000, "clamped": 7999, "problems": [],
        "reasons": {}, "warnings": [],
    }  # fmt: skip
    assert face.meters.puts == 1
    monkeypatch.setattr(delivery, "ROWS", 5000)
    face.post(as_json(rows), {"Content-Type": "application/json", **AUTH})
    assert face.meters.puts == 1 + 2


def test_prices_are_for_everyone(face: Face) -> None:
    assert face.call("GET", "/v1/price").json()["kind"] == "forecast", "before the first release"
    face.history.publish(face.zone, shown())
    answer = face.call("GET", "/v1/price").json()
    expected = {
        "zone": "elm-street", "start": utc(START), "end": utc(START + 900), "price": 0.25,
        "currency": "EUR", "rule": "eta=1 block union", "head": "ab" * 32,
    }  # fmt: skip
    assert expected.items() <= answer.items()
    assert face.call("GET", "/v1/price?zone=elm-street").json() == answer
    assert "elm-street" in refused(face.call("GET", "/v1/price?zone=other"), 404)


def test_a_price_of_several_zones_needs_a_name() -> None:
    face = Face("elm-street", "oak-lane")
    face.history.publish(face.zone, shown())
    assert "elm-street, oak-lane" in refused(face.call("GET", "/v1/price"), 400)
    assert face.call("GET", "/v1/price?zone=elm-street").status_code == 200
    assert face.call("GET", "/v1/price?zone=oak-lane").json()["zone"] == "oak-lane"


def test_ready_means_that_every_zone_is_open_and_ticking() -> None:
    now = [0.0]
    face = Face("elm-street", "oak-lane")
    face.board._steady = lambda: now[0]
    assert face.call("GET", "/healthz").status_code == 200
    assert face.call("GET", "/readyz").json()["zones"] == ["elm-street", "oak-lane"]
    for zone in face.board.zones:
        face.board.passed(Status(zone, 3, 1.5, 0, "publishing"))
    assert face.call("GET", "/readyz").status_code == 200
    assert [one["t"] for one in face.call("GET", "/v1/status").json()["zones"]] == [3, 3]
    face.board.failed("oak-lane")
    assert face.call("GET", "/readyz").json()["zones"] == ["oak-lane"]
    states = [one["state"] for one in face.call("GET", "/v1/status").json()["zones"]]
    assert states == ["publishing", "closed after an error"]
    now[0] = 61.0
    assert face.call("GET", "/readyz").status_code == 503, "a loop that hangs is not ready"


def test_figures_tell_what_happened_and_nothing_of_values(face: Face) -> None:
    class Away:
        def publish(self, zone: Any, release: Any) -> None:
            raise ConnectionError

    face.post(as_ndjson(ROWS))
    face.metrics.released([shown()], 0.3)
    face.metrics.zone_status(Status("elm-street", 7, 0.25, 2, "publishing"))
    face.metrics.readings_lost("elm-street", 1)
    with pytest.raises(ConnectionError):
        CountedPublisher(Away(), face.metrics).publish(face.zone, shown())
    public = face.call("GET", "/metrics").text.splitlines()
    lines = face.metrics.text(operator=True).decode().splitlines()
    hidden = ("readings_", "missing", "tick_seconds", "webhooks")  # depend on who reports
    assert not any(name in line for line in public for name in hidden)
    assert set(public) < set(lines)
    for line in (
        'hushgrid_releases_total{source="readings",zone="elm-street"} 1.0',
        'hushgrid_readings_total{kind="accepted",way="http"} 4.0',
        'hushgrid_readings_total{kind="duplicate",way="http"} 1.0',
        'hushgrid_missing_houses{zone="elm-street"} 2.0',
        'hushgrid_readings_lost{zone="elm-street"} 1.0',
        'hushgrid_room{zone="elm-street"} 0.25',
        'hushgrid_publisher_failures_total{publisher="Away"} 1.0',
        'hushgrid_tick_seconds_bucket{le="1.0",zone="elm-street"} 1.0',
        'hushgrid_tick_seconds_sum{zone="elm-street"} 1.0',  # took 0.3, told no finer
    ):
        assert line in lines
    told = [line for line in lines if not line.startswith("#")]
    assert not any("clamp" in line or "_created" in line for line in told)
    # the same delivery with other values leaves the same figures
    other = Face()
    other.post(as_ndjson([(m, s, d, 10_000 - w) for m, s, d, w in ROWS]))
    readings = [line for line in told if line.startswith("hushgrid_readings_total")]
    assert readings == [
        line
        for line in other.metrics.text(operator=True).decode().splitlines()
        if line.startswith("hushgrid_readings_total")
    ]


@pytest.fixture
def served(face: Face) -> Iterator[tuple[Face, str]]:
    server = Server(face.app, "127.0.0.1", 0)
    server.start()
    yield face, f"http://127.0.0.1:{server.port}"
    server.stop()


def test_a_real_server_answers_many_at_once(served: tuple[Face, str]) -> None:
    face, url = served
    answers: list[dict[str, Any]] = []

    def send(first: int) -> None:
        rows = [("elm-street-1", START + 900 * i, 900, 5) for i in range(first, first + 50)]
        answer = httpx.post(f"{url}/v1/readings", content=as_ndjson(rows), headers=NDJSON)
        answers.append(answer.json())

    threads = [threading.Thread(target=send, args=(25 * i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answer["accepted"] for answer in answers) == len(face.meters.rows) == 25 * 25
    assert sum(answer["duplicate"] for answer in answers) == 24 * 50 - 25 * 25


def test_a_real_server_survives_broken_senders(served: tuple[Face, str]) -> None:
    _, url = served
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/readings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/x-ndjson\r\n"
    ).encode()
    for rest in (
        b"Content-Length: 5000\r\n\r\n" + as_ndjson(ROWS[:2]),  # hangs up in the middle
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"\x00" * 100,
    ):
        with socket.create_connection((host, int(port)), timeout=10) as sock:
            sock.sendall(head + rest)
    answer = httpx.post(f"{url}/v1/readings", content=as_ndjson(ROWS), headers=NDJSON)
    assert answer.status_code == 200
    assert answer.json()["unknown"] == 1


def test_a_taken_port_is_said_at_once(served: tuple[Face, str]) -> None:
    face, url = served
    with pytest.raises(ServiceError, match="cannot be bound"):
        Server(face.app, "127.0.0.1", int(url.rpartition(":")[2]))
