"""Exact against the enumeration of all paths; her probabilities come true."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Elasticity,
    Exact,
    Histogram,
    Knowledge,
    Law,
    OccupancyModel,
    Release,
    Uniform,
    Zone,
    look_back,
    watch,
)
from hushgrid.adversary.exact import joint_likelihood
from hushgrid.errors import ModelError
from tests.adversary.oracle import add
from tests.adversary.worlds import GAUSSIAN, LAPLACE, Small, play, release, small

SINGLES = [[(h,) for h in range(n)] for n in (1, 2, 3, 4)]
SHAPES = [
    *((blocks, steps) for blocks, steps in zip(SINGLES, (5, 5, 4, 3), strict=True)),
    ([(0, 1)], 5),
    ([(1, 0), (2,)], 4),
    ([(2, 0), (3, 1)], 3),
    ([(3,), (0, 2, 1)], 3),
    ([(0, 1, 2, 3)], 3),
]
TIGHT = 1e-12


def agree(world: Small, clamp: tuple[int, ...], releases: list[Release]) -> None:
    found = world.by_paths(releases, clamp)
    who = Exact(world.knowledge(clamp))
    ahead, behind = watch(who, releases), look_back(who, releases)
    assert np.abs(ahead.home[0] - found.filtered).max() <= TIGHT
    assert np.abs(behind.home[0] - found.smoothed).max() <= TIGHT
    assert ahead.evidence[0, :, 0] == pytest.approx(found.evidence, abs=TIGHT)
    assert behind.evidence[0, :, 0] == pytest.approx(found.evidence[-1], abs=TIGHT)


@pytest.mark.parametrize(("blocks", "steps"), SHAPES)
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_exact_equals_the_enumeration_of_paths(
    blocks: list[tuple[int, ...]], steps: int, zeros: float
) -> None:
    rng = np.random.default_rng([steps, len(blocks), round(10 * zeros)])
    for noise in (LAPLACE, GAUSSIAN):
        for _ in range(2):
            world = small(rng, blocks, steps, zeros=zeros)
            outputs = rng.integers(-6, sum(world.bounds) + 7, steps).tolist()
            scales = rng.uniform(0.4, 6.0, steps).tolist()
            agree(
                world,
                (),
                [
                    release(t, z, b, noise=noise)
                    for t, (z, b) in enumerate(zip(outputs, scales, strict=True), 1)
                ],
            )


def test_exact_equals_a_million_paths() -> None:
    """N = 4, T = 5: 16^5 paths."""
    rng = np.random.default_rng(45)
    world = small(rng, SINGLES[3], 5, most=3)
    agree(world, (), [release(t, int(rng.integers(-2, 12)), 1.5) for t in range(1, 6)])


def test_clamp_demand_and_gaps_are_seen_as_they_are() -> None:
    rng = np.random.default_rng(7)
    for turn in range(6):
        world = small(
            rng, SINGLES[2], 4, elasticity=Elasticity(reference=3.0, exponent=1.0, high=2.0)
        )
        clamp = tuple(int(c) for c in rng.integers(1, 5, 3))
        rates = rng.uniform(1.0, 6.0, 4).tolist()
        releases = [
            release(t, int(rng.integers(0, 8)), 2.0, rate=rates[t - 1])
            for t in (1, 2, 3, 4)
            if t != 2 + turn % 2
        ]
        agree(world, clamp, releases)


def test_a_clamp_alone_is_seen_as_it_is() -> None:
    rng = np.random.default_rng(6)
    for _ in range(4):
        world = small(rng, SINGLES[1], 3)
        clamp = tuple(int(c) for c in rng.integers(1, 4, 2))
        agree(world, clamp, [release(t, int(rng.integers(0, 6)), 2.0) for t in (1, 2, 3)])


def test_a_load_published_without_noise() -> None:
    rng = np.random.default_rng(8)
    world = small(rng, SINGLES[1], 4)
    agree(
        world, (), [release(1, 1, 0.0), release(2, 2, 1.0), release(3, 0, 0.0), release(4, 1, 3.0)]
    )
    with pytest.raises(ModelError, match="release of step 1 has probability 0 under model theta"):
        watch(Exact(world.knowledge()), [release(1, -1, 0.0)])


def test_no_evidence_makes_a_possible_state_impossible() -> None:
    """N = 1, A = I, u = b = 1000, every output 1000: a float posterior is 0 at step 738."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]])
    f = Consumption.by_class(absent=[Uniform(0)], present=[Uniform(1000)])
    sharp = Consumption.by_class(absent=[Uniform(0)], present=[_only(1000)])
    for law in (f, sharp):
        who = Exact(_known(theta, law))
        beliefs = who.start()
        for t in range(1, 1001):
            beliefs = who.step(beliefs, release(t, 1000, 1000.0))
        assert np.isfinite(beliefs.laws[0]).all()
    # sharp: the odds of step t are e^t
    assert beliefs.laws[0][0] - beliefs.laws[0][1] == pytest.approx(-1000, rel=1e-9)


def _only(x: int) -> Law:
    return Histogram([0.0] * x + [1.0])


def _known(theta: OccupancyModel, f: Consumption) -> Knowledge:
    return Knowledge(Zone("z", [1000]), [theta], f)


def test_deep_and_shallow_sums_agree() -> None:
    """Noise so small that likelihoods span e^-900: the product in logarithms meets the matrix."""
    rng = np.random.default_rng(3)
    world = small(rng, SINGLES[3], 1, most=30)
    for scale in (0.05, 0.08):
        top = sum(world.bounds)
        for z in (-1, 0, top // 2, top + 3):
            knowledge = world.knowledge()
            found = joint_likelihood(
                knowledge.laws(1, None), z, knowledge.check_release(release(1, z, scale), 0, None)
            )
            expected = _log_likelihoods(world.laws[0], z, scale)
            assert np.abs(found - expected).max() <= 1e-10


def _log_likelihoods(pairs: list[tuple[list[float], list[float]]], z: int, b: float) -> list[float]:
    found = []
    for state in itertools.product((0, 1), repeat=len(pairs)):
        law = [1.0]
        for pair, s in zip(pairs, state, strict=True):
            law = add(law, pair[s])
        logs = [math.log(p) - abs(z - y) / b for y, p in enumerate(law) if p > 0]
        most = max(logs)
        constant = math.log(math.tanh(1 / (2 * b)))
        found.append(most + constant + math.log(math.fsum(math.exp(x - most) for x in logs)))
    return found


@pytest.mark.soak
def test_probabilities_come_true() -> None:
    """Reliability: of all guesses near p, a share of p is right, within 4 binomial errors.

    Guesses of one day hang together, so the error is taken over days.
    """
    n, days = 5, 60
    rng = np.random.default_rng(11)
    leave, come = rng.uniform(0.05, 0.3, (2, n))
    a = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], -2)
    theta = OccupancyModel.factored(rng.dirichlet([3, 3], n), a[None])
    tops = [20, 30, 40, 40, 60]
    f = Consumption.by_class(absent=[Uniform(u // 5) for u in tops], present=[*map(Uniform, tops)])
    guesses, truth = [], []
    for seed in range(days):
        day = play(Zone("z", tops), [theta], f, 12.0, 24, seed)
        guesses.append(watch(Exact(day.knowledge), day.releases).home[0])
        truth.append(day.occupancy)
    p, s = np.array(guesses), np.array(truth)
    cells = np.minimum((p * 10).astype(int), 9)
    looked_at = 0
    for cell in range(10):
        inside = cells == cell
        if inside.sum() < 300:
            continue
        gap = np.where(inside, s - p, 0.0).sum(axis=(1, 2))  # of each day; its mean is 0
        error = gap.std() * np.sqrt(days)
        assert abs(gap.sum()) <= 4 * error, (cell, gap.sum(), error)
        looked_at += 1
    assert looked_at >= 7
    assert p.max() - p.min() > 0.9


def test_too_many_houses() -> None:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]], chain_of=[0] * 15)
    f = Consumption.by_class(absent=[Uniform(1)], present=[Uniform(2)], class_of=[0] * 15)
    with pytest.raises(ModelError, match=r"the zone has 15 houses, 2\^15 joint states"):
        Exact(Knowledge(Zone("z", [2] * 15), [theta], f))
