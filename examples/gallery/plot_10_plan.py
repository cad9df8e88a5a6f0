"""
From 30 to 3,000 homes the estimate is the best way to publish
==============================================================

A plan starts from a promise: all prices together, at most ε about any 24 hours of a home. It
returns the noise of each step and the error to expect, so that size and promise can be chosen.
"""

import os

import matplotlib.pyplot as plt

from hushgrid import Consumption, Gamma, LogNormal, OccupancyModel, Policy, Tariff, Zone, plan

small = bool(os.environ.get("HUSHGRID_SMALL"))
steps, sizes = (12, (20, 200)) if small else (96, (30, 100, 300, 1000, 3000))
tariff = Tariff(alpha=0.004, beta=0.05)
stay = [[0.97, 0.03], [0.05, 0.95]]


def planned(homes):
    """The plan of a street with so many homes: no law of consumption is assumed."""
    theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * homes)
    f = Consumption.by_class(
        absent=[Gamma(2, 20, 2500)], present=[LogNormal(110, 0.8, 2500)], class_of=[0] * homes
    )
    zone = Zone("elm-street", [2500] * homes)
    terms = Policy(1.0, horizon=steps, estimator="filter")
    world = (zone, tariff, [theta], f)
    return plan(*world, secret="window", epsilon=1.0, terms=terms, window=steps + 1)


plans = [planned(homes) for homes in sizes]

# %%
# Three ways to publish: the noisy load, the public's estimate, and a forecast that uses no reading.
# The plan advises the one with the least error. ρ = 0.2: the model is off by 20 % on a usual day.
ways = {"raw": "noisy load", "estimate": "estimate", "forecast": "forecast, no readings"}
colors = "skyblue", "tab:blue", "0.5"
figure, axes = plt.subplots(layout="constrained")
for (way, label), color in zip(ways.items(), colors, strict=True):
    errors = [one.prospect.error(way) for one in plans]
    axes.loglog(sizes, errors, marker="o", color=color, label=label)
for homes, one in zip(sizes, plans, strict=True):
    print(f"{homes} homes: clamp {one.policy.clamp} Wh, publish the {one.prospect.best()}")
axes.set(xlabel="homes of the zone", ylabel="expected RMSRE, the paper's formula")
axes.legend()
plt.show()
