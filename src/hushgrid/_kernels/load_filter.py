"""A bank of linear filters of a zone's relative load, one release after another.

Every filter of the bank has its own spreads. A state holds two levels, a residual, a coefficient of
each covariate, a profile of the day and what weekends add to it, both on knots with straight lines
between them. The observation is the load behind noise: its exact mean and variance given the
release enter a rank-one update.
"""

import math

import numpy as np
from numba import njit

from hushgrid._numbers import Floats

LEVELS = 3  # level, slow level, residual; then covariates, then knots of the two profiles


@njit(cache=True, inline="never")  # pragma: no cover
def _log_tail(x):  # type: ignore[no-untyped-def]
    """log of e^(x^2/2) Phi(-x)."""
    if x > 12.0:
        i = 1.0 / (x * x)
        return math.log(
            (1.0 - i * (1.0 - 3.0 * i * (1.0 - 5.0 * i))) / (x * math.sqrt(2 * math.pi))
        )
    if x > -30.0:
        return x * x / 2 + math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
    return x * x / 2


@njit(cache=True, inline="never")  # pragma: no cover
def _beyond(x):  # type: ignore[no-untyped-def]
    """Mean of N - x and variance of N, given N > x, for a standard normal N."""
    if x > 30.0:
        i = 1.0 / (x * x)
        return (1.0 - 2.0 * i * (1.0 - 5.0 * i)) / x, i * (1.0 - 6.0 * i)
    if x < -30.0:
        return -x, 1.0
    ratio = math.exp(-_log_tail(x)) / math.sqrt(2 * math.pi)
    return ratio - x, max(1.0 - ratio * (ratio - x), 0.0)


@njit(cache=True, inline="never")  # pragma: no cover
def _behind(seen, mean, variance, scale, normal):  # type: ignore[no-untyped-def]
    """Mean and variance of a normal load behind noise, and the log density of what is seen."""
    d = seen - mean
    if normal:
        total = variance + scale * scale
        log = -d * d / (2 * total) - math.log(2 * math.pi * total) / 2
        return mean + d * variance / total, variance * scale * scale / total, log
    s = math.sqrt(variance)
    below, above = (variance / scale - d) / s, (variance / scale + d) / s
    low, high = _log_tail(below), _log_tail(above)
    top = max(low, high)
    log = top + math.log(math.exp(low - top) + math.exp(high - top))
    share = math.exp(low - log)
    m0, v0 = _beyond(below)
    m1, v1 = _beyond(above)
    m0, m1 = -s * m0, s * m1
    moved = share * m0 + (1 - share) * m1
    spread = variance * (share * v0 + (1 - share) * v1)
    spread += share * (m0 - moved) ** 2 + (1 - share) * (m1 - moved) ** 2
    return seen + moved, spread, log - d * d / (2 * variance) - math.log(2 * scale)


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _follow(  # type: ignore[no-untyped-def]
    seen, scale, normal, base, place, weekend, known, decay, growth, white, mean, covariance, found
):
    n, d = mean.shape
    fixed = LEVELS + known.shape[1]
    knots = (d - fixed) // 2
    at, by, gain = np.empty(fixed + 4, np.int64), np.ones(fixed + 4), np.empty(d)
    at[:fixed] = np.arange(fixed)
    for t in range(len(seen)):
        by[LEVELS:fixed] = known[t]
        low = int(place[t] * knots) % knots
        part, high = place[t] * knots - int(place[t] * knots), (low + 1) % knots
        parts = fixed + (4 if weekend[t] else 2)
        for k in range(fixed, parts, 2):
            first = fixed + (knots if k > fixed else 0)
            at[k], at[k + 1], by[k], by[k + 1] = first + low, first + high, 1 - part, part
        for c in range(n):
            x, p, a, q = mean[c], covariance[c], decay[c], growth[c]
            for i in range(d):
                x[i] *= a[i]
                for j in range(d):
                    p[i, j] = p[i, j] * a[i] * a[j] + q[i, j]
            level, spread = 1.0, white[c] * white[c]
            for i in range(d):
                gain[i] = 0.0
                for k in range(parts):
                    gain[i] += by[k] * p[i, at[k]]
            for k in range(parts):
                level += by[k] * x[at[k]]
                spread += by[k] * gain[at[k]]
            m, v = base[t] * level, base[t] * base[t] * spread
            found[t, c, 0], found[t, c, 1] = m, v
            if scale[t] < 0:  # nothing was published
                found[t, c, 2], found[t, c, 3], found[t, c, 4] = m, v, 0.0
                continue
            after, left, log = _behind(seen[t], m, v, scale[t], normal)
            found[t, c, 2], found[t, c, 3], found[t, c, 4] = after, left, log
            move, shrink = base[t] * (after - m) / v, base[t] * base[t] * (v - left) / (v * v)
            for i in range(d):
                x[i] += gain[i] * move
                for j in range(d):
                    p[i, j] -= shrink * gain[i] * gain[j]


def follow(
    seen: Floats,
    scale: Floats,
    normal: bool,
    base: Floats,
    place: Floats,
    weekend: Floats,
    known: Floats,
    decay: Floats,
    growth: Floats,
    white: Floats,
    mean: Floats,
    covariance: Floats,
) -> Floats:
    """Advance every filter of a bank over some steps. `mean` and `covariance` are changed.

    Args:
        seen: (T,): noisy loads [Wh].
        scale: (T,): scales of the noise [Wh], above 0; negative where nothing was published.
        normal: Whether the noise is Gaussian; else Laplace.
        base: (T,): loads that the states are relative to [Wh], above 0.
        place: (T,): time of day as a share of the day, from 0 to below 1.
        weekend: (T,): 1 on days with the profile of weekends.
        known: (T, c): covariates; 0 where one is missing.
        decay: (filters, d): what a step leaves of each part of the state.
        growth: (filters, d, d): what a step adds to the covariance.
        white: (filters,): spread of the load about its state, relative to `base`.
        mean: (filters, d): states before the first step.
        covariance: (filters, d, d): their covariances.

    Returns:
        (T, filters, 5): mean and variance of the load before the release, mean and variance after
        it [Wh, Wh^2], and the log density of what was seen.
    """
    found = np.empty((len(seen), len(mean), 5))
    _follow(
        seen, scale, normal, base, place, weekend, known, decay, growth, white, mean, covariance,
        found,
    )  # fmt: skip
    return found
