"""A zone's load followed from its releases alone: a profile of the day, levels, and a residual.

The load of a step is base (1 + level + slow level + profile(time) + weekend profile(time) +
residual + white). `base` is what the public expects [Wh]: a model's forecast, a mean of earlier
days, or one number. The levels are Ornstein-Uhlenbeck processes of a day and of twenty days, the
profiles Gaussian processes over the time of day that change within a month, the residual lasts two
hours; a public covariate such as the temperature has a coefficient of its own. The spreads of these
parts are unknown: a bank of filters with different spreads runs in parallel, weighed by how well
each has foreseen the releases so far. Nothing but releases enters, so the estimate costs no
privacy. Theory: docs/proofs/estimate.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Ints, is_real
from hushgrid.belief.estimate import (
    NO_NOISE,
)
from hushgrid.belief.posterior import (
    BLOCK_SIZES,
    block_chances,
    block_halves,
    check_level,
    posterior_weights,
)
from hushgrid.errors import ModelError, NoiseError

Values = Mapping[str, float | None]  # of covariates by name; None for a missing one

KNOTS = 24  # of a profile, an hour apart
_HOURS = (24.0, 480.0, 2.0, 720.0)  # what the level, slow level, residual and the rest last [h]
_COVARIATE = 0.15  # standard deviation of a covariate's coefficient, relative to the base
_SMOOTH = 1.5  # hours over which a profile bends
_STIR = 1e-4  # share of the weights that becomes equal again at each step


class Spreads(NamedTuple):
    """Standard deviations of the parts of the load, relative to the base.

    Attributes:
        level: Level that lasts a day.
        slow: Level that lasts twenty days.
        residual: Part that lasts two hours.
        profile: Profile of the day.
        weekend: What weekends add to the profile.
        white: Part of a single step.
        lasts: How many times longer than twenty days the slow level lasts, and than thirty the
            profiles.
    """

    level: float
    slow: float
    residual: float
    profile: float
    weekend: float
    white: float
    lasts: float = 1.0


SPREADS = tuple(
    Spreads(level, slow, rough, 0.25 * bent, 0.15 * bent, rough, lasts)
    for (level, slow), bent, rough, lasts in product(
        ((0.02, 0.12), (0.12, 0.3)), (0.3, 1.0), (0.02, 0.05, 0.15), (1.0, 6.0)
    )
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
        covariates: (T, c): public covariates, about 0 and of size about 1; None without any.
        length: (T,): steps of the block with the noise of each step, 0 where its noise is
            independent; None: all of them are.
        begins: (T,): whether it is the first release of its block; None where `length` is.
    """

    load_hat: Floats
    scale: Floats
    base: Floats
    place: Floats
    weekend: Bools
    noise: str = "laplace"
    covariates: Floats | None = None
    length: Ints | None = None
    begins: Bools | None = None


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


@dataclass(frozen=True, slots=True, eq=False)
class LoadFilter:
    """What releases say about a zone's load: a value, made by `start` and changed by no method.

    Attributes:
        hours: Length of a step [h].
        spreads: Those of each filter of the bank.
        weights: (filters,): probability of each filter.
        mean: (filters, d): mean of each state after the last step.
        covariance: (filters, d, d): its covariance where the half-width of the block's noise is
            known.
        covariates: c, how many public covariates there are.
        sizes: (filters, G): probability of each cell of half-widths that the noise of a block of
            steps may have (`block_halves`).
        offsets: (filters, G, d): mean of the state in each cell less `mean`. A wide half-width and
            a load far from what was foreseen explain the same releases, so they go together.
    """

    hours: float
    spreads: tuple[Spreads, ...]
    weights: Floats
    mean: Floats
    covariance: Floats
    covariates: int
    sizes: Floats
    offsets: Floats

    @classmethod
    def start(
        cls,
        hours: float,
        spreads: Sequence[Spreads] = SPREADS,
        covariates: int = 0,
    ) -> LoadFilter:
        """Before the first release.

        Args:
            hours: Length of a step [h].
            spreads: Those of each filter of the bank.
            covariates: How many public covariates there are.

        Returns:
            The filter.

        Raises:
            ModelError: If the length is not above 0, or there are no spreads.
        """
        if not (is_real(hours) and hours > 0):
            raise ModelError(f"hours is {hours}; give the length of a step in hours, above 0.")
        if not spreads:
            raise ModelError("spreads is empty; give one or more.")
        bank_spreads = tuple(spreads)
        covariance = _motion(bank_spreads, hours, covariates).stationary.copy()
        mean = np.zeros(covariance.shape[:2])
        chances = np.tile(block_chances(), (len(bank_spreads), 1))
        offsets = np.zeros((*chances.shape, covariance.shape[1]))
        weights = np.full(len(bank_spreads), 1 / len(bank_spreads))
        return cls(
            float(hours), bank_spreads, weights, mean, covariance, covariates, chances, offsets
        )

    def follow(self, loads: SeenLoads) -> tuple[FilteredLoads, LoadFilter]:
        """Learn from the next steps.

        Args:
            loads: Their releases.

        Returns:
            What was known of each load, and the filter after the last step.

        Raises:
            ModelError: If a base is not above 0.
            NoiseError: If the law of the noise is unknown, or a scale is negative or infinite.
        """
        bank_steps, _, after = self._moved(loads)
        if len(self.spreads) == 1:
            return FilteredLoads(*bank_steps[:, 0, :4].T), after
        moments, weights = np.empty((4, len(bank_steps))), self.weights
        for t, (m0, v0, m1, v1, log) in enumerate(np.moveaxis(bank_steps, 1, 2)[:, :5]):
            weights = (1 - _STIR) * weights + _STIR / len(self.spreads)
            moments[0, t], moments[1, t] = mixture_moments(weights, m0, v0)
            weights = posterior_weights(weights, log)
            moments[2, t], moments[3, t] = mixture_moments(weights, m1, v1)
        return FilteredLoads(*moments), replace(after, weights=weights)

    def step(self, load: SeenLoads) -> tuple[BankStep, LoadFilter]:
        """Learn from one step, with what every filter of the bank knew.

        Args:
            load: Its release, arrays of length 1.

        Returns:
            What each filter knew of the load, and the bank after the step.

        Raises:
            ModelError: If the base is not above 0.
            NoiseError: If the law of the noise is unknown, or the scale is negative or infinite.
        """
        bank_steps, shift, after = self._moved(load)
        weights = (1 - _STIR) * self.weights + _STIR / len(self.spreads)
        forecast, forecast_variance, estimate, variance, log, within = bank_steps[0].T
        bank_step = BankStep(
            weights, forecast, forecast_variance, estimate, variance, log, within, shift
        )
        return bank_step, replace(
            after, weights=posterior_weights(bank_step.weights, bank_step.log)
        )

    def _moved(self, loads: SeenLoads) -> tuple[Floats, Floats, LoadFilter]:
        """What `_kernels.load_filter.follow` returns, and the bank but for its weights."""
        from hushgrid._kernels.load_filter import follow

        if loads.noise not in ("laplace", "gaussian"):
            raise NoiseError(f"noise is {loads.noise!r}; give laplace or gaussian.")
        scale, base = np.asarray(loads.scale, np.float64), np.asarray(loads.base, np.float64)
        if not (np.isfinite(base).all() and (base > 0).all()):
            raise ModelError("a base is not above 0; give the expected load [Wh] of every step.")
        silent = np.isnan(scale)
        if not (silent | ((scale >= 0) & np.isfinite(scale))).all():
            raise NoiseError("a scale is negative or infinite; give 0 or more, NaN for no release.")
        covariates = np.zeros((len(base), self.covariates))
        if loads.covariates is not None and np.size(loads.covariates):
            covariates = np.nan_to_num(np.asarray(loads.covariates, np.float64))
        if covariates.shape != (len(base), self.covariates):
            raise ModelError(
                f"covariates have shape {covariates.shape}; give {self.covariates} numbers a step."
            )
        mean, covariance, offsets = self.mean.copy(), self.covariance.copy(), self.offsets.copy()
        halves = np.full((len(base), 1), -1.0)
        sizes = np.vstack([self.sizes, block_chances()])
        begins = np.zeros(len(base), bool) if loads.begins is None else loads.begins
        if loads.length is not None and loads.length.any():
            halves = np.full((len(base), BLOCK_SIZES + 1), -1.0)
            for length in set(loads.length[loads.length > 0].tolist()):
                of_length = loads.length == length
                halves[of_length] = scale[of_length, None] * block_halves(length)
        bank_steps, shift = follow(
            np.where(silent, 0.0, np.asarray(loads.load_hat, np.float64)),
            np.where(silent, -1.0, np.maximum(scale, NO_NOISE)),
            loads.noise == "gaussian",
            base,
            np.asarray(loads.place, np.float64),
            np.asarray(loads.weekend, np.float64),
            covariates,
            *_motion(self.spreads, self.hours, self.covariates)[1:],
            mean,
            covariance,
            halves,
            begins,
            sizes,
            offsets,
        )
        return (
            bank_steps,
            shift,
            replace(self, mean=mean, covariance=covariance, sizes=sizes[:-1], offsets=offsets),
        )

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
        filtered, _ = self.follow(SeenLoads(none, none, base, place, weekend))
        return filtered.forecast, filtered.forecast_variance


class BankStep(NamedTuple):
    """What each filter of a bank knew of one load; (filters,) each.

    Attributes:
        weights: Probability of each filter before the release.
        forecast: Mean before the release [Wh].
        forecast_variance: Variance before it [Wh^2].
        estimate: Mean after it [Wh].
        variance: Variance after it [Wh^2].
        log: Log density of the release.
        within: Variance before the release where the half-width of the block's noise is known
            [Wh^2].
        shift: (filters, G): mean before it where the half-width lies in a cell, less `forecast`
            [Wh].
    """

    weights: Floats
    forecast: Floats
    forecast_variance: Floats
    estimate: Floats
    variance: Floats
    log: Floats
    within: Floats
    shift: Floats


class _Motion(NamedTuple):
    stationary: Floats  # (filters, d, d): covariance of the state before any release
    decay: Floats
    growth: Floats
    white: Floats


@lru_cache(maxsize=8)
def _motion(spreads: tuple[Spreads, ...], hours: float, covariates: int) -> _Motion:
    """What a step leaves of the states and adds to them."""
    lasting, first = np.repeat(_HOURS, (1, 1, 1, covariates + 2 * KNOTS)), 3 + covariates
    longer = np.array([[1.0, spread.lasts, 1.0, spread.lasts] for spread in spreads])
    longer = np.repeat(longer, (1, 1, 1, covariates + 2 * KNOTS), axis=1)
    decay = np.exp(-hours / (lasting * longer))
    hours_apart = np.subtract.outer(np.arange(KNOTS), np.arange(KNOTS)) * 24 / KNOTS
    bend = (np.sin(np.pi * hours_apart / 24) / (2 * np.pi / 24 * _SMOOTH)) ** 2
    kernel = np.exp(-2 * bend)
    stationary = np.zeros((*decay.shape, decay.shape[1]))
    for block, spread in zip(stationary, spreads, strict=True):
        block[range(first), range(first)] = np.square([*spread[:3], *[_COVARIATE] * covariates])
        block[first : first + KNOTS, first : first + KNOTS] = spread.profile**2 * kernel
        block[first + KNOTS :, first + KNOTS :] = spread.weekend**2 * kernel
    growth = stationary * (1 - decay[:, :, None] * decay[:, None, :])
    white = np.array([spread.white for spread in spreads])
    return _Motion(stationary, decay, growth, white)


def drawn_loads(
    spreads: Spreads, hours: float, place: Floats, weekend: Bools, source: np.random.Generator
) -> Floats:
    """Loads of consecutive steps as a filter of these spreads expects them before any release.

    Args:
        spreads: Those of the filter.
        hours: Length of a step [h].
        place: (T,): time of day as a share of the local day.
        weekend: (T,): whether the day has the profile of weekends.
        source: The source of random numbers.

    Returns:
        (T,) loads relative to the base.
    """
    motion, knots = _motion((spreads,), hours, 0), 3 + np.arange(KNOTS)
    decay, variance = motion.decay[0], motion.stationary[0]
    values, vectors = np.linalg.eigh(variance)
    # the symmetric root is the same for any eigenvectors, which machines choose differently
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    states = source.standard_normal((len(place), len(decay))) @ root
    states[1:] *= np.sqrt(1 - decay**2)
    for t in range(1, len(states)):
        states[t] += decay * states[t - 1]
    at, low = place * KNOTS, (place * KNOTS).astype(np.int64) % KNOTS
    part, steps = at % 1, np.arange(len(place))
    profile, more = (
        states[steps, first[low]] * (1 - part) + states[steps, first[(low + 1) % KNOTS]] * part
        for first in (knots, knots + KNOTS)
    )
    white = spreads.white * source.standard_normal(len(place))
    return np.asarray(1 + states[:, :3].sum(axis=1) + profile + weekend * more + white)


@lru_cache(maxsize=8)
def roughness(spreads: tuple[Spreads, ...]) -> Floats:
    """How much of a load comes and goes within two hours.

    Args:
        spreads: One for each filter.

    Returns:
        (filters,): standard deviation of what lasts no longer than two hours, over the base.
    """
    return np.array([math.hypot(spread.residual, spread.white) for spread in spreads])


def mixture_moments(weights: Floats, mean: Floats, variance: Floats) -> tuple[float, float]:
    """Mean and variance of a mixture.

    Args:
        weights: Probability of each part.
        mean: Mean of each part.
        variance: Variance of each part.

    Returns:
        Both.
    """
    overall = float(weights @ mean)
    return overall, float(weights @ (variance + (mean - overall) ** 2))


def _ends(mean: Floats, variance: Floats, level: float) -> tuple[Floats, Floats]:
    from scipy.special import ndtri

    check_level(level)
    half = float(ndtri((1 + level) / 2)) * np.sqrt(variance)
    return mean - half, mean + half
