"""What the public believes: Eq. (2) predict, Eq. (3) condition, and the moments of the load.

A belief is the law of each block's state, one row a block or one row for all blocks that are
still alike. Predicting and conditioning keep exact zeros and create none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.consumption import Consumption
from hushgrid.errors import ModelError
from hushgrid.occupancy import Chains, OccupancyModel

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The law of every chain's (or block's) state at step t: an array (rows, 2^m) a block size."""

    t: int
    laws: tuple[Floats, ...]


def prior(model: OccupancyModel) -> Belief:
    """P^{1|0} = Pi, a row for each chain."""
    return Belief(1, tuple(piece.initial for piece in model.chains))


def each_block(belief: Belief, model: OccupancyModel) -> Belief:
    """The same belief with a row for each block, so that blocks can part company."""
    laws = tuple(law[piece.chain_of] for law, piece in zip(belief.laws, model.chains, strict=True))
    return Belief(belief.t, laws)


def predict(belief: Belief, model: OccupancyModel) -> Belief:
    """Eq. (2): P^{t+1|t} = P^{t|t} A^{t+1}.

    >>> theta = OccupancyModel.factored([[1.0, 0.0]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> predict(prior(theta), theta).laws[0]
    array([[0.9, 0.1]])
    """
    slot = model.calendar.slot(belief.t + 1)
    laws = []
    for law, piece in zip(belief.laws, model.chains, strict=True):
        a = piece.transition[slot]
        if len(law) != len(a):
            a = a[piece.chain_of]
        laws.append(np.einsum("bs,bsk->bk", law, a))
    return Belief(belief.t + 1, tuple(laws))


def condition(belief: Belief, likelihoods: Sequence[Floats]) -> Belief:
    """Eq. (3): multiply by Pr[release given state] and normalise, block by block.

    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> condition(prior(theta), [np.array([[1.0, 3.0]])]).laws[0]
    array([[0.25, 0.75]])
    """
    laws = []
    for law, likelihood in zip(belief.laws, likelihoods, strict=True):
        weight = law * likelihood
        total = weight.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            raise ModelError(
                f"a release at step {belief.t} has probability 0 under the model;"
                " give likelihoods above 0 for every possible state."
            )
        laws.append(weight / total)
    return Belief(belief.t, tuple(laws))


def marginals(model: OccupancyModel) -> Iterator[Belief]:
    """Endless: the public law of every chain at t = 1, 2, ..., before any release."""
    belief = prior(model)
    while True:
        yield belief
        belief = predict(belief, model)


class Moments(NamedTuple):
    """Mean [Wh] and variance [Wh^2] of the load under a belief."""

    mean: float
    variance: float


def load_moments(
    belief: Belief, model: OccupancyModel, consumption: Consumption, factor: float = 1.0
) -> Moments:
    """E and Var of Z: houses of different blocks are independent, those of one block are not.

    `factor` multiplies every reading (demand that answers a rate).
    """
    means, variances = _law_moments(consumption, belief.t)
    mean = variance = 0.0
    for law, piece in zip(belief.laws, model.chains, strict=True):
        if piece.size == 1:
            m, v = _single(law, piece, consumption.class_of, means, variances)
        else:
            each = law if len(law) == len(piece.members) else law[piece.chain_of]
            m, v = _blocks(each, piece, consumption.class_of, means, variances)
        mean += m
        variance += v
    return Moments(mean * factor, variance * factor**2)


def _law_moments(consumption: Consumption, t: int) -> tuple[Floats, Floats]:
    """(2, classes) means and variances of a reading, absent and present, at step t."""
    slot = consumption.calendar.slot(t)
    tables = np.stack([consumption.absent[slot], consumption.present[slot]])
    mean = np.array([law.mean for law in consumption.laws])
    variance = np.array([law.variance for law in consumption.laws])
    return mean[tables], variance[tables]


def _single(
    law: Floats, piece: Chains, class_of: NDArray[np.int32], means: Floats, variances: Floats
) -> tuple[float, float]:
    """Houses alone: those with the same chain (or row) and class count together."""
    houses = piece.members[:, 0]
    row: NDArray[Any] = piece.chain_of if len(law) != len(houses) else np.arange(len(houses))
    kind: NDArray[Any] = class_of[houses]
    count: NDArray[Any] = np.ones(len(houses))
    if len(law) * means.shape[1] <= 4 * len(houses):
        counts = np.zeros((len(law), means.shape[1]))
        np.add.at(counts, (row, kind), 1)
        row, kind = np.nonzero(counts)
        count = counts[row, kind]
    home = law[row, 1]
    low, high = means[0, kind], means[1, kind]
    within = (1 - home) * variances[0, kind] + home * variances[1, kind]
    between = home * (1 - home) * (high - low) ** 2
    mean = float(count @ (low + home * (high - low)))
    return mean, float(count @ (within + between))


def _blocks(
    law: Floats, piece: Chains, class_of: NDArray[np.int32], means: Floats, variances: Floats
) -> tuple[float, float]:
    """Houses of a block share its state: add given the state, then over the states."""
    m = piece.size
    bits = (np.arange(2**m)[:, None] >> np.arange(m - 1, -1, -1)) & 1  # (states, houses)
    kinds = class_of[piece.members]  # (blocks, houses)
    mean = np.where(bits[None], means[1, kinds][:, None], means[0, kinds][:, None]).sum(axis=2)
    within = np.where(bits[None], variances[1, kinds][:, None], variances[0, kinds][:, None]).sum(
        axis=2
    )
    total = (law * mean).sum(axis=1)
    spread = (law * (within + mean**2)).sum(axis=1) - total**2
    return float(total.sum()), float(spread.sum())
