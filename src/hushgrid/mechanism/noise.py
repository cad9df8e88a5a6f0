"""Integer noise: Laplace, Pr[K = k] = (1-q)/(1+q) q^|k|, q = e^(-1/scale); Gaussian; and one that
lasts a block of steps, Pr[n] ~ q^(max |n_t|).

The last one is drawn as a size M once a block, with weight (2M+1)^L q^M over L steps, and a number
from -M..M at each step (docs/proofs/blocks-of-steps.md). M is as secret as the loads of the block.

Two sources, distinguished by type. Only SecureNoise may protect real people; releases of any other
source are marked as simulated.
"""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np

from hushgrid._numbers import Floats, Ints, is_real
from hushgrid.errors import NoiseError, require
from hushgrid.mechanism.policy import MAX_SCALE


class Noise(ABC):
    """A source of integer noise [Wh]. One draw a call, at any scale."""

    @abstractmethod
    def draw(self, scale: float) -> int:
        """One draw of Laplace noise at `scale` [Wh]."""

    def draws(self, scale: float, count: int) -> Ints:
        """Many draws of Laplace noise at once, for audits and tests."""
        return np.array([self.draw(scale) for _ in range(count)], np.int64)

    def draw_size(self, scale: float, steps: int) -> int:
        """The size M of the noise of a block of so many steps; not every source has it."""
        raise NoiseError(
            f"{type(self).__name__} has no noise of scale {scale} for {steps} steps; use"
            " SecureNoise()."
        )

    def draw_within(self, size: int) -> int:  # noqa: ARG002
        """A whole number from -size to size, each equally likely; as `draw_size`."""
        raise NoiseError(f"{type(self).__name__} has no noise for blocks; use SecureNoise().")

    def blocks(self, scale: float, steps: int, count: int) -> Ints:
        """The noise of so many blocks, (count, steps), for audits and tests."""
        sizes = [self.draw_size(scale, steps) for _ in range(count)]
        noises = [[self.draw_within(size) for _ in range(steps)] for size in sizes]
        return np.array(noises, np.int64).reshape(count, steps)

    def in_block(self, terms: str, scale: float, span: tuple[int, int], t: int) -> int:
        """The noise of step t in a block of steps; its M is drawn at the first and kept here.

        Args:
            terms: Digest of the terms that the block belongs to.
            scale: Scale of the noise [Wh].
            span: First and last step of the block.
            t: The step.

        Returns:
            The noise [Wh].

        Raises:
            NoiseError: If the block began with another source: a second M in a block would lose
                more than the block may.
        """
        sizes = vars(self).setdefault("_sizes", dict[str, tuple[tuple[int, int], float, int]]())
        if t == span[0]:
            sizes[terms] = (span, scale, self.draw_size(scale, span[1] - span[0] + 1))
        if sizes.get(terms, ())[:2] != (span, scale):
            raise NoiseError(
                f"step {t} is in the block of steps {span[0]} to {span[1]}, whose noise began with"
                " another source; give the source of its first step."
            )
        return self.draw_within(sizes[terms][2])


@final
class SecureNoise(Noise):
    """OpenDP's exact integer sampler on the operating system's randomness; it has no seed.

    Raises:
        ExtraError: If OpenDP is not installed.
    """

    def __init__(self) -> None:
        require("opendp", "noise")
        self._measurements: dict[tuple[str, float], Any] = {}

    def draw(self, scale: float) -> int:
        """One draw; its privacy loss is that of OpenDP's own map."""
        return int(self._measurement("make_laplace", scale)(0))

    def draws(self, scale: float, count: int) -> Ints:
        """Many draws by one call of OpenDP's sampler."""
        from opendp import measurements
        from opendp.domains import atom_domain, vector_domain
        from opendp.metrics import l1_distance
        from opendp.mod import enable_features

        check_scale(scale)
        enable_features("contrib")
        sampler = measurements.make_laplace(
            vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale
        )
        return np.array(sampler([0] * count), np.int64)

    def draw_size(self, scale: float, steps: int) -> int:
        """M: a sum of L + 1 geometric numbers, kept with a probability that is a ratio of integers.

        The rejected numbers are independent of the one that is kept. What is left of the load's
        level, and of its steps: docs/proofs/windows.md.
        """
        check_block(scale, steps)
        while True:
            size = self._geometric_sum(scale, steps + 1)
            odds = math.prod(2 * size + 2 * j for j in range(1, steps + 1))
            if secrets.randbelow(odds) < (2 * size + 1) ** steps:
                return size

    def _geometric_sum(self, scale: float, count: int) -> int:
        """The sum of so many k >= 0 with Pr[k] ~ q^k: Laplace draws that are not negative."""
        numbers = list[int]()
        while len(numbers) < count:
            numbers += [k for k in self.draws(scale, 2 * count + 8).tolist() if k >= 0]
        return sum(numbers[:count])

    def draw_within(self, size: int) -> int:
        """By the operating system's randomness."""
        return secrets.randbelow(2 * size + 1) - size

    def loss(self, distance: int, scale: float) -> float:
        """OpenDP's certified loss for two loads `distance` [Wh] apart."""
        return float(self._measurement("make_laplace", scale).map(distance))

    def _measurement(self, kind: str, scale: float) -> Any:
        check_scale(scale)
        if (kind, scale) not in self._measurements:
            from opendp import measurements
            from opendp.domains import atom_domain
            from opendp.metrics import absolute_distance
            from opendp.mod import enable_features

            enable_features("contrib")
            if len(self._measurements) >= 1024:
                self._measurements.clear()
            self._measurements[kind, scale] = getattr(measurements, kind)(
                atom_domain(T="i64"), absolute_distance(T="i64"), scale
            )
        return self._measurements[kind, scale]


@final
class SimulatedNoise(Noise):
    """The same law from a seed, for simulations: equal seeds give equal quantiles at any scale.

    Args:
        seed: Seed of the generator.

    >>> SimulatedNoise(1).draw(1000.0), SimulatedNoise(1).draw(2000.0)
    (24, 48)
    """

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._uniforms = np.random.Generator(np.random.PCG64(seed))

    def draw(self, scale: float) -> int:
        """One draw, by inversion of one uniform number."""
        check_scale(scale)
        return quantile(float(self._uniforms.random()), scale)

    def draws(self, scale: float, count: int) -> Ints:
        """The next `count` draws, the same as one by one."""
        check_scale(scale)
        return quantiles(self._uniforms.random(count), scale)

    def draw_gaussian(self, scale: float) -> int:
        """One draw, by inversion of one uniform number."""
        check_scale(scale)
        return gaussian_quantile(float(self._uniforms.random()), scale)

    def draw_size(self, scale: float, steps: int) -> int:
        """M, by inversion of one uniform number."""
        check_block(scale, steps)
        return size_quantile(float(self._uniforms.random()), scale, steps)

    def blocks(self, scale: float, steps: int, count: int) -> Ints:
        """All sizes at first, then all steps, by inversion of uniform numbers."""
        check_block(scale, steps)
        size = _size_quantiles(self._uniforms.random((count, 1)), scale, steps)
        return np.floor(self._uniforms.random((count, steps)) * (2 * size + 1)).astype(int) - size

    def draw_within(self, size: int) -> int:
        """By inversion of one uniform number."""
        return math.floor(float(self._uniforms.random()) * (2 * size + 1)) - size


class Stepwise:
    """Simulated noise of a zone that depends on the step alone, so that a resumed run repeats it.

    Args:
        seed: Seed of the run.
        zone: Name of the zone.

    >>> noise = Stepwise(1, "elm-street")
    >>> noise(7).draw(1000.0) == Stepwise(1, "elm-street")(7).draw(1000.0)
    True
    """

    def __init__(self, seed: int, zone: str) -> None:
        self._key = (seed, *zone.encode())

    def __call__(self, t: int) -> SimulatedNoise:
        """The source of step t."""
        return SimulatedNoise(np.random.SeedSequence(self._key, spawn_key=(t,)))

    def of_block(self, first: int) -> SimulatedNoise:
        """The source of the size of a block of steps, by its first step."""
        return SimulatedNoise(np.random.SeedSequence(self._key, spawn_key=(first, 0)))


def quantile(uniform: float, scale: float) -> int:
    """The integer Laplace quantile: |K| >= m has probability 2 q^m / (1 + q) for m >= 1.

    Args:
        uniform: A number in [0, 1).
        scale: Scale of the noise [Wh].

    Returns:
        The noise [Wh].
    """
    below = uniform < 0.5
    tail = max(uniform if below else 1 - uniform, 2.0**-54)  # probability left beyond |K|
    size = math.floor(-scale * math.log(tail * (1 + math.exp(-1 / scale))))
    return -max(size, 0) if below else max(size, 0)


def quantiles(uniforms: Floats, scale: float) -> Ints:
    """`quantile` of many numbers at once.

    Args:
        uniforms: Numbers in [0, 1), (n,).
        scale: Scale of the noise [Wh].

    Returns:
        (n,) noise [Wh].

    >>> quantiles(np.array([0.1, 0.9]), 1000.0).tolist(), quantile(0.1, 1000.0)
    ([-1609, 1609], -1609)
    """
    below = uniforms < 0.5
    tail = np.maximum(np.where(below, uniforms, 1 - uniforms), 2.0**-54)
    size = np.floor(-scale * np.log(tail * (1 + math.exp(-1 / scale))))
    size = np.maximum(size, 0).astype(np.int64)
    return np.asarray(np.where(below, -size, size))


def gaussian_quantile(uniform: float, scale: float) -> int:
    """The integer Gaussian quantile: the smallest k with Pr[K <= k] >= uniform.

    Args:
        uniform: A number in [0, 1).
        scale: Standard deviation of the noise [Wh].

    Returns:
        The noise [Wh].
    """
    below = uniform < 0.5
    tail = max(uniform if below else 1 - uniform, 2.0**-54)
    size = _gaussian_size(tail, scale)
    return -size if below else size


def _gaussian_size(tail: float, scale: float) -> int:
    """The largest k >= 0 with Pr[K >= k] > tail; symmetric, so tail < 1/2 gives the magnitude."""
    if scale < _WIDE:
        magnitudes = np.arange(math.ceil(9.5 * scale) + 2)
        weight = np.exp(-(magnitudes**2) / (2 * scale**2))
        reaching = np.cumsum(weight[::-1])[::-1] / (2 * weight.sum() - 1)
        return max(int(np.searchsorted(-reaching, -tail)) - 1, 0)
    from scipy.special import ndtri

    k = math.floor(-scale * float(ndtri(tail)) + 0.5)
    while _reaching(k, scale) <= tail:
        k -= 1
    while _reaching(k + 1, scale) > tail:
        k += 1
    return max(k, 0)


_WIDE = 100.0  # [Wh] from here on the sum over whole numbers is a corrected integral


def size_quantile(uniform: float, scale: float, steps: int) -> int:
    """The quantile of a block's M: the smallest m with Pr[M <= m] > uniform.

    Args:
        uniform: A number in [0, 1).
        scale: Scale of the noise [Wh].
        steps: Steps of the block, L.

    Returns:
        The size M [Wh]. From 1000 Wh on M + 1/2 is taken for a gamma number of shape L + 1, whose
        chances differ by less than 1e-6 of themselves.
    """
    return int(_size_quantiles(np.array(uniform), scale, steps))


def _size_quantiles(uniform: Floats, scale: float, steps: int) -> Ints:
    from scipy.special import gammaincinv

    if scale >= 10 * _WIDE:
        return np.asarray(np.floor(scale * gammaincinv(steps + 1, uniform)), np.int64)
    m = np.arange(math.ceil(scale * (steps + 41 + 12 * math.sqrt(steps + 1))) + 2)
    weight = np.exp(
        steps * np.log((2 * m + 1) / (2 * steps * scale + 1)) - (m - steps * scale) / scale
    )
    return np.searchsorted(np.cumsum(weight) / weight.sum(), uniform, side="right")


def _reaching(k: int, scale: float) -> float:
    """Pr[K >= k], by the midpoint rule with its first correction: off by 1e-10 at most."""
    x = (k - 0.5) / scale
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return math.erfc(x / math.sqrt(2)) / 2 - x * density / (24 * scale**2)


def pmf(k: Ints, scale: float) -> Floats:
    """Pr[K = k] of integer Laplace noise.

    Args:
        k: Whole Wh, any shape.
        scale: Scale of the noise [Wh].

    Returns:
        Probabilities, in the shape of `k`.
    """
    check_scale(scale)
    return np.asarray(math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale))


def check_scale(scale: float) -> None:
    """Check a scale that noise is drawn at.

    Args:
        scale: The scale [Wh].

    Raises:
        NoiseError: If it is not above 0 and at most MAX_SCALE.
    """
    if not (is_real(scale) and 0 < scale <= MAX_SCALE):
        raise NoiseError(f"noise scale is {scale}; give Wh above 0, at most {MAX_SCALE:g}.")


def check_block(scale: float, steps: int) -> None:
    """Check the scale of noise that lasts a block of steps.

    Args:
        scale: The scale [Wh].
        steps: Steps of the block, 1 or more.

    Raises:
        NoiseError: If the scale is below a quarter of the steps: the law is then too coarse to be
            drawn from.
    """
    check_scale(scale)
    if scale < steps / 4:
        raise NoiseError(
            f"noise scale is {scale} for a block of {steps} steps; give {steps / 4:g} Wh or more,"
            " or shorter blocks."
        )
