"""The paper's experiment, its sweeps and simulated days as JSON, tables, prose and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.lab.paper import HOUSES, PUBLISHED, Experiment, Sweep, mechanisms
from hushgrid.lab.simulation import SIMULATION_FIGURES, Study
from hushgrid.report._figures import day_line, finish, panels, table
from hushgrid.report.comparison import with_range
from hushgrid.statistics import Summary, ratio_of_means

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = {
    "naive": "naive, u_max",
    "naive_max": "naive, largest house",
    "bound": "hushgrid eta = 1",
    "exact": "hushgrid eta = 0",
}

_RATE_COLORS = {"optimal": "#111111", "naive": "#f0a860", "bound": "#0b6e99", "exact": "#2e7d32"}


def experiment_json(result: Experiment) -> dict[str, Any]:
    """The paper's experiment under its public keys.

    Args:
        result: The experiment.

    Returns:
        The values.
    """
    error = {name: result.study.figures[name]["rmsre_paper"] for name in mechanisms()}
    over = {name: ratio_of_means(error["naive"], error[name]) for name in ("bound", "exact")}
    return {
        "days": result.study.days,
        "sigma": result.sigma,
        "seed": result.seed,
        "mechanisms": {
            name: {
                figure: result.study.summary(name, figure)._asdict()
                for figure in ("rmsre_paper", "rmsre", "mismatch_cost", "revenue_change_relative")
            }
            for name in mechanisms()
        },
        "ratios": {f"naive_over_{name}": over[name].mean for name in over},
        "ratios_ci95": {f"naive_over_{name}": list(over[name].ci95) for name in over},
        "paper": PUBLISHED,
        "fewest_protected": result.fewest_protected,
    }


def sweep_json(sweep: Sweep) -> dict[str, Any]:
    """A sweep: values of the varied parameter and the gain with its interval.

    Args:
        sweep: The sweep.

    Returns:
        The values.
    """
    lines = {
        name: [{"mean": s.mean, "ci95": list(s.ci95)} for s in line]
        for name, line in sweep.gain.items()
    }
    return {"dial": sweep.dial, "at": list(sweep.at), "gain": lines}


def experiment_table(result: Experiment) -> str:
    """Errors of the mechanisms.

    Args:
        result: The experiment.

    Returns:
        A Markdown table.
    """
    rows = [
        ("mechanism", "RMSRE, paper's formula", "95 % interval", "s.d. of a day", "RMSRE, usual")
    ]
    for name in mechanisms():
        paper, usual = (result.study.summary(name, f) for f in ("rmsre_paper", "rmsre"))
        rows.append(
            (
                _LABELS[name],
                f"{paper.mean * 1e3:.3f}e-3",
                f"{paper.ci95[0] * 1e3:.3f} to {paper.ci95[1] * 1e3:.3f}e-3",
                f"{paper.sd * 1e3:.3f}e-3",
                with_range(usual, ".2%"),
            )
        )
    for name, value in PUBLISHED.items():
        rows.append((f"the paper's {name}, one day", f"{value * 1e3:.3f}e-3", "-", "-", "-"))
    return table(rows)


def experiment_prose(result: Experiment) -> str:
    """This run compared with the paper's 5.5 %.

    Args:
        result: The experiment.

    Returns:
        Lines of text.
    """
    error = {name: result.study.figures[name]["rmsre_paper"] for name in mechanisms()}
    claim = PUBLISHED["naive"] / PUBLISHED["blowfish"]
    pairs = error["naive"][None, :] / error["naive"][:, None]
    distinct = ~np.eye(len(pairs), dtype=bool)
    worse = float((pairs >= claim)[distinct].mean())
    either_way = float((np.maximum(pairs, 1 / pairs) >= claim)[distinct].mean())
    total = ratio_of_means(error["naive"], error["bound"])
    unit = ratio_of_means(error["naive"], error["naive_max"])
    constraint = ratio_of_means(error["naive_max"], error["bound"])
    exact = ratio_of_means(error["naive"], error["exact"])
    return "\n".join(
        [
            f"The paper reports one day of each mechanism: naive is {claim - 1:.1%} worse. A second"
            f" day of the *same* naive mechanism comes out at least that much worse {worse:.0%} of"
            f" the time ({either_way:.0%} in either direction), so one day cannot show it.",
            f"With the same people, readings and noise quantiles, eta = 1 (the paper's rule) gains"
            f" {_gain(total)} over naive: {_gain(unit)} because the largest bound in the zone is"
            f" below u_max, and {_gain(constraint)} by the constraint, since at least"
            f" {result.fewest_protected} of {HOUSES} houses stay protected at every step.",
            f"At the same epsilon, trusting the consumption law (eta = 0) divides the error by"
            f" {with_range(exact, '.3f')}.",
        ]
    )


def _gain(ratio: Summary) -> str:
    low, high = (x - 1 for x in ratio.ci95)
    return f"{ratio.mean - 1:.3%} ({low:.3%} to {high:.3%})"


def simulation_json(study: Study, name: str) -> dict[str, Any]:
    """A simulation's figures: means over the days with their intervals.

    Args:
        study: The simulation.
        name: Name of the mechanism in it.

    Returns:
        The values.
    """
    summaries = {figure: study.summary(name, figure) for figure in SIMULATION_FIGURES}
    return {
        "days": study.days,
        **{figure: summary.mean for figure, summary in summaries.items()},
        "ci95": {figure: list(summary.ci95) for figure, summary in summaries.items()},
    }


def simulation_table(study: Study, name: str) -> str:
    """A simulation's figures as a table.

    Args:
        study: The simulation.
        name: Name of the mechanism in it.

    Returns:
        A Markdown table.
    """
    rows = [("figure, mean of a run", "value", "95 % interval", "unit")]
    units = ("(paper's formula)", "of the rate", "currency", "currency", "of the bill")
    for figure, unit in zip(SIMULATION_FIGURES, units, strict=True):
        mean, _, (low, high) = study.summary(name, figure)
        spread = f"{low:.4g} to {high:.4g}" if study.days > 1 else "-"
        rows.append((figure, f"{mean:.4g}", spread, unit))
    return table(rows)


def experiment_figures(result: Experiment) -> dict[str, Figure]:
    """The paper's three figures, and the noise scale and protected houses over the day.

    Args:
        result: The experiment.

    Returns:
        Figures by name.
    """
    trace = result.sample["open"]
    figures = {}
    for name, title, unit, values in (
        ("occupancy", "Houses at home and awake", "share", trace.home / HOUSES),
        ("consumption", "Mean consumption", "Wh a house and step", trace.load / HOUSES),
    ):
        figures[name], (axes,) = panels(1, height=3.4)
        axes.set(title=title, ylabel=unit)
        day_line(axes, values, None, _RATE_COLORS["bound"], width=2.0)
        finish(axes)
    figures["rates"] = _rates_figure(result)
    figures["noise"] = _noise_figure(result)
    return figures


def _rates_figure(result: Experiment) -> Figure:
    figure, (top, bottom) = panels(2, height=5.6)
    top.set(title="Rates of one day", ylabel="currency/kWh")
    bottom.set(title="What the noise adds", ylabel="published - optimal")
    optimal = result.sample["open"].optimal
    day_line(top, optimal, "optimal", _RATE_COLORS["optimal"], width=2.0)
    for name in ("naive", "bound", "exact"):
        published = result.sample[name].published
        width = 2.4 if name == "naive" else 1.1  # the first two nearly coincide
        day_line(top, published, _LABELS[name], _RATE_COLORS[name], width=width)
        day_line(bottom, published - optimal, _LABELS[name], _RATE_COLORS[name], width=width)
    for axes in (top, bottom):
        finish(axes)
    return figure


def _noise_figure(result: Experiment) -> Figure:
    figure, (top, bottom) = panels(2, height=5.6)
    top.set(title="Noise scale", ylabel="Wh", ylim=(0, 1.15 * max(result.scale["naive"])))
    for name in ("naive", "bound", "exact"):
        width = 3.0 if name == "naive" else 1.3
        day_line(top, result.scale[name], _LABELS[name], _RATE_COLORS[name], width=width)
    bottom.set(title=f"Protected houses, of {HOUSES}", ylabel="houses", ylim=(0, HOUSES * 1.05))
    day_line(bottom, result.protected, None, _RATE_COLORS["bound"])
    for axes in (top, bottom):
        finish(axes)
    return figure


def sweep_figures(sweeps: Mapping[str, Sweep]) -> dict[str, Figure]:
    """The gain of the constraint, and the gain against trust and habits: one panel per sweep.

    Args:
        sweeps: Sweeps by parameter: "certainty", "count", "eta" and "sigma".

    Returns:
        Figures by name.
    """
    from matplotlib.figure import Figure

    figures = {}
    for name, keys in (("constraint", ("certainty", "count")), ("gain", ("eta", "sigma"))):
        figure = Figure(figsize=(9.6, 3.8), layout="constrained")
        for axes, key in zip(figure.subplots(1, 2), keys, strict=True):
            sweep = sweeps[key]
            for label, line in sweep.gain.items():
                low, high = np.array([s.ci95 for s in line]).T
                axes.plot(sweep.at, [s.mean for s in line], "o-", markersize=4, label=label)
                axes.fill_between(sweep.at, low, high, alpha=0.2)
            axes.axhline(1, color="#888888", linewidth=0.8)
            axes.set(xlabel=sweep.dial, ylabel="naive error / hushgrid error", ylim=(0.9, None))
            if key == "eta":
                axes.set_xscale("symlog", linthresh=0.01)
                axes.set_xticks([0, 0.01, 0.05, 0.2, 1], ["0", "0.01", "0.05", "0.2", "1"])
                axes.minorticks_off()
                axes.set_xlim(-0.002, 1.2)
            finish(axes)
        figures[name] = figure
    return figures
