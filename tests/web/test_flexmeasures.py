"""Sensor data as FlexMeasures takes them: equal distances, a duration, a unit of price."""

from __future__ import annotations

from datetime import datetime

from hushgrid.web.feeds import JSON, Series
from hushgrid.web.flexmeasures import FEED, sensor_data
from tests.curator.worlds import START
from tests.web.http.faces import Face
from tests.web.releases import release


def test_values_are_the_totals_of_the_list_at_equal_distances() -> None:
    face = Face()
    face.clock.wall = START + 900 * 6 + 10
    for i in range(6):
        face.history.publish(face.zone, release(i))
    rows = face.call("GET", "/v1/prices").json()
    every = sorted(rows["published"] + rows["forecast"], key=lambda row: row["start"])
    answer = face.call("GET", FEED.path)
    assert answer.headers["content-type"] == JSON
    found = answer.json()
    assert found["values"] == [row["total"] for row in every]
    assert (found["start"], found["unit"]) == (every[0]["start"], "EUR/kWh")
    # by its rule the distance is the duration over the number of values
    seconds = int(found["duration"].removeprefix("PT").removesuffix("S"))
    assert seconds / len(found["values"]) == 900
    end = datetime.fromisoformat(every[-1]["end"])
    assert (end - datetime.fromisoformat(found["start"])).total_seconds() == seconds


def test_a_gap_is_null_and_no_price_no_start() -> None:
    face = Face()
    later = START + 900 * 7
    for i, start in ((0, START + 1800), (5, later)):
        face.history.publish(face.zone, release(i, applies_start=start))
    found = face.call("GET", f"{FEED.path}?from=2020-01-01T00:00:00Z").json()
    assert None not in found["values"], "lists have no gap"
    series = Series("z", "EUR", 900, True, "", (), None)
    assert sensor_data(series) == b'{"values":[],"start":null,"duration":"PT0S","unit":"EUR/kWh"}'
