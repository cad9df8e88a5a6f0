"""Comparisons and simulations as tables, text, JSON, figures and HTML.

Sections: the paper's experiment and simulations; comparisons with other methods and batteries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.lab.battery import LABELS, NO_PROMISE, BatteryScore
from hushgrid.lab.comparison import (
    AHEAD,
    AUCS,
    BATTERY_POWER,
    BATTERY_SIZE,
    FIGURES,
    FLAT,
    HELD,
    KINDS_HELD,
    OPEN,
    PARTS,
    ROLLING_MEAN,
    ROLLING_MEAN_NOISY,
    SLOT_MEAN,
    TIME_OF_USE,
    YESTERDAY,
    Comparison,
)
from hushgrid.lab.methods import BOUND_FITTED, Method, MethodRefusal, Ready, counted
from hushgrid.lab.paper import HOUSES, PUBLISHED, Experiment, Sweep, mechanisms
from hushgrid.lab.rolling import DailySums
from hushgrid.lab.simulation import SIMULATION_FIGURES, Study
from hushgrid.report._figures import day_line, finish, light_grid, panels, render, table
from hushgrid.report.promise import finite_or_none
from hushgrid.statistics import Summary, ratio_of_means, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
                _with_range(usual, ".2%"),
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
            f" {_with_range(exact, '.3f')}.",
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


_MEANS = {
    FLAT: "flat price",
    TIME_OF_USE: "time of use, a price for each of four bands of the day",
    SLOT_MEAN: "slot mean of the days before",
    ROLLING_MEAN_NOISY: "mean of the last five days of the same kind, from noisy daily sums",
    ROLLING_MEAN: "mean of the last five days of the same kind, TRUE LOADS, NO PROMISE",
    YESTERDAY: "the day before, TRUE LOADS, NO PROMISE",
}
RECORDED_PROSE = (
    "RMSRE of the rate (usual formula). estimated: the model and a filter of all releases so far,"
    " weighed by how well they foresaw them (docs/proofs/estimate.md); raw: the noisy load, and"
    " where readings are cut the energy that is expected above; next day: the list made at 18:00"
    " for all steps of the next day. A row without a promise publishes what meters read: it says"
    " what yesterday's loads are worth, not what may be published."
)
_NO_READING = "no reading of the days compared is used, so nothing about them is given away"
_TRUE_LOADS = "none: loads are published as they are"


def _mean_guarantees(result: Comparison) -> dict[str, str]:
    """What each mean of days before promises; those that are there on all days."""
    sums = result.sums
    guarantees = dict.fromkeys((FLAT, TIME_OF_USE, SLOT_MEAN), _NO_READING)
    guarantees |= dict.fromkeys((ROLLING_MEAN, YESTERDAY), _TRUE_LOADS)
    if isinstance(sums, DailySums):
        guarantees[ROLLING_MEAN_NOISY] = (
            "pure epsilon for a house's whole day, without any law of consumption: one sum a day,"
            f" of at most {sums.cut} Wh a home, with Laplace noise of scale {sums.scale:.0f} Wh;"
            " the profile is that of the days before, or the model's" + counted(result.promise)
        )
    common = {name for name in guarantees if all(name in row for row in result.rows)}
    return {name: text for name, text in guarantees.items() if name in common}


def _summary(s: Summary) -> dict[str, Any]:
    mean, sd, *ci95 = map(finite_or_none, (s.mean, s.sd, *s.ci95))
    return {"mean": mean, "sd": sd, "ci95": ci95}


def comparison_json(
    result: Comparison, curve: Sequence[Comparison], batteries: Sequence[BatteryScore]
) -> dict[str, Any]:
    """A comparison under its public keys.

    Args:
        result: The comparison.
        curve: The same at other promises.
        batteries: Scores of batteries at the meter.

    Returns:
        The values; a figure that does not exist is None.
    """
    promise = result.promise
    return {
        "secret": promise.secret,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "days": result.days,
        "ratios": _ratios(result),
        "window": promise.window,
        "mechanisms": _mechanisms(result, batteries),
        "refused": result.refused,
        OPEN: _aucs(result, OPEN),
        "curve": [_curve_point(point) for point in curve],
        "batteries": [
            {"name": s.name, "size": s.size, "auc": _summary(s.auc), "moved": s.moved}
            for s in batteries
        ],
    }


def _mechanisms(result: Comparison, batteries: Sequence[BatteryScore]) -> dict[str, Any]:
    at_meter = {s.name: _summary(s.auc) for s in batteries if s.size == BATTERY_SIZE}
    out: dict[str, Any] = {}
    for method in result.methods:
        ready = result.ready[method.name]
        if not isinstance(ready, Ready):
            continue
        out[method.name] = {
            part: {f: _summary(result.summary(method.name, part, f)) for f in FIGURES}
            for part in PARTS
        } | {
            "label": method.label,
            "online": method.online,
            "eta": method.eta,
            "guarantee": ready.guarantee,
            "private_fit": method.name == BOUND_FITTED.name,
            "scale": ready.scale,
            **_aucs(result, method.name),
            **_held(result, method.name),
            **_ahead(result, method.name),
        }
    for name, guarantee in _mean_guarantees(result).items():
        out[name] = {
            part: {f: _summary(result.summary(name, part, f)) for f in FIGURES} for part in PARTS
        } | {
            "label": _MEANS[name],
            "online": True,
            "eta": 1.0 if name == ROLLING_MEAN_NOISY else None,
            "guarantee": guarantee,
            "promise": name not in (ROLLING_MEAN, YESTERDAY),
            **_ahead(result, name),
        }
    for name in LABELS:
        moved = summarise([row[name]["moved"][0] for row in result.rows])
        out[name] = {
            "estimated": None,
            "raw": {f: _summary(result.summary(name, "raw", f)) for f in FIGURES},
            "cut": {f: _summary(result.summary(name, "cut", f)) for f in FIGURES},
            "label": LABELS[name],
            "online": True,
            "per_house": True,
            "eta": None,
            "guarantee": NO_PROMISE,
            "capacity": BATTERY_SIZE,
            "power": BATTERY_POWER,
            "moved": _summary(moved),
            "auc": at_meter.get(name),  # at the house's own meter
        }
    return out


def _held(result: Comparison, name: str) -> dict[str, Any]:
    """How often intervals hold the load, and its interval; nothing where days are apart."""
    kinds = {"": KINDS_HELD[0], **{f"_{kind}": kind for kind in KINDS_HELD[1:]}}
    shares = {end: result.coverage(name, kind) for end, kind in kinds.items()}
    named_shares = {f"{HELD}{end}": share for end, share in shares.items() if share is not None}
    means = {key: share.mean for key, share in named_shares.items()}
    return means | {f"{key}_ci95": list(share.ci95) for key, share in named_shares.items()}


def _ahead(result: Comparison, name: str) -> dict[str, Any]:
    """Error of the list for the next day; nothing where days are apart."""
    summary = result.ahead(name)
    return {} if summary is None else {AHEAD: {"rmsre": _summary(summary)}}


def recorded_table(result: Comparison) -> str:
    """Errors on recorded days: estimated, raw, of a day ahead, of the forecast and of means.

    Args:
        result: The comparison.

    Returns:
        A Markdown table, smallest error first; empty where days are apart.
    """
    if result.sums is None:
        return ""
    names = [name for name in result.names if result.coverage(name) is not None]
    labels = {m.name: m.label for m in result.methods} | _MEANS
    means = _mean_guarantees(result)
    unread = ("forecast", FLAT, TIME_OF_USE, SLOT_MEAN)
    without = [name for name in unread if name in (*result.names, *means)]
    order = sorted(names, key=lambda name: result.summary(name, "estimated", "rmsre").mean)
    heads = ("95 % intervals hold, %", "of one step ahead", "of a day ahead")
    rows: list[tuple[str, ...]] = [("method", "estimated, %", "raw, %", "next day, %", *heads)]

    def listed(name: str) -> str:
        summary = result.ahead(name)
        return _percent(summary) if summary else "-"

    for name in order:
        shares = [result.coverage(name, kind) for kind in KINDS_HELD]
        errors = (_percent(result.summary(name, part, "rmsre")) for part in ("estimated", "raw"))
        cells = (_percent(x, ".1%") if x else "-" for x in shares)
        rows.append((labels[name], *errors, listed(name), *cells))
    true = (ROLLING_MEAN_NOISY, ROLLING_MEAN, YESTERDAY)
    for name in (*without, *(n for n in true if n in means)):
        label = labels[name] + (" (no reading)" if name in without else "")
        error = _percent(result.summary(name, "estimated", "rmsre"))
        rows.append((label, error, "-", listed(name), "-", "-", "-"))
    return table(rows)


def _with_range(s: Summary, form: str, times: float = 1.0) -> str:
    mean, low, high = (format(x * times, form) for x in (s.mean, *s.ci95))
    return f"{mean} ({low} to {high})"


def _percent(s: Summary, form: str = ".2%") -> str:
    return _with_range(s, form).replace("%", "")


def _aucs(result: Comparison, name: str) -> dict[str, Any]:
    summaries = {key: result.auc(name, key) for key in AUCS}
    return {key: _summary(s) if s else None for key, s in summaries.items()}


def _pairs(result: Comparison) -> list[tuple[str, str]]:
    bases = [n for n in result.names if n.startswith(("hushgrid", "bound"))]
    return [
        (method, base)
        for base in bases
        for method in ("group", "forecast", "bound", "bound_independent")
        if method in result.names and method != base
    ]


def _ratios(result: Comparison) -> dict[str, Any]:
    return {
        f"{method}_over_{base}": {
            part: _summary(result.ratio(method, base, part))
            | {"gap_ci95": list(result.gap(method, base, part).ci95)}
            for part in PARTS
        }
        for method, base in _pairs(result)
    }


def _curve_point(point: Comparison) -> dict[str, Any]:
    return {
        "epsilon": point.promise.epsilon,
        "days": point.days,
        "mechanisms": {
            name: {part: _summary(point.summary(name, part)) for part in PARTS}
            for name in point.names
        },
    }


def comparison_table(result: Comparison) -> str:
    """Errors in thousandths, in the paper's formula; smallest estimated error first.

    Args:
        result: The comparison.

    Returns:
        A Markdown table.
    """
    rows: list[tuple[str, ...]] = [
        (
            "method",
            "eta",
            "estimated, e-3",
            "raw, e-3",
            "cut, e-3",
            "mismatch cost, est. / raw / cut",
            "AUC, knowing nothing / all others",
        )
    ]
    order = sorted(result.names, key=lambda n: result.summary(n, "estimated").mean)
    by_name = {m.name: m for m in result.methods}
    for name in order:
        method = by_name[name]
        rows.append(
            (
                method.label + ("" if method.online else " (offline)"),
                "-" if method.eta is None else f"{method.eta:g}",
                *(_with_range(result.summary(name, part), ".3f", 1e3) for part in PARTS),
                _wasted(result, name, PARTS),
                _auc_text(result, name),
            )
        )
    if result.auc(OPEN):
        rows.append(("no noise (no promise)", "-", "-", "0", "0", "-", _auc_text(result, OPEN)))
    for name, label in LABELS.items():
        cells = [_with_range(result.summary(name, part), ".3f", 1e3) for part in PARTS[1:]]
        wasted = f"- / {_wasted(result, name, PARTS[1:])}"
        rows.append((f"{label} (no promise)", "-", "-", *cells, wasted, "-"))
    return table(rows)


def _wasted(result: Comparison, name: str, parts: Sequence[str]) -> str:
    return " / ".join(f"{result.summary(name, p, 'mismatch_cost').mean:.3g}" for p in parts)


def _auc_text(result: Comparison, name: str) -> str:
    summaries = [result.auc(name, key) for key in AUCS]
    return " / ".join(f"{s.mean:.4f}" if s else "-" for s in summaries) if any(summaries) else "-"


def terms_prose(result: Comparison, model: str) -> str:
    """The promise, the number of days, and the meaning of the columns.

    Args:
        result: The comparison.
        model: The public model, in words.

    Returns:
        A Markdown list.
    """
    promise = result.promise
    return "\n".join(
        [
            f"- Secret {promise.secret}"
            + (f" of any {promise.window} steps" if promise.window else "")
            + f", epsilon = {promise.epsilon:g}"
            + (f", delta = {promise.delta:g}" if promise.delta else "")
            + f", {result.days} days; the public model is {model}.",
            "- Errors are RMSRE in the paper's formula, with 95 % intervals over the days.",
            "- estimated: the rate of the public's best guess; raw: the noisy rate as it is; cut:"
            " the noisy rate cut to the tariff's limits.",
        ]
    )


def ratio_table(result: Comparison) -> str:
    """Errors of other methods over those of hushgrid, on paired days.

    Args:
        result: The comparison.

    Returns:
        A Markdown table.
    """
    rows: list[tuple[str, ...]] = [("error of", "over", *PARTS)]
    labels = {m.name: m.label for m in result.methods}
    for method, base in _pairs(result):
        ratios = (_with_range(result.ratio(method, base, part), ".3f") for part in PARTS)
        rows.append((labels[method], labels[base], *ratios))
    return table(rows)


def guarantee_prose(result: Comparison) -> str:
    """The guarantee of each method, or the reason it is left out.

    Args:
        result: The comparison.

    Returns:
        A Markdown list.
    """
    lines = []
    for method in result.methods:
        ready = result.ready[method.name]
        if isinstance(ready, Ready):
            lines.append(f"- {method.label}: {ready.guarantee}.")
        else:
            lines.append(f"- {method.label}: left out: {ready.reason}.")
    lines += [f"- {_MEANS[name]}: {text}." for name, text in _mean_guarantees(result).items()]
    if isinstance(result.sums, MethodRefusal):
        lines.append(f"- {_MEANS[ROLLING_MEAN_NOISY]}: left out: {result.sums.reason}.")
    return "\n".join(lines)


def battery_table(scores: Sequence[BatteryScore]) -> str:
    """AUC of an adversary at one house's meter, by battery and capacity.

    Args:
        scores: Scores of batteries.

    Returns:
        A Markdown table.
    """
    rows = [("battery", "capacity, in u", "AUC of the adversary", "energy moved / used")]
    for s in scores:
        rows.append(
            (
                {"open": "none", "prior": "no meter, public model alone"}.get(
                    s.name, LABELS.get(s.name, s.name)
                ),
                f"{s.size:g}",
                _with_range(s.auc, ".3f"),
                f"{s.moved:.2f}",
            )
        )
    return table(rows)


# hushgrid at its three trusts, and with independent noise; drawn wider
_OWN_COLORS = ("#0a7d3c", "#57b33e", "#0b6e99", "#6fb7d6")
_OTHER_COLORS = ("#7570b3", "#a6761d", "#d95f02", "#e7298a", "#666666", "#1fa4d4", "#b2182b")


def comparison_figure(curve: Sequence[Comparison]) -> Figure:
    """Error against promise, a line per method: estimated, over the forecast's error, and raw.

    Args:
        curve: Comparisons at several promises.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.5, 5.6), layout="constrained")
    axes = figure.subplots(1, 3)
    _errors(axes[0], curve, "estimated")
    _gains(axes[1], curve)
    _errors(axes[2], curve, "raw")
    days = curve[0].days
    for ax in axes:
        ax.set(xscale="log", xlabel=f"promised epsilon, secret {curve[0].promise.secret}")
        light_grid(ax)
    figure.legend(
        handles=axes[2].get_lines(), loc="outside lower center", frameon=False, ncols=6,
        title=f"means of {days} days; shaded: 95 % intervals of paired days; dashed: needs the"
        " whole day first",
    )  # fmt: skip
    return figure


def _errors(ax: Axes, curve: Sequence[Comparison], part: str) -> None:
    """A line for each method, at the promises it can keep."""
    for method, style in _line_styles(curve):
        points = [c for c in curve if method.name in c.names]
        summaries = [c.summary(method.name, part) for c in points]
        _line(ax, points, summaries, method.label, style)
    forecast = [c.summary("forecast", part) for c in curve]
    at = [c.promise.epsilon for c in curve]
    ax.plot(at, [s.mean for s in forecast], ":", color="#111111", label="forecast, no readings")
    ax.set(yscale="log", ylabel="RMSRE, paper's formula", title=f"{part} price")


def _gains(ax: Axes, curve: Sequence[Comparison]) -> None:
    """The estimated error over the forecast's on the same days: the gain from readings."""
    heights = [1.0]
    for method, style in _line_styles(curve):
        points = [c for c in curve if method.name in c.names]
        ratios = [c.ratio(method.name, "forecast", "estimated") for c in points]
        _line(ax, points, ratios, method.label, style)
        low, high = zip(*(s.ci95 for s in ratios), strict=True)
        at = [c.promise.epsilon for c in points]
        ax.fill_between(at, low, high, alpha=0.12, color=style["color"], linewidth=0)
        heights += [s.mean for s in ratios]
    ax.axhline(1.0, linestyle=":", color="#111111")
    ax.set(ylabel="error over the forecast's", title="estimated price, over the forecast")
    ax.set_ylim(min(heights) - 0.05, max(heights) + 0.05)  # few days: wide intervals


def _line_styles(curve: Sequence[Comparison]) -> list[tuple[Method, dict[str, Any]]]:
    """The methods that keep some promise of the curve, each with its line style."""
    colors = {True: iter(_OWN_COLORS), False: iter(_OTHER_COLORS)}
    out = []
    for method in curve[0].methods:
        if method.name == "forecast":
            continue
        is_ours = method.name.startswith(("bound", "hushgrid"))
        style = {
            "color": next(colors[is_ours]),
            "linewidth": 2.4 if is_ours else 1.3,
            "linestyle": "-" if method.online else "--",
            "marker": "o" if method.online else "s",
        }
        if any(method.name in c.names for c in curve):
            out.append((method, style))
    return out


def _line(
    ax: Axes, points: Sequence[Comparison], summaries: Sequence[Summary], label: str, style: Any
) -> None:
    """The means of one method."""
    at = [c.promise.epsilon for c in points]
    ax.plot(at, [s.mean for s in summaries], markersize=4, label=label, **style)


def battery_figure(scores: Sequence[BatteryScore]) -> Figure:
    """AUC against battery capacity and against energy moved.

    Args:
        scores: Scores of batteries.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    size_axes, moved_axes = figure.subplots(1, 2)
    for name, label in LABELS.items():
        points = [s for s in scores if s.name == name]
        low, high = zip(*(s.auc.ci95 for s in points), strict=True)
        auc = [s.auc.mean for s in points]
        size_axes.plot([s.size for s in points], auc, "o-", markersize=4, label=label)
        size_axes.fill_between([s.size for s in points], low, high, alpha=0.15)
        moved_axes.plot([s.moved for s in points], auc, "o-", markersize=4, label=label)
        for s in (points[0], points[-1]):
            moved_axes.annotate(f"{s.size:g}u", (s.moved, s.auc.mean), (4, 4), fontsize=7,
                                textcoords="offset points")  # fmt: skip
    for s in scores:
        if s.name in ("open", "prior"):
            text = "no battery" if s.name == "open" else "public model alone"
            for ax in (size_axes, moved_axes):
                ax.axhline(s.auc.mean, linestyle=":", color="#555555")
                ax.annotate(text, (0.02, s.auc.mean), xycoords=("axes fraction", "data"),
                            fontsize=7, va="bottom")  # fmt: skip
    size_axes.set(xscale="log", xlabel="capacity, in a house's bound", ylabel="AUC at the meter")
    sizes = sorted({s.size for s in scores if s.size > 0})
    size_axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    size_axes.minorticks_off()
    moved_axes.set(xlabel="energy moved / energy used", ylabel="AUC at the meter")
    for ax in (size_axes, moved_axes):
        finish(ax)
    return figure


def comparison_page(title: str, parts: Mapping[str, str], drawings: Mapping[str, str]) -> str:
    """Tables and lists under their names, each after its chart.

    Args:
        title: Title of the page.
        parts: Markdown tables or lists by name.
        drawings: SVG by name.

    Returns:
        The HTML; it has no script and loads nothing from other addresses.
    """
    blocks = []
    for name, text in parts.items():
        lines = [line.removeprefix("- ") for line in text.splitlines() if line]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        blocks.append((name, lines, rows if text.startswith("|") else None))
    return render("comparison.html", title=title, parts=blocks, drawings=drawings)
