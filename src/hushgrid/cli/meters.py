"""hushgrid meters: a simulated fleet that feeds a curator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, Seed, need, put_json, say


def meters(
    config: Annotated[Path, typer.Option(help="Service file (TOML): whose meters these are.")],
    to: Annotated[str, typer.Option(metavar="URL", help="http://HOST:PORT or mqtt://HOST:PORT.")],
    speed: Annotated[float, typer.Option(min=0.001, help="Times as fast as life.")] = 1.0,
    steps: Annotated[int, typer.Option(min=0, help="Intervals to send; 0 goes on.")] = 0,
    form: Annotated[str, typer.Option(help="ndjson or arrow, over HTTP.")] = "ndjson",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token; else $HUSHGRID_TOKEN.")
    ] = None,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Simulate the houses of a service and send their readings when each interval ends.

    Example: hushgrid meters --config service.toml --to http://127.0.0.1:8080 --steps 4
    """
    import os
    import time

    from hushgrid.errors import ServiceError
    from hushgrid.files import read_text
    from hushgrid.live.clock import FastClock
    from hushgrid.live.config import load_deployment
    from hushgrid.live.fleet import Fleet, way_to
    from hushgrid.live.gate import Receipt

    need("paho.mqtt.client" if to.startswith("mqtt") else "httpx", "serve")
    if form not in ("ndjson", "arrow"):
        raise ServiceError(f"form is {form!r}; give ndjson or arrow.")
    deployment = load_deployment(config)
    token = read_text(token_file).strip() if token_file else os.environ.get("HUSHGRID_TOKEN", "")
    way = way_to(to, token, form, deployment.mqtt.readings if deployment.mqtt else None)
    clock = FastClock(time.time(), speed)
    fleets = [Fleet(zone, seed + z, clock.now()) for z, zone in enumerate(deployment.zones)]
    total, sent, done = Receipt(), 0, 0
    try:
        while fleets and (not steps or done < steps * len(fleets)):
            fleet = min(fleets, key=lambda one: one.end)
            while (wait := fleet.end - clock.now()) > 0:
                time.sleep(min(wait / speed, 1.0))
            reacts = fleet.zone.scenario.consumption.reacts
            readings = fleet.interval(way.rate(fleet.zone.id) if reacts else None)
            total += way.send(readings) or Receipt()
            sent, done = sent + len(readings), done + 1
    finally:
        way.shut()
    say(f"{sent} readings of {done} intervals sent: {dict(total._asdict())}", json)
    put_json({"intervals": done, "readings": sent, **total._asdict()}, json)
