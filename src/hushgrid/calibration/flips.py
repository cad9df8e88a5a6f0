"""How the states of one block can differ: the pairs that must look alike, by rule.

block    every pair of possible states (bounds what is learnt about one house under any
         correlation inside the block; docs/proofs/blocks.md)
minimal  pairs with no possible state strictly between them (original Blowfish)
paper    pairs that differ in one house
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hushgrid.arrays import Bools, Ints
from hushgrid.policy import BlockRule

_FEW = 64  # definite changes a block may list one by one


@dataclass(frozen=True, slots=True)
class Flip:
    """Houses (bits of `differ`) that change, from their bits in `from_state`.

    Bits count from the right, houses from the left. Not `exact`: any direction is meant.
    """

    differ: int
    from_state: int
    exact: bool

    def pick(self, houses: Sequence[int]) -> tuple[int, ...]:
        """Those of a block's houses that change."""
        m = len(houses)
        return tuple(h for i, h in enumerate(houses) if self.differ >> (m - 1 - i) & 1)

    def start(self) -> tuple[int, ...]:
        """Occupancy of the changing houses before the change."""
        bits = range(self.differ.bit_length() - 1, -1, -1)
        return tuple(self.from_state >> i & 1 for i in bits if self.differ >> i & 1)


@lru_cache(maxsize=4096)
def flips(possible: bytes, rule: BlockRule) -> tuple[Flip, ...]:
    """The flips of a block whose possible states are the non-zero bytes of `possible`.

    Few are listed one by one; many are covered by the largest sets of houses that can differ.

    >>> flips(bytes([1, 0, 0, 1]), "block")
    (Flip(differ=3, from_state=0, exact=True),)
    >>> flips(bytes([1, 0, 0, 1]), "paper")
    ()
    """
    states = np.flatnonzero(np.frombuffer(possible, np.uint8))
    differ = states[:, None] ^ states[None, :]
    chosen = {
        "block": _all_pairs,
        "minimal": _minimal_pairs,
        "paper": _one_house_pairs,
    }[rule](differ, len(possible))
    rows, columns = np.nonzero(chosen & (states[:, None] < states[None, :]))
    changed = differ[rows, columns]
    start = states[rows] & changed  # the smaller state: its highest changing house is absent
    distinct = np.unique(np.stack([changed, start], axis=1), axis=0).tolist()
    if len(distinct) <= _FEW:
        return tuple(Flip(d, s, True) for d, s in distinct)
    return tuple(Flip(d, 0, False) for d in _maximal({d for d, _ in distinct}))


def _all_pairs(differ: Ints, _: int) -> Bools:
    return np.asarray(differ != 0)


def _one_house_pairs(differ: Ints, _: int) -> Bools:
    return np.asarray((differ != 0) & (differ & (differ - 1) == 0))


def _minimal_pairs(differ: Ints, n_states: int) -> Bools:
    """Row a, difference d: minimal when no other difference from a lies inside d."""
    inside = np.zeros((len(differ), n_states), np.int64)  # differences from a contained in a set
    np.put_along_axis(inside, differ, 1, axis=1)
    inside[:, 0] = 0
    for bit in range(n_states.bit_length() - 1):
        sets = np.arange(n_states)
        having = sets[sets >> bit & 1 == 1]
        inside[:, having] += inside[:, having ^ (1 << bit)]
    return np.asarray((np.take_along_axis(inside, differ, axis=1) == 1) & (differ != 0))


def _maximal(sets: Iterable[int]) -> list[int]:
    kept: list[int] = []
    for d in sorted(sets, key=lambda d: (-d.bit_count(), d)):
        if not any(d & ~k == 0 for k in kept):
            kept.append(d)
    return kept
