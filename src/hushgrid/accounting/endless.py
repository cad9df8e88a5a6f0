"""Leakage of releases that repeat for ever: a turn of steps, again and again, along one chain.

Backward and forward leakage never fall when what enters a turn rises. So the turn is repeated from
nothing until it no longer changes: that is what an endless run says. It is repeated from above as
well: where both ends meet, no later turn says more. Proof: docs/proofs/temporal.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Bools, Floats, Int32s
from hushgrid.accounting.temporal import chunks, contradicted_houses, of_chains
from hushgrid.belief.filter import transition_into
from hushgrid.errors import PlanError
from hushgrid.model.occupancy import Chains, OccupancyModel

SETTLED = 1e-9  # relative: what the two ends may differ by
FAR = 200.0  # leakage that is called unbounded [nats]
_STEPS = 20_000  # in which a run must settle,
_TURNS = 32  # or so many turns where that is more
_UP = 1 + 1e-12  # what is stated is rounded up
_FAINT = 1e-300  # the chance of a state that is possible in some turns alone


MOST_STEPS = 100_000  # of a turn


def turn_of(models: Sequence[OccupancyModel], *steps: int) -> int:
    """Steps after which releases and occupancy repeat.

    Args:
        models: Theta.
        steps: Steps after which releases repeat, or anything else that they depend on.

    Returns:
        Whole turns of all of them and of every calendar.

    Raises:
        PlanError: If that takes more than 100,000 steps.

    >>> turn_of([OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]])], 4, 6)
    12
    """
    turn = math.lcm(*steps, *(len(model.calendar.slots) for model in models))
    if turn > MOST_STEPS:
        raise PlanError(
            f"a horizon of {steps[0]} steps and the calendars repeat together only after {turn}"
            f" steps; give a horizon with which that takes at most {MOST_STEPS}."
        )
    return turn


class Said(NamedTuple):
    """The largest leakage of an endless run.

    Attributes:
        total: The leakage [nats]; of a run that says more than is asked about, any figure above.
        step: The step of the turn that it is about, from 1.
        house: The house that it is about.
    """

    total: float
    step: int
    house: int


@dataclass(frozen=True, slots=True, eq=False)
class _Laws:
    """Chains of one size where turns begin and end.

    Attributes:
        starts: (C, states): the states that are possible at the first step of any turn.
        ends: (C, states) each: laws of the last step of the first turn, the second and so on.
        settled: Whether the last one no longer changes.
    """

    starts: Bools
    ends: tuple[Floats, ...]
    settled: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Blocks of houses of one model that have the same chain and the same losses."""

    model: OccupancyModel
    p: int
    laws: _Laws
    losses: Floats  # (T, columns)
    chains: Int32s
    houses: Int32s
    lengths: tuple[int, ...]

    def turn(self, law: Floats | None, before: Floats, after: Floats) -> tuple[Floats, ...]:
        """Total (T, columns), backward leakage at its last step and forward at its first.

        Args:
            law: Of the last step before the turn; None where nothing precedes.
            before: (columns,): backward leakage at that step.
            after: (columns,): forward leakage at the first step after the turn.
        """
        early = int(law is not None)
        rows = [before[None]] * early + [self.losses, after[None]]
        lengths = (*(1,) * early, *self.lengths, 1) if self.lengths else ()
        leakage = of_chains(self.model, self.p, np.concatenate(rows), self.chains, lengths, law)
        last = early + len(self.losses)
        return leakage.total[early:last], leakage.backward[last - 1], leakage.forward[early]


@dataclass(frozen=True, slots=True, eq=False)
class _Risen:
    """What turns say that begin with nothing, until they no longer change."""

    total: Floats  # (columns,): the largest of any turn
    step: Floats  # (columns,): where it is
    before: Floats
    after: Floats
    settled: bool


class Endless:
    """Releases that repeat for ever.

    Args:
        models: Theta; Pi is the law of the first step of all.
        turn: Steps after which releases and occupancy repeat (`turn_of`).

    >>> theta = OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> run = Endless((theta,), 8)
    >>> round(run.most(np.full((8, 1), 0.5), np.array([0])), 6)
    2.665112
    """

    def __init__(self, models: tuple[OccupancyModel, ...], turn: int) -> None:
        self.models, self.turn = models, turn
        self.turns = max(_TURNS, _STEPS // turn)
        self._laws = [
            [_laws(model, piece, turn, self.turns) for piece in model.chains] for model in models
        ]

    @cached_property
    def later(self) -> tuple[OccupancyModel, ...]:
        """Theta where a turn begins within a run: Pi is uniform over what is possible there."""
        models = []
        for model, laws in zip(self.models, self._laws, strict=True):
            pieces = zip(model.chains, (chain_laws.starts for chain_laws in laws), strict=True)
            chains = tuple(
                replace(piece, initial=open_at / open_at.sum(axis=1, keepdims=True))
                for piece, open_at in pieces
            )
            models.append(replace(model, chains=chains))
        return tuple(models)

    def check(self, most: float) -> None:
        """Refuse a run in which leakage is not forgotten even where nothing is published.

        Args:
            most: The size of a leakage.

        Raises:
            PlanError: Occupancy of a house hardly changes, or models contradict each other about it
                (which of them is right is never forgotten).
        """
        if not contradicted_houses(self.models, 2 * self.turn).any():
            alike = np.zeros(self.models[0].n_houses, np.int32)
            silent = self._columns(np.zeros((self.turn, 1)), alike, ())
            if all(_is_forgotten(columns, most, self.turns) for columns in silent):
                return
        raise PlanError(
            f"leakage is not forgotten in {self.turn * self.turns} steps for some house, so no"
            " promise covers an endless run; plan the horizon on its own, or give models in which"
            " occupancy can change."
        )

    def least(
        self, losses: Floats, class_of: Int32s, lengths: Sequence[int] = (), most: float = FAR
    ) -> Said:
        """What an endless run says, counted turn by turn from nothing.

        Args:
            losses: (T, classes): the loss of each release of a turn [nats].
            class_of: Loss class of each house, (N,).
            lengths: Steps of each block with one common noise; empty: each step has its own.
            most: Where a turn says more, the count ends.

        Returns:
            The largest leakage of any turn.
        """
        worst = Said(0.0, 1, 0)
        for columns in self._columns(losses, class_of, lengths):
            risen = _risen(columns, most, self.turns)
            k = int(risen.total.argmax())
            if risen.total[k] > worst.total:
                worst = Said(float(risen.total[k]), int(risen.step[k]), int(columns.houses[k]))
            if worst.total > most:
                break
        return worst

    def most(
        self, losses: Floats, class_of: Int32s, lengths: Sequence[int] = (), most: float = FAR
    ) -> float:
        """What an endless run says, counted from above: no turn of it says more.

        Args:
            losses: As for `least`.
            class_of: As for `least`.
            lengths: As for `least`.
            most: The leakage that the count from above begins with.

        Returns:
            The largest leakage of any turn; infinite where a turn says more than `most`, or where
            the two counts do not meet.
        """
        worst = 0.0
        for columns in self._columns(losses, class_of, lengths):
            risen = _risen(columns, most, self.turns)
            if not risen.settled:
                return math.inf
            worst = max(worst, _fallen(columns, risen, most, self.turns))
        return worst * _UP

    def _columns(
        self, losses: Floats, class_of: Int32s, lengths: Sequence[int]
    ) -> Iterator[_Columns]:
        for model, laws in zip(self.models, self._laws, strict=True):
            for p, piece in enumerate(model.chains):
                kinds = class_of[piece.members]
                labels = np.column_stack([piece.chain_of, kinds])
                _, first = np.unique(labels, axis=0, return_index=True)
                for part in chunks(len(first), self.turn):
                    blocks = first[part]
                    yield _Columns(
                        model,
                        p,
                        laws[p],
                        losses[:, kinds[blocks]].max(axis=2),
                        piece.chain_of[blocks],
                        piece.members[blocks, 0],
                        tuple(lengths),
                    )


def _laws(model: OccupancyModel, piece: Chains, turn: int, turns: int) -> _Laws:
    chains = np.arange(len(piece.initial))
    into = transition_into(model, piece, chains, 1)  # from the last step of a turn to the next one
    through = np.broadcast_to(np.eye(into.shape[1]), into.shape)
    moves = through > 0
    for t in range(2, turn + 1):
        a = transition_into(model, piece, chains, t)
        through, moves = through @ a, moves @ (a > 0)
    law, enters = piece.initial, into > 0
    starts, ends, visited = law > 0, np.zeros(law.shape, np.bool_), set[bytes]()
    states = starts
    while states.tobytes() not in visited:
        visited.add(states.tobytes())
        end = (states[:, None] @ moves)[:, 0]
        states = (end[:, None] @ enters)[:, 0]
        starts, ends = starts | states, ends | end
    laws = list[Floats]()
    settled = False
    while not settled and len(laws) < turns:
        start = np.einsum("cs,csk->ck", laws[-1], into) if laws else law
        law = np.einsum("cs,csk->ck", start, through)
        law = np.where(ends, np.maximum(law / law.sum(axis=1, keepdims=True), _FAINT), 0.0)
        settled = bool(laws) and bool((abs(law - laws[-1]) <= SETTLED * 1e-3 * law).all())
        laws.append(law)
    return _Laws(starts, tuple(laws), settled)


def _risen(columns: _Columns, most: float, turns: int) -> _Risen:
    """Turn by turn from nothing; it ends where a turn says more than `most`."""
    ends = columns.laws.ends
    before = after = np.zeros(len(columns.chains))
    past = list[tuple[Floats | None, Floats, Floats, Floats]]()
    settled = False
    while not settled and len(past) < turns:
        law = ends[min(len(past), len(ends)) - 1] if past else None
        total, later, earlier = columns.turn(law, before, after)
        past.append((law, before, after, total.max(axis=0)))
        if past[-1][-1].max() > most:
            return _Risen(past[-1][-1], total.argmax(axis=0) + 1, before, after, settled=False)
        change = max(abs(later - before).max(), abs(earlier - after).max())
        settled = len(past) > len(ends) and change <= SETTLED / 10 * max(later.max(), earlier.max())
        before, after = later, earlier
    best, step = total.max(axis=0), total.argmax(axis=0) + 1
    # these were followed by less than an endless run
    for law, entered, followed, largest in past[:-1]:
        if (largest + after - followed > best * (1 + SETTLED / 10)).any():
            total, _, _ = columns.turn(law, entered, after)
            more = total.max(axis=0) > best
            best = np.where(more, total.max(axis=0), best)
            step = np.where(more, total.argmax(axis=0) + 1, step)
    return _Risen(best, step, before, after, settled and columns.laws.settled)


def _is_forgotten(columns: _Columns, most: float, turns: int) -> bool:
    before = after = np.full(len(columns.chains), most)
    for _ in range(turns):
        _, before, after = columns.turn(columns.laws.ends[-1], before, after)
        if max(before.max(), after.max()) <= SETTLED * most:
            return True
    return False


def _fallen(columns: _Columns, risen: _Risen, most: float, turns: int) -> float:
    """The largest total from above; infinite where it stays away from what has risen."""
    law, before = columns.laws.ends[-1], np.full(len(columns.chains), most)
    after = before
    for _ in range(turns):
        _, before, after = columns.turn(law, before, after)
        gap = max((before - risen.before).max(), (after - risen.after).max())
        if gap <= SETTLED * max(before.max(), after.max()):
            total, _, _ = columns.turn(law, before, after)
            first = risen.total + after - risen.after
            return float(max(total.max(), first.max()))
    return math.inf
