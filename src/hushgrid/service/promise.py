"""What a zone of a deployment promises and costs, from its models; no reading is asked.

Where the models are private, so are these figures: they are the operator's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Spent
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.errors import HushgridError, PlanError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.files.toml import duration_text
from hushgrid.mechanism.policy import Policy
from hushgrid.planning.expected_error import RHO
from hushgrid.planning.planner import Secret, ZoneTerms, assumptions, examine
from hushgrid.planning.tradeoff import ETAS, Point, Tradeoff, expected, tradeoff
from hushgrid.report.promise import (
    Outlook,
    outlook_json,
    outlook_prose,
    price_error,
    promise_sentence,
)
from hushgrid.service.curator import utc
from hushgrid.service.epoch import first_state, roster_digest
from hushgrid.service.gaps import CLOSE
from hushgrid.service.ledger.records import EpochRecord, LedgerState
from hushgrid.service.replay import Replay, begun, brought_now

# --------------------------------------------------------------------------------------------------
# What a zone promises its homes: sentences, assumptions and figures. Public.


DAY = 86_400  # [s]


def promise_of(zone: ZoneService) -> Promise:
    """What is promised; without a promise of its own, what the policy's schedule keeps."""
    policy = zone.policy
    own = Promise(policy.schedule.secret, policy.epsilon, policy.schedule.delta)
    return own if zone.promise is None else zone.promise


def sentence(zone: ZoneService) -> str:
    """The promise in plain words, with the adversary it holds for and what it rests on."""
    promise = promise_of(zone)
    return promise_sentence(
        zone.policy,
        promise.secret,
        stated(zone),
        delta=promise.delta,
        continued=zone.memory is not None,
    )


def stated(zone: ZoneService) -> float:
    """The epsilon that is stated in public: the promise's, or a larger leakage accepted for it."""
    promise = promise_of(zone)
    return max(promise.epsilon, (zone.accepts or 0.0) if promise.secret == "interval" else 0.0)


def assumed(zone: ZoneService) -> tuple[str, ...]:
    """Every assumption of the zone's promise, a sentence each."""
    scenario = zone.scenario
    # the losses of a window add up like those of a trajectory, and rest on the same
    secret = promise_of(zone).secret
    counted: Secret = "trajectory" if secret == "window" else secret
    return assumptions(counted, zone.policy, scenario.consumption, len(scenario.models))


def promise_json(zone: ZoneService, mode: str) -> dict[str, Any]:
    """The promise under its public keys; `error` is what to expect of a price, relative."""
    promise, tariff = promise_of(zone), zone.scenario.tariff
    return {
        "zone": zone.id,
        "mode": mode,
        "sentence": sentence(zone),
        "assumptions": list(assumed(zone)),
        "secret": promise.secret,
        "epsilon": stated(zone),
        "delta": promise.delta,
        "eta": zone.policy.eta,
        "horizon": zone.policy.horizon,
        "houses": len(zone.meters),
        "interval_s": zone.seconds,
        "time_zone": zone.time_zone,
        "currency": zone.currency,
        "tariff": {
            "alpha": tariff.alpha,
            "beta": tariff.beta,
            "floor": tariff.floor,
            "cap": tariff.cap if math.isfinite(tariff.cap) else None,
        },
        "error": expected_error(zone),
    }


def expected_error(zone: ZoneService) -> float | None:
    """Root mean square of the published price's relative error over the first day.

    None where models are private, since what they expect tells of the homes they were fitted to,
    or where no noise can be found for the terms.
    """
    if zone.learned.private:
        return None
    policy = first_day(zone)
    try:
        found, _ = expected(_world(zone), policy, promise_of(zone).epsilon, _rho(zone))
    except HushgridError:
        return None
    return found.estimated if policy.publish == "estimate" else found.raw


def first_day(zone: ZoneService) -> Policy:
    """The policy of the first day; a window's at an even share of its budget."""
    return zone.policy.first(DAY // zone.seconds).at_even_share()


def tradeoff_json(zone: ZoneService) -> dict[str, Any]:
    """What other promises would cost, under public keys; PlanError where it may not be told."""
    if zone.learned.private:
        raise PlanError(
            f"the models of zone {zone.id!r} are private, so what they expect is not told."
        )
    promise, found = promise_of(zone), _tradeoff(zone)
    return {
        "zone": zone.id,
        "secret": promise.secret,
        "unit": "relative error",
        "chosen": {"eta": found.eta, **_figures(found.chosen)},
        "curves": [
            {"eta": curve.eta, "points": [_figures(point) for point in curve.points]}
            for curve in found.curves
        ],
        "forecast": found.forecast,
    }


def _tradeoff(zone: ZoneService) -> Tradeoff:
    promise, schedule = promise_of(zone), zone.policy.schedule
    fixed = schedule.adaptive or zone.scenario.consumption.reacts  # these go with eta = 1 alone
    return tradeoff(
        _world(zone),
        first_day(zone),
        secret="step" if promise.secret == "window" else promise.secret,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=_rho(zone),
        share=1 / schedule.shared_by,
        steps=zone.policy.horizon,
        etas=() if fixed else ETAS,
    )


def _figures(point: Point) -> dict[str, float]:
    return point._asdict()


def _world(zone: ZoneService) -> ZoneTerms:
    scenario = zone.scenario
    return scenario.zone, scenario.tariff, scenario.models, scenario.consumption


def _rho(zone: ZoneService) -> float:
    rho = promise_of(zone).rho
    return RHO if rho is None else rho


_DAYS = 7  # that a policy is examined over: they hold a weekend


def outlook(zone: ZoneService) -> Outlook:
    """The zone's policy over its first week."""
    scenario = zone.own or zone.scenario
    promise = zone.promise or Promise("step", zone.policy.epsilon)
    day = min(86_400 // zone.seconds, zone.policy.horizon)
    steps = zone.policy.schedule.covers(zone.policy.horizon)
    policy = zone.policy.first(_DAYS * 86_400 // zone.seconds).at_even_share()
    seen = examine(
        scenario.zone,
        scenario.tariff,
        scenario.models,
        scenario.consumption,
        policy,
        secret="step" if promise.secret == "window" else promise.secret,
        epsilon=promise.epsilon,
        delta=promise.delta,
    )
    leakage = week = None
    if np.isfinite(seen.losses).all():
        leakage = worst_leakage(scenario.models, seen.losses[:day]).total
        week = worst_leakage(scenario.models, seen.losses).total
    rho = RHO if promise.rho is None else promise.rho
    return Outlook(
        seen,
        promise.secret,
        stated(zone),
        promise.delta,
        steps,
        leakage,
        day,
        rho,
        zone.learned.private,
        week,
        zone.leakage,
        zone.memory,
    )


def zone_json(zone: ZoneService, found: Outlook, on: Running | None = None) -> dict[str, Any]:
    """A zone's outlook and terms under their public keys; `on`: the epoch its ledger is in."""
    paid = affordable(zone, on)
    return {
        "zone": zone.id,
        "houses": len(zone.meters),
        **outlook_json(found),
        "eta_set_by": zone.eta_set_by or None,
        "provenance": zone.learned.origin,
        "learned_epsilon": zone.learned.epsilon,
        "begins": zone.begins,
        "interval_s": zone.seconds,
        "grace_s": zone.grace,
        "retention_s": zone.retention,
        "time_zone": zone.time_zone,
        "budget": zone.budget,
        "budget_releases": None if paid.releases == paid.steps else paid.releases,
        "releases_affordable": paid.releases,
        "releases_of": paid.steps,
        "running_epoch": on is not None and not on.new,
        "horizon_ends": utc(zone.begins + zone.policy.horizon * zone.seconds),
        "accept_error": zone.accept_error,
        "fallback_rate": zone.fallback_rate,
        "currency": zone.currency,
    }


class Running(NamedTuple):
    """An epoch as the ledger has it: the zone under its terms, and what is on record.

    `new`: the epoch is not on record yet; `--new-epoch` would begin it.
    """

    zone: ZoneService
    standing: LedgerState
    new: bool = False

    @classmethod
    def beginning(cls, zone: ZoneService, standing: LedgerState) -> Running:
        """The epoch that would begin now, with what houses brought along before it."""
        epoch = EpochRecord(
            first_state(zone).digest,
            zone.begins // zone.seconds,
            zone.policy.horizon,
            zone.seconds,
            roster_digest(zone),
            exact=zone.policy.on_empty == "publish_exact",
        )
        epochs = (*standing.epochs, epoch)
        return cls(zone, replace(standing, epoch=epoch, epochs=epochs), True)


class Affordable(NamedTuple):
    """How many releases from readings the budget pays for.

    Attributes:
        releases: Their number; None where it is not known ahead.
        steps: Steps of the epoch that are left.
        least: Whether there may be more: what will be published decides what a release costs.
        why: Why the number is not known.
    """

    releases: int | None
    steps: int
    least: bool = False
    why: str = ""


def affordable(zone: ZoneService, on: Running | None = None) -> Affordable:
    """How many releases the budget pays for, counted as the curator counts.

    Each step costs what its calibration books, and one that does not fit is published as the
    forecast. Where the cost depends on what will be published, the most that it can be is
    counted: with a window epsilon for every `steps`, with demand that answers rates the step's
    epsilon. Where no such bound is known, no number is given.

    Args:
        zone: The zone of the service file.
        on: The epoch of its ledger. The steps after the last release on record are counted, with
            all that is spent. None: a fresh epoch, into which no house brings spending along.
    """
    spent, first = Spent().add(zone.learned.epsilon), 1
    if on is not None:
        spent, first = Replay(on.zone).follow(on.standing).spent, _next(on.standing)
        zone = on.zone
    policy, planned = zone.policy, zone.policy.schedule
    steps = max(policy.horizon - first + 1, 0)
    if on is not None and on.standing.gap is not None:
        why = "releases may be lost; what they cost is booked by hushgrid resume"
        return Affordable(None, steps, why=why)
    since = on.standing if on is not None and planned.adaptive else None
    if since is not None and (_lost_before(zone, since) or since.booked):
        why = "windows still count what was lost before the epoch or in a gap"
        return Affordable(None, steps, why=why)
    if zone.budget is None:
        return Affordable(steps, steps)
    scheduler = first_state(zone).scheduler
    fixed = not planned.adaptive and (scheduler.ahead or not planned.per_release)
    if not fixed and scheduler.weaker:
        why = "the rules bound less than a release tells, and what is published decides its cost"
        return Affordable(None, steps, why=why)
    if not fixed and planned.epsilons:
        why = "what is published decides what each step costs, and so which steps still fit"
        return Affordable(None, steps, why=why)
    if planned.adaptive:
        within = planned.shared_by * spent.more(policy.epsilon, zone.budget)
        return Affordable(min(within, steps), steps, least=True)
    paid = 0
    for t in range(first, policy.horizon + 1):
        ahead = scheduler.ahead
        cost = scheduler.at(t).epsilon if ahead else policy.epsilon_at(t) * (1 + CLOSE)
        if spent.fits(cost, zone.budget):
            spent, paid = spent.add(cost), paid + 1
    return Affordable(paid, steps, least=not fixed)


def _lost_before(zone: ZoneService, standing: LedgerState) -> bool:
    """Whether windows count releases before the epoch, or what houses brought along."""
    return any(begun(zone, standing).carried) or brought_now(standing) > 0


def _next(standing: LedgerState) -> int:
    """The next step of the present epoch, in its own count; steps of gaps are not published."""
    if standing.epoch is None:
        return 1
    last = max([standing.last_t, *(one.last for one in standing.gaps)])
    return max(standing.epoch.step(last) + 1, 1)


def _paid_from(zone: ZoneService) -> str:
    return "there will be" if zone.budget is None else f"the budget of {zone.budget:g} pays for"


def _lasting(zone: ZoneService, on: Running | None) -> str:
    """How long the budget lasts, in a sentence."""
    paid, least = affordable(zone, on), ""
    which = "" if on is None else " of the new epoch" if on.new else " in the running epoch"
    rest = "whole horizon" if on is None or on.new else "rest of the horizon"
    if zone.budget is None and paid.releases is not None:
        return f"No budget is set: every interval of the {rest}{which} gets a release."
    if paid.releases is None:
        return f"How many releases{which} {_paid_from(zone)} is not known ahead: {paid.why}."
    if paid.releases == paid.steps:
        return f"The budget of {zone.budget:g} lasts for the {rest}{which}."
    least = "at least " if paid.least else ""
    left = "" if on is None or on.new else " that are left"
    return (
        f"The budget of {zone.budget:g} lasts for {least}{paid.releases} of"
        f" {paid.steps} releases{left}{which}."
    )


def zone_prose(zone: ZoneService, found: Outlook, on: Running | None = None) -> str:
    """A zone's outlook and terms in plain words; `on`: the epoch its ledger is in."""
    every = duration_text(zone.seconds)
    lines = [
        f"Zone {zone.id}: {len(zone.meters)} houses, a price every {every}, times of"
        f" {zone.time_zone}.",
        outlook_prose(found),
    ]
    if zone.policy.eta < 1:
        lines.append(f"Eta set by: {zone.eta_set_by or 'nobody'}.".replace("..", "."))
    lines.append(
        f"A price comes {duration_text(zone.grace)} after its interval; readings are kept for"
        f" {duration_text(zone.retention)}, then deleted."
    )
    lines.append(_lasting(zone, on))
    if zone.learned.epsilon:
        lines.append(
            f"The models have cost every house {zone.learned.epsilon:g} of the budget already."
        )
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    if zone.learned.private:
        lines.append(
            "The models are private: no forecast is published. Budget spent, or no meter reported:"
            f" {constant}, marked; a missing reading counts as 0 Wh."
        )
        return "\n".join(lines)
    lines.append(
        "Budget spent, or no meter reported: the public forecast, which uses no reading, is"
        " published."
        f" No usable model: {constant}. Both are marked."
    )
    return "\n".join(lines)


def too_wrong(zone: ZoneService, found: Outlook) -> str | None:
    """Why a price is too far from the exact one to be worth publishing, if it is."""
    error = price_error(found)
    if error <= zone.accept_error:
        return None
    return (
        f"zone {zone.id}: the expected error of the price is {error:.1%}, above the"
        f" {zone.accept_error:.1%} of service.accept_error; see what hushgrid plan advises, or set"
        " accept_error to what you accept."
    )


def deployment_prose(
    deployment: Deployment, zones: list[str], problems: list[str], remarks: list[str]
) -> str:
    """The whole of it."""
    noise = (
        "noise is drawn from a secure source"
        if deployment.mode == "production"
        else "noise is simulated and protects nobody; every release is marked"
    )
    said = [*(f"Warning: {one}" for one in remarks), *(f"Problem: {one}" for one in problems)]
    return "\n\n".join([f"Mode {deployment.mode}: {noise}.", *zones, *said])
