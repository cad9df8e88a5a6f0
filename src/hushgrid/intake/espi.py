"""Green Button (ESPI) XML: interval readings out of an Atom feed, as a stream.

A reading belongs to the `UsagePoint` and the `MeterReading` in its entry's links; the entry of that
`MeterReading` links to the `ReadingType`, which says unit, power of ten and direction. Where that
link is missing and every `ReadingType` of the usage point says the same, it is that one. Nothing
that belongs to one usage point decides how the readings of another are read.

The meter id is the address of the usage point from its owner on, such as
`RetailCustomer/9b6c7063/UsagePoint/01`: usage points are numbered within their owner and titles
("Home") repeat, so neither identifies a home. A caller may give `meter_id` for a document of one
usage point.

Watt hours (uom 72) of electricity are taken: delivered (flowDirection 1, or none given) as they
are, received (19) as negative. A home that reports both gives two readings for one interval; where
it has a register for each direction (`registers`), received energy is a reading of the id of that,
as it is. Net (4) is delivered less received, and is taken as it is where the type says that its
values are of intervals (accumulationBehaviour 4): the value of a register may roll under instead of
becoming negative. For a home with `registers` it is malformed. Values are rounded to whole Wh,
halves to even.

The XML is read as a stream with bounded memory. A document type is refused, and with it every
entity except XML's own five, so nothing is expanded or fetched. Depth, names and tags are limited;
only the beginning of a long text is kept.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import NamedTuple, TypeVar
from xml.parsers.expat import ErrorString

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.errors import ExtraError, IntakeError
from hushgrid.intake.lines import ByteSource, open_bytes
from hushgrid.intake.readings import (
    FAULTS_END,
    MAX_WH,
    Fault,
    Parsed,
    RawColumns,
    check_rows,
    clean_meter,
)
from hushgrid.intake.text import Format

DEPTH = 64  # elements within each other
TEXT = 256  # characters of a text that are kept
_BLOCK = 1 << 16  # [bytes] fed at a time
_TOKEN = 1 << 20  # [bytes] of one tag or comment
_NAMES = 1 << 18  # characters in all names together; the parser keeps every name it meets


class _Target:
    """Target of the parser: limits what is passed on to the feed."""

    def __init__(self, feed: _Feed) -> None:
        self._feed = feed
        self._depth, self._text = 0, ""
        self._names: set[str] = set()
        self._room, self._quiet = _NAMES, 0

    def fed(self, size: int) -> None:
        """Count bytes that were fed; without an event, the parser holds them in memory."""
        if self._quiet > _TOKEN:
            raise IntakeError("XML has a tag or comment beyond 1 MiB; give an ESPI document.")
        self._quiet += size

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._quiet, self._text = 0, ""
        self._depth += 1
        if self._depth > DEPTH:
            raise IntakeError(f"XML nests deeper than {DEPTH}; give an ESPI document.")
        for word in (name, *attributes):
            self._count(word)
        self._feed.start(name, attributes)

    def end(self, name: str) -> None:
        self._quiet = 0
        self._depth -= 1
        text, self._text = self._text, ""
        self._feed.end(name, text)

    def data(self, text: str) -> None:
        self._quiet = 0
        if len(self._text) < TEXT:
            self._text += text[:TEXT]

    def start_ns(self, prefix: str, uri: str) -> None:
        self._count(f"{prefix} {uri}")

    def comment(self, text: str) -> None:
        del text
        self._quiet = 0

    def pi(self, name: str, text: str) -> None:
        del name, text
        self._quiet = 0

    def _count(self, name: str) -> None:
        if name in self._names:
            return
        self._names.add(name)
        self._room -= len(name)
        if self._room < 0:
            raise IntakeError("XML has too many names of elements; give an ESPI document.")


# ---- resources of ESPI

_INTEGER = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,18})[ \t\r\n]*")
_POINT = re.compile(r"([0-9])\.([0-9]+)[ \t\r\n]*\Z")
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_WATT_HOURS = 72  # uom
_DELIVERED, _NET, _RECEIVED = 1, 4, 19  # flowDirection
_ELECTRICITY = (0, 1, 2)  # commodity: none given, secondary metered, primary metered
_REGISTERS = (1, 2, 3, 12, 14)  # accumulationBehaviour: bulk, cumulative, instantaneous, latching
_DELTA = 4  # accumulationBehaviour: the values are of intervals
_LONGEST = 256  # characters of a link that can name anything
_POWERS = range(-12, 13)


def address(href: str, resource: str) -> str | None:
    """The part of a link that names a resource, from the owner of its usage point on.

    Args:
        href: A link.
        resource: Kind of the resource, such as "UsagePoint".

    Returns:
        The address; None where the link names no such resource.

    >>> address("https://x.org/espi/1_1/resource/User/5/UsagePoint/1/MeterReading", "UsagePoint")
    'User/5/UsagePoint/1'
    >>> address("https://x.org/espi/1_1/resource/ReadingType/07", "ReadingType")
    'ReadingType/07'
    >>> address("User/5/UsagePoint/1/MeterReading", "MeterReading") is None
    True
    """
    if len(href) > _LONGEST:
        return None
    parts = [part for part in _HOST.sub("", href, 1).partition("?")[0].split("/") if part]
    if "resource" in parts:
        parts = parts[parts.index("resource") + 1 :]
    if resource not in parts[:-1]:
        return None
    place = parts.index(resource)
    within = "UsagePoint" in parts[: place + 1]
    first = max(parts.index("UsagePoint") - 2, 0) if within else place
    return "/".join(parts[first : place + 2])


def integer(text: str | None, missing: int, wrong: int) -> int:
    """Integer of an element.

    Args:
        text: Text of the element; None where it is missing.
        missing: Value for a missing or empty element.
        wrong: Value for any other text.

    Returns:
        The integer, `missing` or `wrong`.

    >>> integer(" 42 ", Fault.VALUE_MISSING, Fault.VALUE)
    42
    """
    if text is None or not text.strip():
        return missing
    match = _INTEGER.fullmatch(text)
    return int(match[1]) if match else wrong


def decimal(text: str | None) -> tuple[int, int]:
    """Value of a reading; the standard has integers only, a decimal point is accepted.

    Args:
        text: Text of the element; None where it is missing.

    Returns:
        The digits as an integer (or a `Fault`), and the number of decimals.

    >>> decimal("42"), decimal("-1.25")
    ((42, 0), (-125, 2))
    """
    match = None if text is None else _POINT.search(text)
    if text is None or match is None:
        return integer(text, Fault.VALUE_MISSING, Fault.VALUE), 0
    digits = integer(_POINT.sub(r"\1\2", text), Fault.VALUE_MISSING, Fault.VALUE)
    return digits, len(match[2])


class ReadingType(NamedTuple):
    """What a ReadingType says of its readings: raw values times 10^power are Wh.

    Attributes:
        power: Power of ten.
        sign: 1 for delivered and for net, -1 for received energy.
        length: Duration [s] of a reading that gives none.
        fault: Why no reading of this type can be used; None if they can.
        net: Whether values are delivered less received energy.
    """

    power: int
    sign: int
    length: int
    fault: Fault | None
    net: bool = False

    def watt_hours(self, raw: Ints, decimals: Ints) -> Ints:
        """Whole Wh, halves to even; `decimals` are the digits after each value's point.

        >>> kind, none = ReadingType(-3, -1, 900, None), np.zeros(3, np.int64)
        >>> kind.watt_hours(np.array([1499, 1500, 2500]), none).tolist()
        [-1, -2, -2]
        """
        if self.fault is not None:
            return np.full(len(raw), self.fault, np.int64)
        pairs = zip(raw.tolist(), decimals.tolist(), strict=True)
        return np.array(
            [self._whole(value, self.power - digits) for value, digits in pairs], np.int64
        )

    def _whole(self, value: int, power: int) -> int:
        if value < FAULTS_END:
            return value
        wh = self.sign * round(Decimal(value).scaleb(power))  # exact: values have 18 digits
        return max(-MAX_WH - 1, min(wh, MAX_WH + 1))


def reading_type(fields: Mapping[str, str]) -> ReadingType:
    """Interpret the elements of a ReadingType.

    Args:
        fields: Texts by element name.

    Returns:
        Power of ten, sign, default duration, fault, and whether it is net.

    >>> reading_type({"uom": "72", "powerOfTenMultiplier": "3", "flowDirection": "19"})
    ReadingType(power=3, sign=-1, length=0, fault=None, net=False)
    """

    def integer_of(name: str, default: int) -> int:
        number = integer(fields.get(name), Fault.VALUE_MISSING, Fault.VALUE)
        return default if number == Fault.VALUE_MISSING else number

    power, flow = integer_of("powerOfTenMultiplier", 0), integer_of("flowDirection", _DELIVERED)
    behaviour, fault = integer_of("accumulationBehaviour", 0), None
    if integer_of("uom", 0) != _WATT_HOURS:
        fault = Fault.UNIT
    elif power not in _POWERS:
        fault = Fault.MULTIPLIER
    elif flow not in (_DELIVERED, _RECEIVED) and (flow, behaviour) != (_NET, _DELTA):
        fault = Fault.FLOW
    elif integer_of("commodity", 0) not in _ELECTRICITY:
        fault = Fault.COMMODITY
    elif behaviour in _REGISTERS:
        fault = Fault.REGISTER
    sign = -1 if flow == _RECEIVED else 1
    return ReadingType(power, sign, integer_of("intervalLength", 0), fault, flow == _NET)


_ATOM, _ESPI = "{http://www.w3.org/2005/Atom}", "{http://naesb.org/espi}"
_ENTRY, _LINK = _ATOM + "entry", _ATOM + "link"
_TYPE, _METER, _READING = _ESPI + "ReadingType", _ESPI + "MeterReading", _ESPI + "IntervalReading"
_PERIOD, _START, _DURATION = _ESPI + "timePeriod", _ESPI + "start", _ESPI + "duration"
_VALUE = _ESPI + "value"
_BATCH = 1 << 14  # readings
_WAITING = 1 << 20  # readings that may wait for their ReadingType
_KNOWN = 1 << 16  # usage points, meter readings and reading types a document may name


def espi_batches(
    source: ByteSource,
    *,
    meter_id: str | None = None,
    registers: Mapping[str, str] | None = None,
) -> Iterator[Parsed]:
    """The readings of a Green Button document, some thousand at a time.

    Batches come before the end of the document, hence before it is known to be well-formed.

    Args:
        source: Bytes, or an iterable of byte chunks.
        meter_id: Meter of all readings, for a document of one usage point.
        registers: By meter the id under which received energy is read; by default its own.

    Yields:
        The readings and the malformed ones of each batch.

    Raises:
        IntakeError: If `meter_id` is not usable or the document is not ESPI.
    """
    if meter_id is not None and clean_meter(meter_id) != meter_id:
        raise IntakeError(f"meter_id is {meter_id!r}; give 1 to 128 printable characters.")
    try:
        from defusedxml.common import DefusedXmlException
        from defusedxml.ElementTree import DefusedXMLParser, ParseError
    except ImportError:
        raise ExtraError(
            "Green Button needs defusedxml, which is not installed;"
            " install the extra hushgrid[intake]."
        ) from None
    feed, stream = _Feed(meter_id, registers or {}), open_bytes(source)
    target = _Target(feed)
    parser = DefusedXMLParser(target=target, forbid_dtd=True)
    try:
        while block := stream.read(_BLOCK):
            target.fed(len(block))
            parser.feed(block)
            if feed.ready >= _BATCH:
                yield feed.parsed()
        parser.close()
    except DefusedXmlException:
        raise IntakeError("XML has a document type; take it out, ESPI needs none.") from None
    except ParseError as error:
        raise IntakeError(
            f"input is not well-formed XML ({ErrorString(error.code)}, line {error.position[0]});"
            " correct it."
        ) from None
    except LookupError:
        raise IntakeError("XML has an unknown encoding; write it in UTF-8.") from None
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

    def join(self, entry: _Entry) -> None:
        for column, more in zip(self.columns, entry.columns, strict=True):
            column.extend(more)


class _EntryReadings(NamedTuple):
    """An entry's readings with what is known of them."""

    meter_id: str | None
    type: ReadingType | None
    entry: _Entry


class _Feed:
    """Finds the meter and the type of the readings of a feed."""

    def __init__(self, meter_id: str | None, registers: Mapping[str, str]) -> None:
        self._given, self._registers = meter_id, registers
        self._parents: list[str] = []
        self._fields: dict[str, str] = {}
        self._entry = _Entry()
        self._points: set[str] = set()
        self._type_of: dict[str, str] = {}  # by MeterReading
        self._point_of: dict[str, str] = {}  # by MeterReading
        self._types: dict[str, ReadingType] = {}
        self._kinds: dict[str, ReadingType | None] = {}  # by meter id; None where they differ
        self._ready: list[_EntryReadings] = []
        self._waiting: dict[tuple[str | None, str | None], _Entry] = {}
        self._number, self._waits, self.ready = 0, 0, 0
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
        elif name == _ENTRY:
            self._close()

    def _close(self) -> None:
        """The entry is whole; what its links say holds for all of it."""
        entry, self._entry = self._entry, _Entry()
        if entry.point:
            self._points.add(entry.point)
        if entry.type_name and entry.type:
            _define(self._types, entry.type_name, entry.type)
        if entry.type:
            self._add_kind(self._given or entry.point, entry.type)
        if entry.type_name and entry.meter and entry.is_meter:
            _define(self._type_of, entry.meter, entry.type_name)
        if entry.point and entry.meter and entry.is_meter:
            _define(self._point_of, entry.meter, entry.point)
        for resources in (self._points, self._types, self._type_of, self._point_of):
            _check(len(resources), _KNOWN, "resources of a kind")
        if len(self._points) > 1 and self._given is not None:
            raise IntakeError(
                f"ESPI has two usage points but meter_id is {self._given!r} for all;"
                " leave it out, or split the document."
            )
        if len(entry):
            self._sort(entry)

    def _sort(self, entry: _Entry) -> None:
        readings = _EntryReadings(self._point(entry), self._type(entry), entry)
        if readings.meter_id and readings.type:
            self._add(readings)
            return
        self._waiting.setdefault((entry.point, entry.meter), _Entry()).join(entry)
        self._waits += len(entry)
        _check(self._waits, _WAITING, "readings before their ReadingType")
        _check(len(self._waiting), _KNOWN, "resources before their ReadingType")

    def _point(self, entry: _Entry) -> str | None:
        return self._given or entry.point or self._point_of.get(entry.meter or "")

    def _type(self, entry: _Entry) -> ReadingType | None:
        name = self._type_of.get(entry.meter) if entry.meter else None
        owner = self._point_of.get(entry.meter or "", entry.point)
        if entry.point and owner != entry.point:  # another home names it
            return None
        return self._types.get(name) if name else None

    def _add_kind(self, meter_id: str | None, kind: ReadingType | None) -> None:
        if meter_id and kind:
            is_same = self._kinds.setdefault(meter_id, kind) == kind
            self._kinds[meter_id] = kind if is_same else None

    def _add(self, readings: _EntryReadings) -> None:
        self._ready.append(readings)
        self.ready += len(readings.entry)

    def finish(self) -> None:
        """The document is whole: what still waits is resolved as far as it can be."""
        if not self._espi:
            raise IntakeError("XML has no ESPI element; give a Green Button document.")
        self._close()
        for meter, point in self._point_of.items():
            self._add_kind(self._given or point, self._types.get(self._type_of.get(meter, "")))
        for (point_name, meter_name), entry in self._waiting.items():
            entry.point, entry.meter = point_name, meter_name
            home = self._point(entry)
            self._add(_EntryReadings(home, self._type(entry) or self._kinds.get(home or ""), entry))
        self._waiting.clear()

    def parsed(self) -> Parsed:
        """The readings whose meter and type are known by now."""
        codes: dict[str, int] = {}
        parts = [_columns(readings, codes, self._registers) for readings in self._ready]
        self._ready, self.ready = [], 0
        empty = (np.zeros(0, np.int64),) * 5
        number, *columns = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
        return check_rows("reading", number, RawColumns(list(codes), *columns))


def _columns(
    readings: _EntryReadings, codes: dict[str, int], registers: Mapping[str, str]
) -> tuple[Ints, ...]:
    """Number, code, start, duration, Wh of an entry's readings."""
    number, start, duration, raw, decimals = (
        np.frombuffer(column, np.int64) for column in readings.entry.columns
    )
    name = clean_meter(readings.meter_id) if readings.meter_id else None
    kind = readings.type or ReadingType(0, 1, 1, Fault.NO_READING_TYPE)
    if kind.sign < 0 and name is not None and name in registers:
        name, kind = registers[name], kind._replace(sign=1)
    elif kind.net and name is not None and name in registers:  # received energy would count twice
        kind = kind._replace(fault=kind.fault or Fault.NET)
    if name:
        code = codes.setdefault(name, len(codes))
    else:
        code = Fault.METER if readings.meter_id else Fault.NO_USAGE_POINT
    return (
        number,
        np.full(len(raw), code, np.int64),
        start,
        np.where(duration == 0, kind.length, duration),
        kind.watt_hours(raw, decimals),
    )


_Named = TypeVar("_Named")


def _define(definitions: dict[str, _Named], name: str, definition: _Named) -> None:
    if definitions.setdefault(name, definition) != definition:
        raise IntakeError(
            "ESPI has two ReadingTypes or MeterReadings of one name that differ; give each its own."
        )


def _check(count: int, limit: int, noun: str) -> None:
    if count > limit:
        raise IntakeError(f"ESPI has more than {limit} {noun}; split it.")


FORMAT = Format(
    ("application/atom+xml",),
    (".xml",),
    lambda source, by: espi_batches(source, meter_id=by.meter_id, registers=by.registers),
)
