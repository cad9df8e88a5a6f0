"""Whether a home still lives as it did when its model was learned.

A home is described by the figures of its weeks (`hushgrid.learning.weeks`). A new period is
compared with the home's own weeks of the same time of year, less what all homes moved by. How far
an unchanged home may move comes from the days that the model was learned from: each part of them,
as long as the new period, is compared with the weeks around it in the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Ints
from hushgrid.learning.histories import DAY
from hushgrid.learning.weeks import WEEK, mean_known

NEIGHBOURS = 8  # homes from which what all have in common is known
SEASON = 28.0  # [days] before and after a period, that have its season
_YEAR = 365.25  # [days]
_PRIOR = 4.0  # parts that the neighbours' spread counts as much as


class Drift(NamedTuple):
    """How far homes moved.

    Attributes:
        t: (homes,) movement of the figure that moved most, over its spread.
        p: (homes,) chance of as much in an unchanged home, with all figures considered.
        figure: (homes,) number of that figure.
    """

    t: Floats
    p: Floats
    figure: Ints


def drift(old: Floats, old_begins: int, new: Floats, begins: int) -> Drift:
    """Compare a new period of homes with their own weeks of the season and with their neighbours.

    Args:
        old: (homes, weeks, figures) that the model was learned from, two weeks or more.
        old_begins: Their begin [UTC s].
        new: (homes, weeks, figures) of the new period.
        begins: Its begin [UTC s].

    Returns:
        The movement of each home; p is 1 where nothing can be compared.
    """
    from scipy.special import stdtr

    weeks = old.shape[1]
    long = min(new.shape[1], weeks // 2)
    middle = np.asarray(old_begins / DAY + WEEK * (np.arange(weeks) + 0.5), np.float64)
    errors = []
    for first in range(0, weeks - long + 1, long):
        inside = np.zeros(weeks, bool)
        inside[first : first + long] = True
        season = _in_season(middle, middle[inside].mean(), long) & ~inside
        errors.append(_difference(old[:, inside], old[:, season], old[:, ~inside]))
    squares = np.array(errors) ** 2
    parts = np.isfinite(squares).sum(axis=0)
    spread = mean_known(squares, 0)
    prior = _PRIOR if len(old) >= NEIGHBOURS else 0.0
    finite = spread[np.isfinite(spread).all(axis=1)]
    usual = np.median(finite, axis=0) if prior and len(finite) else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt((np.nan_to_num(spread) * parts + usual * prior) / (parts + prior))
        season = _in_season(middle, begins / DAY + WEEK * new.shape[1] / 2, new.shape[1])
        t = _difference(new, old[:, season], old) / spread
    t = np.where(np.isfinite(t), t, 0.0)
    figure = np.abs(t).argmax(axis=1)
    home = np.arange(len(t))
    p = 2 * stdtr(np.maximum(parts + prior, 1), -np.abs(t)) * t.shape[1]
    return Drift(t[home, figure], np.minimum(p[home, figure], 1.0), figure)


def _in_season(middle: Floats, centre: float, weeks: int) -> Bools:
    """The weeks whose time of year is that of a period, or within `SEASON` of it."""
    distance = np.abs((middle - centre + _YEAR / 2) % _YEAR - _YEAR / 2)
    return np.asarray(distance <= WEEK * weeks / 2 + SEASON)


def _difference(weeks: Floats, season: Floats, year: Floats) -> Floats:
    """(homes, figures) difference of mean weeks, less the middle one of all homes.

    A home without weeks of the season is compared with every week it has.
    """
    usual = mean_known(season, 1)
    gaps = mean_known(weeks, 1) - np.where(np.isfinite(usual), usual, mean_known(year, 1))
    if len(gaps) >= NEIGHBOURS:
        finite = np.isfinite(gaps).all(axis=1)
        gaps = gaps - (np.median(gaps[finite], axis=0) if finite.any() else 0.0)
    return gaps


def welch(old: tuple[float, float, int], new: Floats) -> tuple[float, float]:
    """Welch's test of new daily values against earlier ones.

    Args:
        old: Mean, standard deviation and number of earlier days.
        new: New daily values; NaN is left out.

    Returns:
        t and its two-sided p-value; (0, 1) with too few days.
    """
    from scipy.special import stdtr

    mean, sd, days = old
    new = new[np.isfinite(new)]
    if days < 2 or len(new) < 2:
        return 0.0, 1.0
    a, b = sd**2 / days, float(new.var(ddof=1)) / len(new)
    if a + b <= 0:
        return 0.0, 1.0
    t = (float(new.mean()) - mean) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (days - 1) + b**2 / (len(new) - 1))
    return t, float(2 * stdtr(freedom, -abs(t)))
