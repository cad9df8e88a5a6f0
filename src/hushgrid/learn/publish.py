"""From fitted models to what a zone file says: two-state chains and laws of absent and present."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hushgrid.arrays import Floats, Indices
from hushgrid.errors import ConsumptionError
from hushgrid.laws import FAMILIES, Law, Mixture
from hushgrid.learn.em import Fit
from hushgrid.learn.habits import Habits, stationary
from hushgrid.learn.survey import model_of
from hushgrid.occupancy import OccupancyModel

_DIGITS = 4  # of a law's numbers in a file
_NAMES = {
    "gamma": ("shape", "scale"),
    "lognormal": ("median", "spread"),
    "normal": ("centre", "spread"),
}


@dataclass(frozen=True, slots=True, eq=False)
class PublishedGroup:
    """What is published about a group of homes: a chain and laws, as a zone file has them.

    `absent` is a law's table, `present` one for each slot group that begins at `starts` [h].
    """

    chain: Habits
    absent: dict[str, Any]
    present: tuple[dict[str, Any], ...]
    starts: tuple[int, ...]
    homes: int

    def laws(self, bound: int) -> tuple[Law, tuple[Law, ...]]:
        """The laws on 0..bound [Wh]; one without mass there is on the bound, as after a clamp."""
        own = self.within(bound)
        return law_of_table(own.absent, bound), tuple(law_of_table(t, bound) for t in own.present)

    def within(self, bound: int) -> PublishedGroup:
        """The same with tables that are laws on 0..bound [Wh]."""
        present = tuple(_within(table, bound) for table in self.present)
        return replace(self, absent=_within(self.absent, bound), present=present)


def publics(models: Fit, starts: tuple[int, ...], which: Indices) -> tuple[PublishedGroup, ...]:
    """What each model says in two states; state 0 is absent, all others are present."""
    counts = models.moves + models.design.moves
    found = []
    for j in range(models.homes):
        a = two_states(counts[j])
        chain = Habits(a, stationary(a), "learned")
        absent = _table(models, j, 0, 0)
        present = tuple(_present(models, j, g) for g in range(models.design.groups))
        found.append(PublishedGroup(chain, absent, present, starts, int((which == j).sum())))
    return tuple(found)


def two_states(counts: Floats) -> Floats:
    """(slots, 2, 2) moves between absent and present, from counts (slots, K, K) of moves."""
    away, home = counts[:, 0], counts[:, 1:].sum(axis=1)
    flows = np.stack(
        [
            np.stack([away[:, 0], away[:, 1:].sum(axis=1)], axis=1),
            np.stack([home[:, 0], home[:, 1:].sum(axis=1)], axis=1),
        ],
        axis=1,
    )
    return np.asarray(flows / flows.sum(axis=2, keepdims=True))


def _present(models: Fit, j: int, g: int) -> dict[str, Any]:
    """The law of somebody at home: that of the one state, or a mixture of quiet and active."""
    states = range(1, models.design.states)
    seen = np.maximum(models.seen[j, g, 1:], 0) + 0.5
    shares = np.round(seen / seen.sum(), _DIGITS)
    shares[-1] = 1 - shares[:-1].sum()
    parts = [_table(models, j, g, k) for k in states]
    if len(parts) == 1:
        return parts[0]
    mixed = [
        {"share": float(round(s, _DIGITS)), **part} for s, part in zip(shares, parts, strict=True)
    ]
    return {"law": "mixture", "parts": mixed}


def _table(models: Fit, j: int, g: int, k: int) -> dict[str, Any]:
    family, values = models.design.family, models.parameters[j, g, k]
    if family == "histogram":
        weights = np.maximum(np.round(values, 7), 0)
        return {
            "law": "bins",
            "edges": [int(edge) for edge in models.edges[j]],
            "weights": [float(w) for w in weights],
        }
    return {"law": family} | {
        name: float(f"{value:.{_DIGITS}g}")
        for name, value in zip(_NAMES[family], values, strict=True)
    }


def _within(table: dict[str, Any], bound: int) -> dict[str, Any]:
    """A law's table, or that of its clamped reading where 0..bound [Wh] has none of its mass."""
    if table["law"] == "mixture":
        return {**table, "parts": [_within(part, bound) for part in table["parts"]]}
    try:
        law_of_table(table, bound).pmf  # noqa: B018
    except ConsumptionError:
        share = {key: table[key] for key in ("share",) if key in table}
        return {**share, "law": "bins", "edges": [0, bound, bound + 1], "weights": [0.0, 1.0]}
    return table


def law_of_table(table: dict[str, Any], bound: int) -> Law:
    """The law that a zone file's table means.

    >>> law_of_table({"law": "uniform"}, 10)
    Uniform(top=10)
    """
    if table["law"] == "mixture":
        parts = table["parts"]
        return Mixture([law_of_table(p, bound) for p in parts], [p["share"] for p in parts])
    arguments = {key: value for key, value in table.items() if key not in ("law", "share")}
    return FAMILIES[table["law"]](**{"top": bound} | arguments)


def theta(found: tuple[PublishedGroup, ...], chain_of: Indices, name: str) -> OccupancyModel:
    """The occupancy model of houses that follow these chains."""
    return model_of([one.chain for one in found], chain_of, name)
