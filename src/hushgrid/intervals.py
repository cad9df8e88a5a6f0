"""Means with their uncertainty."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Summary(NamedTuple):
    """Mean, standard deviation and 95 % interval of the mean over independent days."""

    mean: float
    sd: float
    ci95: tuple[float, float]


def summarise(values: ArrayLike) -> Summary:
    """Student's interval for a mean.

    >>> summarise([1.0, 2.0, 3.0]).mean
    2.0
    """
    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    if x.size < 2:
        return Summary(mean, math.nan, (math.nan, math.nan))
    sd = float(x.std(ddof=1))
    half = _student(x.size - 1) * sd / math.sqrt(x.size)
    return Summary(mean, sd, (mean - half, mean + half))


def ratio_of_means(above: ArrayLike, below: ArrayLike) -> Summary:
    """mean(above)/mean(below) of paired days, with the interval of the linearised ratio.

    NaN where nothing lies below.
    """
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    if b.mean() == 0:
        return Summary(math.nan, math.nan, (math.nan, math.nan))
    ratio = float(a.mean() / b.mean())
    centred = summarise((a - ratio * b) / b.mean())
    low, high = centred.ci95
    return Summary(ratio, centred.sd, (ratio + low, ratio + high))


def next_one(values: ArrayLike, chance: float) -> tuple[float, float]:
    """Where one more value of the same kind lies with that chance; positive values, by their logs.

    >>> low, high = next_one([0.9, 1.0, 1.1], 0.95)
    >>> round(low, 1), round(high, 1)
    (0.6, 1.6)
    """
    x = np.log(np.asarray(values, np.float64))
    spread = float(x.std(ddof=1)) * math.sqrt(1 + 1 / x.size)
    half = _student(x.size - 1, (1 + chance) / 2) * spread
    return math.exp(float(x.mean()) - half), math.exp(float(x.mean()) + half)


def _student(freedom: int, quantile: float = 0.975) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, quantile))
