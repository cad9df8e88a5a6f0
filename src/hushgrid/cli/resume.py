"""hushgrid resume: book what releases that may be lost can have cost, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, put_json, say


def resume(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    zone: Annotated[str | None, typer.Option("--zone", help="One zone; else all of them.")] = None,
    lost_epoch: Annotated[
        Path | None,
        typer.Option(
            "--lost-epoch",
            help="Service file of an epoch that may have begun and been lost; the service must be"
            " stopped.",
        ),
    ] = None,
    json: Json = None,
) -> None:
    """End a zone's forecasts after a fail-over lost releases: book the most they can have cost.

    Works while the service runs on this machine, and while it is stopped. The file must have the
    terms of the last epoch in the ledger.

    Example: hushgrid resume service.toml --zone elm-street
    """
    import time

    from hushgrid.live.config import load_deployment
    from hushgrid.live.gaps import resume_zones

    other = None if lost_epoch is None else load_deployment(lost_epoch)
    found = resume_zones(load_deployment(file), zone, time.time(), lost_epoch=other)
    for one in found:
        if one.state == "resumed":
            cost = "no epsilon of their own" if one.epsilon is None else f"epsilon {one.epsilon:g}"
            say(f"zone {one.zone}: steps {one.first} to {one.last} are booked with {cost}", json)
        elif one.state == "asked":
            say(f"zone {one.zone}: the service is asked and has not answered yet", json)
        else:
            say(f"zone {one.zone}: nothing is missing", json)
    put_json({"zones": [one._asdict() for one in found]}, json)
    if any(one.state == "asked" for one in found):
        raise typer.Exit(1)
