"""How far the days of real homes are off the public load shape: what a plan of windows grants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid.model.consumption import LoadShape

DATA = Path(__file__).parents[3] / "shared" / "data"
PLACES = {
    "lcl/readings_2013_100homes.parquet": "Europe/London",
    "sgsc/readings_2013_50homes.parquet": "Australia/Sydney",
}


@pytest.mark.soak
@pytest.mark.parametrize("name", PLACES)
def test_profiles_of_a_month_are_off_by_what_the_plan_grants(name: str) -> None:
    """Loads over the shape, by time of the week, relative to the month's mean."""
    if not (DATA / name).exists():
        pytest.skip("the data of real homes is not here")
    pd = pytest.importorskip("pandas")
    means = pd.read_parquet(DATA / name).groupby("start_utc").wh.mean()
    local = means.index.tz_convert(PLACES[name])
    seconds = (local.day_of_week * 86_400 + local.hour * 3600 + local.minute * 60).to_numpy()
    ratio = pd.Series(means.to_numpy() / LoadShape().week(seconds + 900.0))
    off = [
        float((ratio[month] / ratio[month].mean()).groupby(seconds[month]).mean().std())
        for month in (local.month == number for number in range(1, 13))
    ]
    print(f"{name}: profiles of a month are off by {min(off):.2f} to {max(off):.2f}")
    assert min(off) >= 0.09
    assert max(off) <= 0.19
    assert np.mean(off) == pytest.approx(np.hypot(0.12, 0.45 * 0.2), abs=0.03)
