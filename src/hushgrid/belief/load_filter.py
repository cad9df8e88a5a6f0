"""A zone's load followed from its releases alone: a profile of the day, levels, and a residual.

The load of a step is base (1 + level + slow level + profile(time) + weekend profile(time) +
residual + white). `base` is what the public expects [Wh]: a model's forecast, a mean of earlier
days, or one number. The levels are Ornstein-Uhlenbeck processes of a day and of twenty days, the
profiles Gaussian processes over the time of day that change within a month, the residual lasts two
hours. How wide each of them is, no one knows: a bank of filters with different spreads runs side by
side, weighed by how well each has foreseen the releases so far. Nothing but releases enters, so the
estimate costs no privacy. Theory: docs/estimate.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, is_real
from hushgrid.belief.estimate import NO_NOISE, check_level, posterior_weights
from hushgrid.errors import ModelError, NoiseError

KNOTS = 24  # of a profile, an hour apart
_HOURS = (24.0, 480.0, 2.0, 720.0)  # what the level, slow level, residual and profiles last [h]
_SMOOTH = 1.5  # hours over which a profile bends
_EVEN = 1e-3  # share of the weights that is spread evenly at each step


class Spreads(NamedTuple):
    """Standard deviations of the parts of the load, relative to the base.

    Attributes:
        level: Level that lasts a day.
        slow: Level that lasts twenty days.
        residual: Part that lasts two hours.
        profile: Profile of the day.
        weekend: What weekends add to the profile.
        white: Part of a single step.
    """

    level: float
    slow: float
    residual: float
    profile: float
    weekend: float
    white: float


SPREADS = tuple(
    Spreads(0.1 * wide, 0.2 * wide, rough, 0.25 * bent, 0.08 * bent, 0.7 * rough)
    for wide, bent, rough in product((0.3, 0.7, 1.5), (0.3, 1.0), (0.02, 0.06, 0.18))
)


class SeenLoads(NamedTuple):
    """Releases of consecutive steps, and what was public before them.

    Attributes:
        load_hat: (T,): noisy loads [Wh]; any number where nothing was published.
        scale: (T,): scales of the noise [Wh]; NaN where nothing was published.
        base: (T,): the load that the public expects [Wh], above 0.
        place: (T,): time of day as a share of the local day, from 0 to below 1.
        weekend: (T,): whether the day has the profile of weekends.
        noise: Law of the noise, "laplace" or "gaussian".
    """

    load_hat: Floats
    scale: Floats
    base: Floats
    place: Floats
    weekend: Bools
    noise: str = "laplace"


class FilteredLoads(NamedTuple):
    """What was known of the load of each step before and after its release.

    Attributes:
        forecast: (T,): mean before the release [Wh].
        forecast_variance: (T,): variance before it [Wh^2].
        estimate: (T,): mean after it [Wh].
        variance: (T,): variance after it [Wh^2].
    """

    forecast: Floats
    forecast_variance: Floats
    estimate: Floats
    variance: Floats

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of central intervals about the estimates, (T,) each [Wh].

        Raises:
            PolicyError: If the level is not between 0 and 1.
        """
        return _ends(self.estimate, self.variance, level)

    def forecast_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Ends of central intervals about the forecasts, (T,) each [Wh]."""
        return _ends(self.forecast, self.forecast_variance, level)


@dataclass(frozen=True, slots=True, eq=False)
class LoadFilter:
    """What releases say about a zone's load: a value, made by `start` and changed by no method.

    Attributes:
        hours: Length of a step [h].
        spreads: Those of each filter of the bank.
        weights: (filters,): probability of each filter.
        mean: (filters, d): mean of each state after the last step.
        covariance: (filters, d, d): its covariance.
    """

    hours: float
    spreads: tuple[Spreads, ...]
    weights: Floats
    mean: Floats
    covariance: Floats

    @classmethod
    def start(cls, hours: float, spreads: Sequence[Spreads] = SPREADS) -> LoadFilter:
        """Before the first release.

        Args:
            hours: Length of a step [h].
            spreads: Those of each filter of the bank.

        Returns:
            The filter.

        Raises:
            ModelError: If the length is not above 0, or there are no spreads.
        """
        if not (is_real(hours) and hours > 0):
            raise ModelError(f"hours is {hours}; give the length of a step in hours, above 0.")
        if not spreads:
            raise ModelError("spreads is empty; give one or more.")
        each = tuple(spreads)
        covariance = _motion(each, hours).stationary.copy()
        mean = np.zeros(covariance.shape[:2])
        return cls(float(hours), each, np.full(len(each), 1 / len(each)), mean, covariance)

    def follow(self, seen: SeenLoads) -> tuple[FilteredLoads, LoadFilter]:
        """Learn from the next steps.

        Args:
            seen: Their releases.

        Returns:
            What was known of each load, and the filter after the last step.

        Raises:
            ModelError: If a base is not above 0.
            NoiseError: If the law of the noise is unknown, or a scale is negative or infinite.
        """
        from hushgrid._kernels.load_filter import follow

        if seen.noise not in ("laplace", "gaussian"):
            raise NoiseError(f"noise is {seen.noise!r}; give laplace or gaussian.")
        scale, base = np.asarray(seen.scale, np.float64), np.asarray(seen.base, np.float64)
        if not (np.isfinite(base).all() and (base > 0).all()):
            raise ModelError("a base is not above 0; give the expected load [Wh] of every step.")
        silent = np.isnan(scale)
        if not (silent | ((scale >= 0) & np.isfinite(scale))).all():
            raise NoiseError("a scale is negative or infinite; give 0 or more, NaN for no release.")
        mean, covariance = self.mean.copy(), self.covariance.copy()
        motion = _motion(self.spreads, self.hours)
        each = follow(
            np.where(silent, 0.0, np.asarray(seen.load_hat, np.float64)),
            np.where(silent, -1.0, np.maximum(scale, NO_NOISE)),
            seen.noise == "gaussian",
            base,
            np.asarray(seen.place, np.float64),
            np.asarray(seen.weekend, np.float64),
            *motion[1:],
            mean,
            covariance,
        )
        found, weights = np.empty((4, len(base))), self.weights
        for t, (m0, v0, m1, v1, log) in enumerate(np.moveaxis(each, 1, 2)):
            weights = (1 - _EVEN) * weights + _EVEN / len(weights)
            found[0, t], found[1, t] = _moments(weights, m0, v0)
            weights = posterior_weights(weights, log)
            found[2, t], found[3, t] = _moments(weights, m1, v1)
        after = replace(self, weights=weights, mean=mean, covariance=covariance)
        return FilteredLoads(*found), after

    def ahead(self, base: Floats, place: Floats, weekend: Bools) -> tuple[Floats, Floats]:
        """The loads of the next steps, with nothing published in between.

        Args:
            base: (T,): the load that the public expects [Wh], above 0.
            place: (T,): time of day as a share of the local day.
            weekend: (T,): whether the day has the profile of weekends.

        Returns:
            (T,) means [Wh] and (T,) variances [Wh^2].
        """
        none = np.full(len(base), np.nan)
        found, _ = self.follow(SeenLoads(none, none, base, place, weekend))
        return found.forecast, found.forecast_variance


class _Motion(NamedTuple):
    stationary: Floats  # (filters, d, d): covariance of the state before any release
    decay: Floats
    growth: Floats
    white: Floats


@lru_cache(maxsize=8)
def _motion(spreads: tuple[Spreads, ...], hours: float) -> _Motion:
    """What a step leaves of the states and adds to them."""
    lasting = np.repeat(_HOURS, (1, 1, 1, 2 * KNOTS))
    decay = np.exp(-hours / lasting)
    apart = np.subtract.outer(np.arange(KNOTS), np.arange(KNOTS)) * 24 / KNOTS
    bend = (np.sin(np.pi * apart / 24) / (2 * np.pi / 24 * _SMOOTH)) ** 2
    kernel = np.exp(-2 * bend)
    stationary = np.zeros((len(spreads), len(decay), len(decay)))
    for one, spread in zip(stationary, spreads, strict=True):
        one[range(3), range(3)] = np.square(spread[:3])
        one[3 : 3 + KNOTS, 3 : 3 + KNOTS] = spread.profile**2 * kernel
        one[3 + KNOTS :, 3 + KNOTS :] = spread.weekend**2 * kernel
    growth = stationary * (1 - np.outer(decay, decay))
    white = np.array([spread.white for spread in spreads])
    return _Motion(stationary, np.tile(decay, (len(spreads), 1)), growth, white)


def _moments(weights: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """Mean and variance of a mixture."""
    whole = float(weights @ mean)
    return whole, float(weights @ (variance + (mean - whole) ** 2))


def _ends(mean: Floats, variance: Floats, level: float) -> tuple[Floats, Floats]:
    from scipy.special import ndtri

    check_level(level)
    half = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    return mean - half, mean + half
