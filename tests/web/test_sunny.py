"""A zone whose homes export, as it runs: signed readings in, two prices out, and its audit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hushgrid import Policy, Tariff
from hushgrid.audit.certificate import Certificate, certify
from hushgrid.cli.ledger import export
from hushgrid.curator.promise import promise_json
from hushgrid.files.deployment import ZoneService
from hushgrid.model.zone import FeedIn, Zone, feed_in_rate, public_rate
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.stores.ledger import open_store
from hushgrid.web.feeds import discovery
from hushgrid.web.http.metrics import Metrics
from hushgrid.web.http.models import PromiseTerms
from hushgrid.web.mqtt import MqttPrices
from hushgrid.web.openadr.events import event_of, forecast_event, program_of
from tests.audit import zones
from tests.curator.curators import Shown, curator, everyone, feed
from tests.curator.setups import BEGINS, reading, service
from tests.curator.worlds import service as small
from tests.stores.ledger.ledgers import lines_of
from tests.web.guides import FEEDS, blocks, read_by_evcc
from tests.web.http.faces import Face
from tests.web.openadr.judge import check_as
from tests.web.releases import release

EXPORT = 40  # [Wh], of readings from -50 Wh on
FEED_IN = FeedIn(alpha=0.5, beta=1.0, floor=-1.0, cap=2.0)


def with_feed_in(zone: ZoneService) -> ZoneService:
    s = zone.scenario
    return replace(zone, scenario=replace(s, tariff=replace(s.tariff, feed_in=FEED_IN)))


def sunny(**more: Any) -> ZoneService:
    return with_feed_in(service(export=EXPORT, **more))


def net_loads(zone: ZoneService, t: int) -> int:
    houses = everyone(zone)
    return sum(min(max(reading(house, t), -EXPORT), 1000) for house in houses)


def ran(folder: Path, zone: ZoneService) -> list[dict[str, Any]]:
    """Six intervals, a restart among them, the last without readings; the recorded bodies."""
    for first in (0, 3):
        with curator(folder, zone, Shown(), now=BEGINS + first * 900) as it:
            for i in range(3):
                if first + i < 5:
                    feed(it, it.t, everyone(zone))
                it.run(it.next_due())
    with open_store(str(folder / "ledger.db"), create=False) as store:
        return [dict(one.body) for one in store.records(zone.id) if one.kind == "release"]


def audited(folder: Path, zone: ZoneService) -> Certificate:
    path = folder / "ledger.ndjson"
    export(str(folder / "ledger.db"), out=str(path))
    evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
    return certify(evidence, [terms_of(zone)], chain=chain)


@pytest.mark.parametrize("publish", ["raw", "estimate"])
def test_the_price_of_signed_readings_is_on_record_and_passes_its_audit(
    tmp_path: Path, publish: Any
) -> None:
    zone = sunny(policy=Policy(0.5, horizon=2_000, publish=publish))
    bodies, tariff = ran(tmp_path, zone), zone.scenario.tariff
    assert [body["source"] for body in bodies] == ["readings"] * 5 + ["forecast"]
    for body in bodies[:5]:
        load = body["load_hat"] if publish == "raw" else body["estimate"]
        assert body["offset"] == 6 * EXPORT
        net = load - 6 * EXPORT
        assert body["rate"] == pytest.approx(max(2.0 + net / 1000, 0.0))
        assert body["feed_in"] == pytest.approx(min(max(1.0 + 0.5 * net / 1000, -1.0), 2.0))
        assert abs(body["load_hat"] - 6 * EXPORT - net_loads(zone, body["t"])) < 40 * body["scale"]
    forecast = bodies[5]
    assert forecast["offset"] == 6 * EXPORT
    assert forecast["feed_in"] == feed_in_rate(forecast["estimate"], tariff)
    found = audited(tmp_path, zone)
    assert [one.id for one in found.checks if one.status == "failed"] == []


@pytest.mark.parametrize("publish", ["raw", "estimate"])
def test_a_clamp_may_cut_more_below_than_above(tmp_path: Path, publish: Any) -> None:
    """What is put back is then less than 0: readings end at 0 Wh where homes export 400 Wh."""
    policy = Policy(0.5, horizon=2_000, publish=publish, clamp=((400, 1_350),))
    zone = with_feed_in(service(export=400, policy=policy))
    bodies = ran(tmp_path, zone)
    assert [body["source"] for body in bodies] == ["readings"] * 5 + ["forecast"]
    assert all(body["put_back"] < -100 for body in bodies[:5])
    found = audited(tmp_path, zone)
    assert [one.id for one in found.checks if one.status == "failed"] == []


def test_a_missing_home_counts_as_expected_not_as_exporting_all(tmp_path: Path) -> None:
    """With no noise worth the name the load shows what was put in for it."""
    zone = service(n=2, export=400, policy=Policy(1e6, horizon=9, min_scale=0.1))
    with curator(tmp_path, zone, Shown()) as it:
        feed(it, it.t, [0])
        (made,) = it.run(it.next_due())
        expected = int(it._expectations.at(1)[1])
    assert expected == 325, "the mean of 150 and 500 Wh, at home or not with equal chances"
    assert abs(made.load_hat - (max(reading(0, made.t), -400) + 400) - expected) < 10


def test_readings_outside_their_limits_are_counted_at_both_ends() -> None:
    face, zone = Face(), small("elm-street", export=300)
    from hushgrid.curator.ingest import Ingest

    ingest = Ingest([zone], face.meters)
    start, rows = zone.begins, [-301, -300, -1, 1000, 1001]
    from hushgrid.intake.readings import Parsed, Readings

    ids = list(zone.meters[:5])
    got = ingest.take(Parsed(Readings.of(ids, [start] * 5, [900] * 5, rows), 0, ()))
    assert (got.accepted, got.clamped) == (5, 2)
    interval = face.meters.get(zone.id, start)
    assert interval.wh.tolist() == [*rows, 0], "a store keeps readings as they came"


@pytest.mark.parametrize("name", ["feed_in", "offset"])
def test_another_figure_on_record_fails_the_audit(tmp_path: Path, name: str) -> None:
    plain = zones.terms()
    zone = Zone("elm", plain.zone.bound, [200] * 5)
    tariff = replace(plain.tariff, feed_in=FEED_IN, floor=-100.0)
    given = zones.named(replace(plain, zone=zone, tariff=tariff))

    def verdict(change: Any) -> set[str]:
        path = tmp_path / "ledger.ndjson"
        path.write_bytes(lines_of(zones.ledger(given, zones.releases(given, change=change))))
        evidence, chain = load_ledger(str(path), zone=None, key=None, heads=())
        found = certify(evidence, [given], chain=chain)
        return {one.id for one in found.checks if one.status == "failed"}

    assert verdict(None) == set()
    wrong = lambda _, one: replace(one, **{name: getattr(one, name) + 1})  # noqa: E731
    assert verdict(wrong) == {"post_processing"}


def test_both_prices_are_in_every_feed() -> None:
    face = Face()
    zone = with_feed_in(face.zone)
    face.history.zones[zone.id] = zone
    face.history._forecasters[zone.id]._zone = zone
    face.clock.wall = zone.begins + 900 * 6 + 10
    for i in range(6):
        face.history.publish(zone, release(i, feed_in=0.05 + i / 100))
    found = face.call("GET", "/v1/price").json()
    assert (found["feed_in"], found["next"]["feed_in"]) == pytest.approx((0.09, 0.1))
    prices = face.call("GET", "/v1/prices").json()
    assert [one["feed_in"] for one in prices["published"]] == pytest.approx(
        [0.05 + i / 100 for i in range(6)]
    )
    assert all("feed_in" in one for one in prices["forecast"])
    costs = face.call("GET", "/v1/emhass").json()
    assert list(costs["prod_price_forecast"]) == list(costs["load_cost_forecast"])
    head, first, *_ = face.call("GET", "/v1/prices.csv").text.splitlines()
    assert head == "start,end,price,currency,kind,total,feed_in"
    assert float(first.rpartition(",")[2]) == prices["forecast"][0]["feed_in"]


def test_evcc_gets_the_feed_in_price() -> None:
    """By the block of the guide, whose paths are asked here without a network."""
    both, price = (
        yaml.safe_load(text.replace("http://HOST:8080", ""))["tariffs"]
        for text in blocks(FEEDS, "yaml")
        if "tariffs" in text
    )
    face = Face()
    zone = with_feed_in(face.zone)
    face.history.zones[zone.id] = zone
    face.history._forecasters[zone.id]._zone = zone
    face.clock.wall = zone.begins + 900 * 2 + 10
    face.history.publish(zone, release(0, feed_in=-0.05))
    found = face.call("GET", read_by_evcc(price["grid"])["uri"]).json()
    assert found["feed_in"] == -0.05, "`jq: .feed_in`, as the guide says"
    assert "`jq: .feed_in`" in FEEDS
    paid, given = (
        face.call("GET", read_by_evcc(both[name])["uri"]).json() for name in ("grid", "feedin")
    )
    assert [row["start"] for row in paid] == [row["start"] for row in given]
    (row,) = (row for row in given if row["start"] == found["start"])
    assert row["value"] == -0.05
    expected = {
        row["start"]: row["feed_in"] for row in face.call("GET", "/v1/prices").json()["forecast"]
    }
    assert all(row["value"] == expected[row["start"]] for row in given if row["start"] in expected)
    assert len(expected) >= 96


def test_the_promise_and_the_figures_state_the_feed_in_price() -> None:
    zone = with_feed_in(small("elm-street", export=300))
    found = promise_json(zone, "simulation")
    assert found["tariff"]["feed_in"] == {"alpha": 0.5, "beta": 1.0, "floor": -1.0, "cap": 2.0}
    assert found["readings_wh"] == {"low": -300, "high": 1000}
    PromiseTerms.model_validate(found)
    plain = promise_json(small("elm-street"), "simulation")
    assert "readings_wh" not in plain
    assert "feed_in" not in plain["tariff"]
    metrics = Metrics()
    metrics.priced(zone, {"price": 0.2, "total": 0.3, "feed_in": -0.05})
    assert b'hushgrid_price_feed_in{zone="elm-street"} -0.05\n' in metrics.text()


def test_openadr_states_the_export_price() -> None:
    zone = with_feed_in(small("elm-street"))
    event = event_of(zone, release(1, feed_in=0.07))
    coming = [{"start": "2025-06-15T15:45:00Z", "price": 0.2, "total": 0.2, "feed_in": 0.06}]
    ahead = forecast_event(zone, coming, zone.begins)
    for made, rate in ((event, 0.07), (ahead, 0.06)):
        assert made["intervals"][0]["payloads"][-1] == {"type": "EXPORT_PRICE", "values": [rate]}
        assert made["payloadDescriptors"][-1]["payloadType"] == "EXPORT_PRICE"
        check_as("event", made)
    assert program_of(zone)["payloadDescriptors"] == event["payloadDescriptors"]


def test_home_assistant_gets_a_second_sensor() -> None:
    zone = with_feed_in(small("elm-street"))
    topics = ("prices/elm-street", "prices/elm-street/forecast", "prices/available/curator")
    (topic, text), (other, second) = (
        discovery(zone, "homeassistant", *topics, feed_in=feed_in) for feed_in in (False, True)
    )
    assert topic != other
    one, two = json.loads(text), json.loads(second)
    assert two["value_template"] == "{{ value_json.feed_in }}"
    assert two["unique_id"] == f"{one['unique_id']}_feed_in"
    assert two["device"] == one["device"]

    class Wire(MqttPrices):
        def __init__(self) -> None:
            self._topic, self._prefix, self._last = "prices/{zone}", "homeassistant", {}
            self._connections, self._available, self.out = 1, "here", list[str]()

        def send(self, topic: str, text: str, *, retain: bool = False) -> None:
            self.out.append(topic)

    for given, sensors in ((zone, 2), (small("elm-street"), 1)):
        wire = Wire()
        from hushgrid.web.prices import PresentPrices

        wire.show(given, PresentPrices({"next": None}, lambda: None))
        assert sum("homeassistant" in topic for topic in wire.out) == sensors


def test_a_feed_in_rate_has_limits_of_its_own() -> None:
    tariff = Tariff(1.0, 2.0, floor=-5.0, feed_in=FEED_IN, offset=1000)
    for net in (-10_000, -3000, 0, 1500, 9000):
        assert public_rate(net + 1000, tariff) == pytest.approx(max(2.0 + net / 1000, -5.0))
        due = min(max(1.0 + 0.5 * net / 1000, -1.0), 2.0)
        assert feed_in_rate(net + 1000, tariff) == pytest.approx(due)
    assert feed_in_rate(None, tariff) == 1.0
    assert feed_in_rate(7, Tariff(1.0, 2.0)) is None
