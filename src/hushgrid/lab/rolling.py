"""Prices without a filter: means of the last days of the same kind, yesterday's loads, flat ones.

Flat prices and those by time of use say nothing about the days that they are charged for.

From true loads means promise nothing. From one noisy sum a day they keep the promise: a home's
readings of a day are added and cut, so that its whole day moves the sum by at most the cut, and the
noise of every day counts as one block of steps over the days that follow each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.lab.datasets import Recorded
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.planning.expected_error import RHO

LAST = 5  # days of the same kind
EVENING = 0.75  # of a day: when a list for the next day is made, 18:00
_SUMS = 5  # what a random stream is for
_LEVELS = np.linspace(0.5, 1.0, 51)  # quantiles of homes' days among which the cut is chosen


def last_days(source: Recorded, number: int, *, ahead: bool = False) -> Ints:
    """The last days of the same kind (workday or weekend) that are over before a day.

    Args:
        source: The recorded days.
        number: The day.
        ahead: Before 18:00 of the day before it, which is then not over.

    Returns:
        Indices into the days before and the recorded ones together, five at most. Where no day of
        the kind is over: of the other kind.
    """
    parts = (source,) if source.before is None else (source.before, source)
    date = np.concatenate([part.date for part in parts])
    weekend = np.concatenate([part.weekend for part in parts])
    at = len(date) - len(source.date) + number
    over = np.flatnonzero(date[:at] < date[at] - int(ahead))
    alike = over[weekend[over] == weekend[at]]
    return np.asarray((alike if len(alike) else over)[-LAST:])


class DailySums(NamedTuple):
    """How a day's sum is published.

    Attributes:
        cut: Most energy of one home in a day [Wh].
        scale: Scale of the Laplace noise [Wh].
        restored: Factor that puts the energy above the cut back, from the days before.
    """

    cut: int
    scale: float
    restored: float


def choose_sums(source: Recorded, epsilon: float, rho: float = RHO) -> DailySums:
    """The cut of least error: noise of the mean of five sums, and what is wrong above the cut.

    It is chosen from the days before, which the model is learned from as well. Without them it is
    the contract bound of every step.

    Args:
        source: The recorded days.
        epsilon: What one sum may say about a home's day.
        rho: Relative error of the energy above the cut.

    Returns:
        The cut, the scale and the factor.
    """
    contract = int(source.scenarios[0].zone.bound.max()) * source.horizon
    if source.before is None:
        return DailySums(contract, contract / epsilon, 1.0)
    homes = _energy(source.before)
    mean = max(float(homes.sum(axis=1).mean()), 1.0)

    def parts(cut: int) -> tuple[float, float]:
        below = max(float(np.minimum(homes, cut).sum(axis=1).mean()), 1.0)
        noise = math.sqrt(2 / LAST) * cut / epsilon / below
        return math.hypot(noise, rho * (1 - below / mean)), mean / below

    levels = np.maximum(np.quantile(homes, _LEVELS), 1).astype(np.int64)
    cut = min({*levels.tolist(), contract}, key=lambda level: parts(level)[0])
    return DailySums(cut, cut / epsilon, parts(cut)[1])


def _energy(source: Recorded) -> Ints:
    """(days, homes): the energy of each home's day, readings cut at the contract bounds [Wh]."""
    readings = np.clip(source.readings, 0, source.scenarios[0].zone.bound)
    return np.asarray(readings.sum(axis=1, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class RollingMean:
    """Loads of the days before and of the recorded days, and their noisy sums.

    Attributes:
        source: The recorded days.
        loads: (days, T): true loads [Wh], of the days before and then of the recorded ones.
        sums: (days,): noisy energy of each of these days [Wh]; None where no promise can be kept.
    """

    source: Recorded
    loads: Floats
    sums: Floats | None

    @classmethod
    def of(cls, source: Recorded, published: DailySums | None, seed: int) -> RollingMean:
        """Loads, and sums with noise.

        Args:
            source: The recorded days.
            published: How sums are published; None: they are not.
            seed: Seed of the noise.
        """
        parts = (source,) if source.before is None else (source.before, source)
        days = [part.day(number).load for part in parts for number in range(len(part.date))]
        if published is None:
            return cls(source, np.array(days, np.float64), None)
        homes = np.concatenate([_energy(part) for part in parts])
        below = np.minimum(homes, published.cut).sum(axis=1)
        noise = SimulatedNoise(np.random.SeedSequence([seed, _SUMS]))
        draws = np.array([noise.draw(published.scale) for _ in below])
        return cls(source, np.array(days, np.float64), (below + draws) * published.restored)

    def mean(self, number: int, *, ahead: bool = False) -> Floats | None:
        """(T,): the mean of the true loads of the last days [Wh]; None before any day is over."""
        over = last_days(self.source, number, ahead=ahead)
        return np.asarray(self.loads[over].mean(axis=0)) if len(over) else None

    def noisy_mean(self, number: int, profile: Floats, *, ahead: bool = False) -> Floats | None:
        """(T,): the mean of the noisy sums of the same days, spread as a public profile is [Wh]."""
        over = last_days(self.source, number, ahead=ahead)
        if self.sums is None or not len(over):
            return None
        return np.asarray(float(self.sums[over].mean()) * profile / max(float(profile.sum()), 1.0))


BANDS = (0, 7, 16, 20, 24)  # [h]: night, day, evening, late; a price for each


def flat_load(source: Recorded, profile: Floats) -> Floats:
    """The load that a flat price is set for.

    Args:
        source: The recorded days.
        profile: (T,): mean loads of the days before, or the model's [Wh].

    Returns:
        (T,): the published usual load of the homes where it is given, else the mean of the profile
        [Wh].
    """
    homes = source.scenarios[0].zone.n_houses
    level = source.published * homes if source.published else float(profile.mean())
    return np.full(len(profile), level)


def banded_load(source: Recorded, profile: Floats) -> Floats:
    """The load that prices by time of use are set for.

    Args:
        source: The recorded days.
        profile: (T,): mean loads of the days before, or the model's [Wh].

    Returns:
        (T,): a level for each of the bands, with the ratios of the profile and the mean of
        `flat_load` [Wh].
    """
    hours = np.arange(len(profile)) * 24 / len(profile)
    band = np.searchsorted(BANDS[1:-1], hours, side="right")
    sums = np.bincount(band, profile, len(BANDS) - 1)
    counts = np.bincount(band, minlength=len(BANDS) - 1)
    levels = (sums / np.maximum(counts, 1))[band]
    return np.asarray(levels * flat_load(source, profile) / max(float(profile.mean()), 1.0))


def yesterday(
    source: Recorded, loads: Floats, number: int, *, ahead: bool = False
) -> Floats | None:
    """The true loads of the last day that is over.

    Args:
        source: The recorded days.
        loads: (days, T): true loads of the days before and of the recorded ones [Wh].
        number: The day.
        ahead: Before 18:00 of the day before it, which is then not over.

    Returns:
        (T,): loads [Wh]; None before any day is over.
    """
    parts = (source,) if source.before is None else (source.before, source)
    date = np.concatenate([part.date for part in parts])
    at = len(date) - len(source.date) + number
    over = np.flatnonzero(date[:at] < date[at] - int(ahead))
    return loads[over[-1]] if len(over) else None


def last_week(source: Recorded, loads: Floats, number: int) -> Floats | None:
    """The true loads of the same day a week earlier.

    Args:
        source: The recorded days.
        loads: (days, T): true loads of the days before and of the recorded ones [Wh].
        number: The day.

    Returns:
        (T,): loads [Wh]; None where that day is not recorded.
    """
    parts = (source,) if source.before is None else (source.before, source)
    date = np.concatenate([part.date for part in parts])
    at = len(date) - len(source.date) + number
    week = np.flatnonzero(date == date[at] - 7)
    return loads[week[0]] if len(week) else None
