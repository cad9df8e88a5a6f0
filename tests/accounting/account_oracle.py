"""The largest log-ratio about each step, by enumeration: shares no code with the account.

A block's outputs have one likelihood for each course inside it, all within a factor e^loss. The
log-ratio of all outputs between the two states at a step is quasi-convex in each of them, so its
largest value is at a corner: every likelihood is 1 or e^loss.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np


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
