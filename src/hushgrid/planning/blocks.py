"""Where blocks of steps with one noise begin and end, for least noise at equal leakage.

A dynamic programme over one house's chain: the state at a border is what has leaked backward into
it and what may leak forward from it, both on a grid. The caller refines the losses and scales them
until the promise holds for every house, so privacy does not depend on what is found here.
"""

from __future__ import annotations

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.filter import carried_leakage

_GRID = 25  # leakages from 0 to the target
_LONGEST = 40  # steps of a block


def borders(
    law: Floats, moves: Floats, weights: Floats, target: float, inflow: tuple[float, float]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Block lengths and losses with about the least sum of w_t (L+1)(L+2)/3 / e^2.

    Args:
        law: Of the house's state before the first step, (2,): the transition into it is
            `moves[0]`.
        moves: A^t of every step, and of the one after the last, (T + 1, 2, 2).
        weights: w_t of every step, (T,).
        target: The largest leakage about any step.
        inflow: Leakage of releases before the first step about the step before it, and of those
            after the last about the step after it; 0 where there are none.

    Returns:
        Steps and loss of each block.
    """
    from hushgrid._kernels.chains import best_blocks

    horizon = len(weights)
    grid = np.linspace(0.0, target, _GRID)
    open_now, longest = np.ones((_GRID, 2), np.bool_), min(_LONGEST, horizon)
    back = np.zeros((horizon, longest, _GRID))  # from step s + 1 + k to step s
    ahead = np.zeros((horizon, longest, _GRID))  # from step t - k to step t + 1
    laws = [law]
    for a in moves[:-1]:
        laws.append(laws[-1] @ a)
    for s in range(horizon):
        through = np.eye(2)
        for k in range(min(longest, horizon - s)):
            through = through @ moves[s + k]
            joint = laws[s][:, None] * through
            rows = (joint / np.maximum(joint.sum(axis=0), 1e-300)).T
            back[s, k] = carried_leakage(grid, np.broadcast_to(rows, (_GRID, 2, 2)), open_now)
        through = np.eye(2)
        for k in range(min(longest, s + 1)):
            through = moves[s + 1 - k] @ through
            ahead[s, k] = carried_leakage(grid, np.broadcast_to(through, (_GRID, 2, 2)), open_now)
    first, last = (int(np.ceil(min(one, target) / target * (_GRID - 1))) for one in inflow)
    return best_blocks(back, ahead, np.cumsum([0.0, *weights]), grid, first, last)
