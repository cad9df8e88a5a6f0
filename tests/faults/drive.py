"""The real service in a process of its own, under faults, with senders and readers.

A sender remembers what was acknowledged, a reader every price that it saw. In the end the
verifier, which shares no code with the service, holds both against the stores.
"""

from __future__ import annotations

import calendar
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.curator.worlds import TOKEN
from tests.faults.serving import GRACE, HOUSES, SECONDS
from tests.faults.shim import Control, Fault, build
from tests.services import free_port

VERIFY = Path(__file__).with_name("verify.py")
HEAD = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-ndjson"}
Reading = tuple[str, int, int, int]  # zone, house, start, Wh


class Driven:
    """A service that is started again whenever it has ended, until the block ends.

    Of several `curators` each has a process; senders and readers take them in turn.
    """

    def __init__(
        self,
        folder: Path,
        ledger: str | None = None,
        meters: str | None = None,
        curators: int = 1,
    ) -> None:
        self.folder, self.stores = folder, folder / "stores"
        self.stores.mkdir()
        self.ledger = ledger or str(self.stores / "ledger.db")
        self.meters = meters or str(self.stores / "meters")
        self.control, self._library = Control(folder / "control"), build(folder)
        self.ports = [free_port() for _ in range(curators)]
        self.port, self.begins = self.ports[0], int(time.time()) // SECONDS * SECONDS
        scheme = "https" if (folder / "tls").exists() else "http"
        self._webs: list[dict[str, Any]] = [
            {"base_url": f"{scheme}://127.0.0.1:{port}", "verify": False, "timeout": 30}
            for port in self.ports
        ]
        self.acknowledged: set[Reading] = set()
        self.shown: list[tuple[str, str, str, int, float]] = []
        self._steps, self._unsettled = 0, 0.0  # of the clock; [monotonic s] until it is followed
        self._noted: dict[tuple[str, str], tuple[str, str, str, int, float]] = {}
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        self.starts, self._over = 0, threading.Event()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads = [
            threading.Thread(target=self._until_over, args=(one,), name=name)
            for name, one in (("senders", self._send), ("reader", self._look))
        ] + [threading.Thread(target=self._keep_up, name="restarts")]

    # ---- the process

    def _start(self, port: int) -> None:
        own = {
            "LD_PRELOAD": str(self._library),
            "HUSHGRID_FAULTS": str(self.control.path),
            "HUSHGRID_FAULTS_FOLDER": str(self.stores),
        }
        words = [str(self.folder), str(port), str(self.begins), self.ledger, self.meters]
        words += ["standby"] * (len(self.ports) > 1)
        with (self.folder / "log").open("ab") as log:
            self._processes[port] = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.serving", *words],
                env=os.environ | own,
                stderr=log,
            )
        self.starts += 1

    def _keep_up(self) -> None:
        while not self._over.wait(0.05):
            for port in self.ports:
                if port not in self._processes or self._processes[port].poll() is not None:
                    self._start(port)

    def kill(self, curator: int = 0) -> None:
        """SIGKILL; it is started again."""
        process = self._processes.get(self.ports[curator])
        if process is not None:
            process.kill()
            process.wait(30)

    @contextmanager
    def running(self) -> Iterator[None]:
        """With senders and readers; in the end all is quiet, and the last state is read."""
        for one in self._threads:
            one.start()
        try:
            self.until_ready()
            yield
            self.control.disarm()
            self.until_ready()
            self.stated = self._stated()
        finally:
            self._over.set()
            for one in self._threads:
                one.join(60)
            for curator in range(len(self.ports)):
                self.kill(curator)

    # ---- waiting

    def until(self, true: Callable[[], bool], seconds: float = 600.0) -> None:
        """The limit is for failures only."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, (self.folder / "log").read_text()[-3000:]
            time.sleep(0.05)

    def until_ready(self) -> None:
        """Until all answer and one is active; the others stand by."""
        self.until(
            lambda: (
                all(self._status(web, "/healthz") == 200 for web in self._webs)
                and any(self._status(web, "/readyz") == 200 for web in self._webs)
            )
        )

    def until_published(self) -> None:
        """Until each zone has a further price."""
        seen = {zone: self._last(zone) for zone in HOUSES}
        self.until(lambda: all(self._last(zone) != head for zone, head in seen.items()))

    def set_clock(self, ahead: float) -> None:
        """Set the service's clock forward by so much [s]."""
        self._unsettled = time.monotonic() + 10
        self._steps += 1
        self.control.ahead = ahead

    def pause(self, seconds: float) -> None:
        """Let it run."""
        self._over.wait(seconds)

    def meets(self, fault: Fault, seconds: float = 3.0) -> bool:
        """Whether a fault was met; it stays for a moment, then it is over."""
        self.control.arm(fault)
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.control.fired < fault.times:
            time.sleep(0.02)
        met = self.control.fired > 0
        self.control.disarm()
        return met

    # ---- senders and readers

    def _until_over(self, work: Callable[[httpx.Client], None]) -> None:
        fresh = httpx.Limits(max_keepalive_connections=0)  # a connection each time
        with ExitStack() as stack:
            webs = [stack.enter_context(httpx.Client(limits=fresh, **web)) for web in self._webs]
            for web in itertools.cycle(webs):
                if self._over.wait(0.1):
                    return
                with suppress(httpx.TransportError):
                    work(web)

    def _send(self, web: httpx.Client) -> None:
        """The readings of this interval and the one before, again until acknowledged."""
        now = int(time.time() + self.control.ahead) // SECONDS * SECONDS
        for zone, houses in HOUSES.items():
            for start in (now - SECONDS, now):
                for part in (range(houses // 2), range(houses // 2, houses)):
                    some = [(zone, house, start, wh(house, start)) for house in part]
                    if not self.acknowledged.issuperset(some):
                        self._post(web, some)

    def _post(self, web: httpx.Client, some: list[Reading]) -> None:
        lines = [
            {"meter_id": f"{zone}-{house}", "start_utc": utc(start), "duration_s": SECONDS, "wh": n}
            for zone, house, start, n in some
        ]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        answer = self._timed(lambda: web.post("/v1/readings", content=body, headers=HEAD))
        counts = answer.json() if answer.status_code == 200 else {}
        if counts and counts["accepted"] + counts["duplicate"] == len(some):
            self.acknowledged.update(some)

    def _look(self, web: httpx.Client) -> None:
        for zone in HOUSES:
            answer = self._timed(lambda zone=zone: web.get("/v1/price", params={"zone": zone}))
            if answer.status_code == 200:
                self._note(f"/v1/price of {web.base_url}", answer.json())
        for file in self.folder.glob("prices-*.json"):
            for price in json.loads(file.read_text()).values():
                self._note(file.name, price)

    def _timed(self, call: Callable[[], httpx.Response]) -> httpx.Response:
        """An answer, with its time by path; one that does not come counts, too."""
        begun, path = time.monotonic(), "none"
        try:
            answer = call()
            path = f"{answer.request.url.path} {answer.status_code}"
            return answer
        finally:
            self.took[path].append(time.monotonic() - begun)

    def ticks(self) -> list[float]:
        """How long after its interval closed each release was made, by the log [s]."""
        found = []
        for line in (self.folder / "log").read_text().splitlines():
            if line.startswith("{") and (one := json.loads(line))["event"] == "released":
                due = (one["t"] + 1) * SECONDS + GRACE
                found.append(datetime.fromisoformat(one["time"]).timestamp() - due)
        return found

    def _note(self, way: str, found: dict[str, Any]) -> None:
        """The price in force and the next one, each where it is new."""
        for name, price in ((way, found), (f"next of {way}", found.get("next"))):
            if not price or price["kind"] != "published":
                continue
            # a clock that is set back has earlier prices in force
            settled = time.monotonic() > self._unsettled
            name = f"{name} {self._steps if settled else price['head']}"
            start = calendar.timegm(time.strptime(price["start"], "%Y-%m-%dT%H:%M:%SZ"))
            one = (name, price["zone"], price["head"], start, price["price"])
            if self._noted.get(one[:2]) != one:
                self._noted[one[:2]] = one
                self.shown.append(one)

    def _last(self, zone: str) -> str | None:
        return next((one[2] for one in reversed(self.shown) if one[1] == zone), None)

    def _status(self, web: dict[str, Any], path: str) -> int:
        with suppress(httpx.TransportError), httpx.Client(**web) as client:
            return client.get(path).status_code
        return 0

    def _stated(self) -> dict[str, int]:
        """The last step of each zone by the account of the active curator."""
        active = next(web for web in self._webs if self._status(web, "/readyz") == 200)
        with httpx.Client(**active) as web:
            answer = web.get("/v1/status")
        return {one["zone"]: one["t"] for one in answer.json()["zones"]}

    # ---- afterwards

    def judge(self, **changes: Any) -> dict[str, Any]:
        """What the verifier finds, of what was seen or of something else."""
        seen = self.folder / "seen.json"
        own = {
            "ledger": self.ledger,
            "meters": self.meters,
            "seconds": SECONDS,
            "acknowledged": sorted(self.acknowledged),
            "shown": self.shown,
            "last": self.stated,
        }
        seen.write_text(json.dumps(own | changes))
        ran = subprocess.run(
            [sys.executable, "-I", str(VERIFY), str(seen)], capture_output=True, check=False
        )
        assert ran.stdout, ran.stderr.decode()
        return dict(json.loads(ran.stdout))


def wh(house: int, start: int) -> int:
    return 201 + 13 * house + start // SECONDS % 7


def utc(start: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))
