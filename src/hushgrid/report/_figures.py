"""Tables and pages as text, axes for matplotlib, and charts for pages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.files.results import svg_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with aligned columns.

    Args:
        rows: Cells of each row; the first row is the head.

    Returns:
        The table.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in rows
    ]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with panels below each other.

    Args:
        rows: Number of panels.
        height: Height of the figure [inch].

    Returns:
        The figure and its axes, top first.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, 1)))


def day_line(
    axes: Axes,
    values: Any,
    label: str | None,
    color: str,
    width: float = 1.3,
    dash: str = "-",
) -> None:
    """Draw a step line with one value for each 15 minutes.

    Args:
        axes: Axes to draw on.
        values: (T,) values.
        label: Legend entry, or None.
        color: Colour of the line.
        width: Width of the line [pt].
        dash: Style of the line.
    """
    hours = len(values) / 4
    edges = np.linspace(0, hours, len(values) + 1)
    closed = [*values, values[-1]]
    axes.step(
        edges, closed, where="post", label=label, color=color, linewidth=width, linestyle=dash
    )
    axes.set_xlim(0, hours)
    ticks = range(0, int(hours) + 1, 4 if hours <= 24 else 24)
    axes.set_xticks(ticks, [f"{hour:02d}:00" if hours <= 24 else f"{hour} h" for hour in ticks])


def light_grid(axes: Axes) -> None:
    """Add a light grid and remove the box.

    Args:
        axes: Axes to change.
    """
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def finish(axes: Axes) -> None:
    """Add a light grid, and a legend if there are labels.

    Args:
        axes: Axes to change.
    """
    light_grid(axes)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)


def render(template: str, **values: Any) -> str:
    """A page of HTML without scripts and external addresses; texts are escaped.

    Args:
        template: Name of a file in `report/templates`.
        **values: What it uses.

    Returns:
        The page.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hushgrid.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"number": number, "loss": loss}
    return environment


def number(value: Any) -> str:
    """A figure for a page.

    Args:
        value: A number or None.

    Returns:
        Four digits of a float, "–" for None, else the text of the value.
    """
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def loss(value: float | None) -> str:
    """A loss for a page, where None means infinite.

    Args:
        value: The loss or None.

    Returns:
        The number, or "no bound".
    """
    return "no bound" if value is None else number(value)


def data_uri(content: bytes, kind: str) -> str:
    """A picture as an address that holds it.

    Args:
        content: Bytes of the picture.
        kind: Media type, such as "image/png".

    Returns:
        The data URI.
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


_INK = "#7d8793"  # readable on a light and on a dark page
BLUE, ORANGE = "#2b8fbd", "#c4622d"


def chart(draw: Callable[[Axes], None], height: float = 2.4) -> str | None:
    """A chart for light and dark pages.

    Args:
        draw: Draws on the axes.
        height: Height of the figure [inch].

    Returns:
        The data URI of an SVG; None without matplotlib.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return None
    keys = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: Any = {"svg.hashsalt": "hushgrid", "svg.fonttype": "none", "font.family": "sans-serif"}
    with mpl.rc_context(style | dict.fromkeys(keys, _INK)):
        figure, (axes,) = panels(1, height)
        draw(axes)
        finish(axes)
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        return data_uri(svg_text(figure).encode(), "image/svg+xml")
