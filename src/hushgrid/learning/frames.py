"""Models from a data frame of histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.errors import IntakeError, require
from hushgrid.intake.readings import Readings
from hushgrid.learning.habits import Survey, assumed_habits, mean_habits, survey_of
from hushgrid.learning.histories import Histories, axis_of, histories_of
from hushgrid.learning.learner import Learned, LearningTerms
from hushgrid.learning.learner import learn as learn_histories

LONG = ("meter_id", "start", "wh")


def learn(
    frame: Any,
    *,
    survey: Survey | Mapping[str, Any] | None = None,
    residents: Sequence[int] = (2, 3),
    seconds: int | None = None,
    time_zone: str | None = None,
    export: int = 0,
    terms: LearningTerms | None = None,
) -> Learned:
    """Learn models of homes from a data frame of their readings.

    The models are of these homes and have no noise: they are for experiments, not for publication
    (docs/learn.md says what a pool of homes may publish).

    Args:
        frame: A pandas data frame: a row a reading with the columns `meter_id`, `start` (a time
            with a time zone) and `wh`; or a row a step, under a `DatetimeIndex`, and a column a
            home. Readings are Wh a step, and are rounded to whole ones; NaN is a missing one.
        survey: The prior on habits: a time-use survey, or its columns; None: round numbers for a
            working household.
        residents: Numbers of residents whose habits of the survey are averaged.
        seconds: Length of a step [s]; None: the distance of most readings.
        time_zone: Time zone of the homes; None: that of the times.
        export: Export limit v of the homes [Wh a step]; readings are then net.
        terms: Options of learning.

    Returns:
        The models and their evaluation.

    Raises:
        IntakeError: If the frame has neither form, its times have no time zone, or its readings no
            common axis.
        ModelError: If no home can be fitted.
        ExtraError: If pandas is not installed.
    """
    histories = histories_of_frame(frame, seconds=seconds, time_zone=time_zone)
    histories = replace(histories, export=export)
    if survey is None:
        habits = assumed_habits(histories.seconds)
    else:
        survey = survey if isinstance(survey, Survey) else survey_of(survey)
        habits = mean_habits(survey, residents, seconds=histories.seconds)
    return learn_histories(histories, habits, terms)


def histories_of_frame(
    frame: Any, *, seconds: int | None = None, time_zone: str | None = None
) -> Histories:
    """The histories of a data frame, in either form that `learn` takes.

    Args:
        frame: The data frame.
        seconds: Length of a step [s]; None: the distance of most readings.
        time_zone: Time zone of the homes; None: that of the times.

    Returns:
        The histories.

    Raises:
        IntakeError: As in `learn`.
        ExtraError: If pandas is not installed.
    """
    pandas = require("pandas", "frame")
    meters, times, wh = _columns(frame, pandas)
    if times.tz is None:
        raise IntakeError(
            "times have no time zone; give them theirs, such as by tz_localize('Europe/Zurich')."
        )
    finite = np.isfinite(wh) & ~np.asarray(times.isna())
    start = _seconds(times[finite])
    if seconds is None:
        distances, count = np.unique(np.diff(np.unique(start)), return_counts=True)
        if not distances.size:
            raise IntakeError("there is one time at most; give readings of several steps.")
        seconds = int(distances[count.argmax()])
    code, ids = pandas.factorize(meters)
    readings = Readings(
        ids.tolist(),
        code[finite],
        start=start,
        duration=np.full(len(start), seconds),
        wh=np.rint(wh[finite]).astype(np.int64),
    )
    axis = axis_of(readings, seconds)
    steps = pandas.to_datetime(axis.begins + np.arange(axis.steps) * seconds, unit="s", utc=True)
    try:
        local = steps.tz_convert(times.tz if time_zone is None else time_zone)
    except (KeyError, OSError, ValueError):
        raise IntakeError(
            f"time_zone is {time_zone!r}; give a name of the time zone database such as"
            " 'Europe/Zurich'."
        ) from None
    of_week = ((local.day_of_week * 24 + local.hour) * 60 + local.minute) * 60 + local.second
    histories = histories_of(readings, axis, np.asarray(of_week, np.int64))
    return replace(histories, month=np.asarray(local.month, np.int64))


def _columns(frame: Any, pandas: Any) -> tuple[Any, Any, Floats]:
    """The meter, time and energy of every reading, (n,) each."""
    if set(LONG) <= set(frame.columns):
        times = pandas.DatetimeIndex(frame["start"])
        return np.array(frame["meter_id"], str), times, np.array(frame["wh"], np.float64)
    if not isinstance(frame.index, pandas.DatetimeIndex):
        raise IntakeError(
            f"frame has neither the columns {', '.join(LONG)} nor a DatetimeIndex with a column a"
            " home; give one of both."
        )
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        raise IntakeError(f"home {name!r} has several columns; give each home once.")
    meters = np.tile(np.array(frame.columns, str), len(frame))
    times = frame.index.repeat(len(frame.columns))
    return meters, times, np.array(frame, np.float64).ravel()


def _seconds(times: Any) -> Ints:
    return np.asarray(times.tz_convert("UTC").as_unit("s").astype("int64"), np.int64)
