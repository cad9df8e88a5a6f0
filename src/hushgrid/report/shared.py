"""Tables and axes that reports share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with aligned columns; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in rows
    ]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """Axes below each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, 1)))


def day_line(axes: Axes, values: Any, label: str | None, color: str, width: float = 1.3) -> None:
    """A line with a tread for each step of the day."""
    hours = len(values) / 4
    edges = np.linspace(0, hours, len(values) + 1)
    axes.step(
        edges,
        [*values, values[-1]],
        where="post",
        label=label,
        color=color,
        linewidth=width,
    )
    axes.set_xlim(0, hours)
    ticks = range(0, int(hours) + 1, 4 if hours <= 24 else 24)
    axes.set_xticks(ticks, [f"{hour:02d}:00" if hours <= 24 else f"{hour} h" for hour in ticks])


def finish(axes: Axes) -> None:
    """A light grid, no box, a legend if there are labels."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
