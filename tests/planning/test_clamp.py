"""The clamp below the contract bound: golden figures, the choice in simulated worlds, privacy."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    ConsumptionError,
    Elasticity,
    Histogram,
    Law,
    LogNormal,
    Mechanism,
    OccupancyModel,
    Policy,
    PolicyError,
    ReadingError,
    Scenario,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    load_zone,
    plan,
    step,
    tally,
)
from hushgrid.lab.simulation import days
from hushgrid.mechanism.noise import pmf
from hushgrid.model.laws import split
from hushgrid.model.world import World
from hushgrid.planning.clamp import choose_clamp, expected_error
from hushgrid.planning.expected_error import prospect
from tests.examples import SOAK

ECO = Path(__file__).parents[3] / "shared/data/eco_house2/eco_house2_15min.parquet"
STAY = [[0.9, 0.1], [0.2, 0.8]]


def smoothed(readings: np.ndarray, bound: int, width: float = 15.0) -> Histogram:
    """A histogram spread by a two-sided geometric kernel."""
    counts = np.bincount(np.clip(readings, 0, bound), minlength=bound + 1).astype(float)
    reach = 400
    kernel = np.exp(-np.abs(np.arange(-reach, reach + 1)) / width)
    return Histogram(np.convolve(counts, kernel)[reach : reach + bound + 1])


@pytest.fixture(scope="module")
def eco() -> tuple[list[OccupancyModel], Zone, Consumption, float]:
    if not ECO.exists():
        pytest.skip("the ECO data is not here (../shared/data/eco_house2)")
    table = pytest.importorskip("pyarrow.parquet").read_table(ECO, columns=["power_w", "occupied"])
    columns = [np.array(table[name].to_pylist(), float) for name in ("power_w", "occupied")]
    known = np.isfinite(columns[0]) & np.isfinite(columns[1])
    wh, home = np.rint(columns[0][known] / 4).astype(int), columns[1][known] > 0
    laws = [smoothed(wh[home == state], 2500) for state in (False, True)]
    p, n = float(home.mean()), 1000
    theta = OccupancyModel.factored([[1 - p, p]], [[[[1 - p, p]] * 2]], chain_of=[0] * n)
    f = Consumption.by_class(absent=laws[:1], present=laws[1:], class_of=[0] * n)
    return [theta], Zone("eco", [2500] * n), f, n * ((1 - p) * laws[0].mean + p * laws[1].mean)


@pytest.mark.parametrize(  # MATH.md section 3, "the bound is a choice", rho = 0
    ("epsilon", "eta", "contract", "best", "clamp", "scale"),
    [
        (0.0376, 1.0, 170, 4.0, 20, 532),
        (0.0376, 0.05, 13.1, 3.4, 150, 942),
        (0.0376, 0.0, 2.7, 2.7, 400, 999),
        (0.5, 1.0, 12.8, 2.0, 300, None),
        (0.5, 0.05, 2.5, 0.68, 600, None),
        (0.5, 0.0, 0.40, 0.40, None, None),
    ],
)
def test_golden_eco(
    eco: tuple[list[OccupancyModel], Zone, Consumption, float],
    epsilon: float,
    eta: float,
    contract: float,
    best: float,
    clamp: int | None,
    scale: float | None,
) -> None:
    *world, load = eco
    policy = Policy(epsilon, horizon=1, eta=eta)
    found = choose_clamp(*world, policy, rho=0.0)
    assert 100 * found.without / load == pytest.approx(contract, rel=0.05)
    assert 100 * found.error / load == pytest.approx(best, rel=0.05)
    if clamp is not None:
        error, noise = expected_error(*world, replace(policy, clamp=(clamp,)), rho=0.0)
        assert 100 * error / load == pytest.approx(best, rel=0.05)
        assert found.error <= error * (1 + 1e-3)
        if scale is not None:
            assert noise / math.sqrt(2) == pytest.approx(scale, rel=0.05)
    wary = choose_clamp(*world, policy, rho=0.2)
    assert (wary.clamp or (2500,)) >= (found.clamp or (2500,))  # rho > 0: the best C is higher


N = 400
CLASSES = [0] * 360 + [1] * 40


def street(stretch: float = 1.0, above: tuple[int, ...] = ()) -> Scenario:
    """Two classes with long tails; beyond `above` the real readings are stretched."""
    public = [
        LogNormal(40, 0.5, 1500),
        LogNormal(120, 0.8, 6000),
        LogNormal(90, 0.7, 1500),
        LogNormal(400, 0.9, 6000),
    ]
    f = Consumption.by_class(absent=public[:2], present=public[2:], class_of=CLASSES)
    real = None
    if above:
        laws = [stretched(law, above[k % 2], stretch) for k, law in enumerate(public)]
        real = Consumption.by_class(absent=laws[:2], present=laws[2:], class_of=CLASSES)
    theta = OccupancyModel.factored([[1 / 3, 2 / 3]], [[STAY]], chain_of=[0] * N)
    bound = np.array([2000, 8000])[CLASSES]
    return Scenario(Zone("s", bound), Tariff(0.01, 0.1), [theta], f, consumed=real)


def stretched(law: Law, at: int, by: float) -> Law:
    """X up to `at`, then at + by (X - at)."""
    x = np.arange(law.top + 1)
    moved = np.where(x <= at, x, np.rint(at + by * (x - at))).astype(int)
    return Histogram(np.bincount(moved, law.pmf).astype(float))


def realised(scenario: Scenario, policies: dict[str, Policy], count: int) -> dict[str, float]:
    """Root mean squared error of the rate over days of 96 steps, common random numbers."""
    mechanisms = {name: Mechanism(policy) for name, policy in policies.items()}
    squares: dict[str, list[float]] = {name: [] for name in policies}
    for day in days(lambda _: scenario, mechanisms, count=count, seed=7):
        for name, found in squares.items():
            trace = day.traces[name]
            found.append(float(np.mean((trace.published - trace.optimal) ** 2)))
    return {name: math.sqrt(np.mean(found)) for name, found in squares.items()}


@pytest.mark.parametrize(
    ("epsilon", "eta", "off"),
    [(0.3, 1.0, 1.0), (0.1, 0.05, 0.8), (0.1, 0.0, 1.2)]
    if not SOAK
    else [(*one, off) for one in ((0.3, 1.0), (0.1, 0.05), (0.1, 0.0)) for off in (1.0, 0.8, 1.2)],
)
@pytest.mark.sampled
@pytest.mark.soak
def test_the_choice_is_near_the_best_in_hindsight(epsilon: float, eta: float, off: float) -> None:
    """Chosen with rho as wrong as the world; the search scales both clamps alike and apart.

    Noise has the same quantiles under every clamp: from 3 days to 3 others the ratio moves by 1 %.
    """
    model = street()
    policy = Policy(epsilon, eta=eta)
    world = (model.models, model.zone, model.consumption)
    chosen = choose_clamp(*world, policy, rho=abs(off - 1)).clamp
    assert chosen or eta == 0
    at = chosen or (2000, 8000)
    scenario = street(off, at) if off != 1 else model
    tried = {"contract": policy, "chosen": replace(policy, clamp=chosen)}
    for both, second in ((0.35, 1), (0.6, 1), (0.8, 1), (1, 0.6), (1, 1.6), (1.25, 1), (2, 1)):
        pair = (max(1, round(at[0] * both)), max(1, round(at[1] * both * second)))
        tried[f"{both}, {second}"] = replace(policy, clamp=pair)
    errors = realised(scenario, tried, count=3)
    assert errors["chosen"] <= 1.1 * min(errors.values())
    assert errors["chosen"] <= errors["contract"] * (1 + 1e-9)


def test_expected_error_is_the_realised_one() -> None:
    scenario, policy = street(), Policy(0.3, eta=1.0, clamp=(150, 400))
    expected, _ = expected_error(
        scenario.models, scenario.zone, scenario.consumption, policy, rho=0.0
    )
    found = realised(scenario, {"it": policy}, count=8)["it"] / scenario.tariff.alpha * 1000
    assert found == pytest.approx(expected, rel=0.12)  # 768 squared Laplace errors: s.d. 4 %


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_cut_readings_keep_the_promise(eta: float) -> None:
    """Every output of uncut laws, cut as a meter would: within epsilon, and no more noise."""
    f0, f1 = (
        Histogram([0.5, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]),
        Histogram([0, 0.1, 0.1, 0, 0, 0.1, 0.7]),
    )
    f = Consumption.by_class(absent=[f0], present=[f1])
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]])
    zone = Zone("z", [9])
    state = init(zone, Tariff(1.0, 1.0), [theta], f, Policy(0.4, eta=eta, clamp=(3,)))
    assert state.zone.bound.tolist() == [3]
    b = state.scheduler.at(1).scale
    assert b <= init(zone, Tariff(1.0, 1.0), [theta], f, Policy(0.4, eta=eta)).scheduler.at(1).scale
    k = np.arange(-30, 40)

    def outputs(law: Law, point: int) -> np.ndarray:
        mixed = (1 - eta) * np.r_[law.pmf, np.zeros(3)]
        mixed[point] += eta
        return pmf(k[:, None] - np.minimum(np.arange(10), 3), b) @ mixed

    worst = max(
        float(np.abs(np.log(outputs(f1, i) / outputs(f0, j))).max())
        for i in range(10)
        for j in range(10)
    )
    assert worst <= 0.4 + 1e-9
    assert worst == pytest.approx(0.4, abs=1e-6)  # and not more noise than that takes


def test_a_load_cut_at_other_bounds_is_refused() -> None:
    scenario = street()
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    state = init(*world, Policy(0.5, clamp=(150, 400)))
    readings = np.full(N, 300)
    with pytest.raises(ReadingError, match="bare number"):
        step(state, 1000, SimulatedNoise(1))
    with pytest.raises(ReadingError, match="cut at other bounds"):
        step(state, tally(readings, scenario.zone.bound), SimulatedNoise(1))
    release, _ = step(state, tally(readings, state.zone.bound), SimulatedNoise(1))
    assert release.rule.endswith("clamped")
    laws = scenario.consumption.laws
    share = [1 / 3, 2 / 3]
    expected = sum(
        n
        * sum(
            p * float(split(laws[2 * s + k], at, np.ones(1)).above[0]) for s, p in enumerate(share)
        )
        for k, (n, at) in enumerate([(360, 150), (40, 400)])
    )
    assert release.put_back == pytest.approx(expected, rel=0.02)  # the factor's spread adds 1 %
    with pytest.raises(ConsumptionError, match="clamp has 1 entries"):
        init(*world, Policy(0.5, clamp=(150,)))
    with pytest.raises(PolicyError, match="clamp of class 1 is 0"):
        Policy(0.5, clamp=(150, 0))
    with pytest.raises(PolicyError, match="rho is -1"):
        choose_clamp(scenario.models, scenario.zone, scenario.consumption, Policy(0.5), rho=-1)


def test_split_moments_equal_sums() -> None:
    law, factors = LogNormal(40, 0.9, 500), np.array([0.7, 1.0, 1.3])
    found = split(law, 60, factors)
    x = np.arange(501)
    for i, factor in enumerate(factors):
        below, above = np.minimum(factor * x, 60), np.maximum(factor * x - 60, 0)
        for part, mean, variance in (
            (below, found.below[i], found.below_variance[i]),
            (above, found.above[i], found.above_variance[i]),
        ):
            assert mean == pytest.approx(law.pmf @ part)
            assert variance == pytest.approx(law.pmf @ (part - mean) ** 2)


def test_demand_answers_before_the_cut() -> None:
    law = Uniform(10).cut(6)
    assert law.scaled(0.5, 6).pmf.tolist() == Uniform(10).scaled(0.5, 6).pmf.tolist()
    f = Consumption.by_class(
        absent=[Uniform(4)], present=[Uniform(10)], elasticity=Elasticity(1.0, 1.0)
    )
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]])
    state = init(Zone("z", [10]), Tariff(1.0, 2.0), [theta], f, Policy(0.5, eta=0.0, clamp=(6,)))
    release, state = step(state, tally([9], state.zone.bound), SimulatedNoise(3))
    assert state.rates == (release.rate,)
    factor = f.factor(state.rates)
    (case,) = state.scheduler.exposure(2, state.rates).cases
    x = np.minimum(np.floor(np.arange(11) * factor + 0.5), 6).astype(int)
    assert case.after[0].pmf == pytest.approx(np.bincount(x) / 11)


def test_readings_above_a_clamp_are_the_slope_of_the_energy_above() -> None:
    law, factors = LogNormal(120, 0.8, 6000), np.exp([-0.4, 0.0, 0.3])
    less, more = (split(law, 300.0, factors * math.exp(sign * 0.01)) for sign in (-1, 1))
    found = split(law, 300.0, factors)
    np.testing.assert_allclose((more.above - less.above) / 0.02, found.over, rtol=0.02)
    assert (found.over > 2 * found.above).all(), "an error of readings counts more above a clamp"


@pytest.mark.parametrize("estimator", ["filter", "releases"])
def test_an_estimate_that_follows_releases_is_clamped_by_its_own_error(
    estimator: Literal["filter", "releases"],
) -> None:
    """It averages noise over steps, and no step shows the energy above: it wants a higher clamp."""
    s = street()
    world = (s.models, s.zone, s.consumption)
    usual = 150.0 if estimator == "releases" else 0.0
    policy = Policy(0.2, horizon=48, eta=1.0, estimator=estimator, usual=usual)
    own, raw = (
        choose_clamp(*world, policy).clamp,
        choose_clamp(*world, Policy(0.2, horizon=48)).clamp,
    )

    def error(clamp: tuple[int, ...]) -> float:
        cut = replace(policy, clamp=clamp)
        scales = [max(clamp) / 0.2] * 48
        return prospect(s.models, s.consumption, s.tariff, cut, scales).chosen_by()

    assert max(own) > 1.2 * max(raw)
    for times in (0.5, 0.7, 1.4, 2.0):
        other = tuple(min(round(times * max(own)), most) for most in (2000, 8000))
        assert error(own) <= 1.01 * error(other)
    assert error(own) < error(raw)


SUNNY = Path(__file__).parents[2] / "examples" / "sunny.toml"


@pytest.mark.soak
def test_a_planned_clamp_holds_what_all_roofs_do_under_any_sky(tmp_path: Path) -> None:
    """Sun is common to all roofs: what is cut of it is no noise, and the laws know a mean sky."""
    s = load_zone(SUNNY).scenario
    found = plan(*s.terms, secret="interval", epsilon=1.0, blocks=True)
    lower = min(at[0] for at in found.clamp if isinstance(at, tuple))
    assert lower <= -550, "the expected sun of the sunniest hours alone"
    for sun in (0.1, 0.5, 1.0, 1.2):
        text = re.sub(
            r"centre = (\d+), spread = (\d+)",
            lambda law, sun=sun: f"centre = {int(law[1]) * sun}, spread = {int(law[2]) * sun}",
            SUNNY.read_text(),
        )
        (tmp_path / "sky.toml").write_text(text)
        world, noise = World(load_zone(tmp_path / "sky.toml").scenario, (1,)), SimulatedNoise(1)
        state, off = init(*s.terms, found.policy), []
        for t in range(60):
            world.step(())
            net = world.readings - s.zone.export
            seen = tally(net, state.zone.bound, state.zone.export)
            shown = seen.load - state.zone.offset  # what the release shows without its noise
            release, state = step(state, seen, noise)
            off += [shown + release.put_back - net.sum()] * (44 <= t < 60)
        assert abs(np.mean(off)) < 8000, f"noon is wrong by {np.mean(off):.0f} Wh at {sun} the sun"
