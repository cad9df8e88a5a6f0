"""hushgrid plan: from a promise to noise, error and assumptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from hushgrid.cli import _common as common

_SLOTWISE = (
    "Spend more budget at times of day when occupancy changes quickly; else for an interval without"
    " blocks of steps, at eta 1 or where houses have at most 64 different laws."
)


def plan(
    config: Annotated[Path | None, typer.Option(help="Zone or service file (TOML).")] = None,
    zone: common.ZoneName = None,
    paper: Annotated[
        float | None, typer.Option(metavar="SIGMA", help="The paper's zone instead of a file.")
    ] = None,
    secret: Annotated[
        Literal["step", "interval", "window"] | None,
        typer.Option(help="What the promise is about; else the service's, interval."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Of the secret window, such as P1D; else its own."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="What to promise about it; else the service's, 1.")
    ] = None,
    eta: Annotated[
        float | None, typer.Option(help="Share of a law that may be anything; else the file's.")
    ] = None,
    rho: Annotated[
        float | None,
        typer.Option(help="Relative error to expect of the model; else the service's, 0.2."),
    ] = None,
    clamp: Annotated[
        bool | None,
        typer.Option(
            "--clamp/--no-clamp",
            help="Choose a clamp below the contract bound; else as the service does, yes.",
        ),
    ] = None,
    slotwise: Annotated[
        bool | None, typer.Option("--slotwise/--no-slotwise", help=_SLOTWISE)
    ] = None,
    blocks: Annotated[
        bool | None,
        typer.Option(
            "--blocks/--no-blocks",
            help="Let noise last blocks of steps (eta 1); else as the service does, yes.",
        ),
    ] = None,
    continued: Annotated[
        bool | None,
        typer.Option(
            help="Count leakage as if the run repeated for ever (interval); else a service's.",
            show_default=False,
        ),
    ] = None,
    tables: Annotated[bool, typer.Option(help="What another eta, epsilon or size costs.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure and report.html.")] = None,
    seed: common.Seed = 1,
    json: common.Json = None,
) -> None:
    """Plan the noise for a promise, with the expected price error and the assumptions.

    A file is planned by its own promise, except for what the options change.

    Example: hushgrid plan --config examples/zone.toml --no-tables

    \f
    Args: see the help of each option.

    Raises:
        PlanError: If a value cannot be planned for.
    """
    from dataclasses import replace

    from hushgrid.errors import PlanError
    from hushgrid.files.results import png_of, save_figures, write_text
    from hushgrid.files.toml import window_text
    from hushgrid.files.weeks import whole_week
    from hushgrid.planning import tradeoff as options
    from hushgrid.planning.expected_error import RHO
    from hushgrid.planning.planner import plan as make_plan
    from hushgrid.planning.stability import loop_of
    from hushgrid.report import plan as report
    from hushgrid.report.promise import finite_or_none

    if out is not None:
        common.require("matplotlib", "plot")
    if rho is not None and not 0 <= rho < 1e6:
        raise PlanError(f"rho is {rho}; give a relative error of 0 or more.")
    if paper is not None and not 0 <= paper < 1e6:
        raise PlanError(f"paper is {paper}; give a sigma of 0 or more.")
    scenario, terms, private, base, service = _zone(config, zone, paper, seed)
    secret = base.secret if secret is None else secret
    epsilon = base.epsilon if epsilon is None else epsilon
    clamp = (base.rho is not None or rho is not None) if clamp is None else clamp
    rho = rho if rho is not None else RHO if base.rho is None else base.rho
    if eta is not None:
        terms = replace(terms, eta=eta)
    length = None
    if secret == "window":
        length = base.window
        length = length if window is None else common.seconds("window", window, base.seconds)
    words = "" if length is None else window_text(length)
    if service is not None:
        week = whole_week(service)
        scenario, terms = week.scenario, replace(terms, horizon=week.policy.horizon)
        continued = secret == "interval" if continued is None else continued
    elif secret == "window":
        terms = replace(terms, horizon=7 * 86_400 // base.seconds)  # its blocks may outlast a day
    world = scenario.terms
    request: dict[str, Any] = {
        "secret": secret,
        "epsilon": epsilon,
        "terms": terms,
        "rho": rho if clamp else None,
        "slotwise": slotwise,
        "running": bool(continued),
        "blocks": base.blocks if blocks is None else blocks,
        "window": None if length is None else -(-length // base.seconds) + 1,  # steps it touches
        "seconds": base.seconds,
    }
    dials = 1 + tables * (len(options.EPSILONS) + len(options.ETAS))
    with common.progress("planning", dials if dials > 1 else None) as tick:
        result = make_plan(*world, **request)
        tick()
        cells = options.sensitivity(world, result, request, tick) if tables else {}
    endless = result.leakage
    if not result.running and secret != "window":
        endless = options.endless_leakage(result, world)
    covers = result.covers(base.seconds)
    values = report.plan_json(result, rho, endless, covers)
    values["sensitivity"] = {dial: [c._asdict() for c in rows] for dial, rows in cells.items()}
    values["private"] = private
    loop = loop_of(result, scenario.tariff, scenario.consumption)
    values["loop"] = {name: finite_or_none(v) for name, v in loop._asdict().items()}
    common.echo(report.plan_prose(result, rho, endless, covers, words), json)
    remarks = [report.stability_line(loop), *([_PRIVATE] if private else [])]
    for line in remarks:
        common.echo(f"\n{line}", json)
    if cells:
        common.echo("\n" + report.sensitivity_tables(cells), json)
    paths = common.write_json(values, json)
    if out is not None:
        figure = report.plan_figure(result, scenario.models)
        page = report.plan_page(result, rho, endless, covers, remarks, cells, png_of(figure), words)
        paths += [write_text(out / "report.html", page), *save_figures(out, {"plan": figure})]
    common.echo_written(paths, json, "\n")


_PRIVATE = (
    "The models are private: these figures are the utility's own, for experiments. No service runs"
    " on such models; give those of a survey, or pooled ones (hushgrid learn --pool-budget)."
)


class _Defaults(NamedTuple):
    """The promise where the options do not give one."""

    secret: str = "interval"
    epsilon: float = 1.0
    rho: float | None = 0.2  # None: no clamp is chosen
    blocks: bool = True
    window: int = 86_400  # [s]
    seconds: int = 900  # of a step


def _zone(config: Path | None, zone: str | None, paper: float | None, seed: int) -> Any:
    """The scenario, the terms, whether models are private, what is promised anyway, the service."""
    from dataclasses import replace

    from hushgrid.errors import FileError
    from hushgrid.files.deployment import Promise
    from hushgrid.lab.paper import scenario
    from hushgrid.mechanism.policy import Even, Policy

    if (config is None) == (paper is None):
        raise FileError("config and paper are both set or both unset; give one of them.")
    if config is None:
        return scenario(paper or 0.0, seed), Policy(1.0), False, _Defaults(), None
    file, service = common.load_either(config, zone, planned=False)
    policy, private = file.policy, file.learned.private
    terms = replace(policy, schedule=Even())
    if service is None:
        secret, epsilon, window = common.promise_of_file(config, file)
        base = _Defaults(seconds=file.seconds)
        if secret != "step":
            base = base._replace(secret=secret, epsilon=epsilon, window=window or base.window)
        return file.scenario, replace(terms, clamp=()), private, base, None
    promise = service.promise or Promise("step", policy.epsilon)
    if promise.rho is not None:  # the clamp was chosen
        terms = replace(terms, clamp=())
    window = promise.window or 86_400
    base = _Defaults(
        promise.secret, promise.epsilon, promise.rho, window=window, seconds=file.seconds
    )
    return file.scenario, terms, private, base, service
