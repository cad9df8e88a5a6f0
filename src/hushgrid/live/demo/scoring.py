"""How well beliefs told those at home from those away over the last day, kept up step by step."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from hushgrid.arrays import Bools, Floats, Indices

BINS = 1 << 13  # beliefs nearer than half of 1 / BINS to each other are ties


class Rolling:
    """AUC over all houses and the last `steps` steps; as cheap after a week as after an hour.

    >>> rolling = Rolling(steps=4)
    >>> for home, belief in ((0, 0.2), (1, 0.9), (1, 0.6), (0, 0.7)):
    ...     rolling.add(np.array([home]), np.array([belief]))
    >>> rolling.auc
    0.75
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._rows: deque[tuple[Indices, Bools]] = deque()
        self._counts = np.zeros((2, BINS + 1), np.int64)  # of away and at home

    def add(self, occupancy: NDArray[np.integer], belief: Floats) -> None:
        """One step of all houses: 0 or 1, and the chance that was given."""
        row = np.rint(belief * BINS).astype(np.intp), occupancy == 1
        self._rows.append(row)
        self._put(row, 1)
        if len(self._rows) > self._steps:
            self._put(self._rows.popleft(), -1)

    def _put(self, row: tuple[Indices, Bools], by: int) -> None:
        where, home = row
        for state in (0, 1):
            mine = where[home == bool(state)]
            self._counts[state] += by * np.bincount(mine, minlength=BINS + 1)

    @property
    def auc(self) -> float | None:
        """Chance that one at home is believed in more than one away; None before both were seen."""
        away, home = self._counts
        pairs = int(away.sum()) * int(home.sum())
        if not pairs:
            return None
        below = np.cumsum(away) - away
        return float((home * (below + away / 2)).sum() / pairs)
