"""A simulated day kept whole: what the public saw, and apart from it what only the curator knew.

An attack is scored and an audit rehearsed on it. No real day is ever kept like this: only a
simulation knows the truth, and its releases are marked as simulated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgrid.arrays import Int32s, UInt8s
from hushgrid.errors import PolicyError
from hushgrid.mechanism import Release
from hushgrid.policy import Policy
from hushgrid.simulation import Mechanism, Scenario, first_states, run_day


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truth:
    """What the public never sees: `occupancy` (T, N) of 0 and 1, `readings` (T, N) [Wh]."""

    occupancy: UInt8s
    readings: Int32s

    def __post_init__(self) -> None:
        if self.occupancy.ndim != 2 or self.occupancy.shape != self.readings.shape:
            raise PolicyError(
                f"truth has occupancy of shape {self.occupancy.shape} and readings of shape"
                f" {self.readings.shape}; give both for every step and house."
            )
        for array in (self.occupancy, self.readings):
            array.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A day of one zone: its releases in order, and the truth behind them or None.

    `digest` names the terms, as in every release; `config` is the text of the zone file the day
    was simulated from, "" if there was none; `offset` steps of the calendars lie before its first.
    """

    zone: str
    digest: str
    releases: tuple[Release, ...]
    truth: Truth | None = None
    config: str = ""
    day: int = 0
    offset: int = 0
    seed: int = 0

    @property
    def public(self) -> Recording:
        """The same without the truth: what an attacker may be handed."""
        return Recording(
            self.zone, self.digest, self.releases, None, self.config, self.day, self.offset
        )


def record(
    scenario: Scenario, policy: Policy, *, seed: int, day: int = 0, config: str = ""
) -> Recording:
    """The day that `simulation.days` plays under this seed, with the truth of every step.

    >>> from hushgrid import Consumption, OccupancyModel, Tariff, Uniform, Zone
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> world = Scenario(Zone("z", [1000]), Tariff(1.0, 62.5), [theta], f)
    >>> record(world, Policy(0.5, horizon=3), seed=1).truth.occupancy.shape
    (3, 1)
    """
    offset = day * policy.horizon
    today = scenario.starting(offset) if offset else scenario
    states = first_states(today, {"it": Mechanism(policy)})
    seen: list[tuple[UInt8s, Int32s]] = []
    trace = run_day(
        today,
        states,
        policy.horizon,
        (seed, day),
        lambda world: seen.append((world.occupancy.copy(), world.readings.copy())),
    )["it"]
    occupancy, readings = zip(*seen, strict=True)
    truth = Truth(np.array(occupancy), np.array(readings))
    digest = states["it"].digest
    return Recording(today.zone.id, digest, trace.releases, truth, config, day, offset, seed)
