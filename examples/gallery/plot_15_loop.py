"""
Does privacy noise upset demand response?
=========================================

Cars, heat pumps, batteries and appliances follow the price, and their load sets the next one. The
same homes, under the exact price and under private ones, as more of them react by themselves.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid.compare.flexible import Flexibility
from hushgrid.compare.loop import LoopSetting, close_loop, street
from hushgrid.compare.methods import MethodPromise

small = bool(os.environ.get("HUSHGRID_SMALL"))
zone = street(40 if small else 1000, 1)
shares = (1.0,) if small else (0.25, 0.5, 0.75, 1.0)
prices = ("exact", "raw", "estimated", "blocks")
promise = MethodPromise("step" if small else "interval", 1.0)
found = {}
for share in shares:
    setting = LoopSetting(
        Flexibility(automation=share), promise, days=2 if small else 7, prices=prices
    )
    found[share] = close_loop(zone, setting, seed=1)
    gain = found[share].gain
    low, high = gain.ci95
    print(f"{share:.0%} automated: loop gain {gain.mean:.2f} ({low:.2f} to {high:.2f})")

# %%
# Differences to the exact price on the same days, 95 % intervals. With 1,000 homes the noise of
# a raw price is large. All devices see the same noise, so it adds peaks and ramps; as more homes
# react, that is lost in their own herding. The public's estimate of the load moves less than the
# load, and calms the loop: from half of the homes on, ramps fall by a third to a half and devices
# switch less. Smoothing does that, not noise: docs/loop.md has 10,000 homes, and smoothed prices.
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for axes, name in zip(panels, ("peak", "ramp", "switches"), strict=True):
    for place, price in enumerate(prices[1:]):
        usual = np.array([loop.summary("exact", name).mean for loop in found.values()])
        differ = [loop.against(price, name) for loop in found.values()]
        mean = np.array([one.mean for one in differ]) / usual
        half = np.array([(one.ci95[1] - one.ci95[0]) / 2 for one in differ]) / usual
        at = np.array(shares) + 0.02 * (place - 1)
        axes.errorbar(at, 100 * mean, 100 * half, fmt="o", capsize=3, label=price)
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set(title=name, xlabel="share of homes that react", ylabel="against the exact price [%]")
panels[0].legend()
plt.show()
