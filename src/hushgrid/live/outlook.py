"""What a zone of a deployment promises and costs, from its models; no reading is asked.

Where the models are private, so are these figures: they are the operator's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.clamp import RHO
from hushgrid.durations import duration_text
from hushgrid.live.deployment import Deployment, Promise, ZoneService
from hushgrid.live.publish import utc
from hushgrid.live.terms import first_state
from hushgrid.planning import examine
from hushgrid.policy import Policy
from hushgrid.report import Outlook, outlook_json, outlook_prose
from hushgrid.report.promise import price_error
from hushgrid.sums import Spent

_DAYS = 7  # that a policy is examined over: they hold a weekend


def outlook(zone: ZoneService) -> Outlook:
    """The zone's policy over its first week."""
    scenario = zone.own or zone.scenario
    promise = zone.promise or Promise("step", zone.policy.epsilon)
    day = min(86_400 // zone.seconds, zone.policy.horizon)
    steps, policy = zone.policy.horizon, _first(zone.policy, _DAYS * 86_400 // zone.seconds)
    if policy.window is not None:
        steps = policy.window.steps
        policy = replace(policy, epsilon=policy.epsilon / steps, window=None)
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
        promise.epsilon,
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


def _first(policy: Policy, steps: int) -> Policy:
    """The policy of the first steps."""
    horizon = min(policy.horizon, steps)
    return replace(policy, horizon=horizon, epsilon_t=policy.epsilon_t[:horizon])


def zone_json(zone: ZoneService, found: Outlook) -> dict[str, Any]:
    """A zone's outlook and terms under their public keys."""
    paid = releases_within(zone)
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
        "budget_releases": paid,
        "releases_affordable": zone.policy.horizon if paid is None else paid,
        "horizon_ends": utc(zone.begins + zone.policy.horizon * zone.seconds),
        "accept_error": zone.accept_error,
        "fallback_rate": zone.fallback_rate,
        "currency": zone.currency,
    }


def releases_within(zone: ZoneService) -> int | None:
    """How many releases of an epoch the budget pays for; None where it pays for all of them.

    Counted as the curator counts, from an epoch into which no house brings spending along: each
    step costs what its calibration books, and one that does not fit is published as the forecast.
    Where the cost depends on what will be published, the most that it can be is counted: with a
    window epsilon for every `steps`, with demand that answers rates the step's epsilon.
    """
    if zone.budget is None:
        return None
    policy, spent = zone.policy, Spent().add(zone.learned.epsilon)
    scheduler = first_state(zone).scheduler
    if policy.window is not None:
        first = range(1, min(policy.horizon, _DAYS * 86_400 // zone.seconds) + 1)
        most = max(scheduler.most(t, policy.epsilon) for t in first)
        within = policy.window.steps * spent.more(most, zone.budget)
        return within if within < policy.horizon else None
    paid = 0
    for t in range(1, policy.horizon + 1):
        cost = scheduler.at(t).epsilon if scheduler.ahead else scheduler.most(t)
        if spent.fits(cost, zone.budget):
            spent, paid = spent.add(cost), paid + 1
    return paid if paid < policy.horizon else None


def _least(zone: ZoneService) -> str:
    """Where what will be published decides how much a release costs."""
    fixed = zone.policy.window is None and first_state(zone).scheduler.ahead
    return "" if fixed else "at least "


def zone_prose(zone: ZoneService, found: Outlook) -> str:
    """A zone's outlook and terms in plain words."""
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
    last = releases_within(zone)
    if zone.budget is None:
        lines.append("No budget is set: every interval of the horizon gets a release.")
    elif last is None:
        lines.append(f"The budget of {zone.budget:g} lasts for the whole horizon.")
    else:
        lines.append(
            f"The budget of {zone.budget:g} lasts for {_least(zone)}{last} of"
            f" {zone.policy.horizon} releases."
        )
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
