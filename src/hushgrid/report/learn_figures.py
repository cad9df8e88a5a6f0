"""Pictures of a learned zone: chains over the day, laws by occupancy, decoded days."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.arrays import Floats, Int8s, Ints
from hushgrid.learn.publish import PublishedGroup
from hushgrid.report.shared import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b6e99", "#b3541e", "#3b7d3b", "#7a4fa3", "#8a6d3b", "#555555", "#c2185b", "#00695c")


def chain_figure(public: Sequence[PublishedGroup], seconds: int) -> Figure:
    """Chances of leaving and coming, and of being at home, over a weekday and a weekend day."""
    figure, axes = panels(3, 7.8)
    steps = 86_400 // seconds
    hours = np.arange(steps + 1) * seconds / 3600
    for j, one in enumerate(public):
        for part, style in ((0, "-"), (1, ":")):
            these = slice(part * steps, (part + 1) * steps)
            homes = "1 home" if one.homes == 1 else f"{one.homes} homes"
            label = f"group {j + 1}, {homes}" if part == 0 else None
            a = one.chain.transition[these]
            colour = COLOURS[j % len(COLOURS)]
            for axis, y in zip(axes, (a[:, 1, 0], a[:, 0, 1], one.chain.home[these]), strict=True):
                closed = [*y, y[-1]]
                axis.step(
                    hours, closed, style, where="post", color=colour, label=label, linewidth=1.2
                )
    minutes = f"in {seconds // 60} min"
    names = (f"chance of leaving {minutes}", f"chance of coming {minutes}", "share at home")
    for axis, name in zip(axes, names, strict=True):
        axis.set_ylabel(name)
        axis.set_xlim(0, 24)
        axis.set_xticks(range(0, 25, 4), [f"{h:02d}:00" for h in range(0, 25, 4)])
        axis.set_ylim(bottom=0)
        _bare(axis)
    axes[2].set_ylim(0, 1)
    axes[2].set_xlabel("time of day; solid: weekdays, dotted: weekends")
    _legend(figure, axes[0])
    return figure


def law_figure(public: Sequence[PublishedGroup], bound: int) -> Figure:
    """The laws of absent and present by slot group; the first bin is 0 Wh."""
    figure, axes = panels(len(public), 2.2 * len(public) + 0.9)
    edges = np.unique(np.round(np.geomspace(1, bound + 2, 60)).astype(int)) - 1
    for j, (axis, one) in enumerate(zip(axes, public, strict=True)):
        absent, present = one.laws(bound)
        for law, name, colour in [
            (absent, "absent", "#111111"),
            *(
                (law, f"present from {start:02d}:00", COLOURS[g % len(COLOURS)])
                for g, (law, start) in enumerate(zip(present, one.starts, strict=True))
            ),
        ]:
            cdf = np.concatenate([[0.0], np.cumsum(law.pmf)])
            mass = np.diff(cdf[edges]) / np.diff(np.log1p(edges))
            width = 2.0 if name == "absent" else 1.2
            axis.step(
                edges + 1,
                [*mass, mass[-1]],
                where="post",
                label=name,
                color=colour,
                linewidth=width,
            )
        axis.set_xscale("log")
        axis.set_xlim(1, bound + 2)
        ticks = [0, *(10**k for k in range(len(str(bound))) if 10**k <= bound)]
        axis.set_xticks([tick + 1 for tick in ticks], [f"{tick}" for tick in ticks])
        axis.minorticks_off()
        homes = "1 home" if one.homes == 1 else f"{one.homes} homes"
        axis.set_title(f"group {j + 1}, {homes}", fontsize=9)
        axis.set_ylabel("density")
        _bare(axis)
    axes[-1].set_xlabel("reading [Wh a step], logarithm of reading + 1")
    _legend(figure, axes[0])
    return figure


def days_figure(
    wh: Floats,
    post: Floats,
    shown: Ints,
    seconds: int,
    names: Sequence[str],
    labels: Int8s | None = None,
) -> Figure:
    """Example days with the decoded chance that somebody is at home, and what labels say."""
    figure, axes = panels(len(names), 2.1 * len(names) + 0.9)
    hours = np.arange(wh.shape[1] + 1) * seconds / 3600
    clock = np.arange(0, wh.shape[1], max(6 * 3600 // seconds, 1))
    ticks = [
        f"{_WEEK[int(shown[i]) // 86_400 % 7]} {int(shown[i]) % 86_400 // 3600:02d} h"
        if i % (86_400 // seconds) == 0
        else f"{int(shown[i]) % 86_400 // 3600:02d} h"
        for i in clock
    ]
    for h, (axis, x, p, name) in enumerate(zip(axes, wh, post, names, strict=True)):
        chance = axis.twinx()
        chance.fill_between(
            hours, 0, [*p, p[-1]], step="post", color="#9cc5d6", alpha=0.55, linewidth=0,
            label="chance that somebody is at home",
        )  # fmt: skip
        if labels is not None and (labels[h] >= 0).any():
            known = np.where(labels[h] >= 0, labels[h], np.nan).astype(float)
            chance.step(
                hours, [*known, known[-1]], where="post", color="#333333", linewidth=1.0,
                linestyle="--", label="told by residents",
            )  # fmt: skip
        chance.set_ylim(0, 1.05)
        chance.set_yticks([0, 0.5, 1])
        chance.spines[["top"]].set_visible(False)
        axis.step(hours, [*x, x[-1]], where="post", color="#b3541e", linewidth=1.1, label="reading")
        axis.set_zorder(chance.get_zorder() + 1)
        axis.patch.set_visible(False)
        axis.set_title(f"meter {name}", fontsize=9)
        axis.set_ylabel("Wh a step")
        axis.set_xlim(0, hours[-1])
        axis.set_ylim(bottom=0)
        axis.set_xticks(clock * seconds / 3600, ticks)
        _bare(axis)
        if h == 0:
            _legend(figure, axis, chance)
    return figure


_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _bare(axis: Axes) -> None:
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, *axes: Axes) -> None:
    """One legend above all panels."""
    pairs = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    if pairs:
        handles, names = zip(*pairs, strict=True)
        figure.legend(
            handles, names, loc="outside upper center", ncols=3, frameon=False, fontsize=8
        )
