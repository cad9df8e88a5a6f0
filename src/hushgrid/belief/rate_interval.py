"""How far the optimal rate may lie from a published one, from public knowledge alone.

The range of a load that holds it with the asked probability: given the noisy load by itself, where
that is what is published; given everything that is public, where the estimate is. A load is a
mixture of normal laws (one for each model and factor), so its law behind the noise has a closed
form; what a clamp cut off is added to it by quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.belief.estimate import (
    GAUSSIAN,
    LoadInterval,
    PublicKnowledge,
    ReleaseParts,
    chance_below,
)
from hushgrid.errors import PolicyError
from hushgrid.model.zone import Tariff, public_rate

LEVEL = 0.95
_NEGLIGIBLE = 1e-7  # weight of a law that is left out
_FAR = 12.0  # standard deviations from anything likely
_SURE = 1e-3  # [Wh]; stands for no noise at all
_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(15)
_SHARES = _SHARES / _SHARES.sum()


def given_all(
    public: PublicKnowledge,
    load_hat: float,
    scale: float,
    rates: Sequence[float] = (),
    level: float = LEVEL,
) -> LoadInterval:
    """The load of step t [Wh] given its release and all before it.

    >>> from hushgrid import Consumption, OccupancyModel, Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]],
    ...                                 chain_of=[0] * 100)
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)],
    ...                          class_of=[0] * 100)
    >>> found = given_all(PublicKnowledge.start([theta], f), 40_000, 1000.0)
    >>> [round(end) for end in found]
    [39528, 36759, 41698]
    """
    law, b = public.parts(rates), max(scale, _SURE)
    logs = public.shape.evidence(float(load_hat), law.mean, law.variance, b)
    with np.errstate(divide="ignore"):
        logs = np.log(law.weights) + logs
    raised = np.exp(logs - logs.max())
    weights = raised / raised.sum()
    keep = weights > _NEGLIGIBLE
    w = weights[keep] / weights[keep].sum()
    kept = ReleaseParts(*(column[keep] for column in law))
    gain, left = _above(kept)
    mean = public.shape.mean(load_hat, kept.mean, kept.variance, b)
    whole = mean + kept.cut + gain * (mean - kept.mean)
    noise = _variance(public, b)
    if public.shape is GAUSSIAN or noise < float(w @ left) ** 2:
        cdf = _normal(whole, kept, gain, left, noise)
    else:
        cdf = _joined(_laplace(float(load_hat), kept, b), kept, gain, left)
    reach = _FAR * (np.sqrt(kept.variance) * (1 + gain) + left)
    ends = [(1 + gain) * edge + kept.cut - gain * kept.mean for edge in (kept.mean, load_hat)]
    low, high = np.minimum(*ends) - reach, np.maximum(*ends) + reach
    span = float(low.min()), float(high.max())
    return _central(lambda z: float(w @ cdf(z)), *span, float(w @ whole), level)


Cdf = Callable[[float], Floats]  # Pr[load < z], for every law


def _variance(public: PublicKnowledge, scale: float) -> float:
    """Of the noise [Wh^2]."""
    return scale**2 if public.shape is GAUSSIAN else 2 * scale**2


def _normal(whole: Floats, law: ReleaseParts, gain: Floats, left: Floats, noise: float) -> Cdf:
    """Exact behind Gaussian noise; else for noise that is lost in what lies above the clamp."""
    from scipy.special import ndtr

    shown = 1 / (1 / law.variance + 1 / noise)
    spread = np.sqrt((1 + gain) ** 2 * shown + left**2)
    return lambda z: np.asarray(ndtr((z - whole) / spread))


def _joined(
    behind: Callable[[Floats], Floats], law: ReleaseParts, gain: Floats, left: Floats
) -> Cdf:
    """What a release shows, and above the clamp what goes with it: by quadrature over the rest."""
    shift = law.cut - gain * law.mean
    if not left.any():
        return lambda z: behind((z - shift) / (1 + gain))
    nodes = left * _NODES[:, None]
    return lambda z: np.asarray(_SHARES @ behind((z - shift - nodes) / (1 + gain)))


def _above(law: ReleaseParts) -> tuple[Floats, Floats]:
    """What lies above the clamp, given what lies below: its slope, and what is left open [Wh]."""
    gain = law.joint / law.variance
    return gain, np.sqrt(np.maximum(law.cut_variance - gain * law.joint, 0.0))


def _laplace(hat: float, law: ReleaseParts, b: float) -> Callable[[Floats], Floats]:
    """On either side of the noisy load a normal law, tilted by the noise and cut off there."""
    from scipy.special import log_ndtr

    m, v, s = law.mean, law.variance, np.sqrt(law.variance)
    tilt = v / b
    share = chance_below(np.asarray(hat), m, v, np.asarray(b))
    under, over = log_ndtr((hat - m - tilt) / s), log_ndtr((m - tilt - hat) / s)

    def below(z: Floats) -> Floats:
        low, high = np.minimum(z, hat), np.maximum(z, hat)
        first = share * np.exp(log_ndtr((low - m - tilt) / s) - under)
        return np.asarray(
            first + (1 - share) * (1 - np.exp(log_ndtr((m - tilt - high) / s) - over))
        )

    return below


def given_noisy(
    public: PublicKnowledge,
    load_hat: float,
    scale: float,
    rates: Sequence[float] = (),
    level: float = LEVEL,
) -> LoadInterval:
    """The load of step t [Wh] given the noisy load by itself, without a prior on what it shows.

    >>> from hushgrid import Consumption, OccupancyModel, Uniform
    >>> theta = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> f = Consumption.by_class(absent=[Uniform(500)], present=[Uniform(1000)])
    >>> [round(end, 1) for end in given_noisy(PublicKnowledge.start([theta], f), 700, 100.0)]
    [700.0, 400.4, 999.6]
    """
    from scipy.special import ndtr

    b, law = max(scale, _SURE), public.parts(rates)
    _check(level)
    cut = float((law.weights * law.cut).sum())
    spread = float((law.weights * (law.cut_variance + law.cut**2)).sum()) - cut**2
    spread, noise = math.sqrt(max(spread, 0.0)), _variance(public, b)

    def below(z: float) -> float:
        away = z - cut - load_hat
        if public.shape is GAUSSIAN or noise < spread**2:
            return float(ndtr(away / math.sqrt(noise + spread**2)))
        return float(_SHARES @ _two_sided((away - spread * _NODES) / b))

    if spread == 0 and public.shape is not GAUSSIAN:  # the usual case: nothing to search for
        half = -b * math.log(1 - level)
        return LoadInterval(float(load_hat), load_hat - half, load_hat + half)
    reach = 40 * b + _FAR * spread
    guess = float(load_hat) + cut
    return _central(below, guess - reach, guess + reach, guess, level)


def _two_sided(away: Floats) -> Floats:
    tail = np.exp(-np.abs(away)) / 2
    return np.where(away < 0, tail, 1 - tail)


def _central(
    below: Callable[[float], float], low: float, high: float, mean: float, level: float
) -> LoadInterval:
    from scipy.optimize import brentq

    _check(level)
    tail = max((1 - level) / 2, 1e-12)
    ends = [
        float(brentq(lambda z, p=p: below(z) - p, low, high, rtol=1e-9))  # type: ignore[no-untyped-call,unused-ignore]
        for p in (tail, 1 - tail)
    ]
    return LoadInterval(mean, ends[0], ends[1])


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise PolicyError(f"level is {level}; give a probability between 0 and 1.")


def rates_of(loads: LoadInterval, tariff: Tariff) -> tuple[float, float]:
    """The optimal rates of a range of loads [currency/kWh], cut to the tariff's floor and cap."""
    return public_rate(loads.low, tariff), public_rate(loads.high, tariff)
