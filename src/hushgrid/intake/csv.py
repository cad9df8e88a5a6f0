"""Readings as CSV: one reading a line, under a header whose columns a mapping names.

UTF-8, lines end in LF or CRLF, at most 64 KiB each; fields may be quoted, but a field never spans
lines. Column names are compared without surrounding spaces. Empty lines are skipped. Any other line
that gives no reading is counted as malformed and does not affect the lines around it. Memory use
does not grow with the input.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hushgrid.errors import IntakeError
from hushgrid.intake.readings import Fault, Parsed, RawColumns, check_rows, collect
from hushgrid.intake.text import (
    ByteSource,
    ColumnMapping,
    Format,
    Lines,
    durations,
    lines,
    meter_codes,
    open_bytes,
    starts_of,
    values,
)
from hushgrid.intake.times import text_times


def parse_csv(source: ByteSource, mapping: ColumnMapping) -> Parsed:
    """All readings of a CSV.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Names and forms of its columns.

    Returns:
        The readings and the malformed lines.

    >>> from hushgrid.intake.text import CANONICAL
    >>> text = b"meter_id,start_utc,duration_s,wh\\na,2013-01-01T00:00Z,1800,115\\nb,soon,1800,9\\n"
    >>> found = parse_csv(text, CANONICAL)
    >>> list(found.readings.rows()), found.malformed
    ([('a', 1356998400, 1800, 115)], 1)
    >>> found.problems
    ('line 3: time is not in the expected form, or no such date exists',)
    """
    return collect(csv_batches(source, mapping))


def csv_batches(source: ByteSource, mapping: ColumnMapping) -> Iterator[Parsed]:
    """The readings of a CSV, about 256 KiB of its text at a time.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Names and forms of its columns.

    Yields:
        The readings and the malformed lines of each batch.

    Raises:
        IntakeError: If the CSV is empty, or its header lacks a column of the mapping.
    """
    table = None
    for part in lines(open_bytes(source)):
        if table is None:
            table = _CsvTable(_header(part, mapping), mapping)
            part.text[0] = ""
        yield table.parsed(part)
    if table is None:
        raise IntakeError("CSV is empty; its first line must name the columns.")


def _header(part: Lines, mapping: ColumnMapping) -> list[str]:
    if part.broken and part.broken[0][0] == part.first:
        raise IntakeError(
            f"CSV header {part.broken[0][1].text}; give a CSV whose first line names the columns."
        )
    names = [name.strip() for name in fields_of(part.text[0], mapping.delimiter) or []]
    for column in mapping.columns:
        if names.count(column) != 1:
            raise IntakeError(
                f"CSV header names the column {column!r} {names.count(column)} times;"
                " give a CSV of the mapping, or the mapping of the CSV."
            )
    return names


class _CsvTable:
    """The rows below one header."""

    def __init__(self, names: list[str], mapping: ColumnMapping) -> None:
        self._mapping, self._names = mapping, names
        self._clock = text_times(mapping.time_format, mapping.time_zone)

    def parsed(self, part: Lines) -> Parsed:
        number, broken, rows = [], list(part.broken), []
        for at, line in enumerate(part.text, part.first):
            if not line.strip():
                continue
            fields = fields_of(line, self._mapping.delimiter)
            if fields is None:
                broken.append((at, Fault.QUOTES))
            elif len(fields) != len(self._names):
                broken.append((at, Fault.FIELDS))
            else:
                number.append(at)
                rows.append(fields)
        columns = list(zip(*rows, strict=True)) or [()] * len(self._names)
        table = dict(zip(self._names, columns, strict=True))
        return check_rows("line", np.array(number, np.int64), self._columns(table), broken)

    def _columns(self, table: Mapping[str, Sequence[str]]) -> RawColumns:
        by = self._mapping
        times = table[by.time.strip()]
        if by.meter is not None:
            ids, code = meter_codes(table[by.meter.strip()])
        else:
            ids, code = [str(by.meter_id)], np.zeros(len(times), np.int64)
        if by.duration is not None:
            duration = durations(table[by.duration.strip()])
        else:
            duration = np.full(len(times), by.duration_s, np.int64)
        marked = self._clock.instants(times, ids, code)
        wh = values(table[by.value.strip()], by.unit, duration, by.decimal)
        return RawColumns(ids, code, starts_of(marked, duration, by.marks), duration, wh)


def fields_of(line: str, delimiter: str) -> list[str] | None:
    """Fields of one line.

    Each line is read by itself: pyarrow and `csv` on a whole file would let a quote that does not
    close take the next lines with it, and one wrong byte refuse them all.

    Args:
        line: The line, without its end.
        delimiter: Character between fields.

    Returns:
        The fields; None where quotes do not close.
    """
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return None


FORMAT = Format(("text/csv",), (".csv",), csv_batches)
