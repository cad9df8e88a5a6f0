"""The price of now is the one whose interval holds the clock, on every public way."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hushgrid.curator.clock import utc
from hushgrid.curator.status import status_of
from hushgrid.errors import ConfigError
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Charges, Mqtt, Season
from hushgrid.model.zone import FeedIn
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web import prices
from hushgrid.web.feeds import discovery
from hushgrid.web.http.prices import feeds
from hushgrid.web.mqtt import hang_up
from tests.curator.setups import example
from tests.curator.worlds import service
from tests.web.brokers import Broker, until
from tests.web.http.faces import shown
from tests.web.running import (
    GRACE,
    SECONDS,
    WINTER,
    Heard,
    Running,
    Wall,
    found_by_discovery,
    running,
)

pytestmark = pytest.mark.usefixtures("loop_patience")
SPRING = int(datetime(2026, 3, 29, 0, 15, tzinfo=UTC).timestamp())  # Zurich: to summer time at 1:00
AUTUMN = int(datetime(2026, 10, 25, 0, 15, tzinfo=UTC).timestamp())  # and back at 1:00


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "broker").mkdir()
    made = Broker(tmp_path / "broker")
    made.start()
    yield made
    made.stop()


POLLS = list(range(0, 4 * SECONDS + 1, 300)) + [k * SECONDS - 1 for k in range(1, 5)]
POLLS += [k * SECONDS + GRACE for k in range(1, 5)]


def test_now_is_the_price_whose_interval_holds_the_clock(tmp_path: Path, broker: Broker) -> None:
    """From before the first release through four borders, on every way at each instant."""
    clock, heard = Wall(WINTER), Heard(broker)
    mqtt = Mqtt("127.0.0.1", broker.port, prices="hushgrid/{zone}/price", home_assistant=True)
    with running(tmp_path, clock, mqtt=mqtt) as it:
        out = next(p for p in it.process._publishers if p._name == "MqttPrices")._publisher
        assert until(out._client.is_connected)
        kinds = set()
        for now in sorted(WINTER + t for t in POLLS):
            found, start = it.at(now + 0.5), int(now) // SECONDS * SECONDS
            own, coming = it.applying(start), it.applying(start + SECONDS)
            assert (found["start"], found["end"]) == (utc(start), utc(start + SECONDS))
            kinds.add(found["kind"])
            if own is None:
                assert (found["kind"], found["source"]) == ("forecast", "forecast")
                assert found["head"] == found["signature"] == ""
            else:
                assert (found["kind"], found["head"], found["price"]) == (
                    "published", own.head, own.rate,
                )  # fmt: skip
            following = found["next"]
            assert (following is None) == (coming is None)
            if coming is not None:
                assert (following["start"], following["head"]) == (
                    utc(start + SECONDS),
                    coming.head,
                )
            # file, broker and stream say the same
            assert it.file is not None
            assert json.loads(it.file.read_text()) == {it.zone.id: found}
            assert until(lambda f=found: heard.json("hushgrid/elm-street/price") == f)
            assert until(lambda f=following: heard.json("hushgrid/elm-street/next") == f)
            assert until(lambda f=found: ("price", f) in it.events[-3:])
            # lists have it once, marked as it is
            lists = it.get("/v1/prices")
            every = [(one, "published") for one in lists["published"]]
            every += [(one, "forecast") for one in lists["forecast"]]
            now_ = [(one["price"], kind) for one, kind in every if one["start"] == found["start"]]
            assert now_ == [(found["price"], found["kind"])]
            for path, key, value in (
                ("/v1/evcc", "start", "value"),
                ("/v1/octopus", "valid_from", "value_inc_vat"),
            ):
                rows, unit = it.get(path), 1 if path == "/v1/evcc" else 100
                rows = rows if isinstance(rows, list) else rows["results"]
                own_rows = [r[value] / unit for r in rows if r[key] == found["start"]]
                assert own_rows == [pytest.approx(found["total"])]
            costs = it.get("/v1/emhass")["load_cost_forecast"]
            assert costs[found["start"]] == found["total"]
            # OpenADR: the event that is active now, and no other
            events = it.get("/openadr3/3.1.0/events?programID=elm-street&active=true")
            periods = [(e["intervalPeriod"]["start"], e["intervals"][0]) for e in events]
            assert [start for start, _ in periods] == ([] if own is None else [found["start"]])
            for _, interval in periods:
                assert interval["payloads"][0]["values"] == [found["price"]]
        assert kinds == {"published", "forecast"}
        topic = "hushgrid/elm-street/forecast"
        assert until(lambda: heard.json(topic).get("next") == found["next"])
        ahead = heard.json(topic)
        assert {name: ahead[name] for name in found} == found
        starts = [one["start"] for one in ahead["forecast"]]
        assert len(starts) >= 95
        assert starts[0] > found["start"]
    assert until(lambda: heard.newest.get("hushgrid/available/curator") == b"offline")
    hang_up(heard.client)


def test_a_cache_ends_with_the_interval(tmp_path: Path) -> None:
    clock = Wall(WINTER)
    with running(tmp_path, clock) as it:
        for t in (SECONDS + GRACE, 2 * SECONDS + GRACE):
            it.at(WINTER + t)
        for left in (300.5, 20.25, 1.5, 0.5):
            clock.wall = WINTER + 3 * SECONDS - left
            answer = it.client.get("/v1/price")
            age = int(answer.headers["cache-control"].rpartition("=")[2])
            assert age <= left
        tag = {"If-None-Match": answer.headers["etag"]}
        assert it.client.get("/v1/price", headers=tag).status_code == 304
        clock.wall = WINTER + 3 * SECONDS
        after = it.client.get("/v1/price", headers=tag)
        assert after.status_code == 200
        assert after.json()["start"] == answer.json()["end"]


def contiguous(it: Running, now: float) -> dict[str, Any]:
    """Check that no list has a gap or an overlap; the price of now is in all of them."""
    found = it.get("/v1/price")
    lists = it.get("/v1/prices?limit=10000")
    every = sorted(lists["published"] + lists["forecast"], key=lambda one: one["start"])
    evcc = it.get("/v1/evcc?limit=10000")
    octopus = it.get("/v1/octopus?limit=10000")["results"][::-1]
    emhass = it.get("/v1/emhass?limit=10000")["load_cost_forecast"]
    for one in (
        [(row["start"], row["end"], row["price"]) for row in every],
        [(row["start"], row["end"], row["value"]) for row in evcc],
        [(row["valid_from"], row["valid_to"], row["value_inc_vat"] / 100) for row in octopus],
        [(a, b, emhass[a]) for a, b in pairwise(emhass)],
    ):
        assert all(end == start for (_, end, _), (start, _, _) in pairwise(one))
        assert all(text.endswith("Z") for text, _, _ in one)
        seconds = [datetime.fromisoformat(start).timestamp() for start, _, _ in one]
        assert all(b - a == SECONDS for a, b in pairwise(seconds))
        own = [row for row in one if row[0] <= utc(int(now)) < row[1]]
        assert own == [(found["start"], found["end"], pytest.approx(found["price"]))]
    return dict(found)


@pytest.mark.parametrize("begins", [SPRING, AUTUMN], ids=["to summer time", "to winter time"])
@pytest.mark.sampled
def test_a_clock_change_an_outage_and_a_restart_leave_no_gap(tmp_path: Path, begins: int) -> None:
    """Two hours across the change of local time; in the second the service is away."""
    zone = {"time_zone": "Europe/Zurich", "begins": begins}
    clock = Wall(begins)
    with running(tmp_path, clock, zone=zone) as it:
        for t in range(0, 4 * SECONDS + GRACE, GRACE):
            it.at(begins + t)
        before = contiguous(it, clock.wall)
        guesses = {row["start"]: row["price"] for row in it.get("/v1/prices")["forecast"]}
    assert before["kind"] == "published"
    back = begins + 8 * SECONDS + 100  # an hour later
    clock.wall = back
    with running(tmp_path, clock, zone=zone) as it:
        first = contiguous(it, clock.wall)  # before any pass
        assert (first["kind"], first["start"]) == ("forecast", utc(begins + 8 * SECONDS))
        assert first["price"] == guesses[first["start"]], "as it was expected before the outage"
        it.at(back)
        assert contiguous(it, clock.wall) == first | {"next": it.get("/v1/price")["next"]}
        it.at(begins + 9 * SECONDS + 1)
        after = contiguous(it, clock.wall)
        assert (after["kind"], after["head"]) == ("published", first_next(it).head)


def first_next(it: Running) -> ReleaseRecord:
    found = it.applying(int(it.clock.wall) // SECONDS * SECONDS)
    assert found is not None
    return found


def test_before_the_first_release_every_feed_answers(tmp_path: Path) -> None:
    clock = Wall(WINTER + 10)
    with running(tmp_path, clock, zone={"fallback_rate": 0.31}) as it:
        it.process.turn(clock)
        found = it.get("/v1/price")
        assert (found["start"], found["kind"]) == (utc(WINTER), "forecast")
        assert found["source"] == "forecast"
        assert found["price"] != 0.31
        assert found["simulated"], "this service runs in simulation"
        assert len(it.get("/v1/evcc")) == 96
        assert it.get("/v1/prices")["published"] == []
        assert it.get("/v1/octopus")["count"] == 96
        # what operators see agrees
        (status,) = it.get("/v1/status")["zones"]
        (zone,) = it.process._zones
        assert zone.curator is not None
        by_command = status_of(it.zone, zone.curator._ledger.standing, clock.now())
        due = utc(WINTER + 2 * SECONDS + GRACE)
        assert status["state"] == f"not begun; first price at {due}"
        assert by_command.state.startswith("not begun; first price")
        due = it.zone.begins + it.zone.seconds + it.zone.grace
        assert status_of(it.zone, None, due).state == f"not begun; first price at {utc(due)}"
        later = status_of(it.zone, None, due + 1).state
        assert later == "not begun; first price after a whole interval under hushgrid serve"
        assert it.get("/readyz") == {"status": "ready", "not_begun": ["elm-street"]}
        it.at(WINTER + 2 * SECONDS + GRACE)
        assert it.get("/v1/price")["kind"] == "forecast", "the first price is for later"
        assert it.get("/readyz") == {"status": "ready"}


def test_counters_are_there_before_anything_is_counted(tmp_path: Path) -> None:
    with running(tmp_path, Wall(WINTER)) as it:
        text = it.client.get("/metrics").text
    zone = 'zone="elm-street"'
    sources = (f'source="{source}",{zone}' for source in ("readings", "forecast", "fallback"))
    for name, labels in (
        *(("releases_total", labels) for labels in sources),
        ("zone_errors_total", zone),
        ("publisher_failures_total", 'publisher="PriceFile"'),
    ):
        assert f"hushgrid_{name}{{{labels}}} 0.0\n" in text


def test_a_broker_that_lost_everything_is_sent_everything(tmp_path: Path, broker: Broker) -> None:
    """Discovery, price and availability: a sensor stays unavailable without them."""
    mqtt = Mqtt("127.0.0.1", broker.port, prices="hushgrid/prices", home_assistant=True)
    with running(tmp_path, Wall(WINTER), mqtt=mqtt) as it:
        out = next(p for p in it.process._publishers if p._name == "MqttPrices")._publisher
        for _ in range(2):
            assert until(out._client.is_connected)
            it.at(WINTER + 10)
            heard = Heard(broker)
            topic, config = "hushgrid/prices/elm-street", "homeassistant/sensor/hushgrid_elm-street"
            assert until(lambda h=heard, c=config: f"{c}/config" in h.newest)
            assert until(
                lambda h=heard, t=topic: {t, f"{t}/next", f"{t}/forecast"} <= set(h.newest)
            )
            said = heard.json(f"{config}/config")
            assert said["state_topic"] == topic
            assert until(lambda h=heard, s=said: h.newest.get(s["availability_topic"]) == b"online")
            hang_up(heard.client)
            broker.stop()
            assert until(lambda: not out._client.is_connected())
            (tmp_path / "broker" / "mosquitto.db").unlink()
            broker.start()


def test_charges_are_added_to_what_is_published(tmp_path: Path) -> None:
    """By local hour and month, after the mechanism: the same releases as without them."""
    hours = tuple(0.01 * hour for hour in range(24))
    winter = Season(months=(12, 1, 2), fixed=(0.5,))
    charges = Charges(fixed=hours, relative=(0.2,), seasons=(winter,))
    rates: list[list[float]] = []
    for name, own in (("plain", {}), ("charged", {"charges": charges})):
        (tmp_path / name).mkdir()
        clock = Wall(AUTUMN)
        zone = {"time_zone": "Europe/Zurich", "begins": AUTUMN, **own}
        with running(tmp_path / name, clock, zone=zone) as it:
            for t in range(0, 5 * SECONDS, GRACE):
                found = it.at(AUTUMN + t)
            rates.append([one.rate for one in it.releases])
            rows = it.get("/v1/prices?limit=10000")
            evcc = {row["start"]: row["value"] for row in it.get("/v1/evcc")}
            costs = it.get("/v1/emhass")["load_cost_forecast"]
            octopus = {row["valid_from"]: row for row in it.get("/v1/octopus")["results"]}
            (event,) = it.get("/openadr3/3.1.0/events?programID=elm-street&active=true")
            (ahead,) = it.get("/openadr3/3.1.0/events?programID=elm-street-forecast")
    assert rates[0] == rates[1], "the mechanism does not know them"
    for row in [found, *rows["published"], *rows["forecast"]]:
        at = datetime.fromisoformat(row["start"]).astimezone(ZoneInfo("Europe/Zurich"))
        assert row["total"] == pytest.approx((row["price"] + 0.01 * at.hour) * 1.2)
        assert evcc[row["start"]] == costs[row["start"]] == row["total"]
        one = octopus[row["start"]]
        assert one["value_exc_vat"] == pytest.approx(100 * row["price"])
        assert one["value_inc_vat"] == pytest.approx(100 * row["total"])
    payloads = {one["type"]: one["values"] for one in event["intervals"][0]["payloads"]}
    assert payloads == {"PRICE": [found["total"]], "ENERGY_PRICE": [found["price"]]}
    last = ahead["intervals"][-1]["payloads"][0]["values"][0]
    assert last == rows["forecast"][-1]["total"]
    january = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    assert charges.total(0.1, january, "Europe/Zurich") == pytest.approx(0.6 * 1.2)


def test_every_feed_has_the_digits_of_the_tariff(tmp_path: Path, broker: Broker) -> None:
    """Rounded when presented, totals after adding; the ledger has the same full rates."""
    charges = Charges(fixed=(0.0149,), relative=(0.077,))
    scenario = service().scenario
    feed_in = FeedIn(alpha=scenario.tariff.alpha, beta=0.0333)
    scenario = replace(scenario, tariff=replace(scenario.tariff, feed_in=feed_in))
    rates: list[list[float]] = []
    for name, own in (("full", {}), ("rounded", {"digits": 2})):
        (tmp_path / name).mkdir()
        mqtt = Mqtt("127.0.0.1", broker.port, prices=f"{name}/prices", home_assistant=True)
        zone = {"charges": charges, "scenario": scenario, **own}
        with running(tmp_path / name, Wall(WINTER), zone=zone, mqtt=mqtt) as it:
            out = next(p for p in it.process._publishers if p._name == "MqttPrices")._publisher
            assert until(out._client.is_connected)
            for t in range(0, 4 * SECONDS, GRACE):
                found = it.at(WINTER + t)
            rates.append([one.rate for one in it.releases])
            rows = it.get("/v1/prices?limit=10000")
            evcc = {row["start"]: row["value"] for row in it.get("/v1/evcc")}
            emhass = it.get("/v1/emhass")
            octopus = {row["valid_from"]: row for row in it.get("/v1/octopus")["results"]}
            head, *lines = it.client.get("/v1/prices.csv").text.splitlines()
            keys = head.split(",")
            csv = {line[:20]: dict(zip(keys, line.split(","), strict=True)) for line in lines}
            adr = {
                row["intervalPeriod"]["start"]: row["intervals"][0]["payloads"]
                for row in it.get("/openadr3/3.1.0/events?programID=elm-street")
            }
            (ahead,) = it.get("/openadr3/3.1.0/events?programID=elm-street-forecast")
            coming = [one["payloads"] for one in ahead["intervals"]]
            assert it.file is not None
            file = json.loads(it.file.read_text())["elm-street"]
            heard, topic = Heard(broker), f"{name}/prices/elm-street"
            assert until(lambda h=heard, t=topic, f=found: h.json(t).get("start") == f["start"])
            assert until(lambda h=heard, t=topic: f"{t}/forecast" in h.newest)
            sent, expected = heard.json(topic), heard.json(f"{topic}/forecast")["forecast"]
            assert until(lambda i=it, f=found: ("price", f) in i.events)
            streamed = [row for kind, row in it.events if kind == "release"]
            page = it.client.get("/").text
            full, exact = it.applying(int(it.clock.wall) // SECONDS * SECONDS), it.zone
            hang_up(heard.client)
    assert rates[0] == rates[1], "neither noise nor ledger knows them"
    assert full is not None
    assert full.feed_in is not None
    assert found["price"] == round(full.rate, 2) != full.rate
    assert found["total"] == round((full.rate + 0.0149) * 1.077, 2)
    assert found["feed_in"] == round(full.feed_in, 2)
    every = [*rows["published"], *rows["forecast"]]
    names = ("price", "total", "feed_in", "low", "high", "total_low", "total_high")
    assert {name for row in every for name in row} >= set(names)
    for row in every:
        assert all(row[name] == round(row[name], 2) for name in names if name in row)
        start, whole = row["start"], (row["price"], row["total"], row["feed_in"])
        assert evcc[start] == emhass["load_cost_forecast"][start] == row["total"]
        assert emhass["prod_price_forecast"][start] == row["feed_in"]
        assert octopus[start]["value_exc_vat"] == round(100 * row["price"], 9)
        assert octopus[start]["value_inc_vat"] == round(100 * row["total"], 9)
        assert tuple(float(csv[start][name]) for name in names[:3]) == whole

    def paid(payloads: list[dict[str, Any]]) -> dict[str, float]:
        kinds = {"ENERGY_PRICE": "price", "PRICE": "total", "EXPORT_PRICE": "feed_in"}
        return {kinds[one["type"]]: one["values"][0] for one in payloads}

    by_start = {row["start"]: {name: row[name] for name in names[:3]} for row in every}
    assert {start: paid(one) for start, one in adr.items()}.items() <= by_start.items()
    assert len(adr) == len(rows["published"]) == len(streamed) > 1
    assert [paid(one) for one in coming] == [by_start[row["start"]] for row in expected]
    assert file == sent == found
    for row in [found, found["next"], *expected, *streamed]:
        if row is not None:
            assert {name: row[name] for name in names[:3]} == by_start[row["start"]]
    assert 'data-digits="2"' in page
    said = json.loads(discovery(exact, "homeassistant", "", "", "")[1])
    assert said["suggested_display_precision"] == 2
    assert exact.rounded(-0.001) == 0
    assert math.copysign(1, exact.rounded(-0.001)) == 1, "no price is written -0.0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("digits = -1", "tariff.digits is -1; give a whole number from 0 to 8."),
        ("digits = 9", "tariff.digits is 9; give a whole number from 0 to 8."),
        ("digits = 2.5", "tariff.digits is 2.5; give a whole number from 0 to 8."),
        ("digits = true", "tariff.digits is True; give a whole number from 0 to 8."),
        ("digits = 2\ncap = 2.505", "tariff.digits is 2, but tariff.cap is 2.505"),
        (
            "digits = 1\nfeed_in = {alpha = 0.001, beta = 0.1, floor = 0.05}",
            "tariff.digits is 1, but tariff.feed_in.floor is 0.05",
        ),
        ("digits = 2\nfeed_in = {alpha = 0.001, beta = 0.1, floor = 'x'}", "feed_in.floor"),
        ("digits = 2\ncap = 2.5", ""),
        ("digits = 0", ""),
    ],
)
def test_digits_of_a_file(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "service.toml"
    file.write_text(example(1_767_571_200))
    (plain,) = load_deployment(file).zones
    own = example(1_767_571_200).replace("cap = 2.0\n", "" if "cap" in text else "cap = 2.0\n")
    file.write_text(own.replace("[tariff]", f"[tariff]\n{text}"))
    if says:
        with pytest.raises(ConfigError) as caught:
            load_deployment(file)
        assert says in str(caught.value)
        assert len(caught.value.problems) == 1
    else:
        (zone,) = load_deployment(file).zones
        assert (plain.digits, zone.digits) == (None, int(text[9]))
        same = replace(zone.scenario.tariff, cap=plain.scenario.tariff.cap)
        assert same == plain.scenario.tariff, "the terms of the tariff do not have it"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('fixed = "x"', "tariff.charges.fixed"),
        ("fixed = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]", "has 7 values"),
        ("fees = 1", "tariff.charges.fees"),
        ("[[tariff.charges.seasons]]\nmonths = [13]", "months"),
        (
            "[[tariff.charges.seasons]]\nmonths = [1]\n[[tariff.charges.seasons]]\nmonths = [1]",
            "month 1 twice",
        ),
    ],
)
def test_a_mistake_in_charges_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "service.toml"
    file.write_text(f"{example(1_767_571_200)}\n[tariff.charges]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_deployment(file)
    assert says in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_forecast_that_takes_long_delays_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases every 10 s and a forecast that takes longer: a list has what is known."""
    done, after = threading.Event(), prices.Forecaster.after
    seconds = 10

    def slow(self: Any, releases: Any, *instants: Any) -> Any:
        assert done.wait(60) or not releases
        return after(self, releases, *instants)

    begins = WINTER
    history = prices.History([service(begins=begins, seconds=seconds)])
    (zone,) = history.zones.values()
    pages = prices.Pages(history, feeds(), Wall(begins + 25.0))
    assert len(every(pages)) == 240, "before the first release"
    monkeypatch.setattr(prices, "PATIENCE", 0.01)
    monkeypatch.setattr(prices.Forecaster, "after", slow)
    for i in range(3):
        start = begins + seconds * i
        own = {"start": start, "applies_start": start + 2 * seconds, "t": start // seconds}
        history.publish(zone, shown(head=f"{i}" * 64, **own))
        starts = every(pages)
        assert starts[: i + 1] == [utc(begins + seconds * (k + 2)) for k in range(i + 1)]
        assert len(starts) > 200, "the forecast of before goes on"
        assert len(set(starts)) == len(starts)
    done.set()
    monkeypatch.setattr(prices, "PATIENCE", 60.0)
    assert len(every(pages)) == 240 + 3 + 2


def every(pages: prices.Pages) -> list[str]:
    """The starts of a list, as EMHASS gets it."""
    page = pages.page("/v1/emhass", "elm-street")
    assert page is not None
    return list(json.loads(page.body)["load_cost_forecast"])


# Home Assistant's schema of an MQTT sensor, by the names of its documentation (2026.4), and the one
# that gave an entity its id before 2025.10
SENSOR = {
    "availability", "availability_mode", "availability_template", "availability_topic",
    "default_entity_id", "device", "device_class", "enabled_by_default", "encoding",
    "entity_category", "entity_picture", "expire_after", "force_update", "icon",
    "json_attributes_template", "json_attributes_topic", "last_reset_value_template", "name",
    "object_id", "options", "origin", "payload_available", "payload_not_available", "platform",
    "qos", "state_class", "state_topic", "suggested_display_precision", "unique_id",
    "unit_of_measurement", "value_template",
}  # fmt: skip


def test_discovery_has_what_home_assistant_knows() -> None:
    config = found_by_discovery()
    assert set(config) <= SENSOR
    assert set(config["device"]) <= {"identifiers", "name", "manufacturer", "model", "sw_version"}
    assert re.fullmatch(r"sensor\.[a-z0-9_]+", config["default_entity_id"])
    assert isinstance(config["expire_after"], int)
