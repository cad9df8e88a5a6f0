"""The marginal of each of up to a million houses: the sum of all others is a normal law.

A house's own reading keeps its law, as a few Gauss quadrature points; the sum of all others is
taken as normal, with the mean and variance that the beliefs about them give. One pass over the
houses a step.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, final

import numpy as np
from array_api_compat import array_namespace

from hushgrid._numbers import Floats, Int32s, Ints
from hushgrid.adversary.exact import MOST, joint_likelihood
from hushgrid.adversary.filter import Adversary
from hushgrid.adversary.knowledge import (
    HOST,
    Array,
    Blur,
    Bystanders,
    Knowledge,
    StepLaws,
    like,
    log,
    log_blurred,
    log_sum,
    on_host,
)
from hushgrid.adversary.population import log_density, moments
from hushgrid.errors import ModelError
from hushgrid.model.occupancy import OccupancyModel

MOST_NODES = 8  # points a law; 32 give the same beliefs to 1e-10


class LawNodes(NamedTuple):
    """Quadrature points of the readings' laws, for absent and present and every kind of house.

    Attributes:
        at: (2, kinds, points): points [Wh].
        log_weight: (2, kinds, points): logarithms of the weights.
        mean: (2, kinds): means [Wh].
        variance: (2, kinds): variances [Wh^2].
    """

    at: Array  # (2, kinds, points)
    log_weight: Array
    mean: Array  # (2, kinds)
    variance: Array

    def on(self, array: Array) -> LawNodes:
        """The same numbers on another array's library and device."""
        return LawNodes(*(like(numbers, array) for numbers in self))


def law_nodes(pairs: tuple[tuple[Floats, Floats], ...], most: int = MOST_NODES) -> LawNodes:
    """Gauss quadrature of all laws; those with fewer points get weights of 0.

    Args:
        pairs: For each kind of house the pmfs of absent and present, over 0, 1, 2, ... [Wh].
        most: Largest number of points of a law.

    Returns:
        Points, weights and moments.
    """
    nodes = [[gauss(f, most) for f in pair] for pair in pairs]
    width = max(at.size for pair in nodes for at, _ in pair)
    at, weight = np.zeros((2, 2, len(pairs), width))
    for kind, pair in enumerate(nodes):
        for s, (points, weights) in enumerate(pair):
            at[s, kind, : points.size] = points
            weight[s, kind, : points.size] = weights
    pair_moments = [moments(pair) for pair in pairs]
    mean, variance = (
        np.array([pair_moment[part] for pair_moment in pair_moments]).T for part in (0, 1)
    )
    return LawNodes(at, log(weight), mean, variance)


def gauss(pmf: Floats, most: int) -> tuple[Floats, Floats]:
    """Gauss quadrature of a law on 0, 1, 2, ...: exact for polynomials up to degree 2G - 1.

    Args:
        pmf: Probabilities from 0 on.
        most: Largest number of points G.

    Returns:
        Points and weights; the law itself where it has at most G points.

    >>> points, weights = gauss(np.full(1001, 1 / 1001), 2)
    >>> points.round(1).tolist(), weights.round(3).tolist()
    ([211.0, 789.0], [0.5, 0.5])
    """
    x = np.flatnonzero(pmf).astype(np.float64)
    f = pmf[pmf > 0]
    if x.size <= most:
        return x, f
    centre, half = (x[0] + x[-1]) / 2, (x[-1] - x[0]) / 2
    y = (x - centre) / half
    basis = [np.sqrt(f / f.sum())]  # Lanczos; orthogonalised in full, so nothing drifts
    diagonal, offdiagonal = np.empty(most), np.empty(most - 1)
    for k in range(most):
        step = y * basis[k]
        diagonal[k] = step @ basis[k]
        for _ in range(2):
            step -= np.array(basis).T @ (np.array(basis) @ step)
        size = float(np.linalg.norm(step))
        if k == most - 1 or size < 1e-12:
            diagonal, offdiagonal = diagonal[: k + 1], offdiagonal[:k]
            break
        offdiagonal[k] = size
        basis.append(step / size)
    tridiagonal = np.diag(diagonal) + np.diag(offdiagonal, 1) + np.diag(offdiagonal, -1)
    points, vectors = np.linalg.eigh(tridiagonal)
    return points * half + centre, vectors[0] ** 2


CHUNK = 1 << 13  # houses computed at once
_CERTAIN = 1e-9  # of the largest variance: below it the others' sum counts as known


@final
class Factored(Adversary):
    """Adversary for independent houses, each with its own chain and law.

    Exact for one house, and for an adversary who knows all other readings (or, up to 14 houses, all
    other occupancies). Otherwise each house's belief is its own marginal: the dependence between
    houses that a release creates is dropped after the step.

    Args:
        knowledge: What the adversary knows; readings or occupancy of other houses are used.
        like: An array of the library and device to work on.
        chunk: Number of houses computed at once.

    Raises:
        ModelError: If houses of a model move together.
    """

    def __init__(self, knowledge: Knowledge, like: Array = HOST, chunk: int = CHUNK) -> None:
        super().__init__(knowledge, like)
        self.houses, self._chunk = range(knowledge.n_houses), chunk
        self._chains = {id(model): self._chain_of(model) for model in knowledge.models}
        self._nodes: dict[StepLaws, tuple[LawNodes, Array]] = {}
        self._moves: dict[tuple[int, int], Array] = {}

    def with_bystanders(self, bystanders: Bystanders) -> Factored:
        """The same adversary with other knowledge of the other houses, step by step of a day."""
        adversary = copy(self)
        adversary.knowledge = self.knowledge.with_bystanders(bystanders)
        return adversary

    def prior(self, model: OccupancyModel) -> Array:
        """(2, N)."""
        xp = array_namespace(self.like)
        chains = like(log(model.chains[0].initial.T), self.like)
        return xp.take(chains, self._chains[id(model)], axis=1)

    def predict(self, law: Array, model: OccupancyModel, t: int) -> Array:
        """Eq. (2), every house by itself."""
        xp, a = array_namespace(law), self._moves_into(model, t)
        out, home = law[..., 0, :], law[..., 1, :]
        return xp.stack([xp.logaddexp(out + a[s, :], home + a[2 + s, :]) for s in (0, 1)], axis=-2)

    def predict_back(self, message: Array, model: OccupancyModel, t: int) -> Array:
        """The transposed moves."""
        xp, a = array_namespace(message), self._moves_into(model, t)
        out, home = message[..., 0, :], message[..., 1, :]
        return xp.stack(
            [xp.logaddexp(out + a[2 * s, :], home + a[2 * s + 1, :]) for s in (0, 1)], axis=-2
        )

    def likelihood(self, law: Array, t: int, rate: float | None, z: int, blur: Blur) -> Array:
        """(2, N): log Pr[load_hat = z given one house's state], the others as believed."""
        laws = self.knowledge.laws(t, rate)
        occupancy = self.knowledge.occupancy(t)
        if occupancy is not None and len(occupancy) <= MOST:
            return like(_given_others(laws, occupancy, z, blur), self.like)
        nodes, kind_of = self._nodes_of(laws)
        mean, variance = self.others_moments(law, t, rate)
        return house_likelihoods(nodes, kind_of, mean, variance, z, blur, laws, self._chunk)

    def home(self, law: Array) -> Array:
        """Pr[at home] of every house."""
        home = law[..., 1, :]
        return array_namespace(law).exp(home if home.ndim == 1 else log_sum(home, axis=0))

    def total(self, law: Array) -> Array:
        """(N,): each house has its own likelihood of the release."""
        sums = array_namespace(law).logaddexp(law[..., 0, :], law[..., 1, :])
        return sums if sums.ndim == 1 else log_sum(sums, axis=0)

    def normalised(self, law: Array) -> Array:
        """Every house's law by itself."""
        return law - self.total(law)

    def others_moments(self, law: Array, t: int, rate: float | None) -> tuple[Array, Array]:
        """Mean [Wh] and variance [Wh^2] of what all others use at step t, for each house."""
        xp = array_namespace(law)
        readings, occupancy = self.knowledge.cut_readings(t), self.knowledge.occupancy(t)
        if readings is not None:
            mean = like((readings.sum() - readings).astype(np.float64), law)
            return mean, xp.zeros_like(mean)
        chance = xp.exp(law)
        if law.ndim == 3:  # given each size of a block's noise, where a house allows it
            size_chance = xp.sum(chance, axis=1, keepdims=True)
            positive = size_chance > 0
            chance = xp.where(
                positive, chance / xp.where(positive, size_chance, 1.0), xp.sum(chance, axis=0)
            )
        if occupancy is not None:
            chance = like(np.stack([1.0 - occupancy, 1.0 * occupancy]), law)
        return leave_one_out(chance, *self._nodes_of(self.knowledge.laws(t, rate)))

    def _nodes_of(self, laws: StepLaws) -> tuple[LawNodes, Array]:
        if laws not in self._nodes:
            if len(self._nodes) >= 128:
                self._nodes.clear()
            kind_of = like(laws.kind_of.astype(np.int64), self.like)
            self._nodes[laws] = (law_nodes(laws.pairs).on(self.like), kind_of)
        return self._nodes[laws]

    def _moves_into(self, model: OccupancyModel, t: int) -> Array:
        """(4, N): log a00, a01, a10, a11 of every house; those of the last slot are kept."""
        key = (id(model), model.calendar.slot(t))
        if key not in self._moves:
            xp = array_namespace(self.like)
            a = log(model.chains[0].transition[key[1]].reshape(-1, 4).T)
            if len(self._moves) >= len(self.knowledge.models):
                self._moves.clear()
            self._moves[key] = xp.take(like(a, self.like), self._chains[id(model)], axis=1)
        return self._moves[key]

    def _chain_of(self, model: OccupancyModel) -> Array:
        piece = model.chains[0]
        if len(model.chains) > 1 or piece.size > 1:
            raise ModelError(
                f"model {model.name} has houses that move together; give independent houses, or"
                f" use Exact for up to {MOST}."
            )
        chain_of = np.empty(len(piece.members), np.int64)
        chain_of[piece.members[:, 0]] = piece.chain_of
        return like(chain_of, self.like)


def leave_one_out(chance: Array, nodes: LawNodes, kind_of: Array) -> tuple[Array, Array]:
    """Mean and variance of the sum of all readings but one, for each house.

    Args:
        chance: (..., 2, N): probabilities of absent and present.
        nodes: Moments of the laws.
        kind_of: (N,): kind of each house.

    Returns:
        Means [Wh] and variances [Wh^2], (..., N) each.
    """
    xp = array_namespace(chance)
    means, variances = (xp.take(values, kind_of, axis=1) for values in (nodes.mean, nodes.variance))
    mean = xp.sum(chance * means, axis=-2)
    within = xp.sum(chance * variances, axis=-2)
    between = chance[..., 0, :] * chance[..., 1, :] * (means[1, :] - means[0, :]) ** 2
    variance = within + between
    all_mean, all_variance = (xp.sum(values, axis=-1, keepdims=True) for values in (mean, variance))
    return all_mean - mean, xp.clip(all_variance - variance, 0.0, None)


def house_likelihoods(
    nodes: LawNodes,
    kind_of: Array,
    mean: Array,
    variance: Array,
    z: int,
    blur: Blur,
    laws: StepLaws,
    chunk: int = CHUNK,
) -> Array:
    """Log likelihood of a release from each house's point of view.

    Convolves the house's own law, the normal law of the others and the noise.

    Args:
        nodes: Quadrature of the laws.
        kind_of: (N,): kind of each house.
        mean: (N,): mean of all others' sum [Wh]; (G, N) by the size of a block's noise.
        variance: Its variance [Wh^2], in the same shape.
        z: The published load [Wh].
        blur: The noise of the release.
        laws: The laws themselves, used where the others' sum is known.
        chunk: Number of houses computed at once.

    Returns:
        (2, N): log Pr[load_hat = z given the house's state]; (G, 2, N) where the noise has several
        sizes.
    """
    xp = array_namespace(mean)
    certain = variance <= _CERTAIN * xp.max(variance) + 1e-12
    if bool(xp.all(certain)):
        return like(_known_sum(laws, on_host(mean), on_host(certain), z, blur), mean)
    middle, spread, again = mean, xp.where(certain, 1.0, variance), None
    if isinstance(mean, np.ndarray):
        first, again = _distinct(kind_of, mean, spread)
        kind_of, middle, spread = kind_of[first], mean[..., first], spread[..., first]
    parts = []
    column_blur = blur
    if blur.sizes is not None:
        chunk = max(1, chunk // blur.sizes.size)
        column_blur = blur._replace(sizes=blur.sizes[:, None, None, None])
    for start in range(0, middle.shape[-1], chunk):
        part = slice(start, min(start + chunk, middle.shape[-1]))
        kinds = kind_of[part]
        at = xp.take(nodes.at, kinds, axis=1)  # (2, houses, nodes)
        weight = xp.take(nodes.log_weight, kinds, axis=1)
        distance = (z - middle[..., part])[..., None, :, None] - at
        density = log_density(distance, spread[..., part][..., None, :, None], column_blur)
        parts.append(log_sum(weight + density, -1))
    likelihoods = xp.concat(parts, axis=-1) if len(parts) > 1 else parts[0]
    likelihoods = likelihoods if again is None else likelihoods[..., again]
    if not bool(xp.any(certain)):
        return likelihoods
    exact = _known_sum(laws, on_host(mean), on_host(certain), z, blur)
    return xp.where(certain[..., None, :], like(exact, mean), likelihoods)


def _distinct(*rows: Any) -> tuple[Ints, Ints]:
    """One house of each kind that has the same numbers, and each house's place among them."""
    bits = np.concatenate([np.atleast_2d(row).astype(np.float64) for row in rows]).view(np.uint64)
    odd = 2 * np.arange(len(bits), dtype=np.uint64)[:, None] + np.uint64(0x9E3779B97F4A7C15)
    _, first, again = np.unique((bits * odd).sum(axis=0), return_index=True, return_inverse=True)
    if (bits[:, first[again]] == bits).all():
        return first, again
    columns = np.arange(bits.shape[1])  # two sums that are equal by chance
    return columns, columns


def _known_sum(laws: StepLaws, mean: Floats, certain: Any, z: int, blur: Blur) -> Floats:
    """Where the others' sum is known nothing is approximated: the house's own law and noise."""
    sizes = () if blur.sizes is None else (blur.sizes.size,)
    likelihoods = np.zeros((*sizes, 2, mean.shape[-1]))
    for kind, pair in enumerate(laws.pairs):
        houses = np.flatnonzero(
            certain.reshape(-1, mean.shape[-1]).any(axis=0) & (laws.kind_of == kind)
        )
        at = z - np.rint(mean[..., houses]).astype(np.int64)
        for s in (0, 1):
            if houses.size:
                likelihoods[..., s, houses] = log_blurred(pair[s], at, blur)
    return likelihoods


def _given_others(laws: StepLaws, occupancy: Int32s, z: int, blur: Blur) -> Floats:
    """(2, N) where all other occupancies are known: exact, from the joint likelihood."""
    n = len(occupancy)
    joint = joint_likelihood(laws, z, blur)
    joint = joint.reshape(*joint.shape[:-1], *(2,) * n)
    likelihoods = np.empty((*joint.shape[:-n], 2, n))
    for i in range(n):
        state = occupancy.tolist()
        for s in (0, 1):
            state[i] = s
            likelihoods[..., s, i] = joint[..., *state]
    return likelihoods
