"""A zone with its tariff and its models: everything public that a simulation or a release needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Tariff, Zone


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """A zone, its public models, and the true behaviour where that differs.

    Attributes:
        zone: Houses and bounds.
        tariff: Coefficients and limits of the price.
        models: The public occupancy models Theta.
        consumption: The public laws of readings.
        truth: True occupancy model of a simulation; None: the first of `models`.
        consumed: True laws of readings of a simulation; None: `consumption`.
    """

    zone: Zone
    tariff: Tariff
    models: Sequence[OccupancyModel]
    consumption: Consumption
    truth: OccupancyModel | None = None
    consumed: Consumption | None = None

    def starting(self, offset: int) -> Scenario:
        """The same zone with every calendar `offset` steps later."""
        return Scenario(
            self.zone,
            self.tariff,
            tuple(model.starting(offset) for model in self.models),
            self.consumption.starting(offset),
            self.truth.starting(offset) if self.truth else None,
            self.consumed.starting(offset) if self.consumed else None,
        )
