"""What a service promises about a zone, what it publishes, and how wrong the price will be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hushgrid.planning import Plan
from hushgrid.prospect import AS_GOOD, Way
from hushgrid.report.plan import advice, finite_or_none, span
from hushgrid.report.sentence import promise_sentence


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A policy examined over its first days.

    `seen` is the policy of those days; `secret`, `epsilon`, `delta` and `steps` are what is
    promised, over how many releases; `leakage_day` is what the first day's releases say about one
    step of one house; `private` models may publish raw prices only. For an interval promise
    `leakage` is what was counted, `memory` the silent steps after which nothing of it is left: the
    epochs before and after are counted unless it is None.
    """

    seen: Plan
    secret: str
    epsilon: float
    delta: float
    steps: int
    leakage_day: float | None
    day: int
    rho: float
    private: bool = False
    leakage_week: float | None = None  # as leakage_day, of the first week or the horizon
    leakage: float | None = None
    memory: int | None = None


def price_error(outlook: Outlook, way: Way | None = None) -> float:
    """Root mean square of the price's relative error, as the models expect it.

    Of the price that the policy publishes, or of another way to publish.
    """
    figure = outlook.seen.prospect.error(way or outlook.seen.policy.publish, outlook.rho)
    return figure * math.sqrt(len(outlook.seen.scale))  # the paper's formula divides by its root


def outlook_json(outlook: Outlook) -> dict[str, Any]:
    """The figures under their public keys."""
    seen = outlook.seen
    return {
        "secret": outlook.secret,
        "promise": {
            "secret": outlook.secret,
            "epsilon": outlook.epsilon,
            "step": finite_or_none(max(seen.epsilon_t)),
            "day": outlook.leakage_day,
            "week": outlook.leakage_week,
        },
        "epsilon": outlook.epsilon,
        "delta": outlook.delta,
        "horizon": outlook.steps,
        "eta": seen.policy.eta,
        "epsilon_t_max": finite_or_none(max(seen.epsilon_t)),
        "epsilon_any": finite_or_none(seen.epsilon_any),
        "scale_min": min(seen.scale),
        "scale_max": max(seen.scale),
        "clamp": list(seen.policy.clamp) or None,
        "leakage_day": outlook.leakage_day,
        "leakage": outlook.leakage,
        "memory": outlook.memory,
        "price_error": price_error(outlook),
        "expected_error": price_error(outlook),
        "forecast_error": price_error(outlook, "forecast"),
        "error_share_of_load": seen.prospect.share(outlook.rho),
        "publish": seen.policy.publish,
        "assumptions": list(seen.assumptions),
    }


def outlook_prose(outlook: Outlook) -> str:
    """The promise, the noise, the error and the assumptions in plain words."""
    seen, policy = outlook.seen, outlook.seen.policy
    promise = promise_sentence(
        policy,
        outlook.secret,
        outlook.epsilon,
        delta=outlook.delta,
        steps=outlook.steps,
        continued=outlook.memory is not None,
    )
    kind = policy.schedule.noise_words
    even = " (at an even share of the window)" if outlook.secret == "window" else ""
    lines = [f"Promise: {promise}", f"Noise: {kind} {span(seen.scale, '.0f')} Wh{even}."]
    if policy.schedule.per_release:
        lines.append(
            f"Each release loses at most {span(seen.epsilon_t, '.4f')} (eta = {policy.eta:g});"
            f" whatever anyone consumes, at most {seen.epsilon_any:.4f}."
        )
    if outlook.leakage_day is not None:
        lines.append(
            f"Leakage about one interval of one house from a day of {outlook.day} releases:"
            f" at most {outlook.leakage_day:.3f}."
        )
    if outlook.leakage is not None:
        lines.append(_counted(outlook.leakage, outlook.memory))
    if policy.clamp:
        lines.append(f"Readings are cut at {span(policy.clamp, 'd')} Wh, by group of houses.")
    what = "the public's best estimate" if policy.publish == "estimate" else "the noisy load"
    lines += [
        f"Expected price error: {price_error(outlook):.1%} of the exact price (root mean square;"
        f" the price is that of {what}); {price_error(outlook, 'forecast'):.1%} for a forecast"
        " without any reading.",
        f"Expected error of the noisy load: {seen.prospect.share(outlook.rho):.1%}.",
        *_better(outlook),
        "Assumptions:",
        *(f"- {line}" for line in seen.assumptions),
    ]
    return "\n".join(lines)


def _counted(leakage: float, memory: int | None) -> str:
    """What an interval promise counts."""
    if memory is None:
        return (
            f"From all releases of this epoch: at most {leakage:.3f}. It does not fade, so a"
            " further epoch is refused unless its figure is accepted."
        )
    return (
        f"From all releases, epochs of these terms before and after included: at most"
        f" {leakage:.3f}. {memory} intervals without a price leave nothing of it."
    )


def _better(outlook: Outlook) -> list[str]:
    """What `hushgrid plan` advises, where the policy publishes in a worse way."""
    prospect, rho = outlook.seen.prospect, outlook.rho
    if prospect.best(rho) != "forecast":
        enough = AS_GOOD * prospect.least(rho)
        if outlook.private or prospect.error(outlook.seen.policy.publish, rho) <= enough:
            return []
    return [advice(prospect, rho, outlook.private)]
