"""Figures of a home's weeks and days under the model that was learned of it.

Of each week: the mean score of the home's readings, and their mean rank under the model's laws in
each quarter of the day, which says whether more or less is used than the model expects, and when.
"""

from __future__ import annotations

import numpy as np

from hushgrid._numbers import Floats, Indices
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
