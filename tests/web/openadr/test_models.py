"""The models are those that the script makes from the specification."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hushgrid.web.openadr import _generated as models
from tests.web.openadr.judge import STANDARD

SCRIPT = Path(__file__).parents[3] / "scripts" / "openadr_models.py"


def test_the_models_are_made_from_the_specification() -> None:
    if not STANDARD.is_file():
        pytest.skip("The standard's description is not at hand.")
    command = [sys.executable, str(SCRIPT), str(STANDARD)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert made == Path(models.__file__).read_text(encoding="utf-8")
