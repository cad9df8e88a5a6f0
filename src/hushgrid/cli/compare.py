"""hushgrid compare: every method at the same promise, raw and estimated, on one chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say
from hushgrid.cli.zones import ZoneName

if TYPE_CHECKING:
    from hushgrid.worlds import DaySource

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
    chains: Annotated[
        str | None, typer.Option(help="Survey chains: CSV, Parquet or the word richardsonpy.")
    ] = None,
    readings: Annotated[Path | None, typer.Option(help="Real readings instead of a world.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Zone or service file with the model of the readings; else learned."),
    ] = None,
    zone: ZoneName = None,
    interval: Annotated[
        int | None, typer.Option(min=60, help="Step of real readings [s]; else the zone's, 1800.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Where real days begin at 0:00; else the zone's, UTC.")
    ] = None,
    mapping: Annotated[str, typer.Option(help="canonical, lcl or pecan: names of columns.")] = (
        "canonical"
    ),
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
    from hushgrid.baselines import MethodPromise, methods_with
    from hushgrid.cli.compare_source import recorded, simulated
    from hushgrid.compare import compare as compared
    from hushgrid.errors import PlanError
    from hushgrid.files import json_text, make_folder, save_figures, svg_text, write_text
    from hushgrid.journal import Journal

    need("matplotlib", "plot")
    asked: Any = secret
    promise, methods = MethodPromise(asked, epsilon, delta), methods_with(eta)
    model = f"true but for a common shock of {shock:g}" if shock else "true"
    source: DaySource
    if readings is None:
        if config is not None:
            raise PlanError("config is set without readings; give readings, or no config.")
        source = simulated(world, sigma, shock, zones, houses, chains, seed)
    else:
        if shock:
            raise PlanError(f"shock is {shock} with real readings; they have their own: give 0.")
        source, model = recorded(
            readings, mapping, config, zone, interval, bound, train_days, time_zone
        )
        days, chart_days = (min(n, len(source.readings)) for n in (days, chart_days))
        attack_days = 0  # nobody knows who was at home
    make_folder(out)
    settings = {
        "secret": secret, "delta": delta, "eta": eta, "world": world if readings is None else "",
        "sigma": sigma, "shock": shock, "zones": zones, "houses": houses, "seed": seed,
        "interval": interval, "bound": bound, "train_days": train_days, "time_zone": time_zone,
        "mapping": mapping, "chains": chains, "readings": str(readings), "config": str(config),
        "model": model, "digest": source.digest,
    }  # fmt: skip
    before = settings | {"digest": source.digest_before}
    kept = Journal(out / "days.jsonl", settings, before)
    with progress("days", days) as tick:
        result = compared(
            source, promise, days=days, seed=seed, attack_days=attack_days, methods=methods,
            known=kept, tick=tick,
        )  # fmt: skip
    curve = _curve(source, promise, methods, chart_days, seed, out, (settings, before))
    scores = _battery_scores(source, seed) if batteries and readings is None else []
    values = {"world": settings, **report.comparison_json(result, curve, scores)}
    parts = {
        "What is compared": report.terms_prose(result, model),
        "Errors": report.comparison_table(result),
        "Ratios": report.ratio_table(result),
        "What each promises": report.guarantee_prose(result),
    }
    figures, places = {}, {}
    if curve:
        figures["compare"], places["compare"] = report.comparison_figure(curve), "Errors"
    if scores:
        name = "Batteries, seen at one house's meter"
        figures["batteries"], places["batteries"] = report.battery_figure(scores), name
        parts[name] = report.battery_table(scores)
    title = "Every method at the same promise"
    drawings = {places[key]: svg_text(figure) for key, figure in figures.items()}
    text = "\n\n".join(f"## {name}\n\n{part}" for name, part in parts.items())
    written = [
        write_text(out / "compare.md", f"# {title}\n\n{text}\n"),
        write_text(out / "compare.html", report.comparison_page(title, parts, drawings)),
        write_text(out / "compare.json", json_text(values)),
        *save_figures(out, figures),
        *put_json(values, json),
    ]
    say("\n\n".join(parts.values()) + "\n", json)
    say("Written:\n" + "\n".join(f"  {path}" for path in written), json)


def _curve(
    source: DaySource, promise: Any, methods: Any, days: int, seed: int, out: Path, settings: Any
) -> list[Any]:
    """The same at other promises, in the first zone, on fewer days."""
    from dataclasses import replace

    from hushgrid.compare import compare as compared
    from hushgrid.journal import Journal
    from hushgrid.worlds import Simulated

    if days < 2:
        return []
    first = replace(source, scenarios=source.scenarios[:1]) if isinstance(
        source, Simulated) else source  # fmt: skip
    kept = Journal(out / "chart.jsonl", *settings)
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
