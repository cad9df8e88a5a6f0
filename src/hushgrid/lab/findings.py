"""From what was played to its evidence: errors, bills, peaks, attacks, cuts and recommended terms.

Pure: the readings of all homes go in, and no row of a home and no id comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats
from hushgrid.adversary.attack import Absence, NoiseBlocks, absences
from hushgrid.errors import PlanError
from hushgrid.lab.attack import recorded_absences
from hushgrid.lab.bench import EXACT, FIGURES, FLAT, ROLLING_MEAN, TIME_OF_USE, YESTERDAY, errors
from hushgrid.lab.conclusions import assumptions, limits
from hushgrid.lab.datasets import Recorded
from hushgrid.lab.evidence import (
    AttackFigures,
    Bills,
    Contents,
    CutFigures,
    Estimate,
    Kind,
    OtherPrice,
    PlayedTerms,
    PriceFigures,
    PromiseFigures,
    Recommended,
    ReplayEvidence,
    WeekOfPrices,
)
from hushgrid.lab.replay import (
    DAYS,
    LAST_WEEK,
    PUBLIC_SHAPE,
    UNREAD,
    WORDS,
    Played,
    PublishedLoads,
    calendar_days,
)
from hushgrid.model.zone import Tariff, optimal_rate, public_rate, relative_to
from hushgrid.statistics import summarise

LABELS = {
    EXACT: "exact price",
    UNREAD: "published load shape, as the filter starts",
    PUBLIC_SHAPE: "published load shape, with its seasons",
    FLAT: "flat price",
    TIME_OF_USE: "time of use, four bands",
    LAST_WEEK: "last week's price, exact loads",
    YESTERDAY: "yesterday's price, exact loads",
    ROLLING_MEAN: "mean of the last five days of the same kind, exact loads",
}
NO_READING = (UNREAD, PUBLIC_SHAPE, FLAT, TIME_OF_USE)
MOST_ERROR = 0.10  # of the price, of terms that are recommended
GAIN = 0.9  # error of terms that pay, over that of the best price without readings, at most
AT_RISK = 10  # homes that are attacked
ABSENCE = 14  # [days]
_DEAREST = 0.1  # share of intervals
_DAY, _WEEK = 86_400, 7  # [s], days
_CLASSES = ("lowest", "second", "third", "fourth", "highest")
_FEW = 5  # homes of a class at least
_EVENING = (18, 22)  # [h]
_STANDBY = 0.05


class JudgedDays(NamedTuple):
    """The days that prices are judged on.

    Attributes:
        source: The days.
        loads: (days, T): true loads [Wh].
        exact: (days, T): exact prices [currency/kWh].
        kwh: (days * T, homes): energy of each home.
        dearest: (days, T): the dearest tenth of all intervals, by exact prices.
    """

    source: Recorded
    loads: Floats
    exact: Floats
    kwh: Floats
    dearest: Bools

    @classmethod
    def of(cls, source: Recorded) -> JudgedDays:
        """The days of a source."""
        days = [source.day(number).readings for number in range(len(source.date))]
        readings = np.array(days, np.float64)
        loads = readings.sum(axis=2)
        exact = optimal_rate(loads, source.scenarios[0].tariff)
        kwh = readings.reshape(-1, readings.shape[2]) / 1000
        least = np.quantile(exact, 1 - _DEAREST)
        return cls(source, loads, exact, kwh, np.asarray(exact >= least))

    @property
    def tariff(self) -> Tariff:
        """The tariff."""
        return self.source.scenarios[0].tariff

    @property
    def seconds(self) -> int:
        """Length of a step [s]."""
        return _DAY // self.source.horizon


def rates_of(loads: Floats, tariff: Tariff) -> Floats:
    """Prices of published loads, cut to the limits of the tariff.

    Args:
        loads: Loads [Wh], any shape; NaN gives NaN.
        tariff: The tariff.

    Returns:
        Prices in the same shape [currency/kWh].
    """
    flat = [math.nan if math.isnan(z) else public_rate(z, tariff) for z in loads.ravel().tolist()]
    return np.array(flat).reshape(loads.shape)


# ---- prices


def price_figures(
    judged: JudgedDays, draws: Sequence[PublishedLoads], *, ahead: bool
) -> PriceFigures:
    """Errors, bills and peaks of one kind of price.

    Args:
        judged: The days.
        draws: What was published, for each draw of noise.
        ahead: Whether the lists of the evening before are judged.

    Returns:
        The figures; errors are means over draws, then over days.
    """
    rows, change, revenue, peaks, hits = [], list[Floats](), list[float](), list[float](), []
    for published in draws:
        loads = _shifted(judged, published) if ahead else published.estimated
        days = np.flatnonzero(np.isfinite(loads).all(axis=1))
        if len(days) < 2:
            return PriceFigures()
        rows.append([_errors(loads[d], judged, int(d)) for d in days.tolist()])
        rates, best = rates_of(loads[days], judged.tariff), judged.exact[days]
        used = judged.kwh.reshape(*judged.exact.shape, -1)[days].reshape(rates.size, -1)
        costs, exact = rates.ravel() @ used, best.ravel() @ used
        counted = exact > 0
        change.append(costs[counted] / exact[counted] - 1)
        revenue.append(float(costs.sum() / exact.sum() - 1))
        off = np.abs(rates - best) / relative_to(best, judged.tariff)
        peaks.append(float(off[judged.dearest[days]].mean()))
        hits.append(_hits(rates, judged.dearest[days]))
    by_day = np.array(rows).sum(axis=0) / len(rows)
    bills = np.concatenate(change)
    low, middle, high = (float(q) for q in np.quantile(bills, (0.05, 0.5, 0.95)))
    return PriceFigures(
        error=_estimate(by_day[:, FIGURES.index("rmsre")]),
        bills=Bills(low, middle, high, float(np.abs(bills).max()), float(np.mean(revenue))),
        waste=_estimate(by_day[:, FIGURES.index("mismatch_cost")]),
        peak_error=float(np.mean(peaks)),
        peak_hits=float(np.mean(hits)),
    )


def _shifted(judged: JudgedDays, published: PublishedLoads) -> Floats:
    """(days, T): loads of lists, on the days that they are for; NaN where there is none."""
    out = np.full_like(judged.loads, np.nan)
    for number in range(len(out) - 1):
        if judged.source.following(number) is not None:
            out[number + 1] = published.ahead[number]
    return out


def _errors(loads: Floats, judged: JudgedDays, number: int) -> list[float]:
    return errors(loads, judged.source.day(number).load, judged.tariff)


def _estimate(values: Floats) -> Estimate:
    summary = summarise(values)
    return Estimate(summary.mean, summary.ci95)


def _hits(rates: Floats, dearest: Bools) -> float:
    """Share of the dearest intervals that are among as many dearest of the published prices."""
    count = int(dearest.sum())
    if not count:
        return 0.0
    chosen = np.argsort(-rates.ravel(), kind="stable")[:count]
    return float(dearest.ravel()[chosen].mean())


def promise_figures(judged: JudgedDays, played: Played) -> tuple[PromiseFigures, PromiseFigures]:
    """The figures of one promise, in real time and a day ahead.

    Args:
        judged: The days.
        played: What was published.

    Returns:
        Both figures.
    """
    block = max(played.lengths, default=1) * judged.seconds if played.draws else 0

    def of(ahead: bool) -> PromiseFigures:
        price = price_figures(judged, played.draws, ahead=ahead) if played.draws else PriceFigures()
        return PromiseFigures(
            secret=played.promise.secret, window=played.promise.window,
            epsilon=played.promise.epsilon, ahead=ahead, clamp=int(max(played.cut_at, default=0)),
            block=block, scale=float(max(played.scale, default=0.0)), refusal=played.refusal,
            **{name: getattr(price, name) for name in PriceFigures.__slots__},
        )  # fmt: skip

    return of(False), of(True)


def other_prices(
    judged: JudgedDays, published: Mapping[str, PublishedLoads]
) -> tuple[OtherPrice, ...]:
    """The figures of prices without noise.

    Args:
        judged: The days.
        published: By name, as `play_others` has them.

    Returns:
        Figures in real time, then a day ahead.
    """
    out = []
    for ahead in (False, True):
        for name, label in LABELS.items():
            if ahead and name == YESTERDAY:  # at 18:00 it is the day before yesterday
                continue
            gives: Literal["everything", "past days", "nothing"] = "past days"
            if name in NO_READING:
                gives = "nothing"
            elif name == EXACT and not ahead:
                gives = "everything"
            price = price_figures(judged, [published[name]], ahead=ahead)
            words = "list of a filter of exact loads" if ahead and name == EXACT else label
            out.append(
                OtherPrice(
                    name=name, label=words, gives_away=gives, ahead=ahead,
                    **{key: getattr(price, key) for key in PriceFigures.__slots__},
                )
            )  # fmt: skip
    return tuple(out)


# ---- attacks


def attacks(
    judged: JudgedDays,
    played: Sequence[Played],
    wh: Floats,
    *,
    draws: int = 2000,
    seed: int = 1,
    tick: Callable[[], Any] = lambda: None,
) -> dict[str, tuple[AttackFigures, ...]]:
    """The attacks on the homes most at risk, at exact prices and under each promise.

    The attacker knows every other home's readings, and the two stories of the home: that it was
    used as recorded, and that it was on standby. No test tells them apart better.

    Args:
        judged: The days.
        played: What was published under each promise.
        wh: (homes, steps): readings [Wh], NaN where missing.
        draws: Presences and absences of each home.
        seed: Random seed.
        tick: Called after each promise.

    Returns:
        `absence`, two weeks away, and `occupancy`, one interval of an evening.
    """
    steps = ABSENCE * judged.source.horizon
    noises: list[tuple[Played | None, NoiseBlocks]] = [(None, NoiseBlocks((1,), (0.0,)))]
    noises += [(kept, kept.blocks) for kept in played if kept.draws]
    out: dict[str, list[AttackFigures]] = {"absence": [], "occupancy": []}
    for year, noise in noises:
        reach = float(judged.source.scenarios[0].zone.bound.max())
        reach = reach if year is None else float(year.cut_at.max())
        evenings = _evenings(judged, reach)
        stories = {"occupancy": evenings[-AT_RISK:, None]}
        try:
            differences, _ = recorded_absences(wh, steps, reach, judged.seconds)
            stories = {"absence": differences[-AT_RISK:], **stories}
        except PlanError:  # the period is shorter than an absence
            pass
        for secret, less in stories.items():
            results = absences(noise, less, draws=draws, seed=seed)
            out[secret].append(_attack_figures(secret, year, results))
        tick()
    return {secret: tuple(figures) for secret, figures in out.items()}


def _attack_figures(secret: Any, year: Played | None, results: Sequence[Absence]) -> AttackFigures:
    promise = None if year is None else year.promise
    bound = None
    if promise is not None:
        days = 0 if promise.window is None else DAYS[promise.window]
        if secret == "occupancy" or days >= ABSENCE:
            bound = 1 / (1 + math.exp(-promise.epsilon))
    aucs = [result.auc for result in results]
    return AttackFigures(
        secret,
        "exact" if promise is None else promise.words,
        None if promise is None else promise.window,
        None if promise is None else promise.epsilon,
        len(results),
        float(np.mean(aucs)),
        max(aucs),
        float(np.mean([result.detected() for result in results])),
        bound,
    )


def _evenings(judged: JudgedDays, reach: float) -> Floats:
    """(homes,): usual use of an interval of an evening above standby, ascending [Wh]."""
    horizon = judged.source.horizon
    wh = 1000 * judged.kwh.reshape(-1, horizon, judged.kwh.shape[1])
    first, last = (hour * horizon // 24 for hour in _EVENING)
    evening = np.median(wh[:, first : max(last, first + 1)].reshape(-1, wh.shape[2]), axis=0)
    standby = np.quantile(wh.reshape(-1, wh.shape[2]), _STANDBY, axis=0)
    less = np.minimum(evening, reach) - np.minimum(standby, reach)
    return np.asarray(np.rint(np.sort(np.maximum(less, 0.0))))


# ---- cuts


def cut_figures(judged: JudgedDays, played: Played) -> tuple[CutFigures, ...]:
    """Readings above the clamp, in classes of homes by their use.

    Args:
        judged: The days.
        played: What was published.

    Returns:
        A row for each class, lowest use first; with few homes there is one class, or three.
    """
    if not played.draws:
        return ()
    use, homes = judged.kwh.mean(axis=0), judged.kwh.shape[1]
    count = 5 if homes >= 5 * _FEW else 3 if homes >= 3 * _FEW else 1
    names = {1: ("all homes",), 3: ("lowest third", "middle third", "highest third")}.get(
        count, tuple(f"{name} fifth" for name in _CLASSES)
    )
    place = np.empty(homes, np.int64)
    place[np.argsort(use, kind="stable")] = np.arange(homes) * count // homes
    at = played.cut_at / 1000
    above = np.maximum(judged.kwh - at, 0.0)
    rows = []
    for k, name in enumerate(names):
        part, total = above[:, place == k], float(judged.kwh[:, place == k].sum())
        rows.append(
            CutFigures(
                played.promise.secret, played.promise.window, played.promise.epsilon, name,
                int((place == k).sum()), int(played.cut_at[place == k].max()),
                int((part > 0).any(axis=0).sum()), float((part > 0).mean()),
                float(part.sum() / total) if total else 0.0,
            )
        )  # fmt: skip
    return tuple(rows)


# ---- weeks


def weeks(judged: JudgedDays, played: Played) -> tuple[WeekOfPrices, ...]:
    """A usual and the worst week of prices, exact and private, of the first draw.

    Args:
        judged: The days.
        played: What was published under a promise about a window.

    Returns:
        Both weeks, of seven days that follow each other from a Monday on, or from any day where no
        week begins so; none without such days.
    """
    date, published = judged.source.date, played.draws[0]
    starts = [n for n in range(len(date) - 6) if date[n + 6] == date[n] + 6]
    starts = [n for n in starts if date[n] % _WEEK == 0] or starts
    if not starts:
        return ()
    rates, lists = (
        rates_of(loads, judged.tariff)
        for loads in (published.estimated, _shifted(judged, published))
    )
    off = ((rates - judged.exact) / relative_to(judged.exact, judged.tariff)) ** 2
    size = np.array([off[n : n + _WEEK].mean() for n in starts])
    order = np.argsort(size, kind="stable")
    chosen: tuple[tuple[Literal["usual", "worst"], int], ...] = (
        ("usual", starts[int(order[len(order) // 2])]),
        ("worst", starts[int(order[-1])]),
    )
    return tuple(
        WeekOfPrices(
            label,
            str(calendar_days(date[n : n + 1])[0]),
            _listed(judged.exact[n : n + _WEEK]),
            _listed(rates[n : n + _WEEK]),
            tuple(None if math.isnan(rate) else rate for rate in _listed(lists[n : n + _WEEK])),
            played.promise.window or "",
            played.promise.epsilon,
        )
        for label, n in chosen
    )


def _listed(values: Floats) -> tuple[float, ...]:
    return tuple(values.ravel().tolist())


# ---- terms


def recommended(
    figures: Sequence[PromiseFigures], others: Sequence[OtherPrice], homes: int
) -> Recommended:
    """The longest window, then the smallest epsilon up to 1, that pays and whose error is small.

    Terms pay where their error is at most nine tenths of that of the best price without readings.

    Args:
        figures: Of all promises.
        others: Of all other prices.
        homes: How many homes there are.

    Returns:
        The terms, with the reason.
    """
    plain = [
        other
        for other in others
        if other.name in NO_READING and not other.ahead and other.error is not None
    ]
    if not plain:
        return Recommended(None, None, None, False, ("Too few days are judged to compare prices.",))
    best = min(plain, key=lambda other: _mean(other))
    least = f"The best price without readings ({best.label}) is off by {_share(_mean(best))}."
    windows = [
        figure
        for figure in figures
        if figure.window is not None
        and not figure.ahead
        and figure.error is not None
        and figure.epsilon <= 1
    ]
    paying = [figure for figure in windows if _mean(figure) <= GAIN * _mean(best)]
    small = [figure for figure in paying if _mean(figure) <= MOST_ERROR]
    if not paying:
        tried = min(windows, key=_mean, default=None)
        reach = "" if tried is None else (
            f" The closest private price, about {_words(tried)}, is off by {_share(_mean(tried))}."
        )  # fmt: skip
        return Recommended(
            None, None, None, False,
            (
                f"{least}{reach}",
                f"For {homes} homes no promise about a window at ε = 1 or less makes a price from"
                f" meters {100 * (1 - GAIN):.0f} % better than that, which is asked here for their"
                " use: publish the price without readings, or make one zone of several.",
                *_of_intervals(figures),
            ),
        )  # fmt: skip
    if small:
        chosen = min(small, key=lambda figure: (-DAYS[figure.window or "P1D"], figure.epsilon))
        rule = (
            f"Of the promises whose price is off by at most {100 * MOST_ERROR:.0f} % it has the"
            " longest window, and of those the smallest ε."
        )
    else:
        chosen = min(paying, key=_mean)
        rule = f"No promise has an error of {100 * MOST_ERROR:.0f} % or less; it has the smallest."
    listed = [
        figure
        for figure in figures
        if figure.ahead
        and (figure.window, figure.epsilon) == (chosen.window, chosen.epsilon)
        and figure.error is not None
    ]
    ahead = bool(listed) and _mean(listed[0]) <= 1.1 * _mean(chosen)
    reasons = [
        f"Under a promise about {_words(chosen)} the price is off by {_share(_mean(chosen))}.",
        least,
        rule,
    ]
    if listed:
        reasons.append(
            f"The list of the evening before is off by {_share(_mean(listed[0]))}"
            + (", hardly more." if ahead else ", clearly more.")
        )
    return Recommended("window", chosen.window, chosen.epsilon, ahead, tuple(reasons))


def _mean(figures: PriceFigures) -> float:
    return math.inf if figures.error is None else figures.error.mean


def _of_intervals(figures: Sequence[PromiseFigures]) -> Iterator[str]:
    """What the weakest promise would cost, where no window pays."""
    for figure in figures:
        if figure.window is None and figure.epsilon == 1 and not figure.ahead and figure.error:
            yield (
                f"A promise about {_words(figure)} is off by {_share(_mean(figure))}; it needs a"
                " public model of the homes, and does not hide an absence that lasts (part e)."
            )


def _words(figure: PromiseFigures) -> str:
    return f"{WORDS[figure.window]} at ε = {figure.epsilon:g}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


# ---- all of it


def evidence_from(
    kind: Kind,
    contents: Contents,
    terms: PlayedTerms,
    judged: JudgedDays,
    played: Sequence[Played],
    others: Mapping[str, PublishedLoads],
    wh: Floats,
    *,
    tick: Callable[[], Any] = lambda: None,
) -> ReplayEvidence:
    """All figures of a replay.

    Args:
        kind: Whether the homes are those of files, or synthetic ones.
        contents: What the files hold.
        terms: What was played.
        judged: The days.
        played: What was published under each promise.
        others: What other prices are of, as `play_others` has them.
        wh: (homes, steps): readings [Wh], NaN where missing.
        tick: Called after each promise.

    Returns:
        The figures.
    """
    pairs = []
    for year in played:
        pairs.append(promise_figures(judged, year))
        tick()
    figures = (*(now for now, _ in pairs), *(ahead for _, ahead in pairs))
    prices = other_prices(judged, others)
    chosen = recommended(figures, prices, contents.homes)
    wanted = (chosen.window or "P1D", chosen.epsilon or 1.0)
    shown = [
        year
        for year in played
        if year.draws and (year.promise.window, year.promise.epsilon) == wanted
    ]
    return ReplayEvidence(
        kind=kind,
        found=contents,
        terms=terms,
        promises=figures,
        others=prices,
        weeks=weeks(judged, shown[0]) if shown else (),
        attacks=attacks(judged, played, wh, seed=terms.seed, tick=tick),
        cuts=tuple(row for year in played for row in cut_figures(judged, year)),
        recommended=chosen,
        assumptions=assumptions(terms, contents),
        limits=limits(contents, terms),
    )
