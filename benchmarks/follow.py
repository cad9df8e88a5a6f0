"""The filter behind the published estimate: what does a release cost, and a year of them?

One release may take 2 ms, and a year of them 60 s; the former week, which a zone follows again when
a week begins, 1 s, and sixty days, every eighth week, 3 s. The zone has 1,000 houses of 64 kinds,
and the noise lasts blocks of four steps.
Refits do not exist: several filters run side by side.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks import zones
from benchmarks.measure import Question, Result, sized
from hushgrid import Policy
from hushgrid.belief.followed import EarlierRelease, FollowedKnowledge
from hushgrid.mechanism.policy import Blocks, EstimatorRule
from hushgrid.mechanism.release import first_public

HOUSES = sized(1000, 20)
SCALE = 2000.0  # [Wh]
RELEASE, YEAR, WEEK, ANEW = 2e-3, 60.0, 1.0, 3.0  # limits [s]
DAYS = sized(364, 1)  # of a year
FOLLOWED = sized(60, 1)  # days before a week
TURNS = sized(3, 1)


def _followed(estimator: EstimatorRule, days: int) -> float:
    """Seconds to learn from each release of some days."""
    kinds, steps = zones.kinds(HOUSES, 1), days * zones.SLOTS
    policy = Policy(
        1.0,
        horizon=steps,
        publish="estimate",
        estimator=estimator,
        usual=300.0 if estimator == "releases" else 0.0,
        schedule=Blocks((4,) * (steps // 4), (1.0,) * (steps // 4)),
    )
    known = first_public([zones.theta(kinds, 3)], zones.consumption(kinds), policy)
    noise = np.random.default_rng(4).laplace(0, SCALE, steps)
    rates = list[float]()
    known.after(HOUSES * 300.0, SCALE, rates)  # kernels are loaded by the first release
    begin = time.perf_counter()
    for load in (HOUSES * 300.0 + noise).tolist():
        known = known.after(load, SCALE, rates)
        rates.append(0.2)
    return time.perf_counter() - begin


def _release(estimator: EstimatorRule) -> Result:
    found = min(_followed(estimator, 1) for _ in range(TURNS)) / zones.SLOTS
    return Result(1000 * found, "ms", found / RELEASE, "<= 1")


def release_with_model() -> Result:
    """One release, the model's forecast weighed against the filters."""
    return _release("filter")


def release_alone() -> Result:
    """One release, the filters alone."""
    return _release("releases")


def year() -> Result:
    """The releases of a year, the model's forecast weighed against the filters."""
    found = _followed("filter", DAYS)
    return Result(found, "s", found / YEAR, "<= 1")


def week() -> Result:
    """The releases of a week, followed again when the next one begins; the filters alone."""
    return _before_a_week(sized(7, 1), WEEK)


def anew() -> Result:
    """Those of sixty days, where what is followed begins anew."""
    return _before_a_week(FOLLOWED, ANEW)


def _before_a_week(days: int, limit: float) -> Result:
    policy = Policy(
        1.0,
        horizon=4,
        publish="estimate",
        estimator="releases",
        usual=300.0,
        schedule=Blocks((4,), (1.0,)),
    )
    kinds, steps = zones.kinds(HOUSES, 1), days * zones.SLOTS
    known = first_public([zones.theta(kinds, 3)], zones.consumption(kinds), policy)
    noise = np.random.default_rng(4).laplace(0, SCALE, steps)
    releases = [
        EarlierRelease(
            t + 1 - steps,
            HOUSES * 300.0 + noise[t],
            SCALE,
            HOUSES * 300.0,
            0.0,
            {},
            {"first": t // 4 * 4 + 1 - steps, "length": 4},
        )
        for t in range(steps)
    ]
    assert isinstance(known, FollowedKnowledge)
    known.continued(releases[-4:])  # kernels are loaded
    begin = time.process_time()
    known.continued(releases)
    found = time.process_time() - begin
    return Result(found, "s", found / limit, "<= 1")


QUESTIONS: dict[str, Question] = {
    "follow_release": release_with_model,
    "follow_release_alone": release_alone,
    "follow_year": year,
    "follow_week": week,
    "follow_anew": anew,
}
