"""The guide for the first day: its commands, word for word, against a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.services import free_port

GUIDE = (Path(__file__).parents[1] / "docs" / "first-day.md").read_text(encoding="utf-8")
INSTALL, *STEPS = re.findall(r"```sh\n(.*?)```", GUIDE, re.S)
PATIENCE = 240  # [s] for a start, and for a price: a minute on a machine that does nothing else


def wait(happens: Callable[[], bool]) -> None:
    """Until it does, within `PATIENCE`."""
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.5)


@contextmanager
def serving(command: str, folder: Path, env: dict[str, str]) -> Iterator[None]:
    """The second terminal."""
    with (folder / "serve.log").open("w+") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=env, stderr=log
        )
        try:
            wait(lambda: "serving" in (folder / "serve.log").read_text() or bool(process.poll()))
            assert process.poll() is None, (folder / "serve.log").read_text()
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.mark.soak
def test_the_first_day(tmp_path: Path) -> None:
    """All but the installation, which test_package.py does, and Home Assistant's own start."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    port = str(free_port())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "hushgrid"
    program.write_text(f"#!{sys.executable}\nfrom hushgrid.cli import main\nmain()\n")
    program.chmod(0o755)
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "no_proxy": "127.0.0.1"}

    def run(command: str) -> str:
        """A block as it is written, at a port that is free."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.replace(":8080", f":{port}")],
            cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=PATIENCE,
        ).stdout  # fmt: skip

    init, quick, check, client, serve, send, price, page = STEPS
    assert "service.toml" in run(init)
    file = tmp_path / "my-zone" / "service.toml"
    file.write_text(file.read_text().replace("port = 8080", f"port = {port}"))
    run(quick)
    said = run(check)
    assert "a price every 1 minute" in said
    assert "Promise: Pick any 24 hours." in said
    run(client)
    with serving(serve, tmp_path, env):
        wait(lambda: '"price"' in run(price))  # 503 while the first one is made
        assert json.loads(run(send))["accepted"] == 1
        text = run(price)
        assert len(text.splitlines()) <= 40, "fits on a screen"
        wait(lambda: '"source":"readings"' in run(price).replace(" ", ""))  # in `next` at first
        assert "<html" in run(page)
        (sensors,) = yaml.safe_load(GUIDE.split("```yaml\n")[1].split("```")[0])["rest"]
        wait(lambda: '"total"' in run(f"curl -s '{sensors['resource']}'"))  # 503 while it is made
        assert json.loads(run(f"curl -s '{sensors['resource']}'"))["total"] > 0
        assert "value_json.total" in sensors["sensor"][0]["value_template"]


def test_there_are_ten_steps() -> None:
    assert re.findall(r"^\*\*(\d+)\. ", GUIDE, re.M) == [str(number) for number in range(1, 11)]
    assert "pip install" in INSTALL
