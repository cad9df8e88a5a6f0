"""How many of n houses alike are at home: moves of the count, and the load given the count."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from hushgrid.adversary.arrays import Array, log, log_sum
from hushgrid.adversary.blur import Blur, log_blurred
from hushgrid.adversary.normal import log_density

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]

DIRECT = 2e9  # multiplications up to which the sums' laws are convolved directly
_LOST = 1e-18  # of a characteristic function that is left out
_TRUSTED = 1e-7  # of the largest term: below it, rounding would show
_CHUNK = 2048  # frequencies looked at together


def moved_counts(law: Array, come: float, stay: float) -> Array:
    """The law of the count a step later, each row of `law` (..., n + 1) by itself.

    sum_m law_m U^m V^(n-m), U and V the generating functions of one house that was home or out:
    Horner's rule, positive terms only, O(n^2).
    """
    xp, n = array_namespace(law), law.shape[-1] - 1
    nil = xp.zeros_like(law[..., :1])
    found, power = law[..., n:], xp.ones_like(law[..., :1])
    for m in range(n - 1, -1, -1):
        power = _times(power, come, nil)
        found = _times(found, stay, nil) + law[..., m : m + 1] * power
    return found


def moved_counts_back(message: Array, come: float, stay: float) -> Array:
    """E[message(count a step later) given the count]: Horner's rule transposed."""
    xp, n = array_namespace(message), message.shape[-1] - 1
    nil = xp.zeros_like(message[..., :1])
    powers = [xp.ones_like(nil)]
    for _ in range(n):
        powers.append(_times(powers[-1], come, nil))
    found = []
    for m in range(n):
        found.append(xp.sum(powers[n - m] * message, axis=-1))
        message = (1 - stay) * message[..., :-1] + stay * message[..., 1:]
    return xp.stack([*found, message[..., 0]], axis=-1)


def _times(law: Array, chance: float, nil: Array) -> Array:
    """One more house, at home with this chance."""
    xp = array_namespace(law)
    return (1 - chance) * xp.concat([law, nil], axis=-1) + chance * xp.concat([nil, law], axis=-1)


def count_likelihood(own: Pair, other: Pair, n: int, z: int, blur: Blur) -> Floats:
    """(2, n + 1): log Pr[load_hat = z given the target's state and how many others are home]."""
    u = max(map(len, other))
    if n * (n * u) * u <= DIRECT:
        return _direct(own, other, n, z, blur)
    return _by_frequencies(own, other, n, z, blur)


def _direct(own: Pair, other: Pair, n: int, z: int, blur: Blur) -> Floats:
    """By convolution, exact in every tail."""
    home, out = [np.ones(1)], [np.ones(1)]
    for _ in range(n):
        home.append(np.convolve(home[-1], other[1]))
        out.append(np.convolve(out[-1], other[0]))
    found = np.empty((2, n + 1))
    for s, f in enumerate(own):
        for m in range(n + 1):
            rest = np.convolve(out[n - m], f)
            noisy = log_blurred(rest, z - np.arange(home[m].size), blur)
            found[s, m] = log_sum(log(home[m]) + noisy)
    return found


def _by_frequencies(own: Pair, other: Pair, n: int, z: int, blur: Blur) -> Floats:
    """By characteristic functions: relative error about 1e-9 near the load, 1e-7 at worst.

    Where a likelihood is too small for that, 1e-7 of its largest term, the normal law stands in.
    """
    top = n * (max(map(len, other)) - 1) + max(map(len, own)) - 1
    # one period holds all loads and z; what wraps around has e^-40 of the weight
    period = top + max(0, -z, z - top) + round(80 * blur.scale) + 2
    m = np.arange(n + 1)[:, None]
    sums, sizes = np.zeros((2, 2, n + 1))
    for k in _frequencies(other, n, blur, period):
        w = 2 * np.pi * k / period
        out, home, *mine = (_characteristic(f, w) for f in (*other, *own))
        many = np.exp(m * np.log(home) + (n - m) * np.log(out))
        # each frequency stands for its mirror image too, but for the first and the last
        share = np.where((k == 0) | (2 * k == period), 1.0, 2.0) / period * blur.characteristic(w)
        for s in (0, 1):
            term = many * (mine[s] * share * np.exp(-1j * w * z))
            sums[s] += term.real.sum(axis=1)
            sizes[s] += np.abs(term).sum(axis=1)
    usable = sums > _TRUSTED * sizes
    return np.where(usable, log(sums), _normal(own, other, n, z, blur))


def _frequencies(other: Pair, n: int, blur: Blur, period: int) -> list[NDArray[np.int64]]:
    """The k with a characteristic function at 2 pi k / period that counts, in chunks.

    They are sought on the whole circle: readings in steps of 100 Wh have echoes far out.
    """
    u = max(map(len, other))
    cells = 16 * u
    size = np.max([np.abs(np.fft.rfft(f, cells)) for f in other], axis=0)
    slack = u / 2 * np.pi / cells  # |phi| of a law within 0..u rises no faster than u/2
    centre = 2 * np.pi * np.arange(size.size) / cells
    least = np.maximum(centre - np.pi / cells, 0.0)
    bound = n * np.log(np.minimum(size + slack, 1.0)) + np.log(blur.characteristic(least))
    last = period // 2
    found = []
    for cell in np.flatnonzero(bound >= np.log(_LOST)):
        start, stop = ((cell + side) * period / cells for side in (-0.5, 0.5))
        found.append(np.arange(max(0, np.ceil(start)), min(last + 1, np.ceil(stop)), dtype=int))
    every = np.concatenate(found)
    return [every[i : i + _CHUNK] for i in range(0, every.size, _CHUNK)]


def _characteristic(f: Floats, w: Floats) -> NDArray[np.complex128]:
    """E[e^(iwX)], never quite 0: its logarithm is taken."""
    found = np.exp(1j * np.multiply.outer(w, np.arange(f.size))) @ f
    return np.where(np.abs(found) > 1e-300, found, 1e-300)


def _normal(own: Pair, other: Pair, n: int, z: int, blur: Blur) -> Floats:
    """The load given the count as a normal law."""
    (own_mean, own_variance), (mean, variance) = moments(own), moments(other)
    m = np.arange(n + 1)
    centre = own_mean[:, None] + m * mean[1] + (n - m) * mean[0]
    spread = own_variance[:, None] + m * variance[1] + (n - m) * variance[0]
    return np.asarray(log_density(z - centre, np.maximum(spread, 1 / 12), blur))


def moments(pair: Pair) -> tuple[Floats, Floats]:
    """Means [Wh] and variances [Wh^2] of absent and present."""
    means = [float(f @ np.arange(f.size)) for f in pair]
    spreads = [float(f @ (np.arange(f.size) - m) ** 2) for f, m in zip(pair, means, strict=True)]
    return np.array(means), np.array(spreads)
