"""Recorded days: whole local days, meters in the zone's order, a week that begins where it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid.calendar import Calendar
from hushgrid.consumption import Consumption
from hushgrid.errors import FileError
from hushgrid.grid import Tariff, Zone
from hushgrid.laws import Uniform
from hushgrid.occupancy import OccupancyModel
from hushgrid.recorded import read_days
from hushgrid.simulation import Scenario
from hushgrid.worlds import Recorded

HOUR = 3600


def readings(path: Path, begins: str, hours: int, meters: tuple[str, ...] = ("b", "a")) -> Path:
    """Hours counted from 0 on in meter b, plus 1000 in meter a."""
    lines = ["meter_id,start_utc,duration_s,wh"]
    first = np.datetime64(begins, "s")
    for i, name in enumerate(meters):
        lines += [f"{name},{first + HOUR * t}Z,3600,{1000 * i + t}" for t in range(hours)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_days_begin_at_local_midnight_and_know_their_weekday(tmp_path: Path) -> None:
    """Sydney is 11 h ahead in January 2013: local 2 January, a Wednesday, begins at 13:00 UTC."""
    path = readings(tmp_path / "x.csv", "2013-01-01T00:00:00", 72)
    found = read_days(path, HOUR, time_zone="Australia/Sydney")
    assert found.meters == ("a", "b")
    assert found.weekday.tolist() == [2, 3]
    assert found.readings[0, :, 1].tolist() == list(range(13, 37))
    assert found.readings[1, 0].tolist() == [1037, 37]
    plain = read_days(path, HOUR, meters=("b", "c", "a"))
    assert plain.weekday.tolist() == [1, 2, 3]
    assert plain.readings[0, 0].tolist() == [0, -1, 1000]
    with pytest.raises(FileError, match="no reading of the zone's meters"):
        read_days(path, HOUR, meters=("d",))


def test_days_on_which_clocks_change_are_left_out(tmp_path: Path) -> None:
    """Zurich went forward on 31 March 2013 and back on 27 October."""
    spring = readings(tmp_path / "x.csv", "2013-03-29T23:00:00", 72)
    assert read_days(spring, HOUR, time_zone="Europe/Zurich").weekday.tolist() == [5, 0]
    autumn = readings(tmp_path / "y.csv", "2013-10-25T22:00:00", 73)
    assert read_days(autumn, HOUR, time_zone="Europe/Zurich").weekday.tolist() == [5, 0]


def test_a_day_is_held_against_the_models_own_day_of_the_week() -> None:
    week = Calendar.week(weekday=[0, 1], weekend=[2, 3])
    stay = np.full((4, 1, 2, 2), 0.5)
    theta = OccupancyModel.factored([[0.5, 0.5]], stay, calendar=week)
    f = Consumption.by_class(absent=[Uniform(5)], present=[Uniform(9)])
    scenario = Scenario(Zone("z", [9]), Tariff(1.0, 1.0), (theta,), f)
    days = np.zeros((4, 2, 1), np.int32)
    source = Recorded(scenario, days, np.array([4, 5, 6, 0]))
    assert len(source.scenarios) == 2
    assert [source.zone_of(day) for day in range(4)] == [0, 1, 1, 0]
    assert [s.models[0].calendar.slot(1) for s in source.scenarios] == [0, 2]
    assert len(Recorded(scenario, days).scenarios) == 1
