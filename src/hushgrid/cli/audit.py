"""hushgrid audit: a certificate of what a ledger, a trace or a publisher shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, put_json, say


def audit(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Ledger (store or export), trace, or TOML file."),
    ],
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Zone or service file with the public terms; may be repeated."),
    ] = None,
    zone: Annotated[str | None, typer.Option(help="One zone; else all of them.")] = None,
    publisher: Annotated[
        str | None, typer.Option(metavar="MODULE:FACTORY", help="A publisher to test.")
    ] = None,
    samples: Annotated[int, typer.Option(min=100, help="Samples a side.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="Of the certified bound.")] = 0.95,
    key: Annotated[
        str | None, typer.Option(help="Public key (hex) that must have signed everything.")
    ] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="Digest from a release you kept; must be in there.")
    ] = None,
    heads: Annotated[
        Path | None, typer.Option(help="File of such digests, or of saved prices.")
    ] = None,
    attack: Annotated[
        Path | None, typer.Option(help="JSON of hushgrid attack, to be shown beside.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the certificate as a page.")] = None,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Audit a ledger, a trace or a publisher: what is promised, and what can be shown.

    Exit 0: nothing failed, 1: a check failed.

    Example: hushgrid audit ledger.ndjson --config service.toml --html certificate.html
    """
    from hushgrid import report
    from hushgrid.audit.certificate import Trial, certify
    from hushgrid.files import write_text
    from hushgrid.live.audit import attacked, fingerprint, load_case, load_factory, load_heads
    from hushgrid.live.ledger.records import schedule_digest

    configs = config or []
    known = [*(head or []), *(load_heads(heads) if heads else [])]
    case = load_case(file, configs, zone=zone, key=key, heads=known)
    trial = None
    if publisher is not None:
        trial = Trial(load_factory(publisher), samples, confidence, seed)
    inputs: dict[str, Any] = {
        "file": file,
        "kind": case.kind,
        "digests": {str(path): fingerprint(path) for path in (Path(file), *configs)},
        "config": [str(path) for path in configs],
        "zone": zone,
        "publisher": publisher,
        "samples": samples if publisher else None,
        "confidence": confidence if publisher else None,
        "seed": seed if publisher else None,
        "key": key,
        "heads": known,
    }
    found = certify(
        case.evidence,
        case.terms,
        chain=case.chain,
        commit=schedule_digest,
        trial=trial,
        attack=_attack(attack) or attacked(case, seed),
        inputs=inputs,
    )
    values = report.certificate_json(found)
    say(report.certificate_prose(values), json)
    written = put_json(values, json)
    if html is not None:
        written.append(write_text(html, report.certificate_page(values)))
    if written:
        say("\nWritten:\n" + "\n".join(f"  {path}" for path in written), json)
    if found.verdict == "failed":
        raise typer.Exit(1)


def _attack(path: Path | None) -> dict[str, Any] | None:
    """Figures of an attack, as `hushgrid attack --json` wrote them."""
    import json as reader

    from hushgrid.errors import FileError
    from hushgrid.files import read_text

    if path is None:
        return None
    try:
        found = reader.loads(read_text(path))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FileError(f"{path} is no JSON object; give what hushgrid attack --json wrote.")
    return found
