"""One day without a page: what it must keep to, whatever is drawn, and that others can check it.

HUSHGRID_DEMO_SEEDS plays so many days (make soak).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.demo.living import (
    BEGINS,
    HOST,
    DemoRequests,
    DemoRun,
    Secrets,
    SimulatedPace,
    play_once,
    write_service,
)
from hushgrid.errors import ServiceError
from hushgrid.lab.simulation import errors_of_days
from hushgrid.statistics import next_one
from hushgrid.web.http.server import Server, SwappableApp

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("HUSHGRID_DEMO_SEEDS", "1"))


@pytest.fixture(scope="module", params=range(1, SEEDS + 1))
def day(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `hushgrid demo --once` printed, and its folder; the temporary one is empty again."""
    folder, out = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-W", "error", "-c", "from hushgrid.cli import main; main()"]
    found = subprocess.run(
        [*command, "demo", "--once", "--seed", str(request.param), "--out", out, "--json", "-"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert [one for one in folder.iterdir() if "hushgrid" in one.name] == []
    return json.loads(found.stdout), out


def test_a_day_keeps_what_is_promised(day: Any) -> None:
    told, _ = day
    assert told["releases"] == 96
    assert told["rmsre_plan"]["low"] <= told["rmsre_paper"] <= told["rmsre_plan"]["high"]
    # a block is six hours, and a window touches five: the day has four of them
    assert told["leakage_max"] == pytest.approx(4 / 5)
    assert told["promise"] == 1.0
    assert (told["chain"], told["audit"], told["simulated"]) == ("passed", "passed", True)


def test_neither_adversary_gets_anywhere(day: Any) -> None:
    """Among 1,000 houses the paper's learns little either way; the strong one all but for noise."""
    none, others = (day[0]["auc"][knows] for knows in ("none", "others"))
    assert abs(none["private"] - none["prior"]) <= 0.02
    assert others["open"] >= 0.85
    assert others["private"] <= others["prior"] + 0.15
    assert none["prior"] == others["prior"] > 0.5


def test_the_first_page_tells_this_very_day(day: Any) -> None:
    told, _ = day
    if told["seed"] != 1:
        return
    readme = (ROOT / "README.md").read_text()
    for knows, name in (("none", "sees only the prices"), ("others", "knows every other reading")):
        found = [f"{told['auc'][knows][shown]:.3f}" for shown in ("open", "private", "prior")]
        row = next(line for line in readme.splitlines() if f"adversary who {name}" in line)
        assert [cell.strip() for cell in row.split("|")[2:5]] == found


def test_what_lies_there_can_be_checked_by_anybody(day: Any) -> None:
    told, out = day
    assert {one.name for one in out.iterdir()} == {
        "demo.json", "demo.png", "demo.svg", "ledger.ndjson", "service.toml", "certificate.html",
    }  # fmt: skip
    assert json.loads((out / "demo.json").read_text()) == told
    assert all(Path(name).exists() for name in told["files"])
    script = [sys.executable, str(ROOT / "scripts" / "verify_ledger.py")]
    found = subprocess.run([*script, told["ledger"]], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    sources = [json.loads(line) for line in Path(told["ledger"]).read_text().splitlines()]
    assert len(sources) == told["ledger_records"]


class Small:
    """A few intervals of the demo's zone in this process."""

    def __init__(self, folder: Path, seed: int, wake: threading.Event | None = None) -> None:
        stage = SwappableApp()
        server = Server(stage, HOST, 0)
        server.start()
        made = write_service(folder, 1.0, Secrets("t", "o"), begins=BEGINS, port=server.port)
        clock, url = SimulatedPace(BEGINS, math.inf), f"http://{HOST}:{server.port}"
        try:
            with DemoRun(made, stage, clock, url=url, token="t", seed=seed) as run:
                self.seen = [run.step(wake or threading.Event()) for _ in range(3)]
        finally:
            server.stop()

    @property
    def figures(self) -> list[float]:
        return [x for one in self.seen if one for x in (one.load, one.rate, one.home["prior"][3])]


@pytest.mark.soak
def test_equal_seeds_give_equal_days(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    once, again = Small(tmp_path / "a", 7), Small(tmp_path / "b", 7)
    assert once.figures == again.figures
    assert len(set(once.figures)) == 9  # every step has its own


def test_a_day_that_is_stopped_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    requests = DemoRequests()
    requests.stop()
    with pytest.raises(KeyboardInterrupt):
        play_once(1.0, tmp_path / "out", requests, errors_of_days, seed=1, tick=lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_a_zone_that_cannot_publish_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgrid.demo.living.TRIES", 2)
    monkeypatch.setattr("hushgrid.operate.process.ZoneRun.run", lambda *_: None)
    with pytest.raises(ServiceError, match="published nothing for step"):
        Small(tmp_path, 1)


def test_the_interval_for_one_more_holds_it_as_often_as_it_says() -> None:
    """10,000 worlds of 24 values; at 99 % six s.d. of a binomial are 0.6 %."""
    rng = np.random.default_rng(3)
    values = np.exp(rng.normal(0.5, 0.3, (10_000, 25)))
    held = [low <= one <= high for *some, one in values for low, high in [next_one(some, 0.99)]]
    assert np.mean(held) == pytest.approx(0.99, abs=0.006)
