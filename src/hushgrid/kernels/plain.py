"""Columns of numbers and ids as they lie in an Arrow batch: checked where they are.

Nothing in them is trusted: offsets are checked before anything is read where they point.
"""

import numpy as np
from numba import boolean, int32, int64, njit, types, uint8

_u1, _i4, _i8 = (types.Array(dtype, 1, "C", readonly=True) for dtype in (uint8, int32, int64))
_SPACE, _LAST = 0x20, 0x7E  # what ASCII has of printable characters


@njit(
    [boolean(_i8, duration, _i8, int64, int64, int64) for duration in (_i4, _i8)],
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def all_within(start, duration, wh, end, longest, most):  # type: ignore[no-untyped-def]
    """Whether each start is in 0..end-1, each duration in 1..longest, each |Wh| at most `most`."""
    good = True
    for i in range(start.size):  # no branches: this loop is vectorised
        good &= (start[i] >= 0) & (start[i] < end)
        good &= (duration[i] >= 1) & (duration[i] <= longest)
        good &= (wh[i] >= -most) & (wh[i] <= most)
    return good


@njit(boolean(_i8, int64, int64[::1]), cache=True, nogil=True)  # pragma: no cover
def whole_seconds(ticks, unit, start):  # type: ignore[no-untyped-def]
    """Write ticks of 1/unit s as seconds; whether all are whole ones."""
    good, one = True, np.int64(0)
    for i in range(ticks.size):
        if i == 0 or ticks[i] != ticks[i - 1]:  # most are alike, and a division is slow
            one = ticks[i] // unit
            good &= one * unit == ticks[i]
        start[i] = one
    return good


@njit(
    [boolean(_u1, offsets, int64, int64[::1]) for offsets in (_i4, _i8)], cache=True, nogil=True
)  # pragma: no cover
def bounded_plain(data, offsets, longest, bounds):  # type: ignore[no-untyped-def]
    """Copy offsets; whether each text is 1 to `longest` plain characters inside the data.

    Text i is `data[offsets[i]:offsets[i + 1]]`; plain is printable ASCII, no space first or last.
    """
    n, good = offsets.size - 1, True
    for i in range(n):
        length = np.int64(offsets[i + 1]) - np.int64(offsets[i])
        good &= (length >= 1) & (length <= longest)
        bounds[i] = offsets[i]
    bounds[n] = offsets[n]
    if not good or bounds[0] < 0 or bounds[n] > data.size:
        return False
    texts = data[bounds[0] : bounds[n]]
    for k in range(texts.size):
        good &= (texts[k] >= _SPACE) & (texts[k] <= _LAST)
    for i in range(n):
        good &= (data[bounds[i]] != _SPACE) & (data[bounds[i + 1] - 1] != _SPACE)
    return good
