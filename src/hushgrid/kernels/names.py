"""Names as bytes: name i of a buffer is `data[begin[i]:end[i]]`. Told apart, looked up, checked.

A table holds 1 + the place of a name, 0 where it is free; a name goes to the first free place from
its hash on. Its size is a power of two, at least twice the names. Senders choose names, so the hash
takes a secret `seed`: without it nobody can make many names that collide.
"""

import numpy as np
from numba import boolean, int32, int64, njit, types, uint8, uint64, void

_u1, _i8, _i4 = (types.Array(dtype, 1, "C", readonly=True) for dtype in (uint8, int64, int32))
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_SPACE, _LAST = 0x20, 0x7E  # what ASCII has of printable characters


@njit(uint64(_u1, int64, int64, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _hash(data, begin, end, seed):  # type: ignore[no-untyped-def]
    h, secret, k = seed ^ (np.uint64(end - begin) * _P2), seed | np.uint64(1), begin
    while k < end:
        word, width = np.uint64(0), min(end - k, 8)
        for j in range(width):
            word |= np.uint64(data[k + j]) << np.uint64(8 * j)
        h = (h ^ word) * _P1
        h = (h ^ (h >> np.uint64(32))) * secret
        h ^= h >> np.uint64(29)
        k += 8
    h *= _P2
    return h ^ (h >> np.uint64(32))


@njit(boolean(_u1, int64, int64, _u1, int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _same(data, begin, end, other, first, last):  # type: ignore[no-untyped-def]
    if end - begin != last - first:
        return False
    for k in range(end - begin):
        if data[begin + k] != other[first + k]:
            return False
    return True


@njit(
    int64(_u1, _i8, _i8, uint64, int32[::1], int32[::1], int32[::1]), cache=True, nogil=True
)  # pragma: no cover
def intern(data, begin, end, seed, table, code, first):  # type: ignore[no-untyped-def]
    """Number names in the order they first come: `code` of each, `first` row of each number.

    `table` is all zeros. Returns how many different names there are.
    """
    mask, many = np.uint64(table.size - 1), 0
    for i in range(begin.size):
        at = _hash(data, begin[i], end[i], seed) & mask
        while True:
            held = table[at] - 1
            if held < 0:
                table[at], first[many], code[i] = many + 1, i, many
                many += 1
                break
            row = first[held]
            if _same(data, begin[i], end[i], data, begin[row], end[row]):
                code[i] = held
                break
            at = (at + np.uint64(1)) & mask
    return many


@njit(void(_u1, _i8, _i8, _u1, _i8, _i8, uint64, _i4, int32[::1]), cache=True, nogil=True)  # pragma: no cover
def look_up(data, begin, end, known, known_begin, known_end, seed, table, place):  # type: ignore[no-untyped-def]
    """The place of each name among the `known` ones, -1 where it is not among them."""
    mask = np.uint64(table.size - 1)
    for i in range(begin.size):
        at = _hash(data, begin[i], end[i], seed) & mask
        place[i] = -1
        while table[at] > 0:
            held = table[at] - 1
            if _same(data, begin[i], end[i], known, known_begin[held], known_end[held]):
                place[i] = held
                break
            at = (at + np.uint64(1)) & mask


@njit(boolean(_u1, _i8, _i8, int64), cache=True, nogil=True)  # pragma: no cover
def all_plain(data, begin, end, longest):  # type: ignore[no-untyped-def]
    """Whether each is 1 to `longest` characters of printable ASCII, no space first or last."""
    for i in range(begin.size):
        length = end[i] - begin[i]
        if length < 1 or length > longest:
            return False
        if data[begin[i]] == _SPACE or data[end[i] - 1] == _SPACE:
            return False
        for k in range(begin[i], end[i]):
            if data[k] < _SPACE or data[k] > _LAST:
                return False
    return True
