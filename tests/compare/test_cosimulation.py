"""The mechanism in other people's simulations: each example in a process of its own."""

import os
import pickle
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid import Policy, PolicyError
from hushgrid.compare.cosimulation import Demand, Pricing
from hushgrid.compare.flexible import Flexibility
from hushgrid.compare.loop import street

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
    return gymnasium.make(f"hushgrid.compare.environments:{name}")


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
    from hushgrid.compare.environments import RATIO, CarCharging

    high = CarCharging(lambda _: prices)
    seen, _ = high.reset(seed=1)
    assert seen[0] == RATIO
    assert env.observation_space.contains(seen)
