"""One body for every array library: a strict one, and torch where it is installed, beside numpy."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Exact,
    Factored,
    Gamma,
    Knowledge,
    OccupancyModel,
    Population,
    Uniform,
    Zone,
    look_back,
    watch,
)
from hushgrid.adversary.knowledge import like, log, log_sum, on_host
from tests.adversary.worlds import GAUSSIAN, release, small


def another_array(name: str) -> Any:
    """An array of another library; torch is only tried where somebody installed it."""
    if name == "strict":
        import array_api_strict

        return array_api_strict.zeros(1)
    torch = importlib.import_module("torch")
    return torch.zeros(1, dtype=torch.float64)


LIBRARIES = ["strict", *(["torch"] if importlib.util.find_spec("torch") else [])]


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_library_gives_what_numpy_gives(library: str) -> None:
    there = another_array(library)
    alike = [0] * 7
    theta = OccupancyModel.factored([[0.4, 0.6]], [[[[0.9, 0.1], [0.3, 0.7]]]], chain_of=alike)
    f = Consumption.by_class(absent=[Uniform(9)], present=[Gamma(2, 4, 20)], class_of=alike)
    known = Knowledge(Zone("z", [20] * 7), [theta, theta], f)
    releases = [release(1, 40, 15.0), release(2, 66, 15.0, noise=GAUSSIAN), release(4, 170, 4.0)]
    for who in (Exact, Population, Factored):
        for look in (watch, look_back):
            ours, theirs = look(who(known), releases), look(who(known, like=there), releases)
            assert type(theirs.home) is type(there)
            assert np.abs(on_host(theirs.home) - ours.home).max() <= 1e-12
            assert np.abs(on_host(theirs.averaged) - ours.averaged).max() <= 1e-12
            assert np.abs(on_host(theirs.evidence) - ours.evidence).max() <= 1e-10
    world = small(np.random.default_rng(1), [(2, 0), (1,)], 3)
    day = [release(t, 3, 2.0) for t in (1, 2, 3)]
    ours, theirs = (
        look_back(Exact(world.knowledge(), like=one), day) for one in (np.zeros(1), there)
    )
    assert np.abs(on_host(theirs.home) - ours.home).max() <= 1e-12


def test_logarithms_of_nothing() -> None:
    nothing = np.full((2, 3), -np.inf)
    assert log_sum(nothing, axis=1).tolist() == [-np.inf, -np.inf]
    assert float(log_sum(nothing)) == -np.inf
    assert log(np.array([0.0, 1.0])).tolist() == [-np.inf, 0.0]
    assert float(log_sum(np.array([-2000.0, -2000.0]))) == pytest.approx(-2000 + np.log(2))
    assert like([1, 2], np.zeros(1)).tolist() == [1, 2]
