"""Why a row is malformed, as numbers no reading can have.

A converter answers a column with whole numbers only; an answer below `FAULTS_END` is a reason.
So a column stays one integer array and bad rows cost nothing until somebody asks for their reason.
"""

from __future__ import annotations

from enum import IntEnum

_LOWEST = -(2**63)


class Fault(IntEnum):
    """One reason why a row cannot be used; the text never shows what stood there.

    >>> Fault.TIME < FAULTS_END < 0
    True
    """

    text: str

    def __new__(cls, text: str) -> Fault:  # noqa: D102
        member = int.__new__(cls, _LOWEST + len(cls.__members__))
        member._value_ = int(member)
        member.text = text
        return member

    TOO_LONG = "is longer than 64 KiB"
    NOT_UTF8 = "is not UTF-8 text"
    QUOTES = "has a quote that does not close, or text after one that does"
    FIELDS = "has another number of fields than the header"
    NOT_OBJECT = "is not one flat JSON object"
    METER = "meter id is not 1 to 128 printable characters"
    TIME_MISSING = "time is missing"
    TIME = "time is not in the expected form, or no such date exists"
    TIME_ZONE = "time has no UTC offset"
    TIME_GAP = "time does not exist in its zone, as clocks went forward"
    TIME_RANGE = "time is outside the years 1970 to 2099"
    TIME_SECOND = "time is not on a whole second"
    DURATION = "duration is not in whole seconds from 1 to 31622400"
    VALUE_MISSING = "value is missing"
    VALUE = "value is not a number"
    VALUE_SIZE = "value is beyond 10^12 Wh"
    NO_READING_TYPE = "no ReadingType is known for the reading"
    NO_USAGE_POINT = "no link names the UsagePoint of the reading, and no meter id was given"
    UNIT = "unit of measure (uom) is not 72, Wh"
    FLOW = "flow direction is neither 1, delivered, nor 19, received"
    COMMODITY = "commodity is not electricity"
    REGISTER = "accumulation is of a register, not of an interval"
    MULTIPLIER = "powerOfTenMultiplier is not from -12 to 12"
    TOO_WIDE = "is longer than the interval"
    STRADDLES = "straddles the border of two intervals"


FAULTS_END = _LOWEST + len(Fault)


def reason(code: int) -> str:
    """The text of a fault.

    >>> reason(Fault.VALUE)
    'value is not a number'
    """
    return list(Fault)[code - _LOWEST].text
