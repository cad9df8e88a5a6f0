"""The closed loop: devices keep what homes need, prices share their homes, theory is met."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.errors import ConsumptionError, PlanError
from hushgrid.lab.flexible import (
    COMFORT,
    MIN_RUN,
    RULES,
    SET_POINT,
    Flexibility,
    Homes,
    Market,
    PriceMemory,
)
from hushgrid.lab.loop import (
    FIGURES,
    LoopSetting,
    PriceTables,
    _Arm,
    close_loop,
    close_loops,
    policy_of,
    street,
    with_devices,
)
from hushgrid.lab.methods import MethodPromise
from hushgrid.lab.rolling import EVENING
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import init
from hushgrid.model.zone import Tariff, optimal_rate
from hushgrid.planning.stability import HYSTERESIS, stability

DAY, N = 96, 40
ALL = Flexibility(1.0, 1.0, 1.0, 1.0, automation=1.0)


def markets(seed, days=3, wild=0.4):
    """Prices of a rough day's shape that jump, and a forecast that does not know the jumps."""
    rng = np.random.default_rng(seed)
    shape = 0.3 + 0.1 * np.sin(np.arange(DAY) / 9)
    for t in range(days * DAY):
        price = shape[t % DAY] * np.exp(wild * rng.standard_normal())
        yield Market.of(float(price), 0.3, np.roll(shape, -t - 1))


def run(rule, seed, **options):
    """Homes after three days, with every step's base, readings and devices' draws."""
    homes = Homes(replace(ALL, rule=rule, **options), N, seed, 0.3)
    rng = np.random.default_rng(seed)
    for market in markets(seed):
        base = rng.integers(0, 300, N).astype(np.int32)
        yield homes, base, homes.step(base, (rng.random(N) < 0.6).astype(np.uint8), market)


@given(st.sampled_from([*RULES, "mixed"]), st.integers(0, 10_000))
@settings(max_examples=8, deadline=None)
def test_devices_keep_what_homes_need_at_any_price(rule, seed):
    due, before, stored = np.zeros(N), np.zeros(N), None
    for t, (homes, base, readings) in enumerate(run(rule, seed, elasticity=0.0)):
        cars, battery, heat = homes.vehicles, homes.batteries, homes.thermostats
        arrived = cars.arrive == t
        due[arrived] += cars.energy[arrived]
        assert (cars.deficit <= cars.power * np.maximum(cars.departure - t - 1, 0) + 1e-6).all()
        step = 1 - heat.keeps  # how far a room moves beyond the dead band in a step, at most
        reach = COMFORT + step * (heat.resistance * heat.heat)
        assert (np.abs(heat.inside - SET_POINT) <= reach).all()
        assert (battery.level >= -1e-6).all()
        assert (battery.level <= battery.capacity + 1e-6).all()
        assert (readings >= 0).all()
        assert (readings <= base + homes.reach).all()
        drawn = due - cars.deficit
        if stored is not None:  # the grid and the sun cover what is used and stored
            sun = (
                battery.panels * battery.bright * max(0.0, np.sin(2 * np.pi * (t % DAY - 24) / DAY))
            )
            used = base + homes.appliances.on * homes.appliances.energy + heat.on * heat.energy
            used = used + (drawn - before)
            assert (readings + sun + 0.5 >= used + (battery.level - stored) * 0.95).all()
        stored, before = battery.level.copy(), drawn
    assert (homes.vehicles.unmet == 0).all()
    assert heat.discomfort.sum() / N / 3 < 0.5
    # two whole evenings are over: every home that was asked washed, each cycle 4 steps
    assert (homes.appliances.switches >= 2).all()


def test_a_planning_car_pays_the_least_for_its_energy():
    homes = Homes(replace(ALL, rule="plan"), 1, 5, 0.3)
    prices = np.random.default_rng(5).uniform(0.1, 0.5, 3 * DAY)
    car, paid, taken, energy = homes.vehicles, 0.0, 0.0, None
    for t in range(2 * DAY):
        market = Market.of(prices[t], 0.3, prices[t + 1 : t + 1 + DAY])
        if t % DAY == 0:
            car.new_day(t, np.random.default_rng(t))
        if t == car.arrive[0] and energy is None:
            energy, first, last = car.energy[0], t, int(car.depart[0])
        now = car.step(t, market)[0]
        if energy is not None and first <= t < last:
            paid, taken = paid + now * prices[t], taken + now
    cheapest, left, least = np.sort(prices[first:last]), energy, 0.0
    for price in cheapest:
        least += price * min(left, car.power[0])
        left -= min(left, car.power[0])
    assert taken == pytest.approx(energy)
    # a part of a step is drawn first and not in the dearest of the chosen steps
    assert least <= paid <= least + car.power[0] * (cheapest.max() - cheapest.min())
    assert paid < 0.75 * energy * prices[first:last].mean()


def test_a_threshold_device_runs_its_least_time_and_sees_both_sides():
    homes = Homes(replace(ALL, rule="threshold"), N, 1, 0.3)
    heat, turned, was = homes.thermostats, [[] for _ in range(N)], None
    for t, market in enumerate(markets(1, wild=1.0)):
        heat.wish(market, 0.5, 4, 8)
        if was is not None:
            for home in np.flatnonzero(heat.eager != was):
                turned[home].append(t)
        was = heat.eager.copy()
    gaps = np.concatenate([np.diff(each) for each in turned])
    assert gaps.min() == MIN_RUN
    assert min(len(each) for each in turned) > 20


def test_a_flat_price_and_no_rule_are_the_same():
    flat = [r.copy() for _, _, r in run("none", 3, elasticity=0.0)]
    still = [r.copy() for _, _, r in run("mixed", 3, elasticity=0.0, automation=0.0)]
    assert all(np.array_equal(a, b) for a, b in zip(flat, still, strict=True))
    busy = [r.copy() for _, _, r in run("mixed", 3, elasticity=0.0)]
    assert any(not np.array_equal(a, b) for a, b in zip(flat, busy, strict=True))


def test_people_use_less_at_a_higher_price():
    used = []
    for price in (0.3, 0.6):
        homes = Homes(Flexibility(0, 0, 0, 0, elasticity=0.1), N, 1, 0.3)
        base = np.full(N, 10_000, np.int32)
        market = Market.of(price, 0.3, np.full(DAY, 0.3))
        used.append(homes.step(base, np.ones(N, np.uint8), market).sum())
    assert used[1] / used[0] == pytest.approx(2**-0.1, rel=1e-3)


STEP = MethodPromise("step", 1.0)


@pytest.fixture(scope="module")
def small():
    setting = LoopSetting(promise=STEP, days=2, prices=("exact", "raw", "flat", "tou"))
    return setting, close_loop(street(N, 1), setting, seed=1)


def test_a_loop_has_every_figure_and_repeats(small):
    setting, found = small
    assert set(found.figures) == set(setting.prices)
    for values in found.figures.values():
        assert set(values) == set(FIGURES)
        assert all(v.shape == (1, 2) and np.isfinite(v).all() for v in values.values())
    assert (found.figures["flat"]["rebound"] == 0).all()
    assert found.figures["exact"]["switches"].mean() != found.figures["flat"]["switches"].mean()
    assert np.isfinite(found.gain.mean)
    assert found.loads["raw"].shape == found.prices["raw"].shape == (2 * DAY,)
    again = close_loop(street(N, 1), replace(setting, prices=("raw",)), seed=1)
    assert again.figures["raw"]["peak"].tolist() == found.figures["raw"]["peak"].tolist()


def test_what_homes_want_is_the_same_under_every_price(small):
    """Nothing reacts: then all prices have the loads of the flat one, and no gain."""
    setting = replace(small[0], flexible=Flexibility(automation=0.0, elasticity=0.0))
    found = close_loop(street(N, 1), setting, seed=1)
    for loads in found.loads.values():
        assert loads.tolist() == found.loads["flat"].tolist()
    assert found.gain.mean == 0
    assert (
        found.figures["raw"]["mismatch_cost"].mean()
        > found.figures["exact"]["mismatch_cost"].mean()
    )


def test_a_delay_keeps_the_price_back(small):
    setting, found = small
    late = close_loop(street(N, 1), replace(setting, delay=3, prices=("exact",)), seed=1)
    tariff = street(N, 1).tariff
    for delay, run_ in ((0, found), (3, late)):
        optimal = tariff.alpha * run_.loads["exact"] / 1000 + tariff.beta
        assert run_.prices["exact"][DAY:] == pytest.approx(optimal[DAY - 1 - delay : -1 - delay])


def test_private_prices_come_from_the_mechanism(small):
    _, found = small
    bound = found.noise["raw"]  # at eta = 1 the scale is u / epsilon
    assert (bound == bound[0]).all()
    assert bound[0] == pytest.approx(3500, rel=1e-6)
    assert found.epsilon_any["raw"] == pytest.approx(3 * DAY * 1.0, rel=1e-6)


@pytest.mark.soak
def test_worlds_are_independent_and_intervals_are_over_them(small):
    setting = replace(small[0], prices=("tou", "raw"))
    both = close_loops(lambda seed: street(N, seed), setting, (1, 2))
    peaks = both.figures["raw"]["peak"]
    assert both.worlds == 2
    assert peaks[:1].tolist() == small[1].figures["raw"]["peak"].tolist(), "the first is the same"
    assert (peaks[0] != peaks[1]).all()
    mean, half = peaks.mean(axis=1).mean(), np.abs(np.diff(peaks.mean(axis=1)))[0] / 2 * 12.7062
    assert both.summary("raw", "peak").ci95 == pytest.approx((mean - half, mean + half), rel=1e-4)
    paired, parts = both.against("raw", "peak", "tou"), both.relative("raw", "peak", "tou")
    usual = both.summary("tou", "peak").mean
    assert paired.mean == pytest.approx(mean - usual)
    assert parts.mean == pytest.approx(paired.mean / usual)
    with pytest.raises(PlanError, match="seeds are 2 with 1 different"):
        close_loops(lambda seed: street(N, seed), setting, (1, 1))


@pytest.mark.soak
def test_a_filtered_price_is_the_estimate_without_noise(small):
    """It follows the exact price more calmly, and better than the estimate does."""
    setting, found = small
    both = close_loop(street(N, 1), replace(setting, prices=("filtered", "estimated")), seed=1)
    exact, filtered, noisy = found.prices["exact"], *both.prices.values()
    assert np.diff(filtered).std() < 0.9 * np.diff(exact).std()
    assert 0.2 < np.corrcoef(exact, filtered)[0, 1] > np.corrcoef(exact, noisy)[0, 1]
    assert set(both.epsilon_any) == {"estimated"}, "what has no noise promises nothing"


@pytest.mark.soak
def test_a_list_is_fixed_in_the_evening_and_known_to_devices(small):
    """Nothing that happens after 18:00 moves the prices of the next day, nor does a delay."""
    setting = replace(small[0], prices=("ahead",))
    listed = close_loop(street(N, 1), setting, seed=1)
    late = close_loop(street(N, 1), replace(setting, delay=3), seed=1)
    assert late.prices["ahead"].tolist() == listed.prices["ahead"].tolist()
    scenario = street(N, 1)
    tables = PriceTables(scenario, setting.flexible, 1)
    homes = Homes(setting.flexible, N, 1, tables.level)
    scenario = with_devices(scenario, homes)
    policy = policy_of(scenario, setting, 3 * DAY, blocks=True)
    prices = []
    for more in (0, 500):  # Wh that each home uses after 18:00
        arm = _Arm("ahead", copy.deepcopy(homes), scenario, tables, 0)
        arm.state = init(*scenario.terms, replace(policy, publish="estimate", estimator="filter"))
        arm.noise = SimulatedNoise(np.random.SeedSequence(1))
        for t in range(DAY):
            coming = np.array(arm.listed[t + 1 :][:DAY])
            known = Market.of(arm.listed[t], arm.market.usual, coming)
            assert arm.market.cheaper[: len(known.cheaper)].tolist() == known.cheaper.tolist()
            use = np.full(N, 100 + more * (t >= EVENING * DAY), np.int32)
            arm.step(use, np.ones(N, np.uint8))
        prices.append(arm.listed)
    assert prices[0] == prices[1]
    assert prices[0][:DAY] == tables.usual.tolist()
    assert len(prices[0]) == 2 * DAY


def test_listed_prices_replace_the_forecast_as_far_as_they_go():
    memory, coming = PriceMemory(np.full(DAY, 0.3), 0.3), [0.3] * 10 + [0.1] + [0.3] * 100
    assert memory.market(0.2).cheaper[DAY] == 0
    assert memory.market(0.2, coming).cheaper[[10, 11, DAY]].tolist() == [0, 1, 1]
    assert memory.market(0.2, coming[:9]).cheaper[DAY] == 0, "the list ends before"
    assert memory.profile.tolist() == [0.3] * DAY, "no price was in force yet"


def test_settings_out_of_range_are_refused():
    for wrong in ({"delay": 5}, {"days": 1}, {"eta": 1.5}, {"prices": ("cheap",)}, {"prices": ()}):
        with pytest.raises(PlanError, match=next(iter(wrong))):
            LoopSetting(**wrong)
    for wrong in ({"vehicles": 1.5}, {"rule": "hope"}, {"elasticity": -1.0}):
        with pytest.raises(ConsumptionError, match=next(iter(wrong))):
            Flexibility(**wrong)


# ---- linear theory

TARIFF, LOAD = Tariff(1.0, 62.5), 250_000.0


def linear_zone(tariff, load, elasticity, noise):
    """Loads [Wh] of a zone whose demand is linear in the last published rate, not cut at 0."""
    usual, now, out = float(optimal_rate(load, tariff)), load, np.empty(len(noise))
    rate = usual
    for t, k in enumerate(noise):
        out[t] = now
        rate += (1 - tariff.smooth) * (optimal_rate(now + k, tariff) - rate)
        now = load * (1 - elasticity * (rate / usual - 1))
    return out


@pytest.mark.parametrize(
    ("elasticity", "smooth"), [(0.3, 0), (0.8, 0), (1.1, 0), (1.1, 0.5), (2, 0.5)]
)
def test_demand_moves_as_the_linear_theory_says(elasticity, smooth):
    tariff = replace(TARIFF, smooth=smooth)
    scale = 2000.0
    noise = SimulatedNoise(np.random.SeedSequence(3))
    draws = [noise.draw(scale) for _ in range(40_000)]
    found = stability(tariff, LOAD, scale, elasticity=elasticity)
    loads = linear_zone(tariff, LOAD, elasticity, draws)[200:]
    assert found.gain == pytest.approx(elasticity * 0.8)
    assert loads.std() / LOAD == pytest.approx(found.movement, rel=0.02)


def test_demand_swings_without_end_beyond_a_gain_of_one():
    noise = [1, *[0] * 400]
    for elasticity, smooth, grows in (
        (1.2, 0, False), (1.3, 0, True), (3.7, 0.5, False), (3.8, 0.5, True)
    ):  # fmt: skip
        tariff = replace(TARIFF, smooth=smooth)
        loads = np.abs(linear_zone(tariff, LOAD, elasticity, noise) / LOAD - 1)
        assert (loads[-1] > loads[1]) == grows
        found = stability(tariff, LOAD, 1000, elasticity=elasticity)
        assert (found.gain > found.limit) == grows == np.isinf(found.movement)


@pytest.mark.parametrize(("length", "smooth"), [(1, 0.0), (4, 0.0), (4, 0.5)])
def test_switches_of_a_threshold_device_are_those_that_noise_causes(length, smooth):
    scale = 4000.0
    found = stability(
        replace(TARIFF, smooth=smooth),
        np.full(DAY, LOAD),
        scale,
        elasticity=0.0,
        lengths=(length,) * (DAY // length),
    )
    noise, days = SimulatedNoise(np.random.SeedSequence(1)), 400
    price = []
    for _ in range(days * DAY // length):
        size = noise.draw_size(scale, length)
        price += [noise.draw_within(size) / 1000 / 312.5 for _ in range(length)]
    on, turns, seen = True, 0, 0.0
    for own in price:
        each = seen = smooth * seen + (1 - smooth) * own
        if (each > HYSTERESIS) if on else (each < -HYSTERESIS):
            on, turns = not on, turns + 1
    assert np.std(price) == pytest.approx(found.noise, rel=0.03)
    assert turns / days == pytest.approx(found.switches, rel=0.04)


def test_smoothing_calms_the_loop(small):
    """Less switching of the same devices under the same noise."""
    setting, found = small
    calm = close_loop(street(N, 1), replace(setting, smooth=0.8, prices=("raw",)), seed=1)
    assert calm.figures["raw"]["switches"].mean() < 0.95 * found.figures["raw"]["switches"].mean()
    assert np.diff(calm.prices["raw"]).std() < 0.5 * np.diff(found.prices["raw"]).std()


def test_a_wrong_elasticity_is_refused():
    with pytest.raises(PlanError, match="elasticity is -1"):
        stability(TARIFF, LOAD, 1000, elasticity=-1.0)
