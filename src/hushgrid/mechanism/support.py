"""Possible states -> protected houses kappa (Algorithm 1, lines 3 to 7).

Nothing here depends on data: the answer for every step is known before the first reading
(docs/proofs/support.md). Houses that no rule distinguishes form one group, so the work does not
grow with houses that share chains and densities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgrid._numbers import Bools, Int16s, Int32s, Ints, UInt8s, brief, is_whole
from hushgrid.errors import ModelError
from hushgrid.mechanism.policy import BlockRule, ModelsRule, Policy
from hushgrid.model.occupancy import (
    FEW_STATES,
    MAX_BLOCK,
    OccupancyModel,
    check_models,
    possible_states,
)

# ---- flips of a block


_FEW = 64  # definite changes a block may list one by one


@dataclass(frozen=True, slots=True)
class Flip:
    """Houses of a block that change their occupancy together.

    Bits count from the right, houses from the left.

    Attributes:
        differ: Bits of the houses that change.
        from_state: Their bits before the change.
        exact: Whether this direction alone is meant; else any direction.
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
    """The flips of a block: the pairs of states that must be indistinguishable.

    Few flips are listed one by one; many are covered by the largest sets of houses that can differ.

    Args:
        possible: One byte for each state of the block, non-zero where it is possible.
        rule: `block`: every pair of possible states (bounds what is learnt about one house under
            any correlation inside the block; docs/proofs/blocks.md); `minimal`: pairs with no
            possible state strictly between them (original Blowfish); `paper`: pairs that differ
            in one house.

    Returns:
        The flips.

    >>> flips(bytes([1, 0, 0, 1]), "block")
    (Flip(differ=3, from_state=0, exact=True),)
    >>> flips(bytes([1, 0, 0, 1]), "paper")
    ()
    """
    states = np.flatnonzero(np.frombuffer(possible, np.uint8))
    differ = states[:, None] ^ states[None, :]
    pairs = {
        "block": _all_pairs,
        "minimal": _minimal_pairs,
        "paper": _one_house_pairs,
    }[rule](differ, len(possible))
    rows, columns = np.nonzero(pairs & (states[:, None] < states[None, :]))
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
    maximal: list[int] = []
    for d in sorted(sets, key=lambda d: (-d.bit_count(), d)):
        if not any(d & ~k == 0 for k in maximal):
            maximal.append(d)
    return maximal


# ---- groups of equivalent houses


def grouped(labels: Sequence[Int32s]) -> tuple[Int32s, int]:
    """Number the distinct combinations of labels, in time and memory linear in houses.

    Args:
        labels: Arrays of labels, (N,) each.

    Returns:
        The group of each house, (N,), and the number of groups.
    """
    group, count = np.zeros(len(labels[0]), np.int32), 1
    for label in labels:
        low = int(label.min())
        width = int(label.max()) - low + 1
        if width == 1:
            continue
        span = count * width
        kind = np.int32 if span < 2**31 else np.int64
        combined: NDArray[Any] = group.astype(kind)
        combined *= width
        combined += label
        combined -= low
        if span <= 4 * len(group) + 65536:
            present = np.zeros(span, np.bool_)
            present[combined] = True
            number = np.cumsum(present, dtype=np.int32) - np.int32(1)
            group, count = number[combined], int(present.sum())
        else:
            distinct, inverse = np.unique(combined, return_inverse=True)
            group, count = inverse.astype(np.int32), len(distinct)
    return group, count


def largest_of_groups(group_of: Int32s, count: int, bound: Int32s) -> Int32s:
    """The first house with the largest bound of each group.

    Args:
        group_of: Group of each house, (N,).
        count: Number of groups.
        bound: Bound of each house, (N,) [Wh].

    Returns:
        (groups,) house numbers.
    """
    top = np.full(count, -1, np.int32)
    np.maximum.at(top, group_of, bound)
    largest = np.zeros(count, np.int32)
    houses = np.flatnonzero(bound == top[group_of])[::-1].astype(np.int32)
    largest[group_of[houses]] = houses
    return largest


# ---- blocks of several models


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Houses that some model of a context moves jointly, with each model's own blocks inside.

    Attributes:
        houses: House numbers, rising.
        parts: For each model its blocks inside, as (piece, chain, positions in `houses`).
    """

    houses: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int, tuple[int, ...]], ...], ...]  # (piece, chain, axes) a model

    def possible(
        self, context: tuple[int, ...], states_of: Sequence[tuple[Bools, ...]]
    ) -> tuple[Bools, int | None]:
        """States possible under any model of the context; the model, if one allows all of them."""
        m = len(self.houses)
        masks = []
        for theta, parts in zip(context, self.parts, strict=True):
            states = np.ones((2,) * m, np.bool_)
            for piece, chain, axes in parts:
                mask = states_of[theta][piece][chain].reshape((2,) * len(axes))
                order = np.argsort(axes)
                shape = [2 if axis in axes else 1 for axis in range(m)]
                states &= mask.transpose(order).reshape(shape)
            masks.append(states.ravel())
        union = np.logical_or.reduce(masks)
        alone = [theta for theta, mask in zip(context, masks, strict=True) if (mask == union).all()]
        return union, alone[0] if alone else None


def joined_blocks(models: Sequence[OccupancyModel]) -> list[Joined]:
    """The finest blocks, of two houses or more, that contain every model's blocks.

    Args:
        models: The occupancy models of one context.

    Returns:
        The joined blocks.

    Raises:
        ModelError: If a joined block has more than MAX_BLOCK houses.
    """
    root: dict[int, int] = {}

    def find(house: int) -> int:
        while root.setdefault(house, house) != house:
            root[house] = house = root[root[house]]
        return house

    for model in models:
        for piece in model.chains:
            if piece.size > 1:
                for first, *mates in piece.members.tolist():
                    for member in mates:
                        root[find(member)] = find(first)
    members: dict[int, list[int]] = {}
    for house in root:
        members.setdefault(find(house), []).append(house)
    groups = [tuple(sorted(houses)) for houses in members.values() if len(houses) > 1]
    for houses in groups:
        if len(houses) > MAX_BLOCK:
            raise ModelError(
                f"blocks of the models overlap into one of {len(houses)} houses (house {houses[0]}"
                f" among them); give models whose blocks join to at most {MAX_BLOCK}."
            )
    if not groups:
        return []
    place = {house: (g, i) for g, houses in enumerate(groups) for i, house in enumerate(houses)}
    parts: list[list[list[tuple[int, int, tuple[int, ...]]]]] = [
        [[] for _ in models] for _ in groups
    ]
    for m, model in enumerate(models):
        for p, piece in enumerate(model.chains):
            for b in np.flatnonzero(np.isin(piece.members[:, 0], list(place))).tolist():
                spots = [place[house] for house in piece.members[b].tolist()]
                axes = tuple(i for _, i in spots)
                parts[spots[0][0]][m].append((p, int(piece.chain_of[b]), axes))
    return [
        Joined(houses, tuple(tuple(model_parts) for model_parts in parts[g]))
        for g, houses in enumerate(groups)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Protected:
    """The set kappa of houses whose occupancy the public cannot know.

    Attributes:
        count: Number of protected houses.
    """

    _groups: UInt8s  # packed bits, one a group
    _group_of: Int32s
    _others: frozenset[int]  # houses of blocks
    count: int

    __repr__ = brief

    def mask(self) -> Bools:
        """One Boolean a house."""
        bits = np.unpackbits(self._groups, count=int(self._group_of.max()) + 1).astype(np.bool_)
        inside = bits[self._group_of]
        if self._others:
            inside[list(self._others)] = True
        return inside

    def __or__(self, other: Protected) -> Protected:
        union = Protected(
            self._groups | other._groups, self._group_of, self._others | other._others, 0
        )
        return replace(union, count=int(union.mask().sum()))

    def __len__(self) -> int:
        return self.count

    def __contains__(self, house: int) -> bool:
        group = int(self._group_of[house])
        return house in self._others or bool(self._groups[group >> 3] >> (7 - group % 8) & 1)


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """What is uncertain at one step: groups of single houses, and flips of blocks.

    Attributes:
        groups: Whether the occupancy of each group is uncertain, (groups,).
        model_of: Number of the theta that leaves each group uncertain; -1: only several together.
        blocks: For each uncertain block its number, its theta (or None) and its flips.
    """

    groups: Bools
    model_of: Int16s  # theta that leaves a group open; -1: only several together
    blocks: tuple[tuple[int, int | None, tuple[Flip, ...]], ...]  # (block, theta, flips)

    def key(self) -> bytes:
        """A digest of what is uncertain, to recognise it again."""
        h = hashlib.sha256(self.groups.tobytes())
        h.update(self.model_of.tobytes())
        h.update(repr(self.blocks).encode())
        return h.digest()


class Support:
    """The possible states of Theta by groups of houses, one `Open` a step.

    Args:
        models: The occupancy models Theta.
        class_of: Density class of each house, (N,).
        bound: Bound of each house, (N,) [Wh].
        blocks: How correlated houses count.
        models_rule: How several models count.
    """

    def __init__(
        self,
        models: Sequence[OccupancyModel],
        class_of: Int32s,
        bound: Int32s,
        blocks: BlockRule,
        models_rule: ModelsRule,
    ) -> None:
        self.models = check_models(models, len(bound))
        self._block_rule = blocks
        self.bound = bound
        self._single = [_single_chains(model) for model in self.models]
        self.group_of, n_groups = grouped([*self._single, class_of])
        self.largest = largest_of_groups(self.group_of, n_groups, bound)
        self.sizes = np.bincount(self.group_of, minlength=n_groups).astype(np.int32)
        self.class_of_group = class_of[self.largest]
        self._chain = [single[self.largest] for single in self._single]
        thetas = range(len(self.models))
        self._contexts = (
            [tuple(thetas)] if models_rule == "union" else [(theta,) for theta in thetas]
        )
        self.joined = [
            joined_blocks([self.models[theta] for theta in context]) for context in self._contexts
        ]
        self._offsets = np.cumsum([0, *(len(blocks) for blocks in self.joined)])

    def block(self, number: int) -> tuple[int, ...]:
        """The houses of joined block `number`."""
        context = int(np.searchsorted(self._offsets, number, side="right")) - 1
        return self.joined[context][number - int(self._offsets[context])].houses

    @property
    def has_blocks(self) -> bool:
        """Whether any model moves houses jointly."""
        return int(self._offsets[-1]) > 0

    def all_blocks(self) -> tuple[tuple[int, ...], ...]:
        """The houses of every joined block."""
        return tuple(self.block(number) for number in range(int(self._offsets[-1])))

    def largest_block(self) -> int:
        """The largest sum of bounds of a joined block [Wh]; 0 without blocks."""
        blocks = [list(self.block(number)) for number in range(int(self._offsets[-1]))]
        return max((int(self.bound[houses].sum(dtype=np.int64)) for houses in blocks), default=0)

    def all_open(self) -> Open:
        """Every state possible, every house protected: for a step at which nothing is uncertain."""
        open_blocks = tuple(
            (number, None, flips(bytes([1]) * 2 ** len(self.block(number)), self._block_rule))
            for number in range(int(self._offsets[-1]))
        )
        contexts = range(len(self._contexts))
        singles = np.logical_and.reduce([self._in_context(c) for c in contexts])
        return Open(singles, np.full(len(singles), -1, np.int16), open_blocks)

    def steps(self) -> Iterator[Open]:
        """What is uncertain at t = 1, 2, ..., without end."""
        is_small = len(self.largest) <= FEW_STATES and all(
            sum(piece.initial.size for piece in model.chains) <= FEW_STATES for model in self.models
        )
        cache: dict[tuple[int, ...], tuple[object, Open]] = {}  # keeps alive what it is found by
        for states in zip(*(possible_states(model) for model in self.models), strict=True):
            key = tuple(map(id, states)) if is_small else ()
            if key in cache:
                yield cache[key][1]
                continue
            opened = self._opened(states)
            if is_small:
                cache[key] = (states, opened)
            yield opened

    def _opened(self, states: Sequence[tuple[Bools, ...]]) -> Open:
        """What is uncertain when these states are possible."""
        groups = np.zeros(len(self.largest), np.bool_)
        model_of = np.full(len(self.largest), -1, np.int16)
        blocks: list[tuple[int, int | None, tuple[Flip, ...]]] = []
        for c, context in enumerate(self._contexts):
            opened, by = self._open_groups(c, context, states)
            model_of = np.where(opened & (model_of < 0), by, model_of).astype(np.int16)
            groups |= opened
            for b, joined in enumerate(self.joined[c]):
                possible, theta = joined.possible(context, states)
                if block_flips := flips(possible.tobytes(), self._block_rule):
                    blocks.append((int(self._offsets[c]) + b, theta, block_flips))
        return Open(groups, model_of, tuple(blocks))

    def _in_context(self, c: int) -> Bools:
        """Groups of houses that are blocks of one under every model of a context."""
        alone = [self._chain[theta] >= 0 for theta in self._contexts[c]]
        return np.asarray(np.logical_and.reduce(alone))

    def _open_groups(
        self, c: int, context: tuple[int, ...], states: Sequence[tuple[Bools, ...]]
    ) -> tuple[Bools, Int16s]:
        marks = np.zeros(len(self.largest), np.uint8)  # bit 0: absent is possible, bit 1: present
        by = np.full(len(marks), -1, np.int16)
        for theta in reversed(context):  # the first theta that leaves a group open stays
            piece = _single_piece(self.models[theta])
            if piece is None:
                continue
            possible = states[theta][piece]
            mask = (possible[:, 0] + 2 * possible[:, 1]).astype(np.uint8)[self._chain[theta]]
            np.copyto(by, np.int16(theta), where=mask == 3)
            marks |= mask
        return (marks == 3) & self._in_context(c), by

    def protected(self, opened: Open) -> Protected:
        """kappa as a set of houses."""
        block_houses: set[int] = set()
        for number, _, block_flips in opened.blocks:
            houses = self.block(number)
            block_houses.update(h for flip in block_flips for h in flip.pick(houses))
        n_block_houses = len(block_houses)
        if block_houses and opened.groups.any():
            n_block_houses = sum(not opened.groups[self.group_of[h]] for h in block_houses)
        count = int(self.sizes[opened.groups].sum(dtype=np.int64)) + n_block_houses
        return Protected(np.packbits(opened.groups), self.group_of, frozenset(block_houses), count)


def protected(
    models: Sequence[OccupancyModel],
    t: int,
    *,
    blocks: BlockRule = "block",
    models_rule: ModelsRule = "union",
) -> Bools:
    """kappa^t: for each house, whether the public cannot know its occupancy at step t.

    See: docs/proofs/support.md.

    Args:
        models: The occupancy models Theta.
        t: The step, from 1.
        blocks: How correlated houses count.
        models_rule: How several models count.

    Returns:
        (N,) Booleans.

    Raises:
        ModelError: If t is not a whole number from 1 on.

    >>> stay = [[1.0, 0.0], [0.0, 1.0]]
    >>> theta = OccupancyModel.factored([[1.0, 0.0], [0.5, 0.5]], [[stay, stay]])
    >>> protected([theta], t=5)
    array([False,  True])
    """
    if not models:
        check_models(models, 0)
    Policy(1.0, blocks=blocks, models=models_rule)  # refuses a rule that is none
    if not is_whole(t) or t < 1:
        raise ModelError(f"step t is {t}; steps count from 1.")
    n = models[0].n_houses
    zeros = np.zeros(n, np.int32)
    support = Support(models, zeros, zeros, blocks, models_rule)
    return support.protected(next(islice(support.steps(), int(t) - 1, None))).mask()


def _single_piece(model: OccupancyModel) -> int | None:
    return next((p for p, piece in enumerate(model.chains) if piece.size == 1), None)


def _single_chains(model: OccupancyModel) -> Int32s:
    """Each house's chain if it is a block of its own, else -1."""
    piece = _single_piece(model)
    if piece is None:
        return np.full(model.n_houses, -1, np.int32)
    single = model.chains[piece]
    if len(model.chains) == 1 and (np.diff(single.members[:, 0]) == 1).all():
        return single.chain_of
    chains = np.full(model.n_houses, -1, np.int32)
    chains[single.members[:, 0]] = single.chain_of
    return chains
