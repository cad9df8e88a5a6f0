"""What a zone promises and costs, as `check` says it: JSON, prose and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushgrid.accounting.composition import Cover
from hushgrid.planning.expected_error import AS_GOOD, Way
from hushgrid.planning.planner import Plan
from hushgrid.report.plan import (
    advice,
    bill_lines,
    bill_values,
    block_values,
    cut_at,
    noise_lines,
    shortfall_lines,
    shortfall_values,
)
from hushgrid.report.promise import (
    COVERS_BRIEF,
    covers_json,
    covers_lines,
    factor_words,
    finite_or_none,
    home_words,
    promise_sentence,
)

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A policy evaluated over its first days.

    Attributes:
        plan: The plan of those days.
        secret: What is promised.
        epsilon: Epsilon of the promise.
        steps: Number of releases it covers.
        leakage_day: Leakage about one step of one house from the first day's releases; None where
            there is no bound, or no model by which to tell: of a promise about windows.
        day: Number of releases of a day.
        rho: Relative error to expect of the model.
        leakage_week: As `leakage_day`, of the first week.
        leakage: For an interval promise, the leakage counted for it.
        window: Of the secret window, its length in words.
        covers: What the promise covers.
    """

    plan: Plan
    secret: str
    epsilon: float
    steps: int
    leakage_day: float | None
    day: int
    rho: float
    leakage_week: float | None = None
    leakage: float | None = None
    window: str = ""
    covers: tuple[Cover, ...] = ()


def price_error(outlook: Outlook, way: Way | None = None) -> float:
    """Expected relative error of the price, root mean square.

    Args:
        outlook: The outlook.
        way: Publication; None for that of the policy.

    Returns:
        The error as a share of the exact price.
    """
    figure = outlook.plan.prospect.error(way or outlook.plan.policy.publish, outlook.rho)
    return figure * math.sqrt(len(outlook.plan.scale))  # the paper's formula divides by its root


def figures(outlook: Outlook) -> dict[str, float | None]:
    """What one price, those of the first day and of the first week say about one interval.

    Args:
        outlook: The outlook.

    Returns:
        `step`, `day`, `week`; None where there is no bound.
    """
    step = finite_or_none(max(outlook.plan.epsilon_t))
    return {"step": step, "day": outlook.leakage_day, "week": outlook.leakage_week}


def outlook_json(outlook: Outlook) -> dict[str, Any]:
    """The outlook under its public keys.

    Args:
        outlook: The outlook.

    Returns:
        The values; a figure that does not exist is None.
    """
    plan = outlook.plan
    return {
        "secret": outlook.secret,
        "promise": {
            "secret": outlook.secret,
            "epsilon": outlook.epsilon,
            **figures(outlook),
            "covers": covers_json(outlook.covers),
        },
        "plan": {
            "blocks": block_values(plan),
            "clamp": list(plan.clamp) or None,
            "estimator": plan.policy.estimator,
        },
        "epsilon": outlook.epsilon,
        "eta": plan.policy.eta,
        "epsilon_t_max": figures(outlook)["step"],
        "epsilon_any": finite_or_none(plan.epsilon_any),
        "scale_min": min(plan.scale),
        "scale_max": max(plan.scale),
        "clamp": list(plan.clamp) or None,
        "leakage_day": outlook.leakage_day,
        "leakage": outlook.leakage,
        "expected_error": price_error(outlook),
        "forecast_error": price_error(outlook, "forecast"),
        "error_share_of_load": plan.prospect.share(outlook.rho),
        "bill_change": bill_values(plan),
        "shortfall": shortfall_values(plan, outlook.rho),
        "publish": plan.policy.publish,
        "publish_advised": plan.prospect.best(outlook.rho),
        "assumptions": list(plan.assumptions),
    }


def outlook_prose(outlook: Outlook) -> str:
    """The promise, the noise, the error and the assumptions of an outlook.

    Args:
        outlook: The outlook.

    Returns:
        Lines of text.
    """
    plan, policy = outlook.plan, outlook.plan.policy
    promise = promise_sentence(
        policy,
        outlook.secret,
        outlook.epsilon,
        steps=outlook.steps,
        continued=True,
        window=outlook.window,
    )
    words = home_words(outlook.secret, outlook.epsilon, outlook.window).lines
    lines = [*words, f"Exactly: {promise}", *noise_lines(plan)]
    if outlook.leakage_day is not None:
        lines.append(
            f"Leakage about one interval of one house from the first day's {outlook.day} releases:"
            f" at most {outlook.leakage_day:.3f}; {_of_others(outlook)}."
        )
    if outlook.leakage is not None:
        lines.append(f"From all releases, past and future: at most {outlook.leakage:.3f}.")
    if policy.clamp:
        lines.append(f"Readings are cut at {cut_at(plan.clamp)} Wh, by group of houses.")
    load = "the public's best estimate" if policy.publish == "estimate" else "the noisy load"
    lines += [
        f"Expected price error: {price_error(outlook):.1%} of the exact price (root mean square;"
        f" the price is that of {load}); {price_error(outlook, 'forecast'):.1%} for a forecast"
        " without any reading.",
        f"Expected error of the noisy load: {plan.prospect.share(outlook.rho):.1%}.",
        *bill_lines(plan),
        *shortfall_lines(plan, outlook.rho),
        *_better(outlook),
        *covers_lines(outlook.covers),
        "Assumptions:",
        *(f"- {line}" for line in plan.assumptions),
    ]
    return "\n".join(lines)


def outlook_brief(outlook: Outlook) -> str:
    """What a householder and an operator ask first: the promise, the error, what is covered.

    Args:
        outlook: The outlook.

    Returns:
        Lines of text.
    """
    words = home_words(outlook.secret, outlook.epsilon, outlook.window).lines
    expected, most = outlook.plan.bill_change
    lines = [
        *words,
        f"Expected price error: {price_error(outlook):.1%}; without any reading"
        f" {price_error(outlook, 'forecast'):.1%}.",
        *[
            f"At raw prices noise would change a month's bill by {expected:.2%}; with 95 % by at"
            f" most {most:.2%}{_OTHER_PRICE * (outlook.plan.policy.publish == 'estimate')}."
        ]
        * math.isfinite(most),
        *_better(outlook),
        *covers_lines(outlook.covers, COVERS_BRIEF),
    ]
    return "\n".join(lines)


_OTHER_PRICE = " (published is the estimate's price, for which no such figure is planned)"
WORTH = 0.1  # share of the load that noise may be where a zone counts as large enough


def verdict(outlook: Outlook, houses: int, accept: float) -> dict[str, Any]:
    """Whether a zone's prices are worth publishing, and what to do next.

    Args:
        outlook: The outlook.
        houses: Number of houses.
        accept: Largest expected relative error of a price that is accepted.

    Returns:
        `sentence`; `noise`, the expected error of the noisy load as a share of the load; `houses`,
        how many such houses would bring it to a tenth, and `noise_then` (both None where it is
        less already, or no number is enough).
    """
    prospect, rho = outlook.plan.prospect, outlook.rho
    noise, error = prospect.share(rho), price_error(outlook)
    round_ones = (m * 10**e for e in range(8) for m in (1, 1.5, 2, 3, 4, 5, 6, 8))
    more = (int(n) for n in round_ones if n > houses and noise > WORTH)
    larger = next((n for n in more if prospect.share(rho, n / houses) <= WORTH), None)
    joined = None if larger is None else prospect.share(rho, larger / houses)
    prices = _PROMISED.get(outlook.secret, "all prices together")
    parts = [
        f"{houses:,} homes at epsilon = {outlook.epsilon:g} for {prices}: the noise is"
        f" {_times(noise)} the load"
    ]
    if larger is not None and joined is not None:
        parts.append(f"{larger:,} such homes would give {joined:.0%}")
    policy = outlook.plan.policy
    follows = policy.publish == "estimate" and policy.estimator == "releases"
    price = f"the price{_FOLLOWED * follows} is off by {error:.0%}"
    if error <= accept:
        steps = f"{price}: run hushgrid check, then hushgrid serve"
        if larger is not None:
            steps += "; join zones for less"
    else:
        steps = (
            f"{price}: publish the forecast, which spends nothing, join"
            " zones, or promise less (a larger epsilon)"
        )
    sentence = "; ".join([*parts, steps]) + "."
    return {"sentence": sentence, "noise": noise, "houses": larger, "noise_then": joined}


_FOLLOWED = ", which follows past prices and the usual load alone,"

_PROMISED = {
    "step": "each price on its own",
    "interval": "all prices together about any one interval",
    "window": "all prices together about anything in a window",
}


def _times(share: float) -> str:
    """A share of something as the beginning of a phrase.

    >>> _times(28.3), _times(0.094), _times(math.inf)
    ('28 times', '9 % of', 'beyond all')
    """
    if math.isinf(share):
        return "beyond all"
    return f"{share:.2g} times" if share >= 1 else f"{100 * share:.0f} % of"


def _of_others(outlook: Outlook) -> str:
    """The figures of one release and of a week, with the factor of the odds."""
    leakages = figures(outlook)
    parts = {"one release": leakages["step"], "the first week's": leakages["week"]}
    return ", ".join(
        f"from {name} {value:.3f} (odds times {factor_words(value)})"
        for name, value in parts.items()
        if value is not None
    )


def _better(outlook: Outlook) -> list[str]:
    """The advice of `hushgrid plan`, where another publication has a smaller error."""
    prospect, rho = outlook.plan.prospect, outlook.rho
    if prospect.best(rho) != "forecast":
        enough = AS_GOOD * prospect.least(rho)
        if prospect.error(outlook.plan.policy.publish, rho) <= enough:
            return []
    return [advice(prospect, rho)]
