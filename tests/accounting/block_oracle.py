"""Noise that lasts a block of steps, worked out plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

Reading = Callable[[int, np.ndarray], np.ndarray]  # state, last output -> reading


def plain(state: int, last: np.ndarray) -> np.ndarray:
    return np.full(last.shape, state)


def truth(
    initial: Sequence[float],
    moves: Sequence[np.ndarray],
    lengths: Sequence[int],
    scale: float,
    reading: Reading = plain,
    bound: int = 1,
    secret: Callable[[int], int] = lambda s: s,
) -> list[float]:
    """The worst log-ratio about each step over all outputs, for readings 0..bound.

    Outputs from -bound - 1 to 2 bound + 1 have every order of distances that any output has.
    """
    horizon, states = sum(lengths), len(initial)
    steps = np.arange(-bound - 1, 2 * bound + 2)
    y = np.array(list(product(steps, repeat=horizon)))
    last = np.concatenate([np.zeros((len(y), 1), int), y[:, :-1]], axis=1)
    apart = np.array(
        [[np.abs(y[:, t] - reading(s, last[:, t])) for t in range(horizon)] for s in range(states)]
    )
    joint, weight = np.zeros((horizon, 2, len(y))), np.zeros((horizon, 2))
    ends = np.cumsum(lengths)
    for path in product(range(states), repeat=horizon):
        p = initial[path[0]]
        for t in range(1, horizon):
            p *= moves[t - 1][path[t - 1], path[t]]
        if p == 0:
            continue
        far = sum(
            np.max([apart[path[t], t] for t in range(end - n, end)], axis=0)
            for end, n in zip(ends, lengths, strict=True)
        )
        for t, s in enumerate(path):
            joint[t, secret(s)] += p * np.exp(-far / scale)
            weight[t, secret(s)] += p
    found = []
    for t in range(horizon):
        if not (weight[t] > 0).all():
            found.append(0.0)
            continue
        ratio = np.log(joint[t, 1] / weight[t, 1]) - np.log(joint[t, 0] / weight[t, 0])
        found.append(float(np.abs(ratio).max()))
    return found
