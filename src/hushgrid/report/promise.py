"""Promises, plans and outlooks as text, JSON and a figure.

A promise has one text in plan, check, certificate, pages and API. It names the adversary for which
the bound holds and the assumptions it rests on; docs/adversary.md has a world in which a single
price shifts the odds by more than e^epsilon. An outlook is what a service promises about a zone,
what it publishes, and the expected error of the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushgrid.accounting.covers import Cover
from hushgrid.accounting.temporal import (
    contradicted_houses,
    leakage_under_models,
    with_contradictions,
)
from hushgrid.mechanism.policy import Policy, weaker_promise
from hushgrid.model.laws import Clamp
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.planning.expected_error import AS_GOOD, Prospect, Way
from hushgrid.planning.planner import Plan
from hushgrid.planning.stability import HYSTERESIS, Stability
from hushgrid.planning.tradeoff import Cell
from hushgrid.planning.windows import chosen_length
from hushgrid.report._figures import data_uri, day_line, finish, panels, render, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        "All prices together, past and future, shift the odds that a home is occupied in any one"
        " interval by at most a factor of {factor}"
    ),
    "window": (
        "All prices ever published shift the odds between any two stories about what a home does in"
        " any {window} by at most a factor of {factor}"
    ),
    "trajectory": (
        "All {steps} prices together shift the odds between any two courses of a home's occupancy"
        " by at most a factor of {factor}"
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
    "interval": (
        "An absence of several days is not covered: it spans many intervals, and all prices"
        " together can say more about it"
    ),
    "window": "What lasts longer than {window} is hidden less",
    "approximate": (
        "The odds can shift by more than that factor, with a probability that can exceed {delta:g}"
    ),
}


_HOME = "a second meter", "neighbours who act with you", "your bill"
_FOR_HOMES = {  # the words, and what they do not cover
    "step": (
        "Someone who thinks it equally likely that you are home or away, and knows the occupancy of"
        " all other homes, can at most come to {odds} by one price.",
        ("what several prices say together", *_HOME),
    ),
    "interval": (
        "Someone who thinks it equally likely that you are home or away can at most come to"
        " {odds}.",
        ("an absence of several days, about which all prices together can say more", *_HOME),
    ),
    "window": (
        "Pick any {window}. Someone who thinks two stories about your home in those {unit} equally"
        " likely, and knows everything else, can be brought to {odds} at most by all prices ever"
        " published. Longer absences are hidden less.",
        (
            "what you do before or after because of it (a car charged later, a house heated up"
            " again)",
            *_HOME,
        ),
    ),
}


class HomeWords(NamedTuple):
    """A promise in a householder's words; the exact sentence is `promise_sentence`.

    Attributes:
        words: What is promised; empty where it is about no home's question.
        not_covered: What is not, a phrase each.
    """

    words: str
    not_covered: tuple[str, ...]

    @property
    def content(self) -> dict[str, Any]:
        """Both under their public keys."""
        return {"words": self.words, "not_covered": list(self.not_covered)}

    @property
    def lines(self) -> list[str]:
        """Both, a line each."""
        uncovered = f"Not covered: {', '.join(self.not_covered)}."
        return [f"Promise: {self.words}", uncovered] if self.words else []


def home_words(secret: str, epsilon: float, window: str = "") -> HomeWords:
    """A promise in a householder's words, the same on all pages.

    Args:
        secret: "step", "interval", "window" or "trajectory".
        epsilon: Bound on the shift of the log odds.
        window: Of the secret window, its length in words, such as "24 hours".

    Returns:
        The words, and what they do not cover.

    >>> home_words("interval", 1.0).words[-25:]
    ' at most come to 73 : 27.'
    """
    words, not_covered = _FOR_HOMES.get(secret, ("", ()))
    unit = window.rpartition(" ")[2]
    unit = unit if unit.endswith("s") else f"{unit}s"
    return HomeWords(
        words.format(odds=_odds(epsilon), window=window, unit=unit), tuple(not_covered)
    )


def _odds(epsilon: float) -> str:
    """What even odds become at most, in parts of a hundred.

    >>> _odds(1.0), _odds(0.1), _odds(8.0)
    ('73 : 27', '52 : 48', '99.97 : 0.03')
    """
    less = 100 / (1 + math.exp(min(epsilon, 700.0)))
    digits = max(-math.floor(math.log10(less)), 0)
    less = round(less, digits)
    return f"{100 - less:.{digits}f} : {less:.{digits}f}"


def promise_sentence(
    policy: Policy,
    secret: str,
    epsilon: float,
    *,
    delta: float = 0.0,
    steps: int | None = None,
    continued: bool = False,
    window: str = "",
) -> str:
    """State a promise, the adversary it holds for and what it assumes.

    Args:
        policy: the policy that keeps it; its eta, horizon and schedule are used.
        secret: "step", "interval", "window" or "trajectory".
        epsilon: bound on the shift of the log odds.
        delta: of a trajectory promise; 0 for a pure one.
        steps: how many releases it is about; by default those of the horizon.
        continued: whether an interval promise is about all prices ever published.
        window: of the secret window, its length in words.

    Returns:
        Plain sentences, each ended by a full stop. Beside every interval promise one says that an
        absence of several days is not covered.

    >>> promise_sentence(Policy(0.04), "interval", 1.0)[:57]
    'All 96 prices together shift the odds that a home is occu'
    """
    if steps is None:
        steps = policy.horizon
    bound = _APPROXIMATE if delta else _BOUNDS[secret]
    if continued and secret == "interval":
        bound = _BOUNDS["continued"]
    values = {
        "factor": f"{_factor(epsilon)} (e^{epsilon:g})",
        "steps": f"{steps:,}",
        "delta": delta,
        "window": window,
    }
    parts = [f"{bound}, if {_conditions(policy, secret)}"]
    if secret in _MORE:
        parts.append(_MORE[secret])
    if delta:
        parts.append(_MORE["approximate"])
    if policy.schedule.caveat and secret != "window":
        parts.append(policy.schedule.caveat)
    return " ".join([*(f"{part.format(**values)}." for part in parts), *weaker_promise(policy)])


def _conditions(policy: Policy, secret: str) -> str:
    """The assumptions of the bound, as the end of a sentence; `planning.assumptions` lists all."""
    if secret == "window":
        return (
            "neither what it does before and after nor what others do depends on it except through"
            " prices"
        )
    parts = ["the published occupancy model is true"]
    if policy.eta == 0:
        parts.append("every reading follows its published law")
    elif policy.eta < 1:
        parts.append(f"at least {100 * (1 - policy.eta):g} % of each reading's law is as published")
    if secret != "step":
        parts.append("readings of different intervals are linked only through occupancy")
    return " and ".join(parts) if len(parts) < 3 else f"{parts[0]}, {parts[1]} and {parts[2]}"


def _factor(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits, so that it is never stated too small.

    >>> _factor(0.5), _factor(1.0), _factor(0.1), _factor(12.0)
    ('1.65', '2.72', '1.11', '163,000')
    """
    if epsilon > 700:
        return f"e^{epsilon:g}"
    value = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    top = math.ceil(value / unit - 1e-9) * unit
    return f"{top:.2f}".rstrip("0").rstrip(".") if top < 1000 else f"{top:,.0f}"


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
        "delta": plan.delta,
        "eta": plan.policy.eta,
        "rho": rho,
        "epsilon_t": [finite_or_none(e) for e in plan.epsilon_t],
        "scale": list(plan.scale),
        "clamp": list(plan.clamp) or None,
        "gaussian": plan.policy.schedule.terms.get("gaussian"),
        "blocks": _blocks(plan),
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
        "bill_change": _bill_change(plan),
        "shortfall": _shortfall(plan, rho),
        "assumptions": list(plan.assumptions),
        "covers": covers_json(covers),
    }


def covers_json(covers: Sequence[Cover]) -> list[dict[str, Any]]:
    """What a promise covers under its public keys.

    Args:
        covers: Figures of each duration.

    Returns:
        The values; a shift without a bound is None.
    """
    return [cover._asdict() | {"shift": finite_or_none(cover.shift)} for cover in covers]


def covers_lines(covers: Sequence[Cover], words: str = "") -> list[str]:
    """What a promise covers, in sentences and a table.

    Args:
        covers: Figures of each duration.
        words: The sentences; empty: all of them.

    Returns:
        Lines of text.
    """
    rows = [covers_head(), *covers_rows(covers_json(covers))]
    return [words or COVERS_WORDS, *table(rows).splitlines()]


COVERS_BRIEF = "What all prices say about a home; AUC of the best attack, 0.5 is a guess:"
COVERS_WORDS = (
    "What all prices can say about a home in a stretch of time, by someone who knows all else."
    " Longer absences are hidden less. The shift of odds is a bound, as a power of e. So is the AUC"
    " of the best attack (0.5 is a guess, 1 is certainty) on a home that uses its limit; a typical"
    " home is an example."
)


def covers_head() -> tuple[str, ...]:
    """The head of the table of `covers_rows`."""
    return ("stretch", "shift of odds", "AUC, at the limit", "AUC, typical home")


def covers_rows(covers: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Cells of each duration.

    Args:
        covers: As `covers_json` has them.

    Returns:
        A row for each; figures are rounded up.
    """

    def up(value: float | None, digits: int) -> str:
        unit = 10**digits
        return "-" if value is None else f"{math.ceil(value * unit - 1e-6) / unit:.{digits}f}"

    return [
        (
            _STRETCHES[cover["duration"]],
            up(cover["shift"], 2),
            up(cover["auc_limit"], 3),
            up(cover["auc_typical"], 3),
        )
        for cover in covers
    ]


_STRETCHES = {
    "PT15M": "15 minutes",
    "P1D": "a day",
    "P7D": "a week",
    "P14D": "two weeks",
    "P30D": "a month",
}


def finite_or_none(value: float | None) -> float | None:
    """The value, or None where it is None, infinite or not a number.

    Args:
        value: A number or None.

    Returns:
        The finite number or None.
    """
    return value if value is not None and math.isfinite(value) else None


def _advice(prospect: Prospect, rho: float) -> str:
    """The best publication that the models allow, in words."""
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
        delta=plan.delta,
        continued=plan.running,
        window=window,
    )


def _plan_lines(plan: Plan, rho: float, endless: float | None) -> tuple[list[str], list[str]]:
    """Lines about noise and leakage, and about errors."""
    policy, prospect, lines = plan.policy, plan.prospect, _noise_lines(plan)
    if policy.clamp:
        lines.append(f"Readings are cut at {_cut_at(plan.clamp)} Wh, by density class.")
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
        *_bill_lines(plan),
        *_shortfall_lines(plan, rho),
        _advice(prospect, rho),
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


def _noise_lines(plan: Plan) -> list[str]:
    """Scale of the noise and loss of one release."""
    policy = plan.policy
    lines = [f"Noise: {policy.schedule.noise_words} {_span(plan.scale, '.0f')} Wh."]
    if policy.schedule.per_release:
        lines.append(
            f"Each release loses at most {_span(plan.epsilon_t, '.4f')} (eta = {policy.eta:g});"
            f" at any level of consumption at most {plan.epsilon_any:.4f}."
        )
    return lines


def _span(values: Sequence[float] | Sequence[int], form: str) -> str:
    """The smallest and the largest value, or the only one."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _cut_at(clamp: Clamp) -> str:
    """The upper ends of a clamp, and the lower ones where a class has one."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A policy evaluated over its first days.

    Attributes:
        plan: The plan of those days.
        secret: What is promised.
        epsilon: Epsilon of the promise.
        steps: Number of releases it covers.
        leakage_day: Leakage about one step of one house from the first day's releases, or None.
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


def _bill_change(plan: Plan) -> dict[str, float | None]:
    """How much noise can change a bill."""
    return dict(zip(("expected", "most"), map(finite_or_none, plan.bill_change), strict=True))


def _shortfall(plan: Plan, rho: float) -> dict[str, float] | None:
    """What lies above the clamp, and what an error of that part does to all prices alike."""
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


def _shortfall_lines(plan: Plan, rho: float) -> list[str]:
    share = _shortfall(plan, rho)
    if share is None:
        return []
    return [
        f"Apart from noise: {share['above']:.1%} of the energy lies above the clamp and is put back"
        f" by its public expectation. Were readings there {_above_off(plan, rho):.0%} off, all"
        f" prices and bills would be off by {share['price']:.1%} in one direction."
    ]


def _bill_lines(plan: Plan) -> list[str]:
    expected, most = plan.bill_change
    return [
        f"How much noise can change a bill: a month's bill of a home by {expected:.2%} as expected,"
        f" and with 95 % by at most {most:.2%} (raw prices; of all classes of homes the largest)."
    ] * math.isfinite(most)


def figures(outlook: Outlook) -> dict[str, float | None]:
    """What one price, those of the first day and of the first week say about one interval.

    Args:
        outlook: The outlook.

    Returns:
        `step`, `day`, `week`; None where there is no bound.
    """
    step = finite_or_none(max(outlook.plan.epsilon_t))
    return {"step": step, "day": outlook.leakage_day, "week": outlook.leakage_week}


def _blocks(plan: Plan) -> list[dict[str, float]]:
    """Length and epsilon of each block of steps."""
    lengths = plan.policy.schedule.lengths
    return [
        {"length": length, "epsilon": plan.epsilon_t[sum(lengths[:k])]}
        for k, length in enumerate(lengths)
    ]


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
            "blocks": _blocks(plan),
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
        "bill_change": _bill_change(plan),
        "shortfall": _shortfall(plan, outlook.rho),
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
    lines = [*words, f"Exactly: {promise}", *_noise_lines(plan)]
    if outlook.leakage_day is not None and outlook.secret != "window":
        lines.append(
            f"Leakage about one interval of one house from the first day's {outlook.day} releases:"
            f" at most {outlook.leakage_day:.3f}; {_of_others(outlook)}."
        )
    if outlook.leakage is not None:
        lines.append(f"From all releases, past and future: at most {outlook.leakage:.3f}.")
    if policy.clamp:
        lines.append(f"Readings are cut at {_cut_at(plan.clamp)} Wh, by group of houses.")
    load = "the public's best estimate" if policy.publish == "estimate" else "the noisy load"
    lines += [
        f"Expected price error: {price_error(outlook):.1%} of the exact price (root mean square;"
        f" the price is that of {load}); {price_error(outlook, 'forecast'):.1%} for a forecast"
        " without any reading.",
        f"Expected error of the noisy load: {plan.prospect.share(outlook.rho):.1%}.",
        *_bill_lines(plan),
        *_shortfall_lines(plan, outlook.rho),
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
        f"from {name} {value:.3f} (odds times {_factor(value)})"
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
    return [_advice(prospect, rho)]
