"""The public's best estimate of the load from Theta, f and past releases: post-processing.

The public predicts Z^t with mean m and variance v, then observes m + (Z - m) + K. Real zones share
shocks that the model does not have (weather), so the prediction carries an unknown common factor:
usually 1, sometimes not, inferred from the releases (docs/proofs/estimate.md). The first part
treats one normal load behind noise, one `Shape` for each noise law; the second, `PublicKnowledge`,
treats a sequence of releases.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Value
from hushgrid.belief.filter import (
    Belief,
    Moments,
    load_moments,
    marginals,
    prior,
    sum_moments,
)
from hushgrid.belief.posterior import (
    BLOCK_SIZES,
    LAPLACE,
    Shape,
    block_chances,
    block_halves,
    check_level,
    posterior_weights,
)
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Clamp, clamp_ends, split
from hushgrid.model.occupancy import OccupancyModel

# ---- a normal load behind noise


# ---- public knowledge, release by release

# beliefs kept of each model; older ones are computed again on demand
_KEPT_STEPS, _KEPT_BYTES = 256, 1 << 24


class ReleaseParts(NamedTuple):
    """Moments of the load below the clamp and of the energy above it, for each model and factor.

    Without a clamp nothing is above it. Where a clamp has lower ends, the energy below them counts
    as negative energy above it. Every array is (models, factors).

    Attributes:
        weights: Probability of each model and factor.
        mean: Mean below the clamp [Wh].
        variance: Variance below the clamp [Wh^2].
        cut: Mean above the clamp [Wh].
        cut_variance: Variance above the clamp [Wh^2].
        joint: Covariance of both parts [Wh^2].
    """

    weights: Floats
    mean: Floats
    variance: Floats
    cut: Floats
    cut_variance: Floats
    joint: Floats

    def widened(self, width: float) -> ReleaseParts:
        """The parts where the load below the clamp varies so many times as much about its mean."""
        middle = (1 - width) * float(self.weights.ravel() @ self.mean.ravel())
        return self._replace(
            mean=width * self.mean + middle,
            variance=width**2 * self.variance,
            joint=width * self.joint,
        )


class FactorPrior(NamedTuple):
    """Prior of the common factor: 1 or, with probability `share`, log-normal about 1.

    Attributes:
        share: Probability that the factor is not 1.
        spread: Standard deviation of its logarithm then.
        hazard: Chance per step that it is drawn again.
        drift: Standard deviation of its logarithm's change in a step, where it is not 1.
    """

    share: float = 0.05  # of days or moments on which the factor is not 1
    spread: float = 0.25  # standard deviation of its logarithm then
    hazard: float = 0.002  # chance per step of a new draw
    drift: float = 0.003  # standard deviation of its logarithm's change in a step, when not 1


USUAL_FACTOR = FactorPrior()
NO_FACTOR = FactorPrior(share=0.0, hazard=0.0)

_GRID = np.exp(np.linspace(math.log(0.4), math.log(2.5), 367))  # half a per cent apart
FACTOR_STEP = math.log(_GRID[1] / _GRID[0])  # of the factor's logarithm
_FACTORS = np.concatenate([[1.0], _GRID])
NO_NOISE = 1e-3  # [Wh]; the scale that represents no noise


class LoadInterval(NamedTuple):
    """An estimate of a load and an interval that holds the load with a given probability.

    Attributes:
        mean: The estimate [Wh].
        low: Low end [Wh].
        high: High end [Wh].
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class PublicKnowledge:
    """What the public knows before step t: the probability of each model and each factor.

    With a `clamp` a release covers the energy below it only; the energy above it is added by its
    expectation.

    Attributes:
        models: The occupancy models Theta.
        consumption: The public laws of readings.
        prior: Prior of the common factor.
        weights: Probabilities, (models, 1 + grid): of the factor 1, then of the grid's factors.
        t: The next step.
        clamp: Clamp of each density class [Wh]; empty without a clamp.
        shape: The noise law of the releases.
        moments: Cached moments of the load.
        ends: Last step of each block of steps with one noise, after the step before the first of
            them; empty where noise is independent.
        block: The last step of the block that `sizes` is about; 0 before any release.
        sizes: (models, 1 + grid, G): for each factor, probability of each half-width that the noise
            of the block may have; empty where noise is independent.
    """

    models: tuple[OccupancyModel, ...]
    consumption: Consumption
    prior: FactorPrior
    weights: Floats
    t: int
    clamp: Clamp
    shape: Shape
    moments: _Moments
    ends: tuple[int, ...] = ()
    block: int = 0
    sizes: Floats = field(default_factory=lambda: np.zeros(0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKnowledge) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def _value(self) -> tuple[Any, ...]:
        block_state = (self.ends, self.block, self.sizes.tobytes())
        return (self.moments, self.prior, self.weights.tobytes(), self.t, self.shape, block_state)

    @classmethod
    def start(
        cls,
        models: Sequence[OccupancyModel],
        consumption: Consumption,
        prior: FactorPrior = USUAL_FACTOR,
        clamp: Clamp = (),
        shape: Shape = LAPLACE,
    ) -> PublicKnowledge:
        """Before the first release: models equally likely, the factor as in its prior."""
        if clamp:
            consumption.check_clamp(clamp)
        weights = np.tile(_factor_law(prior), (len(models), 1)) / len(models)
        moments = _Moments(tuple(models), consumption, clamp)
        return cls(tuple(models), consumption, prior, weights, 1, clamp, shape, moments)

    def with_blocks(self, lengths: Sequence[int], steps_before: int = 0) -> PublicKnowledge:
        """The knowledge before the first release, where noise lasts blocks of these steps.

        Args:
            lengths: Steps of each block; empty where noise is independent.
            steps_before: Steps of the first block that lie before step 1.

        >>> from hushgrid import Consumption, OccupancyModel, Uniform
        >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
        >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
        >>> now = PublicKnowledge.start([theta], f).with_blocks((96, 96), steps_before=90)
        >>> now.ends, now.length, now.moved(6).length
        ((-90, 6, 102), 96, 96)
        """
        ends = tuple(accumulate(lengths, initial=-steps_before)) if lengths else ()
        return replace(self, ends=ends, block=0, sizes=_first_sizes(self.weights, ends))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What steps and releases have changed, by name; bit for bit."""
        beliefs = self.moments.beliefs(self.t)
        laws = {
            f"law {model} {block}": law
            for model, belief in enumerate(beliefs)
            for block, law in enumerate(belief.laws)
        }
        if self.ends:
            laws |= {"block": np.array(self.block), "sizes": self.sizes}
        return {"t": np.array(self.t), "weights": self.weights, **laws}

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> PublicKnowledge:
        """The knowledge of the same terms with what `to_arrays` had.

        Raises:
            ValueError: The arrays are of other terms, or one is missing.
        """
        first = self.to_arrays()
        if any(name not in arrays or arrays[name].shape != first[name].shape for name in first):
            raise ValueError("arrays of other terms")
        t = int(arrays["t"])
        laws = [
            [arrays[f"law {m} {block}"] for block in range(len(belief.laws))]
            for m, belief in enumerate(self.moments.beliefs(1))
        ]
        starts = [Belief(t, tuple(law)) for law in laws]
        moments = _Moments(self.models, self.consumption, self.clamp, starts)
        knowledge = replace(self, weights=arrays["weights"], t=t, moments=moments)
        if not self.ends:
            return knowledge
        return replace(knowledge, block=int(arrays["block"]), sizes=arrays["sizes"])

    def restarted(self, prior: FactorPrior) -> PublicKnowledge:
        """The knowledge before the first release, with another prior; cached moments are kept."""
        weights = np.tile(_factor_law(prior), (len(self.models), 1)) / len(self.models)
        return replace(self, prior=prior, weights=weights, t=1, block=0)

    def since(self, prior: FactorPrior, steps: int) -> PublicKnowledge:
        """The knowledge before the first release, `steps` after the factor was known to be 1."""
        weights = np.zeros_like(self.weights)
        weights[:, 0] = 1 / len(self.models)
        for _ in range(steps):
            weights = _next_factor(weights, prior)
        return replace(self, prior=prior, weights=weights, t=1, block=0)

    def predicted(self, rates: Sequence[float] = (), ahead: int = 0) -> LoadMixture:
        """The law of the load of step t + ahead, given everything published so far."""
        moments = self.moments.at(self.t + ahead)
        factors = self._factors(rates)
        mean = np.outer([m.mean for m in moments], factors)
        variance = np.outer([m.variance for m in moments], factors**2)
        weights = self.weights
        for _ in range(ahead):
            weights = _next_factor(weights, self.prior)
        return LoadMixture(weights, mean, np.maximum(variance, 1e-9))

    @property
    def least(self) -> float:
        """Sum of the lower ends of the clamp [Wh]: the load below the clamp is no less."""
        return float(self.consumption.clamp_ends(self.clamp)[0].sum()) if self.clamp else 0.0

    def clamped_energy(self, rates: Sequence[float] = ()) -> float:
        """The expected energy of step t above the clamp [Wh]; 0 without a clamp.

        Less than 0 where more is below its lower ends than above its upper ones.
        """
        return float((self.weights * self._release_law(rates)[1]).sum()) if self.clamp else 0.0

    def parts(self, rates: Sequence[float] = ()) -> ReleaseParts:
        """The law of the load of step t in two parts: below the clamp, and above it."""
        mixture = self.predicted(rates)
        if not self.clamp:
            none = np.zeros_like(mixture.mean)
            return ReleaseParts(self.weights, mixture.mean, mixture.variance, none, none, none)
        mean, variance, cut, above = self.moments.below(self.t, self._factors(rates))
        joint = (mixture.variance - variance - above) / 2
        return ReleaseParts(self.weights, mean, np.maximum(variance, 1e-9), cut, above, joint)

    def learn(
        self, load_hat: float, scale: float, rates: Sequence[float] = ()
    ) -> tuple[float, PublicKnowledge]:
        """E[Z given this release and all before it] [Wh], and the knowledge after it."""
        estimate, _, after = self.weighed(load_hat, scale, rates)
        return estimate, after

    def learn_and_put_back(
        self, load_hat: float, scale: float, rates: Sequence[float] = ()
    ) -> tuple[float, float, PublicKnowledge]:
        """As `learn`, with the `clamped_energy` of the step between them [Wh]."""
        estimate, after = self.learn(load_hat, scale, rates)
        return estimate, self.clamped_energy(rates), after

    def weighed(
        self,
        load_hat: float,
        scale: float,
        rates: Sequence[float] = (),
        parts: ReleaseParts | None = None,
    ) -> tuple[float, float, PublicKnowledge]:
        """As `learn`, with the log density of the release between them; `parts` where known."""
        if parts is None:
            law, cut = self._release_law(rates)
        else:
            law, cut = LoadMixture(parts.weights, parts.mean, parts.variance), parts.cut
        now, sizes, below = self, self.sizes, np.full_like(law.mean, float(load_hat))
        if self.ends and scale > 0:
            now = self.at_block()
            logs, below, sizes = _within_block(now, law, load_hat, scale)
        else:
            logs = self.shape.evidence(load_hat, law.mean, law.variance, scale or NO_NOISE)
            if scale > 0:
                below = self.shape.mean(load_hat, law.mean, law.variance, scale)
        weights = posterior_weights(law.weights, logs)
        estimate = float((weights * (below + cut)).sum())
        top = float(logs.max())
        log = top + math.log(float((law.weights * np.exp(logs - top)).sum()) or 1e-300)
        after = replace(now, weights=_next_factor(weights, self.prior), t=self.t + 1, sizes=sizes)
        return estimate, log, after

    @property
    def length(self) -> int:
        """Steps of the block of step t; 0 where noise is independent."""
        if not self.ends:
            return 0
        at = bisect_left(self.ends, self.t)
        return self.ends[at] - self.ends[at - 1]

    @property
    def width(self) -> float:
        """How much wider intervals are than its laws say: 1, for the laws are taken as given."""
        return 1.0

    def half_widths(
        self,
        scale: float,
        rates: Sequence[float] = (),  # noqa: ARG002
    ) -> HalfWidths | None:
        """What is known of the noise of step t; None where noise is independent."""
        if not self.ends:
            return None
        chances = self.at_block().sizes.reshape(-1, BLOCK_SIZES)
        ends = scale * block_halves(self.length)
        return HalfWidths(ends, chances, np.zeros_like(chances), np.ones(len(chances)))

    def at_block(self) -> PublicKnowledge:
        """The knowledge with what is known of the block of step t: of a new one, its law."""
        if not self.ends or self.block == (last := self.ends[bisect_left(self.ends, self.t)]):
            return self
        return replace(self, block=last, sizes=_first_sizes(self.weights, self.ends))

    def moved(self, steps: int) -> PublicKnowledge:
        """The same knowledge at a later step, where it is used for the step alone."""
        return replace(self, t=self.t + steps)

    def after(self, load_hat: float, scale: float, rates: Sequence[float] = ()) -> PublicKnowledge:
        """The knowledge after the release of step t."""
        return self.learn(load_hat, scale, rates)[1]

    def passed(self, steps: int = 1) -> PublicKnowledge:
        """The knowledge after steps without a release."""
        weights = self.weights
        for _ in range(steps):
            before, weights = weights, _next_factor(weights, self.prior)
            if (weights == before).all():  # and stays so
                break
        return replace(self, weights=weights, t=self.t + steps)

    def _factors(self, rates: Sequence[float]) -> Floats:
        return np.asarray(_FACTORS * self.consumption.factor(rates))

    def _release_law(self, rates: Sequence[float]) -> tuple[LoadMixture, Floats]:
        """The law of the load that the release of step t covers, and the energy above the clamp."""
        if not self.clamp:
            law = self.predicted(rates)
            return law, np.zeros_like(law.mean)
        mean, variance, cut, _ = self.moments.below(self.t, self._factors(rates))
        return LoadMixture(self.weights, mean, np.maximum(variance, 1e-9)), cut

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


class HalfWidths(NamedTuple):
    """The half-width of the noise of a block of steps, for each law of a load.

    Attributes:
        ends: (G + 1,): ends of the cells that it may lie in [Wh].
        chances: (laws, G): probability of each cell.
        shift: (laws, G): mean of the load where it lies in a cell, less that of the law [Wh].
        share: (laws,): variance of the load where it is known, over that of the law.
    """

    ends: Floats
    chances: Floats
    shift: Floats
    share: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LoadMixture:
    """Normal laws of a load with weights; arrays of one shape.

    Attributes:
        weights: Probability of each law.
        mean: Means [Wh].
        variance: Variances [Wh^2].
    """

    weights: Floats
    mean: Floats
    variance: Floats

    def interval(self, level: float) -> LoadInterval:
        """Mean and central range of the mixture."""
        return intervals([self], level)[0]


def intervals(laws: Sequence[LoadMixture], level: float) -> list[LoadInterval]:
    """Mean and central range of each of some mixtures.

    Args:
        laws: The mixtures, of as many laws each.
        level: Probability of each range.

    Returns:
        One for each mixture, in order.
    """
    if not laws:
        return []
    w, m, v = (
        np.array([getattr(law, name).ravel() for law in laws])
        for name in ("weights", "mean", "variance")
    )
    w = np.where(w > 1e-9, w, 0.0)
    w /= w.sum(axis=1, keepdims=True)
    mean, s, tail = np.vecdot(w, m), np.sqrt(v), max((1 - level) / 2, 1e-15)
    ends = (_quantiles(p, w, m, s).tolist() for p in (tail, 1 - tail))
    return [LoadInterval(*row) for row in zip(mean.tolist(), *ends, strict=True)]


def _quantiles(p: float, w: Floats, m: Floats, s: Floats) -> Floats:
    """The p-quantile of each row's mixture, by Newton's steps within a bracket."""
    from scipy.special import ndtr, ndtri

    positive = w > 0
    low = np.where(positive, m - 12 * s, np.inf).min(axis=1)
    high = np.where(positive, m + 12 * s, -np.inf).max(axis=1)
    mean = np.vecdot(w, m)
    spread = np.sqrt(np.vecdot(w, s**2 + (m - mean[:, None]) ** 2))
    z, going = np.clip(mean + ndtri(p) * spread, low, high), np.ones(len(w), bool)
    while going.any():
        x = (z[:, None] - m) / s
        over = np.vecdot(w, ndtr(x)) - p
        slope = np.vecdot(w, np.exp(-(x**2) / 2) / s) / math.sqrt(2 * math.pi)
        low, high = np.where(over < 0, z, low), np.where(over > 0, z, high)
        newton = z - over / np.maximum(slope, 1e-300)
        inside = (newton > low) & (newton < high)
        new = np.where(inside, newton, (low + high) / 2)
        new = np.where(going & (over != 0), new, z)  # a row does not depend on the others
        going &= np.abs(new - z) > 1e-10 * np.abs(z) + 1e-12
        z = new
    return np.asarray(z)


class _Moments(Value):
    """Mean and variance of the load at each step under each model, cached."""

    def __init__(
        self,
        models: tuple[OccupancyModel, ...],
        consumption: Consumption,
        clamp: Clamp,
        starts: Sequence[Belief] = (),
    ) -> None:
        self._models, self._consumption, self._clamp = models, consumption, clamp
        self._restart(starts)
        self._known: dict[int, tuple[Moments, ...]] = {}
        self._below: dict[tuple[int, float], tuple[Floats, Floats, Floats, Floats]] = {}
        self._last: tuple[tuple[bytes, float], Floats] | None = None

    def made_from(self) -> tuple[Any, ...]:
        """Models, consumption and clamp."""
        return (self._models, self._consumption, self._clamp)

    def beliefs(self, t: int) -> list[Belief]:
        """The belief under each model, at step t."""
        return [belief for belief, _ in self._at(t)]

    def at(self, t: int) -> tuple[Moments, ...]:
        """Moments of the load under each model, at step t."""
        if t not in self._known:
            self._known[t] = tuple(
                load_moments(belief, model, self._consumption) for belief, model in self._at(t)
            )
        return self._known[t]

    def below(self, t: int, factors: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean and variance of the load below the clamp, then of the energy above it."""
        key = (t, float(factors[0]))  # the grid is fixed but for what multiplies it
        if key not in self._below:
            if self._consumption.reacts or len(self._below) >= _KEPT_STEPS:
                self._below.clear()  # where demand reacts, factors hardly ever come again
            parts = self._parts(t, factors)
            below, cut = [], []
            for belief, model in self._at(t):
                f = self._consumption
                below.append(sum_moments(belief, model, f, parts[..., 0], parts[..., 1]))
                cut.append(sum_moments(belief, model, f, parts[..., 2], parts[..., 3]))
            columns = [*zip(*below, strict=True), *zip(*cut, strict=True)]
            mean, variance, missed, above = map(np.array, columns)
            if any(clamp_ends(at)[0] for at in self._clamp):
                # readings hold their export limits: their factor is none of what is cut
                missed = np.repeat(missed[:, :1], missed.shape[1], axis=1)
            self._below[key] = (mean, variance, missed, above)
        return self._below[key]

    def _parts(self, t: int, factors: Floats) -> Floats:
        """(2, classes, factors, 6): each class's reading, split at its clamp."""
        table, ends = self._consumption.table(t), [clamp_ends(at) for at in self._clamp]
        key = (table.tobytes(), float(factors[0]))
        if self._last is None or self._last[0] != key:  # steps of one slot have the same laws
            rows = [
                [
                    np.stack(split(self._consumption.laws[law], at, factors, low), axis=-1)
                    for law, (low, at) in zip(row, ends, strict=True)
                ]
                for row in table.tolist()
            ]
            self._last = (key, np.array(rows))
        return self._last[1]

    def _at(self, t: int) -> list[tuple[Belief, OccupancyModel]]:
        if t <= self._dropped:
            self._restart()
        while self._dropped + len(self._beliefs) < t:
            self._beliefs.append(tuple(next(beliefs) for beliefs in self._marginals))
            size = sum(law.nbytes for belief in self._beliefs[-1] for law in belief.laws)
            while len(self._beliefs) > max(1, min(_KEPT_STEPS, _KEPT_BYTES // max(1, size))):
                self._beliefs.popleft()
                self._dropped += 1
        return list(zip(self._beliefs[t - 1 - self._dropped], self._models, strict=True))

    def _restart(self, starts: Sequence[Belief] = ()) -> None:
        """Start again, at step 1 or with a belief under each model.

        A service runs for years, so only the last beliefs are kept.
        """
        first = [prior(model) for model in self._models]
        pairs = zip(self._models, starts or first, strict=True)
        self._marginals: list[Iterator[Belief]] = [marginals(*pair) for pair in pairs]
        self._beliefs: deque[tuple[Belief, ...]] = deque()
        self._dropped = starts[0].t - 1 if starts else 0


def _first_sizes(weights: Floats, ends: Sequence[int]) -> Floats:
    """Chances of the noise's half-width before the first release of a block; empty without any."""
    cells = BLOCK_SIZES if ends else 0
    return np.broadcast_to(block_chances()[:cells], (*weights.shape, cells)).copy()


def _within_block(
    now: PublicKnowledge, law: LoadMixture, load_hat: float, scale: float
) -> tuple[Floats, Floats, Floats]:
    """Log density of a release, mean of the load, and chances of half-widths after it."""
    from hushgrid._kernels.load_filter import within_block

    sizes = now.sizes.copy()
    halves, flat = scale * block_halves(now.length), sizes.reshape(-1, BLOCK_SIZES)
    means, variances, alike = law.mean.ravel(), law.variance.ravel(), np.zeros_like(flat)
    moments = within_block(float(load_hat), means, variances, halves, alike, flat)
    return moments[:, 2].reshape(law.mean.shape), moments[:, 0].reshape(law.mean.shape), sizes


@lru_cache(maxsize=8)
def _factor_law(prior: FactorPrior) -> Floats:
    """The prior law of the factor: 1, or log-normal about 1."""
    shape = np.exp(-(np.log(_GRID) ** 2) / (2 * prior.spread**2))
    weights = np.concatenate([[1 - prior.share], prior.share * shape / shape.sum()])
    weights.flags.writeable = False
    return weights


def _next_factor(weights: Floats, prior: FactorPrior) -> Floats:
    """The law of the factor a step later: a small drift, and with the hazard a new draw."""
    if prior.hazard == 0:
        return weights
    move = min((prior.drift / FACTOR_STEP) ** 2 / 2, 0.25)  # chance to go one point up, or one down
    slab = weights[:, 1:]
    drifted = (1 - 2 * move) * slab
    drifted[:, 1:] += move * slab[:, :-1]
    drifted[:, :-1] += move * slab[:, 1:]
    drifted[:, 0] += move * slab[:, 0]
    drifted[:, -1] += move * slab[:, -1]
    after_drift = np.concatenate([weights[:, :1], drifted], axis=1)
    redrawn = weights.sum(axis=1, keepdims=True) * _factor_law(prior)
    return np.asarray((1 - prior.hazard) * after_drift + prior.hazard * redrawn)
