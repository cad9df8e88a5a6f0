"""The mean of a curved rate over what a load may be, against draws and sums that share no code."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from hushgrid import Consumption, Curve, Gamma, OccupancyModel, Tariff, public_rate
from hushgrid.belief import rate_interval
from hushgrid.belief.estimate import LoadMixture, PublicKnowledge, ReleaseParts
from hushgrid.belief.expected_rate import mean_rates, posterior_rate
from hushgrid.belief.followed import EvenDays, FollowedKnowledge
from hushgrid.belief.posterior import GAUSSIAN, LAPLACE, Shape, block_chances, block_halves
from hushgrid.belief.rate_interval import _above, _cut_off, _joined, _laplace
from tests.examples import examples

N = 60
MIXES = np.array([[0.5, 0.5], [0.5, 0.5]])
THETA = OccupancyModel.factored([[0.5, 0.5]], [[MIXES]], chain_of=[0] * N)
F = Consumption.by_class(
    absent=[Gamma(2.0, 40.0, 2500)], present=[Gamma(2.0, 150.0, 2500)], class_of=[0] * N
)
MEAN = 11.4  # [kWh] of the load of a step
KINK = Tariff(curve=Curve(points=[(2, 0.1), (MEAN, 0.2), (3 * MEAN, 1.0)]))
JUMPS = Tariff(curve=Curve(tiers=[(0, 0.1), (MEAN, 0.2), (1.2 * MEAN, 0.6)]), floor=0.15, cap=0.5)
TARIFFS = pytest.mark.parametrize("tariff", [KINK, JUMPS], ids=["kink", "jumps"])


def rates_at(tariff: Tariff, z: np.ndarray) -> np.ndarray:
    """The rate of each load, by the pairs that were given."""
    curve = tariff.curve
    assert curve is not None
    if curve.tiers:
        starts, prices = np.array(curve.tiers).T
        p = prices[np.maximum(np.searchsorted(1000 * starts, z, side="right") - 1, 0)]
    else:
        x, prices = np.array(curve.points).T
        p = np.interp(z, 1000 * x, prices)
    return np.clip(p, tariff.floor, tariff.cap)


def summed(tariff: Tariff, z: np.ndarray, density: np.ndarray) -> float:
    return float(rates_at(tariff, z) @ density / density.sum())


@pytest.mark.parametrize("shape", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("clamp", [(), (300,)])
@pytest.mark.parametrize("scale", [200.0, 1500.0, 20_000.0])
@TARIFFS
@pytest.mark.sampled
def test_the_price_behind_a_release_is_what_draws_show(
    tariff: Tariff, scale: float, clamp: tuple[int, ...], shape: Shape
) -> None:
    """Importance sampling: draw the parts, weigh by the noise; within five standard errors.

    Below a clamp with little noise the shape of the noise is lost on purpose: half a per cent.
    """
    public, n = PublicKnowledge.start([THETA], F, clamp=clamp, shape=shape), 200_000
    law, rng = public.parts(), np.random.default_rng(3)
    load_hat = float((law.weights * law.mean).sum()) + 900
    pick = rng.choice(law.weights.size, n, p=law.weights.ravel() / law.weights.sum())
    m, v, c, vc, j = (part.ravel()[pick] for part in law[1:])
    below = m + np.sqrt(v) * rng.standard_normal(n)
    rest = np.sqrt(np.maximum(vc - j**2 / v, 0))
    z = below + c + j / v * (below - m) + rest * rng.standard_normal(n)
    away = load_hat - below
    logs = -np.abs(away) / scale if shape is LAPLACE else -(away**2) / 2 / scale**2
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    p = rates_at(tariff, z)
    due = float(weight @ p)
    error = math.sqrt(float(weight**2 @ (p - due) ** 2))
    found = posterior_rate(public, load_hat, scale, tariff)
    assert found == pytest.approx(due, abs=5 * error + (0.005 if clamp else 1e-4))


@pytest.mark.sampled
@pytest.mark.parametrize("load_hat", [5000, 11_400, 14_000, 40_000])
@TARIFFS
def test_the_price_behind_noise_of_a_block_is_what_dense_sums_say(
    tariff: Tariff, load_hat: int
) -> None:
    public = PublicKnowledge.start([THETA], F).with_blocks((8, 8))
    law, scale = public.predicted(), 700.0
    z = np.arange(60_000) + 0.013  # clear of every vertex and end
    w, m, s = law.weights.ravel(), law.mean.ravel(), np.sqrt(law.variance.ravel())
    prior = sum(w[i] * norm.pdf(z, m[i], s[i]) for i in np.flatnonzero(w > 1e-12))
    ends, chances, away = scale * block_halves(8), block_chances(), np.abs(z - load_hat)
    noise = sum(
        chance / (low + high) * np.clip((high - away) / (high - low), 0, 1)
        for (low, high), chance in zip(pairwise(ends), chances, strict=True)
    )
    due = summed(tariff, z, prior * noise)
    # a cell of half-widths counts as its middle
    assert posterior_rate(public, load_hat, scale, tariff) == pytest.approx(due, rel=1e-3)


@given(
    st.lists(st.tuples(st.floats(-5e3, 5e4), st.floats(1, 2e4)), min_size=1, max_size=3),
    st.floats(0, 5e4),
    st.floats(0.05, 3e4),
    st.floats(0, 3e3),
)
@settings(max_examples=examples(80))
def test_an_excess_is_the_sum_of_what_lies_beyond(
    parts: list[tuple[float, float]], hat: float, scale: float, residual: float
) -> None:
    """E[(Z - z)+] is the integral of Pr[Z >= x] from z on: of each noise, with energy above it."""
    m, s = np.array(parts).T
    joint = s**2 * 0.1
    law = ReleaseParts(np.ones(len(m)) / len(m), m, s**2, m * 0, residual**2 + joint * 0.1, joint)
    for curves in (
        _laplace(hat, law, scale),
        _cut_off(hat, law, scale * np.linspace(1, 3, len(m))),
    ):
        cdf, excess = _joined(curves, law, *_above(law))
        ends = np.array([hat - 4 * scale, hat + 0.3 * scale, hat + 4 * scale, hat + 5 * residual])
        ends = np.sort(np.concatenate([ends, [m.min(), m.max()]]))
        for low, high in pairwise(ends.tolist()):
            x = np.linspace(low, high, 1001)
            due = np.trapezoid(1 - cdf(x[:, None]), x, axis=0)
            found = excess(np.array([[low]])) - excess(np.array([[high]]))
            assert found[0] == pytest.approx(due, abs=1e-3 * (high - low) + 1e-6)


@pytest.mark.parametrize("blocks", [None, (96, 96)])
@TARIFFS
def test_few_points_take_the_energy_above_a_clamp(
    tariff: Tariff, blocks: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ten-thousandth of the range of prices (docs/files.md), against 161 points."""
    public = PublicKnowledge.start([THETA], F, clamp=(300,))
    public = public if blocks is None else public.with_blocks(blocks)

    def prices() -> list[float]:
        cases = [(hat, scale) for hat in (5e3, 9e3, 11.4e3) for scale in (300.0, 1500.0)]
        return [posterior_rate(public, hat, scale, tariff) for hat, scale in cases]

    few = prices()
    nodes, shares = np.polynomial.hermite_e.hermegauss(161)
    monkeypatch.setattr(rate_interval, "_NODES", nodes)
    monkeypatch.setattr(rate_interval, "_SHARES", shares / shares.sum())
    assert few == pytest.approx(prices(), abs=1e-4 * (0.9 if tariff is KINK else 0.35))


def test_a_kink_that_little_noise_falls_on_is_seen() -> None:
    """Laplace noise of 1 Wh at a kink: half its scale above it on average, times the slopes."""
    public = PublicKnowledge.start([THETA], F)
    found = posterior_rate(public, MEAN * 1e3, 1.0, KINK)
    below, above = 0.1 / (MEAN - 2), 0.8 / (2 * MEAN)
    assert found - 0.2 == pytest.approx((above - below) * 0.5e-3, rel=0.02)


@given(
    st.lists(
        st.tuples(st.floats(0.01, 1), st.floats(-5e3, 5e4), st.floats(1, 2e4)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 1e4),
    st.sampled_from([KINK, JUMPS]),
)
@settings(max_examples=60)
def test_a_forecast_is_a_sum_and_rises_with_its_law(
    parts: list[tuple[float, float, float]], shift: float, tariff: Tariff
) -> None:
    w, m, s = np.array(parts).T
    low, high = (LoadMixture(w / w.sum(), m + up, s**2) for up in (0.0, shift))
    z = np.linspace(m.min() - 9 * s.max(), m.max() + 9 * s.max(), 60_001)
    density = sum(a * norm.pdf(z, b, c) for a, b, c in parts)
    first, last = mean_rates([low, high], tariff)
    assert first <= last + 1e-12
    if s.min() > 30 * (z[1] - z[0]):
        assert first == pytest.approx(summed(tariff, z, np.asarray(density)), abs=1e-3)


def test_affine_prices_are_those_of_the_mean_to_the_last_digit() -> None:
    tariff = Tariff(0.004, 0.05, floor=0.06, cap=0.3)
    public = PublicKnowledge.start([THETA], F)
    laws = [public.predicted(), public.passed(3).predicted()]
    due = [public_rate(float((law.weights * law.mean).sum()), tariff) for law in laws]
    assert mean_rates(laws, tariff) == due
    assert mean_rates([], tariff) == mean_rates([], KINK) == []


def test_a_convex_price_is_above_that_of_the_mean() -> None:
    """Jensen: of a kink at the mean by the spread over sqrt(2 pi), times the change of slope."""
    law = LoadMixture(np.ones(1), np.array([MEAN * 1e3]), np.array([1e3**2]))
    tariff = Tariff(curve=Curve(points=[(0, 0.1), (MEAN, 0.2), (10 * MEAN, 2.0)]))
    below, above = 0.1 / MEAN, 1.8 / (9 * MEAN)
    due = 0.2 + (above - below) / math.sqrt(2 * math.pi)
    assert mean_rates([law], tariff)[0] == pytest.approx(due, rel=1e-9)


@pytest.mark.parametrize("clamp", [(), (300,)])
@TARIFFS
def test_prices_never_fall_with_the_noisy_load(tariff: Tariff, clamp: tuple[int, ...]) -> None:
    model = PublicKnowledge.start([THETA], F, clamp=clamp)
    followed = FollowedKnowledge.start(model, EvenDays(96))
    for _ in range(3):  # releases that say that the load is wilder than foreseen
        followed = followed.after(25_000, 500.0).after(4_000, 500.0)
    assert followed.width > 1.3
    for public, scale in ((model, 800.0), (model, 5000.0), (followed, 1500.0)):
        prices = [
            posterior_rate(public, load_hat, scale, tariff) for load_hat in range(0, 40_000, 1000)
        ]
        assert all(low <= high + 1e-9 for low, high in pairwise(prices))
        assert prices[-1] > prices[0]


def test_without_noise_the_price_is_that_of_the_load() -> None:
    public = PublicKnowledge.start([THETA], F)
    for load in (5_000, 11_000, 13_000, 30_000):
        assert posterior_rate(public, load, 0.0, KINK) == pytest.approx(
            public_rate(load, KINK), abs=1e-6
        )
