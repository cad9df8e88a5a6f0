"""A zone in Gymnasium (extra `gym`): spend a privacy budget on prices, or charge a car at them.

Importing this module registers the ids `PRICES` and `CAR`, so that `gymnasium.make` makes them with
a street of 200 homes; arguments of the classes give other zones. Observations, actions and bounds
are float32 and finite, and an environment can be pickled where what it was made with can be. Noise
has a seed, so what is published here protects no one.

>>> import gymnasium
>>> env = gymnasium.make(CAR)
>>> seen, _ = env.reset(seed=1)
>>> env.observation_space.contains(seen)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from hushgrid._numbers import Floats
from hushgrid.errors import PolicyError
from hushgrid.lab.cosimulation import Demand, Pricing
from hushgrid.lab.flexible import Flexibility, PriceMemory, Vehicles
from hushgrid.lab.loop import street
from hushgrid.mechanism.policy import Policy
from hushgrid.mechanism.release import PreparedNoise, skip, step
from hushgrid.model.occupancy import STEPS_PER_DAY as DAY
from hushgrid.model.zone import Scenario, optimal_rate, relative_to

PRICES, CAR = "hushgrid/PriceSetting-v0", "hushgrid/CarCharging-v0"
RATIO = 10.0  # times the usual price, beyond which a price is observed as this

Observation = NDArray[np.float32]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


@cache
def _street() -> Scenario:
    return street(200, 1)


def street_homes(seed: int) -> Demand:
    """The homes of a street of 200.

    Args:
        seed: Seed of the homes.

    Returns:
        The homes.
    """
    return Demand(_street(), Flexibility(), seed)


def three_days(seed: int) -> Floats:
    """Prices that are lowest in the morning, at a level of their own [currency/kWh].

    Args:
        seed: Seed of the level.

    Returns:
        Prices of three days, (288,).
    """
    day = 0.3 - 0.1 * np.sin(np.arange(3 * DAY) * 2 * np.pi / DAY)
    return np.asarray(day * np.random.default_rng(seed).uniform(0.8, 1.2, day.size), np.float64)


def _share(action: Any) -> float:
    """The share of an action; beyond 0 to 1 it is cut.

    Raises:
        PolicyError: If it is not one finite number.
    """
    share = np.asarray(action, np.float64).ravel()
    if share.size != 1 or not np.isfinite(share).all():
        raise PolicyError(f"action is {action}; give one share from 0 to 1.")
    return float(np.clip(share[0], 0, 1))


def _space(low: Sequence[float]) -> Box:
    """Observations: a price over the usual one, then figures up to 1."""
    top = np.array([RATIO, 1, 1, 1], np.float32)
    return Box(np.array(low, np.float32), top, dtype=np.float32)


def _clip(space: Box, figures: Sequence[float]) -> Observation:
    return np.clip(np.array(figures, np.float32), space.low, space.high)


class PriceSetting(gymnasium.Env[Observation, Observation]):  # type: ignore[misc,unused-ignore]
    """Spend a privacy budget on the prices of a day.

    The action is the share of the policy's epsilon that the next release may spend, from 0 to 1; 0
    publishes the last price again. Each release is calibrated and booked by the mechanism, and one
    that the budget does not allow is not made. Observed are public figures alone: the last price
    over the usual one, the share of the budget left, and the time of day as sine and cosine. The
    reward is the mismatch cost of the step, over that of a price that is wrong by its whole, below
    0; it uses the true load, as only a simulation can.

    Args:
        demand: From a seed to the homes.
        policy: Eta, rules and the largest epsilon of a release; None: an epsilon of 1, for a day.
        budget: Sum of epsilon over an episode.
        days: Days of an episode.

    Raises:
        PolicyError: If the budget is not above 0, or the policy has blocks of steps.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = _space([-RATIO, 0, -1, -1])
    action_space = Box(0.0, 1.0, (1,), np.float32)

    def __init__(
        self,
        demand: Callable[[int], Demand] = street_homes,
        policy: Policy | None = None,
        budget: float = 24.0,
        days: int = 1,
    ) -> None:
        self._policy = Policy(1.0, DAY) if policy is None else policy
        if not budget > 0:
            raise PolicyError(f"budget is {budget}; give an epsilon above 0.")
        if self._policy.schedule.lengths:
            raise PolicyError("the policy has blocks of steps; give one without.")
        self._demand, self._budget, self._days = demand, float(budget), days

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of this and the next episodes.
            options: Not used.

        Returns:
            The observation, and nothing more.
        """
        super().reset(seed=seed, options=options)
        number = int(self.np_random.integers(2**31))
        self._homes = self._demand(number)
        self._pricing = Pricing(self._homes.scenario, self._policy, number)
        self._price, self._remaining = self._homes.usual, self._budget
        return self._observation(), {}

    def step(self, action: Any) -> Step:
        """One interval.

        Args:
            action: Share of the policy's epsilon, from 0 to 1.

        Returns:
            Observation, reward, False, whether the episode is over, and the epsilon and price.

        Raises:
            PolicyError: If the action is not one finite number.
        """
        share, pricing = _share(action), self._pricing
        readings, state = self._homes.step(self._price), pricing.state
        loss = 0.0
        if share > 0:
            calibration = state.scheduler.at(state.t, state.rates, share * self._policy.epsilon)
            if calibration.epsilon <= self._remaining:
                loss = calibration.epsilon
                k = pricing.noise.draw(calibration.scale)
                prepared = PreparedNoise(state.t, state.digest, calibration, k, True)
                release, pricing.state = step(state, pricing.tally(readings), prepared)
                self._price = release.rate
        if not loss:
            pricing.state = skip(state, self._price)
        self._remaining -= loss
        load = int(readings.sum(dtype=np.int64)) + state.tariff.offset
        optimal = np.array(optimal_rate(float(load), state.tariff))
        reward = -float(((self._price - optimal) / relative_to(optimal, state.tariff)) ** 2)
        finished = pricing.state.t > min(self._days * DAY, self._policy.horizon)
        info = {"epsilon": loss, "price": self._price}
        return self._observation(), reward, False, finished, info

    def _observation(self) -> Observation:
        angle = 2 * np.pi * ((self._pricing.state.t - 1) % DAY) / DAY
        ratio, remaining = self._price / self._homes.usual, self._remaining / self._budget
        return _clip(self.observation_space, (ratio, remaining, np.sin(angle), np.cos(angle)))


class CarCharging(gymnasium.Env[Observation, Observation]):  # type: ignore[misc,unused-ignore]
    """Charge one car at published prices, from its arrival on.

    The action is the share of the charger's power; a car that would not be full in time charges
    anyway. Observed are the price over the mean of the last day, the energy left and the time left
    as shares of what they were, and how many of the next steps of the forecast are cheaper. The
    reward is minus the cost over that of charging at once at the usual price.

    Args:
        prices: From a seed to the prices of three days, (288,).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = _space([-RATIO, 0, 0, 0])
    action_space = Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, prices: Callable[[int], Sequence[float] | Floats] = three_days) -> None:
        self._prices_of = prices

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; one day passes before the car arrives.

        Args:
            seed: Seed of this and the next episodes.
            options: Not used.

        Returns:
            The observation, and nothing more.
        """
        super().reset(seed=seed, options=options)
        self._prices = [float(p) for p in self._prices_of(int(self.np_random.integers(2**31)))]
        level = float(np.mean(self._prices[:DAY]))
        self._memory = PriceMemory(np.full(DAY, level), level)
        self._car = Vehicles(np.ones(1, np.bool_), np.zeros(1, np.intp), self.np_random)
        self._car.new_day(DAY, self.np_random)
        self._t = int(self._car.arrive[0])
        for price in self._prices[: self._t]:
            self._memory.note(price)
        self._all, self._last = float(self._car.energy[0]), int(self._car.depart[0])
        self._first, self._level = self._t, level
        return self._observation(self._all), {}

    def step(self, action: Any) -> Step:
        """One interval.

        Args:
            action: Share of the charger's power, from 0 to 1.

        Returns:
            Observation, reward, whether the car is full or has left, False, and the energy drawn.

        Raises:
            PolicyError: If the action is not one finite number.
        """
        share, price = np.array([_share(action)]), self._prices[self._t]
        energy = float(self._car.step(self._t, self._memory.market(price), share)[0])
        self._memory.note(price)
        self._t += 1
        remaining = float(self._car.deficit[0])
        reward = -energy * price / (self._all * self._level)
        finished = remaining <= 0 or self._t >= self._last
        return self._observation(remaining), reward, finished, False, {"wh": energy}

    def _observation(self, remaining: float) -> Observation:
        market = self._memory.market(self._prices[self._t])
        window = self._last - self._t
        cheaper = market.cheaper[max(window - 1, 0)] / max(window, 1)
        part = window / (self._last - self._first)
        ratio = market.price / market.usual
        return _clip(self.observation_space, (ratio, remaining / self._all, part, cheaper))


gymnasium.register(PRICES, PriceSetting)
gymnasium.register(CAR, CarCharging)
