"""Tables and pages as text, axes for matplotlib, and small SVG plots.

SVG lines and bars take their colours from the style sheet of the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
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


def day_line(axes: Axes, values: Any, label: str | None, color: str, width: float = 1.3) -> None:
    """Draw a step line with one value for each 15 minutes.

    Args:
        axes: Axes to draw on.
        values: (T,) values.
        label: Legend entry, or None.
        color: Colour of the line.
        width: Width of the line [pt].
    """
    hours = len(values) / 4
    edges = np.linspace(0, hours, len(values) + 1)
    closed = [*values, values[-1]]
    axes.step(edges, closed, where="post", label=label, color=color, linewidth=width)
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


def html_document(title: str, style: str, blocks: Iterable[str]) -> str:
    """A page of HTML without scripts and external addresses.

    Args:
        title: Title, plain text.
        style: CSS.
        blocks: HTML of the body.

    Returns:
        The page.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>\n"
        + "\n".join(blocks)
        + "\n</body></html>\n"
    )


WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 10, 44

SvgLine = tuple[str, str, Sequence[float | None]]  # label, class, values


def line_plot(series: Sequence[SvgLine], *, x: str, y: str, title: str) -> str:
    """An SVG plot of step lines; a value of None leaves a gap.

    Args:
        series: Lines with label and CSS class.
        x: Label of the x axis.
        y: Label of the y axis.
        title: Accessible title.

    Returns:
        The SVG, "" without values.
    """
    values = [v for _, _, line in series for v in line if v is not None]
    count = max((len(line) for _, _, line in series), default=0)
    if not values or not count:
        return ""
    top = _nice(max(values))
    parts = [_frame(top, x, y, title, count)]
    for label, kind, line in series:
        parts.append(f'<path class="{kind}" d="{_path(line, count, top)}"><title>{escape(label)}')
        parts.append("</title></path>")
    return "".join([*parts, _legend([(label, kind) for label, kind, _ in series]), "</svg>"])


def _path(line: Sequence[float | None], count: int, top: float) -> str:
    words, drawing = [], False
    for i, value in enumerate(line):
        if value is None:
            drawing = False
            continue
        y = _y(value, top)
        words.append(f"{'L' if drawing else 'M'}{_x(i, count):.1f},{y:.1f}")
        words.append(f"L{_x(i + 1, count):.1f},{y:.1f}")
        drawing = True
    return "".join(words)


def bars(rows: Sequence[tuple[str, float, float | None]], *, title: str) -> str:
    """An SVG plot of horizontal bars.

    Args:
        rows: (label, value, mark), such as a certified and a promised loss; a mark may be None.
        title: Accessible title.

    Returns:
        The SVG, "" without rows.
    """
    if not rows:
        return ""
    top = _nice(max(max(value, mark or 0.0) for _, value, mark in rows))
    height, space = 34 * len(rows) + 26, WIDTH - 250
    parts = [_open(height, title)]
    for i, (label, value, mark) in enumerate(rows):
        y = 34 * i + 8
        parts.append(f'<text x="150" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        length = space * value / top
        parts.append(f'<rect class="bar" x="158" y="{y}" width="{length:.1f}" height="20"/>')
        inside = 158 + length + 6
        if mark is not None:
            at = 158 + space * mark / top
            parts.append(f'<path class="mark" d="M{at:.1f},{y - 4}v28"/>')
            inside = max(inside, at + 6)
        text = f"{value:.3g}" if mark is None else f"{value:.3g} of {mark:.3g}"
        parts.append(f'<text x="{inside:.1f}" y="{y + 14}">{text}</text>')
    legend = "bar: certified; line: promised"
    parts.append(f'<text class="axis" x="158" y="{height - 6}">{legend}</text>')
    return "".join([*parts, "</svg>"])


def _open(height: int, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>"
    )


def _frame(top: float, x: str, y: str, title: str, count: int) -> str:
    parts = [_open(HEIGHT, title)]
    for share in (0, 0.5, 1):
        at = _y(top * share, top)
        parts.append(f'<path class="grid" d="M{_LEFT},{at:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
            f"{top * share:.4g}</text>"
        )
    last = HEIGHT - 8
    for i in (0, count // 2, count - 1):
        middle = (_x(i, count) + _x(i + 1, count)) / 2
        place = f'x="{middle:.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle"'
        parts.append(f'<text class="axis" {place}>{i + 1}</text>')
    parts.append(f'<text class="axis" x="{WIDTH - _RIGHT}" y="{last}" text-anchor="end">')
    parts.append(f"{escape(x)}; {escape(y)}</text>")
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    if len(entries) < 2:
        return ""
    parts = []
    for i, (label, kind) in enumerate(entries):
        x = _LEFT + 10 + 150 * i
        parts.append(f'<path class="{kind}" d="M{x},{HEIGHT - 10}h22"/>')
        parts.append(f'<text class="axis" x="{x + 28}" y="{HEIGHT - 6}">{escape(label)}</text>')
    return "".join(parts)


def _x(i: int, count: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * i / count


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(value / top, 1.0)


def _nice(value: float) -> float:
    """A round number at or above the value.

    >>> _nice(601.2), _nice(0.0)
    (800.0, 1.0)
    """
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit * step >= value)
