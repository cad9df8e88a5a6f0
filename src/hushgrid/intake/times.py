"""Written times to seconds UTC since 1970, in integers: no clock, no locale.

Local times are converted with the time zone database (`zoneinfo`, the only use of `datetime` in the
pure core). In the hour that clocks repeat at the end of daylight saving, a time without an offset
has two instants. A meter reports it twice, so its first report in an input is the earlier instant
and any further one the later. A meter that reports it once is taken to have missed the later one;
times with offsets need no such guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import END, FAULTS_END, Fault

_EPOCH = datetime(1970, 1, 1)

Instants = Callable[[int], tuple[int, ...]]


def local_instants(zone: str) -> Instants:
    """Conversion of the local times of a zone to UTC.

    Args:
        zone: Name of the IANA database, such as Europe/London.

    Returns:
        A function from local time [s since 1970-01-01T00:00 local] to its instants [s UTC],
        earliest first: none while clocks go forward over it, two while they go back.

    Raises:
        IntakeError: If the database has no such zone.

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
        return (wall,)  # refused by its year later; datetime cannot hold it
    local = _EPOCH + timedelta(seconds=wall)
    found = set()
    for fold in (0, 1):
        ahead = local.replace(tzinfo=clocks, fold=fold).utcoffset()
        assert ahead is not None
        instant = local - ahead
        if instant.replace(tzinfo=UTC).astimezone(clocks).replace(tzinfo=None) == local:
            found.add(wall - round(ahead.total_seconds()))
    return tuple(sorted(found))


class Moment(NamedTuple):
    """A time as written.

    Attributes:
        wall: Seconds since 1970-01-01T00:00 on the local clock.
        offset: UTC offset [s]; None where none was written.
    """

    wall: int
    offset: int | None


Reader = Callable[[str], Moment | Fault]

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})"
    r"(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)? ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_DIRECTIVES = {
    "Y": "[0-9]{4}", "y": "[0-9]{2}", "m": "[0-9]{1,2}", "d": "[0-9]{1,2}", "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}", "M": "[0-9]{1,2}", "S": "[0-9]{1,2}", "f": "[0-9]{1,9}",
    "p": "[AaPp][Mm]", "z": "[Zz]|[+-][0-9]{2}:?[0-9]{2}", "s": "[0-9]{1,12}",
    "b": "(?i:" + "|".join(name[:3] for name in _MONTHS) + ")",
    "B": "(?i:" + "|".join(_MONTHS) + ")",
}  # fmt: skip


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar.

    Args:
        year: Year.
        month: Month, 1 to 12.
        day: Day of the month.

    Returns:
        The number of days; negative before 1970.

    >>> days_from_civil(1970, 1, 1), days_from_civil(2000, 3, 1)
    (0, 11017)
    """
    y = year - (month < 3)  # the year begins in March, so that the leap day is its last
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * y + y // 4 - y // 100 + y // 400 + day_of_year - 719_468


def read_iso(text: str) -> Moment | Fault:
    """Read ISO 8601 or RFC 3339, with or without an offset; seconds and fraction are optional.

    Args:
        text: A time as written.

    Returns:
        The time, or a `Fault`.

    >>> read_iso("2018-01-01 00:00:00-06")
    Moment(wall=1514764800, offset=-21600)
    """
    bare = text.strip(" \t")
    if not bare:
        return Fault.TIME_MISSING
    found = _ISO.fullmatch(bare) if len(bare) <= 64 else None
    if found is None:
        return Fault.TIME
    year, month, day, hour, minute, second, fraction, offset = found.groups(default="")
    if fraction.strip("0"):
        return Fault.TIME_SECOND
    return _moment(
        int(year), int(month), int(day), int(hour), int(minute), int(second or "0"), offset
    )


def _moment(
    year: int, month: int, day: int, hour: int, minute: int, second: int, offset: str
) -> Moment | Fault:
    leap = month == 2 and ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1] + leap:
        return Fault.TIME
    if hour > 23 or minute > 59 or second > 59:
        return Fault.TIME
    ahead = _offset(offset)
    if isinstance(ahead, Fault):
        return ahead
    wall = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    return Moment(wall, ahead)


def _offset(text: str) -> int | Fault | None:
    if not text:
        return None
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or "0")
    if hours > 23 or minutes > 59:
        return Fault.TIME
    ahead = hours * 3600 + minutes * 60
    return -ahead if text[0] == "-" else ahead


def reader(time_format: str) -> Reader:
    """Reader of times of one format.

    Args:
        time_format: "iso", or a strptime pattern with English month names and the directives Y y m
            b B d H I p M S f z s %.

    Returns:
        A function from a written time to a `Moment` or a `Fault`.

    Raises:
        IntakeError: If the pattern has no date, or a wrong hour.

    >>> reader("%d/%m/%Y %H:%M")("27/10/2013 01:30")
    Moment(wall=1382837400, offset=None)
    """
    if time_format == "iso":
        return read_iso
    pattern, used = _compiled(time_format)
    date = {"Y", "y"} & used and {"m", "b", "B"} & used and "d" in used
    if not date and used != {"s"}:
        raise IntakeError(
            f"time_format is {time_format!r}; give iso, or a pattern with year, month and day,"
            " or %s alone."
        )
    if ("I" in used) != ("p" in used) or ("H" in used and "I" in used):
        raise IntakeError(f"time_format is {time_format!r}; give %H, or %I together with %p.")
    return lambda text: _by_pattern(pattern, text)


def _compiled(time_format: str) -> tuple[re.Pattern[str], set[str]]:
    parts, used = [], set()
    for directive, plain in re.findall(r"%(.?)|([^%]+)", time_format, re.DOTALL):
        if plain:
            parts.append(re.escape(plain))
        elif directive == "%":
            parts.append("%")
        elif directive in _DIRECTIVES and directive not in used:
            used.add(directive)
            parts.append(f"(?P<{directive}>{_DIRECTIVES[directive]})")
        else:
            raise IntakeError(
                f"time_format has %{directive}; of strptime's directives give"
                f" {' '.join(_DIRECTIVES)} or %, each once."
            )
    return re.compile("".join(parts)), used


def _by_pattern(pattern: re.Pattern[str], text: str) -> Moment | Fault:
    bare = text.strip(" \t")
    if not bare:
        return Fault.TIME_MISSING
    found = pattern.fullmatch(bare) if len(bare) <= 64 else None
    if found is None:
        return Fault.TIME
    field = found.groupdict()
    if "s" in field:
        return Moment(int(field["s"]), 0)
    if field.get("f", "").strip("0"):
        return Fault.TIME_SECOND
    year = int(field["Y"]) if "Y" in field else _century(int(field["y"]))
    hour = _hour(field)
    month = int(field["m"]) if "m" in field else _month(field.get("b") or field["B"])
    minute, second = int(field.get("M", "0")), int(field.get("S", "0"))
    return _moment(year, month, int(field["d"]), hour, minute, second, field.get("z", ""))


def _century(year: int) -> int:
    return year + (1900 if year >= 69 else 2000)  # as POSIX has it


def _month(name: str) -> int:
    return 1 + [month[:3] for month in _MONTHS].index(name[:3].lower())


def _hour(field: dict[str, str]) -> int:
    if "I" not in field:
        return int(field.get("H", "0"))
    hour = int(field["I"])
    if not 1 <= hour <= 12:
        return 24  # none of the day's
    return hour % 12 + (12 if field["p"].lower() == "pm" else 0)


Written = TypeVar("Written", bound=Hashable)

_REMEMBERED = 1 << 16  # times; equal texts are converted once


class TimeReader(Generic[Written]):
    """Times of one input to UTC, row by row in order; see the module for repeated hours.

    Args:
        read: Reader of one written time.
        instants: Instants of a local time, as `local_instants` gives them.

    >>> from hushgrid.intake.times import read_iso
    >>> from hushgrid.intake.times import local_instants
    >>> clock = TimeReader(read_iso, local_instants("Europe/London"))
    >>> twice = ["2013-10-27 01:30", "2013-10-27 01:30"]
    >>> clock.instants(twice, ["a"], np.array([0, 0])).tolist()
    [1382833800, 1382837400]
    """

    def __init__(self, read: Callable[[Written], Moment | Fault], instants: Instants) -> None:
        self._read, self._instants = read, instants
        self._known: dict[Written, int] = {}
        self._later: dict[Written, int] = {}
        self._reported: set[tuple[str, int]] = set()

    def instants(self, times: Sequence[Written], ids: Sequence[str], code: Ints) -> Ints:
        """Seconds UTC, or a `Fault`, for each time; `ids[code]` is the meter of each."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
            self._later.clear()
        for time in set(times) - self._known.keys():
            self._known[time] = self._resolved(time)
        start = np.fromiter(map(self._known.__getitem__, times), np.int64, len(times))
        if self._later:
            self._resolve_repeated(times, ids, code, start)
        return start

    def _resolved(self, time: Written) -> int:
        moment = self._read(time)
        if isinstance(moment, Fault):
            return moment
        if moment.offset is not None:
            return moment.wall - moment.offset
        instants = self._instants(moment.wall)
        if not instants:
            return Fault.TIME_GAP
        if len(instants) == 2:
            self._later[time] = instants[1]
        return instants[0]

    def _resolve_repeated(
        self, times: Sequence[Written], ids: Sequence[str], code: Ints, start: Ints
    ) -> None:
        for row, time in enumerate(times):
            if time not in self._later or code[row] < FAULTS_END:
                continue
            report = (ids[code[row]], int(start[row]))
            if report in self._reported:
                start[row] = self._later[time]
            self._reported.add(report)
