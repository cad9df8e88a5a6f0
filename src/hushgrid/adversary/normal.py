"""Density of a normal law plus a release's noise, in logarithms and far into the tails.

The array API has no error function, so log erfcx is a Chebyshev series here: with t = 2/(2 + x),
log erfcx(x) - log t is smooth for t in 0..1 (coefficients computed in 40 digits; off by 1e-15).
"""

from __future__ import annotations

import math

from array_api_compat import array_namespace

from hushgrid.adversary.arrays import Array
from hushgrid.adversary.blur import Blur

_SERIES = (
    -0.65132685989085472, 0.64196979235649026, 0.019476473204185836, -0.0095615147868086316,
    -0.00094659534448203687, 0.00036683949785276145, 4.2523324806907772e-5,
    -2.0278578112534243e-5, -1.6242900046470255e-6, 1.3036558355805232e-6, 1.5626441722066143e-8,
    -8.5238095914926543e-8, 6.5290544390988515e-9, 5.0593434955514689e-9, -9.9136415649303309e-10,
    -2.2736512229318359e-10, 9.6467911020155268e-11, 2.3940380830391147e-12,
    -6.8860275264975534e-12, 8.9448792730907257e-13, 3.1309213993429581e-13,
    -1.1270822361367252e-13, 3.8109052551892321e-16, 7.1060976136092369e-15,
    -1.5230282014571041e-15, -9.4574945712912545e-17, 1.210237189224273e-16,
)  # fmt: skip


def log_erfcx(x: Array) -> Array:
    """log of e^(x^2) erfc(x) for x >= 0."""
    xp = array_namespace(x)
    t = 2 / (2 + x)
    u = 4 * t - 2
    ahead, now = 0.0 * x, 0.0 * x
    for coefficient in _SERIES[:0:-1]:  # Clenshaw
        ahead, now = now, u * now - ahead + coefficient
    return xp.log(t) + u / 2 * now - ahead + _SERIES[0]


def log_density(distance: Array, variance: Array, blur: Blur) -> Array:
    """log density of a centred normal law of this variance > 0, plus noise, at a distance [Wh]."""
    xp = array_namespace(distance, variance)
    if blur.shape == "laplace":
        return _with_laplace(distance, variance, blur.scale)
    total = variance + blur.scale**2
    return -(distance**2) / (2 * total) - xp.log(2 * math.pi * total) / 2


def _with_laplace(d: Array, v: Array, b: float) -> Array:
    """The noise was above 0 or below it; each side is a normal law tilted by v/b and cut."""
    xp = array_namespace(d, v)
    s, flat = xp.sqrt(v), -(d**2) / (2 * v)
    above = _side((v / b - d) / s, flat, v / (2 * b * b) - d / b)
    below = _side((v / b + d) / s, flat, v / (2 * b * b) + d / b)
    return xp.logaddexp(above, below) - math.log(2 * b)


def _side(x: Array, flat: Array, slope: Array) -> Array:
    """`slope` + log Phi(-x), where slope = flat + x^2/2: from whichever does not cancel."""
    xp = array_namespace(x)
    size = xp.abs(x)
    tail = log_erfcx(size / math.sqrt(2)) - math.log(2)  # log of e^(x^2/2) Phi(-|x|)
    return xp.where(x >= 0, flat + tail, slope + xp.log1p(-xp.exp(tail - size**2 / 2)))
