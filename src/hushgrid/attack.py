"""Attacks on a recorded day: what an adversary believes, scored against the truth.

An attack's success bounds leakage from below; what is promised bounds it from above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, get_args

import numpy as np

from hushgrid.adversary import (
    Adversary,
    Exact,
    Factored,
    Knowledge,
    KnownOccupancy,
    KnownReadings,
    look_back,
    watch,
)
from hushgrid.arrays import Floats, Int32s, UInt8s
from hushgrid.belief import at_home, marginals
from hushgrid.calibration import Calibrator, Naive
from hushgrid.errors import PolicyError
from hushgrid.grid import optimal_rate, tally
from hushgrid.mechanism import Release, init, releases
from hushgrid.noise import SimulatedNoise
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy
from hushgrid.recording import Recording, Truth
from hushgrid.scores import Scores, scores
from hushgrid.simulation import Scenario

Knows = Literal["none", "others", "occupancy"]

SMALL = 14  # houses, for which the joint filter is used


@dataclass(frozen=True, slots=True, eq=False)
class Attack:
    """What one adversary made of one day.

    `home` and `prior` (T, houses): chances of being at home with and without the releases;
    `houses` are those attacked; `filter` names how she thinks.
    """

    knows: Knows
    filter: str
    houses: tuple[int, ...]
    home: Floats
    prior: Floats
    occupancy: UInt8s
    scores: Scores

    @property
    def moved(self) -> float:
        """The most by which her log odds left the prior's, over all steps and houses."""
        sure = (self.prior <= 0) | (self.prior >= 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.abs(_log_odds(self.home) - _log_odds(self.prior))
        return float(np.max(np.where(sure, 0.0, shift)))


def attack(
    scenario: Scenario,
    releases: Sequence[Release],
    truth: Truth,
    *,
    clamp: tuple[int, ...] = (),
    knows: Knows = "none",
    target: int | None = None,
    models: Sequence[OccupancyModel] | None = None,
    hindsight: bool = False,
    seed: int = 1,
) -> Attack:
    """Let an adversary watch the releases of a day (paper II-C), then score her.

    `clamp`: where the releases' policy cut readings. `knows`: nothing beside the releases, all
    other readings, or everybody else's occupancy. `models`: hers, where they are not the zone's.
    `hindsight`: she judges each step after the whole day. `seed` is for the intervals.
    """
    if knows not in get_args(Knows):
        raise PolicyError(f"knows is {knows!r}; give one of {', '.join(get_args(Knows))}.")
    n = scenario.zone.n_houses
    if target is not None and not 0 <= target < n:
        raise PolicyError(f"target is {target}; give a house from 0 to {n - 1}.")
    others: KnownReadings | KnownOccupancy | None = None
    if knows == "others":
        others = KnownReadings(truth.readings)
    elif knows == "occupancy":
        others = KnownOccupancy(truth.occupancy)
    theta = tuple(models or scenario.models)
    known = Knowledge(scenario.zone, theta, scenario.consumption, clamp, others=others)
    adversary: Adversary = Factored(known) if knows != "none" or n > SMALL else Exact(known)
    seen = (look_back if hindsight else watch)(adversary, releases)
    houses = tuple(range(n)) if target is None else (target,)
    home = np.clip(np.asarray(seen.averaged)[:, houses], 0.0, 1.0)
    prior = prior_of(theta, len(home))[:, houses]
    occupancy = truth.occupancy[: len(home), houses]
    name = type(adversary).__name__.lower()
    found = scores(occupancy, home, prior, seed=seed)
    return Attack(knows, name, houses, home, prior, occupancy, found)


def prior_of(models: Sequence[OccupancyModel], steps: int) -> Floats:
    """(T, N): chances of being at home that everybody knows, models weighted alike."""
    each = [[at_home(b, m) for b in islice(marginals(m), steps)] for m in models]
    return np.asarray(np.clip(np.mean(each, axis=0), 0.0, 1.0))


def _log_odds(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True, slots=True)
class Version:
    """The same day published in another way: its releases, and where readings were cut."""

    releases: tuple[Release, ...]
    clamp: tuple[int, ...] = ()


def versions(
    scenario: Scenario, policy: Policy, recorded: Recording, *, seed: int
) -> Mapping[str, Version]:
    """The recorded day as it was published, and with the same people under other protections.

    `open`: no noise. `naive`, `paper`: the same epsilon at each step, by the paper's naive
    mechanism and by its rule (eta = 1, contract bounds). They are left out where the policy gives
    a step no epsilon; all others, where people react to rates, so that the day would have been
    another one.
    """
    found = {"hushgrid": Version(recorded.releases, policy.clamp)}
    if recorded.truth is None or scenario.consumption.reacts:
        return found
    found = {"open": Version(_open(scenario, recorded))} | found
    given = policy.schedule
    if given.adaptive or not given.per_release:
        return found
    plain = replace(policy, eta=1.0, clamp=(), publish="raw", schedule=given.protecting_all())
    again = {"naive": Naive(), "paper": None}
    others = {
        name: Version(_published(scenario, plain, recorded.truth, each, seed))
        for name, each in again.items()
    }
    return {"open": found["open"], **others, "hushgrid": found["hushgrid"]}


def _published(
    scenario: Scenario, policy: Policy, truth: Truth, calibrator: Calibrator | None, seed: int
) -> tuple[Release, ...]:
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    state = init(*world, policy, calibrator)
    loads = (tally(readings, state.zone.bound) for readings in truth.readings)
    return tuple(releases(state, loads, SimulatedNoise(seed)))


def _open(scenario: Scenario, recorded: Recording) -> tuple[Release, ...]:
    """What a utility without hushgrid would have shown."""
    assert recorded.truth is not None
    pairs = zip(recorded.releases, recorded.truth.readings, strict=True)
    return tuple(bared(release, readings, scenario) for release, readings in pairs)


def bared(release: Release, readings: Int32s, scenario: Scenario) -> Release:
    """The release of the same step without any noise: the load itself, and the optimal rate."""
    load = tally(readings, scenario.zone.bound).load
    return replace(
        release,
        load_hat=load,
        put_back=0.0,
        estimate=None,
        rate=optimal_rate(load, scenario.tariff),
        scale=0.0,
        look=0.0,
        epsilon=np.inf,
        delta=0.0,
        epsilon_any=np.inf,
        rule="open",
        noise="none",
    )
