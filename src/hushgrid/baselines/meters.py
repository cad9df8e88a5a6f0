"""Batteries against an attacker at one house's meter: her AUC by size, beside the energy moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Floats
from hushgrid.baselines.attacker import meter_auc
from hushgrid.baselines.battery import RULES, Battery, hide
from hushgrid.baselines.method import part_of
from hushgrid.belief import chances_at_home
from hushgrid.intervals import Summary, summarise
from hushgrid.occupancy import OccupancyModel
from hushgrid.scores import mean_auc
from hushgrid.simulation import Scenario

SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)  # capacity, in a house's bound (a full step of use)
POWER = 0.5  # in or out a step, in a house's bound


class BatteryScore(NamedTuple):
    """A battery rule at a size: her AUC over houses, energy moved as a share of the use."""

    name: str
    size: float
    auc: Summary
    moved: float


def battery_scores(
    readings: NDArray[np.integer],
    home: NDArray[np.integer],
    bound: NDArray[np.integer],
    model: OccupancyModel,
    *,
    seed: int,
    sizes: Sequence[float] = SIZES,
    tick: Callable[[], Any] = lambda: None,
) -> list[BatteryScore]:
    """Score every rule and size on days (days, T, houses); two thirds of the days train her.

    Two rows without a battery stand beside them: `open`, the meter as it is, and `prior`, guessing
    from the public model alone.
    """
    days, horizon, houses = readings.shape
    cut = max(1, days * 2 // 3)
    use = np.moveaxis(readings, 0, 2).astype(np.int64)  # (T, houses, days)
    there = np.moveaxis(home, 0, 2).astype(np.float64)
    odds = prior_odds(model, horizon)
    units = np.maximum(bound.astype(np.float64), 1.0)

    def scored(draw: Floats) -> Summary:
        found = [
            meter_auc(
                draw[:, h, :cut] / units[h],
                there[:, h, :cut],
                draw[:, h, cut:] / units[h],
                there[:, h, cut:],
                odds[:, h],
            )
            for h in range(houses)
        ]
        return summarise([one for one in found if np.isfinite(one)])

    guess = np.repeat(odds, days - cut, axis=0)  # the same every day
    known = [mean_auc(guess[:, [h]], there[:, h, cut:].reshape(-1, 1)) for h in range(houses)]
    out = [
        BatteryScore("open", 0.0, scored(use.astype(np.float64)), 0.0),
        BatteryScore("prior", 0.0, summarise([one for one in known if np.isfinite(one)]), 0.0),
    ]
    for name, rule in RULES.items():
        for size in sizes:
            battery = Battery(
                np.maximum(size * units[:, None], 1).astype(np.int64),
                np.maximum(POWER * units[:, None], 1).astype(np.int64),
            )
            coins = np.random.Generator(np.random.PCG64([seed, 5])).random(use.shape)
            hidden = hide(use, battery, rule(battery), coins)
            moved = float(hidden.moved.sum() / max(int(use.sum()), 1))
            out.append(BatteryScore(name, size, scored(hidden.draw.astype(np.float64)), moved))
            tick()
    return out


def score_zone(
    scenario: Scenario,
    days: Sequence[Any],
    *,
    houses: int,
    seed: int,
    tick: Callable[[], Any] = lambda: None,
) -> list[BatteryScore]:
    """Scores for some houses of a zone, evenly chosen, on days with readings and occupancy."""
    n = scenario.zone.n_houses
    some = np.unique(np.linspace(0, n - 1, min(houses, n)).astype(np.int64))
    part = part_of(scenario, some)
    readings = np.stack([day.readings[:, some] for day in days])
    home = np.stack([day.home[:, some] for day in days])
    return battery_scores(readings, home, part.zone.bound, part.models[0], seed=seed, tick=tick)


def prior_odds(model: OccupancyModel, horizon: int) -> Floats:
    """(T, houses): log odds that somebody is at home, before anything is seen."""
    home = np.clip(chances_at_home(model, horizon), 1e-9, 1 - 1e-9)
    return np.asarray(np.log(home / (1 - home)))
