"""What a zone of a deployment promises and costs, from its models; no reading is asked.

Where the models are private, so are these figures: they are the operator's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.clamp import RHO
from hushgrid.live.deployment import Deployment, Promise, ZoneService
from hushgrid.live.durations import duration_text
from hushgrid.planning import examine
from hushgrid.policy import Policy
from hushgrid.report import Outlook, outlook_json, outlook_prose

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
    leakage = None
    if policy.gaussian is None:
        leakage = worst_leakage(scenario.models, seen.losses[:day]).total
    rho = RHO if promise.rho is None else promise.rho
    return Outlook(seen, promise.secret, promise.epsilon, promise.delta, steps, leakage, day, rho)


def _first(policy: Policy, steps: int) -> Policy:
    """The policy of the first steps."""
    horizon = min(policy.horizon, steps)
    return replace(policy, horizon=horizon, epsilon_t=policy.epsilon_t[:horizon])


def zone_json(zone: ZoneService, found: Outlook) -> dict[str, Any]:
    """A zone's outlook and terms under their public keys."""
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
        "budget_releases": releases_within(zone, found),
        "fallback_rate": zone.fallback_rate,
        "currency": zone.currency,
    }


def releases_within(zone: ZoneService, found: Outlook) -> int | None:
    """How many releases the budget lasts for, if it ends before the horizon does."""
    lost = max(found.seen.epsilon_t)
    if zone.budget is None or not math.isfinite(lost):
        return None
    each = zone.policy.epsilon_t or (lost,) * zone.policy.horizon
    spent = zone.learned.epsilon
    for t, epsilon in enumerate(each):
        spent += epsilon
        if spent > zone.budget * (1 + 1e-9):
            return t
    return None


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
    last = releases_within(zone, found)
    if zone.budget is None:
        lines.append("No budget is set: every interval of the horizon gets a release.")
    elif last is None:
        lines.append(f"The budget of {zone.budget:g} lasts for the whole horizon.")
    else:
        lines.append(
            f"The budget of {zone.budget:g} lasts for {last} of {zone.policy.horizon} releases."
        )
    if zone.learned.epsilon:
        lines.append(
            f"The models have cost every house {zone.learned.epsilon:g} of the budget already."
        )
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    if zone.learned.private:
        lines.append(
            f"The models are private: no forecast is published. Budget spent: {constant}, marked;"
            " a missing reading counts as 0 Wh."
        )
        return "\n".join(lines)
    lines.append(
        "Budget spent: the public forecast, which uses no reading, is published."
        f" No usable model: {constant}. Both are marked."
    )
    return "\n".join(lines)


def deployment_prose(deployment: Deployment, zones: list[str]) -> str:
    """The whole of it."""
    noise = (
        "noise is drawn from a secure source"
        if deployment.mode == "production"
        else "noise is simulated and protects nobody; every release is marked"
    )
    remarks = [f"Look at: {remark}" for remark in deployment.problems]
    return "\n\n".join([f"Mode {deployment.mode}: {noise}.", *zones, *remarks])
