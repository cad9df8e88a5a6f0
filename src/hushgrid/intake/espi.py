"""Green Button (ESPI) XML: interval readings out of an Atom feed, as a stream.

A reading belongs to the `UsagePoint` and the `MeterReading` in its entry's links; the entry of that
`MeterReading` links to the `ReadingType`, which says unit, power of ten and direction. Where links
are missing and all `ReadingType`s of the document say the same, or it has one `UsagePoint` only, it
is that one.

The meter id is the address of the usage point from its owner on, such as
`RetailCustomer/9b6c7063/UsagePoint/01`: usage points are numbered within their owner and titles
("Home") repeat, so neither would tell two homes apart. A caller who knows better gives `meter_id`
for a document of one usage point.

Watt hours (uom 72) of electricity are taken: delivered (flowDirection 1, or none given) as they
are, received (19) as negative. A home that reports both gives two readings for one interval. Values
are rounded to whole Wh, halves to even.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.espi_resources import ReadingType, address, decimal, integer, reading_type
from hushgrid.intake.faults import Fault
from hushgrid.intake.lines import ByteSource
from hushgrid.intake.readings import Parsed, RawColumns, clean_meter, collect, sift
from hushgrid.intake.xml import read_xml

_ATOM, _ESPI = "http://www.w3.org/2005/Atom ", "http://naesb.org/espi "
_ENTRY, _LINK = _ATOM + "entry", _ATOM + "link"
_TYPE, _METER, _READING = _ESPI + "ReadingType", _ESPI + "MeterReading", _ESPI + "IntervalReading"
_PERIOD, _START, _DURATION = _ESPI + "timePeriod", _ESPI + "start", _ESPI + "duration"
_VALUE = _ESPI + "value"
_BATCH = 1 << 14  # readings
_WAITING = 1 << 20  # readings that may wait for their ReadingType
_KNOWN = 1 << 16  # usage points, meter readings and reading types a document may name


def parse_espi(source: ByteSource, *, meter_id: str | None = None) -> Parsed:
    """All readings of a Green Button document."""
    return collect(espi_batches(source, meter_id=meter_id))


def espi_batches(source: ByteSource, *, meter_id: str | None = None) -> Iterator[Parsed]:
    """The readings of a Green Button document, some thousand at a time.

    Before the end of a document nobody knows that it is well-formed.
    """
    if meter_id is not None and clean_meter(meter_id) != meter_id:
        raise IntakeError(f"meter_id is {meter_id!r}; give 1 to 128 printable characters.")
    feed = _Feed(meter_id)
    for _ in read_xml(source, feed):
        if feed.told >= _BATCH:
            yield feed.parsed()
    feed.finish()
    yield feed.parsed()


class _Entry:
    """What one Atom entry holds: what its links name, its type, its raw readings in columns."""

    def __init__(self) -> None:
        self.point: str | None = None
        self.meter: str | None = None
        self.type_name: str | None = None
        self.type: ReadingType | None = None
        self.is_meter = False
        # number, start, duration, raw value, decimals of it
        self.columns = tuple(array("q") for _ in range(5))

    def __len__(self) -> int:
        return len(self.columns[0])

    def link(self, href: str) -> None:
        self.point = self.point or address(href, "UsagePoint")
        self.meter = self.meter or address(href, "MeterReading")
        self.type_name = self.type_name or address(href, "ReadingType")

    def add(self, number: int, fields: dict[str, str]) -> None:
        row = (
            number,
            integer(fields.get(_START), Fault.TIME_MISSING, Fault.TIME),
            integer(fields.get(_DURATION), 0, Fault.DURATION),
            *decimal(fields.get(_VALUE)),
        )
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def join(self, other: _Entry) -> None:
        for column, more in zip(self.columns, other.columns, strict=True):
            column.extend(more)


class _EntryReadings(NamedTuple):
    """An entry's readings with what is known of them."""

    meter_id: str | None
    type: ReadingType | None
    entry: _Entry


class _Feed:
    """Hears the elements of a feed and finds the meter and type of its readings."""

    def __init__(self, meter_id: str | None) -> None:
        self._given = meter_id
        self._parents: list[str] = []
        self._fields: dict[str, str] = {}
        self._entry = _Entry()
        self._points: set[str] = set()
        self._type_of: dict[str, str] = {}  # by MeterReading
        self._point_of: dict[str, str] = {}  # by MeterReading
        self._types: dict[str, ReadingType] = {}
        self._kinds: set[ReadingType] = set()  # the named and the nameless
        self._ready: list[_EntryReadings] = []
        self._waiting: dict[tuple[str | None, str | None], _Entry] = {}
        self._number, self._waits, self.told = 0, 0, 0
        self._espi = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == _ENTRY:
            self._close()
        elif name == _LINK:
            self._entry.link(attributes.get("href", ""))
        elif name == _METER:
            self._entry.is_meter = True
        elif name in (_TYPE, _READING):
            self._fields = {}
        self._espi = self._espi or name.startswith(_ESPI)
        self._parents.append(name)

    def end(self, name: str, text: str) -> None:
        self._parents.pop()
        within = self._parents[-1] if self._parents else ""
        if within in (_TYPE, _READING) or self._parents[-2:] == [_READING, _PERIOD]:
            self._fields[name] = text
        if name == _READING:
            self._number += 1
            self._entry.add(self._number, self._fields)
            _check(len(self._entry), _WAITING, "readings in one entry")
        elif name == _TYPE:
            fields = {key.removeprefix(_ESPI): value for key, value in self._fields.items()}
            self._entry.type = reading_type(fields)
            self._kinds.add(self._entry.type)
            _check(len(self._kinds), _KNOWN, "kinds of ReadingType")
        elif name == _ENTRY:
            self._close()

    def _close(self) -> None:
        """The entry is whole; what its links say holds for all of it."""
        entry, self._entry = self._entry, _Entry()
        if entry.point:
            self._points.add(entry.point)
        if entry.type_name and entry.type:
            self._types[entry.type_name] = entry.type
        if entry.type_name and entry.meter and entry.is_meter:
            self._type_of[entry.meter] = entry.type_name
        if entry.point and entry.meter and entry.is_meter:
            self._point_of[entry.meter] = entry.point
        for known in (self._points, self._types, self._type_of, self._point_of):
            _check(len(known), _KNOWN, "resources of a kind")
        if len(self._points) > 1 and self._given is not None:
            raise IntakeError(
                f"ESPI has two usage points but meter_id is {self._given!r} for all;"
                " leave it out, or split the document."
            )
        if len(entry):
            self._sort(entry)

    def _sort(self, entry: _Entry) -> None:
        told = _EntryReadings(self._point(entry), self._type(entry), entry)
        if told.meter_id and told.type:
            self._tell(told)
            return
        self._waiting.setdefault((entry.point, entry.meter), _Entry()).join(entry)
        self._waits += len(entry)
        _check(self._waits, _WAITING, "readings before their ReadingType")
        _check(len(self._waiting), _KNOWN, "resources before their ReadingType")

    def _point(self, entry: _Entry) -> str | None:
        return self._given or entry.point or self._point_of.get(entry.meter or "")

    def _type(self, entry: _Entry) -> ReadingType | None:
        name = self._type_of.get(entry.meter) if entry.meter else None
        return self._types.get(name) if name else None

    def _tell(self, told: _EntryReadings) -> None:
        self._ready.append(told)
        self.told += len(told.entry)

    def finish(self) -> None:
        """The document is whole: what still waits is resolved as far as it can be."""
        if not self._espi:
            raise IntakeError("XML has no ESPI element; give a Green Button document.")
        self._close()
        point = next(iter(self._points)) if len(self._points) == 1 else None
        kind = next(iter(self._kinds)) if len(self._kinds) == 1 else None
        for (own, meter), entry in self._waiting.items():
            entry.point, entry.meter = own, meter
            self._tell(
                _EntryReadings(self._point(entry) or point, self._type(entry) or kind, entry)
            )
        self._waiting.clear()

    def parsed(self) -> Parsed:
        """The readings that are told by now."""
        codes: dict[str, int] = {}
        parts = [_columns(told, codes) for told in self._ready]
        self._ready, self.told = [], 0
        nothing = (np.zeros(0, np.int64),) * 5
        number, *columns = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
        return sift("reading", number, RawColumns(list(codes), *columns))


def _columns(told: _EntryReadings, codes: dict[str, int]) -> tuple[Ints, ...]:
    """Number, code, start, duration, Wh of an entry's readings."""
    number, start, duration, raw, decimals = (
        np.frombuffer(column, np.int64) for column in told.entry.columns
    )
    name = clean_meter(told.meter_id) if told.meter_id else None
    if name:
        code = codes.setdefault(name, len(codes))
    else:
        code = Fault.METER if told.meter_id else Fault.NO_USAGE_POINT
    kind = told.type or ReadingType(0, 1, 1, Fault.NO_READING_TYPE)
    return (
        number,
        np.full(len(raw), code, np.int64),
        start,
        np.where(duration == 0, kind.length, duration),
        kind.watt_hours(raw, decimals),
    )


def _check(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise IntakeError(f"ESPI has more than {limit} {what}; split it.")
