"""Simulated house-steps a second, over those of hmmlearn's `sample`.

The peers get two states, one fixed transition matrix and one long sequence: less work than a house
with a day of its own, and no cost for each call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hmmlearn.hmm import CategoricalHMM, GaussianHMM

from benchmarks import zones
from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import Gamma, Policy, Tariff
from hushgrid._numbers import Floats
from hushgrid.lab.simulation import simulate
from hushgrid.model.world import World
from hushgrid.model.zone import Scenario

HOUSES = sized(200_000, 64)
PEER_STEPS = sized(10_000, 100)
REPETITIONS = sized(5, 1)
ABSENT, PRESENT = Gamma(1.5, 80.0, 1000), Gamma(2.5, 125.0, 1000)

Peer = GaussianHMM | CategoricalHMM


def scenario() -> Scenario:
    """One model that is true, uniform and gamma classes."""
    kinds = zones.kinds(HOUSES, 1)
    models = [zones.theta(kinds, 3)]
    return Scenario(zones.zone(kinds, 2), Tariff(1e-4, 62.5), models, zones.consumption(kinds))


def gaussian() -> GaussianHMM:
    """Two states; readings with the means and variances of our laws."""
    peer = GaussianHMM(2)  # type: ignore[no-untyped-call]
    peer.startprob_, peer.transmat_ = _chain()
    peer.means_ = np.array([[ABSENT.mean], [PRESENT.mean]])
    peer.covars_ = np.array([[ABSENT.variance], [PRESENT.variance]])
    return peer


def categorical() -> CategoricalHMM:
    """Two states; readings 0..1000 Wh with our laws themselves, 1001 symbols."""
    peer = CategoricalHMM(2, n_features=ABSENT.top + 1)  # type: ignore[no-untyped-call]
    peer.startprob_, peer.transmat_ = _chain()
    peer.emissionprob_ = np.array([ABSENT.pmf, PRESENT.pmf])
    return peer


def _chain() -> tuple[Floats, Floats]:
    return np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])


def speeds(day: Callable[[], object], peer: Peer) -> tuple[float, float]:
    """House-steps a second of a day of our houses and of the peer."""

    def sample() -> None:
        peer.sample(PEER_STEPS, random_state=1)  # type: ignore[no-untyped-call]

    day()
    sample()
    ours, theirs = best_of_both(day, sample, repetitions=REPETITIONS)
    return HOUSES * zones.SLOTS / ours, PEER_STEPS / theirs


def world_over(peer: Peer, goal: str | None) -> Result:
    """The people and their meters alone: World.step."""
    world = World(scenario(), (1,))

    def day() -> None:
        for _ in range(zones.SLOTS):
            world.step([])

    ours, theirs = speeds(day, peer)
    return Result(ours, "house-steps/s", ours / theirs, goal)


def closed_loop() -> Result:
    """The whole of it: calibration, people, meters, noise, prices."""
    zone, policy = scenario(), Policy(0.5, eta=0.05)
    ours, theirs = speeds(lambda: simulate(zone, policy, seed=1), gaussian())
    return Result(ours, "house-steps/s", ours / theirs)


QUESTIONS: dict[str, Question] = {
    "simulate": lambda: world_over(gaussian(), ">= 1000"),
    "simulate_categorical": lambda: world_over(categorical(), None),
    "simulate_day": closed_loop,
}
