"""Exports of utilities and trials that are no plain table.

NEM12 (AEMO), DSMR P1 telegrams and nested JSON have a parser of their own; a mapping names it by
`form`. Rows, registers and counters of energy that was
fed in are left out, except for homes with a register for each direction (`registers` of the
mapping), where they are readings of the id of that register.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hushgrid.errors import IntakeError
from hushgrid.intake._times import moments
from hushgrid.intake.csv import TextTable
from hushgrid.intake.json import missing_field
from hushgrid.intake.lines import ByteSource, lines, open_bytes
from hushgrid.intake.readings import FAULTS_END, Fault, Parsed, RawColumns, check_rows
from hushgrid.intake.text import (
    HEADING,
    OTHERWISE,
    ColumnMapping,
    Format,
    alternatives,
    meter_codes,
    scaled,
)


class _Row(NamedTuple):
    number: int  # line or telegram
    meter: str
    start: int  # [s UTC since 1970], or a fault
    duration: int  # [s]
    wh: int


def _parsed(word: str, rows: list[_Row], broken: list[tuple[int, Fault | str]]) -> Parsed:
    ids, code = meter_codes([row.meter for row in rows])
    number, start, duration, wh = (
        np.array([row[i] for row in rows], np.int64) for i in (0, 2, 3, 4)
    )
    return check_rows(word, number, RawColumns(ids, code, start, duration, wh), broken)


# ---- nested JSON

_NESTED = 1 << 24  # [bytes] of a document, which is in memory as a whole
_BATCH = 1 << 12  # rows


def nested_json_batches(source: ByteSource, mapping: ColumnMapping) -> Iterator[Parsed]:
    """The readings of one JSON document of nested objects.

    A row is an object at the path `rows` of the mapping: keys with dots between them, `*` for all
    keys that hold arrays; arrays on the way are passed through. A field that a row lacks is taken
    from the objects around it.

    Args:
        source: Bytes, or an iterable of byte chunks; at most 16 MiB.
        mapping: Path and names of the fields.

    Yields:
        The readings and the malformed rows of each batch.

    Raises:
        IntakeError: If the document is no JSON, too large, or has nothing at the path.
    """
    table, names = TextTable(mapping), mapping.columns
    data = open_bytes(source).read(_NESTED + 1)
    if len(data) > _NESTED:
        raise IntakeError("JSON document is beyond 16 MiB; send it in parts.")
    try:
        document = json.loads(data, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        raise IntakeError("input is not one JSON document; give the export as it was.") from None
    paths = [path.split(".") if path else [] for path in mapping.rows.split(OTHERWISE)]
    rows, first = chain.from_iterable(_flat(document, path, {}, names) for path in paths), 1
    while batch := list(islice(rows, _BATCH)):
        broken: list[tuple[int, Fault | str]] = []
        good: list[tuple[int, dict[str, str]]] = []
        for at, row in enumerate(batch, first):
            reason = Fault.NOT_OBJECT if row is None else missing_field(names, row)
            if reason is None and row is not None:
                good.append((at, row))
            else:
                broken.append((at, reason or Fault.NOT_OBJECT))
        texts = {name: [row[name] for _, row in good] for name in names}
        texts[HEADING] = [row.get(HEADING, "") for _, row in good]
        number = np.array([at for at, _ in good], np.int64)
        yield check_rows("record", number, table.columns(texts), broken)
        first += len(batch)
    if first == 1:
        raise IntakeError(
            f"JSON document has nothing at {mapping.rows or 'its top'!r}; give the export as it"
            " was, or a mapping with the path of its rows."
        )


def _flat(
    value: Any, keys: list[str], around: dict[str, str], names: tuple[str, ...]
) -> Iterator[dict[str, str] | None]:
    """Rows at a path, each with the wanted fields of itself and of the objects around it."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            yield None
            continue
        fields = {
            name: "" if cell is None else str(cell)
            for name in names
            for cell in [next((item[key] for key in alternatives(name) if key in item), around)]
            if not isinstance(cell, dict | list)
        }
        if not keys:
            yield around | fields
            continue
        if keys[0] != "*":
            inner = item.get(keys[0])
            if isinstance(inner, list | dict):
                yield from _flat(inner, keys[1:], around | fields, names)
            continue
        for name, inner in item.items():
            if isinstance(inner, list):
                yield from _flat(inner, keys[1:], around | fields | {HEADING: name}, names)


# ---- NEM12

_UNITS = {"WH": 1, "KWH": 1000, "MWH": 10**6}
_MOST = 1 << 18  # readings of one meter and register, which are in memory together
# of a line that says 300 and may be none
_NO_DAY = (Fault.FIELDS, Fault.TIME, Fault.TIME_MISSING, Fault.TIME_RANGE)


class _Stream(NamedTuple):
    """A 200 record: one register of a meter."""

    meter: str
    register: str
    factor: int  # [Wh]; 0: the unit is not one of energy
    seconds: int  # of an interval; 0: not usable


def nem12_batches(source: ByteSource, mapping: ColumnMapping) -> Iterator[Parsed]:
    """The readings of a NEM12 file (records 100, 200, 300, 400, 500, 900).

    The meter id is the NMI. Registers E (taken from the grid) of one NMI add up; all others, such
    as B (fed in) and Q (reactive), are left out, but the registers B of a home of `registers` add
    up under the id of that. An interval of quality N has no value, and one
    that a register lacks so is malformed as a whole.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: Zone of the days, `meter_id` where the one NMI is to be renamed, `registers`.

    Yields:
        The readings of each NMI, and the malformed lines.

    Raises:
        IntakeError: If the first record is no 100 of NEM12, or one register has too many readings.
    """
    reader, has_head = _Nem12(mapping), False
    for part in lines(open_bytes(source)):
        reader.broken += part.broken
        for number, line in enumerate(part.text, part.first):
            fields = [field.strip() for field in line.split(",")]
            if not has_head and fields[:2] != ["100", "NEM12"]:
                raise IntakeError("input is not NEM12; its first line must begin with 100,NEM12.")
            has_head = True
            yield from reader.record(number, fields)
    if not has_head:
        raise IntakeError("input is empty; its first line must begin with 100,NEM12.")
    yield reader.flush()


class _Nem12:
    def __init__(self, mapping: ColumnMapping) -> None:
        self._moment, self._name = moments(mapping.time_format, mapping.time_zone), mapping.meter_id
        self._register = mapping.register
        self._only: str | None = None  # the NMI that is renamed
        self._stream: _Stream | None = None  # None: it is not known whose the next days are
        self._nmi = ""  # of what was found
        self._day: tuple[int, int, list[int]] | None = None  # line, start, values of a 300
        self._found: dict[str, dict[int, _Row]] = {}  # by register and start
        self.broken: list[tuple[int, Fault | str]] = []

    def record(self, number: int, fields: list[str]) -> Iterator[Parsed]:
        """Take a line. One that is none of the format's may have been a 200 of another home."""
        kind = fields[0]
        if kind == "400" and self._quality(fields):
            return
        self._close_day()
        if kind == "200":
            stream = self._stream_of(fields)
            if stream.meter != self._nmi:
                yield self.flush()
            self._stream, self._nmi = stream, stream.meter
        elif kind == "300":
            fault = self._values(number, fields)
            if fault is not None:
                self.broken.append((number, fault))
            if fault in _NO_DAY:
                self._stream = None
        elif kind != "500" or not re.fullmatch("[A-Za-z]?", [*fields, ""][1]):
            self._stream = None
            if kind not in ("100", "900", ""):
                self.broken.append((number, Fault.RECORD))

    def flush(self) -> Parsed:
        """The readings of the NMI, registers added up."""
        self._close_day()
        sums: dict[tuple[str, int], _Row] = {}
        for register in self._found.values():
            for start, row in register.items():
                total = sums.setdefault((row.meter, start), row)
                if total is not row:
                    wh = min(total.wh, row.wh) if min(total.wh, row.wh) < FAULTS_END else None
                    sums[row.meter, start] = total._replace(
                        wh=total.wh + row.wh if wh is None else wh
                    )
        self._found, broken, self.broken = {}, self.broken, []
        return _parsed("line", list(sums.values()), broken)

    def _stream_of(self, fields: list[str]) -> _Stream:
        nmi, register, unit, minutes = ([*fields, *[""] * 9][i] for i in (1, 4, 7, 8))
        length = int(minutes) if re.fullmatch("[0-9]{1,4}", minutes) else 0
        seconds = 60 * length if length and 1440 % length == 0 else 0
        return _Stream(nmi, register, _UNITS.get(unit.upper(), 0), seconds)

    def _values(self, number: int, fields: list[str]) -> Fault | None:
        by = self._stream
        if by is None:
            return Fault.RECORD
        if self._id(by) is None:
            return Fault.LEFT_OUT
        if self._name is not None:
            self._only = self._only or by.meter
            if by.meter != self._only:
                return Fault.OTHER_METER
        if not by.factor or not by.seconds:
            return Fault.UNIT if not by.factor else Fault.DURATION
        count = 86_400 // by.seconds
        if len(fields) < 3 + count:
            return Fault.FIELDS
        date = self._moment(fields[1])
        if isinstance(date, Fault) or not date[1]:
            return date if isinstance(date, Fault) else Fault.TIME_GAP
        if fields[2 + count].upper().startswith("N"):
            return Fault.VALUE_MISSING
        wh = [scaled(text, by.factor) for text in fields[2 : 2 + count]]
        self._day = number, date[1][0], wh
        return None

    def _id(self, by: _Stream) -> str | None:
        """The meter of a register's readings; None where they are left out."""
        meter, kind = self._name or by.meter, by.register[:1].upper()
        return meter if kind == "E" else self._register(meter) if kind == "B" else None

    def _quality(self, fields: list[str]) -> bool:
        """A 400 record: the quality of some intervals of the day, from 1; False if it is none."""
        wh = self._day[2] if self._day is not None else []
        first, last = ([*fields, "", ""][i] for i in (1, 2))
        if not all(re.fullmatch("[0-9]{1,4}", text) for text in (first, last)):
            return False
        if fields[3:4] and fields[3].upper().startswith("N"):
            for i in range(max(int(first), 1) - 1, min(int(last), len(wh))):
                wh[i] = Fault.VALUE_MISSING
        return True

    def _close_day(self) -> None:
        if self._day is None or self._stream is None:
            return
        (number, start, wh), by, self._day = self._day, self._stream, None
        meter, register = self._id(by) or "", self._found.setdefault(by.register, {})
        for i, value in enumerate(wh):
            row = _Row(number, meter, start + i * by.seconds, by.seconds, value)
            register.setdefault(row.start, row)
        if sum(map(len, self._found.values())) > _MOST:
            raise IntakeError(
                f"NEM12 has more than {_MOST} intervals of one NMI; give the file in parts."
            )


# ---- DSMR P1

_LINES = 512  # of a telegram
_NEAR = 60  # [s] between the telegrams before and after a border
_P1_TIME = re.compile(r"^0-0:1\.0\.0\(([0-9]{12})([SW])\)", re.MULTILINE)
_P1_METER = re.compile(r"^0-0:96\.1\.1\(([0-9A-Fa-f]+)\)", re.MULTILINE)
_P1_IMPORT = re.compile(r"^1-0:1\.8\.([0-9]+)\(([0-9.]{1,20})\*kWh\)", re.MULTILINE)
_P1_EXPORT = re.compile(r"^1-0:2\.8\.([0-9]+)\(([0-9.]{1,20})\*kWh\)", re.MULTILINE)


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0xA001 if crc & 1 else 0) for crc in table]
    return table


_CRC = _crc_table()


def crc16(data: bytes) -> int:
    """CRC-16 of a telegram, from its slash to its exclamation mark.

    Args:
        data: The bytes.

    Returns:
        The checksum.

    >>> hex(crc16(b"123456789"))
    '0xbb3d'
    """
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc


class _Counter(NamedTuple):
    """A counter as a telegram has it, and at the last border of readings."""

    time: int  # [s UTC since 1970]
    wh: int
    border: tuple[int, int] | None  # time and Wh


def dsmr_p1_batches(source: ByteSource, mapping: ColumnMapping) -> Iterator[Parsed]:
    """Readings from DSMR P1 telegrams (version 4 and later), by the difference of counters.

    The counters of energy taken from the grid (1.8.x) are added. Those of energy fed in (2.8.x) are
    read for meters of `registers` alone, under the id of that. The counter at a border is that of
    the telegrams around it, at most 60 s apart, by proportion. The meter id is the text of the
    equipment identifier 96.1.1.

    Args:
        source: Bytes, or an iterable of byte chunks.
        mapping: `duration_s` of the readings, zone of the times; `meter_id` renames the meter;
            `registers`.

    Yields:
        The readings and the malformed telegrams of each part of the input.

    Raises:
        IntakeError: If there is no telegram.
    """
    reader, telegram, has_rows = _P1(mapping), list[str](), False
    for part in lines(open_bytes(source)):
        rows: list[_Row] = []
        broken: list[tuple[int, Fault | str]] = []
        for line in part.text:
            if telegram and (line.startswith("/") or len(telegram) > _LINES):
                broken.append((reader.next(), Fault.CHECKSUM))  # it has no end
                telegram = []
            if telegram or line.startswith("/"):
                telegram.append(line)
            if telegram and line.startswith("!"):
                telegram_rows = reader.readings(reader.next(), telegram)
                telegram = []
                if isinstance(telegram_rows, Fault):
                    broken.append((reader.number, telegram_rows))
                else:
                    rows += telegram_rows
        has_rows = has_rows or bool(rows or broken)
        yield _parsed("telegram", rows, broken)
    if telegram:
        yield _parsed("telegram", [], [(reader.next(), Fault.CHECKSUM)])
    elif not has_rows:
        raise IntakeError(
            "input holds no two borders of readings between P1 telegrams; give telegrams that begin"
            f" with /, end with ! and a checksum, and span {2 * reader.step} s."
        )


class _P1:
    def __init__(self, mapping: ColumnMapping) -> None:
        self._moment = moments(mapping.time_format, mapping.time_zone)
        self._name, self.step = mapping.meter_id, mapping.duration_s or 900
        self._register = mapping.register
        self._counters: dict[str, _Counter] = {}
        self._only = ""
        self.number = 0  # of the telegram

    def next(self) -> int:
        self.number += 1
        return self.number

    def readings(self, number: int, telegram: list[str]) -> list[_Row] | Fault:
        """The readings that a telegram completes, if any."""
        text, _, check = "\r\n".join(telegram).rpartition("!")
        if check.strip().upper() != f"{crc16(f'{text}!'.encode()):04X}":
            return Fault.CHECKSUM
        stamp, names = _P1_TIME.search(text), _P1_METER.search(text)
        if stamp is None:
            return Fault.TIME_MISSING
        moment = self._moment(stamp[1])
        if isinstance(moment, Fault) or not moment[1]:
            return moment if isinstance(moment, Fault) else Fault.TIME_GAP
        imported = _counted(_P1_IMPORT, text)
        if isinstance(imported, Fault):
            return imported
        meter = _text_of(names[1]) if names else ""
        if self._name is not None:
            self._only = self._only or meter
            if meter != self._only:
                return Fault.OTHER_METER
            meter = self._name
        elif not meter:
            return Fault.METER
        time = moment[1][0 if stamp[2] == "S" else -1]
        rows = self._count(number, meter, time, imported)
        if (second := self._register(meter)) is None:
            return rows
        exported = _counted(_P1_EXPORT, text)
        more = (
            exported if isinstance(exported, Fault) else self._count(number, second, time, exported)
        )
        if isinstance(rows, Fault):
            return rows
        return more if isinstance(more, Fault) else rows + more  # half a net value is none

    def _count(self, number: int, meter: str, time: int, wh: int) -> list[_Row] | Fault:
        old, border, step = self._counters.get(meter), None, self.step
        if old is not None and time == old.time:
            return []
        rows: list[_Row] = []
        last = time // step * step
        at = wh if time == last else None
        if old is not None and time > old.time:
            if wh < old.wh:
                self._counters[meter] = _Counter(time, wh, None)
                return Fault.COUNTER
            border = old.border
            if last > old.time:
                if at is None and time - old.time <= _NEAR:
                    at = old.wh + (wh - old.wh) * (last - old.time) // (time - old.time)
                if at is not None and border is not None and last - border[0] == step:
                    rows = [_Row(number, meter, border[0], step, at - border[1])]
                border = None
        self._counters[meter] = _Counter(time, wh, border if at is None else (last, at))
        return rows


def _counted(counters: re.Pattern[str], text: str) -> int | Fault:
    """The sum of a telegram's counters of one direction [Wh]."""
    counter_wh = {tariff: scaled(kwh, 1000) for tariff, kwh in counters.findall(text)}
    parts = [counter_wh["0"]] if "0" in counter_wh else list(counter_wh.values())
    if not parts or min(parts) < 0:
        return Fault.VALUE if parts else Fault.VALUE_MISSING
    return sum(parts)


def _text_of(digits: str) -> str:
    return bytes.fromhex(digits).decode("ascii", "replace") if len(digits) % 2 == 0 else ""


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "json": Format((), (), nested_json_batches),
        "nem12": Format((), (), nem12_batches),
        "dsmr_p1": Format((), (), dsmr_p1_batches),
    }
)
