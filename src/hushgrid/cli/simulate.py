"""hushgrid simulate: days of a zone under its policy; hushgrid paper: the paper's experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli import common


def simulate(
    config: Annotated[Path, typer.Option(help="Zone or service file (TOML).")],
    zone: common.ZoneName = None,
    days: Annotated[int, typer.Option(min=1, help="Days to simulate.")] = 30,
    seed: common.Seed = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the first day whole, truth included (docs/trace.md).")
    ] = None,
    json: common.Json = None,
) -> None:
    """Simulate a zone under its policy: what the noise costs in error, waste and bills.

    A "day" is one run of the policy's horizon. A zone of a service file runs under the service's
    own terms, from its `begins` on.

    Example: hushgrid simulate --config examples/zone.toml --days 30

    \f
    Args: see the help of each option.
    """
    from hushgrid.compare.simulation import Mechanism, consecutive, fold
    from hushgrid.compare.simulation import days as simulated_days
    from hushgrid.report import comparison as report

    given, service = common.load_either(config, zone)
    world = consecutive(given.scenario, given.policy.horizon)
    with common.progress("simulating, days", days) as tick:
        played = simulated_days(world, {"it": Mechanism(given.policy)}, count=days, seed=seed)
        study = fold(played, tick)
    values = report.simulation_json(study, "it")
    written = common.write_json(values, json)
    if trace is not None:
        from hushgrid.compare.attack import record
        from hushgrid.files.models import save_trace

        # a service file names stores and may hold passwords: it is not kept in the trace
        text = config.read_text("utf-8") if service is None else ""
        kept = record(given.scenario, given.policy, seed=seed, config=text)
        written.append(save_trace(trace, kept))
    common.echo(report.simulation_table(study, "it"), json)
    common.echo_written(written, json)


def paper(
    days: Annotated[int, typer.Option(min=2, help="Days of the experiment.")] = 200,
    sigma: Annotated[
        float, typer.Option(min=0, max=10, help="How much houses differ in habits.")
    ] = 0.02,
    out: Annotated[Path, typer.Option(help="Folder for table, figures and JSON.")] = Path(
        "out/paper"
    ),
    sweep_days: Annotated[int, typer.Option(min=2, help="Days of each point of the sweeps.")] = 10,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Reproduce the paper's experiment, and improve on it at the same guarantee.

    Example: hushgrid paper --days 200 --out out/paper

    \f
    Args: see the help of each option.
    """
    from hushgrid.compare import paper as sweeps
    from hushgrid.compare.paper import experiment
    from hushgrid.files.results import make_folder, save_experiment
    from hushgrid.report import comparison as report

    drawn = common.can_draw(json)
    make_folder(out)
    with common.progress("experiment, days", days) as tick:
        result = experiment(days=days, sigma=sigma, seed=seed, progress=tick)
    points = len(sweeps.SIZES) * len(sweeps.CERTAIN) + len(sweeps.COUNTS) + len(sweeps.SIGMAS) + 1
    with common.progress("sweeps, days    ", points * sweep_days) as tick:
        swept = {
            "certainty": sweeps.against_certainty(sweep_days, seed, tick),
            "count": sweeps.against_count(sweep_days, seed, tick),
            "eta": sweeps.against_eta(sweep_days, seed, tick),
            "sigma": sweeps.against_sigma(sweep_days, seed, tick),
        }
    figures = report.experiment_figures(result) | report.sweep_figures(swept) if drawn else {}
    table, prose = report.experiment_table(result), report.experiment_prose(result)
    values = report.experiment_json(result)
    values["sweeps"] = {name: report.sweep_json(sweep) for name, sweep in swept.items()}
    written = save_experiment(out, table, prose, values, figures)
    written += common.write_json(values, json)
    common.echo(f"{table}\n\n{prose}\n", json)
    common.echo_written(written, json)
