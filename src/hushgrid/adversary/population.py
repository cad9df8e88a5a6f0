"""One house among many that are alike: its state, and how many of the others are at home."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from array_api_compat import array_namespace

from hushgrid.adversary.arrays import HOST, Array, like, log, log_sum
from hushgrid.adversary.blur import Blur
from hushgrid.adversary.counts import count_likelihood, moved_counts, moved_counts_back
from hushgrid.adversary.exact import refuse_others
from hushgrid.adversary.filtering import Adversary
from hushgrid.adversary.knowledge import Knowledge
from hushgrid.arrays import Floats
from hushgrid.errors import ModelError
from hushgrid.occupancy import OccupancyModel


@final
class Population(Adversary):
    """A target among N - 1 houses with one chain and one law; the target may have its own.

    The belief is exact: houses alike can be told apart by nothing but their number.
    """

    def __init__(self, knowledge: Knowledge, target: int = 0, like: Array = HOST) -> None:
        super().__init__(knowledge, like)
        n = knowledge.n_houses
        if not 0 <= target < n:
            raise ModelError(f"target is {target}; give one of the houses 0..{n - 1}.")
        refuse_others(knowledge, "Population")
        self.houses, self._n = (target,), n - 1
        self._other = 0 if target else n - 1  # stands for all the others
        self._chains = {
            id(model): _two_chains(model, target, self._other) for model in knowledge.models
        }
        kinds = np.delete(knowledge.laws(1, None).kind_of, target)
        if kinds.size and (kinds != kinds[0]).any():
            raise ModelError(
                "houses other than the target have different laws of readings;"
                " give houses alike, or use Factored."
            )

    def prior(self, model: OccupancyModel) -> Array:
        """(2, N): the target's state and the number of others at home."""
        own, other = self._chains[id(model)]
        pi = model.chains[0].initial
        count = np.zeros((1, self._n + 1))
        count[0, 0] = 1.0
        home = float(pi[other, 1])
        count = moved_counts(count, home, home)
        return like(log(pi[own])[:, None] + log(count), self.like)

    def moved(self, law: Array, model: OccupancyModel, t: int) -> Array:
        """Eq. (2): the others' count, then the target."""
        own, other = self._transitions(model, t)
        counts = _linear(law, lambda rows: moved_counts(rows, other[0, 1], other[1, 1]))
        return _two_states(counts, log(own))

    def moved_back(self, message: Array, model: OccupancyModel, t: int) -> Array:
        """The transposed moves."""
        own, other = self._transitions(model, t)
        counts = _linear(message, lambda rows: moved_counts_back(rows, other[0, 1], other[1, 1]))
        return _two_states(counts, log(own.T))

    def likelihood(self, law: Array, t: int, rate: float | None, z: int, blur: Blur) -> Array:
        """The law of the load given the count, seen through the noise at z."""
        laws = self.knowledge.laws(t, rate)
        own, other = (laws.pairs[laws.kind_of[i]] for i in (self.houses[0], self._other))
        found = count_likelihood(own, other, self._n, z, blur)
        return like(found.reshape(law.shape), self.like)

    def home(self, law: Array) -> Array:
        """Pr[the target is at home], as (1,)."""
        xp = array_namespace(law)
        return xp.exp(log_sum(law[1:, :], axis=1))

    def _transitions(self, model: OccupancyModel, t: int) -> tuple[Floats, Floats]:
        own, other = self._chains[id(model)]
        a = model.chains[0].transition[model.calendar.slot(t)]
        return a[own], a[other]


def _linear(law: Array, move: Callable[[Array], Array]) -> Array:
    """A linear map of rows kept as logarithms: each is scaled to 1 first."""
    xp = array_namespace(law)
    most = xp.max(law, axis=1, keepdims=True)
    most = xp.where(xp.isfinite(most), most, 0.0)
    return log(move(xp.exp(law - most))) + most


def _two_states(law: Array, log_a: Floats) -> Array:
    """The target's own move: rows are its states."""
    xp = array_namespace(law)
    a = like(log_a, law)
    return xp.stack([xp.logaddexp(law[0, :] + a[0, s], law[1, :] + a[1, s]) for s in (0, 1)])


def _two_chains(model: OccupancyModel, target: int, other: int) -> tuple[int, int]:
    """The chains of the target and of all the others; refused where those are not alike."""
    piece = model.chains[0]
    if len(model.chains) > 1 or piece.size > 1:
        raise ModelError(
            f"model {model.name} has houses that move together; give independent houses, or use"
            " Exact."
        )
    chain_of = np.empty_like(piece.chain_of)
    chain_of[piece.members[:, 0]] = piece.chain_of
    first = chain_of[other]
    for chain in np.unique(np.delete(chain_of, target)):
        same = np.array_equal(piece.initial[chain], piece.initial[first])
        if not same or not np.array_equal(piece.transition[:, chain], piece.transition[:, first]):
            raise ModelError(
                f"model {model.name} moves houses other than the target in different ways;"
                " give houses alike, or use Factored."
            )
    return int(chain_of[target]), int(first)
