"""Readings as CSV: one reading a line, under a header whose columns a mapping names.

UTF-8, lines end in LF or CRLF, at most 64 KiB each; fields may be quoted, but a field never spans
lines. Column names are compared without surrounding spaces. Empty lines are skipped. Any other line
that gives no reading is counted as malformed and does not affect the lines around it. Memory use
does not grow with the input.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import Fault, Parsed, RawColumns, check_rows, collect
from hushgrid.intake.text import (
    ByteSource,
    ColumnMapping,
    Lines,
    durations,
    lines,
    meter_codes,
    starts_of,
    values,
)
from hushgrid.intake.times import TimeReader, local_instants, reader


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
    for part in lines(source):
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
    fields = fields_of(part.text[0], mapping.delimiter)
    names = [] if fields is None else [name.strip() for name in fields]
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
        self._mapping, self._width = mapping, len(names)
        named = (mapping.meter, mapping.time, mapping.duration, mapping.value)
        self._place = {name: names.index(name.strip()) for name in named if name is not None}
        self._clock = TimeReader(reader(mapping.time_format), local_instants(mapping.time_zone))

    def parsed(self, part: Lines) -> Parsed:
        by = self._mapping
        number, column, broken = self._columns(part)
        n = len(number)
        ids, code = (
            ([by.meter_id], np.zeros(n, np.int64))
            if by.meter_id is not None
            else meter_codes(column[by.meter])
        )
        duration = (
            np.full(n, by.duration_s, np.int64)
            if by.duration_s is not None
            else durations(column[by.duration])
        )
        marked = self._clock.instants(column[by.time], ids, code)
        wh = values(column[by.value], by.unit, duration, by.decimal)
        start = starts_of(marked, duration, by.marks)
        return check_rows("line", number, RawColumns(ids, code, start, duration, wh), broken)

    def _columns(
        self, part: Lines
    ) -> tuple[Ints, dict[str | None, list[str]], list[tuple[int, Fault]]]:
        """Line numbers, columns of the rows that have all fields, and the other rows."""
        number = [at for at, line in enumerate(part.text, part.first) if line.strip()]
        rows = [part.text[at - part.first] for at in number]
        flat, broken = self._flat(rows), list(part.broken)
        if flat is None:
            number, flat, wrong = self._flat_singly(number, rows)
            broken += wrong
        column: dict[str | None, list[str]] = {
            name: flat[place :: self._width] for name, place in self._place.items()
        }
        return np.array(number, np.int64), column, broken

    def _flat(self, rows: list[str]) -> list[str] | None:
        """All fields in one list; None where a row needs a closer look. Most need none."""
        comma, width = self._mapping.delimiter, self._width
        together = comma.join(rows)
        if '"' in together or any(row.count(comma) != width - 1 for row in rows):
            return None
        return together.split(comma) if rows else []

    def _flat_singly(
        self, number: list[int], rows: list[str]
    ) -> tuple[list[int], list[str], list[tuple[int, Fault]]]:
        kept: list[int] = []
        flat: list[str] = []
        broken: list[tuple[int, Fault]] = []
        for at, row in zip(number, rows, strict=True):
            fields = fields_of(row, self._mapping.delimiter)
            if fields is None:
                broken.append((at, Fault.QUOTES))
            elif len(fields) != self._width:
                broken.append((at, Fault.FIELDS))
            else:
                kept.append(at)
                flat += fields
        return kept, flat, broken


def fields_of(line: str, delimiter: str) -> list[str] | None:
    """Fields of one line. A line is read by itself, so a stray quote cannot affect the next lines.

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
