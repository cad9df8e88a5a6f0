"""What error to expect of the price, from public models alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hushgrid.belief import load_moments, marginals
from hushgrid.clamp import RHO, cut_moments
from hushgrid.consumption import Consumption
from hushgrid.grid import Tariff, optimal_rate
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Prospect:
    """The parts of the squared error [Wh^2] of every step, with the expected load and its spread.

    `noise`; `cut` the variance and `missed` the mean [Wh] of the energy above the clamp, `kept`
    the variance below it; `load` [Wh] and `variance` [Wh^2] of the load; `weights` turn Wh^2 into
    squared relative rate errors.
    """

    noise: Floats
    cut: Floats
    missed: Floats
    kept: Floats
    load: Floats
    variance: Floats
    weights: Floats

    def squared(self, rho: float = RHO) -> Floats:
        """The squared error of the raw release at every step [Wh^2]."""
        return np.asarray(self.noise + self.cut + (rho * self.missed) ** 2)

    def with_cut(self, rho: float = RHO) -> float:
        """Expected RMSRE of the raw rate in the paper's formula."""
        return self._rmsre(self.squared(rho))

    def estimated(self, rho: float = RHO) -> float:
        """The same for the estimate: at most the best linear one's error (model right)."""
        gain = self.kept / (self.kept + self.noise)
        shared = self.variance - self.kept - self.cut  # twice the covariance of the two parts
        below = gain * self.noise
        return self._rmsre(
            np.maximum(below + self.cut + (1 - gain) * shared, 0.0) + (rho * self.missed) ** 2
        )

    def forecast(self) -> float:
        """The same for a rate from no readings at all (model right)."""
        return self._rmsre(self.variance)

    def share(self, rho: float = RHO, times: float = 1.0) -> float:
        """Root mean square error as a share of the mean load, for `times` as many such houses."""
        parts = self.noise + times * self.cut + (times * rho * self.missed) ** 2
        load = times * float(self.load.mean())
        return math.sqrt(float(parts.mean())) / load if load > 0 else math.inf

    def _rmsre(self, squares: Floats) -> float:
        return math.sqrt(float(self.weights @ squares)) / len(squares)


def prospect(
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    tariff: Tariff,
    policy: Policy,
    scales: Sequence[float],
) -> Prospect:
    """What to expect of releases at these scales; the mean over the models."""
    usual = replace(consumption, elasticity=None)
    horizon = len(scales)
    load, variance = np.zeros(horizon), np.zeros(horizon)
    for model in models:
        for t, belief in enumerate(islice(marginals(model), horizon)):
            found = load_moments(belief, model, usual)
            load[t] += found.mean / len(models)
            variance[t] += found.variance / len(models)
    b = np.array(scales)
    noise = 2 * b**2 if policy.gaussian is None else b**2
    missed, cut, kept = np.zeros(horizon), np.zeros(horizon), variance
    if policy.clamp:
        missed, cut, kept = cut_moments(models, usual, policy.clamp, horizon)
    weights = (tariff.alpha / 1000 / optimal_rate(load, tariff)) ** 2
    return Prospect(noise, cut, missed, kept, load, variance, weights)
