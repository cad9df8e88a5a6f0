"""Decimal text to whole Wh, in exact integer arithmetic."""

from __future__ import annotations

import re

from hushgrid.intake.faults import Fault
from hushgrid.intake.readings import MAX_WH

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
_LONGEST = 64  # characters; a longer text is no measurement


def scaled(text: str, numerator: int = 1, denominator: int = 1) -> int:
    """text * numerator / denominator in whole units, halves away from zero; or a `Fault`.

    Halves go where decimal's ROUND_HALF_UP puts them.

    >>> scaled("0.115", 1000), scaled("-0.0005", 1000), scaled("2.5e-1", 2)
    (115, -1, 1)
    """
    parts = _parts(text)
    if isinstance(parts, Fault):
        return parts
    sign, digits, exponent = parts
    n = digits * numerator * 10 ** max(exponent, 0)
    d = denominator * 10 ** max(-exponent, 0)
    magnitude = (2 * n + d) // (2 * d)
    return sign * magnitude if magnitude <= MAX_WH else Fault.VALUE_SIZE


def whole(text: str) -> int:
    """A number without a fraction, or a `Fault`; 7.0 and 7e0 are whole.

    >>> whole("120"), whole("120.0"), whole("0.5") is Fault.VALUE_WHOLE
    (120, 120, True)
    """
    parts = _parts(text)
    if isinstance(parts, Fault):
        return parts
    sign, digits, exponent = parts
    if digits % 10 ** max(-exponent, 0):
        return Fault.VALUE_WHOLE
    magnitude = digits * 10 ** max(exponent, 0) // 10 ** max(-exponent, 0)
    return sign * magnitude if magnitude <= MAX_WH else Fault.VALUE_SIZE


def _parts(text: str) -> tuple[int, int, int] | Fault:
    bare = text.strip(" \t")
    if not bare:
        return Fault.VALUE_MISSING
    found = _NUMBER.fullmatch(bare) if len(bare) <= _LONGEST else None
    if found is None:
        return Fault.VALUE
    sign, before, after, exponent = found.groups(default="")
    if not before + after:
        return Fault.VALUE
    return -1 if sign == "-" else 1, int(before + after), int(exponent or "0") - len(after)
