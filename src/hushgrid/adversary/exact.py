"""The joint law of all houses' occupancy, 2^N states: the adversary as the paper defines it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import final

import numpy as np
from array_api_compat import array_namespace

from hushgrid._numbers import Floats
from hushgrid.adversary.filter import Adversary
from hushgrid.adversary.knowledge import (
    DEEP,
    FEW,
    HOST,
    Array,
    Blur,
    Knowledge,
    StepLaws,
    like,
    log,
    log_blurred,
    log_sum,
)
from hushgrid.errors import ModelError, PolicyError
from hushgrid.model.occupancy import OccupancyModel

MOST = 14  # houses


@final
class Exact(Adversary):
    """Adversary with the joint law, for any models (blocked or joint too) of up to 14 houses.

    Nothing is approximated.

    Args:
        knowledge: What the adversary knows.
        like: An array of the library and device to work on.

    Raises:
        ModelError: If the zone has more than 14 houses.
        PolicyError: If readings or occupancy of other houses are known.
    """

    def __init__(self, knowledge: Knowledge, like: Array = HOST) -> None:
        super().__init__(knowledge, like)
        n = knowledge.n_houses
        if n > MOST:
            raise ModelError(
                f"the zone has {n} houses, 2^{n} joint states; give Population or Factored a zone"
                f" of more than {MOST}."
            )
        refuse_others(knowledge, "Exact")
        self.houses = range(n)

    def prior(self, model: OccupancyModel) -> Array:
        """Pi as (2,) * N, house i on axis i."""
        n = model.n_houses
        law = np.zeros((2,) * n)
        for piece in model.chains:
            for block, chain in zip(piece.members.tolist(), piece.chain_of.tolist(), strict=True):
                chain_law = log(piece.initial[chain]).reshape((2,) * piece.size)
                # the block's axes, in its own order, then as the houses are numbered
                chain_law = np.transpose(chain_law, np.argsort(block))
                shape = [2 if house in block else 1 for house in range(n)]
                law = law + chain_law.reshape(shape)
        return like(law, self.like)

    def predict(self, law: Array, model: OccupancyModel, t: int) -> Array:
        """Eq. (2), one block after the other."""
        for block, a in self._moves(model, t):
            law = _contract(law, block, log(a), len(self.houses))
        return law

    def predict_back(self, message: Array, model: OccupancyModel, t: int) -> Array:
        """The transposed moves."""
        for block, a in self._moves(model, t):
            message = _contract(message, block, log(a.T), len(self.houses))
        return message

    def likelihood(self, law: Array, t: int, rate: float | None, z: int, blur: Blur) -> Array:
        """The law of the load given every state, seen through the noise at z."""
        logs = joint_likelihood(self.knowledge.laws(t, rate), z, blur)
        shape = (*logs.shape[:-1], *law.shape[-len(self.houses) :])
        return like(logs.reshape(shape), self.like)

    def home(self, law: Array) -> Array:
        """The N marginals."""
        xp, n = array_namespace(law), self.knowledge.n_houses
        law = log_sum(law, axis=0) if law.ndim > n else law
        rows = [xp.reshape(law, (2**i, 2, -1))[:, 1, :] for i in range(n)]
        return xp.stack([xp.exp(log_sum(row)) for row in rows])

    def _moves(self, model: OccupancyModel, t: int) -> Iterator[tuple[list[int], Floats]]:
        slot = model.calendar.slot(t)
        for piece in model.chains:
            for block, chain in zip(piece.members.tolist(), piece.chain_of.tolist(), strict=True):
                yield block, piece.transition[slot, chain]


def refuse_others(knowledge: Knowledge, name: str) -> None:
    """Refuse knowledge of other houses, which only `Factored` can use.

    Args:
        knowledge: What the adversary knows.
        name: Name of the filter, for the message.

    Raises:
        PolicyError: If `knowledge.bystanders` is set.
    """
    if knowledge.bystanders is not None:
        raise PolicyError(
            f"bystanders is {type(knowledge.bystanders).__name__}, which {name} does not use;"
            " give it to Factored."
        )


def _contract(law: Array, houses: list[int], log_a: Floats, n: int) -> Array:
    """Sum over the old state of houses that move together of law times a, in logarithms."""
    xp, k = array_namespace(law), len(log_a)
    block = [house + law.ndim - n for house in houses]
    order = [axis for axis in range(law.ndim) if axis not in block] + block
    flat = xp.reshape(xp.permute_dims(law, tuple(order)), (-1, k))
    a = like(log_a, law)
    if k == 2:
        moved = xp.logaddexp(flat[:, :1] + a[:1, :], flat[:, 1:] + a[1:, :])
    else:
        rows = range(flat.shape[0])
        moved = xp.stack([log_sum(flat[row, :][:, None] + a, axis=0) for row in rows])
    back = tuple(int(axis) for axis in np.argsort(order))
    return xp.permute_dims(xp.reshape(moved, law.shape), back)


def joint_likelihood(laws: StepLaws, z: int, blur: Blur) -> Floats:
    """Log likelihood of a release given every joint state.

    Houses are split in two halves with laws A_i and B_k of their sums. At one point z only, sum_j
    A_i(j) (B_k plus noise)(z - j) is one matrix product for all pairs of states.

    Args:
        laws: The readings' laws of the step.
        z: The published load [Wh].
        blur: The noise of the release.

    Returns:
        (2^N,): log Pr[load_hat = z given state], the first house the most significant bit;
        (G, 2^N) where the noise has several sizes.
    """
    n = laws.kind_of.size
    reach = sum(max(map(len, laws.pairs[kind])) for kind in laws.kind_of.tolist())
    # noise of many sizes is sums over the law of the load itself, where that can be had
    a, b = _two_sums(laws, 0 if blur.sizes is not None and 2**n * reach <= FEW else n // 2)
    if blur.sizes is None:
        return _at_point(a, b, z, blur)
    chunk = max(1, FEW // (len(b) * a.shape[1]))
    starts = range(0, blur.sizes.size, chunk)
    parts = [blur._replace(sizes=blur.sizes[start : start + chunk]) for start in starts]
    return np.concatenate([_at_point(a, b, z, part) for part in parts])


def _at_point(a: Floats, b: Floats, z: int, blur: Blur) -> Floats:
    """Log likelihoods from the laws of the two parts' sums, a state of the first after another."""
    noisy = log_blurred(b, z - np.arange(a.shape[1]), blur)
    shape, most = (*noisy.shape[:-2], len(a) * len(b)), float(noisy.max())
    if most == -np.inf:
        return np.full(shape, -np.inf)
    finite = noisy[noisy > -np.inf]
    if most - float(finite.min()) <= DEEP:
        return np.asarray(log(a @ np.swapaxes(np.exp(noisy - most), -1, -2)) + most).reshape(shape)
    return np.stack([log_sum(noisy + row, axis=-1) for row in log(a)], axis=-2).reshape(shape)


@lru_cache(maxsize=4)
def _two_sums(laws: StepLaws, cut: int) -> tuple[Floats, Floats]:
    """The laws of the sums of the first houses and of the rest, in all states: (states, Wh)."""
    kinds = laws.kind_of.tolist()
    return _sums(kinds[:cut], laws), _sums(kinds[cut:], laws)


def _sums(kinds: list[int], laws: StepLaws) -> Floats:
    """By direct convolution, exact in every tail; equal sums are convolved once."""
    sums: dict[tuple[tuple[int, int], ...], Floats] = {(): np.ones(1)}

    def sum_of(parts: tuple[tuple[int, int], ...]) -> Floats:
        if parts not in sums:
            kind, home = parts[-1]
            sums[parts] = np.convolve(sum_of(parts[:-1]), laws.pairs[kind][home])
        return sums[parts]

    n = len(kinds)
    states = [
        sum_of(tuple(sorted((kind, state >> (n - 1 - i) & 1) for i, kind in enumerate(kinds))))
        for state in range(2**n)
    ]
    table = np.zeros((2**n, max(len(law) for law in states)))
    for row, law in zip(table, states, strict=True):
        row[: len(law)] = law
    return table
