"""hushgrid serve: the curator of a service file, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import need


def serve(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Begin new terms in every zone.")
    ] = False,
    accept_leakage: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1e6,
            metavar="FIGURE",
            help="With --new-epoch: a leakage above the promise, to be stated in public.",
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Instead of the file's http.port.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of this curator among several (service.share).")
    ] = None,
) -> None:
    """Take readings, publish prices and keep the ledger; SIGTERM or Ctrl-C stops it cleanly.

    Example: hushgrid serve service.toml
    """
    import signal
    import threading

    for module in ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client"):
        need(module, "serve")
    from hushgrid.live.clock import SystemClock, WatchedClock
    from hushgrid.live.config import load_deployment
    from hushgrid.live.deployment import accepting, placed
    from hushgrid.live.logs import log_lines
    from hushgrid.live.serve import serve as run

    deployment = placed(load_deployment(file), port, name)
    deployment = accepting(deployment, accept_leakage, new_epoch)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log_lines()
    run(deployment, clock=WatchedClock(SystemClock()), stop=stop, new_epoch=new_epoch)
