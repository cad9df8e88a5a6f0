"""The paper's experiment (section IV): its zone, its mechanisms, honest statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hushgrid.arrays import Floats, Ints
from hushgrid.calendar import Calendar
from hushgrid.calibration import Calibration, Naive
from hushgrid.consumption import Consumption
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import Uniform
from hushgrid.occupancy import OccupancyModel
from hushgrid.policy import Policy
from hushgrid.simulation import Mechanism, Scenario, Study, StudyDay, Trace, fold
from hushgrid.simulation import days as simulated_days

EPSILON = 0.5
HOUSES = 1000
HORIZON = 96
UNIT = 1000  # [Wh]; the paper's u_max = 1
SIGMA = 0.02  # the paper does not state it
TARIFF = Tariff(alpha=1.0, beta=62.5)
PUBLISHED = {"naive": 1.149e-3, "blowfish": 1.089e-3}  # one day each, the paper's formula

# period: steps in it, chance to leave, chance to come home (or wake) at some point of it
PERIODS = {
    "night": (32, 0.995, 0.01),
    "morning": (4, 0.05, 0.98),
    "noon": (32, 0.95, 0.05),
    "evening": (28, 0.05, 0.99),
}
NIGHT, MORNING, NOON, EVENING = range(4)
CALENDAR = Calendar(
    np.repeat([NIGHT, MORNING, NOON, EVENING, NIGHT], [28, 4, 32, 28, 4])  # 00-07-08-16-23-24 h
)


def chains(sigma: float, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(initial, transition) of n houses: a base matrix plus Gaussian noise, drawn once a house.

    A chance P over a period of n steps is 1 - (1 - P)^(1/n) a step; the noise goes on the eight
    step probabilities, as entries of the matrix. Clipping to [0, 1] makes the only zeros.
    Everyone sleeps at midnight: Pi = e_0 A^night.
    """
    steps = np.array([p[0] for p in PERIODS.values()])[:, None, None]
    base = 1 - (1 - np.array([p[1:] for p in PERIODS.values()])[:, None, :]) ** (1 / steps)
    perturbed = np.clip(base + sigma * rng.standard_normal((len(PERIODS), n, 2)), 0, 1)
    leave, come = np.moveaxis(perturbed, -1, 0)
    a = np.empty((len(PERIODS), n, 2, 2))
    a[:, :, 0] = np.stack([1 - come, come], axis=-1)
    a[:, :, 1] = np.stack([leave, 1 - leave], axis=-1)
    return a[NIGHT, :, 0].copy(), a


def scenario(sigma: float, seed: int, n: int = HOUSES) -> Scenario:
    """The paper's zone: X ~ U(0, u), u ~ U(0, 1) at home and U(0, 0.5) away, two fixed draws."""
    rng = np.random.Generator(np.random.PCG64([seed, 8]))
    initial, transition = chains(sigma, n, rng)
    theta = OccupancyModel.factored(initial, transition, calendar=CALENDAR, name="paper")
    f, bound = uniform_houses(n, rng)
    return Scenario(Zone("paper", bound), TARIFF, (theta,), f)


def uniform_houses(n: int, rng: np.random.Generator) -> tuple[Consumption, Ints]:
    """The paper's readings in whole Wh, and each house's public bound: its larger draw."""
    present = np.rint(rng.random(n) * UNIT).astype(np.int64)
    absent = np.rint(rng.random(n) * UNIT / 2).astype(np.int64)
    f = Consumption.by_class(
        absent=[Uniform(u) for u in absent.tolist()], present=[Uniform(u) for u in present.tolist()]
    )
    return f, np.maximum(np.maximum(absent, present), 1)


def mechanisms(epsilon: float = EPSILON) -> dict[str, Mechanism]:
    """naive (u_max), naive_max (largest house), bound (eta = 1), exact (eta = 0)."""
    return {
        "naive": Mechanism(Policy(epsilon, HORIZON), Naive(UNIT)),
        "naive_max": Mechanism(Policy(epsilon, HORIZON), Naive()),
        "bound": Mechanism(Policy(epsilon, HORIZON)),
        "exact": Mechanism(Policy(epsilon, HORIZON, eta=0.0)),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """The paper's experiment over many days, each with a zone of its own.

    `sample` is the first day; its scale [Wh] and protected houses, by mechanism and step.
    """

    sigma: float
    seed: int
    study: Study
    sample: Mapping[str, Trace]
    scale: Mapping[str, Floats]
    protected: Ints
    fewest_protected: int


def experiment(
    *, days: int, sigma: float, seed: int, progress: Callable[[], None] = lambda: None
) -> Experiment:
    """naive, naive_max, bound and exact over `days` days under common random numbers."""
    first: list[StudyDay] = []
    fewest = HOUSES

    def watched() -> Iterator[StudyDay]:
        nonlocal fewest
        played = simulated_days(
            lambda day: scenario(sigma, seed + day), mechanisms(), count=days, seed=seed
        )
        for day in played:
            if not first:
                first.append(day)
            fewest = min(fewest, *(len(c.protected) for c in _calibrations(day, "bound")))
            yield day

    result = fold(watched(), progress)
    (sample,) = first
    return Experiment(
        sigma,
        seed,
        result,
        sample.traces,
        {name: np.array([c.scale for c in _calibrations(sample, name)]) for name in mechanisms()},
        np.array([len(c.protected) for c in _calibrations(sample, "bound")]),
        fewest,
    )


def _calibrations(day: StudyDay, name: str) -> list[Calibration]:
    scheduler = day.states[name].scheduler
    return [scheduler.at(t) for t in range(1, HORIZON + 1)]
