"""The layout of a file is found from its rows: columns, units, times, steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from hushgrid.errors import FileError, IntakeError
from hushgrid.files.layouts import layout_of, read_homes
from hushgrid.learning.histories import DAY
from tests.intake.renderings import (
    Row,
    as_arrow,
    as_csv,
    as_espi,
    as_json,
    as_ndjson,
    as_parquet,
)

EXPORTS = sorted((Path(__file__).parent.parent / "intake" / "exports").iterdir())
BEGIN = datetime(2024, 3, 4)  # a Monday


def written(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def times(count: int, minutes: int) -> list[datetime]:
    return [BEGIN + timedelta(minutes=minutes * n) for n in range(count)]


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.name)
def test_an_export_is_read_by_its_own_mapping(path: Path) -> None:
    assert layout_of(path).name == path.stem


def test_half_hours_of_london_need_no_option(tmp_path: Path) -> None:
    rows = [
        f"MAC{home:06},Std,{at:%Y-%m-%d %H:%M:%S}.0000000,{0.1 * (home + 1):.1f}"
        for home in range(3)
        for at in times(96, 30)
    ]
    path = written(tmp_path / "uk.csv", "LCLid,stdorToU,DateTime,KWH/hh (per half hour) ", rows)
    homes = read_homes([path])
    assert homes.histories.seconds == 1800
    assert homes.histories.wh.shape == (3, 96)
    assert homes.histories.wh[:, 0].tolist() == [100, 200, 300]
    assert homes.time_zone == "UTC"


def test_quarter_hours_with_two_registers_need_no_option(tmp_path: Path) -> None:
    rows = [
        f"home {home};{at:%d.%m.%Y %H:%M};{register};{value}"
        for home in range(2)
        for at in times(192, 15)
        for register, value in (("import", "0,125"), ("export", "0,500"))
    ]
    path = written(tmp_path / "roofs.csv", "Meter;Time;Register;Energy (kWh)", rows)
    homes = read_homes([path])
    assert homes.histories.seconds == 900
    assert np.nanmax(homes.histories.wh) == 125
    assert any("left out" in note for note in homes.notes)


def test_columns_of_both_directions_are_told_apart(tmp_path: Path) -> None:
    rows = [
        f"{home},{at.isoformat()}+01:00,900,{40},{7}" for home in range(2) for at in times(96, 15)
    ]
    header = "household,start,duration_s,export_wh,import_wh"
    homes = read_homes([written(tmp_path / "roofs.csv", header, rows)])
    assert np.unique(homes.histories.wh).tolist() == [7]


def test_hours_of_local_clocks_take_a_time_zone(tmp_path: Path) -> None:
    begin = datetime(2024, 3, 30)  # the clocks of Zurich go forward on the 31st
    rows = [
        f"{home},{at:%d/%m/%Y %H:%M},0.4"
        for home in ("a", "b")
        for at in (begin + timedelta(hours=n) for n in range(96))
        if at != datetime(2024, 3, 31, 2)
    ]
    path = written(tmp_path / "hours.csv", "customer,date,kWh", rows)
    plain, local = read_homes([path]), read_homes([path], time_zone="Europe/Zurich")
    assert any("Give --time-zone" in note for note in plain.notes)
    assert local.time_zone == "Europe/Zurich"
    assert local.histories.wh.shape == (2, 95)
    assert local.histories.local_time[0] % DAY == 0
    assert np.isfinite(local.histories.wh).all()


def test_days_before_months_where_months_would_not_pass_evenly(tmp_path: Path) -> None:
    rows = [f"a,{at:%d/%m/%Y %H:%M},300" for at in times(8 * 24, 60)]
    homes = read_homes([written(tmp_path / "a.csv", "id,timestamp,wh", rows)])
    assert homes.histories.wh.shape == (1, 192)


def test_a_day_a_row(tmp_path: Path) -> None:
    clocks = [f"{n // 2:02}:{n % 2 * 30:02}" for n in range(48)]
    rows = [f"{home},{at:%d/%m/%Y}," + ",".join(["0.2"] * 48)
            for home in ("a", "b") for at in times(14, 1440)]  # fmt: skip
    homes = read_homes([written(tmp_path / "wide.csv", "customer,date," + ",".join(clocks), rows)])
    assert homes.histories.wh.shape == (2, 14 * 48)
    assert homes.histories.wh[0, 0] == 200


def test_files_without_meters_are_a_home_each(tmp_path: Path) -> None:
    rows = [f"{at.isoformat()}Z,0.3" for at in times(96, 30)]
    for name in ("north", "south"):
        written(tmp_path / f"{name}.csv", "timestamp,consumption", rows)
    homes = read_homes([tmp_path])
    assert homes.histories.ids == ("north", "south")
    assert np.unique(homes.histories.wh).tolist() == [300]
    assert any("by their size" in note for note in homes.notes)


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("a,b", ["1,2", "3,4"], "no column of times"),
        ("id,timestamp,colour", ["a,2024-01-01T00:00Z,red"] * 2, "no column of energy"),
        ("one", ["1"], "names no columns"),
        ("id,time,kwh", ["a,soon 12-12-12,1"] * 2, "form of its times"),
    ],
)
def test_what_is_not_seen_is_said_in_one_sentence(
    tmp_path: Path, header: str, rows: list[str], message: str
) -> None:
    path = written(tmp_path / "bad.csv", header, rows)
    with pytest.raises(IntakeError, match=message) as caught:
        layout_of(path)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="without files"):
        read_homes([tmp_path])


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
def test_tables_of_arrow_are_known_by_their_columns(tmp_path: Path, suffix: str) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    count = 96
    table = pa.table(
        {
            "home": ["a"] * count + ["b"] * count,
            "time": [at.isoformat() + "Z" for at in times(count, 30)] * 2,
            "usage_kwh": [0.25] * (2 * count),
        }
    )
    path = tmp_path / f"zone{suffix}"
    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    homes = read_homes([path])
    assert homes.histories.ids == ("a", "b")
    assert np.unique(homes.histories.wh).tolist() == [250]


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(IntakeError, match="no whole Arrow or Parquet"):
        layout_of(path)


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("zone.csv", as_csv),
        ("zone.json", as_json),
        ("zone.ndjson", as_ndjson),
        ("zone.parquet", as_parquet),
        ("zone.arrow", as_arrow),
        ("zone.xml", as_espi),
    ],
)
def test_every_format_of_intake_is_read(
    tmp_path: Path, name: str, render: Callable[[Sequence[Row]], bytes]
) -> None:
    points = [f"RetailCustomer/{home}/UsagePoint/01" for home in "ab"]
    rows = [(point, 1800 * n, 1800, 100 + n) for point in points for n in range(48)]
    (tmp_path / name).write_bytes(render(rows))
    homes = read_homes([tmp_path / name])
    assert homes.histories.wh.shape == (2, 48)
    assert homes.histories.wh[0].tolist() == [100 + n for n in range(48)]
