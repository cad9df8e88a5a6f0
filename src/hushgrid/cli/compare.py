"""Commands that play days: `compare`, `floor`, `simulate`, `paper`, `loop`.

compare: every method at the same promise. floor: the least possible noise. simulate: days of a zone
under its policy. paper: the paper's experiment.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hushgrid.cli import _common as common

if TYPE_CHECKING:
    from hushgrid.lab.datasets import DaySource, Real, Recorded, Simulated
    from hushgrid.model.zone import Scenario

World = Literal["paper", "large", "survey"]
STEP, CONTRACT_W, TRAIN_DAYS = 1800, 15_000, 90  # defaults of real readings: [s], [W], days


def _simulated(
    world: World, sigma: float, shock: float, zones: int, houses: int, chains: str | None, seed: int
) -> Simulated:
    """Simulated days in which the public model is true except for a common shock."""
    from hushgrid.errors import PlanError
    from hushgrid.files.models import load_survey
    from hushgrid.lab.datasets import large_world, paper_world, survey_world

    if world == "paper":
        return paper_world(sigma, seed, zones, shock, houses)
    if world == "large":
        return large_world(seed, zones, shock)
    if chains is None:
        raise PlanError("world is survey but chains is unset; give a file of chains.")
    return survey_world(load_survey(chains), seed, zones, shock, houses)


def recorded_source(
    path: Path,
    mapping: str,
    config: Path | None,
    zone: str | None,
    interval: int | None,
    bound: int | None,
    train_days: int | None,
    time_zone: str | None,
) -> tuple[Recorded, str]:
    """Real days, with a model from a file or learned from the first days.

    Args:
        path: File of readings.
        mapping: As `--mapping` of `import`.
        config: Zone or service file with the model; None: learn it.
        zone: Zone of a service file that has several.
        interval: Step [s]; None: the zone's, or 1800.
        bound: Contract bound [Wh a step] of a learned model; None: that of 15 kW.
        train_days: First days, which are not compared: to learn from, and to take means of; None:
            90, and none with a config.
        time_zone: IANA name; None: the zone's, or UTC.

    Returns:
        The days, and where their model comes from, in words.

    Raises:
        PlanError: If options contradict each other or too few days are left.
        IntakeError: If homes have readings below 0 Wh.
    """
    from hushgrid.errors import IntakeError, PlanError
    from hushgrid.files.readings import read_histories
    from hushgrid.lab.datasets import Recorded, learn_habits, real_days

    zone_model = ZoneModel.read(config, zone) if config else ZoneModel()
    if interval is not None and zone_model.seconds not in (None, interval):
        raise PlanError(
            f"interval is {interval} s but the steps of config last {zone_model.seconds} s;"
            " give that, or no interval."
        )
    seconds = interval or zone_model.seconds or STEP
    local_zone = time_zone or zone_model.time_zone
    with common.stages() as watch:
        histories = read_histories(
            path, mapping=mapping, time_zone=local_zone, seconds=seconds, watch=watch
        )
    exporting = int((histories.wh < 0).any(axis=1).sum())
    if exporting:
        raise IntakeError(
            f"{exporting} of {len(histories.ids)} homes have readings below 0 Wh, and recorded days"
            " without an export limit cannot be compared; leave those homes out."
        )
    real = real_days(histories)
    if not len(real.readings):
        raise PlanError(
            f"readings has no day with a value in every step of {seconds} s; give interval the"
            " length of its steps, or a config that has it."
        )
    first = train_days if train_days is not None else 0 if config else TRAIN_DAYS
    if len(real.readings) < first + 2:
        raise PlanError(
            f"train_days is {first} but there are {len(real.readings)} whole days;"
            " give fewer, so that two or more are left to compare on."
        )
    if zone_model.scenario is not None:
        real, scenario, origin = of_zone(real, zone_model), zone_model.scenario, zone_model.origin
    else:
        contract = bound if bound is not None else round(CONTRACT_W * seconds / 3600)
        with common.progress("learning from the first days", None):
            scenario = learn_habits(real.readings[:first], contract)
        origin = f"learned from the first {first} days, which are not compared"
    earlier, later = real.days(slice(first)), real.days(slice(first, None))
    return Recorded.of(scenario, later, earlier if first else None), origin


class ZoneModel(NamedTuple):
    """What a comparison needs of a zone or service file; empty without one.

    Attributes:
        scenario: The zone and its models.
        seconds: Length of a step [s].
        time_zone: Where its days begin at 0:00.
        meters: Meter ids in house order; empty where the file names none.
        origin: Where the models are from, in words.
    """

    scenario: Scenario | None = None
    seconds: int | None = None
    time_zone: str = "UTC"
    meters: tuple[str, ...] = ()
    origin: str = ""

    @classmethod
    def read(cls, path: Path, name: str | None) -> ZoneModel:
        """From a zone file, whose houses may name their meters, or a service file."""
        from hushgrid.files.settings import meter_ids
        from hushgrid.files.toml import TomlFile

        zone, service = common.load_either(path, name)
        meters: tuple[str, ...] = ()
        if service is not None and service.pattern is not None:
            meters, scenario = service.meters, service.pattern.scenario
        else:
            file, scenario = TomlFile(path), zone.all_months or zone.scenario
            groups = file.content["houses"]
            if any({"meters", "meters_file"} & set(group) for group in groups):
                meters = meter_ids(file)
            file.check()
        origin = "given by a zone or service file"
        if zone.learned.homes:
            origin += (
                f", learned from homes ({zone.learned.origin}); no day is held back, so give"
                " readings it was not learned from"
            )
        return cls(scenario, zone.seconds, zone.time_zone, meters, origin)


def of_zone(real: Real, model: ZoneModel) -> Real:
    """The days of the zone's own meters, in the order of its houses.

    Args:
        real: The recorded days.
        model: The zone.

    Returns:
        The days of these meters alone.

    Raises:
        PlanError: If a house has no readings, or houses name no meters and their number differs.
    """
    from hushgrid.errors import PlanError

    assert model.scenario is not None
    houses = model.scenario.zone.n_houses
    if not model.meters:
        if houses != len(real.meters):
            raise PlanError(
                f"config has {houses} houses but the readings {len(real.meters)} meters;"
                " give a zone whose houses name their meters."
            )
        return real.of(sorted(real.meters))
    unknown = [name for name in model.meters if name not in set(real.meters)]
    if unknown:
        raise PlanError(
            f"config names {len(unknown)} meters without readings, such as {unknown[0]!r};"
            " give readings of every house."
        )
    return real.of(model.meters)


USUAL = 3300.0  # what a home uses in a year by published figures [kWh], as in a learn file
CURVE = (0.1, 0.3, 1.0, 3.0, 10.0)  # times the promise: points of the chart


def compare(
    secret: Annotated[
        Literal["step", "interval", "window"], typer.Option(help="What the promise is about.")
    ] = "interval",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Of the secret window, its length.")
    ] = "P1D",
    epsilon: Annotated[float, typer.Option(help="What to promise about the secret.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="Delta of (epsilon, delta), for methods that have one.")
    ] = 0.0,
    eta: Annotated[float, typer.Option(help="hushgrid's middle trust, between 0 and 1.")] = 0.05,
    days: Annotated[int, typer.Option(min=2, help="Days of the comparison.")] = 200,
    world: Annotated[World, typer.Option(help="Simulated homes.")] = "paper",
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
    zone: common.ZoneName = None,
    interval: Annotated[
        int | None, typer.Option(min=60, help="Step of real readings [s]; else the zone's, 1800.")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Where real days begin at 0:00; else the zone's, UTC.")
    ] = None,
    mapping: common.Columns = "canonical",
    bound: Annotated[
        int | None, typer.Option(min=1, help="Contract bound of real homes [Wh]; else 15 kW.")
    ] = None,
    train_days: Annotated[
        int | None,
        typer.Option(
            min=2, help="First days, to learn from; not compared. Else 90, with a config none."
        ),
    ] = None,
    copies: Annotated[
        int, typer.Option(min=1, help="A larger zone: so many copies of each real home.")
    ] = 1,
    usual: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="What a home uses in a year by published figures [kWh]: estimates then follow"
            " releases alone, not the model. Of the secret window 3300; else none.",
        ),
    ] = None,
    block: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Of the secret window, how long one noise lasts."),
    ] = None,
    clamp: Annotated[
        int | None, typer.Option(min=1, help="Of the secret window, hushgrid's clamp [Wh].")
    ] = None,
    rho: Annotated[
        float, typer.Option(min=0, help="Error of the model by which real readings are clamped.")
    ] = 0.2,
    draws: Annotated[
        int, typer.Option(min=1, help="Draws of noise; figures of a day are means over them.")
    ] = 1,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Compare this method, as the JSON names it (repeatable); else all."),
    ] = None,
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
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Compare every method at the same promise, raw and estimated, on one chart.

    Example: hushgrid compare --secret interval --epsilon 1 --days 200 --shock 0.3

    \f
    Args: see the help of each option.

    Raises:
        PlanError: If options contradict each other.
    """

    from hushgrid.errors import PlanError
    from hushgrid.files.results import (
        Journal,
        json_text,
        make_folder,
        save_figures,
        svg_text,
        write_text,
    )
    from hushgrid.lab.bench import WindowNoise, methods_with
    from hushgrid.lab.comparison import compare as compared
    from hushgrid.lab.comparison import copied
    from hushgrid.lab.methods import MethodPromise
    from hushgrid.report import comparison as report

    common.require("matplotlib", "plot")
    promise_secret: Any = secret
    if secret == "window":
        usual = USUAL if usual is None else usual
        if readings is None:
            raise PlanError("secret is window without readings; give those of real days.")
    elif block is not None or clamp is not None:
        raise PlanError("block or clamp is set without the secret window; leave them out.")
    methods = methods_with(eta, fitted=bool(usual))
    if unknown := set(method or ()) - {candidate.name for candidate in methods}:
        names = ", ".join(candidate.name for candidate in methods)
        raise PlanError(f"method is {sorted(unknown)[0]!r}; give one of {names}.")
    methods = tuple(candidate for candidate in methods if not method or candidate.name in method)
    model = f"true but for a common shock of {shock:g}" if shock else "true"
    source: DaySource
    if readings is None:
        if config is not None:
            raise PlanError("config is set without readings; give readings, or no config.")
        source = _simulated(world, sigma, shock, zones, houses, chains, seed)
    else:
        if shock:
            raise PlanError(f"shock is {shock} with real readings; they have their own: give 0.")
        source, model = recorded_source(
            readings, mapping, config, zone, interval, bound, train_days, time_zone
        )
        days, chart_days = (min(n, len(source.readings)) for n in (days, chart_days))
        source = copied(source, copies) if copies > 1 else source
        if usual:
            source = source.with_usual(1000 * usual / (365 * source.horizon))
        attack_days = 0  # the true occupancy is not known
    step = 86_400 // source.horizon
    window_steps = (
        -(-common.seconds("window", window, step) // step) + 1 if secret == "window" else None
    )
    promise = MethodPromise(promise_secret, epsilon, delta, window_steps)
    noise = WindowNoise(
        None if block is None else common.seconds("block", block, step) // step,
        () if clamp is None else (clamp,) * source.scenarios[0].consumption.absent.shape[1],
    )
    make_folder(out)
    settings = {
        "secret": secret, "delta": delta, "eta": eta, "world": world if readings is None else "",
        "sigma": sigma, "shock": shock, "zones": zones, "houses": houses, "seed": seed,
        "interval": interval, "bound": bound, "train_days": train_days, "time_zone": time_zone,
        "mapping": mapping, "chains": chains, "readings": str(readings), "config": str(config),
        "model": model, "digest": source.digest, "copies": copies,
    }  # fmt: skip
    settings |= {"draws": draws} if draws > 1 else {}
    settings |= {"window": window, "block": block, "clamp": clamp} if window_steps else {}
    settings |= {"usual": usual} if usual else {}
    settings |= {"rho": rho} if rho != 0.2 else {}
    settings |= {"methods": ", ".join(candidate.name for candidate in methods)} if method else {}
    journal = Journal(out / "days.jsonl", settings)
    common.say_duration(18 + 0.2 * days + 6 * chart_days, ", and the same command goes on")
    with common.progress("days", days) as tick:
        result = compared(
            source, promise, days=days, seed=seed, attack_days=attack_days, methods=methods,
            journal=journal, tick=tick, draws=draws, rho=rho, noise=noise,
        )  # fmt: skip
    curve = _curve(source, promise, methods, chart_days, seed, out, settings, noise)
    scores = _battery_scores(source, seed) if batteries and readings is None else []
    values = {"world": settings, **report.comparison_json(result, curve, scores)}
    parts = {
        "What is compared": report.terms_prose(result, model),
        "Errors": report.comparison_table(result),
        "Ratios": report.ratio_table(result),
        "What each promises": report.guarantee_prose(result),
    }
    if recorded_days := report.recorded_table(result):
        parts["Days that follow each other"] = f"{report.RECORDED_PROSE}\n\n{recorded_days}"
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
    paths = [
        write_text(out / "compare.md", f"# {title}\n\n{text}\n"),
        write_text(out / "compare.html", report.comparison_page(title, parts, drawings)),
        write_text(out / "compare.json", json_text(values)),
        *save_figures(out, figures),
        *common.write_json(values, json),
    ]
    common.echo("\n\n".join(parts.values()) + "\n", json)
    common.echo_written(paths, json)


def _curve(
    source: DaySource, promise: Any, methods: Any, days: int, seed: int, out: Path, settings: Any,
    noise: Any,
) -> list[Any]:  # fmt: skip
    """The same at other promises, in the first zone, on fewer days."""
    from dataclasses import replace

    from hushgrid.files.results import Journal
    from hushgrid.lab.comparison import compare as compared
    from hushgrid.lab.datasets import Simulated

    if days < 2:
        return []
    first = replace(source, scenarios=source.scenarios[:1]) if isinstance(
        source, Simulated) else source  # fmt: skip
    journal = Journal(out / "chart.jsonl", settings)
    with common.progress("chart, days", days * len(CURVE)) as tick:
        return [
            compared(
                first, replace(promise, epsilon=promise.epsilon * factor), days=days, seed=seed,
                methods=methods, journal=journal, tick=tick, noise=noise,
            )
            for factor in CURVE
        ]  # fmt: skip


def _battery_scores(source: Any, seed: int) -> Any:
    """Thirty houses of the first zone over thirty days."""
    from hushgrid.lab.battery import SIZES, score_zone
    from hushgrid.lab.datasets import Simulated

    first = Simulated(source.scenarios[:1], source.seed, source.shock, source.horizon)
    with common.progress("batteries", 3 * len(SIZES)) as tick:
        days = [first.day(number) for number in range(30)]
        return score_zone(first.scenarios[0], days, houses=30, seed=seed, tick=tick)


def floor(
    absent: Annotated[int, typer.Option(help="Readings are uniform on 0..this when away [Wh].")],
    present: Annotated[int, typer.Option(help="The same when occupied [Wh].")],
    epsilon: Annotated[float, typer.Option(help="What one release may lose.")] = 0.5,
    cells: Annotated[int, typer.Option(help="Cells of the grid, at most 200.")] = 40,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Compare the noise of each rule with a linear programme's lower bound: one reading, one step.

    Example: hushgrid floor --absent 500 --present 1000 --epsilon 0.5

    \f
    Args: see the help of each option.
    """
    import numpy as np

    from hushgrid.lab.pufferfish import floor_of_uniform, quantile_gap
    from hushgrid.mechanism.calibrators import smallest_scale
    from hushgrid.model.laws import Uniform

    del seed  # nothing is random; every command takes one
    lowest_sd = floor_of_uniform(absent, present, epsilon, cells)
    top = max(absent, present)
    laws = [np.pad(Uniform(u).pmf, (0, top - u)) for u in (absent, present)]
    scales = {
        "hushgrid_eta0": smallest_scale(*laws, bound=top, epsilon=epsilon, eta=0.0),
        "wasserstein": quantile_gap(*laws) / epsilon,
        "bound": top / epsilon,
    }
    values = {
        "absent": absent,
        "present": present,
        "epsilon": epsilon,
        "cells": cells,
        "floor": lowest_sd / top,
        "floor_wh": lowest_sd,
        "sd": {name: 2**0.5 * b / top for name, b in scales.items()},
    }
    lines = [
        f"standard deviation of the noise, in {top} Wh:",
        f"  {'floor':14s} {lowest_sd / top:.3f}",
    ]
    lines += [f"  {name:14s} {2**0.5 * b / top:.3f}" for name, b in scales.items()]
    common.echo("\n".join(lines), json)
    common.write_json(values, json)


def simulate(
    config: Annotated[Path, typer.Option(help="Zone or service file (TOML).")],
    zone: common.ZoneName = None,
    days: Annotated[int, typer.Option(min=1, help="Days to simulate.")] = 30,
    seed: common.Seed = 1,
    trace: Annotated[
        Path | None, typer.Option(help="Keep the first day whole, truth included (docs/audit.md).")
    ] = None,
    json: common.Json = None,
) -> None:
    """Simulate a zone under its policy: what the noise costs in error, waste and bills.

    A "day" is one run of the policy. A zone of a service file runs under the service's
    own terms, from its `begins` on.

    Example: hushgrid simulate --config examples/zone.toml --days 30

    \f
    Args: see the help of each option.
    """
    from hushgrid.lab.simulation import Mechanism, consecutive, fold
    from hushgrid.lab.simulation import days as simulated_days
    from hushgrid.report import paper as report

    zone_file, service = common.load_either(config, zone)
    world = consecutive(zone_file.scenario, zone_file.policy.horizon)
    with common.progress("simulating, days", days) as tick:
        outcomes = simulated_days(world, {"it": Mechanism(zone_file.policy)}, count=days, seed=seed)
        study = fold(outcomes, tick)
    values = report.simulation_json(study, "it")
    paths = common.write_json(values, json)
    if trace is not None:
        from hushgrid.files.models import save_trace
        from hushgrid.lab.attack import record

        # a service file names stores and may hold passwords: it is not kept in the trace
        text = config.read_text("utf-8") if service is None else ""
        recording = record(zone_file.scenario, zone_file.policy, seed=seed, config=text)
        paths.append(save_trace(trace, recording))
    common.echo(report.simulation_table(study, "it"), json)
    common.echo_written(paths, json)


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
    from hushgrid.files.results import make_folder, save_experiment
    from hushgrid.lab import paper as sweeps
    from hushgrid.lab.paper import experiment
    from hushgrid.report import paper as report

    plots = common.can_draw(json)
    make_folder(out)
    common.say_duration(3 + 0.2 * days + 2.5 * sweep_days)
    with common.progress("experiment, days", days) as tick:
        result = experiment(days=days, sigma=sigma, seed=seed, progress=tick)
    points = len(sweeps.SIZES) * len(sweeps.CERTAIN) + len(sweeps.COUNTS) + len(sweeps.SIGMAS) + 1
    with common.progress("sweeps, days    ", points * sweep_days) as tick:
        sweep_results = {
            "certainty": sweeps.against_certainty(sweep_days, seed, tick),
            "count": sweeps.against_count(sweep_days, seed, tick),
            "eta": sweeps.against_eta(sweep_days, seed, tick),
            "sigma": sweeps.against_sigma(sweep_days, seed, tick),
        }
    figures = (
        report.experiment_figures(result) | report.sweep_figures(sweep_results) if plots else {}
    )
    table, prose = report.experiment_table(result), report.experiment_prose(result)
    values = report.experiment_json(result)
    values["sweeps"] = {name: report.sweep_json(sweep) for name, sweep in sweep_results.items()}
    paths = save_experiment(out, table, prose, values, figures)
    paths += common.write_json(values, json)
    common.echo(f"{table}\n\n{prose}\n", json)
    common.echo_written(paths, json)


# ---- the closed loop


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
        str, typer.Option(help="Some of exact, raw, estimated, blocks, filtered, ahead, flat, tou.")
    ] = "exact,raw,estimated,blocks,filtered,ahead,flat,tou",
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
