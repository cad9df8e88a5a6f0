"""Who is protected: the literal Algorithm 1, the rules for blocks and Theta."""

from __future__ import annotations

import math
import os
from itertools import combinations, islice, pairwise, product

import numpy as np
import pytest

from hushgrid import (
    Calendar,
    Consumption,
    OccupancyModel,
    Policy,
    Uniform,
    Zone,
    possible_states,
    protected,
    schedule,
    worst_loss,
)
from hushgrid.mechanism.noise import pmf
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.mechanism.support import flips
from tests import oracle
from tests.strategies import random_model

EPSILON = 0.5
WORLDS = int(os.environ.get("HUSHGRID_WORLDS", "60"))  # random models; 1000 in make soak
EYE, E = np.eye(2), np.array([[0.9, 0.1], [0.2, 0.8]])


def halves(zone: Zone) -> Consumption:
    bounds = zone.bound.tolist()
    return Consumption.by_class(
        absent=[Uniform(u // 2) for u in bounds], present=[Uniform(u) for u in bounds]
    )


def literal(n: int, seed: int, largest_block: int) -> None:
    rng = np.random.default_rng([n, seed, largest_block])
    horizon = 12
    pairs = [
        random_model(
            rng, n, horizon, largest_block=largest_block, zeros=float(rng.uniform(0.1, 0.5))
        )
        for _ in range(rng.integers(1, 4))
    ]
    models, joints = [p[0] for p in pairs], [p[1] for p in pairs]
    zone = Zone("z", rng.choice(np.arange(10, 1000), n, replace=False))
    chances = rng.integers(1, 50, (len(models), horizon + 1, 2**n))

    def likelihood(theta: int, t: int, state: tuple[int, ...]) -> int:
        return int(chances[theta, t, int("".join(map(str, state)), 2)])

    steps = oracle.algorithm_1(joints, zone.bound.tolist(), horizon, likelihood)
    policy = Policy(EPSILON, horizon, blocks="paper", models="paper", on_empty="publish_exact")
    for ours, theirs in zip(schedule(models, zone, halves(zone), policy), steps, strict=True):
        assert ours.scale == pytest.approx(theirs.lam / EPSILON, rel=1e-12)
        kappa = frozenset().union(*theirs.kappas)
        assert set(np.flatnonzero(ours.protected.mask()).tolist()) == kappa
        assert len(ours.protected) == len(kappa)
        assert all((h in ours.protected) == (h in kappa) for h in range(n))
        if theirs.lam:
            limiting = [i for i, lam in enumerate(theirs.lams) if lam == theirs.lam]
            assert zone.bound[ours.house] == theirs.lam
            assert ours.model in limiting
    union = oracle.union_kappa(joints, zone.bound.tolist(), horizon)
    for t, kappa in enumerate(union, start=1):
        mask = protected(models, t)
        assert set(np.flatnonzero(mask).tolist()) == set(kappa)


@pytest.mark.parametrize("seed", range(WORLDS))
@pytest.mark.sampled
def test_paper_rules_equal_the_literal_algorithm(seed: int) -> None:
    literal(n=1 + seed % 5, seed=seed, largest_block=1 + seed % 3)


@pytest.mark.parametrize("seed", range(max(4, WORLDS // 100)))
@pytest.mark.sampled
def test_paper_rules_equal_the_literal_algorithm_on_256_states(seed: int) -> None:
    literal(n=8, seed=seed, largest_block=1 + seed % 4)


THETA1 = OccupancyModel.factored(
    [[0.5, 0.5], [1, 0], [0.5, 0.5]],
    [
        [EYE, EYE, EYE],
        [E, EYE, [[1, 0], [1, 0]]],
        [E, [[0.5, 0.5], [0, 1]], EYE],
    ],
    calendar=Calendar([0, 1, 2]),
)
THETA2 = OccupancyModel.factored(
    [[0, 1], [1, 0], [0, 1]],
    [
        [EYE, EYE, EYE],
        [EYE, [[0.3, 0.7], [0, 1]], EYE],
        [EYE, [[0, 1], [0, 1]], EYE],
    ],
    calendar=Calendar([0, 1, 2]),
)


@pytest.mark.parametrize(
    ("models", "scales", "kappas"),
    [
        ("paper", [1000, 500, 500], [{0, 2}, {0, 1}, {0, 1}]),
        ("union", [1000, 1000, 1000], [{0, 2}, {0, 1, 2}, {0, 1, 2}]),
    ],
)
def test_golden_theta_example(models: str, scales: list[int], kappas: list[set[int]]) -> None:
    zone = Zone("z", [300, 500, 1000])
    policy = Policy(EPSILON, 3, models=models)  # type: ignore[arg-type]
    found = schedule([THETA1, THETA2], zone, halves(zone), policy)
    assert [c.scale * EPSILON for c in found] == scales
    assert [set(np.flatnonzero(c.protected.mask()).tolist()) for c in found] == kappas
    if models == "union":
        assert [c.model for c in found] == [0, None, None]  # house 3: only both models together


LOCKED = OccupancyModel.joint([0.5, 0, 0, 0.5], [np.eye(4)])
PAIR = Zone("z", [600, 400])


def locked_scale(**rules: object) -> float:
    policy = Policy(EPSILON, 1, **rules)  # type: ignore[arg-type]
    (found,) = schedule([LOCKED], PAIR, halves(PAIR), policy)
    return found.scale


def test_golden_locked_houses() -> None:
    assert locked_scale(blocks="paper", on_empty="publish_exact") == 0
    assert locked_scale() == 2000
    assert locked_scale(eta=0.0) == pytest.approx(557.834473, rel=1e-6)
    assert locked_scale(eta=0.1) == pytest.approx(703.277948, rel=1e-6)
    alone = OccupancyModel.factored([[0.5, 0.5]], [[E]])
    for u, golden in ((600, 360.775676), (400, 240.553952)):
        zone = Zone("z", [u])
        (found,) = schedule([alone], zone, halves(zone), Policy(EPSILON, 1, eta=0.0))
        assert found.scale == pytest.approx(golden, rel=1e-6)


def test_nothing_protected_is_protected_all_the_same() -> None:
    """The paper would publish exactly; that takes an explicit word."""
    certain = OccupancyModel.factored([[1.0, 0.0]] * 2, [[EYE, EYE]])
    (found,) = schedule([certain], PAIR, halves(PAIR), Policy(EPSILON, 1))
    assert found.scale == 1200
    assert len(found.protected) == 2
    (exact,) = schedule([certain], PAIR, halves(PAIR), Policy(EPSILON, 1, on_empty="publish_exact"))
    assert exact.scale == 0
    assert (exact.epsilon, exact.epsilon_any) == (0.0, math.inf)  # if Theta is right
    assert locked_scale(blocks="paper") == 1200  # the locked pair has no neighbours either


def test_nothing_uncertain_in_a_model_of_blocks_only() -> None:
    """Every state counts as possible: whole blocks under `block`, single houses under `paper`."""
    certain = OccupancyModel.joint([1.0, 0, 0, 0], [np.eye(4)])
    for rule, scale, largest in (("block", 2000, 2), ("minimal", 1200, 1), ("paper", 1200, 1)):
        policy = Policy(EPSILON, 1, blocks=rule)  # type: ignore[arg-type]
        (found,) = schedule([certain], PAIR, halves(PAIR), policy)
        assert found.scale == scale
        assert found.protected.mask().tolist() == [True, True]
        assert len(found.protected) == 2
        cases = exposures_of([certain], PAIR, halves(PAIR), policy).at(1).cases
        assert max(len(case.houses) for case in cases) == largest
        changes = [(case.houses, case.before) for case in cases]
        assert len(set(changes)) == len(changes)  # no house is met again as one standing alone


@pytest.mark.parametrize("seed", range(40))
def test_block_rules_equal_their_definitions(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    m = int(rng.integers(1, 5))
    possible = rng.random(2**m) < 0.5
    possible[rng.integers(2**m)] = True
    bounds = rng.integers(1, 100, m).tolist()
    states = {tuple(int(c) for c in f"{s:0{m}b}") for s in np.flatnonzero(possible)}
    for rule, definition in (
        ("block", oracle.block_sensitivity),
        ("minimal", oracle.minimal_sensitivity),
    ):
        found = flips(possible.tobytes(), rule)  # type: ignore[arg-type]
        for house in range(m):
            sums = [
                sum(bounds[h] for h in flip.pick(range(m)))
                for flip in found
                if house in flip.pick(range(m))
            ]
            assert max(sums, default=None) == definition(states, bounds, house)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_line_6_equals_its_enumeration(n: int) -> None:
    """Rule `paper`: pairs of possible states that differ in one house, each within u / b."""
    bounds, scale = [2, 3, 4][:n], 5.0
    ends = [(np.eye(u + 1)[0], np.eye(u + 1)[u]) for u in bounds]  # loses all that it can
    spread = [(np.full(u + 1, 1 / (u + 1)), np.eye(u + 1)[u]) for u in bounds]
    states = list(product((0, 1), repeat=n))
    for mask in range(1, 2 ** len(states)):
        possible = [bool(mask >> s & 1) for s in range(len(states))]
        allowed = [
            state for state, is_possible in zip(states, possible, strict=True) if is_possible
        ]
        neighbours = {
            tuple(h for h in range(n) if m[h] != m2[h])
            for m, m2 in combinations(allowed, 2)
            if sum(abs(a - b) for a, b in zip(m, m2, strict=True)) == 1
        }
        pairs = flips(bytes(possible), "paper")
        assert {flip.pick(range(n)) for flip in pairs} == neighbours
        assert len(pairs) == len(neighbours)
        assert all(flip.exact and flip.start() == (0,) for flip in pairs)
    for m, m2 in combinations(states, 2):
        differing = [h for h in range(n) if m[h] != m2[h]]
        if len(differing) > 1:
            continue
        most = bounds[differing[0]] / scale
        losses = [
            oracle.worst_log_ratio(
                *([laws[h][s] for h, s in enumerate(state)] for state in (m, m2)),
                scale, -8, sum(bounds) + 8,
            )
            for laws in (ends, spread)
        ]  # fmt: skip
        assert losses[0] == pytest.approx(most)
        assert 0 < losses[1] < most


def test_many_flips_are_covered_by_the_largest_sets() -> None:
    everything = flips(bytes([1]) * 2**10, "block")
    assert [f.differ for f in everything] == [2**10 - 1]
    assert not everything[0].exact


def test_ten_house_block_calibrates_at_every_eta() -> None:
    rng = np.random.default_rng(3)
    pi, a = rng.random(1024), rng.random((1, 1024, 1024))
    theta = OccupancyModel.joint(pi / pi.sum(), a / a.sum(axis=-1, keepdims=True))
    zone = Zone("z", [60] * 10)
    scales = [
        schedule([theta], zone, halves(zone), Policy(EPSILON, 2, eta=eta))[1].scale
        for eta in (0.0, 0.1, 1.0)
    ]
    assert scales == sorted(scales)
    assert scales[-1] == 1200


def test_models_with_different_blocks_are_joined() -> None:
    """theta1 locks houses 0 and 1, theta2 houses 1 and 2: all three are looked at together."""
    stay = np.eye(4)[None]
    lock, alone = [0.5, 0, 0, 0.5], [0.5, 0.5]
    one = OccupancyModel.blocked([[0, 1], [2]], [lock, alone], [stay, EYE[None]])
    two = OccupancyModel.blocked([[0], [1, 2]], [alone, lock], [EYE[None], stay])
    zone = Zone("z", [100, 200, 400])
    (union,) = schedule([one, two], zone, halves(zone), Policy(EPSILON, 1))
    assert union.scale == 700 / EPSILON  # 000 and 111 are possible under both
    (paper,) = schedule([one, two], zone, halves(zone), Policy(EPSILON, 1, models="paper"))
    assert paper.scale == 600 / EPSILON


def test_a_float_posterior_loses_a_house_where_booleans_do_not() -> None:
    """N = 1, A = I, u = b = 1000, every output 1000: the posterior of 0 is 0 at step 738."""
    posterior, t = np.array([0.5, 0.5]), 0
    likelihood = pmf(np.array([1000, 0]), 1000.0)  # X = 0 when absent, X = u when present
    while posterior[0] > 0:
        posterior = posterior * likelihood
        posterior /= posterior.sum()
        t += 1
    assert t == 738
    alone = OccupancyModel.factored([[0.5, 0.5]], [[EYE]])
    assert protected([alone], 738)[0]
    assert protected([alone], 2000)[0]
    assert next(islice(possible_states(alone), 5000, None))[0].all()


def test_a_million_houses_keep_their_own_protection() -> None:
    """Groups are an implementation matter: each house gets what it would get alone."""
    rng = np.random.default_rng(11)
    n = 400
    initial = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    a = np.array([[EYE, E, EYE], [[[0, 1], [0, 1]], EYE, E]], float)
    calendar = Calendar([0, 0, 1, 0])
    kinds = [rng.integers(0, 3, n) for _ in range(2)]
    models = [
        OccupancyModel.factored(initial, a, chain_of=kind, calendar=calendar) for kind in kinds
    ]
    for t in (1, 2, 3, 4):
        mask = protected(models, t)
        for house in rng.integers(0, n, 20).tolist():
            alone = [
                OccupancyModel.factored(initial[[k[house]]], a[:, [k[house]]], calendar=calendar)
                for k in kinds
            ]
            assert protected(alone, t)[0] == mask[house]


def test_correlated_houses_leak_more_than_claimed_without_the_block_rule() -> None:
    """docs/proofs/blocks.md: Pr(00) = Pr(11) = .4999, u = 1000 each, b = 2000 leaks 0.9998."""
    near = np.array([0.4999, 0.0001, 0.0001, 0.4999])
    ends = np.array([[1.0, math.exp(-1000 / 2000)], [math.exp(-1000 / 2000), 1.0]])
    # output 2000 with point masses at 0 and u: Pr[output | S_1 = s] over the other house
    given = [
        sum(near[2 * s + o] * ends[s, 1] * ends[o, 1] for o in (0, 1))
        / sum(near[2 * s + o] for o in (0, 1))
        for s in (0, 1)
    ]
    assert math.log(given[1] / given[0]) == pytest.approx(0.9998, abs=1e-4)
    full = OccupancyModel.joint(near, [np.eye(4)])
    zone = Zone("z", [1000, 1000])
    scale = {
        rule: schedule([full], zone, halves(zone), Policy(0.5, 1, blocks=rule))[0].scale  # type: ignore[arg-type]
        for rule in ("paper", "block")
    }
    assert scale == {"paper": 2000, "block": 4000}


def test_larger_bounds_never_lose_less() -> None:
    """What lets the largest protected house of a class speak for all of it."""
    f0, f1 = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
    for eta in (0.0, 0.05, 0.5, 1.0):
        losses = [
            worst_loss(
                np.r_[f0, np.zeros(x)], np.r_[f1, np.zeros(x)], bound=2 + x, scale=3.0, eta=eta
            )
            for x in range(12)
        ]
        assert all(b >= a - 1e-12 for a, b in pairwise(losses))
