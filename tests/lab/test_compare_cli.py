"""hushgrid compare and hushgrid floor as a user types them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest

from hushgrid.cli.compare import recorded_source
from hushgrid.errors import PlanError
from tests.cli.commands import hushgrid

SGSC = Path(__file__).parents[3] / "shared/data/sgsc/readings_2013_50homes.parquet"
SURVEY = Path(__file__).parents[3] / "shared/data/occupancy_survey/chains.parquet"
FEW = (
    "--zones",
    1,
    "--houses",
    30,
    "--chart-days",
    0,
    "--attack-days",
    0,
    "--no-batteries",
    "--days",
    2,
)


@pytest.mark.parametrize("command", ["compare", "floor"])
def test_help_with_an_example(command: str) -> None:
    found = hushgrid(command, "--help")
    assert found.returncode == 0
    assert f"Example: hushgrid {command}" in " ".join(found.stdout.split())


@pytest.mark.soak
def test_compare_writes_what_it_names_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two of the five points of the chart: a chart, and something to take up again
    monkeypatch.setattr(import_module("hushgrid.cli.compare"), "CURVE", (0.3, 1.0))
    words = (
        "compare",
        "--zones",
        1,
        "--houses",
        10,
        "--chart-days",
        2,
        "--attack-days",
        0,
        "--days",
        2,
    )
    words = (*words, "--no-batteries", "--out", tmp_path)
    first = hushgrid(*words, "--json", tmp_path / "one.json")
    assert (first.returncode, first.stderr) == (0, "")
    named = [Path(line.strip()) for line in first.stdout.split("Written:")[1].splitlines()[1:]]
    assert {p.suffix for p in named} == {".md", ".html", ".json", ".png", ".svg"}
    assert all(p.exists() for p in named)
    page = (tmp_path / "compare.html").read_text()
    assert "<svg" in page
    assert "<table>" in page
    lines = (tmp_path / "days.jsonl").read_text().splitlines()
    assert len(lines) == 3
    again = hushgrid(*words, "--json", tmp_path / "two.json")
    assert again.returncode == 0
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()
    assert (tmp_path / "days.jsonl").read_text().splitlines() == lines
    other = hushgrid(*words, "--seed", 2)
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "other settings" in other.stderr


def test_a_promise_some_cannot_give(tmp_path: Path) -> None:
    found = hushgrid("compare", *FEW, "--secret", "step", "--epsilon", 10, "--out", tmp_path)
    assert found.returncode == 0
    values = json.loads((tmp_path / "compare.json").read_text())
    assert set(values["refused"]) == {"dphmm"}
    assert not set(values["refused"]) & set(values["mechanisms"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--secret", "year"), "'year' is not one of 'step', 'interval'"),
        (("--epsilon", "nan"), "epsilon is nan"),
        (("--eta", "1"), "eta is 1.0"),
        (("--shock", "1.5"), "shock is 1.5"),
        (("--world", "moon"), "'moon' is not one of 'paper', 'large', 'survey'"),
        (("--method", "magic"), "method is 'magic'; give one of hushgrid_eta0, hushgrid_eta05,"),
        (("--world", "survey"), "chains is unset"),
        (("--readings", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("--config", "examples/release.toml"), "config is set without readings"),
        (("--secret", "window"), "secret is window without readings"),
        (("--clamp", "700"), "block or clamp is set without the secret window"),
    ],
)
def test_bad_input(tmp_path: Path, words: tuple, message: str) -> None:
    found = hushgrid("compare", *FEW, "--out", tmp_path, *words)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert message in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.soak
@pytest.mark.skipif(not SGSC.exists(), reason="the data of real homes is not here.")
def test_real_readings(tmp_path: Path) -> None:
    """Six days of 50 real homes: eta = 0.05 needs less noise than eta = 1, and than group privacy.

    Both have the planner's clamp, which brings them closer together than contract bounds do.
    """
    found = hushgrid("compare", *FEW, "--days", 6, "--readings", SGSC, "--out", tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    ratios = json.loads((tmp_path / "compare.json").read_text())["ratios"]
    assert ratios["bound_independent_over_hushgrid_eta05"]["raw"]["ci95"][0] > 2
    assert ratios["group_over_hushgrid_eta05"]["raw"]["ci95"][0] > 5
    zone = hushgrid("compare", *FEW, "--readings", SGSC, "--config", "examples/release.toml",
                    "--out", tmp_path / "given")  # fmt: skip
    assert zone.returncode == 2
    assert "every step of 900 s" in zone.stderr


ZONE = """
format = 1

[zone]
id = "lane"
[service]
interval = 3600
time_zone = "Europe/Zurich"
[tariff]
alpha = 1.0
beta = 1.0
[policy]
epsilon = 1.0
[[houses]]
count = 2
meters = ["zoe", "ada"]
bound = 3000
chain = "one"
absent = { law = "uniform", top = 200 }
present = { law = "uniform", top = 900 }
[[models]]
[models.chains.one]
home_at_start = 0.5
periods = [{ from = "00:00", leave = 0.2, come = 0.2 }]
weekend = [{ from = "00:00", leave = 0.1, come = 0.4 }]
"""


@pytest.mark.soak
def test_a_zone_file_finds_its_meters_steps_and_days(tmp_path: Path) -> None:
    """Hours, local days and the meters' order come from the file; other meters are left alone."""
    zone, readings = tmp_path / "zone.toml", tmp_path / "readings.csv"
    zone.write_text(ZONE)
    start = datetime(2013, 3, 29, tzinfo=UTC)
    rows = ["meter_id,start_utc,duration_s,wh"]
    for hour in range(24 * 5):
        at = (start + timedelta(hours=hour)).isoformat()
        rows += [f"{name},{at},3600,{wh}" for name, wh in (("ada", 1), ("bob", 2), ("zoe", 3000))]
    readings.write_text("\n".join(rows) + "\n")
    source, told = recorded_source(readings, "canonical", zone, None, None, None, None, None)
    assert told == "given by a zone or service file"
    assert source.readings[0, 0].tolist() == [3000, 1]  # zoe's house is the first
    assert [source.zone_of(day) for day in range(3)] == [0, 1, 1]  # Saturday, Monday, Tuesday
    with pytest.raises(PlanError, match="steps of config last 3600 s"):
        recorded_source(readings, "canonical", zone, None, 1800, None, None, None)
    later, _ = recorded_source(readings, "canonical", zone, None, None, None, 1, None)
    assert later.before is not None
    assert [one.date[0] % 7 for one in (later.before, later)] == [5, 0]
    with pytest.raises(PlanError, match="no day with a value in every step of 1800 s"):
        recorded_source(readings, "canonical", None, None, 1800, None, 90, None)
    words = ("compare", *FEW[4:], "--readings", readings, "--config", zone, "--out", tmp_path / "o")
    found = hushgrid(*words)
    assert (found.returncode, found.stderr) == (0, "")
    assert json.loads((tmp_path / "o/compare.json").read_text())["days"] == 2
    zone.write_text(ZONE.replace("home_at_start = 0.5", "home_at_start = 0.6"))
    other = hushgrid(*words)  # the same words, another model
    assert (other.returncode, "other settings" in other.stderr) == (2, True)
    zone.write_text(ZONE.replace('"zoe"', '"eve"'))
    with pytest.raises(PlanError, match="names 1 meters without readings, such as 'eve'"):
        recorded_source(readings, "canonical", zone, None, None, None, None, None)


@pytest.mark.skipif(not SURVEY.exists(), reason="the survey is not here.")
@pytest.mark.soak
def test_survey_chains(tmp_path: Path) -> None:
    words = ("--world", "survey", "--chains", SURVEY, "--out", tmp_path)
    found = hushgrid("compare", *FEW, *words)
    assert (found.returncode, found.stderr) == (0, "")


def test_floor() -> None:
    found = hushgrid("floor", "--absent", 500, "--present", 1000, "--cells", 20, "--json", "-")
    values = json.loads(found.stdout)
    assert values["floor"] == pytest.approx(0.654, abs=0.0006)
    assert values["sd"]["hushgrid_eta0"] == pytest.approx(0.850, abs=0.001)
    assert values["sd"]["bound"] == pytest.approx(2.828, abs=0.001)
    bad = hushgrid("floor", "--absent", 0, "--present", 1000)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1)
