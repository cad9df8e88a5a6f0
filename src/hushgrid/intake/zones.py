"""Local times to UTC by the time zone database.

The one place of the pure core that knows `datetime`: `zoneinfo` answers in no other words. It asks
no clock; the answer depends on the zone's name and the database alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hushgrid.errors import IntakeError
from hushgrid.intake.readings import END

_EPOCH = datetime(1970, 1, 1)

Instants = Callable[[int], tuple[int, ...]]


def local_instants(zone: str) -> Instants:
    """What gives the instants at which the clocks of a zone show a time, earliest first.

    None while clocks go forward over it, two while they go back.

    >>> london = local_instants("Europe/London")
    >>> london(1382837400), london(1364693400)  # 27 October 2013 01:30, 31 March 2013 01:30
    ((1382833800, 1382837400), ())
    """
    if zone == "UTC":
        return lambda wall: (wall,)
    try:
        clocks = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise IntakeError(
            f"time_zone is {zone!r}; give a name of the IANA database such as Europe/London"
            " (where the system has none, install the extra hushgrid[intake])."
        ) from None
    return lambda wall: _instants(wall, clocks)


def _instants(wall: int, clocks: tzinfo) -> tuple[int, ...]:
    if not 0 <= wall < END:
        return (wall,)  # refused by its year later; datetime would choke on it now
    shown = _EPOCH + timedelta(seconds=wall)
    found = set()
    for fold in (0, 1):
        ahead = shown.replace(tzinfo=clocks, fold=fold).utcoffset()
        assert ahead is not None
        instant = shown - ahead
        if instant.replace(tzinfo=UTC).astimezone(clocks).replace(tzinfo=None) == shown:
            found.add(wall - round(ahead.total_seconds()))
    return tuple(sorted(found))
