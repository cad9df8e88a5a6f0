"""Whether a home was away for days: the likelihood ratio of an adversary who knows all else.

With every other reading known, a release shows the noise and what this home adds. A block of noise
has the law e^(-max |n_t| / b), so at a difference d_t of the home's two courses it adds
(max |n_t| - max |n_t + d_t|) / b to the log-likelihood ratio. No test finds more absences at as
many false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats, brief
from hushgrid.errors import ModelError
from hushgrid.mechanism.noise import SimulatedNoise

STARTS = 20  # places in the turn of the blocks at which absences begin
_FALSE_ALARMS = 0.01


class NoiseBlocks(NamedTuple):
    """Blocks of noise that repeat for ever; a step with noise of its own is a block of one.

    Attributes:
        lengths: Steps of each block.
        scales: Scale of the noise of each block [Wh]; 0: none.
    """

    lengths: tuple[int, ...]
    scales: tuple[float, ...]

    @classmethod
    def of_steps(cls, lengths: Sequence[int], scales: Sequence[float]) -> NoiseBlocks:
        """The noise of a schedule.

        Args:
            lengths: Steps of each of its blocks; none: noise of its own at every step.
            scales: Scale of the noise at every step [Wh].

        Returns:
            The blocks.
        """
        blocks = tuple(lengths) or (1,) * len(scales)
        starts = np.cumsum((0, *blocks[:-1]))
        return cls(blocks, tuple(scales[start] for start in starts.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class Absence:
    """How well one home's absence is told from its presence.

    Attributes:
        present: Log-likelihood ratios for an absence where the home was there, (draws,).
        away: The same where it was away, (draws,).
    """

    present: Floats
    away: Floats

    __repr__ = brief

    @property
    def auc(self) -> float:
        """Chance that an absence has a larger ratio than a presence."""
        return float(self._wins()[0].mean())

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval of the AUC (DeLong, DeLong and Clarke-Pearson 1988)."""
        wins, losses = self._wins()
        if len(wins) < 2 or len(losses) < 2:
            return 0.0, 1.0
        spread = wins.var(ddof=1) / len(wins) + losses.var(ddof=1) / len(losses)
        half = 1.959964 * math.sqrt(float(spread))
        return max(self.auc - half, 0.0), min(self.auc + half, 1.0)

    def detected(self, false_alarms: float = _FALSE_ALARMS) -> float:
        """Share of absences found.

        Args:
            false_alarms: Largest share of presences that are taken for absences.

        Returns:
            The share.
        """
        return float(np.interp(false_alarms, *self.roc()))

    def roc(self) -> tuple[Floats, Floats]:
        """Shares of false alarms and of absences found, from no threshold's to any one's.

        Between two thresholds a test that draws lots lies on the line between them.
        """
        at = np.unique(np.concatenate([self.present, self.away]))[::-1]
        above = (1 - np.searchsorted(np.sort(x), at) / len(x) for x in (self.present, self.away))
        alarms, detections = (np.concatenate([[0.0], shares]) for shares in above)
        return alarms, detections

    def _wins(self) -> tuple[Floats, Floats]:
        """For each absence the share of presences below it; for each presence that above it."""
        return _share_below(self.present, self.away), 1 - _share_below(self.away, self.present)


def _share_below(values: Floats, at: Floats) -> Floats:
    """Share of values below each place; equal ones count half."""
    order = np.sort(values)
    sides = (np.searchsorted(order, at, side="left"), np.searchsorted(order, at, side="right"))
    return np.asarray(sum(sides) / 2 / len(order), np.float64)


def absences(
    noise: NoiseBlocks,
    less: Floats,
    *,
    draws: int = 4000,
    seed: int = 1,
    starts: Sequence[int] | None = None,
    tick: Callable[[], object] = lambda: None,
) -> list[Absence]:
    """Attack absences that begin anywhere in the turn of the blocks.

    Args:
        noise: Noise of the releases.
        less: What each home uses less in each step of its absence, as far as releases show it
            (below the clamp), (homes, steps) [Wh].
        draws: Presences and absences of each home.
        seed: Seed of the noise; all homes have the same.
        starts: Steps of the turn at which absences begin, from 0, each as often; None: `STARTS`
            that are drawn.
        tick: Called after each of them.

    Returns:
        One for each home.

    Raises:
        ModelError: If there is no home, no step or no draw.

    >>> one = absences(NoiseBlocks((4,), (100.0,)), np.full((1, 8), 50.0), draws=1000)[0]
    >>> 0.6 < one.auc < 0.75
    True
    """
    if less.ndim != 2 or not less.size or draws < 1:
        raise ModelError(
            f"less has shape {less.shape} with {draws} draws; give one home, one step and one draw"
            " or more."
        )
    if starts is None:
        draw_starts = np.random.default_rng(seed).integers(sum(noise.lengths), size=STARTS)
        starts = draw_starts.tolist()
    source = SimulatedNoise(seed)
    count = -(-draws // len(starts))
    ratios = np.zeros((2, less.shape[0], len(starts), count))
    for number, start in enumerate(starts):
        for side in (0, 1):
            ratios[side, :, number] = _ratios(noise, less, start, source, count, bool(side))
        tick()
    ratios = np.round(ratios, 9)  # equal sums are equal, in whatever order they were added
    present, away = ratios.reshape(2, len(less), -1)
    return [Absence(presence, absence) for presence, absence in zip(present, away, strict=True)]


class _PartOfBlock(NamedTuple):
    """The part of a block inside the absence: its steps from `first` on, `inside` of them."""

    length: int
    scale: float
    first: int
    inside: int


def _parts(noise: NoiseBlocks, start: int, steps: int) -> Iterator[_PartOfBlock]:
    """The blocks that an absence touches."""
    ends = np.cumsum(noise.lengths)
    k = int(np.searchsorted(ends, start, side="right"))
    first = start - int(ends[k]) + noise.lengths[k]
    while steps > 0:
        length = noise.lengths[k]
        inside = min(length - first, steps)
        yield _PartOfBlock(length, noise.scales[k], first, inside)
        steps -= inside
        k, first = (k + 1) % len(noise.lengths), 0


def _ratios(
    noise: NoiseBlocks, less: Floats, start: int, source: SimulatedNoise, count: int, away: bool
) -> Floats:
    """(homes, count): log-likelihood ratios of one absence, or of as long a presence."""
    homes, steps = less.shape
    total, at = np.zeros((homes, count)), 0
    for part, blocks in groupby(_parts(noise, start, steps)):
        times = sum(1 for _ in blocks)
        d = less[:, at : at + times * part.inside].reshape(homes, times, part.inside)
        at += times * part.inside
        if part.scale == 0:  # an exact load shows any difference
            differs = np.asarray(d.any(axis=(1, 2)))[:, None]
            total += np.where(differs, math.inf if away else -math.inf, 0.0)
            continue
        noises = source.blocks(part.scale, part.length, count * times)
        noises = noises.reshape(count, times, part.length)
        inside = noises[:, :, part.first : part.first + part.inside]
        size = np.abs(noises).max(axis=2)
        outside = np.abs(noises)
        outside[:, :, part.first : part.first + part.inside] = 0
        beside = outside.max(axis=2)
        for home in range(homes):
            shifted = np.abs(inside - d[home] if away else inside + d[home]).max(axis=2)
            gain = (np.maximum(shifted, beside) - size) / part.scale
            total[home] += (gain if away else -gain).sum(axis=1)
    return total
