"""Small zones for tests of the running parts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid.curator.clock import utc
from hushgrid.files.deployment import ZoneService
from hushgrid.intake.readings import Register
from hushgrid.stores.ledger.writer import create

BEGINS = 1_767_571_200  # 2026-01-05T00:00:00Z, a Monday
STAY = [[0.9, 0.1], [0.2, 0.8]]


def service(
    n: int = 6, name: str = "elm", policy: Policy | None = None, export: int = 0, **more: Any
) -> ZoneService:
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0] * n)
    f = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(1000)], class_of=[0] * n)
    zone = Zone.net(name, [1000] * n, [export] * n)
    scenario = Scenario(zone, Tariff(1.0, 2.0), (theta,), f)
    meters = tuple(f"{name}-{i}" for i in range(n))
    policy = Policy(0.5, horizon=2_000) if policy is None else policy
    return ZoneService(scenario, policy, meters, **({"grace": 0, "begins": BEGINS} | more))


def two_registers(zone: ZoneService) -> ZoneService:
    """The zone with a register for each direction in every third house."""
    registers = (Register(i, f"{m}-out", -1) for i, m in enumerate(zone.meters) if i % 3 == 1)
    return replace(zone, registers=tuple(registers))


def several_meters(zone: ZoneService) -> ZoneService:
    """The zone with two further meters in house 1, and one and a register fed in in house 2."""
    registers = [(1, "heat", 1), (1, "car", 1), (2, "car", 1), (2, "out", -1)]
    return replace(
        zone,
        registers=tuple(
            Register(house, f"{zone.meters[house]}-{kind}", sign) for house, kind, sign in registers
        ),
    )


def reading(house: int, t: int) -> int:
    """What house counted at step t [Wh]; now and then above the bound or below 0."""
    return int(np.int64((house * 7919 + t * 104_729) % 1200 - 50))


def example(begins: int) -> str:
    """A service file of a street of 40 homes that promises each price, as earlier ones do.

    Args:
        begins: Start of its first interval [UTC s].

    Returns:
        TOML.
    """
    street = Path(__file__).parents[1] / "data" / "street.toml"
    return street.read_text("utf-8").replace("{begins}", utc(begins))


def street_in(folder: Path) -> Path:
    """Write that file, from today on, and its key.

    Args:
        folder: Where to.

    Returns:
        The service file.
    """
    folder.mkdir(exist_ok=True)
    create(folder / "hushgrid.key")
    (folder / "service.toml").write_text(example(int(time.time()) // 86_400 * 86_400))
    return folder / "service.toml"


def service_text(
    begins: str,
    interval: str = "PT15M",
    time_zone: str = "UTC",
    zone: str = "elm",
    tariff: tuple[float, float] = (0.1, 0.05),
    more: str = "",
) -> str:
    """A service file up to its tariff, which may go on.

    Args:
        begins: In UTC, as in the file.
        interval: Of prices and of readings.
        time_zone: Of the zone.
        zone: Its name.
        tariff: alpha and beta.
        more: Lines of its first table.
    """
    return f"""
format = 1

[service]
mode = "simulation"
begins = {begins}
time_zone = "{time_zone}"
interval = "{interval}"
meter_interval = "{interval}"
fallback_rate = 0.25
key = "key"
{more}
[stores]
ledger = "ledger.db"
meters = "meters"
[zone]
id = "{zone}"
[tariff]
alpha = {tariff[0]}
beta = {tariff[1]}
"""
