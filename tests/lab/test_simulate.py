"""The simulated world: its law, its common random numbers, its figures."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Elasticity,
    Gamma,
    Histogram,
    Naive,
    OccupancyModel,
    Policy,
    PolicyError,
    Tariff,
    Uniform,
    Zone,
)
from hushgrid._kernels.readings import alias_table, stream_key, uniforms
from hushgrid.lab.simulation import Mechanism, consecutive, days, fold, measure, play, simulate
from hushgrid.model.world import World
from hushgrid.model.zone import Scenario
from hushgrid.statistics import ratio_of_means, summarise

E = np.array([[0.9, 0.1], [0.2, 0.8]])
TARIFF = Tariff(alpha=1.0, beta=62.5)


def street(n: int = 50, elasticity: Elasticity | None = None, truth: object = None) -> Scenario:
    theta = OccupancyModel.factored([[0.7, 0.3]], [[E]], chain_of=[0] * n)
    f = Consumption.by_class(
        absent=[Gamma(2.0, 40.0, 1000)],
        present=[Uniform(1000)],
        class_of=[0] * n,
        elasticity=elasticity,
    )
    return Scenario(Zone("z", [1000] * n), TARIFF, [theta], f, truth)  # type: ignore[arg-type]


def reference_step(scenario: Scenario, seed: tuple[int, ...], horizon: int) -> list[list[int]]:
    """The world in plain numpy, house by house, from the same random streams."""
    (theta,) = scenario.models
    (piece,) = theta.chains
    f, n = scenario.consumption, scenario.zone.n_houses
    tables = {i: alias_table(law.pmf) for i, law in enumerate(f.laws)}
    state, found = np.zeros(n, int), []
    for t in range(1, horizon + 1):
        key = stream_key(*seed, 0, 0) if t == 1 else stream_key(*seed, t, 0, 1)
        r = uniforms(key, n)
        for h in range(n):
            chain = piece.chain_of[h]
            row = piece.initial[chain] if t == 1 else piece.transition[0, chain, state[h]]
            state[h] = int(r[h] >= row[0])
        x = uniforms(stream_key(*seed, t, 0, 2), n)
        readings = []
        for h in range(n):
            number = (f.present if state[h] else f.absent)[0, f.class_of[h]]
            law = f.laws[number]
            place = x[h] * (law.top + 1)
            j = int(place)
            if not isinstance(law, Uniform) and place - j >= tables[number][0][j]:
                j = int(tables[number][1][j])
            readings.append(j)
        found.append(readings)
    return found


def test_compiled_world_equals_plain_numpy() -> None:
    scenario = street(300)
    world = World(scenario, (5, 6))
    for readings in reference_step(scenario, (5, 6), 6):
        load = world.step([])
        assert world.readings.tolist() == readings
        assert load == sum(readings)


def test_streams_are_uniform_and_unlike() -> None:
    """Kolmogorov-Smirnov at about 1e-6, and neighbouring streams uncorrelated at 5 sigma."""
    n = 100_000
    a, b = uniforms(stream_key(1, 2, 3), n), uniforms(stream_key(1, 2, 4), n)
    gap = np.abs(np.sort(a) - (np.arange(n) + 0.5) / n).max()
    assert gap < 2.7 / math.sqrt(n)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(n)
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 5 / math.sqrt(n)


@pytest.mark.parametrize("weights", [[1, 2, 3], [0, 0, 1], [5], [0.1] * 7 + [9.3]])
def test_alias_table_keeps_the_law(weights: list[float]) -> None:
    pmf = Histogram(weights).pmf
    cut, other = alias_table(pmf)
    rebuilt = cut / len(pmf)
    np.add.at(rebuilt, other, (1 - cut) / len(pmf))
    assert rebuilt == pytest.approx(pmf, abs=1e-12)


@pytest.mark.soak
def test_occupancy_and_load_have_their_laws() -> None:
    """Many houses, one step each: shares within 5 standard errors of the chain's own."""
    n = 200_000
    scenario = street(n)
    world = World(scenario, (3,))
    marginal = np.array([0.7, 0.3])
    absent, present = (scenario.consumption.law(1, 0, occupied=o) for o in (False, True))
    for _ in range(4):
        load = world.step([])
        assert abs(world.home / n - marginal[1]) < 5 * math.sqrt(0.25 / n)
        mean = marginal @ [absent.mean, present.mean]
        second = marginal @ [law.variance + law.mean**2 for law in (absent, present)]
        assert abs(load / n - mean) < 5 * math.sqrt((second - mean**2) / n)
        marginal = marginal @ E


def test_blocks_move_together() -> None:
    n = 60
    pairs = [[2 * i, 2 * i + 1] for i in range(n // 2)]
    lock, stay = np.array([0.5, 0, 0, 0.5]), np.kron(E, E)[None] * 0 + np.eye(4)
    theta = OccupancyModel.blocked(pairs, [lock] * len(pairs), [stay] * len(pairs))
    f = Consumption.by_class(absent=[Uniform(1)], present=[Uniform(9)], class_of=[0] * n)
    world = World(Scenario(Zone("z", [9] * n), TARIFF, [theta], f), (1,))
    for _ in range(5):
        world.step([])
        assert (world.occupancy[0::2] == world.occupancy[1::2]).all()
    assert 0 < world.home < n


def test_common_random_numbers() -> None:
    """Mechanisms meet the same loads, and the same quantiles of noise."""
    policy = Policy(0.5, horizon=20)
    pair = {"one": Mechanism(policy, Naive(1000)), "two": Mechanism(policy, Naive(2000))}
    traces = play(street(), pair, seed=(9,))
    assert traces["one"].load.tolist() == traces["two"].load.tolist()
    errors = [
        [r.load_hat - z for r, z in zip(traces[m].releases, traces[m].load, strict=True)]
        for m in pair
    ]
    assert errors[1] == pytest.approx([2 * e for e in errors[0]], abs=3)
    alone = simulate(street(), policy, seed=9, calibrator=Naive(1000))
    assert alone.published.tolist() == traces["one"].published.tolist()


def test_seeds_decide() -> None:
    policy = Policy(0.5, horizon=10)
    one, same, other = (simulate(street(), policy, seed=s) for s in (1, 1, 2))
    assert one.published.tolist() == same.published.tolist()
    assert one.load.tolist() != other.load.tolist()


def test_closed_loop_demand_answers_the_published_rate() -> None:
    """Each mechanism has its own world, with the same people and the same random numbers."""
    elastic = street(200, Elasticity(reference=100.0, exponent=0.8))
    policy = Policy(0.5, horizon=12)
    traces = play(elastic, {"it": Mechanism(policy)}, seed=(4,))
    free, ours = traces["open"], traces["it"]
    assert ours.load[0] == free.load[0]
    assert (ours.load[1:] != free.load[1:]).any()
    assert ours.home.tolist() == free.home.tolist()
    still = play(street(200), {"it": Mechanism(policy)}, seed=(4,))["it"]
    assert ours.load[1:].mean() != still.load[1:].mean()
    world = World(elastic, (4,))
    replay = [world.step(ours.published[:t].tolist()) for t in range(12)]
    assert replay == ours.load.tolist()


def test_figures_follow_their_formulas() -> None:
    traces = play(street(), {"it": Mechanism(Policy(0.5, horizon=8))}, seed=(2,))
    trace, r = traces["it"], 62.5 + traces["it"].load / 1000
    assert trace.optimal == pytest.approx(r)
    relative = (trace.published - r) / r
    assert trace.rmsre == pytest.approx(math.sqrt((relative**2).mean()))
    assert trace.rmsre_paper == pytest.approx(math.sqrt((relative**2).sum()) / 8)
    assert trace.mismatch_cost == pytest.approx(((trace.published - r) ** 2).sum() / 2)
    figures = measure(traces, "it")
    change = ((trace.published - r) * trace.load).sum() / 1000
    assert figures["revenue_change"] == pytest.approx(change)
    assert figures["revenue_change_relative"] == pytest.approx(change / (r @ trace.load / 1000))
    assert traces["open"].rmsre == 0


def test_another_truth_than_the_public_model() -> None:
    home = OccupancyModel.factored([[0.0, 1.0]], [[[[0.0, 1.0]] * 2]], chain_of=[0] * 50)
    trace = simulate(street(truth=home), Policy(0.5, horizon=5), seed=1)
    assert trace.home.tolist() == [50] * 5


def test_days_continue_in_the_calendar() -> None:
    """A week of one-step days: the weekend's model rules on days 6 and 7."""
    week = Calendar.week(weekday=[0], weekend=[1])
    a = [[[[1.0, 0.0]] * 2], [[[0.0, 1.0]] * 2]]
    theta = OccupancyModel.factored([[1.0, 0.0]], a, calendar=week)
    f = Consumption.by_class(absent=[Uniform(0)], present=[Uniform(5)])
    scenario = Scenario(Zone("z", [5]), TARIFF, [theta], f)
    world = consecutive(scenario, 2)
    slots = [world(day).models[0].calendar.slot(1) for day in range(7)]
    assert slots == [0, 0, 0, 1, 0, 0, 1]  # day d starts at step 2d+1 of the week
    assert world(7) is world(0)


def test_study_folds_days() -> None:
    scenario = street()
    pair = {"a": Mechanism(Policy(0.5, 6)), "b": Mechanism(Policy(1.0, 6))}
    ticks = []
    study = fold(days(lambda _: scenario, pair, count=5, seed=3), lambda: ticks.append(1))
    assert len(ticks) == study.days == 5
    one = measure(play(scenario, pair, seed=(3, 4)), "b")
    assert study.figures["b"]["rmsre"][4] == one["rmsre"]
    assert study.summary("a", "rmsre").mean == pytest.approx(
        2 * study.summary("b", "rmsre").mean, rel=0.01
    )


def test_memory_holds_one_step_of_the_zone() -> None:
    """96 steps need no more than 8 steps, but for a few figures a step."""
    scenario = street(100_000)

    def peak(horizon: int) -> int:
        tracemalloc.start()
        simulate(scenario, Policy(0.5, horizon), seed=1)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)  # compiled code loads once
    assert peak(96) < peak(8) + 2**20


def test_bad_studies() -> None:
    pair = {"a": Mechanism(Policy(0.5, 6)), "b": Mechanism(Policy(1.0, 7))}
    with pytest.raises(PolicyError, match="horizons"):
        play(street(), pair, seed=(1,))
    with pytest.raises(PolicyError, match="named 'open'"):
        play(street(), {"open": Mechanism(Policy(0.5, 6))}, seed=(1,))
    with pytest.raises(PolicyError, match="days is 0"):
        next(days(lambda _: street(), {}, count=0, seed=1))


def test_intervals() -> None:
    """Student's interval of 1..5: mean 3, sd 1.5811, half-width 1.9632 (t = 2.7764 at 4)."""
    found = summarise([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.sd == pytest.approx(1.58114, abs=1e-5)
    assert found.ci95 == pytest.approx((1.03676, 4.96324), abs=1e-5)
    ratio = ratio_of_means([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert ratio.mean == 2
    assert ratio.ci95 == pytest.approx((2, 2))
    assert math.isnan(summarise([1.0]).sd)
