"""The public world of the larger benchmarks: houses of 64 kinds, a day of 96 slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgrid import Calendar, Consumption, Gamma, OccupancyModel, Uniform, Zone

KINDS = 64
SLOTS = 96
_AWAY = 24  # slots a day for which a kind is surely out

Kinds = NDArray[np.int32]


def kinds(n: int, seed: int) -> Kinds:
    """A kind for each of n houses, at random."""
    return np.random.default_rng(seed).integers(KINDS, size=n, dtype=np.int32)


def theta(chain_of: Kinds, seed: int) -> OccupancyModel:
    """A factored model in which kind c is surely out from slot c on for six hours.

    These zeros open and close kinds all day, so that kappa changes from step to step.
    """
    rng = np.random.default_rng(seed)
    leave, come = rng.uniform(0.02, 0.4, (2, SLOTS, KINDS))
    out = (np.arange(SLOTS)[:, None] - np.arange(KINDS)) % SLOTS < _AWAY
    leave[out], come[out] = 1.0, 0.0
    a = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], -2)
    initial = np.where(out[0][:, None], [1.0, 0.0], [0.4, 0.6])
    return OccupancyModel.factored(
        initial, a, calendar=Calendar(np.arange(SLOTS)), chain_of=chain_of, name=f"theta {seed}"
    )


def consumption(class_of: Kinds) -> Consumption:
    """Half the kinds draw uniform readings, half gamma ones; pmfs and means are known at once."""
    tops = [1000 + 20 * kind for kind in range(KINDS)]
    absent = [Uniform(u // 2) if u % 40 else Gamma(1.5, u / 12, u) for u in tops]
    present = [Uniform(u) if u % 40 else Gamma(2.5, u / 8, u) for u in tops]
    f = Consumption.by_class(absent=absent, present=present, class_of=class_of)
    for law in f.laws:
        _ = law.pmf, law.mean  # kept by the law: evaluating a family is not what is timed
    return f


def zone(class_of: Kinds, seed: int) -> Zone:
    """Contract bounds [Wh] from the kind's largest reading up to 2 kWh above it."""
    spare = np.random.default_rng(seed).integers(2000, size=class_of.size, dtype=np.int32)
    return Zone("bench", 1000 + 20 * class_of + spare)
