"""CSV by a mapping: goldens of known formats, bad rows beside good ones, unusable tables."""

from __future__ import annotations

from typing import Any

import pytest

from hushgrid import IntakeError
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.lines import lines, open_bytes
from hushgrid.intake.readings import collect
from hushgrid.intake.text import CANONICAL, LOW_CARBON_LONDON, PECAN_STREET, ColumnMapping

HEADER = "meter_id,start_utc,duration_s,wh\n"
GOOD = "a,2013-01-01T00:00:00Z,1800,115\n"
JANUARY = 1356998400  # 2013-01-01T00:00:00Z


def test_low_carbon_london() -> None:
    """Header and forms as in the London Datastore's files."""
    text = (
        "LCLid,stdorToU,DateTime,KWH/hh (per half hour) \n"
        "MAC000002,Std,2012-10-12 00:30:00.0000000, 0 \n"
        "MAC000002,Std,2012-10-12 01:00:00.0000000,0.115\n"
        "MAC000002,Std,2012-12-18 15:13:41.0000000,Null\n"
        "MAC000003,ToU,2013-06-30 12:00:00.0000000,1.0015000\n"
    )
    found = collect(csv_batches(text.encode(), LOW_CARBON_LONDON))
    assert list(found.readings.rows()) == [
        ("MAC000002", 1350001800, 1800, 0),
        ("MAC000002", 1350003600, 1800, 115),
        ("MAC000003", 1372593600, 1800, 1002),
    ]
    assert found.malformed == 1
    assert found.problems == ("line 4: value is not a number",)


def test_pecan_street() -> None:
    """kW over a quarter of an hour; offsets change with daylight saving; export is negative."""
    text = (
        "dataid,local_15min,air1,grid,solar\n"
        "661,2018-01-01 00:00:00-06,,0.115,\n"
        "661,2018-07-01 00:00:00-05,0.2,-1.002,3\n"
        "661,2018-11-04 01:30:00-05,,1,\n"
        "661,2018-11-04 01:30:00-06,,2,\n"
        "661,2018-11-04 01:45:00-06,,,\n"
    )
    found = collect(csv_batches(text.encode(), PECAN_STREET))
    assert list(found.readings.rows()) == [
        ("661", 1514786400, 900, 29),  # 28.75
        ("661", 1530421200, 900, -250),  # -250.5
        ("661", 1541313000, 900, 250),
        ("661", 1541316600, 900, 500),
    ]
    assert found.problems == ("line 6: value is missing",)


def test_a_mapping_of_ones_own() -> None:
    """German table of one meter: semicolons, decimal commas, local times that mark the end."""
    mapping = ColumnMapping(
        meter_id="haus", time="Zeit", value="Verbrauch [kWh]", unit="kwh", duration_s=3600,
        time_format="%d.%m.%Y %H:%M", time_zone="Europe/Berlin", marks="end",
        delimiter=";", decimal=",",
    )  # fmt: skip
    text = (
        "\ufeffZeit;Verbrauch [kWh]\r\n"
        "01.01.2013 01:00;0,115\r\n"
        "27.10.2013 02:00;1\r\n"  # shown twice
        "27.10.2013 02:00;2\r\n"
        "27.10.2013 03:00;3\r\n"
        "31.03.2013 02:30;4\r\n"  # never shown
        "01.01.2013 02:00;1.500\r\n"
        "01.01.1970 01:00;1\r\n"  # starts before 1970
    )
    found = collect(csv_batches(text.encode(), mapping))
    assert list(found.readings.rows()) == [
        ("haus", JANUARY - 3600, 3600, 115),
        ("haus", 1382828400, 3600, 1000),
        ("haus", 1382832000, 3600, 2000),
        ("haus", 1382835600, 3600, 3000),
    ]
    assert found.problems == (
        "line 6: time does not exist in its zone, as clocks went forward",
        "line 7: value is not a number",
        "line 8: time is outside the years 1970 to 2099",
    )


BAD_LINES = [
    ("a,2013-01-01T00:00:00Z,1800", "another number of fields"),
    ("a,2013-01-01T00:00:00Z,1800,1,", "another number of fields"),
    ("x" * 70_000, "longer than 64 KiB"),
    ('"a,2013-01-01T00:00:00Z,1800,1', "a quote that does not close"),
    ('"a"b,2013-01-01T00:00:00Z,1800,1', "a quote that does not close"),
    ("\udcff,2013-01-01T00:00:00Z,1800,1", "not UTF-8"),
    (",2013-01-01T00:00:00Z,1800,1", "meter id"),
    ("a\x00b,2013-01-01T00:00:00Z,1800,1", "meter id"),
    ("y" * 129 + ",2013-01-01T00:00:00Z,1800,1", "meter id"),
    ("a,,1800,1", "time is missing"),
    ("a,yesterday,1800,1", "time is not in the expected form"),
    ("a,9999-12-31T23:59:59Z,1800,1", "outside the years"),
    ("a,1969-12-31T23:59:59Z,1800,1", "outside the years"),
    ("a,2100-01-01T00:00:00Z,1800,1", "outside the years"),
    ("a,2013-01-01T00:00:00.25Z,1800,1", "whole second"),
    ("a,2013-01-01T00:00:00Z,,1", "duration"),
    ("a,2013-01-01T00:00:00Z,0,1", "duration"),
    ("a,2013-01-01T00:00:00Z,-900,1", "duration"),
    ("a,2013-01-01T00:00:00Z,900.5,1", "duration"),
    ("a,2013-01-01T00:00:00Z,99999999,1", "duration"),
    ("a,2013-01-01T00:00:00Z,1800,", "value is missing"),
    ("a,2013-01-01T00:00:00Z,1800,NaN", "not a number"),
    ("a,2013-01-01T00:00:00Z,1800,inf", "not a number"),
    ("a,2013-01-01T00:00:00Z,1800,1e400", "beyond 10^12"),
]


@pytest.mark.parametrize(("line", "why"), BAD_LINES, ids=[line[:40] for line, _ in BAD_LINES])
def test_a_bad_line_harms_itself_alone(line: str, why: str) -> None:
    text = HEADER + GOOD + line + "\n" + GOOD
    found = collect(csv_batches(text.encode("utf-8", "surrogateescape"), CANONICAL))
    assert list(found.readings.rows()) == [("a", JANUARY, 1800, 115)] * 2
    assert found.malformed == 1
    (problem,) = found.problems
    assert problem.startswith("line 3: ")
    assert why in problem


def test_what_is_no_fault() -> None:
    text = HEADER + f'\n \n"a,""b""","2013-01-01T00:00:00Z",1800,115\r\n\n{GOOD}'.rstrip("\n")
    found = collect(csv_batches(text.encode(), CANONICAL))
    assert [row[0] for row in found.readings.rows()] == ['a,"b"', "a"]
    assert found.malformed == 0


def test_columns_in_any_order_with_spaces_around() -> None:
    text = b" wh ,other,duration_s,start_utc,meter_id\n115,?,1800,2013-01-01 00:00:00+00:00, a \n"
    assert list(collect(csv_batches(text, CANONICAL)).readings.rows()) == [
        ("a", JANUARY, 1800, 115)
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b"\n" + GOOD.encode(), "column 'meter_id' is missing;"),
        (b"meter_id,start_utc,duration_s\n", "column 'wh' is missing;"),
        (b"meter_id,start_utc,duration_s,wh,wh\n", "column 'wh' is there 2 times;"),
        (HEADER.encode("utf-16"), "not UTF-8"),
        (b"PK\x03\x04\xff\xfe", "not UTF-8"),
        (b"x" * 100_000, "longer than 64 KiB"),
        (b'"meter_id,start_utc,duration_s,wh\n', "is missing"),
        ([HEADER, GOOD], "gives str"),
        ("text", "gives str"),
    ],
)
def test_unusable_tables(data: Any, why: str) -> None:
    with pytest.raises(IntakeError, match=why):
        collect(csv_batches(data, CANONICAL))


FIELDS: dict[str, Any] = {
    "meter": "m", "time": "t", "value": "v", "unit": "kwh", "duration_s": 900,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unit": "joule"}, "unit is 'joule'"),
        ({"unit": "kw", "duration_s": None}, "duration is None and duration_s is None"),
        ({"duration": "d"}, "give either the column duration or duration_s"),
        ({"meter": None, "meter_id": "\n"}, "meter_id is"),
        ({"meter": ""}, "meter is ''"),
        ({"time": None}, "time is None"),
        ({"duration_s": 0}, "duration_s is 0"),
        ({"duration_s": 1.5}, "duration_s is 1.5"),
        ({"time": "v"}, "give each a column of its own"),
        ({"time_zone": "Nowhere"}, "time_zone is 'Nowhere'"),
        ({"time_format": "%H"}, "time_format is '%H'"),
        ({"marks": "middle"}, "marks is 'middle'"),
        ({"delimiter": ""}, "delimiter is ''"),
        ({"delimiter": '"'}, "delimiter is"),
        ({"delimiter": ","}, "delimiter is ','"),
        ({"decimal": ";"}, "decimal is ';'"),
    ],
)
def test_unusable_mappings(change: dict[str, Any], why: str) -> None:
    fields = {**FIELDS, **change}
    if "delimiter" in change:
        fields["decimal"] = ","
    with pytest.raises(IntakeError, match=why.replace("?", ".")):
        ColumnMapping(**fields)


def test_no_reading_in_any_message() -> None:
    """A value that cannot be used is as secret as one that can."""
    secrets = ["7654.32.1", "7654321e99", "7654321 kWh", "7654;321"]
    text = HEADER + "".join(f"a,2013-01-01T00:00:00Z,1800,{secret}\n" for secret in secrets)
    found = collect(csv_batches(text.encode(), CANONICAL))
    assert found.malformed == len(secrets)
    assert not any("7654" in problem for problem in found.problems)


def test_batches_number_their_lines_on() -> None:
    """Lines keep their number however the text falls into blocks, dropped lines included."""
    n = 60_000
    text = HEADER + GOOD * n + "x" * 200_000 + "\n" + GOOD * n + "bad\n" + GOOD + "bad"
    batches = list(csv_batches([text.encode()], CANONICAL))
    assert len(batches) > 2
    assert sum(len(batch.readings) for batch in batches) == 2 * n + 1
    problems = [problem.split(":")[0] for batch in batches for problem in batch.problems]
    assert problems == [f"line {i}" for i in (n + 2, 2 * n + 3, 2 * n + 5)]


def test_lines_that_are_dropped_while_they_come() -> None:
    chunks = [b"a\n" + b"x" * 50, b"y" * (3 << 20), b"z\nb\n", b"w" * 99]
    parts = list(lines(open_bytes(chunks), limit=64))
    numbered = [(part.first + i, text) for part in parts for i, text in enumerate(part.text)]
    assert numbered == [(1, "a"), (2, ""), (3, "b"), (4, "")]
    assert [at for part in parts for at, _ in part.broken] == [2, 4]


@pytest.mark.parametrize("size", [1, 7, 1000, 200_000])
def test_chunks_of_any_size_make_one_file(size: int) -> None:
    data = bytes(range(256)) * 400
    stream = open_bytes([b"", *(data[at : at + size] for at in range(0, len(data), size)), b""])
    assert stream.read(1000) + stream.readline(1000) + stream.read() == data
    assert stream.read(5) == b""


def test_a_table_without_its_preamble_is_refused_in_one_sentence() -> None:
    mapping = ColumnMapping(preamble=True, meter="m", time="t", value="v", duration="d", unit="wh")
    with pytest.raises(IntakeError, match="no line names the columns"):
        collect(
            csv_batches(b"m,t,v,d\nA,2026-01-05T00:00Z,1,900\nB,2026-01-05T00:00Z,2,900\n", mapping)
        )
