"""Ways in which promises over time once fell short, each held shut by a test."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Histogram,
    OccupancyModel,
    PlanError,
    Policy,
    PolicyError,
    ReadingError,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    plan,
    step,
    tally,
)
from hushgrid.accounting.composition import compose
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.belief.posterior import posterior_mean
from hushgrid.planning.tradeoff import endless_leakage

TARIFF = Tariff(1.0, 62.5)
STAY = [[0.9, 0.1], [0.2, 0.8]]
ONE = OccupancyModel.factored([[0.5, 0.5]], [[STAY]])


def laws(n: int) -> Consumption:
    return Consumption.by_class(absent=[Uniform(50)] * n, present=[Uniform(100)] * n)


def test_a_block_mate_that_repeats_the_past_is_counted() -> None:
    """House 1 does at step 2 what house 0 did at step 1, when house 0 itself is certain."""
    a = np.zeros((4, 4))
    a[0, 0] = a[2, 1] = a[1, 0] = a[3, 0] = 1
    theta = OccupancyModel.blocked([[0, 1]], [[0.5, 0, 0.5, 0]], [[a]])
    world = (Zone("z", [100, 100]), TARIFF, [theta], laws(2))
    first = state = init(*world, Policy(1.0, horizon=2))
    for t in (1, 2):
        release, state = step(state, 50, SimulatedNoise(1))
        assert first.scheduler.losses(t, release.scale).tolist() == [1.0, 1.0]


def test_models_that_contradict_each_other_forget_nothing() -> None:
    models = [OccupancyModel.factored([p], [[np.eye(2)]]) for p in ([1.0, 0.0], [0.0, 1.0])]
    found = plan(
        Zone("z", [100]), TARIFF, models, laws(1), secret="interval", epsilon=1.0, rho=None
    )
    assert found.policy.epsilon == pytest.approx(1 / 96, rel=1e-4)
    assert found.leakage == pytest.approx(1, rel=1e-4)
    assert any("unsure between them" in line for line in found.assumptions)


def test_bounds_of_the_same_sum_are_not_the_same() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0, 0])
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=[0, 0])
    zone = Zone("z", [1000, 1000])
    for clamp, bound in (((100,), [199, 1]), ((), [1999, 1])):
        state = init(zone, TARIFF, [theta], f, Policy(0.5, clamp=clamp))
        with pytest.raises(ReadingError, match="cut at other bounds"):
            step(state, tally([199, 0], bound), SimulatedNoise(1))
        step(state, tally([199, 0], state.zone.bound.copy()), SimulatedNoise(1))


def test_weaker_block_rules_hide_nothing_in_what_is_booked() -> None:
    theta = OccupancyModel.blocked(
        [[0, 1], [2]], [[0.5, 0, 0, 0.5], [0.5, 0.5]], [[np.eye(4)], [STAY]]
    )
    world = (Zone("z", [1000, 1000, 100]), TARIFF, [theta], laws(3))
    state = init(*world, Policy(0.5, blocks="paper"))
    release, _ = step(state, 50, SimulatedNoise(1))
    assert state.scheduler.losses(1, release.scale)[0] == pytest.approx(2000 / release.scale)
    with pytest.raises(PlanError, match="give the rules block"):
        plan(*world, secret="step", epsilon=0.5, terms=Policy(1.0, blocks="paper"))


def test_a_weekend_is_part_of_for_ever() -> None:
    stuck = [[0.999, 0.001], [0.001, 0.999]]
    theta = OccupancyModel.factored(
        [[0.5, 0.5]], [[[[0.5, 0.5]] * 2], [stuck]], calendar=Calendar([0] * 480 + [1] * 192)
    )
    world = (Zone("z", [100]), TARIFF, [theta], laws(1))
    found = plan(*world, secret="interval", epsilon=1.0, rho=None)
    endless = endless_leakage(found, world)
    assert endless is not None
    fortnight = temporal_leakage(theta, np.full(14 * 96, found.policy.epsilon)).worst
    assert endless >= fortnight > 5


def test_small_things() -> None:
    assert float(posterior_mean(1e7 + 5e4, 1e7, 1e10, 1.0)) == pytest.approx(1e7 + 5e4, abs=0.1)
    assert compose([1e-5] * 96, 1e-9) <= 96e-5 * (1 + 1e-9)
    mixed = [
        Consumption.by_class(absent=[Histogram(a)], present=[Histogram(p)]).digest
        for a, p in (([1, 0], [1]), ([1], [0, 1]))
    ]
    assert mixed[0] != mixed[1]
    with pytest.raises(PolicyError, match="clamp of class 0 is"):
        Policy(0.5, clamp=(10**30,))
