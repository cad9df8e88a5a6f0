"""Signed readings with noise, worked out plainly."""

from __future__ import annotations

import math
from itertools import product

Law = dict[int, float]  # net Wh to probability


def noise(k: int, scale: float) -> float:
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(k)


def added(laws: list[Law]) -> Law:
    """The law of a sum of net readings."""
    found: Law = {0: 1.0}
    for law in laws:
        more: Law = {}
        for (z, p), (x, f) in product(found.items(), law.items()):
            more[z + x] = more.get(z + x, 0.0) + p * f
        found = more
    return found


def contaminated(law: Law, at: int, eta: float) -> Law:
    mixed = {x: (1 - eta) * p for x, p in law.items()}
    return {**mixed, at: mixed.get(at, 0.0) + eta}
