"""The mechanism in other people's simulations: each example in a process of its own."""

import os
import pickle
import re
import subprocess
import sys
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy, PolicyError, load_zone
from hushgrid.lab.cosimulation import Demand, Pricing, join_helics, mosaik_simulator
from hushgrid.lab.flexible import Flexibility
from hushgrid.lab.loop import street

ROOT = Path(__file__).parents[2]


def run(name: str, module: str) -> str:
    python = os.environ.get("HUSHGRID_COSIMULATION_PYTHON", sys.executable)
    if python == sys.executable and find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    found = subprocess.run(
        [python, ROOT / "examples" / "cosimulation" / name],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


def loop_by_hand() -> list[float]:
    demand = Demand(street(200, 1), Flexibility(), 1)
    pricing, price, prices = Pricing(demand.scenario, Policy(1.0, 96), 1), demand.usual, []
    for _ in range(96):
        price = pricing.publish(demand.step(price)).rate
        prices.append(price)
    return prices


def test_pricing_and_demand_close_the_loop() -> None:
    prices = loop_by_hand()
    assert len(prices) == 96
    assert np.std(prices) > 0
    assert prices == loop_by_hand(), "the same seed"


@pytest.mark.soak
def test_mosaik_has_the_prices_of_the_loop() -> None:
    prices = loop_by_hand()
    assert run("mosaik_zone.py", "mosaik") == (
        f"96 prices, {min(prices):.3f} to {max(prices):.3f}\n"
    )


@pytest.mark.soak
def test_helics_federates_exchange_readings_and_prices() -> None:
    found = re.search(r"(\d+) prices, ([\d.]+) to ([\d.]+)\n", run("helics_zone.py", "helics"))
    assert found
    assert int(found[1]) >= 94  # values arrive a step later
    assert 0 <= float(found[2]) < float(found[3])


@pytest.mark.soak
def test_gymnasium_controllers_keep_the_budget_and_earn_more_by_thinking() -> None:
    lines = run("gym_zone.py", "gymnasium").splitlines()
    figures = {line.rpartition(":")[0]: re.findall(r"-?[\d.]+", line) for line in lines}
    spent = {name: float(f[1]) for name, f in figures.items() if name.startswith("prices")}
    assert len(spent) == 3
    assert all(0 < one <= 24 + 1e-6 for one in spent.values())
    at_once, later = (float(f[0]) for name, f in figures.items() if name.startswith("car"))
    assert later > at_once


# ---- Gymnasium

IDS = ["hushgrid/PriceSetting-v0", "hushgrid/CarCharging-v0"]


def environment(name: str) -> Any:
    gymnasium = pytest.importorskip("gymnasium")
    return gymnasium.make(f"hushgrid.lab.environments:{name}")


@pytest.mark.parametrize("name", IDS)
def test_gymnasiums_own_checker_passes(name: str) -> None:
    """Warnings are errors: bounds that are infinite or not float32 are among them."""
    env = environment(name)
    from gymnasium.utils.env_checker import check_env

    check_env(env.unwrapped)
    for space in (env.observation_space, env.action_space):
        assert space.dtype == np.float32
        assert np.isfinite([space.low, space.high]).all()


@pytest.mark.parametrize("name", IDS)
def test_an_environment_goes_on_where_it_was_pickled(name: str) -> None:
    env = environment(name).unwrapped
    env.reset(seed=3)
    env.step(np.array([0.5], np.float32))
    again = pickle.loads(pickle.dumps(env))
    for share in (0.25, 1.0, 0.0):
        here, there = (one.step(np.array([share], np.float32)) for one in (env, again))
        np.testing.assert_array_equal(here[0], there[0])
        assert here[1:] == there[1:]
        assert env.observation_space.contains(here[0])


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("action", [[np.nan], [np.inf], [0.5, 0.5], []])
def test_an_action_that_is_no_share_is_refused(name: str, action: list[float]) -> None:
    env = environment(name).unwrapped
    before, _ = env.reset(seed=3)
    with pytest.raises(PolicyError, match="give one share from 0 to 1"):
        env.step(np.array(action, np.float32))
    after, *_ = env.step(np.array([1.0], np.float32))
    env.reset(seed=3)
    np.testing.assert_array_equal(after, env.step(np.array([1.0], np.float32))[0])
    assert not np.array_equal(before, after)


def test_prices_beyond_the_bounds_are_observed_at_them() -> None:
    env = environment(IDS[1])
    prices = 10.0 ** (np.arange(288) / 10)
    from hushgrid.lab.environments import RATIO, CarCharging

    high = CarCharging(lambda _: prices)
    seen, _ = high.reset(seed=1)
    assert seen[0] == RATIO
    assert env.observation_space.contains(seen)


# ---- a zone that exports: every adapter takes signed readings

SUNNY = ROOT / "examples" / "sunny.toml"
NOON = 48  # steps
OPEN = Policy(1e6, 2 * NOON, eta=1.0)  # noise of less than a Wh in ten homes: what is priced shows


def sunny_homes() -> Demand:
    return Demand(load_zone(SUNNY).scenario, Flexibility(), 1)


def exact_rate(demand: Demand, signed: np.ndarray) -> float:
    tariff = demand.scenario.tariff
    rate = tariff.alpha * float(signed.sum()) / 1000 + tariff.beta
    return min(max(rate, tariff.floor), tariff.cap)


def test_homes_that_export_answer_with_signed_readings() -> None:
    demand = sunny_homes()
    noon = [demand.step(demand.usual) for _ in range(NOON)][-1]
    assert noon.min() < -100, "no panel feeds in at noon"
    zone = demand.scenario.zone
    assert (noon >= -zone.export).all()
    assert (noon <= zone.bound - zone.export).all()


def test_pricing_takes_the_signed_readings_of_a_zone_that_exports() -> None:
    demand = sunny_homes()
    pricing = Pricing(demand.scenario, OPEN, 1)
    for _ in range(NOON):
        signed = demand.step(demand.usual)
        release = pricing.publish(signed)
        assert release.rate == pytest.approx(exact_rate(demand, signed), abs=1e-4)
    offset = demand.scenario.zone.offset
    assert release.load_hat - offset == pytest.approx(signed.sum(), abs=100)


def test_mosaik_prices_a_zone_that_exports() -> None:
    pytest.importorskip("mosaik_api_v3")
    demand = sunny_homes()
    adapter = mosaik_simulator(lambda: Pricing(demand.scenario, OPEN, 1), lambda: demand)()
    adapter.init("sunny")
    (zone,), (homes,) = adapter.create(1, "Zone"), adapter.create(1, "Homes")
    for step in range(NOON):
        adapter.step(900 * step, {}, 0)
        wh = adapter.get_data({homes["eid"]: ["wh"]})[homes["eid"]]["wh"]
    adapter.step(900 * NOON, {zone["eid"]: {"wh": {"meters": wh}}}, 0)
    price = adapter.get_data({zone["eid"]: ["price"]})[zone["eid"]]["price"]
    assert min(wh) < 0
    assert price == pytest.approx(exact_rate(demand, np.array(wh)), abs=1e-4)


def sunny_federate() -> None:
    """The homes: at noon, whatever the price."""
    demand = sunny_homes()
    signed = [demand.step(demand.usual) for _ in range(NOON)][-1]
    join_helics("homes", lambda _: signed, hears="zone/price", says="homes/wh", steps=3)


def sunny_zone() -> tuple[list[np.ndarray], list[float]]:
    """The zone with the broker of both federates: readings that it heard, and its prices."""
    import helics

    pricing, readings, prices = Pricing(sunny_homes().scenario, OPEN, 1), [], []
    broker = helics.helicsCreateBroker("zmq", "", "-f 2")

    def price(wh: list[float] | None) -> list[float]:
        if wh:
            readings.append(np.array(wh))
            prices.append(pricing.publish(wh).rate)
        return prices[-1:] or [0.0]

    join_helics("zone", price, hears="homes/wh", says="zone/price", steps=3)
    # until the homes have left, too: they wait for its answer
    helics.helicsBrokerWaitForDisconnect(broker, 60_000)
    helics.helicsCloseLibrary()
    return readings, prices


@pytest.mark.soak
def test_helics_prices_a_zone_that_exports() -> None:
    pytest.importorskip("helics")
    # a process each, as federates have: two cores in one process may wait for each other for ever
    with get_context("spawn").Pool(2) as pool:
        zone, homes = pool.apply_async(sunny_zone), pool.apply_async(sunny_federate)
        readings, prices = zone.get(timeout=120)
        homes.get(timeout=120)
    assert readings[0].min() < 0
    assert prices[0] == pytest.approx(exact_rate(sunny_homes(), readings[0]), abs=1e-4)


def test_gymnasium_prices_a_zone_that_exports() -> None:
    pytest.importorskip("gymnasium")
    from hushgrid.lab.environments import PriceSetting

    env = PriceSetting(lambda _: sunny_homes(), OPEN, budget=1e9)
    env.reset(seed=1)
    twin = sunny_homes()
    price, rewards = twin.usual, []
    for _ in range(NOON):
        signed = twin.step(price)
        _, reward, _, _, more = env.step(np.array([1.0], env.action_space.dtype))
        price = more["price"]
        assert price == pytest.approx(exact_rate(twin, signed), abs=1e-3)
        rewards.append(reward)
    assert signed.min() < 0
    assert min(rewards) > -1e-4, "the exact price costs nothing"
