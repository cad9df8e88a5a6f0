"""A law of readings by few points: Gauss quadrature, exact for polynomials up to degree 2G - 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.adversary.arrays import Array, like, log
from hushgrid.adversary.frequencies import moments
from hushgrid.arrays import Floats

MOST = 8  # points a law; 32 give the same beliefs to 1e-10


class LawNodes(NamedTuple):
    """For absent and present and every kind of house: points [Wh], log weights, moments."""

    at: Array  # (2, kinds, points)
    log_weight: Array
    mean: Array  # (2, kinds)
    variance: Array

    def on(self, other: Array) -> LawNodes:
        """The same numbers on another array's library and device."""
        return LawNodes(*(like(each, other) for each in self))


def law_nodes(pairs: tuple[tuple[Floats, Floats], ...], most: int = MOST) -> LawNodes:
    """Points and weights of all laws; those with fewer points get weights of 0."""
    found = [[gauss(f, most) for f in pair] for pair in pairs]
    width = max(at.size for pair in found for at, _ in pair)
    at, weight = np.zeros((2, 2, len(pairs), width))
    for kind, pair in enumerate(found):
        for s, (points, weights) in enumerate(pair):
            at[s, kind, : points.size] = points
            weight[s, kind, : points.size] = weights
    each = [moments(pair) for pair in pairs]
    mean, variance = (np.array([one[part] for one in each]).T for part in (0, 1))
    return LawNodes(at, log(weight), mean, variance)


def gauss(pmf: Floats, most: int) -> tuple[Floats, Floats]:
    """Points and weights that stand for a law on 0, 1, 2, ...: itself where it has few points.

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
    diagonal, beside = np.empty(most), np.empty(most - 1)
    for k in range(most):
        step = y * basis[k]
        diagonal[k] = step @ basis[k]
        for _ in range(2):
            step -= np.array(basis).T @ (np.array(basis) @ step)
        size = float(np.linalg.norm(step))
        if k == most - 1 or size < 1e-12:
            diagonal, beside = diagonal[: k + 1], beside[:k]
            break
        beside[k] = size
        basis.append(step / size)
    points, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return points * half + centre, vectors[0] ** 2
