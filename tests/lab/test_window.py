"""Any window of steps: what a home does there, from the releases of all days that touch it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.belief.followed import EvenDays, FollowedKnowledge
from hushgrid.errors import PolicyError
from hushgrid.lab.baselines import (
    FOURIER,
    WAVELET,
    WEVENT,
    WEVENT_ABSORPTION,
    Absorption,
    Distribution,
)
from hushgrid.lab.bench import (
    AHEAD,
    AHEAD_EXACT,
    EXACT,
    EXACT_BY_MODEL,
    HELD,
    ROLLING_MEAN_NOISY,
    Bench,
    WindowNoise,
    errors,
    methods_with,
)
from hushgrid.lab.comparison import compare, copied
from hushgrid.lab.datasets import Real, Recorded, paper_world
from hushgrid.lab.methods import (
    BOUND,
    BOUND_FITTED,
    BOUND_INDEPENDENT,
    FORECAST,
    GROUP,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
    Ready,
)
from hushgrid.lab.rolling import DailySums
from hushgrid.report.comparison import comparison_json, recorded_table
from tests.lab.day_source import T, U, source

HOMES = 60
CLAMP = 300  # [Wh]


def zone(days: int = 20, before: int = 0) -> Recorded:
    """Days of sixty homes that use more in the evening, after some of half that use."""
    scenario = copied(source(), HOMES // 3).scenarios[0]
    shape = 150 + 100 * np.sin(2 * np.pi * (np.arange(T) - 12) / T)
    rng = np.random.default_rng(2)
    each = shape[:, None] * rng.lognormal(-0.3, 0.8, (before + days, T, HOMES))
    each[:before] /= 2
    readings = np.minimum(each, U).astype(np.int32)
    real = Real(tuple(map(str, range(HOMES))), readings, np.arange(before + days))
    earlier = real.days(slice(before)) if before else None
    return Recorded.of(scenario, real.days(slice(before, None)), earlier)


def largest_loss(bench: Bench, name: str, window: int, days: int) -> float:
    """Sum of the losses of all noises that a window touches, whatever the home does in it."""
    loss_of, noises = dict[int, float](), list[int]()
    fresh = itertools.count()
    at, left = next(fresh), 0
    for number in range(days):
        ready = bench.ready()[name]
        assert isinstance(ready, Ready)
        made = bench._published(name, number)
        reach = min((U, *(c for c in ready.clamp if isinstance(c, int))))
        begins = set(np.cumsum((-made.steps_before, *made.lengths)).tolist())
        for t, scale in enumerate(made.scale.tolist()):
            if not made.lengths or t in begins:
                at = next(fresh)
            loss_of[at] = max(loss_of.get(at, 0.0), reach / scale)
            noises.append(at)
            left += 1
    spans = (set(noises[i : i + window]) for i in range(len(noises) - window + 1))
    return max(sum(loss_of[one] for one in span) for span in spans)


@pytest.mark.parametrize(
    ("method", "window", "block"),
    [
        (BOUND, 25, None),
        (BOUND, 49, 36),
        (BOUND, 169, 42),
        (BOUND, 10, 7),
        (BOUND_INDEPENDENT, 25, None),
        (GROUP, 49, None),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_no_window_loses_more(method: Method, window: int, block: int | None) -> None:
    noise = WindowNoise(block, (CLAMP,))
    promise = MethodPromise("window", 1.0, window=window)
    bench = Bench(zone(), promise, 1, (method,), noise=noise)
    found = largest_loss(bench, method.name, window, 20)
    assert found <= 1 + 1e-9
    assert found > (0.99 if method is not BOUND else 0.7)


@pytest.mark.soak
def test_a_block_goes_on_from_day_to_day() -> None:
    """Noise of 36 hours: as large on its second day, and the same after a run is taken up."""
    days = replace(zone(), readings=np.zeros((20, T, HOMES), np.int32))
    promise = MethodPromise("window", 1.0, window=49)
    noise = WindowNoise(36, (CLAMP,))
    largest, first = [], Bench(days, promise, 0, (BOUND,), noise=noise)
    for seed in range(300):
        bench = first.drawing(seed)
        made = [bench._published(BOUND.name, number) for number in range(3)]
        assert [one.steps_before for one in made] == [0, 24, 12]
        shown = np.abs(np.concatenate([one.raw for one in made]))
        largest.append([shown[:24].max(), shown[24:36].max(), shown[36:48].max()])
    whole, rest, other = np.log(largest).T
    assert np.corrcoef(whole, rest)[0, 1] > 0.8  # the same size
    assert abs(np.corrcoef(whole, other)[0, 1]) < 0.25  # four standard errors
    again = first.drawing(299)
    np.testing.assert_array_equal(again._published(BOUND.name, 2).raw, made[2].raw)
    np.testing.assert_array_equal(again._published(BOUND.name, 1).raw, made[1].raw)


def test_the_estimate_goes_on_through_a_block() -> None:
    """Day by day as in one run of all steps: what is known of a noise outlives midnight."""
    days = replace(zone(5), published=140.0)
    promise = MethodPromise("window", 1.0, window=49)
    bench = Bench(days, promise, 3, (BOUND,), noise=WindowNoise(36, (CLAMP,)))
    rows, made, estimates = [], [], []
    for number in range(5):
        published, day = bench._published(BOUND.name, number), days.day(number)
        followed, *_ = bench._followed(days, BOUND.name, number, published, day)
        rows.append(followed.estimated)
        made.append(published)
    scenario = days.scenarios[0]
    model = PublicKnowledge.start(scenario.models, scenario.consumption, clamp=(CLAMP,))
    whole = FollowedKnowledge.start(model.with_blocks((36,) * 4), EvenDays(T), 140.0 * HOMES)
    for one in made:
        assert one.observations is not None
        for seen, scale in zip(one.observations.tolist(), one.scale.tolist(), strict=True):
            estimate, whole = whole.learn(seen, scale)
            estimates.append(estimate)
    np.testing.assert_allclose(np.concatenate(rows), estimates, rtol=1e-9)


def test_a_list_is_what_the_filter_expects_at_six_in_the_evening() -> None:
    """From the releases up to then alone; that of exact loads from the loads up to then alone."""
    days = replace(zone(4), published=140.0)
    promise = MethodPromise("window", 1.0, window=25)
    bench = Bench(days, promise, 3, (BOUND,), noise=WindowNoise(6, (CLAMP,)))
    rows = [bench.row(number)[BOUND.name] for number in range(4)]
    scenario, evening = days.scenarios[0], T * 3 // 4
    published = [bench._published(BOUND.name, number) for number in range(3)]
    noisy = np.concatenate([outcome.raw for outcome in published])
    scales = np.concatenate([outcome.scale for outcome in published])
    exact = np.concatenate([days.day(number).load for number in range(3)])
    start = PublicKnowledge.start(scenario.models, scenario.consumption)
    below = PublicKnowledge.start(scenario.models, scenario.consumption, clamp=(CLAMP,))
    below = below.with_blocks((6,) * (T // 6 * 4))
    for kind, model, loads, noise in (
        (AHEAD, below, noisy, scales), (AHEAD_EXACT, start, exact, 0 * scales)
    ):  # fmt: skip
        knowledge = FollowedKnowledge.start(model, EvenDays(T), 140.0 * HOMES)
        for t in range(2 * T + evening):  # Monday to Wednesday
            knowledge = knowledge.after(float(loads[t]), float(noise[t]))
        laws = knowledge.passed(T - evening).forecast(T)
        expected = errors(np.array([law.mean for law in laws]), days.day(3).load, scenario.tariff)
        assert rows[2][kind] == pytest.approx(expected, rel=1e-6)
    assert AHEAD not in rows[3], "no day follows"
    assert AHEAD_EXACT not in rows[3], "no day follows"


@pytest.mark.soak
def test_exact_loads_are_followed_once_for_all_draws() -> None:
    """By the filter of each method: with its model, or by published figures."""
    days = replace(zone(3, before=4), published=140.0)
    promise = MethodPromise("window", 1.0, window=25)
    methods = (BOUND, BOUND_FITTED)
    bench = Bench(days, promise, 1, methods, noise=WindowNoise(6, (CLAMP,)))
    rows = [each.row(1) for each in (bench, bench.drawing(9))]
    assert set(bench._exact_lists) == {(EXACT, 1), (EXACT_BY_MODEL, 1)}
    for name in (BOUND.name, BOUND_FITTED.name):
        assert rows[0][name][AHEAD] != rows[1][name][AHEAD]
        assert rows[0][name][AHEAD_EXACT] == rows[1][name][AHEAD_EXACT]
    assert rows[0][BOUND.name][AHEAD_EXACT] != rows[0][BOUND_FITTED.name][AHEAD_EXACT]


def test_the_estimate_uses_no_model_of_the_zone() -> None:
    """Other days before it change the row that is fitted to them, not the one that is not."""
    promise = MethodPromise("window", 1.0, window=25)
    noise = WindowNoise(6, (CLAMP,))
    methods = (BOUND, BOUND_FITTED)
    days = replace(zone(4), published=140.0)
    world = days.scenarios[0]
    laws = tuple(world.consumption.laws[::-1])
    other = replace(world, consumption=replace(world.consumption, laws=laws))
    rows = [
        Bench(source, promise, 1, methods, noise=noise).row(2)
        for source in (days, replace(days, scenarios=(other,)))
    ]
    assert rows[0][BOUND.name] == rows[1][BOUND.name]
    assert rows[0][BOUND_FITTED.name]["raw"] != rows[1][BOUND_FITTED.name]["raw"]


@pytest.mark.soak
def test_releases_of_the_days_before_are_followed() -> None:
    """With published figures alone the zone has published on the days before, too."""
    days = replace(zone(4, before=30), published=140.0)
    promise = MethodPromise("window", 1.0, window=25)
    bench = Bench(days, promise, 1, (BOUND,), noise=WindowNoise(6, (CLAMP,)))
    bench.row(0)
    following, known = bench._knowledge[BOUND.name]
    assert following == 1
    assert known.bank.covariance[0, 1, 1] < 0.5 * known.bank.start(1.0).covariance[0, 1, 1]
    assert days.date_of(-1) == 29
    assert [days.is_weekend(n) for n in (-1, -2, -3)] == [False, False, True]


def test_refusals() -> None:
    promise = MethodPromise("window", 1.0, window=25)
    bench = Bench(zone(4, before=4), promise, 1, methods_with(0.05, fitted=True))
    refused = {n for n, one in bench.ready().items() if isinstance(one, MethodRefusal)}
    assert refused == {"hushgrid_eta0", "hushgrid_eta05", "wasserstein", "quilt", "dphmm"}
    with pytest.raises(PolicyError, match="do not follow each other; give readings"):
        compare(paper_world(0.0, 1, 1, n=5), promise, days=2, seed=1)
    with pytest.raises(PolicyError, match="window is None with the secret window"):
        MethodPromise("window", 1.0)
    with pytest.raises(PolicyError, match="window is 9 with the secret interval"):
        MethodPromise("interval", 1.0, window=9)
    with pytest.raises(PolicyError, match="window is 0"):
        MethodPromise("window", 1.0, window=0)


@pytest.mark.parametrize("method", [FOURIER, WAVELET], ids=lambda m: m.name)
@pytest.mark.parametrize(("window", "touched"), [(25, 2), (169, 8), (2, 2), (1, 1)])
def test_whole_days_count_as_often_as_a_window_touches_them(
    method: Method, window: int, touched: int
) -> None:
    world = source().scenarios[0]
    promise = MethodPromise("window", 1.0, window=window)
    setting = MethodSetting.of(world, promise, T, run=world)
    assert setting.day_epsilon == pytest.approx(1 / touched)
    ready = method.prepare(setting)
    alone = method.prepare(MethodSetting.of(world, MethodPromise("interval", 1 / touched), T))
    assert isinstance(ready, Ready)
    assert isinstance(alone, Ready)
    assert ready.scale == pytest.approx(alone.scale)


def test_noisy_sums_count_as_often_as_a_window_touches_days() -> None:
    days = zone(4, before=8)
    promises = [MethodPromise("window", 1.0, window=n) for n in (25, 169)]
    sums = [Bench(days, promise, 1, ()).sums for promise in promises]
    assert all(isinstance(one, DailySums) for one in sums)
    assert [one.cut / one.scale for one in sums] == pytest.approx([1 / 2, 1 / 8])  # type: ignore[union-attr]


def test_a_delta_buys_gaussian_noise() -> None:
    world = source().scenarios[0]
    pure, relaxed = (
        BOUND_INDEPENDENT.prepare(
            replace(
                MethodSetting.of(world, MethodPromise("window", 1.0, delta, 169), T, run=world),
                clamp=(CLAMP,),
            )
        )
        for delta in (0.0, 1e-6)
    )
    assert isinstance(pure, Ready)
    assert isinstance(relaxed, Ready)
    assert relaxed.guarantee.startswith("(epsilon, delta) for all that a house does in any 169")
    # 169 normal releases of sensitivity 1 at epsilon 1, delta 1e-6 (Balle and Wang 2018)
    assert relaxed.scale / CLAMP == pytest.approx(np.sqrt(169) * 4.2247, rel=2e-3)
    assert np.sqrt(2) * pure.scale > 3 * relaxed.scale


@given(
    st.sampled_from([Distribution, Absorption]),
    st.integers(1, 9),
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.floats(0.01, 5),
)
def test_no_window_of_publications_spends_more(
    shares_of: type[Distribution] | type[Absorption], w: int, wanted: list[bool], epsilon: float
) -> None:
    """Also where only the last 2 w steps are remembered."""
    shares, spent = shares_of(epsilon, w), list[float]()
    for yes in wanted:
        offer = shares.offer(spent[-2 * w :])
        assert offer >= 0
        spent.append(offer if yes else 0.0)
    total = [shares.probe + e for e in spent]
    worst = max(sum(total[i : i + w]) for i in range(len(total)))
    assert worst <= epsilon * (1 + 1e-12)


def test_absorbed_shares_are_all_used() -> None:
    """A publication after w quiet steps has the whole half; as many steps then have nothing."""
    shares, spent = Absorption(1.0, 4), [0.0] * 6
    assert shares.offer(spent) == 0.5
    spent.append(0.5)
    for expected in (0.0, 0.0, 0.0, 0.125, 0.25):
        assert shares.offer(spent) == pytest.approx(expected)
        spent.append(0.0)


@pytest.mark.parametrize("method", [WEVENT, WEVENT_ABSORPTION], ids=lambda m: m.name)
def test_publications_of_earlier_days_count(method: Method) -> None:
    """A window of 36 steps over days whose loads jump: from the scales that an observer sees."""
    window, epsilon = 36, 200.0
    days = zone(6)
    jumps = np.where(np.arange(6 * T) // 5 % 2, 800, 50).reshape(6, T, 1)
    days = replace(days, readings=np.broadcast_to(jumps, days.readings.shape).astype(np.int32))
    bench = Bench(days, MethodPromise("window", epsilon, window=window), 1, (method,))
    made = [bench._published(method.name, number) for number in range(6)]
    probe = epsilon / (2 * window)
    each = np.concatenate([U / one.scale for one in made])
    spent = np.where(np.isclose(each, probe), 0.0, each)
    assert np.count_nonzero(spent) > 6
    worst = max(spent[i : i + window].sum() for i in range(len(spent) - window + 1))
    assert worst + window * probe <= epsilon * (1 + 1e-9)
    apart = method.prepare(MethodSetting.of(days.scenarios[0], MethodPromise("interval", 1.0), T))
    assert isinstance(apart, Ready)
    assert apart.publish_on is None


def test_results_have_their_keys() -> None:
    methods = (BOUND, BOUND_FITTED, GROUP, FORECAST)
    result = compare(
        replace(zone(4, before=8), published=140.0),
        MethodPromise("window", 1.0, window=25),
        days=4,
        seed=1,
        methods=methods,
        noise=WindowNoise(6, (CLAMP,)),
    )
    values = comparison_json(result, [], [])
    assert (values["secret"], values["window"]) == ("window", 25)
    found = values["mechanisms"]
    for name in (BOUND.name, BOUND_FITTED.name, GROUP.name):
        listed = found[name][AHEAD]
        assert 0 < listed["exact"]["rmsre"]["mean"] < listed["rmsre"]["mean"]
        ratio = listed["rmsre"]["mean"] / listed["exact"]["rmsre"]["mean"]
        assert listed["ratio"]["mean"] == pytest.approx(ratio)
        assert 0 <= found[name][HELD] <= 1
        assert "any 25 steps this counts the releases of all days" in found[name]["guarantee"]
    assert [n for n in found if found[n].get("private_fit")] == [BOUND_FITTED.name]
    assert "private fit" in found[BOUND_FITTED.name]["label"]
    assert "any 25 steps" in found[ROLLING_MEAN_NOISY]["guarantee"]
    assert found[FORECAST.name]["guarantee"].startswith("no reading")
    assert set(found[FORECAST.name][AHEAD]) == {"rmsre"}, "it follows nothing"
    row = next(line for line in recorded_table(result).splitlines() if BOUND.label in line)
    assert f"{found[BOUND.name][AHEAD]['ratio']['mean']:.3f} (" in row
