"""Algorithm 1 as `init` and `step`: one release a step, the state passed in and out.

A `Release` holds neither the load nor the optimal rate, so it can be given to anyone. Its fields
are declared here alone; those with a `Rule` form the body of its ledger record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, Literal, get_args, overload

import numpy as np

from hushgrid._frames import DataTable, html_table
from hushgrid._numbers import (
    CHANCE,
    HASH,
    LOSS,
    TEXT,
    TRUTH,
    Rule,
    brief,
    count_of,
    number,
    one_of,
    optional,
    or_null,
    to_json,
    whole_number,
)
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.belief.expected_rate import posterior_rate
from hushgrid.belief.followed import DayClock, EvenDays, FollowedKnowledge, Knowledge, informed
from hushgrid.belief.load_filter import Values
from hushgrid.belief.posterior import SHAPES
from hushgrid.errors import NoiseError, PolicyError, ReadingError
from hushgrid.mechanism.calibrators import Calibrator
from hushgrid.mechanism.digest import calibrator_name, terms_digest
from hushgrid.mechanism.exposure import Exposures
from hushgrid.mechanism.noise import Noise, SecureNoise
from hushgrid.mechanism.policy import NoiseName, Policy
from hushgrid.mechanism.scheduler import Calibration, Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import (
    Tally,
    Tariff,
    Zone,
    feed_in_rate,
    offset_tariff,
    public_rate,
    smoothed_rate,
)

Mode = Literal["production", "simulation"]

_NUMBER = or_null(number(-math.inf))
_VALUES = Rule(
    lambda v: (
        isinstance(v, Mapping) and all(map(TEXT.fits, v)) and all(map(_NUMBER.fits, v.values()))
    ),
    "a number or null for each name",
)
_BLOCK = Rule(
    lambda v: (
        isinstance(v, Mapping)
        and {"first", "length"} <= {*v} <= {"first", "length", "mark"}
        and all(map(whole_number(1).fits, v.values()))
    ),
    "first step and length of the block, and a mark of its draw, whole numbers from 1",
)


_SIZE = 256  # rates of a full piece


class Rates(Sequence[float]):
    """A tuple of rates in pieces: to append one copies a piece, not all rates before it.

    Args:
        rates: The rates [currency/kWh].

    >>> Rates([0.2, 0.3]).followed_by(0.4)[-2:]
    (0.3, 0.4)
    """

    __slots__ = ("_full", "_tail")

    def __init__(self, rates: Sequence[float] = ()) -> None:
        series, ends = tuple(rates), range(_SIZE, len(rates) + 1, _SIZE)
        self._full = tuple(series[end - _SIZE : end] for end in ends)
        self._tail = series[len(ends) * _SIZE :]

    def followed_by(self, *rates: float) -> Rates:
        """The same rates and then these.

        Args:
            *rates: Rates [currency/kWh].

        Returns:
            The longer sequence.
        """
        last = Rates((*self._tail, *rates))
        last._full = (*self._full, *last._full)
        return last

    def __len__(self) -> int:
        return len(self._full) * _SIZE + len(self._tail)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[float, ...]: ...
    def __getitem__(self, at: int | slice) -> float | tuple[float, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        at = at + len(self) if at < 0 else at
        if not 0 <= at < len(self):
            raise IndexError(at)
        piece, place = divmod(at, _SIZE)
        return (self._tail if piece == len(self._full) else self._full[piece])[place]

    def __iter__(self) -> Iterator[float]:
        return chain(*self._full, self._tail)

    def __eq__(self, rates: object) -> bool:
        if not isinstance(rates, (Rates, tuple)):
            return NotImplemented
        return tuple(self) == tuple(rates)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Rates({list(self)})"


@dataclass(frozen=True, slots=True)
class Release:
    """What the public sees of step t.

    Under the rule `publish_exact` a step without noise has the load itself as `load_hat`.

    Attributes:
        zone: Name of the zone.
        t: The step whose load is published.
        applies_from: The step from which the rate applies.
        load_hat: Noisy load of the clamped readings [Wh].
        put_back: Expected energy above the clamp [Wh], less what is expected below its lower ends.
        estimate: The public's best estimate of the load [Wh], where the policy makes one.
        rate: Published rate [currency/kWh].
        scale: Scale of the noise [Wh].
        epsilon: Loss of the most exposed house [nats], under the policy's trust and the rules
            `block` and `union`, whichever rules set the noise. Where the noise lasts a block of
            steps, this and `epsilon_any` are the block's.
        epsilon_any: Loss of any house (or block) for any consumption [nats].
        rule: The policy's rules in a few words.
        digest: Digest of zone, tariff, models and policy.
        simulated: Whether the noise has a seed.
        noise: Law of the noise: `laplace`, `block` (one that lasts a block of steps), or `none` (a
            scale of 0).
        base: Where the estimator follows releases: the load that it is relative to [Wh].
        model_share: Likewise: probability of the model's component after the release.
        covariates: Likewise, where there are covariates: the value of each that the estimate uses,
            by name; None for a missing one.
        block: Where the noise lasts a block of steps: its `first` step and its `length` in steps.
        offset: Where houses export: the sum of their export limits [Wh], which is in `load_hat` and
            `estimate`.
        feed_in: Published rate of what homes feed in [currency/kWh], where the tariff has one.
    """

    zone: Annotated[str, TEXT]
    t: Annotated[int, whole_number(1)]
    applies_from: Annotated[int, whole_number(1)]
    load_hat: Annotated[int, whole_number()]
    put_back: Annotated[float, number(-math.inf)]
    estimate: Annotated[float | None, or_null(number(-math.inf))]
    rate: Annotated[float, number(-math.inf)]
    scale: Annotated[float, LOSS]
    epsilon: Annotated[float, or_null(LOSS, infinite=True)]
    epsilon_any: Annotated[float, or_null(LOSS, infinite=True)]
    rule: Annotated[str, TEXT]
    digest: Annotated[str, HASH]
    simulated: Annotated[bool, TRUTH]
    noise: Annotated[NoiseName, optional(one_of(NoiseName))] = "none"
    base: Annotated[float | None, optional(LOSS)] = None
    model_share: Annotated[float | None, optional(CHANCE)] = None
    covariates: Annotated[Values | None, optional(_VALUES)] = None
    block: Annotated[Mapping[str, int] | None, optional(_BLOCK)] = None
    offset: Annotated[int | None, optional(whole_number(1))] = None
    feed_in: Annotated[float | None, optional(number(-math.inf))] = None

    __repr__ = brief

    def _repr_html_(self) -> str:
        values = to_json(self)
        table = DataTable("field", list(values), {"value": list(values.values())})
        return html_table(f"Release of {self.zone}, step {self.t}", table, rows=len(values))

    def __post_init__(self) -> None:
        if self.noise not in get_args(NoiseName):
            raise PolicyError(
                f"release noise is {self.noise!r}; give one of {', '.join(get_args(NoiseName))}."
            )

    @property
    def net_load_hat(self) -> int:
        """Noisy net load [Wh], below 0 where the zone exports."""
        return self.load_hat - (self.offset or 0)

    @property
    def spread(self) -> float:
        """Standard deviation of the noise [Wh], in the continuous limit."""
        return noise_spread(self.scale, (self.block or {}).get("length", 1))

    @classmethod
    def free(cls, **values: Any) -> Release:
        """A release whose costs are 0: one without readings, or of another method.

        Args:
            **values: The fields that have other values, among them all that name the release.
        """
        costs = dict.fromkeys(("put_back", "scale", "epsilon", "epsilon_any"), 0.0)
        return cls(**{"estimate": None, "rate": 0.0, **costs, **values})


def renumbered(release: Release, by: int) -> Release:
    """A release whose steps are counted from elsewhere.

    Args:
        release: The release.
        by: What is added to the number of each step.

    Returns:
        The same release.
    """
    block = release.block and {**release.block, "first": release.block["first"] + by}
    return replace(release, t=release.t + by, applies_from=release.applies_from + by, block=block)


def noise_spread(scale: float, steps: int = 1) -> float:
    """Standard deviation of noise as planned, over every size M that a block may draw.

    Args:
        scale: Scale of the noise [Wh].
        steps: Steps of the block that it lasts.

    Returns:
        The standard deviation [Wh], in the continuous limit.

    >>> round(noise_spread(1000.0)), round(noise_spread(1000.0, 8))
    (1414, 5477)
    """
    return scale * math.sqrt((steps + 1) * (steps + 2) / 3)


class HasRelease:
    """A record that holds a release and exposes its fields: `record.rate`.

    Attributes:
        release: The release.
    """

    __slots__ = ()
    release: Release

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "release"), name)


@dataclass(frozen=True, slots=True)
class State:
    """The mechanism between two releases: terms, steps published so far and their rates.

    Nothing in it is secret. A state is a value: states of equal fields are equal, and give equal
    releases for equal noise.

    Attributes:
        zone: The zone, with the clamp as its bounds: readings are clamped to them.
        tariff: Coefficients and limits of the price.
        policy: The promise, the trust and the schedule.
        scheduler: The calibration of each step.
        digest: Digest of the terms.
        rule: The rules in a few words.
        most: Sum of all bounds [Wh]: no load can be larger.
        public: Public knowledge, where the estimate or the energy above the clamp is needed.
        rates: Rates published so far [currency/kWh].
    """

    zone: Zone
    tariff: Tariff
    policy: Policy
    scheduler: Scheduler
    digest: str
    rule: str
    most: int
    public: Knowledge | None = None
    rates: Sequence[float] = Rates()

    def __repr__(self) -> str:
        houses, step = count_of("house", self.zone.n_houses), f"before step {self.t}"
        return brief(self, houses, self.policy.promise, step, names=("zone", "tariff", "rule"))

    @property
    def t(self) -> int:
        """The step the next release is for."""
        return len(self.rates) + 1

    def with_rates(self, *rates: float, **changed: Any) -> State:
        """The state after these rates.

        Args:
            *rates: Rates of the next steps [currency/kWh].
            **changed: Other fields that change.

        Returns:
            The later state.
        """
        before = self.rates if isinstance(self.rates, Rates) else Rates(self.rates)
        return replace(self, rates=before.followed_by(*rates), **changed)


def init(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    calibrator: Calibrator | None = None,
    exposures: Exposures | None = None,
    days: DayClock = EvenDays(),  # noqa: B008
) -> State:
    """The state before step 1 (Algorithm 1, inputs).

    Args:
        zone: Houses and bounds.
        tariff: Coefficients and limits of the price.
        models: The occupancy models Theta.
        consumption: The laws of readings.
        policy: The promise, the trust and the schedule.
        calibrator: A custom calibrator, or None.
        exposures: Exposures to share between mechanisms that differ in epsilon, eta or calibrator
            alone; None: computed here.
        days: Time of day of each step, for an estimator that follows releases.

    Returns:
        The state.

    Raises:
        PolicyError: If homes export where a clamp is put back by the usual load.
    """
    if policy.usual and policy.clamp and zone.offset:
        raise PolicyError(
            "policy estimator is 'releases' with a clamp, but homes export, and what a usual load"
            " has beyond a clamp is known of homes without panels alone; leave the clamp out, or"
            " give 'filter'.",
            fields=("estimator", "clamp"),
        )
    if exposures is None:
        exposures = exposures_of(models, zone, consumption, policy)
    tariff = offset_tariff(zone, tariff, consumption)
    exposures.check_made_for(models, zone, consumption, policy)
    scheduler = Scheduler(exposures, policy, calibrator)
    public, raw = None, policy.publish == "raw" and policy.estimator == "model"
    if policy.clamp or not raw or tariff.curve is not None:
        public = first_public(models, consumption, policy, days)
    terms = (zone, tariff, models, consumption, policy, calibrator)
    by = "" if calibrator is None else f" {calibrator_name(calibrator).rpartition('.')[2]}"
    return State(
        exposures.zone,
        tariff,
        policy,
        scheduler,
        terms_digest(*terms),
        policy.rule + by,
        int(exposures.zone.bound.sum(dtype=np.int64)),
        public,
    )


def first_public(
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    days: DayClock = EvenDays(),  # noqa: B008
) -> Knowledge:
    """What the public knows before the first release, with the policy's clamp and noise law.

    Args:
        models: The occupancy models Theta.
        consumption: The laws of readings.
        policy: The policy.
        days: Time of day of each step, for an estimator that follows releases.

    Returns:
        The public knowledge.
    """
    shape = SHAPES[policy.schedule.noise]
    model = PublicKnowledge.start(models, consumption, clamp=policy.clamp, shape=shape)
    model = model.with_blocks(policy.schedule.lengths)
    if policy.estimator == "model":
        return model
    usual = policy.usual * len(consumption.class_of)
    return FollowedKnowledge.start(model, days, usual, policy.covariates)


@dataclass(frozen=True, slots=True, repr=False)
class PreparedNoise:
    """The noise of one step, drawn before its load is known. As secret as the load itself.

    Attributes:
        t: The step.
        digest: Digest of the terms.
        calibration: Calibration of the release.
        noise: The draw [Wh].
        simulated: Whether the source has a seed.
        mark: Public mark of the draw of the block's M; 0: none.
    """

    t: int
    digest: str
    calibration: Calibration
    noise: int
    simulated: bool
    mark: int = 0

    def __repr__(self) -> str:
        return f"PreparedNoise(t={self.t})"


def prepare(
    state: State,
    noise: Noise,
    size: int | None = None,
    mark: int = 0,
    calibration: Calibration | None = None,
) -> PreparedNoise:
    """Draw the noise of the next step (Algorithm 1, line 12), from public figures alone.

    Args:
        state: The state before the step.
        noise: The source of noise.
        size: Where noise lasts a block of steps: its M, kept elsewhere. None: the source keeps it.
        mark: Public mark of the draw of this M, which the release states; 0: none.
        calibration: Of the step, where an account admits another loss than the policy's; None: the
            policy's.

    Returns:
        The noise, for `step`.

    Raises:
        NoiseError: If `noise` is not a source of noise.
    """
    if not isinstance(noise, Noise):
        raise NoiseError(f"noise is {noise!r}; give a source such as SecureNoise().")
    schedule, simulated = state.policy.schedule, not isinstance(noise, SecureNoise)
    calibration, k = calibration or state.scheduler.at(state.t, state.rates), 0
    if schedule.lengths:
        k = (
            noise.in_block(state.digest, calibration.scale, schedule.span(state.t), state.t)
            if size is None
            else noise.draw_within(size)
        )
    elif calibration.scale:
        k = noise.draw(calibration.scale)
    return PreparedNoise(state.t, state.digest, calibration, k, simulated, mark)


def step(state: State, load: int | Tally, noise: Noise | PreparedNoise) -> tuple[Release, State]:
    """Publish step t for a load (Algorithm 1, lines 2 to 14).

    A state is a value: stepping it twice draws twice. Publish one release a step and continue from
    the next state.

    Args:
        state: The state before the step.
        load: Load [Wh]; under a policy with a clamp what `tally(readings, state.zone.bound)`
            returns, where houses export `tally(readings, state.zone.bound, state.zone.export)`.
            Noisy loads have the offset of the zone, also where a clamp has lower ends.
        noise: A source of noise, or what `prepare` drew from one for this step.

    Returns:
        The release and the next state.

    Raises:
        NoiseError: If the noise was drawn for another step or other terms.

    >>> from hushgrid import Consumption, OccupancyModel, SimulatedNoise, Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> state = init(Zone("z", [1000]), Tariff(1.0, 62.5), [theta], f, Policy(0.5, eta=0.0))
    >>> release, state = step(state, 700, SimulatedNoise(1))
    >>> release.t, release.load_hat, round(release.rate, 3), state.t
    (1, 714, 63.214, 2)
    """
    draws = noise if isinstance(noise, PreparedNoise) else prepare(state, noise)
    if draws.t != state.t or draws.digest != state.digest:
        raise NoiseError(
            f"noise was drawn for step {draws.t} under {draws.digest[:12]} but step {state.t} under"
            f" {state.digest[:12]} is next; draw it again."
        )
    z = _checked_load(load, state)
    return _published(state, draws.calibration, z + draws.noise, draws.simulated, draws.mark)


def releases(state: State, loads: Iterable[int | Tally], noise: Noise) -> Iterator[Release]:
    """Release after release, from loads that do not depend on the rates.

    Args:
        state: The state before the first of them.
        loads: The load of every step [Wh], as `step` takes it.
        noise: Drawn from at every step.

    Yields:
        The release of every step.
    """
    for load in loads:
        release, state = step(state, load, noise)
        yield release


def release_of(state: State, load_hat: int, epsilon: float | None = None) -> Release:
    """The release that a noisy load leads to: everything in it follows from public figures.

    Args:
        state: The state before the step.
        load_hat: Noisy load [Wh].
        epsilon: What it loses, where that is not the policy's.

    Returns:
        The release, marked as simulated.
    """
    calibration = state.scheduler.at(state.t, state.rates, epsilon)
    return _published(state, calibration, load_hat, True)[0]


def replay(state: State, release: Release) -> State:
    """The state after a release that is already published: draws nothing, publishes nothing.

    Args:
        state: The state before the release.
        release: The release of the next step.

    Returns:
        The state after it.

    Raises:
        PolicyError: If the release is of another step or of other terms.
    """
    state = check_terms(state, release.digest, release.t)
    public = state.public
    if public is not None:
        public = informed(public, release.covariates)
        _, public = public.learn(release.load_hat, release.scale, state.rates)
    return state.with_rates(release.rate, public=public)


def check_terms(state: State, digest: str | None, t: int | None = None) -> State:
    """Refuse a release of other terms, or of another step than the next.

    Args:
        state: The state before the release.
        digest: The release's digest of its terms.
        t: Its step; None: not checked.

    Returns:
        The state.

    Raises:
        PolicyError: The release is of another step or of other terms.
    """
    if digest != state.digest or t not in (None, state.t):
        raise PolicyError(
            f"release is of step {t} under {str(digest)[:12]} but step {state.t} under"
            f" {state.digest[:12]} is next; replay releases of these terms in order."
        )
    return state


def skip(state: State, rate: float, steps: int = 1) -> State:
    """The state after steps without a release.

    Args:
        state: The state before them.
        rate: The rate that was published instead [currency/kWh].
        steps: How many.

    Returns:
        The state after them.
    """
    public = state.public.passed(steps) if state.public is not None else None
    return state.with_rates(*[rate] * steps, public=public)


def _published(
    state: State,
    calibration: Calibration,
    load_hat: int,
    simulated: bool,
    mark: int = 0,
) -> tuple[Release, State]:
    """The release of a noisy load, and the state after it."""
    public, put_back, estimate = state.public, 0.0, None
    base = model_share = covariates = None
    if public is not None:
        if isinstance(public, FollowedKnowledge):
            base, covariates = public.base(state.rates), public.named_values
        seen = (load_hat, calibration.scale, state.rates)
        guess, put_back, public = public.learn_and_put_back(*seen)
        estimate = guess if state.policy.publish == "estimate" else None
        if isinstance(public, FollowedKnowledge):
            model_share = public.share
    last = state.rates[-1] if state.rates else None
    load = load_hat + put_back if estimate is None else estimate
    if state.tariff.curve is None or state.public is None:
        rate = public_rate(load, state.tariff, last)
    else:
        law = (state.public, load_hat, calibration.scale)
        rate = smoothed_rate(posterior_rate(*law, state.tariff, state.rates), state.tariff, last)
    release = Release(
        zone=state.zone.id,
        t=calibration.t,
        applies_from=calibration.t + 1,
        load_hat=load_hat,
        put_back=put_back,
        estimate=estimate,
        rate=rate,
        scale=calibration.scale,
        epsilon=calibration.epsilon,
        epsilon_any=calibration.epsilon_any,
        rule=state.rule,
        digest=state.digest,
        simulated=simulated,
        noise=state.policy.schedule.noise_at(calibration.scale),
        base=base,
        model_share=model_share,
        covariates=covariates,
        block={**state.policy.schedule.block(calibration.t), **({"mark": mark} if mark else {})}
        or None,
        offset=state.tariff.offset or None,
        feed_in=feed_in_rate(load, state.tariff),
    )
    return release, state.with_rates(rate, public=public)


def _checked_load(load: int | Tally, state: State) -> int:
    if isinstance(load, Tally):
        bound = state.zone.bound
        if load.bound is not bound and not np.array_equal(load.bound, bound):
            raise ReadingError(
                "readings were cut at other bounds than the policy's;"
                " add them with tally(readings, state.zone.bound)."
            )
        if load.export is not None and not np.array_equal(load.export, state.zone.export):
            raise ReadingError(
                "readings were cut at other export limits than the policy's;"
                " add them with tally(readings, state.zone.bound, state.zone.export)."
            )
        load = load.load
    elif state.policy.clamp or state.tariff.offset:
        reason, more = "the policy has a clamp", ""
        if state.tariff.offset:
            reason, more = "houses export", ", state.zone.export"
        raise ReadingError(
            f"the load is a bare number but {reason};"
            f" give what tally(readings, state.zone.bound{more}) returns."
        )
    # what the lower ends of a clamp took off every reading: public
    return _whole_load(load, state.most) + state.tariff.offset - state.zone.offset


def _whole_load(load: int, most: int) -> int:
    try:
        wh = int(load)
    except (TypeError, ValueError, OverflowError):
        raise ReadingError("the load is not a number; add the readings with aggregate.") from None
    if wh != load or wh < 0:
        raise ReadingError(
            "the load is not a whole number of Wh, 0 or more; add the readings with aggregate."
        )
    if wh > most:
        raise ReadingError(
            f"the load is above {most} Wh, the sum of all bounds; clamp readings with aggregate."
        )
    return wh
