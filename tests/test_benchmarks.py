"""Every benchmark runs: once, at a size that shows that and nothing else."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import QUESTIONS

ROOT = Path(__file__).parents[1]
TOY = {**os.environ, "HUSHGRID_TOY": "1"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=TOY, capture_output=True, text=True, check=False
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in QUESTIONS if "spark" not in name])
def test_a_benchmark_runs(name: str) -> None:
    """Whether a goal is met at such a size says nothing. Spark takes half a minute to start."""
    done = run("-m", "benchmarks", "--json", "-", name)
    assert done.returncode in (0, 1), done.stderr
    (found,) = json.loads(done.stdout).items()
    assert found[0] == name
    assert math.isfinite(found[1]["value"])
    assert math.isfinite(found[1]["ratio"])


def test_the_adversary_of_the_gpu_runs_on_numpy() -> None:
    done = run("benchmarks/adversary_gpu.py", "--array", "numpy", "--houses", "200", "--steps", "4")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["agreement_zone"] < 1e-9
    assert found["agreement_subset"] < 1e-9
