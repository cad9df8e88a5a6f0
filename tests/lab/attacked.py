"""A recorded day to attack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushgrid import Consumption, Histogram, OccupancyModel, Policy, Scenario, Tariff, Zone
from hushgrid.adversary.attack import Recording
from hushgrid.cli import main
from hushgrid.lab.attack import record

STAY = [[0.95, 0.05], [0.05, 0.95]]


def world(houses: int = 20) -> Scenario:
    """Alike houses whose reading alone tells little doubt: 0..30 away, 60..90 at home."""
    away, home = np.zeros(91), np.zeros(91)
    away[:31], home[60:] = 1.0, 1.0
    theta = OccupancyModel.factored([[0.5, 0.5]], [[STAY]], chain_of=[0] * houses)
    f = Consumption.by_class(
        absent=[Histogram(away / 31)], present=[Histogram(home / 31)], class_of=[0] * houses
    )
    return Scenario(Zone("z", [90] * houses), Tariff(0.5, 1.0), [theta], f)


def day(houses: int = 20, **terms: Any) -> tuple[Scenario, Policy, Recording]:
    scenario, policy = world(houses), Policy(0.2, horizon=96, **terms)
    return scenario, policy, record(scenario, policy, seed=5)


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)
