"""The smallest score of a two-sided quilt around one step: its numpy twin is in the tests."""

from __future__ import annotations

from numba import njit

from hushgrid.arrays import Floats


@njit(cache=True)
def two_sided(before: Floats, after: Floats, epsilon: float, best: Floats) -> Floats:
    """min of best and (a + b - 1)/(epsilon - influence); before (C, a, 2), after (C, b, 2)."""
    out = best.copy()
    for c in range(before.shape[0]):
        for a in range(before.shape[1]):
            for b in range(after.shape[1]):
                if a + b + 1 >= out[c] * epsilon:  # its score cannot be smaller
                    break
                influence = max(before[c, a, 0] + after[c, b, 0], before[c, a, 1] + after[c, b, 1])
                if influence < epsilon:
                    out[c] = min(out[c], (a + b + 1) / (epsilon - influence))
    return out
