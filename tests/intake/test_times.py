"""Written times to seconds: against the standard library, and against zones read forwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.intake._times import local_instants, read_iso, reader, text_times
from hushgrid.intake.readings import Fault

WHOLE = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0)
)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))


def seconds(moment: datetime) -> int:
    return round((moment - datetime(1970, 1, 1)).total_seconds())


@given(WHOLE, OFFSETS, st.sampled_from(["T", " "]))
def test_iso_as_the_standard_library_writes_it(
    moment: datetime, offset: timezone, between: str
) -> None:
    assert read_iso(moment.isoformat(between)) == moment
    written = moment.replace(tzinfo=offset)
    found = read_iso(written.isoformat(between))
    assert found == written
    assert found.utcoffset() == written.utcoffset()


def instant(text: str) -> int:
    """Seconds of one time without a zone of its own."""
    (found,) = text_times("iso", "UTC").instants([text], ["a"], np.zeros(1, np.int64)).tolist()
    return int(found)


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("2012-10-12 00:30:00.0000000", 1350001800),  # as Low Carbon London writes
        ("2018-01-01 00:00:00-06", 1514764800 + 21600),  # as Pecan Street writes
        ("2018-07-01T00:00:00-0530", 1530403200 + 19800),
        ("2018-07-01T00:00:00,000 +05:30", 1530403200 - 19800),
        ("2000-02-29t12:00z", 951825600),
        (" 1970-01-01T00:00 ", 0),
        ("0001-01-01T00:00:00+14:00", -62135596800 - 50400),
        ("9999-12-31T23:59:59-14:00", 253402300799 + 50400),
    ],
)
def test_iso_forms(text: str, second: int) -> None:
    assert instant(text) == second


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.TIME_MISSING),
        ("2013-02-29 00:00", Fault.TIME),
        ("1900-02-29 00:00", Fault.TIME),
        ("2013-13-01 00:00", Fault.TIME),
        ("2013-00-01 00:00", Fault.TIME),
        ("2013-01-00 00:00", Fault.TIME),
        ("2013-04-31 00:00", Fault.TIME),
        ("2013-01-01 24:00", Fault.TIME),
        ("2013-01-01 00:60", Fault.TIME),
        ("2013-06-30 23:59:60", Fault.TIME),
        ("2013-01-01 00:00:00.5", Fault.TIME_SECOND),
        ("2013-01-01 00:00+24:00", Fault.TIME),
        ("2013-01-01 00:00+00:60", Fault.TIME),
        ("2013-01-01", Fault.TIME),
        ("2013-01-01 00:00\n", Fault.TIME),
        ("٢٠١٣-01-01 00:00", Fault.TIME),
        ("2013-01-01 00:00" + " " * 99 + "Z", Fault.TIME),
        ("1356998400", Fault.TIME),
        ("20130101T000000Z", Fault.TIME),
        ("2013-W01-1T00:00Z", Fault.TIME),
        ("0000-01-01T00:00Z", Fault.TIME),
        ("2013-01-01 00:00.5", Fault.TIME),
    ],
)
def test_no_such_time(text: str, fault: Fault) -> None:
    assert instant(text) == fault


PATTERNS = [
    "%d/%m/%Y %H:%M:%S",
    "%d %b %y %I.%M%p%S",
    "%B %d, %Y %H%M %S %z",
    "%Y%m%d%H%M%S.%f",
    "%%%Y-%m-%d+%H.%M(%S)",
]


@given(st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31)), st.sampled_from(PATTERNS))
def test_patterns_as_strptime_reads_them(moment: datetime, pattern: str) -> None:
    text = moment.replace(microsecond=0, tzinfo=UTC).strftime(pattern)
    assert reader(pattern)(text) == datetime.strptime(text, pattern)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1 Jan 69 12.00AM", datetime(1969, 1, 1)),
        ("1 jan 68 12.05PM", datetime(2068, 1, 1, 12, 5)),
        ("1 MAY 70 11.59pm", datetime(1970, 5, 1, 23, 59)),
        ("1 Dec 00 1.00am", datetime(2000, 12, 1, 1)),
    ],
)
def test_centuries_and_halves_of_the_day(text: str, moment: datetime) -> None:
    """Years as POSIX has them; midnight is 12 AM."""
    assert reader("%d %b %y %I.%M%p")(text) == moment


def test_pattern_faults() -> None:
    assert reader("%s")("1356998400") == datetime(2013, 1, 1, tzinfo=UTC)
    assert reader("%s")("99999999999") == datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC)
    assert reader("%s")("1e9") is Fault.TIME
    assert reader("%d.%m.%Y")("31.04.2013") is Fault.TIME
    none = text_times("%d.%m.%Y", "UTC").instants([" "], ["a"], np.zeros(1, np.int64))
    assert none.tolist() == [Fault.TIME_MISSING]
    assert reader("%d.%m.%Y")("01.04.13") is Fault.TIME
    assert reader("%d.%m.%Y %I%p")("01.04.2013 13PM") is Fault.TIME
    assert reader("%d.%m.%Y %S.%f")("01.04.2013 00.50") is Fault.TIME_SECOND


@pytest.mark.parametrize(
    "pattern", ["", "%H:%M", "%Y-%m", "%Y-%m-%d %Y", "%Y-%m-%d %j", "%Y-%m-%d %I", "%s %H", "%Y %"]
)
def test_unusable_patterns_are_refused_at_once(pattern: str) -> None:
    with pytest.raises(IntakeError, match="time_format"):
        reader(pattern)


@pytest.mark.parametrize(
    "zone", ["Europe/London", "America/Chicago", "Australia/Lord_Howe", "Asia/Kathmandu"]
)
@pytest.mark.sampled
def test_local_times_are_the_inverse_of_the_clocks(zone: str) -> None:
    """Read the zone's clocks every quarter of an hour of 2013; then ask for each time shown."""
    clocks, shown = ZoneInfo(zone), dict[int, list[int]]()
    first = 1356998400
    for instant in range(first - 2 * 86400, first + 367 * 86400, 900):
        wall = datetime.fromtimestamp(instant, clocks).replace(tzinfo=None)
        shown.setdefault(seconds(wall), []).append(instant)
    find = local_instants(zone)
    inside = range(first, first + 365 * 86400, 900)
    assert {wall: find(wall) for wall in inside} == {
        wall: tuple(sorted(shown.get(wall, []))) for wall in inside
    }


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "a\0b"])
def test_unknown_zone(zone: str) -> None:
    with pytest.raises(IntakeError, match="time_zone"):
        local_instants(zone)


@pytest.mark.parametrize("wall", [-1, -(10**11), 4_102_444_800, 253_402_300_799])
def test_years_out_of_range_pass_through_to_be_refused(wall: int) -> None:
    assert local_instants("Europe/London")(wall) == (wall,)


def london(times: list[str], meters: list[int]) -> list[int]:
    clock = text_times("iso", "Europe/London")
    return clock.instants(times, ["a", "b"], np.array(meters)).tolist()


FIRST, SECOND = 1382833800, 1382837400  # 27 October 2013 01:30, in summer and in winter time


def test_the_repeated_hour_goes_by_appearance_of_each_meter() -> None:
    text = "2013-10-27 01:30"
    found = london([text, text, text, f"{text}:00", text], [0, 1, 0, 1, 0])
    assert found == [FIRST, FIRST, SECOND, SECOND, SECOND]


def test_an_offset_is_exact_in_the_repeated_hour() -> None:
    texts = ["2013-10-27 01:30+00", "2013-10-27 01:30", "2013-10-27 01:30+01"]
    assert london(texts, [0, 0, 0]) == [SECOND, FIRST, FIRST]


def test_the_skipped_hour_does_not_exist() -> None:
    assert london(["2013-03-31 01:30"], [0]) == [Fault.TIME_GAP]


def test_appearance_is_remembered_across_batches_and_forgotten_texts() -> None:
    clock = text_times("iso", "Europe/London")
    one, text = np.zeros(1, np.int64), ["2013-10-27 01:30"]
    assert clock.instants(text, ["a"], one).tolist() == [FIRST]
    many = [
        f"20{i % 90:02}-01-{1 + i % 28:02}T{i % 24:02}:{i % 60:02}:{i // 1200:02}"
        for i in range(70_000)
    ]
    assert len(set(many)) > 1 << 16
    clock.instants(many, ["b"], np.zeros(len(many), np.int64))
    clock.instants(["2013-01-01 00:00"], ["a"], one)  # the memory of texts starts anew here
    assert clock.instants(text, ["a"], one).tolist() == [SECOND]
