"""The hooks of pre-commit and the workflow run commands of the project that exist."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
(HOOKS,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())


@pytest.mark.parametrize("hook", HOOKS["hooks"], ids=lambda hook: hook["id"])
def test_a_hook_runs_a_quick_check_of_make(hook: dict[str, Any]) -> None:
    folder, _, command = hook["entry"].partition("/bin/")
    program = command.split()[0]
    assert f"VENV ?= {folder}\n" in MAKEFILE
    assert Path(sys.executable).with_name(program).exists()
    for script in re.findall(r"scripts/\S+", command):
        assert (ROOT / script).is_file()
    if program in ("ruff", "lint-imports"):
        assert f"$(BIN)/{' '.join(command.split()[:2])}" in MAKEFILE


def test_the_workflow_tests_every_python_that_is_supported() -> None:
    job = WORKFLOW["jobs"]["test"]
    versions = job["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={versions[0]}"
    (command,) = (step["run"] for step in job["steps"] if "run" in step)
    assert re.fullmatch(r"make test PYTHON=python\$\{\{ matrix.python \}\}", command)
    assert re.search("(?m)^test:", MAKEFILE)
    assert "PYTHON ?= python3\n" in MAKEFILE
