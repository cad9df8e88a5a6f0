"""The price of a load that is not known: the mean of a curved rate over what the load may be.

For a rate f with floor and cap E f(Z) = f(low) + the integral of f'(z) Pr[Z >= z] + the jumps of f,
each times Pr[Z >= z] there. It rises with the load: a law that is shifted upwards has no lower
price. Forecasts are mixtures of normal laws, whose integrals have a closed form; behind a release
they are taken by quadrature. An affine rate is that of the expected load, cut to floor and cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.estimate import LoadMixture
from hushgrid.belief.followed import Knowledge
from hushgrid.belief.rate_interval import LoadLaw, posterior_law
from hushgrid.model.curve import Curve
from hushgrid.model.zone import Tariff, public_rate

ERROR = 1e-6  # of the quadrature, as a share of the range of a curve's prices
_NODES, _SHARES = np.polynomial.legendre.leggauss(7)  # an odd number: a step shows in halves
_FIRST, _HALVINGS = 4, 40


def mean_rates(laws: Sequence[LoadMixture], tariff: Tariff) -> list[float]:
    """The prices of loads that are foreseen, not smoothed.

    Args:
        laws: The law of each load.
        tariff: Coefficients and limits of the price.

    Returns:
        For each law the mean of a curve over it; without a curve the rate of its mean; both cut to
        floor and cap [currency/kWh].

    >>> law = LoadMixture(np.array([1.0]), np.array([100e3]), np.array([20e3**2]))
    >>> kink = Tariff(curve=Curve(points=[(0, 0.1), (100, 0.2), (200, 0.6)]))
    >>> public_rate(100e3, kink), round(mean_rates([law], kink)[0], 4)
    (0.2, 0.2239)
    """
    if tariff.curve is None:
        return [public_rate(float((law.weights * law.mean).sum()), tariff) for law in laws]
    z, p = _vertices(tariff, tariff.curve)
    return [_of_mixture(law, z, p) for law in laws]


def posterior_rate(
    public: Knowledge, load_hat: float, scale: float, tariff: Tariff, rates: Sequence[float] = ()
) -> float:
    """The price of step t of a tariff with a curve, given its release and all before it.

    The law of the load before the release is as wide as intervals of forecasts are, so what
    releases say about its width counts. For any noise it is a mean of what the load may be, which
    no larger noisy load makes smaller where it makes the load itself no less likely to be large.

    Args:
        public: Knowledge before the release.
        load_hat: Noisy load [Wh].
        scale: Scale of the noise [Wh]; 0 without noise.
        tariff: The tariff; one without a curve has the rate of its mean load.
        rates: Rates published before the step.

    Returns:
        The price, not smoothed [currency/kWh]; its error is at most `ERROR` of the range of the
        curve's prices.
    """
    law = posterior_law(public, load_hat, scale, rates, public.width)
    if tariff.curve is None:
        return public_rate(law.mean, tariff)
    return _of_law(law, *_vertices(tariff, tariff.curve))


def _vertices(tariff: Tariff, curve: Curve) -> tuple[Floats, Floats]:
    """Loads [Wh] and rates between which the rate is linear, with floor and cap."""
    loads, rates = curve.cut(tariff.floor, tariff.cap)
    return 1000 * loads - tariff.inelastic + tariff.offset, rates


def _of_mixture(law: LoadMixture, z: Floats, p: Floats) -> float:
    from scipy.special import ndtr

    w, s = law.weights.ravel() / law.weights.sum(), np.sqrt(law.variance.ravel())
    away = (z[:, None] - law.mean.ravel()) / s
    beyond = ndtr(-away)
    density = np.exp(-(away**2) / 2) / math.sqrt(2 * math.pi)
    excess = (s * (density - away * beyond)) @ w  # E[(Z - z)+]
    rate = p[0]
    for k, slope, rise in _pieces(z, p):
        rate += slope * (excess[k] - excess[k + 1]) if slope else rise * float(beyond[k] @ w)
    return float(np.clip(rate, p[0], p[-1]))


def _of_law(law: LoadLaw, z: Floats, p: Floats) -> float:
    rate = float(p[0])
    for k, slope, rise in _pieces(z, p):
        if not slope:
            rate += rise * (1 - law.below(float(z[k])))
            continue
        low, high = np.clip((law.low, law.high), z[k], z[k + 1]).tolist()
        rate += slope * (low - z[k] + _mean_beyond(law, low, high, ERROR * (z[k + 1] - z[k])))
    return float(np.clip(rate, p[0], p[-1]))


def _pieces(z: Floats, p: Floats) -> Iterator[tuple[int, float, float]]:
    """Pieces on which the rate rises: their number, slope (0 for a jump) and rise."""
    vertices = zip(z.tolist(), p.tolist(), strict=True)
    for k, ((low, first), (high, last)) in enumerate(pairwise(vertices)):
        if last > first:
            yield k, (last - first) / (high - low) if high > low else 0.0, last - first


def _mean_beyond(law: LoadLaw, low: float, high: float, tolerance: float) -> float:
    """The integral of Pr[load >= z] over low..high, within a tolerance.

    Gauss-Legendre on panels that are halved until both halves say what the whole did.
    """
    if high <= low:
        return 0.0
    edges = np.linspace(low, high, _FIRST + 1)
    ends = np.column_stack([edges[:-1], edges[1:]])
    sums, total = _panels(law, ends), 0.0
    for _ in range(_HALVINGS):
        edges = np.column_stack([ends[:, 0], ends.mean(axis=1), ends[:, 1]])
        halves = np.stack([edges[:, :2], edges[:, 1:]], axis=1)
        parts = _panels(law, halves.reshape(-1, 2)).reshape(-1, 2)
        rough = np.abs(parts.sum(axis=1) - sums) > tolerance / 8
        total += float(parts[~rough].sum())
        ends, sums = halves[rough].reshape(-1, 2), parts[rough].ravel()
        if not len(ends):
            return total
    return total + float(sums.sum())


def _panels(law: LoadLaw, ends: Floats) -> Floats:
    """The integral of Pr[load >= z] over each panel, by its nodes."""
    half = (ends[:, 1] - ends[:, 0]) / 2
    z = (ends.mean(axis=1)[:, None] + half[:, None] * _NODES).ravel()
    return np.asarray(half * ((1 - law.cdf(z)).reshape(-1, len(_NODES)) @ _SHARES))
