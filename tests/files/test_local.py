"""Patterns in local time against a plain loop over datetime and zoneinfo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.errors import ModelError
from hushgrid.files.weeks import Steps, local_calendar, local_seconds
from hushgrid.model.occupancy import Calendar


def naive(begins: datetime, seconds: int, steps: int, name: str) -> list[tuple[int, int]]:
    """(weekday, step of the day) that clocks on the wall show at the start of every step."""
    found = []
    for k in range(steps):
        wall = (begins + timedelta(seconds=k * seconds)).astimezone(ZoneInfo(name))
        found.append((wall.weekday(), (wall.hour * 3600 + wall.minute * 60) // seconds))
    return found


@pytest.mark.parametrize(
    "begins", [datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)]
)
@pytest.mark.parametrize("seconds", [300, 900, 1800, 3600])
def test_across_daylight_saving(begins: datetime, seconds: int) -> None:
    day = 86400 // seconds
    steps = 5 * day
    shown = local_seconds(Steps(int(begins.timestamp()), seconds, steps, "Europe/Zurich"))
    week = local_calendar(Calendar(np.arange(7 * day)), shown, seconds, "it")
    walls = naive(begins, seconds, steps, "Europe/Zurich")
    assert week.slots.tolist() == [weekday * day + step for weekday, step in walls]
    one = local_calendar(Calendar(np.arange(day)), shown, seconds, "it")
    assert one.slots.tolist() == [step for _, step in walls]
    two_o_clock = int((one.slots == 2 * day // 24).sum())
    assert two_o_clock == (4 if begins.month == 3 else 6)  # it never comes, or comes twice


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2060, 1, 1)),
    st.sampled_from(["Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from([900, 1800, 3600, 86400]),
)
def test_anywhere(start: datetime, name: str, seconds: int) -> None:
    at = int(start.replace(tzinfo=UTC).timestamp()) // seconds * seconds
    day = 86400 // seconds
    shown = local_seconds(Steps(at, seconds, 50, name))
    found = local_calendar(Calendar(np.arange(7 * day)), shown, seconds, "it").slots.tolist()
    walls = naive(datetime.fromtimestamp(at, UTC), seconds, 50, name)
    assert found == [weekday * day + step for weekday, step in walls]


def test_other_patterns_are_refused() -> None:
    shown = local_seconds(Steps(0, 900, 10, "UTC"))
    assert local_calendar(Calendar([0]), shown, 900, "it").slots.tolist() == [0] * 10
    with pytest.raises(ModelError, match="model x has a calendar of 97 steps"):
        local_calendar(Calendar(np.arange(97)), shown, 900, "model x")
