"""What error to expect of the price, from public models alone.

Three ways to publish are compared on the same terms: on every day the whole load differs from the
model's by one factor 1 + rho G, E G = 0, Var G = 1, which past releases of that day show in part.
Closed form, for normal loads and the best linear reading of releases (docs/plan.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.belief import load_moments, marginals
from hushgrid.calendar import STEPS_PER_DAY
from hushgrid.clamp import RHO, cut_moments
from hushgrid.consumption import Consumption
from hushgrid.grid import Tariff, optimal_rate
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy

Way = Literal["forecast", "raw", "estimate"]

# The way that needs least comes first: no reading, no model below the clamp, both.
WAYS: tuple[Way, ...] = ("forecast", "raw", "estimate")
PRIVATE_WAYS: tuple[Way, ...] = ("raw",)  # what private models may publish (provenance.py)
_TINY = 1e-9  # [Wh^2]; a load without noise or spread is known
AS_GOOD = 1.05  # an error within 5 % of the least counts as equal: learning the factor costs that


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

    def factor(self, rho: float = RHO) -> Floats:
        """Variance of the common factor before each release, given the day's earlier ones.

        Each release adds the information m^2 / (kept + noise), m the mean load below the clamp.
        """
        known = (self.load - self.missed) ** 2 / np.maximum(self.kept + self.noise, _TINY)
        before = np.cumsum(known) - known
        steps = np.arange(len(known))
        return np.asarray(rho**2 / (1 + rho**2 * (before - before[steps - steps % STEPS_PER_DAY])))

    def squared(self, rho: float = RHO) -> Floats:
        """The squared error of the raw release at every step [Wh^2]."""
        return np.asarray(self.noise + self.cut + self.factor(rho) * self.missed**2)

    def with_cut(self, rho: float = RHO) -> float:
        """Expected RMSRE of the raw rate in the paper's formula."""
        return self._rmsre(self.squared(rho))

    def chosen_by(self, rho: float = RHO) -> float:
        """What a clamp is chosen by: as `with_cut`, with rho in full on the energy above it.

        An error of the tail alone shows in no release, so the choice does not count on learning.
        """
        return self._rmsre(self.noise + self.cut + (rho * self.missed) ** 2)

    def estimated(self, rho: float = RHO) -> float:
        """The same for the estimate, which reads the load below the clamp with the best gain.

        With p the factor's variance: below the clamp lies V = kept + p m^2, and what is learnt
        about the factor moves the energy put back.
        """
        p, m = self.factor(rho), self.load - self.missed
        below = self.kept + p * m**2
        both = p * m * self.missed
        gain = (below + both) / np.maximum(below + self.noise, _TINY)
        shared = self.variance - self.kept - self.cut  # twice the covariance of the two parts
        squares = (1 - gain) ** 2 * below + gain**2 * self.noise
        squares += self.cut + p * self.missed**2 + (1 - gain) * (shared + 2 * both)
        return self._rmsre(np.maximum(squares, 0.0))

    def forecast(self, rho: float = RHO) -> float:
        """The same for a rate from no readings at all: the model's error is in all of the load."""
        return self._rmsre(self.variance + (rho * self.load) ** 2)

    def error(self, way: Way, rho: float = RHO) -> float:
        """Expected RMSRE of one way to publish, in the paper's formula."""
        if way == "raw":
            return self.with_cut(rho)
        return self.estimated(rho) if way == "estimate" else self.forecast(rho)

    def least(self, rho: float = RHO) -> float:
        """The error of the way with the least."""
        return min(self.error(way, rho) for way in WAYS)

    def best(self, rho: float = RHO, allowed: Collection[Way] = WAYS) -> Way:
        """The way to publish with the least error; among equals the one that needs least."""
        errors = {way: self.error(way, rho) for way in WAYS if way in allowed}
        enough = AS_GOOD * min(errors.values())
        return next(way for way, error in errors.items() if error <= enough)

    def share(self, rho: float = RHO, times: float = 1.0) -> float:
        """Error of the raw load as a share of its mean, for `times` as many such houses."""
        larger = replace(
            self,
            cut=times * self.cut,
            kept=times * self.kept,
            missed=times * self.missed,
            load=times * self.load,
            variance=times * self.variance,
        )
        load = float(larger.load.mean())
        return math.sqrt(float(larger.squared(rho).mean())) / load if load > 0 else math.inf

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
    noise = policy.schedule.variance(b)
    missed, cut, kept = np.zeros(horizon), np.zeros(horizon), variance
    if policy.clamp:
        missed, cut, kept, _ = cut_moments(models, usual, policy.clamp, horizon)
    weights = (tariff.alpha / 1000 / optimal_rate(load, tariff)) ** 2
    return Prospect(noise, cut, missed, kept, load, variance, weights)
