"""How many of n houses alike are at home: moves of the count, and the load given the count."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from hushgrid.adversary.arrays import Array, log, log_sum
from hushgrid.adversary.blur import Blur, log_blurred
from hushgrid.adversary.frequencies import LawPair, by_frequencies
from hushgrid.arrays import Floats

DIRECT = 2e9  # multiplications up to which the sums' laws are convolved directly


def moved_counts(law: Array, come: float, stay: float) -> Array:
    """The law of the count a step later, each row of `law` (..., n + 1) by itself.

    sum_m law_m U^m V^(n-m), U and V the generating functions of one house that was home or out:
    Horner's rule, positive terms only, O(n^2).
    """
    xp, n = array_namespace(law), law.shape[-1] - 1
    come, stay = float(come), float(stay)  # numpy's own would make numpy arrays of everything
    nil = xp.zeros_like(law[..., :1])
    found, power = law[..., n:], xp.ones_like(law[..., :1])
    for m in range(n - 1, -1, -1):
        power = _times(power, come, nil)
        found = _times(found, stay, nil) + law[..., m : m + 1] * power
    return found


def moved_counts_back(message: Array, come: float, stay: float) -> Array:
    """E[message(count a step later) given the count]: Horner's rule transposed."""
    xp, n = array_namespace(message), message.shape[-1] - 1
    come, stay = float(come), float(stay)
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


def count_likelihood(own: LawPair, other: LawPair, n: int, z: int, blur: Blur) -> Floats:
    """(2, n + 1): log Pr[load_hat = z given the target's state and how many others are home]."""
    u = max(map(len, other))
    if n * (n * u) * u <= DIRECT:
        return _direct(own, other, n, z, blur)
    return by_frequencies(own, other, n, z, blur)


def _direct(own: LawPair, other: LawPair, n: int, z: int, blur: Blur) -> Floats:
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
