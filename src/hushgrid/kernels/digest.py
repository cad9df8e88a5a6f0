"""XXH64, a checksum that keeps up with memory (https://github.com/Cyan4973/xxHash, the spec)."""

import numpy as np
from numba import njit, types, uint8, uint64

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)  # fmt: skip
_u8, _u1 = (types.Array(dtype, 1, "C", readonly=True) for dtype in (uint64, uint8))


@njit(uint64(uint64, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _turned(x, bits):  # type: ignore[no-untyped-def]
    return (x << bits) | (x >> (np.uint64(64) - bits))


@njit(uint64(uint64, uint64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _mixed(lane, word):  # type: ignore[no-untyped-def]
    return _turned(lane + word * _P2, np.uint64(31)) * _P1


@njit(uint64(_u8, _u1, uint64), cache=True, nogil=True)  # pragma: no cover
def xxh64(words, tail, seed):  # type: ignore[no-untyped-def]
    """Of `words`, little-endian, and up to seven bytes behind them."""
    n, k = words.size, 0
    h = seed + _P5
    if n >= 4:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while k + 4 <= n:  # four lanes that do not wait for each other
            a, b = _mixed(a, words[k]), _mixed(b, words[k + 1])
            c, d = _mixed(c, words[k + 2]), _mixed(d, words[k + 3])
            k += 4
        h = _turned(a, np.uint64(1)) + _turned(b, np.uint64(7))
        h += _turned(c, np.uint64(12)) + _turned(d, np.uint64(18))
        for lane in (a, b, c, d):
            h = (h ^ _mixed(np.uint64(0), lane)) * _P1 + _P4
    h += np.uint64(8 * n + tail.size)
    while k < n:
        h = _turned(h ^ _mixed(np.uint64(0), words[k]), np.uint64(27)) * _P1 + _P4
        k += 1
    j = 0
    if tail.size >= 4:
        half = np.uint64(0)
        for i in range(4):
            half |= np.uint64(tail[i]) << np.uint64(8 * i)
        h = _turned(h ^ (half * _P1), np.uint64(23)) * _P2 + _P3
        j = 4
    while j < tail.size:
        h = _turned(h ^ (np.uint64(tail[j]) * _P5), np.uint64(11)) * _P1
        j += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))
