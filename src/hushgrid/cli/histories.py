"""Histories from files of readings, for commands that learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hushgrid.intake import Parsed
    from hushgrid.learn.habits import Habits
    from hushgrid.learn.histories import Histories
    from hushgrid.learn.learned import Watch


def read_readings(path: Path, mapping: str, watch: Watch | None = None) -> Parsed:
    """What a file holds: readings, and rows that are none; `watch` sees the bytes go by."""
    from hushgrid.cli.import_ import _batches
    from hushgrid.errors import FileError, IntakeError
    from hushgrid.intake import collect
    from hushgrid.live.formats import mapping_named

    columns = mapping_named(mapping)
    try:
        size = path.stat().st_size
        advance = (lambda _: None) if watch is None else watch("reading, bytes", size)
        parsed = collect(_batches(path, columns, advance))
    except IntakeError as error:
        raise IntakeError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None
    if parsed.malformed and not len(parsed.readings):
        first = parsed.problems[0] if parsed.problems else "no row can be read"
        raise IntakeError(
            f"{path}: none of its {parsed.malformed} rows is a reading ({first}); give Wh, or the"
            " --mapping of the file."
        )
    return parsed


def read_histories(
    path: Path,
    *,
    mapping: str,
    time_zone: str,
    seconds: int | None,
    begins: int | None = None,
    ends: int | None = None,
    meters: Sequence[str] | None = None,
    labels: Path | None = None,
    watch: Watch | None = None,
) -> Histories:
    """Readings on one axis of local time, with labels where a file has them.

    Args:
        path: File of readings in any format that `hushgrid import` reads.
        mapping: Names of the columns: canonical, lcl or pecan.
        time_zone: Its clocks show the times of day.
        seconds: Step [s]; else the length of most readings.
        begins: First step [UTC epoch s]; else that of the earliest reading.
        ends: End of the last step [UTC epoch s]; else that of the latest reading.
        meters: Homes, in this order; else those that the file names.
        labels: File of known occupancy.
        watch: Called with the bytes read.

    Returns:
        Histories, `declared` where step, begin, end and meters were all given.
    """
    from dataclasses import replace
    from zoneinfo import ZoneInfo

    from hushgrid.errors import IntakeError
    from hushgrid.learn.histories import (
        axis_of,
        histories_of,
        of_meters,
        with_labels,
        with_silent,
    )
    from hushgrid.live.local import local_seconds

    try:
        ZoneInfo(time_zone)
    except (ValueError, OSError, KeyError):
        raise IntakeError(
            f"time zone is {time_zone!r}; give a name of the time zone database such as"
            " 'Europe/Zurich'."
        ) from None
    parsed = read_readings(path, mapping, watch)
    try:
        axis = axis_of(parsed.readings, seconds, begins=begins, ends=ends)
    except IntakeError as error:
        raise IntakeError(f"{path}: {error}") from None
    shown = local_seconds(axis.begins, axis.seconds, axis.steps, time_zone)
    found = histories_of(parsed.readings, axis, shown)
    counts = {**found.counts, "malformed rows": parsed.malformed}
    declared = None not in (seconds, begins, ends, meters)
    found = replace(found, counts=counts, problems=parsed.problems, declared=declared)
    if meters is not None:
        found = of_meters(found, meters)
    elif parsed.malformed:
        found = with_silent(found, _meters_named(path, mapping))
    if labels is None:
        return found
    import numpy as np

    names, start, occupied = read_labels(labels)
    return with_labels(found, names, np.array(start, np.int64), np.array(occupied, np.int8))


def read_meters(path: Path) -> list[str]:
    """The meter ids of a text file, one on each line; empty lines are left out."""
    from hushgrid.files import read_text

    return [name for line in read_text(path).splitlines() if (name := line.strip())]


def _meters_named(path: Path, mapping: str) -> set[str]:
    """All meters that rows of a table name, also of rows that are no readings."""
    import csv

    from hushgrid.live.formats import mapping_named

    columns = mapping_named(mapping)
    if columns.meter is None:
        return set()
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        column = parquet.read_table(path, columns=[columns.meter]).column(0)
        return {str(name).strip() for name in column.unique().to_pylist() if name is not None}
    if path.suffix.lower() != ".csv":
        return set()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        rows = csv.DictReader(lines, delimiter=columns.delimiter)
        try:
            return {(row.get(columns.meter) or "").strip() for row in rows} - {""}
        except csv.Error:  # a broken row: those before it are known
            return set()


def read_labels(path: Path) -> tuple[list[str], list[int], list[int]]:
    """Labels: meter_id, start_utc (seconds since 1970 or ISO 8601 with offset), occupied."""
    import csv
    from datetime import datetime

    from hushgrid.errors import FileError
    from hushgrid.files import read_text

    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        try:
            rows = parquet.read_table(path).to_pylist()
        except (OSError, ValueError) as error:
            raise FileError(f"{path} cannot be read ({type(error).__name__}).") from None
    else:
        rows = list(csv.DictReader(read_text(path).splitlines()))
    meters, start, occupied = [], [], []
    for number, row in enumerate(rows, 1):
        try:
            when = row["start_utc"]
            if isinstance(when, str):
                when = int(when) if when.isdigit() else datetime.fromisoformat(when)
            if isinstance(when, datetime):
                if when.tzinfo is None:
                    raise ValueError("no offset")
                when = int(when.timestamp())
            state = row["occupied"]
            occupied.append(-1 if state in (None, "") else int(state))
            meters.append(str(row["meter_id"]))
            start.append(int(when))
        except (KeyError, TypeError, ValueError):
            raise FileError(
                f"row {number} of {path} is no label; give meter_id, start_utc (UTC, or with an"
                " offset) and occupied (1, 0 or nothing)."
            ) from None
    return meters, start, occupied


def read_habits(survey: str | None, residents: str, seconds: int) -> Habits:
    """The prior: a survey's habits, averaged over numbers of residents, or assumed ones."""
    from dataclasses import replace

    import numpy as np

    from hushgrid.errors import ModelError
    from hushgrid.learn.habits import assumed, stationary
    from hushgrid.learn.survey import survey_habits
    from hushgrid.surveyfile import load_survey

    if survey is None:
        return assumed(seconds)
    given = load_survey(survey)
    try:
        numbers = [int(n) for n in residents.split(",")]
    except ValueError:
        raise ModelError(f"residents is {residents!r}; give numbers such as 2,3.") from None
    each = [survey_habits(given, n, seconds=seconds) for n in numbers]
    if len(each) == 1:
        return each[0]
    transition = np.mean([one.transition for one in each], axis=0)
    source = "; ".join(one.source for one in each)
    return replace(
        each[0], transition=transition, share=stationary(transition), source=f"mean of {source}"
    )
