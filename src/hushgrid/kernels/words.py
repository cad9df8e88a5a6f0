"""Memory by its address, eight bytes at a time; the first byte of a word is its lowest.

Compiled functions count who holds an array they are given, which costs more than to look at a few
bytes of it; an address is a number. Whoever asks for one keeps the array alive meanwhile.

A mark is a word with the top bit of some bytes set; only its lowest one is exact, as a borrow or a
carry can spill into the bytes above. What uses these functions is compiled into its own file and
knows only the age of that: touch it too when this one changes.
"""
# ruff: noqa: ARG001  numba gives each intrinsic what it may need

import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, njit, types

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
    """Whether `length` bytes agree; up to 7 bytes behind them are looked at."""
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
    """Of `length` bytes before `end` the last, which fill no word; no others are looked at."""
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
