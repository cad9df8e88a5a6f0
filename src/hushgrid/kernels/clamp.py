"""Clamp and add ten million readings in one pass over memory."""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

_CHUNK = 1 << 16
_BLOCK = 1 << 12  # within a block 32-bit counters cannot overflow and the loop vectorises


def clamp_and_add(readings: NDArray[Any], bound: NDArray[np.int32]) -> tuple[int, int, int]:
    """(sum of readings cut to 0..bound, readings above the bound, readings below 0)."""
    load, clamped, exported = _clamp_and_add(readings, bound).sum(axis=0).tolist()
    return load, clamped, exported


@njit(parallel=True, cache=True)  # pragma: no cover
def _clamp_and_add(readings, bound):  # type: ignore[no-untyped-def]
    n = readings.size
    parts = (n + _CHUNK - 1) // _CHUNK
    out = np.zeros((parts, 3), np.int64)
    zero = readings.dtype.type(0)
    for part in prange(parts):
        start, stop = part * _CHUNK, min(n, part * _CHUNK + _CHUNK)
        load, clamped, exported = np.int64(0), np.int64(0), np.int64(0)
        for low in range(start, stop, _BLOCK):
            above, below = np.int32(0), np.int32(0)
            for i in range(low, min(stop, low + _BLOCK)):
                x, u = readings[i], bound[i]
                above += np.int32(x > u)
                below += np.int32(x < zero)
                load += np.int64(min(max(x, zero), u))
            clamped += above
            exported += below
        out[part, 0], out[part, 1], out[part, 2] = load, clamped, exported
    return out
