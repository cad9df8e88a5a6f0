"""Commands that bring readings in: hushgrid import, hushgrid batch and hushgrid meters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.curator.ingest import Ingest
    from hushgrid.files.deployment import ZoneService
    from hushgrid.intake.readings import Parsed
    from hushgrid.intake.text import ColumnMapping
    from hushgrid.operate.batch.run import BatchReport


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="csv, json, ndjson, arrow, parquet, xml, exports."),
    ],
    config: Annotated[Path, typer.Option(help="Service file (TOML).")],
    mapping: common.Columns = "canonical",
    meter_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The one meter of the files.")
    ] = None,
    unit: Annotated[
        Literal["Wh", "kWh"] | None, typer.Option(help="Unit of the values of a table.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Store values that are far below the usual ones.")
    ] = False,
    json: common.Json = None,
) -> None:
    """Put readings from files into the meter store of a service that is not running.

    Example: hushgrid import export.csv --config service.toml --mapping fluvius --meter-id house-1

    \f
    Args: see the help of each option.

    Raises:
        IntakeError: If a file is not of its format, or its values are far too small for Wh.
        FileError: If a file cannot be read or written.
        typer.Exit: With code 1 if every row of a file is malformed or of an unknown meter.
    """
    from hushgrid.curator.ingest import Delivery, Ingest, Receipt
    from hushgrid.errors import FileError, IntakeError
    from hushgrid.files.readings import batches_of_file, mapping_of
    from hushgrid.files.service_file import load_deployment
    from hushgrid.stores.meters import open_meters

    deployment = load_deployment(config, planned=False)
    columns = mapping_of(mapping, meter_id, deployment.mappings)
    deliveries = [(path, Delivery(), _ZonePeriod(deployment.zones)) for path in files]
    try:
        sizes = {path: path.stat().st_size for path in files}
        with (
            open_meters(deployment.meters) as store,
            common.progress("bytes", sum(sizes.values())) as advance,
        ):
            for zone in deployment.zones:
                store.open_zone(*zone.roster)
            ingest = Ingest(deployment.zones, store)
            for path, delivery, period in deliveries:
                try:
                    by = _in_unit(ingest.mapped(columns), path, unit)
                    batches: Iterator[Parsed] = map(period.of, batches_of_file(path, by, advance))
                    if not yes and unit != "Wh":
                        batches = _check_unit(ingest, batches)
                    delivery.take(ingest, batches)
                except IntakeError as error:
                    raise IntakeError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(
            f"{error.filename or 'a file'} cannot be read or written ({error.strerror});"
            " give files that are there."
        ) from None
    receipt = sum((delivery.receipt for _, delivery, _ in deliveries), Receipt())._asdict()
    problems = [problem for _, delivery, _ in deliveries for problem in delivery.problems]
    outside = sum(period.outside for _, _, period in deliveries)
    reasons: dict[str, dict[str, Any]] = {}
    for path, delivery, _ in deliveries:
        for text, entry in delivery.reasons.items():
            place = entry["first"] if len(files) == 1 else f"{path.name} {entry['first']}"
            total = reasons.setdefault(text, {"count": 0, "first": place})
            total["count"] += entry["count"]
    common.echo("\n".join(f"{kind:>10} {count}" for kind, count in receipt.items()), json)
    for text, entry in reasons.items():
        common.echo(f"  {entry['count']} rows, first {entry['first']}: {text}", json)
    if outside:
        common.echo(f"{'outside':>10} {outside} of before any zone begins: left out", json)
    values = {**receipt, "outside": outside, "problems": problems, "reasons": reasons}
    common.write_json(values, json)
    futile = [
        f"{path}: {delivery.futile}"
        for path, delivery, period in deliveries
        if delivery.futile and not period.outside
    ]
    for line in futile:
        typer.echo(line, err=True)
    if futile:
        raise typer.Exit(1)


def _in_unit(columns: ColumnMapping, path: Path, unit: str | None) -> ColumnMapping:
    """A mapping with the unit of the command line."""
    from dataclasses import replace

    from hushgrid.errors import IntakeError
    from hushgrid.files.readings import TABLES

    if unit is None:
        return columns
    if columns.form != "json" and (columns.form != "table" or path.suffix.lower() not in TABLES):
        raise IntakeError(f"--unit is {unit}, but this format says its unit itself; leave it out.")
    return replace(columns, unit=unit.lower())  # type: ignore[arg-type]


def _check_unit(ingest: Ingest, batches: Iterator[Parsed]) -> Iterator[Parsed]:
    """The batches, once the first of them are as large as Wh are."""
    from hushgrid.curator.ingest import ROWS, TOO_SMALL
    from hushgrid.errors import IntakeError

    first_batches: list[Parsed] = []
    for batch in batches:
        first_batches.append(batch)
        if sum(len(part.readings) for part in first_batches) >= ROWS:
            break
    if ingest.small(first_batches):
        raise IntakeError(f"{TOO_SMALL}; give --unit kWh, or --yes to store them as Wh.")
    yield from first_batches
    yield from batches


class _ZonePeriod:
    """Keeps the readings of intervals since the first zone began."""

    def __init__(self, zones: Sequence[ZoneService]) -> None:
        self._begins = min(zone.begins for zone in zones)
        self.outside = 0

    def of(self, parsed: Parsed) -> Parsed:
        """What was parsed, less readings from before the first zone begins."""
        from dataclasses import replace

        readings = parsed.readings
        mask = readings.start >= self._begins
        if mask.all():
            return parsed
        self.outside += int((~mask).sum())
        return replace(parsed, readings=readings.at(mask))


def meters(
    config: Annotated[Path, typer.Option(help="Service file (TOML): whose meters these are.")],
    to: Annotated[str, typer.Option(metavar="URL", help="http://HOST:PORT or mqtt://HOST:PORT.")],
    speed: Annotated[float, typer.Option(min=0.001, help="Speed-up over real time.")] = 1.0,
    steps: Annotated[int, typer.Option(min=0, help="Intervals to send; 0 goes on.")] = 0,
    token_file: common.TokenFile = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Simulate the houses of a service and send their readings when each interval ends.

    Example: hushgrid meters --config service.toml --to http://127.0.0.1:8080 --steps 4

    \f
    Args: see the help of each option.
    """
    import time

    from hushgrid.curator.clock import FastClock
    from hushgrid.curator.ingest import Receipt
    from hushgrid.demo.simulated_meters import Fleet, open_channel
    from hushgrid.files.service_file import load_deployment

    common.require("paho.mqtt.client" if to.startswith("mqtt") else "httpx", "serve")
    deployment = load_deployment(config, planned=False)
    topic = deployment.mqtt.readings if deployment.mqtt else None
    way = open_channel(to, common.tokens_of(token_file, to), topic)
    clock = FastClock(time.time(), speed)
    fleets = [Fleet(zone, seed + z, clock.now()) for z, zone in enumerate(deployment.zones)]
    total, count, intervals = Receipt(), 0, 0
    try:
        while fleets and (not steps or intervals < steps * len(fleets)):
            fleet = min(fleets, key=lambda fleet: fleet.end)
            while (wait := fleet.end - clock.now()) > 0:
                time.sleep(min(wait / speed, 1.0))
            reacts = fleet.zone.scenario.consumption.reacts
            readings = fleet.interval(way.rate(fleet.zone.id) if reacts else None)
            total += way.send(readings) or Receipt()
            count, intervals = count + len(readings), intervals + 1
    finally:
        way.shut()
    common.echo(f"{count} readings of {intervals} intervals sent: {dict(total._asdict())}", json)
    common.write_json({"intervals": intervals, "readings": count, **total._asdict()}, json)


def batch(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    readings: Annotated[
        list[str],
        typer.Option(metavar="PLACE", help="Parquet file, folder, pattern, URL or table:NAME."),
    ],
    day: Annotated[str | None, typer.Option(help="A day of UTC such as 2026-01-05.")] = None,
    month: Annotated[str | None, typer.Option(help="A month of UTC such as 2026-01.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="First interval, with --to.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Where the last interval ends.")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="URL", help="duckdb, spark:MASTER or a URL of ibis.")
    ] = "duckdb",
    zone: Annotated[
        list[str] | None, typer.Option(help="This zone alone; may be repeated.")
    ] = None,
    gaps: Annotated[
        Literal["stop", "publish"],
        typer.Option(help="What becomes of an interval without any reading of the zone."),
    ] = "stop",
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Intervals before get no release, for ever.")
    ] = False,
    yes: common.Yes = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of simulated noise.")] = None,
    json: common.Json = None,
) -> None:
    """Publish every interval of a day or month from files of readings; run again to go on.

    Example: hushgrid batch service.toml --readings readings/ --day 2026-01-05

    \f
    Args: see the help of each option.

    Raises:
        BatchError: If a time or `gaps` is not usable.
        typer.Exit: With code 1 if a zone stopped at an interval without readings.
    """
    import time

    for module in ("ibis", "duckdb", "pyarrow"):
        common.require(module, "batch")
    from hushgrid.curator.clock import SystemClock
    from hushgrid.files.service_file import load_deployment
    from hushgrid.operate.batch.engines import engine_at
    from hushgrid.operate.batch.run import Job, intervals, run

    first, last = _times(day, month, begin, end)
    deployment = load_deployment(file)
    job = Job(
        deployment,
        tuple(readings),
        first,
        last,
        tuple(zone or ()),
        seed,
        "publish" if gaps == "publish" else "stop",
        leave_out,
        yes,
    )
    start = time.monotonic()
    with common.progress("intervals", intervals(job)) as advance, engine_at(engine) as backend:
        report = run(job, backend, SystemClock(), advance)
    values = _values(report, time.monotonic() - start)
    common.write_json(values, json)
    common.echo(_text(values), json)
    if report.stopped:
        raise typer.Exit(1)


def _times(
    day: str | None, month: str | None, begin: str | None, end: str | None
) -> tuple[int, int]:
    """First interval and end [UTC s]."""
    from datetime import UTC, datetime, timedelta

    from hushgrid.errors import BatchError

    choices = [day is not None, month is not None, begin is not None and end is not None]
    if choices.count(True) != 1 or (begin is None) != (end is None):
        raise BatchError("the time is not given once; give --day, --month, or --from and --to.")
    try:
        if day is not None:
            start = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
            return int(start.timestamp()), int((start + timedelta(days=1)).timestamp())
        if month is not None:
            start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
            next_month = (start + timedelta(days=31)).replace(day=1)
            return int(start.timestamp()), int(next_month.timestamp())
    except (ValueError, OverflowError):
        word, value = ("day", day) if day is not None else ("month", month)
        raise BatchError(f"{word} is {value!r}; give one such as 2026-01-05.") from None
    return common.instant("from", str(begin)), common.instant("to", str(end))


def _values(report: BatchReport, seconds: float) -> dict[str, Any]:
    import resource
    from dataclasses import asdict

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**asdict(report), "seconds": round(seconds, 3), "peak_mib": round(peak, 1)}


def _text(values: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    lines = [f"{key:>10} {value}" for key, value in values.items() if key != "stopped"]
    for zone, start in values["stopped"].items():
        time_text = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append(
            f"Zone {zone} stopped: no reading at all for {time_text}. Put the missing files there"
            " and run the same again, or publish the public forecast with --gaps publish."
        )
    return "\n".join(lines)
