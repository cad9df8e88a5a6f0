"""Patterns of a day, week or year in local time over steps in UTC; the noise of a week.

A plan is made for one week of local time that repeats for ever. A zone runs from week to week: its
steps are those from an instant to the end of the local week, and each has the loss that the plan
has at its local time. Where clocks change a week has fewer or more steps, and blocks of noise are
the runs of steps that lie in one block of the plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, time, timedelta
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Ints
from hushgrid.errors import ModelError, PolicyError
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.mechanism.policy import Blocks, Policy, per_step
from hushgrid.model.consumption import MONTHS
from hushgrid.model.occupancy import Calendar, Chains
from hushgrid.model.zone import Scenario, Tariff
from hushgrid.planning.clamp import MOST_CUT, choose_clamp
from hushgrid.planning.planner import Plan, check_blocks, plan

_HOUR = 3600  # [s]
_DAY = 86_400  # [s]
_WEEK = 7 * _DAY  # [s]
_THURSDAY = 3  # 1 January 1970; Monday is 0
_TURNS = 6  # weeks, as a power of 2, after which occupancy is taken to be settled


class Steps(NamedTuple):
    """Steps in time.

    Attributes:
        begins: Start of the first step [UTC s].
        seconds: Length of a step [s].
        number: Number of steps.
        time_zone: IANA name of the zone of times of day.
    """

    begins: int
    seconds: int
    number: int
    time_zone: str

    @property
    def starts(self) -> Ints:
        """(number,) start of each step [UTC s]."""
        return self.begins + self.seconds * np.arange(self.number, dtype=np.int64)


@lru_cache(maxsize=8)  # the zones of a service have the same steps
def local_seconds(steps: Steps) -> Ints:
    """Local time at the start of every step.

    Args:
        steps: The steps.

    Returns:
        (steps,) seconds since Monday 0:00 of the week, local time; read-only.
    """
    local = (steps.starts + _offsets(steps) + _THURSDAY * _DAY) % _WEEK
    local.flags.writeable = False
    return local


def _offsets(steps: Steps) -> Ints:
    """(steps,) what local time is ahead of UTC at the start of every step [s].

    Asked at the borders of hours, and at every step of an hour in which clocks change.
    """
    starts = steps.starts
    hours, hour_of = np.unique(starts // _HOUR, return_inverse=True)
    first = _asked(hours * _HOUR, steps.time_zone)
    changing = first != _asked((hours + 1) * _HOUR, steps.time_zone)
    offsets = first[hour_of]
    within = changing[hour_of]
    offsets[within] = _asked(starts[within], steps.time_zone)
    return offsets


def _asked(instants: Ints, time_zone: str) -> Ints:
    """What local time is ahead of UTC at instants [UTC s], [s]."""
    zone = ZoneInfo(time_zone)
    clocks = (datetime.fromtimestamp(instant, zone) for instant in instants.tolist())
    ahead = (round((clock.utcoffset() or timedelta()).total_seconds()) for clock in clocks)
    return np.fromiter(ahead, np.int64, len(instants))


def local_months(steps: Steps) -> Ints:
    """Month of the year at the start of every step.

    Args:
        steps: The steps.

    Returns:
        (steps,) months from 1 to 12, local time.
    """
    local = (steps.starts + _offsets(steps)).astype("datetime64[s]")
    return local.astype("datetime64[M]").astype(np.int64) % MONTHS + 1


def local_calendar(
    pattern: Calendar, local: Ints, seconds: int, model_name: str, months: Ints | None = None
) -> Calendar:
    """One slot for each step: the pattern's slot at that local time.

    Args:
        pattern: Slots of one step, of a day, or of a week from Monday; of a day of each month from
            January where `months` are given.
        local: (steps,) local time of each step [s since Monday 0:00].
        seconds: Length of a step [s].
        model_name: Name of the model in messages.
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
            f"{model_name} has a calendar of {length} steps; give one of 1 step, of a day ({day})"
            f" or of a week from Monday ({7 * day})."
        )
    return Calendar(pattern.slots[local // seconds % length])


def scenario_over(pattern: Pattern, steps: Steps) -> Scenario:
    """The pattern in local time over steps.

    Args:
        pattern: The zone before its patterns are laid over time.
        steps: The steps.

    Returns:
        The scenario with one slot for each step.
    """
    local = local_seconds(steps)
    seasonal = pattern.scenario.consumption.seasonal(_DAY // steps.seconds)
    return _laid(pattern.scenario, local, steps.seconds, local_months(steps) if seasonal else None)


def _laid(scenario: Scenario, local: Ints, seconds: int, months: Ints | None) -> Scenario:
    models = tuple(
        replace(
            model,
            calendar=local_calendar(model.calendar, local, seconds, f"model {model.name}"),
        )
        for model in scenario.models
    )
    consumption = scenario.consumption
    calendar = local_calendar(consumption.calendar, local, seconds, "consumption", months)
    return replace(scenario, models=models, consumption=replace(consumption, calendar=calendar))


# ---- the plan of a week


@lru_cache(maxsize=128)
def week_plan(pattern: Pattern, promise: Promise, seconds: int) -> Plan | None:
    """The plan that keeps a promise, over a week of local time that repeats for ever.

    Args:
        pattern: The zone before its patterns are laid over time.
        promise: What is promised.
        seconds: Length of a step [s].

    Returns:
        The plan of a week from Monday 0:00, or of such a week in every month where the laws of
        consumption change with it; None where each release has the epsilon of the terms.

    Raises:
        PlanError: The promise cannot be kept.
    """
    if promise.secret == "step" and promise.rho is None:
        return None
    turn = _WEEK // seconds
    day = _DAY // seconds
    seasons = MONTHS if pattern.scenario.consumption.seasonal(day) else 1
    local = np.tile(seconds * np.arange(turn, dtype=np.int64), seasons)
    months = np.repeat(np.arange(1, seasons + 1), turn) if seasons > 1 else None
    world = _laid(pattern.scenario, local, seconds, months)
    terms = _over(pattern.terms, turn * seasons)
    running = promise.secret == "interval"
    if isinstance(terms.schedule, Blocks) and promise.window is None:
        terms = replace(terms, epsilon=max(terms.schedule.losses))
        if promise.rho is not None:
            parts = (world.models, world.zone, world.consumption)
            clamp = choose_clamp(*parts, terms, promise.rho, MOST_CUT).clamp
            terms = replace(terms, clamp=clamp)
        return check_blocks(
            world.terms,
            terms,
            secret=promise.secret,
            epsilon=promise.epsilon,
            running=running,
            seconds=seconds,
        )
    return plan(
        *world.terms,
        secret=promise.secret,
        epsilon=promise.epsilon,
        terms=terms,
        rho=promise.rho,
        most_cut=MOST_CUT,
        running=running,
        blocks=promise.secret == "interval",
        block=None if promise.block is None else max(promise.block // seconds, 1),
        window=None if promise.window is None else -(-promise.window // seconds) + 1,
        seconds=seconds,
    )


def _over(policy: Policy, steps: int) -> Policy:
    """The policy again and again over so many steps."""
    schedule = policy.schedule
    if schedule.lengths and steps % sum(schedule.lengths):
        raise PolicyError(
            f"policy block_steps add up to {sum(schedule.lengths)} steps, which do not divide a"
            f" week of {steps}; give blocks of a day or a part of it.",
            fields=("block_steps",),
        )
    again = schedule.over(steps) if schedule.lengths else schedule
    return replace(policy, horizon=steps, schedule=again)


def over_week(policy: Policy, local: Ints, seconds: int) -> Policy:
    """The policy of a week of local time over steps of one week.

    Args:
        policy: The policy of a week from Monday 0:00, or of several.
        local: (steps,) local time of each step [s since Monday 0:00].
        seconds: Length of a step [s].

    Returns:
        The policy with the losses of these steps. Steps that follow each other in one block of the
        week are a block.
    """
    slots, schedule = local // seconds % (_WEEK // seconds), policy.schedule
    if schedule.lengths:
        block_of = np.repeat(np.arange(len(schedule.lengths)), schedule.lengths)[slots]
        runs = [(block, len(list(steps))) for block, steps in groupby(block_of.tolist())]
        firsts = np.cumsum((0, *schedule.lengths))
        losses = tuple(schedule.epsilons[firsts[block]] for block, _ in runs)
        return replace(
            policy,
            horizon=len(local),
            schedule=Blocks(tuple(length for _, length in runs), losses),
        )
    epsilons = np.array(schedule.epsilons)[slots].tolist() if schedule.epsilons else ()
    return replace(
        policy, horizon=len(local), schedule=per_step(epsilons) if epsilons else schedule
    )


# ---- weeks of a zone


def week_of(at: int, seconds: int, time_zone: str) -> tuple[int, int]:
    """The local week that an instant is in.

    Args:
        at: The instant [UTC s].
        seconds: Length of a step [s].
        time_zone: IANA name.

    Returns:
        The first border of steps in the week, Monday 0:00 where that is one, and the first in the
        next week [UTC s].
    """
    zone = ZoneInfo(time_zone)
    now = datetime.fromtimestamp(at, zone)
    monday = now.date() - timedelta(days=now.weekday())
    ends = (datetime.combine(day, time(), zone) for day in (monday, monday + timedelta(days=7)))
    first, last = (math.ceil(end.timestamp() / seconds) * seconds for end in ends)
    if at < first:  # a week whose Monday 0:00 lies within a step begins with the next one
        return week_of(at - seconds, seconds, time_zone)
    return first, last


def placed(service: ZoneService, begins: int) -> ZoneService:
    """The zone with the terms of its file from an instant on, over the rest of the local week.

    Args:
        service: The zone.
        begins: Start of its first step [UTC s].

    Returns:
        The zone with its patterns and the noise of its plan over these steps; one that was read
        from no file has as many steps as before, with the same patterns.

    Raises:
        PlanError: The promise cannot be kept.
    """
    service = replace(service, begins=begins, terms_begin=None)
    if service.pattern is None:
        return service
    return with_noise(replace(service, scenario=settled(service.pattern, _steps_of(service))))


def in_week(service: ZoneService, t: int) -> ZoneService:
    """The zone over the week with a step; its terms go on.

    Args:
        service: The zone, over any week.
        t: A step of the zone.

    Returns:
        The zone from the beginning of that week on, or from that of its terms.

    Raises:
        PlanError: The promise cannot be kept.
    """
    since, seconds = service.since, service.seconds
    start = max(t * seconds, since)
    if service.begins <= start < service.ends:
        return service
    if service.pattern is None:
        turn = service.policy.horizon * seconds
        begins = start - (start - since) % turn
    else:
        begins = max(week_of(start, seconds, service.time_zone)[0], since)
    return replace(placed(service, begins), terms_begin=since)


def _steps_of(service: ZoneService) -> Steps:
    """The steps of a zone from its first one to the end of the local week."""
    begins, seconds, zone = service.begins, service.seconds, service.time_zone
    _, end = week_of(begins, seconds, zone)
    return Steps(begins, seconds, max((end - begins) // seconds, 1), zone)


def with_noise(service: ZoneService) -> ZoneService:
    """The zone with the noise of its plan over the steps that it is placed at.

    Args:
        service: The zone, as `placed` returns it; its plan is used where it is to be planned.

    Returns:
        The zone with its policy and the leakage of the plan.

    Raises:
        PlanError: The promise cannot be kept.
    """
    pattern, promise, seconds = service.pattern, service.promise, service.seconds
    if pattern is None:
        return service
    week, leakage, plan = _over(pattern.terms, _WEEK // seconds), None, None
    if service.planned and promise is not None:
        plan = week_plan(service.plan_pattern or pattern, promise, seconds)
    if plan is not None:
        week, leakage = plan.policy, plan.leakage
    week = over_week(week, seconds * np.arange(_WEEK // seconds, dtype=np.int64), seconds)
    policy = over_week(week, local_seconds(_steps_of(service)), seconds)
    return replace(service, policy=policy, week=week, leakage=leakage)


def planned_with(service: ZoneService, tariff: Tariff) -> ZoneService:
    """The zone with the plan that another tariff led to; its own prices the load.

    A plan weighs errors of prices, so that another tariff could lead to other noise. Terms keep the
    plan with which they began.

    Args:
        service: The zone.
        tariff: The tariff that the plan is made with.

    Returns:
        The zone; as given where it was read from no file.

    Raises:
        PlanError: The promise cannot be kept.
    """
    pattern = service.pattern
    if pattern is None:
        return service
    plan_pattern = replace(pattern, scenario=replace(pattern.scenario, tariff=tariff))
    return with_noise(replace(service, plan_pattern=plan_pattern))


def whole_week(service: ZoneService) -> ZoneService:
    """The zone over a whole week, by which its plan is shown.

    Args:
        service: The zone.

    Returns:
        The zone in the first whole local week from its own first step on; as given where it was
        read from no file.
    """
    if service.pattern is None:
        return service
    first, end = week_of(service.begins, service.seconds, service.time_zone)
    return service if first == service.begins else placed(service, end)


def settled(pattern: Pattern, steps: Steps) -> Scenario:
    """The pattern in local time over steps, with the law of occupancy as it is after many weeks.

    Args:
        pattern: The zone before its patterns are laid over time. Its own law is that of the same
            time of the first of these weeks.
        steps: The steps.

    Returns:
        The scenario; its law is rounded, so that terms have the same digest on every machine.
    """
    slot = int(local_seconds(steps)[0]) // steps.seconds
    models = []
    laws_of = _laws(pattern, steps.seconds, slot)
    for model, laws in zip(pattern.scenario.models, laws_of, strict=True):
        pieces = zip(model.chains, laws, strict=True)
        chains = tuple(replace(piece, initial=law) for piece, law in pieces)
        models.append(replace(model, chains=chains))
    return scenario_over(
        replace(pattern, scenario=replace(pattern.scenario, models=tuple(models))), steps
    )


@lru_cache(maxsize=256)
def _laws(pattern: Pattern, seconds: int, slot: int) -> tuple[tuple[Floats, ...], ...]:
    """For each model and piece the settled law at a slot of the week."""
    local = seconds * np.arange(_WEEK // seconds, dtype=np.int64)
    laws = []
    for model in pattern.scenario.models:
        calendar = local_calendar(model.calendar, local, seconds, f"model {model.name}")
        laws.append(tuple(_law(piece, calendar.slots, slot) for piece in model.chains))
    return tuple(laws)


def _law(piece: Chains, slots: NDArray[np.int32], slot: int) -> Floats:
    """(chains, states): the law at a slot of the week, from that of the file many weeks before."""
    turn = np.eye(piece.initial.shape[-1])
    days = np.array_split(np.roll(slots, -slot - 1), 7)
    for n, day in enumerate(days):
        if n == 0 or not np.array_equal(day, days[n - 1]):
            moves = _product(piece.transition[day])
        turn = turn @ moves
    for _ in range(_TURNS):
        turn = turn @ turn
        turn = turn / turn.sum(axis=-1, keepdims=True)
    law = np.einsum("cs,csr->cr", piece.initial, turn)
    near = np.where(law > 0, np.maximum(law.round(9), 1e-9), 0.0)
    return np.asarray(near / near.sum(axis=-1, keepdims=True))


def _product(moves: Floats) -> Floats:
    """(chains, states, states): the product of (steps, chains, states, states) in order."""
    while len(moves) > 1:
        pairs = moves[: len(moves) // 2 * 2]
        moves = np.concatenate([pairs[::2] @ pairs[1::2], moves[len(pairs) :]])
    return np.asarray(moves[0])
