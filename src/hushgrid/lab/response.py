"""Elasticity of demand from a trial: some homes pay a dynamic price, the others a flat one.

Each home's readings are regressed on the log of the dynamic price, with an effect for every slot of
the home's own. The slopes of a group over its mean consumption are the elasticity of its load.
Weather and holidays move both groups, so the figure of the homes on the flat price is subtracted
(difference in differences). Homes are the independent units of the interval, since readings of one
home hang together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Bools, Floats
from hushgrid.errors import ReadingError
from hushgrid.statistics import Summary, ratio_of_means, student


def price_elasticity(
    readings: ArrayLike, on_trial: ArrayLike, price: ArrayLike, slot: ArrayLike
) -> Summary:
    """Own-price elasticity of a group's load, with Welch's 95 % interval over homes.

    Args:
        readings: Consumption, (homes, T), NaN where missing; any unit.
        on_trial: Whether a home pays the dynamic price, (homes,).
        price: The dynamic price, (T,), above 0.
        slot: Whole number for each step: steps of one slot share an effect, such as the half hour
            of a weekday in a month, (T,).

    Returns:
        The elasticity, below 0 where demand falls with the price; `sd` is its standard error.

    Raises:
        ReadingError: If shapes do not fit, a price is not above 0, or a group has fewer than two
            homes whose readings can be used.

    >>> t = np.arange(400)
    >>> price = np.where(t % 3 == 0, 2.0, 1.0)
    >>> homes = [(1 + a / 10) * (2 + t % 2) for a in range(6)]
    >>> moved = [h * (price**-0.1 if i < 3 else 1) for i, h in enumerate(homes)]
    >>> round(price_elasticity(moved, [1, 1, 1, 0, 0, 0], price, t % 2).mean, 2)
    -0.1
    """
    x, y = np.asarray(price, np.float64), np.asarray(readings, np.float64)
    trial, place = np.asarray(on_trial, np.bool_), np.asarray(slot, np.int64)
    if y.ndim != 2 or trial.shape != y.shape[:1] or {x.shape, place.shape} != {y.shape[1:]}:
        raise ReadingError(
            f"readings, on_trial, price and slot have shapes {y.shape}, {trial.shape}, {x.shape},"
            f" {place.shape}; give (homes, T), (homes,), (T,) and (T,)."
        )
    if not (x > 0).all():
        raise ReadingError("price is not above 0 everywhere; give the price of each step.")
    slopes = np.array([_slope(home, np.log(x), place) for home in y])
    usable = np.isfinite(slopes).all(axis=1)
    groups = [slopes[group & usable] for group in (trial, ~trial)]
    sizes = [len(group) for group in groups]
    if min(sizes) < 2:
        raise ReadingError(
            f"{sizes[0]} homes on the dynamic price and {sizes[1]} others have readings at"
            " different prices; give two or more of each."
        )
    trial_slope, control_slope = (ratio_of_means(*group.T) for group in groups)
    squares = [
        slope.sd**2 / n for slope, n in zip((trial_slope, control_slope), sizes, strict=True)
    ]
    error, mean = math.sqrt(sum(squares)), trial_slope.mean - control_slope.mean
    freedom = sum(v**2 / (n - 1) for v, n in zip(squares, sizes, strict=True))
    half = student(error**4 / freedom) * error if freedom else 0.0
    return Summary(mean, error, (mean - half, mean + half))


def _slope(home: Floats, x: Floats, slot: NDArray[np.int64]) -> tuple[float, float]:
    """Of a home's readings on x, both about their means in each slot; and the mean reading."""
    mask: Bools = np.isfinite(home)
    slots, number = slot[mask], np.bincount(slot[mask])

    def centred(values: Floats) -> Floats:
        return np.asarray(values - (np.bincount(slots, values) / np.maximum(number, 1))[slots])

    if not mask.any() or not (spread := float(np.square(residual := centred(x[mask])).sum())) > 0:
        return math.nan, math.nan
    return float(residual @ home[mask]) / spread, float(home[mask].mean())
