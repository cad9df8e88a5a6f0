"""Interval of the optimal rate behind a published one, from public knowledge alone.

The interval of a load holds it with a given probability: given the noisy load alone, where that is
published; given everything public, where the estimate is published. A load is a mixture of normal
laws (one for each model and factor), so its law behind the noise has a closed form; the energy
above a clamp is added by quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.estimate import NO_NOISE, HalfWidths, LoadInterval, ReleaseParts
from hushgrid.belief.followed import Knowledge
from hushgrid.belief.posterior import (
    GAUSSIAN,
    block_chances,
    chance_below,
    check_level,
    mean_beyond,
    posterior_weights,
)
from hushgrid.model.zone import Tariff, public_rate

LEVEL = 0.95
_NEGLIGIBLE = 1e-7  # weight of a law that is left out
_FAR = 12.0  # standard deviations from anything likely
_MANY = 1 << 19  # numbers at once
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(15)
_SHARES = _SHARES / _SHARES.sum()


def posterior_interval(
    public: Knowledge,
    load_hat: float,
    scale: float,
    rates: Sequence[float] = (),
    level: float = LEVEL,
) -> LoadInterval:
    """The load of step t given its release and all releases before it.

    Args:
        public: Knowledge before the release.
        load_hat: Noisy load [Wh].
        scale: Scale of the noise [Wh]; 0 without noise.
        rates: Rates published before the step.
        level: Probability that the interval holds the load.

    Returns:
        Posterior mean and central interval [Wh].

    >>> from hushgrid import Consumption, OccupancyModel, Uniform
    >>> from hushgrid.belief.estimate import PublicKnowledge
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]],
    ...                                 chain_of=[0] * 100)
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)],
    ...                          class_of=[0] * 100)
    >>> found = posterior_interval(PublicKnowledge.start([theta], f), 40_000, 1000.0)
    >>> [round(end) for end in found]
    [39528, 36759, 41698]
    """
    mean = posterior_law(public, load_hat, scale, rates).mean
    law = posterior_law(public, load_hat, scale, rates, public.width)
    return _central(law.below, law.low, law.high, mean, level)


class LoadLaw(NamedTuple):
    """The law of a load behind its release.

    Attributes:
        cdf: Pr[load < z] of (n,) loads z [Wh], or of one: (1,).
        excess: E[(load - z)+] of the same [Wh].
        low: No less is likely at all [Wh].
        high: No more is [Wh].
        mean: Its mean [Wh].
    """

    cdf: Callable[[Floats], Floats]
    excess: Callable[[Floats], Floats]
    low: float
    high: float
    mean: float

    def below(self, load: float) -> float:
        """Pr[load < z] of one load [Wh]."""
        return float(self.cdf(np.asarray(load))[0])


def posterior_law(
    public: Knowledge,
    load_hat: float,
    scale: float,
    rates: Sequence[float] = (),
    width: float = 1.0,
) -> LoadLaw:
    """The law of the load of step t given its release and all releases before it.

    Args:
        public: Knowledge before the release.
        load_hat: Noisy load [Wh].
        scale: Scale of the noise [Wh]; 0 without noise.
        rates: Rates published before the step.
        width: How much wider the law before the release is taken, below the clamp.

    Returns:
        The law.
    """
    parts, b = public.parts(rates), max(scale, NO_NOISE)
    law = ReleaseParts(*(x.ravel() for x in (parts if width == 1 else parts.widened(width))))
    in_block = public.half_widths(b, rates)
    if in_block is None:
        logs = public.shape.evidence(float(load_hat), law.mean, law.variance, b)
        means = public.shape.mean(load_hat, law.mean, law.variance, b)
        weights = posterior_weights(law.weights, logs)
    else:
        wider = in_block._replace(shift=width * in_block.shift)
        law, weights, means, halves = _with_each_half(float(load_hat), law, wider)
    keep = weights > _NEGLIGIBLE
    w = weights[keep] / weights[keep].sum()
    parts, mean = ReleaseParts(*(column[keep] for column in law)), means[keep]
    gain, residual = _above(parts)
    centres = mean + parts.cut + gain * (mean - parts.mean)
    noise = _variance(public, b)
    if in_block is not None:
        curves = _joined(_cut_off(float(load_hat), parts, halves[keep]), parts, gain, residual)
    elif public.shape is GAUSSIAN or noise < float(w @ residual) ** 2:
        curves = _normal(centres, parts, gain, residual, noise)
    else:
        curves = _joined(_laplace(float(load_hat), parts, b), parts, gain, residual)
    reach = _FAR * (np.sqrt(parts.variance) * (1 + gain) + residual)
    ends = [(1 + gain) * edge + parts.cut - gain * parts.mean for edge in (parts.mean, load_hat)]
    low, high = np.minimum(*ends) - reach, np.maximum(*ends) + reach

    def mixed(curve: Curve) -> Curve:
        def of_all(z: Floats) -> Floats:
            parts = 1 + z.size * w.size * len(_NODES) // _MANY
            chunks = np.array_split(z, parts) if z.ndim else [z]
            return np.concatenate([np.atleast_1d(curve(chunk[..., None]) @ w) for chunk in chunks])

        return of_all

    cdf, excess = map(mixed, curves)
    return LoadLaw(cdf, excess, float(low.min()), float(high.max()), float(w @ centres))


Curve = Callable[[Floats], Floats]  # of (..., 1) loads, for every law: (..., laws)
Curves = tuple[Curve, Curve]  # Pr[load < z] and E[(load - z)+]


def _variance(public: Knowledge, scale: float) -> float:
    """Variance of the noise [Wh^2]."""
    return scale**2 if public.shape is GAUSSIAN else 2 * scale**2


def _normal(
    centres: Floats, law: ReleaseParts, gain: Floats, residual: Floats, noise: float
) -> Curves:
    """Exact behind Gaussian noise; else for noise far below the spread above the clamp."""
    from scipy.special import ndtr

    variance = 1 / (1 / law.variance + 1 / noise)
    spread = np.sqrt((1 + gain) ** 2 * variance + residual**2)
    return (
        lambda z: np.asarray(ndtr((z - centres) / spread)),
        lambda z: spread * _area_below((centres - z) / spread),
    )


def _joined(behind: Curves, law: ReleaseParts, gain: Floats, residual: Floats) -> Curves:
    """The load below the clamp plus the energy above it, by quadrature over its residual."""
    shift, steeper = law.cut - gain * law.mean, 1 + gain
    cdf, excess = behind
    if not residual.any():
        return lambda z: cdf(
            (z - shift) / steeper
        ), lambda z: steeper * excess((z - shift) / steeper)
    nodes = residual * _NODES[:, None]

    def mean(curve: Curve, z: Floats) -> Floats:
        return np.asarray(_SHARES @ curve((z[..., None] - shift - nodes) / steeper))

    return lambda z: mean(cdf, z), lambda z: steeper * mean(excess, z)


def _above(law: ReleaseParts) -> tuple[Floats, Floats]:
    """Regression of the energy above the clamp on the load below: slope and residual [Wh]."""
    gain = law.joint / law.variance
    return gain, np.sqrt(np.maximum(law.cut_variance - gain * law.joint, 0.0))


def _laplace(hat: float, law: ReleaseParts, b: float) -> Curves:
    """On either side of the noisy load a normal law, tilted by the noise and cut off there."""
    from scipy.special import log_ndtr

    m, s, tilt = law.mean, np.sqrt(law.variance), law.variance / b
    share = chance_below(np.asarray(hat), m, law.variance, np.asarray(b))
    under, over = log_ndtr((hat - m - tilt) / s), log_ndtr((m - tilt - hat) / s)
    means = hat - s * mean_beyond((m + tilt - hat) / s), hat + s * mean_beyond((hat - m + tilt) / s)

    def below(z: Floats) -> Floats:
        low, high = np.minimum(z, hat), np.maximum(z, hat)
        first = share * np.exp(log_ndtr((low - m - tilt) / s) - under)
        return np.asarray(
            first + (1 - share) * (1 - np.exp(log_ndtr((m - tilt - high) / s) - over))
        )

    def excess(z: Floats) -> Floats:
        up, down = (m + tilt - np.minimum(z, hat)) / s, (np.maximum(z, hat) - m + tilt) / s
        first = np.exp(log_ndtr(-up) - under) * s * mean_beyond(up)  # E[(z - load)+] below hat
        last = np.exp(log_ndtr(-down) - over) * s * mean_beyond(down)
        first = np.where(z < hat, means[0] - z + first, 0.0)
        return np.asarray(share * first + (1 - share) * np.where(z < hat, means[1] - z, last))

    return below, excess


def _with_each_half(
    hat: float, law: ReleaseParts, noise: HalfWidths
) -> tuple[ReleaseParts, Floats, Floats, Floats]:
    """Laws of the load with the half-width of the noise in the middle of every cell, their weights
    given what is seen, means after it, and these half-widths.

    The means are those of a law whatever the half-width.
    """
    from hushgrid._kernels.load_filter import within_block

    chances, within = noise.chances.copy(), law.variance * noise.share
    moments = within_block(hat, law.mean, within, noise.ends, noise.shift, chances)
    weights = posterior_weights(law.weights, moments[:, 2])[:, None] * chances
    count, gain = chances.shape[1], (law.joint / law.variance)[:, None]
    laws = ReleaseParts(
        weights.ravel(),
        (law.mean[:, None] + noise.shift).ravel(),
        within.repeat(count),
        (law.cut[:, None] + gain * noise.shift).ravel(),
        (law.cut_variance - gain[:, 0] ** 2 * (law.variance - within)).repeat(count),
        (gain[:, 0] * within).repeat(count),
    )
    return (
        laws,
        weights.ravel(),
        moments[:, 0].repeat(count),
        np.tile(_middles(noise), len(law.mean)),
    )


def _middles(noise: HalfWidths) -> Floats:
    return np.asarray((noise.ends[1:] + noise.ends[:-1]) / 2)


def _cut_off(hat: float, law: ReleaseParts, halves: Floats) -> Curves:
    """A normal law cut off where noise that is even on -half..half does not reach.

    Taken from the side where it has its tail, so that nothing large cancels; all of it is at the
    end nearest to the mean where no probability is left.
    """
    from scipy.special import ndtr

    s = np.sqrt(law.variance)
    low, high = (hat - halves - law.mean) / s, (hat + halves - law.mean) / s
    side = np.where(low > 0, -1.0, 1.0)  # of the tail that the law lies in
    start, end = np.where(low > 0, -high, low), np.where(low > 0, -low, high)
    first, area = ndtr(start), _area_below(start)
    total = ndtr(end) - first

    def chance(x: Floats) -> Floats:
        inside = ndtr(np.clip(x, start, end)) - first
        return np.asarray(np.divide(inside, total, out=(x >= end) * 1.0, where=total != 0))

    def deficit(x: Floats) -> Floats:
        """E[(x - X)+] of the law seen from its tail."""
        at = np.clip(x, start, end)
        inside = _area_below(at) - area - (at - start) * first
        part = np.divide(inside, total, out=np.zeros_like(inside), where=total != 0)
        return np.asarray(part + np.maximum(x - end, 0.0))

    mean = end - deficit(end)

    def below(z: Floats) -> Floats:
        x = side * (z - law.mean) / s
        return np.asarray(np.where(side > 0, chance(x), 1 - chance(x)))

    def excess(z: Floats) -> Floats:
        x = side * (z - law.mean) / s
        return np.asarray(s * np.where(side > 0, mean - x + deficit(x), deficit(x)))

    return below, excess


def _area_below(x: Floats) -> Floats:
    """E[(x - N)+] of a standard normal N."""
    from scipy.special import ndtr

    return np.asarray(x * ndtr(x) + np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def noise_interval(
    public: Knowledge,
    load_hat: float,
    scale: float,
    rates: Sequence[float] = (),
    level: float = LEVEL,
) -> LoadInterval:
    """The load of step t given the noisy load alone, without a prior on the load below the clamp.

    Args:
        public: Knowledge before the release: the energy above the clamp and the noise law.
        load_hat: Noisy load [Wh].
        scale: Scale of the noise [Wh]; 0 without noise.
        rates: Rates published before the step.
        level: Probability that the interval holds the load.

    Returns:
        Noisy load plus expected energy above the clamp, and the central interval [Wh].

    >>> from hushgrid import Consumption, OccupancyModel, Uniform
    >>> from hushgrid.belief.estimate import PublicKnowledge
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> [round(end, 1) for end in noise_interval(PublicKnowledge.start([theta], f), 700, 100.0)]
    [700.0, 400.4, 999.6]
    """
    from scipy.special import ndtr

    b, law = max(scale, NO_NOISE), public.parts(rates)
    check_level(level)
    cut = float((law.weights * law.cut).sum())
    spread = float((law.weights * (law.cut_variance + law.cut**2)).sum()) - cut**2
    spread, noise = math.sqrt(max(spread, 0.0)), _variance(public, b)

    in_block = public.half_widths(b, rates)

    def below(z: float) -> float:
        away = z - cut - load_hat
        if in_block is not None:
            even = (away - spread * _NODES[:, None]) / _middles(in_block)
            return float(_SHARES @ (np.clip((1 + even) / 2, 0, 1) @ block_chances()))
        if public.shape is GAUSSIAN or noise < spread**2:
            return float(ndtr(away / math.sqrt(noise + spread**2)))
        return float(_SHARES @ _two_sided((away - spread * _NODES) / b))

    if (
        spread == 0 and public.shape is not GAUSSIAN and in_block is None
    ):  # the usual case: nothing to search for
        half = -b * math.log(1 - level)
        return LoadInterval(float(load_hat), load_hat - half, load_hat + half)
    reach = (40 * b if in_block is None else in_block.ends[-1]) + _FAR * spread
    guess = float(load_hat) + cut
    return _central(below, guess - reach, guess + reach, guess, level)


def _two_sided(away: Floats) -> Floats:
    tail = np.exp(-np.abs(away)) / 2
    return np.where(away < 0, tail, 1 - tail)


def _central(
    below: Callable[[float], float], low: float, high: float, mean: float, level: float
) -> LoadInterval:
    from scipy.optimize import brentq

    check_level(level)
    tail = max((1 - level) / 2, 1e-12)
    ends = [
        float(brentq(lambda z, p=p: below(z) - p, low, high, rtol=1e-9))  # type: ignore[no-untyped-call,unused-ignore]
        for p in (tail, 1 - tail)
    ]
    return LoadInterval(mean, ends[0], ends[1])


def rate_range(loads: LoadInterval, tariff: Tariff) -> tuple[float, float]:
    """The optimal rates of an interval of loads, cut to the tariff's floor and cap.

    Args:
        loads: The interval of the load.
        tariff: Coefficients and limits of the price.

    Returns:
        The low and the high rate [currency/kWh].
    """
    return public_rate(loads.low, tariff), public_rate(loads.high, tariff)
