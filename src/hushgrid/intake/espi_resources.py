"""Resources of ESPI: how a link names them, and what a ReadingType says of its readings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hushgrid.intake.faults import FAULTS_END, Fault
from hushgrid.intake.readings import MAX_WH, Integers

_INTEGER = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,18})[ \t\r\n]*")
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


class ReadingType(NamedTuple):
    """Raw values times 10^power are Wh, with a sign; `length` [s] where a reading gives none.

    `fault` says why no reading of this type can be used, if so.
    """

    power: int
    sign: int
    length: int
    fault: Fault | None

    def watt_hours(self, raw: Integers) -> Integers:
        """Whole Wh, halves away from zero.

        >>> ReadingType(-3, -1, 900, None).watt_hours(np.array([1499, 1500])).tolist()
        [-1, -2]
        """
        if self.fault is not None:
            return np.full(len(raw), self.fault, np.int64)
        known = raw >= FAULTS_END
        magnitude = np.where(known, np.abs(np.where(known, raw, 0)), 0)
        if self.power < 0:
            unit = 10**-self.power
            wh = (2 * magnitude + unit) // (2 * unit)
        else:
            beyond = magnitude > MAX_WH // 10**self.power
            wh = np.where(beyond, MAX_WH + 1, np.where(beyond, 0, magnitude) * 10**self.power)
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
