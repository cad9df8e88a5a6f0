"""A plan in numbers, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.accounting.temporal import temporal_leakage, with_contradictions
from hushgrid.occupancy import OccupancyModel
from hushgrid.planning import Plan
from hushgrid.prospect import PRIVATE_WAYS, WAYS, Prospect
from hushgrid.report.sentence import promise_sentence
from hushgrid.report.shared import day_line, finish, panels, table
from hushgrid.sensitivity import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
