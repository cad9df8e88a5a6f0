"""The documents tell the truth: every name, test, command and code block in them works."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import hushgrid
from hushgrid.cli import app
from tests.code_blocks import ROOT, code_blocks

MAP = (ROOT / "docs" / "paper.md").read_text().partition("## Its experiment")[0]
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


def test_names_of_the_nomenclature_exist() -> None:
    names = re.findall(r"`(hushgrid\.[\w.]+)`", (ROOT / "docs" / "nomenclature.md").read_text())
    assert len(names) > 30
    for name in names:
        resolve(name)


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


# what a guide's blocks print; those without an entry print nothing that is the same each time
PRINTS = {
    "adversary.md": ["(1, 96, 50)", "(96, 50)"],
    "audit.md": [],
    "meter-data.md": [
        "2 1 ('line 4: value is not a number',)",
        "[('MAC000002', 1356998400, 3600, 315)]",
    ],
    "stores.md": [],
}
# these need a running service: tests/web/openadr/test_clients.py::test_the_guides_examples_run
SERVED = {"openadr.md"}
GUIDES = [
    page
    for page in sorted(ROOT.glob("docs/**/*.md"))
    if code_blocks(page) and page.name not in SERVED
]


@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_guides_run_as_they_are_written(page: Path, tmp_path: Path) -> None:
    """All blocks of a page one after the other, whole, in a folder and a Python of their own."""
    code = "\n".join(code_blocks(page))
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (found.returncode, found.stderr) == (0, "")
    if page.name in PRINTS:
        assert found.stdout.splitlines() == PRINTS[page.name]


def test_calibrator_guide_is_short_and_its_noise_suffices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, use, *_ = code_blocks(ROOT / "docs" / "extend.md")
    assert len(code[code.index("class") :].splitlines()) == 9  # as the guide says
    (tmp_path / "reach.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = dict(vars(importlib.import_module("reach")))
    exec(use, names)
    assert f"# {names['release'].scale} {names['release'].epsilon}" in use
    assert names["release"].epsilon == names["policy"].epsilon


def test_access_guide_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands, one after the other, in the folder that init makes."""
    from hushgrid.cli import main

    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "security.md").read_text(), re.S)
    lines = COMMAND.findall(block)
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    said = []
    for line in ["init .", *lines]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line))
        said.append(capsys.readouterr().out)
        assert not ended.value.code
    assert "meters-north" in said[3]


COMMAND = re.compile(r"^(?:    )?(?:\S*/)?hushgrid ([a-z].*?)(?:\s+#.*)?$", re.M)


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of the documents, split into words."""
    found = []
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        text = page.read_text().replace("\\\n", " ")
        found += [(page.name, shlex.split(line)) for line in COMMAND.findall(text)]
    return found


def test_command_lines_have_options_that_exist() -> None:
    from typer.main import get_command

    from hushgrid.cli import app

    found, root = commands(), get_command(app)
    assert len(found) > 40
    for page, words in found:
        command: Any = root
        rest = list(words)
        while rest and getattr(command, "commands", None):
            assert rest[0] in command.commands, f"{page}: hushgrid {' '.join(words)}"
            command = command.commands[rest.pop(0)]
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        asked = {word.split("=")[0] for word in rest if word.startswith("--")}
        assert asked <= known | {"--help"}, f"{page}: hushgrid {' '.join(words)}"


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
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for command in re.findall(r"hushgrid (\w+) --", text):
        assert command in commands


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_named_in_the_house_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    picture = "".join(text.split("```")[1::2])
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


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    (version,) = re.findall(r"^version: (.+)$", text, re.M)
    assert version == hushgrid.__version__
    keys = ("cff-version", "message", "title", "authors", "license")
    assert all(re.search(f"^{key}:", text, re.M) for key in keys), "what the format demands"
    cited = set(re.findall(r"@(\w+)", (ROOT / "paper.md").read_text()))
    listed = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper.bib").read_text(), re.M))
    assert cited == listed
