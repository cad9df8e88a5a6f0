"""The closed loop as JSON, tables, prose and figures."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.lab.flexible import HOURS
from hushgrid.lab.loop import FIGURES, Loop
from hushgrid.report._figures import finish, panels, table
from hushgrid.report.promise import finite_or_none
from hushgrid.statistics import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LABELS = {
    "peak": "peak [kW]",
    "rebound": "rebound [kW]",
    "ramp": "ramp [kW]",
    "load_factor": "load factor",
    "switches": "switches a device",
    "cost": "bill a home",
    "cost_spread": "spread of bills",
    "generation": "generation a home",
    "comfort": "discomfort [°C h]",
    "unmet": "unmet [kWh]",
    "mismatch_cost": "mismatch cost",
    "rank_correlation": "rank correlation",
}
_COLORS = {
    "exact": "#333333", "raw": "#c4622d", "estimated": "#2b8fbd", "blocks": "#d9a441",
    "flat": "#999999", "tou": "#6a9a3b", "filtered": "#7a5aa6",
    "ahead": "#b2387a",
}  # fmt: skip


def _numbers(summary: Summary) -> dict[str, Any]:
    return {
        "mean": finite_or_none(summary.mean),
        "ci95": [finite_or_none(end) for end in summary.ci95],
    }


def loop_json(loop: Loop) -> dict[str, Any]:
    """The figures of a loop.

    Args:
        loop: The loop.

    Returns:
        The figures (docs/loop.md).
    """
    setting = loop.setting
    return {
        "houses": loop.houses,
        "days": setting.days,
        "worlds": loop.worlds,
        "secret": setting.promise.secret,
        "epsilon": setting.promise.epsilon,
        "eta": setting.eta,
        "delay": setting.delay,
        "smooth": setting.smooth,
        "flexible": asdict(setting.flexible),
        "prices": {
            name: {figure: _numbers(loop.summary(name, figure)) for figure in FIGURES}
            for name in loop.figures
        },
        "against_exact": {
            name: {figure: _numbers(loop.against(name, figure)) for figure in FIGURES}
            for name in _others(loop)
        },
        "attributed": {
            effect: {figure: _numbers(loop.against(price, figure, base)) for figure in FIGURES}
            for effect, (price, base) in EFFECTS.items()
            if {price, base} <= set(loop.figures)
        },
        "ahead_against": {
            base: {figure: _numbers(loop.against("ahead", figure, base)) for figure in FIGURES}
            for base in _beside_ahead(loop)
        },
        "gain": finite_or_none(loop.gain.mean),
        "gain_ci95": [finite_or_none(end) for end in loop.gain.ci95],
        "noise": {name: float(values.mean()) for name, values in loop.noise.items()},
        "epsilon_any": dict(loop.epsilon_any),
    }


def _others(loop: Loop) -> list[str]:
    """All prices but the exact one, where that was run."""
    return [name for name in loop.figures if name != "exact"] if "exact" in loop.figures else []


EFFECTS = {  # what an estimate does to the loop, in two parts that add up
    "smoothing": ("filtered", "exact"),
    "noise": ("estimated", "filtered"),
}
_NOT_LISTED = ("estimated", "flat", "tou")  # prices that a list of the next day stands against


def _beside_ahead(loop: Loop) -> list[str]:
    """The prices that the list of the next day is compared with, beside the exact one."""
    return [name for name in _NOT_LISTED if {name, "ahead"} <= set(loop.figures)]


_COMPARED = ("peak", "ramp", "switches", "generation")  # the figures of a comparison


def _percent(summary: Summary) -> str:
    low, high = summary.ci95
    return f"{100 * summary.mean:+.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def loop_table(loop: Loop) -> str:
    """Means a day with the half-width of their 95 % intervals, one row a figure.

    Args:
        loop: The loop.

    Returns:
        The table.
    """
    rows: list[tuple[str, ...]] = [("figure", *loop.figures)]
    for figure in FIGURES:
        summaries = [loop.summary(name, figure) for name in loop.figures]
        cells = [
            f"{summary.mean:.4g} ± {(summary.ci95[1] - summary.ci95[0]) / 2:.2g}"
            for summary in summaries
        ]
        rows.append((_LABELS[figure], *cells))
    return table(rows)


def loop_prose(loop: Loop) -> str:
    """What was run, the gain, and what the promise covers in the loop.

    Args:
        loop: The loop.

    Returns:
        Sentences, one a line.
    """
    s, gain = loop.setting, loop.gain
    lines = [
        f"- {loop.houses} homes over {s.days} days in {_worlds(loop)};"
        f" {s.flexible.automation:.0%} react by themselves (rule {s.flexible.rule}), people with"
        f" an elasticity of {s.flexible.elasticity:g}; the price in force is that of {s.delay + 1}"
        f" steps before{_LISTED if 'ahead' in loop.figures else ''}.",
    ]
    if not math.isnan(gain.mean):
        limit = (1 + s.smooth) / (1 - s.smooth)
        stable = f"below {limit:.3g}: to first order deviations fade" if gain.mean < limit else (
            f"{limit:.3g} or more: to first order demand swings without end")  # fmt: skip
        lines.append(
            f"- Loop gain under the exact price: {gain.mean:.2f} ({gain.ci95[0]:.2f} to"
            f" {gain.ci95[1]:.2f}), {stable}."
        )
    for name in loop.noise:
        if "exact" in loop.figures:
            lines.append(f"- {name} against exact: {_difference(loop, name, 'exact')}.")
    for effect, (price, base) in EFFECTS.items():
        if {price, base} <= set(loop.figures):
            lines.append(f"- {effect}, {price} against {base}: {_difference(loop, price, base)}.")
    for base in _beside_ahead(loop):
        lines.append(f"- ahead against {base}: {_difference(loop, 'ahead', base)}.")
    if loop.noise:
        lines.append(_PROMISE)
        bounds = ", ".join(f"{name} {value:.4g}" for name, value in loop.epsilon_any.items())
        lines.append(f"- Without that assumption all {s.days + 1} days reveal at most: {bounds}.")
    if loop.noise and s.eta < 1:
        lines.append(
            f"- The promise does not hold here: at eta = {s.eta:g} it trusts a public law of"
            " readings, and devices that react to prices are not in it. A service refuses this;"
            " give eta = 1."
        )
    return "\n".join(lines)


_LISTED = ", under ahead that of the list made at 18:00 of the day before"
_PROMISE = (
    "- The interval promise assumes that readings of different blocks of steps are linked through"
    " occupancy alone, and that occupancy does not react to prices. Devices with memory violate"
    " the first."
)


def _worlds(loop: Loop) -> str:
    if loop.worlds > 1:
        return f"{loop.worlds} independent worlds"
    return "one world, whose days are not quite independent"


def _difference(loop: Loop, name: str, base: str) -> str:
    """Peak, ramp, switches and generation against another price in the same worlds."""
    return ", ".join(
        f"{figure} {_percent(loop.relative(name, figure, base))}" for figure in _COMPARED
    )


def loop_figure(loop: Loop) -> Figure:
    """Loads and prices in force of the first two days.

    Args:
        loop: The loop.

    Returns:
        The figure.
    """
    figure, (above, below) = panels(2, 5.6)
    steps = min(192, len(next(iter(loop.loads.values()))))
    hours = np.arange(steps) * HOURS
    for name in loop.loads:
        style: Any = {"label": name, "color": _COLORS[name], "linewidth": 1.2, "where": "post"}
        above.step(hours, loop.loads[name][:steps] / (1000 * HOURS), **style)
        below.step(hours, loop.prices[name][:steps], **style)
    above.set_ylabel("load [kW]")
    below.set(ylabel="price in force [currency/kWh]", xlabel="hours")
    for axes in (above, below):
        finish(axes)
    return figure
