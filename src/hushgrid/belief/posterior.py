"""The law of a load behind one release: normal before it, noise of a known law."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats
from hushgrid.errors import NoiseError, PolicyError


def posterior_mean(
    load_hat: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike
) -> Floats:
    """E[Z given load_hat] for Z ~ N(mean, variance) and Laplace noise.

    It never moves more than variance/scale from the mean. The arguments broadcast.

    Args:
        load_hat: Noisy load [Wh].
        mean: Prior mean of the load [Wh].
        variance: Prior variance of the load [Wh^2], above 0.
        scale: Scale of the noise [Wh], above 0.

    Returns:
        The posterior mean [Wh], in the broadcast shape.

    Raises:
        PolicyError: If a variance is not positive and finite.
        NoiseError: If a scale is not positive and finite.

    See: docs/proofs/estimate.md.

    >>> round(float(posterior_mean(260, 250, 40, 2)), 6)
    258.437846
    """
    m, v, b = (np.asarray(x, np.float64) for x in (mean, variance, scale))
    if not ((v > 0).all() and np.isfinite(v).all()):
        raise PolicyError(f"variance is {v}; give positive numbers.")
    if not ((b > 0).all() and np.isfinite(b).all()):
        raise NoiseError(f"scale is {b}; give positive numbers.")
    z = np.asarray(load_hat, np.float64)
    s, (below, above) = np.sqrt(v), _sides(z - m, v, b)
    share = chance_below(z, m, v, b)
    mean = z + s * ((1 - share) * mean_beyond(above) - share * mean_beyond(below))
    return np.asarray(np.clip(mean, m - v / b, m + v / b))


def chance_below(load_hat: Floats, mean: Floats, variance: Floats, scale: Floats) -> Floats:
    """Pr[Z < load_hat given load_hat] for Z ~ N(mean, variance) and Laplace noise.

    Args:
        load_hat: Noisy load [Wh].
        mean: Prior mean of the load [Wh].
        variance: Prior variance of the load [Wh^2].
        scale: Scale of the noise [Wh].

    Returns:
        The probability, in the broadcast shape.
    """
    below, above = map(_log_tail, _sides(load_hat - mean, variance, scale))
    return np.asarray(np.exp(below - np.logaddexp(below, above)))


def log_evidence(load_hat: float, mean: Floats, variance: Floats, scale: float) -> Floats:
    """Log density of a noisy load under N(mean, variance) plus Laplace noise.

    Args:
        load_hat: Noisy load [Wh].
        mean: Prior mean of the load [Wh], any shape.
        variance: Prior variance [Wh^2], in that shape.
        scale: Scale of the noise [Wh].

    Returns:
        The log density, in the shape of `mean`.
    """
    d = load_hat - mean
    below, above = _sides(d, variance, np.asarray(scale))
    tails = np.logaddexp(_log_tail(below), _log_tail(above))
    return np.asarray(tails - d**2 / (2 * variance) - math.log(2 * scale))


def _sides(d: Floats, v: Floats, b: Floats) -> tuple[Floats, Floats]:
    """How far [standard deviations] the load's law, tilted by the noise, lies beyond load_hat.

    The load is below load_hat (noise above 0) with a law tilted up by v/b, or above it with one
    tilted down.
    """
    s = np.sqrt(v)
    return (v / b - d) / s, (v / b + d) / s


def _log_tail(x: Floats) -> Floats:
    """log of e^(x^2/2) Phi(-x), for any x: nothing large cancels."""
    from scipy.special import erfcx, log_ndtr

    high = np.maximum(x, 0.0)
    low = np.minimum(x, 0.0)
    right = np.log(erfcx(high / math.sqrt(2)) / 2)
    return np.asarray(np.where(x >= 0, right, low**2 / 2 + log_ndtr(-low)))


def mean_beyond(x: Floats) -> Floats:
    """E[N - x given N > x] for a standard normal N.

    Args:
        x: Any numbers.

    Returns:
        The mean, above 0, in the shape of `x`.
    """
    from scipy.special import erfcx

    with np.errstate(over="ignore"):
        mills = math.sqrt(2 / math.pi) / erfcx(x / math.sqrt(2))
    return np.asarray(np.where(x > 1e5, 1 / np.maximum(x, 1.0), mills - x))


def posterior_weights(weights: Floats, log_evidence: Floats) -> Floats:
    """Bayes' rule for the weights of a mixture.

    Args:
        weights: Prior weights, any shape, summing to 1.
        log_evidence: Log likelihood of the observation under each part, in that shape.

    Returns:
        Posterior weights, summing to 1.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(weights) + log_evidence
    raised = np.exp(logs - logs.max())
    return np.asarray(raised / raised.sum())


def check_level(level: float) -> None:
    """Check the level of an interval.

    Args:
        level: Probability that the interval holds the load.

    Raises:
        PolicyError: If it is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise PolicyError(f"level is {level}; give a probability between 0 and 1.")


class Shape(NamedTuple):
    """Posterior mean and evidence of a normal load behind one noise law.

    Attributes:
        mean: E[Z given load_hat], a function like `posterior_mean`.
        evidence: Log density of load_hat, a function like `log_evidence`.
    """

    mean: Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike], Floats]
    evidence: Callable[[float, Floats, Floats, float], Floats]


def _gaussian_mean(
    load_hat: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike
) -> Floats:
    m, v, s = (np.asarray(x, np.float64) for x in (mean, variance, scale))
    return np.asarray(m + v / (v + s**2) * (np.asarray(load_hat) - m))


def _gaussian_evidence(load_hat: float, mean: Floats, variance: Floats, scale: float) -> Floats:
    total = variance + scale**2
    return np.asarray(-((load_hat - mean) ** 2) / (2 * total) - np.log(2 * math.pi * total) / 2)


LAPLACE = Shape(posterior_mean, log_evidence)

GAUSSIAN = Shape(_gaussian_mean, _gaussian_evidence)

# by the law's name; noise of a block of one step is Laplace, of a longer one see `block_halves`
SHAPES = {"laplace": LAPLACE, "gaussian": GAUSSIAN, "block": LAPLACE}

BLOCK_SIZES = 32  # cells of half-widths that the noise of a block may have


_REACH = 4.0  # normal scores of the smallest and the largest half-width


@lru_cache(maxsize=8)
def block_chances() -> Floats:
    """Probabilities of the cells of half-widths of a block's noise, see `block_halves`."""
    from scipy.special import ndtr

    chances = np.diff(ndtr(np.linspace(-_REACH, _REACH, BLOCK_SIZES + 1)))
    chances /= chances.sum()
    chances.flags.writeable = False
    return np.asarray(chances)


@lru_cache(maxsize=256)
def block_halves(steps: int) -> Floats:
    """Cells of half-widths that the noise of a block may have, relative to its scale.

    Given its size M the noise of a step is even on -M..M, and (M + 1/2)/scale is a gamma number of
    shape L + 1 (docs/proofs/blocks-of-steps.md). Inside a cell every half-width is equally likely:
    single half-widths would be edges that no noise has, and where they lie farther apart than the
    load varies, releases would seem to show it.

    Args:
        steps: Steps of the block, L.

    Returns:
        Ends of the cells, ascending: quantiles between which `block_chances` lie.

    >>> ends, chances = block_halves(6), block_chances()
    >>> middles = (ends[1:] + ends[:-1]) / 2
    >>> round(float(chances @ middles), 2), round(float(chances @ middles**2), 1)
    (7.01, 56.1)
    """
    from scipy.special import gammaincinv, ndtr

    halves = np.asarray(gammaincinv(steps + 1, ndtr(np.linspace(-_REACH, _REACH, BLOCK_SIZES + 1))))
    halves.flags.writeable = False
    return halves
