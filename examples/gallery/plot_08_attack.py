"""
Exact prices show who is at home; published ones say what habits say
====================================================================

An adversary knows the model, every price and the readings of all other homes. It guesses when one
home is occupied: from exact prices, and from the prices that hushgrid publishes.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Policy, load_zone
from hushgrid.adversary.attack import attack
from hushgrid.lab.attack import record, versions

steps = 32 if os.environ.get("HUSHGRID_SMALL") else 96
street = load_zone("../release.toml").scenario
policy = Policy(epsilon=0.1, eta=0.05, horizon=steps)
day = record(street, policy, seed=4)

# %%
# The same day in several versions: exact prices, the paper's mechanisms, and as published.
kinds = {"open": "exact prices", "hushgrid": "as published"}
found = {
    name: attack(street, version.releases, day.truth, clamp=version.clamp, knows="others")
    for name, version in versions(street, policy, day, seed=4).items()
    if name in kinds
}
for name, label in kinds.items():
    auc = found[name].scores.auc
    print(f"{label}: AUC {auc.value:.3f}, prior alone {auc.prior:.3f}")

# %%
# One home of the street: what the adversary believes, step by step, and the truth. The home is one
# that leaves and comes back.
home = int(np.argmax(np.abs(np.diff(day.truth.occupancy.astype(int), axis=0)).sum(axis=0)))
hours = np.arange(steps) / 4
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
truth = day.truth.occupancy[:, home]
axes.fill_between(
    hours, truth, step="post", color="tab:orange", alpha=0.15, label="occupied, secret"
)
axes.step(
    hours, found["open"].home[:, home], where="post", color="tab:orange", label="from exact prices"
)
axes.step(
    hours,
    found["hushgrid"].home[:, home],
    where="post",
    color="tab:blue",
    label="from published prices",
)
axes.step(hours, found["open"].prior[:, home], ":", color="black", where="post", label="prior")
axes.set(xlabel="hour of the day", ylabel="belief that the home is occupied", ylim=(0, 1.3))
axes.legend(ncols=4, loc="upper center")
plt.show()
