"""Charts of a comparison: error against promise, batteries at the meter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hushgrid.baselines import Method
from hushgrid.baselines.battery import LABELS
from hushgrid.baselines.meters import BatteryScore
from hushgrid.compare import Comparison
from hushgrid.intervals import Summary
from hushgrid.report.shared import finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS = ("#0a7d3c", "#57b33e", "#0b6e99")  # hushgrid at its three trusts, drawn wider
OTHERS = ("#7570b3", "#a6761d", "#d95f02", "#e7298a", "#666666", "#1fa4d4", "#b2182b")


def comparison_figure(curve: Sequence[Comparison]) -> Figure:
    """Error against promise, a line a method: estimated, the same over the forecast's, and raw."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 5.6), layout="constrained")
    axes = figure.subplots(1, 3)
    _errors(axes[0], curve, "estimated")
    _gains(axes[1], curve)
    _errors(axes[2], curve, "raw")
    days = curve[0].days
    for ax in axes:
        ax.set(xscale="log", xlabel=f"promised epsilon, secret {curve[0].promise.secret}")
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(
        handles=axes[2].get_lines(), loc="outside lower center", frameon=False, ncols=6,
        title=f"means of {days} days; shaded: 95 % intervals of paired days; dashed: needs the"
        " whole day first",
    )  # fmt: skip
    return figure


def _errors(ax: Axes, curve: Sequence[Comparison], part: str) -> None:
    """A line for each method that keeps the promise somewhere; no method at another promise."""
    for method, look in _looks(curve):
        points = [c for c in curve if method.name in c.names]
        found = [c.summary(method.name, part) for c in points]
        _line(ax, points, found, method.label, look)
    forecast = [c.summary("forecast", part) for c in curve]
    at = [c.promise.epsilon for c in curve]
    ax.plot(at, [s.mean for s in forecast], ":", color="#111111", label="forecast, no readings")
    ax.set(yscale="log", ylabel="RMSRE, paper's formula", title=f"{part} price")


def _gains(ax: Axes, curve: Sequence[Comparison]) -> None:
    """The estimated error over the forecast's on the same days: what readings are worth."""
    heights = [1.0]
    for method, look in _looks(curve):
        points = [c for c in curve if method.name in c.names]
        found = [c.ratio(method.name, "forecast", "estimated") for c in points]
        _line(ax, points, found, method.label, look)
        low, high = zip(*(s.ci95 for s in found), strict=True)
        at = [c.promise.epsilon for c in points]
        ax.fill_between(at, low, high, alpha=0.12, color=look["color"], linewidth=0)
        heights += [s.mean for s in found]
    ax.axhline(1.0, linestyle=":", color="#111111")
    ax.set(ylabel="error over the forecast's", title="estimated price, over the forecast")
    ax.set_ylim(min(heights) - 0.05, max(heights) + 0.05)  # few days: wide intervals


def _looks(curve: Sequence[Comparison]) -> list[tuple[Method, dict[str, Any]]]:
    """The methods that some promise of the curve is kept by, each with its line."""
    ours, others = iter(OURS), iter(OTHERS)
    out = []
    for method in curve[0].methods:
        if method.name == "forecast":
            continue
        own = method.name == "bound" or method.name.startswith("hushgrid")
        style = {"linestyle": "-", "marker": "o"} if method.online else {
            "linestyle": "--", "marker": "s"}  # fmt: skip
        look = {"color": next(ours if own else others), "linewidth": 2.4 if own else 1.3, **style}
        if any(method.name in c.names for c in curve):
            out.append((method, look))
    return out


def _line(
    ax: Axes, points: Sequence[Comparison], found: Sequence[Summary], label: str, look: Any
) -> None:
    """The means of one method."""
    at = [c.promise.epsilon for c in points]
    ax.plot(at, [s.mean for s in found], markersize=4, label=label, **look)


def battery_figure(scores: Sequence[BatteryScore]) -> Figure:
    """AUC against battery size and against energy moved."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    size_axes, moved_axes = figure.subplots(1, 2)
    for name, label in LABELS.items():
        mine = [s for s in scores if s.name == name]
        low, high = zip(*(s.auc.ci95 for s in mine), strict=True)
        auc = [s.auc.mean for s in mine]
        size_axes.plot([s.size for s in mine], auc, "o-", markersize=4, label=label)
        size_axes.fill_between([s.size for s in mine], low, high, alpha=0.15)
        moved_axes.plot([s.moved for s in mine], auc, "o-", markersize=4, label=label)
        for s in (mine[0], mine[-1]):
            moved_axes.annotate(f"{s.size:g}u", (s.moved, s.auc.mean), (4, 4), fontsize=7,
                                textcoords="offset points")  # fmt: skip
    for s in scores:
        if s.name in ("open", "prior"):
            text = "no battery" if s.name == "open" else "public model alone"
            for ax in (size_axes, moved_axes):
                ax.axhline(s.auc.mean, linestyle=":", color="#555555")
                ax.annotate(text, (0.02, s.auc.mean), xycoords=("axes fraction", "data"),
                            fontsize=7, va="bottom")  # fmt: skip
    size_axes.set(xscale="log", xlabel="capacity, in a house's bound", ylabel="AUC at the meter")
    sizes = sorted({s.size for s in scores if s.size > 0})
    size_axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    size_axes.minorticks_off()
    moved_axes.set(xlabel="energy moved / energy used", ylabel="AUC at the meter")
    for ax in (size_axes, moved_axes):
        finish(ax)
    return figure
