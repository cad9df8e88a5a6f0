"""When the paper's constraint pays, and what trust and habit are worth: sweeps around its zone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hushgrid.calendar import Calendar
from hushgrid.calibration import Naive
from hushgrid.consumption import Consumption
from hushgrid.grid import Zone
from hushgrid.intervals import Summary, ratio_of_means
from hushgrid.laws import Uniform
from hushgrid.occupancy import OccupancyModel
from hushgrid.paper import (
    CALENDAR,
    EPSILON,
    HORIZON,
    HOUSES,
    SIGMA,
    TARIFF,
    UNIT,
    chains,
    mechanisms,
    scenario,
    uniform_houses,
)
from hushgrid.policy import Policy
from hushgrid.simulation import Mechanism, Scenario, days, fold

Progress = Callable[[], None]

ETAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIGMAS = (0.0, 0.01, 0.02, 0.05, 0.1)
SIZES = (2, 5, 10)
CERTAIN = (0.0, 0.25, 0.5, 0.75, 0.9)
COUNTS = (1, 10, 50, 100, 200)
TYPICAL_SIZE, TYPICAL_CERTAIN, TYPICAL_COUNT = 5, 0.75, 10


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """A gain (naive error over ours) along one dial, a line for each name."""

    dial: str
    at: tuple[float, ...]
    gain: dict[str, tuple[Summary, ...]]


def against_eta(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """naive over hushgrid at each eta, sigma as in the paper's experiment."""
    chosen = {"naive": mechanisms()["naive"]}
    chosen |= {f"{eta:g}": Mechanism(Policy(EPSILON, HORIZON, eta=eta)) for eta in ETAS}
    found = fold(
        days(lambda day: scenario(SIGMA, seed + day), chosen, count=n_days, seed=seed), tick
    )
    error = {name: found.figures[name]["rmsre_paper"] for name in chosen}
    gains = tuple(ratio_of_means(error["naive"], error[f"{eta:g}"]) for eta in ETAS)
    return Sweep("eta", ETAS, {"naive / hushgrid": gains})


def against_sigma(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """naive over bound and exact as houses differ more and more in their habits."""
    lines: dict[str, list[Summary]] = {"bound": [], "exact": []}
    for sigma in SIGMAS:
        played = days(_zones(sigma, seed), mechanisms(), count=n_days, seed=seed)
        found = fold(played, tick).figures
        for name, line in lines.items():
            line.append(ratio_of_means(found["naive"]["rmsre_paper"], found[name]["rmsre_paper"]))
    gain = {"eta = 1": tuple(lines["bound"]), "eta = 0": tuple(lines["exact"])}
    return Sweep("sigma", SIGMAS, gain)


def _zones(sigma: float, seed: int) -> Callable[[int], Scenario]:
    return lambda day: scenario(sigma, seed + day)


def against_certainty(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """What the constraint alone gains (largest house over kappa, eta = 1), by share of the day."""
    gain = {
        f"{size} times a house": tuple(
            _constraint_gain(size, share, TYPICAL_COUNT, n_days, seed, tick) for share in CERTAIN
        )
        for size in SIZES
    }
    return Sweep("share of the day the large are certain", CERTAIN, gain)


def against_count(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """The same by the share of houses that are large."""
    gain = tuple(
        _constraint_gain(TYPICAL_SIZE, TYPICAL_CERTAIN, count, n_days, seed, tick)
        for count in COUNTS
    )
    at = tuple(count / HOUSES for count in COUNTS)
    return Sweep("share of houses that are large", at, {f"{TYPICAL_SIZE} times a house": gain})


def _constraint_gain(
    size: int, share: float, count: int, n_days: int, seed: int, tick: Progress
) -> Summary:
    zone = large_consumers(size, share, count, seed)
    pair = {
        "naive_max": Mechanism(Policy(EPSILON, HORIZON), Naive()),
        "bound": Mechanism(Policy(EPSILON, HORIZON)),
    }
    found = fold(days(lambda _: zone, pair, count=n_days, seed=seed), tick).figures
    return ratio_of_means(found["naive_max"]["rmsre_paper"], found["bound"]["rmsre_paper"])


def large_consumers(size: int, share: float, count: int, seed: int) -> Scenario:
    """The paper's zone with `count` large consumers, surely closed for a share of the day.

    Like a shop: closed for certain from midnight on, then open or not with even chances.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 9]))
    small = HOUSES - count
    initial, transition = chains(SIGMA, small, rng)
    closed_steps = round(share * HORIZON)
    # slots: the paper's four periods while the large are closed, the same four while they are open
    slots = CALENDAR.slots + 4 * (np.arange(HORIZON) >= closed_steps)
    shut, either = [[1.0, 0.0]] * 2, [[0.5, 0.5]] * 2
    large = np.array([[shut] * count] * 4 + [[either] * count] * 4)
    first = [[1.0, 0.0] if closed_steps else [0.5, 0.5]] * count
    theta = OccupancyModel.factored(
        np.concatenate([initial, first]),
        np.concatenate([np.concatenate([transition, transition]), large], axis=1),
        calendar=Calendar(slots),
        name="large",
    )
    ordinary, bound = uniform_houses(small, rng)
    f = Consumption.by_class(
        absent=[*ordinary.laws[:small], *[Uniform(size * UNIT // 2)] * count],
        present=[*ordinary.laws[small:], *[Uniform(size * UNIT)] * count],
    )
    return Scenario(Zone("large", [*bound, *[size * UNIT] * count]), TARIFF, (theta,), f)
