"""hushgrid check: every mistake in a service file, or what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, put_json, say


def check(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="As serve --new-epoch would start it.")
    ] = False,
    accept_leakage: Annotated[
        float | None,
        typer.Option(min=0.0, max=1e6, metavar="FIGURE", help="As serve --accept-leakage."),
    ] = None,
    json: Json = None,
) -> None:
    """Find every mistake in a service file at once; without any, say what it promises and costs.

    Nothing is written or created. Exit 1 where `hushgrid serve` would not start, where a
    production file still has values of the template, or where prices would be too wrong
    (service.accept_error); exit 2 where the file itself is wrong.

    Example: hushgrid check service.toml
    """
    from contextlib import suppress
    from dataclasses import replace

    from hushgrid.errors import FileError, HushgridError
    from hushgrid.live.border import as_begun
    from hushgrid.live.config import load_deployment
    from hushgrid.live.ledger.stores import standby_remark
    from hushgrid.live.outlook import (
        Running,
        deployment_prose,
        outlook,
        too_wrong,
        zone_json,
        zone_prose,
    )
    from hushgrid.live.placeholders import placeholders
    from hushgrid.live.readiness import refusals

    try:
        deployment = load_deployment(file)
        begun = deployment.zones
        if not new_epoch:
            with suppress(HushgridError):  # a ledger that cannot be read is a problem below
                begun = as_begun(deployment).zones
        found, unkept = [], []
        for planned, present in zip(deployment.zones, begun, strict=True):
            # the terms of the file, with what was accepted for them
            zone = replace(planned, accepts=accept_leakage if new_epoch else present.accepts)
            try:
                found.append((zone, outlook(zone)))
            except HushgridError as error:
                unkept.append(f"{file}: zone {zone.id}: {error}")
        if unkept:
            raise FileError("\n".join(unkept))
    except FileError as error:
        put_json({"ok": False, "problems": str(error).splitlines()}, json)
        raise
    agreed = tuple(replace(zone, accepts=accept_leakage) for zone in deployment.zones)
    running: dict[str, Running] = {}
    agreed_to = replace(deployment, zones=agreed)
    problems, remarks = refusals(agreed_to, new_epoch=new_epoch, running=running)
    remarks += deployment.problems
    if (remark := standby_remark(deployment.ledger)) is not None:
        remarks.append(remark)
    examples = [str(one) for one in placeholders(file)]
    (problems if deployment.mode == "production" else remarks).extend(examples)
    problems += [said for one in found if (said := too_wrong(*one))]
    prose = [zone_prose(zone, seen, running.get(zone.id)) for zone, seen in found]
    said = deployment_prose(deployment, prose, problems, remarks)
    say(said, json)
    zones = [zone_json(zone, seen, running.get(zone.id)) for zone, seen in found]
    values = {
        "ok": not problems,
        "problems": problems,
        "mode": deployment.mode,
        **(zones[0] if len(zones) == 1 else {}),
        "zones": zones,
        "remarks": remarks,
    }
    written = put_json(values, json)
    if written:
        say(f"\nWritten:\n  {written[0]}", json)
    if problems:
        raise typer.Exit(1)
