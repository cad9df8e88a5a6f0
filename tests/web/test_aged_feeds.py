"""Every consumer reads the present and the forecast of a zone with thousands of short intervals."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from hushgrid.curator.clock import utc
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import Charges, Mqtt
from hushgrid.model.zone import FeedIn
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web.http.models import Evcc
from hushgrid.web.http.prices import feeds
from hushgrid.web.mqtt import MqttPrices, hang_up
from hushgrid.web.openadr._generated import EventsGetParametersQuery
from hushgrid.web.openadr.objects import PublicObjects
from hushgrid.web.prices import History, Pages
from tests.curator.worlds import START, service
from tests.web.brokers import Broker, until
from tests.web.http.faces import Face, Still, shown
from tests.web.running import Heard

MINUTE, RELEASES = 60, 1200
NEWEST = START + MINUTE * (RELEASES + 1)  # start of the interval of the newest price
NOW = NEWEST - 20.0
ENDS = NEWEST + MINUTE * 1440  # start of the last expected price


def release(i: int, seconds: int = MINUTE, **changes: Any) -> ReleaseRecord:
    """The release of the zone's i-th interval, its price for two intervals later."""
    start = START + seconds * i
    own = {
        "t": start // seconds, "start": start, "applies_start": start + 2 * seconds,
        "rate": 0.2 + i % 7 / 100, "load_hat": 3000 + 50 * (i % 11), "scale": 400.0,
        "head": f"{i:064x}", "signature": "cd" * 64,
    }  # fmt: skip
    return shown(**(own | changes))


@pytest.fixture(scope="module")
def face() -> Face:
    made = Face(seconds=MINUTE)
    made.clock.wall = NOW
    made.history.fill("elm-street", [release(i) for i in range(RELEASES)])
    assert made.history.expected("elm-street", NOW, 60)[1], "the forecast is made"
    return made


def seconds_of(text: str) -> int:
    assert text.endswith("Z")
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def rows(face: Face, path: str) -> dict[int, float]:
    """Totals by start, as the consumer of a path reads them."""
    answer = face.call("GET", path)
    assert answer.status_code == 200, answer.text
    if "prices.csv" in path:
        table = csv.DictReader(io.StringIO(answer.text))
        return {seconds_of(row["start"]): float(row["total"]) for row in table}
    found = answer.json()
    if "octopus" in path:
        listed = [(row["valid_from"], row["value_inc_vat"] / 100) for row in found["results"]]
        assert found["count"] == len(listed)
        return {seconds_of(start): value for start, value in reversed(listed)}
    if "emhass" in path:
        return {seconds_of(start): one for start, one in found["load_cost_forecast"].items()}
    if "evcc" in path:
        return {seconds_of(row["start"]): row["value"] for row in found}
    every = sorted(found["published"] + found["forecast"], key=lambda row: row["start"])
    return {seconds_of(row["start"]): row["total"] for row in every}


EVERY = ("/v1/prices", "/v1/prices.csv", "/v1/octopus", "/v1/emhass")


@pytest.mark.parametrize("path", EVERY)
def test_a_list_has_the_present_and_the_whole_forecast(face: Face, path: str) -> None:
    found = rows(face, path)
    assert list(found) == sorted(found)
    assert list(found)[-1] == ENDS
    assert found[NEWEST] == pytest.approx(release(RELEASES - 1).rate)
    held = face.call("GET", "/v1/price").json()
    assert found[seconds_of(held["start"])] == pytest.approx(held["total"])
    assert seconds_of(held["start"]) <= NOW < seconds_of(held["end"])
    assert all(b - a == MINUTE for a, b in pairwise(found)), "no gap"


def test_evcc_has_quarter_hours_with_the_mean_of_their_minutes(face: Face) -> None:
    """By evcc's rule a shorter rate would be a quarter hour long, and overlap with the next."""
    answer = face.call("GET", "/v1/evcc").json()
    spans = [(seconds_of(row["start"]), seconds_of(row["end"])) for row in answer]
    assert all(start % 900 == 0 and end == start + 900 for start, end in spans)
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert spans[-1][0] <= ENDS < spans[-1][1]
    minutes, found = rows(face, "/v1/prices"), rows(face, "/v1/evcc")
    slot = int(NOW) // 900 * 900
    for start in (slot, slot + 900, slot + 40 * 900):
        own = [minutes[start + MINUTE * i] for i in range(15)]
        assert min(own) < max(own)
        assert found[start] == pytest.approx(fmean(own), rel=1e-12)


def test_the_first_page_of_events_begins_with_the_newest(face: Face) -> None:
    public = PublicObjects(face.history, face.clock)

    def events(**query: Any) -> list[dict[str, Any]]:
        return [json.loads(one) for one in public.events(EventsGetParametersQuery(**query))]

    first, *_ = events(programID="elm-street")
    assert seconds_of(first["intervalPeriod"]["start"]) == NEWEST
    (held,) = events(programID="elm-street", active=True)
    assert seconds_of(held["intervalPeriod"]["start"]) <= NOW
    (ahead,) = events(programID="elm-street-forecast")
    assert len(ahead["intervals"]) == 1440


@pytest.mark.parametrize("limit", [1, 2, 5, 100, 1000, 2000])
def test_a_limit_leaves_the_newest_and_the_nearest(face: Face, limit: int) -> None:
    found = face.call("GET", f"/v1/prices?limit={limit}").json()
    assert len(found["published"]) == math.ceil(limit / 2)
    assert len(found["forecast"]) == limit // 2
    assert seconds_of(found["published"][-1]["start"]) == NEWEST
    assert all(seconds_of(row["start"]) > NEWEST for row in found["forecast"])
    following = NEWEST + MINUTE * (limit // 2 + 1)
    assert seconds_of(found["next"]) == following
    early = face.call("GET", f"/v1/prices?limit={limit}&to={utc(NEWEST - 600)}").json()
    assert seconds_of(early["published"][-1]["start"]) == NEWEST - 660, "the last before it"


@pytest.mark.soak
def test_intervals_of_seconds_keep_their_forecast_and_the_newest_minutes() -> None:
    """A day of them is longer than any answer."""
    face = Face(seconds=10)
    last = START + 10 * 9001
    face.clock.wall = last - 5.0
    face.history.fill("elm-street", [release(i, 10) for i in range(9000)])
    assert face.history.expected("elm-street", face.clock.wall, 60)[1]
    found = rows(face, "/v1/prices")
    assert len(found) == 3000
    assert list(found)[-1] == last + 10 * 240
    assert list(found)[-241] == last
    slots = rows(face, "/v1/evcc")
    assert list(slots) == list(range(min(found) // 900 * 900, list(found)[-1], 900))


@pytest.mark.parametrize("seconds", [480, 1200, 720])
def test_a_slot_across_intervals_has_their_mean_by_time(seconds: int) -> None:
    face = Face(seconds=seconds)
    face.history.fill("elm-street", [release(i, seconds) for i in range(12)])
    face.clock.wall = START + 12.5 * seconds
    assert face.history.expected("elm-street", face.clock.wall, 60)[1]
    minutes = {
        start + second: value
        for start, value in rows(face, "/v1/prices").items()
        for second in range(0, seconds, MINUTE)
    }
    found = rows(face, "/v1/evcc")
    assert len(found) > 96
    for start in list(found)[1:-1]:
        own = [minutes[start + MINUTE * i] for i in range(15)]
        assert found[start] == pytest.approx(fmean(own), rel=1e-12)


def with_everything(digits: int | None = None) -> ZoneService:
    """A zone of minutes with charges and a feed-in price."""
    zone = service(seconds=MINUTE)
    tariff = replace(zone.scenario.tariff, feed_in=FeedIn(0.5, 1.0, floor=-1.0, cap=2.0))
    scenario = replace(zone.scenario, tariff=tariff)
    return replace(zone, scenario=scenario, charges=Charges(fixed=(0.1,)), digits=digits)


def test_home_assistant_keeps_the_forecast_in_an_attribute(tmp_path: Path) -> None:
    """Its recorder refuses attributes above 16 KiB, written without spaces."""
    zone, broker = with_everything(), Broker(tmp_path)
    history = History([zone])
    history.fill(zone.id, [release(i, feed_in=0.1 + i % 7 / 70) for i in range(RELEASES)])
    assert len(history.ahead(zone.id, NOW, 60) or ()) == 1440
    present = history.present(zone.id, NOW)
    assert present is not None
    broker.start()
    out = MqttPrices(Mqtt("127.0.0.1", broker.port, prices="{zone}/price", home_assistant=True))
    heard = Heard(broker)
    try:
        assert until(out._client.is_connected)
        out.show(zone, present)
        config = "homeassistant/sensor/hushgrid_elm-street/config"
        assert until(lambda: {"elm-street/forecast", config} <= set(heard.newest))
        found = heard.json(heard.json(config)["json_attributes_topic"])
        starts = [seconds_of(one["start"]) for one in found["forecast"]]
        assert starts == [NEWEST + MINUTE * (i + 1) for i in range(96)]
        assert {"price", "total", "feed_in"} <= set(found["forecast"][0])
        assert len(json.dumps(found, separators=(",", ":"))) < 16_384
    finally:
        hang_up(heard.client)
        out.stop()
        broker.stop()


@pytest.mark.soak
def test_feed_in_prices_are_a_list_of_evcc() -> None:
    plain = Face()
    assert plain.call("GET", "/v1/evcc/feed_in").json() == []
    zone = with_everything(digits=3)
    history, clock = History([zone]), Still()
    clock.wall = NOW
    history.fill(zone.id, [release(i, feed_in=0.05 + i % 5 / 1000) for i in range(RELEASES)])
    history.expected(zone.id, NOW, 60)
    pages = Pages(history, feeds(), clock)
    page = pages.page("/v1/evcc/feed_in", zone.id)
    assert page is not None
    found = Evcc.model_validate_json(page.body, strict=True).root
    starts = [seconds_of(row.start) for row in found]
    assert all(start % 900 == 0 for start in starts)
    assert starts[-1] <= ENDS < starts[-1] + 900
    slot = int(NOW) // 900 * 900 - 900
    (row,) = (row for row in found if seconds_of(row.start) == slot)
    own = [0.05 + (slot - START - 120 + MINUTE * i) // MINUTE % 5 / 1000 for i in range(15)]
    assert row.value == round(fmean(own), 3), "no charges, the digits of the tariff"
