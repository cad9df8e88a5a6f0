"""hushgrid import: files of readings into a meter store; hushgrid meters: simulated meters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrid.cli import common

if TYPE_CHECKING:
    from hushgrid.files.deployment import ZoneService
    from hushgrid.intake.readings import Parsed


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="csv, json, ndjson, arrow, parquet, xml."),
    ],
    config: Annotated[Path, typer.Option(help="Service file (TOML).")],
    mapping: common.Columns = "canonical",
    json: common.Json = None,
) -> None:
    """Put readings from files into the meter store of a service that is not running.

    Example: hushgrid import readings.csv --config service.toml

    \f
    Args: see the help of each option.

    Raises:
        IntakeError: If a file is not of its format.
        FileError: If a file cannot be read or written.
    """
    from hushgrid.errors import FileError, IntakeError
    from hushgrid.files.readings import batches_of_file, mapping_named
    from hushgrid.files.service_file import load_deployment
    from hushgrid.service.ingest import Delivery, Ingest
    from hushgrid.service.meters import open_meters

    columns = mapping_named(mapping)
    deployment = load_deployment(config)
    delivery, kept = Delivery(), _Within(deployment.zones)
    try:
        sizes = {path: path.stat().st_size for path in files}
        with (
            open_meters(deployment.meters) as store,
            common.progress("bytes", sum(sizes.values())) as advance,
        ):
            for zone in deployment.zones:
                store.open_zone(zone.id, zone.meters, zone.seconds)
            ingest = Ingest(deployment.zones, store)
            for path in files:
                try:
                    batches = batches_of_file(path, columns, advance)
                    delivery.take(ingest, (kept.of(batch) for batch in batches))
                except IntakeError as error:
                    raise IntakeError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(
            f"{error.filename or 'a file'} cannot be read or written ({error.strerror});"
            " give files that are there."
        ) from None
    receipt = delivery.receipt._asdict()
    common.echo("\n".join(f"{kind:>10} {count}" for kind, count in receipt.items()), json)
    for one in delivery.problems:
        common.echo(f"  {one}", json)
    if kept.outside:
        common.echo(f"{'outside':>10} {kept.outside} of no zone's horizon: left out", json)
    values = {**receipt, "outside": kept.outside, "problems": list(delivery.problems)}
    common.write_json(values, json)


class _Within:
    """Keeps the readings that a zone can still publish."""

    def __init__(self, zones: Sequence[ZoneService]) -> None:
        self._begins = min(zone.begins for zone in zones)
        self._ends = max(zone.begins + zone.seconds * zone.policy.horizon for zone in zones)
        self.outside = 0

    def of(self, parsed: Parsed) -> Parsed:
        """What was parsed, less readings from before the first begins or after the last horizon."""
        from dataclasses import replace

        from hushgrid.intake.readings import Readings

        own = parsed.readings
        kept = (own.start >= self._begins) & (own.start < self._ends)
        if kept.all():
            return parsed
        self.outside += int((~kept).sum())
        some = Readings.trusted(
            own.names,
            own.code[kept],
            start=own.start[kept],
            duration=own.duration[kept],
            wh=own.wh[kept],
        )
        return replace(parsed, readings=some)


def meters(
    config: Annotated[Path, typer.Option(help="Service file (TOML): whose meters these are.")],
    to: Annotated[str, typer.Option(metavar="URL", help="http://HOST:PORT or mqtt://HOST:PORT.")],
    speed: Annotated[float, typer.Option(min=0.001, help="Speed-up over real time.")] = 1.0,
    steps: Annotated[int, typer.Option(min=0, help="Intervals to send; 0 goes on.")] = 0,
    form: Annotated[str, typer.Option(help="ndjson or arrow, over HTTP.")] = "ndjson",
    token_file: common.TokenFile = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Simulate the houses of a service and send their readings when each interval ends.

    Example: hushgrid meters --config service.toml --to http://127.0.0.1:8080 --steps 4

    \f
    Args: see the help of each option.

    Raises:
        ServiceError: If `form` is neither ndjson nor arrow.
    """
    import time

    from hushgrid.errors import ServiceError
    from hushgrid.files.service_file import load_deployment
    from hushgrid.service.clock import FastClock
    from hushgrid.service.ingest import Receipt
    from hushgrid.service.simulated_meters import Fleet, open_channel

    common.require("paho.mqtt.client" if to.startswith("mqtt") else "httpx", "serve")
    if form not in ("ndjson", "arrow"):
        raise ServiceError(f"form is {form!r}; give ndjson or arrow.")
    deployment = load_deployment(config)
    topic = deployment.mqtt.readings if deployment.mqtt else None
    way = open_channel(to, common.token_of(token_file), form, topic)
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
    common.echo(f"{sent} readings of {done} intervals sent: {dict(total._asdict())}", json)
    common.write_json({"intervals": done, "readings": sent, **total._asdict()}, json)
