"""What the estimate is worth on zones of real homes, at the planner's clamp. Long: for soak."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hushgrid.cli.compare import recorded_source
from hushgrid.lab.bench import SLOT_MEAN
from hushgrid.lab.comparison import compare, copied
from hushgrid.lab.datasets import Recorded
from hushgrid.lab.methods import BOUND, FORECAST, HUSHGRID_ETA05, MethodPromise

SHARED = Path(__file__).parents[3] / "shared" / "data"
FILES = {
    "lcl": ("lcl/readings_2013_100homes.parquet", "Europe/London"),
    "sgsc": ("sgsc/readings_2013_50homes.parquet", "Australia/Sydney"),
}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not SHARED.exists(), reason="the data of real homes is not here"),
]


@cache
def homes(name: str) -> Recorded:
    """The homes of a file, with a model of their first 90 days."""
    file, zone = FILES[name]
    return recorded_source(SHARED / file, "canonical", None, None, 1800, 7500, 90, zone)[0]


@pytest.mark.parametrize(
    ("name", "copies", "against"),
    [("lcl", 1, 1.02), ("lcl", 10, 0.75), ("lcl", 50, 0.4), ("sgsc", 2, 1.02), ("sgsc", 10, 1.02)],
)
def test_the_estimate_is_better_than_the_raw_price_and_than_no_readings(
    name: str, copies: int, against: float
) -> None:
    """56 days after the training days; errors are those of the load, one day as another."""
    source = copied(homes(name), copies)
    methods = (BOUND, HUSHGRID_ETA05, FORECAST)
    found = compare(source, MethodPromise("interval", 1.0), days=56, seed=1, methods=methods)

    def error(name: str, part: str) -> float:
        return found.summary(name, part, "rmsre").mean

    without = min(error(FORECAST.name, "raw"), error(SLOT_MEAN, "raw"))
    for method in (BOUND, HUSHGRID_ETA05):
        estimated, held = error(method.name, "estimated"), found.coverage(method.name)
        assert estimated <= 1.02 * error(method.name, "raw")
        assert estimated <= 1.02 * without
        assert held is not None
        assert (
            0.9 <= held.mean <= 0.99
        )  # some 380 intervals: two standard errors about 0.93 to 0.97
    assert error(BOUND.name, "estimated") <= against * error(SLOT_MEAN, "raw")
