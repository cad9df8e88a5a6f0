# ruff: noqa: ARG001  numba gives each intrinsic what it may need
"""NDJSON readings parsed from their bytes, tables of names, and checks of Arrow columns.

Memory is read by its address, eight bytes at a time; the first byte of a word is its lowest.
Reference counts of arrays passed to compiled functions cost more than a look at a few bytes; an
address is a number. The caller keeps the array alive meanwhile. A mark is a word with the top bit
of some bytes set; only its lowest one is exact, as a borrow or a carry can spill into the bytes
above.

Name i of a buffer is `data[begin[i]:end[i]]`. A table holds 1 + the place of a name with a tag of
31 bits of its hash above it, 0 where it is free; a name goes to the first free place from its hash
on. Its size is a power of two, at least twice the names. Senders choose names, so the hash takes a
secret `seed`: without it they cannot construct many names that collide.

Arrow columns are checked in place; offsets are checked before anything is read where they point.

A plain line of NDJSON has one object of the four known keys, each once, in any order; an id of
printable ASCII without escapes, brackets, or spaces around it; a time like 2026-01-05T00:00:00Z, or
with an offset like +01:00 in place of the Z; a whole duration; Wh with at most 15 digits on either
side of the point, rounded to whole ones, halves to even. Each such line is a good reading. All
other lines are left to a reader that implements every rule.

The lines of one sender have one layout, so that of the last plain line is kept: where the bytes
between its values lie. A line with the same bytes between its values is plain when those are; any
other is read member by member.
"""

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import boolean, extending, int32, int64, njit, types, uint8, uint64, void

_ONES, _TOPS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_ZEROS, _TO_TEN = np.uint64(0x30) * _ONES, np.uint64(0x76) * _ONES
_SPACES, _DELETES = np.uint64(0x20) * _ONES, np.uint64(0x7F) * _ONES
_QUOTES, _OPENS, _ESCAPES = (np.uint64(c) * _ONES for c in (0x22, 0x7B, 0x7C))
_WORD = ir.IntType(64)
intrinsic: Any = extending.intrinsic  # what it makes is called without the context


def _load(builder, address, width):  # type: ignore[no-untyped-def]
    place = builder.inttoptr(address, ir.IntType(width).as_pointer())
    found = builder.load(place, align=1)
    return found if sys.byteorder == "little" or width == 8 else builder.bswap(found)


@intrinsic
def word(context, at):  # type: ignore[no-untyped-def]
    """The eight bytes from `at` on."""
    return types.uint64(types.int64), lambda _, builder, __, given: _load(builder, given[0], 64)


@intrinsic
def byte(context, at):  # type: ignore[no-untyped-def]
    """The byte there."""
    return types.uint8(types.int64), lambda _, builder, __, given: _load(builder, given[0], 8)


@intrinsic
def get(context, items, k):  # type: ignore[no-untyped-def]
    """Item k of an array of 64-bit integers that begins there."""

    def made(context, builder, signature, given):  # type: ignore[no-untyped-def]
        return builder.load(builder.gep(builder.inttoptr(given[0], _WORD.as_pointer()), [given[1]]))

    return types.int64(types.int64, types.int64), made


@intrinsic
def put(context, items, k, value):  # type: ignore[no-untyped-def]
    """Set item k of an array of 64-bit integers that begins there."""

    def made(context, builder, signature, given):  # type: ignore[no-untyped-def]
        items = builder.inttoptr(given[0], _WORD.as_pointer())
        builder.store(given[2], builder.gep(items, [given[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), made


@intrinsic
def _low_zeros(context, value):  # type: ignore[no-untyped-def]
    def made(context, builder, signature, given):  # type: ignore[no-untyped-def]
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), made


@njit(inline="always")  # pragma: no cover
def place(mark):  # type: ignore[no-untyped-def]
    """Which byte has the lowest mark; 8 for none."""
    return np.int64(_low_zeros(mark) >> np.uint64(3))


@njit(inline="always")  # pragma: no cover
def same(one, other, length):  # type: ignore[no-untyped-def]
    """Whether `length` bytes agree; up to 7 bytes behind them are read."""
    k = np.int64(0)
    while k + 8 <= length:
        if word(one + k) != word(other + k):
            return False
        k += 8
    if k == length:
        return True
    differ = word(one + k) ^ word(other + k)
    return differ << np.uint64(64 - 8 * (length - k)) == np.uint64(0)


@njit(inline="always")  # pragma: no cover
def tail(end, length):  # type: ignore[no-untyped-def]
    """Of `length` bytes before `end` the last, which fill no word; no others are read."""
    few = length & 7
    if length >= 8:
        return word(end - 8) >> np.uint64(64 - 8 * few) if few else np.uint64(0)
    w = np.uint64(0)
    for k in range(few):
        w |= np.uint64(byte(end - few + k)) << np.uint64(8 * k)
    return w


@njit(inline="always")  # pragma: no cover
def _is_zero(w):  # type: ignore[no-untyped-def]
    return (w - _ONES) & ~w & _TOPS


@njit(inline="always")  # pragma: no cover
def not_plain(w):  # type: ignore[no-untyped-def]
    r"""Marks all but printable ASCII, and of that `"`, `\`, `[`, `{` and, for ease, `|`."""
    raised = w | _SPACES  # [ to {, \ to |
    odd = _is_zero(raised ^ _OPENS) | _is_zero(raised ^ _ESCAPES) | _is_zero(w ^ _QUOTES)
    return odd | _is_zero(w ^ _DELETES) | ((w - _SPACES) & ~w & _TOPS) | (w & _TOPS)


@njit(inline="always")  # pragma: no cover
def not_digit(w):  # type: ignore[no-untyped-def]
    """Marks all but 0 to 9."""
    t = w ^ _ZEROS
    return ((t + _TO_TEN) | t) & _TOPS


@njit(inline="always")  # pragma: no cover
def digits(w, many):  # type: ignore[no-untyped-def]
    """The number that the first `many` bytes write, 1 to 8 digits."""
    t = (w ^ _ZEROS) << np.uint64(64 - 8 * many)  # zeros before them, up to eight digits
    t = (t * np.uint64(10)) + (t >> np.uint64(8))  # pairs, in every second byte
    low = (t & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    high = ((t >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return np.int64((low + high) >> np.uint64(32))


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
    recent, recent_end, recent_place, where, used, hashed, place,
):  # fmt: skip
    """The place of each name among the `known` ones, -1 where it is not among them.

    Senders list meters in the same order each time, so a name is compared first with the one that
    came next the last time: `recent` has `used` names with their places in that order, one behind
    another in memory, and `where` is where each place was last among them. `hashed` is room for
    as many hashes as names. Returns how many were not found in this way.
    """
    i, at, some, missed, n = 0, used, 1, 0, begin.size
    base, other = np.int64(data.ctypes.data), np.int64(recent.ctypes.data)
    while i < n:
        while i < n and at + 1 < used:
            if not _same(
                base + begin[i], base + end[i], other + recent_end[at], other + recent_end[at + 1]
            ):
                break
            at += 1
            place[i], some = recent_place[at], 1
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
def append_names(data, begin, end, place, recent, recent_end, recent_place, used):  # type: ignore[no-untyped-def]
    """Write names that have a place behind the `used` ones; how many there are then.

    Name k of `recent` ends at `recent_end[k]`, which is where the next begins.
    """
    at = recent_end[used - 1] if used else 0
    for i in range(begin.size):
        if place[i] < 0:
            continue
        for k in range(begin[i], end[i]):
            recent[at] = data[k]
            at += 1
        recent_end[used], recent_place[used] = at, place[i]
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


@njit(
    [
        boolean(_i8, duration, _i8, int64, int64, int64)
        for duration in (_i4, _i8)
    ],
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
        if i == 0 or ticks[i] != ticks[i - 1]:  # most are equal, and a division is slow
            one = ticks[i] // unit
            good &= one * unit == ticks[i]
        start[i] = one
    return good


@njit(
    [boolean(_u1, offsets, int64, int64[::1]) for offsets in (_i4, _i8)],
    cache=True,
    nogil=True,
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


SHORTEST = (
    74  # [bytes] of a plain line with its line feed: all values of one character but the time
)
METER, START, DURATION, WH, METER_END = range(5)  # rows of `found`; the id as where it lies
_ALL = 0b1111
_NONE = np.int64(-(2**62))
_TAB, _NEWLINE, _RETURN = 0x09, 0x0A, 0x0D
_QUOTE, _PLUS, _COMMA, _MINUS, _POINT, _ZERO, _COLON = 0x22, 0x2B, 0x2C, 0x2D, 0x2E, 0x30, 0x3A
_T, _Z, _BRACKET, _ESCAPE, _BRACE, _CLOSE = 0x54, 0x5A, 0x5B, 0x5C, 0x7B, 0x7D
_KEYS = np.frombuffer(b"meter_idstart_utcduration_swh", np.uint8)
_FIRST = np.array([0, 8, 17, 27, 29])  # where each key begins in _KEYS
_PLAIN = np.zeros(256, np.bool_)  # printable ASCII but quotes, escapes, and what may nest
_PLAIN[_SPACE : _LAST + 1] = True
_PLAIN[[_QUOTE, _ESCAPE, _BRACE, _BRACKET]] = False
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

# The state of the current line and of the last plain ones, as an array of integers: the values
# found; the least and most of each; for each member its key, and where the bytes before its value
# begin and how many they are; the same of those behind the last value, but for the key; where a
# time begins and ends, and which it is.
_LIMITS, _MEMBERS, _TAIL, _TIME, _TIME_END, _INSTANT, STATE = 5, 13, 25, 28, 29, 30, 31
_NOWHERE = np.int64(2**62)  # beyond all data
_VALUES = 128  # [bytes] a time and two numbers are shorter, even with a word behind each value


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _past_space(at):  # type: ignore[no-untyped-def]
    while byte(at) == _SPACE or byte(at) == _TAB or byte(at) == _RETURN:
        at += 1
    return at  # a line feed stops it at the latest


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _key(at):  # type: ignore[no-untyped-def]
    """Which key is there in quotes; -1 for none."""
    if byte(at) != _QUOTE:
        return -1
    c = byte(at + 1)
    which = METER if c == _KEYS[0] else START if c == _KEYS[8] else DURATION
    if c == _KEYS[27]:
        which = WH
    length = _FIRST[which + 1] - _FIRST[which]
    for k in range(length):  # a line feed is in no key, so nothing behind it is read
        if byte(at + 1 + k) != _KEYS[_FIRST[which] + k]:
            return -1
    return which if byte(at + 1 + length) == _QUOTE else -1


@njit(types.UniTuple(int64, 2)(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _number(at):  # type: ignore[no-untyped-def]
    """A whole number of at most 15 digits, and where it ends; _NONE where there is none."""
    negative = byte(at) == _MINUS
    if negative:
        at += 1
    begin, value = at, np.int64(0)
    while at - begin < 16:
        digit = np.int64(byte(at)) - _ZERO
        if digit < 0 or digit > 9:
            break
        value = 10 * value + digit
        at += 1
    many = at - begin
    if many == 0 or many > 15 or (many > 1 and byte(begin) == _ZERO):
        return _NONE, at
    return (-value if negative else value), at


@njit(types.UniTuple(int64, 2)(int64), cache=True, nogil=True)  # pragma: no cover
def _amount(at):  # type: ignore[no-untyped-def]
    """As `_number`, with a fraction of at most 15 digits or without; rounded, halves to even."""
    negative = byte(at) == _MINUS
    whole, at = _number(at)
    if whole == _NONE or byte(at) != _POINT:
        return whole, at
    whole, part, unit = abs(whole), np.int64(0), np.int64(1)
    begin = at = at + 1
    while at - begin < 16:
        digit = np.int64(byte(at)) - _ZERO
        if digit < 0 or digit > 9:
            break
        part, unit = 10 * part + digit, 10 * unit
        at += 1
    if at == begin or at - begin > 15:
        return _NONE, at
    if 2 * part > unit or (2 * part == unit and whole & 1):
        whole += 1
    return (-whole if negative else whole), at


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _two(at):  # type: ignore[no-untyped-def]
    """Two digits as a number, or one beyond all that fits."""
    a, b = np.int64(byte(at)) - _ZERO, np.int64(byte(at + 1)) - _ZERO
    return 10 * a + b if 0 <= a <= 9 and 0 <= b <= 9 else np.int64(1000)


@njit(int64(int64, int64), cache=True, nogil=True)  # pragma: no cover
def _ahead(at, length):  # type: ignore[no-untyped-def]
    """What the time is ahead of UTC [s], by the Z or offset at its end, or _NONE."""
    if length == 20:
        return np.int64(0) if byte(at) == _Z else _NONE
    hours, minutes = _two(at + 1), _two(at + 4)
    if byte(at + 3) != _COLON or hours > 23 or minutes > 59:
        return _NONE
    if byte(at) == _PLUS:
        return hours * 3600 + minutes * 60
    return -(hours * 3600 + minutes * 60) if byte(at) == _MINUS else _NONE


@njit(int64(int64, int64), cache=True, nogil=True)  # pragma: no cover
def _instant(at, end):  # type: ignore[no-untyped-def]
    """A time in seconds since 1970, or _NONE."""
    length = end - at
    if length != 20 and length != 25:
        return _NONE
    if byte(at + 4) != _MINUS or byte(at + 7) != _MINUS or byte(at + 10) != _T:
        return _NONE
    if byte(at + 13) != _COLON or byte(at + 16) != _COLON:
        return _NONE
    century, rest, month, day = (
        _two(at), _two(at + 2), _two(at + 5), _two(at + 8)
    )  # fmt: skip
    hour, minute, second = _two(at + 11), _two(at + 14), _two(at + 17)
    if century > 99 or rest > 99 or hour > 23 or minute > 59 or second > 59:
        return _NONE
    if month < 1 or month > 12:
        return _NONE
    year = 100 * century + rest
    leap = month == 2 and ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    if day < 1 or day > _DAYS[month] + leap:
        return _NONE
    ahead = _ahead(at + 19, length)
    if ahead == _NONE:
        return _NONE
    y = year - (month < 3)  # the year begins in March, so that the leap day is its last
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * y + y // 4 - y // 100 + y // 400 + day_of_year - 719_468
    return days * 86_400 + hour * 3600 + minute * 60 + second - ahead


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _text_end(at):  # type: ignore[no-untyped-def]
    """Where the quote is that closes a text of plain characters; -1 where it has others."""
    while True:
        if not _PLAIN[byte(at)]:
            return at if byte(at) == _QUOTE else -1
        at += 1


@njit(boolean(int64, int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _fits(state, which, value):  # type: ignore[no-untyped-def]
    low, high = get(state, _LIMITS + 2 * which), get(state, _LIMITS + 2 * which + 1)
    return low <= value <= high


@njit(boolean(int64, int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _is_id(state, begin, end):  # type: ignore[no-untyped-def]
    """Whether an id of plain characters is as long as it may be, without spaces around it."""
    return _fits(state, METER, end - begin) and byte(begin) != _SPACE and byte(end - 1) != _SPACE


@njit(int64(int64, int64, int64), cache=True, nogil=True)  # pragma: no cover
def _value(state, at, which):  # type: ignore[no-untyped-def]
    """Find the value of a key; where it ends, -1 where it is not plain."""
    if which == DURATION or which == WH:  # noqa: SIM109
        value, at = _amount(at) if which == WH else _number(at)
        put(state, which, value)
        return at if _fits(state, which, value) else -1
    begin, end = at + 1, np.int64(-1)
    if byte(at) == _QUOTE:
        end = _text_end(begin)
    if end < 0:
        return -1
    if which == START:
        value = _instant(begin, end)
        put(state, START, value)
        return end + 1 if _fits(state, START, value) else -1
    put(state, METER, begin)
    put(state, METER_END, end)
    return end + 1 if _is_id(state, begin, end) else -1


@njit(void(int64, int64, int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _keep(state, member, before, begin):  # type: ignore[no-untyped-def]
    put(state, member + 1, before)
    put(state, member + 2, begin - before)


@njit(void(int64, int64, int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _keep_time(state, begin, end, instant):  # type: ignore[no-untyped-def]
    put(state, _TIME, begin)
    put(state, _TIME_END, end)
    put(state, _INSTANT, instant)


@njit(int64(int64, int64), cache=True, nogil=True)  # pragma: no cover
def _line(state, at):  # type: ignore[no-untyped-def]
    """Read a plain line, keep its layout; where its line feed is, -1 where it is not plain."""
    before, member, seen = at, _MEMBERS, 0
    at = _past_space(at)
    if byte(at) != _BRACE:
        return -1
    while True:  # over the members; the brace or comma before each is at `at`
        at = _past_space(at + 1)
        which = _key(at)
        if which < 0 or seen & (1 << which):
            return -1
        seen |= 1 << which
        at = _past_space(at + 2 + _FIRST[which + 1] - _FIRST[which])
        if byte(at) != _COLON:
            return -1
        begin = _past_space(at + 1)
        at = _value(state, begin, which)
        if at < 0:
            return -1
        quote = 1 if which < DURATION else 0  # the bytes around a text have its quotes
        put(state, member, which)
        _keep(state, member, before, begin + quote)
        before = at - quote
        if which == START:
            _keep_time(state, begin + 1, before, get(state, START))
        member += 3
        at = _past_space(at)
        if byte(at) != _COMMA:
            break
    if byte(at) != _CLOSE or seen != _ALL:
        return -1
    at = _past_space(at + 1)
    _keep(state, _TAIL, before, at + 1)
    return at if byte(at) == _NEWLINE else -1


@njit(int64(int64), cache=True, nogil=True)  # pragma: no cover
def _reach(state):  # type: ignore[no-untyped-def]
    """How many bytes a reader by the layout reads, at most."""
    reach = get(state, _LIMITS + 2 * METER + 1) + _VALUES
    for member in range(_MEMBERS, _TAIL + 3, 3):
        reach += get(state, member + 2)
    return reach


@njit(int64(int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _id_end(at, longest):  # type: ignore[no-untyped-def]
    """Where the first character is that is not plain, or a place beyond `longest`."""
    end = at
    while end - at <= longest:
        mark = not_plain(word(end))
        if mark != np.uint64(0):
            return end + place(mark)
        end += 8
    return end


@njit(types.UniTuple(int64, 2)(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _short_number(at):  # type: ignore[no-untyped-def]
    """As `_number`, at once for 1 to 7 digits."""
    w = word(at)
    many = place(not_digit(w))
    if many == 0 or many == 8 or (many > 1 and byte(at) == _ZERO):
        return _number(at)
    return digits(w, many), at + many


@njit(boolean(int64, int64, int64), cache=True, nogil=True)  # pragma: no cover
def _new_time(state, at, end):  # type: ignore[no-untyped-def]
    """Read and keep a time; whether it is a good one."""
    instant = _instant(at, end)
    _keep_time(state, at, end, instant)
    return _fits(state, START, instant)


@njit(int64(int64, int64), cache=True, nogil=True)  # pragma: no cover
def _same_layout(state, at):  # type: ignore[no-untyped-def]
    """As `_line`, of a line with the layout that is kept; -1 if it has another."""
    for member in range(_MEMBERS, _TAIL, 3):
        which, length = get(state, member), get(state, member + 2)
        if not same(at, get(state, member + 1), length):
            return -1
        at += length
        if which == METER:
            begin, at = at, _id_end(at, get(state, _LIMITS + 2 * METER + 1))
            if not _is_id(state, begin, at):
                return -1
            put(state, METER, begin)
            put(state, METER_END, at)
        elif which == START:
            begin, length = at, get(state, _TIME_END) - get(state, _TIME)
            at += length
            if not same(begin, get(state, _TIME), length) and not _new_time(state, begin, at):
                return -1
            put(state, START, get(state, _INSTANT))
        else:
            begin = at
            value, at = _short_number(begin)
            if which == WH and byte(at) == _POINT:
                value, at = _amount(begin)
            if not _fits(state, which, value):
                return -1
            put(state, which, value)
    length = get(state, _TAIL + 2)
    return at + length - 1 if same(at, get(state, _TAIL + 1), length) else -1


@njit(
    types.UniTuple(int64, 2)(
        _u1, types.Array(int64, 1, "C", readonly=True), int64, int64[::1], int64[::1],
        int64[:, ::1], int64[:, ::1],
    ),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def plain_lines(data, limits, longest, known, line, found, odd):  # type: ignore[no-untyped-def]
    """Read the plain lines of `data`, whole lines with a line feed behind each.

    The i-th plain one has the number `line[i]`, counted from 0, the values `found[:, i]` and an id
    from `found[METER, i]` to `found[METER_END, i]`; there is room for as many as `data` can hold by
    SHORTEST. `limits` are the least and most of each value, of the id's length and of the start [s]
    too. A line beyond `longest` bytes is not plain. The i-th other line has the number `odd[0, i]`
    and reaches from `odd[1, i]` to `odd[2, i]`, as far as there is room. `known` is room for STATE
    numbers. Returns how many there are of each.
    """
    known[_LIMITS:_MEMBERS] = limits
    state, base = np.int64(known.ctypes.data), np.int64(data.ctypes.data)
    at, stop, reach = base, base + data.size, _NOWHERE
    number, plain, others = 0, 0, 0
    while at < stop:
        end = np.int64(-1)
        if reach <= stop - at:
            end = _same_layout(state, at)
        if end < 0:
            end = _line(state, at)
            reach = _reach(state) if end >= 0 else _NOWHERE
        if end >= 0 and end - at <= longest:
            line[plain] = number
            for k in range(5):
                found[k, plain] = get(state, k)
            found[METER, plain] -= base
            found[METER_END, plain] -= base
            plain += 1
        else:
            end = at
            while byte(end) != _NEWLINE:
                end += 1
            if others < odd.shape[1]:
                odd[0, others], odd[1, others], odd[2, others] = number, at - base, end - base
            others += 1
        at = end + 1
        number += 1
    return plain, others
