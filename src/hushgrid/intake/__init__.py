"""From meter data as the world writes it to canonical readings; deterministic, no file, no clock.

Every format has a pair: `parse_x` takes all of an input, `x_batches` gives it piece by piece in
bounded memory. Bad rows are counted and named by place and reason, never by value, and do not stop
the good ones; an input that is not of the format at all is one `IntakeError`.
"""

from hushgrid.intake.arrow import arrow_batches, parquet_batches, parse_arrow, parse_parquet
from hushgrid.intake.csv import csv_batches, parse_csv
from hushgrid.intake.espi import espi_batches, parse_espi
from hushgrid.intake.intervals import Incomplete, Settled, settle
from hushgrid.intake.json import json_batches, parse_json, parse_records
from hushgrid.intake.readings import Parsed, Readings, collect, concat
from hushgrid.intake.text import CANONICAL, LOW_CARBON_LONDON, PECAN_STREET, ColumnMapping

__all__ = [
    "CANONICAL",
    "LOW_CARBON_LONDON",
    "PECAN_STREET",
    "ColumnMapping",
    "Incomplete",
    "Parsed",
    "Readings",
    "Settled",
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
    "settle",
]
