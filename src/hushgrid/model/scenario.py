"""A simulated zone in closed loop: occupancy, consumption, pricing, publication.

Memory holds one step of the zone, whatever the horizon. Mechanisms compared with each other meet
the same people, the same readings and the same noise quantiles (common random numbers); where
readings react to rates, each mechanism has its own copy of the zone with the same randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, Zone


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A zone, what the public believes of it, and a world where that is true.

    `truth` and `consumed` say how people really move and consume, where that differs.
    """

    zone: Zone
    tariff: Tariff
    models: Sequence[OccupancyModel]
    consumption: Consumption
    truth: OccupancyModel | None = None
    consumed: Consumption | None = None

    def starting(self, offset: int) -> Scenario:
        """The same zone with every calendar seen from `offset` steps later."""
        return Scenario(
            self.zone,
            self.tariff,
            tuple(model.starting(offset) for model in self.models),
            self.consumption.starting(offset),
            self.truth.starting(offset) if self.truth else None,
            self.consumed.starting(offset) if self.consumed else None,
        )
