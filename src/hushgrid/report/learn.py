"""A learned zone in numbers and words."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from hushgrid.learn.histories import AILMENTS, Histories
from hushgrid.learn.learned import HeldOut, Learned
from hushgrid.learn.offered import Figures, Offered, ZoneChoices
from hushgrid.report.shared import table


def learned_values(
    found: Learned, made: Offered, figures: Figures, asked: ZoneChoices, given: Histories
) -> dict[str, Any]:
    """The JSON of the command; `given` knows what became of the rows of the file."""
    seen = max(int(found.own.readings.sum()), 1)
    total = float(found.own.log_likelihood.sum())
    return {
        "zone": asked.zone,
        "houses": len(found.ids),
        "fitted": len(found.usable),
        "groups": len(made.public),
        "log_likelihood": total,
        "log_likelihood_per_reading": total / seen,
        "converged": int(found.own.converged.sum()),
        "iterations": int(found.own.iterations.max()),
        "eta": made.eta,
        "eta_basis": figures.eta_basis,
        "eta_set_by": made.eta_by,
        "provenance": made.provenance,
        "epsilon_spent": made.epsilon,
        "leaks": made.note,
        "bound": made.bound,
        "bound_by": made.bound_by,
        "law": found.family,
        "law_tried": found.tried,
        "prior": found.habits,
        "days": found.terms.days,
        "seconds": found.seconds,
        "time_zone": asked.time_zone,
        "starts": list(found.terms.starts),
        "begins": found.begins,
        "ends": found.ends,
        "ailments": ailment_names(found),
        "vacant_days": {n: int(d) for n, d in zip(found.ids, found.vacant, strict=True) if d},
        "readings": dict(given.counts),
        "problems": list(given.problems),
        "trust": {
            "lower": figures.trust.lower,
            "upper": figures.trust.upper,
            "suggested": figures.trust.suggested,
            "confidence": figures.trust.confidence,
            "reasoning": figures.trust.reasoning,
        },
        "accuracy": figures.accuracy,
        "held_out": _held(found, made, figures.held_out),
    }


def _held(found: Learned, made: Offered, held: HeldOut | None) -> dict[str, Any] | None:
    if held is None:
        return None
    worst = int(np.nanargmin(held.by_slot)) if np.isfinite(held.by_slot).any() else 0
    minute = worst * found.seconds // 60
    return {
        "days": held.days,
        "noise": made.provenance == "pooled",
        "log_likelihood": held.log_likelihood,
        "plain": float(np.nanmean(held.plain)),
        "by_slot": held.by_slot.tolist(),
        "plain_by_slot": held.plain.tolist(),
        "worst_slot": f"{minute // 60:02d}:{minute % 60:02d}",
        "worst": float(held.by_slot[worst]),
    }


def learned_content(
    found: Learned, made: Offered, figures: Figures, values: Mapping[str, Any]
) -> dict[str, Any]:
    """model.json: `values` (the JSON of the command) and what decoding and validation need."""
    models = made.models
    prototypes = [
        {
            "homes": one.homes,
            "absent": one.absent,
            "present": list(one.present),
            "transition": one.chain.transition.tolist(),
            "hidden": {
                "initial": models.initial[j].tolist(),
                "transition": models.transition[j].tolist(),
                "natural": models.natural[j].tolist(),
                "seen": models.seen[j].tolist(),
                "edges": models.edges[j].tolist(),
            },
        }
        for j, one in enumerate(made.public)
    ]
    position = {int(i): n for n, i in enumerate(found.usable)}
    homes = []
    for i, (name, ails) in enumerate(zip(found.ids, found.ails, strict=True)):
        n = position.get(i)
        home: dict[str, Any] = {"meter": name, "ails": list(ails)}
        if n is not None:
            mean, sd, days = figures.daily[n].tolist()
            home |= {
                "prototype": int(made.which[n]),
                "home_share": float(figures.home_share[n]),
                "score": {"mean": mean, "sd": sd, "days": days},
            }
        homes.append(home)
    return {**values, "prototypes": prototypes, "homes": homes}


def learned_prose(values: Mapping[str, Any]) -> str:
    """What was learned, how good it is, how far to trust it, and whether it leaks."""
    lines = [
        f"Zone {values['zone']}: {values['houses']} houses, {values['fitted']} fitted; models that"
        f" homes share: {values['groups']}; laws: {values['law']}.",
        f"Prior: {values['prior']}, worth {values['days']:g} days.",
        f"Log-likelihood {values['log_likelihood']:.0f},"
        f" {values['log_likelihood_per_reading']:.4f} a reading; {values['converged']} of"
        f" {values['fitted']} homes converged.",
    ]
    held = values.get("held_out")
    if held:
        under = "under the published model, with its noise, " if held.get("noise") else ""
        lines.append(
            f"Held out: {under}the last {held['days']:g} days score {held['log_likelihood']:.3f} a"
            f" reading; one law for all hours scores {held['plain']:.3f}. Worst slot"
            f" {held['worst_slot']}: {held['worst']:.3f}."
        )
    if values["provenance"] == "pooled":
        lines.append(_POOLED)
    for what, names in values["ailments"].items():
        days = values["vacant_days"] if what.startswith("vacant") else {}
        told = [f"{name} ({days[name]} days)" if name in days else name for name in names[:8]]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        text = AILMENTS.get(what, what)
        homes = "1 home" if len(names) == 1 else f"{len(names)} homes"
        lines.append(f"{text[0].upper()}{text[1:]}: {homes}: {', '.join(told)}{more}.")
    counts = {k: v for k, v in values["readings"].items() if v}
    if counts:
        lines.append("Readings: " + ", ".join(f"{v} {k}" for k, v in counts.items()) + ".")
    if values.get("problems"):
        lines.append(f"The first row that is no reading: {values['problems'][0]}.")
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


def ailment_names(found: Learned) -> dict[str, list[str]]:
    """Which homes have which ailment."""
    by: dict[str, list[str]] = {}
    for name, ails in zip(found.ids, found.ails, strict=True):
        for one in ails:
            by.setdefault(one, []).append(name)
    return by


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
