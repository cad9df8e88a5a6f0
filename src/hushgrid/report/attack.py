"""An attack in numbers, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.attack import Attack
from hushgrid.report.plan import finite_or_none
from hushgrid.report.shared import day_line, panels, table
from hushgrid.scores import Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    "open": "no privacy",
    "naive": "naive noise",
    "paper": "the paper's rule",
    "hushgrid": "as published",
}
_COLORS = {"open": "#b3541e", "naive": "#8a8a8a", "paper": "#7a5195", "hushgrid": "#0b6e99"}
KNOWS = {
    "none": "sees the prices alone",
    "others": "knows every other reading",
    "occupancy": "knows who else is at home",
}


def attack_json(found: Mapping[str, Attack]) -> dict[str, Any]:
    """The attack on what was published under its public keys, then all versions of the day."""
    own = found["hushgrid"]
    return {
        **attack_figures(own),
        "knows": own.knows,
        "filter": own.filter,
        "houses": list(own.houses) if len(own.houses) == 1 else len(own.houses),
        "steps": own.scores.steps,
        "mechanisms": {name: attack_figures(each) for name, each in found.items()},
    }


def attack_figures(one: Attack) -> dict[str, Any]:
    """All figures of one attack."""
    told: dict[str, Any] = {}
    for field in fields(one.scores):
        score = getattr(one.scores, field.name)
        if isinstance(score, Score):
            told[field.name] = finite_or_none(score.value)
            told[f"{field.name}_prior"] = finite_or_none(score.prior)
            told[f"{field.name}_ci95"] = _range(score.ci95)
            told[f"{field.name}_gain_ci95"] = _range(score.gain_ci95)
    told["ci95"] = told["auc_ci95"]
    told["log_odds_moved"] = finite_or_none(one.moved)
    return told


def _range(ci95: tuple[float, float]) -> list[float] | None:
    return list(ci95) if all(map(math.isfinite, ci95)) else None


def attack_table(found: Mapping[str, Attack]) -> str:
    """Every version of the day in a row, the prior-only guess first."""
    first = next(iter(found.values())).scores
    rows = [("protection", "AUC", "95 % interval", "log loss", "Brier", "right")]
    prior = (f"{first.auc.prior:.3f}", _interval(first.auc.prior_ci95))
    rows.append(
        ("(prior only)", *prior, f"{first.log_loss.prior:.3f}", f"{first.brier.prior:.3f}",
         f"{first.accuracy.prior:.1%}")
    )  # fmt: skip
    for name, one in found.items():
        s = one.scores
        rows.append(
            (NAMES[name], f"{s.auc.value:.3f}", _interval(s.auc.ci95), f"{s.log_loss.value:.3f}",
             f"{s.brier.value:.3f}", f"{s.accuracy.value:.1%}")
        )  # fmt: skip
    return table(rows)


def _interval(ci95: tuple[float, float]) -> str:
    return f"{ci95[0]:.3f} to {ci95[1]:.3f}"


def attack_prose(found: Mapping[str, Attack]) -> str:
    """Who attacked whom, and what came of it."""
    own = found["hushgrid"]
    whom = f"house {own.houses[0]}" if len(own.houses) == 1 else f"{len(own.houses)} houses"
    low, high = own.scores.auc.gain_ci95
    lines = [
        f"An adversary who {KNOWS[own.knows]} watched {own.scores.steps} steps of {whom}"
        f" ({own.filter} filter).",
        f"From what was published she gained {own.scores.auc.gain:+.3f} of AUC over the prior"
        f" (95 %: {low:+.3f} to {high:+.3f}); her log odds moved by at most {own.moved:.3f}.",
    ]
    return "\n".join(lines)


def attack_figure(found: Mapping[str, Attack], house: int) -> Figure:
    """A day of one house: true occupancy, prior, and what she believed under each protection."""
    own = found["hushgrid"]
    at = own.houses.index(house)
    figure, axes = panels(len(found), 1.1 + 1.7 * len(found))
    for one, (name, each) in zip(axes, found.items(), strict=True):
        hours = np.linspace(0, len(each.home) / 4, len(each.home) + 1)
        true = np.append(each.occupancy[:, at], each.occupancy[-1, at])
        one.fill_between(
            hours, true, step="post", color="#f0c94a", alpha=0.35, linewidth=0, label="at home"
        )
        day_line(one, each.prior[:, at], "prior", "#555555", 1.0)
        day_line(one, each.home[:, at], "she believes", _COLORS[name], 1.6)
        one.set_ylim(0, 1)
        one.set_ylabel("chance")
        one.set_title(NAMES[name], loc="left", fontsize=9)
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    figure.suptitle(
        f"House {house}: what an adversary who {KNOWS[own.knows]} believes", fontsize=11
    )
    return figure
