"""Exports of utilities and trials: sample files by published descriptions, and clocks that change.

The samples in `exports/` are made up; names, separators, units and marks are those of the formats.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import IntakeError
from hushgrid.files.readings import BUILT_IN, batches_of_file, format_by, mapping_named, mapping_of
from hushgrid.intake.csv import FORMAT, csv_batches
from hushgrid.intake.exports import crc16
from hushgrid.intake.readings import Fault, Parsed, collect
from hushgrid.intake.text import ColumnMapping
from tests.examples import examples
from tests.intake.edits import EDITS, edited, sound
from tests.intake.export_files import FILES

NO_METER = (
    "octopus",
    "octopus_json",
    "sce",
    "elhub_csv",
    "pge",
    "pge_nem",
    "n3rgy",
)  # exports that name no meter


def utc(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}:00+00:00").timestamp())


def parsed(name: str, data: bytes, meter_id: str | None = None) -> Parsed:
    mapping = mapping_named(name, meter_id)
    return collect(format_by(mapping, lambda: FORMAT).batches(data, mapping))


def half_hours(first: str, wh: list[int | None]) -> Iterator[tuple[str, int]]:
    """The half hours of a day that begins with these values and goes on with 0."""
    for half, value in enumerate([*wh, *[0] * (48 - len(wh))]):
        at = datetime.fromisoformat(first) + timedelta(minutes=30 * half)
        if value is not None:
            yield f"{at:%Y-%m-%dT%H:%M}", value


# meter, start in UTC, duration [s], Wh; then the reasons with their number of rows and first row
EXPECTED: dict[str, tuple[list[tuple[str, str, int, int]], dict[Fault | str, tuple[int, str]]]] = {
    "lcl": (
        [
            ("MAC000002", "2013-01-01T00:00", 1800, 115),
            ("MAC000003", "2013-06-30T23:30", 1800, 1200),
        ],
        {Fault.VALUE: (1, "line 3")},
    ),
    "pecan": (
        [
            ("26", "2018-03-11T07:45", 900, 100),
            ("26", "2018-03-11T08:00", 900, -300),
            ("661", "2018-11-04T06:45", 900, 2),
            ("661", "2018-11-04T07:00", 900, 500),
        ],
        {},
    ),
    "fluvius": (
        [
            ("541448860000000017", "2024-03-31T00:30", 900, 36),
            ("541448860000000017", "2024-03-31T00:45", 900, 1500),
            ("541448860000000017", "2024-03-31T21:45", 900, 250),
        ],
        {Fault.LEFT_OUT: (2, "line 3"), Fault.VALUE_MISSING: (1, "line 5")},
    ),
    "enedis": (
        [
            ("09100000000017", "2024-10-26T22:00", 1800, 115),
            ("09100000000017", "2024-10-27T00:30", 1800, 500),
            ("09100000000017", "2024-10-27T22:30", 1800, 6),
        ],
        {Fault.VALUE_MISSING: (1, "line 7")},
    ),
    "datadis": (
        [
            ("ES0031000000000001JN", "2024-10-26T22:00", 3600, 101),
            ("ES0031000000000001JN", "2024-10-26T23:00", 3600, 202),
            ("ES0031000000000001JN", "2024-10-27T00:00", 3600, 303),
            ("ES0031000000000001JN", "2024-10-27T01:00", 3600, 304),
            ("ES0031000000000001JN", "2024-10-27T02:00", 3600, 400),
            ("ES0031000000000001JN", "2024-10-27T22:00", 3600, 2400),
        ],
        {Fault.TIME: (1, "line 8")},
    ),
    "octopus": (
        [("me", "2024-10-27T00:30", 1800, 579), ("me", "2024-10-27T01:00", 1800, 0)],
        {Fault.END: (1, "line 4")},
    ),
    "octopus_json": (
        [("me", "2018-05-18T23:30", 1800, 63), ("me", "2018-05-18T23:00", 1800, 1000)],
        {Fault.VALUE_MISSING: (1, "record 3")},
    ),
    "sce": (
        [
            ("me", "2021-11-07T08:45", 900, 167),
            ("me", "2021-11-07T09:45", 900, 150),
            ("me", "2021-11-09T07:45", 900, 480),
        ],
        {Fault.VALUE_MISSING: (1, "line 14"), Fault.LEFT_OUT: (1, "line 18")},
    ),
    "lcl_blocks": (
        [
            ("MAC000002", "2012-10-12T00:30", 1800, 250),
            ("MAC000246", "2012-10-12T01:00", 1800, 126),
        ],
        {Fault.VALUE: (1, "line 3")},
    ),
    "ausgrid": (
        [("1", at, 1800, wh) for at, wh in half_hours("2011-06-30T14:00", [125, 62])],
        {Fault.LEFT_OUT: (96, "line 3")},
    ),
    "ausgrid_2010": (
        [("1", at, 1800, wh) for at, wh in half_hours("2010-06-30T14:00", [500, None])],
        {Fault.VALUE_MISSING: (1, "line 3"), Fault.LEFT_OUT: (48, "line 4")},
    ),
    "sgsc": (
        [
            ("10006414", "2012-12-31T14:00", 1800, 622),
            ("10006414", "2013-10-05T16:30", 1800, 100),
        ],
        {Fault.VALUE_MISSING: (1, "line 4")},
    ),
    "nem12": (
        [
            ("6100000017", "2023-12-31T14:00", 28_800, 1011),
            ("6100000017", "2023-12-31T22:00", 28_800, 2002),
            ("6100000017", "2024-01-01T06:00", 28_800, 3003),
            ("6100000017", "2024-01-01T14:00", 28_800, 4000),
        ],
        {
            Fault.VALUE_MISSING: (3, "line 4"),
            Fault.LEFT_OUT: (1, "line 9"),
            Fault.FIELDS: (1, "line 14"),
        },
    ),
    "elhub": (
        [
            ("707057500000000017", "2023-12-31T23:00", 3600, 1234),
            ("707057500000000017", "2024-01-01T00:00", 3600, 0),
            ("707057500000000025", "2023-12-31T23:00", 900, 2000),
        ],
        {
            "field endTime is missing; a reading has meteringPointId | id, startTime, endTime,"
            " quantityKwh | quantity": (1, "record 4")
        },
    ),
    "elhub_csv": (
        [("me", "2026-10-25T00:00", 3600, 2949), ("me", "2026-10-25T01:00", 3600, 1500)],
        {Fault.LEFT_OUT: (1, "line 4"), Fault.VALUE_MISSING: (1, "line 5")},
    ),
    "enedis_30min": (
        [
            ("09100000000017", "2024-10-26T22:00", 1800, 115),
            ("09100000000017", "2024-10-27T00:30", 1800, 500),
        ],
        {Fault.VALUE_MISSING: (1, "line 6")},
    ),
    "enedis_r63": (
        [
            ("09100000000017", "2023-12-31T23:00", 1800, 346),
            ("09100000000017", "2023-12-31T23:30", 600, 100),
        ],
        {Fault.LEFT_OUT: (1, "line 3"), Fault.DURATION: (1, "line 5")},
    ),
    "esb": (  # the newest row is the first: 01:30 of winter time before 01:30 of summer time
        [
            ("10000000017", "2024-10-27T01:00", 1800, 245),
            ("10000000017", "2024-10-27T00:00", 1800, 111),
            ("10000000017", "2024-06-30T23:00", 1800, 300),
        ],
        {Fault.LEFT_OUT: (1, "line 3"), Fault.VALUE: (1, "line 6")},
    ),
    "esb_kw": (
        [
            ("10000000017", "2024-01-15T23:00", 1800, 97),
            ("10000000017", "2024-01-15T22:30", 1800, 78),
        ],
        {Fault.LEFT_OUT: (1, "line 4")},
    ),
    "eloverblik": (
        [
            ("571313100000000017", "2023-10-26T09:00", 3600, 250),
            ("571313100000000017", "2023-10-26T10:00", 900, 1234),
        ],
        {Fault.LEFT_OUT: (1, "line 4"), Fault.VALUE_MISSING: (1, "line 5")},
    ),
    "fingrid": (
        [
            ("643000000000000017", "2023-09-23T08:00", 3600, 23),
            ("643000000000000017", "2024-12-31T22:00", 900, 2126),
        ],
        {Fault.LEFT_OUT: (1, "line 4"), Fault.TIME: (1, "line 5")},
    ),
    "smt": (
        [
            ("10000000000000017", "2024-11-03T05:00", 900, 859),
            ("10000000000000017", "2024-11-04T05:45", 900, 151),
        ],
        {Fault.LEFT_OUT: (1, "line 3"), Fault.TIME: (1, "line 5")},
    ),
    "pge": (
        [("me", "2024-11-03T07:00", 3600, 1160), ("me", "2024-11-04T07:45", 900, 250)],
        {Fault.FIELDS: (1, "line 9"), Fault.LEFT_OUT: (1, "line 10")},
    ),
    "pge_nem": (
        [("me", "2025-03-20T07:00", 3600, 2940), ("me", "2025-03-20T19:00", 3600, -1150)],
        {Fault.VALUE: (1, "line 9")},
    ),
    "n3rgy": (
        [("me", "2021-02-01T00:00", 1800, 63), ("me", "2021-02-01T23:30", 1800, 1000)],
        {Fault.VALUE_MISSING: (1, "record 3")},
    ),
    "dsmr_p1": (
        [
            ("E0004001594754414", "2024-10-27T00:45", 900, 155),
            ("E0004001594754414", "2024-10-27T01:00", 900, 305),
        ],
        {Fault.CHECKSUM: (1, "telegram 5")},
    ),
}


def test_each_mapping_has_a_sample() -> None:
    assert set(EXPECTED) == set(FILES) == set(BUILT_IN) - {"canonical"}


@pytest.mark.parametrize("name", EXPECTED)
def test_samples(name: str) -> None:
    mapping = mapping_of(name, "me" if name in NO_METER else None)
    found = collect(batches_of_file(FILES[name], mapping, lambda *_: None))
    rows, reasons = EXPECTED[name]
    assert list(found.readings.rows()) == [(m, utc(at), s, wh) for m, at, s, wh in rows]
    texts = {why.text if isinstance(why, Fault) else why: n for why, n in reasons.items()}
    assert {text: (n, first) for text, n, first in found.reasons} == texts
    left_out = texts.get(Fault.LEFT_OUT.text, (0, ""))[0]
    assert found.malformed == sum(n for n, _ in texts.values()) - left_out


@pytest.mark.parametrize("name", NO_METER)
def test_exports_that_name_no_meter_need_one(name: str) -> None:
    with pytest.raises(IntakeError, match="--meter-id ID"):
        parsed(name, FILES[name].read_bytes())


@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(NO_METER)))
def test_one_meter_is_renamed_and_others_are_not_mixed_in(name: str) -> None:
    found = parsed(name, FILES[name].read_bytes(), "house-1")
    rows = EXPECTED[name][0]
    assert [row[1:] for row in found.readings.rows()] == [
        (utc(at), s, wh) for m, at, s, wh in rows if m == rows[0][0]
    ]
    assert found.readings.ids == ("house-1",)
    others = sum(m != rows[0][0] for m, *_ in rows)
    assert sum(n for text, n, _ in found.reasons if text == Fault.OTHER_METER.text) >= others


# ---- clocks: what is written from instants is read back as those instants


def steps(zone: str, day: str, seconds: int) -> Iterator[tuple[datetime, datetime]]:
    """Starts and ends of the readings of a local day, of 23 to 25 h, by its clocks."""
    clocks = ZoneInfo(zone)
    begin = datetime.fromisoformat(day).replace(tzinfo=clocks)
    end = (datetime.fromisoformat(day) + timedelta(days=1)).replace(tzinfo=clocks)
    at = begin.astimezone(UTC)
    while at < end.astimezone(UTC):
        after = at + timedelta(seconds=seconds)
        yield at.astimezone(clocks), after.astimezone(clocks)
        at = after


def as_fluvius(start: datetime, end: datetime) -> str:
    cells = f"{start:%d-%m-%Y;%H:%M:%S};{end:%d-%m-%Y;%H:%M:%S};541"
    return f"{cells};Afname Nacht;0,1;kWh\n{cells};Injectie Nacht;0,1;kWh"


def as_datadis(start: datetime, _: datetime) -> str:
    return f"ES1;{start:%Y/%m/%d};{start.hour + 1:02}:00;0,1"


def as_sce(start: datetime, end: datetime) -> str:
    return f'"{start:%Y-%m-%d %H:%M:%S}\xa0to {end:%Y-%m-%d %H:%M:%S}","0.1",""'


def as_enedis(_: datetime, end: datetime) -> str:
    return f"{end.isoformat()};100"


def as_r63(_: datetime, end: datetime) -> str:
    return f"1;PA;CONS;W;{end:%Y-%m-%d %H:%M:%S};100;PT30M"


def as_esb(_: datetime, end: datetime) -> str:
    return f"1,0.1,Active Import Interval (kWh),{end:%d-%m-%Y %H:%M}"


def as_eloverblik(start: datetime, end: datetime) -> str:
    return f"1;{start:%d-%m-%Y %H:%M:%S};{end:%d-%m-%Y %H:%M:%S};0,1;KWH"


def as_smt(start: datetime, end: datetime) -> str:
    return f"'1,{start:%m/%d/%Y}, {start:%H:%M}, {end:%H:%M},0.1,Consumption"


def as_pge(start: datetime, _: datetime) -> str:
    last = start.replace(minute=start.minute + 14)
    return f"Electric usage,{start:%Y-%m-%d},{start:%H:%M},{last:%H:%M},0.1,$0.1"


CLOCKS: dict[str, tuple[str, int, str, Callable[[datetime, datetime], str]]] = {
    "fluvius": (
        "Europe/Brussels", 900,
        "Van (datum);Van (tijdstip);Tot (datum);Tot (tijdstip);EAN-code;Register;Volume;Eenheid",
        as_fluvius,
    ),
    "datadis": ("Europe/Madrid", 3600, "CUPS;Fecha;Hora;Consumo_kWh", as_datadis),
    "sce": (
        "America/Los_Angeles", 900,
        "Energy consumption time period,Usage(Real energy in kilowatt-hours),Reading quality",
        as_sce,
    ),
    "enedis": (
        "Europe/Paris", 1800,
        "Identifiant PRM;Grandeur metier;Unite;Pas en minutes\n1;Consommation;W;30\n\n"
        "Horodate;Valeur",
        as_enedis,
    ),
    "enedis_r63": (
        "Europe/Paris", 1800,
        "Identifiant PRM;Grandeur physique;Grandeur metier;Unite;Horodate;Valeur;Pas",
        as_r63,
    ),
    "esb": (
        "Europe/Dublin", 1800, "MPRN,Read Value,Read Type,Read Date and End Time", as_esb,
    ),
    "eloverblik": (
        "Europe/Copenhagen", 3600, "MålepunktsID;Fra_dato;Til_dato;Mængde;Måleenhed",
        as_eloverblik,
    ),
    "smt": (
        "America/Chicago", 900,
        "ESIID,USAGE_DATE,USAGE_START_TIME,USAGE_END_TIME,USAGE_KWH,CONSUMPTION_SURPLUSGENERATION",
        as_smt,
    ),
    "pge": (
        "America/Los_Angeles", 900, "TYPE,DATE,START TIME,END TIME,USAGE,COST,NOTES", as_pge,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("day", ["2024-03-31", "2024-10-27", "2024-03-10", "2024-11-03"])
def test_no_reading_is_lost_or_moved_where_clocks_change(name: str, day: str) -> None:
    zone, seconds, header, write = CLOCKS[name]
    times = list(steps(zone, day, seconds))[:: -1 if mapping_named(name).newest_first else 1]
    text = "\n".join([header, *(write(*each) for each in times)])
    found = parsed(name, text.encode(), "me")
    assert found.malformed == 0, found.problems
    assert found.readings.start.tolist() == [int(start.timestamp()) for start, _ in times]
    assert set(found.readings.duration.tolist()) == {seconds}


# ---- mappings of one's own


def test_a_mapping_of_a_file(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'meter = "Meter"\ndate = "Day"\ntime = "Time"\ntime_format = "%d.%m.%Y %H:%M"\n'
        'time_zone = "Europe/Berlin"\nmarks = "end"\nduration_s = 900\nvalue = "W"\nunit = "w"\n'
        'delimiter = ";"\ndecimal = ","\nskip = 2\nonly = {Way = ["in"]}\n'
    )
    text = "x\n\nmeter;Day;Time;Way;W\nm;01.02.2024;24:00;In;10,0\nm;01.02.2024;23:45;out;9\n"
    found = collect(csv_batches(text.encode(), mapping_of(str(own))))
    assert list(found.readings.rows()) == [("m", utc("2024-02-01T22:45"), 900, 2)]
    assert [tuple(each) for each in found.reasons] == [(Fault.LEFT_OUT.text, 1, "line 5")]
    own.write_text('base = "fluvius"\ntime_zone = "Europe/Paris"\n')
    assert mapping_of(str(own), "me").time_zone == "Europe/Paris"
    assert mapping_of(str(own), "me").value == "Volume"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tme = 'x'", "field 'tme' is unknown (perhaps 'time'); give base or"),
        ("base = 'other'", "mapping is 'other'; give one of canonical, lcl"),
        ("time =", "own.toml: "),
        ("base = 'fluvius'\nduration_s = 900\nend = 'x'", "end or until says how long"),
        ("base = 'sgsc'\nencoding = 'ebcdic'", "encoding is 'ebcdic'; give one of utf-8, utf-16"),
        ("base = 'sgsc'\nlast_value = 'x'", "last_value is of a table with a day a row; give"),
        ("base = 'sgsc'\nshift_s = 1.5", "shift_s is 1.5"),
        ("base = 'sgsc'\nskip = -1", "skip is -1"),
        ("base = 'sgsc'\nunit = 'joule'", "unit is 'joule'; give one of wh, kwh, mwh, w, kw"),
        ("base = 'sgsc'\nheader = 'last'", "header is 'last'"),
        ("base = 'sgsc'\nonly = {a = []}", "only is (('a', ()),)"),
        ("base = 'sgsc'\nonly = 'a'", "only is 'a'"),
        ("base = 'sgsc'\nplus = [1]", "plus is (1,)"),
        ("base = 'sgsc'\ntime_zone = 'Moon'", "time_zone is 'Moon'"),
        ("form = 'xml'", "form is 'xml'; give one of table, json, nem12, dsmr_p1"),
    ],
)
def test_mistakes_in_a_mapping(tmp_path: Path, text: str, why: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(IntakeError) as caught:
        mapping_of(str(own))
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("base = 'fluvius'\nduration_s = 900", {"end": None, "end_date": None, "duration_s": 900}),
        ("base = 'enedis'\nduration_s = 600", {"duration": None, "duration_unit": "s"}),
        ("base = 'enedis'\nend = 'Fin'", {"duration": None, "marks": "start", "end": "Fin"}),
        ("base = 'sgsc'\nduration = 'Length'", {"duration_s": None, "duration": "Length"}),
        ("base = 'sce'\nend = 'To'", {"until": None, "end": "To"}),
        ("base = 'pge'\nduration_s = 900", {"end": None, "end_shift_s": 0}),
    ],
)
def test_a_file_says_the_length_of_readings_in_another_way_than_its_base(
    tmp_path: Path, text: str, differs: dict[str, Any]
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    mapping, base = mapping_of(str(own)), mapping_named(text.split("'")[1])
    assert {name: getattr(mapping, name) for name in differs} == differs
    assert (mapping.value, mapping.time_zone) == (base.value, base.time_zone)


# ---- a day a row

WIDE = ColumnMapping(
    meter="Customer", time="date", time_format="%d/%m/%Y", time_zone="Europe/London",
    value="00:00", last_value="23:00", duration_s=3600, unit="kwh",
    only=(("Category", ("GC",)),),
)  # fmt: skip
HOURS = ",".join(f"{hour:02}:00" for hour in range(24))


def wide_row(day: str, cells: list[str], category: str = "GC") -> str:
    return ",".join(["1", category, day, *cells, "ok"])


def wide_table(*rows: str, hours: str = HOURS) -> bytes:
    return "\n".join([f"Customer,Category,date,{hours},quality", *rows]).encode()


def test_a_day_a_row() -> None:
    cells = [f"0.{hour:03}" for hour in range(24)]
    table = wide_table(wide_row("01/07/2024", cells), wide_row("01/07/2024", cells, "GG"))
    found = collect(csv_batches(table, WIDE))
    begin = utc("2024-06-30T23:00")  # 00:00 of summer time
    assert list(found.readings.rows()) == [
        ("1", begin + 3600 * hour, 3600, hour) for hour in range(24)
    ]
    assert [tuple(each) for each in found.reasons] == [(Fault.LEFT_OUT.text, 24, "line 3")]


def test_days_on_which_clocks_change() -> None:
    """Columns of 24 h are times of the clock: the skipped one is empty, the repeated one once."""
    spring = ["1"] * 24
    spring[1] = ""
    found = collect(csv_batches(wide_table(wide_row("31/03/2024", spring)), WIDE))
    assert found.malformed == 0
    begin = utc("2024-03-31T00:00")
    assert found.readings.start.tolist() == [begin + 3600 * hour for hour in range(23)]
    filled = collect(csv_batches(wide_table(wide_row("31/03/2024", ["1"] * 24)), WIDE))
    assert filled.problems == (f"line 2: {Fault.TIME_GAP.text}",)
    autumn = collect(
        csv_batches(wide_table(wide_row("27/10/2024", ["1"] * 24)), WIDE)
    ).readings.start
    assert sorted({*range(utc("2024-10-26T23:00"), utc("2024-10-28T00:00"), 3600)} - {*autumn}) == [
        utc("2024-10-27T01:00")
    ]


@pytest.mark.parametrize(
    ("day", "hours"), [("31/03/2024", 23), ("01/07/2024", 24), ("27/10/2024", 25)]
)
def test_columns_of_25_hours_count_from_midnight(day: str, hours: int) -> None:
    by = replace(WIDE, value="1", last_value="25")
    names = ",".join(str(hour) for hour in range(1, 26))
    row = wide_row(day, ["1"] * hours + [""] * (25 - hours))
    found = collect(csv_batches(wide_table(row, hours=names), by))
    assert found.malformed == 0
    begin = datetime.strptime(day, "%d/%m/%Y").replace(tzinfo=ZoneInfo("Europe/London"))
    assert found.readings.start.tolist() == [
        int(begin.timestamp()) + 3600 * hour for hour in range(hours)
    ]


def test_a_bad_cell_or_day_costs_no_other() -> None:
    cells = ["1"] * 24
    cells[3] = "Null"
    rows = [wide_row("01/07/2024", cells), wide_row("soon", ["1"] * 24), "1,GC,01/07/2024,1,ok"]
    found = collect(csv_batches(wide_table(*rows), WIDE))
    assert (len(found.readings), found.malformed) == (23, 26)
    assert {text: (n, first) for text, n, first in found.reasons} == {
        Fault.VALUE.text: (1, "line 2"),
        Fault.TIME.text: (24, "line 3"),
        Fault.FIELDS.text: (1, "line 4"),
    }


@pytest.mark.parametrize(
    "changes", [{"duration_s": 1800}, {"last_value": "22:00"}, {"value": "quality"}]
)
def test_columns_that_make_no_day_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(IntakeError, match="give columns and a duration_s that make 24 or 25 h"):
        collect(csv_batches(wide_table(), replace(WIDE, **changes)))


# ---- encodings


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "utf-8"])
def test_encodings(encoding: str) -> None:
    by = ColumnMapping(
        meter="Zähler", time="Zeit", value="Wärme", duration_s=900, encoding=encoding
    )  # type: ignore[arg-type]
    text = "Zähler,Zeit,Wärme\r\nMühle,2024-01-01T00:00Z,5\r\n"
    data = text.encode(encoding)
    for source in (data, [data[i : i + 1] for i in range(len(data))]):
        assert list(collect(csv_batches(source, by)).readings.rows()) == [
            ("Mühle", utc("2024-01-01T00:00"), 900, 5)
        ]


def test_bytes_that_are_no_text_of_the_encoding_cost_their_line_alone() -> None:
    by = ColumnMapping(meter="m", time="t", value="v", duration_s=900, encoding="cp1252")
    data = b"m,t,v\na\x81,2024-01-01T00:00Z,5\nb,2024-01-01T00:00Z,6\n"
    found = collect(csv_batches(data, by))
    assert found.readings.ids == ("b",)
    assert found.problems == (f"line 2: {Fault.NOT_UTF8.text}",)


# ---- other inputs


def test_both_versions_of_the_api_of_n3rgy() -> None:
    new = {"unit": "kWh", "devices": [{"deviceId": "x", "values": [
        {"timestamp": "2021-02-01 00:30", "primaryValue": 0.063}]}]}  # fmt: skip
    found = parsed("n3rgy", json.dumps(new).encode(), "me")
    assert list(found.readings.rows()) == [("me", utc("2021-02-01T00:00"), 1800, 63)]


def test_a_table_of_days_is_not_taken_for_quarter_hours() -> None:
    text = FILES["fluvius"].read_text().splitlines()[0]
    row = "\n01-02-2024;00:00:00;02-02-2024;00:00:00;541;x;x;Afname Dag;9,5;kWh;x;"
    assert parsed("fluvius", (text + row).encode()).readings.duration.tolist() == [86_400]


def test_production_is_not_taken_for_consumption() -> None:
    data = FILES["enedis"].read_bytes()
    found = parsed("enedis", data.replace(b"Consommation", b"Production"))
    assert len(found.readings) == 0
    assert [tuple(each) for each in found.reasons] == [(Fault.LEFT_OUT.text, 4, "line 5")]


def test_a_day_of_a_register_that_is_missing_is_missing() -> None:
    """An interval counts only where all registers have it: a sum of some would be too low."""
    data = FILES["nem12"].read_bytes().replace(b"300,20240101,10,0,0,A", b"300,20240101,10,x,0,A")
    starts = [row[1] for row in parsed("nem12", data).readings.rows()]
    assert utc("2023-12-31T22:00") not in starts
    assert utc("2023-12-31T14:00") in starts


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"20,2,E1,E1,E1,N1,1,kWh,480,",
        b"2OO,2",
        b"300,2,E1,E1,E1,N1,1,kWh,480,",
        b"400,2000000000,E1,E1",
        b"500,2,E1",
        b"900",
        b"100,NEM12",
        b"200",
    ],
)
@pytest.mark.parametrize("minutes", [480, 1440])
def test_days_below_a_damaged_record_are_of_no_other_home(line: bytes, minutes: int) -> None:
    """They would fill the days that the home before lacks."""
    values = b",1" * (1440 // minutes)
    head = b"200,%d,E1,E1,E1,N1,1,kWh,%d,\n"
    one = b"100,NEM12\n" + head % (1, minutes) + b"300,20240101" + values + b",A,,\n"
    days = b"".join(b"300,202401%02d" % day + values + b",A,,\n" for day in (2, 3))
    third = head % (3, minutes) + b"300,20240102" + values + b",A,,\n"
    found = parsed("nem12", one + line + b"\n" + days + third).readings
    rows = [row for row in found.rows() if row[0] in "13"]
    assert rows == list(parsed("nem12", one + third).readings.rows())


def test_counters_of_many_homes_are_apart() -> None:
    """Telegrams of 1,100 homes in order of time."""
    texts = list[bytes]()
    for time, wh in (("240101000000W", 1), ("240101001500W", 2)):
        for home in range(1100):
            text = f"/X\r\n0-0:1.0.0({time})\r\n0-0:96.1.1({(b'%04d' % home).hex()})\r\n"
            text += f"1-0:1.8.1(00000{wh}.000*kWh)\r\n!"
            texts.append(f"{text}{crc16(text.encode()):04X}\r\n".encode())
    found = list(parsed("dsmr_p1", b"".join(texts)).readings.rows())
    assert [(row[0], row[3]) for row in found] == [(f"{home:04d}", 1000) for home in range(1100)]


def test_telegrams_far_from_a_border_give_no_reading() -> None:
    data = FILES["dsmr_p1"].read_bytes()
    telegrams = [b"/" + each for each in data.split(b"/")[1:]]
    with pytest.raises(IntakeError, match="no two borders"):  # 15 min before and 5 s after one
        parsed("dsmr_p1", b"".join([telegrams[0], *telegrams[2:4]]))
    again = parsed("dsmr_p1", b"".join(telegrams[i] for i in (0, 0, 1, 2, 3)))
    assert [row[3] for row in again.readings.rows()] == [155, 305]
    with pytest.raises(IntakeError, match="no two borders"):
        parsed("dsmr_p1", telegrams[0])


def test_fields_around_a_row_do_not_grow() -> None:
    """Many keys around many rows take no memory for each row."""
    around = {str(i): i for i in range(20_000)}
    row = {"startTime": "2024-01-01T00:00:00Z", "endTime": "2024-01-01T01:00:00Z", "quantity": 1}
    text = json.dumps({"data": {"id": "m", **around, "attributes": {"v": [row] * 20_000}}})
    assert len(parsed("elhub", text.encode()).readings) == 20_000


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("nem12", b"", "must begin with 100,NEM12"),
        ("nem12", b"200,1\n", "must begin with 100,NEM12"),
        ("elhub", b"{", "not one JSON document"),
        ("elhub", b"[" * 100_000, "not one JSON document"),
        ("elhub", b'{"data": []}', "nothing at 'data.attributes.*'"),
        ("elhub", b" " * ((1 << 24) + 1), "beyond 16 MiB"),
        ("enedis", b"a;b\n1;2\n", "no line names the columns"),
        ("sce", b"a,b\n", "no line names the columns"),
        ("fluvius", b"a;b\n", "column 'EAN-code | EAN' is missing"),
        ("dsmr_p1", b"hello", "no two borders"),
    ],
)
def test_inputs_of_another_format(name: str, data: bytes, why: str) -> None:
    with pytest.raises(IntakeError) as caught:
        parsed(name, data, "me")
    assert why in str(caught.value)


def never_breaks(name: str, data: bytes) -> None:
    with contextlib.suppress(IntakeError):
        found = parsed(name, data, "me")
        assert sound(found) or found.problems[0].startswith("telegram ")
        assert found.malformed <= sum(each.rows for each in found.reasons)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=examples(60))
@given(st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    never_breaks(name, data)
    never_breaks(name, FILES[name].read_bytes()[:200] + data)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=examples(100))
@given(EDITS)
def test_edited_samples(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    never_breaks(name, edited(FILES[name].read_bytes(), edits))


@settings(max_examples=examples(100))
@given(
    st.dictionaries(
        st.sampled_from(sorted(ColumnMapping.__dataclass_fields__)),
        st.recursive(
            st.none() | st.text(max_size=3) | st.integers() | st.booleans(),
            lambda inner: st.lists(inner, max_size=2).map(tuple),
            max_leaves=4,
        ),
        max_size=2,
    )
)
def test_any_mapping_is_usable_or_refused(changes: dict[str, Any]) -> None:
    with contextlib.suppress(IntakeError):
        mapping = ColumnMapping(**{"time": "t", "value": "v", "duration_s": 900, **changes})
        collect(format_by(mapping, lambda: FORMAT).batches(b"t,v\n1,2\n", mapping))


def test_the_mapping_of_the_guide_is_usable(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "meter-data.md").read_text()
    own = tmp_path / "own.toml"
    own.write_text(guide.split("```toml\n")[1].split("```")[0])
    text = "a\nb\nZähler;Datum;Uhrzeit;Verbrauch;Richtung\nm;1.7.2024;24:00;12,4;Bezug\n"
    found = collect(csv_batches(text.encode(), mapping_of(str(own))))
    assert list(found.readings.rows()) == [("m", utc("2024-07-01T21:45"), 900, 12)]
