"""A recorded period under a fixed set of promises: what would have been published on every day.

The methods, the noise and the filter are those of `comparison.compare`, so errors are equal to its
figures for the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Ints
from hushgrid.adversary.attack import NoiseBlocks
from hushgrid.errors import PlanError
from hushgrid.lab.bench import (
    DRAW,
    EXACT,
    FLAT,
    ROLLING_MEAN,
    TIME_OF_USE,
    YESTERDAY,
    Bench,
)
from hushgrid.lab.datasets import Real, Recorded, learn_habits
from hushgrid.lab.methods import BOUND, MethodPromise, Outcome, Ready
from hushgrid.lab.rolling import last_week
from hushgrid.model.consumption import LoadShape
from hushgrid.model.zone import Tariff

DAYS = {"P1D": 1, "P7D": 7, "P14D": 14}  # of each window
WORDS = {None: "any interval", "P1D": "any day", "P7D": "any week", "P14D": "any two weeks"}
EPSILONS = (0.5, 1.0, 2.0)
TRAIN_DAYS, FEWEST_DAYS = 90, 21
LAST_WEEK, PUBLIC_SHAPE, UNREAD = "last_week", "public_shape", "unread"
_DAY = 86_400  # [s]
_EPOCH = 3  # days from a Monday to the first day of 1970


@dataclass(frozen=True, slots=True)
class ReplayPromise:
    """A promise of a replay.

    Attributes:
        window: Length of the window, ISO 8601; None: any one interval.
        epsilon: What is promised about it.
    """

    window: str | None
    epsilon: float

    @property
    def secret(self) -> Literal["interval", "window"]:
        """What is promised about."""
        return "interval" if self.window is None else "window"

    @property
    def words(self) -> str:
        """The promise in words."""
        return f"{WORDS[self.window]}, ε = {self.epsilon:g}"

    @property
    def name(self) -> str:
        """The promise as part of a file's name."""
        return f"{self.window or 'interval'}-{self.epsilon:g}"

    def terms(self, seconds: int) -> MethodPromise:
        """The promise as methods take it, for steps of a length [s]."""
        steps = None if self.window is None else DAYS[self.window] * _DAY // seconds + 1
        return MethodPromise(self.secret, self.epsilon, 0.0, steps)


def promises(*, quick: bool = False) -> tuple[ReplayPromise, ...]:
    """The promises that are played.

    Args:
        quick: Whether only those at ε = 1 are.

    Returns:
        The promises, weakest secret first.

    >>> len(promises()), len(promises(quick=True))
    (12, 4)
    """
    epsilons = (1.0,) if quick else EPSILONS
    return tuple(ReplayPromise(w, epsilon) for w in (None, *DAYS) for epsilon in epsilons)


def train_days(days: int) -> int:
    """First days, from which the model of intervals is learned; errors are not over them.

    Args:
        days: Whole days of the period.

    Returns:
        How many.

    Raises:
        PlanError: If there are too few days.

    >>> train_days(365), train_days(47)
    (90, 15)
    """
    if days < FEWEST_DAYS:
        raise PlanError(
            f"readings has {days} whole days, and less than {FEWEST_DAYS} say nothing about a"
            " promise that lasts weeks; give more days, a year if there is one."
        )
    return min(TRAIN_DAYS, days // 3)


def source_of(
    real: Real,
    *,
    bound: int | Sequence[int],
    usual: float,
    tariff: Tariff | None = None,
    train: int | None = None,
) -> Recorded:
    """The days that are played, with public models.

    Args:
        real: Whole days of all homes.
        bound: Contract bound [Wh a step], of all homes or of each. Readings are cut at a home's
            own, and noise is for the largest, unless a clamp is lower.
        usual: What a home uses in a year by published figures [kWh].
        tariff: The tariff; None: scaled to the mean load of the first days, as `compare` does.
        train: First days, which are not judged; None: as `train_days` says.

    Returns:
        The days.

    Raises:
        PlanError: If there are too few days.
    """
    days = len(real.readings)
    first = train_days(days) if train is None else train
    if days - first < FEWEST_DAYS - FEWEST_DAYS // 3:
        raise PlanError(
            f"train_days is {first} of {days} whole days, so {max(days - first, 0)} are left to"
            f" judge; leave {FEWEST_DAYS - FEWEST_DAYS // 3} or more."
        )
    if not isinstance(bound, int):
        real = real._replace(readings=np.minimum(real.readings, np.array(bound, np.int32)))
    scenario = learn_habits(real.readings[:first], int(np.max(bound)))
    scenario = replace(scenario, tariff=tariff or scenario.tariff)
    source = Recorded.of(scenario, real.days(slice(first, None)), real.days(slice(first)))
    return source.with_usual(1000 * usual / (365 * source.horizon))


class PublishedLoads(NamedTuple):
    """Loads behind the prices of a period.

    Attributes:
        estimated: (days, T): of the prices in real time [Wh].
        ahead: (days, T): of the list made at 18:00 for the next recorded day [Wh]; NaN where none
            follows.
    """

    estimated: Floats
    ahead: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A period under one promise.

    Attributes:
        promise: The promise.
        draws: What was published, for each draw of noise; none where the promise is refused.
        cut_at: (homes,): where readings are cut [Wh].
        lengths: Steps of the blocks of noise that touch the first day; empty: noise of its own at
            every step.
        scale: (T,): scale of the noise [Wh].
        refusal: Why the promise cannot be kept; empty where it can.
    """

    promise: ReplayPromise
    draws: tuple[PublishedLoads, ...]
    cut_at: Ints
    lengths: tuple[int, ...]
    scale: Floats
    refusal: str = ""

    @property
    def blocks(self) -> NoiseBlocks:
        """The noise, as it repeats for ever; blocks of a window are equal and go on over days."""
        if self.promise.window is not None and self.lengths:
            return NoiseBlocks(self.lengths[:1], (float(self.scale[0]),))
        return NoiseBlocks.of_steps(self.lengths, self.scale.tolist())


def play(
    source: Recorded,
    promise: ReplayPromise,
    *,
    draws: int = 2,
    seed: int = 1,
    tick: Callable[[], Any] = lambda: None,
) -> Played:
    """Play all days under one promise: readings are cut, noise is added, the filter follows.

    Args:
        source: The days.
        promise: The promise.
        draws: Draws of noise.
        seed: Random seed; draws are those of `compare` with this seed.
        tick: Called after each day of each draw.

    Returns:
        What would have been published.
    """
    terms = promise.terms(_DAY // source.horizon)
    first = Bench(source, terms, seed, (BOUND,))
    method = first.ready(source.zone_of(0))[BOUND.name]
    if not isinstance(method, Ready):
        none = np.zeros(0)
        return Played(promise, (), none.astype(np.int64), (), none, method.reason)
    benches = [first, *(first.drawing(seed + k * DRAW) for k in range(1, draws))]
    years = [_follow(bench, BOUND.name, len(source.date), tick) for bench in benches]
    outcome = years[0][1]
    f, bounds = source.scenarios[0].consumption, source.scenarios[0].zone.bound
    high = f.clamp_ends(method.clamp)[1] if method.clamp else bounds
    draws_played = tuple(published for published, _ in years)
    cut_at = np.minimum(high, bounds).astype(np.int64)
    return Played(promise, draws_played, cut_at, outcome.lengths, outcome.scale)


def _follow(
    bench: Bench, name: str, days: int, tick: Callable[[], Any]
) -> tuple[PublishedLoads, Outcome]:
    """All days of one method, in order, and the first day's outcome."""
    horizon, outcomes = bench.source.horizon, list[Outcome]()
    estimated, ahead = np.empty((days, horizon)), np.full((days, horizon), np.nan)
    for number in range(days):
        day = bench.published_day(name, number, held=False)
        outcomes = outcomes or [day.outcome]
        estimated[number] = day.outcome.estimated
        if day.ahead is not None:
            ahead[number] = day.ahead
        tick()
    return PublishedLoads(estimated, ahead), outcomes[0]


def play_others(
    source: Recorded, *, tick: Callable[[], Any] = lambda: None
) -> dict[str, PublishedLoads]:
    """The same days by prices without noise, with no promise or without readings.

    Args:
        source: The days.
        tick: Called after each day.

    Returns:
        By name: exact loads, flat, time of use, the public load shape with its seasons and as the
        filter starts from it, the day before, the same day of the week before, and the mean of the
        last five days of the same kind.
    """
    bench = Bench(source, MethodPromise(), 0, ())
    days, homes = len(source.date), source.scenarios[0].zone.n_houses
    followed, _ = _follow(bench, EXACT, days, tick)
    loads = np.array([source.day(number).load for number in range(days)], np.float64)
    out = {EXACT: PublishedLoads(loads, followed.ahead)}
    parts = (source,) if source.before is None else (source.before, source)
    all_loads = np.array(
        [part.day(number).load for part in parts for number in range(len(part.date))], np.float64
    )
    names = (FLAT, TIME_OF_USE, YESTERDAY, ROLLING_MEAN)
    lists = {name: (np.empty_like(loads), np.full_like(loads, np.nan)) for name in names}
    week = np.empty_like(loads)
    for number in range(days):
        today, next_day = bench.plain_loads(number, noisy=False)
        for name in names:
            lists[name][0][number] = today[name]
            if next_day is not None:
                lists[name][1][number] = next_day[name]
        earlier = last_week(source, all_loads, number)
        week[number] = today[ROLLING_MEAN] if earlier is None else earlier
    shape = homes * source.published * _relative(source.date, source.horizon)
    kinds = {source.is_weekend(number): number for number in range(days)}
    starts = {weekend: bench.unread_loads(number) for weekend, number in kinds.items()}
    unread = np.array([starts[source.is_weekend(number)] for number in range(days)])
    plain = {LAST_WEEK: week, PUBLIC_SHAPE: shape, UNREAD: unread}
    pairs = {name: (loads, _listed(source, loads)) for name, loads in plain.items()}
    return out | {name: PublishedLoads(*pair) for name, pair in (lists | pairs).items()}


def _listed(source: Recorded, loads: Floats) -> Floats:
    """(days, T): lists of prices that are known days before, for the day after each day."""
    ahead = np.full_like(loads, np.nan)
    for number in range(len(loads) - 1):
        if source.following(number) is not None:
            ahead[number] = loads[number + 1]
    return ahead


def calendar_days(date: Ints) -> np.ndarray[Any, np.dtype[np.datetime64]]:
    """The calendar's days of recorded days.

    Args:
        date: (days,): numbers of the days; 0 is a Monday.

    Returns:
        (days,): the days.

    >>> str(calendar_days(np.array([19726]))[0])
    '2024-01-01'
    """
    return (np.asarray(date, np.int64) - _EPOCH).astype("datetime64[D]")


def _relative(date: Ints, horizon: int) -> Floats:
    """(days, T): the public load shape, of mean 1 over a year."""
    months = calendar_days(date).astype("datetime64[M]").astype(np.int64) % 12 + 1
    steps = (np.arange(horizon) + 0.5) * _DAY / horizon
    seconds = (date % 7)[:, None] * _DAY + steps
    return LoadShape().relative(seconds, np.broadcast_to(months[:, None], seconds.shape))


def synthetic_days(
    homes: int, *, days: int, seconds: int, usual: float, bound: int, seed: int
) -> Real:
    """Homes made from public statistics: the public load shape, and how homes and readings spread.

    No reading of a real home has a part in it. Homes share no weather.

    Args:
        homes: How many.
        days: Days from a Monday, 1 January 2024, on.
        seconds: Length of a step [s].
        usual: What a home uses in a year by published figures [kWh].
        bound: Contract bound [Wh a step].
        seed: Random seed.

    Returns:
        The days.
    """
    rng, shape = np.random.default_rng([seed, 17]), LoadShape()
    date = np.arange(days) + int(np.datetime64("2024-01-01").astype(np.int64)) + _EPOCH
    steps = _DAY // seconds
    mean = 1000 * usual / (365 * steps) * _relative(date, steps)
    size = np.exp(rng.normal(-(shape.homes**2) / 2, shape.homes, homes))
    readings = np.empty((days, steps, homes), np.int32)
    for number in range(days):
        spread = rng.normal(-(shape.readings**2) / 2, shape.readings, (steps, homes))
        wh = np.rint(mean[number][:, None] * size * np.exp(spread))
        readings[number] = np.clip(wh, 0, bound)
    months = calendar_days(date).astype("datetime64[M]").astype(np.int64) % 12 + 1
    return Real(tuple(f"home-{n + 1}" for n in range(homes)), readings, date, months)
