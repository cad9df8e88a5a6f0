"""Rates published so far: the same as a tuple, and appended to without copying all of it."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from hushgrid.mechanism.release import Rates

NUMBERS = st.lists(st.floats(-5, 5), max_size=600)


@given(NUMBERS, NUMBERS, st.integers(-1300, 1300), st.slices(1200))
def test_rates_are_as_a_tuple(first: list[float], more: list[float], at: int, some: slice) -> None:
    rates, whole = Rates(first).followed_by(*more), (*first, *more)
    assert rates == whole
    assert whole == rates
    assert hash(rates) == hash(whole)
    assert len(rates) == len(whole)
    assert rates[some] == whole[some]
    assert pickle.loads(pickle.dumps(rates)) == whole
    if -len(whole) <= at < len(whole):
        assert rates[at] == whole[at]


def test_what_follows_changes_nothing_before() -> None:
    start = Rates([0.5] * 300)
    first, second = start.followed_by(1.0), start.followed_by(2.0)
    assert (start[-1], first[-1], second[-1]) == (0.5, 1.0, 2.0)


def test_a_rate_more_does_not_copy_all_rates() -> None:
    rates = Rates([0.5] * 100_000)
    shared = {id(piece) for piece in rates._full}
    assert {id(piece) for piece in rates.followed_by(0.5)._full} >= shared
