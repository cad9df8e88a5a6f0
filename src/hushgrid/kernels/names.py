"""Names as bytes: name i of a buffer is `data[begin[i]:end[i]]`. Told apart, looked up, checked.

A table holds 1 + the place of a name with a tag of 31 bits of its hash above it, 0 where it is
free; a name goes to the first free place from its hash on. Its size is a power of two, at least
twice the names. Senders choose names, so the hash takes a secret `seed`: without it nobody can make
many names that collide.
"""

import numpy as np
from numba import boolean, int32, int64, njit, types, uint8, uint64, void

from hushgrid.kernels.words import tail, word

_u1, _u8, _i8, _i4 = (
    types.Array(dtype, 1, "C", readonly=True) for dtype in (uint8, uint64, int64, int32)
)
_PLACE = (1 << 32) - 1
_P1, _P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
_SPACE, _LAST = 0x20, 0x7E  # what ASCII has of printable characters


@njit(uint64(int64, int64, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _hash(begin, end, seed):  # type: ignore[no-untyped-def]
    h, secret, k = seed ^ (np.uint64(end - begin) * _P2), seed | np.uint64(1), begin
    while k < end:
        w = word(k) if k + 8 <= end else tail(end, end - begin)
        h = (h ^ w) * _P1
        h = (h ^ (h >> np.uint64(32))) * secret
        h ^= h >> np.uint64(29)
        k += 8
    h *= _P2
    return h ^ (h >> np.uint64(32))


@njit(
    boolean(int64, int64, int64, int64), cache=True, nogil=True, inline="always"
)  # pragma: no cover
def _same(begin, end, first, last):  # type: ignore[no-untyped-def]
    length, k = end - begin, 0
    if length != last - first:
        return False
    while k + 8 <= length:
        if word(begin + k) != word(first + k):
            return False
        k += 8
    return tail(end, length) == tail(last, length)


@njit(void(_u1, _i8, _i8, uint64, uint64[::1]), cache=True, nogil=True)  # pragma: no cover
def hashes(data, begin, end, seed, found):  # type: ignore[no-untyped-def]
    """The hash of each name."""
    base = np.int64(data.ctypes.data)
    for i in range(begin.size):
        found[i] = _hash(base + begin[i], base + end[i], seed)


@njit(
    int64(_u1, _i8, _i8, _u8, int64[::1], int32[::1], int32[::1]), cache=True, nogil=True
)  # pragma: no cover
def intern(data, begin, end, hashed, table, code, first):  # type: ignore[no-untyped-def]
    """Number names in the order they first come: `code` of each, `first` row of each number.

    `table` is all zeros. Returns how many different names there are.
    """
    mask, many, base = np.uint64(table.size - 1), 0, np.int64(data.ctypes.data)
    for i in range(begin.size):
        at, tag = hashed[i] & mask, np.int64(hashed[i] >> np.uint64(33))
        while True:
            held = table[at]
            if held == 0:
                table[at], first[many], code[i] = (tag << 32) | (many + 1), i, many
                many += 1
                break
            if held >> 32 == tag:
                row = first[(held & _PLACE) - 1]
                if _same(base + begin[i], base + end[i], base + begin[row], base + end[row]):
                    code[i] = (held & _PLACE) - 1
                    break
            at = (at + np.uint64(1)) & mask
    return many


@njit(
    void(_u1, _i8, _i8, uint64, int64, int64, _u1, _i8, _i8, _i8, uint64[::1], int32[::1]),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def _look_up(  # type: ignore[no-untyped-def]
    data, begin, end, seed, first, last, known, known_begin, known_end, table, hashed, place
):
    """The places of the names from `first` to before `last`, by their hashes.

    First by tags alone, then by the names: what is far away in memory is fetched for many at once.
    """
    mask = np.uint64(table.size - 1)
    base, other = np.int64(data.ctypes.data), np.int64(known.ctypes.data)
    for i in range(first, last):
        hashed[i] = _hash(base + begin[i], base + end[i], seed)
    for i in range(first, last):
        at, tag = hashed[i] & mask, np.int64(hashed[i] >> np.uint64(33))
        held = table[at]
        while held != 0 and held >> 32 != tag:
            at = (at + np.uint64(1)) & mask
            held = table[at]
        place[i] = (held & _PLACE) - 1
    for i in range(first, last):
        p = place[i]
        if p < 0:
            continue
        one, ends = base + begin[i], base + end[i]
        if _same(one, ends, other + known_begin[p], other + known_end[p]):
            continue
        at, tag = hashed[i] & mask, np.int64(hashed[i] >> np.uint64(33))
        place[i] = -1  # another name has the same tag: look at all
        while table[at] != 0:
            p = (table[at] & _PLACE) - 1
            if _same(one, ends, other + known_begin[p], other + known_end[p]):
                place[i] = p
                break
            at = (at + np.uint64(1)) & mask


@njit(
    int64(
        _u1, _i8, _i8, uint64, _u1, _i8, _i8, _i8, _u1, _i8, _i4, _i4, int64, uint64[::1],
        int32[::1],
    ),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def look_up(  # type: ignore[no-untyped-def]
    data, begin, end, seed, known, known_begin, known_end, table,
    told, told_end, told_place, where, used, hashed, place,
):  # fmt: skip
    """The place of each name among the `known` ones, -1 where it is not among them.

    Senders tell meters in the same order each time, so the next name is held first against the one
    that came next before: `told` has `used` names with their places as they were told, one behind
    another in memory, and `where` says where each place was last among them. `hashed` is room for
    as many hashes as names. Returns how many were not found in this way.
    """
    i, at, some, missed, n = 0, used, 1, 0, begin.size
    base, other = np.int64(data.ctypes.data), np.int64(told.ctypes.data)
    while i < n:
        while i < n and at + 1 < used:
            if not _same(
                base + begin[i], base + end[i], other + told_end[at], other + told_end[at + 1]
            ):
                break
            at += 1
            place[i], some = told_place[at], 1
            i += 1
        if i < n:
            stop = min(n, i + some)
            _look_up(
                data, begin, end, seed, i, stop, known, known_begin, known_end, table, hashed, place
            )
            missed += stop - i
            p = place[stop - 1]
            at = where[p] if p >= 0 and where[p] >= 0 else used
            i, some = stop, min(2 * some, 4096)
    return missed


@njit(
    int64(_u1, _i8, _i8, _i4, uint8[::1], int64[::1], int32[::1], int64), cache=True, nogil=True
)  # pragma: no cover
def tell(data, begin, end, place, told, told_end, told_place, used):  # type: ignore[no-untyped-def]
    """Write names that have a place behind the `used` ones; how many there are then.

    Name k of those told ends at `told_end[k]`, which is where the next begins.
    """
    at = told_end[used - 1] if used else 0
    for i in range(begin.size):
        if place[i] < 0:
            continue
        for k in range(begin[i], end[i]):
            told[at] = data[k]
            at += 1
        told_end[used], told_place[used] = at, place[i]
        used += 1
    return used


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
