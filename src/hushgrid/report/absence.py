"""The absence attack as text, JSON and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.adversary.absence import Absence
from hushgrid.report._figures import light_grid, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def absence_figure(attacks: Mapping[str, Absence], less: float, away: str) -> Figure:
    """A home away: what is found at how many false alarms, at exact prices and under promises.

    Args:
        attacks: The attack by what is published, in words: exact prices first, then promises.
        less: What the home uses less while away [Wh a half hour].
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
        f"\n(It uses {less:,.0f} Wh less in every half hour.)",
        fontsize=10,
    )
    return figure
