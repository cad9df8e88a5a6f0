"""The factored adversary over a day: does its time grow with the houses and no faster?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks import zones
from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import Factored, Knowledge, Release

HOUSES = sized(1000, 10)
REPETITIONS = sized(3, 1)
SCALE = 2000.0  # [Wh]


def day(houses: int) -> Callable[[], None]:
    """A filter of 96 steps over houses of 64 kinds; releases near the load."""
    kinds = zones.kinds(houses, 1)
    f = zones.consumption(kinds)
    who = Factored(Knowledge(zones.zone(kinds, 2), [zones.theta(kinds, 3)], f))
    rng = np.random.default_rng(4)
    loads = (houses * 300 + rng.laplace(0, SCALE, zones.SLOTS)).astype(int).tolist()
    releases = [
        Release(
            zone="bench", t=t, applies_from=t + 1, load_hat=load, put_back=0.0, estimate=None,
            rate=62.5, scale=SCALE, epsilon=1.0, epsilon_any=1.0,
            rule="eta=1 block union", digest="bench", simulated=True, noise="laplace",
        )
        for t, load in enumerate(loads, 1)
    ]  # fmt: skip

    def filtered() -> None:
        beliefs = who.start()
        for release in releases:
            beliefs = who.step(beliefs, release)

    return filtered


def factored_linear() -> Result:
    """Time at 2000 houses over time at 1000."""
    twice, once = day(2 * HOUSES), day(HOUSES)
    twice()
    once()
    long, short = best_of_both(twice, once, repetitions=REPETITIONS)
    return Result(long, "s", long / short, "<= 2.3")


QUESTIONS: dict[str, Question] = {"adversary_factored_linear": factored_linear}
