"""A zone that publishes prices ahead: the price of now is the listed one on every public way."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hushgrid.curator.clock import utc
from hushgrid.files.zone_file import PricesAhead
from hushgrid.model.zone import FeedIn
from tests.curator.worlds import service
from tests.web.running import GRACE, SECONDS, Running, Wall, running

pytestmark = pytest.mark.usefixtures("loop_patience")
ZURICH = ZoneInfo("Europe/Zurich")


def local(day: int, hour: int, minute: int = 0) -> int:
    """An instant about the end of summer time, 25 October 2026."""
    return int(datetime(2026, 10, day, hour, minute, tzinfo=ZURICH).timestamp())


BEGINS = local(24, 17)
ENDS = local(26, 2)


def feeds_at(it: Running, start: str) -> dict[str, Any]:
    """The price of an interval in each shape, in currency/kWh."""
    prices = it.get("/v1/prices")
    published = [p["price"] for p in prices["published"] if p["start"] == start]
    assert start not in {p["start"] for p in prices["forecast"]}
    evcc = [row["value"] for row in it.get("/v1/evcc") if row["start"] == start]
    octopus = it.get("/v1/octopus")["results"]
    rates = [row["value_inc_vat"] / 100 for row in octopus if row["valid_from"] == start]
    costs = [it.get("/v1/emhass")["load_cost_forecast"][start]]
    return {"prices": published, "evcc": evcc, "octopus": rates, "emhass": costs}


def test_the_listed_price_holds_over_two_midnights_and_a_clock_change(tmp_path: Path) -> None:
    zone = {"begins": BEGINS, "ahead": PricesAhead(1, 18 * 3600), "time_zone": "Europe/Zurich"}
    clock, polls, wrong = Wall(BEGINS), 0, 0
    with running(tmp_path, clock, zone=zone) as it:
        for border in range(BEGINS, ENDS, SECONDS):
            it.at(border + 0.5)
            present = it.at(border + GRACE + 0.5)
            (curator,) = (run.curator for run in it.process._zones)
            assert curator is not None
            lists = curator.lists
            listed = {
                first + i * SECONDS: (rate, record.head)
                for record in lists
                for first in (record.first,)
                for i, rate in enumerate(record.rates)
            }
            if border in listed:
                due = ("published", "ahead", *listed[border])
                polls += 1
                wrong += due != tuple(present[name] for name in ("kind", "source", "price", "head"))
            else:
                assert border < local(25, 0), "an interval of a listed day is not in a list"
                assert present["source"] in ("readings", "forecast")
            if border % 10_800 == 0 and border in listed:
                prices = feeds_at(it, utc(border))
                assert all(
                    values == [pytest.approx(present["price"])] for values in prices.values()
                ), prices
                (event,) = it.get("/openadr3/3.1.0/events?programID=elm-street&active=true")
                place = (border - lists_start(lists, border)) // SECONDS
                assert event["intervals"][place]["payloads"][0]["values"] == [present["price"]]
                assert it.get(f"/openadr3/3.1.0/events/{event['id']}") == event
        assert (polls, wrong) == ((ENDS - local(25, 0)) // SECONDS, 0)
        assert [len(record.rates) for record in lists] == [100, 96]
        assert [record.published_at for record in lists] == [local(24, 18), local(25, 18)]
        # what will be in force is published already; nothing of it is expected
        answer = it.get("/v1/prices")
        last = answer["published"][-1]["end"]
        assert last == utc(local(27, 0))
        assert all(price["start"] >= last for price in answer["forecast"])
        starts = [row["start"] for row in it.get("/v1/evcc")]
        assert len(starts) == len(set(starts))


def lists_start(lists: Any, start: int) -> int:
    """When the list that has an interval begins."""
    return max(int(record.first) for record in lists if record.first <= start)


def test_a_zone_that_feeds_in_lists_both_prices(tmp_path: Path) -> None:
    scenario = service().scenario
    scenario = replace(scenario, tariff=replace(scenario.tariff, feed_in=FeedIn(0.5, 10.0)))
    zone = {
        "begins": BEGINS,
        "ahead": PricesAhead(1, 17 * 3600 + 900),
        "time_zone": "Europe/Zurich",
        "scenario": scenario,
    }
    clock = Wall(BEGINS)
    with running(tmp_path, clock, zone=zone) as it:
        for border in (BEGINS, BEGINS + SECONDS, BEGINS + 2 * SECONDS):
            it.at(border + GRACE + 0.5)
        prices = [p for p in it.get("/v1/prices")["published"] if p["source"] == "ahead"]
        assert len(prices) == 100
        assert all("feed_in" in price for price in prices)
