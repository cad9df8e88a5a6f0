"""
A clamp below the contract bound makes the price better
=======================================================

Noise grows with the largest reading that a house may have, and few readings come near it. A clamp
cuts readings: less noise, but the energy above it is not measured any more.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Consumption, Gamma, LogNormal, OccupancyModel, Policy, Zone
from hushgrid.planning.clamp import choose_clamp, expected_error

steps = 4 if os.environ.get("HUSHGRID_SMALL") else 24
homes, bound = 200, 2500
zone = Zone("elm-street", [bound] * homes)
stay = [[0.97, 0.03], [0.05, 0.95]]
theta = OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * homes)
f = Consumption.by_class(
    absent=[Gamma(2, 20, bound)], present=[LogNormal(110, 0.8, bound)], class_of=[0] * homes
)
clamps = np.unique(np.geomspace(60, bound, 6 if steps == 4 else 16).astype(int))

# %%
# Expected error of a release at each clamp, for three errors ρ of the public model, and the clamp
# that the planner chooses.
figure, axes = plt.subplots(layout="constrained")
for rho, color in ((0.0, "skyblue"), (0.2, "tab:blue"), (0.5, "navy")):
    error = [
        expected_error([theta], zone, f, Policy(0.5, horizon=steps, clamp=(int(clamp),)), rho)[0]
        for clamp in clamps
    ]
    best = choose_clamp([theta], zone, f, Policy(0.5, horizon=steps), rho)
    axes.plot(clamps, np.array(error) / 1000, color=color, label=f"ρ = {rho}")
    axes.plot(best.clamp[0], best.error / 1000, "o", color=color)
    print(f"ρ = {rho}: clamp {best.clamp[0]} Wh, error {best.error / 1000:.2f} kWh")
axes.set(xscale="log", yscale="log", xlabel="clamp [Wh]", ylabel="expected error [kWh]")
axes.legend(title="error of the model")
plt.show()
