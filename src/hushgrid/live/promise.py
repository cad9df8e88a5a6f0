"""What a zone promises its homes, in a sentence anybody can read and in figures. Public."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hushgrid.clamp import RHO
from hushgrid.errors import HushgridError, PlanError
from hushgrid.live.deployment import Promise, ZoneService
from hushgrid.policy import Policy
from hushgrid.tradeoff import ETAS, Point, Tradeoff, World, expected, tradeoff

DAY = 86_400  # [s]

_SENTENCES = {
    "step": (
        "Whatever else is known, one price changes the odds that somebody is at home at that time"
        " by at most a factor of {factor}"
    ),
    "interval": (
        "Whatever else is known, all {steps} prices together change the odds that somebody was at"
        " home at any one time by at most a factor of {factor}"
    ),
    "trajectory": (
        "Whatever else is known, all {steps} prices together change the odds between any two"
        " courses of a household's days by at most a factor of {factor}"
    ),
    "window": (
        "Whatever else is known, any {steps} prices in a row change the odds that somebody was at"
        " home by at most a factor of {factor}"
    ),
}


def promise_of(zone: ZoneService) -> Promise:
    """What is promised; without a promise of its own, the policy's epsilon at each step."""
    if zone.promise is not None:
        return zone.promise
    if zone.policy.window is not None:
        return Promise("window", zone.policy.epsilon)
    if zone.policy.gaussian is not None:
        return Promise("trajectory", zone.policy.epsilon, zone.policy.delta)
    return Promise("step", zone.policy.epsilon)


def sentence(zone: ZoneService) -> str:
    """The promise in one plain sentence, what it rests on included."""
    promise, policy = promise_of(zone), zone.policy
    said = _SENTENCES[promise.secret].format(factor=_factor(promise.epsilon), steps=_steps(zone))
    if promise.delta or policy.negligible:
        said += f", but for a chance of {promise.delta or policy.negligible:g}"
    if policy.eta == 0:
        return f"{said}, as long as every home uses electricity as its public model says."
    if policy.eta < 1:
        share = f"{policy.eta * 100:g} %"
        return (
            f"{said}, as long as every home uses electricity as its public model says but for a"
            f" share of {share}."
        )
    return f"{said}."


def _steps(zone: ZoneService) -> str:
    window = zone.policy.window
    return f"{zone.policy.horizon if window is None else window.steps:,}"


def _factor(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits: a promise is never told too small.

    >>> _factor(0.5), _factor(1.0), _factor(0.1), _factor(12.0)
    ('1.65', '2.72', '1.11', '163,000')
    """
    if epsilon > 700:
        return f"e^{epsilon:g}"
    value = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    up = math.ceil(value / unit - 1e-9) * unit
    return f"{up:.2f}".rstrip("0").rstrip(".") if up < 1000 else f"{up:,.0f}"


def promise_json(zone: ZoneService, mode: str) -> dict[str, Any]:
    """The promise under its public keys; `error` is what to expect of a price, relative."""
    promise, tariff = promise_of(zone), zone.scenario.tariff
    return {
        "zone": zone.id,
        "mode": mode,
        "sentence": sentence(zone),
        "secret": promise.secret,
        "epsilon": promise.epsilon,
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
    policy = zone.policy
    horizon = min(policy.horizon, DAY // zone.seconds)
    policy = replace(policy, horizon=horizon, epsilon_t=policy.epsilon_t[:horizon])
    if policy.window is not None:
        share = policy.epsilon / policy.window.steps
        policy = replace(policy, epsilon=share, window=None)
    return policy


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
    promise, window = promise_of(zone), zone.policy.window
    fixed = window is not None or zone.scenario.consumption.reacts  # these go with eta = 1 alone
    return tradeoff(
        _world(zone),
        first_day(zone),
        secret="step" if promise.secret == "window" else promise.secret,
        epsilon=promise.epsilon,
        delta=promise.delta,
        rho=_rho(zone),
        share=1.0 if window is None else 1 / window.steps,
        steps=zone.policy.horizon,
        etas=() if fixed else ETAS,
    )


def _figures(point: Point) -> dict[str, float]:
    return point._asdict()


def _world(zone: ZoneService) -> World:
    scenario = zone.scenario
    return scenario.zone, scenario.tariff, scenario.models, scenario.consumption


def _rho(zone: ZoneService) -> float:
    rho = promise_of(zone).rho
    return RHO if rho is None else rho
