"""The solar part of homes whose panels have a register of their own.

The register counts what was fed in, or what the panels generated. Its law depends on the slot group
(of a day, and of a season where there are several) and on the group of homes alone: given the time
it is assumed independent of occupancy and of what the home took. The law of a net reading is then
the convolution of both, as a zone file's "net" has it. Of two registers of one meter the assumption
is rough, since energy fed in is what was not used; a meter of the generation itself fits it better.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Indices
from hushgrid.learning._families import common_edges
from hushgrid.learning.evaluation import PublishedGroup
from hushgrid.learning.histories import Histories

_PRIOR = 1.0  # readings, spread like all of the group, that each slot group has in addition


def with_solar(
    public: tuple[PublishedGroup, ...], histories: Histories, group_of: Indices
) -> tuple[PublishedGroup, ...]:
    """Laws of net readings from laws of what homes take and of what their panels' register counts.

    Args:
        public: Chain and laws of each group, of what homes take.
        histories: Histories with a register of the panels apart; else `public` stays as it is.
        group_of: (homes,) group of each home.

    Returns:
        The groups with net laws by slot group, for occupied and for empty homes.
    """
    if histories.solar is None:
        return public
    return tuple(
        _composed(published, histories, np.flatnonzero(group_of == j))
        for j, published in enumerate(public)
    )


def _composed(published: PublishedGroup, histories: Histories, members: Indices) -> PublishedGroup:
    assert histories.solar is not None
    v, group = histories.export, published.slot_group(histories)
    solar = np.clip(histories.solar[members], 0, v)
    edges = common_edges(solar)
    counts = np.stack([_counts(solar[:, group == g], edges) for g in range(len(published.present))])
    usual = counts.sum(axis=0)
    usual = usual / usual.sum() if usual.any() else np.eye(1, len(usual))[0]
    if published.seasons:  # what a season lacks is as at this time of day in all of the year
        year = (
            counts.reshape(len(published.seasons), len(published.starts), -1).sum(axis=0)
            + _PRIOR * usual
        )
        usual = np.tile(year / year.sum(axis=1, keepdims=True), (len(published.seasons), 1))
    shares = counts + _PRIOR * usual
    shares = np.round(shares / shares.sum(axis=1, keepdims=True), 7)
    bins = [
        {"law": "bins", "edges": [int(edge) for edge in edges], "weights": weights.tolist()}
        for weights in shares
    ]

    def net(tables: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        return tuple(
            {"law": "net", "export": v, "consumption": table, "solar": part}
            for table, part in zip(tables, bins, strict=True)
        )

    empty = net(published.empty or (published.absent,) * len(bins))
    return replace(published, absent=empty[0], present=net(published.present), empty=empty)


def _counts(values: Floats, edges: Floats) -> Floats:
    """Readings in each bin."""
    finite = values[np.isfinite(values)]
    return np.histogram(finite, edges)[0].astype(np.float64)


def dependence(histories: Histories, starts: tuple[int, ...]) -> float:
    """Correlation of both registers within slot groups of a home, which the laws take for 0.

    Args:
        histories: Histories with a register of the panels apart.
        starts: First hour of each slot group.

    Returns:
        The correlation, from -1 to 1; 0 where a register never moves.
    """
    assert histories.solar is not None
    group, sums = histories.slot_group(starts), np.zeros(3)
    for readings, solar in zip(histories.wh, histories.solar, strict=True):
        finite = np.isfinite(readings) & np.isfinite(solar)
        finite_groups = group[finite]
        number = np.maximum(np.bincount(finite_groups), 1)
        x, y = (
            values[finite] - (np.bincount(finite_groups, values[finite]) / number)[finite_groups]
            for values in (readings, solar)
        )
        sums += x @ y, x @ x, y @ y
    covariance, reading_variance, solar_variance = sums.tolist()
    if reading_variance <= 0 or solar_variance <= 0:
        return 0.0
    return float(covariance / (reading_variance * solar_variance) ** 0.5)
