"""Commands as a user types them: words in; text, files and an exit code out."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hushgrid.lab import paper as sweeps
from tests.cli.commands import EXAMPLE, ROOT, hushgrid, hushgrid_process
from tests.examples import SOAK

COMMANDS = ("demo", "loop", "paper", "plan", "simulate")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    found = hushgrid(command, "--help")
    assert found.returncode == 0
    assert f"Example: hushgrid {command}" in " ".join(found.stdout.split())
    assert "--json" in found.stdout
    assert "--seed" in found.stdout


def test_help_and_serve_import_nothing_heavy() -> None:
    code = (
        "import sys\nfrom hushgrid.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'scipy', 'opendp', 'matplotlib'} & set(sys.modules)\n"
        "import hushgrid.operate.process\n"  # what a first price does not need
        "heavy |= {'numba', 'httpx', 'matplotlib', 'pandas', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


PAPER = ("paper", "--days", 3, "--sweep-days", 2, "--seed", 4)
SWEEPS = ("SIZES", "CERTAIN", "COUNTS", "ETAS", "SIGMAS")
# two points of each sweep, but in make soak
FEW = f"""
from hushgrid.lab import paper
for name in {SWEEPS}:
    setattr(paper, name, getattr(paper, name)[-2:])
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder that the command filled, and what it told."""
    folder = tmp_path_factory.mktemp("paper")
    found = hushgrid_process(*PAPER, "--out", folder, first="" if SOAK else FEW)
    assert (found.returncode, found.stderr) == (0, "")
    return folder, found.stdout


@pytest.mark.soak
def test_paper_writes_what_it_names(written: tuple[Path, str]) -> None:
    tmp_path, stdout = written
    named = [Path(line.strip()) for line in stdout.split("Written:")[1].splitlines()[1:]]
    assert sorted(named) == sorted(tmp_path.iterdir())
    assert {p.suffix for p in named} == {".md", ".json", ".png", ".svg"}
    assert len([p for p in named if p.suffix == ".png"]) == 6
    values = json.loads((tmp_path / "paper.json").read_text())
    assert values["days"] == 3
    assert set(values["mechanisms"]) == {"naive", "naive_max", "bound", "exact"}
    assert set(values["ratios"]) == {"naive_over_bound", "naive_over_exact"}


@pytest.mark.soak
def test_paper_json_on_standard_output_stands_alone(
    written: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the days and one point of each sweep: equal seeds, equal results, in another process too
    for name in SWEEPS:
        monkeypatch.setattr(sweeps, name, getattr(sweeps, name)[-1:])
    one = json.loads(hushgrid(*PAPER, "--out", tmp_path, "--json", "-").stdout)
    two = json.loads((written[0] / "paper.json").read_text())
    few, all_ = one.pop("sweeps"), two.pop("sweeps")
    assert one == two
    assert one["mechanisms"]["exact"]["rmsre_paper"]["mean"] > 0
    assert few.keys() == all_.keys()
    for name, sweep in few.items():
        assert sweep["at"] == all_[name]["at"][-1:]
        for line, points in sweep["gain"].items():
            assert points == all_[name]["gain"][line][-1:]


def test_simulate(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    found = hushgrid("simulate", "--config", EXAMPLE, "--days", 8, "--json", target)
    assert (found.returncode, found.stderr) == (0, "")
    values = json.loads(target.read_text())
    assert values["days"] == 8
    for key in ("rmsre_paper", "rmsre", "mismatch_cost", "revenue_change"):
        assert isinstance(values[key], float)
    assert str(target) in found.stdout
    other = hushgrid("simulate", "--config", EXAMPLE, "--days", 8, "--json", "-", "--seed", 2)
    assert json.loads(other.stdout)["rmsre"] != values["rmsre"]


def test_version_and_a_folder_for_a_file(tmp_path: Path) -> None:
    assert hushgrid_process("--version").stdout.startswith("hushgrid 0.")
    words = ("simulate", "--config", EXAMPLE, "--days", "1", "--json", tmp_path)
    found = hushgrid(*words)
    assert found.returncode == 2
    assert [p for p in tmp_path.parent.iterdir() if p.name.startswith(f".{tmp_path.name}")] == []


def test_bad_input_ends_a_process_with_2() -> None:
    found = hushgrid_process("simulate", "--config", "absent.toml")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate"], "--config"),
        (["simulate", "--config", "absent.toml"], "absent.toml does not exist"),
        (["simulate", "--config", "Makefile", "--days", "2"], "Makefile:2: this is not TOML"),
        (["paper", "--days", "x"], "--days"),
        (["paper", "--days", "1"], "--days"),
        (["paper", "--sigma", "-0.1"], "--sigma"),
        (["paper", "--days", "2", "--out", "README.md"], "README.md is not a folder"),
        (["paper", "--seed", "-1"], "--seed"),
        (["paper", "--sigma", "inf"], "--sigma"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(words: list[str], says: str) -> None:
    found = hushgrid(*words)
    assert found.returncode == 2
    assert found.stdout == ""
    assert says in found.stderr
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


@pytest.mark.soak
def test_plan_answers_a_promise(tmp_path: Path) -> None:
    asked = ("plan", "--config", ROOT / "examples" / "release.toml", "--no-tables")
    found = hushgrid(*asked, "--out", tmp_path, "--json", tmp_path / "plan.json")
    assert (found.returncode, found.stderr) == (0, "")
    assert "Assumptions:" in found.stdout
    values = json.loads((tmp_path / "plan.json").read_text())
    keys = "secret epsilon eta epsilon_t scale clamp epsilon_any leakage_max rmsre_paper"
    assert {*keys.split(), "assumptions"} <= set(values)
    assert values["leakage_max"] <= values["epsilon"] == 1
    assert len(values["epsilon_t"]) == len(values["scale"]) == 96
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert all(html.escape(one) in page for one in values["assumptions"])
    assert "data:image/png" in page
    for extra, words in ((("--secret", "day"), "'day' is not one of"),):
        refused = hushgrid(*asked, *extra)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
