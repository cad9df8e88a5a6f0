"""Meter histories on one axis of time, and what is wrong with each home's.

Missing steps are NaN. Energy fed back (solar export) counts as 0 Wh, as the mechanism's clamp has
it. Nothing here names a reading: homes are named by meter id and by what ails them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Bools, Floats, Indices, Int8s, Int32s, Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.intervals import to_intervals
from hushgrid.intake.readings import Readings

DAY = 86_400
MOST_STEPS = 400_000  # of an axis: eleven years of quarter hours
LEAST_DAYS = 3.0  # of readings that a home needs to be fitted
QUIET_W = 150.0  # [W] a day that never rises so far above its least reading saw nobody
MOST_W = 1_000_000  # [W] more is no home; single readings above count as this much
VACANT_RUN = 2  # days without activity in a row that count as vacancy

USABLE = ("few", "gaps", "export", "vacant at times")
AILMENTS = {
    "empty": "no readings",
    "short": f"readings of less than {LEAST_DAYS:g} days",
    "constant": "the same value all the time",
    "units": "off by 1000 from a home's use: kWh taken for Wh, or Wh told in thousandths",
    "vacant": "nobody there on more than nine days of ten",
    "vacant at times": "nobody there for days on end",
    "gaps": "more than a tenth of all steps missing",
    "export": "energy fed back, such steps count as 0 Wh",
}


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Readings `wh` (homes, steps) [Wh], NaN where missing, in steps of `seconds` from `begins`.

    `shown` (steps,): what local clocks show [s since Monday 0:00]. `counts`: how many readings were
    duplicates, conflicts, malformed, incomplete; `problems`: why the first rows were malformed.
    `labels` (homes, steps): 1 occupied, 0 not, -1 unknown. `declared`: axis, step and ids come from
    public arguments, none of them from readings; anything published at a privacy budget needs it.
    """

    ids: tuple[str, ...]
    wh: Floats
    seconds: int
    begins: int
    shown: Ints
    counts: Mapping[str, int]
    labels: Int8s | None = None
    problems: tuple[str, ...] = ()
    declared: bool = False

    @property
    def steps_a_day(self) -> int:
        """Steps of a day."""
        return DAY // self.seconds

    @property
    def slot(self) -> Int32s:
        """(steps,) slot of each step: steps of a weekday, then of a weekend day."""
        weekend = self.shown >= 5 * DAY
        slot = self.shown % DAY // self.seconds + weekend * self.steps_a_day
        return slot.astype(np.int32)

    def homes(self, which: Indices) -> Histories:
        """The histories of some homes."""
        labels = None if self.labels is None else self.labels[which]
        return replace(
            self, ids=tuple(self.ids[i] for i in which), wh=self.wh[which], labels=labels
        )

    def steps(self, which: slice) -> Histories:
        """A stretch of time."""
        labels = None if self.labels is None else self.labels[:, which]
        begin = self.begins + self.seconds * (which.start or 0)
        return replace(
            self, wh=self.wh[:, which], shown=self.shown[which], begins=begin, labels=labels
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """Steps of `seconds` [s] from `begins` [UTC epoch s] on."""

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
    """The axis of time: what is given of it, and the rest from the readings of all homes.

    Whatever is taken from readings is moved by the time stamps of any one home. With all three
    given the readings have no part in it.

    Args:
        readings: Of all homes.
        seconds: Length of a step [s]; else as long as most readings are.
        begins: First step [UTC epoch s], on a border of steps; else that of the earliest reading.
        ends: End of the last step [UTC epoch s]; else that of the latest reading.

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


def histories_of(readings: Readings, axis: Axis, shown: Ints) -> Histories:
    """Readings laid on an axis; each reading counts once, duplicates and overlaps are counted.

    A home's row depends on its own readings and the axis alone; what is outside is dropped.
    """
    done = to_intervals(readings, axis.seconds)
    wh = np.full((len(readings.ids), axis.steps), np.nan)
    at = (done.complete.start - axis.begins) // axis.seconds
    inside = (at >= 0) & (at < axis.steps)
    wh[done.complete.code[inside], at[inside]] = done.complete.wh[inside]
    counts = {
        "duplicates": done.duplicates,
        "conflicts": done.conflicts,
        "malformed": done.malformed,
        "incomplete": len(done.incomplete),
    }
    return Histories(readings.ids, wh, axis.seconds, axis.begins, shown, counts)


def with_silent(found: Histories, meters: Collection[str]) -> Histories:
    """Histories with homes of which no row was a reading: they are named, not forgotten."""
    silent = sorted(set(meters) - set(found.ids))
    none = np.full((len(silent), found.wh.shape[1]), np.nan)
    return replace(found, ids=(*found.ids, *silent), wh=np.concatenate([found.wh, none]))


def of_meters(found: Histories, meters: Sequence[str]) -> Histories:
    """The histories of a list of meters, in its order; those of other meters are dropped.

    Args:
        found: Histories of any meters.
        meters: Each once. One without readings gets a row of NaN.

    Raises:
        IntakeError: The list is empty, or a meter is in it twice.
    """
    again = sorted(name for name, count in Counter(meters).items() if count > 1)
    if again or not meters:
        what = f"meter {again[0]!r} is listed twice" if again else "the list of meters is empty"
        raise IntakeError(f"{what}; give each meter once.")
    every = with_silent(found, meters)
    place = {name: i for i, name in enumerate(every.ids)}
    return every.homes(np.array([place[name] for name in meters], np.intp))


def with_labels(found: Histories, meters: Sequence[str], start: Ints, occupied: Int8s) -> Histories:
    """Histories with labels of some steps.

    Refused where a meter is unknown or no time fits. Of declared histories such labels are dropped
    instead: whether they are there is up to single homes.
    """
    labels = np.full(found.wh.shape, -1, np.int8)
    home = {name: i for i, name in enumerate(found.ids)}
    unknown = next((name for name in meters if name not in home), None)
    if unknown is not None and not found.declared:
        raise IntakeError(f"a label is of meter {unknown!r}, which has no readings; leave it out.")
    if not np.isin(occupied, (-1, 0, 1)).all():
        raise IntakeError("a label is none of 0, 1 and nothing; give 1 for occupied, 0 for not.")
    at = (start - found.begins) // found.seconds
    inside = (at >= 0) & (at < found.wh.shape[1])
    if len(inside) and not inside.any() and not found.declared:
        raise IntakeError("no label is of a time that has readings; give labels of the same days.")
    rows = np.array([home.get(name, -1) for name in meters], np.intp)
    inside &= rows >= 0
    labels[rows[inside], at[inside]] = occupied[inside]
    return replace(found, labels=labels)


def clamped(found: Histories, bound: int | None = None) -> Histories:
    """Readings cut to 0..bound [Wh], as the mechanism cuts them."""
    return replace(found, wh=np.clip(found.wh, 0, np.inf if bound is None else bound))


def ailments(found: Histories) -> tuple[tuple[str, ...], ...]:
    """For each home what ails its history, by names of AILMENTS."""
    return tuple(_ails(row, found.seconds) for row in found.wh)


def fit_to_learn(ails: Sequence[str]) -> bool:
    """Whether a home with these ailments can be fitted."""
    return not {"empty", "short", "constant", "units"} & set(ails)


def _ails(row: Floats, seconds: int) -> tuple[str, ...]:
    seen = row[np.isfinite(row)]
    if not seen.size:
        return ("empty",)
    found = []
    if seen.size * seconds < LEAST_DAYS * DAY:
        found.append("short")
    if seen.size > 1 and np.ptp(np.maximum(seen, 0)) == 0:  # nothing but export counts as 0 Wh
        found.append("constant")
    watts = np.maximum(seen, 0) * 3600 / seconds
    peak, mean = float(np.quantile(watts, 0.999)), float(watts.mean())
    small = 0 < peak < 30 and np.quantile(seen, 0.999) <= 15
    if small or mean > 100_000 or peak > MOST_W:
        found.append("units")
    empty = vacant_days(row, seconds)
    if len(empty) and empty.mean() > 0.9:
        found.append("vacant")
    elif empty.any():
        found.append("vacant at times")
    if np.isnan(row).mean() > 0.1:
        found.append("gaps")
    if (seen < 0).any():
        found.append("export")
    return tuple(found)


def vacant_days(row: Floats, seconds: int) -> Bools:
    """Which whole days of a history saw nobody: no rise above `QUIET_W`, two days in a row."""
    steps = DAY // seconds
    days = row[: len(row) // steps * steps].reshape(-1, steps)
    watts = np.maximum(days, 0) * 3600 / seconds
    known = np.isfinite(days).mean(axis=1) > 0.5
    filled = np.where(np.isfinite(watts), watts, np.nan)
    still = np.zeros(len(days), bool)
    if known.any():
        some = filled[known]
        still[known] = np.nanmax(some, axis=1) - np.nanmin(some, axis=1) < QUIET_W
    run = still.copy()
    neighbour = np.zeros_like(still)
    neighbour[1:] |= still[:-1]
    neighbour[:-1] |= still[1:]
    return run & neighbour if VACANT_RUN > 1 else run
