"""One whole step of ten million houses: how does it compare with numpy adding the same arrays?"""

from __future__ import annotations

import numpy as np

from benchmarks import zones
from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import Policy, SecureNoise, Tariff, aggregate, init, step

HOUSES = sized(10_000_000, 1_000)
REPETITIONS = sized(200, 2)


def whole_step() -> Result:
    """aggregate and step over `readings.sum()` and `bound.sum()`.

    Each repetition is the state's next step, so that nothing is answered from an earlier one.
    """
    kinds = zones.kinds(HOUSES, 1)
    zone = zones.zone(kinds, 2)
    # a few readings below 0 and above the bound, as meters have them
    readings = np.random.default_rng(3).integers(-50, 3500, HOUSES, dtype=np.int32)
    world = (zone, Tariff(1e-6, 62.5), [zones.theta(kinds, 4)], zones.consumption(kinds))
    state, noise = init(*world, Policy(0.5, horizon=2 * REPETITIONS, eta=1.0)), SecureNoise()

    def ours() -> None:
        nonlocal state
        _, state = step(state, aggregate(readings, zone.bound), noise)

    def peer() -> None:
        readings.sum()
        zone.bound.sum()

    ours()
    peer()
    seconds, sums = best_of_both(ours, peer, repetitions=REPETITIONS)
    return Result(1000 * seconds, "ms", seconds / sums, "<= 0.6")


QUESTIONS: dict[str, Question] = {"step": whole_step}
