"""A public model of homes from earlier days: two states of use, pooled over homes of a size.

For comparisons on real readings without labels: state 1 is the one with more use. The readings of
all homes of a class are fitted at once (`learn.em.pooled_counts`); no move and no value gets
probability 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Floats, Int32s, Ints
from hushgrid.calendar import Calendar
from hushgrid.consumption import Consumption
from hushgrid.errors import ModelError
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import Histogram
from hushgrid.learn.em import pooled_counts
from hushgrid.occupancy import OccupancyModel
from hushgrid.simulation import Scenario

CLASSES, PERIODS, ROUNDS = 5, 6, 30
_LEAST = 0.005  # chance a step of any move
_SPREAD = 1e-3  # share of every law that lies anywhere below the bound
_MEAN_RATE = 250_000 / 1000  # the tariff is scaled until the mean load costs what the paper's does


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    initial: Floats  # (2,)
    moves: Floats  # (periods, 2, 2)
    emit: Floats  # (2, bins)


def learn_habits(readings: NDArray[np.integer], bound: int, beta: float = 62.5) -> Scenario:
    """A zone from readings (days, T, homes) [Wh], -1 where missing, under one contract bound."""
    days, horizon, homes = readings.shape
    if days < 2 or homes < 1 or horizon < PERIODS:
        raise ModelError(
            f"there are {days} days of {horizon} steps of {homes} homes to learn from;"
            f" give 2 days or more of {PERIODS} steps or more."
        )
    known = np.where(readings >= 0, readings, 0).sum(axis=(0, 1))
    size = known / np.maximum((readings >= 0).sum(axis=(0, 1)), 1)
    kinds = min(CLASSES, homes)
    class_of = np.empty(homes, np.int64)
    class_of[np.argsort(size, kind="stable")] = np.arange(homes) * kinds // homes
    edges = _edges(bound)
    slots = (np.arange(horizon) * PERIODS // horizon).astype(np.int32)
    fits = [
        _fitted(_bins(readings[:, :, class_of == k], edges), slots, len(edges) - 1)
        for k in range(kinds)
    ]
    fits = [_ordered(fit, edges) for fit in fits]
    theta = OccupancyModel.factored(
        [fit.initial for fit in fits],
        np.stack([fit.moves for fit in fits], axis=1),
        calendar=Calendar(slots),
        chain_of=class_of,
        name="habits",
    )
    f = Consumption.by_class(
        absent=[_law(fit.emit[0], edges, bound) for fit in fits],
        present=[_law(fit.emit[1], edges, bound) for fit in fits],
        class_of=class_of,
    )
    mean_load = max(float(size.sum()), 1.0)
    tariff = Tariff(_MEAN_RATE / (mean_load / 1000), beta)
    return Scenario(Zone("readings", [bound] * homes), tariff, (theta,), f)


def _edges(bound: int) -> Ints:
    """Bins of readings that widen with them: 0, then about a fifth each; the last ends at bound."""
    edges = [0, 1]
    while edges[-1] <= bound:
        edges.append(min(edges[-1] + max(10, edges[-1] // 5), bound + 1))
        if edges[-1] == bound + 1:
            break
    return np.array(edges, np.int64)


def _bins(readings: NDArray[np.integer], edges: Ints) -> Int32s:
    """(sequences, T) of bin numbers, -1 where missing: a sequence is a day of a home."""
    cut = np.minimum(readings, edges[-1] - 1)
    found = np.where(readings >= 0, np.searchsorted(edges, cut, side="right") - 1, -1)
    return np.moveaxis(found, 1, 2).reshape(-1, readings.shape[1]).astype(np.int32)


def _fitted(seen: Int32s, slots: Int32s, bins: int) -> _Fit:
    known = seen[seen >= 0]
    ramp = 1 / (1 + np.exp(-(np.arange(bins) - (float(np.median(known)) if known.size else 0.0))))
    counts = np.bincount(known, minlength=bins) + 0.5
    emit = np.stack([counts * (1.2 - ramp), counts * (0.2 + ramp)])
    emit /= emit.sum(axis=1, keepdims=True)
    initial = np.array([0.5, 0.5])
    moves = np.tile([[0.85, 0.15], [0.15, 0.85]], (int(slots.max()) + 1, 1, 1))
    for _ in range(ROUNDS):
        first, moved, used = pooled_counts(seen, slots, initial, moves, emit.T)
        initial = (first + 1) / (first + 1).sum()
        share = (moved + 1) / (moved + 1).sum(axis=2, keepdims=True)
        moves = np.clip(share, _LEAST, 1 - _LEAST)
        emit = (used.T + 0.5) / (used.T + 0.5).sum(axis=1, keepdims=True)
    return _Fit(initial, moves, emit)


def _ordered(fit: _Fit, edges: Ints) -> _Fit:
    """State 1 is the one with more use."""
    middles = (edges[:-1] + edges[1:] - 1) / 2
    low, high = fit.emit @ middles
    if low <= high:
        return fit
    return _Fit(fit.initial[::-1], fit.moves[:, ::-1, ::-1], fit.emit[::-1])


def _law(emit: Floats, edges: Ints, bound: int) -> Histogram:
    """A bin's weight spread evenly over its Wh, and a little over all."""
    pmf = np.repeat(emit / np.diff(edges), np.diff(edges))
    return Histogram((1 - _SPREAD) * pmf + _SPREAD / (bound + 1))
