"""The running service: one curator process, or one of several, until it is stopped.

stop = threading.Event()
serve(load_deployment("service.toml"), clock=SystemClock(), stop=stop)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from hushgrid.files.deployment import Deployment
    from hushgrid.service.clock import Clock

SWITCH = 0.001  # [s] for which a long query may keep other threads waiting, at each of their steps


def serve(
    deployment: Deployment, *, clock: Clock, stop: threading.Event, new_epoch: bool = False
) -> None:
    """Run until `stop` is set.

    An error at the start is raised; a later one is logged, and the zone concerned is opened again.

    Args:
        deployment: The service as its file describes it.
        clock: The wall clock.
        stop: Ends the loop once it is set.
        new_epoch: Begin a new epoch in every zone.
    """
    import gc
    import sys
    from contextlib import ExitStack

    from hushgrid.service.ledger import standby_remark
    from hushgrid.service.process import Process, log
    from hushgrid.service.same_terms import as_begun

    kind: type[Process] = Process
    if deployment.share:
        from hushgrid.service.cluster.process import SharedProcess

        kind = SharedProcess
    sys.setswitchinterval(SWITCH)
    with ExitStack() as stack:
        process = kind(deployment if new_epoch else as_begun(deployment), stack)
        process.open(clock.now(), new_epoch)
        if (remark := standby_remark(deployment.ledger)) is not None:
            log.warning("ledger not protected", extra={"reason": remark})
        gc.freeze()  # what is there stays: a search for garbage in it would hold up all threads
        process.listen(clock)
        log.info("serving", extra={"mode": deployment.mode})
        while not stop.is_set():
            process.turn(clock, stop.is_set)
            stop.wait(process.rest(clock))
        log.info("stopping")
        process.leave()
    log.info("stopped")
