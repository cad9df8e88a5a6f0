"""Disks, databases and clocks that fail, and kills, under the real service in its own process.

A verifier that shares no code with the service judges: no acknowledged reading is lost, none is
counted twice, every price that was seen is in the ledger, and spent is the sum of the records.
HUSHGRID_FAULTS_COUNT sets how many faults (make soak: 300), HUSHGRID_FAULTS_REPORT the report.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import SOAK
from tests.faults.drive import VERIFY, Driven
from tests.faults.shim import Fault, plan
from tests.services import Postgres

FAULTS = int(os.environ.get("HUSHGRID_FAULTS_COUNT", "3"))
REPORT = os.environ.get("HUSHGRID_FAULTS_REPORT")
FEW = (
    Fault("write", errno.ENOSPC, "meters-wal", 0, 1),
    Fault("sync", errno.EIO, "ledger.db-wal", 0, 1),
    Fault("write", 0, "witness", 0, 1),
)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def faults() -> Iterator[Fault]:
    return plan(1) if SOAK else iter(FEW)


def judge(driven: Driven, met: Counter[str], name: str) -> None:
    """Nothing is lost and nothing is taken for lost; with a report where one is asked for."""
    found = {"faults": met.total(), "kinds": dict(met), "starts": driven.starts, **driven.judge()}
    if REPORT is not None:
        path = Path(REPORT)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | {name: found}, indent=1) + "\n")
        sys.stdout.write(
            f"{name}: {json.dumps({k: v for k, v in found.items() if k != 'kinds'})}\n"
        )
    assert not found["problems"]
    assert found["gaps"] == 0, "nothing was lost, so no gap is noted"
    assert found["acknowledged"]
    assert found["releases"]


def test_faults_of_the_disk_kills_and_steps_of_the_clock_lose_nothing(tmp_path: Path) -> None:
    driven, met, rng = Driven(tmp_path), Counter[str](), random.Random(3)
    with driven.running():
        for n, fault in enumerate(faults()):
            if met.total() >= FAULTS:
                break
            met[fault.kind] += driven.meets(fault, 30.0 if fault in FEW else 3.0)
            if SOAK and n % 30 == 29:
                driven.control.ahead = 0.0 if driven.control.ahead else 3.0
                met["clock"] += 1
            if n % 10 == 2:
                driven.kill()
                met["kill"] += 1
            elif rng.random() < 0.3:
                driven.until_ready()
        driven.control.disarm()
        driven.until_published()
        driven.until_published()  # so that every zone has shown two
    judge(driven, met, "disk")
    _finds_what_is_wrong(driven)


def _finds_what_is_wrong(driven: Driven) -> None:
    """The verifier shares no code with the service, and sees what is not so."""
    imports = f"import runpy, sys; runpy.run_path({str(VERIFY)!r}); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", imports], capture_output=True, check=True)
    assert "hushgrid" not in ran.stdout.decode().split()
    last = driven.shown[-1]
    way, zone, head, start, price = last
    first = next(one for one in driven.shown if one[1] == zone)
    assert first[2] != head
    for changes, problem in (
        ({"acknowledged": [(zone, 0, start + 1, 5)]}, "lost: "),
        ({"shown": [(way, zone, head[::-1], start, price)]}, "which the ledger lacks"),
        ({"shown": [(way, zone, head, start, price + 1)]}, "another price"),
        ({"shown": [last, (way, *first[1:])]}, "went back"),
        ({"spent": {one: (t, spent + 0.1) for one, (t, spent) in driven.spent.items()}}, "spent"),
        ({"seconds": 3}, "start"),
    ):
        assert any(problem in one for one in driven.judge(**changes)["problems"]), problem


@pytest.mark.soak
def test_crashes_of_the_database_lose_nothing(tmp_path: Path, postgres: Postgres) -> None:
    url, met, rng = postgres.fresh(), Counter[str](), random.Random(5)
    driven = Driven(tmp_path, url, url)
    with driven.running():
        for n in range(-(-FAULTS // 10)):
            driven.until_published()
            driven.pause(rng.uniform(0.0, 2.0))
            postgres.kill()
            if n % 3 == 2:
                driven.kill()
                met["kill"] += 1
            postgres.start()
            met["database crash"] += 1
        driven.until_published()
    judge(driven, met, "database")
