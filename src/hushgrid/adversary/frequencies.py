"""The load of n houses alike, given how many are home, by characteristic functions.

A characteristic function is exact to 1e-15 of the largest probability. To be as exact in a tail,
all laws are tilted by e^(sx) first, with s where the tilted load is likely to be z (the saddle
point): Pr[z] = e^(-sz) M(s) Pr_s[z].
"""

from __future__ import annotations

import math

import numpy as np

from hushgrid.adversary.arrays import log
from hushgrid.adversary.blur import Blur
from hushgrid.adversary.normal import log_density
from hushgrid.arrays import Bools, Complexes, Floats, Ints

LawPair = tuple[Floats, Floats]

_LOST = math.log(1e-18)  # of a characteristic function: what is left out
_TRUSTED = 1e-7  # of the largest term: below it, rounding would show
_ENOUGH = 40.0  # nats below the likeliest count: what is left there is of no account
_ROUNDS = 16
_CHUNK = 2048  # frequencies looked at together


def by_frequencies(own: LawPair, other: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """(2, n + 1): log Pr[load_hat = z given the target's state and how many others are home].

    Relative error below 1e-7 for every count within e^-40 of the likeliest; the rest are normal.
    """
    found = normal(own, other, n, z, blur)
    left, s = np.ones((2, n + 1), bool), 0.0
    for _ in range(_ROUNDS):
        counts = np.flatnonzero(left.any(axis=0))
        logs, usable = _tilted(own, other, n, z, blur, s, counts)
        usable &= left[:, counts]
        found[:, counts] = np.where(usable, logs, found[:, counts])
        left[:, counts] &= ~usable
        worth = np.where(left, found, -np.inf)
        if worth.max() < found.max() - _ENOUGH:
            break
        state, m = divmod(int(worth.argmax()), n + 1)
        s = _saddle([(own[state], 1), (other[1], m), (other[0], n - m)], z, blur)
    return found


def _tilted(
    own: LawPair, other: LawPair, n: int, z: int, blur: Blur, s: float, counts: Ints
) -> tuple[Floats, Bools]:
    """log likelihoods (2, counts) from laws tilted by s, and where they can be trusted."""
    (mine, mine_mass), (theirs, mass) = (_tilt(pair, s) for pair in (own, other))
    period = _period((mine, theirs), n, z, blur, s, counts)
    m = counts[:, None]
    sums, sizes = np.zeros((2, 2, counts.size))
    for k in _frequencies(theirs, n, blur, s, period):
        w = 2 * np.pi * k / period
        each = [_characteristic(f, w) for f in theirs]
        mine_at = each if own is other else [_characteristic(f, w) for f in mine]
        many = np.exp(m * np.log(each[1]) + (n - m) * np.log(each[0]))
        # each frequency stands for its mirror image too, but for the first and the last
        share = np.where((k == 0) | (2 * k == period), 1.0, 2.0) / period * noise_at(blur, s, w)
        for state in (0, 1):
            term = many * (mine_at[state] * share * np.exp(-1j * w * z))
            sums[state] += term.real.sum(axis=1)
            sizes[state] += np.abs(term).sum(axis=1)
    masses = mine_mass[:, None] + counts * mass[1] + (n - counts) * mass[0]
    return log(sums) + masses - s * z, sums > _TRUSTED * sizes


def _period(
    pairs: tuple[LawPair, LawPair], n: int, z: int, blur: Blur, s: float, counts: Ints
) -> int:
    """Whole Wh that hold z and all but e^-40 of every count's load, so that nothing wraps around.

    Bernstein: a sum of readings within 0..u is x = 9 sigma + 27 u from its mean with at most
    e^-40, for x^2 / (2 sigma^2 + 2 u x / 3) > 40.
    """
    mine, theirs = pairs
    top = n * (max(map(len, theirs)) - 1) + max(map(len, mine)) - 1
    (mean, variance), (own_mean, own_variance) = moments(theirs), moments(mine)
    means = counts * mean[1] + (n - counts) * mean[0]
    sigma = math.sqrt(n * variance.max() + own_variance.max())
    beyond = 9 * sigma + 27 * max(map(len, (*mine, *theirs)))
    low = max(0.0, float(means.min() + own_mean.min()) - beyond)
    high = min(float(top), float(means.max() + own_mean.max()) + beyond)
    return math.ceil(high - low + max(0, low - z, z - high) + _margin(blur, s)) + 2


def _tilt(pair: LawPair, s: float) -> tuple[LawPair, Floats]:
    """Both laws times e^(sx), normalised, and the logarithms of their masses."""
    tilted, masses = [], []
    for f in pair:
        x = np.arange(f.size)
        most = max(s * (f.size - 1), 0.0)
        raised = f * np.exp(s * x - most)
        tilted.append(raised / raised.sum())
        masses.append(math.log(raised.sum()) + most)
    return (tilted[0], tilted[1]), np.array(masses)


def noise_at(blur: Blur, s: float, w: Floats) -> Complexes:
    """E[e^((s + iw) K)] of the noise; |s| below 1/scale where it is Laplace."""
    if blur.shape == "laplace":
        q, e = math.exp(-1 / blur.scale), np.exp(s + 1j * w)
        return np.asarray((1 - q) ** 2 / ((1 - q * e) * (1 - q / e)), np.complex128)
    if blur.shape == "gaussian":
        turns = 2j * math.pi * np.arange(-2, 3)[:, None]
        each = np.exp((blur.scale * (s + 1j * w + turns)) ** 2 / 2).sum(axis=0)
        return np.asarray(each * blur.scale * math.sqrt(2 * math.pi) / blur.weight, np.complex128)
    return np.ones(w.shape, np.complex128)


def _margin(blur: Blur, s: float) -> float:
    """Wh that hold all but e^-40 of tilted noise, on both sides together."""
    if blur.shape == "laplace":
        return 40 / (1 / blur.scale - s) + 40 / (1 / blur.scale + s)
    return 18 * blur.scale + 2 * abs(s) * blur.scale**2


def _saddle(parts: list[tuple[Floats, int]], z: int, blur: Blur) -> float:
    """The tilt under which the mean of all laws plus noise is z, by bisection."""
    most = (1 - 1e-9) / blur.scale if blur.shape == "laplace" else 40.0
    low, high = -most, most
    for _ in range(60):
        s = (low + high) / 2
        mean = _noise_mean(blur, s)
        for f, count in parts:
            (tilted, _), _ = _tilt((f, f), s)
            mean += count * float(tilted @ np.arange(f.size))
        low, high = (s, high) if mean < z else (low, s)
    return (low + high) / 2


def _noise_mean(blur: Blur, s: float) -> float:
    if blur.shape == "laplace":
        up, down = math.expm1(1 / blur.scale - s), math.expm1(1 / blur.scale + s)
        return 1 / up - 1 / down
    return s * blur.scale**2


def _frequencies(other: LawPair, n: int, blur: Blur, s: float, period: int) -> list[Ints]:
    """The k with a characteristic function at 2 pi k / period that counts, in chunks.

    They are sought on the whole circle: readings in steps of 100 Wh have echoes far out.
    """
    u = max(map(len, other))
    cells = 64 * u
    size = np.max([np.abs(np.fft.rfft(f, cells)) for f in other], axis=0)
    slack = u / 2 * np.pi / cells  # |phi| of a law within 0..u rises no faster than u/2
    least = np.maximum(2 * np.pi * np.arange(size.size) / cells - np.pi / cells, 0.0)
    bound = n * np.log(np.minimum(size + slack, 1.0))
    bound += log(np.abs(noise_at(blur, s, least))) - log(np.abs(noise_at(blur, s, least[:1])))
    last, found = period // 2, [np.zeros(0, np.int64)]
    for cell in np.flatnonzero(bound >= _LOST):
        start, stop = ((cell + side) * period / cells for side in (-0.5, 0.5))
        found.append(np.arange(max(0, math.ceil(start)), min(last + 1, math.ceil(stop))))
    every = np.concatenate(found)
    return [every[i : i + _CHUNK] for i in range(0, every.size, _CHUNK)]


def _characteristic(f: Floats, w: Floats) -> Complexes:
    """E[e^(iwX)], never quite 0: its logarithm is taken."""
    found = np.exp(1j * np.multiply.outer(w, np.arange(f.size))) @ f
    return np.where(np.abs(found) > 1e-300, found, 1e-300)


def normal(own: LawPair, other: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """The load given the count as a normal law."""
    (own_mean, own_variance), (mean, variance) = moments(own), moments(other)
    m = np.arange(n + 1)
    centre = own_mean[:, None] + m * mean[1] + (n - m) * mean[0]
    spread = own_variance[:, None] + m * variance[1] + (n - m) * variance[0]
    return np.asarray(log_density(z - centre, np.maximum(spread, 1 / 12), blur))


def moments(pair: LawPair) -> tuple[Floats, Floats]:
    """Means [Wh] and variances [Wh^2] of absent and present."""
    means = [float(f @ np.arange(f.size)) for f in pair]
    spreads = [float(f @ (np.arange(f.size) - m) ** 2) for f, m in zip(pair, means, strict=True)]
    return np.array(means), np.array(spreads)
