"""Expected error of the price from public models.

Three ways to publish are compared on the same terms. On every day the whole load differs from the
model's by one factor 1 + rho G, E G = 0, Var G = 1, which past releases of that day reveal in part.
Closed form, for normal loads and the best linear estimate from releases.

What noise that lasts blocks of steps leaves unknown of a load is simulated (`BlockFilter`): one
filter of the bank, which knows the spreads of the load it follows, reads drawn loads behind drawn
noise. Its mean variance is the figure: it settles in a few weeks, and on many drawn weeks it is the
squared error of the filter, and of the whole bank, within a few per cent. The figure depends on the
ratio of noise and load alone, so few simulations answer for all clamps and zones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Int32s, Ints
from hushgrid.belief.filter import (
    class_moments,
    load_moments,
    marginals,
    sum_moments,
)
from hushgrid.belief.followed import PUT_BACK, usual_parts
from hushgrid.belief.load_filter import LoadFilter, SeenLoads, Spreads, drawn_loads
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import EstimatorRule, Policy
from hushgrid.model.consumption import Consumption, LoadShape
from hushgrid.model.laws import Clamp, clamp_ends, split
from hushgrid.model.occupancy import STEPS_PER_DAY, OccupancyModel
from hushgrid.model.zone import Tariff, marginal_rate, optimal_rate, relative_to
from hushgrid.planning.task import Secret

RHO = 0.2  # relative error to expect of the model
NO_CLAMP = 1 << 40  # [Wh] above every reading


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


def clamp_rows(clamps: Sequence[Clamp]) -> Ints:
    """The ends of several clamps.

    Args:
        clamps: One for each class [Wh], a row each.

    Returns:
        (rows, classes, 2): lower and upper ends [Wh].
    """
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
    parts = moments_of_rows(models, consumption, clamp_rows([clamp]), horizon)
    return ClampMoments(*(part[:, :, 0].mean(axis=0) for part in parts))


def moments_of_rows(
    models: Sequence[OccupancyModel], f: Consumption, clamps: Ints, horizon: int
) -> ClampMoments:
    """Moments of the load above and below several clamps.

    Args:
        models: Occupancy models.
        f: The laws of a reading.
        clamps: (rows, classes, 2): lower and upper ends [Wh].
        horizon: Number of steps T.

    Returns:
        (models, T, rows of clamps) each.
    """
    out = np.empty((6, len(models), horizon, len(clamps)))
    slots: dict[int, tuple[Floats, Floats]] = {}
    for m, model in enumerate(models):
        for t, belief in enumerate(islice(marginals(model), horizon)):
            slot = f.calendar.slot(belief.t)
            if slot not in slots:
                slots[slot] = _by_class(f, f.table(belief.t), clamps)
            means, variances = sum_moments(belief, model, f, *slots[slot])
            out[(0, 3, 4, 5), m, t] = means
            out[(1, 2), m, t] = variances[:2]
    return ClampMoments(*out)


def usual_moments(f: Consumption, policy: Policy, clamp: Clamp) -> tuple[ClampMoments, float]:
    """Moments of the usual load above and below a clamp, and the variance of all of it.

    Args:
        f: The laws of a reading.
        policy: What a house usually consumes.
        clamp: One for each class [Wh], or empty.

    Returns:
        The moments, and the variance.
    """
    at, usual = clamp or (NO_CLAMP,) * f.absent.shape[1], policy.usual * len(f.class_of)
    below, missed, cut, below_variance, joint, over = usual_parts(
        at, f.class_of, usual, np.ones(1)
    )[:, 0]
    return ClampMoments(
        missed, cut, below_variance, below, over, np.zeros(())
    ), below_variance + cut + 2 * joint


def _by_class(f: Consumption, table: Int32s, clamps: Ints) -> tuple[Floats, Floats]:
    """Means and variances of parts of a reading, (4, 2, classes, rows of clamps) each.

    The parts: above a clamp, below it, readings above it, and what lower ends add; the last two
    without their variances.
    """
    means = np.empty((4, *table.shape, len(clamps)))
    variances = np.zeros(means.shape)
    for state, kind in np.ndindex(*table.shape):
        low, at = clamps[:, kind].T.astype(np.float64)
        # min(X, C) = C min(X/C, 1): factors let one pass answer for every clamp
        halves = split(f.laws[table[state, kind]], 1.0, 1 / at, low / at)
        parts = (halves.above, halves.below, halves.over, halves.under)
        means[:, state, kind] = [part * at for part in parts]
        variances[0, state, kind] = halves.above_variance * at**2
        variances[1, state, kind] = halves.below_variance * at**2
    return means, variances


def clamped_pmf(f: Floats, at: int, low: int) -> Floats:
    """The pmf of readings cut at a clamp, less its lower end.

    Args:
        f: The pmf.
        at: Upper end [Wh].
        low: Lower end [Wh].

    Returns:
        The pmf from the lower end on.
    """
    if low:
        cut, f = f[:low].sum(), f[low:].copy() if f.size > low else np.zeros(1)
        f[0] += cut
        at -= low
    if f.size <= at + 1:
        return f
    out = f[: at + 1].copy()
    out[at] += f[at + 1 :].sum()
    return out


# ---- the error


Way = Literal["forecast", "raw", "estimate"]
Base = Literal["model", "shape", "number"]

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
        shaped: Whether an estimate without a model is about a public load shape, else about one
            number.

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
    shaped: bool = False

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
            base: Base = "model" if not flat else "shape" if self.shaped else "number"
            followed = self._through_blocks(rho, self.blocks._replace(base=base))
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
    slopes = np.broadcast_to(marginal_rate(parts.load, tariff)[:, None], x.shape)
    if tariff.feed_in is not None:
        fed = tariff.feed_in.alpha * (z + tariff.inelastic) / 1000 + tariff.feed_in.beta
        rates = np.where(x < 0, fed[:, None], rates)
        slopes = np.where(x < 0, tariff.feed_in.alpha, slopes)
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


def error_weights(load: Floats, tariff: Tariff) -> Floats:
    """Factors from a squared error of a load [Wh^2] to the squared relative error of its rate.

    Args:
        load: Expected loads [Wh].
        tariff: The rate of a load.

    Returns:
        The factors, in the shape of `load`.
    """
    slope = marginal_rate(load, tariff) / 1000
    return np.asarray((slope / relative_to(optimal_rate(load, tariff), tariff)) ** 2)


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
        parts, all_variance = usual_moments(consumption, policy, policy.clamp)
        missed, cut, below_variance, below, over, low = (np.full(horizon, part) for part in parts)
        load, variance = below + missed, np.full(horizon, all_variance)
    weights = error_weights(load, tariff)
    return Prospect(
        noise, cut, missed, below_variance, load, variance, weights, policy.estimator, over,
        tariff.offset, low, blocks, consumption.shape is not None,
    )  # fmt: skip


FOLLOWED = (0.12, 0.72, 0.3, 0.45, 0.27, 0.3)  # spreads of a filter's parts over their sum
_HOUR, _DAY, _WEEK = 3600, 86_400, 604_800  # [s]
# Spreads of what no forecast has. Homes of London and of New South Wales move together by 4 to 5 %
# about the mean of five weeks at the same time of the week; half of that lasts a day.
_LEVEL, _RESIDUAL, _WHITE = 0.035, 0.03, 0.01
# of a profile about the public load shape: in both places it is off by 0.10 to 0.18 in a month
_SHAPE = 0.12
_SEED = 17
_BEFORE, _COUNTED = 21, 42  # days that a simulated filter learns, and that count then
_UNIT = 1e6  # [Wh] the load of a simulated zone, large enough for noise in whole Wh


class BlockFilter(NamedTuple):
    """What the error of a filter depends on that follows a load through blocks of noise.

    Attributes:
        seconds: Length of a step [s].
        length: Steps of a block.
        base: What the load is followed about: the forecast of a model, a public load shape, or one
            number.
    """

    seconds: int
    length: int
    base: Base = "model"

    def variance(self, ratio: float, rho: float) -> float:
        """Variance of the estimate's error, relative to the load squared.

        Args:
            ratio: Scale of the noise over the load.
            rho: Relative error to expect of what the load is followed about; a hundredth at least.

        Returns:
            The variance, between simulated ones by a straight line of logarithms.
        """
        at = math.log2(max(ratio, 1e-9))
        low = math.floor(at)
        wrong = max(float(rho), 0.01)
        ends = [math.log(_simulated(self, wrong, k)) for k in (low, low + 1)]
        return math.exp(ends[0] + (at - low) * (ends[1] - ends[0]))


@lru_cache(maxsize=1024)
def _simulated(case: BlockFilter, rho: float, power: int) -> float:
    """The variance where the scale of the noise is the load times a power of two."""
    place, weekend, load = _street(case.seconds, rho, case.base)
    steps = np.arange(len(load))
    count, scale = -(-len(load) // case.length), _UNIT * 2.0**power
    noise = SimulatedNoise(_SEED).blocks(scale, case.length, count).ravel()[: len(load)]
    loads, _ = LoadFilter.start(case.seconds / _HOUR, [_spreads(rho, case.base)]).follow(
        SeenLoads(
            _UNIT * load + noise,
            np.full(len(load), scale),
            np.full(len(load), _UNIT),
            place,
            weekend,
            length=np.full(len(load), case.length),
            begins=steps % case.length == 0,
        )
    )
    counted = loads.variance[_BEFORE * _DAY // case.seconds :]
    return float(counted.mean()) / _UNIT**2


@lru_cache(maxsize=4)
def _street(seconds: int, rho: float, base: Base) -> tuple[Floats, Bools, Floats]:
    """Time of day, weekends, and loads relative to the base, of the simulated weeks."""
    local = seconds * np.arange((_BEFORE + _COUNTED) * _DAY // seconds)
    place, weekend = local % _DAY / _DAY, local % _WEEK >= 5 * _DAY
    source = np.random.Generator(np.random.PCG64(_SEED))
    spreads = _spreads(rho, base)
    if base != "number":
        return place, weekend, drawn_loads(spreads, seconds / _HOUR, place, weekend, source)
    about = spreads._replace(profile=0.0, weekend=0.0)
    deviations = drawn_loads(about, seconds / _HOUR, place, weekend, source)
    return place, weekend, deviations * LoadShape().week(local + seconds / 2)


@lru_cache(maxsize=8)
def _spreads(rho: float, base: Base) -> Spreads:
    """The spreads of a load: of what it is relative to rho, and what no forecast has."""
    _, slow, _, profile, weekend, _ = (rho * np.array(FOLLOWED)).tolist()
    if base == "shape":
        profile, weekend = math.hypot(profile, _SHAPE), math.hypot(weekend, _SHAPE / 2)
    if base == "number":
        shape = LoadShape()
        mean = np.mean([*shape.workday * 5, *shape.weekend * 2])
        workday, free = np.array(shape.workday) / mean, np.array(shape.weekend) / mean
        profile = round(math.hypot(profile, float(workday.std())), 3)
        weekend = round(math.hypot(weekend, float((free - workday).std())), 3)
    return Spreads(_LEVEL, slow, _RESIDUAL, profile, weekend, _WHITE)


def block_filter(policy: Policy, secret: Secret, seconds: int) -> BlockFilter | None:
    """The filter that is simulated for a promise about windows; None for another secret.

    Args:
        policy: The policy.
        secret: What the promise protects.
        seconds: Length of a step [s].

    Returns:
        The filter through blocks of the length of the first.
    """
    if secret != "window" or not policy.schedule.lengths:
        return None
    return BlockFilter(seconds, max(policy.schedule.lengths))
