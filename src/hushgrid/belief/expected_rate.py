"""The price of a load that is not known: the mean of a curved rate over what the load may be.

For a rate f with floor and cap E f(Z) = f(low) + the slopes of f, each times the mean load on its
piece, + the jumps of f, each times Pr[Z >= z] there. It rises with the load: a law that is shifted
upwards has no lower price. Forecasts are mixtures of normal laws, behind a release each is cut off
or tilted by the noise: all have a closed form at a vertex. An affine rate is that of the expected
load, cut to floor and cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.estimate import LoadMixture
from hushgrid.belief.followed import Knowledge
from hushgrid.belief.rate_interval import posterior_law
from hushgrid.model.curve import Curve
from hushgrid.model.zone import Tariff, public_rate


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
        The price, not smoothed [currency/kWh].
    """
    law = posterior_law(public, load_hat, scale, rates, public.width)
    if tariff.curve is None:
        return public_rate(law.mean, tariff)
    z, p = _vertices(tariff, tariff.curve)
    return _mean(z, p, law.excess(z), law.cdf)


def _vertices(tariff: Tariff, curve: Curve) -> tuple[Floats, Floats]:
    """Loads [Wh] and rates between which the rate is linear, with floor and cap."""
    loads, rates = curve.cut(tariff.floor, tariff.cap)
    return 1000 * loads - tariff.inelastic + tariff.offset, rates


def _of_mixture(law: LoadMixture, z: Floats, p: Floats) -> float:
    from scipy.special import ndtr

    w, m, s = law.weights.ravel() / law.weights.sum(), law.mean.ravel(), np.sqrt(law.variance)
    s, away = s.ravel(), (z[:, None] - m) / s.ravel()
    density = np.exp(-(away**2) / 2) / math.sqrt(2 * math.pi)
    excess = (s * (density - away * ndtr(-away))) @ w
    return _mean(z, p, excess, lambda loads: np.asarray(ndtr((loads[:, None] - m) / s) @ w))


def _mean(z: Floats, p: Floats, excess: Floats, below: Callable[[Floats], Floats]) -> float:
    """The mean rate, by E[(load - z)+] at vertices and Pr[load < z] at those that are jumps."""
    width, rise = np.diff(z), np.diff(p)
    wide, jumps = width > 0, np.flatnonzero((width == 0) & (rise > 0))
    rate = p[0] - rise[wide] / width[wide] @ np.diff(excess)[wide]
    if jumps.size:
        rate += float(rise[jumps] @ (1 - below(z[jumps])))
    return float(np.clip(rate, p[0], p[-1]))
