"""Calibration of 1,000 houses, no two alike: how many passes over their losses does it cost?"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import Consumption, Gamma, Law, LogNormal, OccupancyModel, Policy, Zone, schedule
from hushgrid.mechanism.calibrators import loss_of_pmfs

HOUSES = sized(1000, 10)
BOUND = 2500  # [Wh]
POLICY = Policy(0.5, horizon=1, eta=0.05)
REPETITIONS = sized(25, 1)


def laws(seed: int) -> list[tuple[Law, Law]]:
    """Absent and present of each house; pmfs and means known, so that only the search is timed."""
    rng = np.random.default_rng(seed)
    pairs: list[tuple[Law, Law]] = []
    for shape, spread, small, large in rng.uniform(0, 1, (HOUSES // 2, 4)).tolist():
        absent, present = 60 + 90 * small, 150 + 150 * large
        pairs.append((Gamma(1 + shape, absent, BOUND), Gamma(2 + shape, present, BOUND)))
        width = 0.4 + 0.5 * spread
        pairs.append((LogNormal(absent, width, BOUND), LogNormal(3 * present, width, BOUND)))
    for law in (law for pair in pairs for law in pair):
        _ = law.pmf, law.mean
    return pairs


def passes() -> Result:
    """`schedule` of one step, with a calibrator that remembers nothing, over one pass of losses."""
    pairs = laws(1)
    absent, present = zip(*pairs, strict=True)
    f = Consumption.by_class(absent=absent, present=present)
    theta = OccupancyModel.factored(
        [[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=np.zeros(HOUSES, np.int32)
    )
    zone = Zone("bench", np.full(HOUSES, BOUND))
    (found,) = schedule([theta], zone, f, POLICY)
    scale, eta = found.scale, POLICY.eta

    def one_pass() -> float:
        return max(loss_of_pmfs(f0.pmf, f1.pmf, BOUND, scale, eta) for f0, f1 in pairs)

    assert one_pass() <= POLICY.epsilon
    ours, peer = best_of_both(
        lambda: schedule([theta], zone, f, POLICY), one_pass, repetitions=REPETITIONS
    )
    return Result(1000 * ours, "ms", ours / peer, "<= 4")


QUESTIONS: dict[str, Question] = {"calibrate": passes}
