"""Every method at the same promise, on the same days, with the same noise quantiles.

A row is one day of one promise: for each method (docs/proofs/baselines.md) the error of its raw and
of its estimated price and, where requested, the AUC of an adversary on its releases. On recorded
days, which follow each other, the error of the estimate that learns from all releases so far is
there as well. Rows are plain numbers, so that a run can resume where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hushgrid._numbers import Floats, Ints, UInt8s, is_real
from hushgrid.belief.load_filter import FilteredLoads, LoadFilter, SeenLoads
from hushgrid.compare.attack import Watcher
from hushgrid.compare.battery import POWER, RULES, Battery, hide
from hushgrid.compare.datasets import DaySource, ReadingDay, Recorded
from hushgrid.compare.methods import (
    BOUND,
    DPHMM,
    FORECAST,
    GROUP,
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    WEVENT,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
    Outcome,
    Ready,
    hushgrid,
)
from hushgrid.compare.pufferfish import QUILT, WASSERSTEIN
from hushgrid.compare.transforms import FOURIER, WAVELET
from hushgrid.errors import PlanError, PolicyError
from hushgrid.model.scenario import Scenario
from hushgrid.model.zone import Tariff, optimal_rate, public_rate
from hushgrid.statistics import Summary, ratio_of_means, summarise

METHODS: tuple[Method, ...] = (
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    BOUND,
    WASSERSTEIN,
    QUILT,
    GROUP,
    WEVENT,
    DPHMM,
    FOURIER,
    WAVELET,
    FORECAST,
)


def methods_with(eta: float) -> tuple[Method, ...]:
    """All methods, with another middle trust of hushgrid than 0.05.

    Args:
        eta: The middle trust, between 0 and 1.

    Returns:
        The methods.

    Raises:
        PolicyError: If eta is not between 0 and 1.

    >>> methods_with(0.2)[1].name
    'hushgrid_eta2'
    """
    if not (is_real(eta) and 0 < eta < 1):
        raise PolicyError(f"eta is {eta}; 0 and 1 are always there: give a share between them.")
    name = "hushgrid_eta" + f"{eta:.6f}".split(".")[1].rstrip("0")
    return tuple(hushgrid(name, eta) if m is HUSHGRID_ETA05 else m for m in METHODS)


Row = dict[str, dict[str, list[float]]]  # method -> each of PARTS: FIGURES; auc

# the public's best estimate; the noisy rate as it is; the noisy rate cut to the tariff's limits
PARTS = ("estimated", "raw", "cut")
FIGURES = ("rmsre_paper", "rmsre", "mismatch_cost")
AUCS = ("auc", "auc_others")  # the adversary knows prices alone; all other readings as well
FOLLOWED = "followed"  # the estimate that learns from all releases so far, on recorded days
HELD = "coverage95"  # the share of steps whose load its 95 % interval holds
SLOT_MEAN = "slot_mean"  # mean loads of the days before, by time of day: no reading is used
OPEN = "open"  # no noise at all
BATTERY_SIZE, BATTERY_POWER = 2.0, POWER  # of a house's bound: capacity, and in or out a step
_NOISE, _COINS = 3, 4  # what a random stream is for
_MOST_MISSING = 60  # days in a row, after which a filter knows no more than at its start


class KnownRows(Protocol):
    """Store of rows by promise and day."""

    def get(self, epsilon: float, day: int) -> Row | None:
        """A row, or None."""
        ...

    def put(self, epsilon: float, day: int, row: Row) -> None:
        """Keep a row."""
        ...


class Bench:
    """Methods prepared for the zones of a source, once for each promise.

    Args:
        source: The days.
        promise: What every method has to keep.
        seed: Seed of the noise and of the batteries.
        methods: The methods.
    """

    def __init__(
        self,
        source: DaySource,
        promise: MethodPromise,
        seed: int,
        methods: Sequence[Method] = METHODS,
    ) -> None:
        self.source, self.promise, self.methods = source, promise, tuple(methods)
        self._seed = seed
        self._ready: dict[int, dict[str, Ready | MethodRefusal]] = {}
        self._forecast: dict[int, Floats] = {}
        self._filters: dict[str, tuple[int, LoadFilter]] = {}  # the next day, and what is known

    def ready(self, zone: int = 0) -> Mapping[str, Ready | MethodRefusal]:
        """Each method prepared for a zone, or its refusal."""
        if zone not in self._ready:
            setting = MethodSetting.of(
                self.source.scenarios[zone], self.promise, self.source.horizon
            )
            self._ready[zone] = {m.name: _prepare(m, setting) for m in self.methods}
        return self._ready[zone]

    def kept(self, rows: Sequence[Row]) -> dict[str, Ready | MethodRefusal]:
        """The same for all days: a method that any day lacks is left out."""
        out = dict(self.ready(self.source.zone_of(0)))
        for number, row in enumerate(rows):
            lacking = [n for n, one in out.items() if isinstance(one, Ready) and n not in row]
            for name in lacking:
                out[name] = self.ready(self.source.zone_of(number))[name]
        return out

    def row(self, number: int, attack: bool = False) -> Row:
        """One day of every method that keeps the promise, and of the batteries."""
        zone = self.source.zone_of(number)
        scenario, day = self.source.scenarios[zone], self.source.day(number)
        watchers = _watchers(scenario, day) if attack else {}
        out: Row = {}
        for name, method in self.ready(zone).items():
            if isinstance(method, MethodRefusal):
                continue
            made = self._published(method, number, day)
            out[name] = _day_errors(made, day, scenario.tariff)
            if made.independent and isinstance(self.source, Recorded):
                found = self._followed(self.source, name, number, made)
                low, high = found.interval()
                held = (low <= day.load) & (day.load <= high)
                out[name][FOLLOWED] = errors(found.estimate, day.load, scenario.tariff)
                out[name][HELD] = [float(held.mean())]
            for key, watcher in watchers.items():
                out[name][key] = [watcher.auc(made, _home(day))]
        out |= self._batteries(scenario, day, number)
        if isinstance(self.source, Recorded) and self.source.usual is not None:
            usual = self.source.usual[int(self.source.weekend[number])]
            out[SLOT_MEAN] = {part: errors(usual, day.load, scenario.tariff) for part in PARTS}
        if watchers:
            bare = day.load.astype(np.float64)
            openly = Outcome(bare, bare, bare, np.zeros(len(bare)))
            out[OPEN] = {key: [w.auc(openly, _home(day))] for key, w in watchers.items()}
        return out

    def _published(self, method: Ready, number: int, day: ReadingDay) -> Outcome:
        return method.publish(day.load, np.random.SeedSequence([self._seed, number, _NOISE]))

    def _followed(self, source: Recorded, name: str, number: int, made: Outcome) -> FilteredLoads:
        """What the releases of a day and of all days before it say about its loads."""
        then, known = self._filters.get(name, (0, LoadFilter.start(24 / source.horizon)))
        if then > number:
            then, known = 0, LoadFilter.start(24 / source.horizon)
        for day in range(then, number):  # that were computed by an earlier run
            method = self.ready(source.zone_of(day))[name]
            if isinstance(method, Ready):
                earlier = self._published(method, day, source.day(day))
                known = self._seen(source, day, earlier, known)[1]
        found, known = self._seen(source, number, made, known)
        self._filters[name] = (number + 1, known)
        return found

    def _seen(
        self, source: Recorded, number: int, made: Outcome, known: LoadFilter
    ) -> tuple[FilteredLoads, LoadFilter]:
        steps, weekend = source.horizon, bool(source.weekend[number])
        usual = source.usual
        base = self._forecasts(source, number) if usual is None else usual[int(weekend)]
        place, whole = np.arange(steps) / steps, np.full(steps, weekend)
        missing = int(source.date[number] - source.date[number - 1]) - 1 if number else 0
        for _ in range(min(max(missing, 0), _MOST_MISSING)):  # days that are not whole
            none = np.full(steps, np.nan)
            known = known.follow(SeenLoads(none, none, base, place, whole))[1]
        assert made.seen is not None
        return known.follow(SeenLoads(made.seen, made.scale, base, place, whole, made.noise))

    def _forecasts(self, source: Recorded, number: int) -> Floats:
        """The model's forecast of a day's loads [Wh], above 0."""
        zone = source.zone_of(number)
        if zone not in self._forecast:
            setting = MethodSetting.of(source.scenarios[zone], self.promise, source.horizon)
            self._forecast[zone] = np.maximum(setting.forecast, 1.0)
        return self._forecast[zone]

    def _batteries(self, scenario: Scenario, day: ReadingDay, number: int) -> Row:
        battery = Battery.sized(scenario.zone.bound, BATTERY_SIZE)
        coins = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([self._seed, number, _COINS]))
        ).random(day.readings.shape)
        out: Row = {}
        for name, rule in RULES.items():
            hidden = hide(day.readings, battery, rule(battery), coins)
            drawn = hidden.draw.sum(axis=1).astype(np.float64)
            out[name] = {
                "raw": errors(drawn, day.load, scenario.tariff, cut=False),
                "cut": errors(drawn, day.load, scenario.tariff),
            }
            out[name]["moved"] = [float(hidden.moved.sum() / max(int(day.load.sum()), 1))]
        return out


def _prepare(method: Method, setting: MethodSetting) -> Ready | MethodRefusal:
    """A promise that the method's own planning finds out of reach is a refusal, too."""
    try:
        return method.prepare(setting)
    except (PlanError, PolicyError) as error:
        return MethodRefusal(str(error).rstrip("."))


def _watchers(scenario: Scenario, day: ReadingDay) -> dict[str, Watcher]:
    """Adversaries by figure: one knows prices alone, one all other readings too."""
    alone = all(piece.size == 1 for model in scenario.models for piece in model.chains)
    if day.home is None or not alone:
        return {}
    return dict(
        zip(AUCS, (Watcher(scenario), Watcher.knowing_others(scenario, day.readings)), strict=True)
    )


def _home(day: ReadingDay) -> UInt8s:
    assert day.home is not None
    return day.home


def _day_errors(made: Outcome, day: ReadingDay, tariff: Tariff) -> dict[str, list[float]]:
    return {
        "estimated": errors(made.estimated, day.load, tariff),
        "raw": errors(made.raw, day.load, tariff, cut=False),
        "cut": errors(made.raw, day.load, tariff),
    }


def errors(published: Floats, load: Ints, tariff: Tariff, *, cut: bool = True) -> list[float]:
    """Errors of the rates of published loads.

    Cutting to the tariff's limits is post-processing, the simplest there is, so a raw rate is
    judged without it: for every method what it released, noise and nothing else.

    Args:
        published: (T,): published loads [Wh].
        load: (T,): true loads [Wh].
        tariff: The rate of a load and its limits.
        cut: Whether rates are cut to the tariff's limits.

    Returns:
        The FIGURES: rmsre_paper, rmsre, mismatch_cost [currency].
    """
    best = optimal_rate(load.astype(np.float64), tariff)
    rates = optimal_rate(published, tariff)
    if cut:
        rates = np.array([public_rate(z, tariff) for z in published.tolist()])
    usual = float(np.sqrt(np.mean(((rates - best) / best) ** 2)))
    wasted = float(np.sum((rates - best) ** 2) / (2 * tariff.alpha))
    return [usual / float(np.sqrt(len(load))), usual, wasted]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Rows of many days at one promise.

    Attributes:
        promise: The promise.
        methods: All methods, those that refused included.
        ready: Each prepared method or its refusal, by name.
        rows: One for each day.
    """

    promise: MethodPromise
    methods: tuple[Method, ...]
    ready: Mapping[str, Ready | MethodRefusal]
    rows: tuple[Row, ...]

    @property
    def days(self) -> int:
        """How many days."""
        return len(self.rows)

    @property
    def names(self) -> list[str]:
        """Methods that keep the promise."""
        return [m.name for m in self.methods if isinstance(self.ready[m.name], Ready)]

    @property
    def refused(self) -> dict[str, str]:
        """Methods that cannot, and why."""
        return {
            name: answer.reason
            for name, answer in self.ready.items()
            if isinstance(answer, MethodRefusal)
        }

    def values(self, name: str, part: str, figure: str = "rmsre_paper") -> Floats:
        """(days,) of one figure of a method's price, in one of PARTS."""
        at = FIGURES.index(figure)
        return np.array([row[name][part][at] for row in self.rows])

    def summary(self, name: str, part: str, figure: str = "rmsre_paper") -> Summary:
        """Mean, s.d. and 95 % interval over the days."""
        return summarise(self.values(name, part, figure))

    def held(self, name: str) -> Summary | None:
        """Share of steps whose load the 95 % interval of the followed estimate holds, if any."""
        if not all(HELD in row.get(name, {}) for row in self.rows):
            return None
        return summarise([row[name][HELD][0] for row in self.rows])

    def ratio(self, above: str, below: str, part: str) -> Summary:
        """Error of one method over another's, on paired days."""
        return ratio_of_means(self.values(above, part), self.values(below, part))

    def gap(self, above: str, below: str, part: str) -> Summary:
        """Error of one method less another's, on paired days."""
        return summarise(self.values(above, part) - self.values(below, part))

    def auc(self, name: str, knows: str = "auc") -> Summary | None:
        """The adversary's AUC over the days attacked, if any; "open": without noise."""
        found = [row[name][knows][0] for row in self.rows if knows in row.get(name, {})]
        return summarise(found) if found else None


def compare(
    source: DaySource,
    promise: MethodPromise,
    *,
    days: int,
    seed: int,
    attack_days: int = 0,
    methods: Sequence[Method] = METHODS,
    known: KnownRows | None = None,
    tick: Callable[[], Any] = lambda: None,
) -> Comparison:
    """Run all methods over many days; rows that are known are not computed again.

    Args:
        source: The days.
        promise: What every method has to keep.
        days: Number of days, 2 or more.
        seed: Seed of the noise and of the batteries.
        attack_days: Number of days the adversary attacks.
        methods: The methods.
        known: Rows computed before; new ones are added.
        tick: Called after each day.

    Returns:
        The comparison.

    Raises:
        PolicyError: If there are fewer than 2 days.
    """
    if days < 2:
        raise PolicyError(f"days is {days}; give 2 or more: an interval needs them.")
    bench = Bench(source, promise, seed, methods)
    rows = tuple(_rows(bench, days, attack_days, known, tick))
    return Comparison(promise, bench.methods, bench.kept(rows), rows)


def _rows(
    bench: Bench, days: int, attack_days: int, known: KnownRows | None, tick: Callable[[], Any]
) -> Iterator[Row]:
    for day in range(days):
        row = known.get(bench.promise.epsilon, day) if known is not None else None
        if row is None or (day < attack_days and OPEN not in row):
            row = bench.row(day, attack=day < attack_days)
            if known is not None:
                known.put(bench.promise.epsilon, day, row)
        tick()
        yield row
