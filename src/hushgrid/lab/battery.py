"""Battery load hiding at one house, and the attacker at its meter.

The meter sees the grid draw, not the use. These rules have no privacy parameter and no proof; they
are judged by the attacker's AUC, against the energy moved through the battery and its size. The
attacker may simulate the house, its habits and its battery as often as it likes: it fits a logistic
curve to the draws around a step and the public probability of occupancy. Arrays are (T, ...): any
number of houses and days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Floats, Ints
from hushgrid.belief.filter import chances_at_home
from hushgrid.errors import PolicyError
from hushgrid.lab.methods import part_of
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import Scenario
from hushgrid.statistics import Summary, mean_auc, summarise


@dataclass(frozen=True, slots=True, eq=False)
class Battery:
    """A battery, half full at first.

    Attributes:
        capacity: Energy it holds [Wh].
        power: Largest energy in or out in a step [Wh].

    Raises:
        PolicyError: If either is below 1 Wh.
    """

    capacity: Ints
    power: Ints

    def __post_init__(self) -> None:
        for name in ("capacity", "power"):
            value = np.asarray(getattr(self, name), np.int64)
            if not (value >= 1).all():
                raise PolicyError(f"battery {name} is below 1 Wh; give whole Wh, 1 or more.")
            object.__setattr__(self, name, value)

    @classmethod
    def sized(cls, bound: NDArray[Any], size: float) -> Battery:
        """Capacity `size` and power `POWER` times each house's bound [Wh], at least 1 Wh."""
        return cls(*(np.maximum(part * bound, 1).astype(np.int64) for part in (size, POWER)))


class Hidden(NamedTuple):
    """A trace behind a battery.

    Attributes:
        draw: (T, ...): energy drawn from the grid [Wh].
        charge: (T, ...): charge after each step [Wh].
        moved: (...): energy moved in or out [Wh].
    """

    draw: Ints
    charge: Ints
    moved: Ints


Rule = Callable[[Ints, Ints, Ints, Ints, Ints, Floats], Ints]
"""(use, last draw, least draw, most draw, charge, uniform numbers) -> the draw wanted."""


def best_effort(use: Ints, last: Ints, *_: object) -> Ints:
    """Keep the last grid draw as long as the battery can (Kalogridis et al. 2010).

    Args:
        use: Energy used [Wh]; ignored.
        last: The last draw [Wh].

    Returns:
        The draw wanted [Wh].
    """
    del use
    return last


@dataclass(frozen=True, slots=True, eq=False)
class Stepping:
    """Draw whole multiples of a step, and keep the last one while the battery allows it.

    After Yang et al. 2012: only the moments at which the multiple changes are seen.

    Attributes:
        step: The step [Wh].
    """

    step: Ints

    def __call__(self, use: Ints, last: Ints, floor: Ints, ceiling: Ints, *_: object) -> Ints:
        """The last multiple where it fits, else the one nearest to what is used."""
        low, high = -(-floor // self.step), ceiling // self.step  # multiples that fit
        fits = (floor <= last) & (last <= ceiling) & (last % self.step == 0)
        multiple = np.clip((2 * use + self.step) // (2 * self.step), low, np.maximum(low, high))
        return np.where(fits, last, multiple * self.step)


@dataclass(frozen=True, slots=True, eq=False)
class RandomCharging:
    """Charge at full power with probability 1 - charge/capacity, else serve from the battery.

    Attributes:
        capacity: Of the battery [Wh].
    """

    capacity: Ints

    def __call__(
        self, use: Ints, last: Ints, floor: Ints, ceiling: Ints, charge: Ints, u: Floats
    ) -> Ints:
        """The largest or the smallest draw, at random."""
        del use, last
        return np.where(u < 1 - charge / self.capacity, ceiling, floor)


def hide(use: ArrayLike, battery: Battery, rule: Rule, uniforms: Floats) -> Hidden:
    """Send a trace through a battery; nothing is ever sold to the grid.

    Args:
        use: (T, ...): energy used [Wh].
        battery: The battery.
        rule: How the draw is chosen.
        uniforms: (T, ...): random numbers in 0..1.

    Returns:
        Draws, charges and the energy moved.

    >>> flat = hide(np.array([10, 30, 10, 30]), Battery(40, 20), best_effort, np.zeros(4))
    >>> flat.draw.tolist(), flat.charge.tolist()
    ([10, 10, 10, 30], [20, 0, 0, 0])
    """
    x = np.asarray(use, np.int64)
    charge = np.broadcast_to(battery.capacity // 2, x.shape[1:]).astype(np.int64)
    last, draws, charges = x[0], [], []
    energy = np.zeros(x.shape[1:], np.int64)
    for need, u in zip(x, uniforms, strict=True):
        floor = np.maximum(need - np.minimum(battery.power, charge), 0)
        ceiling = need + np.minimum(battery.power, battery.capacity - charge)
        draw = np.clip(rule(need, last, floor, ceiling, charge, u), floor, ceiling)
        charge = charge + draw - need
        energy = energy + np.abs(draw - need)
        draws.append(draw)
        charges.append(charge)
        last = draw
    return Hidden(np.array(draws), np.array(charges), energy)


RULES: Mapping[str, Callable[[Battery], Rule]] = {
    "battery_besteffort": lambda battery: best_effort,  # noqa: ARG005
    "battery_stepping": lambda battery: Stepping(battery.power),
    "battery_random": lambda battery: RandomCharging(battery.capacity),
}
LABELS = {
    "battery_besteffort": "battery, best effort",
    "battery_stepping": "battery, stepping",
    "battery_random": "battery, random charging",
}
NO_PROMISE = "none: a battery has no privacy parameter and no proof; judged by the attacker alone"


_LAGS = 6  # steps before and after


def features(draws: Floats, odds: Floats) -> Floats:
    """Features of the attacker's regression.

    Args:
        draws: (T, days): draws in units of the bound.
        odds: (T,): prior log odds of occupancy.

    Returns:
        (T * days, columns): the features.
    """
    series = np.pad(draws, ((_LAGS, _LAGS), (0, 0)), mode="edge")
    horizon = len(draws)
    lags = [series[lag : lag + horizon] for lag in range(2 * _LAGS + 1)]
    centre, change = draws, np.abs(np.diff(series, axis=0))
    moves = [change[lag : lag + horizon] for lag in range(_LAGS - 2, _LAGS + 2)]
    window = np.array(lags)
    shape = [window.mean(axis=0), window.max(axis=0), window.min(axis=0), window.std(axis=0)]
    kinks = [centre**2, (centre > 0.25) * 1.0, (centre > 0.5) * 1.0, (centre == 0) * 1.0]
    prior = np.broadcast_to(odds[:, None], draws.shape)
    columns = [np.ones_like(draws), prior, *lags, *moves, *shape, *kinks]
    columns += [prior * centre, prior * shape[0]]
    return np.stack([column.ravel() for column in columns], axis=1)


def fit(x: Floats, y: Floats, penalty: float = 1.0, rounds: int = 12) -> tuple[Floats, Floats]:
    """Ridge logistic regression, by Newton's method.

    Args:
        x: (rows, columns): features.
        y: (rows,): 0 or 1.
        penalty: Ridge penalty.
        rounds: Newton steps.

    Returns:
        Weights and column scales, (columns,) each.
    """
    scale = np.maximum(np.abs(x).max(axis=0), 1e-9)
    z = x / scale
    w = np.zeros(z.shape[1])
    for _ in range(rounds):
        p = 1 / (1 + np.exp(-np.clip(z @ w, -30, 30)))
        slope = z.T @ (y - p) - penalty * w
        bend = (z * (p * (1 - p))[:, None]).T @ z + penalty * np.eye(len(w))
        w = w + np.linalg.solve(bend, slope)
    return w, scale


def meter_auc(
    train: Floats, train_home: Floats, test: Floats, test_home: Floats, odds: Floats
) -> float:
    """AUC on unseen days of an attacker trained on others.

    Args:
        train: (T, days): draws of the training days, in units of the bound.
        train_home: (T, days): their occupancy.
        test: (T, days): draws of the test days.
        test_home: (T, days): their occupancy.
        odds: (T,): prior log odds of occupancy.

    Returns:
        The AUC.
    """
    w, scale = fit(features(train, odds), train_home.ravel())
    return mean_auc((features(test, odds) / scale @ w)[:, None], test_home.reshape(-1, 1))


SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)  # capacity, in a house's bound (a full step of use)
POWER = 0.5  # in or out a step, in a house's bound


class BatteryScore(NamedTuple):
    """A battery rule at a size.

    Attributes:
        name: The rule; `open` or `prior` without a battery.
        size: Capacity in units of a house's bound.
        auc: The attacker's AUC over the houses.
        moved: Energy moved as a share of the use.
    """

    name: str
    size: float
    auc: Summary
    moved: float


def battery_scores(
    readings: NDArray[np.integer],
    home: NDArray[np.integer],
    bound: NDArray[np.integer],
    model: OccupancyModel,
    *,
    seed: int,
    sizes: Sequence[float] = SIZES,
    tick: Callable[[], Any] = lambda: None,
) -> list[BatteryScore]:
    """Score every rule and size; the attacker is trained on two thirds of the days.

    Two rows have no battery: `open`, the meter as it is, and `prior`, the public model alone.

    Args:
        readings: (days, T, houses): energy used [Wh].
        home: (days, T, houses): occupancy.
        bound: (houses,): contract bounds [Wh].
        model: The public occupancy model.
        seed: Seed of random charging.
        sizes: Capacities in units of a house's bound.
        tick: Called after each rule and size.

    Returns:
        The scores.
    """
    days, horizon, houses = readings.shape
    split = max(1, days * 2 // 3)
    use = np.moveaxis(readings, 0, 2).astype(np.int64)  # (T, houses, days)
    occupancy = np.moveaxis(home, 0, 2).astype(np.float64)
    odds = prior_odds(model, horizon)
    units = np.maximum(bound.astype(np.float64), 1.0)

    def score(draw: Floats) -> Summary:
        aucs = [
            meter_auc(
                draw[:, h, :split] / units[h],
                occupancy[:, h, :split],
                draw[:, h, split:] / units[h],
                occupancy[:, h, split:],
                odds[:, h],
            )
            for h in range(houses)
        ]
        return summarise([auc for auc in aucs if np.isfinite(auc)])

    guess = np.repeat(odds, days - split, axis=0)  # the same every day
    prior_aucs = [
        mean_auc(guess[:, [h]], occupancy[:, h, split:].reshape(-1, 1)) for h in range(houses)
    ]
    rows = [
        BatteryScore("open", 0.0, score(use.astype(np.float64)), 0.0),
        BatteryScore("prior", 0.0, summarise([auc for auc in prior_aucs if np.isfinite(auc)]), 0.0),
    ]
    for name, rule in RULES.items():
        for size in sizes:
            battery = Battery.sized(units[:, None], size)
            coins = np.random.Generator(np.random.PCG64([seed, 5])).random(use.shape)
            trace = hide(use, battery, rule(battery), coins)
            energy = float(trace.moved.sum() / max(int(use.sum()), 1))
            rows.append(BatteryScore(name, size, score(trace.draw.astype(np.float64)), energy))
            tick()
    return rows


def score_zone(
    scenario: Scenario,
    days: Sequence[Any],
    *,
    houses: int,
    seed: int,
    tick: Callable[[], Any] = lambda: None,
) -> list[BatteryScore]:
    """Scores for some houses of a zone, evenly chosen.

    Args:
        scenario: The zone and its models.
        days: Days with `readings` and `home`, (T, houses) each.
        houses: Largest number of houses.
        seed: Seed of random charging.
        tick: Called after each rule and size.

    Returns:
        The scores.
    """
    n = scenario.zone.n_houses
    sample = np.unique(np.linspace(0, n - 1, min(houses, n)).astype(np.int64))
    part = part_of(scenario, sample)
    readings = np.stack([day.readings[:, sample] for day in days])
    home = np.stack([day.home[:, sample] for day in days])
    return battery_scores(readings, home, part.zone.bound, part.models[0], seed=seed, tick=tick)


def prior_odds(model: OccupancyModel, horizon: int) -> Floats:
    """Prior log odds of being at home.

    Args:
        model: The occupancy model.
        horizon: Number of steps T.

    Returns:
        (T, houses): log odds.
    """
    home = np.clip(chances_at_home(model, horizon), 1e-9, 1 - 1e-9)
    return np.asarray(np.log(home / (1 - home)))
