"""The floor under any additive noise: golden values, and noise that no rule may undercut."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hushgrid import smallest_scale
from hushgrid.errors import ConsumptionError, PolicyError
from hushgrid.lab.pufferfish import floor_of_uniform, floor_sd


@pytest.mark.parametrize(("absent", "golden"), [(500, 0.654), (50, 1.319)])
def test_golden(absent: int, golden: float) -> None:
    """MATH.md section 3: U(0,1) against U(0,.5) and U(0,.05), epsilon = 0.5, in u1."""
    assert floor_of_uniform(absent, 1000, 0.5, 20) / 1000 == pytest.approx(golden, abs=0.0006)


@pytest.mark.parametrize("seed", range(6))
def test_below_every_rule(seed: int) -> None:
    rng = np.random.default_rng([6, seed])
    f0, f1 = rng.dirichlet(np.ones(6), 2)
    epsilon = float(rng.choice([0.3, 0.5, 1.0]))
    least = floor_sd(f0, f1, epsilon)
    for eta in (0.0, 1.0):
        b = smallest_scale(f0, f1, bound=5, epsilon=epsilon, eta=eta)
        q = math.exp(-1 / b)
        assert least <= math.sqrt(2 * q) / (1 - q) * (1 + 1e-6)


def test_no_noise_where_nothing_differs_and_less_for_more_epsilon() -> None:
    assert floor_sd([0.5, 0.5], [0.5, 0.5], 0.5) == 0
    found = [floor_sd([0.9, 0.1], [0.2, 0.8], e) for e in (0.25, 0.5, 1.0)]
    assert found[0] > found[1] > found[2] > 0


@pytest.mark.parametrize(
    ("laws", "epsilon", "message"),
    [
        (([1.0], [1.0]), -1.0, "epsilon is -1.0"),
        (([0.5], [1.0]), 0.5, "sum 0.5"),
        ((np.full(500, 0.002), [1.0]), 0.5, "500 cells"),
    ],
)
def test_bad_input(laws: tuple, epsilon: float, message: str) -> None:
    with pytest.raises((PolicyError, ConsumptionError), match=message):
        floor_sd(*laws, epsilon)


def test_bad_uniform() -> None:
    with pytest.raises(ConsumptionError, match="cells is 0"):
        floor_of_uniform(5, 10, 0.5, 0)
    with pytest.raises(ConsumptionError, match="top is 0"):
        floor_of_uniform(0, 10, 0.5, 10)
