"""Resources of ESPI: how a link names them, and what a ReadingType says of its readings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Ints
from hushgrid.intake.faults import FAULTS_END, Fault
from hushgrid.intake.readings import MAX_WH

_INTEGER = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,18})[ \t\r\n]*")
_POINT = re.compile(r"([0-9])\.([0-9]+)[ \t\r\n]*\Z")
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_WATT_HOURS = 72  # uom
_DELIVERED, _RECEIVED = 1, 19  # flowDirection
_ELECTRICITY = (0, 1, 2)  # commodity: none given, secondary metered, primary metered
_REGISTERS = (1, 2, 3, 12, 14)  # accumulationBehaviour: bulk, cumulative, instantaneous, latching
_LONGEST = 256  # characters of a link that can name anything
_POWERS = range(-12, 13)


def address(href: str, resource: str) -> str | None:
    """The part of a link that names a resource, from the owner of its usage point on.

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
    """The integer of an element, or a `Fault`.

    >>> integer(" 42 ", Fault.VALUE_MISSING, Fault.VALUE)
    42
    """
    if text is None or not text.strip():
        return missing
    found = _INTEGER.fullmatch(text)
    return int(found[1]) if found else wrong


def decimal(text: str | None) -> tuple[int, int]:
    """The value of a reading as (integer or `Fault`, decimals behind its point).

    The standard has integers alone; a point is read as what it means.

    >>> decimal("42"), decimal("-1.25")
    ((42, 0), (-125, 2))
    """
    found = None if text is None else _POINT.search(text)
    if text is None or found is None:
        return integer(text, Fault.VALUE_MISSING, Fault.VALUE), 0
    digits = integer(_POINT.sub(r"\1\2", text), Fault.VALUE_MISSING, Fault.VALUE)
    return digits, len(found[2])


class ReadingType(NamedTuple):
    """Raw values times 10^power are Wh, with a sign; `length` [s] where a reading gives none.

    `fault` says why no reading of this type can be used, if so.
    """

    power: int
    sign: int
    length: int
    fault: Fault | None

    def watt_hours(self, raw: Ints, decimals: Ints) -> Ints:
        """Whole Wh, halves to even; `decimals` are the digits behind each value's point.

        >>> kind, none = ReadingType(-3, -1, 900, None), np.zeros(3, np.int64)
        >>> kind.watt_hours(np.array([1499, 1500, 2500]), none).tolist()
        [-1, -2, -2]
        """
        if self.fault is not None:
            return np.full(len(raw), self.fault, np.int64)
        known = raw >= FAULTS_END
        magnitude = np.abs(np.where(known, raw, 0))
        wh = np.zeros_like(magnitude)
        for some in np.unique(decimals).tolist():  # 0 alone, but for senders that write a point
            rows, power = decimals == some, self.power - some
            if power >= 0:
                beyond = magnitude > MAX_WH // 10**power
                scaled = np.where(beyond, MAX_WH + 1, np.where(beyond, 0, magnitude) * 10**power)
            else:
                unit = 10 ** min(-power, 18)  # values have 18 digits: beyond, all round to 0
                scaled, rest = np.divmod(magnitude if -power <= 18 else 0 * magnitude, unit)
                scaled += (2 * rest > unit) | ((2 * rest == unit) & (scaled % 2 == 1))
            wh[rows] = scaled[rows]
        return np.where(known, np.sign(raw) * self.sign * wh, raw)


def reading_type(fields: Mapping[str, str]) -> ReadingType:
    """What the elements of a ReadingType say.

    >>> reading_type({"uom": "72", "powerOfTenMultiplier": "3", "flowDirection": "19"})
    ReadingType(power=3, sign=-1, length=0, fault=None)
    """

    def given(name: str, default: int) -> int:
        found = integer(fields.get(name), Fault.VALUE_MISSING, Fault.VALUE)
        return default if found == Fault.VALUE_MISSING else found

    power, flow = given("powerOfTenMultiplier", 0), given("flowDirection", _DELIVERED)
    fault = None
    if given("uom", 0) != _WATT_HOURS:
        fault = Fault.UNIT
    elif power not in _POWERS:
        fault = Fault.MULTIPLIER
    elif flow not in (_DELIVERED, _RECEIVED):
        fault = Fault.FLOW
    elif given("commodity", 0) not in _ELECTRICITY:
        fault = Fault.COMMODITY
    elif given("accumulationBehaviour", 0) in _REGISTERS:
        fault = Fault.REGISTER
    sign = -1 if flow == _RECEIVED else 1
    return ReadingType(power, sign, given("intervalLength", 0), fault)
