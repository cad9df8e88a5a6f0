"""The public load shape: golden values, means over a year, and real homes where they are here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import ConsumptionError
from hushgrid.model.consumption import HOUR, WEEK, LoadShape

LCL = Path(__file__).parents[3] / "shared/data/lcl/readings_2013_100homes.parquet"
DAY = 24 * HOUR


def a_year(step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Middles of the steps of a week, paired with every month: in 400 years they nearly are."""
    seconds = np.arange(0, WEEK, step) + step / 2
    return np.meshgrid(seconds, np.arange(1, 13), indexing="ij")


@pytest.mark.parametrize("step", [900, 1800, 3600])
def test_the_mean_over_a_year_is_one(step: int) -> None:
    days = [31, 28.25, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    relative = LoadShape().relative(*a_year(step))
    # hours are met in their middle or between two: the mean moves by the curve's bends alone
    assert np.average(relative.mean(axis=0), weights=days) == pytest.approx(1, abs=2e-3)


def test_golden_values() -> None:
    """By hand: hours sum to 5 * 23.35 + 2 * 24.6 over 168, months weigh by their days."""
    shape = LoadShape()
    mean = (5 * 23.35 + 2 * 24.6) / 168
    half_past_six = 18 * HOUR + HOUR // 2
    assert shape.week(half_past_six) == pytest.approx(1.5 / mean)
    assert shape.week(8 * HOUR) == pytest.approx((0.95 + 1.0) / 2 / mean)
    assert shape.week(0) == shape.week(WEEK) == pytest.approx((0.95 + 0.75) / 2 / mean)
    year = (
        31 * (1.3 + 1.1 + 0.9 + 0.8 + 0.8 + 0.95 + 1.15)
        + 30 * (1.0 + 0.85 + 0.85 + 1.05)
        + 28.25 * 1.25
    )
    assert shape.season(1) == pytest.approx(1.3 * 365.25 / year)
    assert shape.spread == pytest.approx(1.0)


@given(
    st.lists(st.floats(0.1, 10), min_size=24, max_size=24),
    st.lists(st.floats(0.1, 10), min_size=12, max_size=12),
    st.floats(0.1, 100),
)
def test_only_ratios_count(hours: list[float], months: list[float], unit: float) -> None:
    first = LoadShape(workday=tuple(hours), months=tuple(months))
    second = LoadShape(
        workday=tuple(unit * hour for hour in hours),
        weekend=tuple(unit * hour for hour in first.weekend),
        months=tuple(unit * month for month in months),
    )
    np.testing.assert_allclose(first.relative(*a_year(HOUR)), second.relative(*a_year(HOUR)))


def test_the_law_of_a_reading_has_the_mean_and_the_spread() -> None:
    law = LoadShape().law(100.0, 20_000)
    assert law.mean == pytest.approx(100, rel=0.01)
    assert law.variance == pytest.approx(100**2 * (math.e - 1), rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"workday": (1.0,) * 23}, "workday"),
        ({"weekend": (0.0,) * 24}, "weekend"),
        ({"months": ("a",) * 12}, "months"),
        ({"homes": 0}, "homes"),
        ({"readings": math.inf}, "readings"),
    ],
)
def test_wrong_shapes_are_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConsumptionError, match=named) as caught:
        LoadShape(**wrong)
    assert caught.value.fields == (named,)


def test_wrong_months_and_means_are_refused() -> None:
    with pytest.raises(ConsumptionError, match="month is 13"):
        LoadShape().season([1, 13])
    with pytest.raises(ConsumptionError, match="mean reading is 0"):
        LoadShape().law(0, 100)


@pytest.mark.skipif(not LCL.exists(), reason="the data of real homes is not here")
def test_the_shape_is_like_that_of_real_homes() -> None:
    """100 homes of London in 2013, half-hourly: they were not used to choose the numbers."""
    import pandas as pd

    table = pd.read_parquet(LCL)
    homes = table.pivot_table(index="start_utc", columns="meter_id", values="wh")
    local = homes.index.tz_convert("Europe/London")
    middle = local.day_of_week * DAY + local.hour * HOUR + local.minute * 60 + 900
    usual = float(homes.mean(axis=1).mean())
    shape = LoadShape()
    relative = shape.relative(middle, local.month)

    def by_hour(values: Any) -> Any:
        weekend = local.day_of_week >= 5
        return pd.Series(np.asarray(values)).groupby([weekend, local.hour]).mean()

    measured = homes.mean(axis=1) / usual
    error = by_hour(relative) / by_hour(measured) - 1
    # storage heaters charge after midnight in some of these homes, not in the shape
    by_day = error[[key for key in error.index if key[1] >= 6]]
    assert np.sqrt((by_day**2).mean()) < 0.10
    assert np.sqrt((error**2).mean()) < 0.12
    months = measured.groupby(np.asarray(local.month)).mean()
    np.testing.assert_allclose(shape.season(months.index), months, rtol=0.12)

    means = homes.mean()
    assert shape.homes == pytest.approx(
        np.sqrt(np.log1p((means.std() / means.mean()) ** 2)), rel=0.1
    )
    ratio = homes.div(means, axis=1).div(measured, axis=0)
    assert shape.readings == pytest.approx(
        np.sqrt(-2 * np.log(ratio.stack().median())), rel=0.1
    )  # a log-normal of mean 1 has this median

    for clamp in (700, 1000, 1500):
        above = (homes.clip(lower=clamp) - clamp).sum().sum() / homes.sum().sum()
        x = np.arange(7501)
        mean = [
            float(law.pmf @ np.maximum(x - clamp, 0)) / usual
            for law in (shape.law(usual * r, 7500) for r in relative[::97])
        ]
        assert 0.75 < np.mean(mean) / above < 1.35
