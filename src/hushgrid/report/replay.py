"""The page of a replay: one sheet of HTML with charts, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.lab.evidence import (
    AttackFigures,
    CutFigures,
    Estimate,
    OtherPrice,
    PriceFigures,
    PromiseFigures,
    ReplayEvidence,
    WeekOfPrices,
)
from hushgrid.lab.replay import WORDS
from hushgrid.report._figures import BLUE, ORANGE, chart, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY = "#7d8793"
_SHADES = {0.5: "#9fcbe0", 1.0: BLUE, 2.0: "#145a7a"}  # of ε; 1 is the one to look at
_GIVES = {
    "everything": "all of it",
    "past days": "past days, exactly",
    "nothing": "nothing",
}
_FEW_ROWS = 1.0  # ε of the rows of charts that show one

Rows = list[tuple[str, ...]]


def replay_page(evidence: ReplayEvidence) -> str:
    """The page that decides.

    Args:
        evidence: The figures.

    Returns:
        The HTML; it has no script and loads nothing from other addresses.
    """
    return render("replay.html", **page_values(evidence))


def page_values(evidence: ReplayEvidence) -> dict[str, Any]:
    """What the page shows: texts, tables as rows of cells with the head first, and charts.

    Args:
        evidence: The figures.

    Returns:
        The values by name.
    """
    absence, occupancy = (evidence.attacks.get(key, ()) for key in ("absence", "occupancy"))
    rows = len(_priced(evidence))
    return {
        "title": "What private prices would have cost here",
        "notice": evidence.notice,
        "private": evidence.kind == "private",
        "contents": contents_rows(evidence),
        "files": evidence.found.files,
        "notes": evidence.found.notes,
        "limits": evidence.limits,
        "recommended": recommended_words(evidence),
        "reasons": evidence.recommended.reason,
        "errors": error_rows(evidence),
        "others": other_rows(evidence),
        "error_chart": chart(lambda axes: _draw_errors(axes, evidence), 0.8 + 0.2 * rows),
        "weeks": [
            (_week_title(week), chart(_week_drawing(week, evidence.terms.currency), 2.6))
            for week in evidence.weeks
        ],
        "weeks_of": [f"{WORDS[w.window]}, ε = {w.epsilon:g}" for w in evidence.weeks][:1],
        "bills": bill_rows(evidence),
        "bill_chart": chart(lambda axes: _draw_bills(axes, evidence), 0.8 + 0.2 * rows),
        "peaks": peak_rows(evidence),
        "absence": attack_rows(absence, absence=True),
        "absence_chart": _attack_chart(absence),
        "occupancy": attack_rows(occupancy, absence=False),
        "at_risk": max((figure.homes for figure in (*absence, *occupancy)), default=0),
        "cuts": cut_rows(evidence.cuts),
        "assumptions": evidence.assumptions,
    }


def recommended_words(evidence: ReplayEvidence) -> str:
    """The recommended terms in words.

    Args:
        evidence: The figures.

    Returns:
        A sentence.
    """
    terms = evidence.recommended
    if terms.window is None:
        return "No promise: publish a price that uses no reading."
    ahead = ", in real time or as a list of the evening before" if terms.ahead else ""
    return (
        f'secret = "window", window = "{terms.window}", epsilon = {terms.epsilon:g}'
        f" ({WORDS[terms.window]}{ahead})."
    )


def contents_rows(evidence: ReplayEvidence) -> Rows:
    """What was read, and what was played.

    Args:
        evidence: The figures.

    Returns:
        Pairs.
    """
    contents, terms = evidence.found, evidence.terms
    minutes = contents.interval / 60
    return [
        ("Homes", f"{contents.homes:,}"),
        ("Interval", f"{minutes:g} minutes"),
        ("Period", f"{contents.first} to {contents.last}, days by the clocks of"
         f" {contents.time_zone}"),
        ("Days", f"{contents.days} whole days; errors are over the last {contents.judged_days}"),
        ("Missing", f"{_share(contents.missing)} of the readings"),
        ("Mean use of a home", f"{contents.mean_kwh:,.0f} kWh a year"),
        ("Contract bound", f"{terms.bound:,} Wh an interval ({terms.bound_from})"),
        ("Published use of a home", f"{terms.usual:,.0f} kWh a year ({terms.usual_from})"),
        ("Tariff", f"{terms.tariff} ({terms.tariff_from})"),
        ("Draws of noise", f"{terms.draws}; seed {terms.seed}"),
    ]  # fmt: skip


# ---- tables


def error_rows(evidence: ReplayEvidence) -> Rows:
    """Error of every promise, in real time and a day ahead.

    Args:
        evidence: The figures.

    Returns:
        Rows of cells, the head first.
    """
    rows: Rows = [
        ("Promise", "ε", "Price in real time is off by", "List of the evening before is off by")
    ]
    lists = {(f.window, f.epsilon): f for f in evidence.promises if f.ahead}
    for figure in evidence.promises:
        if figure.ahead:
            continue
        listed = lists[figure.window, figure.epsilon]
        cells = (
            (figure.refusal, "–")
            if figure.refusal
            else (_interval(figure.error), _interval(listed.error))
        )
        rows.append((WORDS[figure.window], f"{figure.epsilon:g}", *cells))
    return rows


def other_rows(evidence: ReplayEvidence) -> Rows:
    """Error of the prices that promises are compared with.

    Args:
        evidence: The figures.

    Returns:
        Rows of cells, the head first.
    """
    rows: Rows = [
        ("Other price", "Gives away", "In real time is off by", "The evening before is off by")
    ]
    lists = {other.name: other for other in evidence.others if other.ahead}
    for other in evidence.others:
        if not other.ahead:
            listed = lists.get(other.name)
            rows.append(
                (
                    other.label,
                    _GIVES[other.gives_away],
                    _interval(other.error),
                    _interval(listed.error) if listed else "–",
                )
            )
    return rows


def bill_rows(evidence: ReplayEvidence) -> Rows:
    """Changes of bills, in real time.

    Args:
        evidence: The figures.

    Returns:
        Rows of cells, the head first.
    """
    rows: Rows = [
        ("Price", "Median home", "Middle 90 % of homes", "Largest change",
         "All bills together")
    ]  # fmt: skip
    for name, figure in _priced(evidence):
        if (bills := figure.bills) is not None:
            rows.append(
                (
                    name,
                    _signed(bills.median),
                    f"{_signed(bills.q05)} to {_signed(bills.q95)}",
                    _share(bills.largest),
                    _signed(bills.revenue_change),
                )
            )
    return rows


def peak_rows(evidence: ReplayEvidence) -> Rows:
    """Errors where it matters most, and what they cost.

    Args:
        evidence: The figures.

    Returns:
        Rows of cells, the head first.
    """
    money = f" [{evidence.terms.currency}]" if evidence.terms.currency else ""
    rows: Rows = [
        ("Price", "Dearest tenth of intervals is off by", "Of these it has among its dearest",
         f"Cost of wrong prices a day{money}")
    ]  # fmt: skip
    for name, figure in _priced(evidence):
        if figure.peak_error is not None and figure.peak_hits is not None:
            waste = figure.waste
            cost = "–" if waste is None else _amount(waste.mean)
            rows.append((name, _share(figure.peak_error), f"{100 * figure.peak_hits:.0f} %", cost))
    return rows


def attack_rows(figures: Sequence[AttackFigures], *, absence: bool) -> Rows:
    """What an attacker finds.

    Args:
        figures: Of one secret, exact prices first.
        absence: Whether it is the absence.

    Returns:
        Rows of cells, the head first; the head alone where nothing was attacked.
    """
    found = ("Found of 100, one false alarm in 100",) if absence else ()
    rows: Rows = [
        ("Published", "Told apart (AUC), mean home", "The home that shows most", *found,
         "At most, by the promise")
    ]  # fmt: skip
    for figure in figures:
        cells = (f"{100 * figure.detected:.0f}",) if absence else ()
        bound = "–" if figure.bound is None else f"{figure.bound:.3f}"
        name = "exact prices" if figure.prices == "exact" else figure.prices
        rows.append((name, f"{figure.auc:.3f}", f"{figure.auc_most:.3f}", *cells, bound))
    return rows


def cut_rows(cuts: Sequence[CutFigures]) -> Rows:
    """Readings that are cut, at ε = 1: a row for each class of homes, a column for each promise.

    Args:
        cuts: The figures.

    Returns:
        Rows of cells, the head first.
    """
    shown = [cut for cut in cuts if cut.epsilon == _FEW_ROWS]
    windows = list(dict.fromkeys(cut.window for cut in shown))
    clamps = {cut.window: max(c.clamp for c in shown if c.window == cut.window) for cut in shown}
    heads = [f"{WORDS[window]}, cut at {clamps[window]:,} Wh" for window in windows]
    rows: Rows = [("Homes by use", "Homes", *heads)]
    for use, homes in dict.fromkeys((cut.use, cut.homes) for cut in shown):
        cells = [
            f"{_share(cut.readings)} of readings, {_share(cut.energy)} of energy;"
            f" {cut.cut_homes} homes"
            for cut in shown
            if cut.use == use
        ]
        rows.append((use, str(homes), *cells))
    return rows


def _priced(evidence: ReplayEvidence) -> list[tuple[str, PriceFigures]]:
    """Prices in real time by name: promises, then others but the exact one."""
    promises: list[tuple[str, PriceFigures]] = [
        (_promise(figure), figure) for figure in evidence.promises if not figure.ahead
    ]
    others = [o for o in evidence.others if not o.ahead and o.name != "exact"]
    return [*promises, *((other.label, other) for other in others)]


def _promise(figure: PromiseFigures) -> str:
    return f"{WORDS[figure.window]}, ε = {figure.epsilon:g}"


def _interval(error: Estimate | None) -> str:
    if error is None:
        return "–"
    low, high = (100 * end for end in error.ci95)
    return f"{_share(error.mean)} ({max(low, 0.0):.1f} to {high:.1f})"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %".replace("-", "−")


def _amount(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# ---- charts


def _draw_errors(axes: Axes, evidence: ReplayEvidence) -> None:
    """A row a price: private ones blue, those that give past days away orange, others grey."""
    rows = [
        (_promise(figure), figure.error, _SHADES.get(figure.epsilon, BLUE))
        for figure in evidence.promises
        if not figure.ahead
    ]
    rows += [
        (other.label, other.error, _GREY if other.gives_away == "nothing" else ORANGE)
        for other in evidence.others
        if not other.ahead and other.name != "exact"
    ]
    for place, (_, error, color) in enumerate(rows):
        if error is not None:
            ends = [100 * end for end in error.ci95]
            axes.plot(ends, [-place, -place], color=color, linewidth=1.2)
            axes.plot(100 * error.mean, -place, "o", color=color, markersize=5)
    axes.set_yticks(range(0, -len(rows), -1), [name for name, *_ in rows], fontsize=7)
    axes.set_xlim(left=0)
    _label(axes, "price is off by, % (root mean square of a day)")


def _label(axes: Axes, text: str) -> None:
    axes.set_xlabel(text, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)


def _draw_bills(axes: Axes, evidence: ReplayEvidence) -> None:
    names = []
    for place, (name, figure) in enumerate(_priced(evidence)):
        names.append(name)
        if figure.bills is None:
            continue
        promise = isinstance(figure, PromiseFigures)
        other = isinstance(figure, OtherPrice) and figure.gives_away != "nothing"
        color = BLUE if promise else ORANGE if other else _GREY
        ends = [100 * figure.bills.q05, 100 * figure.bills.q95]
        axes.plot(ends, [-place, -place], color=color, linewidth=3, solid_capstyle="round")
        axes.plot(100 * figure.bills.median, -place, "|", color="#18212d", markersize=8)
    axes.axvline(0, color=_GREY, linewidth=0.8)
    axes.set_yticks(range(0, -len(names), -1), names, fontsize=7)
    _label(axes, "change of the bill, % (bar: middle 90 % of homes; line: median)")


def _week_title(week: WeekOfPrices) -> str:
    kind = "A usual week" if week.label == "usual" else "The worst week"
    return f"{kind}, from {week.first} on"


def _week_drawing(week: WeekOfPrices, currency: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        steps = len(week.exact)
        days = np.arange(steps) * 7 / steps
        axes.step(days, week.exact, where="post", color=ORANGE, linewidth=1.2,
                  label="exact (secret)")  # fmt: skip
        axes.step(days, week.private, where="post", color=BLUE, linewidth=1.2,
                  label="private, as published")  # fmt: skip
        listed = [np.nan if rate is None else rate for rate in week.ahead]
        axes.step(days, listed, where="post", color=BLUE, linewidth=0.8, linestyle=":",
                  label="private, listed the evening before")  # fmt: skip
        axes.set_xlim(0, 7)
        axes.set_xticks(range(8), [f"day {n + 1}" if n < 7 else "" for n in range(8)])
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"price [{currency or 'currency'}/kWh]", fontsize=8)
        axes.tick_params(labelsize=8)

    return draw


def _attack_chart(figures: Sequence[AttackFigures]) -> str | None:
    shown = [f for f in figures if f.epsilon in (None, _FEW_ROWS)]
    if not shown:
        return None

    def draw(axes: Axes) -> None:
        shares = [100 * figure.detected for figure in shown]
        colors = [ORANGE if figure.epsilon is None else BLUE for figure in shown]
        places = range(0, -len(shown), -1)
        bars = axes.barh(places, shares, color=colors, height=0.6)
        axes.bar_label(
            bars, [f"{share:.0f}" for share in shares], padding=4, color=_GREY, fontsize=8
        )
        names = ["exact prices" if f.epsilon is None else f.prices for f in shown]
        axes.set_yticks(places, names, fontsize=8)
        axes.set_xlim(0, 112)
        _label(axes, "found of 100 absences of two weeks, where 1 of 100 alarms is false")
        axes.set_axisbelow(True)

    return chart(draw, 0.9 + 0.35 * len(shown))


# ---- terminal


def replay_prose(evidence: ReplayEvidence) -> str:
    """The figures for a terminal.

    Args:
        evidence: The figures.

    Returns:
        Lines of text.
    """
    from hushgrid.report._figures import table

    contents = "\n".join(f"{name}: {text}" for name, text in contents_rows(evidence))
    notes = "\n".join(f"- {note}" for note in evidence.found.notes)
    limits = "\n".join(f"- {limit}" for limit in evidence.limits)
    parts = [
        evidence.notice,
        contents + (f"\n\nTaken:\n{notes}" if notes else ""),
        f"What cannot be concluded:\n{limits}" if limits else "",
        table(error_rows(evidence)),
        table(other_rows(evidence)),
        "Recommended: " + recommended_words(evidence) + "\n"
        + "\n".join(f"- {reason}" for reason in evidence.recommended.reason),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"
