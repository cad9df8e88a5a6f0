"""Factored against Exact, and what it must do exactly."""

from __future__ import annotations

import os
from collections.abc import Iterator

import array_api_strict
import numpy as np
import pytest
from scipy.special import erfcx

from hushgrid import (
    Consumption,
    Exact,
    Factored,
    Gamma,
    Histogram,
    Knowledge,
    OccupancyModel,
    Population,
    Uniform,
    Zone,
    look_back,
    watch,
)
from hushgrid.adversary.factored import _distinct, gauss
from hushgrid.adversary.knowledge import Blur, KnownOccupancy, KnownReadings, log_blurred
from hushgrid.adversary.population import log_density, log_erfcx
from tests.adversary import oracle
from tests.adversary.worlds import GAUSSIAN, LAPLACE, Day, mixed_day, release, small

ZONES = int(os.environ.get("HUSHGRID_ZONES", "6"))  # 20 in make soak


@pytest.fixture(scope="module")
def days() -> list[Day]:
    """Random zones of 6 to 10 houses, a day of 96 steps, noise of 0.5 max u and more."""
    return [mixed_day(seed, 96) for seed in range(ZONES)]


def log_loss(day: Day, home: np.ndarray) -> float:
    return float(-np.log(np.where(day.occupancy == 1, home, 1 - home)).mean())


def both(days: list[Day]) -> Iterator[tuple[Day, np.ndarray, np.ndarray]]:
    for day in days:
        exact, found = (watch(who(day.knowledge), day.releases) for who in (Exact, Factored))
        yield day, exact.home[0], found.home[0]


@pytest.mark.soak
def test_factored_is_close_to_exact(days: list[Day]) -> None:
    """Measured in 20 zones: at most 0.0151 and 0.0048 in any; on average 0.0067 and 0.0008."""
    learnt = []
    for day, exact, found in both(days):
        assert day.releases[0].scale >= 0.5 * day.knowledge.zone.bound.max()
        assert np.abs(found - exact).mean() <= 0.02
        assert abs(log_loss(day, found) - log_loss(day, exact)) <= 0.01
        prior = watch(Exact(day.knowledge), [release(len(exact), 0, 1e9)]).home[0]
        learnt.append(log_loss(day, prior) - log_loss(day, exact))
        # there was something to learn: who learns nothing is much farther off
        assert np.abs(found - exact).mean() <= 0.25 * np.abs(prior - exact).mean()
    # one day of a zone is a matter of chance: few zones bound the mean less
    assert np.mean(learnt) > (0.01 if ZONES >= 20 else 0)


@pytest.mark.soak
def test_hindsight_is_close_to_exact(days: list[Day]) -> None:
    """Smoothing adds up the filter's errors: 0.038 in the worst zone of 20, 0.015 on average."""
    gaps = []
    for day in days:
        exact, found = (look_back(who(day.knowledge), day.releases) for who in (Exact, Factored))
        gaps.append(np.abs(found.home - exact.home).mean())
        assert gaps[-1] <= 0.04
        assert abs(log_loss(day, found.home[0]) - log_loss(day, exact.home[0])) <= 0.02
    assert np.mean(gaps) <= 0.02


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN])
def test_one_house_is_exact_in_all_three(noise: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        world = small(rng, [(0,)], 5, zeros=0.1)
        releases = [release(t, int(rng.integers(-5, 11)), 1.3, noise=noise) for t in range(1, 6)]
        expected = world.by_paths(releases)
        for who in (Exact, Population, Factored):
            adversary = who(world.knowledge())
            ahead, behind = watch(adversary, releases), look_back(adversary, releases)
            assert np.abs(ahead.home[0] - expected.filtered).max() <= 1e-12
            assert np.abs(behind.home[0] - expected.smoothed).max() <= 1e-12
            assert ahead.evidence[0, :, 0] == pytest.approx(expected.evidence, abs=1e-12)


def test_she_may_know_all_other_readings() -> None:
    """House by house the problem of one house alone, at z_hat less what the others used."""
    day = mixed_day(3, horizon=12)
    knowledge = day.knowledge
    strong = Knowledge(
        knowledge.zone,
        knowledge.models,
        knowledge.consumption,
        bystanders=KnownReadings(day.readings),
    )
    found = watch(Factored(strong), day.releases).home[0]
    piece = knowledge.models[0].chains[0]
    for i in range(knowledge.n_houses):
        alone = OccupancyModel.factored(
            piece.initial[[i]], piece.transition[:, [i]], calendar=knowledge.models[0].calendar
        )
        pair = [knowledge.consumption.law(1, i, occupied=home) for home in (False, True)]
        f = Consumption.by_class(absent=pair[:1], present=pair[1:])
        own = [
            release(r.t, r.load_hat - int(row.sum() - row[i]), r.scale)
            for r, row in zip(day.releases, day.readings.astype(np.int64), strict=True)
        ]
        small_zone = Knowledge(Zone("z", [int(knowledge.zone.bound[i])]), [alone], f)
        assert np.abs(watch(Exact(small_zone), own).home[0, :, 0] - found[:, i]).max() <= 1e-12


@pytest.mark.soak
def test_she_guesses_better_the_more_she_knows(days: list[Day]) -> None:
    losses = []
    for day in days:
        base = day.knowledge
        zone = base.zone, base.models, base.consumption
        strong = Knowledge(*zone, bystanders=KnownReadings(day.readings))
        middle = Knowledge(*zone, bystanders=KnownOccupancy(day.occupancy))
        losses.append(
            [
                log_loss(day, watch(Factored(k), day.releases).home[0])
                for k in (base, middle, strong)
            ]
        )
    weak, middle_loss, least = np.mean(losses, axis=0)
    assert least < middle_loss < weak


def test_her_own_column_is_not_used() -> None:
    day = mixed_day(3, horizon=6)
    other = day.readings.copy()
    other[:, 2] = 0
    homes = [
        watch(
            Factored(
                Knowledge(day.knowledge.zone, day.knowledge.models, day.knowledge.consumption,
                          bystanders=KnownReadings(table))
            ),
            day.releases,
        ).home[0]
        for table in (day.readings, other)
    ]  # fmt: skip
    assert np.array_equal(homes[0][:, 2], homes[1][:, 2])
    assert not np.array_equal(homes[0], homes[1])


def test_she_may_know_all_other_occupancies() -> None:
    """One step by hand, from the law of the sum given everybody's state."""
    rng = np.random.default_rng(9)
    world = small(rng, [(0,), (1,), (2,)], 2)
    states = np.array([[1, 0, 1], [0, 0, 1]])
    base = world.knowledge()
    known = Knowledge(base.zone, base.models, base.consumption, bystanders=KnownOccupancy(states))
    releases = [release(1, 4, 2.0)]
    found = watch(Factored(known), releases).home[0, 0]
    seen = oracle.likelihoods(world.laws[0], 4, oracle.laplace(2.0))
    for i in range(3):
        weight = [
            world.initial[i][s]
            * seen[tuple(s if j == i else int(x) for j, x in enumerate(states[0]))]
            for s in (0, 1)
        ]
        assert found[i] == pytest.approx(weight[1] / sum(weight), abs=1e-12)


def test_known_occupancy_of_many_houses_is_close() -> None:
    """Beyond 14 houses the others are normal; 16 against the exact sum of 16 laws."""
    n, f0, f1 = 16, Uniform(20), Uniform(60)
    theta = OccupancyModel.factored([[0.5, 0.5]], [[np.eye(2)]], chain_of=[0] * n)
    f = Consumption.by_class(absent=[f0], present=[f1], class_of=[0] * n)
    states = np.array([[1, 0] * (n // 2)])
    known = Knowledge(Zone("z", [60] * n), [theta], f, bystanders=KnownOccupancy(states))
    found = watch(Factored(known), [release(1, 500, 30.0)]).home[0, 0, 1]
    others: list[float] = [1.0]
    for j in range(n):
        if j != 1:
            others = np.convolve(others, (f1 if states[0, j] else f0).pmf).tolist()
    noise = oracle.laplace(30.0)
    p = [
        sum(chance * noise(500 - y) for y, chance in enumerate(np.convolve(others, law.pmf)))
        for law in (f0, f1)
    ]
    assert found == pytest.approx(p[1] / sum(p), abs=5e-3)


def test_each_theta_apart_and_averaged_by_evidence() -> None:
    """The better model gains weight; the average lies between and follows it."""
    day = mixed_day(6, 96)
    base = day.knowledge
    piece = base.models[0].chains[0]
    wrong = OccupancyModel.factored(
        piece.initial[:, ::-1], piece.transition[:, :, ::-1, ::-1], calendar=base.models[0].calendar
    )
    two = Knowledge(base.zone, [base.models[0], wrong], base.consumption)
    for who in (Exact, Factored):
        seen = watch(who(two), day.releases)
        alone = watch(who(base), day.releases)
        assert np.array_equal(seen.home[0], alone.home[0])
        assert seen.weights.sum(axis=0) == pytest.approx(1.0)
        last = seen.weights[:, -1]
        gap = seen.evidence[0, -1] - seen.evidence[1, -1]
        assert last[0] == pytest.approx(1 / (1 + np.exp(-gap)))
        assert (np.abs(gap) > 0.1).all()
        mixed = (seen.home * seen.weights).sum(axis=0)
        assert seen.averaged == pytest.approx(mixed)


def test_log_erfcx_equals_scipy() -> None:
    x = np.concatenate([np.linspace(0, 30, 5001), np.geomspace(30, 1e8, 200)])
    for found in (log_erfcx(x), np.asarray(log_erfcx(array_api_strict.asarray(x)))):
        assert np.abs(found - np.log(erfcx(x))).max() <= 1e-13


def test_houses_are_put_together_where_no_number_differs() -> None:
    """Also where the sums of different houses are equal by chance, made so here."""
    rows = np.array([[1.0, 2.0, 1.0, 1.0], [5.0, 5.0, 5.0, 6.0]])
    first, again = _distinct(np.array([0, 0, 0, 0]), rows)
    assert first.size == 3
    assert (rows[:, first[again]] == rows).all()
    factor = 0x9E3779B97F4A7C15
    bits = np.array([[3, 3 + factor + 2], [4, (4 - factor) % 2**64]], np.uint64)
    first, again = _distinct(bits.view(np.float64))
    assert first.tolist() == again.tolist() == [0, 1]


def test_normal_plus_laplace_against_a_sum() -> None:
    """Against the integral by the trapezium rule, and the tail formula far out."""
    for v, b in ((4.0, 3.0), (900.0, 5.0), (0.5, 40.0)):
        x = np.linspace(-12, 12, 200_001) * np.sqrt(v)
        w = np.exp(-(x**2) / (2 * v)) / np.sqrt(2 * np.pi * v) * (x[1] - x[0])
        for d in (-70.0, -3.0, 0.0, 0.2, 55.0):
            expected = np.log(np.sum(w * np.exp(-np.abs(d - x) / b) / (2 * b)))
            found = log_density(np.array(d), np.array(v), Blur("laplace", b))
            assert float(found) == pytest.approx(expected, abs=1e-6)
    far = log_density(np.array(1e5), np.array(4.0), Blur("laplace", 3.0))
    assert float(far) == pytest.approx(4 / 18 - 1e5 / 3 - np.log(6), rel=1e-12)
    tiny = log_density(np.array(1e4), np.array(1e-8), Blur("laplace", 3.0))
    assert float(tiny) == pytest.approx(-1e4 / 3 - np.log(6), rel=1e-12)


def test_gauss_points_keep_the_moments() -> None:
    law = Gamma(1.5, 80.0, 1000).pmf
    points, weights = gauss(law, 6)
    x = np.arange(law.size)
    for power in range(12):
        expected = law @ (x / 1000.0) ** power
        assert weights @ (points / 1000) ** power == pytest.approx(expected, rel=1e-10)
    points, weights = gauss(Histogram([0.5, 0, 0, 0.5]).pmf, 6)
    assert (points.tolist(), weights.tolist()) == ([0.0, 3.0], [0.5, 0.5])


@pytest.mark.parametrize("shape", ["laplace", "gaussian", "none"])
def test_a_law_behind_noise(shape: str) -> None:
    """Small and large noise, points inside and far outside, against plain sums of logarithms."""
    f = np.array([0.3, 0.0, 0.5, 0.2])
    at = np.array([-2000, -40, -1, 0, 1, 2, 3, 4, 7, 900])
    for scale in (0.3, 2.0, 50.0):
        blur = Blur(shape, scale)  # type: ignore[arg-type]
        for point, found in zip(at, log_blurred(f, at, blur), strict=True):
            logs = [
                np.log(p) + float(blur.log_pmf(np.array(point - x))) for x, p in enumerate(f) if p
            ]
            expected = np.logaddexp.reduce(logs)
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    k = np.arange(-3000, 3001)
    assert np.exp(Blur(shape, 2.5).log_pmf(k)).sum() == pytest.approx(1.0, abs=1e-12)  # type: ignore[arg-type]
