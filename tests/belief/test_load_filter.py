"""The estimate that learns from releases: against a dense Kalman filter, quadrature, real homes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from scipy import stats

from hushgrid import Consumption, ModelError, NoiseError, OccupancyModel, Uniform
from hushgrid._kernels.load_filter import _behind
from hushgrid._numbers import Floats
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.belief.followed import _WIDTH_LAW, SPREAD, EarlierRelease, EvenDays, FollowedKnowledge
from hushgrid.belief.load_filter import KNOTS, SPREADS, LoadFilter, SeenLoads, Spreads
from hushgrid.belief.rate_interval import posterior_interval
from hushgrid.model.consumption import LoadShape
from hushgrid.model.covariate import Covariate

SHARED = Path(__file__).parents[3] / "shared" / "data"
ONE = Spreads(0.05, 0.1, 0.06, 0.2, 0.1, 0.04)


def _week(rng: Generator, steps: int = 7 * 48, noise: str = "laplace") -> SeenLoads:
    place = np.arange(steps) % 48 / 48
    base = 1000 * (1.5 + np.sin(2 * np.pi * place))
    load = base * (1.1 + 0.1 * np.cos(4 * np.pi * place))
    scale = np.full(steps, 150.0)
    draws = rng.laplace(0, scale) if noise == "laplace" else rng.normal(0, scale)
    weekend = np.arange(steps) // 48 % 7 >= 5
    return SeenLoads(load + draws, scale, base, place, weekend, noise)


def _oracle(seen: SeenLoads, one: Spreads, hours: float) -> tuple[Floats, Floats]:
    """A textbook Kalman filter with matrices, for Gaussian noise; its own kernel of the profile."""
    knots = np.arange(KNOTS) * 24 / KNOTS
    far = np.abs(np.subtract.outer(knots, knots))
    bend = np.exp(-2 * (np.sin(np.pi * far / 24) * 24 / (2 * np.pi * 1.5)) ** 2)
    first = np.zeros((3 + 2 * KNOTS, 3 + 2 * KNOTS))
    first[:3, :3] = np.diag([one.level**2, one.slow**2, one.residual**2])
    first[3 : 3 + KNOTS, 3 : 3 + KNOTS] = one.profile**2 * bend
    first[3 + KNOTS :, 3 + KNOTS :] = one.weekend**2 * bend
    lasting = np.array([24.0, 480.0, 2.0] + [720.0] * (2 * KNOTS))
    move = np.diag(np.exp(-hours / lasting))
    grow = first - move @ first @ move.T
    x, p, means, variances = np.zeros(len(first)), first, [], []
    for z, scale, base, place, weekend in zip(*seen[:5], strict=True):
        x, p = move @ x, move @ p @ move.T + grow
        hat = np.zeros(KNOTS)
        for k in range(KNOTS):  # tent functions about the knots
            apart = abs(place * KNOTS - k)
            hat[k] = max(0.0, 1 - min(apart, KNOTS - apart))
        h = base * np.concatenate([[1.0, 1.0, 1.0], hat, hat * weekend])
        m, v = base + h @ x, h @ p @ h + (base * one.white) ** 2
        gain = p @ h / (v + scale**2)
        x, p = x + gain * (z - m), p - np.outer(gain, h @ p)
        means.append(m + v / (v + scale**2) * (z - m))
        variances.append(v * scale**2 / (v + scale**2))
    return np.array(means), np.array(variances)


def test_with_gaussian_noise_it_is_the_kalman_filter() -> None:
    seen = _week(np.random.default_rng(1), noise="gaussian")
    found, _ = LoadFilter.start(0.5, [ONE]).follow(seen)
    means, variances = _oracle(seen, ONE, 0.5)
    np.testing.assert_allclose(found.estimate, means, rtol=1e-9)
    np.testing.assert_allclose(found.variance, variances, rtol=1e-8)


@given(st.floats(-40, 40), st.floats(0.3, 10), st.floats(0.1, 30), st.sampled_from([False, True]))
def test_moments_of_a_normal_load_behind_noise(
    d: float, spread: float, scale: float, normal: bool
) -> None:
    """Against sums over a fine grid, finest where the noise has its edge."""
    law = stats.norm(0, scale) if normal else stats.laplace(0, scale)
    away = np.concatenate([[0.0], np.geomspace(1e-7, 1e3, 20_000)])
    middle = d * spread**2 / (spread**2 + scale**2) if normal else d
    peak = float(np.clip(middle, -(spread**2) / scale, spread**2 / scale))
    centres = (0.0, d, middle, peak)
    x = np.unique(np.concatenate([at + sign * away for at in centres for sign in (-1, 1)]))
    logs = stats.norm.logpdf(x, 0, spread) + law.logpdf(d - x)
    density = np.exp(logs - logs.max())
    whole = np.trapezoid(density, x)
    expected = np.trapezoid(x * density, x) / whole
    spreads = np.trapezoid((x - expected) ** 2 * density, x) / whole
    mean, variance, log = _behind(d, 0.0, spread**2, scale, normal)
    assert mean == pytest.approx(expected, abs=1e-4 * spread)
    assert variance == pytest.approx(spreads, rel=1e-3)
    assert log == pytest.approx(math.log(whole) + logs.max(), abs=1e-4)


def test_moments_far_out_stay_between_prior_and_release() -> None:
    for d in (1e2, 1e4, 1e8):
        mean, variance, log = _behind(d, 0.0, 1.0, 2.0, False)
        assert mean == pytest.approx(0.5, rel=1e-6)  # at most variance/scale from the prior's mean
        assert variance == pytest.approx(1.0, rel=1e-6)
        assert log < -d / 2 + 1


@given(st.integers(0, 2**31), st.integers(1, 95))
def test_a_filter_that_goes_on_is_the_same_bit_for_bit(seed: int, cut: int) -> None:
    seen = _week(np.random.default_rng(seed), 96)
    start = LoadFilter.start(0.5)
    whole, end = start.follow(seen)
    first, middle = start.follow(SeenLoads(*(x[:cut] for x in seen[:5]), seen.noise))
    second, last = middle.follow(SeenLoads(*(x[cut:] for x in seen[:5]), seen.noise))
    for one, two, three in zip(whole, first, second, strict=True):
        np.testing.assert_array_equal(one, np.concatenate([two, three]))
    np.testing.assert_array_equal(end.mean, last.mean)
    np.testing.assert_array_equal(end.covariance, last.covariance)
    assert not start.mean.any(), "a filter is a value"


def test_filters_are_weighed_by_what_they_foresaw() -> None:
    seen = _week(np.random.default_rng(2))
    found, both = LoadFilter.start(0.5, [ONE, ONE._replace(level=3.0)]).follow(seen)
    alone, _ = LoadFilter.start(0.5, [ONE]).follow(seen)
    assert both.weights[0] > 0.99
    np.testing.assert_allclose(found.estimate[-48:], alone.estimate[-48:], rtol=1e-2)


def test_without_releases_it_forgets_and_forecasts_widen() -> None:
    seen = _week(np.random.default_rng(3))
    _, known = LoadFilter.start(0.5).follow(seen)
    steps = 90 * 48
    place = np.arange(steps) % 48 / 48
    base = np.full(steps, 1000.0)
    means, variances = known.ahead(base, place, np.zeros(steps, bool))
    fresh, widest = LoadFilter.start(0.5).ahead(base[:1], place[:1], np.zeros(1, bool))
    assert variances[0] < variances[48] < variances[-48]
    assert means[-48:].mean() == pytest.approx(1000, rel=0.05)
    assert fresh[0] == pytest.approx(1000)
    assert variances[-1] < widest[0] * 1.5


def test_without_noise_the_estimate_is_the_load() -> None:
    seen = _week(np.random.default_rng(4), 48)._replace(scale=np.zeros(48))
    found, _ = LoadFilter.start(0.5).follow(seen)
    np.testing.assert_allclose(found.estimate, seen.load_hat, atol=1e-2)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"base": np.zeros(48)}, ModelError, "a base is not above 0"),
        ({"scale": np.full(48, -1.0)}, NoiseError, "a scale is negative"),
        ({"noise": "cauchy"}, NoiseError, "noise is 'cauchy'"),
    ],
)
def test_refused(change: dict[str, object], error: type[Exception], says: str) -> None:
    seen = _week(np.random.default_rng(5), 48)._replace(**change)
    with pytest.raises(error, match=says):
        LoadFilter.start(0.5).follow(seen)


def test_refused_at_the_start() -> None:
    with pytest.raises(ModelError, match="hours is 0"):
        LoadFilter.start(0)
    with pytest.raises(ModelError, match="spreads is empty"):
        LoadFilter.start(0.5, [])


def _real(file: str, offset: int) -> tuple[Floats, Floats]:
    """Loads of whole days (days, 48) [Wh], and whether each is at a weekend."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path = SHARED / file
    if not path.exists():
        pytest.skip("the real readings are not here")
    found = parquet.read_table(path)
    start = found["start_utc"].cast("int64").to_numpy() // 1_000_000 + offset
    meters, column = np.unique(found["meter_id"].to_numpy(), return_inverse=True)
    first = -(-int(start.min()) // 86_400)
    row = start // 1800 - first * 48
    wh, keep = np.full((int(row.max()) + 1, len(meters)), np.nan), row >= 0
    wh[row[keep], column[keep]] = found["wh"].to_numpy()[keep]
    days = wh[: len(wh) // 48 * 48].reshape(-1, 48, len(meters))
    days = np.where(np.isnan(days), np.nan_to_num(np.nanmean(days, axis=0)), days)
    return days.sum(axis=2), (first + np.arange(len(days)) + 3) % 7 >= 5


@pytest.mark.parametrize(
    ("file", "offset", "copies", "against"),
    [
        ("lcl/readings_2013_100homes.parquet", 0, 10, 0.75),
        pytest.param("lcl/readings_2013_100homes.parquet", 0, 50, 0.4, marks=pytest.mark.soak),
        pytest.param("sgsc/readings_2013_50homes.parquet", 36_000, 20, 1.0, marks=pytest.mark.soak),
    ],
)
def test_on_real_homes_it_is_better_than_raw_and_than_the_days_before(
    file: str, offset: int, copies: int, against: float
) -> None:
    """Copies of real homes, 35 days to learn from, 56 to judge, the noise of a promise of 1."""
    loads, weekend = _real(file, offset)
    loads = loads[:91] * copies
    slot = [loads[:35][weekend[:35] == kind].mean(axis=0) for kind in (False, True)]
    usual = np.where(weekend[:91, None], slot[1], slot[0])[35:].ravel()
    load, scale = loads[35:].ravel(), 26.6 * 2500.0
    place, whole = np.tile(np.arange(48) / 48, 56), np.repeat(weekend[35:91], 48)

    def error(guess: Floats) -> float:
        return float(np.sqrt(np.mean((guess / load - 1) ** 2)))

    for seed in range(2):
        seen = load + np.random.default_rng(seed).laplace(0, scale, len(load))
        scales = np.full(len(load), scale)
        for base, limit in ((usual, against), (np.full(len(load), loads[:35].mean()), 2.0)):
            found, _ = LoadFilter.start(0.5).follow(SeenLoads(seen, scales, base, place, whole))
            assert error(found.estimate) <= 1.02 * error(seen)
            assert error(found.estimate) <= 1.02 * limit * error(usual)


def test_the_bank_is_small() -> None:
    assert len(SPREADS) == len(set(SPREADS)) == 24
    assert replace(LoadFilter.start(0.25)).mean.shape == (24, 3 + 2 * KNOTS)


def test_a_profile_that_stays_is_averaged_over_more_than_a_month() -> None:
    """Sixty days of one profile, off the base by a third, behind noise as large as the load."""
    place, days = np.tile(np.arange(48) / 48, 60), 60
    load = 1000 * (1 + 0.3 * np.sin(2 * np.pi * place))
    seen = load + np.random.default_rng(6).laplace(0, 700.0, len(load))
    scale, base = np.full(len(load), 700.0), np.full(len(load), 1000.0)
    steps = SeenLoads(seen, scale, base, place, np.zeros(len(load), bool))
    error = {}
    for name, bank in (("all", SPREADS), ("month", [s for s in SPREADS if s.lasts == 1])):
        found, after = LoadFilter.start(0.5, bank).follow(steps)
        error[name] = float(np.sqrt(np.mean((found.estimate - load)[days * 24 :] ** 2)))
        if name == "all":
            longer = sum(w for w, s in zip(after.weights, SPREADS, strict=True) if s.lasts > 1)
            assert longer > 0.8, "releases say how long parts last"
    assert error["all"] < 0.85 * error["month"]


# ---- the filter and the model together

HOUSES = 200


def _model(clamp: tuple[int, ...] = ()) -> PublicKnowledge:
    chain = [0] * HOUSES
    theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=chain)
    f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=chain)
    return PublicKnowledge.start([theta], f, clamp=clamp)


def test_components_are_weighed_by_bayes_rule() -> None:
    """Against both components alone, each with its own evidence."""
    rng = np.random.default_rng(1)
    model, bank = _model(), LoadFilter.start(24 / 96)
    both, odds = FollowedKnowledge.start(model, EvenDays()), 0.8
    for t in range(1, 30):
        seen = 90_000 + float(rng.laplace(0, 4000.0))
        base = model.moments.at(t)[0].mean
        place, none = np.array([(t - 1) % 96 / 96]), np.zeros(1, bool)
        one = SeenLoads(np.array([seen]), np.array([4000.0]), np.array([base]), place, none)
        found, bank = bank.step(one)
        filtered = float(bank.weights @ found.estimate)
        by_filter = math.log(float(found.weights @ np.exp(found.log)))
        by_model, evidence, model = model.weighed(seen, 4000.0)
        odds = (1 - 1e-4) * odds + 1e-4 * 0.8
        odds = 1 / (1 + (1 - odds) / odds * math.exp(by_filter - evidence))
        estimate, both = both.learn(seen, 4000.0)
        assert both.share == pytest.approx(odds, rel=1e-9)
        assert estimate == pytest.approx(odds * by_model + (1 - odds) * filtered, rel=1e-12)
    assert both.t == 30


def test_a_true_model_is_kept_and_a_wrong_one_left() -> None:
    """Three days of a true model cost less than 3 %; a load of half again is found."""
    for factor, share in ((1.0, 0.95), (3.0, 0.05)):
        rng = np.random.default_rng(3)
        model, known = _model(), FollowedKnowledge.start(_model(), EvenDays())
        errors = np.empty((2, 288))
        for t in range(288):
            load = factor * (85_000 + float(rng.normal(0, 4500)))
            seen = load + float(rng.laplace(0, 8000.0))
            guess, model = model.learn(seen, 8000.0)
            mixed, known = known.learn(seen, 8000.0)
            errors[:, t] = guess - load, mixed - load
        alone, mixed = np.sqrt(np.mean(errors[:, 48:] ** 2, axis=1))
        assert (known.share > share) is (factor == 1)
        assert mixed <= 1.03 * alone if factor == 1 else mixed < 0.5 * alone


@pytest.mark.parametrize("clamp", [(), (400,)])
def test_parts_predictions_and_intervals_agree(clamp: tuple[int, ...]) -> None:
    known = FollowedKnowledge.start(_model(clamp), EvenDays())
    for seen in (52_000.0, 55_000.0, 50_000.0):
        _, known = known.learn(seen, 3000.0)
    law, whole = known.parts(), known.predicted()
    assert law.weights.sum() == pytest.approx(1)
    assert float(whole.weights @ whole.mean) == pytest.approx(
        float(law.weights @ (law.mean + law.cut))
    )
    assert known.clamped_energy() == pytest.approx(float(law.weights @ law.cut))
    assert (known.clamped_energy() > 0) is bool(clamp)
    found = posterior_interval(known, 53_000.0, 3000.0)
    after, _ = known.learn(53_000.0, 3000.0)
    assert found.low < after < found.high
    if not clamp:
        narrow, wide = known.forecast(1)[0], known.forecast(96)[-1]
        assert wide.high - wide.low > narrow.high - narrow.low
    assert known.forecast(3)[2] == known.passed(2).forecast(1)[0]


def test_without_a_model_nothing_of_it_enters() -> None:
    """Other laws behind the same bounds: the same estimates, forecasts and intervals."""
    first = _model((400,))
    same = [0] * HOUSES
    laws = Consumption.by_class(absent=[Uniform(900)], present=[Uniform(990)], class_of=same)
    other = PublicKnowledge.start(first.models, laws, clamp=(400,))
    found = []
    for model in (first, other):
        known, seen = FollowedKnowledge.start(model, EvenDays(), usual=40_000.0), []
        for load in (42_000.0, 46_000.0, 41_000.0):
            seen.append(known.learn(load, 3000.0)[0])
            known = known.after(load, 3000.0).passed(3)
        found.append((seen, known.forecast(3), known.clamped_energy(), known.share))
    assert found[0] == found[1]
    assert found[0][2] > 0, "the energy above the clamp is put back, by no model"
    assert found[0][3] == 0


@pytest.mark.parametrize("clamp", [(), (300,)])
def test_a_load_shape_is_the_base_before_anything_is_learnt(clamp: tuple[int, ...]) -> None:
    shape, model = LoadShape(), _model(clamp)
    shaped = replace(model, consumption=replace(model.consumption, shape=shape))
    known = FollowedKnowledge.start(shaped, EvenDays(), usual=150.0 * HOUSES)
    expected = 150.0 * HOUSES * shape.week(86_400 + 900 * (np.arange(96) + 0.5))
    forecast = [one.mean for one in known.forecast(96)]
    np.testing.assert_allclose(forecast, expected, rtol=1e-6 if not clamp else 0.03)
    flat = FollowedKnowledge.start(model, EvenDays(), usual=150.0 * HOUSES)
    assert np.ptp([one.mean for one in flat.forecast(96)]) < 1.0


def test_a_load_shape_saves_the_first_days() -> None:
    """A zone whose level is off by a tenth: errors of the first two days, with and without it."""
    rng, shape, model = np.random.default_rng(2), LoadShape(), _model()
    steps = np.arange(192)
    truth = 165.0 * HOUSES * shape.week(86_400 + 900 * (steps % 96 + 0.5))
    noise = rng.laplace(0, 4000.0, len(steps))
    errors = []
    for f in (model.consumption, replace(model.consumption, shape=shape)):
        known = FollowedKnowledge.start(
            replace(model, consumption=f), EvenDays(), usual=150.0 * HOUSES
        )
        estimates = []
        for load_hat in (truth + noise).tolist():
            estimate, known = known.learn(load_hat, 4000.0)
            estimates.append(estimate)
        errors.append(float(np.sqrt(np.mean((np.array(estimates) / truth - 1) ** 2))))
    assert errors[1] < 0.6 * errors[0]


def test_without_a_model_the_energy_above_a_clamp_is_put_back() -> None:
    """Readings of real homes are about log-normal; before, all prices were low by what was cut."""
    rng, clamp = np.random.default_rng(1), 600
    known = FollowedKnowledge.start(_model((clamp,)), EvenDays(), usual=150.0 * HOUSES)
    true, estimates = [], []
    for t in range(192):
        mean = 150 * (1 + 0.3 * np.sin(2 * np.pi * t / 96))
        readings = rng.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, HOUSES)
        true.append(readings.sum())
        seen = np.minimum(readings, clamp).sum() + rng.laplace(0, 500.0)
        estimate, known = known.learn(float(seen), 500.0)
        estimates.append(estimate)
    assert np.mean(estimates) == pytest.approx(np.mean(true), rel=0.02)


def test_without_a_model_intervals_hold_loads_that_vary_more_than_independent_homes() -> None:
    """Homes in groups that use the same: what lies above the clamp varies three times as much."""
    rng, clamp, alike = np.random.default_rng(2), 800, 10
    known = FollowedKnowledge.start(_model((clamp,)), EvenDays(), usual=150.0 * HOUSES)
    held = []
    for t in range(11 * 96):
        homes = rng.lognormal(np.log(150) - SPREAD**2 / 2, SPREAD, HOUSES // alike)
        seen = alike * np.minimum(homes, clamp).sum() + rng.laplace(0, 500.0)
        if t >= 3 * 96:
            interval = posterior_interval(known, float(seen), 500.0)
            held.append(interval.low <= alike * homes.sum() <= interval.high)
        known = known.after(float(seen), 500.0)
    assert 0.935 <= np.mean(held) <= 0.975  # 768 steps: standard deviation 0.008


def test_a_wider_law_widens_an_interval_where_noise_hides_the_load() -> None:
    """Behind little noise it is the noise that says how wide an interval is."""
    known = FollowedKnowledge.start(_model(), EvenDays(), usual=80_000.0)
    factors = np.exp(np.linspace(np.log(0.5), np.log(2.5), 13))
    narrow, wide = (replace(known, widths=np.eye(13)[place]) for place in (4, 10))
    ratio = factors[10] / factors[4]
    for scale, expected in ((1e7, ratio), (100.0, 1.0)):
        ends = [posterior_interval(one, 80_000.0, scale) for one in (narrow, wide)]
        lengths = [interval.high - interval.low for interval in ends]
        assert lengths[1] / lengths[0] == pytest.approx(expected, rel=0.02)


def test_releases_before_the_first_step_are_followed_bit_for_bit() -> None:
    rng = np.random.default_rng(5)
    first, earlier = FollowedKnowledge.start(_model(), EvenDays(), usual=80_000.0), []
    known = first
    for t in range(192):
        if t % 7 == 3:
            known = known.passed()
            continue
        seen = 80_000 + float(rng.laplace(0, 3000.0))
        earlier.append(EarlierRelease(t - 191, seen, 3000.0, known.base(), known.share))
        known = known.after(seen, 3000.0)
    again = first.continued(earlier)
    np.testing.assert_array_equal(again.bank.mean, known.bank.mean)
    np.testing.assert_array_equal(again.bank.covariance, known.bank.covariance)
    np.testing.assert_array_equal(again.bank.weights, known.bank.weights)
    assert first.continued([]) == first
    assert first.continued(earlier) == again
    assert hash(first.continued(earlier)) == hash(again)
    part = first.continued([one._replace(t=one.t + 96) for one in earlier if one.t <= -96])
    assert first.continued([one for one in earlier if one.t > -96], (-95, part)) == again


@pytest.mark.parametrize(("wild", "scale"), [(0.35, 2000.0), (0.01, 2000.0), (0.01, 4e6)])
@pytest.mark.sampled
def test_intervals_are_as_wide_as_releases_are_far_from_forecasts(
    wild: float, scale: float
) -> None:
    """Steps far apart, or of no noise at all: no filter of the bank has such laws."""
    rng = np.random.default_rng(11)
    known = FollowedKnowledge.start(_model(), EvenDays(), usual=80_000.0)
    held, plain = list[bool](), list[bool]()
    for t in range(900):
        load = 80_000 * (1 + wild * float(rng.standard_normal()))
        seen = load + float(rng.laplace(0, scale))
        if t > 450:
            one = known.predicted().interval(0.95)
            held.append(one.low <= load <= one.high)
            one = replace(known, widths=_WIDTH_LAW).predicted().interval(0.95)
            plain.append(one.low <= load <= one.high)
        known = known.after(seen, scale)
    if scale > 1e6:  # releases say nothing of it
        assert known.width == pytest.approx(1.11, abs=0.1)
        return
    assert (known.width > 1.2) is (wild > 0.1)
    assert 0.91 <= np.mean(held) <= 1
    assert np.mean(plain) < 0.87 if wild > 0.1 else known.width < 0.7


def test_a_public_covariate_is_learnt() -> None:
    """A load that moves by a tenth with a covariate: forecasts use it, a missing value is 0."""
    rng = np.random.default_rng(7)
    warmth = Covariate("temperature", centre=10.0, scale=8.0)
    known = FollowedKnowledge.start(_model(), EvenDays(), 80_000.0, (warmth,))
    assert known.named_values == {"temperature": None}
    for _ in range(400):
        x = float(rng.choice([-1.0, 1.0]))
        load = 80_000 * (1 + 0.1 * x)
        known = known.knowing({"temperature": 10 + 8 * x})
        known = known.after(load + float(rng.laplace(0, 2000.0)), 2000.0)
    high, low = (known.knowing({"temperature": x}).predicted() for x in (18.0, 2.0))
    found = float(high.weights @ high.mean) - float(low.weights @ low.mean)
    assert found == pytest.approx(16_000, rel=0.1)
    middle = known.knowing({}).predicted()
    assert float(middle.weights @ middle.mean) == pytest.approx(80_000, rel=0.02)
    far, furthest = (known.knowing({"temperature": x}).predicted() for x in (1e9, 58.0))
    np.testing.assert_array_equal(far.mean, furthest.mean, "a value far out counts six scales")
    for held in (known, known.knowing({})):
        assert held.from_arrays(held.to_arrays()) == held
    wrong = SeenLoads(*np.ones((4, 1)), np.zeros(1, bool), covariates=np.ones((1, 2)))
    with pytest.raises(ModelError, match="covariates have shape"):
        known.bank.follow(wrong)
