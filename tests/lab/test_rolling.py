"""Means of the last days of the same kind, from true loads and from noisy daily sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.lab.bench import (
    AHEAD,
    FLAT,
    PARTS,
    ROLLING_MEAN,
    ROLLING_MEAN_NOISY,
    SLOT_MEAN,
    TIME_OF_USE,
    YESTERDAY,
    Bench,
    errors,
)
from hushgrid.lab.comparison import compare, copied
from hushgrid.lab.datasets import Real, Recorded
from hushgrid.lab.methods import FORECAST, MethodPromise
from hushgrid.lab.rolling import (
    DailySums,
    RollingMean,
    banded_load,
    choose_sums,
    flat_load,
    last_days,
)
from hushgrid.report.comparison import comparison_json, guarantee_prose, recorded_table
from tests.lab.day_source import DAYS, T, U, source

PROMISE = MethodPromise("interval", 1.0)


def zone(before: int = 14, days: int = 21, missing: tuple[int, ...] = ()) -> Recorded:
    """Days from a Monday on; on day d all homes read d at every step."""
    scenario = source().scenarios[0]
    dates = np.array([d for d in range(before + days) if d not in missing])
    readings = np.broadcast_to(dates[:, None, None], (len(dates), T, 3)).astype(np.int32)
    names, first = ("a", "b", "c"), int((dates < before).sum())
    real, earlier = (
        Real(names, readings[part], dates[part]) for part in (slice(first, None), slice(first))
    )
    return Recorded.of(scenario, real, earlier if before else None)


def test_the_last_five_of_the_same_kind() -> None:
    days = zone()
    assert last_days(days, 0).tolist() == [7, 8, 9, 10, 11], "before a Monday: the week before"
    assert last_days(days, 3).tolist() == [10, 11, 14, 15, 16]
    assert last_days(days, 3, ahead=True).tolist() == [9, 10, 11, 14, 15], "Wednesday is not over"
    assert last_days(days, 5).tolist() == [5, 6, 12, 13], "all weekend days that are over"
    assert last_days(days, 6, ahead=True).tolist() == [5, 6, 12, 13], "nor is Saturday"


def test_days_that_are_not_whole_are_left_out() -> None:
    days = zone(missing=(15,))  # a Tuesday
    assert days.date[:2].tolist() == [14, 16]
    assert last_days(days, 1, ahead=True).tolist() == [8, 9, 10, 11, 14], "Monday is over by then"
    assert days.following(0) is None
    assert days.following(1) == 2


def test_loads_are_the_mean_of_those_days() -> None:
    days = zone()
    rolling = RollingMean.of(days, None, 1)
    assert rolling.sums is None
    np.testing.assert_allclose(rolling.mean(3), 3 * np.mean([10, 11, 14, 15, 16]))
    assert rolling.noisy_mean(3, np.ones(T)) is None
    assert RollingMean.of(zone(before=0), None, 1).mean(0) is None


def test_rows_have_the_errors_of_both_and_of_the_next_day() -> None:
    days = zone()
    tariff = days.scenarios[0].tariff
    bench = Bench(days, PROMISE, 1, (FORECAST,))
    row = bench.row(3)
    true, five = days.day(3).load, np.full(T, 3 * 13.2)
    assert row[ROLLING_MEAN] == {
        part: errors(five, true, tariff, cut=part != "raw") for part in PARTS
    } | {AHEAD: errors(np.full(T, 3 * np.mean([10, 11, 14, 15, 16])), days.day(4).load, tariff)}
    assert set(row) >= {SLOT_MEAN, ROLLING_MEAN_NOISY}
    assert AHEAD in row[FORECAST.name]
    assert AHEAD not in bench.row(len(days.date) - 1)[ROLLING_MEAN]


def test_prices_that_ask_no_mechanism() -> None:
    """Flat and by time of use: of the days before alone. Yesterday: exact, and no promise."""
    days = zone()
    tariff, true = days.scenarios[0].tariff, days.day(3).load
    row = Bench(days, PROMISE, 1, (FORECAST,)).row(3)
    assert row[YESTERDAY]["raw"] == errors(np.full(T, 3.0 * 16), true, tariff, cut=False)
    assert row[YESTERDAY][AHEAD] == errors(np.full(T, 3.0 * 16), days.day(4).load, tariff)
    usual = np.full(T, 3 * np.mean([0, 1, 2, 3, 4, 7, 8, 9, 10, 11]))  # workdays of two weeks
    assert row[FLAT]["raw"] == row[TIME_OF_USE]["raw"] == errors(usual, true, tariff, cut=False)
    result = compare(days, PROMISE, days=8, seed=1, methods=(FORECAST,))
    found = comparison_json(result, [], [])["mechanisms"]
    assert [found[name]["promise"] for name in (FLAT, TIME_OF_USE, YESTERDAY)] == [
        True,
        True,
        False,
    ]
    assert "the day before, TRUE LOADS, NO PROMISE" in recorded_table(result)


def test_bands_keep_ratios_and_the_usual_level() -> None:
    days = replace(zone(), published=10.0)
    profile = np.arange(1.0, 25.0)  # a load for each hour
    np.testing.assert_allclose(flat_load(days, profile), 30.0)
    found = banded_load(days, profile)
    assert found.mean() == pytest.approx(30)
    assert len(np.unique(found)) == 4
    assert found[17] / found[3] == pytest.approx(np.mean([17, 18, 19, 20]) / np.mean(profile[:7]))


def test_noisy_sums_keep_the_promise_over_all_days() -> None:
    """A home's day moves a sum by at most the cut, and the day is one block of the run."""
    days = source()
    sums = Bench(days, PROMISE, 1, ()).sums
    assert isinstance(sums, DailySums)
    assert sums.cut == T * U, "without days before there is the contract alone"
    lost = np.full(DAYS * T, sums.cut / sums.scale)
    total = worst_leakage(days.scenarios[0].models, lost, lengths=(T,) * DAYS).total
    assert 0.9 < total <= 1.0 + 1e-6


def test_sums_are_of_what_is_below_the_cut() -> None:
    days = zone()
    quiet = RollingMean.of(days, DailySums(12 * T, 1e-6, 1.0), 1)
    assert quiet.sums is not None
    expected = 3 * T * np.minimum(np.arange(35), 12)
    np.testing.assert_array_equal(quiet.sums, expected)
    profile = np.arange(1.0, T + 1)
    found = quiet.noisy_mean(3, profile)
    assert found is not None
    assert found.sum() == pytest.approx(expected[[10, 11, 14, 15, 16]].mean())
    np.testing.assert_allclose(found / found.sum(), profile / profile.sum())


def test_noise_has_its_scale() -> None:
    days = zone(days=2100)
    noisy = RollingMean.of(days, DailySums(T * U, 5000.0, 1.0), 1)
    assert noisy.sums is not None
    noise = noisy.sums - noisy.loads.sum(axis=1)
    assert np.abs(noise).mean() == pytest.approx(5000, rel=0.1)  # four standard errors


def test_the_cut_weighs_noise_against_what_is_above_it() -> None:
    """Nine small homes and a large one: much noise cuts the large one, little does not."""
    scenario = copied(source(), 4).scenarios[0]
    readings = np.full((20, T, 12), 50, np.int32)
    readings[:, :, 0] = 800
    real = Real(tuple("abcdefghijkl"), readings, np.arange(20))
    days = Recorded.of(scenario, real.days(slice(10, None)), real.days(slice(10)))
    strong, weak = choose_sums(days, 0.1), choose_sums(days, 1000.0)
    assert (strong.cut, weak.cut) == (50 * T, 800 * T)
    assert strong.restored == pytest.approx((11 * 50 + 800) / (12 * 50))
    assert weak.restored == pytest.approx(1.0)
    assert strong.scale == pytest.approx(50 * T / 0.1)


def test_a_mean_of_true_loads_is_marked() -> None:
    result = compare(zone(), PROMISE, days=8, seed=1, methods=(FORECAST,))
    values = comparison_json(result, [], [])["mechanisms"]
    assert values[ROLLING_MEAN]["guarantee"].startswith("none")
    assert values[ROLLING_MEAN]["promise"] is False
    assert "NO PROMISE" in values[ROLLING_MEAN]["label"]
    assert "all days before and after" in values[ROLLING_MEAN_NOISY]["guarantee"]
    for name in (SLOT_MEAN, ROLLING_MEAN, ROLLING_MEAN_NOISY, FORECAST.name):
        assert values[name][AHEAD]["rmsre"]["mean"] == result.ahead(name).mean  # type: ignore[union-attr]
    assert "NO PROMISE: none: loads are published as they are" in guarantee_prose(result)
    assert "NO PROMISE" in recorded_table(result)
