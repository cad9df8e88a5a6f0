"""Public covariates: from their sources into the ledger, over restarts, new terms and audits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy, SimulatedNoise, init, step
from hushgrid.audit.certificate import certify
from hushgrid.belief.followed import FollowedKnowledge, informed
from hushgrid.belief.load_filter import Values
from hushgrid.curator.covariates import CovariateSources, CovariateValues, values_of
from hushgrid.curator.promise import zone_assumptions
from hushgrid.errors import ConfigError
from hushgrid.files.deployment import ZoneService
from hushgrid.files.service_file import load_deployment
from hushgrid.files.zone_file import PublicSeries, load_zone
from hushgrid.mechanism.release import Release
from hushgrid.model.covariate import Covariate
from hushgrid.operate.audit import load_ledger, terms_of
from hushgrid.operate.process import Process
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.writer import verify_signature
from hushgrid.web.forecast import Forecaster
from hushgrid.web.http.metrics import Metrics
from tests.curator.curators import FIRST, Shown, _Counting, curator, everyone, feed
from tests.curator.setups import BEGINS, example, service
from tests.curator.worlds import deployment
from tests.web.brokers import until

WARMTH = Covariate("temperature", 10.0, 8.0, "MeteoSwiss")
HOLIDAY = Covariate("holiday", 0.0, 1.0, "the canton")
ALONE = Policy(
    0.5, horizon=40, publish="estimate", estimator="releases", usual=400.0,
    covariates=(WARMTH, HOLIDAY),
)  # fmt: skip
FILTER = Policy(
    0.5, horizon=40, publish="estimate", estimator="filter", covariates=(WARMTH, HOLIDAY)
)


def weather(start: int) -> Values:
    """The temperature is missing in the third interval, and there is no calendar of holidays."""
    step = (start - BEGINS) // 900 + 1
    return {"temperature": None if step == 3 else 10 + 8 * np.sin(step).item()}


def ran(
    folder: Path,
    zone: ZoneService,
    parts: tuple[int, ...],
    *,
    t: int = 1,
    new_terms: bool = False,
    known: Callable[[int], Values] = weather,
) -> list[ReleaseRecord]:
    """Releases of a zone that is stopped after each part; the fifth interval has no reading."""
    shown = Shown()
    folder.mkdir(exist_ok=True)
    for part in parts:
        more = {"now": zone.begins + (t - 1) * 900, "noise": _Counting(t), "covariates": known}
        with curator(folder, zone, shown, new_terms=new_terms, **more) as it:
            new_terms = False
            for _ in range(part):
                if t != 5:
                    feed(it, it.t, everyone(zone))
                it.run(it.next_due())
                t += 1
    return list({one.t: one for one in shown.releases}.values())


# ---- the estimate


def _errors(policy: Policy, noise: int) -> tuple[float, list[Release]]:
    """Three days of a load that moves by a fifth with a temperature that changes every hour."""
    zone = service(40, policy=replace(policy, horizon=288, usual=400.0))
    world = zone.scenario
    state = init(
        world.zone, world.tariff, world.models, world.consumption, zone.policy, days=zone.days
    )
    draws, rng, made, errors = SimulatedNoise(noise), np.random.default_rng(3), [], []
    for t in range(288):
        if t % 4 == 0:
            warm = float(rng.normal(10, 8))
        load = round(40 * 400 * (1 - 0.025 * (warm - 10)))
        assert state.public is not None
        state = replace(state, public=informed(state.public, {"temperature": warm}))
        release, state = step(state, load, draws)
        made.append(release)
        assert release.estimate is not None
        errors.append((release.estimate - load) / load)
    return float(np.sqrt(np.mean(np.square(errors[96:])))), made


def test_a_load_that_moves_with_the_temperature_is_estimated_better() -> None:
    without, _ = _errors(replace(ALONE, covariates=()), 1)
    found, made = _errors(replace(ALONE, covariates=(WARMTH,)), 1)
    assert found < 0.6 * without
    assert made[0].covariates == {"temperature": pytest.approx(26.327, abs=1e-3)}
    assert [made[t].estimate for t in (0, 99, 287)] == pytest.approx(GOLDEN, rel=1e-9)


GOLDEN = [10333.433463707337, 16686.136467482997, 18056.288296669038]


# ---- the ledger


@pytest.mark.parametrize("policy", [FILTER, ALONE], ids=["filter", "releases"])
def test_a_restart_goes_on_bit_for_bit(tmp_path: Path, policy: Policy) -> None:
    whole = ran(tmp_path / "a", service(policy=policy), (12,))
    parts = ran(tmp_path / "b", service(policy=policy), (3, 1, 5, 3))
    assert [one.release for one in parts] == [one.release for one in whole]
    stated = [one.covariates for one in whole]
    assert stated[4] is None, "a forecast holds the last value"
    assert stated[2] == {"temperature": None, "holiday": None}
    for t in (1, 2, 4, 12):
        assert stated[t - 1] == {**weather(BEGINS + (t - 1) * 900), "holiday": None}
    without = ran(tmp_path / "c", service(policy=replace(policy, covariates=())), (12,))
    assert all(one.covariates is None for one in without)
    assert [one.load_hat for one in without] == [one.load_hat for one in whole], "the same noise"
    assert [one.scale for one in without] == [one.scale for one in whole]
    assert [one.estimate for one in without[5:]] != [one.estimate for one in whole[5:]]


def test_what_a_checkpoint_has_leads_to_the_same(tmp_path: Path) -> None:
    zone = service(policy=ALONE)
    whole = ran(tmp_path / "a", zone, (9,))
    ran(tmp_path / "b", zone, (6,))
    with curator(tmp_path / "b", zone, Shown(), now=BEGINS + 6 * 900) as it:
        it.keep_checkpoint(spacing=1)
        assert it._replay.to_arrays()
    parts = ran(tmp_path / "b", zone, (3,), t=7)
    assert [one.release for one in parts[-3:]] == [one.release for one in whole[-3:]]


def test_a_late_value_changes_nothing_earlier(tmp_path: Path) -> None:
    """The value is in the record before the release is published; a later one is too late."""
    zone, series, path = service(policy=ALONE), CovariateValues(3600), tmp_path / "ledger.db"

    class Watching(Shown):
        def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
            with open_store(str(path)) as store:
                last = list(store.records(zone.id))[-1]
            assert last.body["covariates"] == release.covariates, "durable before it is shown"
            super().publish(zone, release)

    shown = Watching()
    known = lambda start: {"temperature": series.at(start)}  # noqa: E731
    bodies = []
    for late in (False, True):
        with curator(tmp_path, zone, shown, now=BEGINS + 900 * late, covariates=known) as it:
            if late:
                series.add({BEGINS - 900: 3.0, BEGINS: 5.0})
            feed(it, it.t, everyone(zone))
            it.run(it.next_due())
        with open_store(str(path)) as store:
            bodies.append([one.body for one in store.records(zone.id) if one.kind == "release"])
    assert bodies[1][0] == bodies[0][0]
    assert [body["covariates"]["temperature"] for body in bodies[1]] == [None, 5.0]
    again = {one.t: one for one in shown.releases if one.t == FIRST}[FIRST]
    assert again.covariates == {"temperature": None, "holiday": None}


def _two_terms(
    folder: Path, policy: Policy, later: Policy
) -> tuple[ZoneService, list[ReleaseRecord]]:
    ran(folder, service(policy=policy), (8,))
    second = service(policy=later, begins=BEGINS + 11 * 900)
    found = ran(folder, second, (2, 4), new_terms=True)
    return second, [one for one in found if one.start >= second.begins]


@pytest.mark.parametrize("later", [ALONE, replace(ALONE, covariates=(HOLIDAY, WARMTH))])
def test_new_terms_continue_by_the_names_of_covariates(tmp_path: Path, later: Policy) -> None:
    zone, found = _two_terms(tmp_path, ALONE, later)
    assert found[0].covariates == {**weather(zone.begins), "holiday": None}
    with open_store(str(tmp_path / "ledger.db")) as store:
        records = [
            ReleaseRecord.from_record(one)
            for one in store.records(zone.id)
            if one.kind == "release"
        ]
    guess = Forecaster(zone).after(records)
    assert len(guess.guesses) == 96
    with curator(tmp_path, zone, Shown(), now=zone.begins + 6 * 900) as it:
        state = it._replay.state
        assert isinstance(state.public, FollowedKnowledge)
        names = [one.name for one in later.covariates]
        learnt = dict(zip(names, state.public.bank.mean[:, 3 : 3 + len(names)].T, strict=True))
    assert learnt["temperature"].any(), "its coefficient is learnt under both terms"
    assert not learnt["holiday"].any()


@pytest.mark.parametrize("policy", [FILTER, ALONE], ids=["filter", "releases"])
def test_an_audit_computes_it_again(tmp_path: Path, policy: Policy) -> None:
    zone, _ = _two_terms(tmp_path, policy, policy)
    evidence, _ = load_ledger(str(tmp_path / "ledger.db"), zone=None, key=None, heads=())
    terms = [terms_of(service(policy=policy)), terms_of(zone)]
    made = certify(evidence, terms)
    assert {one.id: one.status for one in made.checks}["post_processing"] == "passed"
    assert any("temperature depends on no reading" in text for text in made.assumptions)
    (one,) = evidence
    last = one.weeks[1].entries[-1]
    for wrong in ({"temperature": 99.0, "holiday": None}, {"temperature": 10.0}, None):
        bad = replace(last, release=replace(last.release, covariates=wrong))
        week = replace(one.weeks[1], entries=(*one.weeks[1].entries[:-1], bad))
        again = certify([replace(one, weeks=(one.weeks[0], week))], terms)
        assert {one.id: one.status for one in again.checks}["post_processing"] == "failed", wrong


def test_a_ledger_of_before_goes_on_with_covariates(tmp_path: Path) -> None:
    """Releases without the field are followed with a missing value; exports verify."""
    _, found = _two_terms(tmp_path, replace(ALONE, covariates=()), ALONE)
    assert found[-1].covariates is not None
    with open_store(str(tmp_path / "ledger.db")) as store:
        records = list(store.records("elm"))
        assert check(records, verify_signature).first_bad is None
    assert "covariates" not in records[3].body
    export = tmp_path / "ledger.ndjson"
    export.write_text("".join(one.line + "\n" for one in records))
    script = Path(__file__).parents[2] / "scripts" / "verify_ledger.py"
    done = subprocess.run([sys.executable, script, export], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# ---- sources


def _fetching(*series: PublicSeries, metrics: Metrics) -> Any:
    zone = service(policy=ALONE, covariates=series)
    return CovariateSources([zone], failed=metrics.not_fetched, pause=0.02)


def _failures(metrics: Metrics) -> float:
    own = {"zone": "elm", "covariate": "temperature"}
    return metrics.registry.get_sample_value("hushgrid_covariate_failures_total", own) or 0.0


def _series(**source: Any) -> PublicSeries:
    return PublicSeries("temperature", 10.0, 8.0, "MeteoSwiss", **source)


def _point(value: float, start: int = BEGINS) -> bytes:
    return json.dumps({"start_utc": start, "value": value}).encode()


def test_values_of_a_file_and_a_dead_source(tmp_path: Path) -> None:
    """A source that lies or ends is counted; ticks go on with what was read before."""
    metrics, path = Metrics(), tmp_path / "weather.csv"
    sources = _fetching(_series(file=path), metrics=metrics)
    ask = sources.of("elm")
    path.write_bytes(b"start_utc,value\n2026-01-05T00:00:00Z,3.5\n")
    sources.start()
    try:
        assert until(lambda: ask(BEGINS) == {"temperature": 3.5})
        for body in (b"value\n3\n", b"\xff", _point(float("inf"))):
            path.write_bytes(body)
            before = _failures(metrics)
            assert until(lambda before=before: _failures(metrics) > before + 2)  # type: ignore[misc]
            assert ask(BEGINS) == {"temperature": 3.5}
        path.write_bytes(_point(4.5, BEGINS + 900))
        assert until(lambda: ask(BEGINS + 900) == {"temperature": 4.5})
        path.unlink()
        zone, shown = service(policy=ALONE), Shown()
        with curator(tmp_path, zone, shown, covariates=ask) as it:
            for _ in range(2):
                feed(it, it.t, everyone(zone))
                it.run(it.next_due())
            while it.t < FIRST + 16:  # three hours later the value is missing
                feed(it, it.t, everyone(zone))
                it.run(it.next_due())
    finally:
        sources.stop()
    found = [one.covariates["temperature"] for one in shown.releases]
    assert found == [3.5] + [4.5] * 13 + [None] * 2
    assert {one.source for one in shown.releases} == {"readings"}
    assert _failures(metrics) > 8


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path, metrics = tmp_path / "weather.csv", Metrics()
    sources = _fetching(_series(file=path), metrics=metrics)
    ask = sources.of("elm")
    sources.start()
    try:
        assert until(lambda: _failures(metrics) > 0), "it is not there yet"
        path.write_text(f"start_utc,value\n{BEGINS - 900},2.5\n{BEGINS + 1},7\n")
        assert until(lambda: ask(BEGINS) == {"temperature": 2.5}), "none of after the start"
        path.write_text(f"value,start_utc\n3.5,{BEGINS}\n,{BEGINS + 900}\n")
        assert until(lambda: ask(BEGINS) == {"temperature": 3.5})
        assert ask(BEGINS + 10_800) == {"temperature": 7.0}
        assert ask(BEGINS + 10_802) == {"temperature": None}, "too old"
    finally:
        sources.stop()
    batch = CovariateSources([service(policy=ALONE, covariates=(_series(file=path),))])
    batch.read_files()
    assert batch.of("elm")(BEGINS) == {"temperature": 3.5}
    assert batch.of("oak")(BEGINS) == {}


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"{", b"\xff", b"value\n3\n", b'{"start_utc": "today", "value": 3}',
             b'[{"start_utc": 1, "value": {}}]', b'{"start_utc": 1, "value": 1e999}'],
)  # fmt: skip
def test_what_is_no_series_gives_no_value(body: bytes) -> None:
    with suppress(ValueError, KeyError, TypeError):
        assert values_of(body) == {}


def test_a_process_publishes_with_what_its_sources_have(tmp_path: Path) -> None:
    path = tmp_path / "weather.csv"
    path.write_text(f"start_utc,value\n{BEGINS},3.5\n")
    zone = service(policy=ALONE, covariates=(_series(file=path),))
    made, clock = deployment(tmp_path, zone), At(BEGINS)
    with ExitStack() as stack:
        process = Process(made, stack)
        assert until(lambda: process._covariates.of("elm")(BEGINS) == {"temperature": 3.5})
        process.open(clock.now(), False)
        houses = everyone(zone)
        process._meters.put("elm", houses, [BEGINS] * 6, [900] * 6, [100] * 6)
        clock.wall = BEGINS + 900
        process.turn(clock)
        (release,) = process.history.last("elm", 9)
    assert release.covariates == {"temperature": 3.5, "holiday": None}


class At:
    """A clock that is set."""

    def __init__(self, wall: float) -> None:
        self.wall = wall

    def now(self) -> float:
        return self.wall


# ---- the file

TABLE = """
[[covariates]]
name = "temperature"
centre = 10
scale = 8.0
vouched_by = "MeteoSwiss, station Kloten"
file = "weather.csv"
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(table: str = TABLE, policy: str = 'estimator = "filter"\n', more: str = "") -> Path:
        path = tmp_path / "service.toml"
        text = re.sub('\nestimator = "filter" .*\n', f"\n{policy}", example(BEGINS))
        text += table + more
        path.write_text(text)
        return path

    return write


def test_a_service_file_names_covariates_and_who_vouches(written: Callable[..., Path]) -> None:
    path = written()
    (zone,) = load_deployment(path).zones
    assert zone.policy.covariates == (Covariate("temperature", 10.0, 8.0),)
    assert zone.covariates[0].file == path.parent / "weather.csv"
    alone = path.with_name("zone.toml")
    zone_part = path.read_text().partition("[zone]")[2].replace("eta_set", "# ")
    alone.write_text(f"format = 1\n[zone]{zone_part}")
    assert load_zone(alone).policy.covariates == zone.policy.covariates
    (sentence,) = [text for text in zone_assumptions(zone) if "covariate temperature" in text]
    assert "vouched for by MeteoSwiss, station Kloten" in sentence


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('vouched_by = "MeteoSwiss, station Kloten"\n', "", "vouched_by is not set"),
        ('"MeteoSwiss, station Kloten"', '" "', "vouched_by is ' '; give a text"),
        ('file = "weather.csv"\n', "", "covariates[0].file is not set"),
        ("scale = 8.0", "scale = 0", "scale is 0; give a positive number"),
        ('"temperature"', '"two words"', "give 1 to 64 letters"),
    ],
)  # fmt: skip
def test_mistakes_in_covariates(
    written: Callable[..., Path], old: str, new: str, message: str
) -> None:
    path = written(TABLE.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_deployment(path)
    assert len(caught.value.problems) == 1, caught.value.problems
    assert message in str(caught.value.problems[0])


def test_covariates_that_nothing_uses_or_that_come_twice(written: Callable[..., Path]) -> None:
    for given, message in (
        ({"policy": ""}, "estimator is 'model', which uses no covariate"),
        ({"table": TABLE + TABLE}, "the same name twice"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_deployment(written(**given))
        assert len(caught.value.problems) == 1, caught.value.problems
        assert message in str(caught.value.problems[0])
