"""Comparisons and simulations as tables, text, JSON, figures and HTML.

Sections: the paper's experiment and simulations; comparisons with other methods and batteries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hushgrid.lab.battery import LABELS, NO_PROMISE, BatteryScore
from hushgrid.lab.bench import (
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
)
from hushgrid.lab.comparison import Comparison
from hushgrid.lab.methods import BOUND_FITTED, Method, MethodRefusal, Ready, counted
from hushgrid.lab.rolling import DailySums
from hushgrid.report._figures import finish, light_grid, render, table
from hushgrid.report.promise import finite_or_none
from hushgrid.statistics import Summary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    " for all steps of the next day; from exact loads: the same list, had the same filter followed"
    " the true loads without noise, and the ratio of both errors. A row without a promise publishes"
    " what meters read: it says what yesterday's loads are worth, not what may be published."
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
    """Errors of lists for the next day, also from exact loads; nothing where days are apart."""
    summary, exact, ratio = _lists(result, name)
    if summary is None:
        return {}
    out: dict[str, Any] = {"rmsre": _summary(summary)}
    if exact is not None and ratio is not None:
        out |= {"exact": {"rmsre": _summary(exact)}, "ratio": _summary(ratio)}
    return {AHEAD: out}


def _lists(result: Comparison, name: str) -> tuple[Summary | None, ...]:
    return result.ahead(name), result.ahead_exact(name), result.ahead_ratio(name)


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
    lists = ("next day, %", "from exact loads, %", "ratio")
    rows: list[tuple[str, ...]] = [("method", "estimated, %", "raw, %", *lists, *heads)]

    def listed(name: str) -> tuple[str, ...]:
        errors, ratio = _lists(result, name)[:2], result.ahead_ratio(name)
        cells = (_percent(summary) if summary else "-" for summary in errors)
        return (*cells, with_range(ratio, ".3f") if ratio else "-")

    for name in order:
        shares = [result.coverage(name, kind) for kind in KINDS_HELD]
        errors = (_percent(result.summary(name, part, "rmsre")) for part in ("estimated", "raw"))
        cells = (_percent(x, ".1%") if x else "-" for x in shares)
        rows.append((labels[name], *errors, *listed(name), *cells))
    true = (ROLLING_MEAN_NOISY, ROLLING_MEAN, YESTERDAY)
    for name in (*without, *(n for n in true if n in means)):
        label = labels[name] + (" (no reading)" if name in without else "")
        error = _percent(result.summary(name, "estimated", "rmsre"))
        rows.append((label, error, "-", *listed(name), "-", "-", "-"))
    return table(rows)


def with_range(s: Summary, form: str, times: float = 1.0) -> str:
    """A mean with the ends of its 95 % interval.

    Args:
        s: The mean.
        form: How numbers are written.
        times: A factor.

    Returns:
        The words.
    """
    mean, low, high = (format(x * times, form) for x in (s.mean, *s.ci95))
    return f"{mean} ({low} to {high})"


def _percent(s: Summary, form: str = ".2%") -> str:
    return with_range(s, form).replace("%", "")


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
                *(with_range(result.summary(name, part), ".3f", 1e3) for part in PARTS),
                _wasted(result, name, PARTS),
                _auc_text(result, name),
            )
        )
    if result.auc(OPEN):
        rows.append(("no noise (no promise)", "-", "-", "0", "0", "-", _auc_text(result, OPEN)))
    for name, label in LABELS.items():
        cells = [with_range(result.summary(name, part), ".3f", 1e3) for part in PARTS[1:]]
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
        ratios = (with_range(result.ratio(method, base, part), ".3f") for part in PARTS)
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
                with_range(s.auc, ".3f"),
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
