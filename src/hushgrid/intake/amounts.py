"""Decimal text to whole Wh, in exact integer arithmetic."""

from __future__ import annotations

import re

from hushgrid.intake.faults import Fault
from hushgrid.intake.readings import MAX_DURATION, MAX_WH

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
LONGEST = 64  # characters; a longer text is no measurement


def scaled(
    text: str, numerator: int = 1, denominator: int = 1, longest: int | None = LONGEST
) -> int:
    """text * numerator / denominator in whole units, or a `Fault`.

    A text of more than `longest` characters is no number; None: of any length.
    A fraction is rounded once, from the exact decimal, halves to even (decimal's ROUND_HALF_EVEN).

    >>> scaled("0.115", 1000), scaled("-0.0015", 1000), scaled("2.5"), scaled("2.51")
    (115, -2, 2, 3)
    """
    parts = _parts(text, longest)
    if isinstance(parts, Fault):
        return parts
    sign, digits, exponent = parts
    n = digits * numerator * 10 ** max(exponent, 0)
    d = denominator * 10 ** max(-exponent, 0)
    magnitude, rest = divmod(n, d)
    magnitude += 2 * rest > d or (2 * rest == d and magnitude % 2 == 1)
    return sign * magnitude if magnitude <= MAX_WH else Fault.VALUE_SIZE


def whole(text: str) -> int:
    """Whole seconds, or `Fault.DURATION`; 900.0 and 9e2 are whole.

    >>> whole("900"), whole("900.0"), whole("0.5") is Fault.DURATION
    (900, 900, True)
    """
    parts = _parts(text)
    if isinstance(parts, Fault):
        return Fault.DURATION
    sign, digits, exponent = parts
    if digits % 10 ** max(-exponent, 0):
        return Fault.DURATION
    magnitude = digits * 10 ** max(exponent, 0) // 10 ** max(-exponent, 0)
    return sign * magnitude if magnitude <= MAX_DURATION else Fault.DURATION


def _parts(text: str, longest: int | None = LONGEST) -> tuple[int, int, int] | Fault:
    bare = text.strip(" \t")
    if not bare:
        return Fault.VALUE_MISSING
    found = _NUMBER.fullmatch(bare) if longest is None or len(bare) <= longest else None
    if found is None:
        return Fault.VALUE
    sign, before, after, exponent = found.groups(default="")
    if not before + after:
        return Fault.VALUE
    return -1 if sign == "-" else 1, int(before + after), int(exponent or "0") - len(after)
