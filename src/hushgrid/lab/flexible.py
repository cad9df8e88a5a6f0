"""Homes whose devices react to prices: cars, heat pumps, batteries with solar panels, appliances.

Arrays hold one entry a device. What homes want (arrivals, energy, requests, clouds) depends on the
seed and the day alone, so homes under different prices want the same (common random numbers). A
rule turns the price into a wish from 0 to 1: 1 asks for energy now, 0 for as little as the needs
allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Floats, Indices, Int32s, UInt8s, is_real
from hushgrid.errors import ConsumptionError
from hushgrid.model.consumption import Elasticity
from hushgrid.model.occupancy import STEPS_PER_DAY as DAY
from hushgrid.planning.stability import HYSTERESIS

Rule = Literal["none", "follow", "threshold", "plan"]
RULES: tuple[Rule, ...] = get_args(Rule)
MIXED = "mixed"  # every automated home draws one of the rules that react
HOURS = 24 / DAY  # of a step
_OWNERS, _DAY = range(2)  # what a random stream is for

DEADBAND = 0.5  # of a thermostat [deg C] (Callaway 2009)
SET_POINT, COMFORT = 20.0, 1.0  # [deg C]: the set point, and how far from it is comfortable
MIN_RUN = 2  # steps between two turns of a threshold device


@dataclass(frozen=True, slots=True)
class Flexibility:
    """How much of a zone's demand is flexible, and how devices choose their time.

    Attributes:
        vehicles: Share of homes with an electric car.
        thermostats: Share of homes with a heat pump.
        batteries: Share of homes with solar panels and a battery.
        appliances: Share of homes with a deferrable appliance.
        automation: Share of homes whose devices react to prices by themselves.
        rule: How these devices react: `follow` the price in force, `threshold` with hysteresis and
            a least run time, `plan` on the forecast, `none`, or `mixed`.
        elasticity: Own-price elasticity of everything else, 0 or more: people.

    Raises:
        ConsumptionError: If a value is out of range.
    """

    vehicles: float = 0.3
    thermostats: float = 0.15
    batteries: float = 0.1
    appliances: float = 0.8
    automation: float = 0.5
    rule: str = MIXED
    elasticity: float = 0.05

    def __post_init__(self) -> None:
        for name in ("vehicles", "thermostats", "batteries", "appliances", "automation"):
            value = getattr(self, name)
            if not (is_real(value) and 0 <= value <= 1):
                raise ConsumptionError(f"{name} is {value}; give a share from 0 to 1.")
        if self.rule not in (*RULES, MIXED):
            raise ConsumptionError(
                f"rule is {self.rule!r}; give one of {', '.join((*RULES, MIXED))}."
            )
        if not (is_real(self.elasticity) and self.elasticity >= 0):
            raise ConsumptionError(f"elasticity is {self.elasticity}; give 0 or more.")


class Market(NamedTuple):
    """What devices know of prices at one step.

    Attributes:
        price: The price in force [currency/kWh].
        usual: Mean of the prices in force over the last day [currency/kWh].
        cheaper: Number of steps with a lower price among the next k of the forecast, for k from 0
            to a day's steps, (97,).
    """

    price: float
    usual: float
    cheaper: Indices

    @classmethod
    def of(cls, price: float, usual: float, forecast: Floats) -> Market:
        """The market of a price and the forecast of the steps after it, (96,)."""
        return cls(price, usual, np.concatenate([[0], np.cumsum(forecast < price)]))


_KEEP = 0.7  # of a slot's forecast from one day to the next


class PriceMemory:
    """The prices that devices have seen: the mean of the last day, and a forecast by time of day.

    Args:
        usual: Prices by slot of a day before any was seen, (96,) [currency/kWh].
        level: Their mean [currency/kWh].
    """

    def __init__(self, usual: Floats, level: float) -> None:
        self.profile, self._level, self.prices = np.array(usual, np.float64), level, list[float]()

    def market(self, price: float, coming: Sequence[float] = ()) -> Market:
        """What devices know at a price of the next step, and where they are listed those after."""
        last = self.prices[-DAY:]
        usual = (sum(last) + self._level * (DAY - len(last))) / DAY
        forecast = np.roll(self.profile, -(len(self.prices) % DAY) - 1)
        forecast[: len(coming)] = coming[:DAY]
        return Market.of(price, usual, forecast)

    def note(self, price: float) -> None:
        """Keep the price of the step."""
        slot = len(self.prices) % DAY
        self.profile[slot] += (1 - _KEEP) * (price - self.profile[slot])
        self.prices.append(price)


class _Devices:
    """One kind of device, in the homes that have it."""

    def __init__(self, has: Bools, rule: NDArray[np.intp], rng: np.random.Generator) -> None:
        self.home: NDArray[np.intp] = np.flatnonzero(has)
        n, rules = len(self.home), rule[self.home]
        self.of_rule = [np.flatnonzero(rules == number) for number in range(len(RULES))]
        # assumed: no two homes are set the same
        self.sensitivity = rng.uniform(2.0, 6.0, n)
        self.threshold = rng.uniform(HYSTERESIS, 0.12, n)  # above the usual price
        self.eager, self.run_length = np.ones(n, np.bool_), np.full(n, MIN_RUN)
        self.on, self.switches = np.zeros(n, np.int8), np.zeros(n, np.int64)

    def wish(self, market: Market, usual: float, need: Any, window: Any) -> Floats:
        """(n,): from 0 to 1. `usual` without a rule; `plan` needs so many steps of a window."""
        shares = np.full(len(self.home), usual)
        relative = market.price / market.usual - 1 if market.usual > 0 else 0.0
        _, follow, threshold, plan = self.of_rule
        if len(follow):
            shares[follow] = np.clip(0.5 - self.sensitivity[follow] * relative, 0.0, 1.0)
        if len(threshold):
            excess = relative - self.threshold[threshold]
            previous = self.eager[threshold]
            switching = np.where(previous, excess > HYSTERESIS, excess < -HYSTERESIS)
            switching &= self.run_length[threshold] >= MIN_RUN
            self.eager[threshold] = previous ^ switching
            self.run_length[threshold] = np.where(switching, 1, self.run_length[threshold] + 1)
            shares[threshold] = self.eager[threshold]
        if len(plan):
            slots = np.broadcast_to(window, len(shares))[plan].clip(1, DAY) - 1
            shares[plan] = market.cheaper[slots] < np.broadcast_to(need, len(shares))[plan]
        return shares

    def turn(self, on: NDArray[Any]) -> None:
        """Count the devices that changed between off and on, or charging and discharging."""
        self.switches += on != self.on
        self.on = on.astype(np.int8)


class Vehicles(_Devices):
    """Cars at 3.7 or 7.4 kW that come home in the evening and leave in the morning (assumed).

    `plan` charges in the cheapest steps of the forecast before the departure: the least cost of a
    constant power. A car that would not be full in time charges whatever the price.
    """

    def __init__(self, has: Bools, rule: NDArray[np.intp], rng: np.random.Generator) -> None:
        super().__init__(has, rule, rng)
        n = len(self.home)
        self.power = np.where(rng.random(n) < 0.5, 3700.0, 7400.0) * HOURS  # [Wh] a step
        self.deficit, self.departure = np.zeros(n), np.zeros(n, np.int64)
        self.unmet = np.zeros(n)  # [Wh] lacking at departures

    def new_day(self, t: int, rng: np.random.Generator) -> None:
        """Draw arrivals, departures and energy: 8 kWh a day in the mean, what is feasible."""
        n = len(self.home)
        self.arrive = t + np.clip(np.rint(rng.normal(72, 8, n)), 52, DAY - 1).astype(np.int64)
        self.depart = t + DAY + np.clip(np.rint(rng.normal(30, 4, n)), 16, 48).astype(np.int64)
        self.energy = np.minimum(rng.gamma(2, 4000.0, n), self.power * (self.depart - self.arrive))

    def step(self, t: int, market: Market, share: Floats | None = None) -> Floats:
        """(n,): the energy of step t [Wh], by the rules or as wished."""
        leaving = self.departure == t
        self.unmet[leaving] += self.deficit[leaving]
        self.deficit[leaving] = 0.0
        arriving = self.arrive == t
        self.deficit[arriving] = self.energy[arriving]
        self.departure[arriving] = self.depart[arriving]
        window = self.departure - t
        wish = self.wish(market, 1.0, self.deficit / self.power, window) if share is None else share
        must = self.deficit - self.power * (window - 1)
        use = np.minimum(self.deficit, np.clip(must, self.power * wish, self.power))
        self.deficit -= use
        self.turn(use > 0)
        return use


class Thermostats(_Devices):
    """Heat pumps and the homes they heat, a thermal resistance and a capacitance each.

    R = 2 deg C/kW, C = 10 kWh/deg C, 14 kW of heat at a coefficient of performance of 2.5 and the
    dead band are Callaway's (2009, "Tapping the energy storage potential in electric loads", there
    for cooling), with R and C uniform within 20 % of them. The weather is assumed: 5 deg C, four
    more at 15:00 and four less at 3:00. A wish moves the set point within the comfort band.
    """

    heat, performance = 14.0, 2.5  # [kW], electric power is their ratio
    energy = 1000 * heat / performance * HOURS  # [Wh] a step

    def __init__(self, has: Bools, rule: NDArray[np.intp], rng: np.random.Generator) -> None:
        super().__init__(has, rule, rng)
        n = len(self.home)
        self.resistance, capacity = 2 * rng.uniform(0.8, 1.2, n), 10 * rng.uniform(0.8, 1.2, n)
        self.keeps = np.exp(-HOURS / (self.resistance * capacity))
        self.inside = SET_POINT + rng.uniform(-DEADBAND / 2, DEADBAND / 2, n)
        self.discomfort = np.zeros(n)  # [deg C h] outside of the comfort band

    def step(self, t: int, market: Market) -> Floats:
        """(n,): the energy of step t [Wh]."""
        wish = self.wish(market, 0.5, 4, 8)  # heats in the cheaper half of the next two hours
        centre = SET_POINT + (COMFORT - DEADBAND / 2) * (2 * wish - 1)
        stay = (self.on > 0) & (self.inside < centre + DEADBAND / 2)
        on = stay | (self.inside < centre - DEADBAND / 2)
        outside = 5 + 4 * np.cos(2 * np.pi * (t % DAY - 60) / DAY)
        end = outside + self.resistance * self.heat * on
        self.inside = end + (self.inside - end) * self.keeps
        self.discomfort += HOURS * np.maximum(np.abs(self.inside - SET_POINT) - COMFORT, 0)
        self.turn(on)
        return np.asarray(self.energy * on)


class Appliances(_Devices):
    """One washing cycle a day: 1.2 kWh in an hour, within eight hours of the request (assumed).

    The request comes at the first interval at home after a time around 19:00.
    """

    energy, steps, patience = 300.0, 4, 32  # [Wh] a step, steps of a cycle, of patience

    def __init__(self, has: Bools, rule: NDArray[np.intp], rng: np.random.Generator) -> None:
        super().__init__(has, rule, rng)
        n = len(self.home)
        self.ask = np.full(n, -1)
        self.deadline, self.running = np.full(n, -1), np.zeros(n, np.int64)

    def new_day(self, t: int, rng: np.random.Generator) -> None:
        """Draw when each is asked for."""
        request = np.clip(np.rint(rng.normal(76, 12, len(self.home))), 24, DAY - 1)
        self.ask = t + request.astype(np.int64)

    def step(self, t: int, market: Market, occupancy: UInt8s) -> Floats:
        """(n,): the energy of step t [Wh]."""
        idle = (self.deadline < 0) & (self.running == 0)
        request = idle & (self.ask >= 0) & (self.ask <= t) & (occupancy[self.home] > 0)
        self.deadline[request], self.ask[request] = t + self.patience, -1
        waiting = self.deadline >= 0
        wish = self.wish(market, 1.0, 1, self.deadline - t)
        start = waiting & ((wish > 0.5) | (self.deadline <= t))
        self.running[start], self.deadline[start] = self.steps, -1
        on = self.running > 0
        self.running -= on
        self.turn(on)
        return np.asarray(self.energy * on)


class Batteries(_Devices):
    """Ten kWh at 3.3 kW, 95 % each way, with 4 kW of solar panels; no export (assumed).

    Without a rule the battery stores what the panels give beyond the home's use, and gives it back
    at once. `plan` charges in the cheapest quarter of the forecast day and discharges in the
    dearest.
    """

    capacity, power, way, panels = 10_000.0, 3300 * HOURS, 0.95, 4000 * HOURS  # [Wh], [Wh] a step

    def __init__(self, has: Bools, rule: NDArray[np.intp], rng: np.random.Generator) -> None:
        super().__init__(has, rule, rng)
        self.level = np.full(len(self.home), self.capacity / 2)
        self.bright = 1.0

    def new_day(self, bright: float) -> None:
        """The share of a clear day's sun."""
        self.bright = bright

    def step(self, t: int, market: Market, use: Floats) -> Floats:
        """(n,): what the homes draw from the grid [Wh], 0 or more, of what they use."""
        wish = self.wish(market, 0.0, DAY // 4, DAY)
        idle = self.of_rule[RULES.index("plan")]
        idle = idle[(wish[idle] == 0) & (market.cheaper[DAY] < 3 * DAY // 4)]
        wish[idle] = 0.5
        sun = self.panels * self.bright * max(0.0, np.sin(2 * np.pi * (t % DAY - 24) / DAY))
        net = use - sun
        command = self.power * (2 * wish - 1)
        room = np.minimum((self.capacity - self.level) / self.way, self.power)
        charge = np.clip(np.maximum(command, -net), 0.0, room)
        limit = np.minimum(np.maximum(net, 0.0), self.level * self.way)
        discharge = np.clip(-command, 0.0, limit) * (charge == 0)
        self.level += charge * self.way - discharge / self.way
        self.turn(np.sign(charge - discharge))
        return np.asarray(np.maximum(net + charge - discharge, 0.0))


class Homes:
    """The homes of a zone with their devices. `step` gives the readings of the next step.

    Args:
        flexible: Shares of devices and how they react.
        n: Number of homes.
        seed: Seed of what homes own and want.
        reference: Price at which people use what their law says [currency/kWh].
    """

    def __init__(self, flexible: Flexibility, n: int, seed: int, reference: float) -> None:
        rng = np.random.default_rng([seed, _OWNERS])
        automated = rng.random(n) < flexible.automation
        choices = rng.integers(1, len(RULES), n)
        number = 0 if flexible.rule == MIXED else RULES.index(flexible.rule)
        rule = np.where(automated, choices if flexible.rule == MIXED else number, 0)
        has = rng.random((4, n)) < np.array(
            [[getattr(flexible, k)] for k in ("vehicles", "thermostats", "batteries", "appliances")]
        )
        self.vehicles = Vehicles(has[0], rule, rng)
        self.thermostats = Thermostats(has[1], rule, rng)
        self.batteries = Batteries(has[2], rule, rng)
        self.appliances = Appliances(has[3], rule, rng)
        self.kinds = (self.vehicles, self.thermostats, self.batteries, self.appliances)
        self._people = Elasticity(reference, flexible.elasticity)
        self._n, self._seed, self._t = n, seed, 0

    @property
    def reach(self) -> Int32s:
        """(N,): the most that a home's devices draw in a step [Wh]."""
        total = np.zeros(self._n)
        powers: tuple[Any, ...] = (
            self.vehicles.power,
            Thermostats.energy,
            Batteries.power,
            Appliances.energy,
        )
        for kind, power in zip(self.kinds, powers, strict=True):
            total[kind.home] += power
        return np.ceil(total).astype(np.int32)

    def step(self, base: Int32s, occupancy: UInt8s, market: Market) -> Int32s:
        """The readings of the next step.

        Args:
            base: (N,): what homes use without devices at the reference price [Wh].
            occupancy: (N,): whether the home is occupied.
            market: What devices know of prices.

        Returns:
            (N,): readings [Wh].
        """
        t = self._t
        if t % DAY == 0:
            rng = np.random.default_rng([self._seed, _DAY, t // DAY])
            self.vehicles.new_day(t, rng)
            self.appliances.new_day(t, rng)
            self.batteries.new_day(rng.uniform(0.2, 1.0))
        use: Floats = base.astype(np.float64) * self._people.factor([market.price])
        use[self.vehicles.home] += self.vehicles.step(t, market)
        use[self.thermostats.home] += self.thermostats.step(t, market)
        use[self.appliances.home] += self.appliances.step(t, market, occupancy)
        homes = self.batteries.home
        use[homes] = self.batteries.step(t, market, use[homes])
        self._t += 1
        return np.asarray(np.rint(use), np.int32)
