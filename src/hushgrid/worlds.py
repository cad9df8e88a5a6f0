"""Worlds to compare methods in: a public model of a zone, and days in which it is true or not.

The paper's zone; a common shock on top of any of them; large consumers; chains of a time-use
survey (real readings: recorded.py). A day is what the zone drew, and who was at home where that is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np

from hushgrid import paper, sweeps
from hushgrid.arrays import Int32s, Ints, UInt8s
from hushgrid.checks import is_real
from hushgrid.consumption import digest_before
from hushgrid.digests import tariff_before, world_digest
from hushgrid.errors import PolicyError
from hushgrid.grid import Zone
from hushgrid.laws import scale_wh
from hushgrid.learn.habits import DAY
from hushgrid.learn.survey import Survey, survey_models
from hushgrid.simulation import Scenario, lived


class ReadingDay(NamedTuple):
    """Readings [Wh] (T, houses) within the bounds, and occupancy (T, houses) where it is known."""

    readings: Int32s
    home: UInt8s | None

    @property
    def load(self) -> Ints:
        """The load of every step [Wh]."""
        return np.asarray(self.readings.sum(axis=1, dtype=np.int64))


class DaySource(Protocol):
    """Days of one or more zones."""

    @property
    def scenarios(self) -> Sequence[Scenario]:
        """What the public believes of each zone, or of each kind of day."""
        ...

    @property
    def digest(self) -> str:
        """Of all that the days follow from but for what a caller chose himself."""
        ...

    @property
    def digest_before(self) -> str:
        """The same as the first version took it."""
        ...

    def zone_of(self, number: int) -> int:
        """Which of the scenarios a day is of."""
        ...

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        ...

    def day(self, number: int) -> ReadingDay:
        """A day, the same for the same number."""
        ...


def digest_of(scenarios: Sequence[Scenario], *more: bytes) -> str:
    """SHA-256 over what is believed of zones, and more."""
    h = sha256(b"hushgrid-worlds/2")
    for one in scenarios:
        h.update(world_digest(one.zone, one.tariff, one.models, one.consumption).encode())
    for part in more:
        h.update(part)
    return h.hexdigest()


def digest_of_before(scenarios: Sequence[Scenario], *more: bytes) -> str:
    """The same as the first version took it: journals of comparisons may have it."""
    h = sha256()
    for one in scenarios:
        h.update(f"{one.zone.id!r} {tariff_before(one.tariff)}".encode())
        h.update(one.zone.bound.astype("<i4").tobytes())
        for model in one.models:
            h.update(model.digest.encode())
        h.update(str(digest_before(one.consumption)).encode())
    for part in more:
        h.update(part)
    return h.hexdigest()


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

    @property
    def digest(self) -> str:
        """Of the zones; the seed and the shock are the caller's."""
        return digest_of(self.scenarios)

    @property
    def digest_before(self) -> str:
        """As the first version took it."""
        return digest_of_before(self.scenarios)

    def zone_of(self, number: int) -> int:
        """Day by day, zone by zone."""
        return number % len(self.scenarios)

    def day(self, number: int) -> ReadingDay:
        """Moved and drawn from the seed and the day's number."""
        scenario = self.scenarios[self.zone_of(number)]
        sign = 1 if number // len(self.scenarios) % 2 == 0 else -1
        bound = scenario.zone.bound
        readings = np.empty((self.horizon, len(bound)), np.int32)
        home = np.empty(readings.shape, np.uint8)
        for t, world in enumerate(lived(scenario, self.horizon, (self.seed, number))):
            drawn = world.readings
            if self.shock:
                drawn = np.minimum(scale_wh(drawn, 1 + sign * self.shock, 2**31 - 1), bound)
            readings[t], home[t] = drawn, world.occupancy
        return ReadingDay(readings, home)


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
    survey: Survey, seed: int, zones: int, shock: float = 0.0, n: int = paper.HOUSES
) -> Simulated:
    """Weekdays of houses that follow a survey's chains; one model of Theta for each source of it.

    The first source's is true, consumption is the paper's, households are of all sizes alike.
    """
    drawn = [_surveyed(survey, seed + zone, n) for zone in range(zones)]
    return Simulated(drawn, seed, shock)


def _surveyed(survey: Survey, seed: int, n: int) -> Scenario:
    rng = np.random.Generator(np.random.PCG64([seed, 11]))
    residents = rng.choice(survey.residents, n)
    theta = survey_models(survey, residents.tolist(), seconds=DAY // paper.HORIZON)
    f, bound = paper.uniform_houses(n, rng)
    return Scenario(Zone("survey", bound), paper.TARIFF, theta, f)
