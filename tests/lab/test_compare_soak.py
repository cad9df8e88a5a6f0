"""What the full comparison must show, read from the JSON of `make soak`: passed or failed by name.

HUSHGRID_COMPARED is the folder with compare.json, compare-shock.json and compare-sigma.json. The
secret is an interval at epsilon = 1 (MATH.md sections 5, 7 and 11); the suite itself holds the same
on fewer days (test_compare.py).
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("HUSHGRID_COMPARED")
if FOLDER is None:
    pytest.skip("make soak has the full counts.", allow_module_level=True)

DAYS = 200
METHODS = {
    "hushgrid_eta0", "hushgrid_eta05", "bound", "bound_independent", "wasserstein", "quilt",
    "group", "wevent", "fourier", "wavelet", "forecast",
    "battery_besteffort", "battery_stepping", "battery_random",
}  # fmt: skip


@lru_cache
def values(name: str) -> Any:
    assert FOLDER is not None
    return json.loads((Path(FOLDER) / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "sigma", "shock"),
    [("compare", 0.0, 0.0), ("compare-shock", 0.0, 0.3), ("compare-sigma", 0.02, 0.0)],
)
def test_terms(name: str, sigma: float, shock: float) -> None:
    found = values(name)
    assert (found["secret"], found["epsilon"], found["days"]) == ("interval", 1.0, DAYS)
    assert (found["world"]["sigma"], found["world"]["shock"]) == (sigma, shock)
    assert set(found["mechanisms"]) == METHODS
    assert set(found["refused"]) == {"dphmm"}  # it needs a delta


@pytest.mark.parametrize(("ours", "least"), [("hushgrid_eta0", 7.0), ("bound", 3.4)])
def test_raw_group_over_ours(ours: str, least: float) -> None:
    raw = values("compare")["ratios"][f"group_over_{ours}"]["raw"]
    assert raw["ci95"][0] >= least


@pytest.mark.parametrize("name", ["compare", "compare-shock"])
@pytest.mark.parametrize("other", ["forecast", "group"])
def test_estimated_below(name: str, other: str) -> None:
    """The paired 95 % interval of the difference excludes 0."""
    assert values(name)["ratios"][f"{other}_over_hushgrid_eta0"]["estimated"]["gap_ci95"][0] > 0


def test_a_shock_halves_the_forecast_at_least() -> None:
    found = values("compare-shock")["ratios"]["forecast_over_hushgrid_eta0"]["estimated"]
    assert found["ci95"][0] >= 2


def test_quilt_and_group_scales() -> None:
    """66.57 u and 96 u, u the largest house of the zone."""
    found = values("compare")["mechanisms"]
    assert found["group"]["scale"] / found["quilt"]["scale"] == pytest.approx(96 / 66.57, abs=2e-4)


def test_batteries_by_size_and_energy() -> None:
    """The adversary's AUC per house falls with the battery's size, and more energy is moved."""
    for name in ("battery_besteffort", "battery_stepping", "battery_random"):
        mine = [one for one in values("compare")["batteries"] if one["name"] == name]
        assert [one["size"] for one in mine] == [0.5, 1.0, 2.0, 4.0, 8.0]
        assert mine[-1]["auc"]["mean"] < mine[0]["auc"]["mean"]
        assert mine[-1]["moved"] > mine[0]["moved"] > 0
