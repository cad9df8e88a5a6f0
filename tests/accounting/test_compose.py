"""Many releases together: golden values, and never below the true curve."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    PolicyError,
)
from hushgrid._numbers import sum_up
from hushgrid.accounting.composition import (
    GaussianEvent,
    Pure,
    compose,
    loss_distribution,
)
from hushgrid.mechanism.calibrators import loss_of_pmfs
from tests import oracle

E = [[0.9, 0.1], [0.2, 0.8]]


def test_golden_day() -> None:
    assert compose([0.5] * 96) == 48
    assert compose([0.5] * 96, 1e-6) == pytest.approx(32.386, rel=1e-3)
    assert compose([0.5] * 96, 1e-9) == pytest.approx(37.153, rel=1e-3)
    assert compose([]) == compose([], 1e-6) == 0


def test_golden_gaussian_day() -> None:
    assert compose([GaussianEvent(100, 4140.0)] * 96, 1e-6) == pytest.approx(1.0, abs=2e-3)
    assert GaussianEvent(100, 4140.0).pure == math.inf


def true_delta(laws: list[Any], flips: tuple[int, ...], eps: float) -> float:
    """delta at eps of a trajectory that flips one way or the other at each step, by enumeration."""
    p, q = np.ones(1), np.ones(1)
    for (f0, f1, b), flip in zip(laws, flips, strict=True):
        sides = [np.array(oracle.output_law([f], b, -30, len(f) + 29)) for f in (f0, f1)]
        p, q = np.outer(p, sides[flip]).ravel(), np.outer(q, sides[1 - flip]).ravel()
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled
def test_never_below_the_true_curve(seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    horizon = int(rng.integers(1, 4))
    laws = []
    for _ in range(horizon):
        u = int(rng.integers(1, 5))
        f = [rng.dirichlet(np.ones(u + 1) * 0.6) for _ in range(2)]
        laws.append((f[0], f[1], float(rng.uniform(0.8, 2.5))))
    blind = [(len(f0) - 1) / b for f0, _, b in laws]
    exact = [loss_of_pmfs(f0, f1, len(f0) - 1, b, 0.0) for f0, f1, b in laws]
    for eps in (0.05, 0.2, 0.7):
        truth = max(true_delta(laws, flips, eps) for flips in product((0, 1), repeat=horizon))
        for claimed in (exact, blind) if truth > 1e-9 else ():
            assert compose(claimed, truth) >= eps - 1e-6


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_two_and_two_equals_one_after_the_other(steps: int) -> None:
    events = [Pure(10 / (20 + t)) for t in range(steps)]
    total = loss_distribution(events[0])
    for event in events[1:]:
        total = total.compose(loss_distribution(event))
    # the same sums in another order: only the rounding of the convolutions differs
    expected = min(total.get_epsilon_for_delta(1e-5), sum(event.pure for event in events))
    assert compose(events, 1e-5) == pytest.approx(expected, abs=1e-9)
    assert compose(events[::-1], 1e-5) == pytest.approx(compose(events, 1e-5), abs=1e-9)


def test_sums_round_up() -> None:
    tenth = sum_up([0.1] * 10)
    assert tenth >= 1.0
    assert sum_up([0.5, 0.25]) == 0.75
    assert sum_up([1.0, 2.0**-60]) > 1.0


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(PolicyError, match="delta is"):
        compose([0.5], delta)
