"""The noise of a release as the public knows it, and any law of whole Wh behind it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hushgrid.adversary.arrays import log, log_sum
from hushgrid.arrays import Floats, Ints
from hushgrid.schedules import NoiseName

DEEP = 600.0  # numbers that span more than e^600 are added up in logarithms
_FEW = 1 << 22  # numbers looked at together


class Blur(NamedTuple):
    """Integer noise: its shape, and its scale [Wh] (its standard deviation where Gaussian)."""

    shape: NoiseName
    scale: float

    def log_pmf(self, k: Ints) -> Floats:
        """log Pr[K = k]."""
        if self.shape == "laplace":
            return np.asarray(math.log(math.tanh(1 / (2 * self.scale))) - np.abs(k) / self.scale)
        if self.shape == "gaussian":
            return np.asarray(-((k / self.scale) ** 2) / 2 - math.log(self.weight))
        return np.where(k == 0, 0.0, -np.inf)

    @property
    def weight(self) -> float:
        """Sum of e^(-k^2 / (2 scale^2)) over whole k, by Poisson's formula where that is short."""
        if self.scale > 1:
            turns = np.exp(-2 * (math.pi * self.scale * np.arange(1, 4)) ** 2)
            return self.scale * math.sqrt(2 * math.pi) * (1 + 2 * float(turns.sum()))
        return 1 + 2 * float(np.exp(-((np.arange(1, 60) / self.scale) ** 2) / 2).sum())


def log_blurred(pmf: Floats, at: Ints, blur: Blur) -> Floats:
    """log of (pmf plus noise) at whole Wh `at`; `pmf` (..., L) gives (..., points).

    Only positive terms are added, so the tails are as exact as the middle.
    """
    if blur.shape == "laplace":
        return _laplace(log(pmf), at, blur)
    if blur.shape == "none":
        inside = (at >= 0) & (at < pmf.shape[-1])
        return np.where(inside, log(pmf)[..., np.where(inside, at, 0)], -np.inf)
    return _gaussian(pmf, at, blur)


def _laplace(log_f: Floats, at: Ints, blur: Blur) -> Floats:
    """Two first-order recursions over the law, then a geometric tail on either side."""
    b, top = blur.scale, log_f.shape[-1] - 1
    x = np.arange(top + 1) / b
    left = np.logaddexp.accumulate(log_f + x, axis=-1) - x
    right = np.logaddexp.accumulate((log_f - x)[..., ::-1], axis=-1)[..., ::-1] + x
    both = np.array(left)
    both[..., :-1] = np.logaddexp(left[..., :-1], right[..., 1:] - 1 / b)
    both[..., 0] = right[..., 0]
    beyond = np.maximum(np.maximum(-at, at - top), 0)
    constant = math.log(math.tanh(1 / (2 * b)))
    return np.asarray(both[..., np.clip(at, 0, top)] - beyond / b + constant)


def _gaussian(pmf: Floats, at: Ints, blur: Blur) -> Floats:
    """One sum a point: as products where no weight can underflow, else in logarithms."""
    x = np.arange(pmf.shape[-1])
    found = np.empty((*pmf.shape[:-1], at.size))
    least = int(at.min(initial=0)) - x[-1]
    noise = blur.log_pmf(np.arange(least, int(at.max(initial=0)) + 1))
    most, flat = float(noise.max()), float(np.ptp(noise)) <= DEEP
    noise, log_f = (np.exp(noise - most), None) if flat else (noise, log(pmf))
    some = max(1, _FEW // (x.size if flat else pmf.size))
    for start in range(0, at.size, some):
        weights = noise[at[start : start + some, None] - x - least]
        if log_f is None:
            sums = log(pmf @ weights.T) + most
        else:
            sums = log_sum(log_f[..., None, :] + weights, axis=-1)
        found[..., start : start + some] = sums
    return found
