"""A plan in numbers, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.accounting.temporal import temporal_leakage, with_contradictions
from hushgrid.mechanism.policy import Policy, weaker_promise
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.planning.expected_error import AS_GOOD, PRIVATE_WAYS, WAYS, Prospect, Way
from hushgrid.planning.planner import Plan
from hushgrid.planning.tradeoff import Cell
from hushgrid.report.figures import day_line, finish, panels, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# --------------------------------------------------------------------------------------------------
# The promise of a zone in one text, the same for plan, check, certificate, pages and API.
#
# It names the adversary the bound holds for and the assumptions it rests on. docs/adversary.md
# shows
# a world in which a single price shifts the odds by more than e^epsilon.


_BOUNDS = {
    "step": (
        "For an adversary who knows the occupancy of all other homes, one price shifts the odds"
        " that a home is occupied in that interval by at most a factor of {factor}"
    ),
    "interval": (
        "All {steps} prices together shift the odds that a home is occupied in any one interval by"
        " at most a factor of {factor}"
    ),
    "continued": (
        "All prices together, of this epoch and of those before and after it under the same terms,"
        " shift the odds that a home is occupied in any one interval by at most a factor of"
        " {factor}"
    ),
    "trajectory": (
        "All {steps} prices together shift the odds between any two courses of a home's occupancy"
        " by at most a factor of {factor}"
    ),
    "window": (
        "All prices together shift the odds between any two courses of a home's occupancy that"
        " differ only within {steps} intervals in a row by at most a factor of {factor}"
    ),
}
_APPROXIMATE = (
    "For any two courses of a home's occupancy and any set of outcomes of all {steps} prices, the"
    " probability under one course is at most {factor} times the probability under the other plus"
    " {delta:g}"
)
_MORE = {
    "step": (
        "An adversary without that knowledge can learn more from one price once it has seen earlier"
        " ones; what all prices together give away is larger"
    ),
    "approximate": (
        "The odds can shift by more than that factor, with a probability that can exceed {delta:g}"
    ),
}


def promise_sentence(
    policy: Policy,
    secret: str,
    epsilon: float,
    *,
    delta: float = 0.0,
    steps: int | None = None,
    continued: bool = False,
) -> str:
    """State a promise, the adversary it holds for and what it assumes.

    Args:
        policy: the policy that keeps it; its eta, horizon and schedule are used.
        secret: "step", "interval", "trajectory" or "window".
        epsilon: bound on the shift of the log odds.
        delta: of a trajectory promise; 0 for a pure one.
        steps: how many releases it is about; by default those of the window, or of the horizon.
        continued: whether an interval promise counts the epochs before and after.

    Returns:
        One to three plain sentences, each ended by a full stop.

    >>> promise_sentence(Policy(0.04), "interval", 1.0)[:57]
    'All 96 prices together shift the odds that a home is occu'
    """
    if steps is None:
        steps = policy.schedule.covers(policy.horizon)
    bound = _APPROXIMATE if delta else _BOUNDS[secret]
    if continued and secret == "interval":
        bound = _BOUNDS["continued"]
    values = {
        "factor": f"{factor(epsilon)} (e^{epsilon:g})",
        "steps": f"{steps:,}",
        "delta": delta,
    }
    said = [f"{bound}, if {_conditions(policy, secret)}"]
    if secret == "step":
        said.append(_MORE["step"])
    if delta:
        said.append(_MORE["approximate"])
    if policy.schedule.caveat:
        said.append(policy.schedule.caveat)
    return " ".join([*(f"{one.format(**values)}." for one in said), *weaker_promise(policy)])


def _conditions(policy: Policy, secret: str) -> str:
    """What the bound rests on, as the end of a sentence; `planning.assumptions` lists all of it."""
    parts = ["the published occupancy model is true"]
    if policy.eta == 0:
        parts.append("every reading follows its published law")
    elif policy.eta < 1:
        parts.append(f"at least {100 * (1 - policy.eta):g} % of each reading's law is as published")
    if secret != "step":
        parts.append("readings of different intervals are linked only through occupancy")
    return " and ".join(parts) if len(parts) < 3 else f"{parts[0]}, {parts[1]} and {parts[2]}"


def factor(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits, so that it is never stated too small.

    >>> factor(0.5), factor(1.0), factor(0.1), factor(12.0)
    ('1.65', '2.72', '1.11', '163,000')
    """
    if epsilon > 700:
        return f"e^{epsilon:g}"
    value = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    top = math.ceil(value / unit - 1e-9) * unit
    return f"{top:.2f}".rstrip("0").rstrip(".") if top < 1000 else f"{top:,.0f}"


def plan_json(
    found: Plan, rho: float, endless: float | None, private: bool = False
) -> dict[str, Any]:
    """The plan under its public keys; a figure that does not exist is null.

    `publish` is the best way to publish that the models allow, `rmsre_paper` its error.
    """
    prospect = found.prospect
    way = prospect.best(rho, PRIVATE_WAYS if private else WAYS)
    return {
        "secret": found.secret,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "eta": found.policy.eta,
        "rho": rho,
        "epsilon_t": [finite_or_none(e) for e in found.epsilon_t],
        "scale": list(found.scale),
        "clamp": list(found.policy.clamp) or None,
        "gaussian": found.policy.schedule.terms.get("gaussian"),
        "epsilon_any": finite_or_none(found.epsilon_any),
        "leakage_max": found.leakage,
        "running": found.running,
        "leakage_endless": finite_or_none(endless),
        "limiting": {"house": found.house, "step": found.step},
        "publish": way,
        "rmsre_paper": prospect.error(way, rho),
        "rmsre_paper_raw": prospect.with_cut(rho),
        "rmsre_paper_estimated": prospect.estimated(rho),
        "rmsre_paper_forecast": prospect.forecast(rho),
        "error_share_of_load": prospect.share(rho),
        "assumptions": list(found.assumptions),
    }


def finite_or_none(value: float | None) -> float | None:
    """The value, if it is a number at all."""
    return value if value is not None and math.isfinite(value) else None


def advice(prospect: Prospect, rho: float, private: bool = False) -> str:
    """Which of the ways that the models allow to publish by, in plain words."""
    best = prospect.best(rho)
    if private:
        text = 'Publish the raw price (publish = "raw"): private models allow nothing else.'
        if best == "forecast":
            text += (
                " At this promise readings lower the error of the models' own forecast by less"
                " than 5 %: plan a larger zone or another promise."
            )
        return text
    if best == "forecast":
        return (
            "Publish the forecast, which spends no budget: at this promise readings lower its"
            " error by less than 5 %. For prices that follow the readings plan a larger zone or"
            " another promise."
        )
    return f'Publish the {"raw price" if best == "raw" else "estimate"} (publish = "{best}").'


def plan_prose(found: Plan, rho: float, endless: float | None, private: bool = False) -> str:
    """The promise, the noise, the error and the assumptions in plain words."""
    policy, prospect = found.policy, found.prospect
    promise = promise_sentence(
        policy,
        found.secret,
        found.epsilon,
        delta=found.delta,
        continued=found.running is not None,
    )
    lines = [f"Promise: {promise}", ""]
    lines.append(f"Noise: {policy.schedule.noise_words} {span(found.scale, '.0f')} Wh.")
    if policy.schedule.per_release:
        lines.append(
            f"Each release loses at most {span(found.epsilon_t, '.4f')} (eta = {policy.eta:g});"
            f" whatever anyone consumes, at most {found.epsilon_any:.4f}."
        )
    if policy.clamp:
        lines.append(f"Readings are cut at {span(policy.clamp, 'd')} Wh, by density class.")
    lines.append(f"The promise binds at house {found.house}, step {found.step}.")
    if found.leakage is not None:
        over = "the horizon on its own"
        if found.running is not None:
            over = f"a run of {found.running} steps, the horizon again and again"
        lines.append(f"Leakage about one step of one house over {over}: {found.leakage:.3f}.")
        if endless is not None:
            more = (
                "grows without end" if math.isinf(endless) else f"stays at or below {endless:.3f}"
            )
            hint = ""
            if found.secret == "interval" and endless > found.epsilon * 1.005:
                hint = " (plan with --continued to promise that)"
            lines.append(f"Repeated for ever, it {more}{hint}.")
    lines += [
        "",
        f"Expected error (RMSRE, paper's formula) at rho = {rho:g}:"
        f" {prospect.with_cut(rho):.3e} raw, {prospect.estimated(rho):.3e} estimated,"
        f" {prospect.forecast(rho):.3e} for a forecast without any reading.",
        f"Expected error of the load: {prospect.share(rho):.2%} (raw, root mean square).",
        advice(prospect, rho, private),
    ]
    lines += ["", "Assumptions:"]
    return "\n".join([*lines, *(f"- {line}" for line in found.assumptions)])


def span(values: Sequence[float] | Sequence[int], form: str) -> str:
    """The least and the largest value, or the only one."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def sensitivity_tables(cells: Mapping[str, Sequence[Cell]]) -> str:
    """One table for each dial."""
    head = {"eta": "eta", "epsilon": "epsilon promised", "houses": "houses"}
    parts = []
    for dial, rows in cells.items():
        if rows:
            body = [(f"{c.at:g}", _or_none(c.epsilon_t), f"{c.error:.2%}") for c in rows]
            parts.append(table([(head[dial], "epsilon a step", "error of the raw load"), *body]))
    return "\n\n".join(parts)


def _or_none(epsilon: float) -> str:
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else "-"


def plan_figure(found: Plan, models: Sequence[OccupancyModel]) -> Figure:
    """The noise of every step, and the leakage about every step beside the promise."""
    with_leakage = found.leakage is not None
    figure, axes = panels(2 if with_leakage else 1, 5.2 if with_leakage else 2.8)
    axes[0].set_title(f"{found.secret}, epsilon = {found.epsilon:g}: the noise of every step")
    day_line(axes[0], found.scale, None, "#0b6e99")
    axes[0].set_ylabel("scale [Wh]")
    axes[0].set_ylim(bottom=0)
    if with_leakage:
        total = with_contradictions(temporal_leakage(models, found.losses).total, found.losses)
        day_line(axes[1], np.median(total, axis=1), "median house", "#999999", 2.5)
        day_line(axes[1], total.max(axis=1), "worst house", "#b3541e")
        if found.secret == "interval":
            axes[1].axhline(found.epsilon, color="#111111", linestyle="--", label="promise")
        axes[1].set_ylabel("leakage about the step")
        axes[1].set_ylim(bottom=0)
    for one in axes:
        finish(one)
    return figure


# --------------------------------------------------------------------------------------------------
# What a service promises about a zone, what it publishes, and how wrong the price will be.


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
