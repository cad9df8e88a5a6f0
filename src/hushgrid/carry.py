"""One step of the leakage recursion: L(a), forward by A and backward by Bayes' rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.arrays import Bools, Floats
from hushgrid.occupancy import Chains, OccupancyModel

_SMALL = 1e-290  # chances below it lose digits


def where_open(e: ArrayLike, possible: Bools) -> Floats:
    """The loss of a step, or a leakage: nothing for blocks whose state is certain."""
    return np.where(possible.sum(axis=1) > 1, e, 0.0)


def into(model: OccupancyModel, piece: Chains, chains: NDArray[np.integer], t: int) -> Floats:
    """A^t of each block: rows from the state of step t - 1."""
    return np.asarray(piece.transition[model.calendar.slot(t)][chains])


def carried(a: Floats, rows: Floats, possible: Bools) -> Floats:
    """L(a): how much of a leakage `a` at one step carries over through `rows` to the next.

    Rows of impossible states do not count; fewer than two possible rows carry nothing.
    """
    if rows.shape[1] == 2:
        return _carried_two(a, rows, possible)
    return np.array([_carried_many(x, r[s]) for x, r, s in zip(a, rows, possible, strict=True)])


def _carried_two(a: Floats, rows: Floats, possible: Bools) -> Floats:
    first, second = rows[:, 0], rows[:, 1]
    high, low = np.maximum(first, second), np.minimum(first, second)
    columns = _log_mix(high, a[:, None]) - _log_mix(low, a[:, None])
    return np.where(possible.all(axis=1), columns.max(axis=1), 0.0)


def _log_mix(share: Floats, a: Floats) -> Floats:
    """log(share (e^a - 1) + 1), for a >= 0 of any size."""
    with np.errstate(divide="ignore"):
        tail = np.log(share + (1 - share) * np.exp(-a))
    return np.where(share > 0, a + tail, 0.0)


def _carried_many(a: float, rows: Floats) -> float:
    """K states: over ordered pairs of rows, the best prefix of columns sorted by their ratio."""
    if len(rows) < 2 or a == 0:
        return 0.0
    worst = 0.0
    for i, q in enumerate(rows):
        d = np.delete(rows, i, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(d > 0, q / d, np.where(q > 0, np.inf, -1.0))
        order = np.argsort(-ratio, axis=1, kind="stable")
        above = np.minimum(np.cumsum(q[order], axis=1), 1.0)
        below = np.minimum(np.cumsum(np.take_along_axis(d, order, axis=1), axis=1), 1.0)
        gain = _log_mix(above, np.array(a)) - _log_mix(below, np.array(a))
        worst = max(worst, float(gain.max()))
    return worst


def carried_back(leakage: Floats, law: Floats, possible: Bools, a: Floats) -> tuple[Bools, Floats]:
    """One step on through `a`: (possible states, how much of the leakage before is carried).

    The rows are B^t(s_t, s_{t-1}) = Pr[S^{t-1} given S^t] by Bayes, from the law of step t - 1.
    """
    moves = possible[:, :, None] & (a > 0)
    joint = law[:, :, None] * a
    total = joint.sum(axis=1)
    b = np.divide(joint, total[:, None], out=np.zeros_like(joint), where=total[:, None] > 0)
    after = np.asarray(moves.any(axis=1))
    # a possible move with a chance too small for a float: B is not known, but L(a) <= a
    lost = (moves & (joint < _SMALL)).any(axis=(1, 2))
    known = carried(leakage, np.swapaxes(b, 1, 2), after)
    return after, np.where(lost, where_open(leakage, after), known)
