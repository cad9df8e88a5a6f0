"""Attacks on recorded days and on absences as tables, text, JSON and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.adversary.attack import Absence, Attack
from hushgrid.report._figures import day_line, light_grid, panels, table
from hushgrid.report.promise import finite_or_none
from hushgrid.statistics import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PROTECTIONS = {
    "open": "no privacy",
    "naive": "naive noise",
    "paper": "the paper's rule",
    "hushgrid": "as published",
}
_COLORS = {"open": "#b3541e", "naive": "#8a8a8a", "paper": "#7a5195", "hushgrid": "#0b6e99"}
KNOWS = {
    "none": "sees only the prices",
    "others": "knows every other reading",
    "occupancy": "knows who else is at home",
}


def attack_json(attacks: Mapping[str, Attack]) -> dict[str, Any]:
    """The attack on the releases under its public keys, and on all versions of the day.

    Args:
        attacks: Attacks by protection; "hushgrid" is the published day.

    Returns:
        The values.
    """
    published = attacks["hushgrid"]
    houses = set(published.houses)
    return {
        **attack_figures(published),
        "knows": published.knows,
        "filter": published.filter,
        "houses": sorted(houses) if len(houses) == 1 else len(houses),
        "house_days": len(published.houses),
        "steps": published.scores.steps,
        "mechanisms": {name: attack_figures(attack) for name, attack in attacks.items()},
    }


def attack_figures(attack: Attack) -> dict[str, Any]:
    """All scores of one attack.

    Args:
        attack: The attack.

    Returns:
        Scores with those of the prior and 95 % intervals; None where undefined.
    """
    values: dict[str, Any] = {}
    for field in fields(attack.scores):
        score = getattr(attack.scores, field.name)
        if isinstance(score, Score):
            values[field.name] = finite_or_none(score.value)
            values[f"{field.name}_prior"] = finite_or_none(score.prior)
            values[f"{field.name}_ci95"] = _range(score.ci95)
            values[f"{field.name}_gain_ci95"] = _range(score.gain_ci95)
    values["ci95"] = values["auc_ci95"]
    values["log_odds_moved"] = finite_or_none(attack.moved)
    return values


def _range(ci95: tuple[float, float]) -> list[float] | None:
    return list(ci95) if all(map(math.isfinite, ci95)) else None


def attack_table(attacks: Mapping[str, Attack]) -> str:
    """A row for each version of the day, the prior alone first.

    Args:
        attacks: Attacks by protection.

    Returns:
        A Markdown table.
    """
    first = next(iter(attacks.values())).scores
    rows = [("protection", "AUC", "95 % interval", "log loss", "Brier", "right")]
    prior = (f"{first.auc.prior:.3f}", _interval(first.auc.prior_ci95))
    rows.append(
        ("(prior only)", *prior, f"{first.log_loss.prior:.3f}", f"{first.brier.prior:.3f}",
         f"{first.accuracy.prior:.1%}")
    )  # fmt: skip
    for name, attack in attacks.items():
        s = attack.scores
        rows.append(
            (_PROTECTIONS[name], f"{s.auc.value:.3f}", _interval(s.auc.ci95),
             f"{s.log_loss.value:.3f}", f"{s.brier.value:.3f}", f"{s.accuracy.value:.1%}")
        )  # fmt: skip
    return table(rows)


def _interval(ci95: tuple[float, float]) -> str:
    return f"{ci95[0]:.3f} to {ci95[1]:.3f}"


def attack_prose(attacks: Mapping[str, Attack]) -> str:
    """The adversary, its target and its gain over the prior.

    Args:
        attacks: Attacks by protection.

    Returns:
        Lines of text.
    """
    published = attacks["hushgrid"]
    houses = set(published.houses)
    target = f"house {published.houses[0]}" if len(houses) == 1 else f"{len(houses)} houses"
    if len(published.houses) > len(houses):
        target = f"each of {len(published.houses)} labelled days of {target}"
    low, high = published.scores.auc.gain_ci95
    lines = [
        f"An adversary who {KNOWS[published.knows]} watched {published.scores.steps} steps of"
        f" {target} ({published.filter} filter).",
        f"From the releases it gained {published.scores.auc.gain:+.3f} of AUC over the prior"
        f" (95 %: {low:+.3f} to {high:+.3f}); its log odds moved by at most {published.moved:.3f}.",
    ]
    return "\n".join(lines)


def attack_figure(attacks: Mapping[str, Attack], house: int) -> Figure:
    """A day of one house: occupancy, prior, and the adversary's belief under each protection.

    Args:
        attacks: Attacks by protection.
        house: The house.

    Returns:
        The figure.
    """
    published = attacks["hushgrid"]
    at = published.houses.index(house)
    figure, axes = panels(len(attacks), 1.1 + 1.7 * len(attacks))
    for axis, (name, attack) in zip(axes, attacks.items(), strict=True):
        beliefs = [("adversary's belief", attack.home[:, at], _COLORS[name])]
        title = _PROTECTIONS[name]
        belief_panel(axis, attack.occupancy[:, at], attack.prior[:, at], beliefs, title)
    axes[0].legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    figure.suptitle(
        f"House {house}: what an adversary who {KNOWS[published.knows]} believes", fontsize=11
    )
    return figure


def belief_panel(
    axes: Axes, occupancy: Any, prior: Any, beliefs: Iterable[tuple[str, Any, str]], title: str
) -> None:
    """Draw occupancy and prior of one house over a day, and beliefs.

    Args:
        axes: Where they are drawn.
        occupancy: (T,): true occupancy.
        prior: (T,): prior probabilities of being at home.
        beliefs: Label, values (T,) and colour of each.
        title: Title of the panel.
    """
    hours = np.linspace(0, len(prior) / 4, len(prior) + 1)
    true = np.append(occupancy, occupancy[-1])
    axes.fill_between(
        hours, true, step="post", color="#f0c94a", alpha=0.35, linewidth=0, label="at home"
    )
    for label, values, color in beliefs:
        day_line(axes, values, label, color, 1.6)
    day_line(axes, prior, "prior", "#111111", 1.0, "--")  # on top: often it lies on a belief
    axes.set_ylim(0, 1)
    axes.set_ylabel("chance")
    axes.set_title(title, loc="left", fontsize=9)
    light_grid(axes)


_MOST_ROWS = 12
# orange is unprotected, blue is published; of the promises the weakest is the lightest
_STYLES = (("#b3541e", "-"), ("#8fbfd6", "-."), ("#4a97bb", "--"), ("#0b6e99", "-"))


def absence_json(
    attacks: Sequence[Absence],
    less: Floats,
    *,
    away: str,
    steps: int,
    secret: str,
    epsilon: float,
    window_s: int | None,
    recorded: bool,
) -> dict[str, Any]:
    """The attack under its public keys.

    Args:
        attacks: The attack on each home.
        less: What each uses less while away [Wh a half hour].
        away: Length of the absence (ISO 8601).
        steps: Its steps.
        secret: What is promised.
        epsilon: Epsilon of the promise.
        window_s: Length of a promised window [s].
        recorded: Whether the homes are recorded ones; they have no ids here.

    Returns:
        The values.
    """
    return {
        "secret": "absence",
        "away": away,
        "steps": steps,
        "knows": "others",
        "recorded": recorded,
        "promise": {"secret": secret, "epsilon": epsilon, "window_s": window_s},
        "draws": len(attacks[0].away),
        "homes": [
            {
                "less_wh": float(wh),
                "auc": attack.auc,
                "ci95": list(attack.ci95),
                "found_at_1pct": attack.detected(),
            }
            for wh, attack in zip(less.tolist(), attacks, strict=True)
        ],
    }


def absence_prose(values: Mapping[str, Any]) -> str:
    """The attack in words.

    Args:
        values: As `absence_json` has them.

    Returns:
        A table and sentences. Of many homes the table has some, by what they use less.
    """
    homes = values["homes"]
    indices = np.unique(np.linspace(0, len(homes) - 1, min(len(homes), _MOST_ROWS)).round())
    rows = [("Wh less in half an hour", "AUC", "95 % interval", "found at 1 % false alarms")]
    for at in indices.astype(int).tolist():
        home = homes[at]
        low, high = home["ci95"]
        rows.append(
            (f"{home['less_wh']:,.0f}", f"{home['auc']:.3f}", f"{low:.3f} to {high:.3f}",
             f"{home['found_at_1pct']:.1%}")
        )  # fmt: skip
    promise = values["promise"]
    return (
        f"{table(rows)}\n\nAn absence of {values['away']} ({values['steps']} steps), judged from"
        f" all prices by someone who knows every other reading, under the promise"
        f" {promise['secret']} with epsilon = {promise['epsilon']:g}: an AUC of 0.5 is a guess, 1"
        f" is certainty. {values['draws']:,} presences and absences of each"
        f" {'recorded' if values['recorded'] else 'simulated'} home."
    )


def published_table(attacks: Mapping[str, Absence]) -> str:
    """What is found by what is published, exact prices first: the figures of the picture.

    Args:
        attacks: The attack by what is published, in words.

    Returns:
        A Markdown table.
    """
    rows = [("published", "AUC", "found at 1 % false alarms")]
    rows += [
        (name, f"{attack.auc:.3f}", f"{attack.detected():.1%}") for name, attack in attacks.items()
    ]
    return table(rows)


def absence_figure(attacks: Mapping[str, Absence], less: float, interval: str, away: str) -> Figure:
    """A home away: what is found at how many false alarms, at exact prices and under promises.

    Args:
        attacks: The attack by what is published, in words: exact prices first, then promises.
        less: What the home uses less while away [Wh an interval].
        interval: Length of an interval in words.
        away: Length of the absence in words.

    Returns:
        A figure of 1440 x 500 pixels at 150 dots an inch.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 10 / 3), layout="constrained")
    bars, curves = figure.subplots(1, 2, width_ratios=(5, 4))
    styles = (_STYLES[0], *_STYLES[1 - len(attacks) :])
    for (name, attack), (color, dash) in zip(attacks.items(), styles, strict=True):
        alarms, rates = attack.roc()
        label = f"{name}: AUC {attack.auc:.2f}"
        curves.plot(alarms * 100, rates * 100, color=color, linestyle=dash, label=label)
    curves.plot([0, 100], [0, 100], color="#999999", linewidth=0.8, linestyle=":", label="a guess")
    curves.set_xlabel("suspected of 100 that are at home")
    curves.set_ylabel("found of 100 that are away")
    curves.set_title("The more are suspected, the more are found", loc="left", fontsize=9)
    curves.legend(frameon=False, fontsize=7, loc="lower right")
    shares = [100 * attack.detected() for attack in attacks.values()]
    places = np.arange(len(shares))[::-1]
    bar_shapes = bars.barh(places, shares, color=[color for color, _ in styles], height=0.6)
    bars.bar_label(bar_shapes, [f"{share:.0f}" for share in shares], padding=4)
    exact, *promises = attacks
    bars.set_yticks(places, [exact, *(f"promise about {name}" for name in promises)])
    bars.set_xlim(0, 112)
    bars.set_xlabel("found of 100 that are away")
    bars.set_title("Where 1 of 100 at home is suspected wrongly", loc="left", fontsize=9)
    for axes in (bars, curves):
        light_grid(axes)
        axes.set_axisbelow(True)
    figure.suptitle(
        f"A family is away for {away}. Does someone who knows all other homes see it in the prices?"
        f"\n(It uses {less:,.0f} Wh less in every {interval}.)",
        fontsize=10,
    )
    return figure
