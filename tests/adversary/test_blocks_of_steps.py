"""Adversaries where one noise lasts a block of steps, against sums over all noise and all paths.

The oracle writes down the law of a block's noise, e^(-max |n_t| / b) over all its steps, sums over
the steps that were not published and over all loads and paths; it shares no code with the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from hushgrid import (
    Calendar,
    Consumption,
    Elasticity,
    Exact,
    Factored,
    Knowledge,
    OccupancyModel,
    Policy,
    PolicyError,
    Population,
    Release,
    Scenario,
    SimulatedNoise,
    Tariff,
    Uniform,
    Zone,
    look_back,
    watch,
)
from hushgrid.adversary.attack import attack
from hushgrid.adversary.filter import Adversary
from hushgrid.adversary.knowledge import Blur, KnownOccupancy, KnownReadings, block_sizes
from hushgrid.adversary.population import log_density
from hushgrid.lab.attack import Watcher, record, versions
from hushgrid.lab.methods import Outcome
from hushgrid.mechanism.policy import Blocks
from tests.adversary import oracle
from tests.adversary.worlds import Small, release, small

TIGHT = 1e-11


def in_blocks(
    outputs: Sequence[int | None], lengths: Sequence[int], scales: Sequence[float]
) -> list[Release]:
    """Releases of the steps that have an output, in blocks of these lengths and scales."""
    found, t = [], 0
    for length, scale in zip(lengths, scales, strict=True):
        block = {"first": t + 1, "length": length}
        for _ in range(length):
            t += 1
            z = outputs[t - 1]
            if z is not None:
                found.append(release(t, z, scale, noise="block", block=block, rate=1.0 + t % 3))
    return found


@cache
def noise_law(scale: float, length: int) -> NDArray[np.float64]:
    """Pr[n_1..n_L] on a box that holds all but e^-30 of it."""
    top = math.ceil(scale * (30 + 3 * length))
    size = np.abs(np.arange(-top, top + 1))
    weight = np.zeros((1,) * length, int)
    for axis in range(length):
        weight = np.maximum(weight, size.reshape([-1 if i == axis else 1 for i in range(length)]))
    law = np.exp(-weight / scale)
    return law / law.sum()


def by_paths(
    world: Small, releases: list[Release], lengths: Sequence[int], scales: Sequence[float]
) -> tuple[list[list[float]], list[list[float]], list[float]]:
    """Pr[at home] at each step as it came and in hindsight, and log Pr[releases so far]."""
    horizon, known = sum(lengths), {one.t: one for one in releases}
    loads, rate = [], None
    for t in range(1, horizon + 1):
        factor, e = 1.0, world.elasticity
        if e and rate is not None:
            factor = min(max((rate / e.reference) ** -e.exponent, e.low), e.high)
        rate = known[t].rate if t in known else rate
        pairs = [
            tuple(oracle.scaled(f, factor, u) if e else f for f in pair)
            for pair, u in zip(world.laws[t - 1], world.bounds, strict=True)
        ]
        each = {}
        for state in itertools.product((0, 1), repeat=len(pairs)):
            law = [1.0]
            for pair, s in zip(pairs, state, strict=True):
                law = oracle.add(law, pair[s])
            each[state] = law
        loads.append(each)

    @cache
    def of_block(first: int, length: int, scale: float, states: tuple, until: int) -> float:
        law = noise_law(scale, length)
        top = law.shape[0] // 2
        seen = [first + i for i in range(length) if first + i in known and first + i <= until]
        for i in reversed(range(length)):
            if first + i not in seen:
                law = law.sum(axis=i)
        total = 0.0
        choices = [enumerate(loads[t - 1][states[t - first]]) for t in seen]
        for each in itertools.product(*choices):
            at = tuple(known[t].load_hat - x + top for t, (x, _) in zip(seen, each, strict=True))
            total += math.prod(p for _, p in each) * float(law[at])
        return total

    start = oracle.joint(world.blocks, world.initial)
    moves = [oracle.joint_moves(world.blocks, step) for step in world.moves]
    filtered, smoothed, evidence = [], [], []
    for until in range(1, horizon + 1):
        weights = [dict.fromkeys(start, 0.0) for _ in range(horizon)]
        for path in itertools.product(start, repeat=horizon):
            w = start[path[0]]
            for before, after, move in zip(path, path[1:], moves, strict=False):
                w *= move[before, after]
            if not w:
                continue
            end = 0
            for length, scale in zip(lengths, scales, strict=True):
                w *= of_block(end + 1, length, scale, path[end : end + length], until)
                end += length
            for t, state in enumerate(path):
                weights[t][state] += w
        filtered.append(oracle._home(weights[until - 1]))
        evidence.append(math.log(math.fsum(weights[0].values())))
        if until == horizon:
            smoothed = [oracle._home(one) for one in weights]
    return filtered, smoothed, evidence


ELASTIC = Elasticity(exponent=0.8, reference=1.5, low=0.5, high=2.0)
CASES: list[tuple[list[tuple[int, ...]], Sequence[int], Sequence[int], Elasticity | None]] = [
    ([(0,)], (2, 2), (), None),
    ([(0,)], (3, 1), (2,), ELASTIC),
    ([(0,), (1,)], (2, 1, 2), (), None),
    ([(0,), (1,)], (1, 3), (2, 4), ELASTIC),  # a block whose first and last step are forecasts
    ([(1, 0)], (2, 2), (1,), None),
    ([(0,), (1,), (2,)], (3,), (), None),
]


@pytest.mark.parametrize(("blocks", "lengths", "gaps", "elasticity"), CASES)
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_exact_equals_the_sum_over_all_noise(
    blocks: list[tuple[int, ...]],
    lengths: Sequence[int],
    gaps: Sequence[int],
    elasticity: Elasticity | None,
    zeros: float,
) -> None:
    rng = np.random.default_rng([sum(lengths), len(blocks), round(10 * zeros)])
    steps = sum(lengths)
    world = small(
        rng, blocks, steps, zeros=zeros, most=3 if len(blocks) < 3 else 1, elasticity=elasticity
    )
    top = sum(world.bounds)
    outputs = [None if t in gaps else int(rng.integers(-3, top + 4)) for t in range(1, steps + 1)]
    scales = [float(rng.choice([0.8, 1.0, 1.5])) for _ in lengths]
    releases = in_blocks(outputs, lengths, scales)
    filtered, smoothed, evidence = by_paths(world, releases, lengths, scales)
    who = Exact(world.knowledge())
    ahead, behind = watch(who, releases), look_back(who, releases)
    seen = releases[-1].t
    assert np.abs(ahead.home[0] - filtered[:seen]).max() <= TIGHT
    assert np.abs(behind.home[0] - smoothed[:seen]).max() <= TIGHT
    assert ahead.evidence[0, :, 0] == pytest.approx(evidence[:seen], abs=1e-10)
    if len(blocks) == 1 and len(blocks[0]) == 1:
        for other in (Population(world.knowledge()), Factored(world.knowledge())):
            assert np.abs(look_back(other, releases).home[0] - smoothed[:seen]).max() <= TIGHT


def houses(n: int, seed: int, u: int = 30) -> Knowledge:
    """Houses with one chain and one law."""
    rng = np.random.default_rng(seed)
    a = np.stack([rng.dirichlet([6, 1]), rng.dirichlet([1, 6])])
    theta = OccupancyModel.factored([[0.5, 0.5]], [[a]], chain_of=[0] * n)
    f = Consumption.by_class(absent=[Uniform(u // 3)], present=[Uniform(u)], class_of=[0] * n)
    return Knowledge(Zone("z", [u] * n), [theta], f)


def played(
    known: Knowledge, lengths: Sequence[int], scale: float, seed: int
) -> tuple[list[Release], NDArray[np.int32], NDArray[np.int32]]:
    """Releases, readings and occupancy of a simulated day."""
    rng, noise = np.random.default_rng(seed), SimulatedNoise(seed)
    piece, n = known.models[0].chains[0], known.n_houses
    home = (rng.random(n) < 0.5).astype(int)
    outputs, readings, homes = [], [], []
    for length in lengths:
        size = noise.draw_size(scale, length)
        for _ in range(length):
            home = (rng.random(n) < piece.transition[0, 0][home, 1]).astype(int)
            x = rng.integers(0, np.where(home, known.zone.bound, known.zone.bound // 3) + 1)
            outputs.append(int(x.sum()) + noise.draw_within(size))
            readings.append(x)
            homes.append(home)
    releases = in_blocks(outputs, lengths, [scale] * len(lengths))
    return releases, np.array(readings), np.array(homes)


def test_population_equals_exact() -> None:
    known = houses(4, 3)
    releases, *_ = played(known, (4, 3), 12.0, 1)
    for look in (watch, look_back):
        exact, found = (look(who(known), releases).home for who in (Exact, Population))
        assert found[0, :, 0] == pytest.approx(exact[0, :, 0], abs=1e-10)


def test_population_by_frequencies_equals_direct_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    known = houses(10, 4)
    releases, *_ = played(known, (2, 1), 100.0, 2)
    monkeypatch.setattr(Population, "cells", 1)
    direct = watch(Population(known), releases).home
    monkeypatch.setattr("hushgrid.adversary.population.DIRECT", 0)
    # at sizes that make a count all but impossible it is taken as normal
    assert watch(Population(known), releases).home == pytest.approx(direct, abs=1e-6)


def test_who_knows_the_others_is_alone_with_the_noise() -> None:
    known = houses(4, 5)
    releases, readings, homes = played(known, (4, 2), 12.0, 3)
    strong = look_back(Factored(known.with_bystanders(KnownReadings(readings))), releases).home[0]
    for i in range(4):
        own = [
            release(one.t, one.load_hat - int(row.sum() - row[i]), 12.0, noise="block",
                    block=one.block)
            for one, row in zip(releases, readings, strict=True)
        ]  # fmt: skip
        alone = look_back(Exact(houses(1, 5)), own).home[0, :, 0]
        assert strong[:, i] == pytest.approx(alone, abs=1e-10)
    found = look_back(Factored(known.with_bystanders(KnownOccupancy(homes))), releases).home[0]
    for i in range(4):  # as if a model moved the others surely as they did
        moves = np.tile(np.eye(2)[homes][:, :, None], (1, 1, 2, 1))
        moves[:, i] = known.models[0].chains[0].transition[0, 0]
        first = np.eye(2)[homes[0]]
        first[i] = 0.5
        sure = OccupancyModel.factored(first, moves, calendar=Calendar(range(len(homes))))
        exact = Exact(Knowledge(known.zone, [sure], known.consumption))
        assert found[:, i] == pytest.approx(look_back(exact, releases).home[0, :, i], abs=1e-10)


def _log_odds(known: Knowledge, steps: int) -> NDArray[np.float64]:
    """Of the prior, one a step."""
    chance, a = 0.5, known.models[0].chains[0].transition[0, 0]
    odds = [0.0]
    for _ in range(steps - 1):
        chance = (1 - chance) * a[0, 1] + chance * a[1, 1]
        odds.append(math.log(chance / (1 - chance)))
    return np.array(odds)[:, None]


def test_factored_is_close_to_exact() -> None:
    worst = []
    for seed in range(2):
        known = houses(7, seed)
        releases, *_ = played(known, (6, 4), 20.0 + 15 * seed, seed)
        exact, found = (watch(who(known), releases).home[0] for who in (Exact, Factored))
        prior = 1 / (1 + np.exp(-_log_odds(known, 10)))
        worst.append(float(np.abs(found - exact).mean() / np.abs(exact - prior).mean()))
    assert max(worst) < 0.25  # of what releases move the exact belief by


@pytest.mark.parametrize("who", [Exact, Factored])
def test_few_sizes_give_the_same_beliefs(
    who: type[Adversary], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sizes against the least number of them: log odds that releases move by 0.2 and more."""
    known = houses(5, 7)
    releases, *_ = played(known, (6, 3), 30.0, 5)
    odds = []
    for cells in (1 << 30, 1):
        monkeypatch.setattr(who, "cells", cells)
        home = look_back(who(known), releases).home[0]
        odds.append(np.log(home / (1 - home)))
    assert np.abs(odds[0] - _log_odds(known, 9)).max() > 0.2
    assert np.abs(odds[0] - odds[1]).max() <= 0.01


def test_sizes_keep_their_law() -> None:
    for scale, steps in ((0.8, 1), (3.0, 4), (40.0, 12)):
        m, logs = block_sizes(scale, steps, 1 << 20)
        assert m.tolist() == list(range(len(m)))
        due = np.array([steps * math.log(2 * k + 1) - k / scale for k in m.tolist()])
        assert logs - logs[0] == pytest.approx(due - due[0], abs=1e-9)
        few, chances = block_sizes(scale, steps, 20)
        assert len(few) <= 20
        assert np.exp(chances).sum() == pytest.approx(1.0)
        assert np.exp(chances) @ few == pytest.approx(float(np.exp(logs) @ m), rel=0.1, abs=0.5)
    wide, chances = block_sizes(2e6, 6, 64)
    assert np.exp(chances) @ wide == pytest.approx(7 * 2e6, rel=1e-3)  # a gamma law of 7 shares


def test_normal_load_with_uniform_noise() -> None:
    """By the tails of the normal law, in the middle and far out on either side."""
    for d, v, m in (
        (0.0, 4.0, 3),
        (7.0, 9.0, 2),
        (-40.0, 25.0, 30),
        (90.0, 4.0, 80),
        (5.0, 1e4, 0),
    ):
        near, far = ((abs(d) + side * (m + 0.5)) / math.sqrt(2 * v) for side in (-1, 1))
        direct = (math.erfc(near) - math.erfc(far)) / 2
        found = log_density(np.array([d]), np.array(v), Blur("block", 1.0, np.array([m])))
        assert found == pytest.approx([math.log(direct / (2 * m + 1))], rel=1e-9)


def test_a_block_moves_the_odds_by_its_loss_at_most() -> None:
    """All releases of a block together, over every output of a small zone, and nearly that much."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]])
    f = Consumption.by_class(absent=[Uniform(0)], present=[Uniform(2)])
    who = Exact(Knowledge(Zone("z", [2]), [theta], f))
    loss, most = 2 / 5.0, 0.0
    for outputs in itertools.product((-9, 0, 1, 2, 12), repeat=3):
        home = watch(who, in_blocks(outputs, (3,), (5.0,))).home[0, :, 0]
        most = max(most, float(np.abs(np.log(home / (1 - home))).max()))
    assert 0.5 * loss < most <= loss + 1e-12


def test_a_day_of_blocks_is_attacked_like_any_other() -> None:
    known = houses(3, 2)
    world = Scenario(known.zone, Tariff(1.0, 62.5), known.models, known.consumption)
    policy = Policy(0.9, horizon=8, schedule=Blocks((5, 3), (0.9, 0.6)))
    day = record(world, policy, seed=4)
    assert day.truth is not None
    found = versions(world, policy, day, seed=5)
    assert [*found] == ["open", "naive", "paper", "hushgrid"]
    # the other protections have the epsilon of the block at each step, and noise of their own there
    assert {one.noise for one in found["paper"].releases} == {"laplace"}
    paper = [one.epsilon for one in found["paper"].releases]
    assert paper == pytest.approx([0.9] * 5 + [0.6] * 3)
    for knows in ("none", "others", "occupancy"):
        moved = {
            name: attack(world, one.releases, day.truth, knows=knows, hindsight=True).moved
            for name, one in found.items()
        }
        assert 0 < moved["hushgrid"] <= 1.5 + 1e-9
        assert moved["hushgrid"] < moved["open"]


def test_compare_reads_blocks_as_they_are() -> None:
    """The releases that a comparison's adversary gets."""
    known = houses(3, 2)
    watcher = Watcher(Scenario(known.zone, Tariff(1.0, 62.5), known.models, known.consumption))
    wide = np.array([40.0] * 4 + [70.0] * 2)
    seen = np.array([80.0, 20, 30, 100, 10, 60])
    made = watcher._releases(Outcome(seen, seen, seen, wide, "block", True, (4, 2)))
    due = in_blocks([80, 20, 30, 100, 10, 60], (4, 2), (40.0, 70.0))
    assert [(one.noise, one.block) for one in made] == [(one.noise, one.block) for one in due]
    assert [one.scale for one in made] == pytest.approx([one.scale for one in due])
    alone = watcher._releases(Outcome(seen, seen, seen, wide, "gaussian", True))
    assert {(one.noise, one.block) for one in alone} == {("gaussian", None)}


def test_a_release_that_names_no_block_is_refused() -> None:
    with pytest.raises(PolicyError, match="names no block"):
        watch(Exact(houses(1, 1)), [release(1, 3, 5.0, noise="block")])
