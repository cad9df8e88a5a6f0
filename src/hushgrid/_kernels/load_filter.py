"""A bank of linear filters of a zone's relative load, one release after another.

Every filter of the bank has its own spreads. A state holds two levels, a residual, a coefficient of
each covariate, a profile of the day and what weekends add to it, both on knots with straight lines
between them. The observation is the load behind noise: its exact mean and variance given the
release enter a rank-one update. Noise of a block of steps is even on an unknown range, the same for
all its steps, so every filter holds the probabilities of some ranges too.
"""

import math

import numpy as np
from numba import njit

from hushgrid._numbers import Bools, Floats

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
def _behind(noisy, mean, variance, scale, normal):  # type: ignore[no-untyped-def]
    """Mean and variance of a normal load behind noise, and the log density of what is seen."""
    d = noisy - mean
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
    return noisy + moved, spread, log - d * d / (2 * variance) - math.log(2 * scale)


@njit(cache=True, inline="never", error_model="numpy")  # pragma: no cover
def _within(noisy, mean, variance, halves, chances):  # type: ignore[no-untyped-def]
    """`_behind` for noise that is even on -half..half, half being one of some.

    The load is a normal law cut off on both sides, for each of them. Their chances are changed.
    """
    s, d = math.sqrt(variance), noisy - mean
    root, two = math.sqrt(2 * math.pi), math.sqrt(2.0)
    total = first = second = 0.0
    for g in range(len(halves)):
        if chances[g] == 0.0:
            continue
        a, b = (abs(d) - halves[g]) / s, (abs(d) + halves[g]) / s
        part, low, high = 1.0, 0.0, 0.0
        if a > -9.0:
            part, low = 0.5 * math.erfc(a / two), math.exp(-a * a / 2) / root
        if b < 9.0 or (a > 0.0 and (b - a) * (b + a) < 80.0):
            part, high = part - 0.5 * math.erfc(b / two), math.exp(-b * b / 2) / root
        share = chances[g] / (2 * halves[g])
        chances[g] = share * part
        total += share * part
        first += share * (low - high)
        second += share * (part + a * low - b * high)
    if not total > 1e-250:  # farther out than the widest noise reaches: just inside of it
        chances[:] = 0.0
        chances[-1] = 1.0
        a = (abs(d) - halves[-1]) / s
        log = -a * a / 2 - math.log(2 * halves[-1] * a * root)
        return mean + math.copysign(s * (a + 1 / a), d), variance / (a * a), log
    for g in range(len(halves)):
        chances[g] = chances[g] / total if chances[g] > 1e-12 * total else 0.0
    first /= total
    remaining = variance * min(max(second / total - first * first, 0.0), 1.0)
    return mean + math.copysign(s * first, d), remaining, math.log(total)


@njit(cache=True)  # pragma: no cover
def within_block(noisy, mean, variance, halves, chances):  # type: ignore[no-untyped-def]
    """Normal loads behind noise of a block of steps, whose half-width is one of some.

    Args:
        noisy: Noisy load [Wh].
        mean: (n,): means of the load [Wh].
        variance: (n,): variances [Wh^2], above 0.
        halves: (G,): half-widths [Wh].
        chances: (n, G): probability of each before the release; changed to those after it.

    Returns:
        (n, 3): mean and variance after the release [Wh, Wh^2], and the log density of what is seen.
    """
    posterior = np.empty((len(mean), 3))
    for i in range(len(mean)):
        posterior[i] = _within(noisy, mean[i], variance[i], halves, chances[i])
    return posterior


@njit(cache=True, error_model="numpy")  # pragma: no cover
def widen(  # type: ignore[no-untyped-def]
    noisy, scale, normal, mean, variance, halves, row, begins, start, factors, law, forgotten,
    tails, shares, widths, sizes
):  # fmt: skip
    """What releases say, one after another, of how much wider the law of a load is than foreseen.

    Args:
        noisy: (n,): noisy loads [Wh].
        scale: (n,): scales of their noise [Wh], above 0.
        normal: Whether noise of a step of its own is Gaussian, else Laplace.
        mean: (n,): means foreseen [Wh].
        variance: (n,): variances foreseen [Wh^2], above 0.
        halves: (k, G): half-widths that the noise of a block may have, relative to its scale.
        row: (n,): the row of `halves`; below 0 where the noise is that of a step of its own.
        begins: (n,): whether a block of steps begins.
        start: (G,): probability of each half-width there.
        factors: (W,): how much wider it may be.
        law: (W,): probability of each before any release.
        forgotten: Share of what releases say that each later one takes away.
        tails: (3,): spreads of the law's parts, relative to it.
        shares: (3,): their shares.
        widths: (W,): probability of each factor; changed to that after the releases.
        sizes: (G,): probability of each half-width of the open block; changed likewise.
    """
    chances, parts, logs = sizes.copy(), np.empty(len(tails)), np.empty(len(factors))
    for t in range(len(noisy)):
        half = halves[max(row[t], 0)] * scale[t]
        if row[t] >= 0 and begins[t]:
            sizes[:] = start
        for i in range(len(factors)):
            for k in range(len(tails)):
                v = (factors[i] * tails[k]) ** 2 * variance[t]
                if row[t] >= 0:
                    chances[:] = sizes
                    parts[k] = _within(noisy[t], mean[t], v, half, chances)[2]
                else:
                    parts[k] = _behind(noisy[t], mean[t], v, scale[t], normal)[2]
            top = parts.max()
            logs[i] = top + np.log((np.exp(parts - top) * shares).sum())
            logs[i] += (1 - forgotten) * np.log(widths[i]) + forgotten * np.log(law[i])
        if row[t] >= 0:
            _within(noisy[t], mean[t], variance[t], half, sizes)
        widths[:] = np.exp(logs - logs.max())
        widths /= widths.sum()


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _follow(  # type: ignore[no-untyped-def]
    noisy, scale, normal, base, place, weekend, covariates, decay, growth, white, mean, covariance,
    halves, begins, sizes, moments
):  # fmt: skip
    n, d = mean.shape
    fixed = LEVELS + covariates.shape[1]
    knots = (d - fixed) // 2
    at, by, gain = np.empty(fixed + 4, np.int64), np.ones(fixed + 4), np.empty(d)
    at[:fixed] = np.arange(fixed)
    for t in range(len(noisy)):
        by[LEVELS:fixed] = covariates[t]
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
            moments[t, c, 0], moments[t, c, 1] = m, v
            if scale[t] < 0:  # nothing was published
                moments[t, c, 2], moments[t, c, 3], moments[t, c, 4] = m, v, 0.0
                continue
            if halves[t, 0] < 0:
                after, remaining, log = _behind(noisy[t], m, v, scale[t], normal)
            else:
                if begins[t]:
                    sizes[c] = sizes[-1]
                after, remaining, log = _within(noisy[t], m, v, halves[t], sizes[c])
            moments[t, c, 2], moments[t, c, 3], moments[t, c, 4] = after, remaining, log
            move, shrink = base[t] * (after - m) / v, base[t] * base[t] * (v - remaining) / (v * v)
            for i in range(d):
                x[i] += gain[i] * move
                for j in range(d):
                    p[i, j] -= shrink * gain[i] * gain[j]


def follow(
    noisy: Floats,
    scale: Floats,
    normal: bool,
    base: Floats,
    place: Floats,
    weekend: Floats,
    covariates: Floats,
    decay: Floats,
    growth: Floats,
    white: Floats,
    mean: Floats,
    covariance: Floats,
    halves: Floats,
    begins: Bools,
    sizes: Floats,
) -> Floats:
    """Advance every filter of a bank over some steps; `mean`, `covariance`, `sizes` are changed.

    Args:
        noisy: (T,): noisy loads [Wh].
        scale: (T,): scales of the noise [Wh], above 0; negative where nothing was published.
        normal: Whether the noise is Gaussian; else Laplace.
        base: (T,): loads that the states are relative to [Wh], above 0.
        place: (T,): time of day as a share of the day, from 0 to below 1.
        weekend: (T,): 1 on days with the profile of weekends.
        covariates: (T, c): covariates; 0 where one is missing.
        decay: (filters, d): what a step leaves of each part of the state.
        growth: (filters, d, d): what a step adds to the covariance.
        white: (filters,): spread of the load about its state, relative to `base`.
        mean: (filters, d): states before the first step.
        covariance: (filters, d, d): their covariances.
        halves: (T, G): half-widths that the noise of a block of steps may have [Wh]; negative where
            noise is independent.
        begins: (T,): whether a step is the first seen of its block.
        sizes: (filters + 1, G): probability of each half-width by filter; last, before a block.

    Returns:
        (T, filters, 5): mean and variance of the load before the release, mean and variance after
        it [Wh, Wh^2], and the log density of what was seen.
    """
    moments = np.empty((len(noisy), len(mean), 5))
    _follow(
        noisy, scale, normal, base, place, weekend, covariates, decay, growth, white, mean,
        covariance, halves, begins, sizes, moments,
    )  # fmt: skip
    return moments
