"""A simulated zone in closed loop: occupancy, consumption, pricing, publication.

Compared mechanisms have the same occupancy, the same readings and the same noise quantiles (common
random numbers); where readings react to rates, each mechanism has its own copy of the zone with the
same randomness. A study folds many days into figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import Floats, Ints, brief, count_of
from hushgrid.errors import PolicyError
from hushgrid.mechanism.calibrators import Calibrator
from hushgrid.mechanism.exposure import Exposures
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import Release, State, init, step
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.model.world import NOISE_STREAM, World, simulate_steps
from hushgrid.model.zone import (
    Scenario,
    Tariff,
    optimal_rate,
    public_rate,
    relative_to,
    tally_offset,
)
from hushgrid.statistics import Summary, summarise


class Mechanism(NamedTuple):
    """A way to publish.

    Attributes:
        policy: The policy.
        calibrator: A calibrator, if not the policy's usual one.
    """

    policy: Policy
    calibrator: Calibrator | None = None

    def __repr__(self) -> str:
        return brief(self)


@dataclass(frozen=True, slots=True, eq=False)
class Trace(Tabular):
    """A simulated day: what only the curator saw, and what was published; (T,) each.

    Attributes:
        tariff: The rate of a load.
        load: True loads [Wh], with the tariff's offset.
        optimal: Optimal rates [currency/kWh].
        published: Published rates [currency/kWh].
        home: Number of houses at home.
        releases: The releases; empty without noise.
        n_houses: Number of houses N.
        policy: How it was published; None without noise.
    """

    tariff: Tariff
    load: Ints
    optimal: Floats
    published: Floats
    home: Ints
    releases: tuple[Release, ...]
    n_houses: int
    policy: Policy | None = None

    def __repr__(self) -> str:
        promise = "no promise" if self.policy is None else self.policy.promise
        steps, error = count_of("step", self.load.size), f"error {self.rmsre:.2%}"
        return brief(self, count_of("house", self.n_houses), promise, steps, error, names=())

    def _table(self) -> DataTable:
        """A row a step: loads [Wh], rates, houses at home, and figures of the release."""
        columns = {name: getattr(self, name) for name in ("load", "optimal", "published", "home")}
        for name in ("load_hat", "estimate", "scale", "epsilon") if self.releases else ():
            columns[name] = [getattr(release, name) for release in self.releases]
        return DataTable("step", range(1, self.load.size + 1), columns)

    @property
    def rmsre(self) -> float:
        """Root mean squared relative error of the published rate."""
        size = relative_to(self.optimal, self.tariff)
        return float(np.sqrt(np.mean(((self.published - self.optimal) / size) ** 2)))

    @property
    def rmsre_paper(self) -> float:
        """The paper's formula: (1/T) sqrt(sum of squares), the usual figure over sqrt(T)."""
        return self.rmsre / float(np.sqrt(self.load.size))

    @property
    def mismatch_cost(self) -> float:
        """Sum of (published - optimal)^2 / (2 alpha) [currency]: what a wrong price wastes."""
        return float(np.sum((self.published - self.optimal) ** 2) / (2 * self.tariff.alpha))

    @property
    def bill(self) -> float:
        """What all customers pay together [currency]."""
        return float(np.sum(self.published * (self.load - self.tariff.offset)) / 1000)


def simulate(
    scenario: Scenario, policy: Policy, *, seed: int, calibrator: Calibrator | None = None
) -> Trace:
    """One run of the policy's horizon, from a seed.

    Args:
        scenario: The zone and its models.
        policy: How it publishes.
        seed: Seed of houses and noise.
        calibrator: A calibrator, if not the policy's usual one.

    Returns:
        The trace.

    >>> from hushgrid import Consumption, OccupancyModel, Tariff, Uniform, Zone
    >>> stay, same = [[0.9, 0.1], [0.2, 0.8]], [0] * 50
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[stay]], chain_of=same)
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)], class_of=same)
    >>> zone = Zone("z", [1000] * 50)
    >>> len(simulate(Scenario(zone, Tariff(1.0, 62.5), [theta], f), Policy(0.5), seed=1).releases)
    96
    """
    return play(scenario, {"it": Mechanism(policy, calibrator)}, seed=(seed,))["it"]


def play(
    scenario: Scenario,
    mechanisms: Mapping[str, Mechanism],
    *,
    seed: Sequence[int],
    states: Mapping[str, State] | None = None,
) -> dict[str, Trace]:
    """One day for several mechanisms under common random numbers, and "open": no noise at all.

    Args:
        scenario: The zone and its models.
        mechanisms: By name; all with one horizon.
        seed: Seed of houses and noise, as whole numbers.
        states: The mechanisms' first states, where known from another day.

    Returns:
        Traces by name, "open" included.

    Raises:
        PolicyError: If a mechanism is named "open", or horizons differ.
    """
    if "open" in mechanisms:
        raise PolicyError("a mechanism is named 'open'; that is the one without noise: rename it.")
    horizons = {m.policy.horizon for m in mechanisms.values()}
    if len(horizons) != 1:
        raise PolicyError(f"horizons are {sorted(horizons)}; give all mechanisms the same one.")
    (horizon,) = horizons
    ready = states or first_states(scenario, mechanisms)
    if not (scenario.consumed or scenario.consumption).reacts:
        return run_day(scenario, ready, horizon, seed)
    alone = {**{name: {name: state} for name, state in ready.items()}, "open": {}}
    return {n: run_day(scenario, group, horizon, seed)[n] for n, group in alone.items()}


def first_states(scenario: Scenario, mechanisms: Mapping[str, Mechanism]) -> dict[str, State]:
    """Each mechanism before its first step; a state can start any number of days.

    Args:
        scenario: The zone and its models.
        mechanisms: By name.

    Returns:
        States by name.
    """
    shared: dict[tuple[object, ...], Exposures] = {}
    states = {}
    for name, (policy, calibrator) in mechanisms.items():
        rules: tuple[object, ...] = (policy.blocks, policy.models, policy.on_empty, policy.clamp)
        if rules not in shared:
            shared[rules] = exposures_of(
                scenario.models, scenario.zone, scenario.consumption, policy
            )
        states[name] = init(*scenario.terms, policy, calibrator, shared[rules])
    return states


def run_day(
    scenario: Scenario,
    states: Mapping[str, State],
    horizon: int,
    seed: Sequence[int],
    watch: Callable[[World], None] = lambda _: None,
) -> dict[str, Trace]:
    """The closed loop of one day: houses consume, mechanisms publish, houses react to the rates.

    Args:
        scenario: The zone.
        states: The mechanisms before their first step. Houses react to the rates of the first one,
            or of publishing without noise where there is none.
        horizon: Steps of the day.
        seed: Seed of the houses and of the noise, which is the same for all mechanisms.
        watch: Called with the world after each step.

    Returns:
        The trace of each mechanism, and of publishing without noise as "open".
    """
    now = dict(states)
    noise = {name: SimulatedNoise(np.random.SeedSequence([*seed, NOISE_STREAM])) for name in states}
    releases: dict[str, list[Release]] = {name: [] for name in states}
    load, home = np.empty(horizon, np.int64), np.empty(horizon, np.int64)
    prices: list[float] = []
    open_prices: list[float] = []
    for t, world in enumerate(simulate_steps(scenario, horizon, seed, prices)):
        load[t] = z = world.load
        home[t] = world.home
        watch(world)
        open_prices.append(public_rate(z, scenario.tariff))
        for name in states:
            cut = now[name].policy.clamp or scenario.zone.offset
            tally = tally_offset(world.readings, scenario.zone, now[name].zone) if cut else z
            release, now[name] = step(now[name], tally, noise[name])
            releases[name].append(release)
        prices.append(releases[next(iter(states))][-1].rate if states else open_prices[-1])
    optimal = optimal_rate(load.astype(np.float64), scenario.tariff)
    for array in (load, home, optimal):
        array.flags.writeable = False

    def trace(rates: Sequence[float], name: str = "") -> Trace:
        price_array = np.array(rates)
        price_array.flags.writeable = False
        return Trace(
            scenario.tariff, load, optimal, price_array, home, tuple(releases.get(name, ())),
            scenario.zone.n_houses, now[name].policy if name else None,
        )  # fmt: skip

    traces = {name: trace([r.rate for r in releases[name]], name) for name in releases}
    return traces | {"open": trace(open_prices)}


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """Figures of many days.

    Attributes:
        days: Number of days.
        figures: (days,): values by mechanism and figure.
    """

    days: int
    figures: Mapping[str, Mapping[str, Floats]]

    def summary(self, mechanism: str, figure: str) -> Summary:
        """Mean, s.d. and 95 % interval of a figure over the days."""
        return summarise(self.figures[mechanism][figure])


SIMULATION_FIGURES = (
    "rmsre_paper",
    "rmsre",
    "mismatch_cost",
    "revenue_change",
    "revenue_change_relative",
)


def measure(traces: Mapping[str, Trace], name: str) -> dict[str, float]:
    """The figures of one mechanism on one day; revenue is compared with publishing openly.

    Args:
        traces: Of the day, "open" included.
        name: The mechanism.

    Returns:
        Values by name (SIMULATION_FIGURES).
    """
    trace, free = traces[name], traces["open"]
    change = trace.bill - free.bill
    values = (trace.rmsre_paper, trace.rmsre, trace.mismatch_cost, change, change / free.bill)
    return dict(zip(SIMULATION_FIGURES, values, strict=True))


class StudyDay(NamedTuple):
    """One simulated day of a study.

    Attributes:
        scenario: The zone and its models on that day.
        states: First states by mechanism.
        traces: Traces by mechanism, "open" included.
    """

    scenario: Scenario
    states: Mapping[str, State]
    traces: Mapping[str, Trace]


def days(
    world: Callable[[int], Scenario],
    mechanisms: Mapping[str, Mechanism],
    *,
    count: int,
    seed: int,
) -> Iterator[StudyDay]:
    """Many days under common random numbers.

    Args:
        world: From the number of a day to its scenario; returning the same object again means that
            nothing changed, and costs no calibration.
        mechanisms: By name; all with one horizon.
        count: Number of days.
        seed: Seed of houses and noise.

    Yields:
        The days.

    Raises:
        PolicyError: If there is no day.
    """
    if count < 1:
        raise PolicyError(f"days is {count}; give 1 or more.")
    scenario, states = None, {}
    for day in range(count):
        today = world(day)
        if today is not scenario:
            scenario, states = today, first_states(today, mechanisms)
        yield StudyDay(today, states, play(today, mechanisms, seed=(seed, day), states=states))


def errors_of_days(scenario: Scenario, policy: Policy, *, count: int, seed: int) -> Iterator[float]:
    """The errors of a policy's prices on many days.

    Args:
        scenario: The zone and its models.
        policy: How it publishes.
        count: Number of days.
        seed: Seed of houses and noise.

    Yields:
        The error of each day in the paper's formula.
    """
    for day in days(lambda _: scenario, {"it": Mechanism(policy)}, count=count, seed=seed):
        yield day.traces["it"].rmsre_paper


def consecutive(scenario: Scenario, horizon: int) -> Callable[[int], Scenario]:
    """Worlds for `days`: calendars continue from day to day; each day starts from Pi.

    Args:
        scenario: The zone on the first day.
        horizon: Steps of a day.

    Returns:
        From the number of a day to its scenario.
    """
    period = math.lcm(
        *(
            len(m.calendar.slots)
            for m in (*scenario.models, scenario.truth, scenario.consumption, scenario.consumed)
            if m is not None
        )
    )
    scenarios = {0: scenario}

    def world(day: int) -> Scenario:
        offset = day * horizon % period
        if offset not in scenarios:
            scenarios[offset] = scenario.starting(offset)
        return scenarios[offset]

    return world


def fold(played: Iterable[StudyDay], progress: Callable[[], None] = lambda: None) -> Study:
    """The figures of many days, kept as numbers only.

    Args:
        played: The days.
        progress: Called after each day.

    Returns:
        The study.
    """
    rows: list[dict[str, dict[str, float]]] = []
    for day in played:
        rows.append({name: measure(day.traces, name) for name in day.states})
        progress()
    figures = {
        name: {
            figure: np.array([row[name][figure] for row in rows]) for figure in SIMULATION_FIGURES
        }
        for name in rows[0]
    }
    return Study(len(rows), figures)
