"""Two processes on one zone: the second is refused in one sentence, and takes over at once when
the first is gone, however it went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hushgrid.curator.clock import SystemClock
from hushgrid.curator.status import from_ledger
from hushgrid.errors import LedgerError
from hushgrid.files.service_file import load_deployment
from hushgrid.operate import serve
from hushgrid.stores.ledger.writer import create
from tests.curator.setups import example
from tests.services import Postgres
from tests.web.brokers import free_port, until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "error", "-c", "from hushgrid.cli import main; main()", "serve"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_WAIT_POLICY": "passive"}


class Running:
    """hushgrid serve in a process of its own."""

    def __init__(self, file: Path) -> None:
        http = load_deployment(file).http
        assert http is not None
        self._url = f"http://127.0.0.1:{http.port}/readyz"
        self.process = subprocess.Popen(
            [*COMMAND, str(file)], stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        assert until(self.ready)

    def ready(self) -> bool:
        assert self.process.poll() is None
        try:
            return httpx.get(self._url).status_code == 200
        except httpx.TransportError:
            return False

    def killed(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)


def service_file(folder: Path, *edits: tuple[str, str]) -> Path:
    text = example(int(time.time()) // 900 * 900)
    for old, new in (
        ("port = 8080", f"port = {free_port()}"),
        ("count = 30", "count = 2"),
        ("count = 10", "count = 1"),
        *edits,
    ):
        assert old in text
        text = text.replace(old, new)
    create(folder / "hushgrid.key")
    (folder / "service.toml").write_text(text)
    return folder / "service.toml"


@pytest.fixture
def first(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    edits = []
    if request.param == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.fresh()
        edits = [('"ledger.sqlite"', f'"{url}"'), ('meters = "meters.sqlite"', f'meters = "{url}"')]
    file = service_file(tmp_path, *edits)
    running = Running(file)
    try:
        yield running, file
    finally:
        running.process.kill()
        running.process.wait(60)


@pytest.mark.parametrize("first", ["sqlite"], indirect=True)
@pytest.mark.soak
def test_a_second_process_is_refused_as_a_user_sees_it(first: tuple[Running, Path]) -> None:
    running, file = first
    second = subprocess.run(
        [*COMMAND, str(file)], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert second.returncode == 2
    assert second.stdout == ""
    (said,) = second.stderr.splitlines()
    assert said.startswith("zone 'elm-street' has a writer already;")
    assert running.ready()


@pytest.mark.parametrize("first", ["postgres", "sqlite"], indirect=True)
@pytest.mark.sampled
def test_the_second_takes_over_when_the_first_is_killed(first: tuple[Running, Path]) -> None:
    running, file = first
    deployment, stop = load_deployment(file), threading.Event()
    stop.set()  # opens everything, and stops
    with pytest.raises(LedgerError, match="zone 'elm-street' has a writer already"):
        serve(deployment, clock=SystemClock(), stop=stop)
    assert running.ready()
    running.killed()

    def opens() -> bool:
        try:
            serve(deployment, clock=SystemClock(), stop=stop)
        except LedgerError:  # a server takes a moment to see that a client is gone
            return False
        return True

    assert until(opens, 5)
    (found,) = from_ledger(deployment, time.time())
    assert found.state.split(";")[0] in ("not begun", "publishing")
