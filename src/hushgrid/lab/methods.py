"""A method of publication: from a promise to a publisher, or a refusal.

A method that cannot give the requested promise answers with a `MethodRefusal`; it runs at no other
promise. Here are hushgrid at three trusts, the forecast without readings and group privacy (a
house's whole day is one group of T readings, noise T u / epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Ints, is_real
from hushgrid.accounting.composition import noise_multiple
from hushgrid.accounting.endless import Endless, turn_of
from hushgrid.adversary.knowledge import BlurShape
from hushgrid.belief.estimate import USUAL_FACTOR, PublicKnowledge
from hushgrid.belief.posterior import SHAPES
from hushgrid.errors import PlanError, PolicyError
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import EstimatorRule, Policy
from hushgrid.mechanism.scheduler import schedule
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Scenario, Zone
from hushgrid.planning.planner import Plan, plan
from hushgrid.planning.task import Secret
from hushgrid.planning.windows import chosen_length, window_blocks, window_loss

FRESH = "; given occupancy, readings are drawn afresh at each step"  # an assumption over time
FRESH_BLOCKS = "; given occupancy, readings of different blocks of steps are drawn afresh"
IN_A_RUN = (
    "; about any one step this counts the releases of all days before and after, if the occupancy"
    " model is true and readings hang together through occupancy alone"
)
_WIDTH = 1e-6  # relative width at which a search for a loss stops


@dataclass(frozen=True, slots=True)
class MethodPromise:
    """What every method has to keep (docs/plan.md).

    Attributes:
        secret: What is protected.
        epsilon: Positive.
        delta: For methods that have one, from 0 to below 0.5.
        window: Of the secret window, the steps that a window touches.

    Raises:
        PolicyError: If a value is out of range.
    """

    secret: Secret = "interval"
    epsilon: float = 1.0
    delta: float = 0.0
    window: int | None = None

    def __post_init__(self) -> None:
        if self.secret not in get_args(Secret):
            raise PolicyError(
                f"secret is {self.secret!r}; give one of {', '.join(get_args(Secret))}."
            )
        if not (is_real(self.epsilon) and self.epsilon > 0):
            raise PolicyError(f"epsilon is {self.epsilon}; give a positive number.")
        if not (is_real(self.delta) and 0 <= self.delta < 0.5):
            raise PolicyError(f"delta is {self.delta}; give a probability from 0 to below 0.5.")
        if (self.secret == "window") != (self.window is not None):
            raise PolicyError(
                f"window is {self.window} with the secret {self.secret}; give the steps that a"
                " window touches with the secret window, and with no other."
            )
        if self.window is not None and self.window < 1:
            raise PolicyError(f"window is {self.window}; give the steps it touches, 1 or more.")


def counted(promise: MethodPromise) -> str:
    """What the guarantee of a method with noise counts where days follow each other.

    Args:
        promise: The promise.

    Returns:
        The end of a sentence.
    """
    if promise.window is not None:
        return (
            f"; about all that a house does in any {promise.window} steps this counts the releases"
            " of all days, and needs no law of occupancy or consumption"
        )
    return IN_A_RUN if promise.secret == "interval" else ""


@dataclass(frozen=True, slots=True, eq=False)
class MethodSetting:
    """A zone and what is promised in it.

    Methods of one zone share `public`, so that its results are computed once. Its prior of the
    common factor is the one a service publishes by, a day after the factor was known to be 1.

    Where days follow each other, what is published on one of them also tells of the days before and
    after it. The promise about an interval then counts the releases of all days, of any number.

    Attributes:
        scenario: The zone and its models.
        promise: What the method has to keep.
        horizon: Steps of a day.
        public: Public knowledge before the first release.
        rho: Relative error by which hushgrid's plan chooses a clamp; None: no clamp.
        run: The zone on the first of days that follow each other; None: days on their own.
        plans: Plans of the run by trust and blocks, shared by all kinds of days.
        losses: Largest losses of the run by the length of blocks, shared likewise.
        usual: What a home is known to use in a step by published figures [Wh], by which estimates
            follow releases alone; 0: they follow the model.
        block: Steps of hushgrid's blocks of noise under the secret window; None: as planned.
        clamp: Hushgrid's clamp under the secret window, by class [Wh]; empty: as planned.
    """

    scenario: Scenario
    promise: MethodPromise
    horizon: int
    public: PublicKnowledge = field(repr=False)
    rho: float | None = None
    run: Scenario | None = None
    plans: dict[tuple[float, bool], Plan] = field(default_factory=dict, repr=False)
    losses: dict[int, float] = field(default_factory=dict, repr=False)
    usual: float = 0.0
    block: int | None = None
    clamp: Clamp = ()

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        promise: MethodPromise,
        horizon: int,
        rho: float | None = None,
        run: Scenario | None = None,
    ) -> MethodSetting:
        """The setting of a zone whose readings do not react to rates."""
        if scenario.consumption.reacts or (scenario.consumed and scenario.consumed.reacts):
            raise PlanError(
                "readings react to rates, so methods that need the whole day first have no day to"
                " publish; give a zone without elasticity."
            )
        public = PublicKnowledge.start(scenario.models, scenario.consumption)
        if promise.secret not in ("interval", "window"):  # other days do not count in it
            run = None
        return cls(scenario, promise, horizon, public.since(USUAL_FACTOR, horizon), rho, run)

    @property
    def models_of_a_day(self) -> tuple[OccupancyModel, ...]:
        """The scenario's models at the beginning of a day: of any day of a run, or of the first."""
        models = tuple(self.scenario.models)
        if self.run is None:
            return models
        return Endless(models, turn_of(models, self.horizon)).later

    @property
    def step_epsilon(self) -> float:
        """The largest loss of every release that keeps the promise about an interval in a run."""
        return self._largest_loss(1)

    @property
    def day_epsilon(self) -> float:
        """The largest loss about a house's whole day that keeps the promise."""
        return self.promise.epsilon if self.run is None else self._largest_loss(self.horizon)

    def _largest_loss(self, length: int) -> float:
        """The largest loss of all blocks of steps of one length, over any number of days."""
        if self.promise.window is not None:
            return window_loss(self.promise.window, length, self.promise.epsilon)
        assert self.run is not None
        if length in self.losses:
            return self.losses[length]
        models, epsilon = self.run.models, self.promise.epsilon
        run = Endless(tuple(models), turn_of(models, self.horizon))
        run.check(epsilon)
        alike = np.zeros(models[0].n_houses, np.int32)
        lengths = (length,) * (run.turn // length) if length > 1 else ()
        low, high = 0.0, epsilon
        while high - low > _WIDTH * high:
            middle = (low + high) / 2
            losses = np.full((run.turn, 1), middle)
            keeps = run.most(losses, alike, lengths, epsilon) <= epsilon
            low, high = (middle, high) if keeps else (low, middle)
        self.losses[length] = low
        return low

    @property
    def alone(self) -> bool:
        """Whether every house moves on its own under every model."""
        return all(piece.size == 1 for model in self.scenario.models for piece in model.chains)

    @property
    def forecast(self) -> Floats:
        """(T,): the public mean of the loads before any release [Wh], models weighted equally."""
        moments = [self.public.moments.at(t) for t in range(1, self.horizon + 1)]
        return np.array([np.mean([m.mean for m in step_moments]) for step_moments in moments])

    @property
    def largest(self) -> int:
        """The largest bound of a house [Wh]."""
        return int(self.scenario.zone.bound.max())

    def reach(self, clamp: Clamp) -> int:
        """The most that a reading cut at a clamp can change [Wh]."""
        if not clamp:
            return self.largest
        low, high = self.scenario.consumption.clamp_ends(clamp)
        return int((high - low).max())


class Outcome(NamedTuple):
    """A published day.

    Attributes:
        raw: (T,): loads behind the raw rates [Wh].
        estimated: (T,): the public's best estimate of the loads [Wh].
        observations: (T,): what an adversary observes at each step [Wh]; None if nothing is
            released.
        scale: (T,): scale of the noise of `observations` [Wh], the standard deviation where
            Gaussian.
        noise: Law of that noise.
        independent: Whether `observations` are the loads, each with noise of its own, or of its
            block of steps.
        lengths: Steps of each block with one noise; empty: noise of its own at every step. The last
            may go on for days.
        steps_before: Steps of the first block that lie on days before.
    """

    raw: Floats
    estimated: Floats
    observations: Floats | None
    scale: Floats
    noise: BlurShape = "laplace"
    independent: bool = False
    lengths: tuple[int, ...] = ()
    steps_before: int = 0


Publish = Callable[[Ints, np.random.SeedSequence], Outcome]
# with what the day before left, None before the first; returns what this day leaves too
PublishOn = Callable[[Ints, np.random.SeedSequence, Any], tuple[Outcome, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A method that keeps the promise.

    Attributes:
        guarantee: What it keeps, in words.
        scale: Largest scale of its noise [Wh].
        publish: From the loads of a day [Wh] and a seed to the outcome; with a clamp the loads are
            those of readings cut there.
        clamp: One for each density class [Wh]; empty: none.
        publish_on: The same where a day goes on from the day before; None: it never does.
    """

    guarantee: str
    scale: float
    publish: Publish
    clamp: Clamp = ()
    publish_on: PublishOn | None = None


@dataclass(frozen=True, slots=True)
class MethodRefusal:
    """A method that cannot give the requested promise.

    Attributes:
        reason: Why, in words.
    """

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A way to publish.

    Attributes:
        name: Key in results.
        label: Name for readers.
        online: Whether it publishes step by step; others need the whole day first.
        eta: Share of a reading's law it does not trust; None if it uses no readings.
        prepare: From a setting to the publisher or a refusal.
    """

    name: str
    label: str
    online: bool
    eta: float | None
    prepare: Callable[[MethodSetting], Ready | MethodRefusal]


def noisy(
    setting: MethodSetting,
    scales: Sequence[float],
    guarantee: str,
    law: BlurShape = "laplace",
    clamp: Clamp = (),
    lengths: tuple[int, ...] = (),
) -> Ready:
    """Integer noise of these scales [Wh], one a step; independent but for blocks of steps.

    Args:
        setting: The zone and the promise.
        scales: One for each step [Wh]; standard deviations where the noise is Gaussian.
        guarantee: What it keeps, in words.
        law: Of the noise.
        clamp: Where readings are cut, by class [Wh]. The outcome then has what is below it alone,
            and the caller adds what is above.
        lengths: Steps of each block with one noise.

    Returns:
        The method, ready to publish a day.
    """
    fixed = np.array(scales, np.float64)

    def draw_noise(noise: SimulatedNoise) -> Iterator[int]:
        if not lengths:
            draw = noise.draw_gaussian if law == "gaussian" else noise.draw
            yield from (draw(float(b)) for b in fixed)
        for end, n in zip(np.cumsum(lengths).tolist(), lengths, strict=True):
            size = noise.draw_size(float(fixed[end - 1]), n)
            yield from (noise.draw_within(size) for _ in range(n))

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        raw = load.astype(np.float64) + np.array(list(draw_noise(SimulatedNoise(seed))))
        guess = raw if clamp else public_estimates(setting.public, raw, fixed, law, lengths)
        return Outcome(raw, guess, raw, fixed, law, independent=True, lengths=lengths)

    return Ready(guarantee, float(fixed.max()), publish, clamp)


def public_estimates(
    public: PublicKnowledge,
    load_hat: Floats,
    scales: Floats,
    law: BlurShape = "laplace",
    lengths: tuple[int, ...] = (),
) -> Floats:
    """The public's estimate at every step, from that step's release and those before it.

    Args:
        public: Public knowledge before the first release.
        load_hat: (T,): published loads [Wh].
        scales: (T,): scales of the noise [Wh].
        law: Law of the noise.
        lengths: Steps of each block with one noise; empty: noise of its own at every step.

    Returns:
        (T,): estimated loads [Wh].
    """
    now, out = replace(public, shape=SHAPES[law]).with_blocks(lengths), []
    for noisy_load, scale in zip(load_hat.tolist(), scales.tolist(), strict=True):
        guess, now = now.learn(noisy_load, scale)
        out.append(guess)
    return np.array(out)


def part_of(scenario: Scenario, houses: NDArray[np.integer]) -> Scenario:
    """A few houses of a zone whose houses move independently, as a zone.

    Args:
        scenario: The zone.
        houses: Indices of the houses.

    Returns:
        The smaller zone.
    """
    models = []
    for model in scenario.models:
        (piece,) = model.chains
        chain_of = np.empty(model.n_houses, np.int64)
        chain_of[piece.members[:, 0]] = piece.chain_of
        models.append(
            OccupancyModel.factored(
                piece.initial,
                piece.transition,
                calendar=model.calendar,
                chain_of=chain_of[houses],
                name=model.name,
            )
        )
    f = scenario.consumption
    zone = Zone(scenario.zone.id, scenario.zone.bound[houses], scenario.zone.export[houses])
    consumption = replace(f, class_of=f.class_of[houses])
    return Scenario(zone, scenario.tariff, tuple(models), consumption)


def _prepare_group(setting: MethodSetting) -> Ready:
    lost, span = setting.promise.epsilon / setting.horizon, "trajectory"
    if setting.promise.window is not None:
        lost, span = setting.step_epsilon, "window"
    elif setting.run is not None:
        lost = min(lost, setting.step_epsilon)
    b = setting.largest / lost
    return noisy(
        setting,
        [b] * setting.horizon,
        f"pure epsilon for a house's whole {span}, whatever anyone consumes: its readings of at"
        " most u each",
    )


GROUP = Method("group", "group privacy", True, 1.0, _prepare_group)


_TRUST = {
    0.0: "if the occupancy model is true and every reading follows its public law",
    1.0: "if the occupancy model is true, at any level of consumption",
}


def hushgrid(name: str, eta: float, *, blocks: bool = False) -> Method:
    """Hushgrid's plan for the promise, at a trust eta and the contract bounds.

    Args:
        name: Key in results.
        eta: The trust.
        blocks: Let noise last blocks of steps where that makes less of it.

    Returns:
        The method.
    """
    label = f"hushgrid eta = {eta:g}" + (", blocks of steps" if blocks else "")
    return Method(name, label, True, eta, partial(_prepare_hushgrid, eta, blocks))


def _prepare_hushgrid(eta: float, blocks: bool, setting: MethodSetting) -> Ready | MethodRefusal:
    scenario, promise = setting.scenario, setting.promise
    if promise.window is not None:
        if eta < 1:
            return MethodRefusal("it trusts a law of consumption, which a whole window has not")
        return _prepare_window(blocks, setting, promise.window)
    estimator: EstimatorRule = "model" if setting.rho is None else "filter"  # of recorded days
    if eta == 1 and setting.usual:
        estimator = "releases"
    planned = setting.plans.get((eta, blocks))
    if planned is None:
        planned = setting.plans[eta, blocks] = plan(
            *(setting.run or scenario).terms,
            secret=promise.secret,
            epsilon=promise.epsilon,
            terms=_terms(setting, eta, estimator),
            rho=setting.rho,
            running=setting.run is not None,
            blocks=blocks,
        )
    scales = planned.scale
    if setting.run is not None and setting.run is not scenario:  # another kind of day
        calibrations = schedule(
            setting.models_of_a_day, scenario.zone, scenario.consumption, planned.policy
        )
        scales = tuple(calibration.scale for calibration in calibrations)
    trust = _TRUST.get(eta, f"{_TRUST[0.0]} but for a share of {eta:g}")
    shared = planned.policy.schedule
    fresh = "" if promise.secret == "step" else FRESH_BLOCKS if shared.lengths else FRESH
    words, clamp = f"pure epsilon, {trust}{fresh}", planned.policy.clamp
    return noisy(setting, scales, words, shared.noise, clamp, shared.lengths)


def _terms(
    setting: MethodSetting, eta: float, estimator: EstimatorRule, horizon: int | None = None
) -> Policy:
    usual = setting.usual if estimator == "releases" else 0.0
    steps = horizon or setting.horizon
    return Policy(setting.promise.epsilon, steps, eta=eta, estimator=estimator, usual=usual)


def _prepare_window(blocks: bool, setting: MethodSetting, window: int) -> Ready:
    """Equal blocks of steps over all days, or noise of its own at every step."""
    promise, day = setting.promise, setting.horizon
    world, seconds = (setting.run or setting.scenario).terms, 86_400 // day
    estimator: EstimatorRule = "releases" if setting.usual else "filter"
    length = (setting.block or 0) if blocks else 1
    if not length:
        tried = plan(
            *world,
            secret="window",
            epsilon=promise.epsilon,
            terms=replace(_terms(setting, 1.0, estimator, 7 * day), clamp=setting.clamp),
            rho=None if setting.clamp else setting.rho,
            window=window,
            seconds=seconds,
        ).options
        length = tried[chosen_length([option.error for option in tried])].length
    horizon = math.lcm(length, day)
    terms = _terms(setting, 1.0, estimator, horizon)
    multiple = 0.0
    epsilon = promise.epsilon
    if promise.delta and not blocks:  # the clamp is that of Laplace noise of the same variance
        multiple = noise_multiple(epsilon, promise.delta, window)
        epsilon = math.sqrt(2) * window / multiple
    schedule = window_blocks((length,) * (horizon // length), window, epsilon)
    planned = plan(
        *world,
        secret="window",
        epsilon=epsilon,
        terms=replace(terms, epsilon=epsilon, schedule=schedule, clamp=setting.clamp),
        rho=None if setting.clamp else setting.rho,
        window=window,
        seconds=seconds,
    )
    clamp, words = planned.policy.clamp, f"for all that a house does in any {window} steps"
    if multiple:
        scales = [multiple * setting.reach(clamp)] * day
        return noisy(setting, scales, f"(epsilon, delta) {words}", "gaussian", clamp)
    words = f"pure epsilon {words}"
    if length == 1:
        return noisy(setting, planned.scale[:day], words, clamp=clamp)
    return _noisy_on(planned.scale[0], length, f"{words}; one noise lasts {length} steps", clamp)


class _OpenBlock(NamedTuple):
    size: int
    place: int  # steps of it that have been published


def _noisy_on(scale: float, length: int, guarantee: str, clamp: Clamp) -> Ready:
    """Blocks of steps with one noise each, which go on from day to day."""

    def publish_on(
        load: Ints, seed: np.random.SeedSequence, open_block: _OpenBlock | None
    ) -> tuple[Outcome, _OpenBlock]:
        noise, (size, steps_before) = SimulatedNoise(seed), open_block or _OpenBlock(0, 0)
        raw, place = load.astype(np.float64), steps_before
        for t in range(len(raw)):
            size = size if place else noise.draw_size(scale, length)
            raw[t] += noise.draw_within(size)
            place = (place + 1) % length
        lengths = (length,) * -(-(steps_before + len(raw)) // length)
        scales = np.full(len(raw), scale)
        outcome = Outcome(
            raw, raw, raw, scales, independent=True, lengths=lengths, steps_before=steps_before
        )
        return outcome, _OpenBlock(size, place)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        return publish_on(load, seed, None)[0]

    return Ready(guarantee, scale, publish, clamp, publish_on)


def _prepare_forecast(setting: MethodSetting) -> Ready:
    means = setting.forecast

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:  # noqa: ARG001
        return Outcome(means, means, None, np.zeros(len(means)))

    return Ready("no reading is used, so nothing is given away", 0.0, publish)


HUSHGRID_ETA0 = hushgrid("hushgrid_eta0", 0.0)
HUSHGRID_ETA05 = hushgrid("hushgrid_eta05", 0.05)
BOUND = hushgrid("bound", 1.0, blocks=True)
BOUND_FITTED = replace(
    BOUND,
    name="bound_fitted",
    label=f"{BOUND.label}; private fit: estimated by a model of the training days",
)
BOUND_INDEPENDENT = hushgrid("bound_independent", 1.0)
FORECAST = Method("forecast", "forecast, no readings", True, None, _prepare_forecast)
