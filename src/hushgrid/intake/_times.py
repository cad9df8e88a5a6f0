"""Written times to seconds UTC since 1970: no clock, no locale.

In the hour that clocks repeat at the end of daylight saving, a time without an offset has two
instants. A meter reports it twice, so its first report in an input is the earlier instant and any
further one the later. A meter that reports it once is taken to have missed the later one; times
with offsets need no such guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hushgrid._numbers import Ints
from hushgrid.errors import IntakeError
from hushgrid.intake.readings import END, FAULTS_END, Fault

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)

_DAY = 86_400  # [s]

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


def _instants(wall: int, clocks: ZoneInfo) -> tuple[int, ...]:
    if not 0 <= wall < END:
        return (wall,)  # refused by its year later; datetime cannot hold it
    local, instants = _EPOCH + wall * _SECOND, set()
    for fold in (0, 1):
        instant = local.replace(tzinfo=clocks, fold=fold).astimezone(UTC)
        if instant.astimezone(clocks).replace(tzinfo=None) == local:
            instants.add(int(instant.timestamp()))
    return tuple(sorted(instants))


Reader = Callable[[str], datetime | Fault]
Moment = Callable[[str], tuple[int, tuple[int, ...]] | Fault]

_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]((?:[01][0-9]|2[0-3]):[0-5][0-9])"
    r"(?:(:[0-5][0-9])(?:[.,]([0-9]{1,9}))?)? ?([Zz]|[+-][0-9]{2}(?::?[0-5][0-9])?)?"
)
_LONGEST = 64  # characters of a time
_MIDNIGHT = re.compile(r"(?<![0-9:])24:00(?=(?::00)?(?![0-9:]))")
_DIRECTIVES = set("YymbBdHIpMSfz")


def read_iso(text: str) -> datetime | Fault:
    """Read ISO 8601 or RFC 3339, with or without an offset; seconds and fraction are optional.

    Args:
        text: A time as written, without spaces around it.

    Returns:
        The time, or a `Fault`.

    >>> read_iso("2018-01-01 00:00:00-06").isoformat()
    '2018-01-01T00:00:00-06:00'
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return Fault.TIME
    date, clock, second, fraction, offset = match.groups(default="")
    if fraction.strip("0"):
        return Fault.TIME_SECOND
    try:
        return datetime.fromisoformat(f"{date}T{clock}{second}{offset.upper()}")
    except ValueError:
        return Fault.TIME


def reader(time_format: str) -> Reader:
    """Reader of times of one format.

    Args:
        time_format: "iso", "%s" (seconds since 1970), or a strptime pattern with the directives
            Y y m b B d H I p M S f z, each once at most.

    Returns:
        A function from a written time to the time or a `Fault`.

    Raises:
        IntakeError: If the pattern has no date, or a wrong hour.

    >>> reader("%d/%m/%Y %H:%M")("27/10/2013 01:30")
    datetime.datetime(2013, 10, 27, 1, 30)
    """
    if time_format == "iso":
        return read_iso
    if time_format == "%s":
        return _read_seconds
    listed = re.findall("%(.?)", time_format.replace("%%", ""), re.DOTALL)
    directives = set(listed)
    if len(directives) != len(listed) or not directives <= _DIRECTIVES:
        raise IntakeError(
            f"time_format is {time_format!r}; of strptime's directives give"
            f" {' '.join(sorted(_DIRECTIVES))} or %, each once."
        )
    if not ({"Y", "y"} & directives and {"m", "b", "B"} & directives and "d" in directives):
        raise IntakeError(
            f"time_format is {time_format!r}; give iso, or a pattern with year, month and day,"
            " or %s alone."
        )
    if ("I" in directives) != ("p" in directives) or {"H", "I"} <= directives:
        raise IntakeError(f"time_format is {time_format!r}; give %H, or %I together with %p.")

    def read_time(text: str) -> datetime | Fault:
        try:
            time = datetime.strptime(text, time_format)
        except ValueError:
            return Fault.TIME
        return Fault.TIME_SECOND if time.microsecond else time

    return read_time


def _read_seconds(text: str) -> datetime | Fault:
    match = re.fullmatch("[0-9]{1,11}", text)
    return datetime.fromtimestamp(int(text), UTC) if match else Fault.TIME


Written = TypeVar("Written", bound=Hashable)

_REMEMBERED = 1 << 16  # times; equal texts are converted once


class TimeReader(Generic[Written]):
    """Times of one input to UTC, row by row in order; see the module for repeated hours.

    Args:
        read: Instants of a written time [s UTC], as `Instants` has them, or a `Fault`.
        newest_first: Whether times go back, so that the first report is the later instant.

    >>> clock = TimeReader(local_instants("Europe/London"))
    >>> clock.instants([1382837400] * 2, ["a"], np.array([0, 0])).tolist()
    [1382833800, 1382837400]
    """

    def __init__(
        self, read: Callable[[Written], tuple[int, ...] | Fault], newest_first: bool = False
    ) -> None:
        self._read, self._order = read, -1 if newest_first else 1
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
        instants = self._read(time)
        if isinstance(instants, Fault):
            return instants
        reported = instants[:: self._order]
        if len(reported) == 2:
            self._later[time] = reported[1]
        return reported[0] if reported else Fault.TIME_GAP

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


class TextTimes(TimeReader[str]):
    """Times as text to UTC, of one input; a long text is not remembered.

    Args:
        moment: Clock time [s since 1970, local] and instants [s UTC] of a text, or a `Fault`.
        newest_first: As `TimeReader` takes it.
    """

    def __init__(self, moment: Moment, newest_first: bool = False) -> None:
        super().__init__(
            lambda text: time if isinstance(time := moment(text), Fault) else time[1],
            newest_first,
        )
        self._moment = lru_cache(1 << 12)(moment)  # the end of a reading is the start of the next

    def instants(self, times: Sequence[str], ids: Sequence[str], code: Ints) -> Ints:
        """As `TimeReader.instants`."""
        return super().instants(_short(times), ids, code)

    def durations(self, start: Ints, begins: Sequence[str], ends: Sequence[str]) -> Ints:
        """Seconds to the end of each reading that begins at `start`, or a `Fault`.

        Where clocks change, the end may have been written by the clock before or after; the
        shortest time that is positive counts.
        """
        begins, ends = _short(begins), _short(ends)
        return np.array(list(map(self._until, start.tolist(), begins, ends)), np.int64)

    def _until(self, start: int, begins: str, ends: str) -> int:
        begin, end = self._moment(begins), self._moment(ends)
        if isinstance(begin, Fault) or isinstance(end, Fault):
            return Fault.END
        lengths = {end[0] - begin[0], *(instant - start for instant in end[1])}
        return min((seconds for seconds in lengths if seconds > 0), default=Fault.END)


def _short(times: Sequence[str]) -> Sequence[str]:
    if max(map(len, times), default=0) <= _LONGEST:
        return times
    bare = [time.strip(" \t") for time in times]
    return [time if len(time) <= _LONGEST else "?" for time in bare]


def moments(time_format: str, time_zone: str | None, shift: int = 0) -> Moment:
    """Reader of times as text.

    Args:
        time_format: As `reader` takes it; in a pattern the hour 24:00 is the end of the day.
        time_zone: Zone of times without an offset; None: such a time is a `Fault`.
        shift: Added to what is written, before the zone's clocks are consulted [s].

    Returns:
        A function from a text to clock time [s since 1970, local] and instants [s UTC], or a
        `Fault`. With an offset the clock time is that of UTC.

    Raises:
        IntakeError: If the format or the zone is unknown.

    >>> moments("%Y/%m/%d %H:%M", "UTC", -3600)("1970/01/01 24:00")
    (82800, (82800,))
    """
    read = reader(time_format)
    local = None if time_zone is None else local_instants(time_zone)

    def moment(text: str) -> tuple[int, tuple[int, ...]] | Fault:
        bare, later = text.strip(" \t"), shift
        if not bare:
            return Fault.TIME_MISSING
        if time_format != "iso" and (midnight := _MIDNIGHT.search(bare)):
            bare, later = f"{bare[: midnight.start()]}00:00{bare[midnight.end() :]}", shift + _DAY
        time = read(bare)
        if isinstance(time, Fault):
            return time
        if time.tzinfo is not None:
            instant = (time - _EPOCH.replace(tzinfo=UTC)) // _SECOND + later
            return instant, (instant,)
        wall = (time - _EPOCH) // _SECOND + later
        return Fault.TIME_ZONE if local is None else (wall, local(wall))

    return moment


def text_times(
    time_format: str, time_zone: str | None, shift: int = 0, newest_first: bool = False
) -> TextTimes:
    """Times as text to UTC.

    Args:
        time_format: As `moments` takes it.
        time_zone: As `moments` takes it.
        shift: As `moments` takes it [s].
        newest_first: As `TimeReader` takes it.

    Returns:
        A reader for one input.

    Raises:
        IntakeError: If the format or the zone is unknown.

    >>> text_times("iso", "UTC").instants(["1970-01-02 00:00"], ["a"], np.array([0])).tolist()
    [86400]
    """
    return TextTimes(moments(time_format, time_zone, shift), newest_first)


class DaySteps(TimeReader[tuple[str, int]]):
    """Steps of a day as its written date and their number, to UTC.

    Args:
        date: Clock time of a date as text, or a `Fault`.
        local: Instants of a clock time.
        seconds: Length of a step [s].
        steps: Steps of a row; of 24 h they are times of the clock, of more the time since midnight.

    >>> dates, clocks = moments("%Y-%m-%d", "UTC"), local_instants("Europe/London")
    >>> days = DaySteps(dates, clocks, 3600, 24)
    >>> days.instants([("2013-07-01", 0), ("2013-07-01", 23)], ["a"], np.array([0, 0])).tolist()
    [1372633200, 1372716000]
    """

    def __init__(self, date: Moment, local: Instants, seconds: int, steps: int) -> None:
        self._since_midnight = seconds * steps > _DAY
        self._date, self._local, self._seconds = date, local, seconds
        super().__init__(self._instants)

    def instants(self, times: Sequence[tuple[str, int]], ids: Sequence[str], code: Ints) -> Ints:
        """As `TimeReader.instants`."""
        dates = _short([date for date, _ in times])
        numbers = (number for _, number in times)
        return super().instants(list(zip(dates, numbers, strict=True)), ids, code)

    def _instants(self, step: tuple[str, int]) -> tuple[int, ...] | Fault:
        date = self._date(step[0])
        if isinstance(date, Fault):
            return date
        midnight, after = date[0], step[1] * self._seconds
        if not self._since_midnight:
            return self._local(midnight + after)
        begins, ends = self._local(midnight)[:1], self._local(midnight + _DAY)[:1]
        return tuple(b + after for b, e in zip(begins, ends, strict=False) if b + after < e)
