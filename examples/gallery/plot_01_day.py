"""
Among 1,000 homes the published price is off by 0.4 %
=====================================================

A zone of 1,000 homes publishes one price every 15 minutes. The optimal rate follows the load, and
the load follows who is at home. The published rate is that of the noisy load. Here and in all
figures blue is published and orange is secret.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import (
    Consumption,
    Gamma,
    LogNormal,
    OccupancyModel,
    Policy,
    Scenario,
    Tariff,
    Zone,
    simulate,
)

steps = 24 if os.environ.get("HUSHGRID_SMALL") else 96
homes = 1000
one_class = [0] * homes

# %%
# What is public: the bounds of the contracts, the tariff, an occupancy model and two laws.
zone = Zone("elm-street", [2500] * homes)  # Wh in 15 minutes
tariff = Tariff(alpha=0.00016, beta=0.05)  # rate = alpha * kWh + beta
stay = [[0.97, 0.03], [0.05, 0.95]]  # away, home: chances a step
theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=one_class)
f = Consumption.by_class(
    absent=[Gamma(2, 20, 2500)], present=[LogNormal(110, 0.8, 2500)], class_of=one_class
)

# %%
# Half of a nat for each release. The law of a reading is trusted up to a share of 5 %.
policy = Policy(epsilon=0.5, eta=0.05, horizon=steps)
day = simulate(Scenario(zone, tariff, [theta], f), policy, seed=1)
print(f"noise scale {day.releases[0].scale:.0f} Wh, error of the price {day.rmsre:.1%}")

# %%
# The optimal rate is secret. It is drawn here because the homes are simulated.
hours = np.arange(steps) / 4
figure, (above, below) = plt.subplots(2, sharex=True, layout="constrained")
above.step(hours, day.published, where="post", color="tab:blue", label="published rate")
above.step(hours, day.optimal, "--", where="post", color="tab:orange", label="optimal rate, secret")
above.set_ylabel("price [EUR/kWh]")
above.legend()
below.step(hours, day.home, where="post", color="tab:orange")
below.set(xlabel="hour of the day", ylabel="homes occupied, secret")
plt.show()
