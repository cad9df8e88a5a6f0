"""kWh sent as Wh: the sender, the operator and `import` are told, and nobody else is."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Policy
from hushgrid.curator.clock import utc
from hushgrid.curator.ingest import Delivery, Ingest, take_each
from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from hushgrid.intake.readings import Parsed, Readings, Register
from hushgrid.stores.clients import Client, ClientStore
from tests.curator.worlds import START, MemoryMeters, service
from tests.operate.reading_files import NOTHING, file, run
from tests.web.http.credentials import KEPT as HASHED
from tests.web.http.credentials import SECRET
from tests.web.http.desks import ELM, desk

__all__ = ["file"]  # a fixture
HOMES = 25


def parsed(zone: ZoneService, *wh: int, first: int = 0, seconds: int = 900) -> Parsed:
    meters = zone.all_meters[first : first + len(wh)]
    starts = [START] * len(wh)
    return Parsed(Readings.of(meters, starts, [seconds] * len(wh), list(wh)), 0, ())


def warned(zone: ZoneService, *batches: Parsed) -> list[str]:
    ingest, delivery = Ingest([zone], MemoryMeters(zone)), Delivery("north")
    delivery.take(ingest, batches)
    return delivery.warnings


def test_a_body_of_small_values_is_taken_and_its_sender_warned() -> None:
    """Uniform laws up to 500 and 1000 Wh: 375 Wh are usual, so 37 Wh is small and 38 Wh is not."""
    zone = service(houses=HOMES)
    (text,) = warned(zone, parsed(zone, *[0] * 24, 37))
    assert text.startswith("zone elm-street: every value is below 10 % of what is usual")
    assert 'unit = "kwh"' in text
    assert warned(zone, parsed(zone, *[0] * 24, 38)) == []
    assert warned(zone, parsed(zone, *[0] * 19)) == []
    assert warned(zone, parsed(zone, *[0] * 20)) == [text]


def test_meters_of_all_batches_count_once() -> None:
    zone = service(houses=HOMES)
    halves = [parsed(zone, *[0] * 12), parsed(zone, *[0] * 12, first=12)]
    assert len(warned(zone, *halves)) == 1
    again = [parsed(zone, *[0] * 12, seconds=300), parsed(zone, *[0] * 12, seconds=180)]
    assert warned(zone, *again) == []
    assert warned(zone, *halves, parsed(zone, 500, first=24)) == []


def test_shorter_readings_are_held_against_less() -> None:
    zone = service(houses=HOMES)
    assert len(warned(zone, parsed(zone, *[12] * HOMES, seconds=300))) == 1
    assert warned(zone, parsed(zone, *[13] * HOMES, seconds=300)) == []


def test_energy_fed_in_is_neither_small_nor_usual() -> None:
    """At noon all values are negative; at night all registers of energy fed in say 0."""
    policy = Policy(0.5, horizon=500, publish="estimate", estimator="releases", usual=375.0)
    zone = service(houses=HOMES, export=800, policy=policy)
    assert warned(zone, parsed(zone, *[-400] * HOMES)) == []
    assert len(warned(zone, parsed(zone, *[-3] * HOMES))) == 1
    two = replace(
        zone, registers=tuple(Register(i, f"{name}-out", -1) for i, name in enumerate(zone.meters))
    )
    assert warned(two, parsed(two, *[0] * HOMES, first=HOMES)) == []


def test_nothing_is_said_where_nothing_is_public() -> None:
    zone = service(houses=HOMES, export=800)  # no usual value, and its laws are of net values
    assert warned(zone, parsed(zone, *[0] * HOMES)) == []


def test_each_body_of_a_group_is_judged_alone() -> None:
    elm, oak = service(houses=HOMES), service("oak-lane", houses=HOMES)
    ingest = Ingest([elm, oak], MemoryMeters(elm, oak))
    small, usual = Delivery("north"), Delivery("south")
    both = [parsed(oak, *[0] * HOMES), parsed(elm, *[0] * 24, 900)]
    take_each(ingest, [(usual, [parsed(elm, *[300] * HOMES)]), (small, both)])
    assert usual.warnings == []
    assert [text.split(":")[0] for text in small.warnings] == ["zone oak-lane"]


# ---- over HTTP, and for the operator


def body(wh: int, start: int) -> bytes:
    rows = ({"meter_id": f"{ELM}-{i}", "start_utc": utc(start), "duration_s": 900,
             "wh": wh} for i in range(HOMES))  # fmt: skip
    return "\n".join(map(json.dumps, rows)).encode()


def test_the_sender_and_the_operator_are_told_and_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hushgrid")
    with desk(tmp_path, service(houses=HOMES)) as it:
        with ClientStore(it.made.client_store) as clients:
            clients.add(Client("north", ("write_readings",), HASHED, 1))
        asked = {"grant_type": "client_credentials", "client_id": "north", "client_secret": SECRET}
        token = it.web.post("/v1/token", data=asked).json()["access_token"]
        headers = {
            "Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"
        }  # fmt: skip

        starts = count(START, 900)

        def send(wh: int) -> Any:
            given = body(wh, next(starts))
            answer = it.web.post("/v1/readings", content=given, headers=headers).json()
            assert answer["accepted"] == HOMES
            return answer

        assert send(300)["warnings"] == []
        quiet = it.web.get("/metrics").text
        before = it.alerts()
        answer = send(0)
        assert "zone elm-street: every value is below 10 %" in answer["warnings"][0]
        (alert,) = set(it.alerts()) - set(before)
        assert alert == (
            "warning: Readings of at least 20 meters from north were all below 10 % of the usual"
            " value; see that they are Wh, not kWh."
        )
        names = {line.split(" ")[0] for line in it.web.get("/metrics").text.splitlines()}
        assert names == {line.split(" ")[0] for line in quiet.splitlines()}
        send(300)
        assert it.alerts() == before
        send(0)
        it.inner.wall += 86_401  # a day later it is old
        assert alert not in it.alerts()
    texts = [str(vars(one)) for one in caplog.records if one.name.startswith("hushgrid")]
    assert texts
    assert not [text for text in texts if "usual" in text or "kWh" in text]


# ---- hushgrid import


def test_import_asks_before_it_stores_small_values(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zone = load_deployment(file).zones[0]
    table = file.parent / "day.csv"
    start = "2026-01-05T12:00:00Z"
    lines = [f"{meter},{start},900,0.12" for meter in zone.meters[:HOMES]]
    table.write_text("meter_id,start_utc,duration_s,wh\n" + "\n".join(lines))
    text = file.read_text()
    day = text.split("begins = ")[1].split("T")[0]
    table.write_text(table.read_text().replace("2026-01-05", day))
    status, out, err = run(capsys, "import", table, "--config", file)
    assert (status, out) == (2, "")
    assert err.endswith(
        "every value is below 10 % of what is usual in its zone and perhaps kWh; give --unit kWh,"
        " or --yes to store them as Wh.\n"
    )
    status, out, _ = run(capsys, "import", table, "--config", file, "--unit", "kWh", "--json", "-")
    assert status == 0
    assert {key: json.loads(out)[key] for key in NOTHING} == {**NOTHING, "accepted": HOMES}
    for given in (["--yes"], ["--unit", "Wh"]):
        status, out, _ = run(capsys, "import", table, "--config", file, *given, "--json", "-")
        assert (status, json.loads(out)["duplicate"]) == (0, HOMES)  # the 120 Wh of before stay
    plain = table.with_suffix(".ndjson")
    plain.write_text("")
    status, _, err = run(capsys, "import", plain, "--config", file, "--unit", "kWh")
    assert status == 2
    assert "--unit is kWh, but this format says its unit itself" in err
