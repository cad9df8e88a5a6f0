"""A day of 96 releases, no two alike: what does composing them cost, and is it linear in steps?"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid.accounting.composition import compose, loss_distribution

STEPS = sized(96, 8)
DELTA = 1e-6
REPETITIONS = sized(7, 1)


def different(steps: int) -> list[float]:
    """A house of 1 kWh under noise that changes with every step: losses of 0.5 and less."""
    return [1000 / (2000 + 5 * t) for t in range(steps)]


def composed(losses: Sequence[float]) -> float:
    """From nothing: the distributions of single releases are not remembered from the last time."""
    loss_distribution.cache_clear()
    return compose(losses, DELTA)


def unlike() -> Result:
    """96 different releases over one release 96 times, whose distribution is made once."""
    many, same = different(STEPS), different(1) * STEPS
    assert composed(many) < composed(same) < compose(same)  # more noise costs less
    ours, peer = best_of_both(
        lambda: composed(many), lambda: composed(same), repetitions=REPETITIONS
    )
    return Result(1000 * ours, "ms", ours / peer)


def linear() -> Result:
    """96 different releases over 48 different ones."""
    whole, half = different(STEPS), different(STEPS // 2)
    assert composed(half) < composed(whole)
    ours, peer = best_of_both(
        lambda: composed(whole), lambda: composed(half), repetitions=REPETITIONS
    )
    return Result(1000 * ours, "ms", ours / peer, "<= 2.5")


QUESTIONS: dict[str, Question] = {"compose_unlike": unlike, "compose_linear": linear}
