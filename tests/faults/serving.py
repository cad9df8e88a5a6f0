"""The service under faults: python -m tests.faults.serving FOLDER PORT BEGINS LEDGER METERS ..."""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
import time
from pathlib import Path

from hushgrid import Policy
from hushgrid.curator.clock import WatchedClock, log_lines
from hushgrid.files.deployment import Deployment
from hushgrid.files.settings import Http, OpenAdr
from hushgrid.operate import serve
from hushgrid.stores.clients import KINDS
from tests.curator.worlds import TOKEN, deployment, service
from tests.faults.shim import Control

SECONDS, GRACE = 2, 1
HOUSES = {"elm": 4, "oak": 3}
CLIENTS = {"ven": KINDS["ven"], "tables": KINDS["meters"]}  # of a service with OpenADR
SECRET = "a secret that is long enough"


def described(
    folder: Path, port: int, begins: int, ledger: str, meters: str, *more: str
) -> Deployment:
    policy, tls = Policy(0.5, horizon=5000), folder / "tls"
    return deployment(
        folder,
        *(
            service(zone, houses, begins=begins, seconds=SECONDS, grace=GRACE, policy=policy)
            for zone, houses in HOUSES.items()
        ),
        ledger=ledger,
        meters=meters,
        http=Http(
            port=port,
            tokens=(hashlib.sha256(TOKEN.encode()).hexdigest(),),
            tls_certificate=tls / "cert.pem" if tls.exists() else None,
            tls_key=tls / "key.pem" if tls.exists() else None,
        ),
        price_file=folder / f"prices-{port}.json",
        standby="standby" in more,
        openadr=OpenAdr() if (folder / "openadr").exists() else None,
        name=str(port),
    )


class SetClock:
    """The machine's clock, set forward or back by the plan."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def now(self) -> float:
        return time.time() + self._control.ahead


if __name__ == "__main__":
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log_lines()
    folder, port, begins, *rest = sys.argv[1:]
    made = described(Path(folder), int(port), int(begins), *rest)
    clock = WatchedClock(SetClock(Control(Path(folder, "control"))))
    serve(made, clock=clock, stop=stop)
