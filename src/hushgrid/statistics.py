"""Means with their uncertainty, and scores of a belief about occupancy.

AUC, log loss, Brier score and accuracy are each given for the belief and for the prior, so that
what was learnt from releases is separated from what was known before. Steps of one house are not
independent, so intervals resample whole clusters: one day of a house, or pieces of the day where
there are few houses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._frames import DataTable, Tabular, check_labels
from hushgrid._numbers import Floats, Ints, brief, count_of
from hushgrid.errors import ModelError


class Summary(NamedTuple):
    """Mean, standard deviation and 95 % interval of the mean over independent days.

    Attributes:
        mean: Mean of the values.
        sd: Standard deviation of one value; NaN for fewer than two values.
        ci95: Ends of the 95 % interval of the mean; NaN for fewer than two values.
    """

    mean: float
    sd: float
    ci95: tuple[float, float]


def summarise(values: ArrayLike) -> Summary:
    """Student's interval for a mean.

    Args:
        values: Independent values, one a day; any shape.

    Returns:
        Their mean, standard deviation and 95 % interval.

    >>> summarise([1.0, 2.0, 3.0]).mean
    2.0
    """
    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    if x.size < 2:
        return Summary(mean, math.nan, (math.nan, math.nan))
    sd = float(x.std(ddof=1))
    half = student(x.size - 1) * sd / math.sqrt(x.size)
    return Summary(mean, sd, (mean - half, mean + half))


def ratio_of_means(above: ArrayLike, below: ArrayLike) -> Summary:
    """mean(above)/mean(below) of paired days, with the interval of the linearised ratio.

    Args:
        above: Values of the numerator, (days,).
        below: Values of the denominator on the same days, (days,).

    Returns:
        The ratio with its interval; NaN where mean(below) is 0.
    """
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    if b.mean() == 0:
        return Summary(math.nan, math.nan, (math.nan, math.nan))
    ratio = float(a.mean() / b.mean())
    centred = summarise((a - ratio * b) / b.mean())
    low, high = centred.ci95
    return Summary(ratio, centred.sd, (ratio + low, ratio + high))


def next_one(values: ArrayLike, chance: float) -> tuple[float, float]:
    """Prediction interval of one more value from the same log-normal law.

    Args:
        values: Positive values, (n,), two or more.
        chance: Probability that the interval holds the next value, between 0 and 1.

    Returns:
        The low and the high end.

    >>> low, high = next_one([0.9, 1.0, 1.1], 0.95)
    >>> round(low, 1), round(high, 1)
    (0.6, 1.6)
    """
    x = np.log(np.asarray(values, np.float64))
    spread = float(x.std(ddof=1)) * math.sqrt(1 + 1 / x.size)
    half = student(x.size - 1, (1 + chance) / 2) * spread
    return math.exp(float(x.mean()) - half), math.exp(float(x.mean()) + half)


def student(freedom: float, quantile: float = 0.975) -> float:
    """Quantile of Student's law.

    Args:
        freedom: Degrees of freedom, above 0.
        quantile: Probability.

    Returns:
        The value that is not exceeded with that probability.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, quantile))


RESAMPLES = 1000
PIECE = 8  # steps: two hours of quarter hours, about as long as a chain remembers
LEAST = 1e-12  # no belief is surer than this when its log is taken
_MOST = 2000  # clusters; more houses than that are drawn several together
_FEW = 8  # clusters below which a house's day is cut into pieces


@dataclass(frozen=True, slots=True)
class Score:
    """A figure of merit of the belief and of the prior, with 95 % intervals.

    Attributes:
        value: The figure of the belief.
        prior: The figure of the prior.
        ci95: 95 % interval of `value`.
        prior_ci95: 95 % interval of `prior`.
        gain_ci95: 95 % interval of `gain`.
    """

    value: float
    prior: float
    ci95: tuple[float, float]
    prior_ci95: tuple[float, float]
    gain_ci95: tuple[float, float]

    @property
    def gain(self) -> float:
        """Belief minus prior."""
        return self.value - self.prior


@dataclass(frozen=True, slots=True)
class Scores(Tabular):
    """All figures of merit of one belief.

    Attributes:
        auc: Area under the ROC curve.
        log_loss: Mean negative log of the probability given to the truth.
        brier: Mean squared error of the probability.
        accuracy: Share of steps guessed right.
        steps: Number of steps T.
        houses: Number of houses N.
        clusters: Number of clusters that the intervals resample.
    """

    auc: Score
    log_loss: Score
    brier: Score
    accuracy: Score
    steps: int
    houses: int
    clusters: int

    def __repr__(self) -> str:
        figures = (f"{name} {getattr(self, name).value:.3g}" for name in FIGURES)
        steps, houses = count_of("step", self.steps), count_of("house", self.houses)
        return brief(self, houses, steps, *figures, names=())

    def _table(self) -> DataTable:
        """A row a figure: of the belief, of the prior, and their difference, with intervals."""
        rows = [getattr(self, name) for name in FIGURES]
        columns: dict[str, list[float]] = {}
        for name, interval in (("value", "ci95"), ("prior", "prior_ci95"), ("gain", "gain_ci95")):
            columns[name] = [getattr(score, name) for score in rows]
            for at, end in enumerate(("low", "high")):
                columns[f"{name}_{end}"] = [getattr(score, interval)[at] for score in rows]
        return DataTable("figure", FIGURES, columns)


FIGURES = ("auc", "log_loss", "brier", "accuracy")


def scores(
    beliefs: ArrayLike, truth: ArrayLike, prior: ArrayLike | None = None, *, seed: int = 1
) -> Scores:
    """Score beliefs about occupancy against the truth.

    Args:
        beliefs: Chance of being at home, (T, N) from 0 to 1; or what `watch` and `look_back`
            return, whose average over the models is scored.
        truth: Occupancy, (T, N) of 0 and 1.
        prior: The chance before any release, (T, N); None: the share of all steps at home.
        seed: Seed of the resamples.

    Returns:
        Every figure with its interval. AUC is NaN where the houses were at home always or never.

    Raises:
        ModelError: If the shapes or the labels of data frames differ, or a value is out of range.

    >>> found = scores([[0.2], [0.9], [0.6], [0.7]], [[0], [1], [1], [0]])
    >>> found.auc.value, found.auc.prior, found.accuracy.value
    (0.75, 0.5, 0.75)
    """
    chances: ArrayLike = getattr(beliefs, "averaged", beliefs)
    check_labels(ModelError, beliefs=chances, truth=truth, prior=prior)
    s, p, q = _checked(truth, chances, chances if prior is None else prior)
    q = np.full_like(s, s.mean()) if prior is None else q
    groups = _clusters(*s.shape)
    n = int(groups.max()) + 1
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), RESAMPLES)
    figures = [
        _score(figure, s, p, q, groups, draws) for figure in (_auc, _log_loss, _brier, _accuracy)
    ]
    return Scores(figures[0], figures[1], figures[2], figures[3], s.shape[0], s.shape[1], n)


def auc(beliefs: ArrayLike, truth: ArrayLike) -> float:
    """Chance that a step at home is given a higher belief than one away, ties half; exact.

    Args:
        beliefs: Chance of being at home, (T, N) from 0 to 1.
        truth: Occupancy, (T, N) of 0 and 1.

    Returns:
        The AUC; NaN where the houses were at home always or never.

    >>> auc([[0.2], [0.9], [0.6], [0.7]], [[0], [1], [1], [0]])
    0.75
    """
    s, p, _ = _checked(truth, beliefs, beliefs)
    return mean_auc(p.reshape(-1, 1), s.reshape(-1, 1))


def _checked(*arrays: ArrayLike) -> tuple[Floats, Floats, Floats]:
    s, p, q = (np.asarray(array, np.float64) for array in arrays)
    if s.ndim != 2 or s.size == 0 or p.shape != s.shape or q.shape != s.shape:
        raise ModelError(
            f"truth, belief and prior have shapes {s.shape}, {p.shape}, {q.shape};"
            " give the same (steps, houses) for each."
        )
    if not np.isin(s, (0.0, 1.0)).all():
        raise ModelError("truth is not 0 or 1 everywhere; give occupancy.")
    if not (((p >= 0) & (p <= 1)).all() and ((q >= 0) & (q <= 1)).all()):
        raise ModelError("belief or prior is not within 0 to 1 everywhere; give chances.")
    return s, p, q


def _clusters(steps: int, houses: int) -> Ints:
    """(T, N): which steps are drawn together."""
    if houses >= _FEW:
        return np.broadcast_to(np.arange(houses) % _MOST, (steps, houses))
    pieces = max(steps // PIECE, 1)
    piece = np.minimum(np.arange(steps) // PIECE, pieces - 1)
    return np.asarray(piece[:, None] + pieces * np.arange(houses))


_Figure = Callable[[Floats, Floats, Ints, Ints], Floats]


def _score(figure: _Figure, s: Floats, p: Floats, q: Floats, groups: Ints, draws: Ints) -> Score:
    """The first row of weights counts each cluster once: that is the figure itself."""
    weights = np.concatenate([np.ones((1, draws.shape[1]), np.int64), draws])
    of_p, of_q = (figure(s, beliefs, groups, weights) for beliefs in (p, q))
    return Score(
        float(of_p[0]),
        float(of_q[0]),
        _middle(of_p[1:]),
        _middle(of_q[1:]),
        _middle(of_p[1:] - of_q[1:]),
    )


def _middle(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return (math.nan, math.nan)
    low, high = np.quantile(finite, (0.025, 0.975))
    return float(low), float(high)


def _mean(values: Floats, groups: Ints, weights: Ints) -> Floats:
    n = weights.shape[1]
    sums = np.bincount(groups.ravel(), values.ravel(), n)
    sizes = np.bincount(groups.ravel(), minlength=n)
    return np.asarray((weights @ sums) / (weights @ sizes))


def _log_loss(s: Floats, p: Floats, groups: Ints, weights: Ints) -> Floats:
    of_truth = np.where(s == 1, p, 1 - p)
    return _mean(-np.log(np.maximum(of_truth, LEAST)), groups, weights)


def _brier(s: Floats, p: Floats, groups: Ints, weights: Ints) -> Floats:
    return _mean((p - s) ** 2, groups, weights)


def _accuracy(s: Floats, p: Floats, groups: Ints, weights: Ints) -> Floats:
    """A guess at exactly one half is right half of the time."""
    correct = np.where(p == 0.5, 0.5, (p > 0.5) == (s == 1))
    return _mean(correct, groups, weights)


def _auc(s: Floats, p: Floats, groups: Ints, weights: Ints) -> Floats:
    """Chance that a step at home is believed in more than one away, ties half (Mann-Whitney).

    Beliefs are put into at most 2,000 bins of equal count, each a tie: the resamples then cost a
    matrix product. With fewer distinct beliefs than that nothing is lost, else at most 2.5e-4.
    """
    rank = _bins(p.ravel())
    n, bins = weights.shape[1], int(rank.max()) + 1
    home = s.ravel() == 1
    flat = groups.ravel().astype(np.int64) * bins + rank
    of_home = np.bincount(flat[home], minlength=n * bins).reshape(n, bins)
    of_away = np.bincount(flat[~home], minlength=n * bins).reshape(n, bins)
    aucs = np.empty(len(weights))
    for first in range(0, len(weights), 100):
        chunk = weights[first : first + 100].astype(np.float64)
        at_home, away = chunk @ of_home, chunk @ of_away
        below = np.cumsum(away, axis=1) - away
        wins = (at_home * (below + away / 2)).sum(axis=1)
        pairs = at_home.sum(axis=1) * away.sum(axis=1)
        with np.errstate(invalid="ignore"):
            aucs[first : first + 100] = np.where(pairs > 0, wins / pairs, np.nan)
    return aucs


_BINS = 2000


def _bins(p: Floats) -> Ints:
    distinct, rank = np.unique(p, return_inverse=True)
    if len(distinct) <= _BINS:
        return np.asarray(rank, np.int64)
    edges = np.unique(np.quantile(p, np.linspace(0, 1, _BINS + 1)[1:-1]))
    return np.asarray(np.searchsorted(edges, p, side="right"), np.int64)


def mean_auc(chance: Floats, home: NDArray[np.generic]) -> float:
    """Mean AUC over the houses that were both at home and away.

    Args:
        chance: Chance of being at home, (T, houses).
        home: Occupancy, (T, houses) of 0 and 1.

    Returns:
        The mean; NaN where no house was both.

    >>> mean_auc(np.array([[0.1], [0.4], [0.4], [0.9]]), np.array([[0], [0], [1], [1]]))
    0.875
    """
    from scipy.stats import rankdata

    at_home = np.asarray(home) > 0
    n1 = at_home.sum(axis=0)
    n0 = len(home) - n1
    mixed = (n1 > 0) & (n0 > 0)
    if not mixed.any():
        return math.nan
    ranks = rankdata(chance[:, mixed], axis=0)
    above = np.where(at_home[:, mixed], ranks, 0.0).sum(axis=0)
    wins = above - n1[mixed] * (n1[mixed] + 1) / 2
    return float((wins / (n1[mixed] * n0[mixed])).mean())
