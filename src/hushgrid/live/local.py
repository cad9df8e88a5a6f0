"""Patterns of a day or week in local time, laid over the steps of a horizon in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.calendar import Calendar
from hushgrid.errors import ModelError
from hushgrid.simulation import Scenario

_DAY = 86_400
_THURSDAY = 3  # 1 January 1970; Monday is 0


def local_seconds(begins: int, seconds: int, horizon: int, time_zone: str) -> Ints:
    """What local clocks show at the start of every step [s since Monday 0:00 of some week]."""
    return _shown(begins + seconds * np.arange(horizon, dtype=np.int64), time_zone)


def _shown(starts: Ints, time_zone: str) -> Ints:
    zone = ZoneInfo(time_zone)
    shown = [int(start) + _ahead(int(start), zone) for start in starts]
    return (np.array(shown, np.int64) + _THURSDAY * _DAY) % (7 * _DAY)


def _ahead(instant: int, zone: ZoneInfo) -> int:
    ahead = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds())


def local_calendar(pattern: Calendar, shown: Ints, seconds: int, what: str) -> Calendar:
    """One slot for each step: the pattern's slot at that time of the day and week.

    The pattern is one slot, a day, or a week from Monday, of steps of `seconds`.
    """
    length, day = len(pattern.slots), _DAY // seconds
    if length not in (1, day, 7 * day):
        raise ModelError(
            f"{what} has a calendar of {length} steps; give one of 1 step, of a day ({day}) or of"
            f" a week from Monday ({7 * day})."
        )
    return Calendar(pattern.slots[shown // seconds % length])


def localised(
    scenario: Scenario, *, begins: int, seconds: int, horizon: int, time_zone: str
) -> Scenario:
    """The scenario with patterns in local time from `begins` [UTC epoch s] on."""
    starts = begins + seconds * np.arange(horizon, dtype=np.int64)
    return localised_at(scenario, starts, seconds=seconds, time_zone=time_zone)


def localised_at(scenario: Scenario, starts: Ints, *, seconds: int, time_zone: str) -> Scenario:
    """The scenario with patterns in local time for steps with these starts [UTC epoch s]."""
    shown = _shown(starts, time_zone)

    def laid(calendars: Sequence[Calendar], names: Sequence[str]) -> list[Calendar]:
        return [local_calendar(c, shown, seconds, n) for c, n in zip(calendars, names, strict=True)]

    names = [f"model {model.name}" for model in scenario.models]
    calendars = laid([model.calendar for model in scenario.models], names)
    (consumed,) = laid([scenario.consumption.calendar], ["consumption"])
    return replace(
        scenario,
        models=tuple(
            replace(model, calendar=calendar)
            for model, calendar in zip(scenario.models, calendars, strict=True)
        ),
        consumption=replace(scenario.consumption, calendar=consumed),
    )
