"""Meter histories on one axis of time, and the ailments of each home's history.

Missing steps are NaN. Energy fed back (solar export) counts as 0 Wh, as after the mechanism's
clamp, unless the histories have an export limit v: then readings from -v on are learned as x + v.
Where panels have a register of their own, it is kept apart from what the homes take.
No message contains a reading: homes are named by meter id and ailment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Int8s, Int32s, Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import Readings, to_intervals

DAY = 86_400
MOST_STEPS = 400_000  # of an axis: eleven years of quarter hours
LEAST_DAYS = 3.0  # of readings that a home needs to be fitted
QUIET_W = 150.0  # [W] a day without a rise this far above its least reading counts as vacant
MOST_W = 1_000_000  # [W] more is no home; single readings above count as this much

AILMENTS = {
    "empty": "no readings",
    "short": f"readings of less than {LEAST_DAYS:g} days",
    "constant": "the same value all the time",
    "units": "off by 1000 from a home's use: kWh taken for Wh, or Wh given in thousandths",
    "vacant": "vacant on more than nine days of ten",
    "vacant at times": "vacant for several days in a row",
    "gaps": "more than a tenth of all steps missing",
    "export": "energy fed back, such steps count as 0 Wh",
}


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Readings of homes on one axis of time.

    Attributes:
        ids: Meter ids.
        wh: (homes, steps) readings [Wh], NaN where missing.
        seconds: Length of a step [s].
        begins: Start of the first step [UTC s].
        local_time: (steps,) local time [s since Monday 0:00].
        counts: Numbers of duplicate, conflicting, malformed and incomplete readings.
        labels: (homes, steps) 1 occupied, 0 not, -1 unknown; or None.
        problems: Why the first rows were malformed.
        declared: Whether axis, step and ids come from public arguments and not from readings;
            required for anything published at a privacy budget.
        independent: Whether what one home sends cannot decide how readings of others are read;
            required likewise.
        export: Export limit v of the homes [Wh a step], public by contract; readings are net.
        offset: What `clamped` added to every reading [Wh].
        month: (steps,) local month, from 1 to 12; None where it is not known.
        seasons: Months of each season that has laws of its own; none: the year has one.
    """

    ids: tuple[str, ...]
    wh: Floats
    seconds: int
    begins: int
    local_time: Ints
    counts: Mapping[str, int]
    labels: Int8s | None = None
    problems: tuple[str, ...] = ()
    declared: bool = False
    independent: bool = True
    export: int = 0
    offset: int = 0
    month: Ints | None = None
    seasons: tuple[tuple[int, ...], ...] = ()

    @property
    def season(self) -> Ints:
        """(steps,) number of each step's season; 0 where the year has one."""
        number = np.zeros(13, np.int64)
        for k, months in enumerate(self.seasons):
            number[list(months)] = k
        return (
            np.zeros(len(self.local_time), np.int64) if self.month is None else number[self.month]
        )

    def slot_group(self, starts: Sequence[int]) -> Ints:
        """(steps,) slot group of each step: those of a day, by their first hours, for each season.

        Slot group g of season s has number `s * len(starts) + g`.
        """
        hour = self.local_time % DAY // 3600
        of_day = np.searchsorted(starts, hour, side="right") - 1
        return np.asarray(of_day + len(starts) * self.season, np.int64)

    @property
    def steps_a_day(self) -> int:
        """Steps of a day."""
        return DAY // self.seconds

    @property
    def slot(self) -> Int32s:
        """(steps,) slot of each step: steps of a weekday, then of a weekend day."""
        weekend = self.local_time >= 5 * DAY
        slot = self.local_time % DAY // self.seconds + weekend * self.steps_a_day
        return slot.astype(np.int32)

    def homes(self, rows: Indices) -> Histories:
        """The histories of some homes."""
        labels = None if self.labels is None else self.labels[rows]
        ids = tuple(self.ids[i] for i in rows)
        return replace(self, ids=ids, wh=self.wh[rows], labels=labels)

    def steps(self, part: slice) -> Histories:
        """A part of the axis."""
        labels = None if self.labels is None else self.labels[:, part]
        begin = self.begins + self.seconds * (part.start or 0)
        return replace(
            self,
            wh=self.wh[:, part],
            local_time=self.local_time[part],
            begins=begin,
            labels=labels,
            month=None if self.month is None else self.month[part],
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of time.

    Attributes:
        begins: Start of the first step [UTC s].
        seconds: Length of a step [s].
        steps: Number of steps.
    """

    begins: int
    seconds: int
    steps: int


def axis_of(
    readings: Readings,
    seconds: int | None = None,
    *,
    begins: int | None = None,
    ends: int | None = None,
) -> Axis:
    """The axis of time: the given parts, and the rest from the readings of all homes.

    A part taken from readings depends on the time stamps of single homes. With all three given the
    axis does not depend on the readings.

    Args:
        readings: Of all homes.
        seconds: Length of a step [s]; else the most frequent length of a reading.
        begins: First step [UTC s], on a border of steps; else that of the earliest reading.
        ends: End of the last step [UTC s]; else that of the latest reading.

    Returns:
        The axis.

    Raises:
        IntakeError: The step does not divide a day, a border is not on a step, there are no steps
            or too many of them, or there is no reading to take a missing part from.
    """
    if None in (seconds, begins, ends) and not len(readings):
        raise IntakeError("there are no readings; give a file with at least one home.")
    if seconds is None:
        lengths, count = np.unique(readings.duration, return_counts=True)
        seconds = int(lengths[count.argmax()])
    if not 1 <= seconds <= DAY or DAY % seconds:
        raise IntakeError(
            f"readings last {seconds} s; give an interval that divides a day, such as 1800."
        )
    for word, at in (("from", begins), ("to", ends)):
        if at is not None and at % seconds:
            raise IntakeError(
                f"{word} is {np.datetime64(at, 's')}Z, within a step of {seconds} s; give a time at"
                " which a step begins, counted from midnight UTC."
            )
    if begins is None:
        begins = int(readings.start.min()) // seconds * seconds
    if ends is None:
        ends = int((readings.start + readings.duration).max())
    steps = -(-(ends - begins) // seconds)
    if steps < 1:
        raise IntakeError("from is not before to or the last reading; give an earlier one.")
    if steps > MOST_STEPS:
        raise IntakeError(
            f"readings span {steps} steps; give at most {MOST_STEPS}: is a date wrong?"
        )
    return Axis(begins, seconds, steps)


def histories_of(readings: Readings, axis: Axis, local_time: Ints) -> Histories:
    """Put readings on an axis; each reading counts once, duplicates and overlaps are counted.

    A home's row depends only on its own readings and the axis; readings outside are dropped.

    Args:
        readings: Of all homes.
        axis: The axis.
        local_time: (steps,) local time [s since Monday 0:00].

    Returns:
        The histories.
    """
    intervals = to_intervals(readings, axis.seconds)
    wh = np.full((len(readings.ids), axis.steps), np.nan)
    at = (intervals.complete.start - axis.begins) // axis.seconds
    inside = (at >= 0) & (at < axis.steps)
    wh[intervals.complete.code[inside], at[inside]] = intervals.complete.wh[inside]
    counts = {
        "duplicates": intervals.duplicates,
        "conflicts": intervals.conflicts,
        "malformed": intervals.malformed,
        "incomplete": len(intervals.incomplete),
    }
    return Histories(readings.ids, wh, axis.seconds, axis.begins, local_time, counts)


def with_silent_meters(histories: Histories, meters: Collection[str]) -> Histories:
    """Add rows of NaN for meters without readings.

    Args:
        histories: The histories.
        meters: Names of meters, with or without readings.

    Returns:
        Histories of all of them.
    """
    silent = sorted(set(meters) - set(histories.ids))
    missing = np.full((len(silent), histories.wh.shape[1]), np.nan)
    return replace(
        histories, ids=(*histories.ids, *silent), wh=np.concatenate([histories.wh, missing])
    )


def for_meters(histories: Histories, meters: Sequence[str]) -> Histories:
    """The histories of a list of meters, in its order; other meters are dropped.

    Args:
        histories: Histories of any meters.
        meters: Each once. One without readings gets a row of NaN.

    Returns:
        Their histories.

    Raises:
        IntakeError: The list is empty, or a meter is in it twice.
    """
    again = sorted(name for name, count in Counter(meters).items() if count > 1)
    if again or not meters:
        fault = f"meter {again[0]!r} is listed twice" if again else "the list of meters is empty"
        raise IntakeError(f"{fault}; give each meter once.")
    complete = with_silent_meters(histories, meters)
    place = {name: i for i, name in enumerate(complete.ids)}
    return complete.homes(np.array([place[name] for name in meters], np.intp))


def with_labels(
    histories: Histories, meters: Sequence[str], start: Ints, occupied: Int8s
) -> Histories:
    """Histories with labels of some steps.

    Of declared histories, labels of unknown meters or other times are dropped and not refused:
    whether they exist depends on single homes.

    Args:
        histories: The histories.
        meters: Meter of each label.
        start: (n,) times of the labels [UTC s].
        occupied: (n,) 1 occupied, 0 not, -1 unknown.

    Returns:
        The labelled histories.

    Raises:
        IntakeError: A meter is unknown, no time fits, or a label has another value.
    """
    labels = np.full(histories.wh.shape, -1, np.int8)
    home = {name: i for i, name in enumerate(histories.ids)}
    unknown = next((name for name in meters if name not in home), None)
    if unknown is not None and not histories.declared:
        raise IntakeError(f"a label is of meter {unknown!r}, which has no readings; leave it out.")
    if not np.isin(occupied, (-1, 0, 1)).all():
        raise IntakeError("a label is none of 0, 1 and nothing; give 1 for occupied, 0 for not.")
    at = (start - histories.begins) // histories.seconds
    inside = (at >= 0) & (at < histories.wh.shape[1])
    if len(inside) and not inside.any() and not histories.declared:
        raise IntakeError("no label is of a time that has readings; give labels of the same days.")
    rows = np.array([home.get(name, -1) for name in meters], np.intp)
    inside &= rows >= 0
    labels[rows[inside], at[inside]] = occupied[inside]
    return replace(histories, labels=labels)


def of_seasons(histories: Histories, seasons: Sequence[Sequence[int]]) -> Histories:
    """The histories with seasons that have laws of their own.

    Args:
        histories: The histories, with months.
        seasons: Months of each season; every month of the year once.

    Returns:
        The same readings.

    Raises:
        IntakeError: A month is none, or is not in one season.
    """
    assert histories.month is not None
    listed = [month for months in seasons for month in months]
    for month in (*listed, *range(1, 13)):
        fault = ""
        if not 1 <= month <= 12:
            fault = f"have {month}, which is no month"
        elif listed.count(month) != 1:
            fault = f"have month {month} twice" if month in listed else f"lack month {month}"
        if fault:
            raise IntakeError(f"seasons {fault}; give each month from 1 to 12 once.")
    return replace(histories, seasons=tuple(tuple(sorted(months)) for months in seasons))


def check_seasons(histories: Histories) -> None:
    """Refuse to learn laws of a season without readings.

    Args:
        histories: The histories. Where their axis is declared, it alone decides.

    Raises:
        IntakeError: The axis of time has less than a day of a season, or the histories no reading
            of it.
    """
    for number, months in enumerate(histories.seasons):
        steps = histories.season == number
        is_short = steps.sum() < histories.steps_a_day
        if is_short or not (histories.declared or np.isfinite(histories.wh[:, steps]).any()):
            lack = "less than a day" if is_short else "no readings"
            raise IntakeError(
                f"the season of months {', '.join(map(str, months))} has {lack}; give readings of"
                " all of the year, or fewer seasons."
            )


def clamped(histories: Histories, bound: int | None = None) -> Histories:
    """Readings clamped to 0..bound, as by the mechanism; x + v where net readings are below 0.

    Args:
        histories: The histories.
        bound: Bound u + v [Wh]; None for no upper bound.

    Returns:
        The clamped histories.
    """
    most, v = np.inf if bound is None else bound, histories.export
    if not v:
        return replace(histories, wh=np.clip(histories.wh, 0, most))
    return replace(
        histories, wh=np.clip(histories.wh + v, 0, most), export=0, offset=histories.offset + v
    )


def ailments(histories: Histories) -> tuple[tuple[str, ...], ...]:
    """The ailments of each home's history.

    Args:
        histories: The histories.

    Returns:
        Keys of `AILMENTS` for each home.
    """
    by_home = tuple(_ails(row, histories.seconds) for row in histories.wh)
    if not histories.export:
        return by_home
    return tuple(
        tuple(ailment for ailment in home_ailments if ailment != "export")
        for home_ailments in by_home
    )


def can_be_fitted(ails: Sequence[str]) -> bool:
    """Whether a home with these ailments can be fitted.

    Args:
        ails: Keys of `AILMENTS`.

    Returns:
        False if the history is empty, short, constant or in other units.
    """
    return not {"empty", "short", "constant", "units"} & set(ails)


def _ails(row: Floats, seconds: int) -> tuple[str, ...]:
    finite = row[np.isfinite(row)]
    if not finite.size:
        return ("empty",)
    names = []
    if finite.size * seconds < LEAST_DAYS * DAY:
        names.append("short")
    if finite.size > 1 and np.ptp(np.maximum(finite, 0)) == 0:  # nothing but export counts as 0 Wh
        names.append("constant")
    watts = np.maximum(finite, 0) * 3600 / seconds
    peak, mean = float(np.quantile(watts, 0.999)), float(watts.mean())
    small = 0 < peak < 30 and np.quantile(finite, 0.999) <= 15
    if small or mean > 100_000 or peak > MOST_W:
        names.append("units")
    empty = vacant_days(row, seconds)
    if len(empty) and empty.mean() > 0.9:
        names.append("vacant")
    elif empty.any():
        names.append("vacant at times")
    if np.isnan(row).mean() > 0.1:
        names.append("gaps")
    if (finite < 0).any():
        names.append("export")
    return tuple(names)


def vacant_days(row: Floats, seconds: int) -> Bools:
    """Vacant days: no rise above `QUIET_W`, on two days in a row.

    Args:
        row: (steps,) readings of a home [Wh], NaN where missing.
        seconds: Length of a step [s].

    Returns:
        (days,) whether each whole day is vacant.
    """
    steps = DAY // seconds
    days = row[: len(row) // steps * steps].reshape(-1, steps)
    watts = np.maximum(days, 0) * 3600 / seconds
    complete = np.isfinite(days).mean(axis=1) > 0.5

    still = np.zeros(len(days), bool)
    if complete.any():
        complete_watts = watts[complete]
        still[complete] = (
            np.nanmax(complete_watts, axis=1) - np.nanmin(complete_watts, axis=1) < QUIET_W
        )
    neighbour = np.zeros_like(still)
    neighbour[1:] |= still[:-1]
    neighbour[:-1] |= still[1:]
    return still & neighbour
