"""Worlds to compare methods in: a public model of a zone, and days in which it is true or not.

The paper's zone; a common shock on top of any of them; large consumers; chains of a time-use
survey; real readings. A day is what the zone drew, and who was at home where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid import paper, sweeps
from hushgrid.belief import expected_readings, marginals
from hushgrid.calendar import Calendar
from hushgrid.checks import is_real
from hushgrid.errors import ModelError, PolicyError
from hushgrid.grid import Zone
from hushgrid.laws import scale_wh
from hushgrid.occupancy import OccupancyModel
from hushgrid.simulation import Scenario, World

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SMOOTHED = 0.002  # least chance a step of any move in a survey's chain: its zeros are sampling


class Day(NamedTuple):
    """Readings [Wh] (T, houses) within the bounds, and occupancy (T, houses) where it is known."""

    readings: NDArray[np.int32]
    home: NDArray[np.uint8] | None

    @property
    def load(self) -> Ints:
        """The load of every step [Wh]."""
        return np.asarray(self.readings.sum(axis=1, dtype=np.int64))


class Source(Protocol):
    """Days of one or more zones."""

    @property
    def scenarios(self) -> Sequence[Scenario]:
        """What the public believes of each zone, or of each kind of day."""
        ...

    def zone_of(self, number: int) -> int:
        """Which of the scenarios a day belongs to."""
        ...

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        ...

    def day(self, number: int) -> Day:
        """A day, the same for the same number."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Zones in which the model is true, but for a shock: all readings times 1 + or - `shock`.

    Even rounds over the zones are hot, odd ones cold; readings stay within the contract bounds.
    """

    scenarios: Sequence[Scenario]
    seed: int
    shock: float = 0.0
    horizon: int = paper.HORIZON

    def __post_init__(self) -> None:
        if not (is_real(self.shock) and 0 <= self.shock < 1):
            raise PolicyError(f"shock is {self.shock}; give a share from 0 to below 1.")

    def zone_of(self, number: int) -> int:
        """Zones take turns."""
        return number % len(self.scenarios)

    def day(self, number: int) -> Day:
        """Moved and drawn from the seed and the day's number."""
        count = len(self.scenarios)
        scenario = self.scenarios[number % count]
        world = World(scenario, (self.seed, number))
        sign = 1 if number // count % 2 == 0 else -1
        bound = scenario.zone.bound
        readings = np.empty((self.horizon, len(bound)), np.int32)
        home = np.empty(readings.shape, np.uint8)
        for t in range(self.horizon):
            world.step(())
            drawn = world.readings
            if self.shock:
                drawn = np.minimum(scale_wh(drawn, 1 + sign * self.shock, 2**31 - 1), bound)
            readings[t], home[t] = drawn, world.occupancy
        return Day(readings, home)


def paper_world(
    sigma: float, seed: int, zones: int, shock: float = 0.0, n: int = paper.HOUSES
) -> Simulated:
    """The paper's zone, drawn `zones` times."""
    drawn = [paper.scenario(sigma, seed + zone, n) for zone in range(zones)]
    return Simulated(drawn, seed, shock)


def large_world(seed: int, zones: int, shock: float = 0.0) -> Simulated:
    """The paper's zone with ten consumers five times a house, surely closed half of the day."""
    drawn = [sweeps.large_consumers(5, 0.5, 10, seed + zone) for zone in range(zones)]
    return Simulated(drawn, seed, shock)


def survey_world(
    chains: Mapping[int, tuple[Floats, Floats, float]],
    seed: int,
    zones: int,
    shock: float = 0.0,
    n: int = paper.HOUSES,
) -> Simulated:
    """Houses with chains by number of residents: (p01, p10) by slot, and p1 at the first.

    Consumption is the paper's. A survey's zeros are smoothed away: nobody declared them.
    """
    if not chains:
        raise ModelError("the survey has no chains; give p01, p10 and p1 for some households.")
    steps = {len(part) for p01, p10, _ in chains.values() for part in (p01, p10)}
    if len(steps) != 1:
        raise ModelError(
            f"the survey's chains have {sorted(steps)} slots; give one number of them."
        )
    (horizon,) = steps
    drawn = [_surveyed(chains, horizon, seed + zone, n) for zone in range(zones)]
    return Simulated(drawn, seed, shock, horizon)


def _surveyed(
    chains: Mapping[int, tuple[Floats, Floats, float]], horizon: int, seed: int, n: int
) -> Scenario:
    rng = np.random.Generator(np.random.PCG64([seed, 11]))
    initial, transition = [], []
    for p01, p10, p1 in chains.values():
        come, leave = (np.clip(p, SMOOTHED, 1 - SMOOTHED) for p in (p01, p10))
        first = float(np.clip(p1, SMOOTHED, 1 - SMOOTHED))
        initial.append([1 - first, first])
        rows = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], axis=1)
        transition.append(rows)
    theta = OccupancyModel.factored(
        initial,
        np.stack(transition, axis=1),
        calendar=Calendar(np.arange(horizon)),
        chain_of=rng.integers(0, len(chains), n),
        name="survey",
    )
    f, bound = paper.uniform_houses(n, rng)
    return Scenario(Zone("survey", bound), paper.TARIFF, (theta,), f)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Real readings (days, T, houses) [Wh], and a public model made without them.

    `weekday` (days,): 0 for a Monday; a model of a week is seen from there. Without it every day
    is the model's first.
    """

    scenario: Scenario
    readings: NDArray[np.int32]
    weekday: Ints | None = None
    scenarios: Sequence[Scenario] = field(init=False)
    _kinds: tuple[int, ...] = field(init=False)  # the scenario of each day of the week

    def __post_init__(self) -> None:
        seen: dict[tuple[bytes, ...], int] = {}
        days: list[Scenario] = []
        kinds: list[int] = []
        for day in range(1 if self.weekday is None else 7):
            here = self.scenario.starting(day * self.horizon) if day else self.scenario
            slots = _slots(here, self.horizon)
            if slots not in seen:
                seen[slots] = len(days)
                days.append(here)
            kinds.append(seen[slots])
        object.__setattr__(self, "scenarios", tuple(days))
        object.__setattr__(self, "_kinds", tuple(kinds))

    def zone_of(self, number: int) -> int:
        """Days on which the model says the same share a scenario."""
        return 0 if self.weekday is None else self._kinds[int(self.weekday[number])]

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        return int(self.readings.shape[1])

    def day(self, number: int) -> Day:
        """A recorded day, readings cut at the contract bounds."""
        if not 0 <= number < len(self.readings):
            raise PolicyError(
                f"day {number} is asked of {len(self.readings)} recorded days; ask for fewer days."
            )
        bound = self.scenario.zone.bound
        return Day(np.clip(self.readings[number], 0, bound).astype(np.int32), None)


def _slots(scenario: Scenario, steps: int) -> tuple[bytes, ...]:
    """What calendars say of the first steps."""
    calendars = [*(model.calendar for model in scenario.models), scenario.consumption.calendar]
    return tuple(np.resize(each.slots, steps).tobytes() for each in calendars)


def filled(readings: NDArray[np.integer], scenario: Scenario) -> NDArray[np.int32]:
    """Readings (days, T, houses) with the model's public expectation where one is missing (-1)."""
    out = np.array(readings, np.int32)
    beliefs = marginals(scenario.models[0])
    for t in range(out.shape[1]):
        expected = expected_readings(next(beliefs), scenario.models[0], scenario.consumption)
        slot = out[:, t, :]
        slot[...] = np.where(slot < 0, np.rint(expected).astype(np.int32), slot)
    return out
