"""Three strangers: a developer with the README, a utility's engineer, a researcher.

Each does what the documents say, with nothing else: commands as processes where a stranger would
type them, `curl` where the documents have it.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    LogNormal,
    Mechanism,
    OccupancyModel,
    Policy,
    Scenario,
    Tariff,
    Uniform,
    Zone,
    play,
)
from hushgrid.cli import main
from hushgrid.lab.paper import experiment
from hushgrid.testing import check_calibrator
from tests.code_blocks import ROOT, code_blocks
from tests.services import free_port

HUSHGRID = [sys.executable, "-c", "from hushgrid.cli import main; main()"]
SGSC = ROOT.parent / "shared/data/sgsc/readings_2013_50homes.parquet"


def hushgrid(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """A command that must end well; what it prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    found = capsys.readouterr()
    assert not ended.value.code, found.err
    return found.out


# ---- a developer


def test_a_developer_with_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The library in ten lines, then the first of the next steps, word for word."""
    (code,) = code_blocks(ROOT / "README.md")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 4
    text = (ROOT / "README.md").read_text()
    (step,) = re.findall(r"\| run a zone of your own \| (.+?) \|", text)
    assert re.findall(r"`(.+?)`", step) == [
        "hushgrid init my-zone",
        "hushgrid check",
        "hushgrid serve my-zone/service.toml",
    ]
    zone = tmp_path / "my-zone"
    hushgrid(capsys, "init", zone)
    said = hushgrid(capsys, "check", zone / "service.toml")
    assert "Promise:" in said
    assert "Expected price error:" in said


# ---- an engineer of a utility


@contextmanager
def serving(file: Path) -> Iterator[list[str]]:
    """hushgrid serve at a terminal, until it is stopped; the lines of the terminal."""
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [*HUSHGRID, "serve", str(file)], stdout=follower, stderr=follower, close_fds=True
    )
    os.close(follower)
    seen = bytearray()
    lines: list[str] = []
    try:
        until = time.monotonic() + 120
        while b"serving" not in seen:
            assert time.monotonic() < until, seen.decode()
            seen += os.read(leader, 4096)
        lines += seen.decode().splitlines()
        yield lines
    finally:
        running.terminate()
        while True:
            try:
                more = os.read(leader, 4096)
            except OSError:  # the terminal's other end is closed
                break
            seen += more
        code = running.wait(60)
        os.close(leader)
        lines[:] = seen.decode().splitlines()
    assert code == 0, seen.decode()


def curl(*words: str) -> tuple[int, Any]:
    """The status and the answer."""
    command = ["curl", "-sS", "-w", "\n%{http_code}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body) if body.startswith(("{", "[")) else body


def quarter() -> str:
    """The begin of the present quarter hour."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() // 900 * 900))


def price_at(root: str) -> Any:
    """The price in force, once the first interval that is due is published."""
    until = time.monotonic() + 60
    while True:
        status, found = curl(f"{root}/v1/price?zone=elm-street")
        if status == 200:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.1)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.soak
def test_an_engineer_from_init_to_restore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """init, check, serve, a reading, a price, revoke, back up, restore."""
    hushgrid(capsys, "init", tmp_path)
    file, port = tmp_path / "service.toml", free_port()
    file.write_text(file.read_text().replace("port = 8080", f"port = {port}"))
    hushgrid(capsys, "check", file)
    added = hushgrid(
        capsys, "client", "add", "north", "--scope", "meters", "--meters", "elm-*", "--config", file
    )
    secret = added.split()[3]
    root = f"http://127.0.0.1:{port}"
    with serving(file) as lines:
        assert f"prices       {root}/v1/prices?zone=elm-street" in lines
        status, token = curl(
            "-u", f"north:{secret}", "-d", "grant_type=client_credentials", f"{root}/v1/token"
        )
        assert status == 200
        reading = {"meter_id": "elm-0001", "start_utc": quarter(), "duration_s": 900, "wh": 130}
        send = [
            *("-H", f"Authorization: Bearer {token['access_token']}"),
            *("-H", "Content-Type: application/json", "-d", json.dumps([reading])),
            f"{root}/v1/readings",
        ]
        status, receipt = curl(*send)
        assert (status, receipt["accepted"]) == (200, 1)
        first = price_at(root)
        assert first["currency"] == "EUR"
        hushgrid(capsys, "client", "revoke", "north", "--config", file)
        until = time.monotonic() + 30
        while curl(*send)[0] != 401:
            assert time.monotonic() < until
            time.sleep(0.2)
        copy = tmp_path / "copy.sqlite"
        hushgrid(capsys, "ledger", "backup", tmp_path / "ledger.sqlite", copy)
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d serving \(mode simulation\)", one) for one in lines)
    assert not any(line.startswith("{") for line in lines), "no JSON at a terminal"
    for end in ("", "-wal", "-shm"):  # the disk of the ledger is gone
        (tmp_path / f"ledger.sqlite{end}").unlink(missing_ok=True)
    hushgrid(capsys, "ledger", "restore", copy, tmp_path / "ledger.sqlite")
    with serving(file):
        second = price_at(root)
    assert second["start"] >= first["start"]
    assert hushgrid(capsys, "doctor", file).startswith("Nothing to repair.")


# ---- a researcher


def test_a_researcher_from_the_paper_to_a_calibrator_of_ones_own() -> None:
    """The paper's days; then a model and a calibrator that the guide describes, on one seed."""
    paper = experiment(days=2, sigma=0.02, seed=1)
    assert {"naive", "bound", "exact"} <= set(paper.sample)
    names: dict[str, Any] = {}
    exec(code_blocks(ROOT / "docs" / "extend.md")[0], names)
    check_calibrator(names["Reach"])
    stay = np.array([[0.95, 0.05], [0.1, 0.9]])
    theta = OccupancyModel.factored([[0.4, 0.6]], [[stay]], chain_of=[0] * 30)
    f = Consumption.by_class(
        absent=[Uniform(60)], present=[LogNormal(150, 0.7, 2000)], class_of=[0] * 30
    )
    scenario = Scenario(Zone("mine", [2000] * 30), Tariff(0.01, 0.1), (theta,), f)
    policy = Policy(epsilon=0.5, eta=0.0, horizon=8)
    found = play(
        scenario,
        {"usual": Mechanism(policy), "own": Mechanism(policy, names["Reach"]())},
        seed=[3],
    )
    usual, own = (found[name].releases for name in ("usual", "own"))
    assert all(one.epsilon <= 0.5 + 1e-9 for one in (*usual, *own))
    assert usual[0].scale <= own[0].scale, "the trusting calibrator needs no more noise"


@pytest.mark.soak
@pytest.mark.skipif(not SGSC.exists(), reason="no data of real homes next to the project")
def test_a_researcher_on_real_homes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--readings", SGSC, "--bound", 2500, "--time-zone", "Australia/Sydney"]
    few = ["--days", 2, "--chart-days", 0, "--out", tmp_path]
    assert "forecast" in hushgrid(capsys, "compare", *asked, *few)
    found = json.loads((tmp_path / "compare.json").read_text())
    assert found["mechanisms"]
