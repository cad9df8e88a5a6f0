"""Durations and instants of a service file, in whole seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

_PARTS = re.compile(
    r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?"
)
_SECONDS = (7 * 86_400, 86_400, 3600, 60, 1)


def seconds_of(value: Any) -> int | None:
    """The seconds of PT15M, P7D and the like, or of a whole number; None where it is neither.

    >>> seconds_of("PT1H30M"), seconds_of("P7D"), seconds_of(900), seconds_of("15 min")
    (5400, 604800, 900, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 2**40 else None
    found = _PARTS.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found.groups()):
        return None
    parts = (int(part or 0) for part in found.groups())
    return sum(part * unit for part, unit in zip(parts, _SECONDS, strict=True))


def instant_of(value: Any) -> int | None:
    """Seconds since 1970 of a date-time with an offset, TOML's own or as text; None for others.

    >>> instant_of("2026-01-01T00:00:00Z"), instant_of("2026-01-01T00:00:00")
    (1767225600, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return None
    try:
        seconds = (value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except OverflowError:
        return None
    return int(seconds) if seconds == int(seconds) and 0 <= seconds < 2**33 else None


def duration_text(seconds: int) -> str:
    """Seconds in words.

    >>> duration_text(900), duration_text(604800), duration_text(90)
    ('15 minutes', '7 days', '90 seconds')
    """
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % size == 0 and seconds:
            return f"{seconds // size} {unit}{'' if seconds == size else 's'}"
    return "0 seconds"
