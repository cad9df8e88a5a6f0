"""
All prices together say far more about a quarter hour than its own
==================================================================

Occupancy lasts. A price of 10:00 says something about 09:00 and about 11:00 as well, so all prices
together say more about one quarter hour than its own price does.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import OccupancyModel, temporal_leakage

steps = 48 if os.environ.get("HUSHGRID_SMALL") else 96


def leakage(leave, come, epsilon):
    """Leakage about each step of a house that leaves and comes with these chances a step."""
    chain = [[1 - come, come], [leave, 1 - leave]]
    theta = OccupancyModel.factored([[0.3, 0.7]], [[chain]], chain_of=[0])
    return temporal_leakage(theta, np.full(steps, epsilon))


# %%
# One house, 0.1 nat for each release. Backward: the releases up to a step; forward: from it on.
found = leakage(leave=0.05, come=0.03, epsilon=0.1)
hours = np.arange(steps) / 4
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(hours, found.total[:, 0], color="tab:blue", label="all releases")
left.plot(hours, found.backward[:, 0], "--", color="navy", label="releases so far")
left.plot(hours, found.forward[:, 0], "-.", color="skyblue", label="releases from then on")
left.axhline(0.1, color="grey", linestyle=":", label="its own release")
left.set(xlabel="hour of the day", ylabel="leakage about the step [nat]", ylim=(0, None))
left.legend()

# The longer occupancy lasts, the more all prices say: up to the sum over the whole day.
lasting = np.geomspace(0.5, 50, 12)  # mean hours at home and away
worst = [leakage(0.25 / one, 0.25 / one, 0.1).worst for one in lasting]
right.plot(lasting, worst, marker="o", color="tab:blue")
right.axhline(0.1 * steps, color="grey", linestyle=":", label="sum of all releases")
right.set(xscale="log", xlabel="mean hours at home", ylabel="worst leakage [nat]")
right.legend()
plt.show()
