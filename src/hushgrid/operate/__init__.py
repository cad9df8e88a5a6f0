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
    from hushgrid.operate.reload import Reload, Start

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
    import gc

    from hushgrid.curator.changes import changes_of, unasked
    from hushgrid.errors import LedgerError
    from hushgrid.operate.reload import Start

    def begins(process: Process) -> bool:
        if reload is None:
            return False
        starts = process.starts
        return reload.ask(process.deployment, starts, clock.now()) or reload.due(starts)

    comparison = (changes or changes_of)(deployment, clock.now())
    if comparison.zones and not changed:
        raise LedgerError(unasked(comparison.zones))
    start, running = Start(comparison.deployment, comparison.zones, {}), None
    while True:
        failure, present, starts = _session(start, clock, stop, begins, run)
        if failure is not None and (reload is None or running is None):
            raise failure
        if stop.is_set() or reload is None:
            return
        if failure is not None:
            assert running is not None
            start, running = reload.withdraw(start, running, failure, clock.now()), None
        else:
            start, running = reload.begin(present, starts, clock.now()), present
        gc.unfreeze()  # what the session before had is garbage now
        gc.collect()


def _session(
    start: Start,
    clock: Clock,
    stop: threading.Event,
    begins: Callable[[Process], bool],
    run: Callable[[Process, Callable[[], bool], Callable[[Process], bool]], None],
) -> tuple[Exception | None, Deployment, dict[str, int]]:
    """Open a process and run it until it is stopped or a changed file can begin.

    Returns:
        Why it could not be opened; the service as it ran; when the interval starts that each zone
        publishes next [UTC s].
    """
    from contextlib import ExitStack

    from hushgrid.errors import HushgridError
    from hushgrid.operate.process import Process

    with ExitStack() as stack:
        try:
            process = Process(start.deployment, stack)
            process.open(clock.now(), start.changed, start.begins)
            process.listen(clock)
        except (HushgridError, OSError) as error:
            return error, start.deployment, {}
        run(process, stop.is_set, begins)
        return None, process.deployment, process.starts
