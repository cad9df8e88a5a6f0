"""Days to compare methods on: a public model of a zone, and readings that follow it or not.

Simulated: the paper's zone, a common shock on all readings, large consumers, chains of a time-use
survey. Real: whole local days of histories, with a model of two states of use learned from earlier
days. A day holds the readings, and the occupancy where it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Floats, Int32s, Ints, UInt8s, is_real
from hushgrid.belief.filter import imputed
from hushgrid.errors import ModelError, PolicyError
from hushgrid.lab import paper
from hushgrid.learning.em import pooled_counts
from hushgrid.learning.habits import DAY, Survey, survey_models
from hushgrid.learning.histories import Histories
from hushgrid.mechanism.digest import world_digest
from hushgrid.model.consumption import Consumption, LoadShape
from hushgrid.model.laws import Histogram, scale_wh
from hushgrid.model.occupancy import Calendar, OccupancyModel
from hushgrid.model.world import simulate_steps
from hushgrid.model.zone import Scenario, Tariff, Zone

CLASSES, PERIODS, ROUNDS = 5, 6, 30
HOURS = 24  # groups of steps a day whose laws are fitted
_USUAL = 50.0  # readings by which the laws of a group follow those of the whole day
SATURDAY = 5  # days after Monday
_THURSDAY = 3  # the first day of 1970
_LEAST = 0.005  # chance a step of any move
_SPREAD = 1e-3  # share of every law that lies anywhere below the bound
_MEAN_RATE = 0.25  # above the rate at no load, at the mean load [currency/kWh]: the paper's ratio


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    initial: Floats  # (2,)
    moves: Floats  # (periods, 2, 2)
    emit: Floats  # (groups, 2, bins)


def learn_habits(readings: NDArray[np.integer], bound: int, beta: float = 0.0625) -> Scenario:
    """A zone from readings of earlier days under one contract bound.

    For real readings without labels: state 1 is the one with more use. The readings of all homes of
    a class are fitted at once (`learn.em.pooled_counts`); then the states found give laws for each
    hour of the day. No transition and no value gets probability 0.

    Args:
        readings: (days, T, homes): readings [Wh], -1 where missing.
        bound: Contract bound of every home [Wh].
        beta: Rate at a load of 0 [currency/kWh].

    Returns:
        The zone with its model, laws and tariff.

    Raises:
        ModelError: If there are too few days or steps.
    """
    days, horizon, homes = readings.shape
    if days < 2 or homes < 1 or horizon < PERIODS:
        raise ModelError(
            f"there are {days} days of {horizon} steps of {homes} homes to learn from;"
            f" give 2 days or more of {PERIODS} steps or more."
        )
    totals = np.where(readings >= 0, readings, 0).sum(axis=(0, 1))
    size = totals / np.maximum((readings >= 0).sum(axis=(0, 1)), 1)
    kinds = min(CLASSES, homes)
    class_of = np.empty(homes, np.int64)
    class_of[np.argsort(size, kind="stable")] = np.arange(homes) * kinds // homes
    edges = _edges(bound)
    slots = (np.arange(horizon) * PERIODS // horizon).astype(np.int32)
    groups = (np.arange(horizon) * min(HOURS, horizon) // horizon).astype(np.int32)
    fits = [
        _fit_class(_bins(readings[:, :, class_of == k], edges), slots, groups, len(edges) - 1)
        for k in range(kinds)
    ]
    fits = [_order_states(fit, edges) for fit in fits]
    theta = OccupancyModel.factored(
        [fit.initial for fit in fits],
        np.stack([fit.moves for fit in fits], axis=1),
        calendar=Calendar(slots),
        chain_of=class_of,
        name="habits",
    )
    laws = [_law(emit, edges, bound) for fit in fits for pair in fit.emit for emit in pair]
    place = np.arange(len(laws), dtype=np.int32).reshape(kinds, -1, 2)
    f = Consumption(
        laws=tuple(laws),
        absent=place[:, :, 0].T,
        present=place[:, :, 1].T,
        class_of=class_of.astype(np.int32),
        calendar=Calendar(groups),
    )
    mean_load = max(float(size.sum()), 1.0)
    tariff = Tariff(_MEAN_RATE / (mean_load / 1000), beta)
    return Scenario(Zone("readings", [bound] * homes), tariff, (theta,), f)


def _edges(bound: int) -> Ints:
    """Bins of readings that widen with them: 0, then about a fifth each; the last ends at bound."""
    edges = [0, 1]
    while edges[-1] <= bound:
        edges.append(min(edges[-1] + max(10, edges[-1] // 5), bound + 1))
        if edges[-1] == bound + 1:
            break
    return np.array(edges, np.int64)


def _bins(readings: NDArray[np.integer], edges: Ints) -> Int32s:
    """(sequences, T) of bin numbers, -1 where missing: a sequence is a day of a home."""
    capped = np.minimum(readings, edges[-1] - 1)
    bins = np.where(readings >= 0, np.searchsorted(edges, capped, side="right") - 1, -1)
    return np.moveaxis(bins, 1, 2).reshape(-1, readings.shape[1]).astype(np.int32)


def _fit_class(sequences: Int32s, slots: Int32s, groups: Int32s, bins: int) -> _Fit:
    values = sequences[sequences >= 0]
    ramp = 1 / (1 + np.exp(-(np.arange(bins) - (float(np.median(values)) if values.size else 0.0))))
    counts = np.bincount(values, minlength=bins) + 0.5
    emit = np.stack([counts * (1.2 - ramp), counts * (0.2 + ramp)])
    emit /= emit.sum(axis=1, keepdims=True)
    initial = np.array([0.5, 0.5])
    moves = np.tile([[0.85, 0.15], [0.15, 0.85]], (int(slots.max()) + 1, 1, 1))
    for _ in range(ROUNDS):
        one_group = np.zeros_like(groups)
        first, transitions, emissions = pooled_counts(
            sequences, slots, one_group, initial, moves, emit.T[None]
        )
        initial = (first + 1) / (first + 1).sum()
        share = (transitions + 1) / (transitions + 1).sum(axis=2, keepdims=True)
        moves = np.clip(share, _LEAST, 1 - _LEAST)
        emit = (emissions[0].T + 0.5) / (emissions[0].T + 0.5).sum(axis=1, keepdims=True)
    by_group = np.tile(emit.T, (int(groups.max()) + 1, 1, 1))
    _, _, emissions = pooled_counts(sequences, slots, groups, initial, moves, by_group)
    smoothed = emissions + _USUAL * emit.T
    return _Fit(initial, moves, np.moveaxis(smoothed / smoothed.sum(axis=1, keepdims=True), 1, 2))


def _order_states(fit: _Fit, edges: Ints) -> _Fit:
    """State 1 is the one with more use."""
    middles = (edges[:-1] + edges[1:] - 1) / 2
    low, high = (fit.emit @ middles).mean(axis=0)
    if low <= high:
        return fit
    return _Fit(fit.initial[::-1], fit.moves[:, ::-1, ::-1], fit.emit[:, ::-1])


def _law(emit: Floats, edges: Ints, bound: int) -> Histogram:
    """A bin's weight spread evenly over its Wh, and a little over all."""
    pmf = np.repeat(emit / np.diff(edges), np.diff(edges))
    return Histogram((1 - _SPREAD) * pmf + _SPREAD / (bound + 1))


class ReadingDay(NamedTuple):
    """Readings of one day.

    Attributes:
        readings: (T, houses): readings within the bounds [Wh].
        home: (T, houses): occupancy, or None where unknown.
    """

    readings: Int32s
    home: UInt8s | None

    @property
    def load(self) -> Ints:
        """The load of every step [Wh]."""
        return np.asarray(self.readings.sum(axis=1, dtype=np.int64))


class DaySource(Protocol):
    """Days of one or more zones."""

    @property
    def scenarios(self) -> Sequence[Scenario]:
        """The public models of each zone, or of each kind of day."""
        ...

    @property
    def digest(self) -> str:
        """Digest of everything the days follow from, except the caller's own choices."""
        ...

    def zone_of(self, number: int) -> int:
        """Which of the scenarios a day is of."""
        ...

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        ...

    def day(self, number: int) -> ReadingDay:
        """A day, the same for the same number."""
        ...


def digest_of(scenarios: Sequence[Scenario], *parts: bytes) -> str:
    """SHA-256 over the public models of zones, and more.

    Args:
        scenarios: The zones.
        parts: Further bytes.

    Returns:
        Hexadecimal digest.
    """
    h = sha256(b"hushgrid-worlds/2")
    for scenario in scenarios:
        h.update(world_digest(*scenario.terms).encode())
    for part in parts:
        h.update(part)
    return h.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """Zones in which the model is true, except for a common shock on all readings.

    Even rounds over the zones have readings times 1 + shock, odd ones times 1 - shock; readings
    stay within the contract bounds.

    Attributes:
        scenarios: The zones.
        seed: Seed of the simulation.
        shock: Relative size of the shock, from 0 to below 1.
        horizon: Steps of a day.

    Raises:
        PolicyError: If the shock is out of range.
    """

    scenarios: Sequence[Scenario]
    seed: int
    shock: float = 0.0
    horizon: int = paper.HORIZON

    def __post_init__(self) -> None:
        if not (is_real(self.shock) and 0 <= self.shock < 1):
            raise PolicyError(f"shock is {self.shock}; give a share from 0 to below 1.")

    @property
    def digest(self) -> str:
        """Of the zones; the seed and the shock are the caller's."""
        return digest_of(self.scenarios)

    def zone_of(self, number: int) -> int:
        """Day by day, zone by zone."""
        return number % len(self.scenarios)

    def day(self, number: int) -> ReadingDay:
        """Moved and drawn from the seed and the day's number."""
        scenario = self.scenarios[self.zone_of(number)]
        sign = 1 if number // len(self.scenarios) % 2 == 0 else -1
        bound = scenario.zone.bound
        readings = np.empty((self.horizon, len(bound)), np.int32)
        home = np.empty(readings.shape, np.uint8)
        for t, world in enumerate(simulate_steps(scenario, self.horizon, (self.seed, number))):
            wh = world.readings
            if self.shock:
                net = scale_wh(wh - scenario.zone.export, 1 + sign * self.shock, 2**31 - 1)
                wh = np.clip(net + scenario.zone.export, 0, bound)
            readings[t], home[t] = wh, world.occupancy
        return ReadingDay(readings, home)


def paper_world(
    sigma: float, seed: int, zones: int, shock: float = 0.0, n: int = paper.HOUSES
) -> Simulated:
    """The paper's zone, drawn several times.

    Args:
        sigma: Spread of the houses' chains.
        seed: Seed of the zones and of the days.
        zones: Number of zones.
        shock: Relative size of the common shock.
        n: Number of houses.

    Returns:
        The days.
    """
    scenarios = [paper.scenario(sigma, seed + zone, n) for zone in range(zones)]
    return Simulated(scenarios, seed, shock)


def large_world(seed: int, zones: int, shock: float = 0.0) -> Simulated:
    """The paper's zone with ten consumers five times a house, surely closed half of the day.

    Args:
        seed: Seed of the zones and of the days.
        zones: Number of zones.
        shock: Relative size of the common shock.

    Returns:
        The days.
    """
    scenarios = [paper.large_consumers(5, 0.5, 10, seed + zone) for zone in range(zones)]
    return Simulated(scenarios, seed, shock)


def survey_world(
    survey: Survey, seed: int, zones: int, shock: float = 0.0, n: int = paper.HOUSES
) -> Simulated:
    """Weekdays of houses that follow a survey's chains; one model of Theta for each source of it.

    The first source's model is true, consumption is the paper's, all household sizes are equally
    likely.

    Args:
        survey: The survey.
        seed: Seed of the zones and of the days.
        zones: Number of zones.
        shock: Relative size of the common shock.
        n: Number of houses.

    Returns:
        The days.
    """
    scenarios = [_survey_scenario(survey, seed + zone, n) for zone in range(zones)]
    return Simulated(scenarios, seed, shock)


def _survey_scenario(survey: Survey, seed: int, n: int) -> Scenario:
    rng = np.random.Generator(np.random.PCG64([seed, 11]))
    residents = rng.choice(survey.residents, n)
    theta = survey_models(survey, residents.tolist(), seconds=DAY // paper.HORIZON)
    f, bound = paper.uniform_houses(n, rng)
    return Scenario(Zone("survey", bound), paper.TARIFF, theta, f)


class Real(NamedTuple):
    """Whole local days of real readings.

    Attributes:
        meters: Their names.
        readings: (days, T, meters): readings [Wh], -1 where missing.
        date: (days,): number of the day; 0 is a Monday.
        month: (days,): from 1 to 12; None where it is not known.
    """

    meters: tuple[str, ...]
    readings: Int32s
    date: Ints
    month: Ints | None = None

    def of(self, meters: Sequence[str]) -> Real:
        """The same for these meters, in their order."""
        place = {name: index for index, name in enumerate(self.meters)}
        columns = [place[name] for name in meters]
        return self._replace(meters=tuple(meters), readings=self.readings[:, :, columns])

    def days(self, selection: slice) -> Real:
        """Some of the days."""
        month = None if self.month is None else self.month[selection]
        return Real(self.meters, self.readings[selection], self.date[selection], month)


def real_days(histories: Histories) -> Real:
    """The whole days of some histories; export counts as 0 Wh.

    A day is whole if local clocks had each of its steps once and some meter reported each of them.

    Args:
        histories: The histories.

    Returns:
        The days.
    """
    steps = histories.steps_a_day
    midnights = np.flatnonzero(histories.local_time % DAY == 0)
    index = midnights[midnights + steps <= len(histories.local_time)][:, None] + np.arange(steps)
    plain = (histories.local_time[index] % DAY == histories.seconds * np.arange(steps)).all(axis=1)
    complete = np.asarray(np.isfinite(histories.wh).any(axis=0))[index].all(axis=1)
    index = index[plain & complete]
    wh = np.moveaxis(histories.wh[:, index], 0, 2)
    readings = np.where(np.isfinite(wh), np.clip(wh, 0, 2**31 - 1), -1).astype(np.int32)
    utc_day = (histories.begins + histories.seconds * index[:, 0]) // DAY + _THURSDAY
    weekday = np.asarray(histories.local_time[index[:, 0]] // DAY, np.int64)
    date = utc_day + (weekday - utc_day + 3) % 7 - 3  # the local day nearest to that of UTC
    month = None if histories.month is None else histories.month[index[:, 0]]
    return Real(histories.ids, readings, date, month)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Days of real readings, and public models of the kinds of days there are.

    Attributes:
        scenarios: One for each kind of day.
        readings: (days, T, houses): readings [Wh].
        kind: (days,): index of the day's scenario.
        date: (days,): number of the day; 0 is a Monday.
        before: The days before them, from which the model was learned; None where none were given.
        published: What a home is known to use in a step by published figures [Wh]; 0: not given,
            and estimates follow the model.
    """

    scenarios: Sequence[Scenario]
    readings: Int32s
    kind: Ints  # (days,): which scenario
    date: Ints
    before: Recorded | None = None
    published: float = 0.0

    @classmethod
    def of(cls, scenario: Scenario, real: Real, before: Real | None = None) -> Recorded:
        """Days of a zone whose calendars begin on a Monday; missing readings are imputed.

        Args:
            scenario: The zone and its model; laws of each month need days with months.
            real: The days to compare on.
            before: Days before them.
        """
        steps = real.readings.shape[1]
        scenarios: dict[bytes, Scenario] = {}
        kind, starts = np.empty(len(real.date), np.int64), dict[tuple[int, int], Scenario]()
        for number, date in enumerate(real.date.tolist()):
            month = 1 if real.month is None else int(real.month[number])
            today = starts.get((month, date % 7))
            if today is None:
                today = scenario.of_month(month, steps).starting(date % 7 * steps)
                starts[month, date % 7] = today
            scenarios.setdefault(slots := _slots(today, steps), today)
            kind[number] = list(scenarios).index(slots)
        readings = np.array(real.readings)
        for index, today in enumerate(scenarios.values()):
            readings[kind == index] = imputed(readings[kind == index], today)
        earlier = None if before is None else cls.of(scenario, before)
        return cls(tuple(scenarios.values()), readings, kind, real.date, earlier)

    def with_usual(self, published: float) -> Recorded:
        """The days where estimates follow releases alone, about the public load shape.

        Args:
            published: What a home is known to use in a step by published figures [Wh].
        """
        scenarios = [
            replace(kind, consumption=replace(kind.consumption, shape=LoadShape()))
            if kind.consumption.shape is None
            else kind
            for kind in self.scenarios
        ]
        return replace(self, scenarios=scenarios, published=published)

    @property
    def usual(self) -> Floats | None:
        """(2, T): mean loads [Wh] of the days before, on weekdays and weekends; None without any.

        Of all days before where one kind is absent.
        """
        if self.before is None:
            return None
        loads, weekend = self.before.readings.sum(axis=2, dtype=np.float64), self.before.weekend
        parts = [loads[~weekend], loads[weekend]]
        return np.array([(group if len(group) else loads).mean(axis=0) for group in parts])

    def date_of(self, number: int) -> int:
        """The date of a recorded day; below 0: of the days before."""
        if number < 0 and self.before is not None:
            return self.before.date_of(len(self.before.date) + number)
        return int(self.date[number])

    def is_weekend(self, number: int) -> bool:
        """Whether a day is a Saturday or a Sunday."""
        return self.date_of(number) % 7 >= SATURDAY

    def following(self, number: int) -> int | None:
        """The day after a day; None where that is not recorded."""
        consecutive = number + 1 < len(self.date) and self.date[number + 1] == self.date[number] + 1
        return number + 1 if consecutive else None

    @property
    def weekend(self) -> Bools:
        """(days,): whether a day is a Saturday or a Sunday."""
        return np.asarray(self.date % 7 >= SATURDAY)

    @property
    def digest(self) -> str:
        """Of the models and the readings."""
        return digest_of(self.scenarios, self.readings.tobytes(), self.kind.tobytes())

    @property
    def horizon(self) -> int:
        """Steps of a day."""
        return int(self.readings.shape[1])

    def zone_of(self, number: int) -> int:
        """The kind of a day; of days before, that of the first recorded day of their weekday."""
        if number < 0 and self.before is not None:
            matches = np.flatnonzero(self.date % 7 == self.date_of(number) % 7)
            return int(self.kind[matches[0]]) if len(matches) else 0
        self._check(number)
        return int(self.kind[number])

    def day(self, number: int) -> ReadingDay:
        """A recorded day, readings cut at the contract bounds; below 0: of the days before."""
        if number < 0 and self.before is not None:
            return self.before.day(len(self.before.date) + number)
        self._check(number)
        bound = self.scenarios[0].zone.bound
        return ReadingDay(np.clip(self.readings[number], 0, bound).astype(np.int32), None)

    def _check(self, number: int) -> None:
        if not 0 <= number < len(self.readings):
            raise PolicyError(
                f"day {number} is asked of {len(self.readings)} recorded days; ask for fewer days."
            )


def _slots(scenario: Scenario, steps: int) -> bytes:
    """The calendars' slots on a day: days of equal slots are of one kind."""
    calendars = [*(model.calendar for model in scenario.models), scenario.consumption.calendar]
    return b"".join(
        c.slots[np.arange(steps) % len(c.slots)].astype("<i4").tobytes() for c in calendars
    )
