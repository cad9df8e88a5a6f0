"""hushgrid attack: what an adversary infers from recorded days; hushgrid audit: a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.model.zone import Scenario


def attack(
    trace: Annotated[
        Path | None,
        typer.Argument(help="A day as `simulate --trace` writes it; with --labels, readings."),
    ] = None,
    secret: Annotated[
        Literal["occupancy", "absence"],
        typer.Option(help="What is looked for: occupancy at each step, or days away."),
    ] = "occupancy",
    target: Annotated[
        int | None, typer.Option(min=0, help="The house to attack, from 0; else all of them.")
    ] = None,
    knows: Annotated[
        Literal["none", "others", "occupancy"],
        typer.Option(help="Known besides prices; others: their readings."),
    ] = "none",
    config: Annotated[
        Path | None,
        typer.Option(help="The zone or service file, where the trace does not hold it."),
    ] = None,
    zone: common.ZoneName = None,
    model: Annotated[
        Path | None, typer.Option(help="A zone or service file with the models it believes.")
    ] = None,
    labels: common.Labels = None,
    mapping: common.Columns = "canonical",
    days: Annotated[
        int, typer.Option(min=1, help="Days with labels to attack, the first ones.")
    ] = 10,
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="Judge each step after the whole day.")
    ] = False,
    away: Annotated[str, typer.Option(metavar="DURATION", help="Of an absence.")] = "P14D",
    less: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            help="Wh that a home uses less in half an hour while away; may be repeated. Else 160,"
            " 400 and 1,000.",
        ),
    ] = None,
    readings: Annotated[
        Path | None,
        typer.Option(help="Recorded homes instead of simulated ones, for the operator alone."),
    ] = None,
    promise: Annotated[
        Literal["step", "interval", "window"] | None,
        typer.Option(help="Attack an absence under this promise, planned anew; else the file's."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Of the promise window; else that of the absence."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Of that promise; else the file's, or 1.")
    ] = None,
    draws: Annotated[
        int, typer.Option(min=20, help="Absences of each home, and presences as long.")
    ] = 4000,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure.")] = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Attack a recorded day, as published and under other protections, and score the guesses.

    With --labels the file holds readings of real days: those with labels are published under the
    policy of --config and attacked. With --secret absence someone who knows every other reading
    looks for days away, in a zone of --config or of recorded --readings.

    Example: hushgrid attack day.trace --target 3 --knows others --out out/attack

    Example: hushgrid attack --secret absence --away P14D --config examples/zone.toml

    \f
    Args: see the help of each option.

    Raises:
        FileError: If the trace has no truth, or was not published under the terms of the zone file.
    """
    from hushgrid.errors import FileError

    if secret == "absence":
        if trace is not None:
            raise FileError(f"TRACE is {trace} with the secret absence; give --readings, or none.")
        from hushgrid.cli._absence import AbsenceRequest, attack_absence

        attack_absence(
            AbsenceRequest(
                config, zone, readings, mapping, away, less or [], promise, window, epsilon,
                draws, out, seed, json,
            )
        )  # fmt: skip
        return
    if trace is None:
        raise FileError("TRACE is unset; give a recorded day, or --secret absence.")
    from hushgrid.adversary.attack import Attack, merge_attacks
    from hushgrid.adversary.attack import attack as attack_day
    from hushgrid.files.results import save_figures
    from hushgrid.lab.attack import versions
    from hushgrid.report import attack as report

    if out is not None:
        common.require("matplotlib", "plot")
    if labels is None:
        policy, recordings = _simulated_day(trace, config, zone)
    else:
        policy, recordings = _labelled_days(
            trace, labels, mapping, config, zone, target, days, seed
        )
    belief: dict[str, Any] = {}
    if model is not None:
        belief_file = common.load_either(model, zone).file
        belief = {"models": belief_file.scenario.models}
    parts: dict[str, list[Attack]] = {}
    with common.progress("attacking, days", len(recordings)) as tick:
        for scenario, recording, labelled in recordings:
            for name, day in versions(scenario, policy, recording, seed=seed).items():
                result = attack_day(
                    scenario, day.releases, recording.truth, clamp=day.clamp, knows=knows,
                    target=target, labelled=labelled, hindsight=hindsight, seed=seed, **belief,
                )  # fmt: skip
                parts.setdefault(name, []).append(result)
            tick()
    attacks = {name: merge_attacks(day_attacks, seed=seed) for name, day_attacks in parts.items()}
    paths = common.write_json(report.attack_json(attacks), json)
    if out is not None:
        house = attacks["hushgrid"].houses[0]
        paths += save_figures(out, {"attack": report.attack_figure(attacks, house)})
    common.echo(f"{report.attack_table(attacks)}\n\n{report.attack_prose(attacks)}", json)
    common.echo_written(paths, json)


def _simulated_day(trace: Path, config: Path | None, zone: str | None) -> tuple[Any, list[Any]]:
    """The policy of a trace, and its one day."""
    from hushgrid.errors import FileError
    from hushgrid.files.models import load_trace
    from hushgrid.files.zone_file import zone_of

    recording = load_trace(trace)
    if recording.truth is None:
        raise FileError(
            f"{trace} holds no truth to score against; give a trace of a simulated day."
        )
    if config is None and not recording.config:
        raise FileError(f"{trace} holds no zone file; give it with --config.")
    zone_file = (
        zone_of(recording.config, trace)
        if config is None
        else common.load_either(config, zone).file
    )
    scenario = (
        zone_file.scenario.starting(recording.offset) if recording.offset else zone_file.scenario
    )
    _check_terms(trace, recording, scenario, zone_file.policy)
    return zone_file.policy, [(scenario, recording, None)]


def _labelled_days(
    path: Path, labels: Path, mapping: str, config: Path | None, zone: str | None,
    target: int | None, days: int, seed: int,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """The policy of a zone, and its real days on which a house, or the target, has labels."""
    import numpy as np

    from hushgrid.cli.compare import ZoneModel, of_zone
    from hushgrid.errors import FileError
    from hushgrid.files.readings import read_histories
    from hushgrid.lab.attack import labelled_days, record_labelled

    if config is None:
        raise FileError("config is unset with labels; give the zone that publishes the readings.")
    policy, zone_model = common.load_either(config, zone).file.policy, ZoneModel.read(config, zone)
    assert zone_model.scenario is not None
    histories = read_histories(
        path,
        mapping=mapping,
        time_zone=zone_model.time_zone,
        seconds=zone_model.seconds,
        labels=labels,
    )
    readings, labelled = (of_zone(part, zone_model) for part in labelled_days(histories))
    if target is not None and target < len(labelled.meters):
        labelled.readings[:, :, np.arange(len(labelled.meters)) != target] = -1
    recordings = list(
        record_labelled(zone_model.scenario, policy, readings, labelled, seed=seed, count=days)
    )
    if not recordings:
        raise FileError(
            f"{labels} has no whole local day of one house with readings; give more labels."
        )
    return policy, recordings


def _check_terms(trace: Path, recording: Any, scenario: Scenario, policy: Any) -> None:
    """Refuse a zone file that is not the one the day was published under."""
    from hushgrid.errors import FileError
    from hushgrid.mechanism.release import init

    digest = init(*scenario.terms, policy).digest
    if digest != recording.digest:
        raise FileError(
            f"{trace} was published under terms {recording.digest[:12]} but the zone file has"
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
    from hushgrid.audit.certificate import certify
    from hushgrid.files.results import write_text
    from hushgrid.lab.black_box import Trial
    from hushgrid.operate.audit import (
        attack_scores,
        fingerprint,
        load_case,
        load_factory,
        load_heads,
    )
    from hushgrid.report import certificate as report

    configs = config or []
    digests = [*(head or []), *(load_heads(heads) if heads else [])]
    case = load_case(file, configs, zone=zone, key=key, heads=digests)
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
        "heads": digests,
    }
    outcome = certify(
        case.evidence,
        case.terms,
        chain=case.chain,
        trial=None if trial is None else trial.run,
        attack=_attack(attack) or attack_scores(case, seed),
        inputs=inputs,
    )
    values = report.certificate_json(outcome)
    common.echo(report.certificate_prose(values), json)
    paths = common.write_json(values, json)
    if html is not None:
        paths.append(write_text(html, report.certificate_page(values)))
    common.echo_written(paths, json, "\n")
    if outcome.verdict == "failed":
        raise typer.Exit(1)


def _attack(path: Path | None) -> dict[str, Any] | None:
    """Figures of an attack, as `hushgrid attack --json` wrote them."""
    import json as reader

    from hushgrid.errors import FileError
    from hushgrid.files.results import read_text

    if path is None:
        return None
    try:
        figures = reader.loads(read_text(path))
    except ValueError:
        figures = None
    if not isinstance(figures, dict):
        raise FileError(f"{path} is no JSON object; give what hushgrid attack --json wrote.")
    return figures
