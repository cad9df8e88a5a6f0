"""The mechanism in other people's simulations: each example in a process of its own."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from hushgrid import Policy, load_zone
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


def test_helics_prices_a_zone_that_exports() -> None:
    helics = pytest.importorskip("helics")
    demand = sunny_homes()
    pricing, heard_wh, prices = Pricing(demand.scenario, OPEN, 1), [], []
    signed = [demand.step(demand.usual) for _ in range(NOON)][-1]
    broker = helics.helicsCreateBroker("inproc", "sunny", "-f 2")

    def price(heard: list[float] | None) -> list[float]:
        if heard:
            heard_wh.append(np.array(heard))
            prices.append(pricing.publish(heard).rate)
        return prices[-1:] or [0.0]

    with ThreadPoolExecutor(1) as pool:
        federate = pool.submit(
            join_helics, "homes", lambda _: signed, hears="zone/price", says="homes/wh",
            steps=3, core="inproc", broker="--broker=sunny",
        )  # fmt: skip
        join_helics(
            "zone", price, hears="homes/wh", says="zone/price", steps=3, core="inproc",
            broker="--broker=sunny",
        )  # fmt: skip
        federate.result(timeout=60)
    helics.helicsBrokerDisconnect(broker)
    assert heard_wh[0].min() < 0
    assert prices[0] == pytest.approx(exact_rate(demand, signed), abs=1e-4)
