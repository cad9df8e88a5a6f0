"""The documentation site: pages, what is generated for it, its examples, the whole build."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from hushgrid.cli import app
from hushgrid.files._tables import keys_of
from hushgrid.files.service_file import OwnTables
from hushgrid.files.zone_file import ZoneTables

ROOT = Path(__file__).parent.parent
DOCS, GALLERY = ROOT / "docs", ROOT / "examples" / "gallery"
MADE = ("api", "gallery")  # folders that a build writes
PAGES = {
    page.relative_to(DOCS).with_suffix("").as_posix(): page.read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md")
    if page.relative_to(DOCS).parts[0] not in MADE
}


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py."""
    found = ModuleType("generate")
    found.__file__ = str(DOCS / "generate.py")
    exec(
        compile((DOCS / "generate.py").read_text(encoding="utf-8"), found.__file__, "exec"),
        vars(found),
    )
    return found


# ---- pages


def toctrees() -> list[tuple[str, str]]:
    """Each entry of a table of contents, with the page that has it."""
    found = []
    for name, text in PAGES.items():
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.S):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            found += [(name, (Path(name).parent / line).as_posix()) for line in lines]
    return found


def test_every_page_is_in_one_table_of_contents() -> None:
    made = tuple(f"{folder}/" for folder in MADE)
    entries = [entry for _, entry in toctrees() if not entry.startswith(made)]
    assert sorted(entries) == sorted(set(PAGES) - {"index"})


def test_links_of_pages_lead_to_pages_and_headings() -> None:
    for name, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#]*?)(?:#([^)]*))?\)", text):
            if target and not target.endswith(".md"):
                continue
            place = os.path.normpath(Path(name).parent / target) if target else f"{name}.md"
            page = place.removesuffix(".md")
            assert page in PAGES, f"{name} links to {target}"
            headings = re.findall(r"^#{1,3} (.*)$", PAGES[page], re.M)
            made = [re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings]
            assert not anchor or anchor in made, f"{name} links to {target}#{anchor}"


def test_headings_skip_no_level() -> None:
    for name, text in PAGES.items():
        bare = re.sub(r"```.*?```", "", text, flags=re.S)
        levels = [len(one) for one in re.findall(r"^(#+) ", bare, re.M)]
        assert levels[0] == 1, name
        assert all(b - a <= 1 for a, b in pairwise(levels)), name


def docstrings() -> list[tuple[str, ast.AST, str]]:
    """(place, what has it, text) of every docstring of the files that name a page."""
    found = []
    for path in sorted((ROOT / "src" / "hushgrid").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "docs/" in text else ():
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                found.append((path.name, node, ast.get_docstring(node) or ""))
    return found


def test_docstrings_lead_to_pages_and_every_proof_has_a_function() -> None:
    proved = set()
    for place, node, text in docstrings():
        for page in re.findall(r"\bdocs/([\w/-]+)\.md", text):
            assert page in PAGES, f"{place} names docs/{page}.md"
            if not isinstance(node, ast.Module) and not node.name.startswith("_"):
                proved.add(page)
    proofs = {page for page in PAGES if page.startswith("proofs/")} - {"proofs/index"}
    assert proofs <= proved, "a proof is linked from no public function or class"


# ---- what is generated


def test_every_command_is_described_as_by_help(generate: ModuleType) -> None:
    text = generate.commands()

    def walk(command: Any, name: str) -> None:
        assert f"`{name}`" in text
        for each, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {each}")
        for one in [] if getattr(command, "commands", {}) else command.params:
            assert any(opt in text for opt in one.opts), f"{name} {one.opts}"

    walk(get_command(app), "hushgrid")
    assert "Raises:" not in text


def test_every_route_and_every_key_is_described(generate: ModuleType) -> None:
    routes, keys = generate.routes(), generate.keys()
    assert "## POST /v1/readings" in routes
    assert routes.count("\n## ") > 20
    for name in set(re.findall(r"\]\(#(\w+)\)", routes)):
        assert f"### {name}\n" in routes.lower()
    tables = re.findall(r"^## \[+([a-z]+)\]+$", keys, re.M)
    assert {*keys_of(OwnTables), *keys_of(ZoneTables)} <= set(tables)
    assert "| `fallback_rate` | required |" in keys
    for key in ("secret", "rho", "eta_set_by", "from", "token_digests", "provenance"):
        assert f"| `{key}` |" in keys


def test_keys_of_files_and_certificates_have_a_meaning(generate: ModuleType) -> None:
    for text, place in ((generate.keys(), 3), (generate.certificate(), 2)):
        rows = [line for line in text.splitlines() if line.startswith("| `")]
        assert len(rows) > 80
        for line in rows:
            assert re.split(r"(?<!\\)\|", line)[place].strip(), line


def test_what_is_generated_has_no_words_of_the_code(generate: ModuleType) -> None:
    for part in ("commands", "routes", "keys", "certificate"):
        prose = re.sub(r"`[^`]*`", "", getattr(generate, part)())
        assert not re.findall(r"[^.|\n]*\b(?:epoch|horizon)\w*", prose, re.I), part


# ---- the gallery

LONG = ("plot_02_paper", "plot_11_learn", "plot_15_solar")  # by 1,000 houses, and by fits
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem in LONG else [])
    for path in sorted(GALLERY.glob("plot_*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
@pytest.mark.sampled
def test_examples_draw_what_they_compute(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at small size: every axis has a name and finite data on it."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    monkeypatch.chdir(GALLERY)
    monkeypatch.setenv("HUSHGRID_SMALL", "1")
    monkeypatch.setattr(plt, "show", lambda: None)
    runpy.run_path(str(path))
    drawn = [axes for number in plt.get_fignums() for axes in plt.figure(number).axes]
    assert drawn
    for axes in drawn:
        assert axes.get_ylabel() or axes.get_yticklabels()
        points = np.concatenate([np.ravel(line.get_ydata()) for line in axes.lines])
        assert len(points)
        assert np.isfinite(points.astype(float)).all()
    plt.close("all")


def test_figures_are_drawn_in_one_block() -> None:
    """The gallery takes the picture at the end of each block."""
    for one in EXAMPLES:
        for block in one.values[0].read_text(encoding="utf-8").split("# %%")[1:]:
            assert block.count("plt.subplots(") == block.count("plt.show()"), one.id


def test_there_are_a_dozen_short_examples() -> None:
    assert len(EXAMPLES) >= 12
    assert all(len(one.values[0].read_text().splitlines()) <= 110 for one in EXAMPLES)


# ---- the build


@pytest.mark.soak
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path: Path) -> None:
    """With all docstrings, without running the gallery."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    without = shutil.ignore_patterns(*MADE, "__pycache__")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=without)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "plot_gallery=0"]
    made = subprocess.run(
        [*command, str(tmp_path / "docs"), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stderr == ""
    assert made.returncode == 0
    site = tmp_path / "site"
    assert (site / "searchindex.js").exists()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"(?:https?:)?//[^\"]*", text)
    api = (site / "api" / "accounting.html").read_text(encoding="utf-8")
    assert 'href="../proofs/temporal.html"' in api
