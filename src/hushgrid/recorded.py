"""Real readings as days to compare methods on: local days, and the public model of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Int32s, Ints
from hushgrid.errors import PolicyError
from hushgrid.imputation import imputed
from hushgrid.learn.habits import DAY
from hushgrid.learn.histories import Histories
from hushgrid.simulation import Scenario
from hushgrid.worlds import ReadingDay, digest_of, digest_of_before


class Real(NamedTuple):
    """Whole local days: readings (days, T, meters) [Wh], -1 where missing; 0 is a Monday."""

    meters: tuple[str, ...]
    readings: Int32s
    weekday: Ints

    def of(self, meters: Sequence[str]) -> Real:
        """The same for these meters, in their order."""
        place = {name: at for at, name in enumerate(self.meters)}
        columns = [place[name] for name in meters]
        return Real(tuple(meters), self.readings[:, :, columns], self.weekday)

    def days(self, which: slice) -> Real:
        """Some of the days."""
        return Real(self.meters, self.readings[which], self.weekday[which])


def real_days(found: Histories) -> Real:
    """The whole days of some histories; export counts as 0 Wh.

    A day is whole when clocks showed each of its steps once and some meter told each of them.
    """
    steps = found.steps_a_day
    midnights = np.flatnonzero(found.shown % DAY == 0)
    at = midnights[midnights + steps <= len(found.shown)][:, None] + np.arange(steps)
    plain = (found.shown[at] % DAY == found.seconds * np.arange(steps)).all(axis=1)
    told = np.asarray(np.isfinite(found.wh).any(axis=0))[at].all(axis=1)
    at = at[plain & told]
    wh = np.moveaxis(found.wh[:, at], 0, 2)
    readings = np.where(np.isfinite(wh), np.clip(wh, 0, 2**31 - 1), -1).astype(np.int32)
    return Real(found.ids, readings, np.asarray(found.shown[at[:, 0]] // DAY, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Real readings (days, T, houses) [Wh], and public models of the kinds of days there are."""

    scenarios: Sequence[Scenario]
    readings: Int32s
    kind: Ints  # (days,): which scenario

    @classmethod
    def of(cls, scenario: Scenario, real: Real) -> Recorded:
        """Days of a zone whose calendars begin on a Monday; what is missing is filled in."""
        steps = real.readings.shape[1]
        scenarios: dict[bytes, Scenario] = {}
        kind = np.empty(len(real.weekday), np.int64)
        for number, weekday in enumerate(real.weekday.tolist()):
            today = scenario.starting(weekday * steps)
            scenarios.setdefault(slots := _slots(today, steps), today)
            kind[number] = list(scenarios).index(slots)
        readings = np.array(real.readings)
        for at, today in enumerate(scenarios.values()):
            readings[kind == at] = imputed(readings[kind == at], today)
        return cls(tuple(scenarios.values()), readings, kind)

    @property
    def digest(self) -> str:
        """Of the models and the readings."""
        return digest_of(self.scenarios, self.readings.tobytes(), self.kind.tobytes())

    @property
    def digest_before(self) -> str:
        """As the first version took it."""
        return digest_of_before(self.scenarios, self.readings.tobytes(), self.kind.tobytes())

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        return int(self.readings.shape[1])

    def zone_of(self, number: int) -> int:
        """The kind of a day."""
        self._check(number)
        return int(self.kind[number])

    def day(self, number: int) -> ReadingDay:
        """A recorded day, readings cut at the contract bounds."""
        self._check(number)
        bound = self.scenarios[0].zone.bound
        return ReadingDay(np.clip(self.readings[number], 0, bound).astype(np.int32), None)

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.readings):
            raise PolicyError(
                f"day {number} is asked of {len(self.readings)} recorded days; ask for fewer days."
            )


def _slots(scenario: Scenario, steps: int) -> bytes:
    """What the calendars show on a day: days of equal slots are of one kind."""
    calendars = [*(model.calendar for model in scenario.models), scenario.consumption.calendar]
    return b"".join(
        c.slots[np.arange(steps) % len(c.slots)].astype("<i4").tobytes() for c in calendars
    )
