"""Meter data in common formats to canonical readings; deterministic, no file, no clock.

Each format has a pair of functions: `parse_x` reads a whole input, `x_batches` yields it in batches
with bounded memory. Malformed rows are counted and reported by position and reason, never by value,
and do not affect the other rows. An input that is not of the format raises one `IntakeError`.
"""

from hushgrid.intake.arrow import arrow_batches, parquet_batches, parse_arrow, parse_parquet
from hushgrid.intake.csv import csv_batches, parse_csv
from hushgrid.intake.espi import espi_batches, parse_espi
from hushgrid.intake.json import json_batches, parse_json, parse_records
from hushgrid.intake.readings import (
    Incomplete,
    IntervalReadings,
    Parsed,
    Readings,
    collect,
    concat,
    to_intervals,
)
from hushgrid.intake.text import CANONICAL, LOW_CARBON_LONDON, PECAN_STREET, ColumnMapping

__all__ = [
    "CANONICAL",
    "LOW_CARBON_LONDON",
    "PECAN_STREET",
    "ColumnMapping",
    "Incomplete",
    "IntervalReadings",
    "Parsed",
    "Readings",
    "arrow_batches",
    "collect",
    "concat",
    "csv_batches",
    "espi_batches",
    "json_batches",
    "parquet_batches",
    "parse_arrow",
    "parse_csv",
    "parse_espi",
    "parse_json",
    "parse_parquet",
    "parse_records",
    "to_intervals",
]
