"""Calendars and occupancy models theta = (Pi, A^t) (paper II-B).

Houses move in independent blocks. A block of m houses has 2^m states; the first house of the
block is the most significant bit, so states read 00, 01, 10, 11. A factored model has blocks of
one house, a full joint model has one block. Blocks of equal behaviour share a chain, so a million
houses need no million matrices.

Steps are t = 1, 2, ...; a calendar maps each to a slot. Pi is the law of step 1; A^t leads into
step t, and is that of the slot of step t.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import Bools, Floats, Int32s, brief, float_array, index_array
from hushgrid.errors import ModelError

STEPS_PER_DAY = 96


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Calendar:
    """A repeating pattern of slots; step t has slot `slots[(t - 1) mod len(slots)]`.

    Args:
        slots: Slot numbers from 0, (period,).

    >>> week = Calendar.week(weekday=[0, 1], weekend=[2, 2])
    >>> len(week.slots), week.slot(1), week.slot(11), week.slot(15)
    (14, 0, 2, 0)
    """

    slots: Int32s

    __repr__ = brief

    def __init__(self, slots: ArrayLike) -> None:
        array = index_array(slots, "calendar", ModelError)
        if array.ndim != 1 or array.size == 0:
            raise ModelError(
                f"calendar has shape {array.shape}; give a non-empty list of slot numbers."
            )
        if array.min() < 0:
            raise ModelError(f"calendar slot {array.min()} is negative; number slots from 0.")
        object.__setattr__(self, "slots", array)

    @classmethod
    def constant(cls) -> Calendar:
        """The same slot at every step."""
        return cls(np.zeros(1, np.int32))

    @classmethod
    def week(cls, *, weekday: Sequence[int], weekend: Sequence[int]) -> Calendar:
        """Five days of one pattern, then two of another; step 1 is the first of a Monday."""
        if len(weekday) != len(weekend):
            raise ModelError(
                f"weekday has {len(weekday)} steps and weekend {len(weekend)};"
                " give days of one length."
            )
        return cls([*weekday] * 5 + [*weekend] * 2)

    def slot(self, t: int) -> int:
        """The slot of step t."""
        return int(self.slots[(t - 1) % len(self.slots)])

    def starting(self, offset: int) -> Calendar:
        """The same pattern `offset` steps later."""
        return Calendar(np.roll(self.slots, -(offset % len(self.slots))))


MAX_BLOCK = 10  # houses; 2^10 states a block
FEW_STATES = 4096  # of all chains together, up to which all sets of states are kept
_ROW_SUM = 1e-9  # how far a row may be from 1 before it is no law


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """The blocks of one size: C distinct chains, and for each block its houses and its chain.

    Attributes:
        initial: Law of step 1, (C, 2^size).
        transition: Transition matrices, (slots, C, 2^size, 2^size); rows are the old state.
        members: House numbers of each block, (blocks, size).
        chain_of: Chain of each block, (blocks,).
    """

    initial: Floats
    transition: Floats
    members: Int32s
    chain_of: Int32s

    @property
    def size(self) -> int:
        """Houses in each block."""
        return int(self.members.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class OccupancyModel:
    """One public model theta of occupancy; build it with `factored`, `blocked` or `joint`.

    Attributes:
        chains: The blocks, one entry for each block size.
        calendar: Slot of each step.
        name: Name in messages.
        n_houses: Number of houses N.
        digest: SHA-256 (hex) of the model's arrays.

    >>> stay = [[0.9, 0.1], [0.2, 0.8]]
    >>> OccupancyModel.factored(initial=[[0.7, 0.3]], transition=[[stay]]).n_houses
    1
    """

    chains: tuple[Chains, ...]
    calendar: Calendar
    name: str = "theta"
    n_houses: int = field(init=False)
    digest: str = field(init=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_houses", _check_members(self.chains, self.name))
        sizes = [piece.size for piece in self.chains]
        if len(set(sizes)) != len(sizes):
            raise ModelError(
                f"model {self.name} has chains for blocks of {sizes} houses; give one a size."
            )
        slots = int(self.calendar.slots.max()) + 1
        for piece in self.chains:
            _check_chains(piece, slots, self.name)
        object.__setattr__(self, "digest", _digest(self))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OccupancyModel)
            and self.digest == other.digest
            and self.name == other.name
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def factored(
        cls,
        initial: ArrayLike,
        transition: ArrayLike,
        *,
        calendar: Calendar | None = None,
        chain_of: ArrayLike | None = None,
        name: str = "theta",
    ) -> OccupancyModel:
        """Independent two-state chains: initial (C, 2), transition (slots, C, 2, 2).

        House i follows chain `chain_of[i]`; without it there is one chain a house.
        """
        pi = _floats(initial, 2, "initial", name)
        labels = np.arange(len(pi)) if chain_of is None else chain_of
        kinds = index_array(labels, f"chain_of of model {name}", ModelError)
        houses = np.arange(kinds.size)[:, None]
        piece = Chains(pi, _floats(transition, 4, "transition", name), _ints(houses), _ints(kinds))
        return cls((piece,), calendar or Calendar.constant(), name)

    @classmethod
    def blocked(
        cls,
        blocks: Sequence[Sequence[int]],
        initial: Sequence[ArrayLike],
        transition: Sequence[ArrayLike],
        *,
        calendar: Calendar | None = None,
        name: str = "theta",
    ) -> OccupancyModel:
        """Block b holds houses `blocks[b]`; initial[b] (2^m,), transition[b] (slots, 2^m, 2^m)."""
        if not len(blocks) == len(initial) == len(transition):
            raise ModelError(
                f"model {name} has {len(blocks)} blocks, {len(initial)} initial laws and"
                f" {len(transition)} transitions; give one of each for every block."
            )
        pieces = []
        for size in sorted({len(block) for block in blocks}):
            _check_size(size, name)
            numbers = [b for b, block in enumerate(blocks) if len(block) == size]
            pi = _stacked([_floats(initial[b], 1, "initial", name) for b in numbers], 0, name)
            a = _stacked([_floats(transition[b], 3, "transition", name) for b in numbers], 1, name)
            houses = index_array(
                [[*blocks[b]] for b in numbers], f"blocks of model {name}", ModelError
            )
            pieces.append(Chains(pi, a, houses, _ints(np.arange(len(numbers)))))
        return cls(tuple(pieces), calendar or Calendar.constant(), name)

    @classmethod
    def joint(
        cls,
        initial: ArrayLike,
        transition: ArrayLike,
        *,
        calendar: Calendar | None = None,
        name: str = "theta",
    ) -> OccupancyModel:
        """All houses move together: initial (2^N,), transition (slots, 2^N, 2^N)."""
        pi = _floats(initial, 1, "initial", name)
        n = max(int(pi.size).bit_length() - 1, 0)
        return cls.blocked([range(n)], [pi], [transition], calendar=calendar, name=name)

    def starting(self, offset: int) -> OccupancyModel:
        """The same model with its calendar `offset` steps later.

        Pi is unchanged: it is the law of the new step 1, not propagated by `offset` steps.
        """
        return replace(self, calendar=self.calendar.starting(offset))

    @property
    def has_zeros(self) -> bool:
        """Whether any state or move is declared impossible."""
        return any((c.initial == 0).any() or (c.transition == 0).any() for c in self.chains)


def possible_states(model: OccupancyModel) -> Iterator[tuple[Bools, ...]]:
    """The possible states of each chain at t = 1, 2, ..., without end.

    They are Booleans, so no evidence and no rounding ever removes a state (Algorithm 1, lines 3 to
    5; docs/proofs/support.md). Where there are few chains, equal states are the same object, so
    that repeating days are recognised by identity.

    Args:
        model: The occupancy model.

    Yields:
        For each block size a (C, 2^size) array: True where the state is possible.
    """
    states = tuple(piece.initial > 0 for piece in model.chains)
    moves = tuple(piece.transition > 0 for piece in model.chains)
    is_small = sum(piece.initial.size for piece in model.chains) <= FEW_STATES
    cache = {_marks(states): states} if is_small else {}
    after: dict[tuple[int, int], tuple[Bools, ...]] = {}  # by slot and what was there before
    t = 1
    while True:
        yield states
        t += 1
        slot = model.calendar.slot(t)
        key = (slot, id(states))
        if key in after:
            states = after[key]
            continue
        states = tuple(
            (possible[:, :, None] & move[slot]).any(axis=1)
            for possible, move in zip(states, moves, strict=True)
        )
        if is_small:
            states = after[key] = cache.setdefault(_marks(states), states)


def _marks(states: tuple[Bools, ...]) -> tuple[bytes, ...]:
    return tuple(mask.tobytes() for mask in states)


def check_models(models: Sequence[OccupancyModel], n_houses: int) -> tuple[OccupancyModel, ...]:
    """Check Theta: at least one model, all of them about the same houses.

    Args:
        models: The models.
        n_houses: Number of houses of the zone.

    Returns:
        The models as a tuple.

    Raises:
        ModelError: If there is no model, or one has another number of houses.
    """
    if isinstance(models, OccupancyModel):
        raise ModelError("models is one model; give a list of models, if only of one.")
    if not models:
        raise ModelError("the set of models is empty; give at least one occupancy model.")
    for model in models:
        if model.n_houses != n_houses:
            raise ModelError(
                f"model {model.name} has {model.n_houses} houses but the zone has {n_houses};"
                " give models of the zone's own houses."
            )
    return tuple(models)


def _check_size(size: int, name: str) -> None:
    if not 1 <= size <= MAX_BLOCK:
        raise ModelError(
            f"model {name} has a block of {size} houses; split it into blocks of 1 to {MAX_BLOCK}."
        )


def _floats(values: ArrayLike, ndim: int, label: str, name: str) -> Floats:
    array = float_array(values, f"{label} of model {name}", ModelError)
    if array.ndim != ndim or array.size == 0:
        raise ModelError(
            f"{label} of model {name} has shape {array.shape}; give {ndim} dimensions, none empty."
        )
    array.flags.writeable = False
    return array


def _stacked(arrays: Sequence[Floats], axis: int, name: str) -> Floats:
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ModelError(
            f"blocks of one size in model {name} have shapes {sorted(shapes)};"
            " give all of them as many states and slots."
        )
    return np.stack(arrays, axis=axis)


def _ints(values: NDArray[np.generic]) -> Int32s:
    array = values.astype(np.int32)
    array.flags.writeable = False
    return array


def _check_members(chains: Sequence[Chains], name: str) -> int:
    houses = np.concatenate([piece.members.ravel() for piece in chains]) if chains else np.array([])
    if houses.size == 0:
        raise ModelError(f"model {name} has no houses; give at least one block.")
    if houses.min() < 0 or not (np.bincount(houses) == 1).all():
        raise ModelError(
            f"blocks of model {name} do not hold each house 0..{houses.max()} exactly once;"
            " give every house one block."
        )
    return int(houses.size)


def _check_chains(piece: Chains, slots: int, name: str) -> None:
    _check_size(piece.size, name)
    k, c = 2**piece.size, len(piece.initial)
    if piece.initial.shape != (c, k) or piece.transition.shape[1:] != (c, k, k):
        raise ModelError(
            f"model {name} has initial laws of shape {piece.initial.shape} and transitions of shape"
            f" {piece.transition.shape}; blocks of {piece.size} need ({c}, {k})"
            f" and (slots, {c}, {k}, {k})."
        )
    if len(piece.transition) < slots:
        raise ModelError(
            f"model {name} has transitions for {len(piece.transition)} slots but its calendar"
            f" names slot {slots - 1}; give one for every slot."
        )
    if piece.chain_of.shape != piece.members.shape[:1] or not (
        piece.chain_of.min() >= 0 and piece.chain_of.max() < c
    ):
        raise ModelError(
            f"model {name} assigns blocks to chains of shape {piece.chain_of.shape} outside"
            f" 0..{c - 1}; give each of the {len(piece.members)} blocks one of its chains."
        )
    _check_rows(piece.initial[None], piece, "initial law", name)
    _check_rows(piece.transition.reshape(-1, c, k, k), piece, "transition", name)


def _check_rows(laws: Floats, piece: Chains, label: str, name: str) -> None:
    sums = laws.sum(axis=-1)
    bad = ~(np.abs(sums - 1) <= _ROW_SUM) | ~(laws >= 0).all(axis=-1)
    if not bad.any():
        return
    slot, chain, *row = (int(i) for i in np.argwhere(bad)[0])
    users = np.flatnonzero(piece.chain_of == chain)
    house = int(piece.members[users[0], 0]) if users.size else "none"
    place = f"slot {slot}, row {row[0]}, " if row else ""
    raise ModelError(
        f"{label} of model {name} ({place}house {house}) sums to {sums[(slot, chain, *row)]:g};"
        " give probabilities of 0 or more that sum to 1."
    )


def _digest(model: OccupancyModel) -> str:
    """SHA-256 over the model's arrays: each as its shape in decimal, then little-endian bytes."""
    h = hashlib.sha256(b"hushgrid-occupancy/1")
    arrays: list[NDArray[np.generic]] = [model.calendar.slots]
    for piece in model.chains:
        arrays += [piece.members, piece.chain_of, piece.initial, piece.transition]
    for array in arrays:
        h.update(str(array.shape).encode())
        h.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return h.hexdigest()
