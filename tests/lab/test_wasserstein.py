"""The quantile gap against its definition in exact fractions, and against our own scale."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import LogNormal, smallest_scale
from hushgrid.lab.pufferfish import quantile_gap
from tests.examples import examples

WEIGHTS = st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any)


def exact_gap(f: list[int], g: list[int]) -> int:
    """The least w with F(x) <= G(x + w) and G(x) <= F(x + w) for all x."""

    def cumulative(weights: list[int], x: int) -> Fraction:
        return Fraction(sum(weights[: max(x + 1, 0)]), sum(weights))

    top = max(len(f), len(g))
    for w in range(top + 1):
        if all(
            cumulative(f, x) <= cumulative(g, x + w) and cumulative(g, x) <= cumulative(f, x + w)
            for x in range(top)
        ):
            return w
    raise AssertionError


@given(WEIGHTS, WEIGHTS)
@settings(max_examples=examples(300), deadline=None)
def test_quantile_gap(f: list[int], g: list[int]) -> None:
    pmfs = [np.array(w) / sum(w) for w in (f, g)]
    assert quantile_gap(*pmfs) == exact_gap(f, g)


@given(WEIGHTS, WEIGHTS, st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=examples(60), deadline=None)
def test_never_better_than_eta_0(f: list[int], g: list[int], epsilon: float) -> None:
    """MATH.md section 3: on the same pair of laws."""
    pmfs = [np.array(w) / sum(w) for w in (f, g)]
    size = max(len(f), len(g))
    b = quantile_gap(*pmfs) / epsilon
    padded = [np.pad(p, (0, size - len(p))) for p in pmfs]
    bound = max(size - 1, 1)
    padded = [np.pad(p, (0, bound + 1 - len(p))) for p in padded]
    ours = smallest_scale(*padded, bound=bound, epsilon=epsilon, eta=0.0)
    assert ours <= max(b, 0.1) * (1 + 1e-6)  # 0.1 Wh is the least noise of any release


def test_far_tails_count() -> None:
    """A tail of tiny mass still sets the gap: its quantiles are there."""
    low, high = LogNormal(50, 0.3, 500).pmf, LogNormal(50, 0.3, 900).pmf
    assert quantile_gap(low, high) == 400
