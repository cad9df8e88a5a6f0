"""hushgrid replay as an engineer types it: the page, who may see it, and bad files."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.files.service_file import load_deployment
from hushgrid.lab.evidence import KEPT_PRIVATE, MAY_BE_PUBLISHED, evidence_of
from hushgrid.lab.replay import calendar_days, synthetic_days
from hushgrid.report.dpia import dpia_text
from hushgrid.report.replay import page_values, replay_page, replay_prose
from tests.cli.commands import hushgrid
from tests.lab.evidence import evidence

STEP, HOMES, DAYS = 7200, 20, 22
SMALL = ("--quick", "--bound", 6000, "--train-days", 7)
Change = Callable[[Any], Any]


def zone_file(path: Path, change: Change = lambda wh: wh, days: int = DAYS) -> Path:
    """A file of homes with ids that no figure has."""
    made = synthetic_days(HOMES, days=days, seconds=STEP, usual=3000, bound=20_000, seed=2)
    readings, begins = change(made.readings.astype(float)), calendar_days(made.date)[0]
    rows = ["meter_id,start_utc,duration_s,wh"]
    for home in range(readings.shape[2]):
        flat = readings[:, :, home].ravel()
        times = begins.astype("datetime64[s]") + np.arange(len(flat)) * STEP
        rows += [
            f"MTR-{7_000_000 + home},{time}Z,{STEP},{wh:g}"
            for time, wh in zip(times.tolist(), flat.tolist(), strict=True)
            if wh == wh
        ]
    rows = [row.replace(" ", "T") for row in rows]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A run in a hurry with its public twin: the file, the folder, and what was printed."""
    folder = tmp_path_factory.mktemp("replay")
    file, out = zone_file(folder / "zone.csv"), folder / "out"
    ended = hushgrid(
        "replay", file, *SMALL, "--public", "--jobs", 1, "--out", out, "--dpia", out / "dpia.md"
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return file, out, ended.stdout


Run = tuple[Path, Path, str]


def test_help_with_an_example() -> None:
    ended = hushgrid("replay", "--help")
    assert ended.returncode == 0
    assert "Example: hushgrid replay" in " ".join(ended.stdout.split())


def test_everything_is_for_the_owner_and_says_so(run: Run) -> None:
    _, out, printed = run
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {"replay.html", "evidence.json", "dpia.md"} <= {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    for name in ("replay.html", "evidence.json", "dpia.md"):
        text, twin = (out / name).read_text(), out / "public" / name
        assert KEPT_PRIVATE in text
        assert MAY_BE_PUBLISHED not in text
        if twin.exists():
            assert MAY_BE_PUBLISHED in twin.read_text()
            assert KEPT_PRIVATE not in twin.read_text()
    assert KEPT_PRIVATE in printed


def test_no_home_is_in_any_output(run: Run) -> None:
    file, out, printed = run
    ids = {line.split(",")[0] for line in file.read_text().splitlines()[1:]}
    contents = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    for text in [*contents, printed.encode()]:
        assert not any(name.encode() in text for name in ids)
    values = json.loads((out / "evidence.json").read_text())
    lengths = [len(values["weeks"][0]["exact"])] if values["weeks"] else []
    assert all(length == 7 * 86_400 // STEP for length in lengths)  # prices, the longest lists


@pytest.mark.soak
def test_the_public_page_is_of_public_figures_alone(run: Run, tmp_path: Path) -> None:
    """Other readings of as many homes: the public version is the same."""
    _, out, _ = run
    other = zone_file(tmp_path / "other.csv", lambda wh: np.round(wh * 1.7 + 40))
    again = hushgrid(
        "replay", other, *SMALL, "--public", "--jobs", 1, "--out", tmp_path / "out",
        "--dpia", tmp_path / "dpia.md",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    for name in ("replay.html", "evidence.json", "dpia.md"):
        public = (out / "public" / name).read_text()
        assert public == (tmp_path / "out" / "public" / name).read_text()
        assert public != (out / name).read_text()


@pytest.mark.soak
def test_a_stopped_run_goes_on_to_the_same_figures(run: Run) -> None:
    file, out, _ = run
    before = (out / "evidence.json").read_text()
    (parts,) = out.glob(".parts-*")
    kept = {path: path.stat().st_mtime_ns for path in parts.iterdir()}
    gone = parts / "P7D-1.npz"
    gone.unlink()
    (parts / "P1D-1.npz").write_bytes(b"cut off")
    again = hushgrid(
        "replay", file, *SMALL, "--jobs", 2, "--out", out, "--json", "-"
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == json.loads(before)
    same = [path for path in kept if path.stat().st_mtime_ns == kept[path]]
    assert {path.name for path in same} == {"interval-1.npz", "P14D-1.npz"}


def test_the_figures_are_read_again(run: Run) -> None:
    _, out, printed = run
    figures = evidence_of(json.loads((out / "evidence.json").read_text()))
    assert figures.found.homes == HOMES
    assert figures.found.interval == STEP
    assert figures.found.days == DAYS
    assert len(figures.promises) == 8
    assert {len(attack) for attack in figures.attacks.values()} == {5}
    assert replay_prose(figures) in printed
    exact, *private = figures.attacks["absence"]
    assert exact.detected == 1
    assert all(attack.detected < 1 for attack in private)
    bounded = [attack for rows in figures.attacks.values() for attack in rows if attack.bound]
    assert bounded
    assert all(attack.auc_most <= (attack.bound or 0) + 0.05 for attack in bounded)


def test_the_page_has_all_parts_and_loads_nothing(run: Run) -> None:
    _, out, _ = run
    page = (out / "replay.html").read_text()
    for part in "abcdefg":
        assert f"<h2>({part}) " in page
    assert page.count("data:image/svg+xml") >= 5
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def test_the_service_file_is_that_of_public_figures(tmp_path: Path) -> None:
    from hushgrid.cli.replay import _service_file

    tariff = tmp_path / "tariff.toml"
    tariff.write_text('[tariff]\nalpha = 0.002\nbeta = 0.07\ncap = 2.0\n\n[zone]\nid = "x"\n')
    for own in (None, tariff):
        text = _service_file(evidence(), "Europe/London", own)
        path = tmp_path / "service.toml"
        path.write_text(text)
        from hushgrid.stores.ledger.writer import create
        from hushgrid.stores.meters.block_keys import BlockKeys

        if own is None:
            create(tmp_path / "hushgrid.key")
            BlockKeys(tmp_path / "meters.sqlite.keys").make()
        (zone,) = load_deployment(path, planned=False).zones
        assert zone.seconds == 1800
        assert zone.scenario.zone.n_houses == 100
        assert zone.scenario.zone.bound.tolist() == [7500] * 100
        assert zone.scenario.tariff.beta == (0.05 if own is None else 0.07)
        assert "3600" not in text  # what the homes really use


def test_a_page_without_promise_weeks_or_absence_is_whole() -> None:
    from dataclasses import replace

    from hushgrid.lab.evidence import Recommended

    bare = replace(
        evidence(), weeks=(), attacks={"absence": (), "occupancy": ()}, cuts=(),
        recommended=Recommended(None, None, None, False, ("Nothing pays.",)),
        limits=("With 3 homes nothing can be said.",),
    )  # fmt: skip
    page = replay_page(bare)
    assert "What cannot be concluded" in page
    assert "uses no reading" in page
    assert page_values(bare)["absence_chart"] is None


@pytest.mark.parametrize(
    ("change", "days", "message"),
    [
        (lambda wh: wh[:, :, :1], DAYS, "1 home"),
        (lambda wh: wh, 10, "10 whole days"),
        (lambda wh: wh * 0, DAYS, "every reading is 0 Wh"),
        (lambda wh: np.round(wh / 1000), DAYS, "far too small"),
        (lambda wh: wh * 1000, DAYS, "far too large"),
    ],
)
def test_files_of_which_nothing_can_be_said_get_one_sentence(
    tmp_path: Path, change: Change, days: int, message: str
) -> None:
    ended = hushgrid(
        "replay", zone_file(tmp_path / "bad.csv", change, days), "--out", tmp_path / "out"
    )
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out" / "replay.html").exists()


@pytest.mark.soak
def test_much_that_is_missing_is_a_limit_of_the_page(tmp_path: Path) -> None:
    def gaps(wh: Any) -> Any:
        rng = np.random.default_rng(1)
        return np.where(rng.random(wh.shape) < 0.4, np.nan, wh)

    ended = hushgrid(
        "replay", zone_file(tmp_path / "gaps.csv", gaps), *SMALL, "--jobs", 1, "--out",
        tmp_path / "out", "--json", tmp_path / "figures.json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    limits = json.loads((tmp_path / "figures.json").read_text())["limits"]
    assert any("40 % of the readings are missing" in limit for limit in limits)
    assert stat.S_IMODE((tmp_path / "figures.json").stat().st_mode) == 0o600


def test_contracts_of_homes_are_taken_and_a_missing_one_is_counted(tmp_path: Path) -> None:
    from hushgrid.cli.replay import _of_contracts
    from hushgrid.errors import FileError

    path = tmp_path / "contracts.csv"
    path.write_text("meter_id,kW\na,10\nb,4.6\n")
    assert _of_contracts(path, ["b", "a"], 1800) == [2300, 5000]
    with pytest.raises(FileError, match="1 of 3 homes") as caught:
        _of_contracts(path, ["a", "b", "secret-id"], 1800)
    assert "secret-id" not in str(caught.value)
    path.write_text("meter_id,bound\na,ten\n")
    with pytest.raises(FileError, match="line 2"):
        _of_contracts(path, ["a"], 1800)
    path.write_text("id,kw\na,1\n")
    with pytest.raises(FileError, match="meter_id"):
        _of_contracts(path, ["a"], 1800)


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    ended = hushgrid("replay", "x.csv", "--bound", 5, "--contracts", "y.csv")
    assert ended.returncode == 2
    assert "give one of them" in ended.stderr
    (tmp_path / "none.toml").write_text("[zone]\n")
    ended = hushgrid("replay", "x.csv", "--tariff", tmp_path / "none.toml")
    assert "has no table [tariff]" in ended.stderr
    ended = hushgrid("replay", "x.csv", "--out", tmp_path, "--dpia", tmp_path / "public" / "a.md")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "in the folder of what may be published" in ended.stderr


def test_the_assessment_has_the_figures_of_the_run(run: Run) -> None:
    _, out, _ = run
    values = json.loads((out / "evidence.json").read_text())
    text = (out / "dpia.md").read_text()
    assert text == dpia_text(evidence_of(values))
    (file,) = values["found"]["files"]
    assert file["sha256"] in text
    for row in values["attacks"]["absence"]:
        assert f"| two weeks away | {row['prices']} | {row['homes']} | {row['auc']:.3f} |" in text
