"""Leakage about one step of one house from *all* releases (after Cao, Yoshikawa, Xiao, Xiong).

Proof and golden values: docs/proofs/temporal.md.

    BPL_t = e_t + L_B(BPL_{t-1})     FPL_t = e_t + L_F(FPL_{t+1})     TPL_t = BPL_t + FPL_t - e_t

Where the noise lasts a block of steps the recursion goes from block to block
(docs/proofs/blocks-of-steps.md); `lengths` names the blocks, each with one loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid._numbers import (
    Bools,
    Floats,
    Indices,
    Int32s,
    float_array,
    index_array,
    is_real,
    is_whole,
)
from hushgrid.belief.filter import (
    carried_backward,
    carried_leakage,
    if_uncertain,
    transition_into,
)
from hushgrid.errors import ModelError, PolicyError
from hushgrid.mechanism.support import grouped
from hushgrid.model.occupancy import (
    OccupancyModel,
    check_models,
    possible_states,
)


@dataclass(frozen=True, slots=True, eq=False)
class Leakage:
    """Backward, forward and total leakage.

    Attributes:
        backward: From the releases up to each step, (T, N) [nats].
        forward: From the releases from each step on, (T, N).
        total: From all releases, (T, N).
    """

    backward: Floats
    forward: Floats
    total: Floats

    @property
    def worst(self) -> float:
        """The largest total leakage of any house at any step."""
        return float(self.total.max())

    @property
    def house(self) -> int:
        """The house that leaks most."""
        return int(self.total.max(axis=0).argmax())


def temporal_leakage(
    models: OccupancyModel | Sequence[OccupancyModel],
    epsilon_t: ArrayLike,
    lengths: Sequence[int] = (),
) -> Leakage:
    """Leakage of all releases together about each step; the maximum over several models.

    Models that contradict each other about a house are refused: each makes the house certain, so
    that none has a leakage, and every release discloses which model is right. `worst_leakage` has
    the figure for them.

    See: docs/proofs/temporal.md.

    Args:
        models: One occupancy model, or several.
        epsilon_t: Loss of each release, (T,) for all houses or (T, N) [nats]. For houses that move
            together it must be the loss of their block, as `ReleaseAccount.losses` gives it.
        lengths: Steps of each block with one common noise, in order; empty: noise of its own at
            every step. The loss of a block is the largest of its steps.

    Returns:
        The leakage about each step of each house.

    Raises:
        ModelError: If the models contradict each other about a house.

    >>> theta = OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> temporal_leakage(theta, [0.5, 0.5, 0.5]).total[:, 0].round(6).tolist()
    [1.10627, 1.20726, 1.103589]
    >>> temporal_leakage(theta, [0.5] * 4, lengths=[2, 2]).total[:, 0].round(6).tolist()
    [0.75177, 0.855182, 0.853244, 0.749172]
    """
    models = (models,) if isinstance(models, OccupancyModel) else tuple(models)
    leakage = leakage_under_models(models, epsilon_t, lengths)
    houses = np.flatnonzero(contradicted_houses(models, len(leakage.total)))
    if houses.size:
        raise ModelError(
            f"the models contradict each other about house {houses[0]}: one makes it surely"
            " occupied and another surely empty, and none leaves both possible; use worst_leakage,"
            " or models that leave both states possible."
        )
    return leakage


def leakage_under_models(
    models: Sequence[OccupancyModel], epsilon_t: ArrayLike, lengths: Sequence[int] = ()
) -> Leakage:
    """As `temporal_leakage`, with 0 about a house that the models contradict each other about.

    Args:
        models: Theta.
        epsilon_t: As for `temporal_leakage`.
        lengths: As for `temporal_leakage`.

    Returns:
        The maximum over the models, for callers that correct it with `with_contradictions`.
    """
    check_models(models, models[0].n_houses if models else 0)
    e = _of_blocks(_checked(epsilon_t, models[0].n_houses), lengths)
    leakages = [_of_model(model, e, lengths) for model in models]
    if len(leakages) == 1:
        return leakages[0]
    return Leakage(
        *(np.maximum.reduce([getattr(leakage, part) for leakage in leakages]) for part in _PARTS)
    )


@dataclass(frozen=True, slots=True, eq=False)
class WorstLeakage:
    """The largest total leakage.

    Attributes:
        total: The leakage [nats].
        step: The step that it is about, from 1.
        house: The house that it is about.
        by_house: The largest of each house, (N,).
    """

    total: float
    step: int
    house: int
    by_house: Floats


def worst_leakage(
    models: OccupancyModel | Sequence[OccupancyModel],
    epsilon_t: ArrayLike,
    class_of: ArrayLike | None = None,
    *,
    lengths: Sequence[int] = (),
) -> WorstLeakage:
    """The largest total leakage of every house: the figure a plan, a check or an audit states.

    Houses are processed in chunks, so memory stays bounded; houses of one class that every model
    moves by the same chain are computed once. Losses given by house or class are corrected for
    contradicting models (`with_contradictions`).

    See: docs/proofs/temporal.md.

    Args:
        models: One occupancy model, or several.
        epsilon_t: Loss of each release, (T,), (T, N), or (T, classes) with `class_of` [nats].
        class_of: Loss class of each house, (N,); None: columns of `epsilon_t` are houses.
        lengths: As for `temporal_leakage`.

    Returns:
        The largest leakage and where it occurs.

    >>> theta = OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]],
    ...                                 chain_of=[0] * 3)
    >>> worst = worst_leakage(theta, [[0.5, 0.1]] * 3, class_of=[1, 0, 1])
    >>> round(worst.total, 5), worst.step, worst.house, worst.by_house.round(2).tolist()
    (1.20726, 2, 1, [0.24, 1.21, 0.24])
    """
    by_house, at = np.array([]), np.array([], np.int64)
    parts = leakage_by_houses(models, epsilon_t, class_of, lengths=lengths)
    for houses, column, leakage in parts:
        if not by_house.size:
            first = models if isinstance(models, OccupancyModel) else models[0]
            by_house, at = np.empty(first.n_houses), np.empty(first.n_houses, np.int64)
        step = leakage.argmax(axis=0)
        by_house[houses], at[houses] = leakage[step[column], column], step[column]
    house = int(np.lexsort((np.arange(by_house.size), at, -by_house))[0])
    return WorstLeakage(float(by_house[house]), int(at[house]) + 1, house, by_house)


def leakage_by_houses(
    models: OccupancyModel | Sequence[OccupancyModel],
    epsilon_t: ArrayLike,
    class_of: ArrayLike | None = None,
    *,
    lengths: Sequence[int] = (),
) -> Iterator[tuple[NDArray[np.integer], NDArray[np.integer], Floats]]:
    """Total leakage in chunks of a few million numbers, corrected as in `worst_leakage`.

    Args:
        models: One occupancy model, or several; the maximum is taken.
        epsilon_t: Loss of each release, as for `worst_leakage`.
        class_of: Loss class of each house, as for `worst_leakage`.
        lengths: As for `temporal_leakage`.

    Yields:
        House numbers, the column of each, and the total leakage (T, columns).

    Raises:
        PolicyError: If `class_of` does not have one entry for each house.
    """
    models = (models,) if isinstance(models, OccupancyModel) else tuple(models)
    n = models[0].n_houses if models else 0
    check_models(models, n)
    kinds = None if class_of is None else index_array(class_of, "class_of", PolicyError)
    if kinds is not None and kinds.shape != (n,):
        raise PolicyError(f"class_of has shape {kinds.shape}; give a class for each of {n} houses.")
    e = _of_blocks(_checked(epsilon_t, n if kinds is None else int(kinds.max()) + 1), lengths)
    corrected = len(models) > 1  # one model contradicts nothing
    contradictions = contradicted_houses(models, len(e))
    if any(len(model.chains) > 1 or model.chains[0].size > 1 for model in models):
        # houses that move together are few
        all_e = e if kinds is None or e.ndim == 1 else e[:, kinds]
        total = leakage_under_models(models, all_e, lengths).total
        total = with_contradictions(total, all_e, lengths, contradictions) if corrected else total
        yield np.arange(n), np.arange(n), total
        return
    labels = [chain_of_houses(model) for model in models]
    if e.ndim == 2:
        labels.append(np.arange(n, dtype=np.int32) if kinds is None else kinds.astype(np.int32))
    group, first = same_labels(labels)
    order = np.argsort(group, kind="stable")
    ends = np.searchsorted(group, np.arange(len(first) + 1), sorter=order)
    for chunk in chunks(len(first), len(e)):
        columns = (
            e[:, None] if e.ndim == 1 else np.ascontiguousarray(e[:, labels[-1][first[chunk]]])
        )
        total = np.maximum.reduce(
            [
                of_chains(model, 0, columns, chain[first[chunk]], lengths).total
                for model, chain in zip(models, labels, strict=False)
            ]
        )
        members = order[ends[chunk.start] : ends[chunk.stop]]
        column_losses = e if e.ndim == 1 else columns
        if corrected:
            total = with_contradictions(total, column_losses, lengths, contradictions[first[chunk]])
        yield members, group[members] - chunk.start, total


def with_contradictions(
    total: Floats,
    losses: Floats,
    lengths: Sequence[int] = (),
    contradictions: Bools | None = None,
) -> Floats:
    """Total leakage, plus all losses of houses that models contradict each other about.

    Such a house is certain under every model at some step: one has it occupied, another empty.
    Every release discloses which model is right, and no chain makes that forgotten. Where it is
    protected there, its loss is above 0 and its total is not.

    Args:
        total: The maximum over the models of the total leakage, (T, N).
        losses: Loss of each release for each house, (T, N), or (T,). One-dimensional losses do not
            say which houses are protected.
        lengths: As for `temporal_leakage`; a block counts once.
        contradictions: (N,) such houses, also at steps without a release and in blocks of houses
            (`contradicted_houses`).

    Returns:
        The corrected total, (T, N).
    """
    houses = np.zeros(total.shape[1], np.bool_) if contradictions is None else contradictions
    if losses.ndim == 2:
        houses = houses | contradicted(total, losses)
    if not houses.any():
        return total
    booked = losses[_starts(lengths)] if lengths else losses
    return np.where(houses, np.maximum(total, booked.sum(axis=0)), total)


def contradicted(total: Floats, losses: Floats) -> Bools:
    """The houses that some step protects only because models contradict each other.

    Args:
        total: The maximum over the models of the total leakage, (T, N).
        losses: Loss of each release for each house, (T, N).

    Returns:
        (N,) Booleans.
    """
    return np.asarray(((losses > 0) & (total <= 0)).any(axis=0))


def contradicted_houses(models: Sequence[OccupancyModel], steps: int) -> Bools:
    """The houses that models contradict each other about at any of the first steps.

    Args:
        models: Theta.
        steps: The number of steps.

    Returns:
        (N,) Booleans: at some step no model leaves both states possible, and all together do.

    >>> laws = [[[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]]
    >>> theta = [OccupancyModel.factored(law, [[np.eye(2)] * 2]) for law in laws]
    >>> contradicted_houses(theta, 9).tolist()
    [True, False]
    """
    houses = np.zeros(models[0].n_houses, np.bool_)
    if len(models) < 2 or not any(model.has_zeros for model in models):
        return houses
    walks = [islice(possible_states(model), steps) for model in models]
    states_of: dict[tuple[int, ...], object] = {}  # states are kept, so that no other gets their id
    for states in zip(*walks, strict=True):
        mark = tuple(id(state) for state in states)
        if mark in states_of:
            continue
        states_of[mark] = states
        masks: Bools = np.array([_possible(*pair) for pair in zip(models, states, strict=True)])
        by_one = np.any(np.all(masks, axis=2), axis=0)
        houses |= np.all(np.any(masks, axis=0), axis=1) & ~by_one
    return houses


def _possible(model: OccupancyModel, states: tuple[Bools, ...]) -> Bools:
    """(houses, 2): whether each house may be absent, present."""
    out = np.zeros((model.n_houses, 2), np.bool_)
    for piece, possible in zip(model.chains, states, strict=True):
        numbers = np.arange(possible.shape[1])
        for place in range(piece.size):
            home = (numbers >> (piece.size - 1 - place)) & 1 == 1
            sides = np.stack([possible[:, ~home].any(axis=1), possible[:, home].any(axis=1)], 1)
            out[piece.members[:, place]] = sides[piece.chain_of]
    return out


def chain_of_houses(model: OccupancyModel) -> Int32s:
    """The chain of every house of a model whose blocks all have one house.

    Args:
        model: The occupancy model, of one piece.

    Returns:
        (N,) numbers of chains.
    """
    (piece,) = model.chains
    chain = np.empty(model.n_houses, np.int32)
    chain[piece.members[:, 0]] = piece.chain_of
    return chain


def same_labels(labels: Sequence[Int32s]) -> tuple[Int32s, Indices]:
    """Group the houses that have the same labels.

    Args:
        labels: Arrays of labels, (N,) each.

    Returns:
        The group of each house, (N,), and a house of each group.
    """
    group, count = grouped(labels)
    first = np.zeros(count, np.intp)
    first[group[::-1]] = np.arange(len(group) - 1, -1, -1)
    return group, first


_PARTS = ("backward", "forward", "total")


def _checked(epsilon_t: ArrayLike, n_houses: int) -> Floats:
    is_float = isinstance(epsilon_t, np.ndarray) and epsilon_t.dtype == np.float64
    e = np.asarray(epsilon_t) if is_float else float_array(epsilon_t, "epsilon_t", PolicyError)
    if e.ndim not in (1, 2) or e.size == 0:
        raise PolicyError(
            f"epsilon_t has shape {e.shape}; give one loss for each of 1 step or more."
        )
    if e.ndim == 2 and e.shape[1] != n_houses:
        raise PolicyError(
            f"epsilon_t has {e.shape[1]} columns but the model {n_houses} houses;"
            " give one column for each house, or none."
        )
    if not (e.min() >= 0 and e.max() < np.inf):  # NaN fails too
        t, *house = np.argwhere(~((e >= 0) & (e < np.inf)))[0].tolist()
        place = f"step {t + 1}" + "".join(f", house {i}" for i in house)
        raise PolicyError(
            f"epsilon_t is {e[(t, *house)]} at {place}; give finite losses of 0 or more."
        )
    return e


def _of_blocks(e: Floats, lengths: Sequence[int]) -> Floats:
    """The losses of steps with the largest of each block at all of its steps."""
    if not lengths:
        return e
    if not all(is_whole(length) and length >= 1 for length in lengths) or sum(lengths) != len(e):
        raise PolicyError(
            f"lengths are {list(lengths)[:8]} for {len(e)} steps; give the steps of each block, 1"
            " or more, that add up to all steps."
        )
    return np.repeat(np.maximum.reduceat(e, _starts(lengths)), lengths, axis=0)


def _starts(lengths: Sequence[int]) -> Indices:
    """The first step of each block, from 0."""
    return np.cumsum([0, *lengths[:-1]])


def check_epsilon(epsilon: float) -> None:
    """Check the loss of a step.

    Args:
        epsilon: The loss [nats].

    Raises:
        PolicyError: If it is not a positive number.
    """
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive loss a step.")


def _of_model(model: OccupancyModel, e: Floats, lengths: Sequence[int] = ()) -> Leakage:
    piece = model.chains[0]
    if len(model.chains) == 1 and piece.size == 1 and _in_order(piece.members[:, 0]):
        # every house alone and in its place: nothing is moved about
        if e.ndim == 2:
            return of_chains(model, 0, e, piece.chain_of, lengths)
        if _in_order(piece.chain_of):
            return of_chains(model, 0, e[:, None], piece.chain_of, lengths)
    out = Leakage(*(np.empty((len(e), model.n_houses)) for _ in _PARTS))
    for p in range(len(model.chains)):
        for houses, leakage in _of_piece(model, p, e, lengths):
            for part in _PARTS:
                getattr(out, part)[:, houses] = getattr(leakage, part)[:, :, None]
    return out


def _in_order(numbers: NDArray[np.integer]) -> bool:
    return bool((numbers == np.arange(len(numbers))).all())


def _of_piece(
    model: OccupancyModel, p: int, e: Floats, lengths: Sequence[int]
) -> Iterator[tuple[Int32s, Leakage]]:
    """The blocks of one size, in chunks: (their houses, leakage (T, blocks))."""
    piece, by_chain = model.chains[p], None
    if e.ndim == 1:
        by_chain = of_chains(model, p, e[:, None], np.arange(len(piece.initial)), lengths)
    for chunk in chunks(len(piece.members), len(e)):
        members, chains = piece.members[chunk], piece.chain_of[chunk]
        if by_chain is None:
            losses = e[:, members].max(axis=2)  # each house carries its block's loss
            yield members, of_chains(model, p, losses, chains, lengths)
        else:
            yield members, Leakage(*(getattr(by_chain, part)[:, chains] for part in _PARTS))


def chunks(n: int, numbers: int) -> Iterator[slice]:
    """Slices of 0..n that hold a few million numbers each, so that memory stays bounded.

    Args:
        n: Number of items.
        numbers: Numbers per item.

    Returns:
        The slices, in order.
    """
    step = max(1, (1 << 22) // numbers)
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def of_chains(
    model: OccupancyModel,
    p: int,
    e: Floats,
    chains: NDArray[np.integer],
    lengths: Sequence[int] = (),
    law: Floats | None = None,
) -> Leakage:
    """Leakage of blocks that follow given chains of one piece.

    Args:
        model: The occupancy model.
        p: Number of the piece (block size) in `model.chains`.
        e: Loss of each release, (T, 1) or (T, blocks).
        chains: Chain of each block, (blocks,).
        lengths: As for `temporal_leakage`; `e` is the same at all steps of one of them.
        law: Law of the step before step 1 of the calendar, (C, states): that one is then the first
            of these steps. By default the first one is step 1, with the law Pi.

    Returns:
        Leakage with (T, blocks) arrays.
    """
    from hushgrid._kernels.chains import in_blocks_of_steps, two_states

    piece, horizon, early = model.chains[p], len(e), int(law is not None)
    initial = piece.initial if law is None else law
    e = np.broadcast_to(e, (horizon, len(chains)))
    if piece.size == 1:
        slots = model.calendar.slots[(np.arange(horizon) - early) % len(model.calendar.slots)]
        terms = (initial, piece.transition, slots, chains, e)
        if lengths:
            return Leakage(*in_blocks_of_steps(*terms, np.array(lengths)))
        *parts, lost = two_states(*terms)
        again = np.flatnonzero(lost)
    else:
        parts, again = [np.empty(e.shape) for _ in _PARTS], np.arange(len(chains))
    for chunk in chunks(len(again), horizon * 2**piece.size + 4**piece.size):
        blocks = again[chunk]
        leakage = in_logs(model, p, e[:, blocks], chains[blocks], lengths, law)
        for out, part in zip(parts, _PARTS, strict=True):
            out[:, blocks] = getattr(leakage, part)
    return Leakage(*parts)


def in_logs(
    model: OccupancyModel,
    p: int,
    e: Floats,
    chains: NDArray[np.integer],
    lengths: Sequence[int] = (),
    law: Floats | None = None,
) -> Leakage:
    """`of_chains` for any number of states and leakage of any size.

    Args:
        model: The occupancy model.
        p: Number of the piece (block size) in `model.chains`.
        e: Loss of each release, (T, blocks).
        chains: Chain of each block, (blocks,).
        lengths: As for `of_chains`.
        law: As for `of_chains`.

    Returns:
        Leakage with (T, blocks) arrays.
    """
    horizon, piece, early = len(e), model.chains[p], int(law is not None)
    first = np.repeat(_starts(lengths), lengths) if lengths else np.arange(horizon)
    last = first + np.repeat(lengths, lengths) - 1 if lengths else first
    law = (piece.initial if law is None else law)[chains]
    open_at = [law > 0]
    backward, forward = np.empty(e.shape), np.empty(e.shape)
    backward[0] = if_uncertain(e[0], open_at[0])
    # law, possible states and leakage at the last step of the block before; the way from there
    zeros, stay = (
        np.zeros(len(chains)),
        np.broadcast_to(np.eye(law.shape[1]), (1, *2 * law.shape[1:])),
    )
    before, through, moves = (zeros, law, open_at[0]), stay, stay > 0
    for t in range(1, horizon):
        a = transition_into(model, piece, chains, t + 1 - early)
        if t == first[t]:
            before, through, moves = (backward[t - 1], law, open_at[-1]), a, a > 0
        else:
            through, moves = through @ a, moves @ (a > 0)
        law = np.einsum("bs,bsk->bk", law, a)
        possible, gain = carried_backward(*before, through, moves)
        open_at.append(possible)
        backward[t] = if_uncertain(e[t], possible) + gain
    losses = np.array([if_uncertain(*step) for step in zip(e, open_at, strict=True)])
    forward[-1] = losses[-1]
    after, through = zeros, stay
    for t in range(horizon - 2, -1, -1):
        a = transition_into(model, piece, chains, t + 2 - early)
        after, through = (forward[t + 1], a) if t == last[t] else (after, a @ through)
        forward[t] = losses[t] + carried_leakage(after, through, open_at[t])
    return Leakage(backward, forward, backward + forward - losses)
