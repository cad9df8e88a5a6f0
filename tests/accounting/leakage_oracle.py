"""Literal test oracle: what all releases say about one house at one step, by summing everything.

Nothing here shares code with the package under test, and no bound of the theory is used. A world
is small enough to write down the joint law of all occupancies and all outputs.

Outputs are the noisy load cut to a window low..high, each end standing for its whole tail. With
the window 0..(sum of bounds) nothing is lost: beyond it every likelihood falls by the same power
of q whatever the load, so a tail and its end have the same likelihood ratios, and demand that
answers the cut output answers the same thing all along the tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bits = tuple[int, ...]  # one 0 or 1 per house, in house order


def joint_states(n_houses: int) -> list[Bits]:
    """All joint occupancies, the first house most significant."""
    return list(product((0, 1), repeat=n_houses))


@dataclass(frozen=True)
class World:
    """T steps of a zone. Tables with a row for each last output allow demand that answers it.

    `initial` (states,); `moves[t]` (states, states) leads from step t to step t + 1, counted from
    0; `loads[t]` (outputs, states, loads): the law of the load [Wh] after each last output, at
    step 0 any row; `scales[t]` (outputs,): the noise [Wh] after each last output.
    """

    n_houses: int
    initial: Floats
    moves: tuple[Floats, ...]
    loads: tuple[Floats, ...]
    scales: tuple[Floats, ...]
    low: int
    high: int

    @property
    def horizon(self) -> int:
        return len(self.loads)

    @property
    def outputs(self) -> range:
        return range(self.low, self.high + 1)

    def until(self, t: int) -> World:
        """Steps 1..t alone."""
        return replace(
            self, moves=self.moves[: t - 1], loads=self.loads[:t], scales=self.scales[:t]
        )

    def since(self, t: int) -> World:
        """Steps t..T alone, for somebody who saw nothing before; demand must not react."""
        now = self.initial
        for move in self.moves[: t - 1]:
            now = now @ move
        return replace(
            self,
            initial=now,
            moves=self.moves[t - 1 :],
            loads=self.loads[t - 1 :],
            scales=self.scales[t - 1 :],
        )


def noise_above(k: int, scale: float) -> float:
    """Pr[K >= k] of integer Laplace noise."""
    q = math.exp(-1 / scale)
    return q**k / (1 + q) if k >= 1 else 1 - q ** (1 - k) / (1 + q)


def output_law(load: int, scale: float, low: int, high: int) -> list[float]:
    """Law of load + K cut to low..high, for a load that may lie outside."""
    q = math.exp(-1 / scale)
    law = [(1 - q) / (1 + q) * q ** abs(k - load) for k in range(low, high + 1)]
    law[0] = noise_above(load - low, scale)  # K <= low - load, and K is symmetric
    law[-1] = noise_above(high - load, scale)
    return law


def release_law(loads: Floats, scales: Floats, low: int, high: int) -> Floats:
    """(last outputs, states, outputs): Pr[output given state and last output]."""
    sizes = range(loads.shape[2])
    noisy = [np.array([output_law(z, b, low, high) for z in sizes]) for b in scales.tolist()]
    return np.array([law @ table for law, table in zip(loads, noisy, strict=True)])


def log_ratios(world: World) -> Floats:
    """(T, houses, outputs, ..., outputs): log Pr[outputs | S_i^t = 1] - log Pr[outputs | 0].

    Sums over all occupancy paths and readings, forward to t and backward to t; 0 where the house
    is certain at t, for then there is nothing to tell apart.
    """
    n, horizon, states = len(world.outputs), world.horizon, len(world.initial)
    seen = [
        release_law(loads, scales, world.low, world.high)
        for loads, scales in zip(world.loads, world.scales, strict=True)
    ]
    before = [(world.initial[:, None] * seen[0][0]).T]  # [(outputs 1..t), state t]
    for t in range(1, horizon):
        arrived = (before[-1] @ world.moves[t - 1]).reshape(-1, n, 1, states)
        before.append((arrived * np.swapaxes(seen[t], 1, 2)).reshape(-1, states))
    after = [np.ones((n, 1, states))]  # [output t, (outputs t+1..T), state t]
    for t in range(horizon - 2, -1, -1):
        ahead = np.swapaxes(seen[t + 1], 1, 2)[:, :, None, :] * after[0]
        after.insert(0, ahead.reshape(n, -1, states) @ world.moves[t].T)
    found = np.zeros((horizon, world.n_houses, *[n] * horizon))
    for t in range(horizon):
        joint = before[t].reshape(-1, n, 1, states) * after[t]
        assert abs(joint.sum() - 1) < 1e-9
        for house in range(world.n_houses):
            found[t, house] = _told(joint, house, world.n_houses).reshape([n] * horizon)
    return found


def _told(joint: Floats, house: int, n_houses: int) -> Floats:
    home = np.array([state[house] == 1 for state in joint_states(n_houses)])
    sides = [joint[..., ~home].sum(axis=-1), joint[..., home].sum(axis=-1)]
    chances = [float(side.sum()) for side in sides]
    if min(chances) == 0:
        return np.zeros(sides[0].shape)
    return np.asarray(np.log(sides[1] / chances[1]) - np.log(sides[0] / chances[0]))


def true_leakage(world: World) -> Floats:
    """(T, houses): the worst |log-ratio| over all outputs."""
    found = np.abs(log_ratios(world))
    return np.asarray(found.reshape(world.horizon, world.n_houses, -1).max(axis=2))


def certain(world: World) -> npt.NDArray[np.bool_]:
    """(T, houses): whether a house is surely absent or surely present, before any output."""
    states = np.array(joint_states(world.n_houses))
    found = []
    for t in range(1, world.horizon + 1):
        possible = states[world.since(t).initial > 0]
        found.append((possible == possible[0]).all(axis=0))
    return np.array(found)


def leakage_by_paths(world: World) -> list[list[float]]:
    """The same by the definition, path by path and load by load: only for the smallest worlds."""
    states, steps = joint_states(world.n_houses), range(world.horizon)
    worst = [[0.0] * world.n_houses for _ in steps]
    paths = list(product(range(len(states)), repeat=world.horizon))
    chances = [_chance(world, path) for path in paths]
    for outputs in product(range(len(world.outputs)), repeat=world.horizon):
        likely = [_likelihood(world, path, outputs) for path in paths]
        for t, house in product(steps, range(world.n_houses)):
            total, weight = [0.0, 0.0], [0.0, 0.0]
            for path, chance, like in zip(paths, chances, likely, strict=True):
                side = states[path[t]][house]
                total[side] += chance * like
                weight[side] += chance
            if min(weight) > 0:
                told = math.log(total[1] / weight[1]) - math.log(total[0] / weight[0])
                worst[t][house] = max(worst[t][house], abs(told))
    return worst


def _chance(world: World, path: Sequence[int]) -> float:
    chance = float(world.initial[path[0]])
    for t in range(1, len(path)):
        chance *= float(world.moves[t - 1][path[t - 1], path[t]])
    return chance


def _likelihood(world: World, path: Sequence[int], outputs: Sequence[int]) -> float:
    likely = 1.0
    for t, (state, output) in enumerate(zip(path, outputs, strict=True)):
        last = outputs[t - 1] if t else 0
        b, law = float(world.scales[t][last]), world.loads[t][last, state].tolist()
        likely *= math.fsum(
            chance * output_law(load, b, world.low, world.high)[output]
            for load, chance in enumerate(law)
        )
    return likely


def loads_of(laws: Callable[[int, int, Bits], Sequence[float]], bounds: Sequence[int]) -> Floats:
    """(states, loads): the law of the load in each joint occupancy, over all readings.

    `laws(house, occupied, readings of the houses after it)` is the law of one reading; most
    worlds ignore the third argument, for their houses consume independently.
    """
    found = np.zeros((2 ** len(bounds), sum(bounds) + 1))
    for row, state in enumerate(joint_states(len(bounds))):
        for readings in product(*(range(u + 1) for u in bounds)):
            chance = 1.0
            for house, x in enumerate(readings):
                chance *= laws(house, state[house], readings[house + 1 :])[x]
                if chance == 0:
                    break
            found[row, sum(readings)] += chance
    return found


def joint_matrix(blocks: Sequence[Sequence[int]], matrices: Sequence[Floats]) -> Floats:
    """One matrix on joint states from those of independent blocks (first house leads)."""
    states = joint_states(sum(map(len, blocks)))
    numbers = [[_number(state, block) for block in blocks] for state in states]
    return np.array(
        [
            [
                math.prod(float(m[i, j]) for m, i, j in zip(matrices, a, b, strict=True))
                for b in numbers
            ]
            for a in numbers
        ]
    )


def joint_row(blocks: Sequence[Sequence[int]], rows: Sequence[Floats]) -> Floats:
    """One law on joint states from those of independent blocks."""
    return np.array(
        [
            math.prod(float(r[_number(s, block)]) for r, block in zip(rows, blocks, strict=True))
            for s in joint_states(sum(map(len, blocks)))
        ]
    )


def _number(state: Bits, block: Sequence[int]) -> int:
    return int("".join(str(state[house]) for house in block), 2)


def scaled_law(law: Sequence[float], factor: float, bound: int) -> list[float]:
    """Law of a reading times a factor, rounded half up and cut at the bound [Wh]."""
    found = [0.0] * (bound + 1)
    for x, chance in enumerate(law):
        found[min(math.floor(x * factor + 0.5), bound)] += chance
    return found
