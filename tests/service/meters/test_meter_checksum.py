"""XXH64 against the published values, and against its specification in whole numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.service.meters._earlier import xxh64

P = (
    11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
    2870177450012600261,
)  # fmt: skip
M = 2**64


def rotl(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) % M


def lane(acc: int, word: int) -> int:
    return rotl((acc + word * P[1]) % M, 31) * P[0] % M


def specified(data: bytes, seed: int = 0) -> int:
    """Step by step as in doc/xxhash_spec.md."""
    at, size = 0, len(data)
    if size < 32:
        acc = (seed + P[4]) % M
    else:
        accs = [(seed + P[0] + P[1]) % M, (seed + P[1]) % M, seed, (seed - P[0]) % M]
        while at + 32 <= size:
            words = [int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
            accs = [lane(a, w) for a, w in zip(accs, words, strict=True)]
            at += 32
        acc = sum(rotl(a, bits) for a, bits in zip(accs, (1, 7, 12, 18), strict=True)) % M
        for a in accs:
            acc = ((acc ^ lane(0, a)) * P[0] + P[3]) % M
    acc = (acc + size) % M
    while at + 8 <= size:
        acc ^= lane(0, int.from_bytes(data[at : at + 8], "little"))
        acc, at = (rotl(acc, 27) * P[0] + P[3]) % M, at + 8
    if at + 4 <= size:
        acc ^= int.from_bytes(data[at : at + 4], "little") * P[0] % M
        acc, at = (rotl(acc, 23) * P[1] + P[2]) % M, at + 4
    for byte in data[at:]:
        acc = rotl(acc ^ (byte * P[4] % M), 11) * P[0] % M
    acc = (acc ^ (acc >> 33)) * P[1] % M
    acc = (acc ^ (acc >> 29)) * P[2] % M
    return acc ^ (acc >> 32)


@pytest.mark.parametrize(
    ("data", "golden"),  # xxhsum -H64 of these texts
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_published_values(data: bytes, golden: int) -> None:
    assert xxh64(data, 0) == specified(data) == golden


@given(st.binary(max_size=200), st.integers(0, M - 1))
def test_as_specified(data: bytes, seed: int) -> None:
    assert xxh64(data, seed) == specified(data, seed)
