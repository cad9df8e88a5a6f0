"""
A calibrator of your own is one class, and a weak one is refused
================================================================

A calibrator answers how much noise the cases of a step need. This one is the Wasserstein mechanism.
hushgrid measures what it leaves and refuses a release that would lose more than ε.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

import hushgrid as hg
from hushgrid.testing import check_calibrator

homes, bound = 20, 500 if os.environ.get("HUSHGRID_SMALL") else 2500


def gap(case):
    """Largest gap between the quantiles of the laws before and after."""
    total = 0
    for before, after in zip(case.before, case.after, strict=True):
        cdfs = np.cumsum(before.pmf), np.cumsum(after.pmf)
        levels = np.unique(np.concatenate(cdfs)) - 1e-12
        low, high = (np.searchsorted(cdf, levels) for cdf in cdfs)
        total += np.abs(low - high).max()
    return float(total)


class Wasserstein:
    """Noise in proportion to the largest gap, for policies that trust the laws."""

    def scale(self, exposure, policy):
        """Answer an exposure with a scale."""
        if not exposure.cases:
            return hg.Answer(0.0, 0.0, None)
        worst = max(exposure.cases, key=gap)
        scale = max(gap(worst) / policy.epsilon, policy.min_scale)
        return hg.Answer(scale, gap(worst) / scale, worst)


# %%
# The suite enumerates small zones and raises if the noise is too small anywhere.
check_calibrator(Wasserstein, etas=[0.0])

# %%
# Noise of one step against ε, next to the exact calibration of hushgrid.
zone = hg.Zone("elm-street", [bound] * homes)
stay = [[0.97, 0.03], [0.05, 0.95]]
theta = hg.OccupancyModel.factored([[0.3, 0.7]], [[stay]], chain_of=[0] * homes)
f = hg.Consumption.by_class(
    absent=[hg.Gamma(2, 20, bound)], present=[hg.LogNormal(110, 0.8, bound)], class_of=[0] * homes
)
epsilons = np.geomspace(0.1, 2, 6)
figure, axes = plt.subplots(layout="constrained")
for calibrator, color in ((Wasserstein(), "skyblue"), (hg.TrustCalibrator(), "tab:blue")):
    scales = [
        hg.schedule([theta], zone, f, hg.Policy(epsilon, horizon=1, eta=0.0), calibrator)[0].scale
        for epsilon in epsilons
    ]
    axes.loglog(epsilons, scales, marker="o", color=color, label=type(calibrator).__name__)
axes.set(xlabel="ε of a release", ylabel="noise scale [Wh]")
axes.legend()
plt.show()
