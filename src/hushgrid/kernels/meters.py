"""Readings one by one, in the order they came: which are accepted, and what they add up to.

An interval's memory is five arrays. Bit h of `begun` says whether anything came for house h, and
`kind[h]` of what duration: 0 the whole interval, else its place among `divisors`, those of the
interval in falling order. `cell[h]` is the Wh of a whole reading, else the place of the house's
first piece in `piece` (Wh) and `taken` (whether it came).

`weigh` leaves the Wh of whole readings to its caller: written one by one all over `cell`, they
would take longer than all the rest. For the same reason `begun` is bits: they stay in the cache.
"""

import numpy as np
from numba import boolean, int8, int32, int64, njit, types, uint8, void

ACCEPTED, DUPLICATE, CONFLICTING, LATE, MALFORMED = range(5)
REPEATED = 5  # a whole reading of a house that has one: its Wh decides
END = 1 << 40  # [epoch s] no reading is that young; keeps sums of times far from 2^63
_TOP = (1 << 63) - 1

# Arrays that are only read: writable ones fit too.
_i1, _u1, _i4, _i8, _b1 = (
    types.Array(dtype, 1, "C", readonly=True) for dtype in (int8, uint8, int32, int64, boolean)
)


@njit(
    types.Tuple((int64, int64, boolean))(_i4, _i8, _i4, int64, int64, int64, int8[::1]),
    cache=True,
    nogil=True,
)  # pragma: no cover
def sieve(house, start, duration, houses, interval, closed_end, code):  # type: ignore[no-untyped-def]
    """What each reading alone tells. Returns (first interval, last, one start and duration?).

    Most batches have one start and duration, so the divisions are done once for all.
    """
    n = house.size
    alike, inside = n > 0, True
    for i in range(n):  # no branches: this loop is vectorised
        alike &= (start[i] == start[0]) & (duration[i] == duration[0])
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
        if alike and inside:
            code[:] = verdict
            return (opens, opens, True) if verdict == ACCEPTED else (low, high, True)
        if house[i] < 0 or house[i] >= houses:
            code[i] = MALFORMED
            continue
        code[i] = verdict
        if verdict == ACCEPTED:
            low, high = min(low, opens), max(high, opens)
    return low, high, alike


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
def weigh_whole(house, code, begun, kind):  # type: ignore[no-untyped-def]
    """`weigh` for readings that all cover the whole interval; how many are not accepted."""
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
def weigh(  # type: ignore[no-untyped-def]
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
    """Undo a `weigh` that began with `before` places of `piece` in use."""
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
    void(_i4, _u1, _u1, _i8, _i8, _b1, int64[::1], boolean[::1]), cache=True, nogil=True
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
