"""One home's history stops neither a pooled nor a private run, whatever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hushgrid.cli.learn import _write
from hushgrid.errors import FileError, ModelError
from hushgrid.files.readings import read_histories
from hushgrid.files.zone_file import load_zone
from hushgrid.learning import export as offering
from hushgrid.learning.evaluation import check_law
from hushgrid.learning.export import ZoneChoices, export_models
from hushgrid.learning.habits import assumed_habits
from hushgrid.learning.histories import Histories
from hushgrid.learning.learner import LearningTerms, learn
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.model.laws import LogNormal
from tests.learning.homes import BEGINS, STEPS, csv, histories, lived_in, public, run

DAY = 48
HABITS = assumed_habits(1800)


def strange(kind: str) -> np.ndarray:
    """A home's readings [Wh] on 28 days of half hours."""
    rng = np.random.default_rng(1)
    steady = np.rint(20_000 * rng.lognormal(0, 0.03, STEPS))
    day = np.arange(STEPS) // DAY
    if kind == "huge, then silent":
        return np.where(day < 21, steady, np.nan)
    if kind == "huge, then low":
        return np.where(day < 21, steady, rng.integers(20, 40, STEPS)).astype(float)
    if kind == "low, then huge":
        return np.where(day < 21, rng.integers(20, 40, STEPS), steady).astype(float)
    if kind == "zero and huge in turn":
        return np.where(np.arange(STEPS) % 2, steady, 0)
    if kind == "huge":
        return steady
    if kind == "first days":
        return np.where(day < 4, steady, np.nan)
    if kind == "last days":
        return np.where(day > 23, steady, np.nan)
    raise ValueError(kind)


KINDS = (
    "huge", "huge, then silent", "huge, then low", "low, then huge", "zero and huge in turn",
    "first days", "last days",
)  # fmt: skip


def zone_with(kind: str, homes: int) -> Histories:
    wh = lived_in(homes)[0]
    wh[homes // 2] = strange(kind)
    return replace(histories(wh), declared=True)


def test_one_home_does_not_decide_whether_a_pooled_run_succeeds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = csv(tmp_path / "readings.csv", zone_with("huge, then silent", 15).wh)
    asked = ["--pool-budget", "1", "--no-figures", *public(tmp_path, 15)]
    out = tmp_path / "out"
    assert run("learn", "--readings", str(file), *asked, "--out", str(out)) == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"hushgrid.key", "model.json", "service.toml", "theta.json"}
    assert "mass" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (KINDS[1], "lognormal"),
        pytest.param(KINDS[1], "gamma", marks=pytest.mark.soak),
        *(
            pytest.param(kind, "lognormal", marks=pytest.mark.soak)
            for kind in KINDS
            if kind != KINDS[1]
        ),
        pytest.param(KINDS[1], "auto", marks=pytest.mark.soak),
    ],
)
def test_a_private_run_takes_any_home(kind: str, law: str, tmp_path: Path) -> None:
    """Its zone file loads: a law beyond the bound is that of the clamped reading."""
    found = zone_with(kind, 3)
    result = learn(found, HABITS, LearningTerms(law=law, prototypes=0, iterations=5, groups=(24,)))  # type: ignore[arg-type]
    asked = ZoneChoices(bound=2000)
    made = export_models(result, found, asked, SimulatedNoise(1))
    for one in made.public:
        (absent, *_), present = one.laws(2000)
        assert all(each.pmf.sum() == pytest.approx(1) for each in (absent, *present))
    _write(tmp_path, result, made, asked, None)
    assert len(load_zone(tmp_path / "zone.toml").meters) == 3
    judged = offering.operator_figures(result, made, found, HABITS)
    assert np.isfinite(judged.daily).all()


@pytest.mark.parametrize("law", ["lognormal", pytest.param("gamma", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled
def test_figures_of_a_pooled_run_take_any_home(kind: str, law: str) -> None:
    found = zone_with(kind, 15)
    result = learn(
        found,
        HABITS,
        LearningTerms(law=law, iterations=5, groups=(24,)),  # type: ignore[arg-type]
        pooled=True,
    )
    assert (result.shared, result.held_out, result.trust) == (None, None, None)
    asked = ZoneChoices(pool_budget=1.0)
    made = export_models(result, found, asked, SimulatedNoise(1))
    judged = offering.operator_figures(result, made, found, HABITS)
    assert judged.held_out is not None
    assert np.isfinite(judged.held_out.log_likelihood)
    with pytest.raises(ModelError, match="pool budget"):
        export_models(result, found, ZoneChoices(), SimulatedNoise(1))


def test_public_files_are_written_before_any_figure_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A figure that cannot be computed comes too late to keep them back."""

    def broken(*_: object) -> None:
        raise ModelError("a figure is missing; this is a test.")

    monkeypatch.setattr(offering, "estimate_trust", broken)
    file = csv(tmp_path / "readings.csv", lived_in(15)[0][:, : 5 * DAY])
    asked = ["--pool-budget", "1", "--no-figures", *public(tmp_path, 15)]
    out = tmp_path / "out"
    assert run("learn", "--readings", str(file), *asked, "--out", str(out)) == 2
    names = {path.name for path in out.iterdir()}
    assert names == {"hushgrid.key", "service.toml", "theta.json"}


def test_a_bin_without_mass_bounds_nothing() -> None:
    law = LogNormal(0.1, 0.05, 100)  # all of it is on 0 Wh
    cell = check_law("one", law, np.array([0.0, 0, 0, 7]), np.arange(4), 0.95, 1)
    assert cell.point == pytest.approx(0.25)
    assert 0 <= cell.lower < 0.25 < cell.upper <= 1


def labelled(folder: Path, labels: str | pa.Table, *, declared: bool = True) -> Histories:
    """Two homes of three days with labels of a file."""
    wh = lived_in(2)[0][:, : 3 * DAY]
    table = isinstance(labels, pa.Table)
    file = folder / f"labels.{'parquet' if table else 'csv'}"
    if table:
        parquet.write_table(labels, file)
    else:
        file.write_bytes(labels.encode("utf-8", "surrogateescape"))
    return read_histories(
        csv(folder / "readings.csv", wh),
        mapping="canonical",
        time_zone="UTC",
        seconds=1800,
        begins=BEGINS,
        ends=BEGINS + 1800 * 3 * DAY,
        meters=["m000", "m001"] if declared else None,
        labels=file,
    )


HEAD = "meter_id,start_utc,occupied,note\n"


@pytest.mark.parametrize(
    "row",
    [
        f'm000,{BEGINS},1,"',
        f'"m000,{BEGINS},1,',
        f"m000,{BEGINS},300,",
        f"m000,{BEGINS},{10**30},",
        f"m000,{10**30},1,",
        f"m000,{BEGINS},maybe,",
        "m000,2013-02-30T00:00:00Z,1,",
        "m000,2013-01-04T00:00:00,1,",
        f"m000,{BEGINS},1,\udcff",
        f"m000,{BEGINS},1,{'x' * 70_000}",
        "m000",
    ],
)
def test_a_row_that_is_no_label_harms_itself_alone(tmp_path: Path, row: str) -> None:
    """With a public axis it is dropped; else the command refuses the file in one sentence."""
    others = "".join(f"m001,{BEGINS + 1800 * t},{t % 2},\n" for t in range(9))
    found = labelled(tmp_path, f"{HEAD}{row}\n{others}")
    assert found.labels is not None
    assert found.labels[1, :9].tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert (found.labels[0] == -1).all()
    assert found.counts["rows that are no label"] == 1
    with pytest.raises(FileError, match=r"row 1 of .* is no label"):
        labelled(tmp_path, f"{HEAD}{row}\n{others}", declared=False)


def test_labels_of_a_table_are_read_one_by_one(tmp_path: Path) -> None:
    far = pa.array([2**54, 1000 * BEGINS, 1000 * BEGINS], pa.timestamp("ms", "UTC"))
    names = pa.array(["m000", "m000", "m001"])
    table = pa.table({"meter_id": names, "start_utc": far, "occupied": [300, 300, 1]})
    endless = pa.table(
        {"meter_id": names, "start_utc": [float("inf"), float("nan"), BEGINS], "occupied": [1] * 3}
    )
    for one in (table, endless):
        found = labelled(tmp_path, one)
        assert found.labels is not None
        assert found.labels[:, 0].tolist() == [-1, 1]
        assert found.counts["rows that are no label"] == 2
    with pytest.raises(FileError, match="no column 'occupied'"):
        labelled(tmp_path, table.select(["meter_id", "start_utc"]))


@pytest.mark.parametrize("seconds", [86_400, 28_800])
def test_steps_longer_than_a_slot_group_are_refused(seconds: int) -> None:
    steps = 28 * 86_400 // seconds
    wh = np.random.default_rng(1).integers(500, 9000, (2, steps)).astype(float)
    shown = np.arange(steps) * seconds % (7 * 86_400)
    found = Histories(("a", "b"), wh, seconds, BEGINS, shown, {})
    with pytest.raises(ModelError, match=f"interval is {seconds} s.*at most 21600 s"):
        learn(found, assumed_habits(seconds), LearningTerms(law="lognormal", iterations=5))
