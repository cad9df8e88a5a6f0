"""
Readings without labels show when homes are occupied
====================================================

Readings of homes without any label, and the hidden Markov models that fit them. The chance that a
home is occupied, by time of day, is held against the truth of the simulation.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid import Gamma, LogNormal
from hushgrid.learning.em import Design, fit, posterior
from hushgrid.learning.habits import assumed_presence

homes, days = (2, 7) if os.environ.get("HUSHGRID_SMALL") else (8, 60)
day = 48  # steps of 30 minutes
t = np.arange(day * days)

# %%
# Homes that follow assumed habits. Their readings have one law at home and one away.
rng = np.random.default_rng(1)
come, leave = (assumed_presence(1800).transition[:day, s, 1 - s] for s in (0, 1))
state = np.ones((homes, len(t)), int)
for step in t[1:]:
    before, draw = state[:, step - 1], rng.random(homes)
    move = np.where(before == 1, leave[step % day], come[step % day])
    state[:, step] = np.where(draw < move, 1 - before, before)
away, home = Gamma(2, 40, 5000), LogNormal(220, 0.8, 5000)
uniforms = rng.random(state.shape)
readings = np.where(state == 1, home.sample(uniforms), away.sample(uniforms)).astype(float)

# %%
# One fit for each home: transitions by hour of the day, log-normal laws, no labels.
slots = (t % day).astype(np.int32)
design = Design(np.zeros(len(t), np.int32), slots, np.full((day, 2, 2), 0.5), iterations=40)
found = fit(readings, design)
belief = posterior(readings, found)
print(f"right about occupancy: {np.mean((belief > 0.5) == state):.1%} of all half hours")

# %%
# By time of day, over all homes and days.
hours = np.arange(day) / 2
figure, axes = plt.subplots(layout="constrained")
shape = homes * days, day
axes.step(
    hours,
    state.reshape(shape).mean(axis=0),
    where="post",
    color="tab:orange",
    label="truth, secret",
)
guess = belief.reshape(shape).mean(axis=0)
axes.step(hours, guess, "--", where="post", color="tab:blue", label="learned from readings")
axes.set(xlabel="hour of the day", ylabel="share of homes occupied", ylim=(0, 1))
axes.legend()
plt.show()
