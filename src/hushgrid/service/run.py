"""The running process: stores, key, noise, a curator for each zone, ways in and out, the loop.

    stop = threading.Event()
    serve(load_deployment("service.toml"), clock=SystemClock(), stop=stop)

A zone whose pass fails is closed and opened again after a pause that grows; the others go on.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

from hushgrid.files.deployment import Deployment
from hushgrid.service.border import as_begun
from hushgrid.service.clock import Clock
from hushgrid.service.ledger import standby_remark
from hushgrid.service.process import Process, log


def serve(
    deployment: Deployment, *, clock: Clock, stop: threading.Event, new_epoch: bool = False
) -> None:
    """Run until `stop` is set. What is wrong at the start is raised; later it is logged."""
    with ExitStack() as stack:
        process = _process(deployment if new_epoch else as_begun(deployment), stack)
        process.open(clock.now(), new_epoch)
        if (remark := standby_remark(deployment.ledger)) is not None:
            log.warning("ledger not protected", extra={"reason": remark})
        process.listen(clock)
        log.info("serving", extra={"mode": deployment.mode})
        while not stop.is_set():
            process.turn(clock)
            stop.wait(process.rest(clock))
        log.info("stopping")
        process.leave()
    log.info("stopped")


def _process(deployment: Deployment, stack: ExitStack) -> Process:
    if not deployment.share:
        return Process(deployment, stack)
    from hushgrid.service.cluster.process import SharedProcess

    return SharedProcess(deployment, stack)
