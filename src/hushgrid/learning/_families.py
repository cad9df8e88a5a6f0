"""Families of laws that can be fitted from expected counts.

Three are exponential families in two features (v1, v2) of a value, so a fit needs only
(n, sum v1, sum v2): normal (x, x^2), log-normal (log y, log^2 y) and gamma (y, log y), with
y = x + 1/2 because a meter that reads 0 Wh has counted something below 1. The fourth is a histogram
in bins, the same with one feature for each bin.

A fit maximises likelihood times prior; the prior is `weight` readings spread like all readings of
the home, so that a rare state of a slot group keeps a law, and no law collapses.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints
from hushgrid.errors import ModelError

Family = Literal["gamma", "histogram", "lognormal", "normal"]
FAMILIES = get_args(Family)

HALF = 0.5  # [Wh] added before a logarithm
LEAST_SPREAD = 0.05  # of log-normal and normal (there: of the home's own spread)
MOST_SHAPE = 400.0  # of gamma: the same relative spread
_BINS = 48


class Values(NamedTuple):
    """The distinct readings of each home, padded to the same number.

    The log-likelihood of a value is v0 + natural . (1, v1, v2).

    Attributes:
        features: (homes, values, 3) features (v0, v1, v2).
        size: (homes,) numbers of values.
        centre: (homes,) shift of x of a normal law [Wh].
        unit: (homes,) divisor of x of a normal law [Wh].
        bins: (homes, values) bin of each value; (1, 1) without a histogram.
        edges: (homes, bins + 1) borders of bins [Wh]; (1, 1) without a histogram.
        prior: (homes, features) one reading spread like all of the home's.
    """

    features: Floats
    size: Ints
    centre: Floats
    unit: Floats
    bins: Int32s
    edges: Floats
    prior: Floats


def values_of(
    family: Family, distinct: Floats, size: Ints, weight: Floats, edges: Floats | None = None
) -> Values:
    """Features of distinct readings.

    Args:
        family: Family of laws.
        distinct: (homes, values) distinct readings [Wh].
        size: (homes,) numbers of values.
        weight: (homes, values) counts of each value.
        edges: (homes, bins + 1) borders of a histogram's bins from an earlier fit, or None.

    Returns:
        The features.

    Raises:
        ModelError: The family is unknown.
    """
    if family not in FAMILIES:
        raise ModelError(f"law is {family!r}; give one of {', '.join(FAMILIES)}.")
    total = np.maximum(weight.sum(axis=1), 1.0)
    centre, unit = np.zeros(len(distinct)), np.ones(len(distinct))
    features = np.zeros((*distinct.shape, 3))
    if family == "histogram":
        edges = _edges(distinct, size) if edges is None else edges
        bins = _bins(distinct, edges)
        width = np.take_along_axis(np.diff(edges, axis=1), bins.astype(np.intp), axis=1)
        features[..., 0] = -np.log(width)
        weights = [np.bincount(b, w, edges.shape[1] - 1) for b, w in zip(bins, weight, strict=True)]
        smooth = np.stack(weights).astype(np.float64) + 0.5
        prior = np.asarray(smooth / smooth.sum(axis=1, keepdims=True), np.float64)
        return Values(features, size, centre, unit, bins, edges, prior)
    if family == "normal":
        centre = (weight * distinct).sum(axis=1) / total
        spread = np.sqrt((weight * (distinct - centre[:, None]) ** 2).sum(axis=1) / total)
        unit = np.where(spread > 0, spread, 1.0)
        x = (distinct - centre[:, None]) / unit[:, None]
        features[..., 0] = -np.log(unit)[:, None]
        features[..., 1], features[..., 2] = x, x**2
    else:
        y = np.maximum(distinct, 0) + HALF
        log = np.log(y)
        # the density of y; of its logarithm it would be without this term
        features[..., 0] = -log
        first, second = (log, log**2) if family == "lognormal" else (y, log)
        features[..., 1], features[..., 2] = first, second
    # added up one by one: a home's sums must not hang on how far others are padded, not by a bit
    prior = np.cumsum(weight[..., None] * features, axis=1)[:, -1] / total[:, None]
    prior[:, 0] = 1.0
    return Values(features, size, centre, unit, np.zeros((1, 1), np.int32), np.zeros((1, 1)), prior)


def _edges(distinct: Floats, size: Ints) -> Floats:
    """Borders of bins of whole Wh with logarithmic widths; each home has its own top."""
    top = np.array([row[:n].max() for row, n in zip(distinct, size, strict=True)])
    share = np.linspace(0, 1, _BINS + 1)
    edges = np.floor(np.expm1(np.log1p(np.maximum(top, 1.0) + 1)[:, None] * share))
    for b in range(1, _BINS + 1):  # at least one Wh each
        edges[:, b] = np.maximum(edges[:, b], edges[:, b - 1] + 1)
    return np.asarray(edges, np.float64)


def common_edges(readings: Floats, offset: int = 0) -> Floats:
    """Borders of bins that hold all readings of all homes.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        offset: What is in every reading [Wh]: bins are narrow about it, on either side.

    Returns:
        (bins + 1,) borders [Wh].
    """
    finite = readings[np.isfinite(readings)]
    top = np.array([[(finite.max() if finite.size else 1.0) - offset]])
    above = np.asarray(_edges(np.maximum(top, 1.0) if offset else top, np.ones(1, np.int64))[0])
    if not offset:
        return above
    share = np.linspace(0, 1, _BINS // 2 + 1)[1:]
    below = np.unique(np.ceil(np.expm1(np.log1p(offset) * share) - 1e-6))
    return np.concatenate([offset - below[::-1], offset + above])


def _bins(distinct: Floats, edges: Floats) -> Int32s:
    bins = [np.searchsorted(e, x, side="right") - 1 for e, x in zip(edges, distinct, strict=True)]
    return np.asarray(np.clip(np.stack(bins), 0, edges.shape[1] - 2), np.int32)


def natural_of(family: Family, sums: Floats) -> Floats:
    """Natural parameters of the law of greatest likelihood.

    Args:
        family: Family of laws.
        sums: (..., 3) sums (n, sum v1, sum v2), or (..., bins) counts.

    Returns:
        Parameters in the shape of `sums`.
    """
    if family == "histogram":
        n = np.maximum(sums.sum(axis=-1, keepdims=True), 1e-300)
        return np.asarray(np.log(np.maximum(sums, 1e-300) / n))
    n = np.maximum(sums[..., 0], 1e-12)
    first, second = sums[..., 1] / n, sums[..., 2] / n
    natural = np.empty_like(sums)
    if family == "gamma":
        shape, scale = _gamma(first, second)
        natural[..., 0] = -_log_gamma(shape) - shape * np.log(scale)
        natural[..., 1], natural[..., 2] = -1 / scale, shape
        return natural
    variance = np.maximum(second - first**2, LEAST_SPREAD**2)
    natural[..., 0] = -0.5 * (first**2 / variance + np.log(2 * np.pi * variance))
    natural[..., 1], natural[..., 2] = first / variance, -0.5 / variance
    return natural


def _gamma(mean: Floats, mean_log: Floats) -> tuple[Floats, Floats]:
    """Shape and scale of greatest likelihood: log k - psi(k) = log mean - mean log, by Newton."""
    from scipy import special

    psi, zeta = special.psi, cast("Any", special.zeta)

    mean = np.maximum(mean, HALF)  # of y, so below only where nothing was seen
    gap = np.maximum(np.log(mean) - mean_log, 1e-9)
    k = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(6):  # Minka's generalised Newton: digits double, five would do
        step = (np.log(k) - psi(k) - gap) / (k**2 * (1 / k - zeta(2, k)))
        k = 1 / np.maximum(1 / k + step, 1e-9)
    k = np.clip(k, 1e-3, MOST_SHAPE)
    return k, mean / k


def _log_gamma(shape: Floats) -> Floats:
    from scipy.special import gammaln

    return np.asarray(gammaln(shape))


def parameters_of(family: Family, natural: Floats, values: Values) -> Floats:
    """Parameters in the law's own terms.

    Args:
        family: Family of laws.
        natural: (homes, ..., features) natural parameters.
        values: Features with centre and unit of each home.

    Returns:
        (homes, ..., 2) centre, spread; median, spread; or shape, scale. (homes, ..., bins) weights.
    """
    if family == "histogram":
        return np.exp(natural)
    parameters = np.empty((*natural.shape[:-1], 2))
    if family == "gamma":
        parameters[..., 0], parameters[..., 1] = natural[..., 2], -1 / natural[..., 1]
        return parameters
    variance = -0.5 / natural[..., 2]
    mean, spread = natural[..., 1] * variance, np.sqrt(variance)
    if family == "lognormal":
        parameters[..., 0], parameters[..., 1] = np.exp(mean), spread
        return parameters
    expand = (slice(None), *(None,) * (mean.ndim - 1))
    parameters[..., 0] = values.centre[expand] + values.unit[expand] * mean
    parameters[..., 1] = values.unit[expand] * spread
    return parameters
