"""Leakage about one step from all releases: golden values, brute force, upper bounds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from hushgrid import Calendar, OccupancyModel, PolicyError
from hushgrid.accounting.temporal import (
    temporal_leakage,
    worst_leakage,
)
from hushgrid.belief.filter import _carried_many, carried_leakage
from hushgrid.lab import paper

E = np.array([[0.9, 0.1], [0.2, 0.8]])
THETA = OccupancyModel.factored([[0.7, 0.3]], [[E]])


def brute_force(initial: list[float], steps: list[np.ndarray], e: list[float]) -> list[float]:
    """Randomised response at each step: the worst log-ratio about S^t over all outputs."""
    horizon, worst = len(e), [0.0] * len(e)
    keep = [1 / (1 + math.exp(-x)) for x in e]
    for outputs in product((0, 1), repeat=horizon):
        joint = np.zeros((horizon, 2))
        for path in product((0, 1), repeat=horizon):
            p = initial[path[0]]
            for t in range(1, horizon):
                p *= steps[t - 1][path[t - 1], path[t]]
            for t in range(horizon):
                p *= keep[t] if outputs[t] == path[t] else 1 - keep[t]
            for t in range(horizon):
                joint[t, path[t]] += p
        marginal = np.array(initial)
        for t in range(horizon):
            marginal = marginal if t == 0 else marginal @ steps[t - 1]
            worst[t] = max(worst[t], abs(float(np.diff(np.log(joint[t] / marginal))[0])))
    return worst


def test_golden_three_steps() -> None:
    found = temporal_leakage(THETA, [0.5] * 3)
    assert found.backward[:, 0] == pytest.approx([0.5, 0.852078, 1.103589], abs=1e-6)
    assert found.forward[:, 0] == pytest.approx([1.106270, 0.855182, 0.5], abs=1e-6)
    assert found.total[:, 0] == pytest.approx([1.106270, 1.207260, 1.103589], abs=1e-6)
    uneven = temporal_leakage(THETA, [0.5, 0.3, 0.4]).total[:, 0]
    assert uneven == pytest.approx([0.914884, 0.935856, 0.861792], abs=1e-6)
    for e in ([0.5] * 3, [0.5, 0.3, 0.4]):  # here randomised response attains the bound
        attained = brute_force([0.7, 0.3], [E, E], e)
        assert temporal_leakage(THETA, e).total[:, 0] == pytest.approx(attained, abs=1e-9)


def test_golden_changing_chain() -> None:
    last = np.array([[0.6, 0.4], [0.05, 0.95]])
    theta = OccupancyModel.factored([[0.7, 0.3]], [[E], [last]], calendar=Calendar([0, 0, 1]))
    found = temporal_leakage(theta, [0.5] * 3).total[:, 0]
    assert found == pytest.approx([1.065487, 1.148908, 0.979745], abs=1e-6)
    attained = brute_force([0.7, 0.3], [E, last], [0.5] * 3)
    assert attained == pytest.approx([1.032184, 1.125316, 0.979745], abs=1e-6)


@pytest.mark.parametrize(
    ("e", "worst"), [(0.5, 11.418), (0.1, 2.748), (0.05, 1.344), (0.01, 0.258), (0.0376, 1.0)]
)
def test_golden_papers_chain(e: float, worst: float) -> None:
    initial, a = paper.chains(0.0, 1, np.random.default_rng(1))
    awake = OccupancyModel.factored([[0.99, 0.01]], a, calendar=paper.CALENDAR)
    assert temporal_leakage(awake, np.full(96, e)).worst == pytest.approx(worst, abs=6e-4)
    asleep = OccupancyModel.factored(initial, a, calendar=paper.CALENDAR)
    if e == 0.5:
        found = temporal_leakage(asleep, np.full(96, e))
        assert (found.worst, found.total.mean()) == pytest.approx((10.131, 8.529), abs=1e-3)


@pytest.mark.parametrize("seed", range(40))
def test_never_below_the_truth(seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    horizon = int(rng.integers(1, 6))
    steps = [rng.dirichlet([0.7, 0.7], 2) for _ in range(horizon - 1)]
    initial, e = rng.dirichlet([1, 1]).tolist(), rng.uniform(0, 1.5, horizon).tolist()
    slots = [[E], *([step] for step in steps)]
    theta = OccupancyModel.factored([initial], slots, calendar=Calendar(range(horizon)))
    found = temporal_leakage(theta, e).total[:, 0]
    assert (np.array(brute_force(initial, steps, e)) <= found + 1e-9).all()


@pytest.mark.parametrize("seed", range(20))
def test_two_states_equal_many(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    rows, a = rng.dirichlet([0.5, 0.5], 2), float(rng.uniform(0, 30))
    two = carried_leakage(np.array([a]), rows[None], np.ones((1, 2), bool))[0]
    assert two == pytest.approx(_carried_many(a, rows), abs=1e-9)


def test_many_states_equal_every_set_of_columns() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        rows, a = rng.dirichlet(np.ones(4) * 0.4, 4), float(rng.uniform(0, 5))
        worst = max(
            math.log((q[s].sum() * math.expm1(a) + 1) / (d[s].sum() * math.expm1(a) + 1))
            for q in rows
            for d in rows
            for s in (np.array(bits, bool) for bits in product((0, 1), repeat=4))
        )
        assert _carried_many(a, rows) == pytest.approx(worst, abs=1e-9)


def test_certain_steps_lose_and_carry_nothing() -> None:
    shut = np.array([[1.0, 0.0], [1.0, 0.0]])
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E], [shut]], calendar=Calendar([0, 0, 1, 0]))
    found = temporal_leakage(theta, [0.5] * 4).total[:, 0]
    assert found[2] == 0
    assert found[3] == pytest.approx(0.5)
    assert found[:2] == pytest.approx(temporal_leakage(THETA_HALF, [0.5] * 2).total[:, 0])


THETA_HALF = OccupancyModel.factored([[0.5, 0.5]], [[E]])


def test_houses_models_and_blocks() -> None:
    lazy = OccupancyModel.factored([[0.7, 0.3]], [[[[0.99, 0.01], [0.02, 0.98]]]], chain_of=[0, 0])
    quick = OccupancyModel.factored([[0.7, 0.3]], [[E]], chain_of=[0, 0])
    both = temporal_leakage([quick, lazy], [0.4] * 5)
    assert both.total == pytest.approx(temporal_leakage(lazy, [0.4] * 5).total)
    own = temporal_leakage(quick, np.tile([0.4, 0.1], (5, 1))).total
    assert own[:, 0] == pytest.approx(temporal_leakage(quick, [0.4] * 5).total[:, 0])
    assert own[:, 1] == pytest.approx(temporal_leakage(quick, [0.1] * 5).total[:, 1])
    joint = OccupancyModel.joint(np.kron([0.7, 0.3], [0.7, 0.3]), [np.kron(E, E)])
    assert (
        temporal_leakage(joint, [0.4] * 5).worst >= temporal_leakage(quick, [0.4] * 5).worst - 1e-9
    )


@pytest.mark.parametrize("e", [[], [[0.1, 0.1]], [-0.1], [math.nan]])
def test_bad_losses(e: list[float]) -> None:
    with pytest.raises(PolicyError, match="epsilon_t"):
        temporal_leakage(THETA, e)


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("classes", [None, 4])
def test_worst_of_houses_in_chunks_is_the_worst_of_all(
    monkeypatch: pytest.MonkeyPatch, models: int, classes: int | None
) -> None:
    """Against the whole (T, houses) arrays; chunks so small that groups are split over them."""
    monkeypatch.setattr(
        "hushgrid.accounting.temporal.chunks",
        lambda n, _: (slice(k, min(k + 7, n)) for k in range(0, n, 7)),
    )
    rng, n, horizon = np.random.default_rng(4), 60, 5
    theta = []
    for _ in range(models):
        stay = rng.uniform(0.3, 1.0, (1, 6, 2))
        rows = np.stack([np.stack([stay, 1 - stay], -1)[..., 0, :]] * 2, -2)
        rows[..., 1, :] = rows[..., 0, ::-1]
        home = rng.uniform(0.1, 0.9, 6)
        first = np.stack([1 - home, home], 1)
        theta.append(OccupancyModel.factored(first, rows, chain_of=rng.integers(6, size=n)))
    e = rng.uniform(0.0, 1.0, (horizon, classes or n))
    kinds = None if classes is None else rng.integers(classes, size=n)
    total = temporal_leakage(theta, e if kinds is None else e[:, kinds]).total
    found = worst_leakage(theta, e, kinds)
    assert found.by_house == pytest.approx(total.max(axis=0), rel=1e-12)
    step, house = np.unravel_index(total.argmax(), total.shape)
    assert (found.total, found.step) == (pytest.approx(total.max(), rel=1e-12), step + 1)
    assert found.house == house
    assert worst_leakage(theta, e[:, 0]).total == pytest.approx(
        temporal_leakage(theta, e[:, 0]).worst, rel=1e-12
    )


def test_worst_of_blocks_and_bad_classes() -> None:
    pair = OccupancyModel.joint([0.25] * 4, [np.kron(E, E)])
    e = np.array([[0.2, 0.4], [0.3, 0.1]])
    assert worst_leakage(pair, e).total == temporal_leakage(pair, e).worst
    assert worst_leakage(pair, e, [1, 1]).total == temporal_leakage(pair, e[:, [1, 1]]).worst
    with pytest.raises(PolicyError, match="class_of has shape"):
        worst_leakage(pair, e, [0])
