"""
Smoothing calms devices that follow the price; raw noise stirs them
===================================================================

Cars, heat pumps, batteries and appliances follow the price, and their load sets the next one. The
same homes, under the exact price and under private ones, as more of them react by themselves, in
several independent worlds.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid.lab.flexible import Flexibility
from hushgrid.lab.loop import LoopSetting, close_loops, street
from hushgrid.lab.methods import MethodPromise

small = bool(os.environ.get("HUSHGRID_SMALL"))
homes, seeds = (40, (1, 2)) if small else (1000, (1, 2, 3, 4))
shares = (1.0,) if small else (0.25, 0.5, 0.75, 1.0)
prices = ("exact", "raw", "estimated", "filtered")
promise = MethodPromise("step" if small else "interval", 1.0)
found = {}
for share in shares:
    setting = LoopSetting(
        Flexibility(automation=share), promise, days=2 if small else 3, prices=prices
    )
    found[share] = close_loops(lambda seed: street(homes, seed), setting, seeds)
    gain = found[share].gain
    low, high = gain.ci95
    print(f"{share:.0%} automated: loop gain {gain.mean:.2f} ({low:.2f} to {high:.2f})")

# %%
# Differences to the exact price in the same worlds, 95 % intervals over the worlds. With 1,000
# homes the noise of a raw price is large, all devices see it at once, and peaks and ramps grow.
# The public's estimate of the load moves less than the load, and calms the loop. Is that its
# noise or its smoothing? `filtered` is the exact load in the same filter, without noise: it calms
# the loop as well, so noise is not what breaks the herding.
colors = "skyblue", "tab:blue", "tab:orange"
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for axes, name in zip(panels, ("peak", "ramp", "switches"), strict=True):
    for place, (price, color) in enumerate(zip(prices[1:], colors, strict=True)):
        differ = [loop.relative(price, name) for loop in found.values()]
        mean = np.array([one.mean for one in differ])
        half = np.array([(one.ci95[1] - one.ci95[0]) / 2 for one in differ])
        at = np.array(shares) + 0.02 * (place - 1)
        axes.errorbar(at, 100 * mean, 100 * half, fmt="o", color=color, capsize=3, label=price)
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set(title=name, xlabel="share of homes that react", ylabel="against the exact price [%]")
panels[0].legend()
plt.show()

# %%
# The same split in two: what the filter does to the exact price, and what noise does to the
# filtered one. Noise makes devices switch more. Four worlds do not say what it does to the peak
# where all homes react; docs/loop.md has ten worlds, in which noise raises it, and 10,000 homes.
for share, loop in found.items():
    for own, other in (("filtered", "exact"), ("estimated", "filtered")):
        for name in ("peak", "ramp", "switches"):
            one = loop.relative(own, name, other)
            low, high = one.ci95
            print(f"{share:.0%}: {own} against {other}, {name} {one.mean:+.1%}"
                  f" ({low:+.1%} to {high:+.1%})")  # fmt: skip
