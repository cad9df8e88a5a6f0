"""Beliefs about occupancy: Eq. (2) predict, Eq. (3) condition; load moments; imputed readings.

A belief is the law of each block's state: one row a block, or one row for all blocks of a chain.
Predicting and conditioning keep exact zeros and create none. The step of the leakage recursion,
L(a), uses the same transitions: forward by A, backward by Bayes' rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Bools, Floats, Int32s, Ints
from hushgrid.errors import ModelError
from hushgrid.model.consumption import Consumption
from hushgrid.model.occupancy import Chains, OccupancyModel
from hushgrid.model.zone import Scenario


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """The law of every chain's (or block's) state at step t.

    Attributes:
        t: The step.
        laws: For each block size an array (rows, 2^size).
        by_block: Whether rows are blocks; else they are chains.
    """

    t: int
    laws: tuple[Floats, ...]
    by_block: bool = False

    def of_blocks(self, law: Floats, piece: Chains) -> Floats:
        """The law with one row for each block of `piece`."""
        return law if self.by_block else law[piece.chain_of]


def prior(model: OccupancyModel) -> Belief:
    """P^{1|0} = Pi.

    Args:
        model: The occupancy model.

    Returns:
        The belief at step 1, one row for each chain.
    """
    return Belief(1, tuple(piece.initial for piece in model.chains))


def each_block(belief: Belief, model: OccupancyModel) -> Belief:
    """The same belief with one row for each block, so that blocks of one chain can differ.

    Args:
        belief: The belief.
        model: Its model.

    Returns:
        The belief with `by_block` set.
    """
    pairs = zip(belief.laws, model.chains, strict=True)
    laws = tuple(belief.of_blocks(law, piece) for law, piece in pairs)
    return Belief(belief.t, laws, by_block=True)


def predict(belief: Belief, model: OccupancyModel) -> Belief:
    """Eq. (2): P^{t+1|t} = P^{t|t} A^{t+1}.

    Args:
        belief: The belief at step t.
        model: Its model.

    Returns:
        The belief at step t + 1.

    >>> theta = OccupancyModel.factored([[1.0, 0.0]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> predict(prior(theta), theta).laws[0]
    array([[0.9, 0.1]])
    """
    slot = model.calendar.slot(belief.t + 1)
    laws = []
    for law, piece in zip(belief.laws, model.chains, strict=True):
        a = piece.transition[slot]
        a = a[piece.chain_of] if belief.by_block else a
        laws.append(np.einsum("bs,bsk->bk", law, a))
    return Belief(belief.t + 1, tuple(laws), belief.by_block)


def condition(belief: Belief, likelihoods: Sequence[Floats]) -> Belief:
    """Eq. (3): multiply by Pr[release given state] and normalise, row by row.

    Args:
        belief: The belief at step t.
        likelihoods: For each block size an array (rows, 2^size), 0 or more.

    Returns:
        The belief at step t, given the release.

    Raises:
        ModelError: If the rows do not fit the belief, or the release has probability 0.

    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> condition(prior(theta), [np.array([[1.0, 3.0]])]).laws[0]
    array([[0.25, 0.75]])
    """
    laws = []
    for law, likelihood in zip(belief.laws, likelihoods, strict=True):
        if len(likelihood) != len(law):
            raise ModelError(
                f"likelihoods have {len(likelihood)} rows but the belief has {len(law)};"
                " give one for each, after each_block where blocks differ."
            )
        weight = law * likelihood
        total = weight.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            raise ModelError(
                f"a release at step {belief.t} has probability 0 under the model;"
                " give likelihoods above 0 for every possible state."
            )
        laws.append(weight / total)
    return Belief(belief.t, tuple(laws), belief.by_block)


def marginals(model: OccupancyModel, start: Belief | None = None) -> Iterator[Belief]:
    """The public law of every chain at t = 1, 2, ..., before any release, without end.

    Args:
        model: The occupancy model.
        start: The first belief to yield, where it is known; None: that of step 1.

    Yields:
        The belief at each step.
    """
    belief = prior(model) if start is None else start
    while True:
        yield belief
        belief = predict(belief, model)


class Moments(NamedTuple):
    """Mean and variance of the load under a belief.

    Attributes:
        mean: Mean [Wh].
        variance: Variance [Wh^2].
    """

    mean: float
    variance: float


def load_moments(
    belief: Belief, model: OccupancyModel, consumption: Consumption, factor: float = 1.0
) -> Moments:
    """E[Z] and Var[Z]: houses of different blocks are independent, those of one block are not.

    Args:
        belief: The belief at step t.
        model: Its model.
        consumption: The laws of readings.
        factor: Multiplies every reading (reaction of demand to a rate).

    Returns:
        Mean and variance of the load at step t.
    """
    moments = law_moments(consumption)[consumption.table(belief.t)]
    mean, variance = sum_moments(belief, model, consumption, moments[..., :1], moments[..., 1:])
    return Moments(float(mean[0]) * factor, float(variance[0]) * factor**2)


@lru_cache(maxsize=8)
def law_moments(consumption: Consumption) -> Floats:
    """Mean and variance of each law.

    Args:
        consumption: The laws of readings.

    Returns:
        (laws, 2): mean [Wh] and variance [Wh^2].
    """
    return np.array([(law.mean, law.variance) for law in consumption.laws])


def sum_moments(
    belief: Belief,
    model: OccupancyModel,
    consumption: Consumption,
    means: Floats,
    variances: Floats,
) -> tuple[Floats, Floats]:
    """Mean and variance of a sum over houses of a quantity that depends on class and occupancy.

    Args:
        belief: The belief about occupancy.
        model: Its model.
        consumption: Has the density class of each house.
        means: Mean of the quantity, (..., 2, classes, W): absent and present, in each of W
            variants; of several quantities at once where there are more axes.
        variances: Its variance, in that shape.

    Returns:
        Mean and variance of the sum, (..., W) each.
    """
    total = np.zeros((2, *means.shape[:-3], means.shape[-1]))
    for law, piece in zip(belief.laws, model.chains, strict=True):
        if piece.size > 1:
            blocks = belief.of_blocks(law, piece)
            total += _blocks(blocks, piece, consumption.class_of, means, variances)
        elif belief.by_block:
            kind = consumption.class_of[piece.members[:, 0]]
            alone = _Groups(np.arange(len(law)), kind, np.ones(len(law)))
            total += _single(law, alone, means, variances)
        else:
            total += _single(law, _groups(piece, consumption), means, variances)
    return total[0], total[1]


class _Groups(NamedTuple):
    """Houses that move alone, counted by chain and density class: (groups,) each."""

    chain: NDArray[Any]
    kind: NDArray[Any]
    houses: NDArray[Any]


@lru_cache(maxsize=8)
def _groups(piece: Chains, consumption: Consumption) -> _Groups:
    kind, classes = consumption.class_of[piece.members[:, 0]], consumption.absent.shape[1]
    if len(piece.initial) * classes > 4 * len(kind):  # hardly two houses of a group
        return _Groups(piece.chain_of, kind, np.ones(len(kind)))
    cell = piece.chain_of.astype(np.int64) * classes + kind
    counts = np.bincount(cell)
    cells = np.flatnonzero(counts)
    return _Groups(cells // classes, cells % classes, counts[cells])


def class_moments(
    belief: Belief, model: OccupancyModel, consumption: Consumption
) -> tuple[Floats, Floats]:
    """Mean of a reading and of its square in each density class, over the houses of the class.

    Args:
        belief: The belief at step t, one row for each chain.
        model: Its model.
        consumption: The laws of readings.

    Returns:
        Means [Wh] and mean squares [Wh^2], (classes,) each; 0 for a class without houses.
    """
    moments = law_moments(consumption)[consumption.table(belief.t)]
    classes, home = moments.shape[1], np.zeros(moments.shape[1])
    for law, piece in zip(belief.laws, model.chains, strict=True):
        if piece.size == 1:
            chain, kind, houses = _groups(piece, consumption)
            home += np.bincount(kind, houses * law[chain, 1], classes)
        else:
            kinds = consumption.class_of[piece.members]
            chances = belief.of_blocks(law, piece) @ _occupancy(piece.size)
            home += np.bincount(kinds.ravel(), chances.ravel(), classes)
    sizes = _class_sizes(consumption)
    share, filled = home / np.maximum(sizes, 1), sizes > 0
    parts = (moments[..., 0], moments[..., 1] + moments[..., 0] ** 2)
    first, second = (np.where(filled, a + share * (b - a), 0.0) for a, b in parts)
    return first, second


@lru_cache(maxsize=8)
def _class_sizes(consumption: Consumption) -> Ints:
    return np.bincount(consumption.class_of, minlength=consumption.absent.shape[1])


def _single(
    law: Floats, groups: _Groups, means: Floats, variances: Floats
) -> tuple[Floats, Floats]:
    """Blocks of one house: houses of the same row of the law and class are counted together."""
    mean, variance = np.zeros((2, *means.shape[:-3], means.shape[-1]))
    for start in range(0, len(groups.kind), _CHUNK):
        row, k, n = (part[start : start + _CHUNK] for part in groups)
        home = law[row, 1][:, None]
        low, high = means[..., 0, k, :], means[..., 1, k, :]
        apart = high - low
        within = (1 - home) * variances[..., 0, k, :] + home * variances[..., 1, k, :]
        mean += n @ (low + home * apart)
        variance += n @ (within + home * (1 - home) * apart**2)
    return mean, variance


_CHUNK = 4096  # groups of houses per pass


def _blocks(
    law: Floats, piece: Chains, class_of: Int32s, means: Floats, variances: Floats
) -> tuple[Floats, Floats]:
    """Houses of a block share its state: add given the state, then over the states."""
    bits = _occupancy(piece.size)
    kinds = class_of[piece.members]  # (blocks, houses)
    p = law[:, :, None]

    def given_state(moments: Floats) -> Floats:  # (..., blocks, states, variants)
        home = np.einsum("sh,...bhw->...bsw", bits, moments[..., 1, kinds, :])
        return np.asarray(
            home + np.einsum("sh,...bhw->...bsw", 1 - bits, moments[..., 0, kinds, :])
        )

    mean, within = given_state(means), given_state(variances)
    total = (p * mean).sum(axis=-2)
    spread = (p * (within + mean**2)).sum(axis=-2) - total**2
    return total.sum(axis=-2), spread.sum(axis=-2)


def _occupancy(size: int) -> Ints:
    """(states, houses): whether each house of a block is at home in each state, as 0 or 1."""
    return np.asarray((np.arange(2**size)[:, None] >> np.arange(size - 1, -1, -1)) & 1)


def at_home(belief: Belief, model: OccupancyModel) -> Floats:
    """Pr[at home] of every house under a belief.

    Args:
        belief: The belief about occupancy.
        model: Its model.

    Returns:
        (N,) probabilities.
    """
    home = np.empty(model.n_houses)
    for law, piece in zip(belief.laws, model.chains, strict=True):
        home[piece.members] = belief.of_blocks(law, piece) @ _occupancy(piece.size)
    return home


def chances_at_home(model: OccupancyModel, horizon: int) -> Floats:
    """The public chance that each house is occupied, before any release.

    Args:
        model: The occupancy model.
        horizon: Number of steps T.

    Returns:
        (T, N) probabilities.
    """
    return np.stack([at_home(belief, model) for belief in islice(marginals(model), horizon)])


def expected_readings(belief: Belief, model: OccupancyModel, consumption: Consumption) -> Floats:
    """E[X_i] of every house under a belief.

    Args:
        belief: The belief at step t.
        model: Its model.
        consumption: The laws of readings.

    Returns:
        (N,) [Wh].
    """
    home = at_home(belief, model)
    kinds, table = consumption.class_of, consumption.table(belief.t)
    low, high = law_moments(consumption)[table][..., 0][:, kinds]
    return np.asarray(low + home * (high - low))


# ---- one step of the leakage recursion


_SMALL = 1e-290  # chances below it lose digits


def if_uncertain(e: ArrayLike, possible: Bools) -> Floats:
    """A loss or leakage, set to 0 for blocks whose state is certain.

    Args:
        e: Losses, (blocks,) or a number.
        possible: Possible states, (blocks, 2^size).

    Returns:
        (blocks,) losses.
    """
    return np.where(possible.sum(axis=1) > 1, e, 0.0)


def transition_into(
    model: OccupancyModel, piece: Chains, chains: NDArray[np.integer], t: int
) -> Floats:
    """A^t of each block: rows are the state of step t - 1.

    Args:
        model: The occupancy model.
        piece: Its blocks of one size.
        chains: Chain numbers, (blocks,).
        t: The step, 2 or more.

    Returns:
        (blocks, 2^size, 2^size).
    """
    return np.asarray(piece.transition[model.calendar.slot(t)][chains])


def carried_leakage(a: Floats, rows: Floats, possible: Bools) -> Floats:
    """L(a): how much of a leakage `a` at one step carries over through `rows` to the next.

    Args:
        a: Leakage, (blocks,), 0 or more.
        rows: Transition rows, (blocks, states, states).
        possible: Possible states, (blocks, states). Rows of impossible states do not count; fewer
            than two possible rows carry nothing.

    Returns:
        (blocks,) leakage.
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


def carried_backward(
    leakage: Floats, law: Floats, possible: Bools, a: Floats, moves: Bools | None = None
) -> tuple[Bools, Floats]:
    """The backward leakage that carries over from step t - 1 to step t.

    The rows are B^t(s_t, s_{t-1}) = Pr[S^{t-1} given S^t] by Bayes, from the law of step t - 1.

    Args:
        leakage: Backward leakage of step t - 1, (blocks,).
        law: Law of the state at step t - 1, (blocks, states).
        possible: Possible states at step t - 1, (blocks, states).
        a: A^t, (blocks, states, states); or the product of several steps' matrices.
        moves: Where that product is possible, in Booleans; None: where it is above 0.

    Returns:
        The possible states at step t, (blocks, states), and the leakage carried, (blocks,).
    """
    moves = possible[:, :, None] & (a > 0 if moves is None else moves)
    joint = law[:, :, None] * a
    total = joint.sum(axis=1)
    b = np.divide(joint, total[:, None], out=np.zeros_like(joint), where=total[:, None] > 0)
    after = np.asarray(moves.any(axis=1))
    # a possible move with a chance too small for a float: B is not known, but L(a) <= a
    underflow = (moves & (joint < _SMALL)).any(axis=(1, 2))
    carried = carried_leakage(leakage, np.swapaxes(b, 1, 2), after)
    return after, np.where(underflow, if_uncertain(leakage, after), carried)


# ---- imputed readings


def cells(model: OccupancyModel) -> Int32s:
    """The cell of each house: its chain and its position in the block, as one number.

    Houses of one cell have the same chance to be at home.

    Args:
        model: The occupancy model.

    Returns:
        (N,) cell numbers.
    """
    numbers, offset = np.empty(model.n_houses, np.int32), 0
    for piece in model.chains:
        seats = np.arange(piece.size, dtype=np.int32)
        numbers[piece.members] = offset + piece.chain_of[:, None] * np.int32(piece.size) + seats
        offset += len(piece.initial) * piece.size
    return numbers


class Expectations:
    """Expected readings of houses, step by step; the mean over the models.

    Steps in rising order are fast; an earlier step starts again from step 1.

    Args:
        scenario: The models and the laws of consumption.
        houses: Numbers of the houses; by default all of them.
        usual: What a house usually consumes [Wh], where models have no part in the estimate: then
            the expectation of every house where laws follow no load shape. 0: by the models.
    """

    def __init__(
        self,
        scenario: Scenario,
        houses: Ints | None = None,
        *,
        usual: float = 0.0,
    ) -> None:
        rows = slice(None) if houses is None else houses
        self._kinds = scenario.consumption.class_of[rows]
        self._fixed: Ints | None = None
        if usual and scenario.consumption.shape is None:
            self._fixed = scenario.zone.export[rows].astype(np.int64) + round(usual)
            return
        self._models, self._consumption = tuple(scenario.models), scenario.consumption
        self._cells = [cells(model)[rows] for model in self._models]
        self._begin()

    def _begin(self) -> None:
        self._t, self._now = 0, list[Belief]()
        self._beliefs: list[Iterator[Belief]] = [marginals(model) for model in self._models]

    def at(self, t: int) -> Ints:
        """Expected readings at a step.

        Args:
            t: The step, counted from 1.

        Returns:
            (houses,) whole Wh.
        """
        if self._fixed is not None:
            return self._fixed
        if t < self._t:
            self._begin()
        while self._t < t:
            self._now = [next(beliefs) for beliefs in self._beliefs]
            self._t += 1
        table = self._consumption.table(t)
        low, high = law_moments(self._consumption)[table][..., 0]
        total = np.zeros(len(self._kinds))
        for belief, model, cell in zip(self._now, self._models, self._cells, strict=True):
            home = _at_home(belief, model)[cell]
            total += low[self._kinds] + home * (high - low)[self._kinds]
        return np.rint(total / len(self._models)).astype(np.int64)


def _at_home(belief: Belief, model: OccupancyModel) -> Floats:
    """Pr[at home] in every cell, before any release."""
    pairs = zip(belief.laws, model.chains, strict=True)
    return np.concatenate([(law @ _occupancy(piece.size)).ravel() for law, piece in pairs])


def imputed(readings: NDArray[np.integer], scenario: Scenario) -> Int32s:
    """Replace missing readings by their public expectation.

    Args:
        readings: (days, T, houses) [Wh], -1 where missing; every day begins at step 1.
        scenario: The models and the laws of consumption.

    Returns:
        The readings without gaps, in the same shape.
    """
    out, expectations = np.array(readings, np.int32), Expectations(scenario)
    for t in range(out.shape[1]):
        slot = out[:, t, :]
        slot[...] = np.where(slot < 0, expectations.at(t + 1), slot)
    return out
