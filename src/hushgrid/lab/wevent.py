"""w-event privacy by budget distribution and absorption (Kellaris and others, 2014).

Any w consecutive steps lose at most epsilon together. Half of epsilon probes, at every step,
whether the load has moved away from what the public expects. Where it has, the step is published:
by distribution with half of what the publications of the last w - 1 steps have left of the other
half, by absorption with its own share of that half and those of the steps before it that were not
published, after which as many steps publish nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.lab.methods import Method, MethodSetting, Outcome, Ready
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.zone import Tariff, public_rate

_LITTLE = 1e-12  # of epsilon: what rounding may leave of an offer


class Shares(Protocol):
    """How epsilon is shared out over any w consecutive steps."""

    @property
    def steps(self) -> int:
        """W."""
        ...

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]."""
        ...

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last steps spent on a publication; all of them, or the last
                2 w.
        """
        ...


class Distribution(NamedTuple):
    """Half of what is left.

    Attributes:
        epsilon: What any `steps` consecutive steps may lose together [nats].
        steps: w.
    """

    epsilon: float
    steps: int

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]."""
        return self.epsilon / (2 * self.steps)

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last w - 1 steps, or more, spent on a publication.

        >>> Distribution(1.0, 4).offer([]), Distribution(1.0, 4).offer([0.25, 0.0])
        (0.25, 0.125)
        """
        counted = losses[max(len(losses) - self.steps + 1, 0) :]
        room = (self.epsilon / 2 - sum(counted)) / 2
        return room if room > _LITTLE * self.epsilon else 0.0


class Absorption(NamedTuple):
    """An equal share for each step, and those of steps before that were not published.

    Attributes:
        epsilon: What any `steps` consecutive steps may lose together [nats].
        steps: w.
    """

    epsilon: float
    steps: int

    @property
    def probe(self) -> float:
        """What the probe of every step loses [nats]; as much is a step's share of publications."""
        return self.epsilon / (2 * self.steps)

    def offer(self, losses: Sequence[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            losses: What each of the last steps spent on a publication; all of them, or the last
                2 w.

        >>> shares = Absorption(1.0, 4)
        >>> [shares.offer(losses) for losses in ([], [0.0, 0.0], [0.375], [0.375, 0.0, 0.0])]
        [0.125, 0.375, 0.0, 0.125]
        """
        publications = [t for t, loss in enumerate(losses) if loss > 0]
        free = 0  # the first step whose share is neither spent nor given up
        if publications:
            last = publications[-1]
            free = last + round(losses[last] / self.probe)
        return self.probe * min(max(len(losses) + 1 - free, 0), self.steps)


class _Carry(NamedTuple):
    """What a day leaves for the next one, of the held rate and of the one that is estimated."""

    losses: tuple[list[float], list[float]]
    last_load: float  # the load behind the last rate [Wh]


class _Observed(NamedTuple):
    load_hat: float  # [Wh]
    scale: float  # [Wh]
    last_load: float  # the load behind the raw rate: a step that is only probed keeps the last [Wh]
    estimate: float  # [Wh]


def _prepare(share_out: Callable[[float, int], Shares], setting: MethodSetting) -> Ready:
    promise, w = setting.promise, setting.horizon
    w = 1 if promise.secret == "step" else promise.window or w
    epsilon = promise.epsilon if promise.window else setting.day_epsilon
    shares = share_out(epsilon, w)
    zone, tariff, models, consumption = setting.scenario.terms
    policy = Policy(epsilon, setting.horizon)
    scheduler = Scheduler(exposures_of(models, zone, consumption, policy), policy)

    def scale_of(t: int, epsilon: float) -> float:
        return scheduler.at(t, (), epsilon).scale

    day = partial(_published_day, shares, scale_of, tariff)

    def publish_on(
        load: Ints, seed: np.random.SeedSequence, carry: _Carry | None
    ) -> tuple[Outcome, _Carry]:
        losses = carry.losses if carry else ([], [])
        raw, raw_losses = day(load, seed, losses[0], last_load=carry.last_load if carry else None)
        estimates, estimate_losses = day(load, seed, losses[1], setting.public)
        outcome = Outcome(
            np.array([step.last_load for step in raw]),
            np.array([step.estimate for step in estimates]),
            np.array([step.load_hat for step in raw]),
            np.array([step.scale for step in raw]),
        )
        return outcome, _Carry((raw_losses, estimate_losses), raw[-1].last_load)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        return publish_on(load, seed, None)[0]

    return Ready(
        f"pure epsilon for any {w} steps in a row, whatever anyone consumes",
        2 * w * setting.largest / epsilon,
        publish,
        publish_on=publish_on if promise.window else None,
    )


def _published_day(
    shares: Shares,
    scale_of: Callable[[int, float], float],
    tariff: Tariff,
    load: Ints,
    seed: np.random.SeedSequence,
    last_losses: Sequence[float] = (),
    public: PublicKnowledge | None = None,
    last_load: float | None = None,
) -> tuple[list[_Observed], list[float]]:
    """Probe and publish a day; without `public` the load behind the last rate is expected.

    `last_losses` is what each of the last steps spent, `last_load` the load behind the rate of the
    last.
    """
    noise, losses = SimulatedNoise(seed), list(last_losses)
    expected, last, steps = 0.0, 0.0, list[_Observed]()
    if last_load is not None:
        expected, last = _load_behind(public_rate(last_load, tariff), tariff), last_load
    for t, z in enumerate(load.tolist(), 1):
        offer = shares.offer(losses)
        probe = scale = scale_of(t, shares.probe)
        publication = scale_of(t, offer) if offer else probe
        observation, fresh = z + noise.draw(probe), z + noise.draw(publication)
        if public is not None:
            law = public.predicted()
            expected = float((law.weights * law.mean).sum())
        # the probe's own noise moves it by its scale
        published = bool(offer) and abs(observation - expected) - probe > publication
        if published:
            observation, scale = fresh, publication
        losses.append(offer if published else 0.0)
        estimate = float(observation)
        if public is not None:
            estimate, public = public.learn(observation, scale)
        if published or (last_load is None and not steps):
            last = float(observation)
            if public is None:
                expected = _load_behind(public_rate(last, tariff), tariff)
        steps.append(_Observed(float(observation), scale, last, estimate))
    return steps, losses[-2 * shares.steps :]


def _load_behind(rate: float, tariff: Tariff) -> float:
    """The load [Wh] that a rate says: not the published one where the rate was cut."""
    return (rate - tariff.beta) / tariff.alpha * 1000 - tariff.inelastic


WEVENT = Method("wevent", "w-event", True, 1.0, partial(_prepare, Distribution))
WEVENT_ABSORPTION = Method(
    "wevent_absorption", "w-event by absorption", True, 1.0, partial(_prepare, Absorption)
)
