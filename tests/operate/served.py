"""The process of the end-to-end test: python -m tests.operate.served FOLDER HTTP MQTT BEGINS."""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
from pathlib import Path

from hushgrid.curator.clock import SystemClock, WatchedClock, log_lines
from hushgrid.files.deployment import Deployment
from hushgrid.files.settings import Http, Mqtt
from hushgrid.operate import serve
from tests.curator.worlds import TOKEN, deployment, service

SECONDS = 2


def described(folder: Path, http: int, mqtt: int, begins: int) -> Deployment:
    return deployment(
        folder,
        service(begins=begins, seconds=SECONDS, early_limit=60),
        service("oak-lane", 3, begins=begins, seconds=SECONDS, early_limit=60),
        http=Http(port=http, tokens=(hashlib.sha256(TOKEN.encode()).hexdigest(),)),
        mqtt=Mqtt(
            "127.0.0.1", mqtt, readings="hushgrid/+/readings", prices="hushgrid/{zone}/price"
        ),
        price_file=folder / "prices.json",
    )


if __name__ == "__main__":
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log_lines()
    folder, *numbers = sys.argv[1:]
    made = described(Path(folder), *map(int, numbers))
    serve(made, clock=WatchedClock(SystemClock()), stop=stop)
