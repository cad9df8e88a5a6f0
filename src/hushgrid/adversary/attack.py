"""Attacks on recorded days: beliefs of the adversary (paper II-C), and their scores.

An attack's success bounds leakage from below; the promise bounds it from above. A `Recording` has
the releases of a day and, apart from them, the truth: of a simulation, or of real days whose
residents noted when they were at home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from hushgrid._numbers import Floats, Int32s, UInt8s
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Adversary, look_back, watch
from hushgrid.adversary.knowledge import Knowledge, KnownOccupancy, KnownReadings
from hushgrid.belief.filter import chances_at_home
from hushgrid.errors import PolicyError
from hushgrid.mechanism.release import Release
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Scenario, optimal_rate, tally
from hushgrid.statistics import Scores, scores

Knows = Literal["none", "others", "occupancy"]

SMALL = 14  # houses, for which the joint filter is used


@dataclass(frozen=True, slots=True, eq=False)
class Attack:
    """Result of one adversary on one day, or on several: then a column is a day of a house.

    Attributes:
        knows: What the adversary knows besides the releases.
        filter: Name of its filter.
        houses: The houses attacked, one for each column.
        home: (T, houses): Pr[at home] given the releases.
        prior: (T, houses): Pr[at home] without them.
        occupancy: (T, houses): the truth.
        scores: Of `home` and `prior` against the truth.
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
        """The largest change of the log odds from the prior, over all steps and houses."""
        sure = (self.prior <= 0) | (self.prior >= 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.abs(_log_odds(self.home) - _log_odds(self.prior))
        return float(np.max(np.where(sure, 0.0, shift)))


def attack(
    scenario: Scenario,
    releases: Sequence[Release],
    truth: Truth,
    *,
    clamp: Clamp = (),
    knows: Knows = "none",
    target: int | None = None,
    labelled: Sequence[int] | None = None,
    models: Sequence[OccupancyModel] | None = None,
    hindsight: bool = False,
    seed: int = 1,
) -> Attack:
    """Run an adversary over the releases of a day (paper II-C) and score it.

    Args:
        scenario: The zone and its models.
        releases: Of one day, in order.
        truth: Occupancy and readings of the day.
        clamp: Clamps of the releases' policy by class [Wh].
        knows: Nothing besides the releases, all other readings, or all other houses' occupancy.
        target: The house attacked; all by default.
        labelled: Houses whose occupancy is known; all by default. No other is attacked.
        models: The adversary's models, by default the zone's.
        hindsight: Whether each step is judged after the whole day (smoothing).
        seed: Seed of the confidence intervals.

    Returns:
        Beliefs and scores.

    Raises:
        PolicyError: If `knows` or `target` is out of range.
    """
    if knows not in get_args(Knows):
        raise PolicyError(f"knows is {knows!r}; give one of {', '.join(get_args(Knows))}.")
    n = scenario.zone.n_houses
    if target is not None and not 0 <= target < n:
        raise PolicyError(f"target is {target}; give a house from 0 to {n - 1}.")
    labelled_homes = tuple(range(n)) if labelled is None else tuple(labelled)
    if target not in (None, *labelled_homes):
        raise PolicyError(f"target is {target}, which has no labels; give one that has.")
    if knows == "occupancy" and len(labelled_homes) < n:
        raise PolicyError(
            f"knows is 'occupancy' but {len(labelled_homes)} of {n} houses have labels; give none"
            " or others."
        )
    evidence: KnownReadings | KnownOccupancy | None = None
    if knows == "others":
        evidence = KnownReadings(truth.readings)
    elif knows == "occupancy":
        evidence = KnownOccupancy(truth.occupancy)
    theta = tuple(models or scenario.models)
    knowledge = Knowledge(scenario.zone, theta, scenario.consumption, clamp, bystanders=evidence)
    adversary: Adversary = Factored(knowledge) if knows != "none" or n > SMALL else Exact(knowledge)
    beliefs = (look_back if hindsight else watch)(adversary, releases)
    houses = labelled_homes if target is None else (target,)
    home = np.clip(np.asarray(beliefs.averaged)[:, houses], 0.0, 1.0)
    prior = prior_of(theta, len(home))[:, houses]
    occupancy = truth.occupancy[: len(home), houses]
    name = type(adversary).__name__.lower()
    attack_scores = scores(home, occupancy, prior, seed=seed)
    return Attack(knows, name, houses, home, prior, occupancy, attack_scores)


def merge_attacks(attacks: Sequence[Attack], *, seed: int = 1) -> Attack:
    """Attacks on several days as one, scored together.

    Args:
        attacks: One for each day, of one adversary.
        seed: Seed of the confidence intervals.

    Returns:
        The attack, with a column for each day of a house.
    """
    if len(attacks) == 1:
        return attacks[0]
    home, prior, occupancy = (
        np.concatenate([getattr(day_attack, name) for day_attack in attacks], axis=1)
        for name in ("home", "prior", "occupancy")
    )
    houses = tuple(house for day_attack in attacks for house in day_attack.houses)
    attack_scores = scores(home, occupancy, prior, seed=seed)
    first = attacks[0]
    return Attack(first.knows, first.filter, houses, home, prior, occupancy, attack_scores)


def prior_of(models: Sequence[OccupancyModel], steps: int) -> Floats:
    """Public probabilities of being at home, with equal weights of the models.

    Args:
        models: Occupancy models.
        steps: Number of steps T.

    Returns:
        (T, N): probabilities.
    """
    chances = [chances_at_home(model, steps) for model in models]
    return np.asarray(np.clip(np.mean(chances, axis=0), 0.0, 1.0))


def _log_odds(p: Floats) -> Floats:
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth:
    """What the public never sees.

    Attributes:
        occupancy: (T, N): 0 or 1.
        readings: (T, N): readings [Wh].

    Raises:
        PolicyError: If the shapes differ.
    """

    occupancy: UInt8s
    readings: Int32s

    def __post_init__(self) -> None:
        if self.occupancy.ndim != 2 or self.occupancy.shape != self.readings.shape:
            raise PolicyError(
                f"truth has occupancy of shape {self.occupancy.shape} and readings of shape"
                f" {self.readings.shape}; give both for every step and house."
            )
        for array in (self.occupancy, self.readings):
            array.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A simulated day of one zone.

    Attributes:
        zone: Id of the zone.
        digest: Digest of the terms, as in every release.
        releases: In order of their steps.
        truth: Occupancy and readings, or None.
        config: Text of the zone file the day was simulated from; "" if there was none.
        day: Number of the day, from 0.
        offset: Steps of the calendars before the first release.
        seed: Seed of the simulation.
    """

    zone: str
    digest: str
    releases: tuple[Release, ...]
    truth: Truth | None = None
    config: str = ""
    day: int = 0
    offset: int = 0
    seed: int = 0

    @property
    def public(self) -> Recording:
        """The same without truth and seed: what an attacker may have."""
        return Recording(
            self.zone, self.digest, self.releases, None, self.config, self.day, self.offset
        )


def without_noise(release: Release, readings: Int32s, scenario: Scenario) -> Release:
    """The release of the same step without noise: the load itself, and the optimal rate.

    Args:
        release: The release.
        readings: (N,): readings of its step [Wh].
        scenario: The zone and its tariff.

    Returns:
        The release without noise.
    """
    load = tally(readings, scenario.zone.bound).load
    return replace(
        release,
        load_hat=load,
        put_back=0.0,
        estimate=None,
        rate=optimal_rate(load, scenario.tariff),
        scale=0.0,
        epsilon=np.inf,
        epsilon_any=np.inf,
        rule="open",
        noise="none",
        block=None,
    )
