"""A learned zone as JSON, text, a page of HTML and figures.

Figures: chains over the day, laws by occupancy, decoded days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.learning.evaluation import PublishedGroup
from hushgrid.learning.export import ENOUGH, ExportedModels, OperatorFigures, ZoneChoices, drowned
from hushgrid.learning.histories import AILMENTS, Histories
from hushgrid.learning.learner import HeldOut, Learned
from hushgrid.report._figures import data_uri, light_grid, panels, render, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def learned_values(
    learned: Learned,
    exported: ExportedModels,
    figures: OperatorFigures,
    choices: ZoneChoices,
    histories: Histories,
) -> dict[str, Any]:
    """The JSON of `hushgrid learn`.

    Args:
        learned: What was learned.
        exported: The models for the zone file.
        figures: Figures for the operator.
        choices: Zone, time zone, budgets.
        histories: The histories, with counts of the rows of the file.

    Returns:
        The values.
    """
    n_readings = max(int(learned.fits.readings.sum()), 1)
    total = float(learned.fits.log_likelihood.sum())
    return {
        "zone": choices.zone,
        "houses": len(learned.ids),
        "fitted": len(learned.usable),
        "groups": len(exported.public),
        "log_likelihood": total,
        "log_likelihood_per_reading": total / n_readings,
        "converged": int(learned.fits.converged.sum()),
        "iterations": int(learned.fits.iterations.max()),
        "provenance": exported.provenance,
        "epsilon_spent": exported.epsilon,
        "leaks": exported.note,
        "bound": exported.bound - exported.export,
        **({"export": exported.export} if exported.export else {}),
        "bound_by": exported.bound_by,
        "law": learned.family,
        "law_tried": learned.tried,
        "prior": learned.habits,
        "days": learned.terms.days,
        "seconds": learned.seconds,
        "time_zone": choices.time_zone,
        "starts": list(learned.starts),
        **({"seasons": [list(months) for months in learned.seasons]} if learned.seasons else {}),
        "groups_tried": {str(n): score for n, score in learned.groups_tried.items()},
        "begins": learned.begins,
        "ends": learned.ends,
        "ailments": _ailment_names(learned),
        "vacant_days": {n: int(d) for n, d in zip(learned.ids, learned.vacant, strict=True) if d},
        "readings": dict(histories.counts),
        "problems": list(histories.problems),
        "trust": {
            "lower": figures.trust.lower,
            "upper": figures.trust.upper,
            "suggested": figures.trust.suggested,
            "confidence": figures.trust.confidence,
            "reasoning": figures.trust.reasoning,
        },
        "accuracy": figures.accuracy,
        "held_out": _held(learned, exported, figures.held_out),
        "drowned": exported.provenance == "pooled"
        and drowned(len(learned.ids), choices.pool_budget or 0.0),
    }


def _held(
    learned: Learned, exported: ExportedModels, held_out: HeldOut | None
) -> dict[str, Any] | None:
    if held_out is None:
        return None
    worst = int(np.nanargmin(held_out.by_slot)) if np.isfinite(held_out.by_slot).any() else 0
    minute = worst * learned.seconds // 60
    return {
        "days": held_out.days,
        "noise": exported.provenance == "pooled",
        "log_likelihood": held_out.log_likelihood,
        "plain": float(np.nanmean(held_out.plain)),
        "by_slot": held_out.by_slot.tolist(),
        "plain_by_slot": held_out.plain.tolist(),
        "worst_slot": f"{minute // 60:02d}:{minute % 60:02d}",
        "worst": float(held_out.by_slot[worst]),
        "forecast_error": held_out.forecast,
        "slot_mean_error": held_out.slot_mean,
    }


def learned_content(
    learned: Learned, exported: ExportedModels, figures: OperatorFigures, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of model.json.

    Args:
        learned: What was learned.
        exported: The models for the zone file.
        figures: Figures for the operator.
        values: Values of `learned_values`.

    Returns:
        `values` with the models and figures that decoding and validation need, and without
        held-out scores: they are for the operator's report only.
    """
    models = exported.models
    prototypes = [
        {
            "homes": group.homes,
            "absent": group.absent,
            "present": list(group.present),
            **({"empty": list(group.empty)} if group.empty else {}),
            "transition": group.chain.transition.tolist(),
            "hidden": {
                "initial": models.initial[j].tolist(),
                "transition": models.transition[j].tolist(),
                "natural": models.natural[j].tolist(),
                "seen": models.counts[j].tolist(),
                "edges": models.edges[j].tolist(),
            },
        }
        for j, group in enumerate(exported.public)
    ]
    position = {int(i): n for n, i in enumerate(learned.usable)}
    homes = []
    for i, (name, ails) in enumerate(zip(learned.ids, learned.ails, strict=True)):
        n = position.get(i)
        home: dict[str, Any] = {"meter": name, "ails": list(ails)}
        if n is not None:
            mean, sd, days = figures.daily[n].tolist()
            home |= {
                "prototype": int(exported.group_of[n]),
                "home_share": float(figures.home_share[n]),
                "score": {"mean": mean, "sd": sd, "days": days},
                "weeks": [
                    [None if np.isnan(x) else round(x, 4) for x in week]
                    for week in figures.weekly[n].tolist()
                ],
            }
        homes.append(home)
    published = {key: value for key, value in values.items() if key not in HELD_OUT}
    return {**published, "prototypes": prototypes, "homes": homes}


HELD_OUT = ("held_out", "law_tried", "groups_tried")


def learned_prose(values: Mapping[str, Any]) -> str:
    """What was learned, its scores, the trust it supports, and what it leaks.

    Args:
        values: Values of `learned_values`.

    Returns:
        Lines of text.
    """
    lines = [
        f"Zone {values['zone']}: {values['houses']} houses, {values['fitted']} fitted; models that"
        f" homes share: {values['groups']}; laws: {values['law']}, {len(values['starts'])} slot"
        " groups a day.",
        f"Prior: {values['prior']}, worth {values['days']:g} days.",
        f"Log-likelihood {values['log_likelihood']:.0f},"
        f" {values['log_likelihood_per_reading']:.4f} a reading; {values['converged']} of"
        f" {values['fitted']} homes converged.",
    ]
    if seasons := values.get("seasons"):
        season_names = "; ".join(",".join(map(str, season)) for season in seasons)
        lines.append(
            f"Seasons, by their months: {season_names}. Each has laws of its own, with"
            " readings of all of the year where it has few; the chains are of all seasons."
        )
    held_out = values.get("held_out")
    if held_out:
        under = "under the published model, with its noise, " if held_out.get("noise") else ""
        lines.append(
            f"Held out: {under}the last {held_out['days']:g} days score"
            f" {held_out['log_likelihood']:.3f} a reading; one law for all hours scores"
            f" {held_out['plain']:.3f}. Worst slot {held_out['worst_slot']}:"
            f" {held_out['worst']:.3f}."
        )
        errors = held_out["forecast_error"], held_out["slot_mean_error"]
        better = "the forecast is better" if errors[0] < errors[1] else "the slot mean is better"
        lines.append(
            f"Load of these days: the model's forecast is off by {errors[0]:.1%} of the mean load"
            f" (root mean square), a slot mean of the same days by {errors[1]:.1%}: {better}."
        )
    if values.get("groups_tried"):
        tried = ", ".join(f"{n}: {score:.4f}" for n, score in values["groups_tried"].items())
        lines.append(f"Slot groups a day, by held-out log-likelihood of a reading: {tried}.")
    if values.get("drowned"):
        lines.append(
            f"The noise of a pool of {values['houses']:,} homes at epsilon"
            f" {values['epsilon_spent']:g} drowns what it says of loads ({ENOUGH:,} homes at"
            " epsilon 1 are enough): no forecast of it has a part in prices. They come from the"
            " estimate that follows past prices and the usual load (usual) alone."
        )
    if values["provenance"] == "pooled":
        lines.append(_POOLED)
    for ailment, names in values["ailments"].items():
        days = values["vacant_days"] if ailment.startswith("vacant") else {}
        listed = [f"{name} ({days[name]} days)" if name in days else name for name in names[:8]]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        text = AILMENTS.get(ailment, ailment)
        homes = "1 home" if len(names) == 1 else f"{len(names)} homes"
        lines.append(f"{text[0].upper()}{text[1:]}: {homes}: {', '.join(listed)}{more}.")
    counts = {k: v for k, v in values["readings"].items() if v}
    if counts:
        lines.append("Readings: " + ", ".join(f"{v} {k}" for k, v in counts.items()) + ".")
    if values.get("problems"):
        lines.append(f"The first row that is no reading: {values['problems'][0]}.")
    accuracy = values.get("accuracy") or {}
    if accuracy:
        rows = [("trained", "06-22 h", "all hours", "readings")]
        for key, name in _TRAINED.items():
            score = accuracy[key]
            cells = f"{score['06-22']:.3f}", f"{score['all']:.3f}", str(score["readings"])
            rows.append((name, *cells))
        lines += ["", table(rows), ""]
    trust = values["trust"]
    suggested = (
        ""
        if trust["upper"] is None
        else f" Under the secrets step and interval an eta of {trust['suggested']:g} covers it."
    )
    lines += [
        f"Trust: {values['trust']['reasoning']}.{suggested}",
        f"Provenance: {values['provenance']}. {values['leaks']}",
        f"Bound: {values['bound']} Wh a step, {values['bound_by']}.",
    ]
    return "\n".join(lines)


_POOLED = (
    "For the operator only: every score, log-likelihood, accuracy and count here is computed from"
    " readings without noise. The last days are in the sums of the published model too; the"
    " log-likelihood and any accuracy are of the homes' own fits, before noise."
)
_TRAINED = {
    "without_labels": "without labels",
    "without_labels_on_the_rest": "without labels, on unlabelled days",
    "few_days_on_the_rest": "with 7 labelled days, on the others",
}


def _ailment_names(learned: Learned) -> dict[str, list[str]]:
    """Names of the homes with each ailment."""
    by: dict[str, list[str]] = {}
    for name, ails in zip(learned.ids, learned.ails, strict=True):
        for ailment in ails:
            by.setdefault(ailment, []).append(name)
    return by


def html_page(title: str, prose: str, pictures: Mapping[str, bytes]) -> str:
    """A page with a text and PNG pictures; it loads nothing from the network.

    Args:
        title: Title.
        prose: Text, set as it is.
        pictures: PNG bytes by name.

    Returns:
        The HTML.
    """
    uris = {name: data_uri(picture, "image/png") for name, picture in pictures.items()}
    return render("learn.html", title=title, prose=prose, pictures=uris)


COLOURS = ("#0b6e99", "#b3541e", "#3b7d3b", "#7a4fa3", "#8a6d3b", "#555555", "#c2185b", "#00695c")


def chain_figure(public: Sequence[PublishedGroup], seconds: int) -> Figure:
    """Probabilities of leaving, of arriving and of being at home, on weekdays and weekends.

    Args:
        public: The published groups.
        seconds: Length of a step [s].

    Returns:
        The figure.
    """
    figure, axes = panels(3, 7.8)
    steps = 86_400 // seconds
    hours = np.arange(steps + 1) * seconds / 3600
    for j, group in enumerate(public):
        for part, style in ((0, "-"), (1, ":")):
            day = slice(part * steps, (part + 1) * steps)
            homes = "1 home" if group.homes == 1 else f"{group.homes} homes"
            label = f"group {j + 1}, {homes}" if part == 0 else None
            a = group.chain.transition[day]
            colour = COLOURS[j % len(COLOURS)]
            for axis, y in zip(axes, (a[:, 1, 0], a[:, 0, 1], group.chain.home[day]), strict=True):
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
        light_grid(axis)
    axes[2].set_ylim(0, 1)
    axes[2].set_xlabel("time of day; solid: weekdays, dotted: weekends")
    _legend(figure, axes[0])
    return figure


def law_figure(public: Sequence[PublishedGroup], bound: int, export: int = 0) -> Figure:
    """The laws of absent and present homes by slot group; the first bin is 0 Wh.

    Args:
        public: The published groups.
        bound: Largest reading [Wh].
        export: Export limit, in every reading [Wh]: the figure is of net readings then.

    Returns:
        The figure.
    """
    figure, axes = panels(len(public), 2.2 * len(public) + 0.9)
    edges = np.unique(np.round(np.geomspace(1, bound + 2, 60)).astype(int)) - 1
    if export:
        edges = np.unique(np.linspace(0, bound + 1, 80).astype(int))
    for j, (axis, group) in enumerate(zip(axes, public, strict=True)):
        absent, present = group.laws(bound)
        names, pmfs = group.places, [law.pmf for law in present]
        joint, empty = "," if group.seasons else " from", absent[0].pmf
        if group.seasons:  # a mean day of each
            names = tuple(f"months {', '.join(map(str, months))}" for months in group.seasons)
            pmfs = [np.mean(season, axis=0) for season in np.split(np.array(pmfs), len(names))]
            empty = np.mean([law.pmf for law in absent[: len(group.starts)]], axis=0)
        for pmf, name, colour in [
            (empty, f"absent{joint} {names[0]}" if group.empty else "absent", "#111111"),
            *(
                (pmf, f"present{joint} {place}", COLOURS[g % len(COLOURS)])
                for g, (pmf, place) in enumerate(zip(pmfs, names, strict=True))
            ),
        ]:
            cdf = np.concatenate([[0.0], np.cumsum(pmf)])
            mass = np.diff(cdf[edges]) / np.diff(edges if export else np.log1p(edges))
            width = 2.0 if name == "absent" else 1.2
            axis.step(
                edges - export if export else edges + 1,
                [*mass, mass[-1]],
                where="post",
                label=name,
                color=colour,
                linewidth=width,
            )
        if not export:
            axis.set_xscale("log")
            axis.set_xlim(1, bound + 2)
            ticks = [0, *(10**k for k in range(len(str(bound))) if 10**k <= bound)]
            axis.set_xticks([tick + 1 for tick in ticks], [f"{tick}" for tick in ticks])
            axis.minorticks_off()
        homes = "1 home" if group.homes == 1 else f"{group.homes} homes"
        axis.set_title(f"group {j + 1}, {homes}", fontsize=9)
        axis.set_ylabel("density")
        light_grid(axis)
    axes[-1].set_xlabel(
        "net reading [Wh a step]" if export else "reading [Wh a step], logarithm of reading + 1"
    )
    _legend(figure, axes[0])
    return figure


_LONG_NAME = 34  # characters; three such names fit on a line


def _legend(figure: Figure, *axes: Axes) -> None:
    """One legend above all panels."""
    pairs = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    if pairs:
        handles, names = zip(*pairs, strict=True)
        columns = 3 if max(map(len, names)) <= _LONG_NAME else 2
        figure.legend(
            handles, names, loc="outside upper center", ncols=columns, frameon=False, fontsize=8
        )
