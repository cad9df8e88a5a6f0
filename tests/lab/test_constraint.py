"""The probabilistic constraint: never looser than any releases allow, and less noise for it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    Histogram,
    OccupancyModel,
    Scenario,
    Tariff,
    Uniform,
    Zone,
)
from hushgrid.lab import paper
from hushgrid.lab.methods import MethodPromise, MethodRefusal, MethodSetting
from hushgrid.lab.pufferfish import DPHMM, LeftToStates, constraint_scales
from hushgrid.mechanism.noise import pmf


def setting(scenario: Scenario, horizon: int = 96) -> MethodSetting:
    return MethodSetting.of(scenario, MethodPromise("step", 1.0, 0.01), horizon)


@pytest.mark.parametrize("seed", range(30))
def test_no_releases_leave_more_than_the_bound(seed: int) -> None:
    """One house, T = 4: the exact filter over every output, against the bound that needs none."""
    rng = np.random.default_rng([9, seed])
    initial, a = rng.dirichlet([1, 1]), rng.dirichlet([0.6, 0.6], 2)
    laws = rng.dirichlet(np.ones(3), 2)
    b = float(rng.uniform(0.7, 5))
    k = np.arange(3)
    likelihood = np.array([[pmf(k[:, None] - k, b) @ law][0] for law in laws])  # (state, output)
    q = np.exp(-1 / b)
    likelihood[:, [0, -1]] /= 1 - q  # each tail has one ratio throughout: lumped into its end
    loss = float(np.abs(np.log(likelihood[0] / likelihood[1])).max())
    bound = LeftToStates([OccupancyModel.factored([initial], [[a]])])
    for t in range(1, 5):
        most = bound.most()[0]
        worst = np.zeros(2)
        for outputs in product(range(3), repeat=t - 1):
            p = initial
            for output in outputs:
                p = p * likelihood[:, output]
                p = (p / p.sum()) @ a
            worst = np.maximum(worst, p)
        assert (worst <= most + 1e-9).all()
        if t <= 2:  # one past release comes near the bound on one side at least
            assert (most - worst).min() < 0.01
        bound.advance(np.array([loss]))


def test_less_noise_where_a_large_consumer_is_left_out() -> None:
    """Asleep for all but a thousandth: left out at delta = 0.01 only, and not for ever."""
    night = [[0.9995, 0.0005], [0.6, 0.4]]
    theta = OccupancyModel.factored(
        [[0.999, 0.001], [0.5, 0.5]], [[night, [[0.9, 0.1], [0.2, 0.8]]]]
    )
    f = Consumption.by_class(
        absent=[Uniform(100), Uniform(50)], present=[Uniform(900), Uniform(99)]
    )
    world = setting(Scenario(Zone("z", [900, 99]), Tariff(1.0, 62.5), (theta,), f), 20)
    assert constraint_scales(world, 0.2, 0.0)[0] == [900 / 0.2] * 20
    scales, protected = constraint_scales(world, 0.2, 0.01)
    assert scales[0] == 99 / 0.2
    left_out = [not houses[0] for houses in protected]
    assert sum(left_out) > 0
    assert [scale == 99 / 0.2 for scale in scales] == left_out
    assert all(houses[1] for houses in protected), "the small house is never left out"


def test_the_papers_night_lets_many_leave() -> None:
    world = setting(paper.scenario(0.02, 3, 50))
    sizes = [
        np.array([int(houses.sum()) for houses in constraint_scales(world, 0.01, delta)[1]])
        for delta in (0.0, 0.02)
    ]
    assert (sizes[1] <= sizes[0]).all()
    assert (sizes[1] / sizes[0]).min() < 0.7


def test_models_must_agree() -> None:
    sure, open_ = [[0.999, 0.001]] * 2, [[0.5, 0.5]] * 2
    both = [OccupancyModel.factored([rows[0]], [[rows]]) for rows in (sure, open_)]
    assert not (LeftToStates(both).most() <= 0.01).any()
    assert (LeftToStates(both[:1]).most() <= 0.01).any()


def test_a_chance_that_underflows_lets_nobody_out() -> None:
    """Possible, and yet 0 in floats: its state is not known to be unlikely."""
    halving = OccupancyModel.factored([[0.5, 0.5]], [[[[1.0, 0.0], [0.5, 0.5]]]])
    left = LeftToStates([halving])
    for _ in range(1200):
        left.advance(np.array([0.0]))
    assert left.most()[0, 1] == 1


def test_houses_that_move_together_and_days_in_a_run_are_refused() -> None:
    pair = OccupancyModel.joint([0.997, 0.001, 0.001, 0.001], [np.full((4, 4), 0.25)])
    law = Histogram([1, 1])
    two = Consumption.by_class(absent=[law, law], present=[law, law])
    joint = setting(Scenario(Zone("z", [1, 1]), Tariff(1.0, 62.5), (pair,), two))
    answer = DPHMM.prepare(joint)
    assert isinstance(answer, MethodRefusal)
    assert "move together" in answer.reason
    day = paper.scenario(0.0, 1, n=3)
    run = MethodSetting.of(day, MethodPromise("interval", 1.0, 0.01), 96, run=day)
    answer = DPHMM.prepare(run)
    assert isinstance(answer, MethodRefusal)
    assert "add up" in answer.reason


def test_a_certain_step_protects_everybody() -> None:
    """Where nobody is uncertain no house is left out: the set is never emptied."""
    shut = np.array([[1.0, 0.0], [1.0, 0.0]])
    theta = OccupancyModel.factored([[1.0, 0.0]], [[shut]], calendar=Calendar.constant())
    f = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(10)])
    world = setting(Scenario(Zone("z", [10]), Tariff(1.0, 62.5), (theta,), f), 3)
    scales, protected = constraint_scales(world, 0.5, 0.01)
    assert scales == [20.0] * 3
    assert all(houses.all() for houses in protected)
