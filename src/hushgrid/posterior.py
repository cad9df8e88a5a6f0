"""What a noisy sight of a normal load says of it: its mean, and how likely the sight was.

One Shape for each kind of noise; nothing here knows of time, models or factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid.arrays import Floats
from hushgrid.errors import NoiseError, PolicyError


def posterior_mean(
    load_hat: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike
) -> Floats:
    """E[Z given load_hat] for Z ~ N(mean, variance) and Laplace noise of `scale` [Wh].

    It never moves more than variance/scale from the mean.

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
    found = z + s * ((1 - share) * _beyond(above) - share * _beyond(below))
    return np.asarray(np.clip(found, m - v / b, m + v / b))


def chance_below(load_hat: Floats, mean: Floats, variance: Floats, scale: Floats) -> Floats:
    """Pr[Z < load_hat given load_hat] for such a load and such noise."""
    below, above = map(_log_tail, _sides(load_hat - mean, variance, scale))
    return np.asarray(np.exp(below - np.logaddexp(below, above)))


def log_evidence(load_hat: float, mean: Floats, variance: Floats, scale: float) -> Floats:
    """log density of the noisy load under N(mean, variance) plus Laplace noise."""
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


def _beyond(x: Floats) -> Floats:
    """E[N - x given N > x] for a standard normal N."""
    from scipy.special import erfcx

    with np.errstate(over="ignore"):
        mills = math.sqrt(2 / math.pi) / erfcx(x / math.sqrt(2))
    return np.asarray(np.where(x > 1e5, 1 / np.maximum(x, 1.0), mills - x))


class Shape(NamedTuple):
    """How noise of one kind is read: the mean of a load behind it, and its evidence."""

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
SHAPES = {"laplace": LAPLACE, "gaussian": GAUSSIAN}  # by the law's name
