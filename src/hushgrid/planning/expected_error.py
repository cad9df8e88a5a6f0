"""Expected error of the price from public models, and the clamp and blocks that make it least.

The clamp: any public C below the contract bound may replace it in every formula. The noise shrinks,
but the energy of readings above C is lost and only its expectation is added again. One clamp for
each density class, by the least expected squared error (docs/proofs/clamp.md):

    2 b(C)^2 + Var[sum (X - C)+] + (rho E[sum (X - C)+])^2

Where houses export a clamp has a lower end too: what is cut at either end counts, and the noise
follows the distance between the ends.

Where the estimate follows releases, the error that the clamp makes least is that of the estimate,
and an error rho of the readings above C counts by what it does to the energy above C:

    variance of the filter(b(C)) + Var[sum (X - C)+] + (rho E[sum of X above C])^2

With much noise and few houses the minimum lies at clamps of a few Wh, where the price follows the
model and no reading. `most_cut` bounds the share of the zone's expected energy above the clamp.

The error: three ways to publish are compared on the same terms. On every day the whole load differs
from the model's by one factor 1 + rho G, E G = 0, Var G = 1, which past releases of that day reveal
in part. Closed form, for normal loads and the best linear estimate from releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Int32s, Ints, is_real
from hushgrid.belief.filter import (
    carried_leakage,
    class_moments,
    load_moments,
    marginals,
    sum_moments,
)
from hushgrid.belief.load_filter import PUT_BACK, LoadFilter, SeenLoads, Spreads, usual_parts
from hushgrid.errors import PolicyError
from hushgrid.mechanism.calibrators import loss_of_pmfs
from hushgrid.mechanism.policy import EstimatorRule, Even, Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp, clamp_ends, split
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel
from hushgrid.model.zone import Tariff, Zone, optimal_rate, relative_to
from hushgrid.planning.block_filter import FOLLOWED, BlockFilter

RHO = 0.2  # relative error to expect of the model
# Of the zone's expected energy at most this share may lie above a planned clamp. Were the model
# worthless there, the load would be wrong by a fifth: what RHO grants the forecast of all of it.
MOST_CUT = 0.2
# Without a model, the most that readings above a planned clamp may move the mean price, where they
# are 1 + PUT_BACK times what is put back.
MOST_MOVED = 0.01
CLEAR = 0.1  # share of days that count as clear
_CANDIDATES = 12  # scales tried at once
_ROUNDS = 4  # each closes in on the neighbours of the best
_NO_CLAMP = 1 << 40  # [Wh]
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
    clamps[-1] = _ends([fixed.clamp])[0] if fixed.clamp else task.bounds
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
        cut = self._cut_error(self.parts(_ends([policy.clamp])))
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
            moments = [_usual_moments(self._consumption, self._policy, row)[0] for row in highs]
            return ClampMoments(
                *(np.array(part)[None, None] for part in zip(*moments, strict=True))
            )
        return _parts(self._models, self._consumption, clamps, self._policy.horizon)

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
                _clamped_pmf(f0, at, low), _clamped_pmf(f1, at, low), at - low, b, self._policy.eta
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


class ClampMoments(NamedTuple):
    """Moments of the load above and below a clamp; arrays of one shape.

    Attributes:
        missed: Mean above the clamp [Wh].
        cut: Variance above the clamp [Wh^2].
        kept: Variance below the clamp [Wh^2].
        below: Mean below the clamp [Wh].
        over: Mean of readings above the clamp [Wh].
        low: Mean of what lower ends add [Wh]: less of it is missed.
    """

    missed: Floats
    cut: Floats
    below_variance: Floats
    below: Floats
    over: Floats
    low: Floats

    @property
    def moved(self) -> Floats:
        """Mean of what is cut at either end [Wh]."""
        return np.asarray(self.missed + 2 * self.low)


def _ends(clamps: Sequence[Clamp]) -> Ints:
    """(rows, classes, 2): lower and upper ends [Wh]."""
    return np.array([[clamp_ends(at) for at in clamp] for clamp in clamps], np.int64)


@lru_cache(maxsize=4)
def cut_moments(
    models: tuple[OccupancyModel, ...], consumption: Consumption, clamp: Clamp, horizon: int
) -> ClampMoments:
    """Moments of the load above and below a clamp at every step, the mean over the models.

    Args:
        models: Occupancy models.
        consumption: The laws of a reading; elasticity is ignored.
        clamp: One for each class [Wh].
        horizon: Number of steps T.

    Returns:
        The moments, each of shape (T,).
    """
    parts = _parts(models, consumption, _ends([clamp]), horizon)
    return ClampMoments(*(part[:, :, 0].mean(axis=0) for part in parts))


def _parts(
    models: Sequence[OccupancyModel], f: Consumption, clamps: Ints, horizon: int
) -> ClampMoments:
    """(models, T, rows of clamps) each."""
    out = np.empty((6, len(models), horizon, len(clamps)))
    slots: dict[int, Floats] = {}
    for m, model in enumerate(models):
        for t, belief in enumerate(islice(marginals(model), horizon)):
            slot = f.calendar.slot(belief.t)
            if slot not in slots:
                slots[slot] = _by_class(f, f.table(belief.t), clamps)
            above, above_variance, below, below_variance, over, low = np.moveaxis(
                slots[slot], -1, 0
            )
            out[:2, m, t] = sum_moments(belief, model, f, above, above_variance)
            out[3, m, t], out[2, m, t] = sum_moments(belief, model, f, below, below_variance)
            for k, means in ((4, over), (5, low)):
                out[k, m, t], _ = sum_moments(belief, model, f, means, above_variance)
    return ClampMoments(*out)


def _usual_moments(f: Consumption, policy: Policy, clamp: Clamp) -> tuple[ClampMoments, float]:
    """Moments of the usual load above and below a clamp, and the variance of all of it."""
    at, usual = clamp or (_NO_CLAMP,) * f.absent.shape[1], policy.usual * len(f.class_of)
    below, missed, cut, below_variance, joint, over = usual_parts(
        at, f.class_of, usual, np.ones(1)
    )[:, 0]
    return ClampMoments(
        missed, cut, below_variance, below, over, np.zeros(())
    ), below_variance + cut + 2 * joint


def _by_class(f: Consumption, table: Int32s, clamps: Ints) -> Floats:
    """(2, classes, rows of clamps, 6): mean and variance above and below, means of those above and
    of what lower ends add.
    """
    out = np.empty((*table.shape, len(clamps), 6))
    for state, kind in np.ndindex(*table.shape):
        low, at = clamps[:, kind].T.astype(np.float64)
        # min(X, C) = C min(X/C, 1): factors let one pass answer for every clamp
        halves = split(f.laws[table[state, kind]], 1.0, 1 / at, low / at)
        means, variances = (
            (halves.above, halves.below),
            (halves.above_variance, halves.below_variance),
        )
        for k in range(2):
            out[state, kind, :, 2 * k] = means[k] * at
            out[state, kind, :, 2 * k + 1] = variances[k] * at**2
        out[state, kind, :, 4] = halves.over * at
        out[state, kind, :, 5] = halves.under * at
    return out


def _clamped_pmf(f: Floats, at: int, low: int) -> Floats:
    """The pmf of readings cut at a clamp, less its lower end."""
    if low:
        cut, f = f[:low].sum(), f[low:].copy() if f.size > low else np.zeros(1)
        f[0] += cut
        at -= low
    if f.size <= at + 1:
        return f
    out = f[: at + 1].copy()
    out[at] += f[at + 1 :].sum()
    return out


# ---- blocks of steps with one noise

_GRID = 25  # leakages from 0 to the target
_LONGEST = 40  # steps of a block


def borders(
    law: Floats, moves: Floats, weights: Floats, target: float, inflow: tuple[float, float]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Block lengths and losses with about the least sum of w_t (L+1)(L+2)/3 / e^2.

    A dynamic programme over one house's chain: the state at a border is what has leaked backward
    into it and what may leak forward from it, both on a grid. The caller refines the losses and
    scales them until the promise holds for every house, so privacy does not depend on what is
    found here (docs/proofs/blocks-of-steps.md).

    Args:
        law: Of the house's state before the first step, (2,): the transition into it is
            `moves[0]`.
        moves: A^t of every step, and of the one after the last, (T + 1, 2, 2).
        weights: w_t of every step, (T,).
        target: The largest leakage about any step.
        inflow: Leakage of releases before the first step about the step before it, and of those
            after the last about the step after it; 0 where there are none.

    Returns:
        Steps and loss of each block.
    """
    from hushgrid._kernels.chains import best_blocks

    horizon = len(weights)
    grid = np.linspace(0.0, target, _GRID)
    longest = min(_LONGEST, horizon)
    # from step s + 1 + k to step s, and from step t - k to step t + 1; equal rows carry nothing
    back, ahead = np.full((2, horizon, longest, 2, 2), 0.5)
    laws = [law]
    for a in moves[:-1]:
        laws.append(laws[-1] @ a)
    for s in range(horizon):
        through = np.eye(2)
        for k in range(min(longest, horizon - s)):
            through = through @ moves[s + k]
            joint = laws[s][:, None] * through
            back[s, k] = (joint / np.maximum(joint.sum(axis=0), 1e-300)).T
        through = np.eye(2)
        for k in range(min(longest, s + 1)):
            through = ahead[s, k] = moves[s + 1 - k] @ through

    def carried(rows: Floats) -> Floats:
        matrices = np.repeat(rows.reshape(-1, 2, 2), _GRID, axis=0)
        leakage = np.tile(grid, len(matrices) // _GRID)
        carry = carried_leakage(leakage, matrices, np.ones((len(matrices), 2), np.bool_))
        return carry.reshape(horizon, longest, _GRID)

    first, last = (int(np.ceil(min(leak, target) / target * (_GRID - 1))) for leak in inflow)
    return best_blocks(carried(back), carried(ahead), np.cumsum([0.0, *weights]), grid, first, last)


# ---- the error


Way = Literal["forecast", "raw", "estimate"]

# The way that needs least comes first: no reading, no model below the clamp, both.
WAYS: tuple[Way, ...] = ("forecast", "raw", "estimate")
_TINY = 1e-9  # [Wh^2]; a load without noise or spread is known
_FLAT = (0.25, 0.08)  # of a profile and a weekend's about one number
AS_GOOD = 1.05  # an error within 5 % of the least counts as equal: learning the factor costs that


@dataclass(frozen=True, slots=True, eq=False)
class Prospect:
    """Parts of the expected squared error of every step, with the moments of the load; (T,) each.

    Attributes:
        noise: Variance of the noise [Wh^2].
        cut: Variance of the energy above the clamp [Wh^2].
        missed: Mean of the energy above the clamp [Wh].
        below_variance: Variance of the load below the clamp [Wh^2].
        load: Mean of the load [Wh].
        variance: Variance of the load [Wh^2].
        weights: Factors from Wh^2 to squared relative errors of the rate.
        estimator: What the estimate comes from, as in the policy.
        over: Mean of readings above the clamp [Wh].
        offset: Sum of the export limits, in every load [Wh].
        low: Mean of what the lower ends of a clamp add [Wh]: in `missed` with a minus.
        blocks: The filter through blocks of noise that a plan of windows simulates; None: the
            noise is read linearly.

    See: docs/proofs/expected-error.md.
    """

    noise: Floats
    cut: Floats
    missed: Floats
    below_variance: Floats
    load: Floats
    variance: Floats
    weights: Floats
    estimator: EstimatorRule = "model"
    over: Floats = field(default_factory=lambda: np.zeros(1))
    offset: int = 0
    low: Floats = field(default_factory=lambda: np.zeros(1))
    blocks: BlockFilter | None = None

    @property
    def _moved(self) -> Floats:
        """Mean of what the clamp cuts at either end [Wh]."""
        return np.asarray(self.missed + 2 * self.low)

    def factor(self, rho: float = RHO) -> Floats:
        """Variance of the common factor before each release, given the day's earlier ones.

        Each release adds the information m^2 / (below_variance + noise), m the mean load below
        the clamp.
        """
        information = (self.load - self.missed) ** 2 / np.maximum(
            self.below_variance + self.noise, _TINY
        )
        before = np.cumsum(information) - information
        steps = np.arange(len(information))
        return np.asarray(rho**2 / (1 + rho**2 * (before - before[steps - steps % STEPS_PER_DAY])))

    def squared(self, rho: float = RHO) -> Floats:
        """The squared error of the raw release at every step [Wh^2]."""
        return np.asarray(self.noise + self.cut + self.factor(rho) * self._moved**2)

    def with_cut(self, rho: float = RHO) -> float:
        """Expected RMSRE of the raw rate in the paper's formula."""
        return self._rmsre(self.squared(rho))

    @property
    def moved_price(self) -> float:
        """How far prices are off in the mean if readings above the clamp are as wrong as expected.

        Relative, and without a model: those readings are 1 + `PUT_BACK` times what is put back.
        """
        return float((np.sqrt(self.weights) * PUT_BACK * self.over).mean())

    def chosen_by(self, rho: float = RHO) -> float:
        """The criterion for a clamp: as `with_cut`, with rho in full on the energy above it.

        An error of the tail alone appears in no release, so the choice does not count on learning.
        Where the estimate follows releases, the criterion is its error.
        """
        if self.estimator != "model":
            return self._rmsre(self._following(rho))
        return self._rmsre(self.noise + self.cut + (rho * self._moved) ** 2)

    def estimated(self, rho: float = RHO) -> float:
        """The same for the estimate, which combines model and release with the best linear gain.

        With p the factor's variance: below the clamp lies V = below_variance + p m^2, and what is
        learnt about the factor changes the expected energy above the clamp. An estimator that
        follows releases has the error of its filter instead; one that weighs the model too, the
        larger of both, or that of its filter where blocks of noise are simulated.
        """
        if self.estimator == "releases" or (self.blocks and self.estimator == "filter"):
            return self._rmsre(self._following(rho))
        p, m = self.factor(rho), self.load - self.missed
        below = self.below_variance + p * m**2
        covariance = p * m * self.missed
        gain = (below + covariance) / np.maximum(below + self.noise, _TINY)
        # twice the covariance of the two parts
        shared = self.variance - self.below_variance - self.cut
        squares = (1 - gain) ** 2 * below + gain**2 * self.noise
        squares += self.cut + p * self._moved**2 + (1 - gain) * (shared + 2 * covariance)
        by_model = self._rmsre(np.maximum(squares, 0.0))
        if self.estimator == "model":
            return by_model
        # what the model misses is a common factor at best, and a day's shape as well at worst
        return max(by_model, self._rmsre(self._following(rho)))

    def _following(self, rho: float) -> Floats:
        """The squared error of an estimate that follows releases, at every step [Wh^2].

        Readings above the clamp that are 1 + rho times the model's change the energy above it by
        rho times those readings, and no release shows it. Where no model puts them back, they are
        1 + `PUT_BACK` times what is put back.
        """
        flat = self.estimator == "releases"
        if self.blocks is not None:
            followed = self._through_blocks(rho, self.blocks._replace(flat=flat))
        else:
            followed = self._followed(rho, flat=flat)
        above = max(rho, PUT_BACK) if flat else rho
        return np.asarray(followed + self.cut + (above * self.over) ** 2)

    def _through_blocks(self, rho: float, blocks: BlockFilter) -> Floats:
        """Squared error of the load below the clamp and of what follows from it above.

        A common change of all readings by a share d changes the load below the clamp by d times
        the readings below it alone, so noise counts relative to those. What homes at random add to
        a step shows in its own release alone.
        """
        n = blocks.length
        scale = np.sqrt(3 * self.noise / ((n + 1) * (n + 2)))
        below = np.maximum(self.load - self.over, 1.0)
        common = blocks.variance(float(scale.mean() / below.mean()), rho)
        of_step = (
            self.below_variance * self.noise / np.maximum(self.below_variance + self.noise, _TINY)
        )
        return np.asarray(common * self.load**2 + of_step)

    def _followed(self, rho: float, *, flat: bool) -> Floats:
        """Variance of the load below the clamp after each release, by a filter in its third week.

        Its variance depends on no reading: noise counts by its own variance. The parts of the load
        have the spreads of a filter of the bank, together rho; about one number for all steps
        (`flat`) the profile of the day is as wide as in the widest of them.
        """
        m = np.maximum(self.load - self.missed, 1.0)
        m = np.full(len(m), m.mean()) if flat else m
        spreads = rho * np.array(FOLLOWED)
        spreads[3:5] = _FLAT if flat else spreads[3:5]
        spreads[5] = math.sqrt(spreads[5] ** 2 + float(np.mean(self.below_variance / m**2)))
        weeks = max(1, math.ceil(21 * STEPS_PER_DAY / len(m)))
        base, noise = np.tile(m, weeks), np.tile(np.maximum(self.noise, _TINY), weeks)
        steps = np.arange(len(base))
        loads = SeenLoads(
            base, np.sqrt(noise), base, steps % STEPS_PER_DAY / STEPS_PER_DAY,
            steps // STEPS_PER_DAY % 7 >= 5, "gaussian",
        )  # fmt: skip
        followed, _ = LoadFilter.start(24 / STEPS_PER_DAY, [Spreads(*spreads)]).follow(loads)
        return followed.variance[-len(m) :]

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

    def best(self, rho: float = RHO) -> Way:
        """The way to publish with the least error; among equals the one that needs least."""
        errors = {way: self.error(way, rho) for way in WAYS}
        enough = AS_GOOD * min(errors.values())
        return next(way for way, error in errors.items() if error <= enough)

    def share(self, rho: float = RHO, times: float = 1.0) -> float:
        """Error of the raw load as a share of its mean size, for `times` as many such houses."""
        larger = replace(
            self,
            cut=times * self.cut,
            below_variance=times * self.below_variance,
            missed=times * self.missed,
            low=times * self.low,
            load=times * self.load,
            variance=times * self.variance,
            over=times * self.over,
        )
        load = float(np.abs(larger.load - times * self.offset).mean())
        return math.sqrt(float(larger.squared(rho).mean())) / load if load > 0 else math.inf

    def _rmsre(self, squares: Floats) -> float:
        return math.sqrt(float(self.weights @ squares)) / len(squares)


_BILL = 30 * 24 * 3600  # [s]


def bill_change(
    parts: Prospect,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    export: Int32s,
    seconds: int = 900,
) -> tuple[float, float]:
    """How much noise changes the bill of a home, at raw prices, by public figures alone.

    Each density class has its own expected consumption and its own spread around it. The figure is
    that of the class whose bills change most.

    Args:
        parts: Parts of the expected error of a horizon.
        tariff: The rate of a load.
        models: Occupancy models.
        consumption: The laws of a reading, with the export limits added.
        export: Export limit of each house, (N,) [Wh].
        seconds: Length of a step [s]. The steps of a month repeat the horizon's.

    Returns:
        The expected size of the change, and what it stays below with 95 %, as shares of the bill.
    """
    moments = _model_moments(tuple(models), consumption, len(parts.load))
    sizes = np.bincount(consumption.class_of, minlength=moments.mean.shape[1])
    limit = np.bincount(consumption.class_of, export, len(sizes)) / np.maximum(sizes, 1)
    x = moments.mean - limit
    square = moments.square - 2 * limit * moments.mean + limit**2
    z = parts.load - tariff.offset
    rates = np.broadcast_to(optimal_rate(parts.load, tariff)[:, None], x.shape)
    slopes = np.full(x.shape, tariff.alpha)
    if tariff.feed_in is not None:
        fed = tariff.feed_in.alpha * (z + tariff.inelastic) / 1000 + tariff.feed_in.beta
        rates = np.where(x < 0, fed[:, None], rates)
        slopes = np.where(x < 0, tariff.feed_in.alpha, tariff.alpha)
    bills = np.abs(np.mean(x * rates, axis=0))[sizes > 0]
    spread = np.mean(square * (slopes / 1000) ** 2 * parts.noise[:, None], axis=0)[sizes > 0]
    shares = np.sqrt(spread * seconds / _BILL) / np.where(bills > 0, bills, np.nan)
    share = float(np.max(np.where(np.isnan(shares), math.inf, shares)))
    return share * math.sqrt(2 / math.pi), 1.96 * share


class _ModelMoments(NamedTuple):
    """Moments of every step, the mean over the models; elasticity is ignored.

    Attributes:
        load: Mean of the load, (T,) [Wh].
        variance: Its variance, (T,) [Wh^2].
        mean: Mean of a reading of each density class, (T, classes) [Wh].
        square: Mean of its square, in that shape [Wh^2].
    """

    load: Floats
    variance: Floats
    mean: Floats
    square: Floats


@lru_cache(maxsize=4)
def _model_moments(
    models: tuple[OccupancyModel, ...], consumption: Consumption, horizon: int
) -> _ModelMoments:
    classes = consumption.absent.shape[1]
    moments = _ModelMoments(*np.zeros((2, horizon)), *np.zeros((2, horizon, classes)))
    for model in models:
        for t, belief in enumerate(islice(marginals(model), horizon)):
            load = load_moments(belief, model, consumption)
            mean, square = class_moments(belief, model, consumption)
            moments.load[t] += load.mean / len(models)
            moments.variance[t] += load.variance / len(models)
            moments.mean[t] += mean / len(models)
            moments.square[t] += square / len(models)
    for total in moments:
        total.flags.writeable = False  # every plan of these models shares them
    return moments


def prospect(
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    tariff: Tariff,
    policy: Policy,
    scales: Sequence[float],
    blocks: BlockFilter | None = None,
) -> Prospect:
    """Parts of the expected error of releases at given scales; the mean over the models.

    Args:
        models: Occupancy models.
        consumption: The laws of a reading; elasticity is ignored.
        tariff: The rate of a load.
        policy: The noise law and the clamp.
        scales: Scale of the noise at every step [Wh]; its length is the horizon T.
        blocks: The filter that a plan of windows simulates; None: the noise is read linearly.

    Returns:
        The parts, each of shape (T,).
    """
    horizon = len(scales)
    foreseen = _model_moments(tuple(models), consumption, horizon)
    load, variance = foreseen.load, foreseen.variance
    b = np.array(scales)
    noise = policy.schedule.variance(b)
    missed, cut, over, low = np.zeros((4, horizon))
    below_variance = variance
    if policy.clamp:
        kinds = tuple(models), consumption, policy.clamp, horizon
        missed, cut, below_variance, _, over, low = cut_moments(*kinds)
    if policy.estimator == "releases" and not tariff.offset:
        # models have no part in such prices: all is relative to the usual load
        parts, all_variance = _usual_moments(consumption, policy, policy.clamp)
        missed, cut, below_variance, below, over, low = (np.full(horizon, part) for part in parts)
        load, variance = below + missed, np.full(horizon, all_variance)
    weights = (tariff.alpha / 1000 / relative_to(optimal_rate(load, tariff), tariff)) ** 2
    return Prospect(
        noise, cut, missed, below_variance, load, variance, weights, policy.estimator, over,
        tariff.offset, low, blocks,
    )  # fmt: skip
