"""Pufferfish mechanisms (Song, Wang, Chaudhuri 2017), and the noise floor of any additive noise.

Markov quilt, for one step of one house: a quilt {i-a, i+b} cuts the chain; what lies beyond it
depends on S_i only through it. Its score is size / (epsilon - influence), the size being the steps
inside; noise is u times the largest, over the steps, of the smallest score of a quilt.

Wasserstein, a step at a time: its scale is W/epsilon with W the largest gap between the quantiles
of a reading's two laws: some coupling never moves the load by more. Over many steps its losses are
counted as hushgrid's are.

Probabilistic constraint (`dphmm`, after Xiao and Xiong's location sets): a house that is all but
certain, whatever was published, is left out (docs/proofs/baselines.md).

Floor: the least standard deviation of any additive noise that keeps a pair of laws epsilon apart.
The noise's pmf p on a grid is a linear programme: least sum of p k^2 with f1*p <= e^epsilon f0*p
and the reverse at every point. Beyond the grid both tails fall geometrically, each as fast as
epsilon allows, so that every constraint out there repeats one that is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Bools, Floats, Ints, float_array, is_real
from hushgrid.accounting.temporal import chain_of_houses, worst_leakage
from hushgrid.belief.filter import carried_backward, if_uncertain, transition_into
from hushgrid.errors import ConsumptionError, PolicyError
from hushgrid.lab.methods import FRESH, Method, MethodRefusal, MethodSetting, Ready, noisy
from hushgrid.mechanism.calibrators import blind_scale
from hushgrid.mechanism.policy import MIN_SCALE, Policy
from hushgrid.mechanism.scheduler import exposures_of
from hushgrid.model.laws import Law
from hushgrid.model.occupancy import Calendar, OccupancyModel, possible_states

MAX_CELLS = 200
_REACH = 8  # the grid's half width, in units of the laws' own


def floor_sd(absent: ArrayLike, present: ArrayLike, epsilon: float) -> float:
    """Least standard deviation of any noise that keeps two laws epsilon apart.

    See: docs/proofs/baselines.md.

    Args:
        absent: Pmf from cell 0 on.
        present: Pmf from cell 0 on.
        epsilon: Positive.

    Returns:
        Standard deviation, in cells of the grid of the two pmfs.

    Raises:
        PolicyError: If epsilon is not positive, or no noise was found.
        ConsumptionError: If a pmf is not one, or has too many cells.

    >>> round(floor_sd(np.full(10, 0.1), np.full(20, 0.05), 0.5) / 20, 2)
    0.65
    """
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"epsilon is {epsilon}; give a positive number.")
    f0, f1 = _pair(absent, present)
    if np.allclose(f0, f1):
        return 0.0
    return math.sqrt(_least_variance(f0, f1, epsilon))


def _pair(absent: ArrayLike, present: ArrayLike) -> tuple[Floats, Floats]:
    laws = [
        float_array(law, name, ConsumptionError)
        for law, name in ((absent, "absent"), (present, "present"))
    ]
    size = max(law.size for law in laws)
    if size > MAX_CELLS:
        raise ConsumptionError(
            f"the laws have {size} cells; a floor is for small cases: give {MAX_CELLS} or fewer."
        )
    for law in laws:
        if law.ndim != 1 or law.size == 0 or not (law >= 0).all() or not abs(law.sum() - 1) < 1e-9:
            raise ConsumptionError(
                f"a law has shape {law.shape} and sum {law.sum():g}; give probabilities from cell"
                " 0 on, summing to 1."
            )
    f0, f1 = (np.pad(law, (0, size - law.size)) for law in laws)
    return f0, f1


def _least_variance(f0: Floats, f1: Floats, epsilon: float) -> float:
    from scipy import optimize, sparse

    solver, matrices = cast(Any, optimize), cast(Any, sparse)  # scipy has no types
    width = len(f0)
    half = _REACH * width
    fall_above, fall_below = (_rate(f0, f1, sign, epsilon, width) for sign in (1.0, -1.0))
    p, mass, cost = _noise(half, 2 * width, fall_below, fall_above)
    outputs: list[Any] = [
        matrices.csr_matrix(_convolution(f, len(p))[width - 1 : len(p)] @ p) for f in (f0, f1)
    ]
    ratio = math.exp(epsilon)
    limits = matrices.vstack([outputs[1] - ratio * outputs[0], outputs[0] - ratio * outputs[1]])
    solution = solver.linprog(
        cost / width**2,  # near 1: the solver's tolerances are absolute
        A_ub=limits,
        b_ub=np.zeros(limits.shape[0]),
        A_eq=mass[None],
        b_eq=[1.0],
        method="highs",
    )
    if solution.status != 0:
        raise PolicyError(f"no noise was found at epsilon = {epsilon:g}; give a larger epsilon.")
    return float(solution.fun) * width**2


def _rate(f0: Floats, f1: Floats, sign: float, epsilon: float, width: int) -> float:
    """The fastest fall of a tail, a cell, that keeps the laws' ratio within epsilon."""
    from scipy import optimize

    x = sign * np.arange(len(f0))

    def excess(s: float) -> float:
        weights = np.exp(s * x - (s * x).max())
        return abs(math.log(float(f1 @ weights) / float(f0 @ weights))) - epsilon

    top = 1.0 / width
    while top < 30 and excess(top) < 0:
        top *= 2
    if excess(top) < 0:
        return top
    return float(cast(Any, optimize).brentq(excess, 0.0, top, xtol=1e-12))


def _noise(
    half: int, extra: int, fall_below: float, fall_above: float
) -> tuple[Floats, Floats, Floats]:
    """The pmf from the unknowns -half..half, `extra` cells of tail on each side; mass; cost."""
    size = 2 * half + 1
    p = np.zeros((size + 2 * extra, size))
    p[extra : extra + size] = np.eye(size)
    j = np.arange(1, extra + 1)
    p[extra - j, 0], p[extra + size - 1 + j, -1] = np.exp(-fall_below * j), np.exp(-fall_above * j)
    mass, cost = np.ones(size), np.arange(-half, half + 1, dtype=np.float64) ** 2
    for column, s in ((0, fall_below), (-1, fall_above)):
        j = np.arange(1, 2 + math.ceil(60 / s))
        fall = np.exp(-s * j)
        mass[column] += fall.sum()
        cost[column] += float(((half + j) ** 2) @ fall)
    return p, mass, cost


def _convolution(f: Floats, size: int) -> Floats:
    """The matrix of f * p for a p of `size` cells."""
    matrix = np.zeros((size + len(f) - 1, size))
    for shift, weight in enumerate(f.tolist()):
        matrix[np.arange(size) + shift, np.arange(size)] = weight
    return matrix


def floor_of_uniform(
    absent: int, present: int, epsilon: float, cells: int, tick: Callable[[], None] = lambda: None
) -> float:
    """The floor for readings uniform on 0..absent and 0..present Wh.

    Args:
        absent: Largest reading when absent [Wh].
        present: Largest reading when present [Wh].
        epsilon: Positive.
        cells: Cells of the grid.
        tick: Called at the end.

    Returns:
        Standard deviation [Wh].

    Raises:
        ConsumptionError: If the number of cells or a top is out of range.
    """
    if not 1 <= cells <= MAX_CELLS:
        raise ConsumptionError(f"cells is {cells}; give 1 to {MAX_CELLS}.")
    top = max(absent, present)
    f0, f1 = (_cells(u, top, cells) for u in (absent, present))
    sd = floor_sd(f0, f1, epsilon) * top / cells
    tick()
    return sd


def _cells(u: int, top: int, cells: int) -> Floats:
    """A uniform law on 0..u as shares of the grid's cells on 0..top."""
    if u < 1:
        raise ConsumptionError(f"a law's top is {u}; give whole Wh, 1 or more.")
    edges = np.minimum(np.arange(cells + 1) * top / cells, u)
    return np.asarray(np.diff(edges) / u)


_CHUNK = 128  # chains computed at once
_SMALL = 1e-290  # chances below it lose digits: then only the trivial quilt counts


def quilt_multiple(
    initial: Floats, transition: Floats, calendar: Calendar, horizon: int, epsilon: float
) -> Floats:
    """Noise of the Markov quilt for each chain, in multiples of the bound u.

    Args:
        initial: (C, 2): initial laws.
        transition: (slots, C, 2, 2): transitions.
        calendar: Slot of each step.
        horizon: Number of steps T.
        epsilon: Positive.

    Returns:
        (C,): multiples.

    >>> from hushgrid.lab.paper import CALENDAR, chains
    >>> pi, a = chains(0.0, 1, np.random.default_rng(1))
    >>> round(float(quilt_multiple(pi, a, CALENDAR, 96, 1.0)[0]), 2)
    66.57
    """
    multiples = np.empty(len(initial))
    for start in range(0, len(initial), _CHUNK):
        part = slice(start, start + _CHUNK)
        multiples[part] = _multiple(initial[part], transition[:, part], calendar, horizon, epsilon)
    return multiples


def _multiple(pi: Floats, a: Floats, calendar: Calendar, horizon: int, epsilon: float) -> Floats:
    steps = [a[calendar.slot(t)] for t in range(2, horizon + 1)]  # into steps 2..T
    laws, possible = [pi], [pi > 0]  # in Booleans: a chance that underflows is not impossible
    for matrix in steps:
        laws.append(np.einsum("cs,csk->ck", laws[-1], matrix))
        possible.append((possible[-1][:, :, None] & (matrix > 0)).any(axis=1))
    underflows = np.any(
        [(p & (law < _SMALL)).any(axis=1) for p, law in zip(possible, laws, strict=True)], axis=0
    )
    worst = np.zeros(len(pi))
    for i in range(horizon):
        score = np.where(underflows, horizon / epsilon, _score(laws, steps, i, epsilon))
        # no secret at a step whose state is known
        worst = np.maximum(worst, np.where(possible[i].all(axis=1), score, 0.0))
    return worst


def _score(laws: list[Floats], steps: list[Floats], i: int, epsilon: float) -> Floats:
    """The smallest score of a quilt around step i (from 0), for every chain."""
    from hushgrid._kernels.loss import two_sided

    horizon = len(laws)
    past, future = _influences(laws, steps, i)
    a, b = np.arange(1, i + 1), np.arange(1, horizon - i)
    best = np.full(len(laws[0]), horizon / epsilon)  # the trivial quilt
    past_scores = _scores(past.max(axis=2), horizon - 1 - i + a, epsilon)
    future_scores = _scores(future.max(axis=2), i + b, epsilon)
    for scores in (past_scores, future_scores):
        if scores.shape[1]:
            best = np.minimum(best, scores.min(axis=1))
    if len(a) and len(b):
        best = two_sided(past, future, epsilon, best)
    return best


def _scores(influence: Floats, size: Ints, epsilon: float) -> Floats:
    room = epsilon - influence
    return np.where(room > 0, size / np.where(room > 0, room, 1.0), np.inf)


def _influences(laws: list[Floats], steps: list[Floats], i: int) -> tuple[Floats, Floats]:
    """(C, a, 2) and (C, b, 2): the largest log ratio at i-a and at i+b, both directions of S_i."""
    n = len(laws[0])
    forward, back = np.empty((n, len(steps) - i, 2, 2)), np.empty((n, i, 2, 2))
    reach = np.broadcast_to(np.eye(2), (n, 2, 2))
    for b in range(len(steps) - i):
        reach = forward[:, b] = reach @ steps[i + b]
    reach = np.broadcast_to(np.eye(2), (n, 2, 2))
    for a in range(i):
        reach = steps[i - 1 - a] @ reach  # rows: the state at i-a-1, columns: at i
        joint = laws[i - 1 - a][:, :, None] * reach
        conditional = joint / np.maximum(joint.sum(axis=1), 1e-300)[:, None]
        back[:, a] = np.swapaxes(conditional, 1, 2)
    return _ratios(back), _ratios(forward)


def _ratios(rows: Floats) -> Floats:
    """(C, steps, 2): max over columns of log row0/row1, and of log row1/row0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        gap = np.where((rows == 0).all(axis=2), 0.0, logs[:, :, 0] - logs[:, :, 1])
    return np.stack([gap.max(axis=2), (-gap).max(axis=2)], axis=2)


def _model_multiples(model: OccupancyModel, horizon: int, epsilon: float) -> Floats:
    """The multiple of every house under one model; equal chains are solved once."""
    piece = model.chains[0]
    kinds = np.concatenate(
        [piece.initial, np.moveaxis(piece.transition, 1, 0).reshape(len(piece.initial), -1)], axis=1
    )
    _, first, inverse = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    multiples = quilt_multiple(
        piece.initial[first], piece.transition[:, first], model.calendar, horizon, epsilon
    )
    result = np.empty(model.n_houses)
    result[piece.members[:, 0]] = multiples[inverse.ravel()][piece.chain_of]
    return result


def _contradictions(setting: MethodSetting) -> Bools:
    """Houses that some step leaves open only because the models contradict each other."""
    possible_by_model = [possible_states(model) for model in setting.scenario.models]
    houses = np.zeros(setting.scenario.zone.n_houses, np.bool_)
    for _ in range(setting.horizon):
        states = []
        for model, steps in zip(setting.scenario.models, possible_by_model, strict=True):
            piece, possible = model.chains[0], np.empty((model.n_houses, 2), np.bool_)
            possible[piece.members[:, 0]] = next(steps)[0][piece.chain_of]
            states.append(possible)
        joint = np.any(states, axis=0).all(axis=1)
        houses |= joint & ~np.any([possible.all(axis=1) for possible in states], axis=0)
    return houses


def _prepare_quilt(setting: MethodSetting) -> Ready | MethodRefusal:
    promise, scenario = setting.promise, setting.scenario
    if promise.window is not None:
        return MethodRefusal("a quilt hides one step of a house, not all of a window")
    if not setting.alone:
        return MethodRefusal("houses move together, and the quilt is for one chain a house")
    if setting.run is not None:
        return MethodRefusal("its quilts are of a day on its own, and these days have no end")
    multiples = [
        _model_multiples(model, setting.horizon, promise.epsilon) for model in scenario.models
    ]
    multiple = np.max(multiples, axis=0)
    if len(scenario.models) > 1:  # certain under each model, yet not known: all of T counts
        multiple = np.where(_contradictions(setting), setting.horizon / promise.epsilon, multiple)
    b = float((scenario.zone.bound * multiple).max())
    if b == 0:
        return MethodRefusal("no house is uncertain at any step, so no quilt is asked for")
    return noisy(
        setting,
        [b] * setting.horizon,
        "pure epsilon for any one step of a house from all releases, if the occupancy model is"
        " true, at any level of consumption" + FRESH,
    )


QUILT = Method("quilt", "Markov quilt", True, 1.0, _prepare_quilt)


_TIE = 1e-9  # relative; a narrower step between two cumulative sums is rounding


def quantile_gap(absent: Floats, present: Floats) -> int:
    """W_infinity of two laws: the largest gap between their quantiles.

    Args:
        absent: Pmf on 0..top.
        present: Pmf on 0..top.

    Returns:
        The gap [Wh].

    >>> quantile_gap(np.full(5, 0.2), np.full(11, 1 / 11))
    6
    """
    size = max(len(absent), len(present))
    f, g = (np.pad(pmf, (0, size - len(pmf))) for pmf in (absent, present))
    return max(_gap_below(f, g), _gap_below(f[::-1], g[::-1]))


def _gap_below(f: Floats, g: Floats) -> int:
    """The largest gap among quantiles up to a little above one half, small sums exact."""
    points, sums = [], []
    for pmf in (f, g):
        support = np.flatnonzero(pmf > 0)
        points.append(support)
        sums.append(np.cumsum(pmf[support]))
    ends = np.unique(np.concatenate(sums))
    starts = np.r_[0.0, ends[:-1]]
    real = (ends - starts > _TIE * ends) & (starts < 0.6)
    middle = ((starts + ends) / 2)[real]
    quantiles = [
        support[np.minimum(np.searchsorted(cumulative, middle), len(support) - 1)]
        for support, cumulative in zip(points, sums, strict=True)
    ]
    return int(np.abs(quantiles[0] - quantiles[1]).max())


@lru_cache(maxsize=100_000)
def _gap(absent: Law, present: Law) -> int:
    return quantile_gap(absent.pmf, present.pmf)


def _gaps(setting: MethodSetting, t: int) -> Floats:
    """The quantile gap of every house's reading at step t [Wh]."""
    f = setting.scenario.consumption
    gaps = [
        _gap(f.law(t, kind, occupied=False), f.law(t, kind, occupied=True))
        for kind in range(f.absent.shape[1])
    ]
    return np.array(gaps, np.float64)[f.class_of]


def _prepare_wasserstein(setting: MethodSetting) -> Ready | MethodRefusal:
    promise, scenario = setting.promise, setting.scenario
    if promise.window is not None:
        return MethodRefusal("it trusts a law of consumption, which a whole window has not")
    if not setting.alone:
        return MethodRefusal("houses move together, and the quantile gap is one house's")
    exposures = exposures_of(
        setting.models_of_a_day,
        scenario.zone,
        scenario.consumption,
        Policy(1.0, setting.horizon),
    )
    by_slot: dict[int, Floats] = {}
    gaps = []
    for t in range(1, setting.horizon + 1):
        slot = scenario.consumption.calendar.slot(t)
        if slot not in by_slot:
            by_slot[slot] = _gaps(setting, t)
        gaps.append(np.where(exposures.at(t).protected.mask(), by_slot[slot], 0.0))
    reach = np.array(gaps)
    widest = np.maximum(reach.max(axis=1), MIN_SCALE)
    shares = reach / widest[:, None]  # of what a step loses, by house
    step_loss = _largest(setting, shares) if setting.run is None else setting.step_epsilon
    return noisy(
        setting,
        np.maximum(widest / step_loss, MIN_SCALE).tolist(),
        "pure epsilon, if the occupancy model is true and every reading follows its public law"
        + ("" if promise.secret == "step" else FRESH),
    )


def _largest(setting: MethodSetting, shares: Floats) -> float:
    """The largest loss a step that keeps the promise."""
    promise = setting.promise
    if promise.secret == "step":
        return promise.epsilon
    low, high = promise.epsilon / (8 * len(shares)), promise.epsilon
    while high / low - 1 > 1e-6:
        middle = math.sqrt(low * high)
        holds = worst_leakage(setting.scenario.models, middle * shares).total <= promise.epsilon
        low, high = (middle, high) if holds else (low, middle)
    return low


WASSERSTEIN = Method("wasserstein", "Wasserstein", True, 0.0, _prepare_wasserstein)


class LeftToStates:
    """The most probability that any past releases can leave to each state of each house.

    Releases move the odds of a step by at most e^L, L the backward leakage carried into it, so no
    release is needed, and the schedule is known ahead. For models of one piece of lone houses.

    Args:
        models: The occupancy models Theta.
    """

    def __init__(self, models: Sequence[OccupancyModel]) -> None:
        self._models, self._t = models, 1
        self._chains = [chain_of_houses(model) for model in models]
        laws = zip(models, self._chains, strict=True)
        self._laws = [model.chains[0].initial[chain] for model, chain in laws]
        self._possible = [np.asarray(law > 0) for law in self._laws]
        self._carried = [np.zeros(len(law)) for law in self._laws]

    def advance(self, losses: Floats) -> None:
        """Go on to the next step, after a release with these losses, (N,)."""
        self._t += 1
        for k, model in enumerate(self._models):
            law, possible = self._laws[k], self._possible[k]
            a = transition_into(model, model.chains[0], self._chains[k], self._t)
            backward = if_uncertain(losses, possible) + self._carried[k]
            self._possible[k], self._carried[k] = carried_backward(backward, law, possible, a)
            self._laws[k] = np.einsum("gs,gsk->gk", law, a)

    def most(self) -> Floats:
        """(N, 2): under any of the models."""
        parts = []
        for law, possible, carried in zip(self._laws, self._possible, self._carried, strict=True):
            with np.errstate(divide="ignore"):
                odds = np.log(law) - np.log(law[:, ::-1])
            raised = 1 / (1 + np.exp(-np.clip(odds + carried[:, None], -700, 700)))
            # a possible state whose chance underflowed is not known to be unlikely
            parts.append(np.where(possible & (law == 0), 1.0, raised))
        return np.asarray(np.max(parts, axis=0))


def constraint_scales(
    setting: MethodSetting, epsilon: float, delta: float
) -> tuple[list[float], list[Bools]]:
    """Scales of a day on which a house is left out once a state keeps almost no probability.

    The set is never emptied: where no house would remain, none is left out.

    Args:
        setting: The zone, whose houses move on their own.
        epsilon: Of each release about a house that is protected.
        delta: The probability.

    Returns:
        The scale of every step [Wh], and the houses that it protects, (N,) each.
    """
    scenario = setting.scenario
    bound, policy = scenario.zone.bound, Policy(epsilon, setting.horizon)
    exposures = exposures_of(scenario.models, scenario.zone, scenario.consumption, policy)
    left, scales, protected = LeftToStates(scenario.models), list[float](), list[Bools]()
    for t in range(1, setting.horizon + 1):
        houses = exposures.at(t).protected.mask()
        likely = houses & (left.most() > delta).all(axis=1)
        protected.append(likely if likely.any() else houses)
        reach = int(bound[protected[-1]].max())
        scales.append(max(blind_scale(reach, epsilon), MIN_SCALE))
        left.advance(bound / scales[-1])
    return scales, protected


def _prepare_dphmm(setting: MethodSetting) -> Ready | MethodRefusal:
    promise = setting.promise
    if promise.window is not None:
        return MethodRefusal("it protects occupancy at single steps, not all of a window")
    if promise.delta == 0:
        return MethodRefusal(
            "its constraint leaves out houses that are all but certain: give a delta"
        )
    if not setting.alone:
        return MethodRefusal("houses move together, and the constraint is for one chain a house")
    if setting.run is not None:
        return MethodRefusal("its chances of an exception add up over days that follow each other")
    parts = 1 if promise.secret == "step" else setting.horizon
    scales, _ = constraint_scales(setting, promise.epsilon / parts, promise.delta / parts)
    return noisy(
        setting,
        scales,
        "epsilon, unless the house is in a state that had at most delta"
        + ("" if parts == 1 else " in all; steps add up"),
    )


DPHMM = Method("dphmm", "probabilistic constraint", True, 1.0, _prepare_dphmm)
