"""Columns of numbers and ids as they lie in an Arrow batch: checked where they are, ids numbered.

Nothing in them is trusted: offsets are checked before anything is read where they point.
"""

import numpy as np
from numba import boolean, int32, int64, njit, types, uint8, uint64

_u1, _i4, _i8 = (types.Array(dtype, 1, "C", readonly=True) for dtype in (uint8, int32, int64))
_PLACE = (1 << 32) - 1
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
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


@njit(uint64(_u1, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _word(data, k):  # type: ignore[no-untyped-def]
    """Eight bytes; written out, they become one load."""
    return (
        np.uint64(data[k])
        | (np.uint64(data[k + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[k + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[k + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[k + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[k + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[k + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[k + np.uint64(7)]) << np.uint64(56))
    )


@njit(uint64(uint64, uint64, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _mixed(h, word, secret):  # type: ignore[no-untyped-def]
    h = (h ^ word) * _P1
    h = (h ^ (h >> np.uint64(32))) * secret
    return h ^ (h >> np.uint64(29))


@njit(
    uint64(_u1, uint64, uint64, uint64), cache=True, nogil=True, inline="always"
)  # pragma: no cover
def _hash(data, begin, end, seed):  # type: ignore[no-untyped-def]
    """By words of eight bytes, of which the last may overlap the one before it."""
    eight, secret = np.uint64(8), seed | np.uint64(1)
    h, k = seed ^ ((end - begin) * _P2), begin
    if end - begin < eight:
        word = np.uint64(0)
        while k < end:
            word = (word << eight) | np.uint64(data[k])
            k += np.uint64(1)
        h = _mixed(h, word, secret)
    else:
        while k + eight < end:
            h = _mixed(h, _word(data, k), secret)
            k += eight
        h = _mixed(h, _word(data, end - eight), secret)
    h *= _P2
    return h ^ (h >> np.uint64(32))


@njit(
    boolean(_u1, uint64, uint64, uint64, uint64), cache=True, nogil=True, inline="always"
)  # pragma: no cover
def _same(data, begin, end, first, last):  # type: ignore[no-untyped-def]
    """By words from the end, where most ids differ."""
    one, eight = np.uint64(1), np.uint64(8)
    if end - begin != last - first:
        return False
    while end - begin >= eight:
        end, last = end - eight, last - eight
        if _word(data, end) != _word(data, last):
            return False
    while end > begin:
        end, last = end - one, last - one
        if data[end] != data[last]:
            return False
    return True


@njit(
    [boolean(_u1, offsets, int64, int64[::1]) for offsets in (_i4, _i8)], cache=True, nogil=True
)  # pragma: no cover
def _bounded(data, offsets, longest, bounds):  # type: ignore[no-untyped-def]
    """Copy offsets; whether each text is 1 to `longest` plain characters inside the data."""
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


@njit(
    [
        int64(_u1, offsets, int64, uint64, int64[::1], int32[::1], int32[::1])
        for offsets in (_i4, _i8)
    ],
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def number_plain(data, offsets, longest, seed, bounds, table, code):  # type: ignore[no-untyped-def]
    """Number texts in the order they first come; -1 when one is not plain or outside the data.

    Text i is `data[offsets[i]:offsets[i + 1]]`; plain is 1 to `longest` characters of printable
    ASCII, no space first or last. `bounds` become the offsets. `table` is all zeros, its size a
    power of two of at least twice the texts; it comes to hold 1 + the row of each different text.
    It has no tags as tables of `names` have: small, it stays in the cache, and memory that need not
    be fresh is what counts here. Returns how many different texts there are.
    """
    if not _bounded(data, offsets, longest, bounds):
        return -1
    mask, many = np.uint64(table.size - 1), 0
    for i in range(code.size):  # a loop of its own: hashes do not wait for each other
        hashed = _hash(data, np.uint64(bounds[i]), np.uint64(bounds[i + 1]), seed)
        code[i] = np.int32(hashed & mask)
    for i in range(code.size):
        at, begin, end = np.uint64(code[i]), np.uint64(bounds[i]), np.uint64(bounds[i + 1])
        row = table[at]
        while row != 0 and not _same(
            data, begin, end, np.uint64(bounds[row - 1]), np.uint64(bounds[row])
        ):
            at = (at + np.uint64(1)) & mask
            row = table[at]
        if row == 0:
            table[at], code[i] = i + 1, many
            many += 1
        else:
            code[i] = code[row - 1]
    return many


@njit(types.void(types.Array(int32, 1, "C", readonly=True), int64[::1]), cache=True, nogil=True)
def first_rows(code, first):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The row where each number of `number_plain` first comes."""
    many = 0
    for i in range(code.size):
        if code[i] == many:
            first[many] = i
            many += 1
