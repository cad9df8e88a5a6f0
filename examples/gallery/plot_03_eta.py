"""
Trust in the law of consumption buys smaller noise, and the promise falls with it
=================================================================================

η is the share of each reading's law that may be anything. At η = 1 no law is assumed and the noise
covers the whole contract bound. At η = 0 the law is taken as exact, and the noise covers only how
the two laws differ.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Gamma, LogNormal, smallest_scale, worst_loss

bound = 500 if os.environ.get("HUSHGRID_SMALL") else 2500
absent, present = Gamma(2, 20, bound).pmf, LogNormal(110, 0.8, bound).pmf
etas = np.array([0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1])

# %%
# The smallest scale for three promises.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for epsilon, color in ((0.2, "navy"), (0.5, "tab:blue"), (1.0, "skyblue")):
    scales = [
        smallest_scale(absent, present, bound=bound, epsilon=epsilon, eta=eta) for eta in etas
    ]
    left.plot(etas, scales, marker="o", color=color, label=f"ε = {epsilon}")
left.set_xscale("symlog", linthresh=0.001)
left.set(xlabel="η", ylabel="noise scale [Wh]", yscale="log", xlim=(-2e-4, 1.5))
left.legend()

# A scale that was chosen for one η, and what it loses where more of the law is wrong.
for chosen, color in ((0.0, "skyblue"), (0.01, "tab:blue"), (1.0, "navy")):
    scale = smallest_scale(absent, present, bound=bound, epsilon=0.5, eta=chosen)
    losses = [worst_loss(absent, present, bound=bound, scale=scale, eta=eta) for eta in etas]
    right.plot(etas, losses, marker="o", color=color, label=f"chosen for η = {chosen:g}")
right.axhline(0.5, color="grey", linestyle=":", label="ε = 0.5")
right.set_xscale("symlog", linthresh=0.001)
right.set(xlabel="η that holds", ylabel="loss [nat]", yscale="log", xlim=(-2e-4, 1.5))
right.legend(loc="lower right", fontsize="small")
plt.show()
