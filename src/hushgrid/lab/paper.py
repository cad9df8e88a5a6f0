"""The paper's experiment (section IV) and sweeps around it.

Its zone, its mechanisms, means with confidence intervals; then the gain of the mechanisms along
eta, sigma, the certainty of large consumers and their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.lab.simulation import Mechanism, Study, StudyDay, Trace, days, fold
from hushgrid.lab.simulation import days as simulated_days
from hushgrid.mechanism.calibrators import Naive
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.scheduler import Calibration
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Uniform
from hushgrid.model.occupancy import Calendar, OccupancyModel
from hushgrid.model.zone import Scenario, Tariff, Zone
from hushgrid.statistics import Summary, ratio_of_means

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
    """Chains of n houses: a base matrix plus Gaussian noise, drawn once a house.

    A chance P over a period of n steps is 1 - (1 - P)^(1/n) a step; the noise goes on the eight
    step probabilities, as entries of the matrix. Clipping to [0, 1] makes the only zeros. Everyone
    sleeps at midnight: Pi = e_0 A^night.

    Args:
        sigma: Standard deviation of the noise.
        n: Number of houses.
        rng: Source of randomness.

    Returns:
        initial (n, 2) and transition (periods, n, 2, 2).
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
    """The paper's zone: X ~ U(0, u), u ~ U(0, 1) at home and U(0, 0.5) away, two fixed draws.

    Args:
        sigma: Spread of the houses' chains.
        seed: Seed of the zone.
        n: Number of houses.

    Returns:
        The zone and its models.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 8]))
    initial, transition = chains(sigma, n, rng)
    theta = OccupancyModel.factored(initial, transition, calendar=CALENDAR, name="paper")
    f, bound = uniform_houses(n, rng)
    return Scenario(Zone("paper", bound), TARIFF, (theta,), f)


def uniform_houses(n: int, rng: np.random.Generator) -> tuple[Consumption, Ints]:
    """The paper's readings in whole Wh.

    Args:
        n: Number of houses.
        rng: Source of randomness.

    Returns:
        The laws, and each house's public bound [Wh], its larger draw.
    """
    present = np.rint(rng.random(n) * UNIT).astype(np.int64)
    absent = np.rint(rng.random(n) * UNIT / 2).astype(np.int64)
    f = Consumption.by_class(
        absent=[Uniform(u) for u in absent.tolist()], present=[Uniform(u) for u in present.tolist()]
    )
    return f, np.maximum(np.maximum(absent, present), 1)


def mechanisms(epsilon: float = EPSILON) -> dict[str, Mechanism]:
    """The mechanisms of the experiment.

    Args:
        epsilon: Of each step.

    Returns:
        naive (u_max), naive_max (largest house), bound (eta = 1), exact (eta = 0).
    """
    return {
        "naive": Mechanism(Policy(epsilon, HORIZON), Naive(UNIT)),
        "naive_max": Mechanism(Policy(epsilon, HORIZON), Naive()),
        "bound": Mechanism(Policy(epsilon, HORIZON)),
        "exact": Mechanism(Policy(epsilon, HORIZON, eta=0.0)),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Experiment:
    """The paper's experiment over many days, each with a zone of its own.

    Attributes:
        sigma: Spread of the houses' chains.
        seed: Seed of the zones and of the days.
        study: Figures of all days.
        sample: Traces of the first day, by mechanism.
        scale: (T,): its scales [Wh], by mechanism.
        protected: (T,): its numbers of protected houses.
        fewest_protected: The smallest number of protected houses of any day and step.
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
    """naive, naive_max, bound and exact over many days under common random numbers.

    Args:
        days: Number of days.
        sigma: Spread of the houses' chains.
        seed: Seed of the zones and of the days.
        progress: Called after each day.

    Returns:
        The experiment.
    """
    first: list[StudyDay] = []
    fewest = HOUSES

    def watched() -> Iterator[StudyDay]:
        nonlocal fewest
        study_days = simulated_days(_zones(sigma, seed), mechanisms(), count=days, seed=seed)
        for day in study_days:
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


Progress = Callable[[], None]

ETAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIGMAS = (0.0, 0.01, 0.02, 0.05, 0.1)
SIZES = (2, 5, 10)
CERTAIN = (0.0, 0.25, 0.5, 0.75, 0.9)
COUNTS = (1, 10, 50, 100, 200)
TYPICAL_SIZE, TYPICAL_CERTAIN, TYPICAL_COUNT = 5, 0.75, 10


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Gain of a mechanism (error of the naive one over its own) along one parameter.

    Attributes:
        dial: Name of the parameter.
        at: Its values.
        gain: Gains at these values, by name of the line.
    """

    dial: str
    at: tuple[float, ...]
    gain: dict[str, tuple[Summary, ...]]


def against_eta(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """Gain of hushgrid over naive by eta, sigma as in the paper's experiment.

    Args:
        n_days: Number of days at each value.
        seed: Seed of the zones and of the days.
        tick: Called after each day.

    Returns:
        The sweep.
    """
    mechanism_set = {"naive": mechanisms()["naive"]}
    mechanism_set |= {f"{eta:g}": Mechanism(Policy(EPSILON, HORIZON, eta=eta)) for eta in ETAS}
    study = fold(days(_zones(SIGMA, seed), mechanism_set, count=n_days, seed=seed), tick)
    error = {name: study.figures[name]["rmsre_paper"] for name in mechanism_set}
    gains = tuple(ratio_of_means(error["naive"], error[f"{eta:g}"]) for eta in ETAS)
    return Sweep("eta", ETAS, {"naive / hushgrid": gains})


def against_sigma(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """Gain of bound and exact over naive as the houses' habits differ more.

    Args:
        n_days: Number of days at each value.
        seed: Seed of the zones and of the days.
        tick: Called after each day.

    Returns:
        The sweep.
    """
    lines: dict[str, list[Summary]] = {"bound": [], "exact": []}
    for sigma in SIGMAS:
        study_days = days(_zones(sigma, seed), mechanisms(), count=n_days, seed=seed)
        figures = fold(study_days, tick).figures
        for name, line in lines.items():
            line.append(
                ratio_of_means(figures["naive"]["rmsre_paper"], figures[name]["rmsre_paper"])
            )
    gain = {"eta = 1": tuple(lines["bound"]), "eta = 0": tuple(lines["exact"])}
    return Sweep("sigma", SIGMAS, gain)


def _zones(sigma: float, seed: int) -> Callable[[int], Scenario]:
    return lambda day: scenario(sigma, seed + day)


def against_certainty(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """Gain of the constraint alone (largest house over kappa, eta = 1), by share of the day.

    Args:
        n_days: Number of days at each value.
        seed: Seed of the zones and of the days.
        tick: Called after each day.

    Returns:
        The sweep.
    """
    gain = {
        f"{size} times a house": tuple(
            _constraint_gain(size, share, TYPICAL_COUNT, n_days, seed, tick) for share in CERTAIN
        )
        for size in SIZES
    }
    return Sweep("share of the day the large are certain", CERTAIN, gain)


def against_count(n_days: int, seed: int, tick: Progress = lambda: None) -> Sweep:
    """The same by the share of houses that are large.

    Args:
        n_days: Number of days at each value.
        seed: Seed of the zones and of the days.
        tick: Called after each day.

    Returns:
        The sweep.
    """
    gain = tuple(
        _constraint_gain(TYPICAL_SIZE, TYPICAL_CERTAIN, count, n_days, seed, tick)
        for count in COUNTS
    )
    shares = tuple(count / HOUSES for count in COUNTS)
    return Sweep("share of houses that are large", shares, {f"{TYPICAL_SIZE} times a house": gain})


def _constraint_gain(
    size: int, share: float, count: int, n_days: int, seed: int, tick: Progress
) -> Summary:
    zone = large_consumers(size, share, count, seed)
    pair = {
        "naive_max": Mechanism(Policy(EPSILON, HORIZON), Naive()),
        "bound": Mechanism(Policy(EPSILON, HORIZON)),
    }
    figures = fold(days(lambda _: zone, pair, count=n_days, seed=seed), tick).figures
    return ratio_of_means(figures["naive_max"]["rmsre_paper"], figures["bound"]["rmsre_paper"])


def large_consumers(size: int, share: float, count: int, seed: int) -> Scenario:
    """The paper's zone with large consumers that are surely closed for a share of the day.

    Like a shop: closed for certain from midnight on, then open or not with even chances.

    Args:
        size: Bound of a large consumer, in units of the paper's u_max.
        share: Share of the day they are closed.
        count: Number of large consumers.
        seed: Seed of the zone.

    Returns:
        The zone and its models.
    """
    rng = np.random.Generator(np.random.PCG64([seed, 9]))
    small = HOUSES - count
    initial, transition = chains(SIGMA, small, rng)
    closed_steps = round(share * HORIZON)
    # slots: the paper's four periods while the large are closed, the same four while they are open
    slots = CALENDAR.slots + 4 * (np.arange(HORIZON) >= closed_steps)
    closed_chain, even_chain = [[1.0, 0.0]] * 2, [[0.5, 0.5]] * 2
    large = np.array([[closed_chain] * count] * 4 + [[even_chain] * count] * 4)
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
