"""One zone's days under one method: published, estimated, and held against the truth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from hushgrid._numbers import Floats, Ints, UInt8s, is_real
from hushgrid.belief.estimate import USUAL_FACTOR, PublicKnowledge
from hushgrid.belief.followed import EvenDays, FollowedKnowledge
from hushgrid.belief.posterior import SHAPES
from hushgrid.belief.rate_interval import LEVEL, posterior_interval
from hushgrid.errors import PlanError, PolicyError
from hushgrid.lab.attack import Watcher
from hushgrid.lab.baselines import FOURIER, WAVELET, WEVENT, WEVENT_ABSORPTION
from hushgrid.lab.battery import POWER, RULES, Battery, hide
from hushgrid.lab.datasets import DaySource, ReadingDay, Recorded
from hushgrid.lab.methods import (
    BOUND,
    BOUND_FITTED,
    BOUND_INDEPENDENT,
    FORECAST,
    GROUP,
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
    Outcome,
    Ready,
    counted,
    hushgrid,
)
from hushgrid.lab.pufferfish import DPHMM, QUILT, WASSERSTEIN
from hushgrid.lab.rolling import (
    EVENING,
    DailySums,
    RollingMean,
    banded_load,
    choose_sums,
    flat_load,
    yesterday,
)
from hushgrid.model.laws import Clamp
from hushgrid.model.zone import Scenario, Tariff, optimal_rate, public_rate, relative_to
from hushgrid.planning.expected_error import RHO
from hushgrid.planning.planner import Plan

METHODS: tuple[Method, ...] = (
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    BOUND,
    BOUND_INDEPENDENT,
    WASSERSTEIN,
    QUILT,
    GROUP,
    WEVENT,
    WEVENT_ABSORPTION,
    DPHMM,
    FOURIER,
    WAVELET,
    FORECAST,
)


class WindowNoise(NamedTuple):
    """What is asked of hushgrid's noise under the secret window.

    Attributes:
        block: Steps of a block; None: as planned.
        clamp: By class [Wh]; empty: as planned.
    """

    block: int | None = None
    clamp: Clamp = ()


AS_PLANNED = WindowNoise()

# the public's best estimate; the noisy rate as it is; the noisy rate cut to the tariff's limits
PARTS = ("estimated", "raw", "cut")

FIGURES = ("rmsre_paper", "rmsre", "mismatch_cost")

AUCS = ("auc", "auc_others")  # the adversary knows prices alone; all other readings as well

HELD = "coverage95"  # of recorded days: the shares of steps whose loads 95 % intervals hold

KINDS_HELD = ("estimate", "one_step", "day_ahead")  # intervals of the estimate and of two forecasts

_HELD_STEPS = 13  # an interval is computed at one of so many steps, on each day at others

AHEAD = "ahead"  # of recorded days: FIGURES of the list made at 18:00 for the next day

AHEAD_EXACT = "ahead_exact"  # the same of the list that the same filter makes of exact loads

EXACT, EXACT_BY_MODEL = "exact", "exact_by_model"  # filters of exact loads, with a model or without

SLOT_MEAN = "slot_mean"  # mean loads of the days before, by time of day: no reading is used

YESTERDAY = "yesterday"  # of the last day that is over, true loads: no promise

ROLLING_MEAN = "rolling_mean"  # of the last five days of the same kind, true loads: no promise

ROLLING_MEAN_NOISY = "rolling_mean_noisy"  # the same from one noisy sum a day

OPEN = "open"  # no noise at all

DRAW = 1_000_003  # between the seeds of draws

_MOST_MISSING = 60  # days in a row, after which a filter knows no more than at its start


class KnownRows(Protocol):
    """Store of rows by promise and day."""

    def get(self, epsilon: float, day: int) -> Row | None:
        """A row, or None."""
        ...

    def put(self, epsilon: float, day: int, row: Row) -> None:
        """Keep a row."""
        ...


class PublishedDay(NamedTuple):
    """A day as a method publishes it.

    Attributes:
        outcome: What is published; on recorded days the estimate is that of all releases so far.
        shares: Shares of loads that intervals hold; none where they are not counted.
        ahead: (T,): the list made at 18:00 for the next recorded day [Wh]; None where none follows.
    """

    outcome: Outcome
    shares: list[float]
    ahead: Floats | None


class Bench:
    """Methods prepared for the zones of a source, once for each promise.

    Args:
        source: The days.
        promise: What every method has to keep.
        seed: Seed of the noise and of the batteries.
        methods: The methods.
        rho: On recorded days, the relative error by which hushgrid's plan chooses a clamp.
        noise: What is asked of hushgrid's noise under the secret window.
    """

    def __init__(
        self,
        source: DaySource,
        promise: MethodPromise,
        seed: int,
        methods: Sequence[Method] = METHODS,
        rho: float = RHO,
        noise: WindowNoise = AS_PLANNED,
    ) -> None:
        self.source, self.promise, self.methods = source, promise, tuple(methods)
        self._seed, self._rho, self._noise = seed, rho, noise
        self._carry: dict[str, tuple[int, Any]] = {}  # the next day, what the day before left
        self._ready: dict[int, dict[str, Ready | MethodRefusal]] = {}
        self._plans: dict[tuple[float, bool], Plan] = {}
        self._losses: dict[int, float] = {}
        self._models: dict[tuple[Any, ...], PublicKnowledge] = {}
        self._knowledge: dict[str, tuple[int, FollowedKnowledge]] = {}  # the next day, before it
        self._exact_lists: dict[tuple[str, int], Floats] = {}  # of all draws
        self._rolling: RollingMean | None = None

    def drawing(self, seed: int) -> Bench:
        """The same with other draws of noise."""
        bench = Bench(self.source, self.promise, seed, self.methods, self._rho, self._noise)
        bench._ready, bench._models = self._ready, self._models
        bench._plans, bench._losses = self._plans, self._losses
        bench._exact_lists = self._exact_lists
        return bench

    def ready(self, zone: int = 0) -> Mapping[str, Ready | MethodRefusal]:
        """Each method prepared for a zone, or its refusal."""
        if zone not in self._ready:
            setting = self._setting(zone)
            self._ready[zone] = {m.name: _prepare(m, setting) for m in self.methods}
        return self._ready[zone]

    def _setting(self, zone: int) -> MethodSetting:
        terms = (self.source.scenarios[zone], self.promise, self.source.horizon)
        if not isinstance(self.source, Recorded):
            return MethodSetting.of(*terms)
        setting = MethodSetting.of(*terms, self._rho, self.source.scenarios[0])
        setting = replace(setting, usual=self.source.published, **self._noise._asdict())
        if setting.run is None:
            return setting
        return replace(setting, plans=self._plans, losses=self._losses)

    @property
    def sums(self) -> DailySums | MethodRefusal:
        """How noisy sums of recorded days are published at the promise."""
        assert isinstance(self.source, Recorded)
        try:
            return choose_sums(self.source, self._setting(0).day_epsilon)
        except PlanError as error:
            return MethodRefusal(str(error).rstrip("."))

    def ready_on(self, rows: Sequence[Row]) -> dict[str, Ready | MethodRefusal]:
        """The same for all days: a method that any day lacks is left out."""
        out = dict(self.ready(self.source.zone_of(0)))
        for number, row in enumerate(rows):
            lacking = [n for n, method in out.items() if isinstance(method, Ready) and n not in row]
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
            outcome, shares, ahead = self.published_day(name, number)
            out[name] = _day_errors(outcome, day, scenario.tariff)
            if shares:
                out[name][HELD] = shares
            if ahead is not None:
                next_load = self.source.day(number + 1).load
                out[name][AHEAD] = errors(ahead, next_load, scenario.tariff)
                if outcome.independent and isinstance(self.source, Recorded):
                    exact = self._exact_ahead(name, number)
                    out[name][AHEAD_EXACT] = errors(exact, next_load, scenario.tariff)
            for key, watcher in watchers.items():
                out[name][key] = [watcher.auc(outcome, _home(day))]
        out |= self._batteries(scenario, day, number)
        if isinstance(self.source, Recorded):
            out |= self._without_filter(self.source, number)
        if watchers:
            bare = day.load.astype(np.float64)
            openly = Outcome(bare, bare, bare, np.zeros(len(bare)))
            out[OPEN] = {key: [w.auc(openly, _home(day))] for key, w in watchers.items()}
        return out

    def published_day(self, name: str, number: int, *, held: bool = True) -> PublishedDay:
        """A day as a method publishes it, and what its releases say; days are followed in order.

        Args:
            name: The method, or one of `EXACT` and `EXACT_BY_MODEL`.
            number: The day.
            held: Whether it is counted which loads intervals hold.
        """
        outcome, source = self._published(name, number), self.source
        if isinstance(source, Recorded):
            if outcome.independent:
                return self._followed(source, name, number, outcome, source.day(number), held)
            if outcome.observations is None:
                return PublishedDay(outcome, [], self._forecast_ahead(source, name, number))
        return PublishedDay(outcome, [], None)

    def plain_loads(
        self, number: int, *, noisy: bool = True
    ) -> tuple[dict[str, Floats], dict[str, Floats] | None]:
        """Loads that prices without a filter are set for, of recorded days [Wh].

        Args:
            number: The day.
            noisy: Whether the means of noisy daily sums are among them.

        Returns:
            (T,) by name: for the day, and for the next one as of its evening; None where no day
            follows.
        """
        source = self.source
        assert isinstance(source, Recorded)
        if self._rolling is None:
            sums = self.sums if noisy else None
            published = sums if isinstance(sums, DailySums) else None
            self._rolling = RollingMean.of(source, published, self._seed)
        follows = source.following(number)
        today = self._means(source, number, self._rolling, ahead=False)
        if follows is None:
            return today, None
        return today, self._means(source, follows, self._rolling, ahead=True)

    def unread_loads(self, number: int) -> Floats:
        """(T,): the loads of a recorded day that a filter starts from, before any release [Wh]."""
        source = self.source
        assert isinstance(source, Recorded)
        openly = self._published(EXACT, number)
        started = self._at_start_of(source, EXACT, number, openly, None)
        return np.array([law.mean for law in started.forecast(source.horizon)])

    @property
    def _first(self) -> int:
        """The first day that is published: of the days before, if estimates follow releases."""
        if not isinstance(self.source, Recorded) or self.source.before is None:
            return 0
        return -len(self.source.before.date) if self.source.published else 0

    def beliefs(self, name: str, number: int) -> Iterator[tuple[FollowedKnowledge, float, float]]:
        """What is known before each release of a recorded day, of a method that is followed.

        Args:
            name: The method.
            number: The day; days are followed in order.

        Yields:
            The knowledge, the noisy load and its scale [Wh] of every step.
        """
        source = self.source
        assert isinstance(source, Recorded)
        first_day, knowledge = self._knowledge.get(name, (self._first, None))
        for day in range(first_day, number):
            outcome = self._published(name, day)
            followed = self._at_start_of(source, name, day, outcome, knowledge)
            knowledge = _follow(followed, outcome).knowledge
        outcome = self._published(name, number)
        assert outcome.observations is not None
        now = self._at_start_of(source, name, number, outcome, knowledge)
        releases = zip(outcome.observations.tolist(), outcome.scale.tolist(), strict=True)
        for load_hat, scale in releases:
            yield now, load_hat, scale
            now = now.after(load_hat, scale)
        self._knowledge[name] = (number + 1, now)

    def _published(self, name: str, number: int) -> Outcome:
        """A day of a method that keeps the promise; the days before it where it goes on.

        Exact loads are published as they are.
        """
        if name in (EXACT, EXACT_BY_MODEL):
            load = self.source.day(number).load.astype(np.float64)
            return Outcome(load, load, load, np.zeros(len(load)), independent=True)
        method = self.ready(self.source.zone_of(number))[name]
        assert isinstance(method, Ready)
        if method.publish_on is None:
            return method.publish(self._covered(method, number), self._noise_of(number))
        first_day, carry = self._carry.get(name, (self._first, None))
        if first_day > number:
            first_day, carry = self._first, None
        for day in range(first_day, number + 1):
            outcome, carry = method.publish_on(
                self._covered(method, day), self._noise_of(day), carry
            )
        self._carry[name] = (number + 1, carry)
        return outcome

    def _noise_of(self, number: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self._seed, number % 2**32, _NOISE])

    def _covered(self, method: Ready, number: int) -> Ints:
        """(T,): the loads that a method publishes, of readings below its clamp [Wh]."""
        day = self.source.day(number)
        if not method.clamp:
            return day.load
        f = self.source.scenarios[self.source.zone_of(number)].consumption
        covered = np.clip(day.readings, *f.clamp_ends(method.clamp))
        return np.asarray(covered.sum(axis=1, dtype=np.int64))

    def _followed(
        self,
        source: Recorded,
        name: str,
        number: int,
        outcome: Outcome,
        day: ReadingDay,
        held: bool = True,
    ) -> PublishedDay:
        """What the releases of a day and of all days before it say about its loads.

        With the shares of loads held, and the list for the next day where that is recorded.
        """
        first_day, knowledge = self._knowledge.get(name, (self._first, None))
        if first_day > number:
            first_day, knowledge = self._first, None
        for earlier in range(first_day, number):  # before the first, or computed by an earlier run
            answer = self.ready(source.zone_of(earlier)).get(name)
            if not isinstance(answer, MethodRefusal):
                earlier_outcome = self._published(name, earlier)
                knowledge = self._at_start_of(source, name, earlier, earlier_outcome, knowledge)
                knowledge = _follow(knowledge, earlier_outcome).knowledge
        knowledge = self._at_start_of(source, name, number, outcome, knowledge)
        after, follows = None, source.following(number)
        if follows is not None:
            after = _Day(source.horizon, bool(source.weekend[follows])), source.day(follows)
        raw, estimated, knowledge, shares, ahead = _follow(
            knowledge, outcome, day.load if held else None, number, after
        )
        self._knowledge[name] = (number + 1, knowledge)
        return PublishedDay(outcome._replace(raw=raw, estimated=estimated), shares, ahead)

    def _exact_ahead(self, name: str, number: int) -> Floats:
        """The list for the next day by a method's filter, had all loads been published exactly."""
        twin = EXACT_BY_MODEL if name in self._by_model else EXACT
        if (twin, number) not in self._exact_lists:
            *_, ahead = self.published_day(twin, number, held=False)
            assert ahead is not None
            self._exact_lists[twin, number] = ahead
        return self._exact_lists[twin, number]

    def _forecast_ahead(self, source: Recorded, name: str, number: int) -> Floats | None:
        """The next day of a method that uses no reading."""
        follows = source.following(number)
        if follows is None:
            return None
        return self._published(name, follows).estimated

    def _without_filter(self, source: Recorded, number: int) -> Row:
        """Means of days before: of all that the model is from, and of the last ones."""
        today, next_day = self.plain_loads(number)
        follows = source.following(number)
        tariff, out = source.scenarios[0].tariff, Row()
        for name, load in today.items():
            true = source.day(number).load
            out[name] = {part: errors(load, true, tariff, cut=part != "raw") for part in PARTS}
            if follows is not None and next_day is not None:
                out[name][AHEAD] = errors(next_day[name], source.day(follows).load, tariff)
        return out

    def _means(
        self, source: Recorded, number: int, rolling: RollingMean, *, ahead: bool
    ) -> dict[str, Floats]:
        """Loads by name; the model's forecast before any day is over."""
        usual = source.usual
        out: dict[str, Floats] = {}
        if usual is not None:
            out[SLOT_MEAN] = usual[int(source.weekend[number])]
        profile = out.get(SLOT_MEAN)
        if profile is None:
            profile = self._setting(source.zone_of(number)).forecast
        out[FLAT], out[TIME_OF_USE] = flat_load(source, profile), banded_load(source, profile)
        last = yesterday(source, rolling.loads, number, ahead=ahead)
        out[YESTERDAY] = profile if last is None else last
        mean = rolling.mean(number, ahead=ahead)
        out[ROLLING_MEAN] = profile if mean is None else mean
        if rolling.sums is not None:
            noisy = rolling.noisy_mean(number, profile, ahead=ahead)
            out[ROLLING_MEAN_NOISY] = profile if noisy is None else noisy
        return out

    def _at_start_of(
        self,
        source: Recorded,
        name: str,
        number: int,
        outcome: Outcome,
        knowledge: FollowedKnowledge | None,
    ) -> FollowedKnowledge:
        """What is known before a day: the model's part begins anew, the filter goes on."""
        zone, steps = source.zone_of(number), source.horizon
        scenario, ready = source.scenarios[zone], self.ready(zone).get(name)
        clamp = ready.clamp if isinstance(ready, Ready) else ()
        terms = (zone, clamp, outcome.noise, outcome.lengths, outcome.steps_before)
        if terms not in self._models:
            world = (scenario.models, scenario.consumption)
            model = PublicKnowledge.start(*world, clamp=clamp, shape=SHAPES[outcome.noise])
            model = model.with_blocks(outcome.lengths, outcome.steps_before).since(
                USUAL_FACTOR, steps
            )
            self._models[terms] = model
        model = self._models[terms]
        days = _Day(steps, source.is_weekend(number))
        if knowledge is None:
            usual = 0.0 if name in self._by_model else source.published * scenario.zone.n_houses
            return FollowedKnowledge.start(model, days, usual)
        if outcome.steps_before:  # a block goes on, and what is known of its noise
            model = replace(model, block=model.ends[1], sizes=knowledge.model.sizes)
        missing = source.date_of(number) - source.date_of(number - 1) - 1 if number else 0
        if missing > 0:  # days that are not whole
            knowledge = knowledge.passed(min(missing, _MOST_MISSING) * steps)
        return replace(knowledge, model=model, days=days)

    @property
    def _by_model(self) -> set[str]:
        """Methods whose estimate trusts the model, whatever figures are published."""
        fitted = {m.name for m in self.methods if m.eta != 1 or m.name == BOUND_FITTED.name}
        return fitted | {EXACT_BY_MODEL}

    def _batteries(self, scenario: Scenario, day: ReadingDay, number: int) -> Row:
        battery = Battery.sized(scenario.zone.bound, BATTERY_SIZE)
        coins = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence([self._seed, number, _COINS]))
        ).random(day.readings.shape)
        out: Row = {}
        for name, rule in RULES.items():
            hidden = hide(day.readings, battery, rule(battery), coins)
            grid_load = hidden.draw.sum(axis=1).astype(np.float64)
            out[name] = {
                "raw": errors(grid_load, day.load, scenario.tariff, cut=False),
                "cut": errors(grid_load, day.load, scenario.tariff),
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

    def from_step(self, first: int) -> EvenDays:  # noqa: ARG002
        return EvenDays(self.steps)


class _Followed(NamedTuple):
    """A day as releases tell of it.

    Attributes:
        raw: (T,): loads behind the raw rates [Wh].
        estimated: (T,): estimated loads [Wh].
        knowledge: What is known after the day.
        shares: Shares of loads that intervals hold.
        ahead: (T,): the loads of the next day [Wh], as foreseen at 18:00; None where none follows.
    """

    raw: Floats
    estimated: Floats
    knowledge: FollowedKnowledge
    shares: list[float]
    ahead: Floats | None


def _follow(
    knowledge: FollowedKnowledge,
    outcome: Outcome,
    load: Ints | None = None,
    number: int = 0,
    after: tuple[_Day, ReadingDay] | None = None,
) -> _Followed:
    """What the releases of a day say; with the day after it, forecasts of a day ahead too."""
    assert outcome.observations is not None
    raw, estimated = outcome.observations.copy(), np.empty(len(outcome.observations))
    hits: tuple[list[bool], ...] = ([], [], [])
    listed: Floats | None = None
    for t, (observation, scale) in enumerate(
        zip(outcome.observations.tolist(), outcome.scale.tolist(), strict=True)
    ):
        if load is not None and t % _HELD_STEPS == number % _HELD_STEPS:
            intervals = [(posterior_interval(knowledge, observation, scale), load[t])]
            intervals.append((knowledge.predicted().interval(LEVEL), load[t]))
            if after is not None:
                ahead = replace(knowledge, days=after[0]).predicted(ahead=len(raw))
                intervals.append((ahead.interval(LEVEL), after[1].load[t]))
            for kind, (interval, true) in zip(hits, intervals, strict=False):
                kind.append(bool(interval.low <= true <= interval.high))
        if after is not None and t == round(EVENING * len(raw)):
            laws = replace(knowledge, days=after[0]).passed(len(raw) - t).forecast(len(raw))
            listed = np.array([law.mean for law in laws])
        estimated[t], put_back, knowledge = knowledge.learn_and_put_back(observation, scale)
        raw[t] += put_back
    shares = [float(np.mean(kind)) for kind in hits if kind]
    return _Followed(raw, estimated, knowledge, shares, listed)


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of every figure of a day.

    Args:
        rows: Figures of several draws.

    Returns:
        Their means.
    """
    return {
        name: {
            part: [
                sum(figures) / len(rows)
                for figures in zip(*(r[name][part] for r in rows), strict=True)
            ]
            for part in parts
        }
        for name, parts in rows[0].items()
    }


def _prepare(method: Method, setting: MethodSetting) -> Ready | MethodRefusal:
    """A promise that the method's own planning finds out of reach is a refusal, too."""
    try:
        ready = method.prepare(setting)
        if setting.run is None or isinstance(ready, MethodRefusal) or not ready.scale:
            return ready
        return replace(ready, guarantee=ready.guarantee + counted(setting.promise))
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


def _day_errors(outcome: Outcome, day: ReadingDay, tariff: Tariff) -> dict[str, list[float]]:
    return {
        "estimated": errors(outcome.estimated, day.load, tariff),
        "raw": errors(outcome.raw, day.load, tariff, cut=False),
        "cut": errors(outcome.raw, day.load, tariff),
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


Row = dict[str, dict[str, list[float]]]  # method -> each of PARTS: FIGURES; auc

FLAT, TIME_OF_USE = "flat", "time_of_use"  # prices set once, of the usual load

BATTERY_SIZE, BATTERY_POWER = 2.0, POWER  # of a house's bound: capacity, and in or out a step

_NOISE, _COINS = 3, 4  # what a random stream is for


def methods_with(eta: float, *, fitted: bool = False) -> tuple[Method, ...]:
    """All methods, with another middle trust of hushgrid than 0.05.

    Args:
        eta: The middle trust, between 0 and 1.
        fitted: Whether `bound` is there twice: estimated from releases alone, and by a model of the
            training days.

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
    methods = (*METHODS, BOUND_FITTED) if fitted else METHODS
    return tuple(hushgrid(name, eta) if m is HUSHGRID_ETA05 else m for m in methods)
