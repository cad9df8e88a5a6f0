"""Readings as CSV: one reading a line, under a header whose columns a mapping names.

UTF-8 or the encoding of the mapping, lines end in LF or CRLF, at most 64 KiB each; fields may be
quoted, but a field never spans lines. Column names are compared without surrounding spaces. Empty
lines are skipped. Any other line that gives no reading is counted as malformed and does not affect
the lines around it. Memory use does not grow with the input.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.errors import IntakeError
from hushgrid.intake._times import DaySteps, local_instants, moments, text_times
from hushgrid.intake.lines import ByteSource, Lines, in_utf8, lines, open_bytes
from hushgrid.intake.readings import (
    FAULTS_END,
    Fault,
    Parsed,
    RawColumns,
    check_rows,
)
from hushgrid.intake.text import (
    HEADING,
    SECONDS_PER_HOUR,
    ColumnMapping,
    Format,
    alternatives,
    durations,
    meter_codes,
    perhaps,
    select_rows,
    starts_of,
    summed,
    values,
)


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
    table = _CsvTable(mapping)
    for part in lines(open_bytes(in_utf8(source, mapping.encoding))):
        yield table.parsed(part)
    table.check_found()


class _CsvTable:
    """The rows below a header, or below each of several."""

    def __init__(self, mapping: ColumnMapping) -> None:
        self._by, self._table = mapping, TextTable(mapping)
        self._first = mapping.header == "first" and not mapping.preamble
        self._preamble: list[str] | None = None  # its names
        self._constants: dict[str, str] = {}
        self._wanted = mapping.columns  # in the header
        self._pick: Callable[[list[str]], tuple[str, ...]] | None = None
        self._width, self._seen, self._heading = 0, False, ""
        self._needed = 0  # fields of a row
        self._day: slice | None = None  # values of a row that is a day

    def parsed(self, part: Lines) -> Parsed:
        number: list[int] = []
        rows: list[tuple[str, ...]] = []
        days: list[list[str]] = []
        headings: list[str] = []
        broken: list[tuple[int, Fault | str]] = []
        faults = dict(part.broken)
        for at, line in enumerate(part.text, part.first):
            if at <= self._by.skip:
                continue
            fields = fields_of(line, self._by.delimiter)
            if self._pick is None:
                self._head(faults.get(at), fields or [])
            elif at in faults:
                broken.append((at, faults[at]))
            elif not line.strip():
                continue
            elif fields is None:
                broken.append((at, Fault.QUOTES))
            elif self._by.header == "repeated" and self._ends(fields):
                continue
            elif not self._needed <= len(fields) <= self._width:
                broken.append((at, Fault.FIELDS))
            else:
                number.append(at)
                rows.append(self._pick(fields))
                headings.append(self._heading)
                if self._day is not None:
                    days.append(fields[self._day])
        columns = list(zip(*rows, strict=True)) or [()] * len(self._wanted)
        table: dict[str, Sequence[str]] = dict(zip(self._wanted, columns, strict=True))
        table |= {name: [text] * len(rows) for name, text in self._constants.items()}
        if self._by.header == "repeated":
            table[HEADING] = headings
        numbers = np.array(number, np.int64)
        if self._day is None:
            return check_rows("line", numbers, self._table.columns(table), broken)
        columns_of_days, row = self._table.days(table, days)
        return check_rows("line", numbers[row], columns_of_days, broken)

    def _head(self, fault: Fault | None, fields: list[str]) -> None:
        """Look for the header in a line; the first of all must be one, unless it is to be found."""
        if self._first and fault is not None:
            raise IntakeError(
                f"CSV header {fault.text}; give a CSV whose first line names the columns."
            )
        if self._by.preamble and not self._constants and "".join(fields).strip():
            if self._preamble is None:
                self._preamble = fields
                return
            for name in self._by.columns:
                if len(at := places(name, self._preamble)) == 1 and at[0] < len(fields):
                    self._constants[name] = fields[at[0]]
            self._wanted = tuple(n for n in self._by.columns if n not in self._constants)
            if self._constants:
                return
        columns = [places(name, fields) for name in self._wanted]
        if columns and all(len(at) == 1 for at in columns):
            self._pick = itemgetter(*(at[0] for at in columns))
            self._width, self._seen = len(fields), True
            self._needed = 1 + max(at[0] for at in columns) if self._by.ragged else self._width
            if self._by.last_value is not None:
                self._day = self._values_of_a_day(fields)
            self._heading = " ".join(fields[i] for i in places(self._by.value, fields))
        elif self._first:
            wrong = next(i for i, at in enumerate(columns) if len(at) != 1)
            name, count = self._wanted[wrong], len(columns[wrong])
            state = f"there {count} times" if count else f"missing{perhaps(name, fields)}"
            raise IntakeError(
                f"CSV header: column {name!r} is {state}; the expected columns are"
                f" {', '.join(self._wanted)}: give a CSV of the mapping, or the mapping of the CSV."
            )

    def _values_of_a_day(self, names: list[str]) -> slice:
        """The columns from `value` to `last_value`, which have to be a day."""
        first, last = (places(n, names)[0] for n in (self._by.value, str(self._by.last_value)))
        steps, seconds = last + 1 - first, self._by.duration_s or 0
        if steps * seconds not in (24 * SECONDS_PER_HOUR, 25 * SECONDS_PER_HOUR):
            raise IntakeError(
                f"CSV has {max(steps, 0)} columns from {self._by.value!r} to"
                f" {self._by.last_value!r}, and duration_s is {seconds}; give columns and a"
                " duration_s that make 24 or 25 h."
            )
        return slice(first, last + 1)

    def _ends(self, fields: list[str]) -> bool:
        """Whether a line ends the rows of a block, or is a header again."""
        pick, self._pick = self._pick, None
        self._head(None, fields)
        if self._pick is None and len(fields) == self._width:
            self._pick = pick
            return False
        return True

    def check_found(self) -> None:
        if not self._seen:
            raise IntakeError(
                f"CSV is empty, or no line names the columns {', '.join(self._wanted)}; give a CSV"
                " of the mapping, or the mapping of the CSV."
            )


def places(column: str, names: Sequence[str]) -> list[int]:
    """Where a column of a mapping is among the names of a header.

    Args:
        column: The column, perhaps with alternatives.
        names: Names as written.

    Returns:
        All places of the exact name; where there is none, those of names that differ by case.

    >>> places("Wh | kWh", [" kwh ", "KWH", "kWh"]), places("wh", ["WH"])
    ([2], [0])
    """
    cleaned, accepted = [" ".join(name.split()) for name in names], alternatives(column)
    exact = [i for i, name in enumerate(cleaned) if name in accepted]
    folded = {name.casefold() for name in accepted}
    return exact or [i for i, name in enumerate(cleaned) if name.casefold() in folded]


class TextTable:
    """Columns of text to readings, by a mapping; of one input, in order.

    Args:
        mapping: Names and forms of the columns.

    Raises:
        IntakeError: If the mapping says no meter.
    """

    def __init__(self, mapping: ColumnMapping) -> None:
        if mapping.meter is None and mapping.meter_id is None:
            raise IntakeError(
                "mapping names no column of meter ids; give the meter (--meter-id ID, over HTTP"
                " &meter_id=ID)."
            )
        self._by, self._meter = mapping, ""
        self._clock = text_times(
            mapping.time_format, mapping.time_zone, mapping.shift_s, mapping.newest_first
        )
        self._days: DaySteps | None = None

    def columns(self, table: Mapping[str, Sequence[str]]) -> RawColumns:
        """The columns as numbers or faults; `table` holds texts by the names of the mapping."""
        by = self._by
        begins, ends = self._times(table)
        ids, code = self._meters(table, len(begins))
        # before the times: what is left out repeats no hour
        ids, code = select_rows(by, ids, code, lambda name: table[name.strip()])
        marked = self._clock.instants(begins, ids, code)
        if ends is not None:
            duration = self._clock.durations(marked, begins, ends)
            duration = np.where(duration < FAULTS_END, duration, duration + by.end_shift_s)
        elif by.duration is not None:
            duration = durations(table[by.duration.strip()], by.duration_unit)
        else:
            duration = np.full(len(begins), by.duration_s, np.int64)
        wh = values(table[by.value.strip()], by.unit, duration, by.decimal)

        def further(name: str) -> Ints:
            texts = [text.strip() or "0" for text in table[name.strip()]]
            return values(texts, by.unit, duration, by.decimal)

        wh = summed(by, wh, further)
        return RawColumns(ids, code, starts_of(marked, duration, by.marks), duration, wh)

    def days(
        self, table: Mapping[str, Sequence[str]], days: Sequence[Sequence[str]]
    ) -> tuple[RawColumns, Ints]:
        """The columns of rows that are a day each, and the row of every reading.

        An empty cell of a time that its day lacks, where clocks change, is no reading.
        """
        by, steps = self._by, max(map(len, days), default=1)
        if self._days is None:
            date = moments(by.time_format, "UTC", by.shift_s)
            clocks = local_instants(by.time_zone)
            self._days = DaySteps(date, clocks, by.duration_s or 0, steps)
        ids, code = self._meters(table, len(days))
        ids, code = select_rows(by, ids, code, lambda name: table[name.strip()])
        row = np.repeat(np.arange(len(days)), steps)
        cells = [cell for day in days for cell in day]
        times = [(date, step) for date in table[by.time.strip()] for step in range(steps)]
        start = self._days.instants(times, ids, code[row])
        duration = np.full(len(row), by.duration_s, np.int64)
        wh = values(cells, by.unit, duration, by.decimal)
        real = (start != Fault.TIME_GAP) | (wh != Fault.VALUE_MISSING)
        columns = RawColumns(ids, code[row][real], start[real], duration[real], wh[real])
        return columns, row[real]

    def _times(
        self, table: Mapping[str, Sequence[str]]
    ) -> tuple[Sequence[str], Sequence[str] | None]:
        by = self._by
        begins = table[by.time.strip()]
        ends: Sequence[str] | None = None
        if by.until is not None:
            pairs = [text.replace("\xa0", " ").partition(by.until) for text in begins]
            begins, ends = [a for a, _, _ in pairs], [b for _, _, b in pairs]
        elif by.end is not None:
            ends = table[by.end.strip()]
        if by.date is not None:
            days = table[by.date.strip()]
            begins = [f"{a.strip()} {b.strip()}" for a, b in zip(days, begins, strict=True)]
            if ends is not None:
                days = days if by.end_date is None else table[by.end_date.strip()]
                ends = [f"{a.strip()} {b.strip()}" for a, b in zip(days, ends, strict=True)]
        return begins, ends

    def _meters(self, table: Mapping[str, Sequence[str]], rows: int) -> tuple[list[str], Ints]:
        by = self._by
        if by.meter is None:
            return [str(by.meter_id)], np.zeros(rows, np.int64)
        names = list(map(_bare, table[by.meter.strip()]))
        ids, code = meter_codes(names)
        if by.meter_id is None or not ids:
            return ids, code
        self._meter = self._meter or ids[0]
        meter = ids.index(self._meter) if self._meter in ids else len(ids)
        codes = np.where(code < FAULTS_END, code, Fault.OTHER_METER)
        return [by.meter_id], np.where(code == meter, 0, codes)


def _bare(name: str) -> str:
    """A meter id without what makes a spreadsheet keep its digits: ="541" or '541."""
    if name.startswith('="'):
        return name[2:].rstrip('"')
    return name[1:] if name.startswith("'") and name[1:].isdigit() else name


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
