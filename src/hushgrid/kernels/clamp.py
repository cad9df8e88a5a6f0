"""Clamp and add ten million readings in one pass over memory."""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from hushgrid.arrays import Int32s

_CHUNK = 1 << 16


def clamp_and_add(readings: NDArray[Any], bound: Int32s) -> tuple[int, int, int]:
    """(sum of readings cut to 0..bound, readings above it, least bound)."""
    sums, least = _clamp_and_add(readings, bound)
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
