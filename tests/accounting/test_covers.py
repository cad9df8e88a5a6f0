"""What all prices can say about a stretch of time: every stretch, every output of small worlds.

The oracles write down laws and enumerate outputs; they share no code with the package.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid import PolicyError
from hushgrid.accounting.composition import DURATIONS, auc_bound, covers

Law = dict[tuple[int, ...], float]


def best_auc(first: Law, second: Law) -> float:
    """AUC of the likelihood ratio of two laws on the same outputs."""
    outputs = sorted(
        first | second, key=lambda o: second.get(o, 0.0) / max(first.get(o, 0.0), 1e-300)
    )
    ratios = np.array([second.get(o, 0.0) / max(first.get(o, 0.0), 1e-300) for o in outputs])
    p, q = (np.array([law.get(o, 0.0) for o in outputs]) for law in (first, second))
    below = np.searchsorted(ratios, ratios * (1 - 1e-12), side="left")
    up_to = np.searchsorted(ratios, ratios * (1 + 1e-12), side="right")
    mass = np.concatenate([[0.0], np.cumsum(p)])
    return float((q * (mass[below] + mass[up_to]) / 2).sum())


def responses(losses: list[float]) -> tuple[Law, Law]:
    """All answers of randomised responses to 0s and to 1s."""
    laws = []
    for truth in (0, 1):
        law = {}
        for answer in product((0, 1), repeat=len(losses)):
            right = [math.exp(e) / (1 + math.exp(e)) for e in losses]
            each = [p if a == truth else 1 - p for a, p in zip(answer, right, strict=True)]
            law[answer] = math.prod(each)
        laws.append(law)
    return laws[0], laws[1]


def block(shift: tuple[int, ...], scale: float, far: int) -> Law:
    """Noise e^(-max |n_t| / b) around a course of readings; what lies beyond `far` is left out."""
    grid = product(range(-far, far + 1), repeat=len(shift))
    law = {
        o: math.exp(-max(abs(a - d) for a, d in zip(o, shift, strict=True)) / scale) for o in grid
    }
    total = sum(law.values())
    return {o: w / total for o, w in law.items()}


@pytest.mark.parametrize("losses", [[1.0], [0.2] * 5, [0.1, 0.7], [0.3, 0.3, 0.05, 0.9, 0.6]])
def test_bound_is_that_of_randomised_responses(losses: list[float]) -> None:
    exact, bound = best_auc(*responses(losses)), auc_bound(losses)
    assert exact - 1e-12 <= bound <= exact + 0.01
    if len(set(losses)) == 1:
        assert bound == pytest.approx(exact, abs=1e-12)


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=9),
    st.floats(0.01, 4.0),
    st.data(),
)
def test_no_pair_of_laws_within_epsilon_is_told_apart_better(
    weights: list[float], epsilon: float, data: st.DataObject
) -> None:
    n = len(weights)
    tilt = data.draw(st.lists(st.floats(-0.5, 0.5), min_size=n, max_size=n))
    p = np.array(weights) / sum(weights)
    q = p * np.exp(epsilon * np.array(tilt))
    q /= q.sum()
    lost = float(np.abs(np.log(q / p)).max())
    laws = ({(i,): float(x) for i, x in enumerate(law)} for law in (p, q))
    assert best_auc(*laws) <= auc_bound([lost]) + 1e-9


def test_one_loss_is_bounded_by_its_odds() -> None:
    for epsilon in (0.05, 0.5, 1.0, 3.0):
        odds = math.exp(epsilon)
        assert auc_bound([epsilon]) == pytest.approx(odds / (1 + odds), abs=1e-12)


@pytest.mark.parametrize(("steps", "far"), [(1, 90), (2, 50), (3, 14)])
def test_every_course_in_a_block_stays_below_the_bound(steps: int, far: int) -> None:
    reach, scale = 2, 4.0 if steps < 3 else 2.0
    quiet = block((0,) * steps, scale, far)
    found = {
        course: best_auc(quiet, block(course, scale, far))
        for course in product((0, 1, 2, -2) if steps < 3 else (1, 2), repeat=steps)
    }
    bound = auc_bound([reach / scale])
    # what is cut off at `far` moves the figures by its mass, e^(-far/b) times a polynomial
    assert max(found.values()) <= bound + (1e-9 if steps < 3 else 0.01)
    assert found[(reach,) * steps] >= bound - 0.02  # the block comes close to it
    half = best_auc(quiet, block((1,) * steps, scale, far))
    assert half <= auc_bound([1 / scale]) + (1e-9 if steps < 3 else 0.01)


def test_two_blocks_stay_below_the_bound_of_two() -> None:
    first = [block((d,), 3.0, 40) for d in (0, 2)]
    second = [block((d,), 5.0, 60) for d in (0, 2)]
    both = [
        {(*a, *b): p * q for a, p in one.items() for b, q in other.items()}
        for one, other in zip(first, second, strict=True)
    ]
    exact = best_auc(both[0], both[1])
    assert exact - 1e-9 <= auc_bound([2 / 3, 2 / 5]) <= exact + 0.03


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 7), st.sampled_from([0.05, 0.1, 0.3, 0.8])),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([3600, 21_600, 43_200]),
)
def test_shift_is_that_of_the_worst_stretch(blocks: list[tuple[int, float]], seconds: int) -> None:
    lengths, losses = zip(*blocks, strict=True)
    number = [k for k, length in enumerate(lengths) for _ in range(length)]
    turn = len(number)
    for cover in covers(lengths, losses, seconds=seconds, typical=0.5)[:3]:
        steps = math.ceil(DURATIONS[cover.duration] / seconds) + 1
        worst, aucs = 0.0, []
        for start in range(turn):
            touched = {((start + i) // turn, number[(start + i) % turn]) for i in range(steps)}
            each = [losses[k] for _, k in touched]
            worst = max(worst, sum(each))
            aucs.append(auc_bound(each))
        assert cover.shift == pytest.approx(worst)
        assert cover.auc_limit >= max(aucs) - 1e-9
        assert cover.auc_typical <= cover.auc_limit


def test_promise_about_windows_bounds_what_its_account_admits() -> None:
    # blocks of 24 quarter hours, and a shorter one at the end of a week that a window may touch
    lengths, losses = [24] * 28 + [3], [0.2] * 29
    free = {c.duration: c for c in covers(lengths, losses, seconds=900, typical=0.1)}
    kept = {
        c.duration: c for c in covers(lengths, losses, seconds=900, typical=0.1, window=(97, 1.0))
    }
    assert free["P1D"].shift == pytest.approx(1.2)
    assert kept["P1D"].shift == pytest.approx(1.0)
    assert kept["P7D"].shift == pytest.approx(min(free["P7D"].shift, 7.0))
    assert kept["PT15M"].shift == pytest.approx(0.4)
    assert all(kept[d].auc_limit <= free[d].auc_limit for d in free)


def test_two_weeks_of_intervals_and_of_a_window() -> None:
    """The figures of docs/proofs/covers.md."""
    interval = covers([6], [0.1756], seconds=900, typical=0.241)
    window = covers([336], [0.2], seconds=900, typical=0.475, window=(1345, 1.0))
    assert [round(c.shift, 2) for c in interval] == [0.35, 2.99, 19.84, 39.51, 84.46]
    assert [round(c.auc_limit, 3) for c in interval] == [0.566, 0.694, 0.906, 0.969, 0.997]
    assert [round(c.shift, 2) for c in window] == [0.4, 0.4, 0.6, 1.0, 2.0]
    assert [round(c.auc_limit, 3) for c in window] == [0.575, 0.575, 0.593, 0.621, 0.671]


def test_no_bound_and_bad_blocks() -> None:
    exact = covers([1], [math.inf], seconds=1800, typical=0.2)
    assert all(c.shift == math.inf and c.auc_limit == 1.0 for c in exact)
    assert auc_bound([0.5] * 3000) == 1.0
    for lengths, losses in (([], []), ([1, 2], [0.1]), ([0], [0.1])):
        with pytest.raises(PolicyError, match="lengths"):
            covers(lengths, losses, seconds=900, typical=0.2)
