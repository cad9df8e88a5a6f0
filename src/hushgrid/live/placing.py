"""An interval promise laid over time: planned with the epochs before and after it.

The promise of an epoch is about all releases, those of neighbouring epochs included. So the plan
looks at a run of steps in local time: the epoch as the first of its kind and what follows it, then
what precedes it, the epoch again, and what follows. Before and after are as long as leakage is
remembered.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hushgrid.accounting.epochs import FORGOTTEN, PERIODS, kept_by_silence
from hushgrid.clamp import MOST_CUT
from hushgrid.live.deployment import Pattern, Promise, ZoneService
from hushgrid.live.local import localised, localised_at
from hushgrid.planning import plan
from hushgrid.policy import Policy
from hushgrid.simulation import Scenario

_DAY = 86_400  # [s]


class EpochTimes(NamedTuple):
    """When an epoch's steps are: `begins` [UTC epoch s], their length [s], their number, where."""

    begins: int
    seconds: int
    horizon: int
    time_zone: str


class Planned(NamedTuple):
    """The policy, the leakage that was counted, and the memory; see `ZoneService`."""

    policy: Policy
    leakage: float | None
    memory: int | None


@lru_cache(maxsize=128)
def interval_plan(
    pattern: Pattern, promise: Promise, place: EpochTimes, *, alone: bool = False
) -> Planned:
    """The policy that keeps an interval promise, among epochs like it before and after.

    Args:
        pattern: the zone before it is laid over time.
        promise: what is promised about the secret `interval`.
        place: the epoch's steps.
        alone: plan as versions did that counted no other epoch: the epoch on its own, its clamp
            without a bound on what it cuts.

    Returns:
        The plan. Where leakage does not fade its memory is None and the epoch is on its own.
    """
    terms = replace(pattern.terms, horizon=place.horizon)
    memory = None if alone else memory_of(pattern, place)
    world, running = _run(pattern, place, memory)
    found = plan(
        world.zone,
        world.tariff,
        world.models,
        world.consumption,
        secret="interval",
        epsilon=promise.epsilon,
        terms=terms,
        rho=promise.rho,
        most_cut=None if alone else MOST_CUT,
        running=running,
    )
    return Planned(found.policy, found.leakage, memory)


def interval_run(service: ZoneService) -> tuple[Scenario, int | None] | None:
    """The steps that an interval promise of a zone is planned over, and how many count.

    As for `interval_plan`; None where the zone's file is not known.
    """
    if service.pattern is None:
        return None
    place = EpochTimes(service.begins, service.seconds, service.policy.horizon, service.time_zone)
    return _run(service.pattern, place, memory_of(service.pattern, place))


def _run(pattern: Pattern, place: EpochTimes, memory: int | None) -> tuple[Scenario, int | None]:
    if memory is None:
        return laid(pattern, place), None
    world = _among_others(pattern, place, memory)
    return world, len(world.models[0].calendar.slots)


def laid(pattern: Pattern, place: EpochTimes) -> Scenario:
    """The pattern in local time over the epoch's steps."""
    return localised(pattern.scenario, **place._asdict())


def memory_of(pattern: Pattern, place: EpochTimes) -> int | None:
    """Steps of silence, before the epoch and after it, that leave nothing of any leakage."""
    day = _DAY // place.seconds
    end = place.begins + (place.horizon - 1) * place.seconds
    for days in PERIODS:
        steps = days * day
        before = place.begins - steps * place.seconds
        if max(kept(pattern, place, at, steps) for at in (before, end)) <= FORGOTTEN:
            return steps
    return None


def kept(pattern: Pattern, place: EpochTimes, start: int, steps: int) -> float:
    """The share of a leakage about the step at `start` [s] that so many silent steps leave.

    The chain begins a day earlier with every state possible, so that what is possible does not
    depend on where it begins.
    """
    day = _DAY // place.seconds
    world = laid(
        pattern, place._replace(begins=start - day * place.seconds, horizon=day + steps + 1)
    )
    return kept_by_silence(world.models, day + 1, day + 1 + steps, starts=False)


def _among_others(pattern: Pattern, place: EpochTimes, memory: int) -> Scenario:
    """The epoch and what follows it, then all that may precede, come and follow, in local time.

    The second part begins at the time of the day at which the first one ends.
    """
    day = _DAY // place.seconds
    after = memory + -(place.horizon + 2 * memory) % day
    steps = [np.arange(place.horizon + after), np.arange(-memory, place.horizon + after)]
    starts = place.begins + place.seconds * np.concatenate(steps).astype(np.int64)
    return localised_at(pattern.scenario, starts, seconds=place.seconds, time_zone=place.time_zone)


def in_epoch(
    service: ZoneService, begins: int, horizon: int | None = None, *, alone: bool = False
) -> ZoneService | None:
    """The zone with the same terms for another epoch; None where its file is not known.

    Args:
        service: a zone with an interval promise.
        begins: when the other epoch begins [UTC epoch s].
        horizon: its steps; by default as many as now.
        alone: as for `interval_plan`.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or promise.secret != "interval":
        return None
    steps = service.policy.horizon if horizon is None else horizon
    place = EpochTimes(begins, service.seconds, steps, service.time_zone)
    policy, leakage, memory = interval_plan(pattern, promise, place, alone=alone)
    return replace(
        service,
        scenario=laid(pattern, place),
        policy=policy,
        begins=begins,
        leakage=leakage,
        memory=memory,
    )


def planned_otherwise(service: ZoneService) -> bool:
    """Whether versions before this one could have planned other terms from the same file."""
    promise = service.promise
    return (
        service.pattern is not None
        and promise is not None
        and service.policy.schedule.per_release
        and (promise.secret == "interval" or promise.rho is not None)
    )


def as_before(service: ZoneService) -> ZoneService | None:
    """The zone as versions before this one planned it; None where they planned as it is now."""
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or not planned_otherwise(service):
        return None
    if promise.secret == "interval":
        return in_epoch(service, service.begins, alone=True)
    if promise.secret == "window":
        return None
    world = service.scenario
    policy = plan(
        world.zone,
        world.tariff,
        world.models,
        world.consumption,
        secret=promise.secret,
        epsilon=promise.epsilon,
        delta=promise.delta,
        terms=pattern.terms,
        rho=promise.rho,
        most_cut=None,
    ).policy
    return replace(service, policy=policy)
