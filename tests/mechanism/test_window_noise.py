"""The claims of docs/proofs/windows.md, by enumeration and by a semidefinite certificate."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from hushgrid.mechanism.noise import SimulatedNoise


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_midrange_of_a_block_has_the_noise_of_one_number(length: int) -> None:
    """All noise within 12: given the range, the midrange has a two-sided geometric law."""
    q, reach = 0.6, 12
    chances: dict[int, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for noise in itertools.product(range(-reach, reach + 1), repeat=length):
        high, low = max(noise), min(noise)
        chances[high - low][(high + low) / 2] += q ** max(high, -low)
    for width, law in chances.items():
        centre = min(law, key=abs)
        for midrange, chance in law.items():
            if abs(midrange) + width / 2 <= reach:  # else a part of its blocks is not in the list
                assert chance / law[centre] == pytest.approx(q ** (abs(midrange) - abs(centre)))


@pytest.mark.parametrize("length", [4, 96])
def test_noise_as_it_is_drawn_hides_a_level_no_more(length: int) -> None:
    """Variance 2 b^2 of the midrange; 8,000 blocks, so 5 % is more than three standard errors."""
    scale = 60.0
    noise = SimulatedNoise(7).blocks(scale, length, 8000)
    midrange = (noise.max(axis=1) + noise.min(axis=1)) / 2
    assert np.mean(midrange**2) == pytest.approx(2 * scale**2, rel=0.08)
    one_step = np.mean(noise.astype(np.float64) ** 2)
    due = (length + 1) * (length + 2) / 3 * scale**2
    assert one_step == pytest.approx(due, rel=0.08)


def independent_noise(precision: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The diagonal of least trace above a matrix, from unit vectors that attain the dual."""
    size = len(precision)
    vectors = rng.normal(size=(size, size + 1))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    hollow = precision - np.diag(np.diag(precision))
    for _ in range(3000):
        for t in range(size):
            pull = hollow[t] @ vectors
            vectors[t] = pull / np.linalg.norm(pull)
    diagonal: np.ndarray = np.diag(precision) + np.linalg.norm(hollow @ vectors, axis=1)
    return diagonal


@pytest.mark.parametrize("seed", range(6))
def test_independent_noise_costs_at_most_a_quarter_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    root = rng.normal(size=(size, int(rng.integers(1, size + 1))))
    precision = root @ root.T
    signs = np.array(list(itertools.product((-1, 1), repeat=size)))
    worst = float(np.einsum("kt,ts,ks->k", signs, precision, signs).max())
    diagonal = independent_noise(precision, rng)
    assert np.linalg.eigvalsh(np.diag(diagonal) - precision).min() >= -1e-4 * worst
    assert worst * (1 - 1e-9) <= diagonal.sum() <= math.pi / 2 * worst
