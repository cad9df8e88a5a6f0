"""Readings of NDJSON in plain words, read from the bytes.

Plain is a line with one object of the four known keys, each once, in any order; an id of printable
ASCII without escapes, brackets, or spaces around it; a time like 2026-01-05T00:00:00Z, or with an
offset like +01:00 in place of the Z; whole numbers. Each such line is a good reading. Of all others
nothing is said here: they are left to a reader that knows every rule.
"""

import numpy as np
from numba import int64, njit, types, uint8

METER, START, DURATION, WH = range(4)  # rows of `found`; the id is found as where it begins
_ALL = 0b1111
_NONE = np.int64(-(2**62))
_TAB, _NEWLINE, _RETURN, _SPACE, _LAST = 0x09, 0x0A, 0x0D, 0x20, 0x7E
_QUOTE, _PLUS, _COMMA, _MINUS, _ZERO, _COLON = 0x22, 0x2B, 0x2C, 0x2D, 0x30, 0x3A
_T, _Z, _BRACKET, _ESCAPE, _BRACE, _CLOSE = 0x54, 0x5A, 0x5B, 0x5C, 0x7B, 0x7D
_KEYS = np.frombuffer(b"meter_idstart_utcduration_swh", np.uint8)
_FIRST = np.array([0, 8, 17, 27, 29])  # where each key begins in _KEYS
_PLAIN = np.zeros(256, np.bool_)  # printable ASCII but quotes, escapes, and what may nest
_PLAIN[_SPACE : _LAST + 1] = True
_PLAIN[[_QUOTE, _ESCAPE, _BRACE, _BRACKET]] = False
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

_u1 = types.Array(uint8, 1, "C", readonly=True)


@njit(int64(_u1, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _past_space(data, at):  # type: ignore[no-untyped-def]
    while data[at] == _SPACE or data[at] == _TAB or data[at] == _RETURN:
        at += 1
    return at  # a line feed stops it at the latest


@njit(int64(_u1, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _key(data, at):  # type: ignore[no-untyped-def]
    """Which key stands there in quotes; -1 for none."""
    if data[at] != _QUOTE:
        return -1
    c = data[at + 1]
    which = METER if c == _KEYS[0] else START if c == _KEYS[8] else DURATION
    if c == _KEYS[27]:
        which = WH
    length = _FIRST[which + 1] - _FIRST[which]
    for k in range(length):  # a line feed is in no key, so nothing behind it is read
        if data[at + 1 + k] != _KEYS[_FIRST[which] + k]:
            return -1
    return which if data[at + 1 + length] == _QUOTE else -1


@njit(
    types.UniTuple(int64, 2)(_u1, int64), cache=True, nogil=True, inline="always"
)  # pragma: no cover
def _number(data, at):  # type: ignore[no-untyped-def]
    """A whole number of at most 15 digits, and where it ends; _NONE where there is none."""
    negative = data[at] == _MINUS
    if negative:
        at += 1
    begin, value = at, np.int64(0)
    while at - begin < 16:
        digit = np.int64(data[at]) - _ZERO
        if digit < 0 or digit > 9:
            break
        value = 10 * value + digit
        at += 1
    digits = at - begin
    if digits == 0 or digits > 15 or (digits > 1 and data[begin] == _ZERO):
        return _NONE, at
    return (-value if negative else value), at


@njit(int64(_u1, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _two(data, at):  # type: ignore[no-untyped-def]
    """Two digits as a number, or one beyond all that fits."""
    a, b = np.int64(data[at]) - _ZERO, np.int64(data[at + 1]) - _ZERO
    return 10 * a + b if 0 <= a <= 9 and 0 <= b <= 9 else np.int64(1000)


@njit(int64(_u1, int64, int64), cache=True, nogil=True)  # pragma: no cover
def _ahead(data, at, length):  # type: ignore[no-untyped-def]
    """What the time is ahead of UTC [s], by the Z or offset at its end, or _NONE."""
    if length == 20:
        return np.int64(0) if data[at] == _Z else _NONE
    hours, minutes = _two(data, at + 1), _two(data, at + 4)
    if data[at + 3] != _COLON or hours > 23 or minutes > 59:
        return _NONE
    if data[at] == _PLUS:
        return hours * 3600 + minutes * 60
    return -(hours * 3600 + minutes * 60) if data[at] == _MINUS else _NONE


@njit(int64(_u1, int64, int64), cache=True, nogil=True)  # pragma: no cover
def _instant(data, at, end):  # type: ignore[no-untyped-def]
    """A time in seconds since 1970, or _NONE."""
    length = end - at
    if length != 20 and length != 25:
        return _NONE
    if data[at + 4] != _MINUS or data[at + 7] != _MINUS or data[at + 10] != _T:
        return _NONE
    if data[at + 13] != _COLON or data[at + 16] != _COLON:
        return _NONE
    century, rest, month, day = (
        _two(data, at), _two(data, at + 2), _two(data, at + 5), _two(data, at + 8)
    )  # fmt: skip
    hour, minute, second = _two(data, at + 11), _two(data, at + 14), _two(data, at + 17)
    if century > 99 or rest > 99 or hour > 23 or minute > 59 or second > 59:
        return _NONE
    if month < 1 or month > 12:
        return _NONE
    year = 100 * century + rest
    leap = month == 2 and ((year % 4 == 0 and year % 100 != 0) or year % 400 == 0)
    if day < 1 or day > _DAYS[month] + leap:
        return _NONE
    ahead = _ahead(data, at + 19, length)
    if ahead == _NONE:
        return _NONE
    y = year - (month < 3)  # the year begins in March, so that the leap day is its last
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = 365 * y + y // 4 - y // 100 + y // 400 + day_of_year - 719_468
    return days * 86_400 + hour * 3600 + minute * 60 + second - ahead


@njit(int64(_u1, int64), cache=True, nogil=True, inline="always")  # pragma: no cover
def _text_end(data, at):  # type: ignore[no-untyped-def]
    """Where the quote stands that closes a text of plain characters; -1 where it has others."""
    while True:
        if not _PLAIN[data[at]]:
            return at if data[at] == _QUOTE else -1
        at += 1


@njit(
    int64(_u1, int64, int64, types.Array(int64, 1, "C", readonly=True), int64, int64[:, ::1],
          int64[::1]),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def _value(data, at, which, limits, row, found, id_end):  # type: ignore[no-untyped-def]
    """Read the value of a key into its place; where it ends, -1 where it is not plain."""
    low, high = limits[2 * which], limits[2 * which + 1]
    if which == DURATION or which == WH:  # noqa: SIM109
        value, at = _number(data, at)
    else:
        if data[at] != _QUOTE:
            return -1
        end = _text_end(data, at + 1)
        if end < 0:
            return -1
        if which == METER:
            value = end - at - 1
            if value > 0 and (data[at + 1] == _SPACE or data[end - 1] == _SPACE):
                return -1
            id_end[row] = end
        else:
            value = _instant(data, at + 1, end)
        begin, at = at + 1, end + 1
    if value < low or value > high:
        return -1
    found[which, row] = begin if which == METER else value
    return at


@njit(
    int64(_u1, int64, types.Array(int64, 1, "C", readonly=True), int64, int64[:, ::1], int64[::1]),
    cache=True,
    nogil=True,
)  # pragma: no cover
def _line(data, at, limits, row, found, id_end):  # type: ignore[no-untyped-def]
    """Read a plain line; where its line feed stands, -1 where it is not plain."""
    at = _past_space(data, at)
    if data[at] != _BRACE:
        return -1
    seen = 0
    while True:  # over the members; the brace or comma before each is at `at`
        at = _past_space(data, at + 1)
        which = _key(data, at)
        if which < 0 or seen & (1 << which):
            return -1
        seen |= 1 << which
        at = _past_space(data, at + 2 + _FIRST[which + 1] - _FIRST[which])
        if data[at] != _COLON:
            return -1
        at = _value(data, _past_space(data, at + 1), which, limits, row, found, id_end)
        if at < 0:
            return -1
        at = _past_space(data, at)
        if data[at] != _COMMA:
            break
    if data[at] != _CLOSE or seen != _ALL:
        return -1
    at = _past_space(data, at + 1)
    return at if data[at] == _NEWLINE else -1


@njit(
    types.UniTuple(int64, 2)(
        _u1, types.Array(int64, 1, "C", readonly=True), int64, int64[::1], int64[:, ::1],
        int64[::1], int64[:, ::1],
    ),
    cache=True, nogil=True,
)  # fmt: skip  # pragma: no cover
def plain_lines(data, limits, longest, line, found, id_end, odd):  # type: ignore[no-untyped-def]
    """Read the plain lines of `data`, whole lines with a line feed behind each.

    The i-th plain one has the number `line[i]`, counted from 0, the values `found[:, i]` and an id
    from `found[METER, i]` to `id_end[i]`. `limits` are the least and most of each value, of the
    id's length and of the start [s] too. A line beyond `longest` bytes is not plain. The i-th other
    line has the number `odd[0, i]` and stands from `odd[1, i]` to `odd[2, i]`. Returns how many
    there are of each.
    """
    at, number, plain, others = 0, 0, 0, 0
    while at < data.size:
        end = _line(data, at, limits, plain, found, id_end)
        if end >= 0 and end - at <= longest:
            line[plain] = number
            plain += 1
        else:
            end = at
            while data[end] != _NEWLINE:
                end += 1
            odd[0, others], odd[1, others], odd[2, others] = number, at, end
            others += 1
        at = end + 1
        number += 1
    return plain, others
