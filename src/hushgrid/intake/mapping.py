"""Which columns of a table hold the readings, and in which units, forms and zone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from hushgrid.checks import is_whole
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import MAX_DURATION, clean_meter
from hushgrid.intake.times import reader
from hushgrid.intake.zones import local_instants

Unit = Literal["wh", "kwh", "kw"]
Marks = Literal["start", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """How a CSV or Parquet table spells meter, time, duration and value.

    `meter` names a column, or `meter_id` is the one meter of the table; `duration` names a column
    [s], or `duration_s` holds for every row. `unit` is wh, kwh or kw (mean power over the
    duration); values are rounded to whole Wh, halves to even. A time with an offset is exact; one
    without is a local time of `time_zone`. It marks the start of the reading, or its end.
    `delimiter` and `decimal` mark are for CSV.

    >>> ColumnMapping(meter="id", time="at", value="kWh", unit="kwh", duration_s=900).time_zone
    'UTC'
    """

    time: str
    value: str
    unit: Unit
    meter: str | None = None
    meter_id: str | None = None
    duration: str | None = None
    duration_s: int | None = None
    time_zone: str = "UTC"
    time_format: str = "iso"
    marks: Marks = "start"
    delimiter: str = ","
    decimal: str = "."

    def __post_init__(self) -> None:
        for name in ("time", "value"):
            _check_name(name, getattr(self, name))
        _check_either("meter", self.meter, "meter_id", self.meter_id)
        _check_either("duration", self.duration, "duration_s", self.duration_s)
        _check_choice("unit", self.unit, get_args(Unit))
        _check_choice("marks", self.marks, get_args(Marks))
        _check_choice("decimal", self.decimal, (".", ","))
        if self.meter_id is not None and clean_meter(str(self.meter_id)) != self.meter_id:
            raise IntakeError(f"meter_id is {self.meter_id!r}; give 1 to 128 printable characters.")
        if self.duration_s is not None and not (
            is_whole(self.duration_s) and 1 <= self.duration_s <= MAX_DURATION
        ):
            raise IntakeError(
                f"duration_s is {self.duration_s}; give whole seconds, 1 to {MAX_DURATION}."
            )
        _check_delimiter(self.delimiter, self.decimal)
        if len(set(self.columns)) != len(self.columns):
            raise IntakeError(f"columns are {self.columns}; give each a column of its own.")
        reader(self.time_format)
        local_instants(self.time_zone)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, as the table names them but for spaces around."""
        named = (self.meter, self.time, self.duration, self.value)
        return tuple(name.strip() for name in named if name is not None)


def _check_name(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise IntakeError(f"{field} is {value!r}; give the name of a column.")


def _check_either(column: str, name: Any, constant: str, value: Any) -> None:
    if (name is None) == (value is None):
        raise IntakeError(
            f"{column} is {name!r} and {constant} is {value!r};"
            f" give either the column {column} or {constant} for all rows."
        )
    if name is not None:
        _check_name(column, name)


def _check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise IntakeError(f"{field} is {value!r}; give one of {', '.join(choices)}.")


def _check_delimiter(delimiter: Any, decimal: str) -> None:
    if (
        not isinstance(delimiter, str)
        or len(delimiter) != 1
        or delimiter in "\r\n\"'"
        or delimiter == decimal
    ):
        raise IntakeError(
            f"delimiter is {delimiter!r}; give one character other than a quote, a line end"
            " and the decimal mark."
        )


CANONICAL = ColumnMapping(
    meter="meter_id", time="start_utc", duration="duration_s", value="wh", unit="wh"
)

LOW_CARBON_LONDON = ColumnMapping(
    meter="LCLid",
    time="DateTime",
    value="KWH/hh (per half hour) ",
    unit="kwh",
    duration_s=1800,
    time_zone="UTC",  # British meters keep UTC the year round
)

PECAN_STREET = ColumnMapping(
    meter="dataid", time="local_15min", value="grid", unit="kw", duration_s=900
)
