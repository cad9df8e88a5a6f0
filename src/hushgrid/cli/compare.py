"""hushgrid compare: every method at the same promise, raw and estimated, on one chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say

if TYPE_CHECKING:
    from hushgrid.worlds import Source

CURVE = (0.1, 0.3, 1.0, 3.0, 10.0)  # times the promise: points of the chart


def compare(
    secret: Annotated[str, typer.Option(help="step, interval or trajectory.")] = "interval",
    epsilon: Annotated[float, typer.Option(help="What to promise about the secret.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance of an exception, where one fits.")] = 0.0,
    eta: Annotated[float, typer.Option(help="hushgrid's middle trust, beside 0 and 1.")] = 0.05,
    days: Annotated[int, typer.Option(min=2, help="Days of the comparison.")] = 200,
    world: Annotated[str, typer.Option(help="paper, large or survey.")] = "paper",
    sigma: Annotated[float, typer.Option(min=0, max=10, help="How much habits differ.")] = 0.0,
    shock: Annotated[
        float, typer.Option(help="Consumption this share above or below the model's.")
    ] = 0.0,
    zones: Annotated[int, typer.Option(min=1, help="Zones the days are spread over.")] = 4,
    houses: Annotated[int, typer.Option(min=1, help="Houses of a zone (paper and survey).")] = 1000,
    chains: Annotated[Path | None, typer.Option(help="Survey chains (Parquet).")] = None,
    readings: Annotated[Path | None, typer.Option(help="Real readings instead of a world.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Zone file with the model of the readings; else learned.")
    ] = None,
    interval: Annotated[
        int | None,
        typer.Option(min=60, help="Step of real readings [s]; else the zone file's, or 1800."),
    ] = None,
    bound: Annotated[
        int | None, typer.Option(min=1, help="Contract bound of real homes [Wh]; else 15 kW.")
    ] = None,
    train_days: Annotated[int, typer.Option(min=2, help="First days, to learn from.")] = 90,
    chart_days: Annotated[
        int, typer.Option(min=0, help="Days of each point of the chart; 0: no chart.")
    ] = 10,
    attack_days: Annotated[
        int, typer.Option(min=0, help="Days on which the adversary is asked.")
    ] = 2,
    batteries: Annotated[bool, typer.Option(help="Score batteries at one house's meter.")] = True,
    out: Annotated[Path, typer.Option(help="Folder; a stopped run goes on from it.")] = Path(
        "out/compare"
    ),
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Put every method on one chart at the same promise, raw and estimated.

    Example: hushgrid compare --secret interval --epsilon 1 --days 200 --shock 0.3
    """
    from hushgrid import report
    from hushgrid.baselines import Promise, methods_with
    from hushgrid.compare import compare as compared
    from hushgrid.files import json_text, make_folder, save_figures, svg_text, write_text
    from hushgrid.journal import Journal

    need("matplotlib", "plot")
    asked: Any = secret
    promise, methods = Promise(asked, epsilon, delta), methods_with(eta)
    make_folder(out)
    source = _source(world, sigma, shock, zones, houses, chains, readings, config, interval, bound,
                     train_days, seed)  # fmt: skip
    if readings is not None:
        days = min(days, len(source.readings))
    settings = {
        "secret": secret, "delta": delta, "eta": eta, "world": world, "sigma": sigma,
        "shock": shock, "zones": zones, "houses": houses, "seed": seed, "interval": interval,
        "bound": bound, "train_days": train_days, "chains": str(chains),
        "readings": str(readings), "config": str(config),
    }  # fmt: skip
    kept = Journal(out / "days.jsonl", settings)
    with progress("days", days) as tick:
        result = compared(
            source, promise, days=days, seed=seed, attack_days=attack_days, methods=methods,
            known=kept, tick=tick,
        )  # fmt: skip
    curve = _curve(source, promise, methods, chart_days, seed, out, settings)
    scores = _battery_scores(source, seed) if batteries and readings is None else []
    values = {"world": settings, **report.comparison_json(result, curve, scores)}
    parts = {
        "Errors": report.comparison_table(result),
        "Ratios and guarantees": report.comparison_prose(result),
    }
    figures = {}
    if curve:
        figures["compare"] = report.comparison_figure(curve)
    if scores:
        figures["batteries"] = report.battery_figure(scores)
        parts["Batteries, seen at one house's meter"] = report.battery_table(scores)
    text = "\n\n".join(f"## {name}\n\n{part}" for name, part in parts.items())
    drawings = [svg_text(figure) for figure in figures.values()]
    page = report.comparison_html("Every method at the same promise", parts, drawings)
    written = [
        write_text(out / "compare.md", f"# Every method at the same promise\n\n{text}\n"),
        write_text(out / "compare.html", page),
        write_text(out / "compare.json", json_text(values)),
        *save_figures(out, figures),
        *put_json(values, json),
    ]
    say(f"{parts['Errors']}\n\n{parts['Ratios and guarantees']}\n", json)
    if scores:
        say(report.battery_table(scores) + "\n", json)
    say("Written:\n" + "\n".join(f"  {path}" for path in written), json)


def _curve(
    source: Source, promise: Any, methods: Any, days: int, seed: int, out: Path, settings: Any
) -> list[Any]:
    """The same at other promises, in the first zone, on fewer days."""
    from dataclasses import replace

    from hushgrid.compare import compare as compared
    from hushgrid.journal import Journal
    from hushgrid.worlds import Recorded, Simulated

    if days < 2:
        return []
    first = replace(source, scenarios=source.scenarios[:1]) if isinstance(
        source, Simulated) else source  # fmt: skip
    if isinstance(source, Recorded):
        days = min(days, len(source.readings))
    kept = Journal(out / "chart.jsonl", settings)
    with progress("chart, days", days * len(CURVE)) as tick:
        return [
            compared(
                first, replace(promise, epsilon=promise.epsilon * at), days=days, seed=seed,
                methods=methods, known=kept, tick=tick,
            )
            for at in CURVE
        ]  # fmt: skip


def _battery_scores(source: Any, seed: int) -> Any:
    """Thirty houses of the first zone over thirty days."""
    from hushgrid.baselines.meters import SIZES, score_zone
    from hushgrid.worlds import Simulated

    first = Simulated(source.scenarios[:1], source.seed, source.shock, source.horizon)
    with progress("batteries", 3 * len(SIZES)) as tick:
        days = [first.day(number) for number in range(30)]
        return score_zone(first.scenarios[0], days, houses=30, seed=seed, tick=tick)


def _source(
    world: str, sigma: float, shock: float, zones: int, houses: int, chains: Path | None,
    readings: Path | None, config: Path | None, interval: int | None, bound: int | None,
    train_days: int, seed: int,
) -> Any:  # fmt: skip
    """The world that is asked for."""
    from hushgrid.errors import PlanError
    from hushgrid.recorded import read_chains
    from hushgrid.worlds import large_world, paper_world, survey_world

    if not 0 <= shock < 1:
        raise PlanError(f"shock is {shock}; give a share from 0 to below 1.")
    if readings is not None:
        if shock:
            raise PlanError(f"shock is {shock} with real readings; they have their own: give 0.")
        return _recorded(readings, config, interval, bound, train_days)
    if config is not None:
        raise PlanError("config is set without readings; give readings, or no config.")
    if world == "paper":
        return paper_world(sigma, seed, zones, shock, houses)
    if world == "large":
        return large_world(seed, zones, shock)
    if world == "survey":
        if chains is None:
            raise PlanError("world is survey but chains is unset; give a Parquet file of chains.")
        return survey_world(read_chains(chains), seed, zones, shock, houses)
    raise PlanError(f"world is {world!r}; give one of paper, large, survey.")


def _recorded(
    path: Path, config: Path | None, interval: int | None, bound: int | None, train_days: int
) -> Any:
    """Real days after those the model is learned from, or all of them with a given model."""
    from hushgrid.errors import PlanError
    from hushgrid.habits import learn_habits
    from hushgrid.recorded import read_days
    from hushgrid.worlds import Recorded, filled

    if config is not None:
        return _with_model(path, config, interval)
    found = read_days(path, interval or 1800)
    days = found.readings
    if len(days) < train_days + 2:
        raise PlanError(
            f"train_days is {train_days} but there are {len(days)} whole days;"
            " give fewer, so that two or more are left to compare on."
        )
    contract = bound if bound is not None else round(15_000 * (interval or 1800) / 3600)
    scenario = learn_habits(days[:train_days], contract)
    return Recorded(scenario, filled(days[train_days:], scenario))


def _with_model(path: Path, config: Path, interval: int | None) -> Any:
    """All days with the model of a zone file: its meters, its steps, its time of day and week."""
    import numpy as np

    from hushgrid.errors import PlanError
    from hushgrid.recorded import read_days
    from hushgrid.worlds import Recorded, filled
    from hushgrid.zonefile import load_zone

    zone = load_zone(config, seconds=interval)
    found = read_days(path, zone.seconds, time_zone=zone.time_zone, meters=zone.meters)
    n, there = zone.scenario.zone.n_houses, len(found.meters)
    if n != there:
        raise PlanError(
            f"config has {n} houses but the readings {there} meters;"
            " give a zone of the meters, in the order of their ids or with meters of its own."
        )
    bare = Recorded(zone.scenario, found.readings, found.weekday)
    done = found.readings.copy()
    kinds = np.array([bare.zone_of(day) for day in range(len(done))])
    for kind, scenario in enumerate(bare.scenarios):
        done[kinds == kind] = filled(done[kinds == kind], scenario)
    return Recorded(zone.scenario, done, found.weekday)
