"""Prices by a curve that is steeper above a kink, on real homes: right on average. For soak."""

from __future__ import annotations

from pathlib import Path

import pytest

LCL = Path(__file__).parents[3] / "shared/data/lcl/readings_2013_100homes.parquet"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not LCL.exists(), reason="the data of real homes is not here"),
]
