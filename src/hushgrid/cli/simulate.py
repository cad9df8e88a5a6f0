"""hushgrid simulate: a zone of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, Seed, progress, put_json, say
from hushgrid.cli.zones import ZoneName, load_either


def simulate(
    config: Annotated[Path, typer.Option(help="Zone or service file (TOML).")],
    zone: ZoneName = None,
    days: Annotated[int, typer.Option(min=1, help="Days to simulate.")] = 30,
    seed: Seed = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the first day whole, truth included (docs/trace.md).")
    ] = None,
    json: Json = None,
) -> None:
    """Simulate a zone under its policy: what the noise costs in error, waste and bills.

    A "day" is one run of the policy's horizon. A zone of a service file runs under the service's
    own terms, from its `begins` on.

    Example: hushgrid simulate --config examples/zone.toml --days 30
    """
    from hushgrid import report
    from hushgrid.simulation import Mechanism, consecutive, fold
    from hushgrid.simulation import days as simulated_days

    given, service = load_either(config, zone)
    world = consecutive(given.scenario, given.policy.horizon)
    with progress("simulating, days", days) as tick:
        played = simulated_days(world, {"it": Mechanism(given.policy)}, count=days, seed=seed)
        study = fold(played, tick)
    values = report.simulation_json(study, "it")
    written = put_json(values, json)
    if trace is not None:
        from hushgrid.recording import record
        from hushgrid.tracefile import save_trace

        # a service file names stores and may hold passwords: it is not kept in the trace
        text = config.read_text("utf-8") if service is None else ""
        kept = record(given.scenario, given.policy, seed=seed, config=text)
        written.append(save_trace(trace, kept))
    say(report.simulation_table(study, "it"), json)
    if written:
        say("Written:\n" + "\n".join(f"  {path}" for path in written), json)
