"""The closed loop: the same homes under exact, private, flat and time-of-use prices.

All prices have the same homes, wants and noise quantiles (common random numbers); other worlds have
others. A price of step t applies `delay` steps later than the next one; the prices of a list are
fixed at 18:00 for all steps of the next day, and devices know them from then on. The private prices
come from the mechanism itself. The first day is not counted: devices and forecasts begin there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from hushgrid._numbers import Floats, Int32s, UInt8s, is_real
from hushgrid.belief.followed import FollowedKnowledge
from hushgrid.errors import PlanError
from hushgrid.lab.flexible import HOURS, Flexibility, Homes, Market, PriceMemory
from hushgrid.lab.methods import MethodPromise
from hushgrid.lab.paper import CALENDAR, chains
from hushgrid.lab.rolling import EVENING
from hushgrid.mechanism.noise import Noise, SimulatedNoise
from hushgrid.mechanism.policy import Policy, per_step
from hushgrid.mechanism.release import State, init, step
from hushgrid.model.consumption import Consumption
from hushgrid.model.laws import Gamma, LogNormal
from hushgrid.model.occupancy import STEPS_PER_DAY as DAY
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.world import NOISE_STREAM, World
from hushgrid.model.zone import Scenario, Tariff, Zone, cost, optimal_rate, public_rate, tally
from hushgrid.planning.planner import plan
from hushgrid.statistics import Summary, ratio_of_means, summarise

Price = Literal["exact", "raw", "estimated", "blocks", "filtered", "ahead", "flat", "tou"]
PRICES: tuple[Price, ...] = get_args(Price)
PRIVATE: tuple[Price, ...] = ("raw", "estimated", "blocks", "ahead")
PEAK_HOURS = slice(64, 80)  # 16:00 to 20:00, dearer under the time-of-use price
CONNECTION = 3500  # [Wh] in a step: the contract bound of a home with devices, 14 kW
MOST_DELAY, MOST_WORLDS = 4, 100  # steps, worlds of a run
_PILOT_DAYS, _PILOT = 3, 0x5EED  # days at a flat price that set the tables, and their seed
_PROBE, _PROBED = (
    0.05,
    4,
)  # relative change of the price that probes the demand, every so many steps

FIGURES = (
    "peak",
    "rebound",
    "ramp",
    "load_factor",
    "switches",
    "cost",
    "cost_spread",
    "generation",
    "comfort",
    "unmet",
    "mismatch_cost",
    "rank_correlation",
)


def street(n: int, seed: int) -> Scenario:
    """A zone for the loop: the paper's chains, three sizes of homes, about 0.3 currency/kWh.

    Args:
        n: Number of homes.
        seed: Seed of their sizes.

    Returns:
        The zone and its models. Two thirds of the rate grow with the load.
    """
    chain_of = np.zeros(n, np.int64)
    initial, transition = chains(0.0, 1, np.random.default_rng(seed))
    theta = OccupancyModel.factored(initial, transition, calendar=CALENDAR, chain_of=chain_of)
    sizes = (0.7, 1.0, 1.4)
    f = Consumption.by_class(
        absent=[Gamma(2.0, 20.0 * by, 1000) for by in sizes],
        present=[LogNormal(110.0 * by, 0.8, 1000) for by in sizes],
        class_of=np.random.default_rng([seed, 1]).integers(0, len(sizes), n),
    )
    return Scenario(Zone("street", [1000] * n), Tariff(0.85 / n, 0.1), (theta,), f)


@dataclass(frozen=True, slots=True)
class LoopSetting:
    """What a loop is run with.

    Attributes:
        flexible: The homes' devices and how they react.
        promise: What the private prices keep.
        eta: Trust of the private prices. Below 1 the promise does not hold in the loop: devices
            are not in the public law.
        delay: Steps that a price comes later, 0 to 4; the prices of a list do not.
        days: Days that are counted, 2 or more.
        prices: Which prices.
        smooth: Share of the last published price that the next keeps, from 0 to below 1.

    Raises:
        PlanError: If a value is out of range.
    """

    flexible: Flexibility = field(default_factory=Flexibility)
    promise: MethodPromise = field(default_factory=MethodPromise)
    eta: float = 1.0
    delay: int = 0
    days: int = 7
    prices: tuple[Price, ...] = PRICES
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delay <= MOST_DELAY:
            raise PlanError(f"delay is {self.delay}; give 0 to {MOST_DELAY} steps.")
        if self.days < 2:
            raise PlanError(f"days is {self.days}; give 2 or more, for intervals.")
        if not (is_real(self.eta) and 0 <= self.eta <= 1):
            raise PlanError(f"eta is {self.eta}; give a share from 0 to 1.")
        unknown = [name for name in self.prices if name not in PRICES]
        if unknown or not self.prices:
            raise PlanError(
                f"prices are {', '.join(self.prices) or 'none'}; give some of {', '.join(PRICES)}."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Figures of one loop.

    Attributes:
        setting: What it was run with.
        houses: Number of homes.
        figures: (worlds, days): values by price and figure (FIGURES).
        loads: (T,): loads of all days by price [Wh], of the first world.
        prices: (T,): prices in force by price [currency/kWh], of the first world.
        gains: (worlds, days): loop gains under the exact price, measured by small changes of it;
            NaN without that price.
        noise: Scales of the noise by private price, (T,) [Wh], of the first world.
        epsilon_any: Sum of `epsilon_any` over all releases, each block once, by private price: what
            they reveal about a home at most, without any assumption.
    """

    setting: LoopSetting
    houses: int
    figures: Mapping[str, Mapping[str, Floats]]
    loads: Mapping[str, Floats]
    prices: Mapping[str, Floats]
    gains: Floats
    noise: Mapping[str, Floats]
    epsilon_any: Mapping[str, float]

    @property
    def worlds(self) -> int:
        """Number of independent worlds."""
        return len(self.gains)

    @property
    def gain(self) -> Summary:
        """Loop gain under the exact price."""
        return summarise(_independent(self.gains))

    def summary(self, price: str, figure: str) -> Summary:
        """Mean and 95 % interval of a figure over the worlds; over the days of a single one."""
        return summarise(_independent(self.figures[price][figure]))

    def against(self, price: str, figure: str, reference: str = "exact") -> Summary:
        """The difference to another price in the same worlds."""
        return summarise(
            _independent(self.figures[price][figure] - self.figures[reference][figure])
        )

    def relative(self, price: str, figure: str, reference: str = "exact") -> Summary:
        """The difference to another price in the same worlds, in parts of that price's figure."""
        figures, usual = (_independent(self.figures[name][figure]) for name in (price, reference))
        return ratio_of_means(figures - usual, usual)


def _independent(values: Floats) -> Floats:
    """(n,): the mean of each world; the days of a single world, which are not quite independent."""
    return np.asarray(values.mean(axis=1) if len(values) > 1 else values[0])


class _Silence(Noise):
    """No noise. What is published so protects no one; it is for comparison alone."""

    def draw(self, scale: float) -> int:  # noqa: ARG002
        """Zero."""
        return 0

    def draw_size(self, scale: float, steps: int) -> int:  # noqa: ARG002
        """Zero."""
        return 0

    def draw_within(self, size: int) -> int:  # noqa: ARG002
        """Zero."""
        return 0


def with_devices(scenario: Scenario, homes: Homes) -> Scenario:
    """The zone with contract bounds raised by what devices can draw, to 14 kW at most.

    Args:
        scenario: The zone without devices.
        homes: The homes with them.

    Returns:
        The zone.
    """
    zone = scenario.zone
    bound = np.maximum(zone.bound, np.minimum(zone.bound + homes.reach, CONNECTION + zone.export))
    return replace(scenario, zone=Zone(zone.id, bound, zone.export))


def signed_readings(homes: Homes, world: World, market: Market, export: Int32s) -> Int32s:
    """The readings of homes with devices after the last step of a world.

    Devices and people act on what a home takes; what its panels feed in is netted against that.

    Args:
        homes: The homes with devices.
        world: The homes without them, whose readings hold the export limits.
        market: What devices know of prices.
        export: (N,): export limits [Wh].

    Returns:
        (N,): readings [Wh], below 0 where a home exports.
    """
    net = world.readings - export
    use = homes.step(np.maximum(net, 0), world.occupancy, market)
    return np.asarray(use + np.minimum(net, 0), np.int32)


class PriceTables:
    """Public tables that a pilot at a flat price sets: its level, time of use, usual prices.

    Args:
        scenario: The zone without devices.
        flexible: Its devices.
        seed: Seed of the loop; the pilot has one of its own.
    """

    def __init__(self, scenario: Scenario, flexible: Flexibility, seed: int) -> None:
        homes = Homes(replace(flexible, rule="none"), scenario.zone.n_houses, seed ^ _PILOT, 1.0)
        world = World(scenario, (seed ^ _PILOT,))
        flat = Market.of(1.0, 1.0, np.ones(DAY))
        loads = np.zeros((_PILOT_DAYS, DAY))
        for t in range(_PILOT_DAYS * DAY):
            world.step(())
            readings = signed_readings(homes, world, flat, scenario.zone.export)
            loads[divmod(t, DAY)] = readings.sum(dtype=np.int64)
        z = loads[1:].mean(axis=0)
        self.usual = optimal_rate(z, scenario.tariff)
        z = np.maximum(z, 0.0)  # what the zone takes from the grid
        self.level = float((self.usual * z).sum() / z.sum())
        self.tou = np.full(DAY, self.level)
        peak = np.zeros(DAY, np.bool_)
        peak[PEAK_HOURS] = True
        for part in (peak, ~peak):
            self.tou[part] = (self.usual * z)[part].sum() / z[part].sum()


def policy_of(scenario: Scenario, setting: LoopSetting, steps: int, *, blocks: bool) -> Policy:
    """The policy of a private price over so many steps: a day's plan, repeated.

    Args:
        scenario: The zone, with the bounds of homes with devices.
        setting: The promise and the trust.
        steps: Number of steps.
        blocks: Whether noise may last blocks of steps.

    Returns:
        The policy. Leakage about an interval is counted over any number of days.
    """
    promise, terms = setting.promise, Policy(setting.promise.epsilon, DAY, eta=setting.eta)
    policy = plan(
        *scenario.terms,
        secret=promise.secret,
        epsilon=promise.epsilon,
        terms=terms,
        rho=None,
        running=promise.secret == "interval",
        blocks=blocks,
    ).policy
    schedule = policy.schedule
    if schedule.lengths:
        schedule = schedule.over(steps)
    elif schedule.epsilons:
        epsilons = tuple(schedule.epsilons)
        schedule = per_step((epsilons * -(-steps // len(epsilons)))[:steps])
    return replace(policy, horizon=steps, schedule=schedule)


class _Arm:
    """One price and the homes under it."""

    def __init__(
        self, price: Price, homes: Homes, scenario: Scenario, tables: PriceTables, delay: int
    ) -> None:
        self.price, self.homes, self.scenario, self.delay = price, homes, scenario, delay
        self.state: State | None = None
        self.noise: Noise | None = None
        self.rates: list[float] = []
        self.scales: list[float] = []
        self.epsilon_any = 0.0
        self.loads: list[int] = []
        self.bills = np.zeros(scenario.zone.n_houses)
        self.days: list[tuple[float, float, float, float, float]] = []
        usual = {"flat": np.full(DAY, tables.level), "tou": tables.tou}.get(price, tables.usual)
        self.memory = PriceMemory(usual, tables.level)
        self.listed = usual.tolist() if price == "ahead" else []

    @property
    def market(self) -> Market:
        """What devices know before the next step."""
        t = len(self.loads)
        if self.listed:
            return self.memory.market(self.listed[t], self.listed[t + 1 :])
        if self.rates and t > self.delay:
            return self.memory.market(self.rates[t - 1 - self.delay])
        return self.memory.market(float(self.memory.profile[t % DAY]))

    def step(self, base: Int32s, occupancy: UInt8s) -> None:
        """Homes use energy at the price in force; the mechanism publishes the next price."""
        t, market = len(self.loads), self.market
        readings = self.homes.step(base, occupancy, market)
        zone_tally = tally(readings, self.scenario.zone.bound)
        self.bills += market.price / 1000 * np.minimum(readings, self.scenario.zone.bound)
        self.loads.append(zone_tally.load)
        self.memory.note(market.price)
        if self.price == "exact":
            last = self.rates[-1] if self.rates else None
            self.rates.append(public_rate(zone_tally.load, self.scenario.tariff, last))
        elif self.state is not None and self.noise is not None:
            release, self.state = step(self.state, zone_tally, self.noise)
            self.rates.append(release.rate)
            self.scales.append(release.scale)
            if release.block is None or release.block["first"] == release.t:
                self.epsilon_any += release.epsilon_any
            if self.listed and (t + 1) % DAY == EVENING * DAY:
                self._list_next_day(self.state)
        if (t + 1) % DAY == 0:
            self._end_day()

    def _list_next_day(self, state: State) -> None:
        """Fix the prices of the next day by what the filter expects, given all releases so far."""
        assert isinstance(state.public, FollowedKnowledge)
        tonight = len(self.listed) - len(self.loads)  # steps of today, whose prices stay
        for law in state.public.passed(tonight).forecast(DAY):
            last = self.listed[-1]
            self.listed.append(public_rate(law.mean, self.scenario.tariff, last))

    def _end_day(self) -> None:
        homes, devices = self.homes, sum(len(kind.home) for kind in self.homes.kinds)
        self.days.append(
            (
                sum(int(kind.switches.sum()) for kind in homes.kinds) / max(devices, 1),
                float(self.bills.mean()),
                float(self.bills.std()),
                float(homes.thermostats.discomfort.sum() / max(len(homes.thermostats.home), 1)),
                float(homes.vehicles.unmet.sum() / 1000 / max(len(homes.vehicles.home), 1)),
            )
        )
        self.bills[:] = 0
        homes.thermostats.discomfort[:] = 0
        homes.vehicles.unmet[:] = 0
        for kind in homes.kinds:
            kind.switches[:] = 0

    def response(self, base: Int32s, occupancy: UInt8s) -> float:
        """The loop gain now: elasticity of the next step's demand times the rate's of the load."""
        market, loads = self.market, list[float]()
        for by in (1 + _PROBE, 1 / (1 + _PROBE)):
            twin, twin_market = copy.deepcopy(self.homes), self.memory.market(market.price * by)
            loads.append(float(twin.step(base, occupancy, twin_market).sum(dtype=np.int64)))
        if min(loads) <= 0:
            return 0.0
        elasticity = -math.log(loads[0] / loads[1]) / (2 * math.log1p(_PROBE))
        tariff = self.scenario.tariff
        return elasticity * (1 - tariff.beta / optimal_rate(math.sqrt(loads[0] * loads[1]), tariff))


def close_loops(
    zone_of: Callable[[int], Scenario],
    setting: LoopSetting,
    seeds: Sequence[int],
    tick: Callable[[], None] = lambda: None,
) -> Loop:
    """Run independent worlds one after the other, each under every price.

    Args:
        zone_of: The zone of a seed, without devices.
        setting: Devices, promise, delay, days and prices.
        seeds: One a world, up to 100.
        tick: Called after every step.

    Returns:
        The figures of all worlds. Loads, prices and noise are those of the first.

    Raises:
        PlanError: As `close_loop`, or if there are no or too many or equal seeds.
    """
    if not 1 <= len(set(seeds)) == len(seeds) <= MOST_WORLDS:
        raise PlanError(
            f"seeds are {len(seeds)} with {len(set(seeds))} different; give 1 to {MOST_WORLDS}"
            " different ones."
        )
    result: Loop | None = None
    for seed in seeds:
        world_loop = close_loop(zone_of(seed), setting, seed=seed, tick=tick)
        if result is None:
            result = world_loop
            continue
        merged = {
            price: {
                name: np.concatenate([x, world_loop.figures[price][name]])
                for name, x in values.items()
            }
            for price, values in result.figures.items()
        }
        result = replace(
            result, figures=merged, gains=np.concatenate([result.gains, world_loop.gains])
        )
    assert result is not None
    return result


def close_loop(
    scenario: Scenario,
    setting: LoopSetting,
    *,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Loop:
    """Run the same homes under every price.

    Args:
        scenario: The zone without devices; its bounds are raised by what the devices can draw, to
            14 kW at most.
        setting: Devices, promise, delay, days and prices.
        seed: Seed of homes, wants and noise.
        tick: Called after every step.

    Returns:
        The figures by price, of one world. The gain is NaN without the exact price.

    Raises:
        PlanError: If the promise cannot be kept, or houses export energy.
    """
    if scenario.zone.offset:
        raise PlanError(
            f"zone {scenario.zone.id!r} has homes that export, which the loop does not simulate;"
            " give a zone without export."
        )
    scenario = replace(
        scenario,
        consumption=replace(scenario.consumption, elasticity=None),
        tariff=replace(scenario.tariff, smooth=setting.smooth),
    )
    flexible, n, steps = setting.flexible, scenario.zone.n_houses, (setting.days + 1) * DAY
    tables = PriceTables(scenario, flexible, seed)

    def homes(price: str) -> Homes:  # a flat price leaves devices nothing to react to
        devices = replace(flexible, rule="none") if price == "flat" else flexible
        return Homes(devices, n, seed, tables.level)

    scenario = with_devices(scenario, homes("flat"))
    names = dict.fromkeys(("flat", *setting.prices))  # flat comes along: rebounds are against it
    arms = {name: _Arm(name, homes(name), scenario, tables, setting.delay) for name in names}
    policies: dict[bool, Policy] = {}
    for name, arm in arms.items():
        if name in (*PRIVATE, "filtered"):
            blocks = name != "raw"
            if blocks not in policies:
                policies[blocks] = policy_of(scenario, setting, steps, blocks=blocks)
            policy = policies[blocks]
            if name in ("estimated", "filtered", "ahead"):
                policy = replace(policy, publish="estimate", estimator="filter")
            arm.state = init(*scenario.terms, policy)
            arm.noise = SimulatedNoise(np.random.SeedSequence([seed, NOISE_STREAM]))
            if name == "filtered":  # the estimate's filter without its noise
                arm.noise = _Silence()
    world, gains = World(scenario, (seed,)), list[list[float]]()
    for t in range(steps):
        world.step(())
        if t % DAY == 0:
            gains.append([])
        if "exact" in arms and t >= DAY and t % _PROBED == 0:
            gains[-1].append(arms["exact"].response(world.readings, world.occupancy))
        for arm in arms.values():
            arm.step(world.readings, world.occupancy)
        tick()
    flat = np.array(arms["flat"].loads, np.float64)
    reported_arms = {name: arms[name] for name in setting.prices}
    measured = [float(np.mean(day)) if day else math.nan for day in gains[1:]]
    private = {name: arm for name, arm in reported_arms.items() if name in PRIVATE}
    return Loop(
        setting,
        n,
        {name: _figures(arm, flat) for name, arm in reported_arms.items()},
        {name: np.array(arm.loads, np.float64)[DAY:] for name, arm in reported_arms.items()},
        {name: np.array(arm.memory.prices)[DAY:] for name, arm in reported_arms.items()},
        np.array([measured]),
        {name: np.array(arm.scales)[DAY:] for name, arm in private.items()},
        {name: arm.epsilon_any for name, arm in private.items()},
    )


def _figures(arm: _Arm, flat: Floats) -> dict[str, Floats]:
    """(1, days): each of FIGURES, from the second day on. Power in kW, cost a home and day."""
    tariff, n = arm.scenario.tariff, arm.scenario.zone.n_houses
    load = np.array(arm.loads, np.float64)
    ramp = np.abs(np.diff(load, prepend=load[0])).reshape(-1, DAY)[1:]
    excess = (load - flat).reshape(-1, DAY)[1:]
    z, price = load.reshape(-1, DAY)[1:], np.array(arm.memory.prices).reshape(-1, DAY)[1:]
    optimal = optimal_rate(z, tariff)
    switches, bill, spread, comfort, unmet = np.array(arm.days)[1:].T
    kw = 1 / (1000 * HOURS)
    values = (
        z.max(axis=1) * kw,
        excess.max(axis=1) * kw,
        ramp.max(axis=1) * kw,
        z.mean(axis=1) / z.max(axis=1),
        switches,
        bill,
        spread,
        np.asarray(cost(z, tariff)).sum(axis=1) / n,
        comfort,
        unmet,
        ((price - optimal) ** 2).sum(axis=1) / (2 * tariff.alpha),
        np.array([_rank_correlation(*day) for day in zip(price, optimal, strict=True)]),
    )
    return {name: value[None] for name, value in zip(FIGURES, values, strict=True)}


def _rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's; 0 where all prices are equal."""
    from scipy.stats import rankdata

    ranks = rankdata([a, b], axis=1)
    return float(np.corrcoef(ranks)[0, 1]) if (ranks.std(axis=1) > 0).all() else 0.0
