"""A learned zone in numbers, words and pictures."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hushgrid.learn.histories import AILMENTS
from hushgrid.learn.learned import Learned
from hushgrid.learn.publish import Public
from hushgrid.report.shared import finish, panels, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0b6e99", "#b3541e", "#3b7d3b", "#7a4fa3", "#8a6d3b", "#555555", "#c2185b", "#00695c")


def learned_content(
    found: Learned, public: Sequence[Public], values: Mapping[str, Any]
) -> dict[str, Any]:
    """model.json: `values` (the JSON of the command) and what decoding and validation need."""
    models = found.shared.models
    single = len(public) != models.homes
    prototypes = []
    for j, one in enumerate(public):
        at = 0 if single else j
        prototypes.append(
            {
                "homes": one.homes,
                "absent": one.absent,
                "present": list(one.present),
                "transition": one.chain.transition.tolist(),
                "hidden": {
                    "initial": models.initial[at].tolist(),
                    "transition": models.transition[at].tolist(),
                    "natural": models.natural[at].tolist(),
                    "seen": models.seen[at].tolist(),
                    "edges": models.edges[at].tolist(),
                },
            }
        )
    position = {int(i): n for n, i in enumerate(found.usable)}
    homes = []
    for i, (name, ails) in enumerate(zip(found.ids, found.ails, strict=True)):
        n = position.get(i)
        home: dict[str, Any] = {"meter": name, "ails": list(ails)}
        if n is not None:
            mean, sd, days = found.daily[n].tolist()
            home |= {
                "prototype": 0 if single else int(found.shared.which[n]),
                "home_share": float(found.home_share[n]),
                "score": {"mean": mean, "sd": sd, "days": days},
            }
        homes.append(home)
    return {**values, "prototypes": prototypes, "homes": homes}


def learned_prose(values: Mapping[str, Any]) -> str:
    """What was learned, how good it is, how far to trust it, and whether it leaks."""
    lines = [
        f"Zone {values['zone']}: {values['houses']} houses, {values['fitted']} fitted, in"
        f" {values['groups']} groups that share a model; laws: {values['law']}.",
        f"Prior: {values['prior']}, worth {values['days']:g} days.",
        f"Log-likelihood {values['log_likelihood']:.0f},"
        f" {values['log_likelihood_per_reading']:.4f} a reading; {values['converged']} of"
        f" {values['fitted']} homes converged.",
    ]
    held = values.get("held_out")
    if held:
        lines.append(
            f"Held out: the last {held['days']:g} days score {held['log_likelihood']:.3f} a"
            f" reading; one law for all hours scores {held['plain']:.3f}. Worst slot"
            f" {held['worst_slot']}: {held['worst']:.3f}."
        )
    for what, names in values["ailments"].items():
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        lines.append(f"{len(names)} homes: {AILMENTS.get(what, what)} ({shown}).")
    counts = {k: v for k, v in values["readings"].items() if v}
    if counts:
        lines.append("Readings: " + ", ".join(f"{v} {k}" for k, v in counts.items()) + ".")
    accuracy = values.get("accuracy") or {}
    if accuracy:
        rows = [("trained", "06-22 h", "all hours", "readings")]
        for key, name in _TRAINED.items():
            one = accuracy[key]
            rows.append((name, f"{one['06-22']:.3f}", f"{one['all']:.3f}", str(one["readings"])))
        lines += ["", table(rows), ""]
    lines += [
        f"Trust: {values['trust']['reasoning']}.",
        f"Eta in the zone file: {values['eta']:g} ({values['eta_basis']}).",
        f"Provenance: {values['provenance']}. {values['leaks']}",
        f"Bound: {values['bound']} Wh a step, {values['bound_by']}.",
    ]
    return "\n".join(lines)


_TRAINED = {
    "without_labels": "without labels",
    "without_labels_on_the_rest": "without labels, on unlabelled days",
    "few_days_on_the_rest": "with 7 labelled days, on the others",
}


def ailment_names(found: Learned) -> dict[str, list[str]]:
    """Which homes have which ailment."""
    by: dict[str, list[str]] = {}
    for name, ails in zip(found.ids, found.ails, strict=True):
        for one in ails:
            by.setdefault(one, []).append(name)
    return by


def chain_figure(public: Sequence[Public], seconds: int) -> Figure:
    """Chances of leaving and coming, and of being at home, over a weekday and a weekend day."""
    figure, axes = panels(3, 7.5)
    hours = np.arange(86_400 // seconds) * seconds / 3600
    for j, one in enumerate(public):
        for part, style in ((0, "-"), (1, ":")):
            these = slice(part * len(hours), (part + 1) * len(hours))
            label = f"group {j + 1}" if part == 0 else None
            a = one.chain.transition[these]
            colour = COLOURS[j % len(COLOURS)]
            for axis, y in zip(axes, (a[:, 1, 0], a[:, 0, 1], one.chain.home[these]), strict=True):
                axis.step(hours, y, style, where="post", color=colour, label=label, linewidth=1.2)
    names = ("chance of leaving", "chance of coming", "at home (dotted: weekend)")
    for axis, name in zip(axes, names, strict=True):
        axis.set_ylabel(name)
        axis.set_xlim(0, 24)
        axis.set_xticks(range(0, 25, 4), [f"{h:02d}:00" for h in range(0, 25, 4)])
        axis.set_ylim(bottom=0)
        finish(axis)
    return figure


def law_figure(public: Sequence[Public], bound: int) -> Figure:
    """The laws of absent and present by slot group."""
    figure, axes = panels(len(public), 2.4 * len(public) + 0.6)
    for j, (axis, one) in enumerate(zip(axes, public, strict=True)):
        absent, present = one.laws(bound)
        edges = np.unique(np.round(np.geomspace(1, bound + 1, 60)).astype(int))
        for law, name, colour in [
            (absent, "absent", "#111111"),
            *(
                (law, f"present from {start:02d}:00", COLOURS[g % len(COLOURS)])
                for g, (law, start) in enumerate(zip(present, one.starts, strict=True))
            ),
        ]:
            cdf = np.concatenate([[0.0], np.cumsum(law.pmf)])
            mass = np.diff(cdf[np.minimum(edges, bound + 1)]) / np.diff(np.log(edges))
            axis.step(edges[:-1], mass, where="post", label=name, color=colour, linewidth=1.2)
        axis.set_xscale("log")
        axis.set_title(f"group {j + 1}, {one.homes} homes", fontsize=9)
        axis.set_ylabel("density of log Wh")
        finish(axis)
    axes[-1].set_xlabel("reading [Wh a step]")
    return figure


def days_figure(
    wh: NDArray[np.float64], post: NDArray[np.float64], seconds: int, names: Sequence[str]
) -> Figure:
    """Example days with the decoded chance that somebody is at home."""
    figure, axes = panels(len(names), 2.0 * len(names) + 0.6)
    hours = np.arange(wh.shape[1]) * seconds / 3600
    for axis, x, p, name in zip(axes, wh, post, names, strict=True):
        axis.fill_between(hours, 0, np.nanmax(x) * p, step="post", color="#cfe3ec", label="at home")
        axis.step(hours, x, where="post", color="#b3541e", linewidth=1.0, label="reading [Wh]")
        axis.set_title(name, fontsize=9)
        axis.set_xlim(0, hours[-1] + seconds / 3600)
        finish(axis)
    axes[-1].set_xlabel("hours from the first step shown")
    return figure


def html_page(title: str, prose: str, pictures: Mapping[str, bytes]) -> str:
    """One page with PNG pictures in it; it asks nothing of any network."""
    parts = [f"<h1>{html.escape(title)}</h1>", f"<pre>{html.escape(prose)}</pre>"]
    for name, picture in pictures.items():
        word, data = html.escape(name), base64.b64encode(picture).decode()
        parts.append(f'<h2>{word}</h2><img alt="{word}" src="data:image/png;base64,{data}">')
    style = "body{font:15px sans-serif;max-width:60em;margin:2em auto}pre{white-space:pre-wrap}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style>{''.join(parts)}</html>\n"
    )
