"""Prices as each consumer reads them, field by field; what is expected; what may be kept."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Policy
from hushgrid.curator.clock import utc
from hushgrid.files.settings import Charges
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.web import prices as pages_module
from hushgrid.web.feeds import (
    Feed,
    Guess,
    PriceRange,
    discovery,
    latest_by_interval,
    object_id,
    series,
)
from hushgrid.web.forecast import NOTHING, Forecaster
from hushgrid.web.http.prices import feeds
from hushgrid.web.prices import History, Pages
from tests.curator.worlds import START, service
from tests.web.http.faces import Face, Still, refused
from tests.web.releases import T, release

FEEDS = feeds()
WITH_RANGE = [feed.path for feed in FEEDS if feed.shape is not None and feed.query is None]


@pytest.fixture
def face() -> Face:
    made = Face()
    made.clock.wall = START + 900 * 6 + 10  # the fifth price holds, the sixth is the next one
    for i in range(6):
        made.history.publish(made.zone, release(i))
    return made


BEFORE = 2  # intervals before the first release's, whose prices were expected ones


def at(i: int) -> str:
    """The instant the i-th release's price begins, written here on its own."""
    return datetime.fromtimestamp(START + 900 * (i + 2), UTC).isoformat().replace("+00:00", "Z")


# the shapes of FIELD.md, "Price consumers"


def test_price_has_what_consumers_read(face: Face) -> None:
    found = face.call("GET", "/v1/price").json()
    assert set(found) == {
        "zone", "start", "end", "price", "total", "currency", "rule", "source", "kind",
        "simulated", "head", "signature", "next",
    }  # fmt: skip
    assert (found["price"], found["start"], found["end"]) == (0.14, at(4), at(5))
    following = found["next"]
    assert set(following) == set(found) - {"next"}
    assert (following["price"], following["start"], following["end"]) == (0.15, at(5), at(6))


@pytest.mark.parametrize("feed", [one for one in FEEDS if one.model], ids=lambda one: one.path)
def test_what_is_kept_as_bytes_is_what_its_model_describes(face: Face, feed: Feed) -> None:
    answer = face.call("GET", feed.path)
    feed.model.model_validate_json(answer.content, strict=True)


def test_evcc_reads_start_end_value(face: Face) -> None:
    found = face.call("GET", "/v1/evcc").json()
    assert isinstance(found, list)
    assert all(set(one) == {"start", "end", "value"} for one in found)
    assert found[BEFORE] == {"start": at(0), "end": at(1), "value": 0.1}
    assert [one["start"] for one in found] == [at(i) for i in range(-BEFORE, 6 + 96)]
    assert all(one["end"] == after["start"] for one, after in pairwise(found))
    assert all(isinstance(one["value"], float) for one in found)


def test_emhass_reads_costs_by_time(face: Face) -> None:
    found = face.call("GET", "/v1/emhass").json()
    assert set(found) == {"load_cost_forecast"}
    costs = found["load_cost_forecast"]
    assert list(costs) == [at(i) for i in range(-BEFORE, 6 + 96)]
    assert costs[at(2)] == 0.12
    assert all(datetime.fromisoformat(time).utcoffset() is not None for time in costs)


def test_octopus_tools_read_the_newest_first(face: Face) -> None:
    found = face.call("GET", "/v1/octopus").json()
    assert {"count", "results"} <= set(found)
    assert found["next"] is found["previous"] is None
    results = found["results"]
    assert found["count"] == len(results) == BEFORE + 6 + 96
    assert all(
        set(one) == {"value_exc_vat", "value_inc_vat", "valid_from", "valid_to"} for one in results
    )
    assert results[-1 - BEFORE] == {
        "value_exc_vat": 10.0, "value_inc_vat": 10.0, "valid_from": at(0), "valid_to": at(1),
    }  # fmt: skip
    times = [one["valid_from"] for one in results]
    assert times == sorted(times, reverse=True)
    own = face.call("GET", f"/v1/octopus?period_from={at(1)}&period_to={at(3)}&page_size=1").json()
    assert [one["valid_from"] for one in own["results"]] == [at(1)]


def test_prices_tell_the_published_from_the_expected(face: Face) -> None:
    found = face.call("GET", "/v1/prices").json()
    assert set(found) == {
        "zone", "currency", "unit", "interval_s", "simulated", "head", "published", "forecast",
        "next",
    }  # fmt: skip
    assert [one["start"] for one in found["published"]] == [at(i) for i in range(6)]
    expected = [*range(-BEFORE, 0), *range(6, 6 + 96)]
    assert [one["start"] for one in found["forecast"]] == [at(i) for i in expected]
    first = found["published"][1]
    low, high = first.pop("low"), first.pop("high")
    own = {"start": at(1), "end": at(2), "price": 0.11, "total": 0.11, "source": "readings"}
    assert first == own
    # by hand: load_hat 3050 Wh, scale 400 Wh, and 1 EUR/kWh for each kWh above 62.5
    assert high - low == pytest.approx(2 * 0.4 * math.log(20), rel=1e-6)
    assert (low + high) / 2 == pytest.approx(62.5 + 3.05, rel=1e-9)
    assert all(one["low"] < one["price"] < one["high"] for one in found["forecast"])
    assert found["unit"] == "EUR/kWh"


def test_the_table_says_the_same(face: Face) -> None:
    answer = face.call("GET", "/v1/prices.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    found = face.call("GET", "/v1/prices").json()
    assert [(r["start"], r["end"], float(r["price"])) for r in rows] == [
        (one["start"], one["end"], one["price"])
        for one in sorted(found["published"] + found["forecast"], key=lambda one: one["start"])
    ]
    assert [r["kind"] for r in rows] == (
        ["forecast"] * BEFORE + ["published"] * 6 + ["forecast"] * 96
    )
    assert {r["currency"] for r in rows} == {"EUR"}


def test_home_assistant_is_told_by_discovery() -> None:
    zone = service("elm-street")
    topics = ("prices/elm-street", "prices/elm-street/forecast", "prices/available/curator")
    topic, text = discovery(zone, "homeassistant", *topics)
    assert topic == "homeassistant/sensor/hushgrid_elm-street/config"
    said = json.loads(text)
    names = ("state_topic", "json_attributes_topic", "availability_topic")
    assert tuple(said[name] for name in names) == topics
    assert said["default_entity_id"] == "sensor.hushgrid_elm_street"
    assert said["object_id"] == "hushgrid_elm_street", "for Home Assistant before 2025.10"
    assert said["expire_after"] == 960, "a minute after the border"
    assert said["state_class"] == "measurement"
    assert said["value_template"] == "{{ value_json.total }}"
    assert said["unit_of_measurement"] == "EUR/kWh"
    assert said["unique_id"] in said["device"]["identifiers"]
    names = [object_id(name) for name in ("a b", "a_b", "a/b", "a#b", "ä+b")]
    assert len(set(names)) == 5
    assert all(set(name) <= set("hushgrid_ab0123456789cdef-") for name in names)


# ranges


def test_a_range_holds_what_starts_in_it(face: Face) -> None:
    url = f"/v1/prices?from={at(2)}&to={at(8)}"
    found = face.call("GET", url).json()
    assert [one["start"] for one in found["published"]] == [at(2), at(3), at(4), at(5)]
    assert [one["start"] for one in found["forecast"]] == [at(6), at(7)]
    past = face.call("GET", f"/v1/prices?to={at(3)}").json()
    assert (len(past["published"]), len(past["forecast"])) == (3, BEFORE)
    empty = face.call("GET", "/v1/prices?from=2019-01-01T00:00:00Z&to=2019-01-02T00:00:00Z").json()
    assert (empty["published"], empty["forecast"], empty["next"]) == ([], [], None)
    for text in ("2025-06-15T16:15Z", "2025-06-15T18:15+02:00", "2025-06-15T16:15:00.0Z"):
        some = face.call("GET", "/v1/prices", params={"from": text}).json()
        assert some["published"][0]["start"] == "2025-06-15T16:15:00Z"
    summer = face.call("GET", "/v1/prices", params={"from": "2025-06-15T18:15:00+02:00"}).json()
    assert summer["published"][0]["start"] == "2025-06-15T16:15:00Z"


def test_a_limit_says_where_to_go_on(face: Face) -> None:
    seen, url = [], f"/v1/prices?limit=4&to={at(9)}"
    following: str | None = at(-BEFORE)
    while following is not None:
        found = face.call("GET", f"{url}&from={following}").json()
        assert len(found["published"]) + len(found["forecast"]) <= 4
        seen += [one["start"] for one in found["published"] + found["forecast"]]
        following = found["next"]
    assert sorted(seen) == [at(i) for i in range(-BEFORE, 9)]


@pytest.mark.parametrize("path", WITH_RANGE)
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=yesterday", "from"),
        ("from=2025-06-15T16:15:00", "from"),
        ("to=2025-13-01T00:00:00Z", "to"),
        ("to=", "to"),
        ("from=2025-06-15T16:15:00Z&to=2025-06-15T16:00:00Z", "to"),
        ("from=1969-01-01T00:00:00Z", "from"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=1e3", "limit"),
        ("limit=10001", "limit"),
        ("limit=٣", "limit"),
        ("limit=%00", "limit"),
        (f"from={'9' * 3000}", "from"),
    ],
)
@pytest.mark.sampled
def test_a_bad_parameter_is_named_with_its_value_and_the_fix(
    face: Face, path: str, query: str, field: str
) -> None:
    answer = face.call("GET", f"{path}?{query}")
    said = refused(answer, 400)
    told = answer.json()
    assert told["field"] == field
    assert said.startswith(f"{field} is ")
    assert said.endswith(told["fix"])
    assert len(answer.content) < 600, "a long value is cut"


@pytest.mark.parametrize("text", ["0.5", "1750000500", "-1", "1e9"])
def test_a_number_is_no_instant(face: Face, text: str) -> None:
    for field in ("from", "to"):
        said = refused(face.call("GET", f"/v1/prices?{field}={text}"), 400)
        assert said.startswith(f"{field} is '{text}'")
        assert "such as 2026-01-31T12:00:00Z" in said


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=10))
def test_no_parameter_breaks_a_feed(since: str, until: str, limit: str) -> None:
    params = {"from": since, "to": until, "limit": limit}
    answer = FACE.call("GET", "/v1/prices", params=params)
    assert answer.status_code in (200, 400)


FACE = Face()
FACE.history.publish(FACE.zone, release(0))


# what holds


def test_of_several_prices_for_an_interval_the_newest_holds() -> None:
    """After an outage intervals are published together, all for the next one."""
    face = Face()
    late = START + 900 * 9
    for i, start in ((0, START + 1800), (4, late), (5, late), (6, late), (7, late + 900)):
        face.history.publish(face.zone, release(i, applies_start=start))
    found = face.call("GET", "/v1/evcc").json()
    starts = [one["start"] for one in found]
    assert len(starts) == len(set(starts))
    assert starts == sorted(starts)
    values = {one["start"]: one["value"] for one in found}
    assert values[utc(late)] == 0.16  # of release 6
    assert values[utc(late + 900)] == 0.17
    assert starts == [utc(START + 900 * i) for i in range(len(starts))], "no gap in between"
    rows = face.call("GET", "/v1/prices").json()
    assert [r["start"] for r in rows["published"]] == [
        utc(s) for s in (START + 1800, late, late + 900)
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=30), st.data())
def test_a_series_is_ordered_limited_and_within(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    applies, releases = START, [release(0, applies_start=START)]
    for i, (later, _) in enumerate(gaps):
        applies += 900 * later
        releases.append(release(i + 1, applies_start=applies))
    guesses = [Guess(applies + 900 * k, 0.3) for k in range(1, 5)]
    since = data.draw(st.none() | st.integers(START - 9000, applies + 9000))
    until = data.draw(st.none() | st.integers(START - 9000, applies + 9000))
    span = PriceRange(since, until, data.draw(st.integers(1, 40)))
    found = series(service(), releases[-1], releases, guesses, span)
    starts = [entry.start for entry in found.entries]
    assert starts == sorted(set(starts))
    assert len(starts) <= span.limit
    assert all(since is None or since <= start for start in starts)
    assert all(until is None or start < until for start in starts)
    last = {one.applies_start: one.rate for one in releases}
    assert all(entry.forecast or entry.rate == last[entry.start] for entry in found.entries)
    assert found.following is None or found.following > starts[-1]
    assert len(latest_by_interval(releases)) == len(last)


# the forecast


def curator_public(zone: Any, releases: list[ReleaseRecord]) -> Any:
    """What the public knows, folded here on its own with estimate.Public."""
    from hushgrid.belief.estimate import PublicKnowledge

    scenario = zone.scenario
    public = PublicKnowledge.start(scenario.models, scenario.consumption, clamp=zone.policy.clamp)
    known = {one.t: one for one in releases}
    rates: list[float] = []
    for t in range(zone.begins // zone.seconds, releases[-1].t + 1):
        one = known.get(t)
        if one is not None and one.source == "readings":
            public = public.after(one.load_hat or 0, one.scale, rates)
        else:
            public = public.passed()
        rates.append(one.rate if one else rates[-1] if rates else zone.fallback_rate)
    return public, rates


@pytest.mark.parametrize("clamp", [(), (700,)])
def test_a_forecast_is_the_rate_of_the_load_the_public_expects(clamp: tuple[int, ...]) -> None:
    policy = Policy(0.5, horizon=500, eta=0.3, clamp=clamp, publish="estimate")
    zone = service(policy=policy)
    releases = [
        release(0), release(1), release(2, source="forecast", load_hat=None),
        release(5), release(6),
    ]  # fmt: skip
    step_by_step = Forecaster(zone)
    for i in range(len(releases)):
        known = step_by_step.after(releases[: i + 1])
    at_once = Forecaster(zone).after(releases)
    assert known == at_once
    assert Forecaster(zone).after(releases) is not at_once
    assert step_by_step.after(releases) is known, "once for a release"
    found = known.guesses
    public, rates = curator_public(zone, releases)
    for ahead in (0, 1, 40, 95):
        law = public.predicted(rates, ahead)
        load = float(np.sum(law.weights * law.mean))
        tariff = zone.scenario.tariff
        rate = tariff.beta + tariff.alpha * (load + tariff.inelastic) / 1000
        assert found[ahead].rate == pytest.approx(rate, rel=1e-9)
        assert found[ahead].start == releases[-1].applies_start + 900 * (ahead + 1)
    assert len(found) == 96


def test_a_forecast_is_smoothed_as_the_releases_are() -> None:
    """What follows the last published price keeps its share of it, step by step."""
    rough, zone = service(), service()
    tariff = replace(zone.scenario.tariff, smooth=0.6)
    zone = replace(zone, scenario=replace(zone.scenario, tariff=tariff))
    releases = [release(0), release(1, source="forecast", load_hat=None), release(2)]
    last, found = releases[-1].rate, Forecaster(zone).after(releases).guesses
    for own, one in zip(Forecaster(rough).after(releases).guesses, found, strict=True):
        last = 0.6 * last + 0.4 * own.rate
        assert one.rate == pytest.approx(last, rel=1e-12)
        assert one.within == own.within, "the optimal rate is where it was"


def test_the_first_expected_prices_are_those_of_the_whole_forecast() -> None:
    """The price in force needs few of them: a service of many zones starts sooner."""
    zone, releases = service(), [release(0), release(1)]
    whole, some = Forecaster(zone), Forecaster(zone)
    start = releases[-1].applies_start + 900
    for one in (releases[:1], releases):
        found = some.after(one, 0, start + 2700)
    assert found.guesses == whole.after(releases).guesses[:3]
    assert some.forecast == NOTHING, "what is shown while a forecast is being made is a whole one"
    assert some.after(releases) == whole.forecast

    early = zone.begins + 900 * 40
    for now in (early, early + 900, early + 4500, early - 900):  # the clock may be set back
        begins = some.after([], now, now + 1800)
        some_at_once = Forecaster(zone).after([], now)
        assert begins.guesses == some_at_once.guesses[:2]


def test_a_forecast_learns_from_what_is_published() -> None:
    zone = service()
    low = Forecaster(zone).after([release(i, load_hat=1500, scale=50.0) for i in range(30)])
    high = Forecaster(zone).after([release(i, load_hat=5500, scale=50.0) for i in range(30)])
    assert high.guesses[0].rate > low.guesses[0].rate


@pytest.mark.parametrize("publish", ["raw", "estimate"])
def test_releases_of_the_last_intervals_have_ranges_whenever_they_were_folded(
    publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an answer would differ after a restart, under the same tag."""
    monkeypatch.setattr("hushgrid.web.forecast.RANGED", 30)
    zone = service(policy=Policy(0.5, publish=publish))
    releases = [release(i, scale=2000.0) for i in range(40)]
    at_once, later = Forecaster(zone), Forecaster(zone)
    for n in (1, 20, 30, 40):
        later.after(releases[:n])
    found = at_once.after(releases)
    assert list(found.ranges) == [T + i for i in range(10, 40)]
    assert later.after(releases) == found


def test_without_a_usable_model_the_forecast_is_the_fallback() -> None:
    zone = service(fallback_rate=0.31)
    found = Forecaster(zone).after([release(0), release(1, source="fallback", load_hat=None)])
    assert {guess.rate for guess in found.guesses} == {0.31}
    assert {guess.within for guess in found.guesses} == {None}
    assert set(found.ranges) == {T}, "a fallback has no range"
    for earlier in ([], [release(-5)]):  # before the week's first release
        found = Forecaster(zone).after(earlier, START)
        assert [guess.start for guess in found.guesses] == [START + 900 * i for i in range(96)]
        assert found.ranges == {}


# what may be kept


def test_answers_hold_until_the_next_release_is_due(face: Face) -> None:
    # the newest is of the interval that starts at START + 5 * 900; the next one closes 1800 later
    left = START + 5 * 900 + 1800 - (START + 900 * 6 + 10)
    for feed in FEEDS:
        answer = face.call("GET", feed.path)
        assert answer.headers["cache-control"] == f"public, max-age={left}"
    face.history.publish(face.zone, release(6))
    answer = face.call("GET", "/v1/prices")
    assert answer.headers["cache-control"] == f"public, max-age={left + 900}"
    answer = face.call("GET", "/v1/price")
    assert answer.headers["cache-control"] == f"public, max-age={left}", "then another one holds"
    face.clock.wall += 1800
    overdue = face.call("GET", "/v1/prices").headers["cache-control"]
    assert overdue == "public, max-age=1", "overdue"


@pytest.mark.parametrize("path", [feed.path for feed in FEEDS])
@pytest.mark.parametrize("query", ["", "?zone=elm-street", "?zone=elm-street&other=1"])
@pytest.mark.sampled
def test_nothing_new_is_304(face: Face, path: str, query: str) -> None:
    first = face.call("GET", path + query)
    tag = first.headers["etag"]
    assert tag[0] == tag[-1] == '"'
    assert release(5).head[:40] in tag
    for unless in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = face.call("GET", path + query, headers={"If-None-Match": unless})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
        assert again.headers["cache-control"] == first.headers["cache-control"]
        assert again.headers["x-content-type-options"] == "nosniff"
    other = face.call("GET", path + query, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)
    face.history.publish(face.zone, release(6))
    face.clock.wall += 900
    new = face.call("GET", path + query, headers={"If-None-Match": tag})
    assert new.status_code == 200
    assert new.content != first.content or (path, new.content) == ("/v1/evcc/feed_in", b"[]")
    assert new.headers["etag"] != tag


@pytest.mark.parametrize("changed", [{"digits": 2}, {"charges": Charges(fixed=(0.1,))}])
def test_another_presentation_is_not_304(face: Face, changed: dict[str, Any]) -> None:
    """After a restart with other digits or charges the ledger has the same head."""
    tags = []
    for zone in (face.zone, replace(face.zone, **changed)):
        history = History([zone])
        for i in range(6):
            history.publish(zone, release(i))
        page = Pages(history, FEEDS, face.clock).page("/v1/prices", zone.id)
        assert page is not None
        tags.append(page.etag)
    assert tags[0] != tags[1]
    assert tags[0] == face.call("GET", "/v1/prices").headers["etag"]


def test_a_body_is_made_once_for_a_release(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    body = Pages._body

    def counted(self: Pages, feed: Any, *rest: Any) -> Any:
        made.append(feed.path)
        return body(self, feed, *rest)

    monkeypatch.setattr(Pages, "_body", counted)
    for _ in range(5):
        for path in ("/v1/price", "/v1/prices", "/v1/prices?limit=3", "/v1/prices?limit=3&x=1"):
            face.call("GET", path)
    assert made == ["/v1/price", "/v1/prices", "/v1/prices"]


def test_the_memory_for_ranges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History([service()])
    history.publish(service(), release(0))
    found = Pages(history, FEEDS, Still())
    for i in range(pages_module.HELD + 50):
        found.page("/v1/evcc", "elm-street", PriceRange(START - i, None))
    assert len(found._pages["elm-street"][1]) == pages_module.HELD
    monkeypatch.setattr(pages_module, "LARGE", 10)
    fresh = Pages(history, FEEDS, Still())
    fresh.page("/v1/evcc", "elm-street", PriceRange(START, None))
    assert "elm-street" not in fresh._pages
    fresh.page("/v1/evcc", "elm-street")
    assert len(fresh._pages["elm-street"][1]) == 1, "the usual one is always kept"


def test_a_release_that_comes_while_a_body_is_made_is_in_it(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, done = Pages._body, []

    def overtaken(self: Pages, *rest: Any) -> Any:
        made = body(self, *rest)
        if not done:
            done.append(1)
            face.history.publish(face.zone, release(6))
        return made

    monkeypatch.setattr(Pages, "_body", overtaken)
    answer = face.call("GET", "/v1/prices")
    assert answer.json()["head"] == release(6).head
    assert release(6).head[:40] in answer.headers["etag"]


def test_head_is_get_without_a_body(face: Face) -> None:
    for feed in FEEDS:
        got, head = face.call("GET", feed.path), face.call("HEAD", feed.path)
        assert head.status_code == 200
        assert head.headers == got.headers
