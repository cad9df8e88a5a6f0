"""
At one promise noise differs tenfold, and every estimate beats the forecast
===========================================================================

The methods that the paper names, each calibrated to the same promise: 1 nat about any quarter hour
of the day. The error of the noisy price, and of the public's best estimate from it.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from hushgrid.lab.bench import METHODS
from hushgrid.lab.comparison import compare
from hushgrid.lab.datasets import paper_world
from hushgrid.lab.methods import MethodPromise

small = bool(os.environ.get("HUSHGRID_SMALL"))
source = paper_world(0.0, 1, 1, shock=0.3, n=50 if small else 1000)
methods = (METHODS[6], METHODS[-1]) if small else METHODS
found = compare(
    source, MethodPromise("interval", 1.0), days=2 if small else 4, seed=1, methods=methods
)

# %%
# On these days all homes use more, or less, than their model expects, by 30 %. A forecast does not
# see that; prices from readings do. Methods that cannot give this promise are listed.
for name, reason in found.refused.items():
    print(f"{name}: {reason}")
labels = {method.name: method.label for method in found.methods}
names = [name for name in found.names if name in labels]
figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
parts = (("raw", "o", "skyblue"), ("estimated", "s", "tab:blue"))
for place, (part, marker, color) in enumerate(parts):
    errors = np.array([found.summary(name, part).mean for name in names])
    axes.plot(errors, np.arange(len(names)) + 0.15 * place, marker, color=color, label=part)
axes.set_yticks(range(len(names)), [labels[name] for name in names])
axes.invert_yaxis()
axes.set(xscale="log", xlabel=f"RMSRE, the paper's formula, {found.days} days")
axes.grid(axis="y", alpha=0.3)
axes.legend()
plt.show()
