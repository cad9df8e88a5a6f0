"""One zone of a service file: its scenario in local time, and the policy that keeps its promise."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from hushgrid.checks import is_real
from hushgrid.daily import ANY, SECONDS
from hushgrid.live.deployment import Pattern, Promise, ZoneService
from hushgrid.live.local import localised
from hushgrid.live.placing import EpochTimes, Planned, interval_plan
from hushgrid.live.roster_ids import meter_ids
from hushgrid.live.settings import GROUP_KEYS, POLICY_KEYS, Times
from hushgrid.live.veil import veiled
from hushgrid.planning import Secret, plan
from hushgrid.policy import Policy
from hushgrid.provenance import Provenance, check_private, read_provenance
from hushgrid.simulation import Scenario
from hushgrid.tables import Faults, Table, shown
from hushgrid.zonefile import provenance_of, read_policy, read_scenario

MOST_STEPS = 200_000  # of a horizon: each has a slot of its own
MOST_HOUSES = 10_000_000
MOST_BOUND = 1_000_000  # [Wh] of an interval: a law has a number for each Wh
_EPSILONS = (1e-6, 100.0)  # that can be planned for


def read_zone(
    content: Table, folder: Path, settings: Table, times: Times | None, faults: Faults
) -> ZoneService | None:
    """The zone as it runs; None where it, or the service's times, are at fault."""
    before = len(faults)
    seconds = ANY if faults.at("service.interval") else settings.get("interval", SECONDS)
    _check_name(content.get("zone"), faults)
    small, content = _sized(content, faults)
    scenario = read_scenario(content, folder, seconds, faults, GROUP_KEYS)
    groups = content.get("houses")
    meters: tuple[str, ...] = ()
    if small and isinstance(groups, list) and all(isinstance(g, Mapping) for g in groups):
        meters = meter_ids(groups, folder, faults)
    policy, promise = _policy(content.get("policy"), "policy" in content, faults)
    learned_before = len(faults)
    learned = read_provenance(content, faults)
    _check_trust(content, settings, faults)
    if len(faults) == learned_before and policy is not None and promise is not None:
        check_private(learned, policy, promise.secret, promise.rho, faults)
    _check_charged(learned, settings, faults)
    if scenario is not None and small:
        _check_laws(scenario, content["houses"], faults)
    if "fallback_rate" in settings:
        _check_fallback(_table(content, "tariff"), settings["fallback_rate"], faults)
    if scenario is None or policy is None or promise is None or times is None:
        return None
    if len(faults) > before or "time_zone" not in settings:
        return None
    with faults.within("models"):
        local = localised(
            scenario,
            begins=times.begins,
            seconds=seconds,
            horizon=policy.horizon,
            time_zone=settings["time_zone"],
        )
        own = local if learned.private else None
        local = veiled(local) if learned.private else local
        pattern = Pattern(scenario, policy)
        place = EpochTimes(times.begins, seconds, policy.horizon, settings["time_zone"])
        policy, leakage, memory = _planned(local, pattern, promise, faults, place)
        kept = {"budget", "accept_error", "fallback_rate", "currency", "time_zone"} & set(settings)
        return ZoneService(
            scenario=local,
            policy=policy,
            meters=meters,
            begins=times.begins,
            seconds=seconds,
            grace=times.grace,
            retention=times.retention,
            eta_set_by=_table(content, "policy").get("eta_set_by", ""),
            promise=promise,
            provenance=provenance_of(content),
            learned=learned,
            own=own,
            pattern=pattern,
            leakage=leakage,
            memory=memory,
            **{key: settings[key] for key in kept},
        )
    return None


def _table(content: Table, name: str) -> Table:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _check_name(zone: Any, faults: Faults) -> None:
    """Names go into topics, paths and addresses."""
    name = zone.get("id") if isinstance(zone, Mapping) else None
    if isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        faults.add(
            "zone.id",
            f"zone.id is {shown(name)}; give 1 to 64 letters, digits, dots, dashes or underscores.",
        )


def _sized(content: Table, faults: Faults) -> tuple[bool, Table]:
    """Whether the zone is small enough to be read, and content that is."""
    groups = content.get("houses")
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        return False, content
    before, houses = len(faults), 0
    for i, group in enumerate(groups):
        count, bound = group.get("count"), group.get("bound")
        houses += count if isinstance(count, int) and count > 0 else 0
        if isinstance(bound, int) and bound > MOST_BOUND:
            faults.add(
                f"houses[{i}].bound",
                f"houses[{i}].bound is {bound}; give at most {MOST_BOUND} Wh an interval.",
            )
    if houses > MOST_HOUSES and all(
        not isinstance(group.get("count"), int) or group["count"] < 2**31 for group in groups
    ):
        faults.add(
            "houses", f"houses has {houses} houses; give a zone at most {MOST_HOUSES} of them."
        )
    if len(faults) == before and houses <= MOST_HOUSES:
        return True, content
    small = [{**group, "count": 1} if "count" in group else group for group in groups]
    return False, {**content, "houses": small} if houses > MOST_HOUSES else content


def _check_laws(scenario: Scenario, groups: Sequence[Table], faults: Faults) -> None:
    """Every law has a mass below its bound; laws are numbered in the order they are written in."""
    laws = iter(scenario.consumption.laws)
    for i, group in enumerate(groups):
        for state in ("absent", "present"):
            given = group[state] if isinstance(group[state], list) else [group[state]]
            for j in range(len(given)):
                place = f"houses[{i}].{state}" + (f"[{j}]" if len(given) > 1 else "")
                with faults.within(place):
                    next(laws).pmf.sum()


def _policy(table: Any, given: bool, faults: Faults) -> tuple[Policy, Promise] | tuple[None, None]:
    """The terms of the policy and what is promised."""
    if not given:
        return None, None
    before = len(faults)
    raw: dict[str, Any] = dict(table) if isinstance(table, Mapping) else {}
    secret = _secret(raw, faults)
    rho, by = raw.get("rho"), raw.get("eta_set_by", "")
    if rho is not None and not (is_real(rho) and 0 <= rho <= 1):
        faults.add("policy.rho", f"policy.rho is {shown(rho)}; give a share from 0 to 1.")
    if rho is not None and "clamp" in raw:
        said = "policy.rho and clamp are both set; give one of them."
        faults.add("policy.rho", said, "policy.clamp")
    if not isinstance(by, str):
        faults.add(
            "policy.eta_set_by", f"policy.eta_set_by is {shown(by)}; say who set eta, and why."
        )
    delta = raw.get("delta", 0.0)
    if faults.at("policy.secret"):  # it may go with a delta or not
        table = {key: value for key, value in raw.items() if key != "delta"}
    horizon = raw.get("horizon", 1)
    if is_real(horizon) and not isinstance(horizon, bool) and horizon > MOST_STEPS:
        faults.add(
            "policy.horizon",
            f"policy.horizon is {shown(horizon)}; give at most {MOST_STEPS} steps.",
        )
        table = {key: value for key, value in table.items() if key != "horizon"}
    policy = read_policy(table, faults, POLICY_KEYS)
    if policy is None or len(faults) > before:
        return None, None
    return policy, Promise(secret, policy.epsilon, float(delta), rho)


def _secret(raw: Table, faults: Faults) -> Any:
    """The secret that is asked for, or the one that goes with the noise."""
    natural = "trajectory" if "gaussian" in raw else "step"
    secret = raw.get("secret", natural)
    if secret not in get_args(Secret):
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)}; give one of {', '.join(get_args(Secret))}.",
        )
        return natural
    if "gaussian" in raw and secret != "trajectory":
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)} with Gaussian noise; give the secret trajectory.",
        )
    if "window" in raw and "secret" in raw and secret != "step":
        faults.add(
            "policy.secret",
            f"policy.secret is {shown(secret)} with a window, which shares out the budget by"
            " itself; give the secret step, or no window.",
        )
    return "window" if "window" in raw else secret


def _check_trust(content: Table, settings: Table, faults: Faults) -> None:
    """An eta below 1 needs a person who answers for it, and demand that does not react to rates."""
    eta = _table(content, "policy").get("eta", 1)
    if not is_real(eta) or eta >= 1:
        return
    by = _table(content, "policy").get("eta_set_by", "")
    if settings.get("mode") == "production" and not str(by).strip():
        faults.add(
            "policy.eta_set_by",
            f"policy.eta_set_by is not set but eta is {eta:g} in production; say who set"
            " it and why, or give eta = 1.",
            "policy.eta",
        )
    elasticity = _table(content, "elasticity")
    if elasticity and elasticity.get("exponent") != 0:
        faults.add(
            "elasticity",
            f"elasticity makes demand react to rates while eta is {eta:g}; published rates"
            " take effect later than the mechanism assumes: give eta = 1.",
            "elasticity.exponent",
            "policy.eta",
        )


def _check_charged(learned: Provenance, settings: Table, faults: Faults) -> None:
    """What the models cost is charged to the budget before the first release."""
    budget = settings.get("budget")
    if budget is not None and learned.epsilon >= budget:
        faults.add(
            "service.budget",
            f"service.budget is {budget:g} but the models have cost {learned.epsilon:g} of it"
            " (learned.epsilon); give more, or models that cost less.",
            "learned.epsilon",
        )


def _check_fallback(tariff: Table, rate: float, faults: Faults) -> None:
    floor, cap = tariff.get("floor", 0.0), tariff.get("cap", math.inf)
    if is_real(floor) and isinstance(cap, (int, float)) and not floor <= rate <= cap:
        faults.add(
            "service.fallback_rate",
            f"service.fallback_rate is {rate:g}, outside the tariff's {floor:g} to {cap:g}; give a"
            " rate between them.",
            "tariff.floor",
            "tariff.cap",
        )


def _planned(
    local: Scenario, pattern: Pattern, promise: Promise, faults: Faults, place: EpochTimes
) -> Planned:
    """The policy that keeps the promise: the terms themselves where epsilon is each release's."""
    terms = pattern.terms
    if promise.secret == "window" or not terms.schedule.per_release:
        return Planned(terms, None, None)
    if promise.secret == "step" and promise.rho is None:
        return Planned(terms, None, None)
    low, high = _EPSILONS
    if not low <= promise.epsilon <= high:
        faults.add(
            "policy.epsilon",
            f"policy.epsilon is {promise.epsilon:g}; give {low:g} to {high:g} for the secret"
            f" {promise.secret}.",
        )
        return Planned(terms, None, None)
    with faults.within("policy.secret"):
        if promise.secret == "interval":
            return interval_plan(pattern, promise, place)
        policy = plan(
            local.zone,
            local.tariff,
            local.models,
            local.consumption,
            secret=promise.secret,
            epsilon=promise.epsilon,
            delta=promise.delta,
            terms=terms,
            rho=promise.rho,
        ).policy
        return Planned(policy, None, None)
    return Planned(terms, None, None)
