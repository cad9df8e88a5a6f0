"""Loops over many readings: checksum, clamp and sum, simulation, and merging of deliveries.

`xxh64` is a checksum as fast as memory (https://github.com/Cyan4973/xxHash, the spec). The random
numbers of the simulation are hashed counters (SplitMix64): number i of a stream is a function of
the stream's key and i alone, so results do not depend on threads, and two runs can share them.

`merge_readings` takes readings one by one, in the order they came: which are accepted, and what
they add up to. An interval's memory is five arrays. Bit h of `begun` is whether anything came for
house h, and `kind[h]` of what duration: 0 the whole interval, else its place among `divisors`,
those of the interval in falling order. `cell[h]` is the Wh of a whole reading, else the place of
the house's first piece in `piece` (Wh) and `taken` (whether it came).

`merge_readings` leaves the Wh of whole readings to its caller: written one by one all over `cell`,
they would take longer than all the rest. For the same reason `begun` is bits: they stay in the
cache.
"""

from typing import Any

import numpy as np
from numba import boolean, int8, int32, int64, njit, prange, types, uint8, uint64, void
from numpy.typing import NDArray

from hushgrid._numbers import Floats, Int32s

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


@njit(parallel=True, cache=True)  # pragma: no cover
def move(state, chain_of, cumulative, members, key, occupancy):  # type: ignore[no-untyped-def]
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
def consume(  # type: ignore[no-untyped-def]
    occupancy, class_of, laws, top, offset, cut, other, factor, bound, key, readings
):
    """Each house draws a reading from the law of its class and occupancy; returns houses at home.

    `laws` is (2, classes): law numbers of absent and present. A law without a table (offset -1)
    is uniform on 0..top; the others are alias tables in `cut` and `other`.
    """
    n = occupancy.size
    home = 0
    for part in prange((n + _WORLD_CHUNK - 1) // _WORLD_CHUNK):
        here = 0
        for i in range(part * _WORLD_CHUNK, min(n, part * _WORLD_CHUNK + _WORLD_CHUNK)):
            here += occupancy[i]
            law = laws[occupancy[i], class_of[i]]
            r = _uniform(key, i) * (top[law] + 1)
            x = np.int64(r)
            start = offset[law]
            if start >= 0 and r - x >= cut[start + x]:
                x = np.int64(other[start + x])
            if factor != 1.0:
                x = min(np.int64(np.floor(x * factor + 0.5)), np.int64(bound[i]))
            readings[i] = x
        home += here
    return home


@njit(cache=True)  # pragma: no cover
def alias_table(pmf):  # type: ignore[no-untyped-def]
    """Vose's alias table: cell j keeps j with probability cut[j], else gives other[j]."""
    n = pmf.size
    cut, other = pmf * n, np.arange(n).astype(np.int32)
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
        other[low] = high
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
    return cut, other


ACCEPTED, DUPLICATE, CONFLICTING, LATE, MALFORMED = range(5)
REPEATED = 5  # a whole reading of a house that has one: its Wh decides
END = 1 << 40  # [epoch s] no reading is that young; keeps sums of times far from 2^63
_TOP = (1 << 63) - 1

# Arrays that are only read: writable ones fit too.
_i1, _i4, _i8, _b1 = (
    types.Array(dtype, 1, "C", readonly=True) for dtype in (int8, int32, int64, boolean)
)


@njit(
    types.Tuple((int64, int64, boolean))(_i4, _i8, _i4, int64, int64, int64, int8[::1]),
    cache=True,
    nogil=True,
)  # pragma: no cover
def sieve(house, start, duration, houses, interval, closed_end, code):  # type: ignore[no-untyped-def]
    """Check each reading on its own. Returns (first interval, last, one start and duration?).

    Most batches have one start and duration, so the divisions are done once for all.
    """
    n = house.size
    equal, inside = n > 0, True
    for i in range(n):  # no branches: this loop is vectorised
        equal &= (start[i] == start[0]) & (duration[i] == duration[0])
        inside &= (house[i] >= 0) & (house[i] < houses)
    low, high = np.int64(END), np.int64(-1)
    verdict, opens = np.int8(MALFORMED), np.int64(-1)
    for i in range(n):
        if i == 0 or start[i] != start[i - 1] or duration[i] != duration[i - 1]:
            s, d = start[i], np.int64(duration[i])
            verdict, opens = np.int8(MALFORMED), np.int64(-1)
            if d >= 1 and 0 <= s < END and interval % d == 0 and s % d == 0:
                opens = s - s % interval
                verdict = np.int8(ACCEPTED if opens >= closed_end else LATE)
        if equal and inside:
            code[:] = verdict
            return (opens, opens, True) if verdict == ACCEPTED else (low, high, True)
        if house[i] < 0 or house[i] >= houses:
            code[i] = MALFORMED
            continue
        code[i] = verdict
        if verdict == ACCEPTED:
            low, high = min(low, opens), max(high, opens)
    return low, high, equal


@njit(
    types.UniTuple(int64, 2)(_i4, _i8, int64, _i4, int64, int32[::1], boolean[::1]),
    cache=True,
    nogil=True,
)  # pragma: no cover
def pick_houses(place, wh, first, bound, least, house, outside):  # type: ignore[no-untyped-def]
    """Of a zone whose house h has the place `first + h` and the contract bound `bound[h]`.

    Writes the house of each reading, -1 where it is not of the zone, and whether its Wh are outside
    0..bound. `least` is the smallest bound. Returns how many are of the zone, and how many of these
    outside.
    """
    many, cut = np.int64(0), np.int64(0)
    for i in range(place.size):
        h = np.int64(place[i]) - first
        if h < 0 or h >= bound.size:
            house[i], outside[i] = -1, False
            continue
        # most are below every bound: those of their own lie all over memory
        house[i], outside[i] = h, (wh[i] < 0) | (wh[i] > least and wh[i] > bound[h])
        many += 1
        cut += np.int64(outside[i])
    return many, cut


@njit(int64(_i4, int8[::1], uint8[::1], _u1), cache=True, nogil=True)  # pragma: no cover
def merge_whole_readings(house, code, begun, kind):  # type: ignore[no-untyped-def]
    """`merge_readings` for readings that all cover the whole interval; how many are refused."""
    refused = 0
    for i in range(house.size):
        if code[i] != ACCEPTED:
            refused += 1
            continue
        h = np.uint32(house[i])
        byte, bit = begun[h >> np.uint32(3)], np.uint8(1 << (h & np.uint32(7)))
        if byte & bit:
            code[i] = REPEATED if kind[h] == 0 else CONFLICTING
            refused += 1
        else:
            begun[h >> np.uint32(3)] = byte | bit
    return refused


@njit(
    types.UniTuple(int64, 3)(
        _i4, _i8, _i4, _i8, int8[::1], int64, _i4, uint8[::1], uint8[::1], int64[::1], int64[::1],
        boolean[::1], int64, int64,
    ),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def merge_readings(  # type: ignore[no-untyped-def]
    house, start, duration, wh, code, opens, divisors, begun, kind, cell, piece, taken, used, begin
):
    """Judge readings of the interval at `opens` against its memory, and keep the accepted.

    Returns (where it stopped, places of `piece` in use, readings that are not accepted): short of
    the end when `piece` is full.
    """
    seen, mine, pieces, refused = np.int64(0), np.uint8(0), np.int64(1), np.int64(0)
    for i in range(begin, house.size):
        if code[i] != ACCEPTED:
            refused += 1
            continue
        h, d = np.uint32(house[i]), np.int64(duration[i])
        if d != seen:
            seen, pieces, mine = d, divisors[0] // d, np.uint8(0)
            while divisors[mine] != d:
                mine += np.uint8(1)
        byte, bit = begun[h >> np.uint32(3)], np.uint8(1 << (h & np.uint32(7)))
        if not byte & bit:
            if pieces > 1:
                if used + pieces > piece.size:
                    return i, used, refused
                kind[h], cell[h] = mine, used
                taken[used : used + pieces] = False
                used += pieces
            begun[h >> np.uint32(3)] = byte | bit
            if pieces == 1:
                continue
        elif kind[h] != mine:
            code[i] = CONFLICTING
            refused += 1
            continue
        elif pieces == 1:
            code[i] = REPEATED
            refused += 1
            continue
        p = cell[h] + (start[i] - opens) // d
        if taken[p]:
            code[i] = DUPLICATE if piece[p] == wh[i] else CONFLICTING
            refused += 1
        else:
            taken[p], piece[p] = True, wh[i]
    return house.size, used, refused


@njit(
    void(_i4, _i8, _i4, _i1, int64, int64, uint8[::1], uint8[::1], _i8, boolean[::1], int64),
    cache=True,
    nogil=True,
)  # pragma: no cover
def forget(house, start, duration, code, opens, interval, begun, kind, cell, taken, before):  # type: ignore[no-untyped-def]
    """Undo a `merge_readings` that began with `before` places of `piece` in use."""
    for i in range(house.size):
        if code[i] != ACCEPTED:
            continue
        h, d = house[i], duration[i]
        if d != interval:
            taken[cell[h] + (start[i] - opens) // d] = False
            if cell[h] < before:
                continue  # its place is older
        kind[h] = 0
        begun[h >> 3] &= ~np.uint8(1 << (h & 7))


@njit(
    void(_i4, _u1, _u1, _i8, _i8, _b1, int64[::1], boolean[::1]),
    cache=True,
    nogil=True,
)  # pragma: no cover
def gather(divisors, begun, kind, cell, piece, taken, wh, present):  # type: ignore[no-untyped-def]
    """Each house's Wh over the interval where its readings cover it, else 0 and not present.

    A sum beyond 64 bits becomes the nearest number that fits; halves of 32 bits keep it exact.
    """
    for h in range(kind.size):
        wh[h], present[h] = 0, False
        if not begun[h >> 3] & np.uint8(1 << (h & 7)):
            continue
        if kind[h] == 0:
            wh[h], present[h] = cell[h], True
            continue
        low, high, full = np.int64(0), np.int64(0), True
        for p in range(cell[h], cell[h] + divisors[0] // divisors[kind[h]]):
            full = full and taken[p]
            low += piece[p] & 0xFFFFFFFF
            high += piece[p] >> 32
        high += low >> 32
        if full:
            present[h] = True
            if high > 0x7FFFFFFF:
                wh[h] = _TOP
            elif high < -0x80000000:
                wh[h] = -_TOP - 1
            else:
                wh[h] = high * (1 << 32) + (low & 0xFFFFFFFF)


@njit(types.UniTuple(int64, 5)(_i1), cache=True, nogil=True)  # pragma: no cover
def tally_codes(code):  # type: ignore[no-untyped-def]
    """How many readings of each code."""
    found = np.zeros(5, np.int64)
    for k in range(5):  # a loop for each vectorises; counting into an array does not
        many = np.int64(0)
        for i in range(code.size):
            many += np.int64(code[i] == k)
        found[k] = many
    return found[0], found[1], found[2], found[3], found[4]
