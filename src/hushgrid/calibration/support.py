"""Possible states -> protected houses kappa (Algorithm 1, lines 3 to 7).

Nothing here depends on data: the answer for every step is known before the first reading
(docs/proofs/support.md). Houses that no rule can tell apart are handled as one group, so the work
does not grow with houses that share chains and densities.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hushgrid.arrays import Bools, Int16s, Int32s, UInt8s
from hushgrid.calibration.flips import Flip, flips
from hushgrid.calibration.groups import grouped, largest_of_groups
from hushgrid.calibration.joined import joined_blocks
from hushgrid.calibration.unlikely import Unlikely
from hushgrid.checks import is_whole
from hushgrid.errors import ModelError
from hushgrid.occupancy import FEW_STATES, OccupancyModel, check_models, possible_states
from hushgrid.policy import BlockRule, ModelsRule, Policy


@dataclass(frozen=True, slots=True, eq=False)
class Protected:
    """The set kappa of houses whose occupancy the public cannot know."""

    _groups: UInt8s  # packed bits, one a group
    _group_of: Int32s
    _others: frozenset[int]  # houses of blocks
    count: int

    def mask(self) -> Bools:
        """One Boolean a house."""
        bits = np.unpackbits(self._groups, count=int(self._group_of.max()) + 1).astype(np.bool_)
        inside = bits[self._group_of]
        if self._others:
            inside[list(self._others)] = True
        return inside

    def __len__(self) -> int:
        return self.count

    def __contains__(self, house: int) -> bool:
        group = int(self._group_of[house])
        return house in self._others or bool(self._groups[group >> 3] >> (7 - group % 8) & 1)


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """What is open at one step: groups of single houses, and how blocks can flip."""

    groups: Bools
    model_of: Int16s  # theta that leaves a group open; -1: only several together
    blocks: tuple[tuple[int, int | None, tuple[Flip, ...]], ...]  # (block, theta, flips)

    def mark(self) -> bytes:
        """A short name for what is open, to recognise it again."""
        h = hashlib.sha256(self.groups.tobytes())
        h.update(self.model_of.tobytes())
        h.update(repr(self.blocks).encode())
        return h.digest()


class Support:
    """The possible states of Theta folded into groups, one `Open` a step."""

    def __init__(
        self,
        models: Sequence[OccupancyModel],
        class_of: Int32s,
        bound: Int32s,
        blocks: BlockRule,
        together: ModelsRule,
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
        self._contexts = [tuple(thetas)] if together == "union" else [(theta,) for theta in thetas]
        self.joined = [
            joined_blocks([self.models[theta] for theta in context]) for context in self._contexts
        ]
        self._offsets = np.cumsum([0, *(len(blocks) for blocks in self.joined)])

    def unlikely(self) -> Unlikely:
        """Who may leave the protected set under a probabilistic constraint."""
        pieces = [_single_piece(model) for model in self.models]
        return Unlikely(self.models, pieces, self._chain)

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
        """The most that the houses of one joined block can add together [Wh]; 0 without blocks."""
        blocks = [list(self.block(number)) for number in range(int(self._offsets[-1]))]
        return max((int(self.bound[houses].sum(dtype=np.int64)) for houses in blocks), default=0)

    def everything(self) -> Open:
        """Every state possible, so every house protected: for a step that leaves nothing open."""
        whole = tuple(
            (number, None, flips(bytes([1]) * 2 ** len(self.block(number)), self._block_rule))
            for number in range(int(self._offsets[-1]))
        )
        contexts = range(len(self._contexts))
        singles = np.logical_and.reduce([self._in_context(c) for c in contexts])
        return Open(singles, np.full(len(singles), -1, np.int16), whole)

    def steps(self) -> Iterator[Open]:
        """Endless: what is open at t = 1, 2, ..."""
        few = len(self.largest) <= FEW_STATES and all(
            sum(piece.initial.size for piece in model.chains) <= FEW_STATES for model in self.models
        )
        met: dict[tuple[int, ...], tuple[object, Open]] = {}  # keeps alive what it is found by
        for now in zip(*(possible_states(model) for model in self.models), strict=True):
            key = tuple(map(id, now)) if few else ()
            if key in met:
                yield met[key][1]
                continue
            opened = self._opened(now)
            if few:
                met[key] = (now, opened)
            yield opened

    def _opened(self, now: Sequence[tuple[Bools, ...]]) -> Open:
        """What is open when these states are possible."""
        groups = np.zeros(len(self.largest), np.bool_)
        model_of = np.full(len(self.largest), -1, np.int16)
        blocks: list[tuple[int, int | None, tuple[Flip, ...]]] = []
        for c, context in enumerate(self._contexts):
            opened, by = self._open_groups(c, context, now)
            model_of = np.where(opened & (model_of < 0), by, model_of).astype(np.int16)
            groups |= opened
            for b, joined in enumerate(self.joined[c]):
                possible, theta = joined.possible(context, now)
                if found := flips(possible.tobytes(), self._block_rule):
                    blocks.append((int(self._offsets[c]) + b, theta, found))
        return Open(groups, model_of, tuple(blocks))

    def _in_context(self, c: int) -> Bools:
        """Groups of houses that stand alone under every model of a context."""
        alone = [self._chain[theta] >= 0 for theta in self._contexts[c]]
        return np.asarray(np.logical_and.reduce(alone))

    def _open_groups(
        self, c: int, context: tuple[int, ...], now: Sequence[tuple[Bools, ...]]
    ) -> tuple[Bools, Int16s]:
        seen = np.zeros(len(self.largest), np.uint8)  # bit 0: absent is possible, bit 1: present
        by = np.full(len(seen), -1, np.int16)
        for theta in reversed(context):  # the first theta that leaves a group open stays
            piece = _single_piece(self.models[theta])
            if piece is None:
                continue
            possible = now[theta][piece]
            own = (possible[:, 0] + 2 * possible[:, 1]).astype(np.uint8)[self._chain[theta]]
            np.copyto(by, np.int16(theta), where=own == 3)
            seen |= own
        return (seen == 3) & self._in_context(c), by

    def protected(self, opened: Open) -> Protected:
        """kappa as a set of houses."""
        others: set[int] = set()
        for number, _, found in opened.blocks:
            houses = self.block(number)
            others.update(h for flip in found for h in flip.pick(houses))
        others_counted = len(others)
        if others and opened.groups.any():
            others_counted = sum(not opened.groups[self.group_of[h]] for h in others)
        count = int(self.sizes[opened.groups].sum(dtype=np.int64)) + others_counted
        return Protected(np.packbits(opened.groups), self.group_of, frozenset(others), count)


def protected(
    models: Sequence[OccupancyModel],
    t: int,
    *,
    blocks: BlockRule = "block",
    together: ModelsRule = "union",
) -> Bools:
    """kappa^t: for each house, whether the public cannot know its occupancy at step t.

    >>> stay = [[1.0, 0.0], [0.0, 1.0]]
    >>> theta = OccupancyModel.factored([[1.0, 0.0], [0.5, 0.5]], [[stay, stay]])
    >>> protected([theta], t=5)
    array([False,  True])
    """
    if not models:
        check_models(models, 0)
    Policy(1.0, blocks=blocks, models=together)  # refuses a rule that is none
    if not is_whole(t) or t < 1:
        raise ModelError(f"step t is {t}; steps count from 1.")
    n = models[0].n_houses
    alike = np.zeros(n, np.int32)
    support = Support(models, alike, alike, blocks, together)
    return support.protected(next(islice(support.steps(), int(t) - 1, None))).mask()


def _single_piece(model: OccupancyModel) -> int | None:
    return next((p for p, piece in enumerate(model.chains) if piece.size == 1), None)


def _single_chains(model: OccupancyModel) -> Int32s:
    """Each house's chain if it stands alone, else -1."""
    piece = _single_piece(model)
    if piece is None:
        return np.full(model.n_houses, -1, np.int32)
    single = model.chains[piece]
    if len(model.chains) == 1 and (np.diff(single.members[:, 0]) == 1).all():
        return single.chain_of
    chains = np.full(model.n_houses, -1, np.int32)
    chains[single.members[:, 0]] = single.chain_of
    return chains
