"""hushgrid simulate: a zone of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, Seed, progress, put_json, say


def simulate(
    config: Annotated[Path, typer.Option(help="Zone file (TOML).")],
    days: Annotated[int, typer.Option(min=1, help="Days to simulate.")] = 30,
    seed: Seed = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the first day whole, truth included (docs/trace.md).")
    ] = None,
    json: Json = None,
) -> None:
    """Simulate a zone under its policy: what the noise costs in error, waste and bills.

    Example: hushgrid simulate --config examples/zone.toml --days 30
    """
    from hushgrid import report
    from hushgrid.simulation import Mechanism, consecutive, fold
    from hushgrid.simulation import days as simulated_days
    from hushgrid.zonefile import load_zone

    zone = load_zone(config)
    world = consecutive(zone.scenario, zone.policy.horizon)
    with progress("simulating, days", days) as tick:
        played = simulated_days(world, {"it": Mechanism(zone.policy)}, count=days, seed=seed)
        study = fold(played, tick)
    values = report.simulation_json(study, "it")
    written = put_json(values, json)
    if trace is not None:
        from hushgrid.recording import record
        from hushgrid.tracefile import save_trace

        kept = record(zone.scenario, zone.policy, seed=seed, config=config.read_text("utf-8"))
        written.append(save_trace(trace, kept))
    say(report.simulation_table(study, "it"), json)
    if written:
        say("Written:\n" + "\n".join(f"  {path}" for path in written), json)
