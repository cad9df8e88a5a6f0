"""Sums of losses are exact, and rounded once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid._numbers import Spent, sum_up


def test_a_sum_kept_in_floating_point_is_not_judged_over_budget() -> None:
    """0.1 + 0.4 is 0.5 in doubles and more than it exactly: older publishers let it pass."""
    spent = Spent().add(0.1)
    assert 0.1 + 0.4 <= 0.5
    assert not spent.fits(0.4, 0.5)
    assert not spent.add(0.4).exceeds(0.5)
    assert spent.add(0.4, 1e-9).exceeds(0.5)


@given(st.lists(st.floats(0, 1e3), max_size=20), st.floats(0.01, 1e4))
def test_sums_are_exact_and_rounded_up(losses: list[float], limit: float) -> None:
    spent, exact = Spent().add(*losses), sum(map(Fraction, losses))
    assert spent.finite == exact
    assert spent == Spent().add(*reversed(losses)), "in any order"
    assert spent.total == sum_up(losses) >= exact
    assert spent.fits(0.0, limit) == (exact <= Fraction(limit))
    assert not spent.fits(float("inf"), limit)
    assert spent.fits(float("inf"), None)


@pytest.mark.parametrize(("limit", "paid"), [(0.3, 2), (0.5, 4), (0.8, 8)])
def test_how_many_more(limit: float, paid: int) -> None:
    """A tenth as a double is above a tenth, so three of them do not fit three tenths."""
    assert Spent().more(0.1, limit) == paid
