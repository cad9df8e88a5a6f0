"""Tests lie as the source does, and each stands alone: helpers are in modules of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "hushgrid"
# what is tested there is no folder of the source
WHOLE = {"browser", "data", "faults"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_no_test_imports_another() -> None:
    names = {
        f"{path.relative_to(TESTS)} imports {name}"
        for path in TESTS.rglob("*.py")
        for name in imported(path)
        if name.startswith("tests.") and ".test_" in name
    }
    assert names == set()


def test_folders_of_tests_are_folders_of_the_source() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    tops = {folder.parts[0] for folder in folders if folder.parts} - WHOLE
    assert tops <= {path.name for path in SOURCE.iterdir() if path.is_dir()}
