"""What a baseline is: a name, its trust, and from a promise to a publisher or a refusal.

A method that cannot give the asked promise answers with a `Refusal`; it is never run at another
promise than the one asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Floats, Ints
from hushgrid.checks import is_real
from hushgrid.errors import PlanError, PolicyError
from hushgrid.estimate import SHAPES, USUAL_FACTOR, PublicKnowledge
from hushgrid.grid import Zone
from hushgrid.noise import SimulatedNoise
from hushgrid.occupancy import OccupancyModel
from hushgrid.planning import Secret
from hushgrid.schedules import NoiseLaw
from hushgrid.simulation import Scenario

FRESH = "; given occupancy, readings are drawn afresh at each step"  # an assumption over time


@dataclass(frozen=True, slots=True)
class MethodPromise:
    """The secret, its epsilon and, for a trajectory, delta (docs/plan.md).

    A trajectory's promise holds for any interval of it, and an interval's for the step.
    """

    secret: Secret = "interval"
    epsilon: float = 1.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        if self.secret not in get_args(Secret):
            raise PolicyError(
                f"secret is {self.secret!r}; give one of {', '.join(get_args(Secret))}."
            )
        if not (is_real(self.epsilon) and self.epsilon > 0):
            raise PolicyError(f"epsilon is {self.epsilon}; give a positive number.")
        if not (is_real(self.delta) and 0 <= self.delta < 0.5):
            raise PolicyError(f"delta is {self.delta}; give a probability from 0 to below 0.5.")


@dataclass(frozen=True, slots=True, eq=False)
class MethodSetting:
    """A zone, what is promised in it, the steps of a day, and the public before the first release.

    Methods of one zone share `public`: what it computes, it computes once. Its prior of the common
    factor is the one a service publishes by, a day after the factor was known to be 1.
    """

    scenario: Scenario
    promise: MethodPromise
    horizon: int
    public: PublicKnowledge = field(repr=False)

    @classmethod
    def of(cls, scenario: Scenario, promise: MethodPromise, horizon: int) -> MethodSetting:
        """The setting of a zone whose readings do not react to rates."""
        if scenario.consumption.reacts or (scenario.consumed and scenario.consumed.reacts):
            raise PlanError(
                "readings react to rates, so methods that need the whole day first have no day to"
                " publish; give a zone without elasticity."
            )
        public = PublicKnowledge.start(scenario.models, scenario.consumption)
        return cls(scenario, promise, horizon, public.since(USUAL_FACTOR, horizon))

    @property
    def alone(self) -> bool:
        """Whether every house moves on its own under every model."""
        return all(piece.size == 1 for model in self.scenario.models for piece in model.chains)

    @property
    def largest(self) -> int:
        """The largest bound of a house [Wh]."""
        return int(self.scenario.zone.bound.max())


class Outcome(NamedTuple):
    """A published day: loads [Wh] behind the raw rates, and the public's best estimate.

    `seen` [Wh] is what a watcher learns at each step, behind noise of `scale` [Wh] by the law
    `noise` (the scale of Gaussian noise is its standard deviation). No `seen`: nothing released.
    """

    raw: Floats
    estimated: Floats
    seen: Floats | None
    scale: Floats
    noise: NoiseLaw = "laplace"


Publish = Callable[[Ints, np.random.SeedSequence], Outcome]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A method that keeps the promise: how, with which noise [Wh], and what it does to a day."""

    guarantee: str
    scale: float
    publish: Publish


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a method cannot give the asked promise."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A way to publish. `eta` is the share of a reading's law it does not trust; None: no readings.

    `online` methods publish step by step; the others need the whole day first.
    """

    name: str
    label: str
    online: bool
    eta: float | None
    prepare: Callable[[MethodSetting], Ready | Refusal]


def noisy(
    setting: MethodSetting, scales: Sequence[float], guarantee: str, law: NoiseLaw = "laplace"
) -> Ready:
    """Independent integer noise of these scales [Wh], one a step.

    Args:
        setting: The zone and the promise.
        scales: One for each step [Wh]; standard deviations where the noise is Gaussian.
        guarantee: What it keeps, in words.
        law: Of the noise.

    Returns:
        The method, ready to publish a day.
    """
    fixed = np.array(scales, np.float64)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        noise = SimulatedNoise(seed)
        raw = load.astype(np.float64) + np.array([noise.drawn(law, float(b)) for b in fixed])
        return Outcome(raw, learnt(setting.public, raw, fixed, law), raw, fixed, law)

    return Ready(guarantee, float(fixed.max()), publish)


def learnt(
    public: PublicKnowledge, load_hat: Floats, scales: Floats, law: NoiseLaw = "laplace"
) -> Floats:
    """The public's estimate at every step, from that step's release and those before it."""
    now, out = replace(public, shape=SHAPES[law]), []
    for seen, scale in zip(load_hat.tolist(), scales.tolist(), strict=True):
        guess, now = now.learn(seen, scale)
        out.append(guess)
    return np.array(out)


def part_of(scenario: Scenario, some: NDArray[np.integer]) -> Scenario:
    """A few houses of a zone whose houses move on their own, as a zone."""
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
                chain_of=chain_of[some],
                name=model.name,
            )
        )
    f = scenario.consumption
    zone = Zone(scenario.zone.id, scenario.zone.bound[some])
    kept = replace(f, class_of=f.class_of[some])
    return Scenario(zone, scenario.tariff, tuple(models), kept)
