"""Leakage about one step of one house from *all* releases (after Cao, Yoshikawa, Xiao, Xiong).

Proof and golden values: docs/proofs/temporal.md.

    BPL_t = e_t + L_B(BPL_{t-1})     FPL_t = e_t + L_F(FPL_{t+1})     TPL_t = BPL_t + FPL_t - e_t
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hushgrid.belief import Belief, marginals, predict, prior
from hushgrid.errors import PolicyError
from hushgrid.occupancy import Chains, OccupancyModel, possible_states

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Leakage:
    """Backward, forward and total leakage: (T, houses) arrays."""

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
    models: OccupancyModel | Sequence[OccupancyModel], epsilon_t: ArrayLike
) -> Leakage:
    """What all releases together say about each step; the maximum over several models.

    `epsilon_t` is (T,) for all houses alike, or (T, houses): the loss of each release. For houses
    that move together it must be the loss of their block, as `Account.losses` gives it.

    >>> theta = OccupancyModel.factored([[0.7, 0.3]], [[[[0.9, 0.1], [0.2, 0.8]]]])
    >>> temporal_leakage(theta, [0.5, 0.5, 0.5]).total[:, 0].round(6).tolist()
    [1.10627, 1.20726, 1.103589]
    """
    if isinstance(models, OccupancyModel):
        models = (models,)
    each = [_of_model(model, _checked(epsilon_t, model.n_houses)) for model in models]
    if len(each) == 1:
        return each[0]
    return Leakage(*(np.maximum.reduce([getattr(one, part) for one in each]) for part in _PARTS))


_PARTS = ("backward", "forward", "total")


def _checked(epsilon_t: ArrayLike, n_houses: int) -> Floats:
    e = np.asarray(epsilon_t, np.float64)
    if e.ndim not in (1, 2) or e.shape[0] == 0:
        raise PolicyError(
            f"epsilon_t has shape {e.shape}; give one loss for each of 1 step or more."
        )
    if e.ndim == 2 and e.shape[1] != n_houses:
        raise PolicyError(
            f"epsilon_t has {e.shape[1]} columns but the model {n_houses} houses;"
            " give one column for each house, or none."
        )
    if not (e >= 0).all():
        raise PolicyError(f"epsilon_t is {e.min()} somewhere; give losses of 0 or more.")
    return e


def _of_model(model: OccupancyModel, e: Floats) -> Leakage:
    horizon = len(e)
    out = Leakage(*(np.zeros((horizon, model.n_houses)) for _ in _PARTS))
    for p in range(len(model.chains)):
        for found, houses in _of_piece(model, p, e):
            for part in _PARTS:
                getattr(out, part)[:, houses] = getattr(found, part)[:, :, None]
    return out


def _of_piece(
    model: OccupancyModel, p: int, e: Floats
) -> Iterator[tuple[Leakage, NDArray[np.int32]]]:
    """The leakage of the blocks of one size, in chunks: (leakage (T, blocks), their houses)."""
    piece = model.chains[p]
    if e.ndim == 1:
        by_chain = blocks_leakage(model, p, e[:, None], np.arange(len(piece.initial)))
        spread = Leakage(*(getattr(by_chain, part)[:, piece.chain_of] for part in _PARTS))
        yield spread, piece.members
        return
    chunk = max(1, (1 << 22) // (4**piece.size * 8))
    for start in range(0, len(piece.members), chunk):
        some = slice(start, start + chunk)
        members = piece.members[some]
        own = e[:, members].max(axis=2)  # each house carries its block's loss
        yield blocks_leakage(model, p, own, piece.chain_of[some]), members


def blocks_leakage(
    model: OccupancyModel, p: int, e: Floats, chains: NDArray[np.integer]
) -> Leakage:
    """Leakage of blocks that follow `chains` of piece p; e is (T, 1) or (T, blocks)."""
    horizon, n = len(e), len(chains)
    piece = model.chains[p]
    open_at = [now[p][chains] for now in islice(possible_states(model), horizon)]
    uncertain = np.array([states.sum(axis=1) > 1 for states in open_at])
    e = np.where(uncertain, np.broadcast_to(e, (horizon, n)), 0.0)
    backward, forward = np.empty((horizon, n)), np.empty((horizon, n))
    laws = [belief.laws[p][chains] for belief in islice(marginals(model), horizon)]
    backward[0] = e[0]
    for t in range(1, horizon):
        b = _reversed(laws[t - 1], _into(model, piece, chains, t + 1))
        backward[t] = e[t] + carried(backward[t - 1], b, open_at[t])
    forward[-1] = e[-1]
    for t in range(horizon - 2, -1, -1):
        a = _into(model, piece, chains, t + 2)
        forward[t] = e[t] + carried(forward[t + 1], a, open_at[t])
    return Leakage(backward, forward, backward + forward - e)


def _into(model: OccupancyModel, piece: Chains, chains: NDArray[np.integer], t: int) -> Floats:
    """A^t of each block: rows from the state of step t - 1."""
    return np.asarray(piece.transition[model.calendar.slot(t)][chains])


def _reversed(before: Floats, a: Floats) -> Floats:
    """B^t(s_t, s_{t-1}) = Pr[S^{t-1} given S^t] by Bayes, from the law of step t - 1."""
    joint = np.swapaxes(before[:, :, None] * a, 1, 2)
    total = joint.sum(axis=2, keepdims=True)
    return np.asarray(np.divide(joint, total, out=np.zeros_like(joint), where=total > 0))


def carried(a: Floats, rows: Floats, possible: Bools) -> Floats:
    """L(a): how much of a leakage `a` at one step carries over through `rows` to the next.

    Rows of impossible states do not count; fewer than two possible rows carry nothing.
    """
    if rows.shape[1] == 2:
        return _carried_two(a, rows, possible)
    return np.array([_carried_many(x, r[s]) for x, r, s in zip(a, rows, possible, strict=True)])


def _carried_two(a: Floats, rows: Floats, possible: Bools) -> Floats:
    first, second = rows[:, 0], rows[:, 1]
    high, low = np.maximum(first, second), np.minimum(first, second)
    columns = _log_mix(high, a[:, None]) - _log_mix(low, a[:, None])
    return np.where(possible.all(axis=1), columns.max(axis=1), 0.0)


def _log_mix(share: Floats, a: Floats) -> Floats:
    """log(share (e^a - 1) + 1), for a >= 0 of any size."""
    with np.errstate(divide="ignore"):
        tail = np.log(share + (1 - share) * np.exp(-a))
    return np.where(share > 0, a + tail, 0.0)


def _carried_many(a: float, rows: Floats) -> float:
    """K states: over ordered pairs of rows, the best prefix of columns sorted by their ratio."""
    if len(rows) < 2 or a == 0:
        return 0.0
    worst = 0.0
    for i, q in enumerate(rows):
        d = np.delete(rows, i, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(d > 0, q / d, np.where(q > 0, np.inf, -1.0))
        order = np.argsort(-ratio, axis=1, kind="stable")
        above = np.minimum(np.cumsum(q[order], axis=1), 1.0)
        below = np.minimum(np.cumsum(np.take_along_axis(d, order, axis=1), axis=1), 1.0)
        gain = _log_mix(above, np.array(a)) - _log_mix(below, np.array(a))
        worst = max(worst, float(gain.max()))
    return worst


def supremum(rows: ArrayLike, epsilon: float) -> float:
    """Leakage over an endless horizon at a constant loss a step, two states; may be infinite.

    >>> round(supremum([[0.9, 0.1], [0.2, 0.8]], 0.5), 6)
    1.582528
    """
    matrix = np.asarray(rows, np.float64)
    return max(_supremum_column(float(c.max()), float(c.min()), epsilon) for c in matrix.T)


def _supremum_column(q: float, d: float, epsilon: float) -> float:
    if q == d:
        return epsilon
    grown = math.exp(epsilon)
    if d > 0:
        middle = d + q * grown - 1
        root = math.sqrt(4 * d * grown * (1 - q) + middle**2)
        return math.log((root + middle) / (2 * d))
    if q < 1 and epsilon < math.log(1 / q):
        return math.log((1 - q) * grown / (1 - q * grown))
    return math.inf


def grows_without_end(model: OccupancyModel, epsilon: float) -> NDArray[np.bool_]:
    """For each house, whether leakage grows with every day at a constant loss a step.

    It does when occupancy can fail to change all day long: then what a day adds to an already
    huge leakage is not negative.
    """
    period = len(model.calendar.slots)
    out = np.zeros(model.n_houses, np.bool_)
    for p, piece in enumerate(model.chains):
        chains = np.arange(len(piece.initial))
        open_at = [now[p] for now in islice(possible_states(model), 2 * period + 1)]
        huge = np.full(len(chains), 1e5)
        leakage = huge.copy()
        for t in range(2 * period, period, -1):
            a = _into(model, piece, chains, t + 1)
            leakage = epsilon + carried(leakage, a, open_at[t - 1])
        out[piece.members] = (leakage >= huge - 1e-6)[piece.chain_of][:, None]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Backward leakage kept up release by release: what is known so far."""

    model: OccupancyModel
    t: int
    belief: Belief | None
    possible: tuple[Bools, ...]  # in Booleans: a chance that underflows is not impossible
    backward: tuple[Floats, ...]

    @classmethod
    def start(cls, model: OccupancyModel) -> Stream:
        """Before the first release."""
        return cls(model, 0, None, (), ())

    def step(self, epsilon: float) -> Stream:
        """After one more release at this loss."""
        t = self.t + 1
        now = prior(self.model) if self.belief is None else predict(self.belief, self.model)
        open_now, found = [], []
        for p, piece in enumerate(self.model.chains):
            a = _into(self.model, piece, np.arange(len(piece.initial)), t)
            possible = piece.initial > 0
            if self.belief is not None:
                possible = np.asarray((self.possible[p][:, :, None] & (a > 0)).any(axis=1))
            e = np.where(possible.sum(axis=1) > 1, epsilon, 0.0)
            if self.belief is not None:
                b = _reversed(self.belief.laws[p], a)
                e = e + carried(self.backward[p], b, possible)
            open_now.append(possible)
            found.append(e)
        return Stream(self.model, t, now, tuple(open_now), tuple(found))

    @property
    def worst(self) -> float:
        """The largest backward leakage of any house now."""
        return max((float(b.max()) for b in self.backward), default=0.0)
