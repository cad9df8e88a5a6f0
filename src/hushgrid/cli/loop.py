"""hushgrid loop: homes that react to private prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli import _common as common


def loop(
    config: Annotated[
        Path | None, typer.Option(help="Zone or service file (TOML); else a street of homes.")
    ] = None,
    zone: common.ZoneName = None,
    houses: Annotated[int, typer.Option(min=1, help="Homes of the street.")] = 1000,
    days: Annotated[int, typer.Option(min=2, help="Days that are counted.")] = 7,
    secret: Annotated[common.Secret, typer.Option(help="What the promise is about.")] = "interval",
    epsilon: Annotated[float, typer.Option(help="What to promise about the secret.")] = 1.0,
    eta: Annotated[
        float, typer.Option(help="Trust of the private prices; below 1 the promise does not hold.")
    ] = 1.0,
    delay: Annotated[int, typer.Option(min=0, max=4, help="Steps a price comes later.")] = 0,
    automation: Annotated[
        float, typer.Option(min=0, max=1, help="Share of homes whose devices react.")
    ] = 0.5,
    rule: Annotated[
        str, typer.Option(help="How they react: follow, threshold, plan, none or mixed.")
    ] = "mixed",
    elasticity: Annotated[
        float | None, typer.Option(min=0, help="Of people; else the file's, 0.05.")
    ] = None,
    vehicles: Annotated[float, typer.Option(min=0, max=1, help="Share with a car.")] = 0.3,
    thermostats: Annotated[
        float, typer.Option(min=0, max=1, help="Share with a heat pump.")
    ] = 0.15,
    batteries: Annotated[
        float, typer.Option(min=0, max=1, help="Share with solar panels and a battery.")
    ] = 0.1,
    appliances: Annotated[
        float, typer.Option(min=0, max=1, help="Share with a deferrable appliance.")
    ] = 0.8,
    smooth: Annotated[
        float, typer.Option(min=0, max=0.99, help="Share of the last price that the next keeps.")
    ] = 0.0,
    prices: Annotated[
        str, typer.Option(help="Some of exact, raw, estimated, blocks, filtered, flat, tou.")
    ] = "exact,raw,estimated,blocks,filtered,flat,tou",
    worlds: Annotated[
        int, typer.Option(min=1, max=100, help="Independent worlds that intervals are over.")
    ] = 5,
    out: Annotated[Path, typer.Option(help="Folder for table, page and figures.")] = Path(
        "out/loop"
    ),
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Run homes whose devices react to prices: exact, private, flat and time-of-use.

    Example: hushgrid loop --houses 1000 --days 7 --automation 0.5

    \f
    Args: see the help of each option.

    Raises:
        PlanError: If options contradict each other.
    """
    from hushgrid.errors import PlanError
    from hushgrid.files.results import json_text, make_folder, save_figures, svg_text, write_text
    from hushgrid.lab.flexible import Flexibility
    from hushgrid.lab.loop import LoopSetting, close_loops, street
    from hushgrid.lab.methods import MethodPromise
    from hushgrid.model.occupancy import STEPS_PER_DAY
    from hushgrid.report import loop as report
    from hushgrid.report.comparison import comparison_page

    scenario = None
    if config is not None:
        file, _ = common.load_either(config, zone)
        if file.seconds * STEPS_PER_DAY != 86_400:
            raise PlanError(f"the zone's interval is {file.seconds} s; the loop has 900 s.")
        scenario = file.scenario
        file_elasticity = scenario.consumption.elasticity
        if elasticity is None and file_elasticity:
            elasticity = file_elasticity.exponent
    shares = (vehicles, thermostats, batteries, appliances, automation, rule)
    choices: Any = (secret, tuple(name.strip() for name in prices.split(",")))
    setting = LoopSetting(
        Flexibility(*shares, 0.05 if elasticity is None else elasticity),
        MethodPromise(choices[0], epsilon), eta, delay, days, choices[1], smooth,
    )  # fmt: skip
    plots = common.can_draw(json)
    make_folder(out)

    with common.progress("loop, steps", worlds * (days + 1) * STEPS_PER_DAY) as tick:
        result = close_loops(
            lambda world_seed: scenario or street(houses, world_seed),
            setting,
            range(seed, seed + worlds),
            tick,
        )
    values = report.loop_json(result)
    parts = {"What was run": report.loop_prose(result), "Figures a day": report.loop_table(result)}
    figures = {"loop": report.loop_figure(result)} if plots else {}
    drawings = {"Figures a day": svg_text(figures["loop"])} if plots else {}
    title = "The closed loop"
    text = "\n\n".join(f"## {name}\n\n{part}" for name, part in parts.items())
    paths = [
        write_text(out / "loop.md", f"# {title}\n\n{text}\n"),
        write_text(out / "loop.html", comparison_page(title, parts, drawings)),
        write_text(out / "loop.json", json_text(values)),
        *save_figures(out, figures),
        *common.write_json(values, json),
    ]
    common.echo("\n\n".join(parts.values()) + "\n", json)
    common.echo_written(paths, json)
