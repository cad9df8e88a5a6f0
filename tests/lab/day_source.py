"""Days that follow each other."""

from __future__ import annotations

import numpy as np

from hushgrid import Calendar, Consumption, OccupancyModel, Scenario, Tariff, Uniform, Zone
from hushgrid.lab.datasets import Real, Recorded

T, U, DAYS = 24, 900, 60


def chain(stay: float) -> list[list[float]]:
    return [[stay, 1 - stay], [1 - stay, stay]]


def source(*, weekly: bool = False, quiet: bool = False) -> Recorded:
    """Sixty days of three homes that stay away, or at home, for most of a day."""
    calendar = Calendar.week(weekday=[0] * T, weekend=[1] * T) if weekly else Calendar([0] * T)
    moves = [[chain(0.95)], [chain(0.8)]] if weekly else [[chain(0.95)]]
    theta = OccupancyModel.factored([[0.3, 0.7]], moves, calendar=calendar, chain_of=[0] * 3)
    f = Consumption.by_class(absent=[Uniform(200)], present=[Uniform(U)], class_of=[0] * 3)
    if quiet:  # at weekends
        laws = (Uniform(200), Uniform(U), Uniform(300))
        f = Consumption(laws, np.array([[0], [0]]), np.array([[1], [2]]), np.zeros(3), calendar)
    scenario = Scenario(Zone("z", [U] * 3), Tariff(1.0, 1.0), (theta,), f)
    readings = np.random.default_rng(1).integers(0, U + 1, (DAYS, T, 3)).astype(np.int32)
    return Recorded.of(scenario, Real(("a", "b", "c"), readings, np.arange(DAYS)))
