"""A zone and its homes in mosaik 3: pip install 'hushgrid[mosaik]', then run this file."""

import sys

import mosaik
import mosaik_api_v3

from hushgrid import Policy
from hushgrid.lab.cosimulation import SECONDS, Demand, Pricing, mosaik_simulator
from hushgrid.lab.flexible import Flexibility
from hushgrid.lab.loop import street

STEPS = 96
HOMES = Demand(street(200, 1), Flexibility(), 1)
Hushgrid = mosaik_simulator(
    lambda: Pricing(HOMES.scenario, Policy(1.0, STEPS), 1), lambda: HOMES
)  # the noise of each release is u / epsilon, whatever devices do


class Printer(mosaik_api_v3.Simulator):
    """Keeps what it hears."""

    heard: list[float] = []  # noqa: RUF012

    def __init__(self):
        model = {"public": True, "params": [], "attrs": ["price"]}
        super().__init__({"api_version": "3.0", "type": "time-based", "models": {"Printer": model}})

    def create(self, num, model, **params):
        return [{"eid": "printer", "type": model}]

    def step(self, time, inputs, max_advance):
        self.heard.extend(p for p in inputs["printer"]["price"].values())
        return time + SECONDS

    def get_data(self, outputs):
        return {}


def main():
    config = {
        "Hushgrid": {"python": "__main__:Hushgrid"},
        "Printer": {"python": "__main__:Printer"},
    }
    with mosaik.World(config, debug=False) as world:
        simulator, printer = world.start("Hushgrid"), world.start("Printer").Printer()
        demand = world.start("Hushgrid")
        zone, homes = simulator.Zone(), demand.Homes()
        world.connect(homes, zone, "wh")
        world.connect(zone, homes, "price", time_shifted=True, initial_data={"price": HOMES.usual})
        world.connect(zone, printer, "price")
        world.run(until=STEPS * SECONDS, print_progress=False)
    prices = Printer.heard
    sys.stdout.write(f"{len(prices)} prices, {min(prices):.3f} to {max(prices):.3f}\n")


if __name__ == "__main__":
    main()
