"""Hourly prices of a feeder, as the public description of Californian utilities has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from hushgrid.files.settings import Charges
from hushgrid.web.circuits import HourlyPricing
from hushgrid.web.feeds import PriceRange
from hushgrid.web.http.prices import feeds
from hushgrid.web.prices import History, Pages
from tests.curator.worlds import service
from tests.web.http.faces import Face, Still, refused, shown

PATH = "/v1/getPricing"
SPRING = int(datetime(2026, 3, 8, 8, tzinfo=UTC).timestamp())  # midnight in California
DAYS = PriceRange(SPRING, SPRING + 86_400 + 23 * 3600)  # to summer time, and the day after
CHARGES = Charges(fixed=(0.02,), relative=(0.1,))
ZONE = {"currency": "USD", "time_zone": "America/Los_Angeles", "charges": CHARGES}


def made(quarters: int, seconds: int = 900, **changes: Any) -> dict[str, Any]:
    """The body of these days, of which the first intervals are published."""
    zone = service(begins=SPRING - 7200, seconds=seconds, **(ZONE | changes))
    history = History([zone])
    for i in range(quarters):
        start = SPRING + (i - 2) * seconds
        own = {"t": start // seconds, "start": start, "applies_start": SPRING + i * seconds}
        history.publish(zone, shown(**own, rate=i / 1000, load_hat=3000, scale=400.0))
    assert history.expected(zone.id, SPRING, 60)[1]
    page = Pages(history, feeds(), Still()).page(PATH, zone.id, DAYS)
    assert page is not None
    HourlyPricing.model_validate_json(page.body, strict=True)
    return dict(json.loads(page.body))


def instants(curve: dict[str, Any]) -> Iterator[datetime]:
    for row in curve["priceDetails"]:
        yield datetime.strptime(row["startIntervalTimeStamp"], "%Y-%m-%dT%H:%M:%S%z")


def test_a_day_has_its_hours_and_an_hour_its_parts() -> None:
    found = made(92 + 96)
    assert found["meta"]["code"] == 200
    spring, after = found["data"]
    assert spring["priceHeader"] == {
        "priceCurveName": "elm-street", "marketName": "hushgrid", "intervalLengthInMinutes": 60,
        "settlementCurrency": "USD", "settlementUnit": "kWh", "recordCount": 23,
        "startTime": "2026-03-08T00:00:00-0800", "endTime": "2026-03-08T23:59:59-0700",
    }  # fmt: skip
    assert after["priceHeader"]["recordCount"] == 24
    assert after["priceHeader"]["startTime"] == "2026-03-09T00:00:00-0700"
    for curve in (spring, after):
        times = list(instants(curve))
        assert len(times) == len(set(times)) == curve["priceHeader"]["recordCount"]
        assert all((b - a).total_seconds() == 3600 for a, b in pairwise(times))
    rows = spring["priceDetails"] + after["priceDetails"]
    for i, row in enumerate(rows):
        parts = {
            part["component"]: Decimal(part["intervalPrice"]) for part in row["priceComponents"]
        }
        mean = (4 * i + 1.5) / 1000
        assert float(parts["mec"]) == pytest.approx(mean * 1.1, abs=1e-6)
        assert float(parts["cld"]) == pytest.approx(0.022, abs=1e-6)
        assert sum(parts.values()) == Decimal(row["intervalPrice"]), "to the last digit"
        assert row["priceStatus"] == "Final"


def test_an_hour_is_final_where_all_of_it_is_published() -> None:
    rows = [row for curve in made(10)["data"] for row in curve["priceDetails"]]
    assert [row["priceStatus"] for row in rows[:4]] == [
        "Final",
        "Final",
        "Preliminary",
        "Preliminary",
    ]
    assert {row["priceStatus"] for row in rows[2:]} == {"Preliminary"}


@pytest.mark.parametrize("seconds", [60, 1200, 3600, 7200])
def test_hours_are_means_of_any_intervals(seconds: int) -> None:
    count = 46 * 3600 // seconds
    rows = [row for curve in made(count, seconds)["data"] for row in curve["priceDetails"]]
    assert len(rows) >= 46
    for i, row in enumerate(rows[:46]):
        energy = float(row["priceComponents"][0]["intervalPrice"])
        numbers = range(
            i * 3600 // seconds, max((i + 1) * 3600 // seconds, i * 3600 // seconds + 1)
        )
        assert energy == pytest.approx(1.1 * sum(numbers) / len(numbers) / 1000, abs=1e-6)


def test_a_client_asks_by_circuit_and_local_day() -> None:
    face = Face("elm-street", "oak-lane")
    zone = replace(face.history.zones["oak-lane"], time_zone="America/Los_Angeles")
    face.history.renew(zone)
    for i in range(9):
        start = SPRING + (i - 4) * 900
        own = {"t": start // 900, "start": start - 1800, "applies_start": start}
        face.history.publish(zone, shown(**own, rate=0.1))
    days = "startdate=20260308&enddate=2026-03-08"
    known = f"utility=PGE&market=DAM&program=CalFUSE&ratename=EELEC&{days}"
    answer = face.call("GET", f"{PATH}?{known}&representativeCircuitId=oak-lane")
    rows = answer.json()["data"][0]["priceDetails"]
    assert rows[0]["startIntervalTimeStamp"] == "2026-03-08T00:00:00-0800"
    assert [row["priceStatus"] for row in rows[:2]] == ["Final", "Preliminary"]
    assert face.call("GET", f"{PATH}?{days}&zone=oak-lane").json() == answer.json()
    empty = face.call("GET", f"{PATH}?startdate=20200101&enddate=20200102&zone=oak-lane")
    assert empty.json()["data"] == []
    assert refused(face.call("GET", f"{PATH}?representativeCircuitId=none"), 404).startswith("zone")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("startdate=yesterday", "startdate"), ("startdate=", "startdate"),
        ("startdate=20260230", "startdate"), ("startdate=2026-0308", "startdate"),
        ("startdate=19700101", "startdate"), ("enddate=99991231", "enddate"),
        ("startdate=20260309&enddate=20260308", "enddate"),
        ("zone=elm-street&representativeCircuitId=oak-lane", "zone"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_the_fix(query: str, field: str) -> None:
    answer = Face().call("GET", f"{PATH}?{query}")
    said = refused(answer, 400)
    assert answer.json()["field"] == field
    assert said.startswith(f"{field} is ")
