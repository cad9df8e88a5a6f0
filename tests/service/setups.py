"""Small zones for tests of the running parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid.files.deployment import ZoneService

BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z, a Monday
STAY = [[0.9, 0.1], [0.2, 0.8]]


def service(
    n: int = 6, name: str = "elm", policy: Policy | None = None, **more: Any
) -> ZoneService:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0] * n)
    f = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)], class_of=[0] * n)
    scenario = Scenario(Zone(name, [1000] * n), Tariff(1.0, 2.0), (theta,), f)
    meters = tuple(f"{name}-{i}" for i in range(n))
    policy = Policy(0.5, horizon=2_000) if policy is None else policy
    return ZoneService(scenario, policy, meters, **({"grace": 0, "begins": BEGINS} | more))


def reading(house: int, t: int) -> int:
    """What house counted at step t [Wh]; now and then above the bound or below 0."""
    return int(np.int64((house * 7919 + t * 104_729) % 1200 - 50))
