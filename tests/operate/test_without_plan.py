"""Commands that publish nothing make no plan, and check leaves nothing to compile for serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hushgrid.curator.terms import first_state
from hushgrid.errors import PolicyError
from hushgrid.files.service_file import load_deployment
from hushgrid.operate.check import rehearse
from hushgrid.operate.template import example
from tests.services import free_port

CALLED = """
import sys
from hushgrid.cli import main
called = set()
sys.setprofile(lambda frame, event, _: called.add(frame.f_code.co_name))
sys.argv = ["hushgrid", *sys.argv[1:]]
try:
    main()
except SystemExit as ended:
    sys.setprofile(None)
    print("week_plan" in called, ended.code)
"""


def written(folder: Path) -> Path:
    path = folder / "service.toml"
    path.write_text(example(1_767_571_200).replace("port = 8080", f"port = {free_port()}"))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("client", "add", "meters-north", "--scope", "meters", "--config"),
        ("client", "list", "--config"),
    ],
)
@pytest.mark.sampled
def test_a_command_that_publishes_nothing_makes_no_plan(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = [sys.executable, "-c", CALLED, *words, str(written(tmp_path))]
    found = subprocess.run(run, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1].split()[0] == "False", found.stdout


def test_a_zone_without_its_plan_publishes_nothing(tmp_path: Path) -> None:
    """Its noise would be that of a single release, for a promise about all of them."""
    (zone,) = load_deployment(written(tmp_path), planned=False).zones
    with pytest.raises(PolicyError, match="read without its plan"):
        first_state(zone)


def test_a_rehearsal_loads_the_loop_of_the_estimate(tmp_path: Path) -> None:
    from hushgrid._kernels import load_filter

    (zone,) = load_deployment(written(tmp_path)).zones
    rehearse(zone)
    assert load_filter._follow.signatures
