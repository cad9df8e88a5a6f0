"""A zone of 64 kinds of houses as the service runs it."""

from __future__ import annotations

from typing import Any

from benchmarks import zones
from hushgrid import Policy, Scenario, Tariff
from hushgrid.files.deployment import ZoneService

BEGINS, INTERVAL = 1_767_571_200, 900  # 2026-01-05T00:00:00Z


def meter(k: int) -> str:
    return f"meter-{k:07d}"


def service(houses: int, horizon: int = 96, **more: Any) -> ZoneService:
    kinds = zones.kinds(houses, 1)
    tariff = Tariff(1.0, 1000.0 * houses)
    scenario = Scenario(
        zones.zone(kinds, 2), tariff, (zones.theta(kinds, 1),), zones.consumption(kinds)
    )
    return ZoneService(
        scenario, Policy(0.5, horizon=horizon), tuple(map(meter, range(houses))),
        begins=BEGINS, seconds=INTERVAL, grace=0, **more,
    )  # fmt: skip
