"""
Noise that lasts a block of steps is half of fresh noise at each
================================================================

Where occupancy lasts, releases of neighbouring steps say almost the same. One joint noise for a
block of steps then keeps the promise about an interval with less error than fresh noise each step.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Consumption, Gamma, LogNormal, OccupancyModel, Policy, Tariff, Zone, plan

steps = 16 if os.environ.get("HUSHGRID_SMALL") else 96
homes, bound = 2000, 2500
one_class = [0] * homes
zone, tariff = Zone("elm-street", [bound] * homes), Tariff(alpha=0.004, beta=0.05)
f = Consumption.by_class(
    absent=[Gamma(2, 20, bound)], present=[LogNormal(110, 0.8, bound)], class_of=one_class
)
slow = [[0.985, 0.015], [0.02, 0.98]]  # away, home: chances a step
theta = OccupancyModel.factored([[0.3, 0.7]], [[slow]], chain_of=one_class)

# %%
# The same promise twice: all prices of the day together, 1 nat about any quarter hour. η is 1, so
# no law of consumption is assumed; readings are cut at 300 Wh.
plans = {
    label: plan(
        zone, tariff, [theta], f, secret="interval", epsilon=1.0,
        terms=Policy(1.0, horizon=steps, clamp=(300,)), rho=None, blocks=blocks,
    )
    for label, blocks in (("each step", False), ("blocks of steps", True))
}  # fmt: skip

# %%
# Standard deviation of the noise of each step, and where the blocks begin.
figure, axes = plt.subplots(layout="constrained")
hours = np.arange(steps) / 4
for (label, found), color in zip(plans.items(), ("skyblue", "tab:blue"), strict=True):
    schedule = found.policy.schedule
    spread = np.sqrt(found.prospect.noise) / 1000
    axes.step(hours, spread, where="post", color=color, label=f"noise for {label}")
    print(f"{label}: {found.leakage:.3f} nat, {np.sqrt(np.mean(spread**2)):.1f} kWh of noise")
    for begin in np.cumsum((0, *schedule.lengths))[:-1]:
        axes.axvline(begin / 4, color="grey", linewidth=0.5, linestyle=":")
load = plans["each step"].prospect.load.mean() / 1000
print(f"mean load: {load:.0f} kWh")
axes.set(xlabel="hour of the day", ylabel="noise, standard deviation [kWh]", ylim=(0, None))
axes.legend()
plt.show()
