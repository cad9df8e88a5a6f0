"""Curves of prices: what they come to, what is refused, and that the rate is the cost's slope."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import Curve, Tariff, ZoneError, cost, optimal_rate, public_rate
from hushgrid.model.zone import marginal_rate

KINK = Curve(points=[(0, 0.1), (100, 0.2), (200, 0.6)])
JUMP = Curve(points=[(100, 0.1), (200, 0.2), (200, 0.3), (300, 0.5)])
TIERS = Curve(tiers=[(0, 0.1), (100, 0.3), (250, 0.4)])


@st.composite
def curves(draw: Any) -> Curve:
    """Any curve, with jumps, flat pieces, and loads below 0."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=6)
    )
    x, p = draw(st.integers(-200, 200)), draw(st.integers(1, 50))
    pairs = [(float(x), p / 100)]
    for more, dearer in steps:
        jumps = len(pairs) > 1 and pairs[-2][0] == x
        x, p = x + max(more, 1 if jumps else 0), p + dearer
        pairs.append((float(x), p / 100))
    pairs.append((float(x + draw(st.integers(1, 300))), (p + 1) / 100))
    if draw(st.booleans()):
        return Curve(points=pairs)
    rising = [pairs[0], *(b for a, b in pairwise(pairs) if b[0] > a[0])]
    return Curve(tiers=rising)


def walked(curve: Curve, load: float) -> float:
    """The price at a load [kWh], by walking along what was given."""
    if curve.tiers:
        return [
            price for start, price in curve.tiers if start <= load or start == curve.tiers[0][0]
        ][-1]
    at = [pair for pair in curve.points if pair[0] <= load]
    after = [pair for pair in curve.points if pair[0] > load]
    if not at or not after:
        return at[-1][1] if at else after[0][1]
    (x, p), (y, q) = at[-1], after[0]
    return p + (q - p) * (load - x) / (y - x)


def test_what_a_curve_comes_to() -> None:
    assert TIERS.vertices == ((0, 0.1), (100, 0.1), (100, 0.3), (250, 0.3), (250, 0.4))
    tight = Curve(scarcity=[(0.5, 0.1), (0.9, 0.2), (1.0, 0.6)], capacity=400)
    assert tight.vertices == ((200, 0.1), (360, 0.2), (400, 0.6))
    assert KINK.vertices == KINK.points
    assert KINK.scaled(2).vertices == ((0, 0.1), (200, 0.2), (400, 0.6))
    assert tight.scaled(0.5).vertices == Curve(points=[(100, 0.1), (180, 0.2), (200, 0.6)]).vertices


def test_golden_rates() -> None:
    tariff = Tariff(curve=JUMP, gamma=3.0)
    loads = np.array([0, 100e3, 150e3, 199_999, 200e3, 250e3, 300e3, 900e3])
    due = [0.1, 0.1, 0.15, 0.199999, 0.3, 0.4, 0.5, 0.5]
    assert optimal_rate(loads, tariff) == pytest.approx(due)
    assert type(optimal_rate(150_000, tariff)) is float
    assert cost(0, tariff) == 3.0
    assert cost(250_000, tariff) == pytest.approx(3 + 10 + 15 + 17.5)
    assert cost(np.array([-100e3, 0.0]), tariff).tolist() == pytest.approx([-7.0, 3.0])
    assert public_rate(250_000, replace(tariff, cap=0.35)) == 0.35
    moved = Tariff(curve=JUMP, inelastic=60_000, offset=10_000)
    assert optimal_rate(100_000, moved) == pytest.approx(0.15)
    assert Tariff(curve=TIERS).alpha == pytest.approx(0.3 / 250)
    assert Tariff(curve=TIERS).beta == 0.1


@given(curves(), st.floats(-500, 2000))
def test_a_rate_is_that_of_the_pairs(curve: Curve, load: float) -> None:
    found = optimal_rate(1000 * load, Tariff(curve=curve))
    assert found == pytest.approx(walked(curve, load), abs=1e-9)


@given(curves(), st.floats(-500, 2000), st.floats(0, 500))
def test_rates_and_costs_never_fall(curve: Curve, load: float, more: float) -> None:
    tariff = Tariff(curve=curve)
    low, high = (1000 * z for z in (load, load + more))
    first, last = optimal_rate(low, tariff), optimal_rate(high, tariff)
    assert first <= last
    between = cost(high, tariff) - cost(low, tariff)
    slack = 1e-9 * (1 + abs(load) + more)
    assert first * (high - low) / 1000 - slack <= between <= last * (high - low) / 1000 + slack
    assert marginal_rate(low, tariff) >= 0


@given(curves(), st.floats(0.0, 5.0))
def test_a_load_of_a_price_is_the_least_with_it(curve: Curve, price: float) -> None:
    load = float(curve.load(np.array(price)))
    (low, first), (high, last) = curve.vertices[0], curve.vertices[-1]
    assert low <= load <= high
    if first < price <= last:
        assert walked(curve, load + 1e-6) >= price - 1e-6
        assert walked(curve, load - 1e-6) <= price + 1e-6


@given(curves(), st.floats(-1, 1), st.floats(0.01, 2), st.floats(-500, 2000))
def test_floor_and_cap_cut_the_vertices(
    curve: Curve, floor: float, width: float, load: float
) -> None:
    tariff = Tariff(curve=curve, floor=floor, cap=floor + width)
    x, p = curve.cut(tariff.floor, tariff.cap)
    at = int(np.searchsorted(x, load, side="right"))
    low, high = max(at - 1, 0), min(at, len(x) - 1)
    share = (load - x[low]) / (x[high] - x[low]) if x[high] > x[low] else 0.0
    due = p[low] + share * (p[high] - p[low])
    assert public_rate(1000 * load, tariff) == pytest.approx(due, abs=1e-6)


def test_the_slope_of_a_curve() -> None:
    """Within a piece it is that of the piece; a jump counts as what it adds on ten per cent."""
    tariff = Tariff(curve=KINK)
    assert marginal_rate(np.array([50e3, 150e3, 900e3]), tariff) == pytest.approx(
        [0.001, 0.004, 0.0]
    )
    assert marginal_rate(100_000, Tariff(curve=TIERS)) == pytest.approx(0.2 / 25)
    assert marginal_rate(np.array([1.0, 2.0]), Tariff(0.5, 1.0)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "curve has no pairs; give exactly one"),
        ({"points": [(0, 1), (1, 2)], "tiers": [(0, 1), (1, 2)]}, "curve has points and tiers"),
        ({"points": [(0, 1)]}, "two loads and two prices"),
        ({"points": [(0, 1), (0, 2)]}, "two loads and two prices"),
        ({"points": [(0, 1), (9, 1)]}, "two loads and two prices"),
        ({"points": [(0, 1), (1, 3), (2, 2)]}, "price 2 after 3; give prices that never fall"),
        ({"points": [(0, 1), (2, 3), (1, 4)]}, "load 1 after 2; give loads that rise, two of"),
        ({"points": [(0, 1), (2, 3), (2, 4), (2, 5)]}, "load 2 after 2"),
        ({"tiers": [(0, 1), (2, 3), (2, 4)]}, "load 2 after 2; give loads that rise."),
        ({"points": [(0, 0), (1, 1)]}, "begins with price 0"),
        ({"points": [(0, 1), (1, math.nan)]}, "no list of pairs of numbers"),
        ({"points": [0, 1]}, "no list of pairs of numbers"),
        ({"points": "ab"}, "no list of pairs of numbers"),
        ({"scarcity": [(0.5, 1), (1, 2)]}, "capacity is None beside scarcity"),
        ({"scarcity": [(0.5, 1), (1, 2)], "capacity": 0}, "capacity is 0; give kWh"),
        ({"points": [(0.5, 1), (1, 2)], "capacity": 9}, "capacity is 9 beside points"),
    ],
)
def test_curves_that_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ZoneError, match=words):
        Curve(**given)


def test_a_curve_has_its_own_alpha_and_beta() -> None:
    tariff = Tariff(curve=KINK)
    assert replace(tariff, offset=7).alpha == tariff.alpha == 0.0025
    assert Tariff(0.0025, 0.1, curve=KINK) == tariff
    with pytest.raises(ZoneError, match=r"tariff alpha is 1.0 beside a curve, which says 0.0025"):
        replace(tariff, alpha=1.0)
    with pytest.raises(ZoneError, match=r"tariff beta is 1.0 beside a curve"):
        Tariff(beta=1.0, curve=KINK)
    with pytest.raises(ZoneError, match=r"tariff alpha is 0.0; give a positive number"):
        Tariff()
    assert hash(tariff) == hash(Tariff(curve=Curve(points=[[0, 0.1], [100, 0.2], [200, 0.6]])))  # type: ignore[arg-type, list-item]
