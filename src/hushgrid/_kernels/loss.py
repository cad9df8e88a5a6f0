"""The worst log-ratio of two noisy laws, and the smallest score of a two-sided Markov quilt.

The log-ratio takes two first-order recursions, O(bound). Python does them as they are written
until they have taken as long as numba takes to load, and from then on they are compiled: a service
starts without numba. The figures are the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, frozen

_PLAIN = 300_000  # rounds of the plain loops; numba takes as long to load
_rounds = 0


def worst_ratio(absent: Floats, present: Floats, bound: int, q: float, eta: float) -> float:
    """Largest ratio over k in 0..bound; q^bound must be well above the smallest float."""
    n = bound + 1 if eta > 0 else max(absent.size, present.size)
    return _run(ratio_loop, n, absent, present, bound, q, float(eta))


def worst_log_ratio(absent: Floats, present: Floats, bound: int, rate: float, eta: float) -> float:
    """The same from logarithms, for noise so small that q^bound underflows; rate = 1/scale."""
    return _run(log_ratio_loop, bound + 1, absent, present, bound, rate, float(eta))


def _run(loop: Callable[..., Any], n: int, absent: Floats, present: Floats, *terms: Any) -> float:
    global _rounds
    _rounds += n
    if _rounds > _PLAIN:
        room = np.empty((3, n))
        return float(compiled(loop)(frozen(absent), frozen(present), *terms, *room))
    return float(loop(absent.tolist(), present.tolist(), *terms, *([0.0] * n for _ in range(3))))


@cache
def compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The loop as machine code, kept on disk."""
    from numba import njit

    return njit(cache=True, nogil=True)(loop)


def ratio_loop(absent, present, bound, q, eta, left0, left1, power):  # type: ignore[no-untyped-def]
    """Largest hi/lo over k in 0..bound (docs/proofs/calibration.md, 4), without logarithms.

    The noise pmf is K(k) = K(0) q^|k|; the factor K(0) cancels, so K(0) = 1 here.
    """
    n, n0, n1 = len(left0), len(absent), len(present)
    run0, run1, run = 0.0, 0.0, 1.0
    for k in range(n):
        run0 = run0 * q + (absent[k] if k < n0 else 0.0)
        run1 = run1 * q + (present[k] if k < n1 else 0.0)
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
        right0 = q * (right0 + (absent[k] if k < n0 else 0.0))
        right1 = q * (right1 + (present[k] if k < n1 else 0.0))
    return worst


def log_ratio_loop(log_absent, log_present, bound, rate, eta, left0, left1, _):  # type: ignore[no-untyped-def]
    """The same in logarithms."""

    def log_add(a, b):  # type: ignore[no-untyped-def]
        if a < b:
            a, b = b, a
        return a if b == -math.inf else a + math.log1p(math.exp(b - a))

    n, n0, n1 = len(left0), len(log_absent), len(log_present)
    run0, run1 = -math.inf, -math.inf
    for k in range(n):
        run0 = log_add(run0 - rate, log_absent[k] if k < n0 else -math.inf)
        run1 = log_add(run1 - rate, log_present[k] if k < n1 else -math.inf)
        left0[k], left1[k] = run0, run1
    trust = math.log(1.0 - eta)
    distrust = math.log(eta) if eta > 0.0 else -math.inf
    worst, right0, right1 = 0.0, -math.inf, -math.inf
    for k in range(n - 1, -1, -1):
        low = distrust - rate * max(k, bound - k)
        p0, p1 = trust + log_add(left0[k], right0), trust + log_add(left1[k], right1)
        worst = max(worst, log_add(p1, distrust) - log_add(p0, low))
        worst = max(worst, log_add(p0, distrust) - log_add(p1, low))
        f0 = log_absent[k] if k < n0 else -math.inf
        f1 = log_present[k] if k < n1 else -math.inf
        right0, right1 = log_add(right0, f0) - rate, log_add(right1, f1) - rate
    return worst


def log_pmf(pmf: Floats) -> Floats:
    """Logarithms of probabilities, zeros as minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(pmf)


def two_sided(before: Floats, after: Floats, epsilon: float, best: Floats) -> Floats:
    """min of best and (a + b - 1)/(epsilon - influence); before (C, a, 2), after (C, b, 2)."""
    out: Floats = compiled(_two_sided)(before, after, epsilon, best)
    return out


def _two_sided(before: Floats, after: Floats, epsilon: float, best: Floats) -> Floats:
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
