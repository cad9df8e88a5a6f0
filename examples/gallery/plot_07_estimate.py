"""
An estimate from published prices alone follows a load that no model knew
=========================================================================

The homes here use 30 % more than their model expects, and weekends differ from weekdays. A filter
that sees only what is published follows the load all the same, so the estimate costs no privacy.
"""

import os
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Consumption, Gamma, LogNormal, Policy, load_zone, simulate
from hushgrid.belief.load_filter import LoadFilter, SeenLoads

days = 1 if os.environ.get("HUSHGRID_SMALL") else 21
street = load_zone("../release.toml").scenario
kinds = np.repeat([0, 1], [90, 30])
used = Consumption.by_class(
    absent=[Gamma(2, 26, 2500), Gamma(2, 32, 4000)],
    present=[LogNormal(143, 0.8, 2500), LogNormal(200, 0.8, 4000)],
    class_of=kinds,
)
street = replace(street, consumed=used)

# %%
# Three weeks under one policy: 1 nat a release, no law of consumption assumed.
policy = Policy(epsilon=1.0, eta=1.0, horizon=96 * days)
played = simulate(street, policy, seed=1)
load = played.load
load_hat = np.array([float(release.load_hat) for release in played.releases])
scale = np.array([release.scale for release in played.releases])

# %%
# The filter starts from one public number: 60 Wh a home.
t = np.arange(len(load))
base = np.full(len(t), 60.0 * street.zone.n_houses)
seen = SeenLoads(load_hat, scale, base, t % 96 / 96, t // 96 % 7 >= 5)
found, _ = LoadFilter.start(hours=0.25).follow(seen)
low, high = found.interval(0.95)
for label, guess in (("noisy load", load_hat), ("estimate", found.estimate)):
    error = np.sqrt(np.mean((guess - load)[-672:] ** 2)) / load[-672:].mean()
    print(f"{label}: off by {error:.1%} in the last week")
held = np.mean((low <= load) & (load <= high))
print(f"the 95 % interval holds {held:.0%} of the loads")
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
last = slice(-192, None)
hours = np.arange(192)[: len(t)] / 4
axes.plot(hours, load_hat[last] / 1000, ".", color="lightsteelblue", label="published noisy load")
axes.fill_between(
    hours, low[last] / 1000, high[last] / 1000, alpha=0.2, color="tab:blue", label="95 % interval"
)
axes.plot(hours, found.estimate[last] / 1000, color="tab:blue", label="estimate")
axes.plot(hours, load[last] / 1000, color="tab:orange", linewidth=1, label="load, secret")
axes.set(xlabel="hour of the last two days", ylabel="load [kWh a quarter hour]")
axes.legend(ncols=2)
plt.show()
