"""
Half of the promised noise is found by an audit from outside
============================================================

An auditor runs a publisher many times on two worlds that differ in one home's occupancy. The
samples certify a lower bound on the true ε: it can prove that a promise is broken, and never that
it is kept.
"""

import os
from dataclasses import replace

import matplotlib.pyplot as plt

from hushgrid import Policy, load_zone
from hushgrid.audit.evidence import Terms
from hushgrid.audit.publishers import hushgrid
from hushgrid.lab.black_box import certify_publisher

sizes = (300,) if os.environ.get("HUSHGRID_SMALL") else (1000, 3000, 10_000, 30_000)
street = load_zone("../release.toml").scenario
policy = Policy(epsilon=0.5, horizon=4)
terms = Terms(street.zone, street.tariff, street.models, street.consumption, policy)


def careless(terms, *, seed=None):
    """A publisher with half of the noise that it promises."""
    return hushgrid(replace(terms, policy=replace(terms.policy, epsilon=1.0)), seed=seed)


# %%
# Certified with 95 % confidence from more and more samples.
figure, axes = plt.subplots(layout="constrained")
publishers = (("half of the noise", careless, "0.5"), ("hushgrid", hushgrid, "tab:blue"))
for label, factory, color in publishers:
    bounds = [
        certify_publisher(factory, terms, samples=samples, confidence=0.95, seed=1)
        for samples in sizes
    ]
    certified = [found.one_step.epsilon for found in bounds]
    axes.semilogx(sizes, certified, marker="o", color=color, label=label)
    print(f"{label}: ε is at least {certified[-1]:.2f}, promised {bounds[-1].promised:.2f}")
axes.axhline(0.5, color="grey", linestyle=":", label="promised")
axes.set(xlabel="samples of each world", ylabel="certified ε of a release", ylim=(0, 1.1))
axes.legend()
plt.show()
