"""A plan as JSON, prose, tables, a page and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.accounting.composition import Cover
from hushgrid.accounting.temporal import (
    contradicted_houses,
    leakage_under_models,
    with_contradictions,
)
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.planning.expected_error import Prospect
from hushgrid.planning.planner import Plan
from hushgrid.planning.stability import HYSTERESIS, Stability
from hushgrid.planning.tradeoff import Cell
from hushgrid.planning.windows import chosen_length
from hushgrid.report._figures import data_uri, day_line, finish, panels, render, table
from hushgrid.report.promise import (
    COVERS_WORDS,
    covers_head,
    covers_json,
    covers_lines,
    covers_rows,
    finite_or_none,
    home_words,
    promise_sentence,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plan_json(
    plan: Plan, rho: float, endless: float | None, covers: Sequence[Cover]
) -> dict[str, Any]:
    """The plan under its public keys.

    Args:
        plan: The plan.
        rho: Relative error to expect of the model.
        endless: Leakage about one step if the plan is repeated for ever, or None.
        covers: What it covers.

    Returns:
        The values; `publish` is the best publication that the models allow, `rmsre_paper` its
        error; a figure that does not exist is None.
    """
    prospect = plan.prospect
    way = prospect.best(rho)
    return {
        "secret": plan.secret,
        "epsilon": plan.epsilon,
        "eta": plan.policy.eta,
        "rho": rho,
        "epsilon_t": [finite_or_none(e) for e in plan.epsilon_t],
        "scale": list(plan.scale),
        "clamp": list(plan.clamp) or None,
        "blocks": block_values(plan),
        "epsilon_any": finite_or_none(plan.epsilon_any),
        "leakage_max": plan.leakage,
        "running": plan.running,
        "leakage_endless": finite_or_none(endless),
        "window": plan.window,
        "curve": [option._asdict() for option in plan.options],
        "limiting": {"house": plan.house, "step": plan.step},
        "publish": way,
        "rmsre_paper": prospect.error(way, rho),
        "rmsre_paper_raw": prospect.with_cut(rho),
        "rmsre_paper_estimated": prospect.estimated(rho),
        "rmsre_paper_forecast": prospect.forecast(rho),
        "error_share_of_load": prospect.share(rho),
        "bill_change": bill_values(plan),
        "shortfall": shortfall_values(plan, rho),
        "assumptions": list(plan.assumptions),
        "covers": covers_json(covers),
    }


def advice(prospect: Prospect, rho: float) -> str:
    """The best publication that the models allow, in words.

    Args:
        prospect: Parts of the expected error.
        rho: Relative error to expect of the model.

    Returns:
        A sentence.
    """
    best = prospect.best(rho)
    if best == "forecast":
        return (
            "Publish the forecast, which spends no budget: at this promise readings lower its"
            " error by less than 5 %. For prices that follow the readings plan a larger zone or"
            " another promise."
        )
    return f'Publish the {"raw price" if best == "raw" else "estimate"} (publish = "{best}").'


def plan_prose(
    plan: Plan, rho: float, endless: float | None, covers: Sequence[Cover], window: str = ""
) -> str:
    """The promise, the noise, the error and the assumptions of a plan.

    Args:
        plan: The plan.
        rho: Relative error to expect of the model.
        endless: Leakage about one step if the plan is repeated for ever, or None.
        covers: What it covers.
        window: Of the secret window, its length in words.

    Returns:
        Lines of text.
    """
    noise, errors = _plan_lines(plan, rho, endless)
    words = home_words(plan.secret, plan.epsilon, window).lines
    lines = [*words, f"Exactly: {_planned(plan, window)}", "", *noise, "", *errors, ""]
    lines += [*covers_lines(covers), "", "Assumptions:"]
    return "\n".join([*lines, *(f"- {line}" for line in plan.assumptions)])


def plan_page(
    plan: Plan,
    rho: float,
    endless: float | None,
    covers: Sequence[Cover],
    more: Sequence[str],
    cells: Mapping[str, Sequence[Cell]],
    picture: bytes,
    window: str = "",
) -> str:
    """A plan as a page of HTML with the look of the service's pages.

    Args:
        plan: The plan.
        rho: Relative error to expect of the model.
        endless: Leakage about one step if the plan is repeated for ever, or None.
        covers: What it covers.
        more: Further lines.
        cells: As `sensitivity_tables` has them.
        picture: `plan_figure` as PNG.
        window: Of the secret window, its length in words.

    Returns:
        The HTML; it loads nothing from the network.
    """
    noise, errors = _plan_lines(plan, rho, endless)
    keys = block_lines(plan)
    dials = {
        dial: (head, _rows(rows)) for dial, head in _DIALS.items() if (rows := cells.get(dial))
    }
    return render(
        "plan.html",
        title=f"Plan: {plan.secret}, epsilon = {plan.epsilon:g}",
        promise=_planned(plan, window),
        noise=[line for line in noise if line not in keys],
        keys=keys[1:],
        errors=[*errors, *more],
        dials=dials.values(),
        covered=COVERS_WORDS,
        covers=(covers_head(), covers_rows(covers_json(covers))),
        assumptions=plan.assumptions,
        picture=data_uri(picture, "image/png"),
    )


def _planned(plan: Plan, window: str) -> str:
    """The promise that a plan keeps."""
    return promise_sentence(
        plan.policy,
        plan.secret,
        plan.epsilon,
        continued=plan.running,
        window=window,
    )


def _plan_lines(plan: Plan, rho: float, endless: float | None) -> tuple[list[str], list[str]]:
    """Lines about noise and leakage, and about errors."""
    policy, prospect, lines = plan.policy, plan.prospect, noise_lines(plan)
    if policy.clamp:
        lines.append(f"Readings are cut at {cut_at(plan.clamp)} Wh, by density class.")
    lines += [*block_lines(plan), *_option_lines(plan)]
    lines.append(f"The promise binds at house {plan.house}, step {plan.step}.")
    if plan.secret == "window" and plan.leakage is not None:
        lines.append(f"Any window loses at most {plan.leakage:.3f}, by any number of prices.")
    elif plan.leakage is not None:
        over = "the horizon on its own"
        if plan.running:
            over = "an endless run of the horizon"
        lines.append(f"Leakage about one step of one house over {over}: {plan.leakage:.3f}.")
        if endless is not None:
            more = (
                "grows without end" if math.isinf(endless) else f"stays at or below {endless:.3f}"
            )
            hint = ""
            if plan.secret == "interval" and endless > plan.epsilon * 1.005:
                hint = " (plan with --continued to promise that)"
            lines.append(f"Repeated for ever, it {more}{hint}.")
    errors = [
        f"Expected error (RMSRE, paper's formula) at rho = {rho:g}:"
        f" {prospect.with_cut(rho):.3e} raw, {prospect.estimated(rho):.3e} estimated,"
        f" {prospect.forecast(rho):.3e} for a forecast without any reading.",
        f"Expected error of the load: {prospect.share(rho):.2%} (raw, root mean square).",
        *bill_lines(plan),
        *shortfall_lines(plan, rho),
        advice(prospect, rho),
    ]
    return lines, errors


def _option_lines(plan: Plan) -> list[str]:
    """The lengths of blocks that a plan of windows has tried, each with its best clamp."""
    if not plan.options:
        return []
    best = plan.options[chosen_length([option.error for option in plan.options])]
    rows = [
        (f"{row.hours:g}", f"{row.loss:.4f}", f"{row.clamp:g}", f"{row.error:.2%}")
        for row in plan.options
    ]
    head = ("block [h]", "epsilon", "clamp [Wh]", "price error")
    return [
        "Blocks of noise, each with its best clamp, by the error of the estimate:",
        table([head, *rows]),
        f"Chosen: blocks of {best.hours:g} h.",
    ]


def block_lines(plan: Plan) -> list[str]:
    """How to set the blocks of steps of a plan.

    Args:
        plan: A plan.

    Returns:
        Three lines; none for a plan without blocks of steps.
    """
    if not plan.policy.schedule.lengths or plan.secret == "window":
        return []
    return ["To publish so, set in [policy] of the zone's file:", *block_keys(plan)]


def stability_line(loop: Stability) -> str:
    """Loop gain, movement of demand and switching that raw prices cause.

    Args:
        loop: The loop (docs/loop.md).

    Returns:
        One line.
    """
    moved = "swings without end" if math.isinf(loop.movement) else f"moves by {loop.movement:.2%}"
    return (
        f"Closed loop at an elasticity of {loop.elasticity:g}: gain {loop.gain:.3f}, stable below"
        f" {loop.limit:.3g}; noise of {loop.noise:.2%} in the raw price and demand {moved} (root"
        f" mean square); a device at the usual price ± {HYSTERESIS:.0%} switches"
        f" {loop.switches:.1f} times a day by it."
    )


def block_keys(plan: Plan) -> list[str]:
    """The keys of [policy] that set the blocks of steps of a plan.

    Args:
        plan: A plan with blocks of steps.

    Returns:
        Two lines; of blocks that repeat, such as every day's, the first ones. Epsilons are rounded
        down.
    """
    lengths = plan.policy.schedule.lengths
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    blocks = [(n, plan.epsilon_t[at]) for n, at in zip(lengths, starts, strict=True)]
    parts = (n for n in range(1, len(blocks) + 1) if len(blocks) % n == 0)
    n = next(n for n in parts if blocks[:n] * (len(blocks) // n) == blocks)
    losses = (f"{math.floor(e * 1e6) / 1e6 or e:.6g}" for _, e in blocks[:n])
    return [f"block_steps = {[*lengths[:n]]}", f"block_epsilon = [{', '.join(losses)}]"]


def noise_lines(plan: Plan) -> list[str]:
    """Scale of the noise and loss of one release.

    Args:
        plan: The plan.

    Returns:
        Lines.
    """
    policy = plan.policy
    lines = [f"Noise: {policy.schedule.noise_words} {_span(plan.scale, '.0f')} Wh."]
    lines.append(
        f"Each release loses at most {_span(plan.epsilon_t, '.4f')} (eta = {policy.eta:g});"
        f" at any level of consumption at most {plan.epsilon_any:.4f}."
    )
    return lines


def _span(values: Sequence[float] | Sequence[int], form: str) -> str:
    """The smallest and the largest value, or the only one."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def cut_at(clamp: Clamp) -> str:
    """The upper ends of a clamp, and the lower ones where a class has one.

    Args:
        clamp: One for each class [Wh].

    Returns:
        The words.
    """
    highs = [at[1] if isinstance(at, tuple) else at for at in clamp]
    lows = [at[0] for at in clamp if isinstance(at, tuple)]
    return _span(highs, "d") + (f" and, where homes export, at {_span(lows, 'd')}" if lows else "")


def sensitivity_tables(cells: Mapping[str, Sequence[Cell]]) -> str:
    """One Markdown table for each varied parameter.

    Args:
        cells: Cells by parameter: "eta", "epsilon" or "houses".

    Returns:
        The tables.
    """
    return "\n\n".join(table([_DIALS[dial], *_rows(rows)]) for dial, rows in cells.items() if rows)


_DIALS = {
    dial: (name, "epsilon a step", "error of the raw load")
    for dial, name in (("eta", "eta"), ("epsilon", "epsilon promised"), ("houses", "houses"))
}


def _rows(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    return [(f"{c.at:g}", _or_none(c.epsilon_t), f"{c.error:.2%}") for c in cells]


def _or_none(epsilon: float) -> str:
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else "-"


def plan_figure(plan: Plan, models: Sequence[OccupancyModel]) -> Figure:
    """The noise of every step, and the leakage about every step with the promise.

    Args:
        plan: The plan.
        models: Theta.

    Returns:
        The figure.
    """
    with_leakage = plan.leakage is not None
    figure, axes = panels(2 if with_leakage else 1, 5.2 if with_leakage else 2.8)
    axes[0].set_title(f"{plan.secret}, epsilon = {plan.epsilon:g}: the noise of every step")
    day_line(axes[0], plan.scale, None, "#0b6e99")
    axes[0].set_ylabel("scale [Wh]")
    axes[0].set_ylim(bottom=0)
    if with_leakage:
        total = leakage_under_models(models, plan.losses, plan.policy.schedule.lengths).total
        contradictions = contradicted_houses(models, len(total))
        if len(models) > 1:
            lengths = plan.policy.schedule.lengths
            total = with_contradictions(
                total, plan.losses, lengths=lengths, contradictions=contradictions
            )
        day_line(axes[1], np.median(total, axis=1), "median house", "#999999", 2.5)
        day_line(axes[1], total.max(axis=1), "worst house", "#b3541e")
        if plan.secret == "interval":
            axes[1].axhline(plan.epsilon, color="#111111", linestyle="--", label="promise")
        axes[1].set_ylabel("leakage about the step")
        axes[1].set_ylim(bottom=0)
    for axis in axes:
        finish(axis)
    return figure


def bill_values(plan: Plan) -> dict[str, float | None]:
    """How much noise can change a bill.

    Args:
        plan: The plan.

    Returns:
        As expected, and at most, as shares of it.
    """
    return dict(zip(("expected", "most"), map(finite_or_none, plan.bill_change), strict=True))


def shortfall_values(plan: Plan, rho: float) -> dict[str, float] | None:
    """What lies above the clamp, and what an error of that part does to all prices alike.

    Args:
        plan: The plan.
        rho: Relative error to expect of the model.

    Returns:
        The shares; None without a clamp.
    """
    if not plan.clamp:
        return None
    off = _above_off(plan, rho)
    load, over, above = plan.prospect.load, plan.prospect.over, plan.prospect.missed
    rates = plan.prospect.weights**0.5  # relative errors of the rate, of a Wh each
    return {
        "above": float(above.mean() / load.mean()),
        "price": float((rates * off * over).mean()),
    }


def _above_off(plan: Plan, rho: float) -> float:
    """Relative error that is granted to readings above the clamp: more where no model has them."""
    return max(rho, _UNSEEN) if plan.policy.estimator == "releases" else rho


_UNSEEN = 0.3  # set by homes of London and New South Wales (docs/proofs/estimate.md)


def shortfall_lines(plan: Plan, rho: float) -> list[str]:
    """The same in a sentence.

    Args:
        plan: The plan.
        rho: Relative error to expect of the model.

    Returns:
        A line; none without a clamp.
    """
    share = shortfall_values(plan, rho)
    if share is None:
        return []
    return [
        f"Apart from noise: {share['above']:.1%} of the energy lies above the clamp and is put back"
        f" by its public expectation. Were readings there {_above_off(plan, rho):.0%} off, all"
        f" prices and bills would be off by {share['price']:.1%} in one direction."
    ]


def bill_lines(plan: Plan) -> list[str]:
    """How much noise can change a bill, in a sentence.

    Args:
        plan: The plan.

    Returns:
        A line.
    """
    expected, most = plan.bill_change
    return [
        f"How much noise can change a bill: a month's bill of a home by {expected:.2%} as expected,"
        f" and with 95 % by at most {most:.2%} (raw prices; of all classes of homes the largest)."
    ] * math.isfinite(most)


def block_values(plan: Plan) -> list[dict[str, float]]:
    """Length and epsilon of each block of steps.

    Args:
        plan: The plan.

    Returns:
        One for each block.
    """
    lengths = plan.policy.schedule.lengths
    return [
        {"length": length, "epsilon": plan.epsilon_t[sum(lengths[:k])]}
        for k, length in enumerate(lengths)
    ]
