"""One day of the demo as a table, text, JSON and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid._numbers import Floats, UInt8s
from hushgrid.report._figures import day_line, finish, panels, table
from hushgrid.report.attack import KNOWS, belief_panel
from hushgrid.report.promise import HomeWords, finite_or_none
from hushgrid.statistics import auc

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CHANCE = 0.999  # that the error of a day lies in the expected interval
_DEMO_COLORS = {"open": "#b3541e", "private": "#0b6e99"}
_DEMO_NAMES = {"open": "no protection", "private": "as published", "prior": "prior alone"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ErrorForecast:
    """Expected error of one day's prices, in the paper's formula.

    Attributes:
        planned: Error according to the plan.
        mean: Mean over simulated days.
        low: Lower end of the interval that holds a day's error with probability `CHANCE`.
        high: Upper end.
        days: Number of simulated days.
    """

    planned: float
    mean: float
    low: float
    high: float
    days: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DemoDay:
    """One simulated day: the truth, the releases, and the adversaries' beliefs; T steps, N houses.

    Attributes:
        epsilon: Epsilon of the promise.
        promise: The promise in a householder's words.
        seed: Seed of the day.
        house: House drawn in the figure.
        optimal: (T,) optimal rates [currency/kWh].
        published: (T,) published rates [currency/kWh].
        occupancy: (T, N) true occupancy.
        prior: (T, N) prior probabilities of being at home.
        beliefs: (T, N) beliefs by the adversary's knowledge and by protection.
        expected_error: Expected error of the prices.
        leakage: Largest leakage of all releases about any house in the promised window, from the
            audit.
        records: Number of ledger records.
        chain: Status of the chain check.
        verdict: Verdict of the audit.
    """

    epsilon: float
    promise: HomeWords
    seed: int
    house: int
    optimal: Floats
    published: Floats
    occupancy: UInt8s
    prior: Floats
    beliefs: Mapping[str, Mapping[str, Floats]]
    expected_error: ErrorForecast
    leakage: float
    records: int
    chain: str
    verdict: str

    @property
    def rmsre(self) -> float:
        """Root mean squared relative error of the published rate."""
        return float(np.sqrt(np.mean(((self.published - self.optimal) / self.optimal) ** 2)))

    @property
    def rmsre_paper(self) -> float:
        """The paper's formula: the usual figure over sqrt(T)."""
        return self.rmsre / math.sqrt(self.optimal.size)

    @property
    def holds(self) -> dict[str, bool]:
        """Whether error, leakage, chain and audit are as they must be on any day."""
        return {
            "rmsre": self.expected_error.low <= self.rmsre_paper <= self.expected_error.high,
            "leakage": self.leakage <= self.epsilon,
            "chain": self.chain == "passed",
            "audit": self.verdict != "failed",
        }


def demo_json(day: DemoDay) -> dict[str, Any]:
    """A day of the demo under its public keys.

    Args:
        day: The day.

    Returns:
        The values.
    """
    foreseen = day.expected_error
    return {
        "releases": int(day.published.size),
        "rmsre_paper": day.rmsre_paper,
        "leakage_max": day.leakage,
        "promise": day.epsilon,
        "auc": _demo_aucs(day),
        **day.promise.content,
        "seed": day.seed,
        "houses": int(day.occupancy.shape[1]),
        "house": day.house,
        "rmsre": day.rmsre,
        "rmsre_plan": {
            "mean": foreseen.mean,
            "low": foreseen.low,
            "high": foreseen.high,
            "chance": CHANCE,
            "days": foreseen.days,
            "planned": foreseen.planned,
        },
        "ledger_records": day.records,
        "chain": day.chain,
        "audit": day.verdict,
        "holds": day.holds,
        "simulated": True,
    }


def _demo_aucs(day: DemoDay) -> dict[str, dict[str, float | None]]:
    return {
        knows: {
            name: finite_or_none(auc(belief, day.occupancy))
            for name, belief in (*beliefs.items(), ("prior", day.prior))
        }
        for knows, beliefs in day.beliefs.items()
    }


def demo_table(day: DemoDay) -> str:
    """AUC of each adversary: 0.5 is chance, 1 is certainty.

    Args:
        day: The day.

    Returns:
        A Markdown table.
    """
    rows = [("who is at home? (AUC)", *_DEMO_NAMES.values())]
    for knows, aucs in _demo_aucs(day).items():
        cells = ("-" if (x := aucs[name]) is None else f"{x:.3f}" for name in _DEMO_NAMES)
        rows.append((f"adversary who {KNOWS[knows]}", *cells))
    return table(rows)


def demo_prose(day: DemoDay) -> str:
    """The size of the day, the promise, the leakage and the error.

    Args:
        day: The day.

    Returns:
        Lines of text.
    """
    steps, houses = day.occupancy.shape
    times = math.sqrt(steps)
    low, high = day.expected_error.low * times, day.expected_error.high * times
    lines = [
        f"{steps} prices from {steps * houses:,} readings of {houses:,} simulated houses, through"
        " the real curator and ledger.",
        *day.promise.lines,
        f"What these {steps} releases leak about the day of any house: at most {day.leakage:.3f} of"
        f" the {day.epsilon:g} promised (log of odds).",
        f"Price error: {day.rmsre:.2%} of the exact price; expected {low:.2%} to {high:.2%}.",
        f"Ledger: {day.records} signed records, chain {day.chain}; audit {day.verdict}.",
    ]
    broken = [name for name, holds in day.holds.items() if not holds]
    if broken:
        lines.append(f"NOT KEPT: {', '.join(broken)}.")
    return "\n".join(lines)


def demo_figure(day: DemoDay) -> Figure:
    """The day's prices, and each adversary's belief about one house.

    Args:
        day: The day.

    Returns:
        The figure.
    """
    figure, axes = panels(1 + len(day.beliefs), 2.4 + 2.0 * len(day.beliefs))
    day_line(axes[0], day.optimal, "exact", _DEMO_COLORS["open"])
    day_line(axes[0], day.published, "published", _DEMO_COLORS["private"], 1.6)
    axes[0].set_ylabel("EUR/kWh")
    axes[0].set_title("The price", loc="left", fontsize=9)
    finish(axes[0])
    at = day.house
    for axis, (knows, house_beliefs) in zip(axes[1:], day.beliefs.items(), strict=True):
        beliefs = ((_DEMO_NAMES[k], v[:, at], _DEMO_COLORS[k]) for k, v in house_beliefs.items())
        title = f"House {at} at home? Adversary who {KNOWS[knows]}"
        belief_panel(axis, day.occupancy[:, at], day.prior[:, at], beliefs, title)
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", frameon=False, fontsize=8, ncols=4)
    figure.suptitle("One simulated day: what is hidden, and what it costs", fontsize=11)
    return figure
