"""What an operator sees: a real process with stores on disk, asked over HTTP."""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hushgrid import (
    Consumption,
    OccupancyModel,
    Policy,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    schedule,
    step,
)
from hushgrid.belief.filter import expected_readings, marginals
from hushgrid.curator import curator as curator_module
from hushgrid.curator.clock import utc
from hushgrid.curator.status import (
    NO_SIZE,
    WAITS,
    Inside,
    Status,
    explanation,
    from_service,
    status_of,
)
from hushgrid.errors import LedgerError, PolicyError
from hushgrid.files.deployment import ZoneService
from hushgrid.mechanism.policy import Blocks
from hushgrid.mechanism.release import prepare
from hushgrid.stores.ledger import open_store
from hushgrid.web.http.operator import ZoneHealth, alerts
from tests.curator.worlds import START, service
from tests.web.http.credentials import SECRET
from tests.web.http.desks import ELM, OAK, absent, desk, reading
from tests.web.releases import release


def load(zone: ZoneService, i: int) -> int:
    """The load by hand: cut, added up, a missing one at its public expectation."""
    scenario, total = zone.scenario, 0
    beliefs = marginals(scenario.models[0])
    belief = [next(beliefs) for _ in range(i + 1)][-1]
    guess = expected_readings(belief, scenario.models[0], scenario.consumption)
    for house, bound in enumerate(scenario.zone.bound.tolist()):
        wh = round(float(guess[house])) if absent(house, i) else reading(zone.id, house, i)
        total += min(max(wh, 0), bound)
    return total


# the load


@pytest.mark.parametrize("policy", [Policy(0.5, horizon=500), Policy(2.0, clamp=(700,))])
def test_the_load_and_its_rate_beside_what_was_published(tmp_path: Path, policy: Policy) -> None:
    zone = service(policy=policy)
    with desk(tmp_path, zone) as it:
        it.interval(5)
        found = it.zone()
        published = it.web.get("/v1/prices").json()["published"]
    first = START // 900
    for i, row in enumerate(found["series"]):
        assert row["load"] == load(zone, i)
        assert row["optimal"] == pytest.approx(62.5 + load(zone, i) / 1000)
        assert row["rate"] == published[i]["price"]
        assert (row["t"], row["start"]) == (first + i, utc(START + 900 * i))
        assert row["applies_from"] == published[i]["start"]
        assert row["missing"] == int(i == 2)
        assert row["source"] == "readings"
        assert row["load_hat"] != row["load"]
        assert row["put_back"] >= 0
    assert len(found["series"]) == 5
    assert (found["t"], found["houses"], found["interval_s"]) == (first + 4, 6, 900)
    assert found["missing"] == {"meters": 0, "share": 0.0}
    assert found["state"] == "publishing"
    assert found["now"] == utc(START + 4500)
    assert found["head"]


def test_each_load_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(tmp_path) as it:
        it.interval(4)
        asked: list[int] = []
        peek = it.process._meters.peek
        monkeypatch.setattr(
            it.process._meters, "peek", lambda z, start: (asked.append(start), peek(z, start))[1]
        )
        first = it.zone()["series"]
        assert asked == [START + 900 * i for i in range(4)]
        assert it.zone()["series"] == first
        assert len(asked) == 4
        it.interval()
        it.zone()
        assert asked[4:] == [START + 3600]


def test_loads_are_forgotten_with_the_readings(tmp_path: Path) -> None:
    """After the retention nobody can tell them, whether or not somebody asks."""
    with desk(tmp_path, service(retention=1800)) as it:
        it.interval(3)
        assert [row["load"] is None for row in it.zone()["series"]] == [True, False, False]
        known = it.process._loads._loads[ELM]
        assert set(known) == {START + 900, START + 1800}
        it.interval()
        assert set(known) == {START + 1800}, "nobody asked"
        rows = it.zone()["series"]
        assert [row["load"] is None for row in rows] == [True, True, False, False]
        assert [row["optimal"] is None for row in rows] == [True, True, False, False]
        assert it.process._meters.peek(ELM, START) is None
        pool = it.process._meters.open().engine.pool
        assert "Connections in pool: 0" not in pool.status(), "that is no fault of the store"


def test_after_a_restart_loads_come_from_the_store(tmp_path: Path) -> None:
    with desk(tmp_path) as it:
        it.interval(4)
        before = it.zone()["series"]
    with desk(tmp_path) as it:
        it.inner.wall = START + 3600.0
        assert it.zone()["series"] == before


def test_what_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(tmp_path) as it:
        it.interval(2)
        with monkeypatch.context() as patch:
            patch.setattr(it.process._meters, "peek", lambda *_: None)
            assert {row["load"] for row in it.zone()["series"]} == {None}
        assert {row["load"] for row in it.zone()["series"]} == {load(service(), i) for i in (0, 1)}


def test_only_operators_see_it_and_no_log_or_figure_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two worlds hold the whole of it; this is the short way to the numbers themselves."""
    caplog.set_level(logging.DEBUG, "hushgrid")
    with desk(tmp_path) as it:
        it.interval(3)
        loads = [str(row["load"]) for row in it.zone()["series"]]
        it.web.get("/v1/operator/certificate")
        paths = ("prices", "status", "promise", "tradeoff")
        said = [it.web.get(path).text for path in ("/metrics", *(f"/v1/{p}" for p in paths))]
        with httpx.Client(base_url=it.web.base_url) as nobody:
            for path in ("", "/zone", "/certificate"):
                assert nobody.get(f"/v1/operator{path}").status_code == 401
    said += [str(vars(one)) for one in caplog.records if one.name.startswith("hushgrid")]
    assert len(loads) == 3
    assert len(said) > 8
    assert not re.search(rf"(?<![\d.])({'|'.join(loads)})(?!\d)", " ".join(said))


def test_how_many_report_is_for_operators(tmp_path: Path) -> None:
    """Over HTTP and in the ledger: what a token of the scope shows, and what anybody sees."""
    with desk(tmp_path) as it:
        it.interval(3)  # house 0 is missing in the third
        with httpx.Client(base_url=it.web.base_url) as anybody:
            (zone,) = anybody.get("/v1/status").json()["zones"]
            assert "missing" not in zone
            assert from_service(str(it.web.base_url))[0].missing is None
            figures = anybody.get("/metrics").text
            assert "hushgrid_step" in figures
            for word in ("missing", "malformed", "accepted", "clamped", "unknown", "late", "early"):
                assert word not in figures
        form = {"grant_type": "client_credentials", "client_id": "op", "client_secret": SECRET}
        token = it.web.post("/v1/token", data=form).json()["access_token"]
        operator = {"Authorization": f"Bearer {token}"}
        (zone,) = it.web.get("/v1/status", headers=operator).json()["zones"]
        assert zone["missing"] == 1
        assert from_service(str(it.web.base_url), token)[0].missing == 1
        figures = it.web.get("/metrics", headers=operator).text
        assert f'hushgrid_missing_houses{{zone="{ELM}"}} 1.0' in figures
        assert "hushgrid_readings_total" in figures
        records = [release.counts for release in it.process.history.last(ELM, 3)]
        assert records == [{"houses": 6}] * 3


# the noise


def test_the_noise_of_a_block_is_stated_as_planned() -> None:
    """The standard deviation over every M, so that nothing of the M that was drawn is shown."""
    policy = Policy(0.5, horizon=8, schedule=Blocks((8,), (0.5,)))
    state = init(*service(policy=policy).scenario.terms, policy)
    noise = SimulatedNoise(1)
    found = {
        Inside.of(prepare(state, noise, size, 1), schedule=policy.schedule).spread
        for size in (10, 10_000)
    }
    release, _ = step(state, 0, SimulatedNoise(1))
    assert found == {release.spread}
    assert release.spread == pytest.approx(2000 * math.sqrt(9 * 10 / 3))


def test_why_there_is_this_much_noise(tmp_path: Path) -> None:
    """The house and model are those of the schedule, worked out here on its own."""
    alike = [[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]]
    sure = OccupancyModel.factored([[1.0, 0.0]], [[[[1.0, 0.0], [0.0, 1.0]]]], chain_of=[0] * 3)
    theta = OccupancyModel.factored(*alike, chain_of=[0] * 3)
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=[0] * 3)
    world = replace(
        service(houses=3).scenario, zone=Zone(ELM, [1000, 2000, 1500]), models=(sure, theta),
        consumption=f, tariff=Tariff(1.0, 62.5, floor=1.0, cap=64.0),
    )  # fmt: skip
    zone = replace(service(houses=3), scenario=world)
    own = schedule(world.models, world.zone, f, zone.policy)[0]
    with desk(tmp_path, zone) as it:
        it.interval()
        found = it.zone()
        noise = found["noise"]
        assert found["series"][0]["optimal"] <= 64.0, "cut as the published rate is"
    assert (noise["scale"], noise["epsilon"]) == (own.scale, own.epsilon) == (4000.0, 0.5)
    assert noise["spread"] == found["series"][0]["spread"] == pytest.approx(4000 * math.sqrt(2))
    assert (noise["house"], noise["protected"]) == (own.house, len(own.protected)) == (1, 3)
    assert noise["epsilon_any"] == own.epsilon_any
    assert noise["model"] == own.model
    by = "all models together" if own.model is None else f"model {own.model} of 2"
    assert noise["why"] == (
        f"House 1 (meter elm-street-1, contract 2,000 Wh) under {by} needs the most noise of the"
        " 3 protected houses: 4,000 Wh, so that one price loses at most 0.5."
    )


def test_why_there_is_none() -> None:
    assert "uses no reading" in explanation(service(), Inside.of(None))


# what needs a hand


def test_zones_and_how_many_alerts_each_has(tmp_path: Path) -> None:
    with desk(tmp_path, service(), service(OAK, 2)) as it:
        it.interval(3)  # in the third, house 0 of each is missing
        found = it.get("/v1/operator")
        assert found["now"] == utc(START + 2700)
        assert found["zones"] == [
            {
                "zone": name, "state": "publishing", "t": START // 900 + 2, "missing": 1,
                "alerts": 1,
            }
            for name in (ELM, OAK)
        ]  # fmt: skip
        assert it.alerts() == [
            "warning: 1 of 6 meters (17%) sent nothing for the last interval; see that their"
            " head-end runs and reaches the service."
        ]
        assert it.zone(OAK)["missing"] == {"meters": 1, "share": 0.5}
        assert it.web.get("/v1/operator/zone").status_code == 400, "which of them"
        assert it.web.get("/v1/operator/zone?zone=none").status_code == 404


def test_a_zone_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(tmp_path) as it:
        it.interval()

        def broken(*_: Any) -> None:
            raise LedgerError("the disk is full.")

        monkeypatch.setattr("hushgrid.stores.ledger.writer.Ledger.publish", broken)
        it.interval()
        assert it.zone()["state"] == "closed after an error"
        told = it.alerts()
        assert told[0].startswith("error: The zone is closed after an error")
        assert it.get("/v1/operator")["zones"][0]["alerts"] == len(told) == 1


@pytest.mark.usefixtures("loop_patience")
def test_a_publisher_that_is_away_is_told(tmp_path: Path) -> None:
    with desk(tmp_path, price_file=tmp_path / "none" / "prices.json") as it:
        it.interval()
        assert it.alerts() == [
            "warning: The price file cannot be written; see that its folder and room on disk are"
            " there."
        ]
        (tmp_path / "none").mkdir()
        it.interval()
        assert it.alerts() == []


def test_a_clock_that_jumps_is_told_for_an_hour(tmp_path: Path) -> None:
    with desk(tmp_path) as it:
        it.interval()
        operator = it.process._operator
        assert operator is not None
        now = operator._steady()
        it.clock.jumps = 1
        it.process.turn(it.clock)
        assert it.alerts() == [
            "warning: The clock jumped within the last hour; see that it is kept by NTP."
        ]
        operator._steady = lambda: now + 3700
        assert it.alerts() == []
        it.inner.wall -= 500
        assert it.alerts() == [
            "error: The clock is 500 s behind the last release and the zone waits; set the clock."
        ]


def test_the_fallback_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unusable(*_: Any) -> None:
        raise PolicyError("no noise.")

    monkeypatch.setattr(curator_module, "prepare", unusable)
    with desk(tmp_path, service(fallback_rate=0.31)) as it:
        it.interval()
        assert it.alerts() == [
            "error: No model can be used, so the price is the constant 0.31 EUR/kWh; run hushgrid"
            " check."
        ]
        assert it.zone()["series"][0]["source"] == "fallback"
        assert it.web.get("/v1/prices").json()["published"][0].keys().isdisjoint({"low", "high"})


def test_a_zone_that_is_behind_or_not_open_is_told() -> None:
    zone = service(begins=START, policy=Policy(0.5, horizon=500), grace=60)
    status = Status(ELM, START // 900 + 4, 0.5, 0, "publishing")
    inside = Inside(2000.0, 0.5, 0.5, 0, 0, 6)
    seen = ZoneHealth(zone, START + 5500.0, status, inside, release(4), open=True)
    assert seen.due() == START + 6 * 900 + 60
    assert alerts(seen) == []
    late = replace(seen, now=START + 6400.0)
    assert [one.text for one in alerts(late)] == [
        f"No price has come since {utc(seen.due())}; see in the log what holds the loop up."
    ]
    shut = replace(seen, open=False)
    assert alerts(shut)[0].level == "error"
    new = replace(seen, status=None, inside=Inside.of(None), newest=None)
    assert alerts(new) == []
    over = replace(status, state="forecast only")
    told = alerts(replace(seen, status=over, inside=Inside.of(None)))
    assert "so the price is a forecast without readings" in told[0].text
    (told,) = alerts(replace(seen, status=replace(status, state=NO_SIZE), inside=Inside.of(None)))
    assert "until the next block" in told.text
    (told,) = alerts(replace(seen, status=replace(status, state=WAITS), inside=Inside.of(None)))
    assert "until the account admits a block" in told.text
    lost = replace(status, missing=4)
    every = replace(seen, status=lost, newest=release(4), failing=["Other"], jumped=True)
    assert [one.level for one in alerts(every)] == ["error", "warning", "warning"]


def test_every_alert_is_one_sentence_with_a_fix() -> None:
    zone = service()
    status = Status(ELM, START // 900, 1.0, 0, "publishing")
    near = ZoneHealth(zone, START + 900.0, status, Inside(1.0, 0.1, 0.1, 0, 0, 6), None, open=True)
    every = [near, replace(near, open=False), replace(near, failing=["MqttPrices", "MqttEvents"])]
    for one in (alert for seen in every for alert in alerts(seen)):
        assert one.text.endswith(".")
        assert "; " in one.text or " see " in one.text
        assert one.text.count(". ") == 0


# the certificate


def test_the_certificate_of_a_running_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk(tmp_path) as it:
        it.interval(2)
        found = it.get("/v1/operator/certificate")
        assert found["verdict"] == "passed"
        assert found["zones"][0]["zone"] == ELM
        page = it.web.get("/v1/operator/certificate?format=html")
        assert page.headers["content-type"].startswith("text/html")
        assert "<h1>Privacy certificate: elm-street</h1>" in page.text
        assert "unsafe" not in page.headers["content-security-policy"]
        assert "style-src 'sha256-" in page.headers["content-security-policy"]
        assert "img-src data:;" in page.headers["content-security-policy"], "its charts"
        assert 'src="data:image' in page.text
        assert it.web.get("/v1/operator/certificate?format=pdf").json()["field"] == "format"
        again: list[str] = []
        monkeypatch.setattr("hushgrid.operate.audit.load_ledger", lambda *_, **__: again.append(""))
        assert it.get("/v1/operator/certificate") == found
        assert not again, "kept until a record is added"


def test_an_interval_without_readings_passes_the_audit(tmp_path: Path) -> None:
    with desk(tmp_path) as it:
        it.interval(2)
        it.interval(silent=True)
        assert it.zone()["state"] == "no readings"
        assert "error: 6 of 6 meters (100%) sent nothing for the last interval;" in it.alerts()[0]
        assert status_of(it.made.zones[0], it.standing(), it.inner.wall).state == "no readings"
        it.interval(1)
        found = it.get("/v1/operator/certificate")
        assert found["verdict"] == "passed"
        assert "Whether a meter reports does not depend on occupancy." in found["assumptions"]
        rows = it.zone()["series"]
        assert [row["source"] for row in rows] == [*["readings"] * 2, "forecast", "readings"]
        assert it.zone()["room"] == 1.0, "a promise about each price"


def test_a_ledger_that_cannot_be_read_says_nothing_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(tmp_path) as it:
        it.interval()

        def away(*_: Any, **__: Any) -> None:
            raise LedgerError(f"{tmp_path} is away.")

        monkeypatch.setattr("hushgrid.operate.process.open_store", away)
        answer = it.web.get("/v1/operator/certificate")
        assert answer.status_code == 503
        assert str(tmp_path) not in answer.text
        assert answer.headers["retry-after"]
    with open_store(it.made.ledger, create=False) as store:
        assert json.loads(store.head(ELM).line)["zone"] == ELM  # type: ignore[union-attr]


def test_nothing_is_open_yet(tmp_path: Path) -> None:
    """Before the first interval closes there is a page all the same."""
    with desk(tmp_path) as it:
        found = it.zone()
    assert found["series"] == []
    assert found["head"] is None
    assert found["noise"]["scale"] == 2000.0
    assert found["room"] == 1.0
