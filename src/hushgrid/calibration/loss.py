"""The loss of one house at a noise scale, and its inverse (proofs: docs/proofs/calibration.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

from numpy.typing import ArrayLike

from hushgrid.arrays import Floats
from hushgrid.checks import float_array, is_real, is_whole
from hushgrid.errors import ConsumptionError, NoiseError, PolicyError, ZoneError
from hushgrid.policy import MAX_SCALE, MIN_SCALE

_DEEP = 680.0  # bound/scale beyond which e^(-bound/scale) nears the smallest float
_LONGEST = 20_000_000  # [Wh]; laws are arrays over 0..bound
_ULP = 2.0**-53
_WIDTH = 1e-12  # relative width at which the search for a scale stops


def worst_loss(
    absent: ArrayLike, present: ArrayLike, *, bound: int, scale: float, eta: float
) -> float:
    """Largest |log p_1/p_0| over all outputs and all worlds within eta of the model.

    `absent`, `present`: pmfs on 0..bound [Wh]; `scale` [Wh] of the integer Laplace noise.
    Rounded up by more than its floating-point error, but never above bound/scale.

    >>> f0, f1 = [.5, .3, .1, .05, .05], [.1, .1, .2, .3, .3]
    >>> round(worst_loss(f0, f1, bound=4, scale=2.0, eta=0.05), 9)
    0.911493379
    """
    check_terms(bound, eta)
    f0, f1 = _pmf(absent, bound, "absent"), _pmf(present, bound, "present")
    check_scale(scale)
    return loss_of_pmfs(f0, f1, bound, scale, eta)


def smallest_scale(
    absent: ArrayLike,
    present: ArrayLike,
    *,
    bound: int,
    epsilon: float,
    eta: float,
    floor: float = MIN_SCALE,
) -> float:
    """Smallest scale b [Wh], not below `floor`, with worst_loss <= epsilon; rounded up.

    >>> f0, f1 = [.5, .3, .1, .05, .05], [.1, .1, .2, .3, .3]
    >>> round(smallest_scale(f0, f1, bound=4, epsilon=0.5, eta=0.2), 9)
    4.450520787
    """
    check_terms(bound, eta)
    f0, f1 = _pmf(absent, bound, "absent"), _pmf(present, bound, "present")
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    check_scale(floor)
    return invert(lambda b: loss_of_pmfs(f0, f1, bound, b, eta), bound, epsilon, floor)


def loss_of_pmfs(f0: Floats, f1: Floats, bound: int, scale: float, eta: float) -> float:
    """worst_loss on arrays known to be good; pmfs may stop short of the bound."""
    blind = bound / scale  # what holds whatever anyone consumes
    if eta == 1:
        return blind
    if eta == 0:  # the bound plays no part beyond the laws' own reach
        bound = max(f0.size, f1.size) - 1
    if bound > _LONGEST:
        raise PolicyError(
            f"bound is {bound} Wh and eta {eta:g}; above {_LONGEST} Wh a step only eta = 1 is"
            " worked out: give eta = 1 or a smaller bound."
        )
    from hushgrid.kernels.loss import log_pmf, worst_log_ratio, worst_ratio

    if bound / scale <= _DEEP:
        loss = math.log(worst_ratio(f0, f1, bound, math.exp(-1 / scale), eta))
        slack = 16 * (bound + 4) * _ULP
    else:
        loss = worst_log_ratio(log_pmf(f0), log_pmf(f1), bound, 1 / scale, eta)
        slack = 16 * (bound + 4) * _ULP * (1 + blind)
    return float(min(loss + slack, blind))


def blind_scale(reach: float, epsilon: float) -> float:
    """reach / epsilon, rounded so that reach / scale does not exceed epsilon."""
    if not reach <= MAX_SCALE * epsilon:
        raise PolicyError(
            f"epsilon is {epsilon:g}, which takes noise above {MAX_SCALE:g} Wh for a reach of"
            f" {reach} Wh; give a larger epsilon."
        )
    b = reach / epsilon
    while reach / b > epsilon:
        b = math.nextafter(b, math.inf)
    return b


def invert(loss: Callable[[float], float], bound: float, epsilon: float, floor: float) -> float:
    """Smallest b >= floor with loss(b) <= epsilon, for a loss that never rises and is <= bound/b.

    Chandrupatla's bracketing search on the logarithms; returns the end that was seen to hold.
    """
    high = blind_scale(bound, epsilon)
    if high <= floor:
        return floor
    low = floor
    while high > 4 * floor:  # noise is rarely far below its blind value: close in from above
        if loss(high / 4) > epsilon:
            low = high / 4
            break
        high /= 4
    if low == floor and loss(floor) <= epsilon:
        return floor
    return _close_in(lambda b: math.log(loss(b) / epsilon), low, high)


def _close_in(gap: Callable[[float], float], low: float, high: float) -> float:
    """Chandrupatla (1997): gap(low) > 0 >= gap(high), never rising; x is log b."""
    a, b = math.log(high), math.log(low)  # b is the newest end, a the other, c the one before
    fa, fb = gap(high), gap(low)
    known = high
    c, fc, share = a, fa, 0.5
    while True:
        x = a + share * (b - a)
        fx = gap(math.exp(x))
        if fx <= 0:
            known = min(known, math.exp(x))
        if (fx > 0) == (fa > 0):
            c, fc = a, fa
        else:
            c, fc, b, fb = b, fb, a, fa
        a, fa = x, fx
        width = abs(b - a)
        if width <= _WIDTH:
            return known
        share = 0.5
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb) if fc != fb else math.inf
        if phi * phi < xi and (1 - phi) ** 2 < 1 - xi:
            share = fa / (fb - fa) * fc / (fb - fc)
            share += (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        edge = 0.5 * _WIDTH / width
        share = min(max(share, edge), 1 - edge)


def _pmf(values: ArrayLike, bound: int, name: str) -> Floats:
    f = float_array(values, name, ConsumptionError)
    if f.ndim != 1 or f.size != bound + 1:
        raise ConsumptionError(
            f"{name} has shape {f.shape} but the bound is {bound};"
            " give one probability for each Wh from 0 to the bound."
        )
    if not (f >= 0).all() or not abs(f.sum() - 1) <= 1e-9:
        raise ConsumptionError(
            f"{name} sums to {f.sum():g}; give probabilities of 0 or more that sum to 1."
        )
    return f


def check_terms(bound: int, eta: float) -> None:
    """Refuse a bound or a trust that means nothing."""
    if not is_whole(bound) or isinstance(bound, float) or bound < 1:
        raise ZoneError(f"bound is {bound}; give whole Wh, 1 or more.")
    if not (is_real(eta) and 0 <= eta <= 1):
        raise PolicyError(f"eta is {eta}; give a share from 0 to 1.")


def check_scale(scale: float) -> None:
    """Refuse a scale that would protect nobody."""
    if not (is_real(scale) and scale > 0):
        raise NoiseError(f"scale is {scale}; give a positive number of Wh.")
