"""Algorithm 1 as init and step: one release a step, the state passed in and out.

A Release holds neither the load nor the optimal rate, so whoever is handed one cannot leak them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

import numpy as np

from hushgrid._numbers import (
    CHANCE,
    HASH,
    LOSS,
    TEXT,
    TRUTH,
    Spent,
    number,
    one_of,
    optional,
    or_null,
    whole,
    within,
)
from hushgrid.belief.estimate import SHAPES, PublicKnowledge
from hushgrid.errors import HorizonError, NoiseError, PolicyError, ReadingError
from hushgrid.mechanism.calibrators import Calibrator
from hushgrid.mechanism.digest import calibrator_name, terms_digest, terms_digest_before
from hushgrid.mechanism.exposure import Exposures
from hushgrid.mechanism.noise import Noise, SecureNoise
from hushgrid.mechanism.policy import ROUNDING, NoiseName, Policy, Window
from hushgrid.mechanism.scheduler import Calibration, Scheduler, exposures_of
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tally, Tariff, Zone, public_rate

# --------------------------------------------------------------------------------------------------
# One type for each kind of record: its fields, what each must be, and the body it makes.
#
# The fields of a type that have a `Rule` are its body; the others are where the record is in its
# chain. A release says what the public may know and nothing else: no load, no optimal rate, no
# reading. It is the mechanism's `Release`, whose fields are declared there alone.


Mode = Literal["production", "simulation"]


@dataclass(frozen=True, slots=True)
class Release:
    """What the public sees of step t.

    `load_hat` [Wh] noisy load of readings cut at the clamp; `put_back` [Wh] the energy expected
    above the clamp; `rate` [currency/kWh] for the step from `applies_from` on;
    `scale` [Wh] of the noise, and `noise` its law: `laplace`, `gaussian` (`scale` is then its
    standard deviation) or `none` (a scale of 0); `epsilon` the loss for the house most is learnt
    about, under the policy's trust and the rules `block` and `union`, whichever set the noise;
    `look` [Wh] the scale of a second noisy sight that the release also spent, under a policy with a
    window; `delta` what a house's state may keep and the house still be left out (policy
    negligible);
    `epsilon_any` the loss for any house (or block) whatever anyone consumes; `estimate` [Wh] the
    public's best guess of the load, where one is made; `digest` names zone, tariff, models and
    policy. Under the policy `publish_exact` a step without noise has the load itself as load_hat.
    """

    zone: Annotated[str, TEXT]
    t: Annotated[int, whole(1)]
    applies_from: Annotated[int, whole(1)]
    load_hat: Annotated[int, whole()]
    put_back: Annotated[float, LOSS]
    estimate: Annotated[float | None, or_null(number(-math.inf))]
    rate: Annotated[float, number(-math.inf)]
    scale: Annotated[float, LOSS]
    look: Annotated[float, LOSS]
    epsilon: Annotated[float, or_null(LOSS, infinite=True)]
    delta: Annotated[float, CHANCE]
    epsilon_any: Annotated[float, or_null(LOSS, infinite=True)]
    rule: Annotated[str, TEXT]
    digest: Annotated[str, HASH]
    simulated: Annotated[bool, TRUTH]
    # absent before releases named their noise
    noise: Annotated[NoiseName, optional(one_of(NoiseName))] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.noise is None:
            object.__setattr__(self, "noise", unnamed_noise(self.scale, self.epsilon))
        elif self.noise not in get_args(NoiseName):
            raise PolicyError(
                f"release noise is {self.noise!r}; give one of {', '.join(get_args(NoiseName))}."
            )

    @classmethod
    def free(cls, **stated: Any) -> Release:
        """A release whose costs are 0: one without readings, or of a method without our costs.

        Args:
            **stated: The fields that have other values, among them all that name the release.
        """
        costs = dict.fromkeys(("put_back", "scale", "look", "epsilon", "delta", "epsilon_any"), 0.0)
        return cls(**{"estimate": None, "rate": 0.0, **costs, **stated})


class HasRelease:
    """A record that holds a `release`, and answers for its fields: `record.rate`."""

    __slots__ = ()
    release: Release

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "release"), name)


def unnamed_noise(scale: float, epsilon: float) -> NoiseName:
    """The noise of a release that does not name it: one from a record of an earlier version.

    Laplace noise always leaves a release a finite epsilon of its own, Gaussian noise never.

    Args:
        scale: Of its noise [Wh].
        epsilon: What is booked for it.

    Returns:
        The law; `none` where the scale is 0.
    """
    if scale == 0:
        return "none"
    return "gaussian" if math.isinf(epsilon) else "laplace"


@dataclass(frozen=True, slots=True)
class State:
    """Where the mechanism stands: steps published so far and their rates. Nothing secret.

    A state is a value: states of equal fields are equal, and give equal releases for equal noise.
    `zone` has the clamp as its bounds: what readings are cut at.
    """

    zone: Zone
    tariff: Tariff
    policy: Policy
    scheduler: Scheduler
    digest: str
    rule: str
    most: int  # sum of all bounds [Wh]: no load can be larger
    # kept where the estimate or the energy above the clamp is asked
    public: PublicKnowledge | None = None
    rates: tuple[float, ...] = ()
    spent: tuple[float, ...] = ()  # on publications, under a policy with a window
    before: str | None = None  # the digest that the first version gave these terms, if it knew them
    # under a window of w steps: what each of the w - 1 steps before step 1 lost, latest last (empty
    # for nothing), and what each step since has booked, the last w - 1 of them
    carried: tuple[float, ...] = ()
    lost: tuple[float, ...] = ()

    @property
    def t(self) -> int:
        """The step the next release is for."""
        return len(self.rates) + 1


def init(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    calibrator: Calibrator | None = None,
    exposures: Exposures | None = None,
) -> State:
    """The state before step 1 (Algorithm 1, inputs). A calibrator of your own may stand in.

    `exposures` may be shared by mechanisms that differ in epsilon, eta or calibrator alone.
    """
    if exposures is None:
        exposures = exposures_of(models, zone, consumption, policy)
    exposures.check_made_for(models, zone, consumption, policy)
    scheduler = Scheduler(exposures, policy, calibrator)
    public = None
    if policy.clamp or policy.publish == "estimate":
        public = first_public(models, consumption, policy)
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
        before=terms_digest_before(*terms),
    )


def first_public(
    models: Sequence[OccupancyModel], consumption: Consumption, policy: Policy
) -> PublicKnowledge:
    """What the public knows before the first release, and how it reads the policy's noise."""
    shape = SHAPES[policy.schedule.noise]
    return PublicKnowledge.start(models, consumption, clamp=policy.clamp, shape=shape)


def known_as(state: State, digest: str | None) -> State:
    """The state under the digest that its terms have on record, where that is one of theirs.

    An epoch or a trace of an earlier version goes on under the digest it began with. Any other
    digest leaves the state as it is: its own digest then differs, as that of other terms.
    """
    return replace(state, digest=digest) if digest and digest == state.before else state


@dataclass(frozen=True, slots=True, repr=False)
class PreparedNoise:
    """The noise of one step, drawn before its load is known. As secret as the load itself."""

    t: int
    digest: str
    calibration: Calibration
    noise: int
    simulated: bool
    look: Calibration | None = None  # under a policy with a window: the first, coarse sight
    look_noise: int = 0

    def __repr__(self) -> str:
        return f"Draws(t={self.t})"

    @property
    def cost(self) -> float:
        """What the release loses at most: under a window the look and the publication together."""
        both = self.look is not None and self.look is not self.calibration
        return self.calibration.epsilon + (self.look.epsilon if both and self.look else 0.0)


def prepare(state: State, noise: Noise) -> PreparedNoise:
    """Draw the noise of the next step (Algorithm 1, line 12), from what is public alone."""
    if not isinstance(noise, Noise):
        raise NoiseError(f"noise is {noise!r}; give a source such as SecureNoise().")
    policy, simulated = state.policy, not isinstance(noise, SecureNoise)
    if not policy.schedule.adaptive:
        calibration = state.scheduler.at(state.t, state.rates)
        k = noise.drawn(policy.schedule.noise, calibration.scale) if calibration.scale else 0
        return PreparedNoise(state.t, state.digest, calibration, k, simulated)
    look, anew = shares(state)
    k = noise.draw(look.scale)
    anew = look if anew is None else anew
    return PreparedNoise(state.t, state.digest, anew, noise.draw(anew.scale), simulated, look, k)


def carry(state: State, before: Sequence[float]) -> State:
    """The state before step 1 of a stream that others went before.

    Args:
        state: As `init` makes it.
        before: What each step before step 1 lost [epsilon], latest last; 0 where nothing was
            published, infinite where no bound is known.

    Returns:
        The state whose windows count these steps; the same one without a policy with a window, or
        where nothing was lost.
    """
    if not state.policy.schedule.adaptive:
        return state
    window, epsilon = _window(state), state.policy.epsilon
    recent = window.recent(before)
    if not any(recent):
        return state
    recent = (0.0,) * (window.steps - 1 - len(recent)) + recent
    return replace(state, carried=recent, spent=window.published(epsilon, recent), lost=())


def bring(state: State, epsilon: float) -> State:
    """Count a loss from elsewhere as lost at the last step before the next one.

    Args:
        state: Where the stream is.
        epsilon: What a house that moved in may have lost there.

    Returns:
        The state whose windows count it; the same one without a policy with a window, or with one
        of a single step.
    """
    steps = state.policy.schedule.shared_by
    if steps == 1 or epsilon <= 0:
        return state
    if state.lost:
        return replace(state, lost=_with(state.lost, epsilon))
    carried = state.carried or (0.0,) * (steps - 1)
    return replace(state, carried=_with(carried, epsilon))


def _with(lost: tuple[float, ...], epsilon: float) -> tuple[float, ...]:
    return (*lost[:-1], Spent().add(lost[-1], epsilon).total)


def shares(state: State) -> tuple[Calibration, Calibration | None]:
    """Under a policy with a window: the next step's look, and a publication if there may be one.

    Both fit the window by what they book, and a publication leaves the looks after it their shares.
    Under rules that bound less than what a release tells about one house, looks book more than
    their shares: then there is none where a publication due would not fit too, so that looks alone
    do not fill the window.

    Raises:
        HorizonError: With what the steps before have lost, the look does not fit the window, or
            under such rules the publication does not.
    """
    window, epsilon, scheduler = _window(state), state.policy.epsilon, state.scheduler
    look, anew = nominal_shares(state)
    lost = _lost_in_window(state)
    if not within([*lost, look.epsilon], epsilon):
        raise _no_room(state)
    if anew is None or _fits_easily(state, lost, look, anew):
        return look, anew
    room, share = _room(state, lost, look), window.probe_epsilon(epsilon)
    offer = window.publication_epsilon(epsilon, state.spent)
    for _ in range(2):
        own = Fraction(anew.epsilon + look.epsilon) - Fraction(look.epsilon)  # as it is booked
        if own <= room:
            return look, anew
        offer *= float(room / own) * (1 - _LITTLE)  # at eta = 1 the loss is proportional to it
        if offer < share * (1 - ROUNDING):  # too little to say more than the look
            break
        anew = scheduler.at(state.t, state.rates, offer)
    if look.epsilon > share * (1 + ROUNDING):
        raise _no_room(state)
    return look, None


def _no_room(state: State) -> HorizonError:
    return HorizonError(
        f"step {state.t} has no room in its window of {_window(state).steps} steps: what they have"
        " lost leaves less than it would cost; publish the public forecast."
    )


def nominal_shares(state: State) -> tuple[Calibration, Calibration | None]:
    """The same by the window's rule alone, whatever the releases book."""
    window, policy, scheduler = _window(state), state.policy, state.scheduler
    look = scheduler.at(state.t, state.rates, window.probe_epsilon(policy.epsilon))
    offer = window.publication_epsilon(policy.epsilon, state.spent)
    return look, scheduler.at(state.t, state.rates, offer) if offer > 0 else None


_LITTLE = 1e-12  # relative: what rounding may add to a loss


def _lost_in_window(state: State) -> tuple[float, ...]:
    """What each of the last w - 1 steps has booked, latest last; fewer where nothing was before."""
    return (*state.carried[state.t - 1 :], *state.lost)


def _fits_easily(state: State, lost: Sequence[float], look: Calibration, anew: Calibration) -> bool:
    """Whether a publication fits every window it will be in, by far more than rounding."""
    window, epsilon = _window(state), state.policy.epsilon
    share = window.probe_epsilon(epsilon)
    running = most = math.fsum((*lost, look.epsilon, anew.epsilon))
    for past in (*(0.0,) * (window.steps - 1 - len(lost)), *lost):
        running += share - past
        most = max(most, running)
    return most <= epsilon * (1 - 1e3 * ROUNDING)


def _room(state: State, lost: Sequence[float], look: Calibration) -> Fraction:
    """The most that a publication may book in every window it will be in, exactly.

    Windows that end later hold fewer steps before this one, and looks of steps after it, unless
    these book more than their shares.
    """
    window, policy = _window(state), state.policy
    share = window.probe_epsilon(policy.epsilon)
    running = Fraction(policy.epsilon) - sum(map(Fraction, (*lost, look.epsilon)))
    room = running
    before = (*(0.0,) * (window.steps - 1 - len(lost)), *lost)
    for t, past in enumerate(before, state.t + 1):
        running += Fraction(past)
        if t <= policy.horizon:
            coming = state.scheduler.at(t, state.rates, share).epsilon
            running -= Fraction(coming if coming <= share * (1 + ROUNDING) else 0)
        room = min(room, running)
    return room


def _window(state: State) -> Window:
    window = state.policy.schedule
    if not isinstance(window, Window):
        raise PolicyError("the policy has no window; ask the scheduler for the step's noise.")
    return window


def _over_the_border(state: State) -> bool:
    """Whether the window that ends with the next step holds losses from before step 1."""
    return any(state.carried[state.t - 1 :])


def step(state: State, load: int | Tally, noise: Noise | PreparedNoise) -> tuple[Release, State]:
    """Publish step t for a load [Wh] (Algorithm 1, lines 2 to 14): (release, next state).

    Under a policy with a clamp the load is what `tally(readings, state.zone.bound)` returns. The
    noise is a source, or what `prepare` drew from one for this very step.

    A state is a value: stepping it twice draws twice. Publish one release a step and go on from
    the next state.

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
            f" {state.digest[:12]} is next; draw it anew."
        )
    z = _checked_load(load, state)
    if draws.look is not None:
        return _step_in_window(state, z, draws, draws.look)
    return _published(state, draws.calibration, z + draws.noise, draws.simulated)


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


def _step_in_window(
    state: State, z: int, draws: PreparedNoise, look: Calibration
) -> tuple[Release, State]:
    """Look whether the load has moved away from what the public expects; publish anew if so."""
    anew, sight = draws.calibration, z + draws.look_noise
    moved = abs(sight - _expected(state)) - look.scale  # less what the look's own noise adds
    if anew is look or moved <= anew.scale:
        return _published(state, look, sight, draws.simulated, keep=state.policy.publish == "raw")
    return _published(state, anew, z + draws.noise, draws.simulated, look=look)


def follows(state: State, load_hat: int, *, anew: bool = False) -> Release:
    """The release that a noisy load [Wh] leads to: all of it follows from public figures.

    `anew` says, under a policy with a window, that the load was published anew.
    """
    policy, t, rates = state.policy, state.t, state.rates
    if not policy.schedule.adaptive:
        return _published(state, state.scheduler.at(t, rates), load_hat, True)[0]
    look, own = shares(state)
    if not anew or own is None:
        return _published(state, look, load_hat, True, keep=policy.publish == "raw")[0]
    return _published(state, own, load_hat, True, look=look)[0]


def replay(state: State, release: Release) -> State:
    """The state after a release that is already published: draws nothing, publishes nothing."""
    state = known_as(state, release.digest)
    if release.digest != state.digest or release.t != state.t:
        raise PolicyError(
            f"release is of step {release.t} under {release.digest[:12]} but step {state.t} under"
            f" {state.digest[:12]} is next; replay releases of these terms in order."
        )
    public = state.public
    if public is not None:
        _, public = public.learn(release.load_hat, release.scale, state.rates)
    return _after(state, public, release.rate, release)


def skip(state: State, rate: float) -> State:
    """The state after a step without a release; `rate` is what the public was shown instead."""
    public = state.public.passed() if state.public is not None else None
    return _after(state, public, rate)


def _after(
    state: State, public: PublicKnowledge | None, rate: float, release: Release | None = None
) -> State:
    rates = (*state.rates, rate)
    if not state.policy.schedule.adaptive:
        return replace(state, public=public, rates=rates)
    epsilon, look = (release.epsilon, release.look) if release else (0.0, 0.0)
    return replace(spend(state, epsilon, anew=look > 0), public=public, rates=rates)


def spend(state: State, epsilon: float, *, anew: bool) -> State:
    """Under a policy with a window: count what the next step lost; `anew`, on a publication too."""
    window, spent, lost = _window(state), state.spent, state.lost
    own = 0.0
    if anew and _over_the_border(state):  # less than the window's own rule offers
        (own,) = window.published(state.policy.epsilon, [epsilon])
    elif anew:
        own = window.publication_epsilon(state.policy.epsilon, spent)
    return replace(
        state, spent=(*spent, own)[-window.steps :], lost=window.recent((*lost, epsilon))
    )


def _expected(state: State) -> float:
    """The load [Wh] below the clamp that is published unless anew: forecast, or the last rate's."""
    above = state.public.clamped_energy(state.rates) if state.public else 0.0
    if state.policy.publish == "estimate" and state.public:
        law = state.public.predicted(state.rates)
        return float((law.weights * law.mean).sum()) - above
    if not state.rates:
        return 0.0
    z = (state.rates[-1] - state.tariff.beta) / state.tariff.alpha * 1000
    return z - state.tariff.inelastic - above


def _published(
    state: State,
    calibration: Calibration,
    load_hat: int,
    simulated: bool,
    *,
    look: Calibration | None = None,
    keep: bool = False,
) -> tuple[Release, State]:
    """The release of a noisy load; `keep` leaves the last rate as it is."""
    public, put_back, estimate = state.public, 0.0, None
    if public is not None:
        put_back = public.clamped_energy(state.rates)
        guess, public = public.learn(load_hat, calibration.scale, state.rates)
        estimate = guess if state.policy.publish == "estimate" else None
    rate = public_rate(load_hat + put_back if estimate is None else estimate, state.tariff)
    if keep and state.rates:
        rate = state.rates[-1]
    release = Release(
        zone=state.zone.id,
        t=calibration.t,
        applies_from=calibration.t + 1,
        load_hat=load_hat,
        put_back=put_back,
        estimate=estimate,
        rate=rate,
        scale=calibration.scale,
        look=look.scale if look else 0.0,
        epsilon=calibration.epsilon + (look.epsilon if look else 0.0),
        delta=state.policy.schedule.negligible,
        epsilon_any=calibration.epsilon_any + (look.epsilon_any if look else 0.0),
        rule=state.rule,
        digest=state.digest,
        simulated=simulated,
        noise=state.policy.schedule.noise_at(calibration.scale),
    )
    return release, _after(state, public, rate, release)


def _checked_load(load: int | Tally, state: State) -> int:
    if isinstance(load, Tally):
        own = state.zone.bound
        if load.bound is not own and not np.array_equal(load.bound, own):
            raise ReadingError(
                "readings were cut at other bounds than the policy's;"
                " add them with tally(readings, state.zone.bound)."
            )
        load = load.load
    elif state.policy.clamp:
        raise ReadingError(
            "the load is a bare number but the policy has a clamp;"
            " give what tally(readings, state.zone.bound) returns."
        )
    return _whole_load(load, state.most)


def _whole_load(load: int, most: int) -> int:
    try:
        whole = int(load)
    except (TypeError, ValueError, OverflowError):
        raise ReadingError("the load is not a number; add the readings with aggregate.") from None
    if whole != load or whole < 0:
        raise ReadingError(
            "the load is not a whole number of Wh, 0 or more; add the readings with aggregate."
        )
    if whole > most:
        raise ReadingError(
            f"the load is above {most} Wh, the sum of all bounds; clamp readings with aggregate."
        )
    return whole
