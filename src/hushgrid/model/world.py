"""Simulated homes of a zone: who is at home, and what the meters read.

Memory holds one step of the zone, whatever the horizon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Uniform
from hushgrid.model.occupancy import check_models
from hushgrid.model.zone import Scenario, aggregate

_INITIAL, _MOVE, _CONSUME, NOISE_STREAM = range(4)  # what a random stream is for


class World:
    """The houses of a zone. `step` draws occupancy and readings and returns the load [Wh].

    Args:
        scenario: The zone, its true model and its true laws.
        seed: Seed of the randomness, as whole numbers.
    """

    def __init__(self, scenario: Scenario, seed: Sequence[int]) -> None:
        truth = scenario.truth or check_models(scenario.models, scenario.zone.n_houses)[0]
        check_models([truth], scenario.zone.n_houses)
        consumption = scenario.consumed or scenario.consumption
        consumption.check_fits(scenario.zone.bound)
        self._truth, self._consumption, self._zone = truth, consumption, scenario.zone
        self._seed, self._t = tuple(seed), 0
        self._states = [np.zeros(len(piece.members), np.int16) for piece in truth.chains]
        self._cumulative = [np.cumsum(piece.transition, axis=-1) for piece in truth.chains]
        self._tables = _sampling_tables(consumption)
        self.occupancy = np.zeros(scenario.zone.n_houses, np.uint8)
        self.readings = np.zeros(scenario.zone.n_houses, np.int32)
        self.home = self.load = 0

    def step(self, rates: Sequence[float]) -> int:
        """The load of the next step, after these published rates."""
        from hushgrid._kernels.readings import consume, move, stream_key

        self._t += 1
        slot = self._truth.calendar.slot(self._t)
        for p, piece in enumerate(self._truth.chains):
            if self._t == 1:
                rows = np.cumsum(piece.initial, axis=-1)[:, None, :]
                key = stream_key(*self._seed, p, _INITIAL)
            else:
                rows = self._cumulative[p][slot]
                key = stream_key(*self._seed, self._t, p, _MOVE)
            move(self._states[p], piece.chain_of, rows, piece.members, key, self.occupancy)
        self.home = int(
            consume(
                self.occupancy,
                self._consumption.class_of,
                self._consumption.table(self._t),
                *self._tables,
                self._consumption.factor(rates),
                self._zone.bound,
                stream_key(*self._seed, self._t, 0, _CONSUME),
                self.readings,
            )
        )
        self.load = aggregate(self.readings, self._zone.bound)
        return self.load


def simulate_steps(
    scenario: Scenario, horizon: int, seed: Sequence[int], published: Sequence[float] = ()
) -> Iterator[World]:
    """The houses of a zone over one day.

    Args:
        scenario: The zone.
        horizon: Steps of the day.
        seed: Seed of the houses.
        published: Rates published so far; the caller may append to it after every step.

    Yields:
        The same world after each step: its occupancy, readings and load.
    """
    world = World(scenario, seed)
    for _ in range(horizon):
        world.step(published)
        yield world


def _sampling_tables(f: Consumption) -> tuple[Any, Any, Any, Any]:
    """(top, offset, cut, other) of all laws; uniform laws need no table."""
    from hushgrid._kernels.readings import alias_table

    offset, cuts, partners, filled = [], [np.empty(0)], [np.empty(0, np.int32)], 0
    for law in f.laws:
        if isinstance(law, Uniform):
            offset.append(-1)
            continue
        cut, partner = alias_table(law.pmf)
        cuts.append(cut)
        partners.append(partner)
        offset.append(filled)
        filled += law.top + 1
    tops = np.array([law.top for law in f.laws], np.int64)
    return tops, np.array(offset, np.int64), np.concatenate(cuts), np.concatenate(partners)
