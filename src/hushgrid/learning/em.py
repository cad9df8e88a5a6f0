"""Hidden Markov models of many homes at once, fitted by expectation-maximisation.

Home h has K hidden states. They move by `transition[h, slot of the arriving step]`; a reading has a
law by state and slot group. In a home without labels state 0 is the one that uses least. The
log-likelihood plus the log of the priors rises with every iteration; the priors are pseudo-counts
of moves and a few readings spread like the home's own (_families.py). A home's fit depends, to the
bit, only on the design, its own readings and its own labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._kernels import chains as kernel
from hushgrid._numbers import Bools, Floats, Indices, Int8s, Int32s, Ints
from hushgrid.errors import ModelError
from hushgrid.learning._families import Family, natural_of, parameters_of, values_of

NO_LABELS = np.full((1, 1), -1, np.int8)
NO_POSTERIOR = np.zeros((1, 1))
_TINY = 1e-300


@dataclass(slots=True, eq=False)
class FittingState:
    """The state of an iteration over H homes.

    Attributes:
        initial: (H, K) laws of the first state.
        transition: (H, slots, K, K) moves.
        natural: (H, groups, K, features) natural parameters of the laws.
        last: (H,) objective after the last iteration.
        converged: (H,) whether a home has converged.
        iterations: (H,) number of iterations.
        rising: (H,) objective after each iteration, NaN once a home has converged.
    """

    initial: Floats
    transition: Floats
    natural: Floats
    last: Floats
    converged: Bools
    iterations: Ints
    rising: list[Floats] = field(default_factory=list)

    def better(self, rival: FittingState) -> FittingState:
        """For each home the state with the larger objective."""
        wins = rival.last > self.last
        for name in ("initial", "transition", "natural", "last", "converged", "iterations"):
            getattr(self, name)[wins] = getattr(rival, name)[wins]
        for objective, rival_objective in zip(self.rising, rival.rising, strict=False):
            objective[wins] = rival_objective[wins]
        for objective in self.rising[len(rival.rising) :]:
            objective[wins] = np.nan
        for rival_objective in rival.rising[len(self.rising) :]:
            self.rising.append(np.where(wins, rival_objective, np.nan))
        return self


class Fitting:
    """Encoded readings of some homes, and the arrays that iterations work in.

    Args:
        x: (H, steps) readings [Wh], NaN where missing.
        design: What is fitted.
        labels: (H, steps) labels, or None.
        edges: (H, bins + 1) borders of a histogram's bins, or None.
    """

    def __init__(
        self, x: Floats, design: Design, labels: Int8s | None, edges: Floats | None = None
    ) -> None:
        self.design, self.homes = design, np.arange(len(x), dtype=np.int64)
        self.code, self.distinct, self.size, self.weight = _encode(x)
        self.values = values_of(design.family, self.distinct, self.size, self.weight, edges)
        self.label = NO_LABELS if labels is None else np.ascontiguousarray(labels, np.int8)
        self.group = np.ascontiguousarray(design.group, np.int32)
        self.slot = np.ascontiguousarray(design.slot, np.int32)
        shape = (len(x), self.distinct.shape[1], design.groups, design.states)
        self.relative, self.best, self.counts = np.ones(shape), np.zeros(shape[:3]), np.zeros(shape)
        self.prior_moves = np.broadcast_to(design.moves, (len(x), *design.moves.shape[-3:]))
        self.moves = np.zeros(self.prior_moves.shape)
        self.first = np.zeros((len(x), design.states))
        self.sums = np.zeros((len(x), design.groups, design.states, self.values.prior.shape[1]))
        self.prior_sums = design.weight * self.values.prior[:, None, None, :]

    def expect(self, homes: Ints, state: FittingState, post: Floats = NO_POSTERIOR) -> Floats:
        """Compute expected counts of some homes under a state; returns their log-likelihoods."""
        self._tabulate(homes, state.natural)
        return np.asarray(
            kernel.expect(
                homes, self.code, self.label, self.group, self.slot, self.relative, self.best,
                state.initial, state.transition, self.counts, self.moves, self.first, post,
            )
        )  # fmt: skip

    def maximise(self, homes: Ints, state: FittingState) -> None:
        """Set the best parameters for the counts."""
        state.natural[homes] = self._laws(homes)
        moves = self.moves[homes] + self.prior_moves[homes]
        total = moves.sum(axis=-1, keepdims=True)
        # a state that never was and has no prior keeps its row
        state.transition[homes] = np.where(
            total > 0, moves / np.maximum(total, _TINY), state.transition[homes]
        )
        first = self.first[homes] + self.design.first
        state.initial[homes] = first / first.sum(axis=1, keepdims=True)

    def iterate(
        self, state: FittingState, iterations: int, tick: Callable[[int], None] = lambda _: None
    ) -> None:
        """Iterate until every home has converged, at most `iterations` times.

        `tick` is called with the number of homes that have converged since its last call.
        """
        enough = self.design.tolerance * np.maximum(self.weight.sum(axis=1), 1.0)
        n_converged = 0
        for _ in range(iterations):
            active = self.homes[~state.converged]
            tick(len(self.homes) - active.size - n_converged)
            n_converged = len(self.homes) - active.size
            if not active.size:
                return
            likelihood = self.expect(active, state)
            objective = np.full(len(self.homes), np.nan)
            objective[active] = likelihood + self.log_prior(active, state)
            state.rising.append(objective)
            state.converged[active] = objective[active] - state.last[active] < enough[active]
            state.last[active] = objective[active]
            state.iterations[active] += 1
            still = self.homes[~state.converged]
            if still.size:
                self.maximise(still, state)
        tick(len(self.homes) - n_converged)

    def log_prior(self, homes: Ints, state: FittingState) -> Floats:
        """Log of the priors, up to constants."""
        prior = self.prior_moves[homes]
        moves = prior * np.log(np.maximum(state.transition[homes], _TINY))
        laws = self.prior_sums[homes] * state.natural[homes]
        first = self.design.first * np.log(np.maximum(state.initial[homes], _TINY))
        return np.asarray(moves.sum(axis=(1, 2, 3)) + laws.sum(axis=(1, 2, 3)) + first.sum(axis=1))

    def started(self, share: float) -> FittingState:
        """Initial laws from a split of each group's readings by size, and moves from the prior.

        The lowest `share` of readings begins as state 0; a negative share uses those of the design.
        """
        design, states = self.design, self.design.states
        self.counts[:] = 0.0
        for g in range(design.groups):
            below = share if share >= 0 else 1 - float(design.occupied[g])
            cuts = below + (1 - below) * np.arange(states - 1) / max(states - 1, 1)
            of_value = self._of_values(self.group == g)
            rank = np.cumsum(of_value, axis=1) - of_value / 2
            rank /= np.maximum(of_value.sum(axis=1, keepdims=True), 1)
            belongs = np.searchsorted(cuts, rank, side="right")
            for k in range(states):
                soft = 0.9 * (belongs == k) + 0.1 / states
                self.counts[:, :, g, k] = of_value * soft
        prior = self.prior_moves + (self.prior_moves.sum(axis=-1, keepdims=True) == 0)
        n = len(self.homes)
        return FittingState(
            initial=np.full((n, states), 1 / states),
            transition=np.array(prior / prior.sum(axis=-1, keepdims=True)),
            natural=self._laws(self.homes),
            last=np.full(n, -np.inf),
            converged=np.zeros(n, bool),
            iterations=np.zeros(n, np.int64),
        )

    def _of_values(self, mask: Bools) -> Floats:
        """(homes, values) counts of each value in the chosen steps."""
        width = self.distinct.shape[1]
        rows = [np.bincount(c[c >= 0], minlength=width) for c in self.code[:, mask]]
        return np.array(rows, np.float64)

    def reorder(self, state: FittingState, homes: Ints) -> None:
        """Order the states of these homes by mean reading: state 0 has the smallest."""
        self.expect(self.homes, state)
        readings, means = self.usage()
        share = readings.sum(axis=2, keepdims=True)
        order = np.argsort((share * means).sum(axis=1), axis=1, kind="stable")
        for h in homes:
            k = order[h]
            state.initial[h] = state.initial[h, k]
            state.natural[h] = state.natural[h][:, k]
            state.transition[h] = state.transition[h][:, k][:, :, k]

    def usage(self) -> tuple[Floats, Floats]:
        """(homes, groups, states): expected readings, and their mean [Wh]."""
        readings = self.counts.sum(axis=1)
        # added up value by value: a home's sums must not depend on how far others are padded
        energy = (self.counts * self.distinct[:, :, None, None]).sum(axis=1)
        overall = (self.weight * self.distinct).sum(axis=1) / np.maximum(self.weight.sum(axis=1), 1)
        means = np.where(
            readings > 1e-6, energy / np.maximum(readings, 1e-6), overall[:, None, None]
        )
        return readings, means

    def under(self, initial: Floats, transition: Floats, natural: Floats, post: Floats) -> Floats:
        """Log-likelihoods under given parameters; `post` takes the posterior."""
        n = len(self.homes)
        converged, zeros = np.ones(n, bool), np.zeros(n, np.int64)
        chains = np.ascontiguousarray(initial), np.ascontiguousarray(transition)
        state = FittingState(*chains, np.ascontiguousarray(natural), np.zeros(n), converged, zeros)
        return self.expect(self.homes, state, post)

    def gathered(self) -> Floats:
        """Sufficient statistics of the laws, for the present counts of all homes."""
        self._gather(self.homes)
        return self.sums.copy()

    def _gather(self, homes: Ints) -> None:
        values = self.values
        if self.design.family == "histogram":
            kernel.gather_bins(homes, self.counts, values.bins, self.size, self.sums)
        else:
            kernel.gather(homes, self.counts, values.features, self.size, self.sums)

    def _laws(self, homes: Ints) -> Floats:
        self._gather(homes)
        sums = tie_sums(self.sums[homes] + self.prior_sums[homes], self.design.tie)
        return natural_of(self.design.family, sums)

    def _tabulate(self, homes: Ints, natural: Floats) -> None:
        values, out = self.values, (self.relative, self.best)
        if self.design.family == "histogram":
            kernel.tabulate_bins(homes, natural, values.features, values.bins, self.size, *out)
        else:
            kernel.tabulate(homes, natural, values.features, self.size, *out)


def tie_sums(sums: Floats, tie: Int32s) -> Floats:
    """Add up the sums of places that share a law.

    Args:
        sums: (homes, groups, states, features); changed in place.
        tie: (groups, states) number of the law of each place.

    Returns:
        `sums`.
    """
    for law in np.unique(tie):
        places = tie == law
        sums[:, places] = sums[:, places].sum(axis=1, keepdims=True)
    return sums


def _encode(x: Floats) -> tuple[Int32s, Floats, Ints, Floats]:
    """Readings as indices of distinct values: codes, values, number of values, counts of each."""
    code = np.full(x.shape, -1, np.int32)
    home_values, often = [], []
    for h, row in enumerate(x):
        finite = np.isfinite(row)
        distinct, inverse, count = np.unique(row[finite], return_inverse=True, return_counts=True)
        code[h, finite] = inverse
        home_values.append(distinct)
        often.append(count)
    size = np.array([max(len(distinct), 1) for distinct in home_values], np.int64)
    values, weight = np.zeros((len(x), size.max())), np.zeros((len(x), size.max()))
    for h, (distinct, count) in enumerate(zip(home_values, often, strict=True)):
        values[h, : len(distinct)], weight[h, : len(distinct)] = distinct, count
    return code, values, size, weight


Tick = Callable[..., None]
_CHUNK = 64  # homes fitted together: bounds the memory whatever their number


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What is fitted.

    Attributes:
        group: (steps,) slot group of each step, for laws.
        slot: (steps,) slot of the move into each step.
        moves: (slots, K, K) or (homes, slots, K, K) pseudo-counts; 0 declares a move impossible.
        family: Family of laws.
        weight: Weight of the prior on laws [readings].
        first: Weight of the prior on the first state.
        starts: Shares of readings initially in state 0, one for each start.
        occupied: (groups,) shares of state 1, for one more start.
        iterations: Largest number of iterations.
        trial: Iterations of every start before the best one is chosen.
        tolerance: Gain per reading below which a home has converged.
        tie: (groups, K) places with the same number share one law, such as an empty home.
        seasons: Number of seasons; the slot groups of a day are there for each of them.
    """

    group: Int32s
    slot: Int32s
    moves: Floats
    family: Family = "lognormal"
    weight: float = 4.0
    first: float = 0.5
    starts: tuple[float, ...] = (0.5, 0.3, 0.7)
    occupied: Floats = field(default_factory=lambda: np.zeros(0))
    iterations: int = 60
    trial: int = 8
    tolerance: float = 1e-6
    tie: Int32s = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    seasons: int = 1

    @property
    def states(self) -> int:
        """K."""
        return int(self.moves.shape[-1])

    @property
    def groups(self) -> int:
        """Number of slot groups of laws."""
        return len(self.tie) or int(self.group.max()) + 1

    def at(self, homes: slice) -> Design:
        """The design of some homes."""
        return self if self.moves.ndim == 3 else replace(self, moves=self.moves[homes])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Models of H homes.

    Attributes:
        design: What was fitted.
        initial: (H, K) laws of the first state.
        transition: (H, slots, K, K) moves.
        natural: (H, groups, K, features) natural parameters of the laws.
        parameters: (H, groups, K, ...) parameters of the family.
        edges: (H, bins + 1) borders of a histogram's bins [Wh].
        counts: (H, groups, K) expected readings.
        means: (H, groups, K) their mean [Wh].
        moves: (H, slots, K, K) expected moves.
        sums: (H, groups, K, features) sufficient statistics of the laws.
        log_likelihood: (H,) log-likelihoods.
        readings: (H,) numbers of readings.
        iterations: (H,) numbers of iterations.
        converged: (H,) whether the fit converged.
        rising: (iterations, H) penalised log-likelihood of the best start, NaN once a home
            has converged.
        ordered: (H,) whether each state uses more than the one before.
    """

    design: Design
    initial: Floats
    transition: Floats
    natural: Floats
    parameters: Floats
    edges: Floats
    counts: Floats
    means: Floats
    moves: Floats
    sums: Floats
    log_likelihood: Floats
    readings: Ints
    iterations: Ints
    converged: Bools
    rising: Floats
    ordered: Bools

    @property
    def homes(self) -> int:
        """Number of homes."""
        return len(self.initial)


def fit(
    readings: ArrayLike,
    design: Design,
    *,
    labels: Int8s | None = None,
    edges: Floats | None = None,
    tick: Tick | None = None,
) -> Fit:
    """Fit models of homes.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        design: What is fitted.
        labels: (homes, steps) state where known, -1 where not, -2 for any state but 0.
        edges: (bins + 1,) borders of a histogram's bins for all homes; None for each its own.
        tick: Called with the number of homes that have converged since its last call.

    Returns:
        The models.
    """
    x = np.atleast_2d(np.asarray(readings, np.float64))
    _check(x, design, labels)
    parts = []
    for begin in range(0, len(x), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        chunk_labels = None if labels is None else labels[chunk]
        parts.append(
            _fitted(x[chunk], design.at(chunk), chunk_labels, edges, tick or (lambda _: None))
        )
    return parts[0] if len(parts) == 1 else _joined(parts, design)


def posterior(readings: ArrayLike, fits: Fit, *, labels: Int8s | None = None) -> Floats:
    """Posterior probability of any state but 0 (occupied), given all readings.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        fits: Fitted models of these homes.
        labels: (homes, steps) labels, or None.

    Returns:
        (homes, steps) probabilities.
    """
    return expected(readings, fits, labels=labels).post


def score(readings: ArrayLike, fits: Fit) -> Floats:
    """Log-likelihood of each home's readings under its fitted model, without fitting.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        fits: Fitted models of these homes.

    Returns:
        (homes,) log-likelihoods.
    """
    return expected(readings, fits).log_likelihood


def select_homes(fits: Fit, homes: slice | Indices) -> Fit:
    """The fit of some homes.

    Args:
        fits: A fit.
        homes: The homes; an index may repeat.

    Returns:
        Their fit.
    """
    design = fits.design
    if design.moves.ndim == 4:
        design = replace(design, moves=design.moves[homes])
    parts = {name: getattr(fits, name)[homes] for name in _BY_HOME}
    return replace(fits, design=design, rising=fits.rising[:, homes], **parts)


_BY_HOME = tuple(f.name for f in fields(Fit) if f.name not in ("design", "rising"))


def _fitted(
    x: Floats, design: Design, labels: Int8s | None, edges: Floats | None, tick: Tick
) -> Fit:
    borders = None if edges is None else np.broadcast_to(edges, (len(x), len(edges)))
    work = Fitting(x, design, labels, borders)
    starts = list(design.starts)
    if design.occupied.size and design.states == 2:
        starts.insert(0, -1.0)
    best: FittingState | None = None
    if len(starts) > 1:
        for share in starts:
            state = work.started(share)
            work.iterate(state, design.trial)
            best = state if best is None else best.better(state)
        remaining = design.iterations - design.trial
    else:
        best, remaining = work.started(starts[0]), design.iterations
    assert best is not None
    work.iterate(best, remaining, tick)
    if _exchangeable(design.moves):
        # home by home: labels of one home leave the others' states as they are
        free = np.full(len(x), True) if labels is None else (labels == -1).all(axis=1)
        work.reorder(best, np.flatnonzero(free))
    likelihood = work.expect(work.homes, best)
    counts, means = work.usage()
    share = (
        counts.sum(axis=2, keepdims=True) / np.maximum(counts.sum(axis=(1, 2)), 1)[:, None, None]
    )
    typical = (share * means).sum(axis=1)
    return Fit(
        design=design,
        initial=best.initial,
        transition=best.transition,
        natural=best.natural,
        parameters=parameters_of(design.family, best.natural, work.values),
        edges=np.broadcast_to(work.values.edges, (len(x), work.values.edges.shape[1])),
        counts=counts,
        means=means,
        moves=work.moves.copy(),
        sums=work.gathered(),
        log_likelihood=likelihood,
        readings=np.isfinite(x).sum(axis=1),
        iterations=best.iterations,
        converged=best.converged,
        rising=np.array(best.rising),
        ordered=(np.diff(typical, axis=1) >= 0).all(axis=1),
    )


def _exchangeable(moves: Floats) -> bool:
    """Whether the prior treats all states the same, so that they may be ordered by mean reading."""
    k = moves.shape[-1]
    stay, go = np.eye(k, dtype=bool), ~np.eye(k, dtype=bool)
    return bool(np.ptp(moves[..., stay], axis=-1).max() == 0) and (
        k == 1 or bool(np.ptp(moves[..., go], axis=-1).max() == 0)
    )


class ExpectedCounts(NamedTuple):
    """Expected counts of H homes under given models.

    Attributes:
        log_likelihood: (H,) log-likelihoods.
        post: (H, steps) probabilities of any state but 0.
        first: (H, K) expected first states.
        moves: (H, slots, K, K) expected moves.
        sums: (H, groups, K, features) sufficient statistics of the laws.
    """

    log_likelihood: Floats
    post: Floats
    first: Floats
    moves: Floats
    sums: Floats


def expected(readings: ArrayLike, fits: Fit, *, labels: Int8s | None = None) -> ExpectedCounts:
    """Expected counts under given models, without fitting.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        fits: Models of these homes; the design's steps may differ from those of the fit, its slots
            may not.
        labels: (homes, steps) labels, or None.

    Returns:
        The counts.
    """
    x = np.atleast_2d(np.asarray(readings, np.float64))
    _check(x, fits.design, labels)
    parts = []
    for begin in range(0, len(x), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        part, chunk_labels = select_homes(fits, chunk), None if labels is None else labels[chunk]
        work = Fitting(x[chunk], part.design, chunk_labels, part.edges)
        post = np.empty(x[chunk].shape)
        total = work.under(part.initial, part.transition, part.natural, post)
        parts.append(ExpectedCounts(total, post, work.first, work.moves, work.gathered()))
    return ExpectedCounts(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def pooled_counts(
    code: Int32s,
    slot: Int32s,
    group: Int32s,
    initial: Floats,
    transition: Floats,
    emission: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Expected counts of many sequences under one model: the E step of Baum and Welch.

    Args:
        code: (sequences, steps) number of each reading's value, -1 where it is missing.
        slot: (steps,) slot of the move into each step.
        group: (steps,) group of each step, whose steps have the same laws.
        initial: (K,) law of the first state.
        transition: (slots, K, K) moves, rows from the old state.
        emission: (groups, values, K) chance of each value in each state, all positive.

    Returns:
        First states (K,), moves (slots, K, K) and values (groups, values, K), added over all
        sequences.
    """
    n, relative = len(code), emission / emission.max(axis=2, keepdims=True)
    shared = np.ascontiguousarray(np.moveaxis(relative, 0, 1))
    copies = [np.repeat(part[None], n, axis=0) for part in (shared, initial, transition)]
    counts, first, moves = (np.empty_like(part) for part in copies)
    kernel.expect(
        np.arange(n), code, NO_LABELS, group, slot, copies[0],
        np.zeros(counts.shape[:3]), copies[1], copies[2], counts, moves, first, NO_POSTERIOR,
    )  # fmt: skip
    return first.sum(axis=0), moves.sum(axis=0), np.moveaxis(counts.sum(axis=0), 1, 0)


def _check(x: Floats, design: Design, labels: Int8s | None) -> None:
    if x.ndim != 2 or not x.size:
        raise ModelError(f"readings have shape {x.shape}; give (homes, steps), none empty.")
    if np.isinf(x).any():
        raise ModelError("readings hold an infinite value; give numbers, NaN where missing.")
    steps = x.shape[1]
    for name in ("group", "slot"):
        numbers = getattr(design, name)
        if numbers.shape != (steps,) or numbers.min() < 0:
            raise ModelError(
                f"{name} has shape {numbers.shape} for {steps} steps; give a number of 0 or more"
                " for each step."
            )
    if design.moves.ndim not in (3, 4) or design.moves.shape[-3] <= design.slot.max():
        raise ModelError(
            f"moves have shape {design.moves.shape} but there are {design.slot.max() + 1} slots;"
            " give (slots, states, states)."
        )
    if not (np.isfinite(design.moves).all() and (design.moves >= 0).all()):
        raise ModelError("moves hold a negative or infinite pseudo-count; give 0 or more.")
    if labels is not None and (labels.shape != x.shape or labels.max() >= design.states):
        raise ModelError(
            f"labels have shape {labels.shape} and readings {x.shape}; give one label a reading:"
            f" -1, -2 or a state below {design.states}."
        )


def _joined(parts: Sequence[Fit], design: Design) -> Fit:
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _BY_HOME}
    longest = max(len(p.rising) for p in parts)
    padded = [
        np.pad(p.rising, ((0, longest - len(p.rising)), (0, 0)), constant_values=np.nan)
        for p in parts
    ]
    return replace(parts[0], design=design, rising=np.concatenate(padded, axis=1), **columns)
