"""hushgrid attack: what an adversary infers from a recorded day; hushgrid audit: a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli import common


def attack(
    trace: Annotated[Path, typer.Argument(help="A day as `simulate --trace` writes it.")],
    target: Annotated[
        int | None, typer.Option(min=0, help="The house to attack, from 0; else all of them.")
    ] = None,
    knows: Annotated[
        str,
        typer.Option(help="Known besides prices: none, others (their readings) or occupancy."),
    ] = "none",
    config: Annotated[
        Path | None,
        typer.Option(help="The zone or service file, where the trace does not hold it."),
    ] = None,
    zone: common.ZoneName = None,
    model: Annotated[
        Path | None, typer.Option(help="A zone or service file with the models it believes.")
    ] = None,
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="Judge each step after the whole day.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure.")] = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Attack a recorded day, as published and under other protections, and score the guesses.

    Example: hushgrid attack day.trace --target 3 --knows others --out out/attack

    \f
    Args: see the help of each option.

    Raises:
        FileError: If the trace has no truth, or was not published under the terms of the zone file.
    """
    from hushgrid.compare.attack import attack as attacked
    from hushgrid.compare.attack import versions
    from hushgrid.errors import FileError
    from hushgrid.files.models import load_trace
    from hushgrid.files.results import save_figures
    from hushgrid.files.zone_file import zone_of
    from hushgrid.report import comparison as report

    if out is not None:
        common.require("matplotlib", "plot")
    recorded = load_trace(trace)
    if recorded.truth is None:
        raise FileError(
            f"{trace} holds no truth to score against; give a trace of a simulated day."
        )
    if config is None and not recorded.config:
        raise FileError(f"{trace} holds no zone file; give it with --config.")
    given = (
        zone_of(recorded.config, trace) if config is None else common.load_either(config, zone).file
    )
    scenario = given.scenario.starting(recorded.offset) if recorded.offset else given.scenario
    _check_terms(trace, recorded, scenario, given.policy)
    days = versions(scenario, given.policy, recorded, seed=seed)
    belief: dict[str, Any] = {}
    if model is not None:
        believed, service = common.load_either(model, zone)
        private = service.own if service is not None else None
        belief = {"models": (private or believed.scenario).models}
    found = {}
    with common.progress("attacking", len(days)) as tick:
        for name, day in days.items():
            found[name] = attacked(
                scenario, day.releases, recorded.truth, clamp=day.clamp, knows=knows,  # type: ignore[arg-type]
                target=target, hindsight=hindsight, seed=seed, **belief,
            )  # fmt: skip
            tick()
    written = common.write_json(report.attack_json(found), json)
    if out is not None:
        house = found["hushgrid"].houses[0]
        written += save_figures(out, {"attack": report.attack_figure(found, house)})
    common.echo(f"{report.attack_table(found)}\n\n{report.attack_prose(found)}", json)
    common.echo_written(written, json)


def _check_terms(trace: Path, recorded: Any, scenario: Any, policy: Any) -> None:
    """Refuse a zone file that is not the one the day was published under."""
    from hushgrid.errors import FileError
    from hushgrid.mechanism.release import init, with_recorded_digest

    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    digest = with_recorded_digest(init(*world, policy), recorded.digest).digest
    if digest != recorded.digest:
        raise FileError(
            f"{trace} was published under terms {recorded.digest[:12]} but the zone file has"
            f" {digest[:12]}; give the file it was simulated from."
        )


def audit(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Ledger (store or export), trace, or TOML file."),
    ],
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Zone or service file with the public terms; may be repeated."),
    ] = None,
    zone: common.OneZone = None,
    publisher: Annotated[
        str | None, typer.Option(metavar="MODULE:FACTORY", help="A publisher to test.")
    ] = None,
    samples: Annotated[int, typer.Option(min=100, help="Samples a side.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="Of the certified bound.")] = 0.95,
    key: common.SigningKey = None,
    head: common.Heads = None,
    heads: Annotated[
        Path | None, typer.Option(help="File of such digests, or of saved prices.")
    ] = None,
    attack: Annotated[
        Path | None, typer.Option(help="JSON of hushgrid attack, to be included.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the certificate as a page.")] = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Audit a ledger, a trace or a publisher: what is promised, and what can be verified.

    Exit 0: nothing failed, 1: a check failed.

    Example: hushgrid audit ledger.ndjson --config service.toml --html certificate.html

    \f
    Args: see the help of each option.

    Raises:
        typer.Exit: With code 1 if a check failed.
    """
    from hushgrid.audit.certificate import Trial, certify
    from hushgrid.files.results import write_text
    from hushgrid.report import certificate as report
    from hushgrid.service.audit import (
        attack_scores,
        fingerprint,
        load_case,
        load_factory,
        load_heads,
    )
    from hushgrid.service.ledger.records import schedule_digest

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
        attack=_attack(attack) or attack_scores(case, seed),
        inputs=inputs,
    )
    values = report.certificate_json(found)
    common.echo(report.certificate_prose(values), json)
    written = common.write_json(values, json)
    if html is not None:
        written.append(write_text(html, report.certificate_page(values)))
    common.echo_written(written, json, "\n")
    if found.verdict == "failed":
        raise typer.Exit(1)


def _attack(path: Path | None) -> dict[str, Any] | None:
    """Figures of an attack, as `hushgrid attack --json` wrote them."""
    import json as reader

    from hushgrid.errors import FileError
    from hushgrid.files.results import read_text

    if path is None:
        return None
    try:
        found = reader.loads(read_text(path))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise FileError(f"{path} is no JSON object; give what hushgrid attack --json wrote.")
    return found
