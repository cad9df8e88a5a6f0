"""
Where roofs feed in, signed readings with noise beat cut ones without
=====================================================================

A third of 1,000 homes feed in at noon. Readings cut to 0 forget that, and the price at noon is
wrong even without noise. Signed readings give the price of the net load.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import SimulatedNoise, init, load_zone, plan, public_rate, step, tally
from hushgrid.model.world import World
from hushgrid.model.zone import feed_in_rate

days, steps = (1 if os.environ.get("HUSHGRID_SMALL") else 30), 96
scenario = load_zone("../sunny.toml").scenario
zone, tariff = scenario.zone, scenario.tariff

# %%
# The promise: occupancy at one step from all releases, epsilon = 1, no law trusted.
found = plan(*scenario.terms, secret="interval", epsilon=1.0, blocks=True)
expected, most = found.bill_change
print(f"a bill of a month: {expected:.2%} expected, {most:.2%} at most with 95 %")

# %%
# A month. Bills are at published prices and at exact ones; `spread` is the variance by noise.
world, noise = World(scenario, (1,)), SimulatedNoise(2)
exact, cut, published = np.empty((3, days, steps))
paid, due, spread = np.zeros((3, zone.n_houses))
for day in range(days):
    state = init(*scenario.terms, found.policy)
    for t in range(steps):
        world.step(())
        x = world.readings - zone.export  # as meters report it
        release, state = step(state, tally(x, state.zone.bound, state.zone.export), noise)
        load = int(x.sum()) + zone.offset
        exact[day, t] = public_rate(load, tariff)
        cut[day, t] = public_rate(int(np.maximum(x, 0).sum()) + zone.offset, tariff)
        published[day, t] = release.rate
        paid += x / 1000 * np.where(x >= 0, release.rate, release.feed_in)
        due += x / 1000 * np.where(x >= 0, exact[day, t], feed_in_rate(load, tariff))
        slope = np.where(x >= 0, tariff.alpha, tariff.feed_in.alpha)
        spread += (x / 1000 * slope * release.spread / 1000) ** 2

for name, rates in (("cut to 0, no noise", cut), ("signed, epsilon = 1", published)):
    errors = np.sqrt(((rates - exact) ** 2).mean(axis=0))
    print(f"{name}: off by {errors.mean():.4f}, from 11 to 15 h by {errors[44:60].mean():.4f}")
change = np.sort(np.sqrt(spread * 2 / np.pi) / np.abs(due))  # expected size
low, high = np.quantile(change, [0.5, 0.95])
print(f"expected change of a bill: median {low:.2%}, 95 % of homes {high:.2%} or less")
print(f"total paid: {paid.sum() / due.sum() - 1:+.2%}")


# %%
# Other skies than the model's: all roofs have the same share of its sun. The policy stays.
def under(sun):
    """The zone with so much of the sun."""
    text = re.sub(
        r"centre = (\d+), spread = (\d+)",
        lambda law: f"centre = {int(law[1]) * sun:.0f}, spread = {int(law[2]) * sun:.0f}",
        Path("../sunny.toml").read_text(),
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "zone.toml"
        path.write_text(text)
        return load_zone(path).scenario


for sun in (0.1, 0.25, 0.5, 0.75, 1.0, 1.2):
    world, noise, net = World(under(sun), (1,)), SimulatedNoise(2), []
    errors = {"raw": [], "estimate": []}
    for _ in range(min(days, 6)):
        states = {
            name: init(*scenario.terms, replace(found.policy, publish=name)) for name in errors
        }
        for t in range(steps):
            world.step(())
            x = world.readings - zone.export
            for name, state in states.items():
                seen = tally(x, state.zone.bound, state.zone.export)
                release, states[name] = step(state, seen, noise)
                load = release.estimate or release.load_hat + release.put_back
                if 44 <= t < 60:
                    errors[name].append((load - zone.offset - x.sum()) / 1000)
            net += [x.sum() / 1000] * (44 <= t < 60)
    print(f"sun x {sun}: {np.mean(net):.0f} kWh from 11 to 15 h", end="")
    for name, off in errors.items():
        print(
            f"; {name} off by {np.mean(off):+.0f}, rms {np.sqrt(np.mean(np.square(off))):.0f}",
            end="",
        )
    print()

# %%
figure, (above, below) = plt.subplots(2, layout="constrained")
lines = {"exact, secret": exact, "cut to 0": cut, "published": published}
for (name, rates), color in zip(lines.items(), ("tab:orange", "0.5", "tab:blue"), strict=True):
    above.step(np.arange(steps) / 4, rates[0], where="post", color=color, label=name)
above.set(xlabel="hour of the day", ylabel="price [EUR/kWh]")
above.legend()
below.plot(100 * change, np.linspace(0, 1, len(change)), color="tab:blue")
below.set(xlabel="expected change of a month's bill [%]", ylabel="share of homes", xlim=(0, 3))
plt.show()
