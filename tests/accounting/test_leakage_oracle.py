"""Temporal leakage is never below the truth: small worlds, all occupancies and outputs summed.

The oracle (leakage_oracle.py) works from the definition alone, on the random zones of
leakage_worlds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from hushgrid import Elasticity, OccupancyModel, Policy, house_losses, init
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.mechanism.policy import BlockRule
from tests.accounting.leakage_oracle import (
    Bits,
    Floats,
    certain,
    leakage_by_paths,
    loads_of,
    log_ratios,
    true_leakage,
)
from tests.accounting.leakage_worlds import (
    ANY,
    SHARP,
    TARIFF,
    Blocks,
    Pmf,
    Setup,
    booked_losses,
    losses_alone,
    random_chain,
    random_scales,
    random_setup,
    rate,
    singles,
)

SLACK = 1e-9  # log-ratios here are below 50 and sums of a few thousand terms: errors near 1e-12
BLOCKS: list[Blocks] = [[(0, 1)], [(1, 0)], [(2, 0), (1,)], [(0,), (1, 2)]]


# --- the oracle itself -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_oracle_equals_the_definition(seed: int) -> None:
    rng = np.random.default_rng([10, seed])
    elastic = Elasticity(3.0, 1.0) if seed % 2 else None
    blocks = [singles(1), singles(2), *BLOCKS[:2]][seed // 2]
    setup = random_setup(rng, blocks, most=30, longest=3, zeros=0.2, elasticity=elastic)
    scales = rng.uniform(0.5, 3.0, (setup.horizon, sum(setup.bounds) + 1))
    world = setup.world(scales)
    assert true_leakage(world) == pytest.approx(np.array(leakage_by_paths(world)), abs=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_a_tail_tells_what_its_end_tells(seed: int) -> None:
    """So the window loses nothing; a narrower one does, being post-processing."""
    rng = np.random.default_rng([11, seed])
    setup = random_setup(rng, singles(1 + seed % 3), most=300, longest=3, zeros=0.2)
    scales, top = random_scales(rng, setup.horizon), sum(setup.bounds)
    truth = true_leakage(setup.world(scales))
    assert true_leakage(setup.world(scales, -3, top + 3)) == pytest.approx(truth, abs=1e-10)
    assert (true_leakage(setup.world(scales, 0, max(1, top - 1))) <= truth + 1e-10).all()


# --- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(45))
def test_independent_houses(seed: int) -> None:
    """From all releases, from those up to now, and from those from now on."""
    rng = np.random.default_rng([12, seed])
    zeros = (0.0, 0.0, 0.3)[seed // 3 % 3]
    setup = random_setup(rng, singles(1 + seed % 3), most=12_000, zeros=zeros)
    scales = random_scales(rng, setup.horizon)
    world, model = setup.world(scales), setup.model()
    claimed = temporal_leakage(model, losses_alone(setup, scales))
    truth = true_leakage(world)
    assert (truth <= claimed.total + SLACK).all()
    sure = certain(world)
    assert (truth[sure] == 0).all()
    assert (claimed.total[sure] == 0).all()
    for t in range(1, setup.horizon + 1):
        assert (true_leakage(world.until(t))[-1] <= claimed.backward[t - 1] + SLACK).all()
        assert (true_leakage(world.since(t))[0] <= claimed.forward[t - 1] + SLACK).all()


@pytest.mark.parametrize("seed", range(12))
def test_two_steps_attain_it(seed: int) -> None:
    """Where readings are occupancy itself and two steps at most, the bound is the truth.

    An output far out tells of each house apart, so it makes no difference who the others are, and
    it tells as much in one direction as in the other, so each step can take the sign it likes.
    """
    rng = np.random.default_rng([13, seed])
    blocks = singles(1 + seed % 3)
    setup = random_setup(rng, blocks, most=100, longest=2, zeros=0.2, kinds=(SHARP,))
    scales = random_scales(rng, setup.horizon)
    claimed = temporal_leakage(setup.model(), losses_alone(setup, scales)).total
    assert true_leakage(setup.world(scales)) == pytest.approx(claimed, abs=1e-9)


@pytest.mark.parametrize("seed", range(28))
def test_houses_that_move_together(seed: int) -> None:
    rng = np.random.default_rng([14, seed])
    setup = random_setup(rng, BLOCKS[seed % 4], most=3_000, zeros=(0.0, 0.4)[seed // 4 % 2])
    scales, model = random_scales(rng, setup.horizon), setup.model()
    losses = booked_losses([model], setup, scales)
    claimed = temporal_leakage(model, losses)
    world = setup.world(scales)
    assert (true_leakage(world) <= claimed.total + SLACK).all()
    for t in range(1, setup.horizon + 1):
        assert (true_leakage(world.until(t))[-1] <= claimed.backward[t - 1] + SLACK).all()
        assert (true_leakage(world.since(t))[0] <= claimed.forward[t - 1] + SLACK).all()


@pytest.mark.parametrize("seed", range(6))
def test_whichever_model_is_the_true_one(seed: int) -> None:
    """Houses that one model moves together and another apart."""
    rng = np.random.default_rng([15, seed])
    apart = random_setup(rng, singles(2), most=1_000, zeros=0.3)
    chain = random_chain(rng, 4, 0.3, apart.horizon)
    moves = [[move] for move in chain[1:]]
    together = Setup(apart.bounds, [(0, 1)], [chain[0]], moves, apart.laws)
    scales = random_scales(rng, apart.horizon)
    models = [apart.model(), together.model()]
    claimed = temporal_leakage(models, booked_losses(models, apart, scales)).total
    for setup in (apart, together):
        assert (true_leakage(setup.world(scales)) <= claimed + SLACK).all()


@dataclass(frozen=True)
class Reaction:
    """A zone whose demand answers rates: noise and losses after each last output."""

    setup: Setup
    model: OccupancyModel
    scales: Floats  # (T, outputs)
    losses: Floats  # (T, outputs, houses)


def random_reaction(
    rng: np.random.Generator, blocks: Blocks, epsilon: float, *, calibrated: bool
) -> Reaction:
    """Noise calibrated to epsilon after each rate, or fixed beforehand whatever the rates."""
    elasticity = Elasticity(
        reference=float(rng.uniform(2.5, 6.0)),
        exponent=float(rng.uniform(0.5, 2.0)),
        low=float(rng.uniform(0.2, 0.8)),
        high=float(rng.uniform(1.2, 3.0)),
    )
    setup = random_setup(rng, blocks, most=1_300, zeros=0.15, elasticity=elasticity)
    model, f = setup.model(), setup.consumption()
    policy = Policy(epsilon, setup.horizon, eta=0.0)
    state = init(setup.zone, TARIFF, [model], f, policy)
    fixed, n = random_scales(rng, setup.horizon), sum(setup.bounds) + 1
    scales, losses = np.empty((setup.horizon, n)), np.empty((setup.horizon, n, len(setup.bounds)))
    for t, output in product(range(setup.horizon), range(n)):
        rates = [rate(output)] * t  # only the last one matters
        b = state.scheduler.at(t + 1, rates).scale if calibrated else float(fixed[t])
        factor = setup.factor(output) if t else 1.0
        scales[t, output] = b
        if len(blocks) == len(setup.bounds):
            losses[t, output] = house_losses(setup.zone, f, t + 1, b, 0.0, factor)[0]
        else:
            losses[t, output] = state.scheduler.losses(t + 1, b, rates)
    return Reaction(setup, model, scales, losses)


@pytest.mark.parametrize("seed", range(32))
@pytest.mark.sampled
def test_demand_that_answers_rates(seed: int) -> None:
    """Realised losses bound what their own path tells; a cap beforehand bounds every path.

    For a fixed path everything but the house's own occupancy weighs the same on both sides, so
    the path's own losses may be put into the recursion; leakage never falls with the losses.
    """
    rng = np.random.default_rng([16, seed])
    blocks = [singles(1), singles(2), singles(3), *BLOCKS[1:3]][seed % 5]
    calibrated, epsilon = bool(seed // 5 % 2), float(rng.uniform(0.2, 2.0))
    found = random_reaction(rng, blocks, epsilon, calibrated=calibrated)
    horizon, n = found.scales.shape
    told = np.abs(log_ratios(found.setup.world(found.scales)))
    told = told.reshape(*told.shape[:2], -1, n).max(axis=-1)  # the last output moves no loss
    beforehand = [temporal_leakage(found.model, found.losses.max(axis=1)).total]
    if calibrated:
        beforehand.append(temporal_leakage(found.model, np.full(horizon, epsilon)).total)
    for number, path in enumerate(product(range(n), repeat=horizon - 1)):
        last = (0, *path)
        realised = np.array([found.losses[t, last[t]] for t in range(horizon)])
        afterwards = temporal_leakage(found.model, realised).total
        assert (told[:, :, number] <= afterwards + SLACK).all()
        for cap in beforehand:
            assert (afterwards <= cap + SLACK).all()


@pytest.mark.parametrize("eta", [0.3, 1.0])
@pytest.mark.parametrize("seed", range(12))
def test_worlds_that_are_not_the_model(seed: int, eta: float) -> None:
    """A share eta of every law is anything: by step, by last output, by the others' readings.

    Where house 0 listens to the others the claim is made for house 0 alone: the others then speak
    through its meter too, which no independent model knows of.
    """
    rng = np.random.default_rng([17, seed, int(10 * eta)])
    setup = random_setup(rng, singles(1 + seed % 3), most=1_300, zeros=0.1, kinds=(SHARP, ANY))
    scales, listens = random_scales(rng, setup.horizon), bool(seed % 2)
    loads = [
        np.array(
            [
                loads_of(contaminated(rng, setup, t, eta, listens), setup.bounds)
                for _ in range(sum(setup.bounds) + 1)
            ]
        )
        for t in range(setup.horizon)
    ]
    n = sum(setup.bounds)
    world = setup.world_of(loads, np.repeat(scales[:, None], n + 1, axis=1), 0, n)
    losses = losses_alone(setup, scales, eta)
    if eta == 1:
        assert losses == pytest.approx(np.array(setup.bounds) / scales[:, None], rel=1e-12)
    claimed = temporal_leakage(setup.model(), losses).total
    houses = slice(0, 1) if listens else slice(None)
    assert (true_leakage(world)[:, houses] <= claimed[:, houses] + SLACK).all()


def contaminated(
    rng: np.random.Generator, setup: Setup, t: int, eta: float, listens: bool
) -> Callable[[int, int, Bits], Pmf]:
    """(1 - eta) f + eta g: g a point at either end, or any law, drawn once for each situation."""
    known: dict[tuple[int, int, Bits], Pmf] = {}

    def law(house: int, occupied: int, others: Bits) -> Pmf:
        key = (house, occupied, others if listens and house == 0 else ())
        if key not in known:
            u = setup.bounds[house]
            ends = np.eye(u + 1)[rng.choice([0, u])]
            g = ends if rng.random() < 0.7 else rng.dirichlet(np.ones(u + 1))
            f = np.array(setup.laws[t][house][occupied])
            known[key] = ((1 - eta) * f + eta * g).tolist()
        return known[key]

    return law


# --- what it needs -----------------------------------------------------------------------------

HALF = np.array([0.5, 0.5])
LAZY = np.array([[0.9, 0.1], [0.1, 0.9]])
METER = ([1.0, 0.0], [0.0, 1.0])  # reads 1 Wh when somebody is at home


def test_readings_of_different_houses_must_be_independent() -> None:
    """House 0 repeats what house 1 reads: twice the claim is told about house 1, none about 0."""
    setup = Setup([1, 1], singles(2), [HALF, HALF], [], [[METER, METER]])

    def law(house: int, occupied: int, others: Bits) -> Pmf:
        return METER[others[0]] if house == 0 else METER[occupied]

    loads = np.repeat(loads_of(law, setup.bounds)[None], 3, axis=0)
    world = setup.world_of([loads], np.full((1, 3), 2.0), 0, 2)
    claimed = temporal_leakage(setup.model(), losses_alone(setup, np.array([2.0]), 1.0)).total
    assert claimed[0] == pytest.approx([0.5, 0.5])
    assert true_leakage(world)[0] == pytest.approx([0.0, 1.0], abs=1e-12)


def test_the_chain_must_be_the_true_one() -> None:
    """Occupancy that lasts longer than the model says tells more than the model's leakage."""
    model = Setup([1], singles(1), [HALF], [[LAZY]] * 2, [[METER]] * 3)
    truth = Setup([1], singles(1), [HALF], [[np.eye(2)]] * 2, [[METER]] * 3)
    scales = np.full(3, 2.0)
    claimed = temporal_leakage(model.model(), losses_alone(model, scales)).total
    assert (true_leakage(model.world(scales)) <= claimed + SLACK).all()
    assert true_leakage(truth.world(scales)) == pytest.approx(1.5)
    assert (claimed < 1.5).all()


@pytest.mark.parametrize("rule", ["block", "minimal", "paper"])
def test_what_a_block_can_tell_must_be_booked(rule: BlockRule) -> None:
    """Two houses nearly always in the same state at b = 2: 0.99979 is told about each.

    The rules `minimal` and `paper` set noise for the change of one house, from which no leakage
    about the house itself follows; what is booked is what the block can tell, under any rule.
    """
    nearly = np.array([0.4999, 0.0001, 0.0001, 0.4999])
    setup = Setup([1, 1], [(0, 1)], [nearly], [], [[METER, METER]])
    scales, model = np.array([2.0]), setup.model()
    truth = true_leakage(setup.world(scales))
    assert truth[0] == pytest.approx([0.99979, 0.99979], abs=1e-5)
    claimed = temporal_leakage(model, booked_losses([model], setup, scales, rule)).total
    assert (truth <= claimed + SLACK).all()
