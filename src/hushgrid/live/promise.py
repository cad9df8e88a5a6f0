"""What a zone promises its homes: sentences, assumptions and figures. Public."""

from __future__ import annotations

import math
from typing import Any

from hushgrid.clamp import RHO
from hushgrid.errors import HushgridError, PlanError
from hushgrid.live.deployment import Promise, ZoneService
from hushgrid.planning import Secret, ZoneTerms, assumptions
from hushgrid.policy import Policy
from hushgrid.report.sentence import promise_sentence
from hushgrid.tradeoff import ETAS, Point, Tradeoff, expected, tradeoff

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
