"""
At a small ε Laplace noise is close to the least possible
=========================================================

A linear programme finds the least standard deviation of any additive noise that keeps two laws of
one reading within ε. Laplace noise is compared with that floor: calibrated to the laws (η = 0), and
to the bound alone (η = 1).
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import smallest_scale
from hushgrid.lab.pufferfish import floor_sd

cells = 8 if os.environ.get("HUSHGRID_SMALL") else 24
absent = np.repeat([1.0, 0.0], [cells // 2, cells - cells // 2]) / (cells // 2)
present = np.full(cells, 1 / cells)
epsilons = np.array([0.2, 0.5, 1.0, 2.0])

# %%
# Readings spread evenly up to half of the bound while away and up to the bound while at home. The
# standard deviation of integer Laplace noise follows from its scale.
top = cells - 1
floors = [floor_sd(absent, present, epsilon) / top for epsilon in epsilons]
figure, axes = plt.subplots(layout="constrained")
for eta, color in ((1.0, "navy"), (0.05, "tab:blue"), (0.0, "skyblue")):
    scales = [
        smallest_scale(absent, present, bound=top, epsilon=epsilon, eta=eta, floor=0.1)
        for epsilon in epsilons
    ]
    ratios = np.exp(-1 / np.array(scales))
    spread = np.sqrt(2 * ratios) / (1 - ratios) / top
    axes.loglog(epsilons, spread, marker="o", color=color, label=f"Laplace, η = {eta:g}")
axes.loglog(epsilons, floors, "k--", label="least possible, η = 0")
axes.set(xlabel="ε of a release", ylabel="standard deviation over the bound")
axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axes.set_xticks([], minor=True)
axes.legend()
plt.show()
