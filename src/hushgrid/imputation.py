"""Imputed values of missing readings: the models' public expectation, in whole Wh."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Floats, Int32s, Ints
from hushgrid.belief import Belief, law_moments, marginals
from hushgrid.occupancy import OccupancyModel
from hushgrid.simulation import Scenario


def cells(model: OccupancyModel) -> Int32s:
    """For each house the number of its chain and of its seat in the block, as one number.

    Houses of one cell are alike to the model: they have one chance to be at home.
    """
    found, offset = np.empty(model.n_houses, np.int32), 0
    for piece in model.chains:
        seats = np.arange(piece.size, dtype=np.int32)
        found[piece.members] = offset + piece.chain_of[:, None] * np.int32(piece.size) + seats
        offset += len(piece.initial) * piece.size
    return found


class Expectations:
    """Expected readings of houses, step by step; the mean over the models.

    Steps in rising order are fast; an earlier step starts again from step 1.

    Args:
        scenario: The models and the laws of consumption.
        houses: Numbers of the houses; by default all of them.
        private: Whether the models are private. They may not shape what is published, so every
            expectation is then 0 Wh.
    """

    def __init__(
        self, scenario: Scenario, houses: Ints | None = None, *, private: bool = False
    ) -> None:
        some = slice(None) if houses is None else houses
        self._kinds = scenario.consumption.class_of[some]
        self._private = private
        if private:
            return
        self._models, self._consumption = tuple(scenario.models), scenario.consumption
        self._cells = [cells(model)[some] for model in self._models]
        self._begin()

    def _begin(self) -> None:
        self._t, self._now = 0, list[Belief]()
        self._beliefs: list[Iterator[Belief]] = [marginals(model) for model in self._models]

    def at(self, t: int) -> Ints:
        """Expected readings at a step.

        Args:
            t: The step, counted from 1.

        Returns:
            (houses,) whole Wh.
        """
        if self._private:
            return np.zeros(len(self._kinds), np.int64)
        if t < self._t:
            self._begin()
        while self._t < t:
            self._now = [next(each) for each in self._beliefs]
            self._t += 1
        table = self._consumption.table(t)
        low, high = law_moments(self._consumption)[table][..., 0]
        total = np.zeros(len(self._kinds))
        for belief, model, cell in zip(self._now, self._models, self._cells, strict=True):
            home = _at_home(belief, model)[cell]
            total += low[self._kinds] + home * (high - low)[self._kinds]
        return np.rint(total / len(self._models)).astype(np.int64)


def _at_home(belief: Belief, model: OccupancyModel) -> Floats:
    """Pr[at home] in every cell, before any release."""
    parts = []
    for law, piece in zip(belief.laws, model.chains, strict=True):
        seat = np.arange(piece.size - 1, -1, -1)
        bits = (np.arange(2**piece.size)[:, None] >> seat) & 1
        parts.append((law @ bits).ravel())
    return np.concatenate(parts)


def imputed(readings: NDArray[np.integer], scenario: Scenario) -> Int32s:
    """Replace missing readings by their public expectation.

    Args:
        readings: (days, T, houses) [Wh], -1 where missing; every day begins at step 1.
        scenario: The models and the laws of consumption.

    Returns:
        The readings without gaps, in the same shape.
    """
    out, expectations = np.array(readings, np.int32), Expectations(scenario)
    for t in range(out.shape[1]):
        slot = out[:, t, :]
        slot[...] = np.where(slot < 0, expectations.at(t + 1), slot)
    return out
