"""Sums of losses are exact, and rounded once."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from hushgrid._numbers import Spent, sum_up


@given(st.lists(st.floats(0, 1e3), max_size=20))
def test_sums_are_exact_and_rounded_up(losses: list[float]) -> None:
    spent, exact = Spent().add(*losses), sum(map(Fraction, losses))
    assert spent.finite == exact
    assert spent == Spent().add(*reversed(losses)), "in any order"
    assert spent.total == sum_up(losses) >= exact
    assert Spent().add(*losses, float("inf")).total == float("inf")
