"""The error of a price before anything is published: three ways on the same terms, and clamps."""

from __future__ import annotations

import contextlib
import io
import json
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Gamma,
    Histogram,
    LogNormal,
    OccupancyModel,
    Policy,
    PolicyError,
    Scenario,
    Tariff,
    Zone,
    plan,
)
from hushgrid.belief.filter import marginals
from hushgrid.cli import main
from hushgrid.files.zone_file import load_zone
from hushgrid.lab import paper
from hushgrid.lab.simulation import Mechanism, first_states, play
from hushgrid.planning.clamp import MOST_CUT, choose_clamp
from hushgrid.planning.expected_error import Prospect, bill_change, prospect
from hushgrid.planning.planner import Plan, examine

EXAMPLE = Path(__file__).parents[2] / "examples" / "release.toml"
STAY = [[0.95, 0.05], [0.04, 0.96]]
HOME = LogNormal(110, 0.8, 2500)


def street(n: int, bound: int = 2500) -> Scenario:
    """Houses alike: a refrigerator's worth when empty, about 150 Wh when lived in."""
    alike = [0] * n
    theta = OccupancyModel.factored([[0.4, 0.6]], [[STAY]], chain_of=alike)
    f = Consumption.by_class(absent=[Gamma(2, 20, bound)], present=[HOME], class_of=alike)
    return Scenario(Zone("s", [bound] * n), Tariff(0.5 / n, 0.05), [theta], f)


def world(s: Scenario) -> tuple[Zone, Tariff, list[OccupancyModel], Consumption]:
    return s.zone, s.tariff, list(s.models), s.consumption


def run(*words: str | Path) -> str:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert not ended.value.code
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def four_houses(folder: Path, more: str = "") -> Path:
    text = EXAMPLE.read_text().replace("count = 90", "count = 3").replace("count = 30", "count = 1")
    path = folder / "zone.toml"
    path.write_text(text.replace("eta = 0.05", "eta = 1.0") + more)
    return path


def planned(folder: Path, *more: str | Path) -> tuple[str, dict[str, object]]:
    out = folder / "plan.json"
    said = run("plan", "--no-tables", "--secret", "step", *more)
    run("plan", "--no-tables", "--secret", "step", *more, "--json", out)
    return said, json.loads(out.read_text())


FIGURES = {"raw": "raw", "estimate": "estimated", "forecast": "forecast"}


@pytest.mark.soak
def test_the_advice_is_the_best_of_the_figures(tmp_path: Path) -> None:
    """Where a forecast is as good as anything with readings, no other way is advised."""
    said, found = planned(tmp_path, "--config", four_houses(tmp_path), "--epsilon", "0.05")
    assert 'publish = "estimate"' not in said
    assert "Publish the forecast, which spends no budget" in said
    assert "a larger zone or another promise" in said
    assert found["publish"] == "forecast"
    said, found = planned(tmp_path, "--config", EXAMPLE, "--epsilon", "0.05")
    assert 'publish = "estimate"' in said
    assert found["publish"] == "estimate"
    errors = {way: found[f"rmsre_paper_{name}"] for way, name in FIGURES.items()}
    assert found["rmsre_paper"] == errors["estimate"] == min(errors.values())  # type: ignore[type-var]


def test_the_forecast_has_the_models_error_in_all_of_the_load(tmp_path: Path) -> None:
    told = {}
    for rho in ("0", "0.2"):
        _, told[rho] = planned(tmp_path, "--config", EXAMPLE, "--rho", rho, "--no-clamp")
    exact, wrong = (told[rho]["rmsre_paper_forecast"] for rho in ("0", "0.2"))
    assert wrong > 1.5 * exact  # type: ignore[operator]
    # nothing rests on the model where nothing is put back
    assert told["0"]["rmsre_paper_raw"] == told["0.2"]["rmsre_paper_raw"]


@pytest.mark.parametrize("rho", [0.0, 0.2])
@pytest.mark.parametrize(
    ("n", "policy"),
    [
        (60, Policy(0.5)),
        (400, Policy(0.1, eta=0.05)),
        (400, Policy(0.1, eta=0.05, clamp=(250,))),
    ],
)
@pytest.mark.sampled
def test_expected_errors_are_realised(n: int, policy: Policy, rho: float) -> None:
    """Days on which every reading is 1 + rho or 1 - rho times the model's, through the mechanism.

    Tolerances: 6 % for what has no readings, 15 % for raw prices (heavy-tailed noise, few days,
    and energy above a clamp moves by more than a factor on readings), 20 % for the estimate, which
    is not told rho and looks for the factor by itself.
    """
    s = street(n)
    found = examine(*world(s), policy).prospect
    ways = {"raw": policy, "estimate": replace(policy, publish="estimate")}
    mechanisms = {way: Mechanism(one) for way, one in ways.items()}
    states = first_states(s, mechanisms)
    forecast = s.tariff.alpha * found.load / 1000 + s.tariff.beta
    squares: dict[str, list[float]] = {way: [] for way in FIGURES}
    for day in range(8):
        factor = 1 + rho * (-1) ** day
        laws = tuple(law.scaled(factor, law.top) for law in s.consumption.laws)
        today = replace(s, consumed=replace(s.consumption, laws=laws))
        played = play(today, mechanisms, seed=(11, day), states=states)
        optimal = played["open"].optimal
        for way, rates in (
            ("forecast", forecast),
            *((way, trace.published) for way, trace in played.items() if way != "open"),
        ):
            squares[way].append(float(np.mean(((rates - optimal) / forecast) ** 2)))
    realised = {way: math.sqrt(np.mean(each) / 96) for way, each in squares.items()}
    for way, width in (("forecast", 0.06), ("raw", 0.15), ("estimate", 0.2)):
        assert realised[way] == pytest.approx(found.error(way, rho), rel=width), way  # type: ignore[arg-type]


def test_the_estimate_goes_from_forecast_to_raw() -> None:
    """Noise without end leaves the forecast, no noise the raw price; between them it is better."""
    s = street(50)
    base = examine(*world(s), Policy(0.5, clamp=(250,))).prospect
    for scale, way in ((1e8, "forecast"), (1e-6, "raw")):
        p = replace(base, noise=np.full(96, 2 * scale**2))
        assert p.estimated(0.2) == pytest.approx(p.error(way, 0.2), rel=5e-3)  # type: ignore[arg-type]
    for rho in (0.0, 0.1, 0.5):
        for scale in np.geomspace(1, 1e6, 13):
            p = replace(base, noise=np.full(96, 2 * scale**2))
            assert p.estimated(rho) <= p.forecast(rho) * (1 + 1e-12)
        assert base.forecast(rho) == pytest.approx(
            math.sqrt(base.weights @ (base.variance + rho**2 * base.load**2)) / 96
        )


def test_what_releases_teach_is_forgotten_with_the_day() -> None:
    s = street(50)
    week = examine(*world(s), Policy(0.5, horizon=288)).prospect
    left = week.factor(0.2)
    assert left[[0, 96, 192]] == pytest.approx(0.04)
    assert (np.diff(left[:96]) < 0).all()
    assert left[1] == pytest.approx(
        1 / (1 / 0.04 + week.load[0] ** 2 / (week.below_variance + week.noise)[0])
    )
    assert not week.factor(0.0).any()


def test_equal_errors_go_to_the_way_that_needs_least() -> None:
    one = np.ones(4)

    def of(noise: float, variance: float) -> Prospect:
        return Prospect(
            noise * one, 0 * one, 0 * one, variance * one, 10 * one, variance * one, one
        )

    assert of(1e6, 1.0).best(0.0) == "forecast"
    assert of(1e-6, 1.0).best(0.0) == "raw"
    assert of(1.0, 1.0).best(0.0) == "estimate"


def eco_like(n: int) -> Scenario:
    """A base load, appliances now and then: most steps below 100 Wh, a long tail to 2500."""
    x = np.arange(2501.0)
    away = np.exp(-x / 12) + 2e-5 * np.exp(-x / 500)
    home = np.exp(-x / 30) + 4e-3 * np.exp(-x / 250)
    alike = [0] * n
    theta = OccupancyModel.factored([[0.3, 0.7]], [[STAY]], chain_of=alike)
    f = Consumption.by_class(
        absent=[Histogram(away / away.sum())],
        present=[Histogram(home / home.sum())],
        class_of=alike,
    )
    return Scenario(Zone("eco", [2500] * n), Tariff(0.5 / n, 0.05), [theta], f)


def clamped(s: Scenario, epsilon: float, eta: float) -> tuple[Plan, Plan]:
    terms = Policy(1.0, horizon=8, eta=eta)
    asked = {"secret": "step", "epsilon": epsilon, "terms": terms}
    return plan(*world(s), **asked, rho=None), plan(*world(s), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("eta", [1.0, 0.05, 0.0])
@pytest.mark.parametrize("epsilon", [0.02, 0.5])
@pytest.mark.parametrize("make", [street, eco_like])
@pytest.mark.parametrize("n", [4, 40, 622, 1000])
@pytest.mark.sampled
def test_planned_clamps_leave_the_readings_their_say(
    n: int, make: object, epsilon: float, eta: float
) -> None:
    s = make(n)  # type: ignore[operator]
    contract, found = clamped(s, epsilon, eta)
    p = found.prospect
    assert p.missed.sum() <= MOST_CUT * p.load.sum()
    assert p.least() <= contract.prospect.least()
    assert p.with_cut() <= contract.prospect.with_cut()
    (clamp,) = found.policy.clamp or (2500,)
    present = s.consumption.laws[1].pmf
    assert clamp >= np.searchsorted(np.cumsum(present), 0.7), "a reading of seven in ten is cut"
    if eta == 1:
        assert found.policy.clamp, "a contract bound far above what is used"


@pytest.mark.parametrize("sigma", [0.0, None])
def test_planned_clamps_of_the_papers_zone_and_of_the_example(sigma: float | None) -> None:
    s = load_zone(EXAMPLE).scenario if sigma is None else paper.scenario(sigma, 1, 300)
    contract, found = clamped(s, 0.035, 1.0 if sigma == 0 else 0.05)
    p = found.prospect
    assert found.policy.clamp
    assert p.missed.sum() <= MOST_CUT * p.load.sum()
    assert p.least() <= contract.prospect.least()
    assert max(found.policy.clamp) > 150


def test_the_example_has_what_a_plan_chooses() -> None:
    zone = load_zone(EXAMPLE)
    terms = replace(zone.policy, clamp=())
    found = plan(*world(zone.scenario), secret="step", epsilon=zone.policy.epsilon, terms=terms)
    assert found.policy.clamp == zone.policy.clamp
    assert found.prospect.best() == zone.policy.publish


def test_a_share_that_may_be_cut() -> None:
    s = street(4)
    w = (s.models, s.zone, s.consumption)
    policy = Policy(0.02, horizon=4)
    clamps = [choose_clamp(*w, policy, most_cut=most).clamp for most in (0.05, 0.1, 0.2, 0.5, 1.0)]
    assert sorted(clamps, reverse=True) == clamps
    assert choose_clamp(*w, policy).clamp == clamps[-1] < (20,)  # as before there was a bound
    for most in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(PolicyError, match="most_cut is"):
            choose_clamp(*w, policy, most_cut=most)


def test_one_large_consumer_may_be_cut() -> None:
    """The bound is on the zone's energy, so one large house does not set everybody's noise."""
    houses, large = [0] * 200, 20_000
    theta = OccupancyModel.factored([[0.4, 0.6]], [[STAY]], chain_of=[0] * 201)
    f = Consumption.by_class(
        absent=[Gamma(2, 20, 2500), Gamma(2, 50, large)],
        present=[HOME, LogNormal(3000, 0.5, large)],
        class_of=[*houses, 1],
    )
    s = Scenario(Zone("s", [2500] * 200 + [large]), Tariff(0.01, 0.05), [theta], f)
    _, found = clamped(s, 0.1, 1.0)
    assert max(found.policy.clamp) < 1500


def test_an_estimate_that_follows_releases_is_expected_to_err_as_its_filter() -> None:
    """Between what little noise and none at all leave; about one number it errs more."""
    _, tariff, models, f = world(street(200))
    model = Policy(0.5, horizon=96, eta=1.0)
    policies = {
        "model": model,
        "filter": replace(model, estimator="filter"),
    }
    load = prospect(models, f, tariff, model, [1.0] * 96).load
    usual = float(load.mean()) / len(f.class_of)
    policies["releases"] = replace(model, estimator="releases", usual=usual)
    for scale in (10.0, 3000.0, 40_000.0):
        found = {
            name: prospect(models, f, tariff, policy, [scale] * 96)
            for name, policy in policies.items()
        }
        error = {name: one.error("estimate") for name, one in found.items()}
        raw = found["filter"].error("raw")
        assert error["model"] <= error["filter"] <= 1.001 * error["releases"]
        assert error["filter"] < 1.001 * raw
        assert found["releases"].load == pytest.approx(load.mean()), "relative to the usual load"
    less = prospect(models, f, tariff, policies["filter"], [39_000.0] * 96)
    assert less.error("estimate") < error["filter"] < less.error("forecast")


@pytest.mark.parametrize(("seconds", "times"), [(900, 30), (450, 60)])
def test_a_bill_changes_as_much_as_in_the_class_that_changes_most(seconds: int, times: int) -> None:
    """Bills of drawn readings at drawn noise; a mean home would hide both classes."""
    chain = [[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]]
    theta = OccupancyModel.factored(*chain, chain_of=[0] * 200)
    laws = {"absent": [Gamma(2, 5, 2500), Gamma(2, 60, 2500)]}
    laws["present"] = [LogNormal(20, 1.2, 2500), LogNormal(300, 0.4, 2500)]
    f = Consumption.by_class(**laws, class_of=[0] * 100 + [1] * 100)
    tariff, policy = Tariff(0.004, 0.05), Policy(0.1, horizon=96)
    found = prospect([theta], f, tariff, policy, [20_000.0] * 96)
    expected, most = bill_change(found, tariff, [theta], f, np.zeros(200, np.int32), seconds)
    rng, drawn = np.random.default_rng(1), []
    home = [float(one.laws[0][0, 1]) for one in islice(marginals(theta), 96)]
    rate = tariff.alpha * found.load / 1000 + tariff.beta
    for kind in (0, 1):
        values = np.arange(2501)
        x = np.empty((times, 96))
        for t, p in enumerate(home):
            mixed = (1 - p) * laws["absent"][kind].pmf + p * laws["present"][kind].pmf
            x[:, t] = rng.choice(values, times, p=mixed / mixed.sum())
        spread = math.sqrt(((x * tariff.alpha / 1000) ** 2).sum() * 2 * 20_000.0**2)
        drawn.append(1.96 * spread / (x * rate).sum())
    assert most == pytest.approx(max(drawn), rel=0.05)
    assert max(drawn) > 1.2 * min(drawn)
    assert expected == pytest.approx(most / 1.96 * math.sqrt(2 / math.pi))
