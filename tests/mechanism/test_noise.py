"""Both noises against the exact pmf."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid import SecureNoise, SimulatedNoise
from hushgrid.mechanism.noise import Noise, _reaching, gaussian_quantile, pmf, quantile
from hushgrid.testing import check_noise
from tests.examples import examples


@pytest.mark.parametrize("scale", [0.4, 7.5, 601.2191])
@pytest.mark.parametrize("source", [SecureNoise, lambda: SimulatedNoise(20)])
@pytest.mark.sampled
def test_noise_has_its_law(source: type[SecureNoise], scale: float) -> None:
    """Chi-square; a perfect source fails once in a million runs (SecureNoise has no seed)."""
    draws = examples(20_000 if scale > 100 else 40_000)
    check_noise(source(), draws=draws, scale=scale)


class _Rounded(Noise):
    """A continuous Laplace rounded to whole Wh: close, and wrong."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)

    def draw(self, scale: float) -> int:
        return round(float(self._rng.laplace(0, scale)))


def test_the_check_tells_a_wrong_law() -> None:
    with pytest.raises(AssertionError, match="chi-square"):
        check_noise(_Rounded(), scale=0.4)


def test_pmf_is_a_law() -> None:
    for scale in (0.1, 1.0, 30.0):
        assert pmf(np.arange(-3000, 3001), scale).sum() == pytest.approx(1, abs=1e-12)


def test_quantile_inverts_the_distribution() -> None:
    for scale in (0.3, 2.0, 50.0):
        k = np.arange(-2000, 2001)
        cdf = np.cumsum(pmf(k, scale))
        for r in np.linspace(0.0005, 0.9995, 1999):
            assert (
                quantile(float(r), scale) == pytest.approx(k[np.searchsorted(cdf, r)], abs=1e-9)
                or min(abs(cdf - r)) < 1e-9
            )


def test_equal_seeds_are_equal_quantiles_at_any_scale() -> None:
    small, large = SimulatedNoise(4), SimulatedNoise(4)
    ratios = [(small.draw(1e6), large.draw(2e6)) for _ in range(50)]
    assert all(b == pytest.approx(2 * a, abs=3) for a, b in ratios)


def test_secure_noise_books_what_opendp_certifies() -> None:
    assert SecureNoise().loss(1000, 2000.0) == pytest.approx(0.5, rel=1e-12)
    assert SecureNoise().loss(1000, 2000.0) >= 0.5


def test_gaussian_quantiles_have_their_law() -> None:
    """Each whole number is drawn by its own share of the uniform numbers."""
    k = np.arange(-300, 301)
    weight = np.exp(-(k**2) / (2 * 7.5**2))
    ends = np.cumsum(weight) / weight.sum()
    likely = np.flatnonzero(weight / weight.sum() > 1e-6)
    middles = [(ends[i - 1] + ends[i]) / 2 for i in likely]
    assert [gaussian_quantile(float(u), 7.5) for u in middles] == k[likely].tolist()


def test_gaussian_quantiles_agree_where_the_two_ways_meet() -> None:
    """Below 100 Wh a sum, above it a corrected integral."""
    scale = 100.0
    k = np.arange(-1000, 1001)
    weight = np.exp(-(k**2) / (2 * scale**2))
    reaching = np.cumsum(weight[::-1])[::-1] / weight.sum()
    assert [_reaching(int(i), scale) for i in k[1000:]] == pytest.approx(reaching[1000:], abs=1e-10)
    for r in np.linspace(0.0005, 0.9995, 999):
        assert gaussian_quantile(float(r), 99.999999) == pytest.approx(
            gaussian_quantile(float(r), 100.0), abs=1
        )
