"""A day of the demo in numbers, words and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.arrays import Floats, UInt8s
from hushgrid.report.attack import KNOWS
from hushgrid.report.shared import day_line, finish, panels, table
from hushgrid.scores import auc

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CHANCE = 0.999  # that a day's error lies in the interval foreseen
_INK = {"open": "#b3541e", "private": "#0b6e99", "prior": "#555555"}
_NAMES = {"open": "no protection", "private": "as published", "prior": "prior alone"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Foreseen:
    """The error of one day's prices in the paper's formula, before it was played.

    `planned` is plan's figure; `mean`, `low` and `high` come from `days` simulated days.
    """

    planned: float
    mean: float
    low: float
    high: float
    days: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Played:
    """One simulated day: the truth, what was published, and what adversaries made of it.

    `optimal` and `published` (T,) [currency/kWh]; `occupancy` (T, houses); `beliefs` by adversary
    and by what she was shown; `prior` likewise (T, houses). `leakage` is the most that all
    releases say about one step of any house, as the audit found it; `verdict` is the audit's.
    """

    epsilon: float
    eta: float
    promise: str
    seed: int
    house: int
    optimal: Floats
    published: Floats
    occupancy: UInt8s
    prior: Floats
    beliefs: Mapping[str, Mapping[str, Floats]]
    foreseen: Foreseen
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
        """What a day must keep to, whatever was drawn."""
        return {
            "rmsre": self.foreseen.low <= self.rmsre_paper <= self.foreseen.high,
            "leakage": self.leakage <= self.epsilon,
            "chain": self.chain == "passed",
            "audit": self.verdict != "failed",
        }


def demo_json(day: Played) -> dict[str, Any]:
    """The figures under their public keys."""
    foreseen = day.foreseen
    return {
        "releases": int(day.published.size),
        "rmsre_paper": day.rmsre_paper,
        "leakage_max": day.leakage,
        "promise": day.epsilon,
        "auc": _aucs(day),
        "promise_text": day.promise,
        "epsilon": day.epsilon,
        "eta": day.eta,
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


def _aucs(day: Played) -> dict[str, dict[str, float | None]]:
    prior = _finite(auc(day.occupancy, day.prior))
    return {
        knows: {
            **{name: _finite(auc(day.occupancy, each)) for name, each in shown.items()},
            "prior": prior,
        }
        for knows, shown in day.beliefs.items()
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def demo_table(day: Played) -> str:
    """How well each adversary tells who is at home: 0.5 is a coin, 1 is certainty."""
    rows = [("who is at home? (AUC)", *_NAMES.values())]
    for knows, found in _aucs(day).items():
        cells = ("-" if (x := found[name]) is None else f"{x:.3f}" for name in _NAMES)
        rows.append((f"she {KNOWS[knows]}", *cells))
    return table(rows)


def demo_prose(day: Played) -> str:
    """What was played, what was promised and what it cost."""
    steps, houses = day.occupancy.shape
    times = math.sqrt(steps)
    low, high = day.foreseen.low * times, day.foreseen.high * times
    lines = [
        f"{steps} prices from {steps * houses:,} readings of {houses:,} simulated houses, through"
        " the real curator and ledger.",
        f"Promise: {day.promise}",
        f"What these {steps} releases leak about one step of any house: at most {day.leakage:.3f}"
        f" of the {day.epsilon:g} promised (log of odds).",
        f"Price error: {day.rmsre:.2%} of the exact price; foreseen {low:.2%} to {high:.2%}.",
        f"Ledger: {day.records} signed records, chain {day.chain}; audit {day.verdict}.",
    ]
    broken = [name for name, kept in day.holds.items() if not kept]
    if broken:
        lines.append(f"NOT KEPT: {', '.join(broken)}.")
    return "\n".join(lines)


def demo_figure(day: Played) -> Figure:
    """The day's prices, and what each adversary believed of one house."""
    figure, axes = panels(1 + len(day.beliefs), 2.4 + 2.0 * len(day.beliefs))
    day_line(axes[0], day.optimal, "exact", _INK["open"])
    day_line(axes[0], day.published, "published", _INK["private"], 1.6)
    axes[0].set_ylabel("EUR/kWh")
    axes[0].set_title("The price", loc="left", fontsize=9)
    finish(axes[0])
    at, hours = day.house, np.linspace(0, len(day.prior) / 4, len(day.prior) + 1)
    true = np.append(day.occupancy[:, at], day.occupancy[-1, at])
    for one, (knows, shown) in zip(axes[1:], day.beliefs.items(), strict=True):
        one.fill_between(
            hours, true, step="post", color="#f0c94a", alpha=0.35, linewidth=0, label="at home"
        )
        day_line(one, day.prior[:, at], "prior", _INK["prior"], 1.0)
        for name, each in shown.items():
            day_line(one, each[:, at], _NAMES[name], _INK[name], 1.6)
        one.set_ylim(0, 1)
        one.set_ylabel("chance")
        one.set_title(f"House {at} at home? She {KNOWS[knows]}", loc="left", fontsize=9)
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    handles, names = axes[1].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", frameon=False, fontsize=8, ncols=4)
    figure.suptitle("One simulated day: what is hidden, and what it costs", fontsize=11)
    return figure
