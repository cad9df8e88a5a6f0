"""hushgrid attack: what an adversary learns from a recorded day."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say
from hushgrid.cli.zones import ZoneName, load_either


def attack(
    trace: Annotated[Path, typer.Argument(help="A day as `simulate --trace` writes it.")],
    target: Annotated[
        int | None, typer.Option(min=0, help="The house to attack, from 0; else all of them.")
    ] = None,
    knows: Annotated[
        str, typer.Option(help="Beside prices: none, others (their readings) or occupancy.")
    ] = "none",
    config: Annotated[
        Path | None,
        typer.Option(help="The zone or service file, where the trace does not hold it."),
    ] = None,
    zone: ZoneName = None,
    model: Annotated[
        Path | None, typer.Option(help="A zone or service file with the models it believes.")
    ] = None,
    hindsight: Annotated[
        bool, typer.Option("--hindsight", help="She judges each step after the whole day.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure.")] = None,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Attack a recorded day, as published and under other protections, and score the guesses.

    Example: hushgrid attack day.trace --target 3 --knows others --out out/attack
    """
    from hushgrid import report
    from hushgrid.attack import attack as attacked
    from hushgrid.attack import versions
    from hushgrid.errors import FileError
    from hushgrid.files import save_figures
    from hushgrid.tracefile import load_trace
    from hushgrid.zonefile import zone_of

    if out is not None:
        need("matplotlib", "plot")
    recorded = load_trace(trace)
    if recorded.truth is None:
        raise FileError(
            f"{trace} holds no truth to score against; give a trace of a simulated day."
        )
    if config is None and not recorded.config:
        raise FileError(f"{trace} holds no zone file; give it with --config.")
    given = zone_of(recorded.config, trace) if config is None else load_either(config, zone).file
    scenario = given.scenario.starting(recorded.offset) if recorded.offset else given.scenario
    check_terms(trace, recorded, scenario, given.policy)
    days = versions(scenario, given.policy, recorded, seed=seed)
    hers: dict[str, Any] = {}
    if model is not None:
        believed, service = load_either(model, zone)
        private = service.own if service is not None else None
        hers = {"models": (private or believed.scenario).models}
    found = {}
    with progress("attacking", len(days)) as tick:
        for name, day in days.items():
            found[name] = attacked(
                scenario, day.releases, recorded.truth, clamp=day.clamp, knows=knows,  # type: ignore[arg-type]
                target=target, hindsight=hindsight, seed=seed, **hers,
            )  # fmt: skip
            tick()
    written = put_json(report.attack_json(found), json)
    if out is not None:
        house = found["hushgrid"].houses[0]
        written += save_figures(out, {"attack": report.attack_figure(found, house)})
    say(f"{report.attack_table(found)}\n\n{report.attack_prose(found)}", json)
    if written:
        say("Written:\n" + "\n".join(f"  {path}" for path in written), json)


def check_terms(trace: Path, recorded: Any, scenario: Any, policy: Any) -> None:
    """Refuse a zone file that is not the one the day was published under."""
    from hushgrid.errors import FileError
    from hushgrid.mechanism import init, known_as

    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    digest = known_as(init(*world, policy), recorded.digest).digest
    if digest != recorded.digest:
        raise FileError(
            f"{trace} was published under terms {recorded.digest[:12]} but the zone file has"
            f" {digest[:12]}; give the file it was simulated from."
        )
