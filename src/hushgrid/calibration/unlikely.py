"""Houses whose occupancy is all but known: the probabilistic constraint (off by default).

A house may leave the protected set once what is public, Theta and *any* past releases, leaves at
most delta to one of its states. Past releases move the odds of S^t by at most e^L, L the backward
leakage carried into step t, so the answer needs no release and is known ahead (proof:
docs/proofs/unlikely.md). The guarantee is then (epsilon, delta) in the manner of DPHMM: epsilon,
unless the house is in the state that had at most delta.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hushgrid.arrays import Bools, Floats, Int32s
from hushgrid.carry import carried_back, into, where_open
from hushgrid.occupancy import OccupancyModel


class Unlikely:
    """Step by step, the groups of houses that may leave; told what each release lost."""

    def __init__(
        self,
        models: Sequence[OccupancyModel],
        pieces: Sequence[int | None],
        chains: Sequence[Int32s],
    ) -> None:
        self._alone = np.logical_and.reduce([chain >= 0 for chain in chains])
        self._tracked = [
            _Tracker(model, piece, np.maximum(chain, 0))
            for model, piece, chain in zip(models, pieces, chains, strict=True)
            if piece is not None
        ]

    def advance(self, lost: Floats | None) -> None:
        """Go on to the next step, after a release that lost `lost` a group; None: to the first."""
        for tracker in self._tracked:
            tracker.advance(lost)

    def out(self, delta: float) -> Bools:
        """Groups alone under every model of which one state keeps at most delta under every one."""
        if not self._tracked:
            return np.zeros_like(self._alone)
        most = np.max([tracker.most() for tracker in self._tracked], axis=0)
        return np.asarray(self._alone & (most <= delta).any(axis=1))


class _Tracker:
    """The law of each group's state under one model, and the leakage carried into the step."""

    def __init__(self, model: OccupancyModel, piece: int, chain: Int32s) -> None:
        self._model, self._piece, self._chain = model, model.chains[piece], chain
        self._t = 0

    def advance(self, lost: Floats | None) -> None:
        self._t += 1
        if lost is None:
            self._law = self._piece.initial[self._chain]
            self._possible = np.asarray(self._law > 0)
            self._carried = np.zeros(len(self._chain))
            return
        a = into(self._model, self._piece, self._chain, self._t)
        backward = where_open(lost, self._possible) + self._carried
        self._possible, self._carried = carried_back(backward, self._law, self._possible, a)
        self._law = np.einsum("gs,gsk->gk", self._law, a)

    def most(self) -> Floats:
        """(groups, 2): the most probability that any past releases can leave to each state."""
        with np.errstate(divide="ignore"):
            odds = np.log(self._law) - np.log(self._law[:, ::-1])
        raised = 1 / (1 + np.exp(-np.clip(odds + self._carried[:, None], -700, 700)))
        # a possible state whose chance underflowed is not known to be unlikely
        return np.where(self._possible & (self._law == 0), 1.0, raised)
