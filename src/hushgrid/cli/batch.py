"""hushgrid batch: days of readings, all zones, aggregated by an engine and released."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import common

if TYPE_CHECKING:
    from hushgrid.service.batch.run import BatchReport


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
        str, typer.Option(help="stop or publish: an interval without any reading of the zone.")
    ] = "stop",
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Intervals before get no release, for ever.")
    ] = False,
    new_epoch: common.NewEpoch = False,
    accept_leakage: common.AcceptLeakage = None,
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
    from hushgrid.errors import BatchError
    from hushgrid.files.deployment import with_accepted_leakage
    from hushgrid.files.service_file import load_deployment
    from hushgrid.service.batch.engines import engine_at
    from hushgrid.service.batch.run import Job, intervals, run
    from hushgrid.service.border import as_begun
    from hushgrid.service.clock import SystemClock

    if gaps not in ("stop", "publish"):
        raise BatchError(f"gaps is {gaps!r}; give stop or publish.")
    first, last = _times(day, month, begin, end)
    deployment = with_accepted_leakage(load_deployment(file), accept_leakage, new_epoch)
    job = Job(
        deployment if new_epoch else as_begun(deployment),
        tuple(readings),
        first,
        last,
        tuple(zone or ()),
        seed,
        "publish" if gaps == "publish" else "stop",
        leave_out,
        new_epoch,
    )
    begun = time.monotonic()
    with common.progress("intervals", intervals(job)) as advance, engine_at(engine) as opened:
        report = run(job, opened, SystemClock(), advance)
    values = _values(report, time.monotonic() - begun)
    common.write_json(values, json)
    common.echo(_text(values), json)
    if report.stopped:
        raise typer.Exit(1)


def _times(
    day: str | None, month: str | None, begin: str | None, end: str | None
) -> tuple[int, int]:
    """First interval and end [epoch s]."""
    from datetime import UTC, datetime, timedelta

    from hushgrid.errors import BatchError
    from hushgrid.files.toml import instant_of

    given = [day is not None, month is not None, begin is not None and end is not None]
    if given.count(True) != 1 or (begin is None) != (end is None):
        raise BatchError("the time is not given once; give --day, --month, or --from and --to.")
    try:
        if day is not None:
            start = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
            return int(start.timestamp()), int((start + timedelta(days=1)).timestamp())
        if month is not None:
            start = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
            after = (start + timedelta(days=31)).replace(day=1)
            return int(start.timestamp()), int(after.timestamp())
    except (ValueError, OverflowError):
        word, value = ("day", day) if day is not None else ("month", month)
        raise BatchError(f"{word} is {value!r}; give one such as 2026-01-05.") from None
    first, last = instant_of(begin), instant_of(end)
    if first is None or last is None:
        word, value = ("from", begin) if first is None else ("to", end)
        raise BatchError(f"{word} is {value!r}; give a time such as 2026-01-05T00:00:00Z.")
    return first, last


def _values(report: BatchReport, seconds: float) -> dict[str, Any]:
    import resource
    from dataclasses import asdict

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**asdict(report), "seconds": round(seconds, 3), "peak_mib": round(peak, 1)}


def _text(values: dict[str, Any]) -> str:
    from datetime import UTC, datetime

    lines = [f"{key:>10} {value}" for key, value in values.items() if key != "stopped"]
    for zone, start in values["stopped"].items():
        when = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines.append(
            f"Zone {zone} stopped: no reading at all for {when}. Put the missing files there and"
            " run the same again, or publish the public forecast with --gaps publish."
        )
    return "\n".join(lines)
