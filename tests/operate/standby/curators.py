"""Curators as processes on one PostgreSQL, one of them active, and what others see of them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import psycopg

from hushgrid.stores.ledger.writer import create
from tests.curator.worlds import TOKEN
from tests.web.brokers import free_port, until

ROOT = Path(__file__).parents[3]
TICK = 2  # [s]
COMMAND = [sys.executable, "-W", "error", "-c", "from hushgrid.cli import main; main()", "serve"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "src"),
    "OMP_WAIT_POLICY": "passive",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

ZONE = """
format = 1
[zone]
id = "{zone}"
[tariff]
alpha = 0.012
beta = 0.05
floor = 0.0
cap = 2.0
[policy]
epsilon = 0.5
[[houses]]
count = 3
meters = {{ prefix = "{zone}-", first = 1 }}
bound = 1000
chain = "all"
absent = {{ law = "uniform", top = 300 }}
present = {{ law = "uniform", top = 1000 }}
[[models]]
name = "steady"
[models.chains.all]
home_at_start = 0.5
periods = [{{ from = "00:00", leave = 0.1, come = 0.2 }}]
"""
SERVICE = """
format = 1
[service]
mode = "simulation"
begins = {begins}
time_zone = "UTC"
interval = {tick}
meter_interval = {tick}
grace = 0
fallback_rate = 0.25
key = "hushgrid.key"
standby = true
zones = {files}
[stores]
ledger = "{database}"
meters = "{database}"
[http]
port = {port}
token_digests = ["{digest}"]
rate_limit = 10000
"""


BLOCKS = """epsilon = 50
secret = "interval"
eta = 1
block_steps = [4]
block_epsilon = [0.5]"""


def service_file(
    folder: Path, database: str, zones: list[str], blocks: Sequence[str] = (), **changes: str
) -> Path:
    """A service of small zones, an interval of 2 s each, that began a minute ago.

    Noise lasts blocks of four steps in the zones `blocks`.
    """
    begins = time.strftime("%Y-%m-%dT%H:%M:00Z", time.gmtime(time.time() - 60))
    for zone in zones:
        text = ZONE.format(zone=zone)
        text = text.replace("epsilon = 0.5", BLOCKS) if zone in blocks else text
        (folder / f"{zone}.toml").write_text(text)
    values = {
        "begins": begins,
        "tick": TICK,
        "files": json.dumps([f"{zone}.toml" for zone in zones]),
        "database": database,
        "port": free_port(),
        "digest": hashlib.sha256(TOKEN.encode()).hexdigest(),
    }
    create(folder / "hushgrid.key")
    file = folder / "service.toml"
    file.write_text(SERVICE.format(**(values | changes)))
    return file


class Running:
    """One curator as a process."""

    def __init__(self, file: Path, *options: str) -> None:
        self.port = free_port()
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=2)
        self.log = file.parent / f"log-{self.port}-{time.monotonic_ns()}"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*COMMAND, str(file), "--port", str(self.port), *options],
                stderr=stream,
                env=ENVIRONMENT,
            )

    def alive(self) -> bool:
        return self.process.poll() is None

    def ready(self) -> bool:
        try:
            return self.web.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def zones(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.web.get("/v1/status").json()["zones"]
        return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.web.close()

    def stop(self) -> None:
        self.send(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()

    def events(self) -> list[dict[str, Any]]:
        """What it logged; the last line may be torn."""
        found = []
        for line in self.log.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


class Witness:
    """Sees each release when it is in the database, on a connection of its own.

    While the server is away it sees nothing, and time goes on: what it then finds late is late.
    """

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self.seen: dict[tuple[str, int], list[float]] = {}  # zone and step -> when it came
        self._last = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def steps(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for zone, t in sorted(self.seen):
            found.setdefault(zone, []).append(t)
        return found

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=2) as link:
                    while not self._stop.wait(0.1):
                        self._look(link)
            except psycopg.Error:
                self._stop.wait(0.05)

    def _look(self, link: psycopg.Connection[Any]) -> None:
        rows = link.execute(
            "SELECT zone, t / %s, count(*) FROM hushgrid_ledger"  # t is the start [s]
            " WHERE kind = 'release' AND t > %s GROUP BY zone, t",
            (TICK, time.time() - 100 * TICK),
        ).fetchall()
        now = time.time()
        for zone, t, count in rows:
            known = self.seen.setdefault((zone, t), [])
            known += [now] * (count - len(known))


def wait_for(true: Callable[[], bool], curators: list[Running], seconds: float = 120.0) -> None:
    """Until something is true; the logs where it does not come about."""
    assert until(true, seconds), "\n".join(one.log.read_text()[-3000:] for one in curators)
