"""Fourier perturbation, FPA_k (Rastogi, Nath 2010): noise on the slow part of a whole day.

In the orthonormal real basis a house's day of T readings moves the coefficients by at most
sqrt(T) u in the Euclidean norm, so by sqrt(2k-1) sqrt(T) u in the sum of sizes. The textbook's
unnormalised transform moves them by sqrt(T) times more than its formula says.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.baselines.method import Method, MethodSetting, Ready
from hushgrid.baselines.offline import offline
from hushgrid.checks import is_whole
from hushgrid.errors import PolicyError

_MOST_K = 24  # waves shorter than an hour of quarter hours are never worth their noise


def fourier_basis(horizon: int, k: int) -> Floats:
    """(2k-1, T): the constant and k-1 pairs of cosine and sine, orthonormal rows.

    >>> b = fourier_basis(96, 10)
    >>> b.shape, bool(np.allclose(b @ b.T, np.eye(19)))
    ((19, 96), True)
    """
    if not is_whole(k) or not 1 <= k <= (horizon + 1) // 2:
        raise PolicyError(f"k is {k}; give 1 to {(horizon + 1) // 2} for {horizon} steps.")
    angle = 2 * np.pi * np.outer(np.arange(1, k), np.arange(horizon)) / horizon
    pairs = np.stack([np.cos(angle), np.sin(angle)], axis=1).reshape(-1, horizon)
    rows = np.concatenate([np.ones((1, horizon)) / math.sqrt(2), pairs])
    return np.asarray(rows * math.sqrt(2 / horizon))


def fourier_scale(horizon: int, k: int, bound: float, epsilon: float) -> float:
    """The Laplace scale [Wh] of each of the 2k-1 coefficients."""
    return math.sqrt(2 * k - 1) * math.sqrt(horizon) * bound / epsilon


def choose_k(mean: Floats, bound: float, epsilon: float) -> int:
    """The k of least expected squared error, from the public forecast [Wh] alone."""
    horizon = len(mean)

    def cost(k: int) -> float:
        basis = fourier_basis(horizon, k)
        missed = mean - basis.T @ (basis @ mean)
        noise = (2 * k - 1) * 2 * fourier_scale(horizon, k, bound, epsilon) ** 2
        return float(missed @ missed) + noise

    return min(range(1, min((horizon + 1) // 2, _MOST_K) + 1), key=cost)


def _prepare(setting: MethodSetting) -> Ready:
    epsilon = setting.promise.epsilon
    moments = [setting.public.moments.at(t) for t in range(1, setting.horizon + 1)]
    mean = np.array([np.mean([m.mean for m in each]) for each in moments])
    k = choose_k(mean, setting.largest, epsilon)
    basis = fourier_basis(setting.horizon, k)
    b = fourier_scale(setting.horizon, k, setting.largest, epsilon)
    released: Any = np.full(len(basis), b)
    return offline(
        setting,
        basis,
        released,
        basis.T,
        f"pure epsilon for a house's whole trajectory, whatever anyone consumes; k = {k} from the"
        " public forecast",
    )


FOURIER = Method("fourier", "Fourier, whole day first", False, 1.0, _prepare)
