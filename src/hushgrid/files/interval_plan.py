"""Patterns of a day, week or year in local time over steps in UTC; the plan of an interval promise.

An interval promise is about all releases, those of neighbouring epochs included. Its plan covers a
run of steps in local time: the epoch as the first of its kind and what follows it, then
what precedes it, the epoch again, and what follows. Before and after are as long as leakage is
remembered. Where epochs renew themselves, the run has the clock changes of a year too, and the
changes of month at which laws change, so that one epsilon a step holds for every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.accounting.epochs import FORGOTTEN, PERIODS, anywhere, kept_by_silence
from hushgrid.belief.filter import marginals
from hushgrid.errors import ModelError
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.mechanism.policy import Blocks, Policy
from hushgrid.model.consumption import MONTHS
from hushgrid.model.occupancy import Calendar
from hushgrid.model.zone import Scenario
from hushgrid.planning.expected_error import MOST_CUT, choose_clamp
from hushgrid.planning.planner import Plan, check_blocks, equal_blocks, plan

# ---- patterns of a day or week in local time

_DAY = 86_400  # [s]
_THURSDAY = 3  # 1 January 1970; Monday is 0


def local_seconds(begins: int, seconds: int, horizon: int, time_zone: str) -> Ints:
    """Local time at the start of every step.

    Args:
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name.

    Returns:
        (horizon,) seconds since Monday 0:00 of the week, local time.
    """
    return _local(begins + seconds * np.arange(horizon, dtype=np.int64), time_zone)


def local_months(begins: int, seconds: int, horizon: int, time_zone: str) -> Ints:
    """Month of the year at the start of every step.

    Args:
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name.

    Returns:
        (horizon,) months from 1 to 12, local time.
    """
    return _months(begins + seconds * np.arange(horizon, dtype=np.int64), time_zone)


def _months(starts: Ints, time_zone: str) -> Ints:
    zone = ZoneInfo(time_zone)
    clocks = (datetime.fromtimestamp(start, zone) for start in starts.tolist())
    return np.array([clock.month for clock in clocks], np.int64)


def _local(starts: Ints, time_zone: str) -> Ints:
    zone = ZoneInfo(time_zone)
    clocks = (datetime.fromtimestamp(start, zone).replace(tzinfo=UTC) for start in starts.tolist())
    local = np.array([round(clock.timestamp()) for clock in clocks], np.int64)
    return (local + _THURSDAY * _DAY) % (7 * _DAY)


def local_calendar(
    pattern: Calendar, local: Ints, seconds: int, what: str, months: Ints | None = None
) -> Calendar:
    """One slot for each step: the pattern's slot at that local time.

    Args:
        pattern: Slots of one step, of a day, or of a week from Monday; of a day of each month from
            January where `months` are given.
        local: (steps,) local time of each step [s since Monday 0:00].
        seconds: Length of a step [s].
        what: Name of the model in messages.
        months: (steps,) local month of each step, from 1 to 12.

    Returns:
        (steps,) slots.

    Raises:
        ModelError: If the pattern has another length.
    """
    length, day = len(pattern.slots), _DAY // seconds
    if months is not None and length == MONTHS * day:
        return Calendar(pattern.slots[(months - 1) * day + local // seconds % day])
    if length not in (1, day, 7 * day):
        raise ModelError(
            f"{what} has a calendar of {length} steps; give one of 1 step, of a day ({day}) or of"
            f" a week from Monday ({7 * day})."
        )
    return Calendar(pattern.slots[local // seconds % length])


# ---- plan of an interval promise

_SETTLED = 1e-5  # relative: the noise no longer changes with the steps around an epoch


class EpochTimes(NamedTuple):
    """When the steps of an epoch are.

    Attributes:
        begins: Start of the first step [UTC epoch s].
        seconds: Length of a step [s].
        horizon: Number of steps.
        time_zone: IANA name of the zone of times of day.
    """

    begins: int
    seconds: int
    horizon: int
    time_zone: str


class Planned(NamedTuple):
    """A policy with what its plan counts; see `ZoneService`.

    Attributes:
        policy: The policy.
        leakage: Leakage about one interval of one house; None where it is not planned for.
        memory: Steps without releases after which nothing of a leakage is left; None where it
            stays.
        reach: Steps before the epoch and after it that were counted with it.
    """

    policy: Policy
    leakage: float | None = None
    memory: int | None = None
    reach: int | None = None


@lru_cache(maxsize=128)
def interval_plan(pattern: Pattern, promise: Promise, place: EpochTimes) -> Planned:
    """The policy that keeps an interval promise, among epochs like it before and after.

    Args:
        pattern: the zone before it is laid over time.
        promise: what is promised about the secret `interval`.
        place: the epoch's steps.

    Returns:
        The plan. Where leakage does not fade in silence its memory is None and the epoch is on its
        own. With releases it can fade more slowly: then more steps around the epoch are counted,
        until the noise no longer changes or up to 32 days; beyond that they are repeated.

    Raises:
        PlanError: the promise allows so little noise that leakage does not fade under it.
    """
    memory = memory_of(pattern, place)
    day = _DAY // place.seconds
    longer = [] if memory is None else [n * day for n in PERIODS if n * day > memory]
    epsilon = 0.0
    for reach in (memory, *longer):
        world, running = _run(pattern, place, reach, renew=promise.renew)
        calendars = [world.consumption.calendar, *(model.calendar for model in world.models)]
        slots = tuple(calendar.slots.tobytes() for calendar in calendars)
        found = _plan_over(_Steps(world, pattern, slots), promise, place.horizon, running)
        before, epsilon = epsilon, found.policy.epsilon
        if found.running == running or abs(epsilon - before) <= _SETTLED * epsilon:
            break
    return Planned(found.policy, found.leakage, memory, reach)


@dataclass(frozen=True, slots=True)
class _Steps:
    """A pattern laid over steps; equal where the same part of it is at every step."""

    world: Scenario = field(compare=False)
    pattern: Pattern
    slots: tuple[bytes, ...]


@lru_cache(maxsize=128)
def _plan_over(steps: _Steps, promise: Promise, horizon: int, running: int | None) -> Plan:
    """The plan for such steps; epochs at the same times of like days have the same one."""
    terms = steps.pattern.terms
    again = terms.schedule.over(horizon) if terms.schedule.lengths else terms.schedule
    terms = replace(terms, horizon=horizon, schedule=again)
    return plan_of(steps.world, promise, terms, most_cut=MOST_CUT, running=running)


def plan_of(world: Scenario, promise: Promise, terms: Policy, **more: Any) -> Plan:
    """The plan that keeps a promise.

    Args:
        world: The zone over the steps of its horizon.
        promise: What is promised.
        terms: Policy before planning. Its blocks of steps stay as they are, if there are any.
        more: As in `hushgrid.plan`.

    Returns:
        The plan.

    Raises:
        PlanError: If the promise cannot be kept with these terms.
    """
    if isinstance(terms.schedule, Blocks):
        policy = replace(terms, epsilon=max(terms.schedule.losses))
        if promise.rho is not None:
            known = (world.models, world.zone, world.consumption)
            most = more.get("most_cut", MOST_CUT)
            policy = replace(policy, clamp=choose_clamp(*known, policy, promise.rho, most).clamp)
        return check_blocks(
            world.terms,
            policy,
            secret=promise.secret,
            epsilon=promise.epsilon,
            running=more.get("running"),
        )
    return plan(
        *world.terms,
        secret=promise.secret,
        epsilon=promise.epsilon,
        terms=terms,
        rho=promise.rho,
        **more,
    )


@lru_cache(maxsize=128)
def window_policy(pattern: Pattern, promise: Promise, place: EpochTimes) -> Policy:
    """The policy that keeps a promise about everything in any window.

    Args:
        pattern: The zone before it is laid over time; its models play no part in the noise.
        promise: What is promised about the secret `window`.
        place: The epoch's steps.

    Returns:
        The policy: equal blocks of steps, of the file's own length or of the planned one.
    """
    if promise.window is None:
        raise ModelError("the promise is about no window; give policy.window.")
    terms = replace(pattern.terms, horizon=place.horizon, epsilon=promise.epsilon)
    if promise.block is not None:
        length = min(max(promise.block // place.seconds, 1), place.horizon)
        terms = replace(terms, schedule=equal_blocks(place.horizon, length, promise.epsilon))
    found = plan(
        *pattern.scenario.terms,
        secret="window",
        epsilon=promise.epsilon,
        terms=terms,
        rho=promise.rho,
        most_cut=MOST_CUT,
        window=-(-promise.window // place.seconds) + 1,
    )
    return found.policy


def interval_run(service: ZoneService) -> tuple[Scenario, int | None] | None:
    """The steps that an interval promise of a zone is planned over, as in `interval_plan`.

    Args:
        service: The zone.

    Returns:
        The scenario over those steps and how many of them count, or None where the zone's file is
        not known.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None:
        return None
    place = EpochTimes(service.begins, service.seconds, service.policy.horizon, service.time_zone)
    if promise is not None and promise.secret == "interval":
        reach = interval_plan(pattern, promise, place).reach
        return _run(pattern, place, reach, renew=promise.renew)
    return _run(pattern, place, memory_of(pattern, place))


def _run(
    pattern: Pattern, place: EpochTimes, memory: int | None, *, renew: bool = False
) -> tuple[Scenario, int | None]:
    if memory is None:
        return laid(pattern, place), None
    steps = _over_a_year(pattern, place, memory) if renew else _among_others(place, memory)
    return _laid(pattern.scenario, place, steps), len(steps)


def laid(pattern: Pattern, place: EpochTimes) -> Scenario:
    """The pattern in local time over the steps of an epoch.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.

    Returns:
        The scenario with one slot for each step.
    """
    return _laid(pattern.scenario, place, np.arange(place.horizon, dtype=np.int64))


def _laid(scenario: Scenario, place: EpochTimes, steps: Ints) -> Scenario:
    """One slot for each of the steps, which are counted from the start of the epoch."""
    starts = place.begins + place.seconds * steps
    local = _local(starts, place.time_zone)

    def slots(pattern: Calendar, what: str, months: Ints | None = None) -> Calendar:
        return local_calendar(pattern, local, place.seconds, what, months)

    models = (
        replace(one, calendar=slots(one.calendar, f"model {one.name}")) for one in scenario.models
    )
    consumption = scenario.consumption
    seasonal = consumption.seasonal(_DAY // place.seconds)
    months = _months(starts, place.time_zone) if seasonal else None
    calendar = slots(consumption.calendar, "consumption", months)
    consumption = replace(consumption, calendar=calendar)
    return replace(scenario, models=tuple(models), consumption=consumption)


def memory_of(pattern: Pattern, place: EpochTimes) -> int | None:
    """Steps without releases, before the epoch and after it, that leave nothing of any leakage.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.

    Returns:
        The number of steps; None where leakage does not fade.
    """
    day = _DAY // place.seconds
    end = place.begins + (place.horizon - 1) * place.seconds
    for days in PERIODS:
        steps = days * day
        before = place.begins - steps * place.seconds
        if max(kept(pattern, place, at, steps) for at in (before, end)) <= FORGOTTEN:
            return steps
    return None


def kept(pattern: Pattern, place: EpochTimes, start: int, steps: int) -> float:
    """The share of a leakage about one step that is left after steps without releases.

    The chain begins a day earlier with every state possible, so that what is possible does not
    depend on where it begins.

    Args:
        pattern: The zone before its patterns are laid over time.
        place: The epoch's steps.
        start: Start of the step [UTC epoch s].
        steps: Number of steps without releases.

    Returns:
        A share from 0 to 1.
    """
    day = _DAY // place.seconds
    world = laid(
        pattern, place._replace(begins=start - day * place.seconds, horizon=day + steps + 1)
    )
    return kept_by_silence(world.models, day + 1, day + 1 + steps, starts=False)


def _among_others(place: EpochTimes, memory: int) -> Ints:
    """The epoch and what follows it, then all that may precede, come and follow, in local time.

    The second part begins at the time of the day at which the first one ends.
    """
    day = _DAY // place.seconds
    after = memory + -(place.horizon + 2 * memory) % day
    steps = [np.arange(place.horizon + after), np.arange(-memory, place.horizon + after)]
    return np.concatenate(steps).astype(np.int64)


def _over_a_year(pattern: Pattern, place: EpochTimes, memory: int) -> Ints:
    """As `_among_others`, then days before and after every change of the clock and of the laws.

    A week around every change of the clock in a year, and what `_law_changes` has. Each part begins
    where the one before it ends in the horizon, so that a schedule repeats over all of them as it
    does in epochs that follow each other.
    """
    day, horizon = _DAY // place.seconds, place.horizon
    zone, week = ZoneInfo(place.time_zone), 7 * day
    at = [datetime.fromtimestamp(place.begins + n * _DAY, zone).utcoffset() for n in range(367)]
    changes = [n * day for n in range(1, len(at)) if at[n] != at[n - 1]]
    spans = [(0, horizon), (0, max(horizon, week)), *((n - week, n + week) for n in changes)]
    spans += _law_changes(pattern, place, memory)
    parts, done = list[Ints](), 0
    for k, (first, last) in enumerate(spans):
        begin = first - (memory if k else 0)
        begin -= (begin - done) % horizon
        end = last + memory
        if k == len(spans) - 1:
            end += (begin - end - done) % horizon
        parts.append(np.arange(begin, end, dtype=np.int64))
        done += end - begin
    return np.concatenate(parts)


_YEARS = 12  # in which the first of any month is each day of the week


def _law_changes(pattern: Pattern, place: EpochTimes, memory: int) -> list[tuple[int, int]]:
    """Steps before and after every change of month at which the laws change.

    A week on either side of each such change, so that the run has every day of the week under the
    laws of every month. In other years the change is on other days of the week and at another
    distance from a change of the clock: each of them has as much on either side as is remembered.
    """
    day, zone = _DAY // place.seconds, ZoneInfo(place.time_zone)
    if not pattern.scenario.consumption.seasonal(day):
        return []
    slots = pattern.scenario.consumption.calendar.slots.reshape(MONTHS, day)
    firsts = {m + 1 for m in range(MONTHS) if (slots[m] != slots[m - 1]).any()}
    weekly = any(len(one.calendar.slots) == 7 * day for one in pattern.scenario.models)
    clocks = [
        datetime.fromtimestamp(place.begins + n * _DAY, zone) for n in range(_YEARS * 366 + 16)
    ]
    found, known = list[tuple[int, int]](), set[tuple[Any, ...]]()
    for n in range(8, len(clocks) - 8):
        month = clocks[n].month
        if month == clocks[n - 1].month or month not in firsts:
            continue
        offsets = [clock.utcoffset() for clock in clocks[n - 8 : n + 9]]
        moved = tuple(a != b for a, b in pairwise(offsets))
        key = (month, clocks[n].weekday() if weekly else 0, moved)
        if key not in known:
            new = all(month != one[0] for one in known)
            reach = 7 * day if new else min(memory, 7 * day)
            found.append((n * day - reach, n * day + reach))
            known.add(key)
    return found


@lru_cache(maxsize=128)
def _goes_on(pattern: Pattern, place: EpochTimes, memory: int) -> Pattern:
    """The pattern with the law of occupancy at the start of an epoch that others precede as Pi.

    Whatever the law was `memory` steps before: nothing of that is left. Rounded, so that terms have
    the same digest on every machine.
    """
    before = place._replace(begins=place.begins - memory * place.seconds, horizon=memory + 1)
    models = []
    for own, model in zip(
        pattern.scenario.models, anywhere(laid(pattern, before).models), strict=True
    ):
        laws = next(islice(marginals(model), memory, None)).laws
        near = [np.where(law > 0, np.maximum(law.round(9), 1e-9), 0.0) for law in laws]
        pieces = zip(own.chains, near, strict=True)
        chains = (replace(p, initial=law / law.sum(axis=-1, keepdims=True)) for p, law in pieces)
        models.append(replace(own, chains=tuple(chains)))
    return replace(pattern, scenario=replace(pattern.scenario, models=tuple(models)))


def placed(service: ZoneService, begins: int) -> ZoneService:
    """The zone with the terms of its file, from another time on.

    Args:
        service: The zone.
        begins: Start of its first step [UTC epoch s].

    Returns:
        The zone with its patterns over the steps from then on, planned again.
    """
    later = in_epoch(service, begins)
    if later is not None or service.pattern is None:
        return later or replace(service, begins=begins)
    place = EpochTimes(begins, service.seconds, service.policy.horizon, service.time_zone)
    local, promise, policy = laid(service.pattern, place), service.promise, service.policy
    if promise is not None and promise.rho is not None:
        policy = plan_of(local, promise, service.pattern.terms).policy
    return replace(service, scenario=local, policy=policy, begins=begins)


def in_epoch(
    service: ZoneService,
    begins: int,
    horizon: int | None = None,
    *,
    renewed: bool = False,
) -> ZoneService | None:
    """The zone with the same terms for another epoch.

    Args:
        service: A zone with a promise about intervals or windows.
        begins: Start of the other epoch [UTC epoch s].
        horizon: Its steps; by default as many as now.
        renewed: The epoch goes on where others end: with the law of occupancy there, and not with
            that of the file, so that no house is certain which was not.

    Returns:
        The zone; None where its file is not known or it has another promise.
    """
    pattern, promise = service.pattern, service.promise
    if pattern is None or promise is None or promise.secret == "step":
        return None
    steps = service.policy.horizon if horizon is None else horizon
    place = EpochTimes(begins, service.seconds, steps, service.time_zone)
    if promise.window is not None:
        policy = window_policy(pattern, promise, place)
        return replace(service, scenario=laid(pattern, place), policy=policy, begins=begins)
    policy, leakage, memory, _ = interval_plan(pattern, promise, place)
    if renewed and memory is not None:
        pattern = _goes_on(pattern, place, memory)
        if not policy.schedule.lengths:  # first steps of their own are for houses that are certain
            policy = replace(policy, schedule=policy.schedule.with_epsilons(()))
    return replace(
        service,
        scenario=laid(pattern, place),
        policy=policy,
        begins=begins,
        leakage=leakage,
        memory=memory,
    )
