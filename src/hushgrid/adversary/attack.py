"""Attacks on recorded days and on absences: the adversary of the paper (II-C), and its scores.

An attack's success bounds leakage from below; the promise bounds it from above. A `Recording` has
the releases of a day and, apart from them, the truth: of a simulation, or of real days whose
residents noted when they were at home.

**Absences**, by the likelihood ratio of an adversary who knows all else. With every other reading
known, a release shows the noise and what this home adds. A block of noise has the law
e^(-max |n_t| / b), so at a difference d_t of the home's two courses it adds
(max |n_t| - max |n_t + d_t|) / b to the log-likelihood ratio. No test finds more absences at as
many false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple, get_args

import numpy as np

from hushgrid._numbers import Floats, Int32s, UInt8s, brief
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Adversary, look_back, watch
from hushgrid.adversary.knowledge import Knowledge, KnownOccupancy, KnownReadings
from hushgrid.belief.filter import chances_at_home
from hushgrid.errors import ModelError, PolicyError
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import Release
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Scenario, optimal_rate, tally
from hushgrid.statistics import Scores, scores

Knows = Literal["none", "others", "occupancy"]

SMALL = 14  # houses, for which the joint filter is used


@dataclass(frozen=True, slots=True, eq=False)
class Attack:
    """Result of one adversary on one day, or on several: then a column is a day of a house.

    Attributes:
        knows: What the adversary knows besides the releases.
        filter: Name of its filter.
        houses: The houses attacked, one for each column.
        home: (T, houses): Pr[at home] given the releases.
        prior: (T, houses): Pr[at home] without them.
        occupancy: (T, houses): the truth.
        scores: Of `home` and `prior` against the truth.
    """

    knows: Knows
    filter: str
    houses: tuple[int, ...]
    home: Floats
    prior: Floats
    occupancy: UInt8s
    scores: Scores

    @property
    def moved(self) -> float:
        """The largest change of the log odds from the prior, over all steps and houses."""
        sure = (self.prior <= 0) | (self.prior >= 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.abs(_log_odds(self.home) - _log_odds(self.prior))
        return float(np.max(np.where(sure, 0.0, shift)))


def attack(
    scenario: Scenario,
    releases: Sequence[Release],
    truth: Truth,
    *,
    clamp: Clamp = (),
    knows: Knows = "none",
    target: int | None = None,
    labelled: Sequence[int] | None = None,
    models: Sequence[OccupancyModel] | None = None,
    hindsight: bool = False,
    seed: int = 1,
) -> Attack:
    """Run an adversary over the releases of a day (paper II-C) and score it.

    Args:
        scenario: The zone and its models.
        releases: Of one day, in order.
        truth: Occupancy and readings of the day.
        clamp: Clamps of the releases' policy by class [Wh].
        knows: Nothing besides the releases, all other readings, or all other houses' occupancy.
        target: The house attacked; all by default.
        labelled: Houses whose occupancy is known; all by default. No other is attacked.
        models: The adversary's models, by default the zone's.
        hindsight: Whether each step is judged after the whole day (smoothing).
        seed: Seed of the confidence intervals.

    Returns:
        Beliefs and scores.

    Raises:
        PolicyError: If `knows` or `target` is out of range.
    """
    if knows not in get_args(Knows):
        raise PolicyError(f"knows is {knows!r}; give one of {', '.join(get_args(Knows))}.")
    n = scenario.zone.n_houses
    if target is not None and not 0 <= target < n:
        raise PolicyError(f"target is {target}; give a house from 0 to {n - 1}.")
    labelled_homes = tuple(range(n)) if labelled is None else tuple(labelled)
    if target not in (None, *labelled_homes):
        raise PolicyError(f"target is {target}, which has no labels; give one that has.")
    if knows == "occupancy" and len(labelled_homes) < n:
        raise PolicyError(
            f"knows is 'occupancy' but {len(labelled_homes)} of {n} houses have labels; give none"
            " or others."
        )
    evidence: KnownReadings | KnownOccupancy | None = None
    if knows == "others":
        evidence = KnownReadings(truth.readings)
    elif knows == "occupancy":
        evidence = KnownOccupancy(truth.occupancy)
    theta = tuple(models or scenario.models)
    knowledge = Knowledge(scenario.zone, theta, scenario.consumption, clamp, bystanders=evidence)
    adversary: Adversary = Factored(knowledge) if knows != "none" or n > SMALL else Exact(knowledge)
    beliefs = (look_back if hindsight else watch)(adversary, releases)
    houses = labelled_homes if target is None else (target,)
    home = np.clip(np.asarray(beliefs.averaged)[:, houses], 0.0, 1.0)
    prior = prior_of(theta, len(home))[:, houses]
    occupancy = truth.occupancy[: len(home), houses]
    name = type(adversary).__name__.lower()
    attack_scores = scores(home, occupancy, prior, seed=seed)
    return Attack(knows, name, houses, home, prior, occupancy, attack_scores)


def merge_attacks(attacks: Sequence[Attack], *, seed: int = 1) -> Attack:
    """Attacks on several days as one, scored together.

    Args:
        attacks: One for each day, of one adversary.
        seed: Seed of the confidence intervals.

    Returns:
        The attack, with a column for each day of a house.
    """
    if len(attacks) == 1:
        return attacks[0]
    home, prior, occupancy = (
        np.concatenate([getattr(day_attack, name) for day_attack in attacks], axis=1)
        for name in ("home", "prior", "occupancy")
    )
    houses = tuple(house for day_attack in attacks for house in day_attack.houses)
    attack_scores = scores(home, occupancy, prior, seed=seed)
    first = attacks[0]
    return Attack(first.knows, first.filter, houses, home, prior, occupancy, attack_scores)


def prior_of(models: Sequence[OccupancyModel], steps: int) -> Floats:
    """Public probabilities of being at home, with equal weights of the models.

    Args:
        models: Occupancy models.
        steps: Number of steps T.

    Returns:
        (T, N): probabilities.
    """
    chances = [chances_at_home(model, steps) for model in models]
    return np.asarray(np.clip(np.mean(chances, axis=0), 0.0, 1.0))


def _log_odds(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth:
    """What the public never sees.

    Attributes:
        occupancy: (T, N): 0 or 1.
        readings: (T, N): readings [Wh].

    Raises:
        PolicyError: If the shapes differ.
    """

    occupancy: UInt8s
    readings: Int32s

    def __post_init__(self) -> None:
        if self.occupancy.ndim != 2 or self.occupancy.shape != self.readings.shape:
            raise PolicyError(
                f"truth has occupancy of shape {self.occupancy.shape} and readings of shape"
                f" {self.readings.shape}; give both for every step and house."
            )
        for array in (self.occupancy, self.readings):
            array.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A simulated day of one zone.

    Attributes:
        zone: Id of the zone.
        digest: Digest of the terms, as in every release.
        releases: In order of their steps.
        truth: Occupancy and readings, or None.
        config: Text of the zone file the day was simulated from; "" if there was none.
        day: Number of the day, from 0.
        offset: Steps of the calendars before the first release.
        seed: Seed of the simulation.
    """

    zone: str
    digest: str
    releases: tuple[Release, ...]
    truth: Truth | None = None
    config: str = ""
    day: int = 0
    offset: int = 0
    seed: int = 0

    @property
    def public(self) -> Recording:
        """The same without truth and seed: what an attacker may have."""
        return Recording(
            self.zone, self.digest, self.releases, None, self.config, self.day, self.offset
        )


def without_noise(release: Release, readings: Int32s, scenario: Scenario) -> Release:
    """The release of the same step without noise: the load itself, and the optimal rate.

    Args:
        release: The release.
        readings: (N,): readings of its step [Wh].
        scenario: The zone and its tariff.

    Returns:
        The release without noise.
    """
    load = tally(readings, scenario.zone.bound).load
    return replace(
        release,
        load_hat=load,
        put_back=0.0,
        estimate=None,
        rate=optimal_rate(load, scenario.tariff),
        scale=0.0,
        epsilon=np.inf,
        epsilon_any=np.inf,
        rule="open",
        noise="none",
        block=None,
    )


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
