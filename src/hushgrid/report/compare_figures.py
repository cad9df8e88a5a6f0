"""Charts of a comparison: error against promise, batteries at the meter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hushgrid.baselines.battery import LABELS
from hushgrid.baselines.meters import Score
from hushgrid.compare import Comparison
from hushgrid.report.shared import finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    "#2e7d32", "#66a61e", "#0b6e99", "#7570b3", "#a6761d",
    "#d95f02", "#e7298a", "#666666", "#1f78b4", "#b2182b",
)  # fmt: skip


def comparison_figure(curve: Sequence[Comparison]) -> Figure:
    """Error against promise, a line a method: estimated and raw."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for part, ax in zip(("estimated", "raw"), axes, strict=True):
        lines = _lines(ax, curve, part)
        ax.set(
            xscale="log",
            yscale="log",
            xlabel=f"promised epsilon ({curve[0].promise.secret})",
            ylabel="RMSRE, paper's formula",
            title=f"{part} price",
        )
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=lines, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _lines(ax: Axes, curve: Sequence[Comparison], part: str) -> list[Any]:
    """A line for each method that keeps the promise somewhere; no method at another promise."""
    lines = []
    shown = [m for m in curve[0].methods if m.name != "forecast"]
    for colour, method in zip(COLOURS, shown, strict=True):
        points = [c for c in curve if method.name in c.names]
        if not points:
            continue
        found, at = (
            [c.summary(method.name, part) for c in points],
            [c.promise.epsilon for c in points],
        )
        (line,) = ax.plot(
            at, [s.mean for s in found], "o-" if method.online else "s--", markersize=4,
            color=colour,
        )  # fmt: skip
        line.set_label(method.label)
        low, high = zip(*(s.ci95 for s in found), strict=True)
        ax.fill_between(at, low, high, alpha=0.15, color=colour)
        lines.append(line)
    (line,) = ax.plot(
        [c.promise.epsilon for c in curve],
        [c.summary("forecast", "raw").mean for c in curve],
        ":",
        color="#111111",
    )
    line.set_label("forecast, no readings")
    return [*lines, line]


def battery_figure(scores: Sequence[Score]) -> Figure:
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
