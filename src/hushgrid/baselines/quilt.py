"""The Markov quilt mechanism (Song, Wang, Chaudhuri 2017) for one step of one house.

A quilt {i-a, i+b} cuts the chain: what lies beyond it learns of S_i only through it. Its score is
size / (epsilon - influence), the size being the steps inside; noise is u times the largest, over
the steps, of the smallest score of a quilt.
"""

from __future__ import annotations

import numpy as np

from hushgrid.arrays import Bools, Floats, Ints
from hushgrid.baselines.method import FRESH, Method, MethodSetting, Ready, Refusal, noisy
from hushgrid.calendar import Calendar
from hushgrid.occupancy import OccupancyModel, possible_states

_CHUNK = 128  # chains looked at together
_SMALL = 1e-290  # chances below it lose digits: then only the trivial quilt counts


def quilt_multiple(
    initial: Floats, transition: Floats, calendar: Calendar, horizon: int, epsilon: float
) -> Floats:
    """For each chain, the noise in multiples of the bound u; initial (C, 2), transition (slots, C).

    >>> from hushgrid.paper import CALENDAR, chains
    >>> pi, a = chains(0.0, 1, np.random.default_rng(1))
    >>> round(float(quilt_multiple(pi, a, CALENDAR, 96, 1.0)[0]), 2)
    66.57
    """
    out = np.empty(len(initial))
    for start in range(0, len(initial), _CHUNK):
        some = slice(start, start + _CHUNK)
        out[some] = _multiple(initial[some], transition[:, some], calendar, horizon, epsilon)
    return out


def _multiple(pi: Floats, a: Floats, calendar: Calendar, horizon: int, epsilon: float) -> Floats:
    steps = [a[calendar.slot(t)] for t in range(2, horizon + 1)]  # into steps 2..T
    laws, possible = [pi], [pi > 0]  # in Booleans: a chance that underflows is not impossible
    for matrix in steps:
        laws.append(np.einsum("cs,csk->ck", laws[-1], matrix))
        possible.append((possible[-1][:, :, None] & (matrix > 0)).any(axis=1))
    lost = np.any(
        [(p & (law < _SMALL)).any(axis=1) for p, law in zip(possible, laws, strict=True)], axis=0
    )
    worst = np.zeros(len(pi))
    for i in range(horizon):
        score = np.where(lost, horizon / epsilon, _score(laws, steps, i, epsilon))
        # no secret at a step whose state is known
        worst = np.maximum(worst, np.where(possible[i].all(axis=1), score, 0.0))
    return worst


def _score(laws: list[Floats], steps: list[Floats], i: int, epsilon: float) -> Floats:
    """The smallest score of a quilt around step i (from 0), for every chain."""
    from hushgrid.kernels.quilt import two_sided

    horizon = len(laws)
    before, after = _influences(laws, steps, i)
    a, b = np.arange(1, i + 1), np.arange(1, horizon - i)
    best = np.full(len(laws[0]), horizon / epsilon)  # the trivial quilt
    left = _scores(before.max(axis=2), horizon - 1 - i + a, epsilon)
    right = _scores(after.max(axis=2), i + b, epsilon)
    for one in (left, right):
        if one.shape[1]:
            best = np.minimum(best, one.min(axis=1))
    if len(a) and len(b):
        best = two_sided(before, after, epsilon, best)
    return best


def _scores(influence: Floats, size: Ints, epsilon: float) -> Floats:
    room = epsilon - influence
    return np.where(room > 0, size / np.where(room > 0, room, 1.0), np.inf)


def _influences(laws: list[Floats], steps: list[Floats], i: int) -> tuple[Floats, Floats]:
    """(C, a, 2) and (C, b, 2): the largest log ratio at i-a and at i+b, both directions of S_i."""
    n = len(laws[0])
    forward, back = np.empty((n, len(steps) - i, 2)), np.empty((n, i, 2))
    reach = np.broadcast_to(np.eye(2), (n, 2, 2))
    for b in range(len(steps) - i):
        reach = reach @ steps[i + b]
        forward[:, b] = _ratios(reach)
    reach = np.broadcast_to(np.eye(2), (n, 2, 2))
    for a in range(i):
        reach = steps[i - 1 - a] @ reach  # rows: the state at i-a-1, columns: at i
        joint = laws[i - 1 - a][:, :, None] * reach
        given = joint / np.maximum(joint.sum(axis=1), 1e-300)[:, None]
        back[:, a] = _ratios(np.swapaxes(given, 1, 2))
    return back, forward


def _ratios(rows: Floats) -> Floats:
    """(C, 2): max over columns of log row0/row1, and of log row1/row0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        gap = np.where((rows == 0).all(axis=1), 0.0, logs[:, 0] - logs[:, 1])
    return np.stack([gap.max(axis=1), (-gap).max(axis=1)], axis=1)


def _of_model(model: OccupancyModel, horizon: int, epsilon: float) -> Floats:
    """The multiple of every house under one model; equal chains are solved once."""
    piece = model.chains[0]
    kinds = np.concatenate(
        [piece.initial, np.moveaxis(piece.transition, 1, 0).reshape(len(piece.initial), -1)], axis=1
    )
    _, first, inverse = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    found = quilt_multiple(
        piece.initial[first], piece.transition[:, first], model.calendar, horizon, epsilon
    )
    out = np.empty(model.n_houses)
    out[piece.members[:, 0]] = found[inverse.ravel()][piece.chain_of]
    return out


def _torn(setting: MethodSetting) -> Bools:
    """Houses that some step leaves open only because the models contradict each other."""
    every = [possible_states(model) for model in setting.scenario.models]
    out = np.zeros(setting.scenario.zone.n_houses, np.bool_)
    for _ in range(setting.horizon):
        states = []
        for model, steps in zip(setting.scenario.models, every, strict=True):
            piece, own = model.chains[0], np.empty((model.n_houses, 2), np.bool_)
            own[piece.members[:, 0]] = next(steps)[0][piece.chain_of]
            states.append(own)
        together = np.any(states, axis=0).all(axis=1)
        out |= together & ~np.any([one.all(axis=1) for one in states], axis=0)
    return out


def _prepare(setting: MethodSetting) -> Ready | Refusal:
    promise, scenario = setting.promise, setting.scenario
    if promise.secret == "trajectory":
        return Refusal("a quilt hides one step of a house, not its trajectory")
    if not setting.alone:
        return Refusal("houses move together, and the quilt is for one chain a house")
    each = [_of_model(model, setting.horizon, promise.epsilon) for model in scenario.models]
    multiple = np.max(each, axis=0)
    if len(scenario.models) > 1:  # certain under each model, yet not known: all of T counts
        multiple = np.where(_torn(setting), setting.horizon / promise.epsilon, multiple)
    b = float((scenario.zone.bound * multiple).max())
    if b == 0:
        return Refusal("no house is uncertain at any step, so no quilt is asked for")
    return noisy(
        setting,
        [b] * setting.horizon,
        "pure epsilon for any one step of a house from all releases, if the occupancy model is"
        " true, whatever anyone consumes" + FRESH,
    )


QUILT = Method("quilt", "Markov quilt", True, 1.0, _prepare)
