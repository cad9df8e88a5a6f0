"""hushgrid certificate: what a zone promises, and what its ledger has spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.stores.ledger.state import LedgerState


def certificate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Service file (TOML).")],
    zone: common.ZoneName = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="STORE", help="A ledger or an export; else the file's.")
    ] = None,
    registry: Annotated[
        bool, typer.Option("--registry", help="In the fields of a public registry.")
    ] = False,
    curator: Annotated[
        str, typer.Option(metavar="NAME", help="Who publishes the prices, for the registry.")
    ] = "",
    region: Annotated[
        str, typer.Option(metavar="TEXT", help="Whose law applies, for the registry.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the registry's record, .json.")
    ] = None,
    json: common.Json = None,
) -> None:
    """State what a zone promises beside the sum that its ledger has spent over its life.

    With --registry in the fields that the registry of differential-privacy deployments asks for.
    Only `hushgrid audit` computes releases again; its certificate says what was checked.

    Example: hushgrid certificate my-zone/service.toml --registry --curator "Elm Power" --region CH

    \f
    Args: see the help of each option.

    Raises:
        FileError: If the file has several zones and none is named, or `out` is not .json.
        LedgerError: If a record of the ledger is bad, or its newest terms are others.
    """
    from hushgrid.curator.registry import registry_facts
    from hushgrid.errors import FileError
    from hushgrid.files.results import json_text, write_text
    from hushgrid.files.service_file import load_deployment
    from hushgrid.report.registry import (
        registry_entry,
        registry_prose,
        statement_json,
        statement_prose,
    )

    if out is not None and (out.suffix != ".json" or not registry):
        raise FileError(f"out is {out}; give a file that ends with .json, with --registry.")
    deployment = load_deployment(file)
    zones = {service.id: service for service in deployment.zones}
    if zone not in zones and (zone is not None or len(zones) > 1):
        raise FileError(f"{file} has the zones {', '.join(zones)}; give one of them with --zone.")
    service = zones[zone] if zone is not None else next(iter(zones.values()))
    state = _state(ledger or deployment.ledger, service.id, given=ledger is not None)
    facts = registry_facts(service, deployment.mode, state, curator=curator, region=region)
    values = statement_json(facts)
    if registry:
        values["entry"] = registry_entry(facts)
        common.echo(registry_prose(values["entry"], values["open"]), json)
        if out is not None:
            common.echo(f"Written:\n  {write_text(out, json_text(values['entry']))}", json)
    else:
        common.echo(statement_prose(facts), json)
    common.write_json(values, json)


def _state(store: str, zone: str, *, given: bool) -> LedgerState | None:
    """The zone's ledger, all of its records checked; None where nothing was published yet."""
    from hushgrid.errors import LedgerError
    from hushgrid.stores.ledger import is_there, open_records, verifier
    from hushgrid.stores.ledger.chain import check

    if not given and not is_there(store):
        return None
    with open_records(store, zone) as (records, durable):
        report = check(records, verifier(None), durable)
    if report.first_bad is not None:
        raise LedgerError(
            f"record {report.first_bad} of the ledger is bad ({report.reason}), so it says nothing"
            " of what was spent; run hushgrid ledger verify."
        )
    if given and zone not in report.standings:
        raise LedgerError(f"the ledger has no records of zone {zone!r}; give another one.")
    return report.standings.get(zone)
