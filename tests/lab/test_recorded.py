"""Real readings as local days: which days are whole, and which model each of them has."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hushgrid import Calendar, Consumption, Histogram, OccupancyModel, Scenario, Tariff, Zone
from hushgrid.errors import PolicyError
from hushgrid.files.weeks import Steps, local_seconds
from hushgrid.lab.bench import DRAW, HELD, KINDS_HELD, SLOT_MEAN, Bench
from hushgrid.lab.comparison import compare, copied
from hushgrid.lab.datasets import Real, Recorded, paper_world, real_days
from hushgrid.lab.methods import (
    BOUND,
    FORECAST,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
)
from hushgrid.learning.histories import Histories
from hushgrid.report.comparison import comparison_json, recorded_table

HOUR, DAY = 3600, 86_400
FRIDAY = 1_364_515_200  # 29 March 2013, 00:00 UTC; clocks in Zurich went forward on the 31st


def histories(begins: int, wh: np.ndarray, zone: str) -> Histories:
    shown = local_seconds(Steps(begins, HOUR, wh.shape[1], zone))
    ids = tuple(f"m{i}" for i in range(len(wh)))
    return Histories(ids, wh.astype(float), HOUR, begins, shown, {})


def test_days_are_local_and_whole() -> None:
    """Five days of hours from a Friday: local midnight is 23:00 UTC, and Sunday has 23 hours."""
    wh = np.tile(np.arange(120), (2, 1))
    found = real_days(histories(FRIDAY, wh, "Europe/Zurich"))
    assert (found.date % 7).tolist() == [5, 0, 1]  # Sunday lacks an hour
    assert np.diff(found.date).tolist() == [2, 1]
    assert found.readings[0, :, 0].tolist() == list(range(23, 47))
    assert found.readings[1, 0, 0] == 70  # Sunday 22:00 UTC: summer time by then
    dates = real_days(histories(FRIDAY, wh, "UTC")).date
    assert (dates % 7).tolist() == [4, 5, 6, 0, 1]
    assert np.diff(dates).tolist() == [1, 1, 1, 1], "a Monday follows a Sunday"
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        days = real_days(histories(FRIDAY, np.tile(np.arange(480), (1, 1)), zone)).date
        assert (np.diff(days) == 1).all()


def test_missing_and_exported() -> None:
    wh = np.full((2, 72), 7.0)
    wh[0, 3], wh[1, 4], wh[:, 30] = np.nan, -5, np.nan
    found = real_days(histories(FRIDAY, wh, "UTC"))
    assert (found.date % 7).tolist() == [4, 6]  # nobody told an hour of Saturday
    assert found.readings[0, 3].tolist() == [-1, 7]
    assert found.readings[0, 4].tolist() == [7, 0]


def weekly() -> Scenario:
    """Two houses, surely away on weekdays and at home at weekends, for readings of 10 and 90."""
    come, leave = [[0.01, 0.99], [0.01, 0.99]], [[0.99, 0.01], [0.99, 0.01]]
    theta = OccupancyModel.factored(
        [[0.5, 0.5]],
        [[leave], [come]],
        calendar=Calendar.week(weekday=[0] * 24, weekend=[1] * 24),
        chain_of=[0, 0],
    )
    at = [np.eye(100)[wh] for wh in (10, 90)]
    f = Consumption.by_class(absent=[Histogram(at[0])], present=[Histogram(at[1])], class_of=[0, 0])
    return Scenario(Zone("z", [99, 99]), Tariff(1.0, 1.0), (theta,), f)


def test_every_day_has_the_model_of_its_weekday() -> None:
    readings = np.full((3, 24, 2), 50, np.int32)
    readings[:, 12, 0] = -1
    found = Recorded.of(weekly(), Real(("a", "b"), readings, np.array([4, 5, 0])))
    assert [found.zone_of(d) for d in range(3)] == [0, 1, 0]
    assert len(found.scenarios) == 2
    # what is missing is what that day's model expects: 10 + 0.01 * 80, 90 - 0.01 * 80
    assert found.readings[:, 12, 0].tolist() == [11, 89, 11]
    assert (found.day(1).readings[:, 1] == 50).all()
    with pytest.raises(PolicyError, match="day 3 is asked of 3"):
        found.zone_of(3)


def test_every_day_has_the_laws_of_its_month() -> None:
    """Missing readings of June are those of its own law, which an empty home reads."""
    both, slots = weekly(), np.repeat((np.arange(12) == 5).astype(int), 24)
    laws = Consumption(
        (*both.consumption.laws, Histogram(np.eye(100)[30])),
        np.array([[0], [2]]), np.array([[1], [2]]), np.array([0, 0]), Calendar(slots),
    )  # fmt: skip
    readings = np.full((2, 24, 2), -1, np.int32)
    days = Real(("a", "b"), readings, np.array([4, 4]), np.array([5, 6]))
    found = Recorded.of(replace(both, consumption=laws), days)
    assert found.readings[:, 12, 0].tolist() == [11, 30]
    assert days.days(slice(1, 2)).month == 6


def test_meters_are_put_in_the_order_of_houses() -> None:
    real = Real(("a", "b", "c"), np.arange(6).reshape(1, 2, 3).astype(np.int32), np.array([0]))
    some = real.of(("c", "a"))
    assert some.meters == ("c", "a")
    assert some.readings.tolist() == [[[2, 0], [5, 3]]]


def test_digests_tell_other_readings_apart() -> None:
    readings = np.full((2, 24, 2), 50, np.int32)
    one = Recorded.of(weekly(), Real(("a", "b"), readings, np.array([0, 1])))
    readings[1, 3, 0] = 51
    other = Recorded.of(weekly(), Real(("a", "b"), readings, np.array([0, 1])))
    assert one.digest != other.digest


def followed() -> Recorded:
    """Eight days of one profile, after six of another: the model and the days before are wrong."""
    hours = np.arange(24)
    profile = 40 + 30 * np.sin(2 * np.pi * hours / 24)
    before, after = (np.rint(profile * factor).astype(np.int32) for factor in (0.5, 1.2))
    earlier = np.broadcast_to(before[:, None], (6, 24, 2))
    later = np.broadcast_to(after[:, None], (8, 24, 2))
    dates = np.array([7, 8, 9, 10, 11, 12, 13, 16])  # two days are not whole
    real = Real(("a", "b"), later, dates)
    return Recorded.of(weekly(), real, Real(("a", "b"), earlier, np.arange(6)))


def test_clamps_are_chosen_by_the_error_given() -> None:
    seen = list[float | None]()

    def prepare(setting: MethodSetting) -> MethodRefusal:
        seen.append(setting.rho)
        return MethodRefusal("asked only")

    probe = Method("probe", "probe", True, 1.0, prepare)
    for source in (followed(), paper_world(0.0, 1, 1)):
        Bench(source, MethodPromise(), 1, (probe,), 0.7).ready()
    assert seen == [0.7, None], "simulated days have the contract bounds"


@pytest.mark.soak
def test_figures_are_means_over_draws_of_noise() -> None:
    source, promise = followed(), MethodPromise("step", 4.0)
    run = partial(compare, source, promise, days=3, methods=(BOUND,))
    both = run(seed=1, draws=2)
    each = [run(seed=seed) for seed in (1, 1 + DRAW)]
    for part in ("estimated", "raw"):
        alone = [one.values(BOUND.name, part) for one in each]
        assert not np.array_equal(*alone)
        np.testing.assert_allclose(both.values(BOUND.name, part), np.mean(alone, axis=0))


@pytest.mark.soak
def test_days_that_follow_each_other_are_followed() -> None:
    source, promise = followed(), MethodPromise("step", 40.0)
    result = compare(source, promise, days=8, seed=1, methods=(BOUND, FORECAST))
    late = result.values(BOUND.name, "estimated", "rmsre")[-3:].mean()
    assert late < 0.5 * result.summary(SLOT_MEAN, "raw", "rmsre").mean
    assert late < result.summary(BOUND.name, "raw", "rmsre").mean
    assert result.coverage(BOUND.name) is not None
    assert result.coverage(FORECAST.name) is None
    values = comparison_json(result, [], [])["mechanisms"]
    for kind in KINDS_HELD[1:]:
        ahead = result.coverage(BOUND.name, kind)
        assert ahead is not None
        assert ahead.mean <= 1
        assert values[BOUND.name][f"{HELD}_{kind}"] == ahead.mean
        assert values[BOUND.name][f"{HELD}_{kind}_ci95"] == list(ahead.ci95)
    assert values[BOUND.name][HELD] == result.coverage(BOUND.name).mean  # type: ignore[union-attr]
    assert HELD not in values[FORECAST.name]
    assert values[SLOT_MEAN]["raw"]["rmsre"]["mean"] > late
    assert "slot mean of the days before" in recorded_table(result)


def test_the_mean_of_the_days_before_is_that_of_their_kind() -> None:
    usual = followed().usual
    assert usual is not None
    hours = np.arange(24)
    profile = np.rint((40 + 30 * np.sin(2 * np.pi * hours / 24)) * 0.5)
    np.testing.assert_array_equal(usual, np.tile(2 * profile, (2, 1)))


@pytest.mark.soak
def test_a_day_is_followed_in_the_same_way_by_a_run_that_goes_on() -> None:
    source, promise = followed(), MethodPromise("step", 4.0)
    whole = Bench(source, promise, 1, (BOUND, FORECAST))
    rows = [whole.row(number) for number in range(8)]
    later = Bench(source, promise, 1, (BOUND, FORECAST))
    assert later.row(7) == rows[7]
    assert later.row(3) == rows[3]


def test_simulated_days_are_not_followed() -> None:
    source = paper_world(0.0, 1, 1, n=5)
    result = compare(source, MethodPromise("step", 1.0), days=2, seed=1, methods=(BOUND, FORECAST))
    assert result.coverage(BOUND.name) is None
    assert recorded_table(result) == ""


def test_copies_make_a_larger_zone_of_the_same_homes() -> None:
    source = followed()
    larger = copied(source, 3)
    assert larger.readings.shape == (8, 24, 6)
    np.testing.assert_array_equal(larger.day(2).load, 3 * source.day(2).load)
    assert larger.usual is not None
    np.testing.assert_array_equal(larger.usual, 3 * source.usual)  # type: ignore[operator]
    one, three = source.scenarios[0], larger.scenarios[0]
    assert three.tariff.alpha == pytest.approx(one.tariff.alpha / 3)
    assert three.zone.n_houses == 6
    rates = [Bench(s, MethodPromise(), 1, (FORECAST,)).row(0) for s in (source, larger)]
    np.testing.assert_allclose(
        rates[0][FORECAST.name]["raw"][:2], rates[1][FORECAST.name]["raw"][:2]
    )
