"""The adversary by enumerating every path of joint states: plain Python, nothing of the package."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

Pmf = list[float]
State = tuple[int, ...]


def laplace(scale: float) -> Callable[[int], float]:
    q = math.exp(-1 / scale)
    return lambda k: (1 - q) / (1 + q) * q ** abs(k)


def gaussian(scale: float) -> Callable[[int], float]:
    whole = math.fsum(math.exp(-((k / scale) ** 2) / 2) for k in range(-3000, 3001))
    return lambda k: math.exp(-((k / scale) ** 2) / 2) / whole


def exactly(k: int) -> float:
    return 1.0 if k == 0 else 0.0


def add(f: Pmf, g: Pmf) -> Pmf:
    found = [0.0] * (len(f) + len(g) - 1)
    for (i, a), (j, b) in itertools.product(enumerate(f), enumerate(g)):
        found[i + j] += a * b
    return found


def cut(f: Pmf, at: int) -> Pmf:
    return f if len(f) <= at + 1 else [*f[:at], math.fsum(f[at:])]


def scaled(f: Pmf, factor: float, bound: int) -> Pmf:
    found = [0.0] * (bound + 1)
    for x, chance in enumerate(f):
        found[min(math.floor(x * factor + 0.5), bound)] += chance
    return found


@dataclass
class Found:
    """Pr[at home] (steps, houses) as known at each step and at the end; log Pr[releases]."""

    filtered: list[list[float]]
    smoothed: list[list[float]]
    evidence: list[float]


def enumerate_paths(
    initial: dict[State, float],
    moves: list[dict[tuple[State, State], float]],
    seen: list[dict[State, float]],
) -> Found:
    """`moves[t]` leads into step t + 2, `seen[t]` is Pr[release t + 1 given state] (1 in a gap)."""
    horizon, states = len(seen), list(initial)
    at = [dict.fromkeys(states, 0.0) for _ in range(horizon)]  # weight of paths that end there
    through = [dict.fromkeys(states, 0.0) for _ in range(horizon)]  # of whole paths through it

    def follow(t: int, state: State, weight: float) -> float:
        weight *= seen[t][state]
        at[t][state] += weight
        if t == horizon - 1:
            whole = weight
        else:
            whole = math.fsum(
                follow(t + 1, after, weight * moves[t][state, after]) for after in states
            )
        through[t][state] += whole
        return whole

    for state, chance in initial.items():
        follow(0, state, chance)
    return Found(
        [_home(weights) for weights in at],
        [_home(weights) for weights in through],
        [math.log(math.fsum(weights.values())) for weights in at],
    )


def _home(weights: dict[State, float]) -> list[float]:
    total = math.fsum(weights.values())
    houses = range(len(next(iter(weights))))
    return [math.fsum(w for s, w in weights.items() if s[i]) / total for i in houses]


def likelihoods(
    pairs: list[tuple[Pmf, Pmf]], z: int, noise: Callable[[int], float]
) -> dict[State, float]:
    """Pr[load_hat = z given state] for every joint state."""
    found = {}
    for state in itertools.product((0, 1), repeat=len(pairs)):
        total: Pmf = [1.0]
        for pair, s in zip(pairs, state, strict=True):
            total = add(total, pair[s])
        found[state] = math.fsum(p * noise(z - y) for y, p in enumerate(total))
    return found


def joint(blocks: list[tuple[int, ...]], rows: list[list[float]]) -> dict[State, float]:
    """The law of all houses from those of the blocks; a block's first house is its highest bit."""
    n = sum(map(len, blocks))
    found = {}
    for state in itertools.product((0, 1), repeat=n):
        found[state] = math.prod(
            row[int("".join(str(state[h]) for h in block), 2)]
            for block, row in zip(blocks, rows, strict=True)
        )
    return found


def joint_moves(
    blocks: list[tuple[int, ...]], tables: list[list[list[float]]]
) -> dict[tuple[State, State], float]:
    n = sum(map(len, blocks))
    found = {}
    for before in itertools.product((0, 1), repeat=n):
        rows = [
            table[int("".join(str(before[h]) for h in block), 2)]
            for block, table in zip(blocks, tables, strict=True)
        ]
        found |= {(before, after): p for after, p in joint(blocks, rows).items()}
    return found
