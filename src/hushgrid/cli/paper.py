"""hushgrid paper: the paper's experiment, with honest statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say


def paper(
    days: Annotated[int, typer.Option(min=2, help="Days of the experiment.")] = 200,
    sigma: Annotated[
        float, typer.Option(min=0, max=10, help="How much houses differ in habits.")
    ] = 0.02,
    out: Annotated[Path, typer.Option(help="Folder for table, figures and JSON.")] = Path(
        "out/paper"
    ),
    sweep_days: Annotated[int, typer.Option(min=2, help="Days of each point of the sweeps.")] = 10,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Reproduce the paper's experiment and beat it at the same guarantee.

    Example: hushgrid paper --days 200 --out out/paper
    """
    from hushgrid import report, sweeps
    from hushgrid.files import make_folder, save_experiment
    from hushgrid.paper import experiment

    need("matplotlib", "plot")
    make_folder(out)
    with progress("experiment, days", days) as tick:
        result = experiment(days=days, sigma=sigma, seed=seed, progress=tick)
    points = len(sweeps.SIZES) * len(sweeps.CERTAIN) + len(sweeps.COUNTS) + len(sweeps.SIGMAS) + 1
    with progress("sweeps, days    ", points * sweep_days) as tick:
        swept = {
            "certainty": sweeps.against_certainty(sweep_days, seed, tick),
            "count": sweeps.against_count(sweep_days, seed, tick),
            "eta": sweeps.against_eta(sweep_days, seed, tick),
            "sigma": sweeps.against_sigma(sweep_days, seed, tick),
        }
    figures = report.experiment_figures(result) | report.sweep_figures(swept)
    table, prose = report.experiment_table(result), report.experiment_prose(result)
    values = report.experiment_json(result)
    values["sweeps"] = {name: report.sweep_json(sweep) for name, sweep in swept.items()}
    written = save_experiment(out, table, prose, values, figures)
    written += put_json(values, json)
    say(f"{table}\n\n{prose}\n", json)
    say("Written:\n" + "\n".join(f"  {path}" for path in written), json)
