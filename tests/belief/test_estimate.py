"""The public's guess: golden values, the closed form against integration, shocks and intervals."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest

from hushgrid import Consumption, Gamma, NoiseError, OccupancyModel, PolicyError, Uniform
from hushgrid.belief.estimate import FactorPrior, LoadMixture, PublicKnowledge, intervals
from hushgrid.belief.filter import condition, each_block, load_moments, marginals, predict, prior
from hushgrid.belief.posterior import posterior_mean

E = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("load_hat", "scale", "golden"),
    [(260, 2, 258.437846), (253, 2, 252.576702), (230, 26.6, 248.500799), (1000, 2, 270)],
)
def test_golden_posterior_means(load_hat: float, scale: float, golden: float) -> None:
    assert float(posterior_mean(load_hat, 250, 40, scale)) == pytest.approx(golden, rel=1e-8)


@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0, 5000.0])
@pytest.mark.parametrize("load_hat", [-400.0, 95.0, 100.0, 130.0, 900.0])
def test_closed_form_equals_integration(scale: float, load_hat: float) -> None:
    z = np.linspace(-600, 1100, 1_700_001)  # with little noise the guess follows load_hat far out
    logs = -((z - 100) ** 2) / 200 - np.abs(load_hat - z) / scale
    w = np.exp(logs - logs.max())
    expected = float((w * z).sum() / w.sum())
    assert float(posterior_mean(load_hat, 100, 100, scale)) == pytest.approx(expected, abs=0.01)


def test_stable_from_tiny_to_huge_noise() -> None:
    for scale in 10.0 ** np.arange(-3, 9):
        for d in (-1e7, -10.0, 0.0, 10.0, 1e7):
            found = float(posterior_mean(250_000 + d, 250_000, 5e6, scale))
            assert math.isfinite(found)
            assert abs(found - 250_000) <= 5e6 / scale * (1 + 1e-9)


def test_predict_and_condition_keep_zeros_and_create_none() -> None:
    theta = OccupancyModel.factored([[1.0, 0.0], [0.5, 0.5]], [[np.eye(2), E]], chain_of=[0, 1, 1])
    belief = each_block(prior(theta), theta)
    assert belief.laws[0].shape == (3, 2)
    seen = condition(belief, [np.array([[1.0, 9.0], [1.0, 9.0], [1.0, 1.0]])])
    assert seen.laws[0] == pytest.approx(np.array([[1, 0], [0.1, 0.9], [0.5, 0.5]]))
    later = predict(seen, theta)
    assert later.laws[0][0].tolist() == [1.0, 0.0]
    assert later.laws[0][1] == pytest.approx(np.array([0.1, 0.9]) @ E)


def test_moments_of_the_load_by_hand() -> None:
    absent, present = [Uniform(4), Gamma(2.0, 3.0, 20)], [Uniform(10), Uniform(20)]
    f = Consumption.by_class(absent=absent, present=present)
    alone = OccupancyModel.factored([[0.7, 0.3], [0.4, 0.6]], [[E, E]])
    joint = OccupancyModel.joint(np.kron([0.7, 0.3], [0.4, 0.6]), [np.kron(E, E)])
    pairs = zip(marginals(alone), marginals(joint), strict=True)
    for one, both in islice(pairs, 3):
        mean = variance = 0.0
        for h in range(2):
            p = one.laws[0][h]
            laws = [f.law(1, h, occupied=o) for o in (False, True)]
            m = sum(w * law.mean for w, law in zip(p, laws, strict=True))
            mean += m
            squares = [law.variance + law.mean**2 for law in laws]
            variance += float(p @ squares) - m**2
        for belief, model in ((one, alone), (both, joint)):
            assert load_moments(belief, model, f) == pytest.approx((mean, variance), rel=1e-9)


def test_bad_questions() -> None:
    with pytest.raises(PolicyError, match="variance is"):
        posterior_mean(1.0, 1.0, 0.0, 1.0)
    with pytest.raises(NoiseError, match="scale is"):
        posterior_mean(1.0, 1.0, 1.0, math.nan)
    theta = OccupancyModel.factored([[0.7, 0.3]], [[E]])
    f = Consumption.by_class(absent=[Uniform(4)], present=[Uniform(10)])
    with pytest.raises(PolicyError, match="level is"):
        PublicKnowledge.start([theta], f, FactorPrior()).forecast(1, level=1.0)


@pytest.mark.parametrize("kept", ["_KEPT_STEPS", "_KEPT_BYTES"])
def test_only_the_last_beliefs_are_kept(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service runs for years: memory may not grow with its steps, nor answers change."""
    theta = OccupancyModel.factored([[0.3, 0.7]], [[E]], chain_of=[0, 0, 0])
    f = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)], class_of=[0] * 3)
    wanted = [
        load_moments(belief, theta, f) for belief in islice(marginals(theta), 40)
    ]  # of all steps at once
    monkeypatch.setattr(f"hushgrid.belief.estimate.{kept}", 5 if kept == "_KEPT_STEPS" else 5 * 16)
    moments = PublicKnowledge.start([theta], f).moments
    for t in (1, 2, 7, 40, 39, 36, 35, 3, 4, 20):
        moments._known.clear()
        assert moments.at(t) == (wanted[t - 1],)
        assert len(moments._beliefs) <= 5


def test_a_day_after_the_factor_was_1() -> None:
    """Its chance not to be 1 is that of a change and a new draw: share (1 - (1 - hazard)^steps)."""
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])
    f = Consumption.by_class(absent=[Uniform(10)], present=[Uniform(20)], class_of=[0, 0])
    start = PublicKnowledge.start([theta, theta], f)
    prior = FactorPrior(share=0.05, hazard=0.002)
    later = start.since(prior, 96)
    assert later.weights.shape == start.weights.shape
    assert later.weights.sum() == pytest.approx(1)
    assert 1 - later.weights[:, 0].sum() == pytest.approx(0.05 * (1 - 0.998**96), rel=1e-9)
    assert start.since(prior, 0).weights[:, 0].tolist() == [0.5, 0.5]
    ages = start.since(prior, 20_000).weights[:, 0].tolist()
    assert ages == pytest.approx([0.475, 0.475], rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 1e-9])
def test_ranges_of_mixtures_are_where_the_laws_say(level: float) -> None:
    """The oracle adds up the normal distribution function of the standard library."""
    from statistics import NormalDist

    rng = np.random.default_rng(5)
    laws = []
    for _ in range(40):
        weights = rng.dirichlet(np.full(6, 0.3)).reshape(2, 3)
        mean, spread = rng.uniform(-1e4, 1e5, (2, 3)), 10 ** rng.uniform(-3, 5, (2, 3))
        laws.append(LoadMixture(weights, mean, spread**2))
    found = intervals(laws, level)
    assert found == [law.interval(level) for law in laws]
    for law, one in zip(laws, found, strict=True):
        rows = [
            (w, NormalDist(m, math.sqrt(v)))
            for w, m, v in zip(law.weights.flat, law.mean.flat, law.variance.flat, strict=True)
            if w > 1e-9
        ]
        for at, chance in ((one.low, (1 - level) / 2), (one.high, (1 + level) / 2)):
            step = 1e-8 * max(abs(at), 1.0)
            below, above = (sum(w * n.cdf(at + s) for w, n in rows) for s in (-step, step))
            assert below - 1e-9 <= chance <= above + 1e-9
