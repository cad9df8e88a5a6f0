"""hushgrid ledger: show, verify, export and copy what was published; hushgrid bill: its bills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.files.deployment import ZoneService
    from hushgrid.intake.readings import Readings
    from hushgrid.report.bill import BillRates
    from hushgrid.stores.ledger.chain import ChainReport
    from hushgrid.stores.ledger.entries import ReleaseRecord
    from hushgrid.stores.ledger.state import LedgerState

app = typer.Typer(
    help="Show, verify, export and copy a ledger: what was published and what it cost.",
    no_args_is_help=True,
)

Store = Annotated[
    str, typer.Argument(metavar="STORE", help="Path, export, or postgresql://USER@HOST/DATABASE.")
]
LedgerFile = Annotated[
    str, typer.Argument(metavar="STORE", help="Path of a ledger; a database server has its own.")
]


@app.command()
def show(
    store: Store,
    zone: common.OneZone = None,
    last: Annotated[int, typer.Option(min=0, help="Releases to list.")] = 10,
    json: common.Json = None,
) -> None:
    """Show each zone's terms, budget spent and last releases.

    Example: hushgrid ledger show ledger.db --zone elm-street

    \f
    Args: see the help of each option.
    """
    from hushgrid.stores.ledger import open_records, verifier
    from hushgrid.stores.ledger.chain import check

    with open_records(store, zone) as (records, durable):
        report = check(records, verifier(None), durable)
    for state in report.standings.values():
        common.echo(_prose(state, last), json)
    _conclude(report, json)


@app.command()
def verify(
    store: Store,
    zone: common.OneZone = None,
    key: common.SigningKey = None,
    head: common.Heads = None,
    json: common.Json = None,
) -> None:
    """Verify every record: order, digests, signatures, rules. Exit 1 if one is bad.

    Example: hushgrid ledger verify ledger.db --zone elm-street

    \f
    Args: see the help of each option.
    """
    from hushgrid.stores.ledger import check_digits, open_records, verifier
    from hushgrid.stores.ledger.chain import check

    for digest in head or ():
        check_digits("head", digest)
    heads = dict.fromkeys(head or ())
    with open_records(store, zone) as (records, durable):
        report = check(records, verifier(key), {**heads, **durable})
    _conclude(report, json)


@app.command()
def export(
    store: Store,
    zone: common.OneZone = None,
    out: Annotated[str, typer.Option(metavar="FILE|-", help="Where the records go.")] = "-",
    mechanisms: Annotated[
        bool,
        typer.Option(
            "--mechanisms", help="Write what was released as events of dp_accounting instead."
        ),
    ] = False,
    json: common.Json = None,
) -> None:
    """Write every record as one line of JSON; scripts/verify_ledger.py checks it without hushgrid.

    With --mechanisms: one JSON document of what each block of prices, model and lost stretch lost
    about any home, as events that Google's dp_accounting reads (docs/audit.md).

    Example: hushgrid ledger export ledger.db --out ledger.ndjson

    Example: hushgrid ledger export ledger.db --mechanisms --out mechanisms.json

    \f
    Args: see the help of each option.

    Raises:
        LedgerError: If records and JSON both go to standard output, or a record is bad and
            mechanisms are asked for.
    """
    from hushgrid.errors import LedgerError
    from hushgrid.files.results import write_text
    from hushgrid.stores.ledger import open_records

    if out == "-" and json == "-":
        raise LedgerError("out and json are both standard output; give a file for one of them.")
    if mechanisms:
        _export_mechanisms(store, zone, out, json)
        return
    with open_records(store, zone) as (records, _):
        heads: dict[str, str] = {}
        lines = []
        for record in records:
            lines.append(f"{record.line}\n")
            heads[record.zone] = record.digest
    if out == "-":
        sys.stdout.buffer.write("".join(lines).encode())
    else:
        common.echo(f"Written:\n  {write_text(Path(out), ''.join(lines))}", json)
    head = next(iter(heads.values())) if len(heads) == 1 else None
    common.write_json(
        {"records": len(lines), "head": head, "first_bad": None, "heads": heads}, json
    )


def _export_mechanisms(store: str, zone: str | None, out: str, json: str | None) -> None:
    """Write the mechanisms of a ledger whose records are all good."""
    from hushgrid.accounting.composition import DURATIONS
    from hushgrid.errors import LedgerError
    from hushgrid.files.results import json_text, write_text
    from hushgrid.stores.ledger.mechanisms import FORMAT, exported

    report = _checked(store, zone)
    if report.first_bad is not None:
        raise LedgerError(
            f"record {report.first_bad} of the ledger is bad, so it says nothing of what was"
            f" released ({report.reason}); run hushgrid ledger verify."
        )
    zones = {
        name: exported(state, list(DURATIONS.values())) for name, state in report.standings.items()
    }
    text = json_text({"format": FORMAT, "zones": zones})
    if out == "-":
        sys.stdout.write(text)
    else:
        common.echo(f"Written:\n  {write_text(Path(out), text)}", json)
    common.write_json(
        {
            "records": report.records,
            "head": report.head,
            "first_bad": None,
            "mechanisms": {name: len(values["mechanisms"]) for name, values in zones.items()},
            "epsilon": {name: values["epsilon"] for name, values in zones.items()},
        },
        json,
    )


def _checked(store: str, zone: str | None) -> ChainReport:
    """The ledger, all of its records checked; it has some."""
    from hushgrid.errors import LedgerError
    from hushgrid.stores.ledger import open_records, verifier
    from hushgrid.stores.ledger.chain import check

    with open_records(store, zone) as (records, durable):
        report = check(records, verifier(None), durable)
    if not report.records and report.first_bad is None:
        raise LedgerError("the ledger has no such records; give another store or zone.")
    return report


@app.command()
def backup(
    store: LedgerFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; a new file.")],
    meters: Annotated[
        str | None, typer.Option(metavar="STORE", help="Copy this meter store to FILE.meters, too.")
    ] = None,
    json: common.Json = None,
) -> None:
    """Copy a ledger file while the service runs, and verify every record of the copy.

    With --meters the readings are copied, too: keep that copy secret. Noise is in no store.

    Example: hushgrid ledger backup ledger.sqlite ledger-2026-01-31.sqlite

    \f
    Args: see the help of each option.
    """
    from hushgrid.stores.ledger import verifier
    from hushgrid.stores.ledger.store import back_up

    report = back_up(_file_of(store), file, verifier(None))
    paths = [file]
    if meters is not None:
        from hushgrid.stores.meters.store import back_up as copy_readings

        paths.append(copy_readings(meters, file.with_name(f"{file.name}.meters")))
    common.echo("\n  ".join(["Written:", *map(str, paths)]), json)
    _conclude(report, json)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A copy made by backup.")],
    store: LedgerFile,
    json: common.Json = None,
) -> None:
    """Put a copy where a ledger was; one that lacks what was published there is refused.

    Example: hushgrid ledger restore ledger-2026-01-31.sqlite ledger.sqlite

    \f
    Args: see the help of each option.
    """
    from hushgrid.stores.ledger import verifier
    from hushgrid.stores.ledger.store import restore as restore_copy

    report = restore_copy(file, _file_of(store), verifier(None))
    common.echo(f"Written:\n  {_file_of(store)}", json)
    _conclude(report, json)


@app.command()
def transfer(
    meter: Annotated[str, typer.Argument(metavar="METER", help="Id of the house's meter.")],
    config: Annotated[Path, typer.Option(help="Service file (TOML), with the old rosters.")],
    source: Annotated[str, typer.Option("--from", metavar="ZONE", help="Zone the house leaves.")],
    target: Annotated[str, typer.Option("--to", metavar="ZONE", help="Zone it comes into.")],
    json: common.Json = None,
) -> None:
    """Carry a house's account into the zone it moves to; the service must be stopped.

    Example: hushgrid ledger transfer elm-0007 --config service.toml --from elm --to oak

    \f
    Args: see the help of each option.
    """
    import time

    from hushgrid.curator.transfer import move
    from hushgrid.files.service_file import load_deployment

    result = move(load_deployment(config), meter, source, target, time.time())
    state = "takes its account" if result.anew else "has taken its account already"
    common.echo(
        f"house {result.house} {state} from {source} to {target}; now change the rosters and start"
        " hushgrid serve --yes",
        json,
    )
    common.write_json({**result._asdict(), "from": source, "to": target}, json)


@app.command()
def close(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="Service file (TOML).")],
    goes_on: Annotated[
        str, typer.Option(metavar="TEXT", help="Where the zones go on, in words.")
    ] = "not stated",
    json: common.Json = None,
) -> None:
    """Close a ledger for ever by a last signed record; the service must be stopped.

    Example: hushgrid ledger close service.toml --goes-on "on the new server"

    \f
    Args: see the help of each option.
    """
    import time

    from hushgrid.curator.closing import close_ledger
    from hushgrid.files.service_file import load_deployment

    _ends(close_ledger(load_deployment(config), goes_on, time.time()), "closed", json)


@app.command("import")
def import_(
    export: Annotated[str, typer.Argument(metavar="EXPORT", help="Export of a closed ledger.")],
    into: Annotated[
        str, typer.Option(metavar="URL", help="Path, or postgresql://USER@HOST/DATABASE; empty.")
    ],
    key: Annotated[Path, typer.Option(help="The ledger's signing key.")] = Path("hushgrid.key"),
    json: common.Json = None,
) -> None:
    """Copy a closed ledger into an empty one, where its account goes on.

    Example: hushgrid ledger import ledger.ndjson --into ledger.sqlite

    \f
    Args: see the help of each option.
    """
    from hushgrid.curator.closing import import_ledger

    _ends(import_ledger(export, into, key), "imported", json)


def _ends(ends: Sequence[Any], word: str, json: str | None) -> None:
    """Show the last record of each zone."""
    for end in ends:
        state = word if end.anew else f"{word} already"
        common.echo(f"{end.zone}: {state}, {end.records} records, head {end.head}", json)
    sole_end = ends[0] if len(ends) == 1 else None
    values = {
        "records": sum(end.records for end in ends),
        "head": sole_end.head if sole_end else None,
    }
    common.write_json({**values, "heads": {end.zone: end.head for end in ends}}, json)


def _file_of(store: str) -> Path:
    """The path of a store that is a file."""
    from hushgrid.errors import LedgerError

    if "://" in store:
        raise LedgerError(
            "store is on a database server; use pg_dump and pg_restore, then hushgrid ledger"
            " verify."
        )
    return Path(store.removeprefix("sqlite:"))


def _conclude(report: ChainReport, json: str | None) -> None:
    """The verdict in one line, the figures as JSON, exit 1 where a record is bad."""
    from hushgrid.errors import LedgerError

    if not report.records and report.first_bad is None:
        raise LedgerError("the ledger has no such records; give another store or zone.")
    plural = len(report.standings) != 1
    if report.first_bad is None:
        of = f"{len(report.standings)} zones" if plural else f"head {report.head}"
        common.echo(
            f"good: {report.records} records, {of}, signatures checked; not checked: what the"
            " digests of contracts, models, laws and meters stand for (hushgrid audit with the"
            " service file)",
            json,
        )
    else:
        common.echo(f"bad: record {report.first_bad}: {report.reason}", json)
    values = {
        "records": report.records,
        "head": None if plural else report.head,
        "first_bad": report.first_bad,
        "reason": report.reason,
        "zones": {zone: _figures(state) for zone, state in report.standings.items()},
    }
    common.write_json(values, json)
    if report.first_bad is not None:
        raise typer.Exit(1)


def _figures(state: LedgerState) -> dict[str, Any]:
    terms, gap = state.terms, state.gap
    return {
        "mode": state.mode,
        "key": state.key,
        "records": state.head.seq,
        "head": state.head.digest,
        "signature": state.signature,
        "terms": None if terms is None else {"digest": terms.digest, "first": terms.first},
        "t": state.last_t,
        "epsilon": state.epsilon,
        "releases": state.counts,
        "transfers": len(state.transfers),
        "gap": None if gap is None else {"first": gap.first, "last": gap.last, "why": gap.why},
        "booked": len(state.booked),
    }


def _prose(state: LedgerState, last: int) -> str:
    counts = ", ".join(f"{n} from {source}" for source, n in state.counts.items()) or "none"
    terms = "no terms yet"
    if state.terms is not None:
        terms = f"terms {state.terms.digest[:12]} from step {state.terms.first} on"
    lines = [
        f"zone {state.zone}: {state.mode}, {state.head.seq} records, {terms}",
        f"  releases: {counts}; epsilon of all together at most {state.epsilon:.6g}",
        f"  head: {state.head.digest}",
    ]
    for loss in state.booked:
        cost = f"epsilon {loss.epsilon:.6g}"
        lines.append(f"  steps {loss.first} to {loss.last} may be lost: booked with {cost}")
    if (gap := state.gap) is not None:
        lines.append(f"  steps {gap.first} to {gap.last} may be lost: run hushgrid resume")
    releases = state.releases[-last:] if last else ()
    if releases:
        lines.append(f"  {'t':>6} {'start [s]':>11} {'rate':>12} {'scale [Wh]':>11} source")
    for release in releases:
        rate = f"{release.rate:12.6g} {release.scale:11.6g}"
        lines.append(f"  {release.t:6d} {release.start:11d} {rate} {release.source}")
    return "\n".join(lines)


# ---- bills


def bill(
    readings: Annotated[list[Path], typer.Option(help="Files of readings, as for import.")],
    ledger: Annotated[str, typer.Option(metavar="STORE", help="A ledger, or an export of one.")],
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="First interval, UTC.")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Intervals begin before, UTC.")],
    zone: common.ZoneName = None,
    mapping: common.Columns = "canonical",
    by: Annotated[Literal["all", "month", "day"], typer.Option(help="Period of a bill.")] = "all",
    time_zone: Annotated[str, typer.Option(help="Of months and days.")] = "UTC",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a table, .csv.")] = None,
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
    from hushgrid.files.readings import mapping_of, read_readings
    from hushgrid.intake.readings import concat, net_of, to_intervals
    from hushgrid.report.bill import bill_prose, bill_rows, revenue
    from hushgrid.stores.ledger import open_records, verifier
    from hushgrid.stores.ledger.chain import check

    if operator and config is None:
        raise FileError("config is not given; --operator needs the service file of the zone.")
    if out is not None and out.suffix != ".csv":
        raise FileError(f"out is {out}; give a file that ends with .csv.")
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
    releases = standing.prices
    if standing.terms is None or not releases:
        raise LedgerError(f"{ledger} has no price of zone {name!r}; give another ledger.")
    seconds = standing.terms.seconds
    service = common.load_either(config, name).service if config else None
    if operator and service is None:
        raise FileError(f"config is {config}; --operator needs a service file, not a zone file.")
    registers = service.fed_in if service else {}
    batches = (read_readings(path, mapping, registers=registers).readings for path in readings)
    intervals = net_of(to_intervals(concat(batches), seconds).complete, registers)
    inside = (intervals.start >= first_start) & (intervals.start < end_start)
    rates = {record.applies_start: _bill_rates(record) for record in releases}

    def period(start: int) -> str:
        form = {"all": "", "month": "%Y-%m", "day": "%Y-%m-%d"}[by]
        return datetime.fromtimestamp(start, clocks).strftime(form) if form else "all"

    rows = bill_rows(intervals.at(inside), rates, period)
    common.echo(bill_prose(rows, service.currency if service else ""), json)
    paths = [_write_bills(out, rows)] if out else []
    values: dict[str, Any] = {"zone": {"id": name}, "from": first, "to": end, "houses": rows}
    if service is not None and operator:
        exact = _exact(service, intervals, {_priced(record) for record in releases})
        rates = _with_exact(standing, exact, service)
        operator_rows = bill_rows(intervals.at(inside), rates, period, operator=True)
        target = out or Path(f"bills-{name}.csv")
        paths.append(
            _write_bills(target.with_stem(f"{target.stem}-operator"), operator_rows, private=True)
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
    standing: LedgerState, loads: dict[int, int], service: ZoneService
) -> dict[int, BillRates]:
    """The rates with exact ones, by the start of the interval that they apply to.

    Each by the tariff that was on record before it. The exact rate of a listed price is that of the
    load of its own interval. A tariff that smooths
    keeps a share of the exact rate before; where that is not known, of the published one.
    """
    from hushgrid.mechanism.digest import tariff_from
    from hushgrid.model.zone import feed_in_rate, marginal_rate, offset_tariff, public_rate

    scenario = service.scenario
    tariffs = {
        entry.seq: offset_tariff(scenario.zone, tariff_from(entry.figures), scenario.consumption)
        for entry in standing.tariffs
    }
    rates: dict[int, BillRates] = {}
    last: float | None = None
    for record in sorted(standing.prices, key=_priced):
        entry = standing.tariff_before(record.seq)
        tariff = scenario.tariff if entry is None else tariffs[entry.seq]
        rates[record.applies_start] = bill_rates = _bill_rates(record)
        listed = record.applies_from == record.t
        load, last_exact = loads.get(_priced(record)), None if listed else last
        last = record.rate
        if load is None:
            continue
        last = rate = public_rate(load, tariff, last_exact)
        feed_in = feed_in_rate(load, tariff)
        spread, slope = record.release.spread / 1000, marginal_rate(float(load), tariff)
        fed_slope = slope if tariff.feed_in is None else tariff.feed_in.alpha
        rates[record.applies_start] = bill_rates._replace(
            exact=(rate, rate if feed_in is None else feed_in),
            spread=(slope * spread, fed_slope * spread),
        )
    return rates


def _priced(record: ReleaseRecord) -> int:
    """When the interval begins whose load the price of a record is of [UTC s]."""
    return record.applies_start if record.applies_from == record.t else record.start


def _write_bills(path: Path, rows: list[dict[str, Any]], *, private: bool = False) -> Path:
    import csv
    import io

    from hushgrid.files.results import write_text

    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]) if rows else ["meter_id"], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return write_text(path, text.getvalue(), private=private)
