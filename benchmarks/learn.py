"""Fitting hidden Markov models of 50 homes over a year of half hours, 20 iterations."""

from __future__ import annotations

import resource
import warnings
from dataclasses import replace

import numpy as np

from benchmarks.measure import Question, Result, best_of_both, sized
from hushgrid.learning.em import Design, fit
from hushgrid.learning.habits import assumed_habits

HOMES = sized(50, 3)
STEPS = sized(17_520, 1_344)
ITERATIONS = sized(20, 2)
PEER_HOMES = sized(10, 1)  # of hmmlearn, which takes homes one by one: a fifth of the time is told


def homes(count: int, steps: int = STEPS) -> np.ndarray:
    """Whole Wh of homes that are empty or not for hours on end, each with its own sizes."""
    rng = np.random.default_rng(1)
    change = rng.uniform(size=(count, steps)) < 0.05
    state = np.cumsum(change, axis=1) % 2
    size = rng.uniform(0.5, 2.0, (count, 1))
    median = np.where(state == 1, 250.0, 40.0) * size
    return np.rint(median * np.exp(0.6 * rng.standard_normal((count, steps))))


def plain(steps: int = STEPS) -> Design:
    """What hmmlearn fits: two states, one normal law each, the same all day; no prior."""
    one = np.zeros(steps, np.int32)
    moves = np.full((1, 2, 2), 1e-9)
    return Design(
        one, one, moves, family="normal", weight=0.0, first=1e-9, starts=(0.5,),
        iterations=ITERATIONS, tolerance=-np.inf,
    )  # fmt: skip


def daily(steps: int = STEPS) -> Design:
    """What `hushgrid learn` fits: away, quiet, active; moves by slot, laws by four slot groups."""
    t = np.arange(steps)
    weekend = t // 48 % 7 >= 5
    tie = np.zeros((4, 3), np.int32)
    tie[:, 2] = 1 + np.arange(4)
    return replace(
        plain(steps),
        group=(t % 48 // 12).astype(np.int32),
        slot=(t % 48 + 48 * weekend).astype(np.int32),
        moves=assumed_habits(1800).moves(30),
        family="lognormal",
        weight=4.0,
        tie=tie,
    )


def peer(x: np.ndarray) -> None:
    """hmmlearn, one home after another."""
    from hmmlearn.hmm import GaussianHMM

    for row in x:
        model = GaussianHMM(2, "diag", n_iter=ITERATIONS, tol=-np.inf, covars_prior=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(row[:, None])


def against_hmmlearn() -> Result:
    """hmmlearn's time over ours for the same model and as many iterations."""
    x, design = homes(HOMES), plain()
    assert fit(x[:2], design).iterations.tolist() == [ITERATIONS] * 2
    peer(x[:1, :500])
    ours, theirs = best_of_both(lambda: fit(x, design), lambda: peer(x[:PEER_HOMES]), repetitions=2)
    return Result(1000 * ours, "ms", theirs * HOMES / PEER_HOMES / ours, ">= 15")


def full() -> Result:
    """The model that learn fits, over the plain one: what time of day costs."""
    x = homes(HOMES)
    fit(x[:2], daily())
    ours, simple = best_of_both(lambda: fit(x, daily()), lambda: fit(x, plain()), repetitions=2)
    return Result(1000 * ours, "ms", ours / simple, None)


def linear() -> Result:
    """Four times the homes over the homes."""
    x, design = homes(4 * HOMES, STEPS // 4), plain(STEPS // 4)
    fit(x[:2], design)
    ours, quarter = best_of_both(
        lambda: fit(x, design), lambda: fit(x[:HOMES], design), repetitions=3
    )
    return Result(1000 * ours, "ms", ours / quarter, "<= 5")


def memory() -> Result:
    """The most memory this process ever held, the model of `learn_full` included, over 2 GiB."""
    fit(homes(HOMES), replace(daily(), iterations=1))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return Result(peak, "MiB", peak / 2048, "<= 1")


QUESTIONS: dict[str, Question] = {
    "learn": against_hmmlearn,
    "learn_full": full,
    "learn_linear": linear,
    "learn_memory": memory,
}
