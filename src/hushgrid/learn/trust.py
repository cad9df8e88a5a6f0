"""How far to trust laws: the share of readings they misdescribe, from below and from above.

The dial eta says: given occupancy, a reading follows (1 - eta) f + eta g with g arbitrary. So for
every set B of readings p(B) >= (1 - eta) f(B). A few bins of about equal mass under f are such
sets: eta is at least 1 - p(B)/f(B). With labels p is seen for each state, and an upper confidence
bound follows, at the resolution of the bins. Without labels only the mixture of both states is
seen: a lower bound, and eta stays an assumption. Readings of a day hang together, so days are the
units of confidence (design effect), and all bins are judged at once (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hushgrid.arrays import Bools, Floats, Ints
from hushgrid.laws import Law

BINS = 5


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Readings of one state and slot group held against one law."""

    name: str
    readings: int
    effective: float  # independent readings that they are worth
    point: float  # eta as it looks
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class TrustBounds:
    """Bounds on the misdescribed share with their confidence; `upper` is None without labels."""

    lower: float
    upper: float | None
    confidence: float
    cells: tuple[LawCheck, ...]

    @property
    def suggested(self) -> float:
        """An eta to set: the upper bound rounded up, or 1 where nothing supports less."""
        if self.upper is None or self.upper >= 0.9:
            return 1.0
        return min(1.0, math.ceil(self.upper * 100) / 100)

    @property
    def reasoning(self) -> str:
        """Why."""
        if self.upper is None:
            return (
                f"no labels: the readings show that at least {self.lower:.1%} is misdescribed"
                f" ({self.confidence:.0%} confidence); nothing bounds it from above, so any eta"
                " below 1 is an assumption of whoever sets it"
            )
        worst = max(self.cells, key=lambda cell: cell.upper)
        return (
            f"labels: at most {self.upper:.1%} of readings is misdescribed at {self.confidence:.0%}"
            f" confidence, {BINS} bins a law; the worst is {worst.name}, {worst.readings} readings"
            f" worth {worst.effective:.0f} independent ones"
        )


def quantile_bins(law: Law, bins: int = BINS) -> Ints:
    """Upper ends [Wh] of bins of about equal mass under the law; the last is its top."""
    cdf = np.cumsum(law.pmf)
    ends = np.searchsorted(cdf, np.arange(1, bins) / bins)
    return np.unique(np.append(ends, law.top)).astype(np.int64)


def held_against(
    name: str, law: Law, readings: Floats, days: Ints, confidence: float, cells: int
) -> LawCheck:
    """Readings that should follow a law; `days` says which belong together."""
    seen = np.isfinite(readings)
    x, day = np.clip(np.rint(readings[seen]), 0, law.top).astype(np.int64), days[seen]
    ends = quantile_bins(law)
    f = np.diff(np.concatenate([[0.0], np.cumsum(law.pmf)[ends]]))
    inside = np.searchsorted(ends, x)[:, None] == np.arange(len(ends))
    if not len(x):
        return LawCheck(name, 0, 0.0, 0.0, 0.0, 1.0)
    p, effective = inside.mean(axis=0), _effective(inside, day)
    tail = (1 - confidence) / (cells * len(ends))
    low, high = clopper_pearson(p, effective, tail)
    # p(B) >= (1 - eta) f(B) holds for a bin without mass, whatever eta is
    known = f > 0
    point, lower, upper = (float((1 - at[known] / f[known]).max()) for at in (p, high, low))
    return LawCheck(
        name, len(x), float(effective.min()), max(point, 0), max(lower, 0), max(upper, 0)
    )


def _effective(inside: Bools, day: Ints) -> Floats:
    """Independent readings that each bin's readings are worth: n over the design effect."""
    n, p = len(inside), inside.mean(axis=0)
    _, index = np.unique(day, return_inverse=True)
    days = int(index.max()) + 1
    off = np.zeros((days, inside.shape[1]))
    np.add.at(off, index, inside - p)
    clustered = (off**2).sum(axis=0) * days / max(days - 1, 1)
    alone = np.maximum(n * p * (1 - p), 1e-9)
    return np.asarray(n / np.maximum(clustered / alone, 1.0))


def clopper_pearson(p: Floats, n: Floats, tail: float) -> tuple[Floats, Floats]:
    """Exact limits for shares p of n, each side with probability `tail`; n need not be whole."""
    from scipy.special import betaincinv

    k = p * n
    low = np.where(k > 0, betaincinv(np.maximum(k, 1e-12), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1e-12), 1 - tail), 1.0)
    return low, high


def trust(cells: Iterable[LawCheck], confidence: float, *, labelled: bool) -> TrustBounds:
    """The worst of all cells: eta must hold in each of them."""
    every = tuple(cells)
    seen = [cell for cell in every if cell.readings]
    lower = max((cell.lower for cell in seen), default=0.0)
    upper = max((cell.upper for cell in every), default=1.0) if labelled else None
    return TrustBounds(lower, None if upper is None else min(upper, 1.0), confidence, every)


def welch(old: tuple[float, float, int], new: Floats) -> tuple[float, float]:
    """Welch's t and its two-sided p for new daily values against (mean, sd, days) of old ones."""
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
