"""Files of public data sets: their layouts, what they hold, and what is said to be wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.errors import IntakeError
from hushgrid.files.datasets import recognise, verify
from hushgrid.files.layouts import layout_of
from hushgrid.intake.eco import eco_day
from hushgrid.report.datasets import report_json, report_prose
from tests.cli.commands import hushgrid
from tests.intake.export_files import FILES

DATA = Path(__file__).parents[3] / "shared" / "data"
SHARED = {  # as the README beside them says
    "lcl/readings_2013_100homes.parquet": ("lcl", 100, 1_674_718, 1800),
    "sgsc/readings_2013_50homes.parquet": ("sgsc", 50, 875_296, 1800),
    "eco_house2/eco_house2_15min.parquet": ("eco", 1, 4250, 900),
}


def quiet(_: int) -> None:
    """No progress."""


def report(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(report_json(verify(path, quiet))))
    return values


# ---- files as their publishers have them, made up


def lcl(path: Path, homes: int = 2, days: int = 2, factor: float = 1.0, odd: str = "") -> Path:
    """A block of homes; each half hour has 0.2 kWh and a little more from home to home."""
    rows = ["LCLid,stdorToU,DateTime,KWH/hh (per half hour) ,Acorn,Acorn_grouped"]
    for home in range(homes):
        for half in range(48 * days):
            day, clock = 1 + half // 48, f"{half % 48 // 2:02}:{half % 2 * 30:02}"
            kwh = (0.2 + home / 100) * factor
            rows.append(
                f"MAC{home:06},Std,2013-01-{day:02} {clock}:00.0000000, {kwh:.6g} ,ACORN-A,Affluent"
            )
    path.write_text("\n".join([*rows, odd]) + "\n")
    return path


def eco(folder: Path, date: str, watts: np.ndarray[Any, Any]) -> Path:
    """A day of household 2 in its folder."""
    place = folder / "02_sm_csv" / "02" / f"{date}.csv"
    place.parent.mkdir(parents=True, exist_ok=True)
    others = ",".join(["0.1"] * 15)
    place.write_text("".join(f"{w:g},{others}\n" for w in watts))
    return place


def test_low_carbon_london_as_it_is_published(tmp_path: Path) -> None:
    path = lcl(tmp_path / "CC_LCL-FullData.csv")
    values = report(path)
    assert (values["ok"], values["layout"], values["unit"]) == (True, "lcl", "kWh")
    assert values["dataset"]["name"] == "lcl"
    assert (values["homes"], values["readings"], values["interval_s"]) == (2, 192, 1800)
    assert (values["first"], values["last"]) == ("2013-01-01T00:00Z", "2013-01-03T00:00Z")
    assert values["kwh_a_day"] == pytest.approx(48 * 0.205)
    assert values["files"] == [
        {
            "file": str(path),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "known": None,
        }
    ]


@pytest.mark.parametrize(
    ("name", "dataset", "interval"),
    [
        ("lcl", "lcl", 1800),
        ("lcl_blocks", "lcl", 1800),
        ("sgsc", "sgsc", 1800),
        ("ausgrid", "ausgrid", 1800),
        ("ausgrid_2010", "ausgrid", 1800),
    ],
)
def test_each_layout_is_named(name: str, dataset: str, interval: int) -> None:
    recognised = recognise(FILES[name])
    assert (recognised.layout, recognised.unit) == (name, "kWh")
    assert recognised.dataset is not None
    assert (recognised.dataset.name, recognised.dataset.interval) == (dataset, interval)
    assert layout_of(FILES[name]).name == name  # a replay takes the same one


def test_a_year_of_ausgrid_is_read_by_the_clocks_of_sydney(tmp_path: Path) -> None:
    title, head, *_ = FILES["ausgrid"].read_text().splitlines()
    rows = [
        f"{home},3.78,2076,{kind},{day}/07/2012," + ",".join(["0.25"] * 48) + ","
        for home in range(1, 4)
        for day in range(1, 8)
        for kind in ("CL", "GC", "GG")
    ]
    path = tmp_path / "2012-2013 Solar home electricity data v2.csv"
    path.write_text("\n".join([title, head, *rows]) + "\n")
    values = report(path)
    assert (values["ok"], values["homes"], values["readings"]) == (True, 3, 3 * 7 * 48)
    assert values["first"] == "2012-06-30T14:00Z"
    assert list(values["reasons"].values()) == [2 * 3 * 7 * 48]  # left out
    assert values["kwh_a_day"] == pytest.approx(12)


def test_days_of_eco_become_quarter_hours(tmp_path: Path) -> None:
    watts = np.full(86_400, 400.0)
    watts[900:1800] = 100.0
    watts[1800:1880] = -1  # 80 of 900 seconds lack: nine in ten are there
    watts[2700:2800] = -1  # 100 lack
    path = eco(tmp_path, "2012-06-01", watts)
    (parsed,) = recognise(path).batches(path, quiet)
    rows = list(parsed.readings.rows())
    midnight = 1_338_501_600  # 2012-05-31T22:00Z
    assert rows[:3] == [
        ("eco-02", midnight + 900 * k, 900, wh) for k, wh in enumerate((100, 25, 100))
    ]
    assert [row[1] for row in rows[3:]] == [midnight + 900 * k for k in range(4, 96)]
    assert (parsed.malformed, parsed.problems) == (
        1,
        ("line 2701: too few of its seconds are there",),
    )
    eco(tmp_path, "2012-06-02", watts)
    values = report(tmp_path / "02_sm_csv")
    assert (values["ok"], values["dataset"]["name"], values["unit"]) == (True, "eco", "W")
    assert (values["homes"], values["readings"], len(values["files"])) == (1, 190, 2)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"1,2\n" * 86_399, "it has 86399 lines; a day of ECO has 86400"),
        (b"1,2\n" * 9 + b"x,2\n", "line 10 does not begin with a number and a comma"),
        (b"1 2\n", "line 1 does not begin with a number and a comma"),
    ],
)
def test_a_day_of_eco_that_is_none_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(IntakeError, match=why):
        eco_day(content, "eco-02", 0)


def test_a_day_of_eco_says_its_day_and_home_by_its_place(tmp_path: Path) -> None:
    path = eco(tmp_path, "2012-06-01", np.full(10, 1.0))
    for name in ("2012-06-31.csv", "day.csv"):
        path = path.rename(path.with_name(name))
        with pytest.raises(IntakeError, match="as it was unpacked"):
            recognise(path)
    other = tmp_path / "2012-06-01.csv"
    other.write_bytes(path.read_bytes())
    with pytest.raises(IntakeError, match=r"02_sm_csv/02/2012-06-01\.csv"):
        recognise(other)


# ---- what is wrong


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"factor": 0.01}, "a mean home takes 0.096 kWh a day"),
        ({"factor": 1000}, "look whether the unit is another one"),
        ({"homes": 1, "odd": "MAC000000,Std,2013-06-01 00:00:00, 1 ,A,B"}, "99% of the readings"),
        ({"odd": "house,Std,2013-01-01 00:00:00, 1 ,A,B"}, "1 of 3 homes are not named as"),
        ({"odd": "MAC000001,Std,2016-01-01 00:00:00, 1 ,A,B"}, "outside the time of Low Carbon"),
        ({"odd": "MAC000001,Std\n" * 30}, "14% of its rows give no reading, first line 194"),
        ({"odd": "MAC000000,Std,2013-01-01 00:00:00, 0.3 ,A,B"}, "1 of 2 homes have more readings"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    problems = verify(lcl(tmp_path / "lcl.csv", **changes), quiet).problems
    assert [problem for problem in problems if why in problem], problems
    assert all(problem.count(". ") == 0 and problem.endswith(".") for problem in problems)


def test_readings_of_another_length_are_said(tmp_path: Path) -> None:
    """Hours in the place of half hours: of Low Carbon London by the names of its homes."""
    rows = ["meter_id,start_utc,duration_s,wh"]
    rows += [f"MAC000002,2013-01-0{1 + k // 24}T{k % 24:02}:00Z,3600,400" for k in range(48)]
    (tmp_path / "hours.csv").write_text("\n".join(rows) + "\n")
    found = verify(tmp_path / "hours.csv", quiet)
    assert found.layout == "canonical"
    assert found.dataset is not None
    assert found.dataset.name == "lcl"
    assert [p for p in found.problems if "do not last 30 minutes" in p]


def test_canonical_columns_are_of_no_set(tmp_path: Path) -> None:
    rows = [f"a,2013-01-0{1 + k // 24}T{k % 24:02}:00Z,3600,400" for k in range(48)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["meter_id,start_utc,duration_s,wh", *rows]) + "\n")
    found = verify(path, quiet)
    assert (found.layout, found.dataset, found.problems) == ("canonical", None, ())
    assert "of no data set that is known here" in report_prose(found)


def test_no_home_is_named_and_no_reading_told(tmp_path: Path) -> None:
    found = verify(lcl(tmp_path / "lcl.csv", odd="house-of-ann,Std,x, 1 ,A,B"), quiet)
    for text in (report_prose(found), json.dumps(report_json(found))):
        assert "MAC0" not in text
        assert "ann" not in text


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.sampled
def test_the_sets_beside_the_project_are_known(name: str) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip("no such data beside the project")
    found = verify(path, quiet)
    dataset, homes, readings, interval = SHARED[name]
    assert found.problems == ()
    assert found.dataset is not None
    assert found.dataset.name == dataset
    assert found.files[0].known is not None
    tally = found.tally
    assert (len(tally.homes), tally.readings, tally.interval) == (homes, readings, interval)


# ---- the command


def test_the_command_says_what_it_found(tmp_path: Path) -> None:
    answer = hushgrid("data", "verify", lcl(tmp_path / "lcl.csv"))
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "2 homes, 192 readings of 30 minutes, written in kWh" in answer.stdout
    assert "SHA-256 " in answer.stdout
    assert answer.stdout.rstrip().endswith("good")
    broken = lcl(tmp_path / "broken.csv", factor=0.001)
    answer = hushgrid("data", "verify", tmp_path / "lcl.csv", broken, "--json", "-")
    values = json.loads(answer.stdout)
    assert (answer.returncode, values["ok"]) == (1, False)
    assert [each["ok"] for each in values["data"]] == [True, False]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"PK\x03\x04", "is packed; unpack it"),
        (b"a,b\n1,2\n", "has the layout of no public data set that is known"),
        (b"", "has the layout of no public data set that is known"),
        (b"LCLid,DateTime,KWH/hh (per half hour)\n", "has the layout of no public data set"),
        (None, "No such file"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "file.csv"
    if content is not None:
        path.write_bytes(content)
    answer = hushgrid("data", "verify", path)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert why in answer.stderr


def test_a_folder_has_one_layout(tmp_path: Path) -> None:
    lcl(tmp_path / "lcl.csv")
    (tmp_path / "sgsc.csv").write_bytes(FILES["sgsc"].read_bytes())
    answer = hushgrid("data", "verify", tmp_path)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "layouts lcl and sgsc" in answer.stderr
    (tmp_path / "empty").mkdir()
    answer = hushgrid("data", "verify", tmp_path / "empty")
    assert "is a folder without .csv or .parquet" in answer.stderr
