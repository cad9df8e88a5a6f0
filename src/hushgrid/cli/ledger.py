"""hushgrid ledger: show, verify, export and copy what was published and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.stores.ledger.chain import ChainReport
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
    json: common.Json = None,
) -> None:
    """Write every record as one line of JSON; scripts/verify_ledger.py checks it without hushgrid.

    Example: hushgrid ledger export ledger.db --out ledger.ndjson

    \f
    Args: see the help of each option.

    Raises:
        LedgerError: If records and JSON both go to standard output.
    """
    from hushgrid.errors import LedgerError
    from hushgrid.files.results import write_text
    from hushgrid.stores.ledger import open_records

    if out == "-" and json == "-":
        raise LedgerError("out and json are both standard output; give a file for one of them.")
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
    from hushgrid.stores.ledger.writer import back_up

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
    from hushgrid.stores.ledger.writer import restore as restore_copy

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
