"""Disks, databases and clocks that fail, and kills, under the real service in its own process.

A verifier that shares no code with the service judges: no acknowledged reading is lost, none is
counted twice, and every price and every status that was seen is in the ledger.
HUSHGRID_FAULTS_COUNT sets how many faults (make soak: 300), HUSHGRID_FAULTS_REPORT the folder of
the reports. Four services at a time share the faults of the disk: a service mostly waits.
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
from tests.services import Postgres, postgres_binaries, replicated

FAULTS = int(os.environ.get("HUSHGRID_FAULTS_COUNT", "3"))
SERVICES = 4 if SOAK else 1
HANDFUL = 5
REPORT = os.environ.get("HUSHGRID_FAULTS_REPORT")
FEW = (
    Fault("write", errno.ENOSPC, "meters-wal", 0, 1),
    Fault("sync", errno.EIO, "ledger.db-wal", 0, 1),
    Fault("write", 0, "witness", 0, 1),
)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def faults(seed: int) -> Iterator[Fault]:
    return plan(seed) if SOAK else iter(FEW)


def judge(driven: Driven, met: Counter[str], name: str, *, heirs: bool = False) -> None:
    """Nothing is lost and nothing is taken for lost; with a report where one is asked for.

    With `heirs` a curator may open a zone of another one on a database that took over. Where it has
    not seen the zone's last head, it cannot prove that nothing is missing, and notes a gap.
    """
    found = {"faults": met.total(), "kinds": dict(met), "starts": driven.starts, **driven.judge()}
    if REPORT is not None:
        Path(REPORT).mkdir(parents=True, exist_ok=True)
        Path(REPORT, f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    assert not found["problems"]
    assert heirs or not found["gaps"], "nothing was lost, so no gap is noted"
    assert found["acknowledged"]
    assert found["releases"]


@pytest.mark.parametrize("seed", range(1, SERVICES + 1))
@pytest.mark.soak
def test_faults_of_the_disk_kills_and_steps_of_the_clock_lose_nothing(
    tmp_path: Path, seed: int
) -> None:
    driven, met, rng = Driven(tmp_path), Counter[str](), random.Random(seed)
    with driven.running():
        for n, fault in enumerate(faults(seed)):
            if met.total() >= -(-FAULTS // SERVICES):
                break
            met[fault.kind] += driven.meets(fault, 30.0 if fault in FEW else 2.0)
            if SOAK and n % 30 == 29:
                driven.set_clock(0.0 if driven.control.ahead else 3.0)
                met["clock"] += 1
            if n % 10 == 2:
                driven.kill()
                met["kill"] += 1
            elif rng.random() < 0.3:
                driven.until_ready()
        driven.control.disarm()
        driven.until_published()
        driven.until_published()  # so that every zone has shown two
    judge(driven, met, f"disk-{seed}")
    if seed == 1:
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
        ({"last": {one: t + 1000 for one, t in driven.stated.items()}}, "the status has step"),
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


@pytest.mark.soak
def test_two_curators_of_which_one_is_killed_lose_nothing(
    tmp_path: Path, postgres: Postgres
) -> None:
    url, met, rng = postgres.fresh(), Counter[str](), random.Random(7)
    driven = Driven(tmp_path, url, url, curators=2)
    with driven.running():
        for n in range(HANDFUL):
            driven.until_published()
            driven.pause(rng.uniform(0.0, 2.0))
            driven.kill(n % 2)
            met["kill of a curator"] += 1
            driven.until_ready()
        driven.until_published()
    judge(driven, met, "two-curators")


@pytest.mark.soak
@pytest.mark.parametrize("curators", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_standby_that_takes_over_loses_nothing(tmp_path: Path, curators: int, seed: int) -> None:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed.")
    with replicated() as standby:
        standby.wait_for()
        driven = Driven(tmp_path, standby.both(), standby.both(), curators=curators)
        with driven.running():
            driven.until_published()
            driven.pause(random.Random(seed).uniform(0.0, 2.0))
            standby.take_over()
            driven.until_published()
            driven.kill()
            driven.until_published()
        met = Counter({"fail-over": 1, "kill": 1})
        judge(driven, met, f"standby-{curators}-{seed}", heirs=curators > 1)
