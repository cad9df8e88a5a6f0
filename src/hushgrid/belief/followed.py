"""What the public knows of a load that it follows from releases: `FollowedKnowledge`.

It weighs a bank of filters (`load_filter`) against the forecast of the zone's model, and adds the
energy above a clamp by a public function of the followed load. Theory: docs/proofs/estimate.md.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Floats, Int32s
from hushgrid.belief.estimate import (
    FACTOR_STEP,
    NO_NOISE,
    HalfWidths,
    LoadInterval,
    LoadMixture,
    PublicKnowledge,
    ReleaseParts,
    intervals,
)
from hushgrid.belief.load_filter import (
    SPREADS,
    LoadFilter,
    SeenLoads,
    Values,
    mixture_moments,
    roughness,
)
from hushgrid.belief.posterior import (
    GAUSSIAN,
    Shape,
    block_chances,
    block_halves,
    check_level,
    posterior_weights,
)
from hushgrid.model.consumption import Consumption
from hushgrid.model.covariate import Covariate
from hushgrid.model.laws import Clamp, clamp_ends


class DayClock(Protocol):
    """The time of day of each step. A value, so that knowledge can be compared."""

    @property
    def hours(self) -> float:
        """Length of a step [h]."""
        ...

    def at(self, t: int) -> tuple[float, bool]:
        """The time of day of step t as a share of the local day, and whether it is a weekend."""
        ...

    def from_step(self, first: int) -> DayClock:
        """The clock of steps that begin with the zone's step `first`."""
        ...


class EvenDays(NamedTuple):
    """Days of equally many steps from step 1 on, none of them a weekend.

    Attributes:
        steps: Steps of a day.
    """

    steps: int = 96

    @property
    def hours(self) -> float:
        """Length of a step [h]."""
        return 24 / self.steps

    def at(self, t: int) -> tuple[float, bool]:
        """The time of day of step t, and False."""
        return (t - 1) % self.steps / self.steps, False

    def from_step(self, first: int) -> EvenDays:  # noqa: ARG002
        """Itself: steps begin with a day."""
        return self


class EarlierRelease(NamedTuple):
    """A release of a step before the first.

    Attributes:
        t: The step, 0 or below.
        load_hat: Noisy load [Wh].
        scale: Scale of its noise [Wh].
        base: The load that it was relative to [Wh].
        share: Probability of the model's component after it; 0 without a model.
        covariates: Values of the public covariates that it was read with.
        block: The block of steps with its noise: its `first` step and `length`; None where its
            noise is independent.
    """

    t: int
    load_hat: float
    scale: float
    base: float
    share: float
    covariates: Values = MappingProxyType({})
    block: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FollowedKnowledge:
    """What the public knows of a load from its releases, and from a model where there is one.

    The forecast of the model with its common factor is one component, the bank of filters is the
    other; each release weighs them by how well they foresaw it. The filters are relative to the
    model's forecast, or to one number where no model may be used. They follow the energy that
    releases cover; the energy above a clamp is the one that the model has at the same level, or
    without a model readings that are log-normal about the usual one.

    Attributes:
        model: Public knowledge by the model.
        bank: The filters.
        share: Probability of the model's component before the next release; 0 without a model.
        days: Time of day of each step.
        usual: The base where no model is used [Wh], of an average step where the consumption has
            a load shape; 0: the model's forecast.
        covariates: The public covariates.
        values: Their values at the next step; None for a missing one.
        widths: Probability of each of some factors by which intervals are wider than the laws say,
            from how far releases were from what was foreseen.
        noise_sizes: (G,): probability of each cell of half-widths that the noise of the block of
            steps may have.
    """

    model: PublicKnowledge
    bank: LoadFilter
    share: float
    days: DayClock
    usual: float = 0.0
    covariates: tuple[Covariate, ...] = ()
    values: tuple[float | None, ...] = ()
    widths: Floats = field(default_factory=lambda: _WIDTH_LAW)
    noise_sizes: Floats = field(default_factory=lambda: block_chances())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FollowedKnowledge) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[Any, ...]:
        bank = self.bank
        arrays = [bank.weights, bank.mean, bank.covariance, bank.sizes, bank.offsets]
        arrays += [self.widths, self.noise_sizes]
        terms = (bank.hours, bank.spreads, self.share, self.days, self.usual)
        bits = tuple(x.tobytes() for x in arrays)
        return (self.model, bits, terms, self.covariates, self.values)

    @classmethod
    def start(
        cls,
        model: PublicKnowledge,
        days: DayClock,
        usual: float = 0.0,
        covariates: Sequence[Covariate] = (),
    ) -> FollowedKnowledge:
        """Before the first release.

        Args:
            model: Knowledge by the model; without a model its step, clamp and noise law alone.
            days: Time of day of each step.
            usual: The usual load where no model is used [Wh]; 0: with the model.
            covariates: The public covariates.

        Returns:
            The knowledge.
        """
        bank = LoadFilter.start(days.hours, SPREADS, len(covariates))
        share, none = (0.0 if usual else _FIRST_SHARE), (None,) * len(covariates)
        return cls(model, bank, share, days, usual, tuple(covariates), none)

    @property
    def t(self) -> int:
        """The next step."""
        return self.model.t

    @property
    def shape(self) -> Shape:
        """The noise law of the releases."""
        return self.model.shape

    def continued(
        self,
        earlier: Sequence[EarlierRelease],
        begun: tuple[int, FollowedKnowledge] | None = None,
    ) -> FollowedKnowledge:
        """The knowledge before step 1, where releases were published before it.

        Args:
            earlier: Releases of the steps before step 1, in order, under the same noise law.
            begun: An earlier step, and what this returned before it with releases; `earlier` are
                those since then. The result is that of all of them bit for bit.

        Returns:
            The knowledge, with the filters after them and the last share of the model.
        """
        if begun is None:
            if not earlier:
                return self
            begun = (earlier[0].t, self)
        first, before = begun
        steps = np.arange(first, 1)
        load_hat, scale, base = (
            np.zeros(len(steps)),
            np.full(len(steps), np.nan),
            np.ones(len(steps)),
        )
        standard, block = np.zeros((len(steps), len(self.covariates))), None
        length, begins = np.zeros(len(steps), np.int64), np.zeros(len(steps), bool)
        for release in earlier:
            at, former, release_block = (
                release.t - first,
                block,
                release.block or {"length": 0, "first": release.t},
            )
            length[at], block = release_block["length"], release_block["first"]
            begins[at] = block != former
            load_hat[at], scale[at], base[at] = (
                release.load_hat,
                release.scale,
                max(release.base, 1.0),
            )
            if self.covariates:
                standard[at] = self.knowing(release.covariates)._standard
        place, weekend = (np.array(x) for x in zip(*map(self.days.at, steps.tolist()), strict=True))
        noise = (self._noise, standard, length, begins)
        loads = SeenLoads(load_hat, scale, base, place, weekend, *noise)
        widths, sizes, values = before.widths, before.noise_sizes, before.values
        last = replace(self, widths=widths, noise_sizes=sizes, values=values)
        share = before.share
        if earlier:
            share = 0.0 if self.usual else earlier[-1].share or _FIRST_SHARE
            last = last.knowing(earlier[-1].covariates)
        filtered, bank = before.bank.follow(loads)
        of_releases = np.array([release.t - first for release in earlier], np.int64)
        seen = (load_hat, scale, filtered.forecast, filtered.forecast_variance, length, begins)
        if earlier:
            last = last._widened(*(column[of_releases] for column in seen))
        return replace(last, bank=bank, share=share)

    @property
    def _noise(self) -> str:
        return "gaussian" if self.shape is GAUSSIAN else "laplace"

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What steps and releases have changed, by name; bit for bit."""
        bank, figures = (
            self.bank,
            (self.share, *(math.nan if x is None else x for x in self.values)),
        )
        arrays = {"bank": bank.weights, "mean": bank.mean, "covariance": bank.covariance}
        if self.model.ends:
            arrays["bank sizes"], arrays["bank offsets"] = bank.sizes, bank.offsets
            arrays["noise sizes"] = self.noise_sizes
        arrays["widths"] = self.widths
        return {**self.model.to_arrays(), **arrays, "followed": np.array(figures)}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> FollowedKnowledge:
        """The knowledge of the same terms with what `to_arrays` had.

        Raises:
            ValueError: The arrays are of other terms, or one is missing.
        """
        names = (*_FOLLOWED, "bank sizes", "bank offsets", "noise sizes")
        own_arrays = {name: array for name, array in self.to_arrays().items() if name in names}
        if any(
            name not in arrays or arrays[name].shape != own_arrays[name].shape
            for name in own_arrays
        ):
            raise ValueError("arrays of other terms")
        weights, mean, covariance, widths, figures = (arrays[name] for name in _FOLLOWED)
        sizes = arrays.get("bank sizes", self.bank.sizes)
        offsets = arrays.get("bank offsets", self.bank.offsets)
        bank = replace(
            self.bank,
            weights=weights,
            mean=mean,
            covariance=covariance,
            sizes=sizes,
            offsets=offsets,
        )
        share, *covariate_values = map(float, figures)
        model, values = (
            self.model.from_arrays(arrays),
            (None if math.isnan(x) else x for x in covariate_values),
        )
        knowledge = replace(self, model=model, bank=bank, share=share, values=tuple(values))
        return replace(
            knowledge, widths=widths, noise_sizes=arrays.get("noise sizes", self.noise_sizes)
        )

    def knowing(self, values: Values) -> FollowedKnowledge:
        """The knowledge with the values of the public covariates at the next step."""
        return replace(
            self, values=tuple(values.get(covariate.name) for covariate in self.covariates)
        )

    @property
    def named_values(self) -> Values | None:
        """The values of the public covariates by name; None where there are no covariates."""
        names = [covariate.name for covariate in self.covariates]
        return dict(zip(names, self.values, strict=True)) if names else None

    @property
    def _standard(self) -> list[float]:
        return [
            covariate.standard(x) for covariate, x in zip(self.covariates, self.values, strict=True)
        ]

    def predicted(self, rates: Sequence[float] = (), ahead: int = 0) -> LoadMixture:
        """The law of the load of step t + ahead, given everything published so far."""
        law = self.passed(ahead).parts(rates).widened(self.width)
        variance = law.variance + law.cut_variance + 2 * law.joint
        return LoadMixture(law.weights, law.mean + law.cut, np.maximum(variance, 1e-9))

    @property
    def width(self) -> float:
        """How much wider intervals of the load below the clamp are than its laws say."""
        return _TAIL_WIDTH * float(np.exp(self.widths @ np.log(_WIDTHS)))

    def _widened(
        self,
        load_hat: ArrayLike,
        scale: ArrayLike,
        mean: ArrayLike,
        variance: ArrayLike,
        length: ArrayLike,
        begins: ArrayLike,
    ) -> FollowedKnowledge:
        """The knowledge with what releases say about the widths of intervals.

        The releases of a block of steps share the size of their noise, whose chances go on from
        release to release.
        """
        from hushgrid._kernels.load_filter import widen

        noisy, b, m, v = (
            np.array(x, np.float64, ndmin=1) for x in (load_hat, scale, mean, variance)
        )
        steps = np.array(length, np.int64, ndmin=1)
        lengths = sorted({0, *steps.tolist()})
        sizes, widths = self.noise_sizes.copy(), self.widths.copy()
        halves = np.array([block_halves(n) for n in lengths[1:] or (1,)])
        noise = (halves, np.searchsorted(lengths, steps) - 1)
        opens = (np.array(begins, np.bool_, ndmin=1), block_chances())
        laws = (_WIDTHS, _WIDTH_LAW, _FORGOTTEN, _TAILS, _TAIL_SHARES)
        b[b == 0] = NO_NOISE
        widen(noisy, b, self.shape is GAUSSIAN, m, v, *noise, *opens, *laws, widths, sizes)
        return replace(self, widths=widths, noise_sizes=sizes)

    def clamped_energy(self, rates: Sequence[float] = ()) -> float:
        """The expected energy of step t above the clamp [Wh]; 0 without a clamp."""
        if not self.model.clamp:
            return 0.0
        law = self.parts(rates)
        return float(law.weights @ law.cut)

    def parts(self, rates: Sequence[float] = ()) -> ReleaseParts:
        """The law of the load of step t in two parts: below the clamp, and above it."""
        law = None if self.usual else self.model.parts(rates)
        load = self._next_load(law, rates)
        bank_step, _ = self.bank.step(load)
        m, v = bank_step.forecast, bank_step.forecast_variance
        bank_parts = (bank_step.weights, m, v, *self._cut_law(m, v, law, float(load.base[0])))
        if law is None:
            return ReleaseParts(*bank_parts)
        share = _stirred_share(self.share)
        joined = [np.concatenate([a.ravel(), b]) for a, b in zip(law, bank_parts, strict=True)]
        joined[0] = np.concatenate([share * law.weights.ravel(), (1 - share) * bank_step.weights])
        return ReleaseParts(*joined)

    def learn(
        self, load_hat: float, scale: float, rates: Sequence[float] = ()
    ) -> tuple[float, FollowedKnowledge]:
        """E[Z given this release and all before it] [Wh], and the knowledge after it."""
        estimate, _, after = self.learn_and_put_back(load_hat, scale, rates)
        return estimate, after

    def learn_and_put_back(
        self, load_hat: float, scale: float, rates: Sequence[float] = ()
    ) -> tuple[float, float, FollowedKnowledge]:
        """As `learn`, with the `clamped_energy` of the step between them [Wh]."""
        law = None if self.usual else self.model.parts(rates)
        bank_step, bank = self.bank.step(self._next_load(law, rates, load_hat, scale))
        log = _log_mean(bank_step.weights, bank_step.log)
        cut, *_ = self._above(bank_step.estimate, law)
        estimate = float(bank.weights @ (bank_step.estimate + cut))
        share = 0.0 if law is None else _stirred_share(self.share)
        put_back = 0.0
        if self.model.clamp:
            cut, *_ = self._above(bank_step.forecast, law)
            put_back = (1 - share) * float(bank_step.weights @ cut)
            put_back += 0.0 if law is None else share * float(law.weights.ravel() @ law.cut.ravel())
        laws = [((1 - share) * bank_step.weights, bank_step.forecast, bank_step.forecast_variance)]
        if law is not None:
            laws.append((share * law.weights.ravel(), law.mean.ravel(), law.variance.ravel()))
        foreseen = mixture_moments(*(np.concatenate(x) for x in zip(*laws, strict=True)))
        block = (self.model.length, self.model.at_block() is not self.model)
        now = self._widened(load_hat, scale, *foreseen, *block)
        if law is None:
            after = replace(now, model=self.model.at_block().moved(1), bank=bank)
            return estimate, put_back, after
        by_model, evidence, model = self.model.weighed(load_hat, scale, rates, law)
        share = float(posterior_weights(np.array([share, 1 - share]), np.array([evidence, log]))[0])
        estimate = share * by_model + (1 - share) * estimate
        return estimate, put_back, replace(now, model=model, bank=bank, share=share)

    def after(
        self, load_hat: float, scale: float, rates: Sequence[float] = ()
    ) -> FollowedKnowledge:
        """The knowledge after the release of step t."""
        return self.learn(load_hat, scale, rates)[1]

    def passed(self, steps: int = 1) -> FollowedKnowledge:
        """The knowledge after steps without a release."""
        if steps < 1:
            return self
        none, base = np.full(steps, np.nan), np.ones(steps)
        silent = SeenLoads(none, none, base, 0 * base, np.zeros(steps, bool))
        model = self.model.moved(steps) if self.usual else self.model.passed(steps)
        return replace(self, model=model, bank=self.bank.follow(silent)[1])

    def forecast(
        self, steps: int, rates: Sequence[float] = (), level: float = 0.95
    ) -> list[LoadInterval]:
        """The loads of the next steps with intervals, from public knowledge only."""
        check_level(level)
        now, laws = self, list[LoadMixture]()
        for _ in range(steps):
            laws.append(now.predicted(rates))
            now = now.passed()
        return intervals(laws, level)

    def _next_load(
        self,
        law: ReleaseParts | None,
        rates: Sequence[float],
        load_hat: float = np.nan,
        scale: float = np.nan,
    ) -> SeenLoads:
        """The next step for the bank, relative to what a release shows with nothing learnt."""
        place, weekend = self.days.at(self.t)
        numbers = (load_hat, scale, self._base(law, rates), place)
        load, b, base, at = (np.array([number], np.float64) for number in numbers)
        covariates, length, begins = np.array([self._standard]), None, None
        if self.model.ends and not math.isnan(scale):
            length = np.array([self.model.length])
            begins = np.array([self.model.at_block() is not self.model])
        return SeenLoads(
            load, b, base, at, np.array([weekend]), self._noise, covariates, length, begins
        )

    def half_widths(self, scale: float, rates: Sequence[float] = ()) -> HalfWidths | None:
        """As that of the model, with the laws of the filters after the model's."""
        by_model = self.model.half_widths(scale)
        if by_model is None:
            return None
        law = None if self.usual else self.model.parts(rates)
        bank_step, _ = self.bank.step(self._next_load(law, rates))
        of_bank = HalfWidths(
            by_model.ends,
            self.bank.sizes,
            bank_step.shift,
            bank_step.within / bank_step.forecast_variance,
        )
        if self.model.at_block() is not self.model:
            fresh = np.tile(block_chances(), (len(of_bank.chances), 1))
            of_bank = HalfWidths(by_model.ends, fresh, 0 * fresh, np.ones(len(fresh)))
        if self.usual:
            return of_bank
        both = zip(by_model[1:], of_bank[1:], strict=True)
        return HalfWidths(by_model.ends, *(np.concatenate(columns) for columns in both))

    def base(self, rates: Sequence[float] = ()) -> float:
        """What the public expects of the release of step t with nothing learnt [Wh], above 0."""
        return self._base(None if self.usual else self.model.parts(rates), rates)

    def _base(self, law: ReleaseParts | None, rates: Sequence[float]) -> float:
        if law is None:
            f, (place, weekend) = self.model.consumption, self.days.at(self.t)
            middle = place + self.days.hours / 48
            usual = _usual_below(f, self.model.clamp, self.usual, middle, weekend)
            return max(usual * f.factor(rates), 1.0)
        return max(float(law.mean[:, 0].mean()), 1.0)  # of the factor 1, models equally likely

    def _cut_law(
        self, below: Floats, variance: Floats, law: ReleaseParts | None, base: float
    ) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of the energy above the clamp, and its covariance with that below.

        Of the variance below, as much as houses at random have is theirs: there the energy above
        follows as it does in the model. The rest moves all of them together. Without a model,
        houses vary as much more than log-normal readings do as the filter, which learns it from
        releases, has the load below the clamp vary from step to step.

        Args:
            below: (n,): means of the load below the clamp [Wh], one for each filter.
            variance: (n,): its variances [Wh^2].
            law: The model's law of the step; None without a model.
            base: The load that the filters are relative to [Wh].

        Returns:
            (n,) each [Wh, Wh^2, Wh^2].
        """
        cut, slope, spread, random_variance, joint, over = self._above(below, law)
        gain, wrong = joint / np.maximum(random_variance, 1e-9), _ABOVE
        if law is None:
            rough = (base * roughness(self.bank.spreads)) ** 2
            volatile = np.maximum(
                np.minimum(rough, variance) / np.maximum(random_variance, 1e-9), 1.0
            )
            spread, random_variance, joint = (
                volatile * spread,
                volatile * random_variance,
                volatile * joint,
            )
            wrong = PUT_BACK
        random_part = np.minimum(variance, random_variance)
        common = variance - random_part
        residual = np.maximum(spread - gain * joint, 0.0) + (wrong * over) ** 2
        all_variance = residual + gain**2 * random_part + slope**2 * common
        return cut, all_variance, gain * random_part + slope * common

    def _above(self, below: Floats, law: ReleaseParts | None) -> Floats:
        """The energy above the clamp where the load below has some means.

        Args:
            below: (n,): means of the load below the clamp [Wh].
            law: The model's law of the step; None: readings are log-normal about the usual one.

        Returns:
            (6, n): its mean, the slope of that over `below`, its variance, the variance below the
            clamp, the covariance of both, and the change of its mean by all readings' logarithm.
        """
        if not self.model.clamp:
            return np.zeros((6, len(below)))
        if law is None:
            mean, *curves = _usual_curves(self.model.consumption, self.model.clamp, self.usual)
            return np.array([np.interp(below, mean, curve) for curve in curves])
        columns = (law.mean, law.cut, law.cut_variance, law.variance, law.joint)
        means = [x[:, 1:].mean(axis=0) for x in columns]
        over = np.gradient(means[1], FACTOR_STEP)
        # no load, nothing above, and all that lower ends add
        low = self.model.least
        firsts = (low, -low, 0.0, 0.0, 0.0, 0.0)
        mean, cut, *curves = (
            np.concatenate([[x], row]) for x, row in zip(firsts, (*means, over), strict=True)
        )
        if low:  # where small loads are all at their lower ends
            mean = np.maximum.accumulate(mean) + 1e-6 * np.arange(len(mean))
        return np.array([np.interp(below, mean, x) for x in (cut, np.gradient(cut, mean), *curves)])


SPREAD = 0.95  # of the logarithm of readings of many homes about their mean

LEVELS = np.concatenate([[1e-3], np.geomspace(0.1, 10.0, 41)])  # of the usual load

# Relative error to expect of readings above a clamp that are put back by a spread without a model,
# whatever the level: some homes heat water at night, and no release shows it. At clamps of three to
# nine times the mean it is 0.36 to 0.82 for a hundred homes of London and fifty of New South Wales.
PUT_BACK = 0.5


def usual_parts(clamp: Clamp, class_of: Int32s, usual: float, levels: Floats) -> Floats:
    """A load in two parts, below a clamp and above it, where all that is known is its usual size.

    Readings are taken as log-normal about their mean: no model of these homes has a part in it, so
    it is public.

    Args:
        clamp: Clamp of each class [Wh].
        class_of: Class of each house.
        usual: The usual load of all houses [Wh].
        levels: (n,): multiples of the usual load.

    Returns:
        (6, n): mean below the clamp, mean above it, variance above, variance below, covariance of
        both, and the mean of readings above it [Wh, Wh^2].
    """
    from scipy.special import ndtr

    parts, m = np.zeros((6, len(levels))), levels * usual / len(class_of)
    counts = np.bincount(class_of, minlength=len(clamp)).tolist()
    for (_, at), count in zip(map(clamp_ends, clamp), counts, strict=True):
        d = np.log(m / at) / SPREAD
        beyond, readings, squares = (
            factor * ndtr(d + shift * SPREAD)
            for shift, factor in ((-0.5, 1.0), (0.5, m), (1.5, m**2 * math.exp(SPREAD**2)))
        )
        above = readings - at * beyond
        below = m - above
        above_variance = squares - 2 * at * readings + at**2 * beyond - above**2
        below_variance = m**2 * math.exp(SPREAD**2) - squares + at**2 * beyond - below**2
        joint = at * above - below * above
        moments = (below, above, above_variance, below_variance, joint, readings)
        parts += count * np.maximum(moments, 0.0)
    return parts


@lru_cache(maxsize=8)
def _usual_curves(f: Consumption, clamp: Clamp, usual: float) -> Floats:
    """(7, n): mean below a clamp, and there what `FollowedKnowledge._above` returns."""
    mean, cut, *curves = usual_parts(clamp, f.class_of, usual, LEVELS)
    return np.array([mean, cut, np.gradient(cut, mean), *curves])


@lru_cache(maxsize=1024)
def _usual_below(f: Consumption, clamp: Clamp, usual: float, place: float, weekend: bool) -> float:
    """The mean below a clamp at a time of day [Wh], by the load shape where there is one."""
    level = 1.0 if f.shape is None else f.shape.of_day(place, weekend)
    if not clamp:
        return level * usual
    return float(usual_parts(clamp, f.class_of, usual, np.array([level]))[0, 0])


_WIDTHS = np.exp(np.linspace(math.log(0.5), math.log(2.5), 13))

_FORGOTTEN = 1 / 6000  # share of what releases say of the widths that a later one takes away


def informed(public: Knowledge, values: Values | None) -> Knowledge:
    """Public knowledge with the values of its covariates at the next step.

    Args:
        public: The knowledge.
        values: By name; None: the last ones are held.

    Returns:
        The knowledge; as given where it has no covariates.
    """
    if values is None or not isinstance(public, FollowedKnowledge):
        return public
    return public.knowing(values)


_FOLLOWED = ("bank", "mean", "covariance", "widths", "followed")  # of `to_arrays`

_REMEMBERED = 60 * 86_400  # of releases that are followed when a zone begins to [s]

_WEEK, _WEEKS = 7 * 86_400, 8  # [s]; so many weeks go on from each other


class Begun(NamedTuple):
    """What was known before a week, for the weeks after it.

    Attributes:
        first: The zone's step that the week begins with.
        knowledge: That before it, with the releases before the week.
    """

    first: int
    knowledge: Knowledge


def followed_from(
    zone: str, first: int, seconds: int, begun: Begun | None
) -> tuple[int, tuple[int, FollowedKnowledge] | None]:
    """From when on releases are followed before a week, and what is known by then.

    Sixty days at least; weeks that begin within the same eight go on from each other. Which eight
    depends on the zone's name, so that zones do not all begin anew in one night.

    Args:
        zone: The zone's name.
        first: The zone's step that the week begins with.
        seconds: Length of a step [s].
        begun: An earlier week of the same terms.

    Returns:
        The time [UTC s]; for `FollowedKnowledge.continued` the first step and the knowledge before
        it, None where all releases since then are needed.
    """
    shift = zlib.crc32(zone.encode()) % _WEEKS

    def anew(step: int) -> int:
        return ((step * seconds // _WEEK - shift) // _WEEKS * _WEEKS + shift) * _WEEK

    since = anew(first) - _REMEMBERED
    if begun is None or not isinstance(begun.knowledge, FollowedKnowledge):
        return since, None
    if anew(begun.first) != anew(first) or not begun.knowledge.bank.mean.any():  # it had no release
        return since, None
    return begun.first * seconds, (begun.first - first + 1, begun.knowledge)


# relative error to expect of a model's readings above the clamp, where no release shows them
_ABOVE = 0.15

_FIRST_SHARE = 0.8  # probability of the model's component before any release

_SHARE_STIR = 1e-4  # share of that probability that goes back to it at each step


def _stirred_share(share: float) -> float:
    return (1 - _SHARE_STIR) * share + _SHARE_STIR * _FIRST_SHARE


def _log_mean(weights: Floats, logs: Floats) -> float:
    """Log of the mean of densities."""
    top = float(logs.max())
    return top + float(np.log(weights @ np.exp(logs - top)))


# before any release; noise hides how volatile a small zone is
_WIDTH_LAW: Floats = np.exp(-((np.log(_WIDTHS / 1.05) / 0.3) ** 2) / 2)
_WIDTH_LAW /= _WIDTH_LAW.sum()
_WIDTH_LAW.flags.writeable = False

# errors have longer tails than a normal law: spreads of three of them, their shares, and how much
# wider the interval of 95 % is than that of a normal law of the spread 1
_TAILS, _TAIL_SHARES, _TAIL_WIDTH = np.array([0.7, 1.0, 1.6]), np.array([0.3, 0.5, 0.2]), 1.111

Knowledge = PublicKnowledge | FollowedKnowledge
