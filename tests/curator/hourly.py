"""A street with prices by the hour."""

from __future__ import annotations

from dataclasses import replace

from hushgrid import OccupancyModel, Policy
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed
from tests.curator.borders import zone_of

HOUR = 3600


THETA = OccupancyModel.factored([[2 / 3, 1 / 3]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])


def street(begins: int, promise: Promise) -> ZoneService:
    """Two homes of 1000 Wh with prices by the hour, as a file gives them."""
    made = zone_of(THETA, begins, promise.epsilon, 48, None)
    pattern = Pattern(made.scenario, Policy(promise.epsilon, horizon=48))
    found = replace(made, pattern=pattern, promise=promise)
    return placed(found, begins)
