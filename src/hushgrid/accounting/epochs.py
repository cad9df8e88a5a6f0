"""Leakage that goes on across epochs: one chain of occupancy, releases with silence between them.

A new epoch does not draw occupancy anew: it follows the same chain. So what earlier epochs
published counts at every step of the new one, and what the new one publishes counts at every step
before. Proofs: docs/proofs/temporal.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from hushgrid._numbers import Bools, Floats
from hushgrid.accounting.temporal import contradicted_houses
from hushgrid.belief.filter import transition_into
from hushgrid.model.occupancy import OccupancyModel, possible_states

FORGOTTEN = 1e-7  # the share of a leakage that no longer counts
PERIODS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of silence; a chain that needs more never forgets
_ROUNDING = 1e-13  # added to a logarithm of products of many matrices


def kept_by_silence(
    models: Sequence[OccupancyModel], first: int, last: int, *, starts: bool = True
) -> float:
    """The largest share of a leakage at step `first` that is left at step `last`, or back.

    Nothing is published in between. It holds for every house and model, for leakage of any size
    and whatever the law of occupancy at `first`: by Birkhoff and Hopf, positive matrices M shrink
    Hilbert's distance by tanh(D / 4), D the largest log of M_ik M_jl / (M_jk M_il). Houses that
    models contradict each other about keep all of it.

    Args:
        models: Theta; Pi is the law of step 1, which decides what is possible later.
        first: a step, from 1.
        last: a later step, or the same.
        starts: whether occupancy starts at step 1. If not, every state is possible there.

    Returns:
        A share from 0 to 1.

    >>> theta = OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> [round(kept_by_silence([theta], 1, t), 3) for t in (1, 2, 10)]
    [1.0, 0.714, 0.045]
    """
    if first == last:
        return 1.0
    if len(models) > 1 and contradict(models, last):
        return 1.0
    models = models if starts else anywhere(models)
    return max(_kept(model, p, first, last) for model in models for p in range(len(model.chains)))


def anywhere(models: Sequence[OccupancyModel]) -> tuple[OccupancyModel, ...]:
    """The same models with every state possible at step 1.

    Args:
        models: Theta.

    Returns:
        Models with a uniform Pi.
    """
    every = [tuple(np.ones(piece.initial.shape, np.bool_) for piece in m.chains) for m in models]
    return tuple(_starting_from(model, own) for model, own in zip(models, every, strict=True))


def in_a_run(models: Sequence[OccupancyModel], steps: int) -> tuple[OccupancyModel, ...]:
    """The same models where a horizon begins within a run, and not with it.

    Args:
        models: Theta.
        steps: the steps of the run.

    Returns:
        Models with a Pi that is uniform over all states which are possible at any of these steps.

    >>> theta = OccupancyModel.factored([[0, 1], [1, 0]], [[[[0.9, 0.1], [0.2, 0.8]], np.eye(2)]])
    >>> in_a_run([theta], 2)[0].chains[0].initial.tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    found = []
    for model in models:
        walk = islice(possible_states(model), steps)
        reached = next(walk)
        for states in walk:
            reached = tuple(a | b for a, b in zip(reached, states, strict=True))
        found.append(_starting_from(model, reached))
    return tuple(found)


def _starting_from(model: OccupancyModel, possible: Sequence[Bools]) -> OccupancyModel:
    """The model with a Pi that is uniform over these states."""
    laws = [each / each.sum(axis=1, keepdims=True) for each in possible]
    pieces = zip(model.chains, laws, strict=True)
    return replace(model, chains=tuple(replace(piece, initial=law) for piece, law in pieces))


def running_steps(models: Sequence[OccupancyModel], horizon: int, period: int) -> int | None:
    """Steps of a run of the same terms with which a plan for any number of horizons begins.

    The run holds the first horizon as it is followed by others, and a whole turn of the calendars
    with as much before and after it as silence needs to be forgotten. Releases can slow down
    forgetting; `plan` verifies that and makes the run longer where needed.

    Args:
        models: Theta.
        horizon: the steps of a horizon.
        period: the steps of a day.

    Returns:
        A whole number of horizons; None where silence of 32 days does not forget.
    """
    turn = int(np.lcm.reduce([len(model.calendar.slots) for model in models]))
    for days in PERIODS:
        memory = days * period
        if kept_by_silence(models, turn + 1, turn + 1 + memory) <= FORGOTTEN:
            steps = horizon + turn + 2 * memory
            return -(-steps // horizon) * horizon
    return None


def _kept(model: OccupancyModel, p: int, first: int, last: int) -> float:
    piece = model.chains[p]
    chains = np.unique(piece.chain_of)
    possible = next(islice(possible_states(model), first - 1, None))[p][chains]
    states = possible.shape[1]
    product = np.broadcast_to(np.eye(states), (len(chains), states, states))
    moves = product > 0
    for t in range(first + 1, last + 1):
        a = transition_into(model, piece, chains, t)
        product, moves = product @ a, moves @ (a > 0)
    return _largest(product, moves, possible)


def _largest(product: Floats, moves: Bools, possible: Bools) -> float:
    """The largest of Birkhoff's coefficients of several chains."""
    return max(
        _coefficient(m[rows], b[rows]) for m, b, rows in zip(product, moves, possible, strict=True)
    )


def _coefficient(matrix: Floats, moves: Bools) -> float:
    """Birkhoff's coefficient of the rows of possible states; columns never reached drop out."""
    reached = moves.any(axis=0)
    matrix, moves = matrix[:, reached], moves[:, reached]
    if len(matrix) < 2 or matrix.shape[1] < 2:
        return 0.0
    if not (moves.all() and matrix.min() > 0):
        return 1.0
    logs = np.log(matrix)
    widest = 0.0
    for row in logs:
        apart = row - logs
        widest = max(widest, float((apart.max(axis=1) - apart.min(axis=1)).max()))
    return float(np.tanh((widest + _ROUNDING) / 4))


def contradict(models: Sequence[OccupancyModel], last: int) -> bool:
    """Whether models that are certain about a house contradict each other at any step so far.

    Args:
        models: Theta.
        last: The last step that is looked at, from 1.

    Returns:
        Never true for a single model.

    >>> laws = [[[1, 0]], [[0, 1]]]
    >>> theta = [OccupancyModel.factored(law, [[np.eye(2)]]) for law in laws]
    >>> contradict(theta[:1], 9), contradict(theta, 1)
    (False, True)
    """
    return bool(contradicted_houses(models, last).any())
