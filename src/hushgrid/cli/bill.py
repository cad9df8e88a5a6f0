"""The command hushgrid bill: what homes pay at published prices."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hushgrid.files.deployment import ZoneService
    from hushgrid.intake.readings import Readings
    from hushgrid.report.bill import BillRates
    from hushgrid.stores.ledger.entries import ReleaseRecord


def bill(
    readings: Annotated[list[Path], typer.Option(help="Files of readings, as for import.")],
    ledger: Annotated[str, typer.Option(metavar="STORE", help="A ledger, or an export of one.")],
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="First interval, UTC.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Intervals begin before, UTC.")],
    zone: common.ZoneName = None,
    mapping: common.Columns = "canonical",
    by: Annotated[Literal["all", "month", "day"], typer.Option(help="Period of a bill.")] = "all",
    time_zone: Annotated[str, typer.Option(help="Of months and days.")] = "UTC",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a table: .csv or .parquet.")
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Also exact costs, in a file of its own; secret.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="Service file (TOML), with --operator or registers of energy fed in."),
    ] = None,
    json: common.Json = None,
) -> None:
    """State each home's energy and cost at published prices.

    Example: hushgrid bill --readings june.csv --ledger ledger.db --from 2026-06-01 --to 2026-07-01

    \f
    Args: see the help of each option.

    Raises:
        FileError: If a file cannot be read or written.
        LedgerError: If the ledger is damaged, or has no price of the zone.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    from hushgrid.errors import FileError, LedgerError
    from hushgrid.files.mappings import mapping_of
    from hushgrid.files.readings import read_readings
    from hushgrid.intake.readings import concat, net_of, to_intervals
    from hushgrid.report.bill import bill_prose, bill_rows, revenue
    from hushgrid.stores.ledger import open_records, verifier
    from hushgrid.stores.ledger.chain import check
    from hushgrid.web.prices import latest_by_interval

    if operator and config is None:
        raise FileError("config is not given; --operator needs the service file of the zone.")
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise FileError(f"out is {out}; give a file that ends with .csv or .parquet.")
    mapping_of(mapping)
    first_start, end_start = common.instant("--from", first), common.instant("--to", end)
    try:
        clocks = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise FileError(
            f"time_zone is {time_zone!r}; give an IANA name such as Europe/Zurich."
        ) from None
    with open_records(ledger, zone) as (records, durable):
        report = check(records, verifier(None), durable)
    if report.first_bad is not None:
        raise LedgerError(f"record {report.first_bad} of {ledger} is bad; run ledger verify.")
    if len(report.standings) != 1:
        names = ", ".join(report.standings) or "no zone"
        raise LedgerError(f"{ledger} has {names}; give one zone with --zone.")
    ((name, standing),) = report.standings.items()
    if standing.terms is None or not standing.releases:
        raise LedgerError(f"{ledger} has no price of zone {name!r}; give another ledger.")
    seconds = standing.terms.seconds
    service = common.load_either(config, name).service if config else None
    if operator and service is None:
        raise FileError(f"config is {config}; --operator needs a service file, not a zone file.")
    registers = service.fed_in if service else {}
    batches = (read_readings(path, mapping, registers=registers).readings for path in readings)
    intervals = net_of(to_intervals(concat(batches), seconds).complete, registers)
    inside = (intervals.start >= first_start) & (intervals.start < end_start)
    releases = latest_by_interval(standing.releases)
    rates = {record.applies_start: _bill_rates(record) for record in releases}

    def period(start: int) -> str:
        form = {"all": "", "month": "%Y-%m", "day": "%Y-%m-%d"}[by]
        return datetime.fromtimestamp(start, clocks).strftime(form) if form else "all"

    rows = bill_rows(intervals.at(inside), rates, period)
    common.echo(bill_prose(rows, service.currency if service else ""), json)
    paths = [_write(out, rows)] if out else []
    values: dict[str, Any] = {"zone": {"id": name}, "from": first, "to": end, "houses": rows}
    if service is not None and operator:
        exact = _exact(service, intervals, {record.start for record in releases})
        rates = _with_exact(releases, exact, service)
        operator_rows = bill_rows(intervals.at(inside), rates, period, operator=True)
        target = out or Path(f"bills-{name}.csv")
        paths.append(
            _write(target.with_stem(f"{target.stem}-operator"), operator_rows, private=True)
        )
        values |= {"zone": {"id": name, **revenue(operator_rows)}, "houses": operator_rows}
    paths += common.write_json(values, json, private=operator)
    common.echo_written(paths, json)


def _bill_rates(record: ReleaseRecord) -> BillRates:
    from hushgrid.report.bill import BillRates

    return BillRates(record.rate, record.rate if record.feed_in is None else record.feed_in)


def _exact(service: ZoneService, readings: Readings, starts: set[int]) -> dict[int, int]:
    """The load of each interval of which a meter reported; what is missing as in the service."""
    import numpy as np

    from hushgrid.belief.filter import Expectations
    from hushgrid.stores.meters.columns import Interval

    house = {meter: i for i, meter in enumerate(service.meters)}
    place = np.array([house.get(name, -1) for name in readings.ids], np.int64)
    expected = Expectations(service.scenario, usual=service.policy.usual)
    loads: dict[int, int] = {}
    indices = np.flatnonzero(place[readings.code] >= 0)
    indices = indices[np.argsort(readings.start[indices], kind="stable")]
    interval_starts, first = np.unique(readings.start[indices], return_index=True)
    for start, rows in zip(interval_starts.tolist(), np.split(indices, first[1:]), strict=True):
        t = (start - service.begins) // service.seconds + 1
        if t < 1 or start not in starts:
            continue
        wh, present = np.zeros(len(house), np.int64), np.zeros(len(house), bool)
        members = place[readings.code[rows]]
        wh[members], present[members] = readings.wh[rows], True
        if present.any():
            zone = service.scenario.zone
            loads[start] = Interval(wh, present).tally(zone, partial(expected.at, t)).load
    return loads


def _with_exact(
    releases: Iterable[ReleaseRecord], loads: dict[int, int], service: ZoneService
) -> dict[int, BillRates]:
    """The rates with exact ones, by the start of the interval that they apply to.

    A tariff that smooths keeps a share of the exact rate before; where that is not known, of the
    published one.
    """
    from hushgrid.model.zone import feed_in_rate, public_rate

    tariff = service.scenario.tariff
    slopes = (tariff.alpha, tariff.alpha if tariff.feed_in is None else tariff.feed_in.alpha)
    rates: dict[int, BillRates] = {}
    last: float | None = None
    for record in sorted(releases, key=lambda record: record.start):
        rates[record.applies_start] = bill_rates = _bill_rates(record)
        load, last_exact = loads.get(record.start), last
        last = record.rate
        if load is None:
            continue
        last = rate = public_rate(load, tariff, last_exact)
        feed_in = feed_in_rate(load, tariff)
        spread = record.release.spread / 1000
        rates[record.applies_start] = bill_rates._replace(
            exact=(rate, rate if feed_in is None else feed_in),
            spread=(slopes[0] * spread, slopes[1] * spread),
        )
    return rates


def _write(path: Path, rows: list[dict[str, Any]], *, private: bool = False) -> Path:
    import csv
    import io

    from hushgrid.files.results import write_text

    if path.suffix == ".parquet":
        from hushgrid.intake.arrow import arrow

        pa, sink = arrow(), io.BytesIO()
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), sink)
        return write_text(path, sink.getvalue(), private=private)
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]) if rows else ["meter_id"], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return write_text(path, text.getvalue(), private=private)
