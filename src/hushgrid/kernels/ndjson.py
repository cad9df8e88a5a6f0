"""Readings of NDJSON in plain words, read from the bytes.

Plain is a line with one object of the four known keys, each once, in any order; an id of printable
ASCII without escapes, brackets, or spaces around it; a time like 2026-01-05T00:00:00Z, or with an
offset like +01:00 in place of the Z; a whole duration; Wh with at most 15 digits on either side of
the point, rounded to whole ones, halves to even. Each such line is a good reading. All other lines
are left to a reader that knows every rule.

The lines of one sender look alike, so the layout of a plain line is kept: where the bytes between
its values lie. A line with the same bytes between its values is plain when those are; any other is
read member by member.
"""

import numpy as np
from numba import boolean, int64, njit, types, uint8, void

from hushgrid.kernels.words import byte, digits, get, not_digit, not_plain, place, put, same, word

SHORTEST = (
    74  # [bytes] of a plain line with its line feed: all values of one character but the time
)
METER, START, DURATION, WH, METER_END = range(5)  # rows of `found`; the id as where it lies
_ALL = 0b1111
_NONE = np.int64(-(2**62))
_TAB, _NEWLINE, _RETURN, _SPACE, _LAST = 0x09, 0x0A, 0x0D, 0x20, 0x7E
_QUOTE, _PLUS, _COMMA, _MINUS, _POINT, _ZERO, _COLON = 0x22, 0x2B, 0x2C, 0x2D, 0x2E, 0x30, 0x3A
_T, _Z, _BRACKET, _ESCAPE, _BRACE, _CLOSE = 0x54, 0x5A, 0x5B, 0x5C, 0x7B, 0x7D
_KEYS = np.frombuffer(b"meter_idstart_utcduration_swh", np.uint8)
_FIRST = np.array([0, 8, 17, 27, 29])  # where each key begins in _KEYS
_PLAIN = np.zeros(256, np.bool_)  # printable ASCII but quotes, escapes, and what may nest
_PLAIN[_SPACE : _LAST + 1] = True
_PLAIN[[_QUOTE, _ESCAPE, _BRACE, _BRACKET]] = False
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

# What is known of the line in hand and of the last plain ones, as an array of integers: the values
# found; the least and most of each; for each member its key, and where the bytes before its value
# begin and how many they are; the same of those behind the last value, but for the key; where a
# time stands and ends, and which it is.
_LIMITS, _MEMBERS, _TAIL, _TIME, _TIME_END, _INSTANT, STATE = 5, 13, 25, 28, 29, 30, 31
_NOWHERE = np.int64(2**62)  # beyond all data
_VALUES = 128  # [bytes] a time and two numbers are shorter, even with a word behind each value

_u1 = types.Array(uint8, 1, "C", readonly=True)


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _past_space(at):  # type: ignore[no-untyped-def]
    while byte(at) == _SPACE or byte(at) == _TAB or byte(at) == _RETURN:
        at += 1
    return at  # a line feed stops it at the latest


@njit(int64(int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _key(at):  # type: ignore[no-untyped-def]
    """Which key stands there in quotes; -1 for none."""
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
    """Where the quote stands that closes a text of plain characters; -1 where it has others."""
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
    """Read a plain line, keep its layout; where its line feed stands, -1 where it is not plain."""
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
    """How many bytes a reader that goes by the layout looks at, at most."""
    reach = get(state, _LIMITS + 2 * METER + 1) + _VALUES
    for member in range(_MEMBERS, _TAIL + 3, 3):
        reach += get(state, member + 2)
    return reach


@njit(int64(int64, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _id_end(at, longest):  # type: ignore[no-untyped-def]
    """Where the first character stands that is not plain, or a place beyond `longest`."""
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
def _alike(state, at):  # type: ignore[no-untyped-def]
    """As `_line`, of a line with the layout that is kept; -1 says nothing of it."""
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
    and stands from `odd[1, i]` to `odd[2, i]`, as far as there is room. `known` is room for STATE
    numbers. Returns how many there are of each.
    """
    known[_LIMITS:_MEMBERS] = limits
    state, base = np.int64(known.ctypes.data), np.int64(data.ctypes.data)
    at, stop, reach = base, base + data.size, _NOWHERE
    number, plain, others = 0, 0, 0
    while at < stop:
        end = np.int64(-1)
        if reach <= stop - at:
            end = _alike(state, at)
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
