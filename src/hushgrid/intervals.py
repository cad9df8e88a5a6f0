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


def _student(freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
