"""Loops over many readings: clamp and sum, simulation.

The random numbers of the simulation are hashed counters (SplitMix64): number i of a stream is a
function of the stream's key and i alone, so results do not depend on threads, and two runs can
share them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange, set_num_threads
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Int32s

_CHUNK = 1 << 16


def _on_threads(parts: int, run: Callable[..., Any], *arguments: Any) -> Any:
    """Run a loop of so many parts on no more threads than parts: idle ones would be waited for."""
    before = get_num_threads()
    if parts >= before:
        return run(*arguments)
    set_num_threads(max(parts, 1))
    try:
        return run(*arguments)
    finally:
        set_num_threads(before)


def clamp_and_add(readings: NDArray[Any], bound: Int32s) -> tuple[int, int, int]:
    """(sum of readings cut to 0..bound, readings above it, least bound)."""
    sums, least = _on_threads(-(-readings.size // _CHUNK), _clamp_and_add, readings, bound)
    load, clamped = sums.sum(axis=0).tolist()
    return load, clamped, int(least.min())


@njit(parallel=True, cache=True)  # pragma: no cover
def _clamp_and_add(readings, bound):  # type: ignore[no-untyped-def]
    n = readings.size
    parts = (n + _CHUNK - 1) // _CHUNK
    out, least = np.zeros((parts, 2), np.int64), np.empty(parts, np.int32)
    zero = readings.dtype.type(0)
    for part in prange(parts):
        # slices counted from 0: an index that could be negative keeps the loop from vectorising
        start, stop = part * _CHUNK, min(n, part * _CHUNK + _CHUNK)
        x, u = readings[start:stop], bound[start:stop]
        load, clamped, low = np.int64(0), np.int64(0), u[0]
        for i in range(x.size):
            clamped += np.int64(x[i] > u[i])
            low = min(low, u[i])
            load += np.int64(min(max(x[i], zero), u[i]))
        out[part, 0], out[part, 1] = load, clamped
        least[part] = low
    return out, least


_MASK = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_WORLD_CHUNK = 1 << 14


def stream_key(*parts: int) -> np.uint64:
    """The key of a random stream named by whole numbers."""
    z = 0
    for part in parts:
        z = (z ^ (part & _MASK)) + int(_GOLDEN) & _MASK
        z = (z ^ z >> 30) * int(_MIX1) & _MASK
        z = (z ^ z >> 27) * int(_MIX2) & _MASK
        z ^= z >> 31
    return np.uint64(z)


@njit(inline="always")  # pragma: no cover
def _uniform(key, i):  # type: ignore[no-untyped-def]
    z = key + np.uint64(i + 1) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


def uniforms(key: np.uint64, n: int) -> Floats:
    """The first n numbers of a stream, in plain numpy."""
    with np.errstate(over="ignore"):
        z = key + np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        z = z ^ (z >> np.uint64(31))
    return np.asarray((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def move(state: Any, chain_of: Any, cumulative: Any, members: Any, *arguments: Any) -> None:
    """As `_move`, on as many threads as pay."""
    parts = -(-len(members) // _WORLD_CHUNK)
    _on_threads(parts, _move, state, chain_of, cumulative, members, *arguments)


def consume(occupancy: Any, *arguments: Any) -> int:
    """As `_consume`, on as many threads as pay."""
    return int(_on_threads(-(-occupancy.size // _WORLD_CHUNK), _consume, occupancy, *arguments))


@njit(parallel=True, cache=True)  # pragma: no cover
def _move(state, chain_of, cumulative, members, key, occupancy):  # type: ignore[no-untyped-def]
    """Each block draws its next state from row `state` of its chain; houses take their bits.

    `cumulative` is (chains, states, states), or (chains, 1, states) for the first step.
    """
    n, size = members.shape
    last = cumulative.shape[2] - 1
    first = cumulative.shape[1] == 1
    for part in prange((n + _WORLD_CHUNK - 1) // _WORLD_CHUNK):
        for b in range(part * _WORLD_CHUNK, min(n, part * _WORLD_CHUNK + _WORLD_CHUNK)):
            r = _uniform(key, b)
            row = cumulative[chain_of[b], 0 if first else state[b]]
            s = 0
            while s < last and r >= row[s]:
                s += 1
            state[b] = s
            for j in range(size):
                occupancy[members[b, j]] = s >> (size - 1 - j) & 1


@njit(parallel=True, cache=True)  # pragma: no cover
def _consume(  # type: ignore[no-untyped-def]
    occupancy, class_of, laws, top, offset, cut, alias, factor, bound, key, readings
):
    """Each house draws a reading from the law of its class and occupancy; returns houses at home.

    `laws` is (2, classes): law numbers of absent and present. A law without a table (offset -1)
    is uniform on 0..top; the others are alias tables in `cut` and `alias`.
    """
    n = occupancy.size
    home = 0
    for part in prange((n + _WORLD_CHUNK - 1) // _WORLD_CHUNK):
        n_present = 0
        for i in range(part * _WORLD_CHUNK, min(n, part * _WORLD_CHUNK + _WORLD_CHUNK)):
            n_present += occupancy[i]
            law = laws[occupancy[i], class_of[i]]
            r = _uniform(key, i) * (top[law] + 1)
            x = np.int64(r)
            start = offset[law]
            if start >= 0 and r - x >= cut[start + x]:
                x = np.int64(alias[start + x])
            if factor != 1.0:
                x = min(np.int64(np.floor(x * factor + 0.5)), np.int64(bound[i]))
            readings[i] = x
        home += n_present
    return home


@njit(cache=True)  # pragma: no cover
def alias_table(pmf):  # type: ignore[no-untyped-def]
    """Vose's alias table: cell j keeps j with probability cut[j], else gives other[j]."""
    n = pmf.size
    cut, alias = pmf * n, np.arange(n).astype(np.int32)
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    s, g = 0, 0
    for j in range(n):
        if cut[j] < 1.0:
            small[s] = j
            s += 1
        else:
            large[g] = j
            g += 1
    while s > 0 and g > 0:
        s -= 1
        low, high = small[s], large[g - 1]
        alias[low] = high
        cut[high] -= 1.0 - cut[low]
        if cut[high] < 1.0:
            g -= 1
            small[s] = high
            s += 1
    while s > 0:  # left over by rounding
        s -= 1
        cut[small[s]] = 1.0
    while g > 0:
        g -= 1
        cut[large[g]] = 1.0
    return cut, alias
