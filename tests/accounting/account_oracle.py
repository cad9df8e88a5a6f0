"""The largest log-ratio about each step, by enumeration: shares no code with the account.

A block's outputs have one likelihood for each course inside it, all within a factor e^loss. The
log-ratio of all outputs between the two states at a step is quasi-convex in each of them, so its
largest value is at a corner: every likelihood is 1 or e^loss.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def worst_about_each_step(
    prior: Sequence[float],
    inward: Sequence[np.ndarray],
    blocks: Sequence[int],
    losses: Sequence[float],
) -> np.ndarray:
    """(steps,): the largest |log ratio|; 0 where one state is impossible.

    Args:
        prior: Chances of the two states at the first step.
        inward: For each step the chances given the state before it; the first is not used.
        blocks: Steps of each block.
        losses: Loss of each block.
    """
    steps, ends = sum(blocks), np.cumsum([0, *blocks])
    courses = np.array(list(itertools.product((0, 1), repeat=steps)))
    weight = np.array(prior, float)[courses[:, 0]]
    for t in range(1, steps):
        weight = weight * np.asarray(inward[t])[courses[:, t - 1], courses[:, t]]
    choices = []
    for first, last, loss in zip(ends, ends[1:], losses, strict=False):
        inside = courses[:, first:last] @ (1 << np.arange(last - first))
        corners = itertools.product((0, 1), repeat=1 << int(last - first))
        choices.append(
            [np.exp(loss * np.array(bits))[inside] for bits in corners]
            if loss
            else [np.ones(len(courses))]
        )
    home = courses == 1
    apart = weight @ ~home, weight @ home
    worst = np.zeros(steps)
    for corner in itertools.product(*choices):
        joint = weight * math.prod(corner)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(joint @ home / apart[1]) - np.log(joint @ ~home / apart[0])
        worst = np.fmax(worst, np.abs(np.where(np.minimum(*apart) > 0, ratio, 0.0)))
    return worst


@functools.cache
def _courses(steps: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=steps)))


@functools.cache
def _corners(steps: int) -> np.ndarray:
    """(2^courses, courses): where the likelihood of a course is the larger one."""
    return np.array(list(itertools.product((0, 1), repeat=1 << steps)), float)


def worst_by_blocks(
    odds: ArrayLike,
    said: tuple[float, float],
    inward: Sequence[np.ndarray],
    blocks: Sequence[int],
    losses: Sequence[float],
) -> tuple[np.ndarray, tuple[float, float]]:
    """The same by enumeration of one block at a time, for longer histories and many laws.

    Outputs of before matter through their ratio between the two states at the last step of before,
    those of after through their ratio at the last step of the block. In either the log-ratio about
    a step is linear-fractional, so the two ends are enough.

    Args:
        odds: (laws,) log odds of state 1 at the step before the first.
        said: Least and largest log-ratio of outputs of before about that step.
        inward: For each step the chances given the state before it.
        blocks: Steps of each block.
        losses: Loss of each block.

    Returns:
        (steps,), the largest |log ratio| over all laws, 0 where a state is impossible; and the
        least and the largest log-ratio of all outputs about the last step.
    """
    odds = np.atleast_1d(np.asarray(odds, float))
    law = np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], -1)  # (laws, states)
    past = np.tile(np.array(said, float), (len(law), 1))  # (laws, ends)
    parts, at = [], 0
    with np.errstate(all="ignore"):
        for steps, loss in zip(blocks, losses, strict=True):
            courses = _courses(steps)
            chance = np.asarray(inward[at])[:, courses[:, 0]]  # (states before, courses)
            for i in range(1, steps):
                chance = chance * np.asarray(inward[at + i])[courses[:, i - 1], courses[:, i]]
            corners = np.exp(loss * _corners(steps)) if loss else np.ones((1, len(courses)))
            ends = np.stack([np.exp(-np.maximum(past, 0)), np.exp(np.minimum(past, 0))], -1)
            weights = (law[:, None] * ends) @ chance  # (laws, ends, courses)
            plain = law @ chance
            parts.append((courses, chance, corners, weights, plain))
            past = _ratio(weights, plain, corners, courses[:, -1])
            past = np.stack([past.min((1, 2)), past.max((1, 2))], -1)
            law, at = np.stack([plain @ (courses[:, -1] == s) for s in (0, 1)], -1), at + steps
        worst, after = np.zeros(at), (0.0, 0.0)
        for courses, chance, corners, weights, plain in reversed(parts):
            at -= courses.shape[1]
            shapes = [np.exp(end * courses[:, -1] - max(end, 0.0)) for end in sorted(set(after))]
            for i in range(courses.shape[1]):
                for shape in shapes:
                    ratio = _ratio(weights * shape, plain, corners, courses[:, i])
                    worst[at + i] = max(worst[at + i], np.abs(ratio).max())
            ahead = np.log(
                np.stack([corners @ (chance * shape).T for shape in shapes])
            )  # (ends, corners, states before)
            gap = np.nan_to_num(ahead[..., 1] - ahead[..., 0], nan=0.0)
            after = (float(gap.min()), float(gap.max()))
    return worst, (float(past.min()), float(past.max()))


def _ratio(
    weights: np.ndarray, plain: np.ndarray, corners: np.ndarray, state: np.ndarray
) -> np.ndarray:
    """(laws, ends, corners): log-ratio about a state of each course; 0 where one is impossible."""
    shown = [(weights * (state == s)) @ corners.T for s in (0, 1)]
    chances = [plain @ (state == s) for s in (0, 1)]
    ratio = np.log(shown[1] / shown[0]) - np.log(chances[1] / chances[0])[:, None, None]
    return np.where(np.minimum(*chances)[:, None, None] > 0, ratio, 0.0)


def worst_of_long_blocks(
    law: Sequence[float],
    inward: Sequence[np.ndarray],
    blocks: Sequence[int],
    losses: Sequence[float],
) -> np.ndarray:
    """(steps,): the same for blocks of any length, from a known law of the first step.

    Given the state at a step, outputs of before, of its block and of after are independent, and
    some output of the block says all it can about that state alone. What is said about one step is
    a monotone function of what is said about another.
    """
    laws = [np.array(law, float)]
    for matrix in inward[1:]:
        laws.append(laws[-1] @ matrix)

    def told(rows: np.ndarray, said: np.ndarray) -> np.ndarray:
        """Least and most about a state, `rows` the chances of what is spoken of given it."""
        values = np.exp(np.stack([0 * said, said]) - np.maximum(said, 0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.sort(np.log(rows[1] @ values) - np.log(rows[0] @ values)))

    def back(first: int, last: int) -> np.ndarray:
        """Chances of the state at `first` given that at `last`."""
        joint = laws[first][:, None] * _product(inward[first + 1 : last + 1])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num((joint / laws[last]).T)

    sure = np.array([min(part) <= 0 for part in laws])
    ends = np.cumsum([0, *blocks])
    worst, before, past = np.zeros(ends[-1]), np.zeros((ends[-1], 2)), np.zeros(2)
    for k, loss in enumerate(losses):
        for t in range(ends[k], ends[k + 1]):
            if ends[k] and not (sure[t] or sure[ends[k] - 1]):
                before[t] = told(back(ends[k] - 1, t), past)
        past = before[ends[k + 1] - 1] + np.array([-loss, loss])
    after = np.zeros(2)  # about the last step of a block, by what follows
    for k in range(len(blocks) - 1, -1, -1):
        for t in range(ends[k], ends[k + 1]):
            ahead = told(_product(inward[t + 1 : ends[k + 1]]), after)
            worst[t] = 0.0 if sure[t] else np.abs(before[t] + ahead).max() + losses[k]
        first = told(_product(inward[ends[k] + 1 : ends[k + 1]]), after)
        after = told(np.asarray(inward[ends[k]]), first + np.array([-losses[k], losses[k]]))
    return worst


def _product(matrices: Sequence[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.matmul, matrices, np.eye(2))
