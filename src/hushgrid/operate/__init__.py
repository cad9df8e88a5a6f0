"""The running service: one curator, until it is stopped.

stop = threading.Event()
serve(load_deployment("service.toml"), clock=SystemClock(), stop=stop)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from hushgrid.curator.changes import Changes
    from hushgrid.curator.clock import Clock
    from hushgrid.files.deployment import Deployment

SWITCH = 0.001  # [s] for which a long query may keep other threads waiting, at each of their steps


def serve(
    deployment: Deployment,
    *,
    clock: Clock,
    stop: threading.Event,
    changed: bool = False,
    changes: Callable[[Deployment, float], Changes] | None = None,
) -> None:
    """Run until `stop` is set.

    An error at the start is raised; a later one is logged, and the zone concerned is opened again.

    Args:
        deployment: The service as its file describes it.
        clock: The wall clock.
        stop: Ends the loop once it is set.
        changed: Begin the terms of the file where the ledger has others.
        changes: Finds where it has; None: `changes.changes_of`.

    Raises:
        LedgerError: The ledger has other terms and `changed` is not set, or it cannot be gone on
            with.
    """
    import gc
    import sys
    from contextlib import ExitStack

    from hushgrid.curator.changes import changes_of, unasked
    from hushgrid.errors import LedgerError
    from hushgrid.operate.process import Process, log
    from hushgrid.stores.ledger import standby_remark

    sys.setswitchinterval(SWITCH)

    def run(process: Process, ended: Callable[[], bool]) -> None:
        gc.freeze()  # what is there stays: a search for garbage in it would hold up all threads
        log.info("serving", extra={"mode": deployment.mode})
        while not ended():
            process.turn(clock, ended)
            stop.wait(process.sleep_length(clock))
        log.info("stopping")
        process.leave()

    if (remark := standby_remark(deployment.ledger)) is not None:
        log.warning("ledger not protected", extra={"reason": remark})
    if deployment.standby:
        from hushgrid.operate.standby import serve_in_turn

        serve_in_turn(deployment, clock=clock, stop=stop, changed=changed, run=run)
    else:
        with ExitStack() as stack:
            find = changes or changes_of
            present, differences = find(deployment, clock.now())
            if differences and not changed:
                raise LedgerError(unasked(differences))
            process = Process(present, stack)
            process.open(clock.now(), differences)
            process.listen(clock)
            run(process, stop.is_set)
    log.info("stopped")
