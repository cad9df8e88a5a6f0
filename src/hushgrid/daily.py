"""Days of a zone file: times HH:MM to steps, periods with chances to transition matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushgrid.durations import seconds_of
from hushgrid.errors import FileError
from hushgrid.tables import Faults, Table, chance, known, shown

SECONDS = 900  # of a step, where nothing else is said
ANY = 60  # steps that begin at every HH:MM: where a file's own are not known
INTERVALS = "whole seconds that divide a day, such as 'PT15M' or 1800"
_DAY = 86_400


def step_seconds(value: Any) -> int | None:
    """The length of a step as zone and service files give it [s]; None where it is none.

    >>> step_seconds("PT1H"), step_seconds(1800), step_seconds("PT7M")
    (3600, 1800, None)
    """
    seconds = seconds_of(value)
    return seconds if seconds and _DAY % seconds == 0 else None


class DaySteps:
    """A day of steps of `seconds`."""

    def __init__(self, seconds: int, faults: Faults) -> None:
        if not 1 <= seconds <= _DAY or _DAY % seconds:
            raise FileError(
                f"the interval is {seconds} s; give one that divides a day, such as {SECONDS}."
            )
        self.seconds, self.steps, self.faults = seconds, _DAY // seconds, faults

    def step_of(self, value: Any, place: str) -> int:
        """The step of the day that starts at HH:MM."""
        try:
            hour, minute = (int(part) for part in str(value).split(":"))
        except ValueError:
            hour = minute = -1
        at = hour * 3600 + minute * 60
        if 0 <= hour < 24 and 0 <= minute < 60 and at % self.seconds == 0:
            return at // self.seconds
        if self.seconds == SECONDS:
            fix = "give a quarter hour such as '07:15'"
        else:
            fix = f"give a time such as '07:00' at which a step of {self.seconds} s begins"
        self.faults.add(f"{place}from", f"{place}from is {shown(value)}; {fix}.")
        return 0

    def from_midnight(self, starts: list[tuple[int, int]], place: str) -> list[tuple[int, int]]:
        """Periods in order; the last one of the day also holds before the first."""
        ordered, keys = sorted(starts), [f"{place}[{i}].from" for i in range(len(starts))]
        for i, (start, _) in enumerate(starts):
            for j in range(i):
                if starts[j][0] == start:
                    said = f"{place} has two entries from the same time; give each its own."
                    self.faults.add(keys[i], said, keys[j])
        return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


def chains_of(chains: Table, place: str, day: DaySteps) -> tuple[list[list[float]], list[Any]]:
    """Initial law and transitions of every chain; of a day, or of a weekday and a weekend day."""
    weekly = any("weekend" in chain for chain in chains.values() if isinstance(chain, Mapping))
    initial, transition = [], []
    for name, chain in chains.items():
        where = f"{place}{name}."
        known(chain, where, {"home_at_start", "periods", "weekend"}, {"weekend"}, day.faults)
        if not isinstance(chain, Mapping):
            continue
        at_home = chance(chain, where, "home_at_start", day.faults)
        initial.append([1 - at_home, at_home])
        weekday = (
            _matrices(chain["periods"], f"{where}periods", day) if "periods" in chain else None
        )
        weekend = weekday
        if "weekend" in chain:
            weekend = _matrices(chain["weekend"], f"{where}weekend", day)
        if weekday is not None and weekend is not None:
            transition.append(np.concatenate([weekday, weekend]) if weekly else weekday)
    return initial, transition


def _matrices(periods: Any, place: str, day: DaySteps) -> Any:
    """(steps, 2, 2) transition matrices of a day given as periods with chances a step."""
    faults, before = day.faults, len(day.faults)
    if not isinstance(periods, list) or not periods:
        faults.add(place, f"{place} is {shown(periods)}; give a list of periods.")
        return None
    starts, chances = [], []
    for i, period in enumerate(periods):
        where = f"{place}[{i}]."
        known(period, where, {"from", "leave", "come"}, set(), faults)
        if isinstance(period, Mapping):
            starts.append((day.step_of(period.get("from", "00:00"), where), i))
            chances.append([chance(period, where, key, faults) for key in ("leave", "come")])
    if len(faults) > before:
        return None
    a = np.empty((day.steps, 2, 2))
    ordered = day.from_midnight(starts, place)
    stops = [*(start for start, _ in ordered[1:]), day.steps]
    for (start, i), stop in zip(ordered, stops, strict=True):
        leave, come = chances[i]
        a[start:stop] = [[1 - come, come], [leave, 1 - leave]]
    return a
