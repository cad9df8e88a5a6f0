"""The probabilistic constraint: never looser than any releases allow, named and accounted."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Elasticity,
    Histogram,
    OccupancyModel,
    Policy,
    PolicyError,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    init,
    step,
)
from hushgrid.accounting.composition import ReleaseAccount
from hushgrid.files.zone_file import PolicyTable
from hushgrid.lab import paper
from hushgrid.mechanism.noise import pmf
from hushgrid.mechanism.policy import Gaussian, Negligible
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.mechanism.support import Unlikely


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
    theta = OccupancyModel.factored([initial], [[a]])
    bound = Unlikely([theta], [0], [np.zeros(1, np.int32)])
    bound.advance(None)
    for t in range(1, 5):
        most = bound._tracked[0].most()[0]
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


def test_off_by_default_and_less_noise_when_on() -> None:
    """A large consumer, asleep for all but a thousandth: left out at delta = 0.01 only."""
    night = [[0.9995, 0.0005], [0.6, 0.4]]
    theta = OccupancyModel.factored(
        [[0.999, 0.001], [0.5, 0.5]], [[night, [[0.9, 0.1], [0.2, 0.8]]]]
    )
    f = Consumption.by_class(
        absent=[Uniform(100), Uniform(50)], present=[Uniform(900), Uniform(99)]
    )
    world = (Zone("z", [900, 99]), Tariff(1.0, 62.5), [theta], f)
    plain, constrained = (init(*world, Policy(0.2, schedule=Negligible(d))) for d in (0.0, 0.01))
    assert plain.scheduler.at(1).scale == 900 / 0.2
    assert constrained.scheduler.at(1).scale == 99 / 0.2
    assert constrained.rule == plain.rule + " negligible=0.01"
    state, account, protected = constrained, ReleaseAccount(constrained), []
    for _ in range(20):
        release, state = step(state, 300, SimulatedNoise(1))
        account = account.add(release)
        protected.append(0 in constrained.scheduler.at(release.t).protected)
        assert release.delta == 0.01
    left = protected.count(False)
    assert left > 0
    epsilon, delta = account.probable(0)
    assert delta == pytest.approx(left * 0.01)
    assert epsilon == pytest.approx(0.2 * (20 - left))
    assert account.pure[0] > epsilon + left * 900 / 500  # the whole loss is booked all the same
    # the small house is never left out; where the large one is protected it gets more for free
    assert account.probable(1) == (pytest.approx(0.2 * (left + (20 - left) * 99 / 900)), 0.0)


def test_the_papers_night_lets_many_leave() -> None:
    scenario = paper.scenario(0.02, 3, 50)
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    sizes = []
    for delta in (0.0, 0.02):
        state = init(*world, Policy(0.01, schedule=Negligible(delta)))
        sizes.append([len(state.scheduler.at(t).protected) for t in range(1, 97)])
    assert (np.array(sizes[1]) <= sizes[0]).all()
    assert min(np.array(sizes[1]) / sizes[0]) < 0.7


def test_models_must_agree_and_blocks_stay() -> None:
    sure, open_ = [[0.999, 0.001]] * 2, [[0.5, 0.5]] * 2
    both = [OccupancyModel.factored([rows[0]], [[rows]]) for rows in (sure, open_)]
    f = Consumption.by_class(absent=[Uniform(10)], present=[Uniform(90)])
    zone, tariff, policy = Zone("z", [90]), Tariff(1.0, 1.0), Policy(0.1, schedule=Negligible(0.01))
    assert len(init(zone, tariff, both[:1], f, policy).scheduler.at(1).protected) == 1
    pair = OccupancyModel.joint([0.997, 0.001, 0.001, 0.001], [np.full((4, 4), 0.25)])
    law = Histogram([1, 1])
    two = Consumption.by_class(absent=[law, law], present=[law, law])
    state = init(Zone("z", [1, 1]), tariff, [pair], two, policy)
    assert len(state.scheduler.at(1).protected) == 2
    opened = Unlikely(both, [0, 0], [np.zeros(1, np.int32)] * 2)
    opened.advance(None)
    assert not opened.negligible(0.01).any()
    alone = Unlikely(both[:1], [0], [np.zeros(1, np.int32)])
    alone.advance(None)
    assert alone.negligible(0.01).all()


def test_exposures_serve_every_schedule_of_one_policy() -> None:
    scenario = paper.scenario(0.0, 3, 5)
    policy = Policy(0.01, schedule=Negligible(0.02))
    made = exposures_of(scenario.models, scenario.zone, scenario.consumption, policy)
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    scales = init(*world, policy, exposures=made).scheduler.scales()
    assert init(*world, policy, exposures=made).scheduler.scales() == scales
    other = exposures_of(scenario.models, scenario.zone, scenario.consumption, policy)
    with pytest.raises(PolicyError, match="exposures were made"):
        init(*world, Policy(0.5, schedule=Negligible(0.02)), exposures=other)


def test_constraints_that_mean_nothing() -> None:
    for options, words in (
        ({"negligible": 0.5}, "negligible is 0.5"),
        ({"negligible": -0.1}, "negligible is -0.1"),
        ({"negligible": 0.1, "on_empty": "publish_exact"}, "protect_all"),
        ({"negligible": 0.1, "gaussian": 50.0, "delta": 1e-6}, "give one of them"),
    ):
        with pytest.raises(PolicyError, match=words):
            PolicyTable(1.0, **options)  # type: ignore[arg-type]
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    f = Consumption.by_class(
        absent=[Uniform(10)], present=[Uniform(90)], elasticity=Elasticity(1.0, 0.5)
    )
    with pytest.raises(PolicyError, match="react to rates"):
        init(
            Zone("z", [90]),
            Tariff(1.0, 1.0),
            [theta],
            f,
            Policy(0.5, eta=0.0, schedule=Negligible(0.01)),
        )


def test_what_is_booked_counts_houses_that_are_left_out() -> None:
    """A large house that is all but surely away, and a small one that sets the noise."""
    model = OccupancyModel.factored([[0.9999, 0.0001], [0.5, 0.5]], [[np.eye(2)] * 2])
    laws = Consumption.by_class(absent=[Uniform(10)], present=[Uniform(100)], class_of=[0, 0])
    policy = Policy(0.5, horizon=1, schedule=Negligible(0.001))
    state = init(Zone("z", [2500, 250]), Tariff(1.0, 1.0), [model], laws, policy)
    made, _ = step(state, 100, SimulatedNoise(1))
    assert made.scale == 500
    assert (made.epsilon, made.epsilon_any) == pytest.approx((5.0, 5.0))
    assert ReleaseAccount(state).add(made).pure.tolist() == pytest.approx([5.0, 0.5])


@pytest.mark.parametrize("policy", [Gaussian(10.0, 1e-6), None])
def test_without_a_bound_no_house_of_a_block_has_one(policy: Gaussian | None) -> None:
    """House 0 is certain now and follows house 1, which is not."""
    moves = np.zeros((1, 4, 4))
    moves[0, [0, 1, 2, 3], [0, 2, 2, 2]] = 1
    model = OccupancyModel.blocked([[0, 1]], [np.array([0.5, 0.5, 0, 0])], [moves])
    laws = Consumption.by_class(absent=[Uniform(10)], present=[Uniform(100)], class_of=[0, 0])
    terms = Policy(1.0, horizon=2)
    terms = replace(terms, schedule=policy) if policy else terms
    state = init(Zone("z", [100, 100]), Tariff(1.0, 1.0), [model], laws, terms)
    scale = state.scheduler.at(1).scale if policy else 0.0
    assert np.isinf(state.scheduler.losses(1, scale)).all()
