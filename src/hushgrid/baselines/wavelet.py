"""Wavelet perturbation, Privelet (Xiao, Wang, Gehrke 2010): noise on Haar coefficients of a day.

A coefficient is (mean left - mean right)/2 of its subtree, weighted by the subtree's size; the base
is the mean of all, weighted by their number. Weighted, a house's day moves them by the sum over
subtrees of |sum left - sum right| plus |sum of all|: its maximum over days of +-u is found exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.baselines.method import Method, MethodSetting, Ready
from hushgrid.baselines.offline import offline
from hushgrid.checks import is_whole
from hushgrid.errors import PolicyError


class Haar(NamedTuple):
    """Coefficients = forward @ day, day = inverse @ coefficients; weights of the coefficients."""

    forward: Floats
    inverse: Floats
    weight: Floats


def haar(horizon: int) -> Haar:
    """The transform of a day padded with zeros to a power of two; empty subtrees are left out.

    >>> h = haar(96)
    >>> bool(np.allclose(h.inverse @ h.forward, np.eye(96)))
    True
    """
    _check(horizon)
    m = _padded(horizon)
    rows, signs, sizes = [np.full(m, 1 / m)], [np.ones(m)], [m]
    size = m
    while size > 1:
        for start in range(0, horizon, size):  # later subtrees hold nothing but padding
            sign = np.zeros(m)
            sign[start : start + size // 2] = 1.0
            sign[start + size // 2 : start + size] = -1.0
            rows.append(sign / size)
            signs.append(sign)
            sizes.append(size)
        size //= 2
    forward, inverse = np.array(rows)[:, :horizon], np.array(signs).T[:horizon]
    return Haar(forward, inverse, np.array(sizes, np.float64))


def wavelet_sensitivity(horizon: int) -> int:
    """How far a day of +-1 can move the weighted coefficients, exactly: 220 for T = 96.

    >>> wavelet_sensitivity(96), wavelet_sensitivity(128)
    (220, 280)
    """
    _check(horizon)
    best = _subtree(0, _padded(horizon), horizon)
    return max(value + abs(total) for total, value in best.items())


def _subtree(start: int, size: int, horizon: int) -> dict[int, int]:
    """For each sum of a subtree's leaves, the most its coefficients can add up to."""
    if start >= horizon:
        return {0: 0}
    if size == 1:
        return {-1: 0, 1: 0}
    half = size // 2
    left = _subtree(start, half, horizon)
    right = left if start + size <= horizon else _subtree(start + half, half, horizon)
    out: dict[int, int] = {}
    for s, x in left.items():
        for r, y in right.items():
            value = x + y + abs(s - r)
            if value > out.get(s + r, -1):
                out[s + r] = value
    return out


def _padded(horizon: int) -> int:
    return 1 << max(horizon - 1, 0).bit_length()


def _check(horizon: int) -> None:
    if not is_whole(horizon) or not 1 <= horizon <= 4096:
        raise PolicyError(f"horizon is {horizon}; give 1 to 4096 steps for a wavelet.")


def _prepare(setting: MethodSetting) -> Ready:
    transform = haar(setting.horizon)
    total = wavelet_sensitivity(setting.horizon) * setting.largest / setting.promise.epsilon
    return offline(
        setting,
        transform.forward,
        total / transform.weight,
        transform.inverse,
        "pure epsilon for a house's whole trajectory, whatever anyone consumes",
    )


WAVELET = Method("wavelet", "wavelet, whole day first", False, 1.0, _prepare)
