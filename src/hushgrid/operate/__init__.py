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
    from hushgrid.operate.process import Process
    from hushgrid.operate.reload import Reload

SWITCH = 0.001  # [s] for which a long query may keep other threads waiting, at each of their steps


def serve(
    deployment: Deployment,
    *,
    clock: Clock,
    stop: threading.Event,
    changed: bool = False,
    changes: Callable[[Deployment, float], Changes] | None = None,
    reload: Reload | None = None,
) -> None:
    """Run until `stop` is set.

    An error at the start is raised; a later one is logged, and the zone concerned is opened again.

    Args:
        deployment: The service as its file describes it.
        clock: The wall clock.
        stop: Ends the loop once it is set.
        changed: Begin the terms of the file where the ledger has others.
        changes: Finds where it has; None: `changes.changes_of`.
        reload: Reads the file again when asked; None: it cannot be asked.

    Raises:
        LedgerError: The ledger has other terms and `changed` is not set, or it cannot be gone on
            with.
    """
    import gc
    import sys

    from hushgrid.operate.process import log
    from hushgrid.stores.ledger import standby_remark

    sys.setswitchinterval(SWITCH)

    def run(
        process: Process,
        ended: Callable[[], bool],
        between: Callable[[Process], bool] = lambda _: False,
    ) -> None:
        gc.freeze()  # what is there stays: a search for garbage in it would hold up all threads
        log.info("serving", extra={"mode": deployment.mode})
        while not ended():
            process.turn(clock, ended)
            if between(process):
                break
            stop.wait(process.sleep_length(clock))
        log.info("stopping")
        process.leave()

    if (remark := standby_remark(deployment.ledger)) is not None:
        log.warning("ledger not protected", extra={"reason": remark})
    if deployment.standby:
        from hushgrid.operate.standby import serve_in_turn

        def refused(_: Process) -> bool:
            if reload is not None:
                reload.refuse()
            return False

        serve_in_turn(
            deployment,
            clock=clock,
            stop=stop,
            changed=changed,
            run=lambda process, ended: run(process, ended, refused),
        )
    else:
        _serve_alone(deployment, clock, stop, changed, changes, reload, run)
    log.info("stopped")


def _serve_alone(
    deployment: Deployment,
    clock: Clock,
    stop: threading.Event,
    changed: bool,
    changes: Callable[[Deployment, float], Changes] | None,
    reload: Reload | None,
    run: Callable[[Process, Callable[[], bool], Callable[[Process], bool]], None],
) -> None:
    """Run a curator that is the only one, again wherever a changed file can begin."""
    from contextlib import ExitStack

    from hushgrid.curator.changes import changes_of, unasked
    from hushgrid.errors import HushgridError, LedgerError
    from hushgrid.operate.process import Process
    from hushgrid.operate.reload import Start

    def begins(process: Process) -> bool:
        if reload is None:
            return False
        return reload.ask(clock.now(), process.deployment) or reload.due(process.starts)

    found = (changes or changes_of)(deployment, clock.now())
    if found.zones and not changed:
        raise LedgerError(unasked(found.zones))
    start, failure = Start(found.deployment, found.zones, {}), None
    running: Deployment | None = None  # before a changed file
    while True:
        with ExitStack() as stack:
            try:
                process = Process(start.deployment, stack)
                process.open(clock.now(), start.changed, start.begins)
                process.listen(clock)
            except (HushgridError, OSError) as error:
                if running is None:
                    raise
                failure = error
            else:
                failure = None
                run(process, stop.is_set, begins)
                running, starts = process.deployment, process.starts
        if stop.is_set() or reload is None or running is None:
            return
        if failure is not None:
            start, running = reload.withdraw(start, running, failure, clock.now()), None
        else:
            start = reload.begin(running, starts, clock.now())
