"""Leakage that never settles: for which houses it grows, and how, day by day."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushgrid.accounting.temporal import chunks, grows_without_end, of_chains
from hushgrid.arrays import Floats, Indices
from hushgrid.calendar import STEPS_PER_DAY
from hushgrid.checks import is_whole
from hushgrid.errors import NeverMixes, PolicyError
from hushgrid.occupancy import OccupancyModel


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """`leakage` (days, houses): the most that d days of releases say about any of their steps."""

    houses: Indices
    leakage: Floats


def growth(
    model: OccupancyModel, epsilon: float, days: int = 7, *, steps: int = STEPS_PER_DAY
) -> Growth:
    """Day by day, the leakage of the houses for which it grows without end, with a warning.

    `epsilon` is the loss of every step, `steps` the length of a day.

    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[1.0, 0.0], [0.0, 1.0]]]])
    >>> with warnings.catch_warnings(action="ignore", category=NeverMixes):
    ...     growth(theta, 0.25, days=3, steps=4).leakage[:, 0].round(6).tolist()
    [1.0, 2.0, 3.0]
    """
    for name, value in (("days", days), ("steps", steps)):
        if not (is_whole(value) and value >= 1):
            raise PolicyError(f"{name} is {value}; give a whole number, 1 or more.")
    grows = grows_without_end(model, epsilon)
    found = np.zeros((int(days), model.n_houses))
    for p, piece in enumerate(model.chains):
        mine = grows[piece.members[:, 0]]
        chains, follows = np.unique(piece.chain_of[mine], return_inverse=True)
        by_chain = _day_by_day(model, p, epsilon, found.shape[0], int(steps), chains)
        found[:, piece.members[mine]] = by_chain[:, follows][:, :, None]
    houses = np.flatnonzero(grows)
    if houses.size:
        warnings.warn(
            f"leakage of {houses.size} of {model.n_houses} houses (the first is house {houses[0]})"
            f" grows with every day at a loss of {epsilon:g} a step; publish less often, or give a"
            " model in which occupancy can change.",
            NeverMixes,
            stacklevel=2,
        )
    return Growth(houses, found[:, houses])


def _day_by_day(
    model: OccupancyModel,
    p: int,
    epsilon: float,
    days: int,
    steps: int,
    chains: NDArray[np.integer],
) -> Floats:
    out = np.empty((days, len(chains)))
    for some in chunks(len(chains), days * steps):
        for d in range(days):
            e = np.full(((d + 1) * steps, 1), epsilon)
            out[d, some] = of_chains(model, p, e, chains[some]).total.max(axis=0)
    return out
