"""Many webhook subscribers, three in ten of whom fail: do all others hear of every release, and
does telling them hold up a tick?

The VTN runs as it does, with its store on disk; who takes the callbacks is a process of its own:
python -m benchmarks.webhooks. It answers /500/... with 500 and all else with 200, and tells over
GET how many of the latter came.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median

from benchmarks.measure import Question, Result, sized
from benchmarks.meters import folder
from benchmarks.running import BEGINS, service
from hushgrid import SimulatedNoise
from hushgrid.curator.clock import SystemClock
from hushgrid.curator.curator import Curator
from hushgrid.files.deployment import ZoneService
from hushgrid.files.settings import OpenAdr
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import open_meters
from hushgrid.stores.openadr import StoredObject, VtnStore, to_text
from hushgrid.web.openadr.app import Vtn
from hushgrid.web.prices import History
from hushgrid.web.tokens import Access

SUBSCRIBERS, FAILING, RELEASES, HOUSES = sized((1000, 300, 8, 200), (10, 3, 2, 64))
WAIT = 90.0  # [s] for all to hear of a release
CLOSED = "http://127.0.0.1:1/"  # nobody listens there


@lru_cache(maxsize=1)
def _told() -> tuple[float, float, float]:
    """The share of deliveries that came, seconds until the last did, seconds a tick is held up."""
    zone, ticks, late = service(HOUSES), [], []
    with ExitStack() as stack:
        taker, history = _taker(stack), History([zone])
        place = stack.enter_context(folder())
        curator = _curator(zone, history, place, stack)
        alone = [_tick(curator) for _ in range(RELEASES)]
        store = VtnStore(str(place / "vtn.sqlite"))
        _subscribe(store, taker, zone.id)
        clock = SystemClock()
        settings = OpenAdr(allow_private_callbacks=True)
        stack.enter_context(Vtn(history, store, Access(None, b"k" * 32, clock), clock, settings))
        for n in range(1, RELEASES + 1):
            begun = time.perf_counter()
            ticks.append(_tick(curator))
            if n % 2:  # the next one comes while this one is told
                continue
            wanted = n * (SUBSCRIBERS - FAILING)
            while (came := _came(taker)) < wanted and time.perf_counter() - begun < WAIT:
                time.sleep(0.02)
            late.append(time.perf_counter() - begun)
    return came / wanted, median(late), max(median(ticks) - median(alone), 0.0)


def _taker(stack: ExitStack) -> str:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.webhooks"], stdout=subprocess.PIPE, text=True
    )
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    assert process.stdout is not None
    return f"http://127.0.0.1:{int(process.stdout.readline())}"


def _curator(zone: ZoneService, history: History, place: Path, stack: ExitStack) -> Curator:
    create(place / "key")
    store = stack.enter_context(open_store(str(place / "ledger.db")))
    meters = stack.enter_context(open_meters(str(place / "meters")))
    opened = Curator.open(
        zone, store, meters, SimulatedNoise(1), load(place / "key"), [history], "simulation",
        now=BEGINS,
    )  # fmt: skip
    return stack.enter_context(opened)


def _tick(curator: Curator) -> float:
    begun = time.perf_counter()
    made = curator.run(curator.next_due())
    assert len(made) == 1
    return time.perf_counter() - begun


def _subscribe(store: VtnStore, taker: str, program: str) -> None:
    for i in range(SUBSCRIBERS):
        url = f"{taker}/ok/{i}"
        if i < FAILING:
            url = CLOSED if i % 2 else f"{taker}/500/{i}"
        each = {"objects": ["EVENT"], "operations": ["CREATE"], "callbackUrl": url}
        body = {"clientName": "bench", "programID": program, "objectOperations": [each]}
        client = f"bench-{i % 50}"  # a client has few of them
        store.add(StoredObject("SUBSCRIPTION", f"subscription-{i}", client, 0, 0, to_text(body)))


def _came(taker: str) -> int:
    with urllib.request.urlopen(taker) as answer:
        return int(answer.read())


def heard() -> Result:
    """Every subscriber that answers hears of each release."""
    share, late, _ = _told()
    return Result(late, "s until the last has it", share, ">= 1")


def tick() -> Result:
    """How long a usual tick is held up by telling subscribers, of a second the loop may sleep."""
    *_, held = _told()
    return Result(1000 * held, "ms", held / 1.0, "<= 0.05")


QUESTIONS: dict[str, Question] = {"webhooks_1000": heard, "webhooks_tick": tick}


class _Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    came, mutex = 0, threading.Lock()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        fails = self.path.startswith("/500/")
        if not fails:
            with self.mutex:
                _Taker.came += 1
        self._answer(500 if fails else 200, b"")

    def do_GET(self) -> None:
        self._answer(200, str(_Taker.came).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:  # type: ignore[override]
        """Say nothing."""


def main() -> None:
    class Server(ThreadingHTTPServer):
        request_queue_size = 1024

    server = Server(("127.0.0.1", 0), _Taker)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
