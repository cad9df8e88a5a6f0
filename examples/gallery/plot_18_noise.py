"""
One secret draw sets how far noise reaches for a whole block of steps
=====================================================================

A promise about any 24 hours pays once for a block. Its size M is drawn once and stays secret; the
noise of each step is uniform between −M and M. Releases near the edges tell a filter how large M
is, so a long block shows the level of the load.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid.mechanism.noise import SimulatedNoise

blocks = 2 if os.environ.get("HUSHGRID_SMALL") else 6
length, scale = 16, 2_500.0  # steps of 15 minutes, Wh
hours = np.arange(blocks * length) / 4

# %%
# A load between 60 and 120 kWh a step, and the noise of each block.
load = 90_000 - 30_000 * np.cos(2 * np.pi * (hours - 3) / 24)
noise = SimulatedNoise(seed=4).blocks(scale, length, blocks)
reach = np.abs(noise).max(axis=1)
print(f"largest noise of each block [Wh]: {reach.tolist()}")

# %%
# What is published, in blue, and what is not, in orange.
figure, axes = plt.subplots(layout="constrained")
edge = np.repeat(reach, length)
axes.fill_between(
    hours, (load - edge) / 1000, (load + edge) / 1000, step="post", color="tab:orange", alpha=0.2,
    label="reach of the noise, secret",
)  # fmt: skip
axes.plot(hours, load / 1000, color="tab:orange", label="load, secret")
axes.plot(hours, (load + noise.ravel()) / 1000, ".", color="tab:blue", label="published load")
axes.set(xlabel="hour of the day", ylabel="load [kWh a quarter hour]")
axes.legend()
plt.show()
