"""Leakage about one step from all releases: golden values, brute force, upper bounds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from hushgrid import Calendar, NeverMixes, OccupancyModel, PolicyError
from hushgrid.accounting.temporal import (
    Stream,
    grows_without_end,
    growth,
    supremum,
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


@pytest.mark.soak
def test_supremum_is_the_limit_of_iteration() -> None:
    assert supremum(E, 0.5) == pytest.approx(1.582528, abs=1e-6)
    for rows, e in ((E, 0.5), ([[0.99, 0.01], [0.05, 0.95]], 0.1), ([[1.0, 0.0], [0.4, 0.6]], 0.3)):
        a = np.array([0.0])
        for _ in range(20_000):
            a = e + carried_leakage(a, np.array([rows]), np.ones((1, 2), bool))
        assert supremum(rows, e) == pytest.approx(float(a[0]), rel=1e-6)
    assert supremum(np.eye(2), 0.1) == math.inf


def test_growth_without_end_is_told() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]] * 2, [[np.eye(2), E]])
    assert grows_without_end(theta, 0.1).tolist() == [True, False]
    total = temporal_leakage(theta, np.full(50, 0.1)).total
    assert total[25, 0] == pytest.approx(5.0)


def test_growth_backward_is_told_too() -> None:
    """Whoever is still present has always been so: its past is one secret, ever better known."""
    halving = OccupancyModel.factored([[0.5, 0.5]], [[[[1.0, 0.0], [0.5, 0.5]]]])
    for e in (0.1, 1e-6):  # however little, in the long run
        assert grows_without_end(halving, e).tolist() == [True]
    found = temporal_leakage(halving, np.full(400, 0.1))
    assert found.backward[-1, 0] - found.backward[-101, 0] == pytest.approx(10.0)
    assert found.forward.max() < 1  # forward it settles


@pytest.mark.parametrize(
    ("a", "epsilon", "grows"),
    [
        ([[0.0, 1.0], [1.0, 0.0]], 0.1, True),  # it changes, but as surely as it stayed
        ([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]], 5.0, False),  # slowly, but it settles
        ([[0.5, 0.5], [0.5, 0.5]], 5.0, False),
        ([[1.0, 0.0], [1.0, 0.0]], 5.0, False),  # certain from the second step on
    ],
)
def test_what_grows(a: list[list[float]], epsilon: float, grows: bool) -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[a]])
    assert grows_without_end(theta, epsilon).tolist() == [grows]


def test_growth_day_by_day_warns_once() -> None:
    theta = OccupancyModel.factored(
        [[0.5, 0.5]] * 3, [[E, np.eye(2), [[1.0, 0.0], [0.5, 0.5]]]], chain_of=[0, 1, 2, 1, 0]
    )
    with pytest.warns(NeverMixes, match=r"3 of 5 houses \(the first is house 1\)") as told:
        found = growth(theta, 0.1, days=4, steps=10)
    assert len(told) == 1
    assert str(told[0].message).endswith(".")
    assert found.houses.tolist() == [1, 2, 3]
    assert found.leakage[:, 0] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    for d in range(4):
        whole = temporal_leakage(theta, np.full(10 * (d + 1), 0.1)).total.max(axis=0)
        assert found.leakage[d] == pytest.approx(whole[[1, 2, 3]])
    assert (np.diff(found.leakage, axis=0) > 0).all()


def test_growth_is_silent_where_chains_mix() -> None:
    found = growth(THETA, 0.1, days=2)
    assert found.houses.size == 0
    assert found.leakage.shape == (2, 0)


def test_growth_of_blocks() -> None:
    both = OccupancyModel.blocked([[0, 2], [1]], [np.full(4, 0.25), [0.5, 0.5]], [[np.eye(4)], [E]])
    with pytest.warns(NeverMixes, match="2 of 3 houses"):
        found = growth(both, 0.5, days=2, steps=2)
    assert found.houses.tolist() == [0, 2]
    assert found.leakage == pytest.approx(np.array([[1.0, 1.0], [2.0, 2.0]]))


def test_certain_steps_lose_and_carry_nothing() -> None:
    shut = np.array([[1.0, 0.0], [1.0, 0.0]])
    theta = OccupancyModel.factored([[0.5, 0.5]], [[E], [shut]], calendar=Calendar([0, 0, 1, 0]))
    found = temporal_leakage(theta, [0.5] * 4).total[:, 0]
    assert found[2] == 0
    assert found[3] == pytest.approx(0.5)
    assert found[:2] == pytest.approx(temporal_leakage(THETA_HALF, [0.5] * 2).total[:, 0])


THETA_HALF = OccupancyModel.factored([[0.5, 0.5]], [[E]])


def test_houses_models_blocks_and_streams() -> None:
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
    stream = Stream.start(quick)
    for t in range(5):
        stream = stream.step(0.4)
        assert stream.worst == pytest.approx(temporal_leakage(quick, [0.4] * 5).backward[t, 0])


@pytest.mark.parametrize("e", [[], [[0.1, 0.1]], [-0.1], [math.nan]])
def test_bad_losses(e: list[float]) -> None:
    with pytest.raises(PolicyError, match="epsilon_t"):
        temporal_leakage(THETA, e)


def test_a_stream_keeps_houses_whose_chance_underflows() -> None:
    """Present halves every step: its float chance is 0 after 1075 steps, and yet it is possible."""
    halving = OccupancyModel.factored([[0.5, 0.5]], [[[[1.0, 0.0], [0.5, 0.5]]]])
    stream = Stream.start(halving)
    for _ in range(1200):
        stream = stream.step(0.1)
    assert stream.worst >= 0.1
    whole = temporal_leakage(halving, np.full(1200, 0.1)).backward[-1, 0]
    assert stream.worst == pytest.approx(whole)


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
