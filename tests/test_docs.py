"""The documents tell the truth: every name, test, command and code block in them works."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hushgrid

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "paper-map.md").read_text()
ROW = r"^\| (.+?) \| .+? \| `(hushgrid[\w.]+)` \| `((?:\w+/)?test_\w+\.py)::(\w+)` \|$"
ROWS = re.findall(ROW, MAP, re.M)


def resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = fields[name] if name in fields else getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


@pytest.mark.parametrize(("symbol", "name", "file", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_paper_map_rows(symbol: str, name: str, file: str, test: str) -> None:
    resolve(name)
    assert f"def {test}(" in (ROOT / "tests" / file).read_text()


def test_paper_map_covers_algorithm_1() -> None:
    table_rows = [line for line in MAP.splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(table_rows) - 1  # but for the head
    covered: set[int] = set()
    for first, last in re.findall(r"Algorithm 1, lines? (\d+)(?:-(\d+))?", MAP):
        covered |= set(range(int(first), int(last or first) + 1))
    assert {3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14} <= covered


def code_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.S)


def test_readme_example_runs_and_is_ten_lines() -> None:
    (code,) = code_blocks(ROOT / "README.md")
    assert len(ast.parse(code).body) <= 10
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    rate, scale, epsilon, epsilon_any = map(float, found.stdout.split())
    assert rate >= 0
    assert scale > 0
    assert epsilon <= 0.5
    assert epsilon_any == pytest.approx(2500 / scale)


def test_calibrator_guide_runs_in_twenty_lines() -> None:
    code, check = code_blocks(ROOT / "docs" / "calibrator.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
    names: dict[str, object] = {}
    exec(code + "\n".join(check.splitlines()[:3]), names)


def test_meter_data_guide_runs() -> None:
    (code,) = code_blocks(ROOT / "docs" / "meter-data.md")
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.stdout.splitlines() == [
        "2 1 ('line 4: value is not a number',)",
        "[('MAC000002', 1356998400, 3600, 315)]",
    ]


def test_ledger_guide_by_hand() -> None:
    """Each shell block prints what its last comment says."""
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "ledger.md").read_text(), re.S):
        says = re.findall(r"^# (.*)$", block, re.M)[-1]
        found = subprocess.run(
            ["bash", "-c", block], capture_output=True, text=True, check=False, cwd=ROOT
        )
        if "openssl: command not found" in found.stderr:
            pytest.skip("openssl is not installed")
        assert (found.stdout, found.stderr) == (f"{says}\n", "")


def test_readme_commands_exist() -> None:
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", text, re.M):
        assert f"\n{target}:" in makefile
    for command in re.findall(r"hushgrid (\w+) --", text):
        assert (ROOT / "src" / "hushgrid" / "cli" / f"{command}.py").exists()


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_named_in_the_house_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    picture = text.split("```")[1]
    named = set(re.findall(r"(\w+\.py)\b", picture)) - {"__init__.py"}
    present = {path.name for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("scripts/*.py")]}
    present |= {"oracle.py", "strategies.py"}
    assert named <= present
    top = {path.name for path in (ROOT / "src" / "hushgrid").glob("*.py")} - {"__init__.py"}
    assert top <= named


def test_public_names_are_sorted_and_there() -> None:
    assert hushgrid.__all__ == sorted(hushgrid.__all__)
    for name in hushgrid.__all__:
        assert hasattr(hushgrid, name)
    wanted = {
        "smallest_scale", "worst_loss", "protected", "schedule", "init", "step", "simulate",
    }  # fmt: skip
    assert wanted <= set(hushgrid.__all__)


def test_no_download_address_in_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)


def test_adversary_guide_runs() -> None:
    (code,) = code_blocks(ROOT / "docs" / "adversary.md")
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert found.stderr == ""
    assert found.stdout.splitlines() == ["(1, 96, 50)", "(96, 50)"]
