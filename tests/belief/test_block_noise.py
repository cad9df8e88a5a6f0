"""The estimate behind noise that lasts a block of steps, against exact posteriors on grids."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from scipy import stats

from hushgrid import Consumption, OccupancyModel, SimulatedNoise, Uniform
from hushgrid._kernels.load_filter import within_block
from hushgrid._numbers import Floats
from hushgrid.belief.estimate import NO_FACTOR, PublicKnowledge
from hushgrid.belief.followed import EarlierRelease, EvenDays, FollowedKnowledge
from hushgrid.belief.load_filter import LoadFilter, SeenLoads, Spreads, drawn_loads
from hushgrid.belief.posterior import SHAPES, block_chances, block_halves
from hushgrid.belief.rate_interval import noise_interval, posterior_interval

LENGTHS = (5, 1, 8, 2)


def _sizes(scale: float, steps: int) -> tuple[Floats, Floats]:
    """Every M and its chance, by the law itself: (2M+1)^L q^M."""
    m = np.arange(math.ceil(scale * (steps + 40)))
    logs = steps * np.log(2 * m + 1) - m / scale
    law = np.exp(logs - logs.max())
    return m, law / law.sum()


def _noise(rng: Generator, scale: float, lengths: tuple[int, ...]) -> Floats:
    found = list[int]()
    for steps in lengths:
        m, law = _sizes(scale, steps)
        size = int(rng.choice(m, p=law))
        found += rng.integers(-size, size, steps, endpoint=True).tolist()
    return np.array(found, np.float64)


@given(st.floats(-30, 30), st.floats(0.3, 10), st.floats(0.05, 40), st.floats(0.01, 1))
def test_moments_of_a_normal_load_behind_noise_of_a_cell(
    away: float, spread: float, low: float, wider: float
) -> None:
    """The half-width is equally likely everywhere from `low` to `high`."""
    d, high = away * spread, low * (1 + wider)
    zero, halves = np.zeros((1, 1)), np.array([low, high])
    found = within_block(d, np.zeros(1), np.full(1, spread**2), halves, zero, np.ones((1, 1)))
    mean, variance, log = found[0]
    x = d + high * np.linspace(-1, 1, 40_001)
    noise = np.clip((high - np.abs(x - d)) / (high - low), 0, 1) / (high + low)
    logs = stats.norm.logpdf(x, 0, spread)
    density = np.exp(logs - logs.max()) * noise
    whole = np.trapezoid(density, x)
    expected = np.trapezoid(x * density, x) / whole
    assert mean == pytest.approx(expected, abs=2e-3 * min(spread, high) + 1e-5 * spread)
    wanted = np.trapezoid((x - expected) ** 2 * density, x) / whole
    assert variance == pytest.approx(wanted, rel=0.02, abs=1e-5 * spread**2)
    assert log == pytest.approx(math.log(whole) + logs.max(), abs=1e-2)


def _tiny() -> tuple[PublicKnowledge, list[tuple[float, float]]]:
    """A zone of six houses under two models, and the normal load of each by hand."""
    thetas = [
        OccupancyModel.factored([[1 - p, p]], [[[[1 - p, p], [1 - p, p]]]], chain_of=[0] * 6)
        for p in (0.2, 0.7)
    ]
    f = Consumption.by_class(absent=[Uniform(10)], present=[Uniform(30)], class_of=[0] * 6)
    laws = []
    for p in (0.2, 0.7):
        square = (1 - p) * 35.0 + p * 305.0  # sums of k^2 over 0..10 and 0..30
        mean = (1 - p) * 5.0 + p * 15.0
        laws.append((6 * mean, 6 * (square - mean**2)))
    known = PublicKnowledge.start(thetas, f, prior=NO_FACTOR)
    return known.with_blocks(LENGTHS * 12), laws


@pytest.mark.parametrize("scale", [4.0, 15.0])
def test_it_is_the_exact_posterior_of_load_and_size(scale: float) -> None:
    """By sums over every load, every M and both models; no formula is shared."""
    known, laws = _tiny()
    rng = np.random.default_rng(round(scale))
    z = np.arange(-120, 260)
    pmfs = np.array([stats.norm.pdf(z, m, math.sqrt(v)) for m, v in laws])
    pmfs /= pmfs.sum(axis=1, keepdims=True)
    chance, t, gaps, linear = np.array([0.5, 0.5]), 0, list[float](), list[float]()
    noise = _noise(rng, scale, LENGTHS * 12)
    for steps in LENGTHS * 12:
        m, law = _sizes(scale, steps)
        joint = chance[:, None] * law  # (models, M)
        for _ in range(steps):
            load = float(rng.normal(laws[1][0], math.sqrt(laws[1][1])))
            seen = round(load + noise[t])
            inside = np.abs(seen - z)[:, None] <= m  # (loads, M)
            each = inside / (2 * m + 1)
            evidence = pmfs @ each
            posterior = joint * evidence
            whole = posterior.sum()
            exact = float((joint * ((pmfs * z) @ each)).sum() / whole)
            joint = posterior / whole
            found, known = known.learn(seen, scale)
            gaps.append(found - exact)
            gain = laws[1][1] / (laws[1][1] + scale**2 * (steps + 1) * (steps + 2) / 3)
            linear.append(laws[1][0] + gain * (seen - laws[1][0]) - exact)
            np.testing.assert_allclose(known.weights[:, 0], joint.sum(axis=1), atol=0.03)
            t += 1
        chance = joint.sum(axis=1)
    spread = math.sqrt(laws[1][1])
    assert np.sqrt(np.mean(np.square(gaps))) < 0.02 * spread
    assert np.sqrt(np.mean(np.square(linear))) > 5 * np.sqrt(np.mean(np.square(gaps)))


LEVEL = Spreads(0.2, 1e-6, 1e-6, 1e-6, 1e-6, 0.02)


@pytest.mark.parametrize("length", [2, 24])
def test_errors_behind_wide_noise_are_as_large_as_a_filter_says(length: int) -> None:
    """Noise of 2.7 and 0.3 loads, a slow level: nearly as if a block were one noisy number.

    Between single half-widths, which lie far apart here, the load seemed to be known where it was
    not: with two steps in a block errors were 24 times as large as the filter said.
    """
    unit, steps, spreads = 1e6, 48 * 120, Spreads(1e-4, 0.144, 1e-4, 1e-4, 1e-4, 1e-3)
    b = 0.1064 * (48 // length + 1)  # so that what any day loses is the same
    at, zeros, of_blocks = np.arange(steps), np.zeros(steps), np.arange(steps // length)
    said, squares, alone = list[float](), list[Floats](), list[Floats]()
    for seed in range(8):
        rng, noise = np.random.default_rng(seed), SimulatedNoise(seed)
        loads = drawn_loads(spreads, 0.5, zeros, zeros > 0, rng)
        flat = (np.full(steps, unit * b), np.full(steps, unit), zeros, zeros > 0)
        seen = unit * loads + noise.blocks(unit * b, length, len(of_blocks)).ravel()
        within = {"length": np.full(steps, length), "begins": at % length == 0}
        found, _ = LoadFilter.start(0.5, [spreads]).follow(SeenLoads(seen, *flat, **within))
        said.append(found.variance[48 * 30 :].mean() / unit**2)
        squares.append((found.estimate[48 * 30 :] / unit - loads[48 * 30 :]) ** 2)
        first = loads[::length]
        flat = tuple(column[: len(first)] for column in flat)
        seen = unit * first + noise.blocks(unit * b, 1, len(first)).ravel()
        found, _ = LoadFilter.start(0.5 * length, [spreads]).follow(SeenLoads(seen, *flat))
        alone.append((found.estimate[1440 // length :] / unit - first[1440 // length :]) ** 2)
    error = float(np.mean(squares))
    assert error == pytest.approx(np.mean(said), rel=0.25)  # eight levels of twenty days
    assert error < 1.2 * np.mean(alone)


@pytest.mark.parametrize("scale", [9.0, 300.0])
@pytest.mark.soak
def test_a_filter_is_near_the_exact_posterior_of_level_load_and_size(scale: float) -> None:
    """A load of one level that lasts a day: sums over levels, loads behind them and every M."""
    rng, base, hours = np.random.default_rng(4), 1000.0, 0.5
    lengths = (6, 3, 8, 6, 1) * 6
    steps = np.repeat(lengths, lengths)
    keep, level = math.exp(-hours / 24), 0.0
    loads = np.empty(len(steps))
    for t in range(len(steps)):
        level = keep * level + float(rng.normal(0, 0.2 * math.sqrt(1 - keep**2)))
        loads[t] = base * (1 + level + float(rng.normal(0, LEVEL.white)))
    seen = np.round(loads + _noise(rng, scale, lengths))
    grid = np.linspace(-0.8, 0.8, 241)  # of the level
    move = stats.norm.pdf(grid[:, None], keep * grid, 0.2 * math.sqrt(1 - keep**2))
    move /= move.sum(axis=0)
    law = stats.norm.pdf(grid, 0, 0.2)
    law, exact, t = law / law.sum(), np.empty(len(steps)), 0
    for n in lengths:
        m, sizes = _sizes(scale, n)
        m, sizes = m[sizes > 1e-9], sizes[sizes > 1e-9]
        joint = law[:, None] * sizes
        for _ in range(n):
            joint = move @ joint
            centre, white = base * (1 + grid[:, None]), LEVEL.white * base
            low, high = (seen[t] - m - 0.5 - centre) / white, (seen[t] + m + 0.5 - centre) / white
            inside = stats.norm.cdf(high) - stats.norm.cdf(low)
            first = centre * inside - white * (stats.norm.pdf(high) - stats.norm.pdf(low))
            weighed = joint * inside / (2 * m + 1)
            exact[t] = (joint * first / (2 * m + 1)).sum() / weighed.sum()
            joint = weighed / weighed.sum()
            t += 1
        law = joint.sum(axis=1)
    count = len(steps)
    begins = np.diff(np.repeat(np.arange(len(lengths)), lengths), prepend=-1) > 0
    flat = (np.full(count, base), np.zeros(count), np.zeros(count, bool))
    bank = LoadFilter.start(hours, [LEVEL])
    found, _ = bank.follow(
        SeenLoads(seen, np.full(count, scale), *flat, length=steps, begins=begins)
    )
    width = scale * np.sqrt((steps + 1) * (steps + 2) / 3)
    linear, _ = bank.follow(SeenLoads(seen, width, *flat, "gaussian"))
    gaps = [np.sqrt(np.mean((x - exact) ** 2)) for x in (found.estimate, linear.estimate)]
    assert gaps[0] < 0.08 * np.sqrt(found.variance.mean()), "what cells of M cost"
    assert gaps[1] > 1.5 * gaps[0]


HOUSES = 200


def _zone(clamp: tuple[int, ...] = ()) -> PublicKnowledge:
    theta = OccupancyModel.factored(
        [[0.5, 0.5]], [[[[0.9, 0.1], [0.1, 0.9]]]], chain_of=[0] * HOUSES
    )
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=[0] * HOUSES)
    return PublicKnowledge.start([theta], f, clamp=clamp).with_blocks(LENGTHS * 12)


def _followed(clamp: tuple[int, ...] = ()) -> FollowedKnowledge:
    return FollowedKnowledge.start(_zone(clamp), EvenDays())


@pytest.mark.parametrize("clamp", [(), (400,)])
@pytest.mark.parametrize("start", [_zone, _followed])
def test_a_restart_inside_a_block_goes_on_bit_for_bit(start, clamp: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(3)
    known = start(clamp)
    for t in range(1, 40):
        seen = 60_000 + float(rng.normal(0, 9000))
        if t == 20:
            known = known.passed()
            continue
        again = start(clamp).from_arrays(known.to_arrays())
        assert again == known
        assert hash(again) == hash(known)
        estimate, known = known.learn(seen, 2000.0)
        assert again.learn(seen, 2000.0) == (estimate, known)


@pytest.mark.parametrize("usual", [0.0, 60_000.0])
def test_blocks_before_the_first_step_are_followed_bit_for_bit(usual: float) -> None:
    rng, first = np.random.default_rng(5), FollowedKnowledge.start(_zone(), EvenDays(), usual)
    known, earlier = first, list[EarlierRelease]()
    places = [(n, k) for n in LENGTHS * 12 for k in range(1, n + 1)]
    for t, (length, place) in enumerate(places[:192]):
        if t % 7 == 3:
            known = known.passed()
            continue
        block = {"length": length, "first": t - 190 - place}
        seen = 60_000 + float(rng.normal(0, 9000))
        one = EarlierRelease(t - 191, seen, 2000.0, known.base(), known.share, block=block)
        earlier.append(one)
        known = known.after(seen, 2000.0)
    again = first.continued(earlier)
    for name in ("weights", "mean", "covariance", "sizes", "offsets"):
        np.testing.assert_array_equal(getattr(again.bank, name), getattr(known.bank, name))
    if usual:  # the width is of the filters alone
        np.testing.assert_allclose(again.widths, known.widths, rtol=1e-9)
        np.testing.assert_allclose(again.noise_sizes, known.noise_sizes, atol=1e-12)
    part = first.continued([one._replace(t=one.t + 96) for one in earlier if one.t <= -96])
    assert first.continued([one for one in earlier if one.t > -96], (-95, part)) == again
    apart = [one._replace(block=None) for one in earlier]
    assert not np.array_equal(first.continued(apart).bank.mean, known.bank.mean)


@pytest.mark.parametrize("clamp", [(), (400,)])
@pytest.mark.soak
def test_nineteen_of_twenty_loads_are_in_their_intervals(clamp: tuple[int, ...]) -> None:
    """Loads of the model itself, where it cuts none; else the interval holds the estimate."""
    known, rng, source = _zone(clamp), np.random.default_rng(9), SimulatedNoise(9)
    held, alone = list[bool](), list[bool]()
    for steps in LENGTHS * (4 if clamp else 12):
        size = source.draw_size(3000.0, steps)
        for _ in range(steps):
            law = known.predicted()
            m, v = float(law.mean[0, 0]), float(law.variance[0, 0])
            load = float(rng.normal(m, math.sqrt(v)))
            seen = load + source.draw_within(size) - known.clamped_energy()
            found = posterior_interval(known, seen, 3000.0)
            bare = noise_interval(known, seen, 3000.0)
            estimate, known = known.learn(seen, 3000.0)
            assert found.mean == pytest.approx(estimate, rel=0.02 if clamp else 1e-4)
            held.append(found.low <= load <= found.high)
            alone.append(bare.low <= load <= bare.high)
    assert 0.9 <= np.mean(held) <= 0.99
    assert 0.87 <= np.mean(alone) <= 0.995


@pytest.mark.parametrize("shape", ["laplace", "gaussian"])
def test_what_releases_say_of_widths_equals_its_twin(shape: str) -> None:
    """By Bayes' rule over all widths, spreads and half-widths, step by step."""
    rng, lengths = np.random.default_rng(8), np.array([6, 6, 6, 0, 0, 4, 4, 4, 4, 0])
    opens = np.isin(np.arange(10), (0, 5))
    mean, spread, b = rng.normal(6e4, 5e3, 10), rng.uniform(2e3, 6e3, 10), rng.uniform(1e3, 6e3, 10)
    seen = mean + rng.normal(0, 4e3, 10)
    known = FollowedKnowledge.start(replace(_zone(), shape=SHAPES[shape]), EvenDays(), 60_000.0)
    found = known._widened(seen, b, mean, spread**2, lengths, opens)

    factors = np.exp(np.linspace(math.log(0.5), math.log(2.5), 13))
    law = np.exp(-((np.log(factors / 1.05) / 0.3) ** 2) / 2)
    nodes, shares = np.polynomial.legendre.leggauss(40)
    widths, sizes = law / law.sum(), block_chances()

    def density(t: int, s: float) -> Floats:
        """Of what is seen: for each cell of half-widths in a block, else the only one."""
        if not lengths[t]:
            return SHAPES[shape].evidence(seen[t], mean[t], np.array([s**2]), b[t])
        cells = b[t] * block_halves(int(lengths[t]))
        low, high = cells[:-1, None], cells[1:, None]
        halves = (high + low) / 2 + (high - low) / 2 * nodes
        ends = (seen[t] - mean[t] + halves) / s, (seen[t] - mean[t] - halves) / s
        inside = (stats.norm.cdf(ends[0]) - stats.norm.cdf(ends[1])) @ shares / 2
        return np.log(inside / (low + high)[:, 0])

    for t in range(10):
        sizes = block_chances() if opens[t] else sizes
        chances = sizes if lengths[t] else np.ones(1)
        says = [
            0.3 * chances @ np.exp(density(t, 0.7 * factor * spread[t]))
            + 0.5 * chances @ np.exp(density(t, factor * spread[t]))
            + 0.2 * chances @ np.exp(density(t, 1.6 * factor * spread[t]))
            for factor in factors
        ]
        widths = widths ** (1 - 1 / 6000) * law ** (1 / 6000) * says
        widths = widths / widths.sum()
        if lengths[t]:
            sizes = sizes * np.exp(density(t, spread[t]))
            sizes = sizes / sizes.sum()
    assert found.widths == pytest.approx(widths, rel=1e-7)
    assert found.noise_sizes == pytest.approx(sizes, rel=1e-8, abs=1e-11)


@pytest.mark.soak
def test_releases_of_blocks_say_how_wide_intervals_are() -> None:
    """Loads that vary by 0.6 of what is foreseen and a sixth of the noise."""
    rng, source, mean, spread = np.random.default_rng(4), SimulatedNoise(4), 60_000.0, 5000.0
    known = FollowedKnowledge.start(_zone(), EvenDays(), mean)
    for _ in range(1000):
        size = source.draw_size(4500.0, 6)
        for place in range(6):
            seen = float(rng.normal(mean, 0.6 * spread)) + source.draw_within(size)
            known = known._widened(seen, 4500.0, mean, spread**2, 6, place == 0)
    assert 0.5 <= known.width <= 0.75


def test_what_houses_at_random_use_above_the_clamp_is_counted_once() -> None:
    """Where the load below varies as the model says, the whole varies as the model says."""
    known, none = FollowedKnowledge.start(_zone((400,)), EvenDays()), np.zeros(1)
    law, base = known.model.parts(), known.base()
    for k in (150, 184, 230):  # of the common factor
        below, own = law.mean[0, [k]], law.variance[0, [k]]
        cut, above, joint = known._cut_law(below, own, law, base)
        over = known._above(below, law)[-1]
        assert cut == pytest.approx(law.cut[0, k])
        assert joint == pytest.approx(law.joint[0, k])
        assert above - (0.15 * over) ** 2 == pytest.approx(law.cut_variance[0, k])
        # twice the load by chance: what is not chance moves all homes along their common curve
        _, wider, moved = known._cut_law(below, 2 * own, law, base)
        slope = (law.cut[0, k + 1] - law.cut[0, k - 1]) / (law.mean[0, k + 1] - law.mean[0, k - 1])
        assert moved - joint == pytest.approx(slope * own, rel=1e-3)
        assert wider - above == pytest.approx(slope**2 * own, rel=1e-3)
        assert slope > joint / own
        assert known._cut_law(below, none, law, base)[2] == 0


def test_forecasts_reach_beyond_the_last_block() -> None:
    for known in (_zone(), _followed()):
        assert len(known.passed(190).forecast(6)) == 6


def test_a_release_beyond_all_noise_is_survived() -> None:
    known = _followed()
    for seen in (60_000.0, 5e7, 61_000.0):
        found = posterior_interval(known, seen, 300.0)
        assert found.low < found.high
        estimate, known = known.learn(seen, 300.0)
        assert estimate == pytest.approx(found.mean, rel=1e-4)
