"""Expected error of the price, from public models alone, and the clamp that makes it least.

The clamp: any public C below the contract bound may replace it in every formula. The noise shrinks,
but the energy of readings above C is lost and only its expectation is added again. One clamp for
each density class, by the least expected squared error (docs/proofs/clamp.md):

    2 b(C)^2 + Var[sum (X - C)+] + (rho E[sum (X - C)+])^2

With much noise and few houses the minimum lies at clamps of a few Wh, where the price follows the
model and no reading. `most_cut` bounds the share of the zone's expected energy above the clamp.

The error: three ways to publish are compared on the same terms. On every day the whole load differs
from the model's by one factor 1 + rho G, E G = 0, Var G = 1, which past releases of that day reveal
in part. Closed form, for normal loads and the best linear estimate from releases (docs/plan.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, is_real
from hushgrid.belief.filter import load_moments, marginals, sum_moments
from hushgrid.errors import PolicyError
from hushgrid.mechanism.calibrators import loss_of_pmfs
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import split
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel
from hushgrid.model.zone import Tariff, Zone, optimal_rate

RHO = 0.2  # relative error to expect of the model
# Of the zone's expected energy at most this share may lie above a planned clamp. Were the model
# worthless there, the load would be wrong by a fifth: what RHO grants the forecast of all of it.
MOST_CUT = 0.2
_CANDIDATES = 12  # scales tried at once
_ROUNDS = 4  # each closes in on the neighbours of the best


@dataclass(frozen=True, slots=True)
class Choice:
    """A clamp for each class and the error it leads to.

    Attributes:
        clamp: Clamps by class [Wh]; empty for the contract bounds.
        error: Root of the mean squared error expected of a release [Wh].
        noise: The part of `error` that is noise [Wh].
        without: The error at the contract bounds [Wh].
    """

    clamp: tuple[int, ...]
    error: float
    noise: float
    without: float


def choose_clamp(
    models: Sequence[OccupancyModel],
    zone: Zone,
    consumption: Consumption,
    policy: Policy,
    rho: float = RHO,
    most_cut: float = 1.0,
) -> Choice:
    """The clamp of least expected error under the policy's epsilon and eta.

    For a scale b the best clamp of a class is the largest that b protects, so the choice is one
    search over b. The share that is cut falls as b rises, so `most_cut` bounds b from below.

    Args:
        models: Occupancy models; expectations are the mean over them.
        zone: The houses and their contract bounds [Wh].
        consumption: The laws of a reading.
        policy: Epsilon, eta, the horizon and the rules; its own clamp is ignored.
        rho: Relative error to expect of the model above the clamp.
        most_cut: The largest share of the zone's expected energy over the horizon, under any of the
            models, that may lie above the clamp; 1 bounds nothing.

    Returns:
        The choice; no clamp where the contract bounds are as good.

    Raises:
        PolicyError: If rho is negative, or most_cut is not a share above 0.

    >>> from hushgrid.model.laws import Histogram
    >>> stay, same = [[0.9, 0.1], [0.2, 0.8]], [0] * 9
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[stay]], chain_of=same)
    >>> rare = Histogram([0.99] + [0] * 999 + [0.01])  # 1000 Wh, now and then
    >>> f = Consumption.by_class(absent=[rare], present=[rare], class_of=same)
    >>> choose_clamp([theta], Zone("z", [1000] * 9), f, Policy(0.1, horizon=2)).clamp
    (1,)
    """
    bare = replace(policy, clamp=())
    task = _Search(models, zone, replace(consumption, elasticity=None), bare, rho, most_cut)
    contract = task.noise(bare)
    scales = np.geomspace(task.least, max(contract / math.sqrt(2), task.least * 2), _CANDIDATES)
    best: tuple[int, ...] = ()
    for _ in range(_ROUNDS):
        clamps = task.clamps(scales)
        errors = task.expected(scales, clamps)
        k = int(np.argmin(errors))
        if math.isinf(errors[k]):
            break
        best = tuple(clamps[k].tolist())
        ends = scales[max(k - 1, 0)], scales[min(k + 1, len(scales) - 1)]
        scales = np.geomspace(*ends, _CANDIDATES)
    error, noise = task.evaluate(replace(bare, clamp=best))
    if not best or error >= contract:
        return Choice((), contract, contract, contract)
    return Choice(best, error, noise, contract)


def expected_error(
    models: Sequence[OccupancyModel],
    zone: Zone,
    consumption: Consumption,
    policy: Policy,
    rho: float = RHO,
) -> tuple[float, float]:
    """Expected error of a raw release under the policy's own clamp.

    Args:
        models: Occupancy models; expectations are the mean over them.
        zone: The houses and their contract bounds [Wh].
        consumption: The laws of a reading.
        policy: Epsilon, eta, the horizon, the rules and the clamp.
        rho: Relative error to expect of the model above the clamp.

    Returns:
        Root mean squared error [Wh], and the root mean square of its noise [Wh].
    """
    return _Search(models, zone, replace(consumption, elasticity=None), policy, rho).evaluate(
        policy
    )


class _Search:
    """The search for a clamp: one zone, one policy, many candidate scales."""

    def __init__(
        self,
        models: Sequence[OccupancyModel],
        zone: Zone,
        consumption: Consumption,
        policy: Policy,
        rho: float,
        most_cut: float = 1.0,
    ) -> None:
        if not (is_real(rho) and rho >= 0):
            raise PolicyError(f"rho is {rho}; give a relative error of 0 or more.")
        if not (is_real(most_cut) and 0 < most_cut <= 1):
            raise PolicyError(f"most_cut is {most_cut}; give a share above 0, at most 1.")
        self._most_cut = most_cut
        self._models, self._zone, self._consumption = models, zone, consumption
        self._policy, self._rho = policy, rho
        each = policy.schedule.epsilons or (policy.epsilon,)
        self._epsilon = float(np.median(each))
        wide = (self._epsilon / np.array(each)) ** 2
        if policy.schedule.lengths:
            wide = policy.schedule.variance(np.sqrt(wide)) / 2
        self._uneven = float(np.mean(wide))
        kinds = consumption.absent.shape[1]
        self._bound = np.ones(kinds, np.int64)  # largest of each class [Wh]
        np.maximum.at(self._bound, consumption.class_of, zone.bound)
        self._share = np.ones(kinds)  # houses of a block that flip together share epsilon
        for model in models:
            for piece in model.chains:
                np.maximum.at(self._share, consumption.class_of[piece.members], piece.size)
        self.least = max(1 / self._epsilon, policy.min_scale)

    def evaluate(self, policy: Policy) -> tuple[float, float]:
        """Expected error and its part that is noise [Wh]."""
        noise = self.noise(policy)
        if not policy.clamp:
            return noise, noise
        cut = self._cut_error(self._parts(np.array([policy.clamp])))
        return math.sqrt(noise**2 + float(cut[0])), noise

    def noise(self, policy: Policy) -> float:
        """Root mean square of the noise over the horizon [Wh]."""
        scheduler = Scheduler(
            exposures_of(self._models, self._zone, self._consumption, policy), policy
        )
        scales = [scheduler.at(t).scale for t in range(1, policy.horizon + 1)]
        return math.sqrt(float(policy.schedule.variance(np.array(scales)).mean()))

    def clamps(self, scales: Floats) -> Ints:
        """(scales, classes): the largest clamp each scale protects; scales ascend."""
        found = np.empty((len(scales), len(self._bound)), np.int64)
        for kind in range(len(self._bound)):
            pairs, at = self._pairs(kind), 1
            for k, b in enumerate(scales.tolist()):
                at = found[k, kind] = self._largest(kind, pairs, b, at)
        return found

    def expected(self, scales: Floats, clamps: Ints) -> Floats:
        """Expected squared error at each scale with its clamps [Wh^2]; inf: too much is cut."""
        parts = self._parts(clamps)
        total = 2 * scales**2 * self._uneven + self._cut_error(parts)
        if self._most_cut < 1:
            whole = (parts.missed + parts.seen).sum(axis=1)  # (models, rows of clamps)
            allowed = parts.missed.sum(axis=1) <= self._most_cut * whole
            total = np.where(allowed.all(axis=0), total, np.inf)
        return np.asarray(total)

    def _parts(self, clamps: Ints) -> ClampMoments:
        return _parts(self._models, self._consumption, clamps, self._policy.horizon)

    def _cut_error(self, parts: ClampMoments) -> Floats:
        """Of each row of clamps, Var[cut] + (rho E[cut])^2, the mean over steps and models."""
        return np.asarray((parts.cut + (self._rho * parts.missed) ** 2).mean(axis=(0, 1)))

    def _pairs(self, kind: int) -> list[tuple[Floats, Floats]]:
        """The distinct laws of a class over the slots, absent and present."""
        f = self._consumption
        both = np.unique(np.stack([f.absent[:, kind], f.present[:, kind]], axis=1), axis=0)
        return [(f.laws[a].pmf, f.laws[p].pmf) for a, p in both.tolist()]

    def _largest(
        self, kind: int, pairs: Sequence[tuple[Floats, Floats]], b: float, low: int
    ) -> int:
        """The largest clamp from `low` on that b protects, by bisection."""
        epsilon = self._epsilon / float(self._share[kind])

        def holds(at: int) -> bool:
            if self._policy.eta == 1:
                return bool(at / b <= epsilon)
            return all(
                loss_of_pmfs(_clamped_pmf(f0, at), _clamped_pmf(f1, at), at, b, self._policy.eta)
                <= epsilon
                for f0, f1 in pairs
            )

        high = int(self._bound[kind])
        if holds(high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low


class ClampMoments(NamedTuple):
    """Moments of the load above and below a clamp; arrays of one shape.

    Attributes:
        missed: Mean above the clamp [Wh].
        cut: Variance above the clamp [Wh^2].
        kept: Variance below the clamp [Wh^2].
        seen: Mean below the clamp [Wh].
    """

    missed: Floats
    cut: Floats
    kept: Floats
    seen: Floats


def cut_moments(
    models: Sequence[OccupancyModel], consumption: Consumption, clamp: Sequence[int], horizon: int
) -> ClampMoments:
    """Moments of the load above and below a clamp at every step, the mean over the models.

    Args:
        models: Occupancy models.
        consumption: The laws of a reading.
        clamp: One for each class [Wh].
        horizon: Number of steps T.

    Returns:
        The moments, each of shape (T,).
    """
    parts = _parts(models, consumption, np.array([clamp]), horizon)
    return ClampMoments(*(part[:, :, 0].mean(axis=0) for part in parts))


def _parts(
    models: Sequence[OccupancyModel], f: Consumption, clamps: Ints, horizon: int
) -> ClampMoments:
    """(models, T, rows of clamps) each."""
    out = np.empty((4, len(models), horizon, len(clamps)))
    slots: dict[int, Floats] = {}
    for m, model in enumerate(models):
        for t, belief in enumerate(islice(marginals(model), horizon)):
            slot = f.calendar.slot(belief.t)
            if slot not in slots:
                slots[slot] = _by_class(f, f.table(belief.t), clamps)
            above, above_variance, below, below_variance = np.moveaxis(slots[slot], -1, 0)
            out[:2, m, t] = sum_moments(belief, model, f.class_of, above, above_variance)
            out[3, m, t], out[2, m, t] = sum_moments(
                belief, model, f.class_of, below, below_variance
            )
    return ClampMoments(*out)


def _by_class(f: Consumption, table: Int32s, clamps: Ints) -> Floats:
    """(2, classes, rows of clamps, 4): mean and variance of a reading above and below."""
    out = np.empty((*table.shape, len(clamps), 4))
    for state, kind in np.ndindex(*table.shape):
        at = clamps[:, kind].astype(np.float64)
        # min(X, C) = C min(X/C, 1): factors let one pass answer for every clamp
        found = split(f.laws[table[state, kind]], 1.0, 1 / at)
        means, variances = (found.above, found.below), (found.above_variance, found.below_variance)
        for k in range(2):
            out[state, kind, :, 2 * k] = means[k] * at
            out[state, kind, :, 2 * k + 1] = variances[k] * at**2
    return out


def _clamped_pmf(f: Floats, at: int) -> Floats:
    """The pmf of readings cut at a clamp."""
    if f.size <= at + 1:
        return f
    out = f[: at + 1].copy()
    out[at] += f[at + 1 :].sum()
    return out


Way = Literal["forecast", "raw", "estimate"]

# The way that needs least comes first: no reading, no model below the clamp, both.
WAYS: tuple[Way, ...] = ("forecast", "raw", "estimate")
PRIVATE_WAYS: tuple[Way, ...] = ("raw",)  # what private models may publish (provenance.py)
_TINY = 1e-9  # [Wh^2]; a load without noise or spread is known
AS_GOOD = 1.05  # an error within 5 % of the least counts as equal: learning the factor costs that


@dataclass(frozen=True, slots=True, eq=False)
class Prospect:
    """Parts of the expected squared error of every step, with the moments of the load; (T,) each.

    Attributes:
        noise: Variance of the noise [Wh^2].
        cut: Variance of the energy above the clamp [Wh^2].
        missed: Mean of the energy above the clamp [Wh].
        kept: Variance of the load below the clamp [Wh^2].
        load: Mean of the load [Wh].
        variance: Variance of the load [Wh^2].
        weights: Factors from Wh^2 to squared relative errors of the rate.
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
        """The criterion for a clamp: as `with_cut`, with rho in full on the energy above it.

        An error of the tail alone appears in no release, so the choice does not count on learning.
        """
        return self._rmsre(self.noise + self.cut + (rho * self.missed) ** 2)

    def estimated(self, rho: float = RHO) -> float:
        """The same for the estimate, which combines model and release with the best linear gain.

        With p the factor's variance: below the clamp lies V = kept + p m^2, and what is learnt
        about the factor changes the expected energy above the clamp.
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
    """Parts of the expected error of releases at given scales; the mean over the models.

    Args:
        models: Occupancy models.
        consumption: The laws of a reading; elasticity is ignored.
        tariff: The rate of a load.
        policy: The noise law and the clamp.
        scales: Scale of the noise at every step [Wh]; its length is the horizon T.

    Returns:
        The parts, each of shape (T,).
    """
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
