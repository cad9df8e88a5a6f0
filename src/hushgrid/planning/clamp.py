"""The clamp that makes the expected error least, one for each density class.

Any public C below the contract bound may replace it in every formula. The noise shrinks, but the
energy of readings above C is lost and only its expectation is added again (docs/proofs/clamp.md):

    2 b(C)^2 + Var[sum (X - C)+] + (rho E[sum (X - C)+])^2

Where houses export a clamp has a lower end too: what is cut at either end counts, and the noise
follows the distance between the ends.

Where the estimate follows releases, the error that the clamp makes least is that of the estimate,
and an error rho of the readings above C counts by what it does to the energy above C:

    variance of the filter(b(C)) + Var[sum (X - C)+] + (rho E[sum of X above C])^2

With much noise and few houses the minimum lies at clamps of a few Wh, where the price follows the
model and no reading. `most_cut` bounds the share of the zone's expected energy above the clamp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Ints, is_real
from hushgrid.belief.filter import (
    marginals,
    sum_moments,
)
from hushgrid.errors import PolicyError
from hushgrid.mechanism.calibrators import loss_of_pmfs
from hushgrid.mechanism.policy import Even, Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Zone
from hushgrid.planning.expected_error import (
    RHO,
    ClampMoments,
    Prospect,
    clamp_rows,
    clamped_pmf,
    moments_of_rows,
    usual_moments,
)

# Of the zone's expected energy at most this share may lie above a planned clamp. Were the model
# worthless there, the load would be wrong by a fifth: what RHO grants the forecast of all of it.
MOST_CUT = 0.2

# Without a model, the most that readings above a planned clamp may move the mean price, where they
# are 1 + PUT_BACK times what is put back.
MOST_MOVED = 0.01

CLEAR = 0.1  # share of days that count as clear

_CANDIDATES = 12  # scales tried at once

_ROUNDS = 4  # each closes in on the neighbours of the best


_LOWS = 7  # lower ends tried of each class that exports


@dataclass(frozen=True, slots=True)
class Choice:
    """A clamp for each class and the error it leads to.

    Attributes:
        clamp: Clamps by class [offset Wh]; empty for the contract bounds.
        error: Root of the mean squared error expected of a release [Wh].
        noise: The part of `error` that is noise [Wh].
        without: The error at the contract bounds [Wh].
    """

    clamp: Clamp
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

    See: docs/proofs/clamp.md.

    Args:
        models: Occupancy models; expectations are the mean over them.
        zone: The houses and their contract bounds [Wh].
        consumption: The laws of a reading.
        policy: Epsilon, eta, the horizon and the rules; its own clamp is ignored.
        rho: Relative error to expect of the model above the clamp.
        most_cut: The largest share of the zone's expected energy over the horizon, under any of the
            models, that may lie above the clamp; 1 bounds nothing. Where houses export, of the
            energy imported and exported, and outside the clamp.

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
    best: Clamp = ()
    for _ in range(_ROUNDS):
        clamps = task.clamps(scales)
        errors = task.expected(scales, clamps)
        k = int(np.argmin(errors))
        if math.isinf(errors[k]):
            break
        best = tuple((low, at) if low else at for low, at in clamps[k].tolist())
        task.near(clamps[k])
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


class ClampGrid(NamedTuple):
    """Clamps of round sizes, and what they cut; the mean over the models.

    Attributes:
        clamps: One for each size [offset Wh]; empty for the contract bounds, the last.
        reach: (n,): scale of the noise that each needs at epsilon = 1 [Wh].
        parts: (T, n) moments of the load above and below each.
        allowed: (n,): whether it cuts no more than it may.
    """

    clamps: tuple[Clamp, ...]
    reach: Floats
    parts: ClampMoments
    allowed: Bools


def clamp_grid(
    models: Sequence[OccupancyModel],
    zone: Zone,
    consumption: Consumption,
    policy: Policy,
    sizes: Sequence[int] | None,
    most_cut: float,
) -> ClampGrid:
    """The best clamp of each of some sizes under any noise, at eta = 1.

    Args:
        models: Occupancy models; expectations are the mean over them.
        zone: The houses and their contract bounds [Wh].
        consumption: The laws of a reading.
        policy: The horizon, the rules and the estimator.
        sizes: Distances between the ends of a clamp [Wh], ascending, below the contract bound;
            None: the clamp of the policy alone.
        most_cut: As for `choose_clamp`.

    Returns:
        The clamps.
    """
    plain = replace(policy, epsilon=1.0, clamp=(), schedule=Even())
    task = _Search(models, zone, replace(consumption, elasticity=None), plain, RHO, most_cut)
    fixed = plain if sizes is not None else replace(plain, clamp=policy.clamp)
    last = round(task.noise(fixed) / math.sqrt(2), 6)
    reach = np.array([*(size for size in sizes or () if task.least <= size < last), last])
    clamps = task.clamps(reach * (1 + 1e-9))
    clamps[-1] = clamp_rows([fixed.clamp])[0] if fixed.clamp else task.bounds
    fits = (clamps[:, :, 1] > 0).all(axis=1)
    reach, clamps = reach[fits], clamps[fits]
    parts = task.parts(clamps)
    allowed = task.cuts_little(parts)
    allowed[-1] = True
    means = ClampMoments(*(part.mean(axis=0) for part in parts))
    rows = [tuple((low, at) if low else at for low, at in row) for row in clamps.tolist()]
    return ClampGrid((*rows[:-1], fixed.clamp), reach, means, allowed)


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
        epsilons = policy.schedule.epsilons or (policy.epsilon,)
        self._epsilon = float(np.median(epsilons))
        wide = (self._epsilon / np.array(epsilons)) ** 2
        if policy.schedule.lengths:
            wide = policy.schedule.variance(np.sqrt(wide)) / 2
        self._uneven = float(np.mean(wide))
        kinds = consumption.absent.shape[1]
        self._bound = np.ones(kinds, np.int64)  # largest of each class [Wh]
        np.maximum.at(self._bound, consumption.class_of, zone.bound)
        self._lowest = np.ones(kinds, np.int64)  # a clamp holds the reading 0 of every house
        np.maximum.at(self._lowest, consumption.class_of, zone.export + 1)
        self._export = self._lowest - 1
        least = np.full(kinds, np.iinfo(np.int64).max)
        np.minimum.at(least, consumption.class_of, zone.export)
        clear, dull = _skies(consumption)
        highest = np.minimum(np.minimum(least, self._lowest), clear)
        self._lows = np.stack([np.zeros(kinds, np.int64), highest])
        self._lowest = np.where(self._export > 0, np.maximum(self._lowest, dull), self._lowest)
        self._share = np.ones(kinds)  # houses of a block that flip together share epsilon
        for model in models:
            for piece in model.chains:
                np.maximum.at(self._share, consumption.class_of[piece.members], piece.size)
        width = self._lowest - self._lows[1]
        lowest = float((width * self._share).max()) if zone.offset else 1.0
        self.least = max(lowest / self._epsilon, policy.min_scale)
        self._energy = self._all_energy() if zone.offset and most_cut < 1 else None

    def _all_energy(self) -> Floats:
        """(models,): expected energy that houses import and export over the horizon [Wh]."""
        f, v = self._consumption, self._export
        net = [np.abs(np.arange(law.top + 1)[:, None] - v).T @ law.pmf for law in f.laws]
        energies = np.zeros(len(self._models))
        for m, model in enumerate(self._models):
            for belief in islice(marginals(model), self._policy.horizon):
                table = f.table(belief.t)
                means = np.array([[net[law][k] for k, law in enumerate(row)] for row in table])
                class_means = means[..., None]
                energies[m] += sum_moments(belief, model, f, class_means, 0 * class_means)[0][0]
        return energies

    @property
    def bounds(self) -> Ints:
        """(classes, 2): the ends of the contract's readings [offset Wh]."""
        return np.stack([np.zeros_like(self._bound), self._bound], axis=1)

    def evaluate(self, policy: Policy) -> tuple[float, float]:
        """Expected error and its part that is noise [Wh]."""
        noise = self.noise(policy)
        if not policy.clamp:
            return noise, noise
        cut = self._cut_error(self.parts(clamp_rows([policy.clamp])))
        return math.sqrt(noise**2 + float(cut[0])), noise

    def noise(self, policy: Policy) -> float:
        """Root mean square of the noise over the horizon [Wh]."""
        scheduler = Scheduler(
            exposures_of(self._models, self._zone, self._consumption, policy), policy
        )
        scales = [scheduler.at(t).scale for t in range(1, policy.horizon + 1)]
        return math.sqrt(float(policy.schedule.variance(np.array(scales)).mean()))

    def clamps(self, scales: Floats) -> Ints:
        """(scales, classes, 2): the best clamp that each scale protects; scales ascend.

        For a lower end that is the one with the largest upper end. Lower ends are judged class by
        class, by what is cut there alone.
        """
        clamps = np.zeros((len(scales), len(self._bound), 2), np.int64)
        for kind, pairs in enumerate(map(self._pairs, range(len(self._bound)))):
            first, last = self._lows[:, kind].tolist()
            lows = np.unique(np.linspace(first, last, _LOWS).round().astype(np.int64))
            highs = [self._upper(kind, pairs, scales, low) for low in lows.tolist()]
            clamps[:, kind, 1] = highs[0]
            if len(lows) > 1:
                best = self._best_low(kind, lows, np.array(highs))
                clamps[:, kind, 0] = lows[best]
                clamps[:, kind, 1] = np.array(highs)[best, np.arange(len(scales))]
        return clamps

    def near(self, clamps: Ints) -> None:
        """From now on look for lower ends next to those of a row of clamps."""
        step = np.ceil((self._lows[1] - self._lows[0]) / (_LOWS - 1)).astype(np.int64)
        low, high = self._lows
        at = clamps[:, 0]
        self._lows = np.stack([np.maximum(at - step, low), np.minimum(at + step, high)])

    def _upper(
        self, kind: int, pairs: Sequence[tuple[Floats, Floats]], scales: Floats, low: int
    ) -> list[int]:
        """The largest upper end for a lower one, of each scale; 0 where the scale is too small."""
        highs, at = [], int(self._lowest[kind])
        for b in scales.tolist():
            fits = not self._lows[1, kind] or self._holds(kind, pairs, b, low, at)
            at = self._largest(kind, pairs, b, at, low) if fits else at
            highs.append(at if fits else 0)
        return highs

    def _best_low(self, kind: int, lows: Ints, highs: Ints) -> Ints:
        """(scales,): the lower end with the least error by what is cut of one class."""
        rows = np.zeros((highs.size, len(self._bound), 2), np.int64)
        rows[:, :, 1] = self._bound
        rows[:, kind, 0] = np.repeat(lows, highs.shape[1])
        rows[:, kind, 1] = np.maximum(highs.ravel(), rows[:, kind, 0] + 1)
        parts = self.parts(rows)
        cut = self._cut_error(parts)
        if self._policy.estimator != "model":
            cut = (parts.cut + (self._rho * parts.over) ** 2).mean(axis=(0, 1))
        cut = np.where(highs > 0, cut.reshape(highs.shape), np.inf)
        return np.asarray(cut.argmin(axis=0))

    def expected(self, scales: Floats, clamps: Ints) -> Floats:
        """Expected squared error at each scale with its clamps [Wh^2]; inf: too much is cut."""
        unfit = (clamps[:, :, 1] == 0).any(axis=1)
        if unfit.any():  # no clamp of a class is protected there
            clamps = np.where(
                unfit[:, None, None], np.stack([self._lows[0], self._bound], -1), clamps
            )
        parts = self.parts(clamps)
        noise = 2 * scales**2 * self._uneven
        total = noise + self._cut_error(parts)
        if self._policy.estimator != "model":
            total = np.array(
                [self._followed(parts, k, step_noise) for k, step_noise in enumerate(noise)]
            )
        return np.where(unfit | ~self.cuts_little(parts), np.inf, total)

    def cuts_little(self, parts: ClampMoments) -> Bools:
        """(rows,): whether no more energy is cut than `most_cut` allows."""
        energy = (parts.missed + parts.below).sum(axis=1)  # (models, rows of clamps)
        if self._energy is not None:
            energy = self._energy[:, None]
        cut = parts.moved.sum(axis=1) <= self._most_cut * energy
        return np.asarray(cut.all(axis=0) | (self._most_cut == 1))

    def _followed(self, parts: ClampMoments, k: int, noise: float) -> float:
        """The expected squared error of an estimate that follows releases, at one row of clamps."""
        means = ClampMoments(*(part[:, :, k].mean(axis=0) for part in parts))
        load, noisy = means.missed + means.below, np.full(len(means.below), noise)
        even = np.ones(len(load))  # of all steps, as for raw prices
        forecast = Prospect(
            noisy, means.cut, means.missed, means.below_variance, load, load, even,
            self._policy.estimator, means.over, low=means.low,
        )  # fmt: skip
        return forecast.chosen_by(self._rho) ** 2 * len(load)

    def parts(self, clamps: Ints) -> ClampMoments:
        """(models, T, rows of clamps) each: the load above and below the clamps."""
        if self._policy.estimator == "releases" and not self._zone.offset:
            highs = [tuple(row) for row in clamps[:, :, 1].tolist()]
            moments = [usual_moments(self._consumption, self._policy, row)[0] for row in highs]
            return ClampMoments(
                *(np.array(part)[None, None] for part in zip(*moments, strict=True))
            )
        return moments_of_rows(self._models, self._consumption, clamps, self._policy.horizon)

    def _cut_error(self, parts: ClampMoments) -> Floats:
        """Of each row of clamps, Var[cut] + (rho E[cut])^2, the mean over steps and models."""
        return np.asarray((parts.cut + (self._rho * parts.moved) ** 2).mean(axis=(0, 1)))

    def _pairs(self, kind: int) -> list[tuple[Floats, Floats]]:
        """The distinct laws of a class over the slots, absent and present."""
        f = self._consumption
        law_pairs = np.unique(np.stack([f.absent[:, kind], f.present[:, kind]], axis=1), axis=0)
        return [(f.laws[a].pmf, f.laws[p].pmf) for a, p in law_pairs.tolist()]

    def _holds(
        self, kind: int, pairs: Sequence[tuple[Floats, Floats]], b: float, low: int, at: int
    ) -> bool:
        """Whether b protects a clamp of a class."""
        epsilon = self._epsilon / float(self._share[kind])
        if self._policy.eta == 1:
            return bool((at - low) / b <= epsilon)
        return all(
            loss_of_pmfs(
                clamped_pmf(f0, at, low), clamped_pmf(f1, at, low), at - low, b, self._policy.eta
            )
            <= epsilon
            for f0, f1 in pairs
        )

    def _largest(
        self, kind: int, pairs: Sequence[tuple[Floats, Floats]], b: float, least: int, low: int
    ) -> int:
        """The largest upper end from `held` on that b protects, by bisection."""
        high = int(self._bound[kind])
        if self._holds(kind, pairs, b, low, high):
            return high
        while high - least > 1:
            middle = (least + high) // 2
            fits = self._holds(kind, pairs, b, low, middle)
            least, high = (middle, high) if fits else (least, middle)
        return least


def _skies(f: Consumption) -> tuple[Ints, Ints]:
    """What a home reads on a clear day at its sunniest, and without sun; (classes,) each [Wh].

    All roofs have the same sky, and what a clamp cuts of all of them at once shows in no release.
    So no clamp of homes that export is tighter than that, whatever the laws expect of a mean sky.
    """
    lowest = np.array([np.searchsorted(np.cumsum(law.pmf), CLEAR) for law in f.laws])
    means = np.array([np.arange(law.top + 1) @ law.pmf for law in f.laws])
    clear = np.minimum(lowest[f.absent], lowest[f.present]).min(axis=0)
    dull = np.maximum(means[f.absent], means[f.present]).max(axis=0)
    return np.asarray(clear, np.int64), np.ceil(dull).astype(np.int64)
