"""Clamp and add ten million readings in one pass over memory."""

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

_CHUNK = 1 << 16


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
        # slices counted from 0: an index that could be negative keeps the loop from vectorising
        start, stop = part * _CHUNK, min(n, part * _CHUNK + _CHUNK)
        x, u = readings[start:stop], bound[start:stop]
        load, clamped, exported = np.int64(0), np.int64(0), np.int64(0)
        for i in range(x.size):
            clamped += np.int64(x[i] > u[i])
            exported += np.int64(x[i] < zero)
            load += np.int64(min(max(x[i], zero), u[i]))
        out[part, 0], out[part, 1], out[part, 2] = load, clamped, exported
    return out
