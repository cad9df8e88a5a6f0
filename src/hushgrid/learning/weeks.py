"""Figures of a home's weeks and days under the model that was learned of it.

Of each week: the mean score of the home's readings, and their mean rank under the model's laws in
each quarter of the day, which says whether more or less is used than the model expects, and when.

Whether a home still lives as it did is read from them (`drift`): a new period is compared with the
home's own weeks of the same time of year, less what all homes moved by. How far an unchanged home
may move comes from the days that the model was learned from: each part of them, as long as the new
period, is compared with the weeks around it in the same way.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Ints
from hushgrid.learning.evaluation import PublishedGroup, marginal_scores, scores_and_ranks
from hushgrid.learning.histories import DAY, LEAST_DAYS, Histories

FIGURES = ("score", "00-06 h", "06-12 h", "12-18 h", "18-24 h")
WEEK = 7  # [days]


def weekly_figures(
    histories: Histories, public: tuple[PublishedGroup, ...], group_of: Indices, top: int
) -> Floats:
    """The figures of each home's weeks, counted from the begin of the histories.

    Args:
        histories: The histories.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        (homes, weeks, figures); NaN for weeks with less than three known days.
    """
    score, rank = scores_and_ranks(histories, public, group_of, top)
    steps, quarter = histories.steps_a_day, histories.local_time % DAY * 4 // DAY
    parts = [score, *(np.where(quarter == q, rank, np.nan) for q in range(4))]
    day_known = np.isfinite(by_day(score, steps))
    figures = []
    for part in parts:
        days = part[:, : day_known.shape[1] * steps].reshape(*day_known.shape, steps)
        figures.append(np.where(day_known, mean_known(days, 2), np.nan))
    daily = np.stack(figures, axis=2)
    more = -daily.shape[1] % WEEK
    daily = np.pad(daily, ((0, 0), (0, more), (0, 0)), constant_values=np.nan)
    weeks = daily.reshape(len(daily), -1, WEEK, len(FIGURES))
    enough = np.isfinite(weeks).sum(axis=2) >= LEAST_DAYS
    return np.where(enough, mean_known(weeks, 2), np.nan)


def mean_known(values: Floats, axis: int) -> Floats:
    """Means of what is known.

    Args:
        values: Values, NaN where unknown.
        axis: The axis to average over.

    Returns:
        Means; NaN where nothing is known.
    """
    finite = np.isfinite(values)
    count = finite.sum(axis=axis)
    total = np.where(finite, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def daily_scores(
    histories: Histories, public: tuple[PublishedGroup, ...], group_of: Indices, top: int
) -> Floats:
    """Summary of each home's daily mean scores.

    Args:
        histories: The histories.
        public: The groups.
        group_of: (homes,) group of each home.
        top: Largest reading of the laws [Wh].

    Returns:
        (homes, 3) mean, standard deviation and number of days.
    """
    scores = by_day(marginal_scores(histories, public, group_of, top), histories.steps_a_day)
    rows = []
    for daily in scores:
        good = daily[np.isfinite(daily)]
        sd = float(good.std(ddof=1)) if len(good) > 1 else 0.0
        rows.append((float(good.mean()) if len(good) else 0.0, sd, float(len(good))))
    return np.array(rows)


def by_day(score: Floats, steps: int) -> Floats:
    """Means over whole days of which at least half is known.

    Args:
        score: (homes, steps) scores.
        steps: Steps of a day.

    Returns:
        (homes, days) means, NaN for other days.
    """
    days = score[:, : score.shape[1] // steps * steps].reshape(len(score), -1, steps)
    finite = np.isfinite(days)
    total = np.where(finite, days, 0.0).sum(axis=2)
    count = finite.sum(axis=2)
    return np.where(count * 2 >= steps, total / np.maximum(count, 1), np.nan)


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
