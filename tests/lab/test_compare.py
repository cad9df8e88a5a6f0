"""Methods on the same days: what must hold of the comparison, on fewer days than in `make soak`.

Secret interval, epsilon = 1, the paper's zone at sigma = 0 (MATH.md sections 5, 7, 8 and 11).
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hushgrid import Elasticity
from hushgrid.belief.filter import imputed
from hushgrid.errors import FileError, ModelError, PlanError, PolicyError
from hushgrid.files.results import Journal
from hushgrid.lab import paper
from hushgrid.lab.baselines import day_law
from hushgrid.lab.bench import BATTERY_SIZE, METHODS, Bench, errors
from hushgrid.lab.comparison import Comparison, compare
from hushgrid.lab.datasets import (
    Real,
    Recorded,
    Simulated,
    large_world,
    learn_habits,
    paper_world,
    survey_world,
)
from hushgrid.lab.methods import Method, MethodPromise, MethodRefusal, MethodSetting, Ready
from hushgrid.learning.habits import Survey, survey_of
from hushgrid.model.zone import Tariff
from hushgrid.report.comparison import (
    comparison_json,
    comparison_table,
    guarantee_prose,
    ratio_table,
)

DAYS = 6


@pytest.fixture(scope="module")
def calm() -> Comparison:
    return compare(paper_world(0.0, 1, 1), MethodPromise(), days=DAYS, seed=1)


@pytest.fixture(scope="module")
def shocked() -> Comparison:
    some = [m for m in METHODS if m.name in ("hushgrid_eta0", "group", "fourier", "forecast")]
    return compare(
        paper_world(0.0, 1, 1, shock=0.3), MethodPromise(), days=DAYS, seed=1, methods=some
    )


def test_raw_ratios(calm: Comparison) -> None:
    """All add Laplace noise of the same quantiles, so the ratios are those of the scales."""
    assert calm.ratio("group", "hushgrid_eta0", "raw").ci95[0] >= 7
    assert calm.ratio("group", "bound_independent", "raw").ci95[0] >= 3.4
    quilt = calm.ratio("quilt", "bound_independent", "raw")
    assert quilt.mean == pytest.approx(66.57 / 26.59, abs=0.01)
    # noise that lasts blocks of steps: about 17.9 u where independent noise has 37.6 u
    assert calm.ratio("bound_independent", "bound", "raw").mean == pytest.approx(2.1, abs=0.2)


def test_estimated_below_forecast_and_group(calm: Comparison) -> None:
    ours = calm.summary("hushgrid_eta0", "estimated").mean
    assert ours < calm.summary("forecast", "estimated").mean
    assert ours < calm.summary("group", "estimated").mean


@pytest.mark.soak
def test_shocked(shocked: Comparison) -> None:
    """Readings earn their keep: paired 95 % intervals exclude 0, half of the forecast's error."""
    for other in ("forecast", "group"):
        assert shocked.gap(other, "hushgrid_eta0", "estimated").ci95[0] > 0
    assert shocked.ratio("forecast", "hushgrid_eta0", "estimated").ci95[0] > 2


def test_estimates_never_lose_to_raw(calm: Comparison, shocked: Comparison) -> None:
    for found in (calm, shocked):
        for name in set(found.names) - {"forecast"}:
            assert found.gap(name, name, "raw").mean == 0
            raw, estimated = (found.summary(name, part).mean for part in ("raw", "estimated"))
            assert estimated < raw


def test_cutting_is_the_simplest_estimate(calm: Comparison) -> None:
    """It helps the noisiest most, w-event's held prices included: raw is before it for all."""
    for name in calm.names:
        assert (calm.values(name, "cut") <= calm.values(name, "raw") + 1e-15).all()
    gain = [calm.ratio(name, name, "raw").mean for name in calm.names]
    assert gain == [1] * len(gain)
    helped = {
        name: calm.summary(name, "raw").mean / calm.summary(name, "cut").mean
        for name in ("hushgrid_eta0", "group", "wevent")
    }
    assert helped["hushgrid_eta0"] == pytest.approx(1, abs=1e-9)
    assert helped["group"] > 1.05
    assert helped["wevent"] > 1.05


def test_report(calm: Comparison) -> None:
    values = json.loads(json.dumps(comparison_json(calm, [calm], [])))
    assert (values["secret"], values["epsilon"], values["days"]) == ("interval", 1.0, DAYS)
    assert list(values)[4] == "ratios"  # before the errors themselves
    assert next(iter(values["ratios"]["group_over_hushgrid_eta0"])) == "estimated"
    wanted = {m.name for m in METHODS} - {"dphmm"}
    wanted |= {"battery_besteffort", "battery_stepping", "battery_random"}
    assert set(values["mechanisms"]) == wanted
    assert set(values["refused"]) == {"dphmm"}
    for name in wanted - {"battery_besteffort", "battery_stepping", "battery_random"}:
        one = values["mechanisms"][name]
        for part in ("raw", "cut", "estimated"):
            low, high = one[part]["rmsre_paper"]["ci95"]
            assert low < one[part]["rmsre_paper"]["mean"] < high
        assert isinstance(one["guarantee"], str)
    online = {name: one["online"] for name, one in values["mechanisms"].items()}
    assert [name for name, yes in online.items() if not yes] == ["fourier", "wavelet"]
    etas = [
        values["mechanisms"][n]["eta"]
        for n in ("hushgrid_eta0", "hushgrid_eta05", "bound_independent")
    ]
    assert etas == [0, 0.05, 1]
    assert values["mechanisms"]["battery_random"]["guarantee"].startswith("none")
    assert set(values["curve"][0]["mechanisms"]) == set(calm.names)  # no battery on the chart
    assert "left out: its constraint" in guarantee_prose(calm)
    assert ratio_table(calm).splitlines()[0].split("|")[3].strip() == "estimated"
    assert "battery, stepping (no promise)" in comparison_table(calm)


def test_adversary_orders_what_is_open_and_what_is_private() -> None:
    """She who knows all other readings sees all without noise, and little behind it."""
    source = Simulated([paper.scenario(0.0, 2, n=20)], seed=2)
    some = [m for m in METHODS if m.name in ("hushgrid_eta0", "bound_independent", "forecast")]
    row = Bench(source, MethodPromise(), 1, some).row(0, attack=True)
    for key in ("auc", "auc_others"):
        assert row["open"][key][0] > row["bound_independent"][key][0] - 1e-9
    prior = row["forecast"]["auc_others"][0]
    assert row["open"]["auc_others"][0] > prior + 0.01
    assert abs(row["hushgrid_eta0"]["auc_others"][0] - prior) < 0.01


def test_no_error_at_all_has_no_ratio() -> None:
    """An epsilon of a million: nothing warns, and JSON has null where there is no number."""
    source = Simulated([paper.scenario(0.0, 2, n=5)], seed=2)
    some = [m for m in METHODS if m.name in ("hushgrid_eta0", "group", "forecast")]
    found = compare(source, MethodPromise("step", 1e6), days=2, seed=1, methods=some)
    assert found.summary("hushgrid_eta0", "raw").mean == 0
    ratios = comparison_json(found, [], [])["ratios"]
    assert ratios["forecast_over_hushgrid_eta0"]["raw"]["mean"] is None


def test_errors_by_hand() -> None:
    found = errors(np.array([3000.0, -9000.0]), np.array([1000, 1000]), Tariff(1.0, 1.0))
    # rates 4 and 0 (cut from -8) against 2: relative errors 1 and 1
    assert found == pytest.approx([1 / np.sqrt(2), 1.0, 4.0])
    raw = errors(np.array([3000.0, -9000.0]), np.array([1000, 1000]), Tariff(1.0, 1.0), cut=False)
    assert raw[2] == pytest.approx((4 + 100) / 2)


def test_day_law_against_sums_over_all_trajectories() -> None:
    """Two houses that differ, six steps over the paper's morning: every trajectory, exactly."""
    zone, horizon = paper.scenario(0.02, 3, n=2), 6
    theta, f = zone.models[0].starting(26), zone.consumption
    mean, cov = day_law(theta, f, horizon)
    piece = theta.chains[0]
    every = np.array(list(product((0, 1), repeat=horizon)))
    expected, spread = np.zeros(horizon), np.zeros((horizon, horizon))
    for house in range(2):
        chance = piece.initial[house][every[:, 0]]
        for t in range(1, horizon):
            a = piece.transition[theta.calendar.slot(t + 1), house]
            chance = chance * a[every[:, t - 1], every[:, t]]
        laws = [f.law(1, house, occupied=home) for home in (False, True)]
        use = np.array([law.mean for law in laws])[every]
        own = np.array([law.variance for law in laws])[every]
        average = chance @ use
        expected += average
        spread += (use * chance[:, None]).T @ use - np.outer(average, average)
        spread += np.diag(chance @ own)
    assert np.allclose(mean, expected, rtol=1e-12)
    assert np.allclose(cov, spread, rtol=1e-9, atol=1e-6)
    assert np.abs(cov - np.diag(np.diag(cov))).max() > 1  # occupancy does tie steps together


def test_worlds() -> None:
    hot, cold = paper_world(0.0, 1, 1, 0.3).day(0), paper_world(0.0, 1, 1, 0.3).day(1)
    plain = [paper_world(0.0, 1, 1).day(d) for d in range(2)]
    bound = paper.scenario(0.0, 1).zone.bound
    assert (hot.readings == np.minimum(np.floor(plain[0].readings * 1.3 + 0.5), bound)).all()
    assert (cold.readings == np.floor(plain[1].readings * 0.7 + 0.5)).all()
    assert large_world(1, 1).scenarios[0].zone.bound.max() == 5000
    world = survey_world(_survey(("a", "b")), 1, 1, n=20)
    assert len(world.scenarios[0].models) == 2  # a model of Theta for each source
    assert not any(model.has_zeros for model in world.scenarios[0].models)
    assert world.day(3).load.shape == (96,)
    with pytest.raises(PolicyError, match=r"shock is 1\.5"):
        paper_world(0.0, 1, 1, 1.5)


def _survey(sources: tuple[str, ...]) -> Survey:
    """Chances of 0.3, and a sampling zero in the first slots."""
    rows = [
        (source, residents, day, "present", 15, slot, 0.0 if slot < 10 else 0.3, 0.3)
        for source in sources
        for residents in (1, 2)
        for day in ("wd", "we")
        for slot in range(96)
    ]
    names = ("source", "n_residents", "daytype", "definition", "step_min", "slot", "p01", "p10")
    return survey_of(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


@pytest.mark.soak
def test_habits_are_learnt_from_earlier_days() -> None:
    """Two clear states come back: means within a tenth, moves within 0.03, nothing impossible."""
    rng = np.random.default_rng(8)
    state = np.zeros((40, 48, 12), int)
    for t in range(1, 48):
        move = rng.random((40, 12)) < np.where(state[:, t - 1] == 1, 0.2, 0.1)
        state[:, t] = np.where(move, 1 - state[:, t - 1], state[:, t - 1])
    readings = np.where(
        state == 1, rng.integers(300, 900, state.shape), rng.integers(0, 60, state.shape)
    )
    readings[0, 0, 0] = -1  # missing
    scenario = learn_habits(readings, 3000)
    piece = scenario.models[0].chains[0]
    assert not scenario.models[0].has_zeros
    # some 5000 moves each way: five standard errors, and the share that starts away
    assert piece.transition[..., 0, 1].mean() == pytest.approx(0.1, abs=0.025)
    assert piece.transition[..., 1, 0].mean() == pytest.approx(0.2, abs=0.03)
    low, high = scenario.consumption.laws[0].mean, scenario.consumption.laws[5].mean
    # half a count in every bin and a thousandth anywhere add some 6 Wh
    assert (low, high) == (pytest.approx(30, abs=9), pytest.approx(600, rel=0.1))
    done = imputed(readings, scenario)
    assert 0 < done[0, 0, 0] < 600
    real = Recorded.of(scenario, Real(tuple("abcdefghijkl"), readings, np.zeros(40, int)))
    assert (real.readings == done).all()
    found = compare(real, MethodPromise(), days=3, seed=1, methods=METHODS[:4])
    assert found.ratio("bound_independent", "hushgrid_eta05", "raw").ci95[0] > 1
    with pytest.raises(PolicyError, match="day 40 is asked of 40"):
        real.day(40)
    with pytest.raises(ModelError, match="1 days"):
        learn_habits(readings[:1], 3000)


@pytest.mark.soak
def test_journal_takes_up_where_it_stopped(tmp_path: Path) -> None:
    source, path = Simulated([paper.scenario(0.0, 2, n=20)], seed=2), tmp_path / "days.jsonl"
    whole = compare(source, MethodPromise(), days=4, seed=1, methods=METHODS[2:6])
    kept = Journal(path, {"seed": 1})
    compare(source, MethodPromise(), days=2, seed=1, methods=METHODS[2:6], journal=kept)
    path.write_text(path.read_text() + '{"epsilon": 1.0, "day": 2, "ro')  # a crash
    again = Journal(path, {"seed": 1})
    assert len(again) == 2
    made = []
    bench_row = Bench.row

    def counted(self: Bench, number: int, attack: bool = False) -> dict:
        made.append(number)
        return bench_row(self, number, attack)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "row", counted)
        found = compare(
            source, MethodPromise(), days=4, seed=1, methods=METHODS[2:6], journal=again
        )
    assert made == [2, 3]
    assert found.rows == whole.rows
    with pytest.raises(FileError, match="other settings"):
        Journal(path, {"seed": 2})


def test_a_method_that_one_zone_refuses_is_left_out_of_all() -> None:
    """And a promise that a method's own planning finds out of reach is a refusal, no crash."""
    source = Simulated([paper.scenario(0.0, seed, n=5) for seed in (2, 3)], seed=2)

    def choosy(setting: MethodSetting) -> Ready | MethodRefusal:
        if setting.scenario is source.scenarios[1]:
            return MethodRefusal("not here")
        return METHODS[2].prepare(setting)

    def failing(setting: MethodSetting) -> Ready | MethodRefusal:
        raise PlanError(f"epsilon is {setting.promise.epsilon:g}; out of reach.")

    some = [
        METHODS[-1],
        Method("choosy", "choosy", True, 1.0, choosy),
        Method("failing", "failing", True, 1.0, failing),
    ]
    found = compare(source, MethodPromise(), days=3, seed=1, methods=some)
    assert found.names == ["forecast"]
    assert found.refused == {"choosy": "not here", "failing": "epsilon is 1; out of reach"}


def test_bad_days_and_zones() -> None:
    source = Simulated([paper.scenario(0.0, 2, n=5)], seed=2)
    with pytest.raises(PolicyError, match="days is 1"):
        compare(source, MethodPromise(), days=1, seed=1)
    f = replace(source.scenarios[0].consumption, elasticity=Elasticity(100.0, 0.5))
    reacting = Simulated([replace(source.scenarios[0], consumption=f)], seed=2)
    with pytest.raises(PlanError, match="react to rates"):
        compare(reacting, MethodPromise(), days=2, seed=1)


def test_batteries_are_sized_by_the_bound() -> None:
    assert BATTERY_SIZE == 2.0  # docs/compare.md says so
