"""Integer Laplace noise: Pr[K = k] = (1-q)/(1+q) q^|k|, q = e^(-1/scale).

Two sources told apart by type. Only SecureNoise may protect real people; everything else marks
its releases as simulated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from hushgrid.checks import is_real
from hushgrid.errors import NoiseError
from hushgrid.policy import MAX_SCALE


class Noise(ABC):
    """A source of integer Laplace noise [Wh]. One draw a call, whatever the scale."""

    @abstractmethod
    def draw(self, scale: float) -> int:
        """One draw at `scale` [Wh]."""


@final
class SecureNoise(Noise):
    """OpenDP's exact integer sampler on the operating system's randomness; it has no seed."""

    def __init__(self) -> None:
        self._measurements: dict[float, Any] = {}

    def draw(self, scale: float) -> int:
        """One draw; its cost in privacy is what OpenDP's own map says."""
        return int(self._measurement(scale)(0))

    def loss(self, distance: int, scale: float) -> float:
        """OpenDP's certified loss for two loads `distance` [Wh] apart."""
        return float(self._measurement(scale).map(distance))

    def _measurement(self, scale: float) -> Any:
        check_scale(scale)
        if scale not in self._measurements:
            from opendp.domains import atom_domain
            from opendp.measurements import make_laplace
            from opendp.metrics import absolute_distance
            from opendp.mod import enable_features

            enable_features("contrib")
            if len(self._measurements) >= 1024:
                self._measurements.clear()
            self._measurements[scale] = make_laplace(
                atom_domain(T="i64"), absolute_distance(T="i64"), scale
            )
        return self._measurements[scale]


@final
class SimulatedNoise(Noise):
    """The same law from a seed, for simulations: equal seeds give equal quantiles at any scale.

    >>> SimulatedNoise(1).draw(1000.0), SimulatedNoise(1).draw(2000.0)
    (24, 48)
    """

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._uniforms = np.random.Generator(np.random.PCG64(seed))

    def draw(self, scale: float) -> int:
        """One draw, by inversion of one uniform number."""
        check_scale(scale)
        return quantile(float(self._uniforms.random()), scale)


def quantile(uniform: float, scale: float) -> int:
    """The integer Laplace quantile: |K| >= m has probability 2 q^m / (1 + q) for m >= 1."""
    below = uniform < 0.5
    tail = max(uniform if below else 1 - uniform, 2.0**-54)  # probability left beyond |K|
    size = math.floor(-scale * math.log(tail * (1 + math.exp(-1 / scale))))
    return -max(size, 0) if below else max(size, 0)


def pmf(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Pr[K = k] at `scale`."""
    check_scale(scale)
    return np.asarray(math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale))


def check_scale(scale: float) -> None:
    """Refuse a scale that would protect nobody."""
    if not (is_real(scale) and 0 < scale <= MAX_SCALE):
        raise NoiseError(f"noise scale is {scale}; give Wh above 0, at most {MAX_SCALE:g}.")
