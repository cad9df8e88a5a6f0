"""w-event privacy by budget distribution (Kellaris, Papadopoulos, Xiao, Papadias 2014).

Any w consecutive steps lose at most epsilon together. Half of epsilon probes, at every step,
whether the load has moved away from what the public expects. Where it has, the step is published
with half of what the publications of the last w - 1 steps have left of the other half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.compare.methods import Method, MethodSetting, Outcome, Ready
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Scheduler, exposures_of
from hushgrid.model.zone import Tariff, public_rate

_LITTLE = 1e-12  # of epsilon: what rounding may leave of an offer


class Distribution(NamedTuple):
    """How epsilon is shared out.

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

    def offer(self, spent: Iterable[float]) -> float:
        """What a publication may lose [nats]; 0: there is none.

        Args:
            spent: What each of the last w - 1 steps spent on a publication.

        >>> Distribution(1.0, 4).offer([]), Distribution(1.0, 4).offer([0.25, 0.0])
        (0.25, 0.125)
        """
        left = (self.epsilon / 2 - sum(spent)) / 2
        return left if left > _LITTLE * self.epsilon else 0.0


class _Observed(NamedTuple):
    load_hat: float  # [Wh]
    scale: float  # [Wh]
    held: float  # the load behind the raw rate: a step that is only probed keeps the last [Wh]
    estimate: float  # [Wh]


def _prepare(setting: MethodSetting) -> Ready:
    w = 1 if setting.promise.secret == "step" else setting.horizon
    shares = Distribution(setting.day_epsilon, w)
    zone, tariff, models, consumption = setting.scenario.terms
    policy = Policy(shares.epsilon, setting.horizon)
    scheduler = Scheduler(exposures_of(models, zone, consumption, policy), policy)

    def scale_of(t: int, epsilon: float) -> float:
        return scheduler.at(t, (), epsilon).scale

    day = partial(_published_day, shares, scale_of, tariff)

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        raw, followed = day(load, seed), day(load, seed, setting.public)
        return Outcome(
            np.array([step.held for step in raw]),
            np.array([step.estimate for step in followed]),
            np.array([step.load_hat for step in raw]),
            np.array([step.scale for step in raw]),
        )

    return Ready(
        f"pure epsilon for any {w} steps in a row, whatever anyone consumes",
        2 * w * setting.largest / shares.epsilon,
        publish,
    )


def _published_day(
    shares: Distribution,
    scale_of: Callable[[int, float], float],
    tariff: Tariff,
    load: Ints,
    seed: np.random.SeedSequence,
    public: PublicKnowledge | None = None,
) -> list[_Observed]:
    """Probe and publish a day; without `public` the load behind the last rate is expected."""
    noise, spent = SimulatedNoise(seed), deque[float](maxlen=shares.steps - 1)
    expected, steps = 0.0, list[_Observed]()
    for t, z in enumerate(load.tolist(), 1):
        offer = shares.offer(spent)
        probe = scale = scale_of(t, shares.probe)
        publication = scale_of(t, offer) if offer else probe
        seen, anew = z + noise.draw(probe), z + noise.draw(publication)
        if public is not None:
            law = public.predicted()
            expected = float((law.weights * law.mean).sum())
        # the probe's own noise moves it by its scale
        published = bool(offer) and abs(seen - expected) - probe > publication
        if published:
            seen, scale = anew, publication
        spent.append(offer if published else 0.0)
        held, estimate = float(seen), float(seen)
        if public is not None:
            estimate, public = public.learn(seen, scale)
        elif steps and not published:
            held = steps[-1].held
        else:
            expected = _load_behind(public_rate(seen, tariff), tariff)
        steps.append(_Observed(float(seen), scale, held, estimate))
    return steps


def _load_behind(rate: float, tariff: Tariff) -> float:
    """The load [Wh] that a rate says: not the published one where the rate was cut."""
    return (rate - tariff.beta) / tariff.alpha * 1000 - tariff.inelastic


WEVENT = Method("wevent", "w-event", True, 1.0, _prepare)
