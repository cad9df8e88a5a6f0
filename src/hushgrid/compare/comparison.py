"""Every method at the same promise, on the same days, with the same noise quantiles.

A row is one day of one promise: for each method (docs/proofs/baselines.md) the error of its raw and
of its estimated price and, where requested, the AUC of an adversary on its releases. On recorded
days, which follow each other, hushgrid cuts readings at the planned clamp, and the estimate weighs
the model against a filter of all releases so far, as a service does by `estimator = "filter"`. Rows
are plain numbers, so that a run can resume where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from hushgrid._numbers import Floats, Ints, UInt8s, is_real
from hushgrid.belief.estimate import SHAPES, USUAL_FACTOR, PublicKnowledge
from hushgrid.belief.load_filter import EvenDays, FollowedKnowledge
from hushgrid.belief.rate_interval import LEVEL, posterior_interval
from hushgrid.compare.attack import Watcher
from hushgrid.compare.battery import POWER, RULES, Battery, hide
from hushgrid.compare.datasets import DaySource, ReadingDay, Recorded
from hushgrid.compare.methods import (
    BOUND,
    BOUND_INDEPENDENT,
    DPHMM,
    FORECAST,
    GROUP,
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    IN_A_RUN,
    WEVENT,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
    Outcome,
    Ready,
    hushgrid,
    part_of,
)
from hushgrid.compare.pufferfish import QUILT, WASSERSTEIN
from hushgrid.compare.transforms import FOURIER, WAVELET
from hushgrid.errors import PlanError, PolicyError
from hushgrid.model.laws import Clamp
from hushgrid.model.zone import Scenario, Tariff, optimal_rate, public_rate, relative_to
from hushgrid.planning.expected_error import RHO
from hushgrid.planning.planner import Plan
from hushgrid.statistics import Summary, ratio_of_means, summarise

METHODS: tuple[Method, ...] = (
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    BOUND,
    BOUND_INDEPENDENT,
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
HELD = "coverage95"  # of recorded days: the shares of steps whose loads 95 % intervals hold
KINDS_HELD = ("estimate", "one_step", "day_ahead")  # intervals of the estimate and of two forecasts
_HELD_STEPS = 7  # an interval is computed at one of so many steps, on each day at others
SLOT_MEAN = "slot_mean"  # mean loads of the days before, by time of day: no reading is used
OPEN = "open"  # no noise at all
BATTERY_SIZE, BATTERY_POWER = 2.0, POWER  # of a house's bound: capacity, and in or out a step
_NOISE, _COINS = 3, 4  # what a random stream is for
_DRAW = 1_000_003  # between the seeds of draws
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
        rho: On recorded days, the relative error by which hushgrid's plan chooses a clamp.
    """

    def __init__(
        self,
        source: DaySource,
        promise: MethodPromise,
        seed: int,
        methods: Sequence[Method] = METHODS,
        rho: float = RHO,
    ) -> None:
        self.source, self.promise, self.methods = source, promise, tuple(methods)
        self._seed, self._rho = seed, rho
        self._ready: dict[int, dict[str, Ready | MethodRefusal]] = {}
        self._plans: dict[tuple[float, bool], Plan] = {}
        self._losses: dict[int, float] = {}
        self._models: dict[tuple[int, Clamp, str], PublicKnowledge] = {}
        self._known: dict[str, tuple[int, FollowedKnowledge]] = {}  # the next day, what is known

    def drawing(self, seed: int) -> Bench:
        """The same with other draws of noise."""
        found = Bench(self.source, self.promise, seed, self.methods)
        found._ready, found._models = self._ready, self._models
        return found

    def ready(self, zone: int = 0) -> Mapping[str, Ready | MethodRefusal]:
        """Each method prepared for a zone, or its refusal."""
        if zone not in self._ready:
            terms = (self.source.scenarios[zone], self.promise, self.source.horizon)
            setting = MethodSetting.of(*terms)
            if isinstance(self.source, Recorded):
                setting = MethodSetting.of(*terms, self._rho, self.source.scenarios[0])
                setting = replace(setting, plans=self._plans, losses=self._losses)
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
            made, held = self._published(method, number, day), list[float]()
            if made.independent and isinstance(self.source, Recorded):
                made, held = self._followed(self.source, name, number, made, day)
            out[name] = _day_errors(made, day, scenario.tariff)
            if held:
                out[name][HELD] = held
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
        load = day.load
        if method.clamp:
            f = self.source.scenarios[self.source.zone_of(number)].consumption
            load = np.clip(day.readings, *f.clamp_ends(method.clamp)).sum(axis=1, dtype=np.int64)
        return method.publish(load, np.random.SeedSequence([self._seed, number, _NOISE]))

    def _followed(
        self, source: Recorded, name: str, number: int, made: Outcome, day: ReadingDay
    ) -> tuple[Outcome, list[float]]:
        """What the releases of a day and of all days before it say about its loads."""
        then, known = self._known.get(name, (0, None))
        if then > number:
            then, known = 0, None
        for earlier in range(then, number):  # that were computed by an earlier run
            method = self.ready(source.zone_of(earlier))[name]
            if isinstance(method, Ready):
                before = self._published(method, earlier, source.day(earlier))
                known = self._begun(source, name, earlier, before, known)
                known = _follow(known, before)[2]
        known = self._begun(source, name, number, made, known)
        after = None
        if number + 1 < len(source.date) and source.date[number + 1] == source.date[number] + 1:
            after = _Day(source.horizon, bool(source.weekend[number + 1])), source.day(number + 1)
        raw, estimated, known, held = _follow(known, made, day.load, number, after)
        self._known[name] = (number + 1, known)
        return made._replace(raw=raw, estimated=estimated), held

    def _begun(
        self,
        source: Recorded,
        name: str,
        number: int,
        made: Outcome,
        known: FollowedKnowledge | None,
    ) -> FollowedKnowledge:
        """What is known before a day: the model's part begins anew, the filter goes on."""
        zone, steps = source.zone_of(number), source.horizon
        scenario, ready = source.scenarios[zone], self.ready(zone)[name]
        clamp = ready.clamp if isinstance(ready, Ready) else ()
        if (zone, clamp, made.noise) not in self._models:
            world = (scenario.models, scenario.consumption)
            model = PublicKnowledge.start(*world, clamp=clamp, shape=SHAPES[made.noise])
            model = model.with_blocks(made.lengths).since(USUAL_FACTOR, steps)
            self._models[zone, clamp, made.noise] = model
        model = self._models[zone, clamp, made.noise]
        days = _Day(steps, bool(source.weekend[number]))
        if known is None:
            return FollowedKnowledge.start(model, days)
        model = model.with_sizes(known.model.sizes.shape[-1])
        missing = int(source.date[number] - source.date[number - 1]) - 1 if number else 0
        if missing > 0:  # days that are not whole
            known = known.passed(min(missing, _MOST_MISSING) * steps)
        return replace(known, model=model, days=days)

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


class _Day(NamedTuple):
    """The clock of one day."""

    steps: int
    weekend: bool

    @property
    def hours(self) -> float:
        return 24 / self.steps

    def at(self, t: int) -> tuple[float, bool]:
        return (t - 1) % self.steps / self.steps, self.weekend

    def of_epoch(self, first: int) -> EvenDays:  # noqa: ARG002
        return EvenDays(self.steps)


def _follow(
    known: FollowedKnowledge,
    made: Outcome,
    load: Ints | None = None,
    number: int = 0,
    after: tuple[_Day, ReadingDay] | None = None,
) -> tuple[Floats, Floats, FollowedKnowledge, list[float]]:
    """Raw and estimated loads of a day, what is known after it, and the shares of loads held.

    With the day after it, where that follows, forecasts of a day ahead are among them.
    """
    assert made.seen is not None
    raw, estimated = made.seen.copy(), np.empty(len(made.seen))
    held: tuple[list[bool], ...] = ([], [], [])
    for t, (seen, scale) in enumerate(zip(made.seen.tolist(), made.scale.tolist(), strict=True)):
        if load is not None and t % _HELD_STEPS == number % _HELD_STEPS:
            found = [(posterior_interval(known, seen, scale), load[t])]
            found.append((known.predicted().interval(LEVEL), load[t]))
            if after is not None:
                ahead = replace(known, days=after[0]).predicted(ahead=len(raw))
                found.append((ahead.interval(LEVEL), after[1].load[t]))
            for kind, (one, true) in zip(held, found, strict=False):
                kind.append(bool(one.low <= true <= one.high))
        raw[t] += known.clamped_energy()
        estimated[t], known = known.learn(seen, scale)
    return raw, estimated, known, [float(np.mean(kind)) for kind in held if kind]


def copied(source: Recorded, copies: int) -> Recorded:
    """A larger zone: every home of a zone so many times, on the same days.

    Copies keep the weather that homes share. The tariff is scaled with the load.

    Args:
        source: The days of homes that move independently.
        copies: How many of each.

    Returns:
        The days of the larger zone.
    """
    some = np.tile(np.arange(source.readings.shape[2]), copies)
    scenarios = []
    for one in source.scenarios:
        larger, tariff = part_of(one, some), one.tariff
        less = replace(tariff, alpha=tariff.alpha / copies)
        scenarios.append(replace(larger, tariff=less))
    usual = None if source.usual is None else source.usual * copies
    return replace(source, scenarios=scenarios, readings=source.readings[:, :, some], usual=usual)


def _mean_row(rows: Sequence[Row]) -> Row:
    """The mean of every figure of a day."""
    return {
        name: {
            part: [
                sum(each) / len(rows) for each in zip(*(r[name][part] for r in rows), strict=True)
            ]
            for part in one
        }
        for name, one in rows[0].items()
    }


def _prepare(method: Method, setting: MethodSetting) -> Ready | MethodRefusal:
    """A promise that the method's own planning finds out of reach is a refusal, too."""
    try:
        ready = method.prepare(setting)
        if setting.run is None or isinstance(ready, MethodRefusal) or not ready.scale:
            return ready
        return replace(ready, guarantee=ready.guarantee + IN_A_RUN)
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
    usual = float(np.sqrt(np.mean(((rates - best) / relative_to(best, tariff)) ** 2)))
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

    def held(self, name: str, kind: str = KINDS_HELD[0]) -> Summary | None:
        """Share of steps whose load a 95 % interval holds, on recorded days; one of KINDS_HELD."""
        at = KINDS_HELD.index(kind)
        each = [row.get(name, {}).get(HELD, []) for row in self.rows]
        if not all(each) or not any(len(one) > at for one in each):
            return None
        return summarise([one[at] for one in each if len(one) > at])

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
    draws: int = 1,
    rho: float = RHO,
) -> Comparison:
    """Run all methods over many days; rows that are known are not computed again.

    See: docs/proofs/baselines.md.

    Args:
        source: The days.
        promise: What every method has to keep.
        days: Number of days, 2 or more.
        seed: Seed of the noise and of the batteries.
        attack_days: Number of days the adversary attacks.
        methods: The methods.
        known: Rows computed before; new ones are added.
        tick: Called after each day.
        draws: How often noise is drawn; the figures of a day are means over the draws.
        rho: On recorded days, the relative error by which hushgrid's plan chooses a clamp.

    Returns:
        The comparison.

    Raises:
        PolicyError: If there are fewer than 2 days.
    """
    if days < 2:
        raise PolicyError(f"days is {days}; give 2 or more: an interval needs them.")
    bench = Bench(source, promise, seed, methods, rho)
    benches = [bench, *(bench.drawing(seed + k * _DRAW) for k in range(1, draws))]
    rows = tuple(_rows(benches, days, attack_days, known, tick))
    return Comparison(promise, bench.methods, bench.kept(rows), rows)


def _rows(
    benches: Sequence[Bench],
    days: int,
    attack_days: int,
    known: KnownRows | None,
    tick: Callable[[], Any],
) -> Iterator[Row]:
    epsilon = benches[0].promise.epsilon
    for day in range(days):
        row = known.get(epsilon, day) if known is not None else None
        if row is None or (day < attack_days and OPEN not in row):
            row = _mean_row([bench.row(day, attack=day < attack_days) for bench in benches])
            if known is not None:
                known.put(epsilon, day, row)
        tick()
        yield row
