"""Files of readings and labels, their mappings, and the histories that models are learned from.

A format is chosen by media type, by a file's suffix or by the first bytes of a message.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

import numpy as np

from hushgrid.errors import FileError, IntakeError
from hushgrid.files.apart import batches_apart
from hushgrid.files.extensions import by_key
from hushgrid.files.results import read_text
from hushgrid.files.weeks import Steps, local_months, local_seconds
from hushgrid.intake.csv import csv_batches, fields_of
from hushgrid.intake.exports import FORMATS
from hushgrid.intake.json import json_batches
from hushgrid.intake.lines import lines, open_bytes
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.text import (
    CANONICAL,
    LOW_CARBON_LONDON,
    PECAN_STREET,
    ColumnMapping,
    Format,
    alternatives,
    perhaps,
)

if TYPE_CHECKING:
    from hushgrid.learning.habits import Habits
    from hushgrid.learning.histories import Histories
    from hushgrid.learning.learner import Watch


def formats_by_media() -> Mapping[str, Format]:
    """The formats of bodies.

    Returns:
        Format by media type.

    Raises:
        ServiceError: If an extension cannot be loaded, or two have the same media type.
    """
    return by_key("hushgrid.intake", lambda form: form.media)


def format_by(mapping: ColumnMapping, otherwise: Callable[[], Format]) -> Format:
    """The format that a mapping names, or another.

    Args:
        mapping: A mapping.
        otherwise: Gives the format of a table, or of JSON that names its fields itself.

    Returns:
        The format.
    """
    return FORMATS.get(mapping.form) or otherwise()


def format_of(path: PurePath) -> Format:
    """Format of a file by its suffix.

    Args:
        path: The file.

    Returns:
        The format.

    Raises:
        IntakeError: If the suffix is unknown.
        ServiceError: If an extension cannot be loaded, or two have the same suffix.
    """
    suffix, formats = path.suffix.lower(), by_key("hushgrid.intake", lambda form: form.suffixes)
    if suffix not in formats:
        raise IntakeError(
            f"file {path} ends in {suffix!r}; give one that ends in {', '.join(formats)}."
        )
    return cast(Format, formats[suffix])


def message_batches(payload: bytes) -> Iterator[Parsed]:
    """The readings of a small message: JSON if it begins like it, else canonical CSV.

    Args:
        payload: The message.

    Returns:
        The readings and the malformed rows of each batch.

    >>> text = b"meter_id,start_utc,duration_s,wh\\na,2013-01-01T00:00Z,1800,115\\n"
    >>> [len(parsed.readings) for parsed in message_batches(text)]
    [1]
    """
    begin = payload[:64].removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1]
    if begin in (b"[", b"{"):
        return json_batches(payload)
    return csv_batches(payload, CANONICAL)


PIECE = 1 << 20  # [bytes] read at once


def batches_of_file(
    path: Path, mapping: ColumnMapping, advance: Callable[..., None]
) -> Iterator[Parsed]:
    """Parse a file of readings in pieces.

    Args:
        path: The file.
        mapping: Names and forms of its columns.
        advance: Called with the number of bytes of each piece.

    Yields:
        The readings and the malformed rows of each batch.
    """
    form = format_by(mapping, lambda: format_of(path))
    if form.seeks:
        yield from batches_apart(form.batches, path, mapping)
        advance(path.stat().st_size)
        return
    with path.open("rb") as stream:

        def pieces() -> Iterator[bytes]:
            while piece := stream.read(PIECE):
                yield piece
                advance(len(piece))

        yield from form.batches(pieces(), mapping)


def read_readings(
    path: Path,
    mapping: str | ColumnMapping,
    watch: Watch | None = None,
    registers: Mapping[str, str] | None = None,
) -> Parsed:
    """Read a file of readings.

    Args:
        path: The file.
        mapping: A mapping, or what `mapping_of` takes.
        watch: Progress, called with a label and the size [bytes].
        registers: As `ColumnMapping.registers`.

    Returns:
        The readings and the malformed rows.

    Raises:
        IntakeError: If no row is a reading, or the file is not of its format.
        FileError: If the file cannot be read.
    """
    by = mapping_of(mapping) if isinstance(mapping, str) else mapping
    columns = replace(by, registers=registers)
    try:
        size = path.stat().st_size
        advance = (lambda _: None) if watch is None else watch("reading, bytes", size)
        parsed = collect(batches_of_file(path, columns, advance))
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
    seasons: Sequence[Sequence[int]] = (),
) -> Histories:
    """Readings on one axis of local time, with labels where a file has them.

    Args:
        path: File of readings in any format that `hushgrid import` reads.
        mapping: As `mapping_of` takes it.
        time_zone: Its clocks show the times of day.
        seconds: Step [s]; else the length of most readings.
        begins: First step [UTC s]; else that of the earliest reading.
        ends: End of the last step [UTC s]; else that of the latest reading.
        meters: Homes, in this order; else those that the file names.
        labels: File of known occupancy.
        watch: Called with the bytes read.
        seasons: Months of each season that has laws of its own; none: the year has one.

    Returns:
        Histories, `declared` where step, begin, end and meters were all given, `independent` where
        also `rows_independent` holds.

    Raises:
        IntakeError: If the time zone is unknown, or the readings have no common axis.
    """
    from hushgrid.learning.histories import (
        for_meters,
        of_seasons,
        with_labels,
        with_silent_meters,
    )

    _check_zone(time_zone)
    parsed = read_readings(path, mapping, watch)
    try:
        histories = local_histories(parsed, time_zone, seconds, begins, ends)
    except IntakeError as error:
        raise IntakeError(f"{path}: {error}") from None
    counts = histories.counts
    declared = None not in (seconds, begins, ends, meters)
    histories = replace(
        histories, declared=declared,
        independent=declared and rows_independent(path, mapping) and not (
            labels is not None and labels.suffix.lower() != ".parquet"
            and not _has_whole_lines(labels, ("meter_id", "start_utc", "occupied"))
        ),
    )  # fmt: skip
    if meters is not None:
        histories = for_meters(histories, meters)
    elif parsed.malformed:
        histories = with_silent_meters(histories, _meters_named(path, mapping))
    if labels is not None:
        names, start, occupied, dropped = read_labels(labels, drop=declared)
        histories = replace(histories, counts={**counts, "rows that are no label": dropped})
        starts, states = np.array(start, np.int64), np.array(occupied, np.int8)
        histories = with_labels(histories, names, starts, states)
    return of_seasons(histories, seasons) if seasons else histories


def local_histories(
    parsed: Parsed,
    time_zone: str,
    seconds: int | None,
    begins: int | None = None,
    ends: int | None = None,
) -> Histories:
    """Readings on one axis of local time.

    Args:
        parsed: The readings.
        time_zone: Its clocks show the times of day.
        seconds: Step [s]; else the length of most readings.
        begins: First step [UTC s]; else that of the earliest reading.
        ends: End of the last step [UTC s]; else that of the latest reading.

    Returns:
        The histories of the homes that the readings name.

    Raises:
        IntakeError: If the time zone is unknown, or the readings have no common axis.
    """
    from hushgrid.learning.histories import axis_of, histories_of

    _check_zone(time_zone)
    axis = axis_of(parsed.readings, seconds, begins=begins, ends=ends)
    steps = Steps(axis.begins, axis.seconds, axis.steps, time_zone)
    histories = histories_of(parsed.readings, axis, local_seconds(steps))
    counts = {**histories.counts, "malformed rows": parsed.malformed}
    month = local_months(steps)
    return replace(histories, counts=counts, problems=parsed.problems, month=month)


def _check_zone(time_zone: str) -> None:
    try:
        ZoneInfo(time_zone)
    except (ValueError, OSError, KeyError):
        raise IntakeError(
            f"time zone is {time_zone!r}; give a name of the time zone database such as"
            " 'Europe/Zurich'."
        ) from None


def rows_independent(path: Path, mapping: str) -> bool:
    """Whether each row of a file is read by itself, whatever other homes send.

    Args:
        path: File of readings.
        mapping: As `mapping_of` takes it.

    Returns:
        False for formats with nested or ordered records and those of extensions, for a header that
        comes again or may do so in a file of several homes, for a preamble, which holds for all
        rows, where the first row's meter decides which rows are read, and for a CSV with a line
        whose quotes do not close: the rest of the field would be read as rows.
    """
    by, suffix = mapping_of(mapping), path.suffix.lower()
    several = by.meter is not None and (by.header == "repeated" or by.meter_id is not None)
    if by.form != "table" or suffix not in _APART or several or by.preamble:
        return False
    return suffix != ".csv" or _has_whole_lines(path, by.columns, by.encoding)


TABLES = (".csv", ".parquet", ".arrow", ".arrows")  # suffixes of tables of named columns
_APART = (*TABLES, ".json", ".ndjson", ".jsonl")


def _has_whole_lines(path: Path, columns: Sequence[str], encoding: str = "utf-8") -> bool:
    """Whether each line of a CSV but one is a row: one names the columns, and all quotes close.

    Several lines with the names are exports of homes in one file. Spaces are compared as
    `intake.csv.places` does.
    """
    names = [[name.casefold() for name in alternatives(column)] for column in columns]
    # written as they are in any encoding
    ascii_columns = [column for column in names if all(map(str.isascii, column))] or names
    patterns = [
        re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, column)) + r")(?![\w-])")
        for column in ascii_columns
    ]
    count = 0
    try:
        with path.open(encoding=encoding, errors="replace", newline="\n") as file:
            for text in file:
                line = " ".join(text.casefold().replace('""', '"').split())
                count += all(pattern.search(line) for pattern in patterns)
                if count > 1 or text.count('"') % 2:
                    return False
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None
    return True


def read_meters(path: Path) -> list[str]:
    """Meter ids of a text file, one on each line; empty lines are skipped.

    Args:
        path: The file.

    Returns:
        The ids, in order.
    """
    return [name for line in read_text(path).splitlines() if (name := line.strip())]


def _meters_named(path: Path, mapping: str) -> set[str]:
    """All meters that rows of a table name, also of rows that are no readings."""
    columns = mapping_of(mapping)
    if columns.meter is None or columns.meter_id is not None or not columns.plain:
        return set()
    if path.suffix.lower() == ".parquet":
        from pyarrow import parquet

        column = parquet.read_table(path, columns=[columns.meter]).column(0)
        return {str(name).strip() for name in column.unique().to_pylist() if name is not None}
    if path.suffix.lower() != ".csv":
        return set()
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        rows = csv.DictReader(file, delimiter=columns.delimiter)
        try:
            return {(row.get(columns.meter) or "").strip() for row in rows} - {""}
        except csv.Error:  # a broken row: those before it are known
            return set()


LABEL = ("meter_id", "start_utc", "occupied")


def read_labels(path: Path, *, drop: bool = False) -> tuple[list[str], list[int], list[int], int]:
    """Labels of a CSV or Parquet file with the columns meter_id, start_utc and occupied.

    A row is read by itself: what is wrong with it has no effect on other rows.

    Args:
        path: The file. `start_utc` is seconds since 1970, or ISO 8601 with an offset.
        drop: Leave out rows that are no label.

    Returns:
        Meter ids, starts [UTC s], occupancy (1, 0, or -1 for unknown), and how many rows
        were left out.

    Raises:
        FileError: The file cannot be read, lacks a column, or a row is no label and `drop` is not
            set.
    """
    rows = _parquet_rows(path) if path.suffix.lower() == ".parquet" else _csv_rows(path)
    meters, start, occupied = [], [], []
    dropped = 0
    for number, row in enumerate(rows, 1):
        label = None if row is None else _label(*row)
        if label is not None:
            meters.append(label[0])
            start.append(label[1])
            occupied.append(label[2])
        elif drop:
            dropped += 1
        else:
            raise FileError(
                f"row {number} of {path} is no label; give meter_id, start_utc (UTC, or with an"
                " offset) and occupied (1, 0 or nothing)."
            )
    return meters, start, occupied, dropped


def _label(meter: Any, time: Any, state: Any) -> tuple[str, int, int] | None:
    """Meter, start [UTC s] and occupancy, or None where a value is none of these."""
    try:
        if isinstance(time, str):
            time = int(time) if time.isdigit() else datetime.fromisoformat(time)
        if isinstance(time, datetime):
            if time.tzinfo is None:
                return None
            time = time.timestamp()
        start = int(time)
        occupied = -1 if state in (None, "") else int(state)
    except (TypeError, ValueError, OverflowError):
        return None
    if meter is None or not -(2**53) < start < 2**53 or occupied not in (-1, 0, 1):
        return None
    return str(meter), start, occupied


def _csv_rows(path: Path) -> Iterator[tuple[Any, ...] | None]:
    """The three fields of each line; None where a line cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None
    place: list[int] | None = None
    for part in lines(open_bytes(content)):
        broken = {number for number, _ in part.broken}
        for number, line in enumerate(part.text, part.first):
            fields = None if number in broken else fields_of(line, ",")
            if place is None:
                place = _places(path, [name.strip() for name in fields or []])
            elif fields is None:
                yield None
            elif line.strip():
                fields += [""] * (max(place) + 1 - len(fields))
                yield tuple(fields[i] for i in place)


def _parquet_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The three values of each row."""
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
        columns = {n: _plain(table.column(n)) for n in LABEL if n in table.column_names}
    except (OSError, ValueError, NotImplementedError, OverflowError) as error:
        raise FileError(f"{path} cannot be read ({type(error).__name__}).") from None
    _places(path, list(columns))
    yield from zip(*(columns[name] for name in LABEL), strict=True)


def _plain(column: Any) -> list[Any]:
    """The values of a column; no single value stops it."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "replace") for value in values]
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        seconds = column.cast(pa.timestamp("s", column.type.tz), safe=False)
        return list(seconds.cast(pa.int64()).to_pylist())
    return [_python(value) for chunk in column.chunks for value in chunk]


def _python(scalar: Any) -> Any:
    """The value of a scalar; one that Python has no value for is no label."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return "out of range"


def _places(path: Path, names: list[str]) -> list[int]:
    """Where the three columns of a label are."""
    missing = [name for name in LABEL if name not in names]
    if missing:
        raise FileError(
            f"{path} has no column {missing[0]!r}; give labels with {', '.join(LABEL)}."
        )
    return [names.index(name) for name in LABEL]


def read_habits(survey: str | None, residents: Sequence[int], seconds: int) -> Habits:
    """The prior on habits: a survey's, averaged over numbers of residents, or assumed ones.

    Args:
        survey: File of a survey, or "richardsonpy"; None: assumed habits.
        residents: Numbers of residents.
        seconds: Length of a step [s].

    Returns:
        The habits.

    """
    from hushgrid.files.models import load_survey
    from hushgrid.learning.habits import assumed_habits, mean_habits

    if survey is None:
        return assumed_habits(seconds)
    return mean_habits(load_survey(survey), residents, seconds=seconds)


# ---- mappings

_FOLDER = Path(__file__).parent / "mappings"
_TABLES = {"canonical": CANONICAL, "lcl": LOW_CARBON_LONDON, "pecan": PECAN_STREET}
BUILT_IN = (*_TABLES, *sorted(path.stem for path in _FOLDER.glob("*.toml")))
NO_MAPPINGS: Mapping[str, ColumnMapping] = {}

_LENGTH = ("duration", "duration_s", "end", "until")  # ways to say how long a reading is


def mapping_named(
    name: str, meter_id: str | None = None, mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS
) -> ColumnMapping:
    """A built-in mapping, or one of a service file.

    Args:
        name: One of `BUILT_IN` or a key of `mappings`.
        meter_id: Id of the one meter of the input.
        mappings: Mappings of a service file.

    Returns:
        The mapping.

    Raises:
        IntakeError: If there is no such mapping.

    >>> mapping_named("lcl").meter
    'LCLid'
    """
    if name not in BUILT_IN and name not in mappings:
        names = ", ".join([*BUILT_IN, *mappings])
        raise IntakeError(f"mapping is {name[:40]!r}; give one of {names}.")
    mapping = mappings[name] if name in mappings else _built_in(name)
    return mapping if meter_id is None else replace(mapping, meter_id=meter_id)


@cache
def _built_in(name: str) -> ColumnMapping:
    return _TABLES.get(name) or _of_file(_FOLDER / f"{name}.toml")


def mapping_of(
    name: str, meter_id: str | None = None, mappings: Mapping[str, ColumnMapping] = NO_MAPPINGS
) -> ColumnMapping:
    """A mapping by its name, or that of a TOML file with the fields of `ColumnMapping`.

    A file may name a built-in mapping as `base` and give only what differs. What it says of the
    length of readings is in place of what the base says of it.

    Args:
        name: Name, or path of a file that ends in .toml.
        meter_id: Id of the one meter of the input.
        mappings: Mappings of a service file.

    Returns:
        The mapping.

    Raises:
        IntakeError: If there is no such mapping, or a field of the file is unknown or not usable.
        FileError: If the file cannot be read.
    """
    if not name.endswith(".toml"):
        return mapping_named(name, meter_id, mappings)
    return _of_file(Path(name), {} if meter_id is None else {"meter_id": meter_id})


def _of_file(path: Path, overrides: Mapping[str, Any] = NO_MAPPINGS) -> ColumnMapping:
    names = {field.name for field in fields(ColumnMapping)} - {"registers"}
    try:
        table = tomllib.loads(read_text(path))
        base = table.pop("base", None)
        for key in table:
            if key not in names:
                raise IntakeError(
                    f"field {key!r} is unknown{perhaps(key, names)}; give base or"
                    f" {', '.join(sorted(names))}."
                )
        for rule in ("only", "fed_in"):
            if isinstance(table.get(rule), dict):
                table[rule] = [[key, texts] for key, texts in table[rule].items()]
        changes = {key: _tuple(value) for key, value in table.items()} | dict(overrides)
        if not base:
            return ColumnMapping(**changes)
        return replace(mapping_named(str(base)), **_defaults(changes), **changes)
    except (tomllib.TOMLDecodeError, IntakeError, TypeError, ValueError) as error:
        raise IntakeError(f"mapping {path}: {error}") from None


def _defaults(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a base that do not hold beside what a file says of the length of readings."""
    if not any(name in changes for name in _LENGTH):
        return {}
    depending = {*_LENGTH, "duration_unit", "end_date", "end_shift_s"}
    if "end" in changes or "until" in changes:
        depending.add("marks")
    return {
        field.name: field.default
        for field in fields(ColumnMapping)
        if field.name in depending and field.name not in changes
    }


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value
