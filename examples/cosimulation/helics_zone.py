"""A zone and its homes as two federates of HELICS: pip install 'hushgrid[helics]', then run it."""

import multiprocessing
import sys

import helics

from hushgrid import Policy
from hushgrid.lab.cosimulation import Demand, Pricing, join_helics
from hushgrid.lab.flexible import Flexibility
from hushgrid.lab.loop import street

STEPS = 96


def homes(steps=STEPS):
    """Readings of each step at the last price."""
    demand = Demand(street(200, 1), Flexibility(), 1)
    join_helics(
        "homes", lambda heard: demand.step(heard[0] if heard else demand.usual),
        hears="zone/price", says="homes/wh", steps=steps,
    )  # fmt: skip


def main():
    broker = helics.helicsCreateBroker("zmq", "", "-f 2")
    other = multiprocessing.get_context("spawn").Process(target=homes)
    other.start()
    demand = Demand(street(200, 1), Flexibility(), 1)
    pricing = Pricing(demand.scenario, Policy(1.0, STEPS), 1)
    prices = [demand.usual]

    def price(heard):
        if heard:
            prices.append(pricing.publish([int(wh) for wh in heard]).rate)
        return prices[-1:]

    join_helics("zone", price, hears="homes/wh", says="zone/price", steps=STEPS)
    other.join()
    helics.helicsBrokerDisconnect(broker)
    helics.helicsCloseLibrary()
    sys.stdout.write(f"{len(prices) - 1} prices, {min(prices):.3f} to {max(prices):.3f}\n")


if __name__ == "__main__":
    main()
