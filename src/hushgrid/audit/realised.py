"""What one release really tells about one house of a block, or under a prior mixed over Theta.

Exact, by enumeration of a block's states and convolution of laws: the largest
|log Pr[output | S_h = 1] / Pr[output | S_h = 0]| over all outputs, in the public's own belief. The
rules `minimal` and `paper` do not bound it; `block` does (docs/proofs/blocks.md). No rule of one
release bounds it for somebody who is unsure between models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import islice
from typing import NamedTuple

import numpy as np

from hushgrid.arrays import Floats
from hushgrid.belief import marginals
from hushgrid.laws import Law
from hushgrid.mechanism import State
from hushgrid.occupancy import OccupancyModel

WORK = 200_000_000  # multiplications a figure may take


class Realised(NamedTuple):
    """The figure of one house at one step: in its block, or mixed over the models (or None)."""

    house: int
    step: int
    block: tuple[int, ...]
    model: int
    loss: float


def world_law(law: Law, end: int, eta: float) -> Floats:
    """The worst law within eta of the model: a share eta of all readings lies at one end."""
    pmf = np.zeros(max(law.top, end) + 1)
    pmf[: law.top + 1] = (1 - eta) * law.pmf
    pmf[end] += eta
    return pmf


def noisy(pmf: Floats, scale: float) -> Floats:
    """The law of the reading plus Laplace noise on 0..top, but for a constant factor.

    By two recursions with positive terms only, so that tails keep their precision.
    """
    from scipy.signal import lfilter  # type: ignore[attr-defined,unused-ignore]

    q = math.exp(-1 / scale)
    forth = lfilter([1.0], [1.0, -q], pmf)
    back = lfilter([1.0], [1.0, -q], pmf[::-1])[::-1]
    return np.asarray(forth + back - pmf)


def log_ratio(absent: Floats, present: Floats, scale: float) -> Floats:
    """log Pr[k | present] / Pr[k | absent] for k = 0..top; beyond the ends it stays as it is."""
    size = max(len(absent), len(present))
    f0, f1 = (np.pad(f, (0, size - len(f))) for f in (absent, present))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(noisy(f1, scale)) - np.log(noisy(f0, scale)))


def block_loss(
    states: Floats, laws: Sequence[tuple[Floats, Floats]], house: int, scale: float
) -> float:
    """The worst loss about one house (a place in the block) when its states have these chances.

    `laws` are (absent, present) of each house; the first house is the highest bit of a state.

    >>> far = [(np.eye(1001)[0], np.eye(1001)[1000])] * 2  # 0 Wh absent, 1000 Wh present
    >>> round(block_loss(np.array([.4999, .0001, .0001, .4999]), far, 0, 2000.0), 4)
    0.9998
    """
    m = len(laws)
    sides: list[Floats | None] = [None, None]
    for state, chance in enumerate(states.tolist()):
        if chance <= 0:
            continue
        bits = [state >> (m - 1 - j) & 1 for j in range(m)]
        load = reduce(np.convolve, [pair[bit] for pair, bit in zip(laws, bits, strict=True)])
        before = sides[bits[house]]
        sides[bits[house]] = chance * load if before is None else _added(before, chance * load)
    absent, present = sides
    if absent is None or present is None:  # certain: nothing to tell
        return 0.0
    found = log_ratio(absent / absent.sum(), present / present.sum(), scale)
    return float(np.abs(found).max())


def _added(one: Floats, other: Floats) -> Floats:
    size = max(len(one), len(other))
    return np.asarray(np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other))))


def worst_of_blocks(
    first: State, models: Sequence[OccupancyModel], t: int, scale: float
) -> list[Realised]:
    """For every house that some model moves with others: the worst figure over the models."""
    found: dict[int, Realised] = {}
    for theta, model in enumerate(models):
        if all(piece.size == 1 for piece in model.chains):
            continue
        belief = next(islice(marginals(model), t - 1, None))
        for piece, law in zip(model.chains, belief.laws, strict=True):
            if piece.size == 1:
                continue
            for houses, states in zip(piece.members, belief.of_blocks(law, piece), strict=True):
                laws = laws_of(first, houses.tolist(), t)
                if _work(laws) > WORK:
                    continue
                for place, house in enumerate(houses.tolist()):
                    loss = block_loss(states, laws, place, scale)
                    known = found.get(house)
                    if known is None or loss > known.loss:
                        found[house] = Realised(house, t, tuple(houses.tolist()), theta, loss)
    return [found[house] for house in sorted(found)]


def laws_of(first: State, houses: Sequence[int], t: int) -> list[tuple[Floats, Floats]]:
    """The worst laws within the policy's eta, (absent, present), of some houses at step t."""
    f, bound, eta = first.scheduler.consumption, first.zone.bound, first.policy.eta
    found = []
    for house in houses:
        kind = int(f.class_of[house])
        absent, present = (f.law(t, kind, occupied=o) for o in (False, True))
        ends = (0, int(bound[house])) if absent.mean <= present.mean else (int(bound[house]), 0)
        found.append((world_law(absent, ends[0], eta), world_law(present, ends[1], eta)))
    return found


def _work(laws: Sequence[tuple[Floats, Floats]]) -> int:
    reach, work = 0, 0
    for _, f1 in laws:
        work += reach * len(f1)
        reach += len(f1)
    return int(work * 2 ** len(laws))


def mixed(
    first: State, models: Sequence[OccupancyModel], house: int, t: int, scale: float
) -> float | None:
    """The loss about a house for somebody who holds every model equally likely.

    Exact for small zones of houses that stand alone; None where that is too much work.
    """
    houses = range(first.zone.n_houses)
    alone = all(piece.size == 1 for model in models for piece in model.chains)
    if not alone or len(models) < 2:
        return None
    laws = laws_of(first, houses, t)
    if _work(laws) // 2 ** len(laws) * len(models) > WORK:
        return None
    sides: list[Floats | None] = [None, None]
    for model in models:
        at_home = _home(model, t)
        others = reduce(
            np.convolve,
            [_blend(laws[j], at_home[j]) for j in houses if j != house],
            np.ones(1),
        )
        for s, chance in enumerate((1 - at_home[house], at_home[house])):
            if chance > 0:
                load, before = chance * np.convolve(others, laws[house][s]), sides[s]
                sides[s] = load if before is None else _added(before, load)
    absent, present = sides
    if absent is None or present is None:
        return 0.0
    return float(np.abs(log_ratio(absent / absent.sum(), present / present.sum(), scale)).max())


def _blend(pair: tuple[Floats, Floats], home: float) -> Floats:
    return _added((1 - home) * pair[0], home * pair[1])


def _home(model: OccupancyModel, t: int) -> Floats:
    """Each house's chance to be at home, for houses that stand alone."""
    belief = next(islice(marginals(model), t - 1, None))
    home = np.empty(model.n_houses)
    for law, piece in zip(belief.laws, model.chains, strict=True):
        home[piece.members[:, 0]] = belief.of_blocks(law, piece)[:, 1]
    return home
