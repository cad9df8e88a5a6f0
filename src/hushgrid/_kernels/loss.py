"""The worst log-ratio of two noisy laws, and the smallest score of a two-sided Markov quilt.

The log-ratio takes two first-order recursions, O(bound).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hushgrid._numbers import Floats


@njit(cache=True, nogil=True)  # pragma: no cover
def worst_ratio(absent, present, bound, q, eta):  # type: ignore[no-untyped-def]
    """Largest hi/lo over k in 0..bound (docs/proofs/calibration.md, 4), without logarithms.

    The noise pmf is K(k) = K(0) q^|k|; the factor K(0) cancels, so K(0) = 1 here. Needs
    q^bound well above the smallest float.
    """
    n = bound + 1 if eta > 0.0 else max(absent.size, present.size)
    left0, left1, power = np.empty(n), np.empty(n), np.empty(n if eta > 0.0 else 1)
    run0, run1, run = 0.0, 0.0, 1.0
    for k in range(n):
        run0 = run0 * q + (absent[k] if k < absent.size else 0.0)
        run1 = run1 * q + (present[k] if k < present.size else 0.0)
        left0[k], left1[k] = run0, run1
        if eta > 0.0:
            power[k] = run
            run *= q
    trust, worst = 1.0 - eta, 1.0
    right0, right1, low = 0.0, 0.0, 0.0
    for k in range(n - 1, -1, -1):
        if eta > 0.0:
            low = eta * power[max(k, bound - k)]
        p0, p1 = trust * (left0[k] + right0), trust * (left1[k] + right1)
        worst = max(worst, (p1 + eta) / (p0 + low), (p0 + eta) / (p1 + low))
        right0 = q * (right0 + (absent[k] if k < absent.size else 0.0))
        right1 = q * (right1 + (present[k] if k < present.size else 0.0))
    return worst


@njit(cache=True, nogil=True)  # pragma: no cover
def _log_add(a, b):  # type: ignore[no-untyped-def]
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


@njit(cache=True, nogil=True)  # pragma: no cover
def worst_log_ratio(log_absent, log_present, bound, rate, eta):  # type: ignore[no-untyped-def]
    """The same in logarithms, for noise so small that q^bound underflows; rate = 1/scale."""
    n = bound + 1
    left0, left1 = np.empty(n), np.empty(n)
    run0, run1 = -math.inf, -math.inf
    for k in range(n):
        run0 = _log_add(run0 - rate, log_absent[k] if k < log_absent.size else -math.inf)
        run1 = _log_add(run1 - rate, log_present[k] if k < log_present.size else -math.inf)
        left0[k], left1[k] = run0, run1
    trust = math.log(1.0 - eta)
    distrust = math.log(eta) if eta > 0.0 else -math.inf
    worst, right0, right1 = 0.0, -math.inf, -math.inf
    for k in range(n - 1, -1, -1):
        low = distrust - rate * max(k, bound - k)
        p0, p1 = trust + _log_add(left0[k], right0), trust + _log_add(left1[k], right1)
        worst = max(worst, _log_add(p1, distrust) - _log_add(p0, low))
        worst = max(worst, _log_add(p0, distrust) - _log_add(p1, low))
        f0 = log_absent[k] if k < log_absent.size else -math.inf
        f1 = log_present[k] if k < log_present.size else -math.inf
        right0, right1 = _log_add(right0, f0) - rate, _log_add(right1, f1) - rate
    return worst


def log_pmf(pmf: Floats) -> Floats:
    """Logarithms of probabilities, zeros as minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(pmf)


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
