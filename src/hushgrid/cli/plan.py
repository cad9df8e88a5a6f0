"""hushgrid plan: from a promise to noise, error and assumptions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli.common import Json, Seed, need, progress, put_json, say


def plan(
    config: Annotated[Path | None, typer.Option(help="Zone file (TOML).")] = None,
    paper: Annotated[
        float | None, typer.Option(metavar="SIGMA", help="The paper's zone instead of a file.")
    ] = None,
    secret: Annotated[str, typer.Option(help="step, interval or trajectory.")] = "interval",
    epsilon: Annotated[float, typer.Option(help="What to promise about the secret.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Chance of an exception (trajectory).")] = 0.0,
    eta: Annotated[
        float | None, typer.Option(help="Share of a law that may be anything; else the file's.")
    ] = None,
    rho: Annotated[float, typer.Option(help="Relative error to expect of the model.")] = 0.2,
    clamp: Annotated[bool, typer.Option(help="Choose a clamp below the contract bound.")] = True,
    slotwise: Annotated[bool, typer.Option(help="Spend where the chain mixes.")] = False,
    gaussian: Annotated[bool, typer.Option(help="Gaussian noise (trajectory, delta).")] = False,
    continued: Annotated[
        bool, typer.Option(help="Count leakage with such horizons before and after (interval).")
    ] = False,
    within: Annotated[
        float | None, typer.Option(help="Refuse an expected error above this share of the load.")
    ] = None,
    tables: Annotated[bool, typer.Option(help="What another eta, epsilon or size costs.")] = True,
    out: Annotated[Path | None, typer.Option(help="Folder for the figure.")] = None,
    seed: Seed = 1,
    json: Json = None,
) -> None:
    """Answer a promise with the noise, the expected price error and the assumptions.

    Example: hushgrid plan --config examples/zone.toml --secret interval --epsilon 1
    """
    from dataclasses import replace

    from hushgrid import report
    from hushgrid import sensitivity as options
    from hushgrid.errors import PlanError
    from hushgrid.files import save_figures
    from hushgrid.planning import plan as planned

    if out is not None:
        need("matplotlib", "plot")
    if not 0 <= rho < 1e6:
        raise PlanError(f"rho is {rho}; give a relative error of 0 or more.")
    if paper is not None and not 0 <= paper < 1e6:
        raise PlanError(f"paper is {paper}; give a sigma of 0 or more.")
    scenario, terms, private = _zone(config, paper, seed)
    clamp = clamp and not private  # a clamp is chosen by the laws, and would tell of them
    if eta is not None:
        terms = replace(terms, eta=eta)
    world = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    asked: dict[str, Any] = {
        "secret": secret,
        "epsilon": epsilon,
        "delta": delta,
        "terms": terms,
        "rho": rho if clamp else None,
        "slotwise": slotwise,
        "gaussian": gaussian,
    }
    if continued:
        asked["running"] = options.running(scenario.models, terms.horizon, secret)
    dials = 1 + tables * (len(options.EPSILONS) + (0 if gaussian else len(options.ETAS)))
    with progress("planning", dials) as tick:
        found = planned(*world, **asked)
        tick()
        if within is not None:
            options.within(world, found, asked, within)
        cells = options.sensitivity(world, found, asked, tick) if tables else {}
    endless = options.endless_leakage(found, scenario.models)
    values = report.plan_json(found, rho, endless, private)
    values["sensitivity"] = {dial: [c._asdict() for c in rows] for dial, rows in cells.items()}
    values["private"] = private
    say(report.plan_prose(found, rho, endless, private), json)
    if private:
        say(f"\n{_PRIVATE}", json)
    if cells:
        say("\n" + report.sensitivity_tables(cells), json)
    written = put_json(values, json)
    if out is not None:
        written += save_figures(out, {"plan": report.plan_figure(found, scenario.models)})
    if written:
        say("\nWritten:\n" + "\n".join(f"  {path}" for path in written), json)


_PRIVATE = (
    "The models are private: these figures are the utility's own. No clamp was chosen; a service"
    " may publish raw prices at eta = 1 for the secret step or trajectory, and hushgrid check holds"
    " it to that."
)


def _zone(config: Path | None, paper: float | None, seed: int) -> Any:
    """The scenario, the terms and whether models are private: a file's, or the paper's zone."""
    from dataclasses import replace

    from hushgrid.errors import FileError
    from hushgrid.paper import scenario
    from hushgrid.policy import Policy
    from hushgrid.zonefile import load_zone

    if (config is None) == (paper is None):
        raise FileError("config and paper are both set or both unset; give one of them.")
    if config is None:
        return scenario(paper or 0.0, seed), Policy(1.0), False
    zone = load_zone(config)
    policy = replace(zone.policy, epsilon_t=(), clamp=(), window=None, negligible=0.0)
    return zone.scenario, replace(policy, gaussian=None, delta=0.0), zone.learned.private
