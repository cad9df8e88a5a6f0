"""Leakage of 100,000 houses, no two alike, over a day: how many passes over its input is it?"""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid import Calendar, OccupancyModel
from hushgrid.accounting.temporal import temporal_leakage

HOUSES = sized(100_000, 50)
STEPS = 96
PERIODS = np.repeat(np.arange(4), 24)  # night, morning, day, evening
REPETITIONS = sized(10, 1)


def theta(slots: np.ndarray) -> OccupancyModel:
    """Each house with its own two-state chain; a few in a hundred have moves that cannot happen."""
    rng = np.random.default_rng(1)
    shape = (int(slots.max()) + 1, HOUSES, 2, 1)
    stay = rng.uniform(0.6, 1.0, shape)
    stay[rng.uniform(size=shape) < 0.02] = 1.0
    rows = np.concatenate([stay, 1 - stay], axis=3)
    rows[:, :, 1] = rows[:, :, 1, ::-1].copy()
    home = rng.uniform(0.1, 0.9, (HOUSES, 1))
    first = np.concatenate([1 - home, home], axis=1)
    return OccupancyModel.factored(first, rows, calendar=Calendar(slots))


def losses(steps: int) -> np.ndarray:
    """Of each release for each house: those under the bound of the largest lose less."""
    return np.random.default_rng(2).uniform(0.05, 0.5, (steps, HOUSES))


def passes(slots: np.ndarray, goal: str | None) -> Result:
    """`temporal_leakage` over one numpy pass of its input: every array it reads, summed once.

    A sum is the cheapest pass there is: it reads each number once and writes nothing. Ours reads
    the same and writes three arrays as large as the losses, with e^x and log x of each number.
    """
    model, e = theta(slots), losses(STEPS)
    (piece,) = model.chains
    arrays = (e, piece.initial, piece.transition)
    assert temporal_leakage(model, e).worst > e.max()
    ours, peer = best_of_both(
        lambda: temporal_leakage(model, e),
        lambda: [array.sum() for array in arrays],
        repetitions=REPETITIONS,
    )
    return Result(1000 * ours, "ms", ours / peer, goal)


def every_step() -> Result:
    """Every step has its own matrices: (96, houses, 2, 2) transitions, (96, houses) losses."""
    return passes(np.arange(STEPS), "<= 20")


def periods() -> Result:
    """Four periods a day: the recursion reads each matrix 24 times, the sum reads it once."""
    return passes(PERIODS, None)


def linear() -> Result:
    """A day over half a day."""
    model, day = theta(PERIODS), losses(STEPS)
    half = day[: STEPS // 2].copy()
    for e in (day, half):
        temporal_leakage(model, e)
    ours, peer = best_of_both(
        lambda: temporal_leakage(model, day),
        lambda: temporal_leakage(model, half),
        repetitions=REPETITIONS,
    )
    return Result(1000 * ours, "ms", ours / peer, "<= 2.3")


QUESTIONS: dict[str, Question] = {
    "leakage": every_step,
    "leakage_periods": periods,
    "leakage_linear": linear,
}
