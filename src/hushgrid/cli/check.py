"""hushgrid check: every mistake in a service file, or what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, put_json, say


def check(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    json: Json = None,
) -> None:
    """Find every mistake in a service file at once; without any, say what it promises and costs.

    Example: hushgrid check service.toml
    """
    from hushgrid.live.config import load_deployment
    from hushgrid.live.outlook import deployment_prose, outlook, zone_json, zone_prose

    deployment = load_deployment(file)
    found = [(zone, outlook(zone)) for zone in deployment.zones]
    say(deployment_prose(deployment, [zone_prose(*one) for one in found]), json)
    values = {
        "mode": deployment.mode,
        "zones": [zone_json(*one) for one in found],
        "remarks": list(deployment.problems),
    }
    written = put_json(values, json)
    if written:
        say(f"\nWritten:\n  {written[0]}", json)
