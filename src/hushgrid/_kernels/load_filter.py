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

_ROOT, _DENSITY = 1 / math.sqrt(2.0), 1 / math.sqrt(2 * math.pi)
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
def _edge(d, half, s):  # type: ignore[no-untyped-def]
    """How a normal n of mean d >= 0 and spread s lies to an edge: E(half - n)+ + E(-half - n)+ and
    its first two derivatives over d.
    """
    x, y = (d - half) / s, (d + half) / s
    if x > 37.0:  # the lower end is farther out
        return 0.0, 0.0, 0.0
    tail, density = 1.0, 0.0
    if x > -9.0:
        tail, density = 0.5 * math.erfc(x * _ROOT), math.exp(-x * x / 2) * _DENSITY
    value, first, second = density - x * tail, -tail, density
    if y < 9.0 or (x > 0.0 and y * y < x * x + 80.0):  # else no digit of it counts
        tail, density = 0.5 * math.erfc(y * _ROOT), math.exp(-y * y / 2) * _DENSITY
        value, first, second = value + density - y * tail, first - tail, second + density
    return s * value, first, second / s


@njit(cache=True, inline="never", error_model="numpy")  # pragma: no cover
def _outside(distance, variance, half):  # type: ignore[no-untyped-def]
    """Move and variance of a load that even the widest noise hardly reaches, and the log density:
    it is just inside.
    """
    s = math.sqrt(variance)
    a = (abs(distance) - half) / s
    log = -a * a / 2 - math.log(2 * half * a * math.sqrt(2 * math.pi))
    return math.copysign(s * (a + 1 / a), distance), variance / (a * a), log


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _behind_cells(d, v, halves, chances, shift, moves):  # type: ignore[no-untyped-def]
    """The load of a step behind noise of a block, with a mean for each cell of half-widths.

    Args:
        d: Noisy load less the mean of the load [Wh].
        v: Variance of the load where the half-width is known [Wh^2].
        halves: (G + 1,): ends of the cells [Wh].
        chances: (G,): probabilities of the cells; changed to those after the release.
        shift: (G,): mean in each cell less that of all [Wh].
        moves: (G,): filled with how far the release moves each mean [Wh].

    Returns:
        How far it moves the mean of all, the variance of all and the mean variance of a cell
        after it, and the log density of what is seen.
    """
    s, total = math.sqrt(v), 0.0
    left = moved = square = 0.0
    at, high = math.inf, (0.0, 0.0, 0.0)  # the upper edge of a cell is the lower one of the next
    for g in range(len(chances)):
        moves[g] = 0.0
        if chances[g] == 0.0:
            at = math.inf
            continue
        # the noise is even up to `low` and its density falls to 0 at `high` by a straight line
        low = high if d - shift[g] == at else _edge(abs(d - shift[g]), halves[g], s)
        at, high = d - shift[g], _edge(abs(d - shift[g]), halves[g + 1], s)
        seen = high[0] - low[0]
        chances[g] *= seen / ((halves[g + 1] - halves[g]) * (halves[g + 1] + halves[g]))
        if not chances[g] > 1e-300:
            chances[g] = 0.0
            continue
        times = 1.0 / seen
        slope, bend = math.copysign(times, at) * (high[1] - low[1]), times * (high[2] - low[2])
        moves[g] = -v * slope
        left += chances[g] * v * min(max(1.0 + v * (bend - slope * slope), 0.0), 1.0)
        total += chances[g]
    if not total > 1e-250:
        chances[:] = 0.0
        chances[-1] = 1.0
        moves[-1], left, log = _outside(d - shift[-1], v, halves[-1])
        return shift[-1] + moves[-1], left, left, log
    left /= total
    for g in range(len(chances)):
        chances[g] = chances[g] / total if chances[g] > 1e-9 * total else 0.0
        after = shift[g] + moves[g]
        moved, square = moved + chances[g] * after, square + chances[g] * after * after
    return moved, left + max(square - moved * moved, 0.0), left, math.log(total)


@njit(cache=True, inline="never", error_model="numpy")  # pragma: no cover
def _log_seen(distance, variance, halves, chances):  # type: ignore[no-untyped-def]
    """The log density that `_behind_cells` returns where the load has one mean in all cells."""
    d, s, total = abs(distance), math.sqrt(variance), 0.0
    low = _edge(d, halves[0], s)[0]
    for g in range(len(chances)):
        high = _edge(d, halves[g + 1], s)[0]
        if high > low:
            area = (halves[g + 1] - halves[g]) * (halves[g + 1] + halves[g])
            total += chances[g] * (high - low) / area
        low = high
    if not total > 1e-250:
        return _outside(d, variance, halves[-1])[2]
    return math.log(total)


@njit(cache=True)  # pragma: no cover
def within_block(noisy, mean, variance, halves, shift, chances):  # type: ignore[no-untyped-def]
    """Normal loads behind noise of a block of steps, whose half-width lies in one of some cells.

    Args:
        noisy: Noisy load [Wh].
        mean: (n,): means of the load [Wh].
        variance: (n,): variances where the cell is known [Wh^2], above 0.
        halves: (G + 1,): ends of the cells [Wh].
        shift: (n, G): mean in each cell less `mean` [Wh].
        chances: (n, G): probability of each before the release; changed to those after it.

    Returns:
        (n, 3): mean and variance after the release [Wh, Wh^2], and the log density of what is seen.
    """
    posterior, moves = np.empty((len(mean), 3)), np.empty(chances.shape[1])
    for i in range(len(mean)):
        moved, posterior[i, 1], _, posterior[i, 2] = _behind_cells(
            noisy - mean[i], variance[i], halves, chances[i], shift[i], moves
        )
        posterior[i, 0] = mean[i] + moved
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
        halves: (k, G + 1): ends of the cells of half-widths that the noise of a block may have,
            relative to its scale.
        row: (n,): the row of `halves`; below 0 where the noise is that of a step of its own.
        begins: (n,): whether a block of steps begins.
        start: (G,): probability of each cell there.
        factors: (W,): how much wider it may be.
        law: (W,): probability of each before any release.
        forgotten: Share of what releases say that each later one takes away.
        tails: (3,): spreads of the law's parts, relative to it.
        shares: (3,): their shares.
        widths: (W,): probability of each factor; changed to that after the releases.
        sizes: (G,): probability of each cell for the open block; changed likewise.
    """
    parts, logs = np.empty(len(tails)), np.empty(len(factors))
    alike, moves = np.zeros(len(sizes)), np.empty(len(sizes))
    for t in range(len(noisy)):
        half = halves[max(row[t], 0)] * scale[t]
        if row[t] >= 0 and begins[t]:
            sizes[:] = start
        for i in range(len(factors)):
            for k in range(len(tails)):
                v = (factors[i] * tails[k]) ** 2 * variance[t]
                if row[t] >= 0:
                    parts[k] = _log_seen(noisy[t] - mean[t], v, half, sizes)
                else:
                    parts[k] = _behind(noisy[t], mean[t], v, scale[t], normal)[2]
            top = parts.max()
            logs[i] = top + np.log((np.exp(parts - top) * shares).sum())
            logs[i] += (1 - forgotten) * np.log(widths[i]) + forgotten * np.log(law[i])
        if row[t] >= 0:
            _behind_cells(noisy[t] - mean[t], variance[t], half, sizes, alike, moves)
        widths[:] = np.exp(logs - logs.max())
        widths /= widths.sum()


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _join(p, offsets, chances):  # type: ignore[no-untyped-def]
    """One normal law of a state in place of those that go with the cells of half-widths."""
    for g in range(len(chances)):
        if chances[g] > 0.0:
            for i in range(len(p)):
                weighed = chances[g] * offsets[g, i]
                for j in range(len(p)):
                    p[i, j] += weighed * offsets[g, j]
    offsets[:] = 0.0


@njit(cache=True, error_model="numpy")  # pragma: no cover
def _follow(  # type: ignore[no-untyped-def]
    noisy, scale, normal, base, place, weekend, covariates, decay, growth, white, mean, covariance,
    halves, begins, sizes, offsets, shifts, moments
):  # fmt: skip
    n, d = mean.shape
    fixed = LEVELS + covariates.shape[1]
    knots, cells = (d - fixed) // 2, sizes.shape[1]
    at, by, gain = np.empty(fixed + 4, np.int64), np.ones(fixed + 4), np.empty(d)
    moves, middle = np.zeros(cells), np.empty(d)
    at[:fixed] = np.arange(fixed)
    has_offsets = np.array([offsets[c].any() for c in range(n)])
    for t in range(len(noisy)):
        by[LEVELS:fixed] = covariates[t]
        low = int(place[t] * knots) % knots
        part, high = place[t] * knots - int(place[t] * knots), (low + 1) % knots
        parts = fixed + (4 if weekend[t] else 2)
        for k in range(fixed, parts, 2):
            first = fixed + (knots if k > fixed else 0)
            at[k], at[k + 1], by[k], by[k + 1] = first + low, first + high, 1 - part, part
        in_block = scale[t] >= 0 and halves[t, 0] >= 0
        for c in range(n):
            x, p, a, q, shift = mean[c], covariance[c], decay[c], growth[c], shifts[c]
            if scale[t] >= 0 and (begins[t] or not in_block):
                if has_offsets[c]:
                    _join(p, offsets[c], sizes[c])
                has_offsets[c], sizes[c] = False, sizes[-1]
            for i in range(d):
                x[i] *= a[i]
                for j in range(d):
                    p[i, j] = p[i, j] * a[i] * a[j] + q[i, j]
            level, spread, between = 1.0, white[c] * white[c], 0.0
            for i in range(d):
                gain[i] = 0.0
                for k in range(parts):
                    gain[i] += by[k] * p[i, at[k]]
            for k in range(parts):
                level += by[k] * x[at[k]]
                spread += by[k] * gain[at[k]]
            m, v = base[t] * level, base[t] * base[t] * spread
            shift[:] = 0.0
            if has_offsets[c]:
                for g in range(cells):
                    if sizes[c, g] == 0.0:
                        continue
                    for k in range(parts):
                        shift[g] += base[t] * by[k] * a[at[k]] * offsets[c, g, at[k]]
                    between += sizes[c, g] * shift[g] * shift[g]
            moments[t, c, 0], moments[t, c, 1], moments[t, c, 5] = m, v + between, v
            if scale[t] < 0:  # nothing was published
                moments[t, c, 2], moments[t, c, 3], moments[t, c, 4] = m, v + between, 0.0
                if has_offsets[c]:
                    offsets[c] *= a
                continue
            if in_block:
                after, remaining, left, log = _behind_cells(
                    noisy[t] - m, v, halves[t], sizes[c], shift, moves
                )
                after += m
            else:
                after, remaining, log = _behind(noisy[t], m, v, scale[t], normal)
                left = remaining
            moments[t, c, 2], moments[t, c, 3], moments[t, c, 4] = after, remaining, log
            shrink = base[t] * base[t] * (v - left) / (v * v)
            for i in range(d):
                for j in range(d):
                    p[i, j] -= shrink * gain[i] * gain[j]
            if not in_block:
                for i in range(d):
                    x[i] += gain[i] * base[t] * (after - m) / v
                continue
            has_offsets[c], middle[:] = True, 0.0
            for g in range(cells):
                if sizes[c, g] > 0.0:  # no other cell comes back in this block
                    move = base[t] * moves[g] / v
                    for i in range(d):
                        offsets[c, g, i] = offsets[c, g, i] * a[i] + gain[i] * move
                        middle[i] += sizes[c, g] * offsets[c, g, i]
            for i in range(d):
                x[i] += middle[i]
            for g in range(cells):
                if sizes[c, g] > 0.0:
                    for i in range(d):
                        offsets[c, g, i] -= middle[i]


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
    offsets: Floats,
) -> tuple[Floats, Floats]:
    """Advance every filter of a bank over some steps.

    `mean`, `covariance`, `sizes` and `offsets` are changed.

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
        halves: (T, G + 1): ends of the cells of half-widths that the noise of a block of steps may
            have [Wh]; negative where noise is independent.
        begins: (T,): whether a step is the first seen of its block.
        sizes: (filters + 1, G): probability of each cell by filter; last, before a block.
        offsets: (filters, G, d): means of the state in each cell less `mean`.

    Returns:
        (T, filters, 6): mean and variance of the load before the release, mean and variance after
        it [Wh, Wh^2], the log density of what was seen, and the variance before the release where
        the cell is known. And (filters, G): mean in each cell less that of all at the last step,
        before its release [Wh].
    """
    moments, shift = np.empty((len(noisy), len(mean), 6)), np.zeros((len(mean), sizes.shape[1]))
    _follow(
        noisy, scale, normal, base, place, weekend, covariates, decay, growth, white, mean,
        covariance, halves, begins, sizes, offsets, shift, moments,
    )  # fmt: skip
    return moments, shift
