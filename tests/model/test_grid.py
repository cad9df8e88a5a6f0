"""Clamp, add, price."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Tariff, Zone, ZoneError, aggregate, cost, optimal_rate, public_rate, tally

rows = st.lists(
    st.tuples(st.integers(-(2**40), 2**40), st.integers(1, 2**31 - 1)), min_size=1, max_size=40
)


@given(rows)
def test_tally_is_clamp_then_add(readings: list[tuple[int, int]]) -> None:
    x, u = zip(*readings, strict=True)
    found = tally(np.array(x), np.array(u))
    assert found.load == sum(min(max(a, 0), b) for a, b in readings)
    assert found.clamped == sum(a > b for a, b in readings)
    assert aggregate(np.array(x, float), np.array(u)) == found.load


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16, np.int16, np.float32])
def test_compiled_pass_equals_numpy(kind: type[np.generic]) -> None:
    rng = np.random.default_rng(5)
    n = (1 << 17) + 12345  # enough for the compiled pass, not a round number of chunks
    low = 0 if np.dtype(kind).kind == "u" else -500
    x = rng.integers(low, 30_000, n).astype(kind)
    u = rng.integers(1, 20_000, n).astype(np.int32)
    found = tally(x, u)
    y = x.astype(np.int64)
    assert (found.load, found.clamped) == (np.clip(y, 0, u).sum(), (y > u).sum())


def test_compiled_pass_does_not_overflow() -> None:
    n = 1 << 18
    bound = np.full(n, 2**31 - 1, np.int32)
    assert aggregate(np.full(n, 2**62), bound) == n * (2**31 - 1)
    assert aggregate(np.full(n, -(2**62)), bound) == 0
    assert aggregate(np.full(n, 2**64 - 1, np.uint64), bound) == n * (2**31 - 1)


def test_clamping_is_per_house() -> None:
    """Clamping the sum would let one house use up the slack of all others."""
    assert aggregate([5000, 0, 0], [1000, 1000, 1000]) == 1000


def test_golden_rate_and_cost() -> None:
    """The paper's tariff: alpha = 1, beta = 62.5, load in units of 1000 Wh."""
    tariff = Tariff(alpha=1.0, beta=62.5, gamma=3.0)
    assert optimal_rate(250_000, tariff) == 312.5
    assert cost(250_000, tariff) == 250**2 / 2 + 62.5 * 250 + 3
    loads = np.array([0.0, 1000.0])
    assert optimal_rate(loads, tariff).tolist() == [62.5, 63.5]


def test_optimal_rate_minimises_the_objective() -> None:
    """Eq. (1): the rate is the marginal cost, so J(Z) - rZ is least at Z."""
    tariff = Tariff(alpha=0.3, beta=2.0, inelastic=4000)
    z = 7000.0
    r = optimal_rate(z, tariff)

    def objective(load: float) -> float:
        return cost(load, tariff) - r * (load + tariff.inelastic) / 1000

    assert objective(z) < min(objective(z - 10), objective(z + 10))


def test_inelastic_load_adds_a_constant() -> None:
    with_it, without = Tariff(1.0, 62.5, inelastic=5000), Tariff(1.0, 62.5)
    assert optimal_rate(1000, with_it) == optimal_rate(6000, without)


@given(st.integers(-(10**12), 10**12), st.floats(0, 100), st.floats(0.1, 100))
def test_rates_stay_in_their_limits(load_hat: int, floor: float, width: float) -> None:
    assert public_rate(load_hat, Tariff(1.0, 62.5)) >= 0
    tariff = Tariff(1.0, 62.5, floor=floor, cap=floor + width)
    assert floor <= public_rate(load_hat, tariff) <= floor + width


def test_zone_keeps_its_own_read_only_bounds() -> None:
    bound = np.array([100, 200])
    zone = Zone("z", bound)
    bound[0] = 1
    assert zone.bound.tolist() == [100, 200]
    with pytest.raises(ValueError, match="read-only"):
        zone.bound[0] = 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"beta": math.nan}, "beta is nan"),
        ({"gamma": math.inf}, "gamma is inf"),
        ({"inelastic": 1.5}, "inelastic is 1.5"),
        ({"floor": math.nan}, "floor is nan"),
        ({"floor": 2.0, "cap": 1.0}, "cap is 1.0"),
    ],
)
def test_bad_tariffs(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ZoneError, match=words):
        Tariff(**({"alpha": 1.0, "beta": 62.5} | changes))  # type: ignore[arg-type]
