"""The work of a fit: tables of likelihoods, expected counts and the best laws for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hushgrid.arrays import Bools, Floats, Int8s, Int32s, Ints
from hushgrid.kernels import em as kernel
from hushgrid.learn.families import natural_of, values_of

if TYPE_CHECKING:
    from hushgrid.learn.em import Design

NO_LABELS = np.full((1, 1), -1, np.int8)
NO_POSTERIOR = np.zeros((1, 1))
_TINY = 1e-300


@dataclass(slots=True, eq=False)
class FittingState:
    """Where an iteration stands: parameters, the objective, who is done."""

    initial: Floats
    transition: Floats
    natural: Floats
    last: Floats
    done: Bools
    iterations: Ints
    rising: list[Floats] = field(default_factory=list)

    def better(self, other: FittingState) -> FittingState:
        """For each home the state that stands higher."""
        wins = other.last > self.last
        for name in ("initial", "transition", "natural", "last", "done", "iterations"):
            getattr(self, name)[wins] = getattr(other, name)[wins]
        for mine, theirs in zip(self.rising, other.rising, strict=False):
            mine[wins] = theirs[wins]
        for mine in self.rising[len(other.rising) :]:
            mine[wins] = np.nan
        for theirs in other.rising[len(self.rising) :]:
            self.rising.append(np.where(wins, theirs, np.nan))
        return self


class Fitting:
    """Readings of some homes, coded, and the arrays that iterations work in."""

    def __init__(
        self, x: Floats, design: Design, labels: Int8s | None, edges: Floats | None = None
    ) -> None:
        self.design, self.homes = design, np.arange(len(x), dtype=np.int64)
        self.code, self.each, self.size, self.weight = coded(x)
        self.values = values_of(design.family, self.each, self.size, self.weight, edges)
        self.label = NO_LABELS if labels is None else np.ascontiguousarray(labels, np.int8)
        self.group = np.ascontiguousarray(design.group, np.int32)
        self.slot = np.ascontiguousarray(design.slot, np.int32)
        shape = (len(x), self.each.shape[1], design.groups, design.states)
        self.relative, self.best, self.counts = np.ones(shape), np.zeros(shape[:3]), np.zeros(shape)
        self.prior_moves = np.broadcast_to(design.moves, (len(x), *design.moves.shape[-3:]))
        self.moves = np.zeros(self.prior_moves.shape)
        self.first = np.zeros((len(x), design.states))
        self.sums = np.zeros((len(x), design.groups, design.states, self.values.prior.shape[1]))
        self.prior_sums = design.weight * self.values.prior[:, None, None, :]

    def expect(self, homes: Ints, state: FittingState, post: Floats = NO_POSTERIOR) -> Floats:
        """Expected counts of some homes under a state; their log-likelihoods."""
        self._tabulate(homes, state.natural)
        return np.asarray(
            kernel.expect(
                homes,
                self.code,
                self.label,
                self.group,
                self.slot,
                self.relative,
                self.best,
                state.initial,
                state.transition,
                self.counts,
                self.moves,
                self.first,
                post,
            )
        )

    def maximise(self, homes: Ints, state: FittingState) -> None:
        """The best parameters for the counts."""
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
        """Iterations until every home is done, or for so many; `tick` hears how many are done."""
        enough = self.design.tolerance * np.maximum(self.weight.sum(axis=1), 1.0)
        done = 0
        for _ in range(iterations):
            active = self.homes[~state.done]
            tick(len(self.homes) - active.size - done)
            done = len(self.homes) - active.size
            if not active.size:
                return
            likelihood = self.expect(active, state)
            risen = np.full(len(self.homes), np.nan)
            risen[active] = likelihood + self.log_prior(active, state)
            state.rising.append(risen)
            state.done[active] = risen[active] - state.last[active] < enough[active]
            state.last[active] = risen[active]
            state.iterations[active] += 1
            still = self.homes[~state.done]
            if still.size:
                self.maximise(still, state)
        tick(len(self.homes) - done)

    def log_prior(self, homes: Ints, state: FittingState) -> Floats:
        """Log of the priors, but for constants."""
        prior = self.prior_moves[homes]
        moves = prior * np.log(np.maximum(state.transition[homes], _TINY))
        laws = self.prior_sums[homes] * state.natural[homes]
        first = self.design.first * np.log(np.maximum(state.initial[homes], _TINY))
        return np.asarray(moves.sum(axis=(1, 2, 3)) + laws.sum(axis=(1, 2, 3)) + first.sum(axis=1))

    def started(self, share: float) -> FittingState:
        """Laws from a split of each group's readings by size; moves from the prior alone.

        The lowest `share` of readings begins as state 0; below 0 the design's own shares.
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
            done=np.zeros(n, bool),
            iterations=np.zeros(n, np.int64),
        )

    def _of_values(self, chosen: Bools) -> Floats:
        """(homes, values): how often each value occurs in the chosen steps."""
        width = self.each.shape[1]
        rows = [np.bincount(c[c >= 0], minlength=width) for c in self.code[:, chosen]]
        return np.array(rows, np.float64)

    def reorder(self, state: FittingState, homes: Ints) -> None:
        """Name the states of these homes by what they use: state 0 the least."""
        self.settle(state)
        seen, means = self.usage()
        share = seen.sum(axis=2, keepdims=True)
        order = np.argsort((share * means).sum(axis=1), axis=1, kind="stable")
        for h in homes:
            k = order[h]
            state.initial[h] = state.initial[h, k]
            state.natural[h] = state.natural[h][:, k]
            state.transition[h] = state.transition[h][:, k][:, :, k]

    def settle(self, state: FittingState) -> Floats:
        """The counts and log-likelihoods that go with a state's parameters."""
        return self.expect(self.homes, state)

    def usage(self) -> tuple[Floats, Floats]:
        """(homes, groups, states): expected readings, and their mean [Wh]."""
        seen = self.counts.sum(axis=1)
        # added up value by value: a home's sums must not depend on how far others are padded
        energy = (self.counts * self.each[:, :, None, None]).sum(axis=1)
        overall = (self.weight * self.each).sum(axis=1) / np.maximum(self.weight.sum(axis=1), 1)
        means = np.where(seen > 1e-6, energy / np.maximum(seen, 1e-6), overall[:, None, None])
        return seen, means

    def under(self, initial: Floats, transition: Floats, natural: Floats, post: Floats) -> Floats:
        """Log-likelihoods under given parameters; `post` takes the posterior."""
        n = len(self.homes)
        done, none = np.ones(n, bool), np.zeros(n, np.int64)
        own = np.ascontiguousarray(initial), np.ascontiguousarray(transition)
        state = FittingState(*own, np.ascontiguousarray(natural), np.zeros(n), done, none)
        return self.expect(self.homes, state, post)

    def gathered(self) -> Floats:
        """What laws are fitted from, for the present counts of all homes."""
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
        sums = tied(self.sums[homes] + self.prior_sums[homes], self.design.tie)
        return natural_of(self.design.family, sums)

    def _tabulate(self, homes: Ints, natural: Floats) -> None:
        values, out = self.values, (self.relative, self.best)
        if self.design.family == "histogram":
            kernel.tabulate_bins(homes, natural, values.features, values.bins, self.size, *out)
        else:
            kernel.tabulate(homes, natural, values.features, self.size, *out)


def tied(sums: Floats, tie: Int32s) -> Floats:
    """Sums (homes, groups, states, features) with places of one law added up."""
    for law in np.unique(tie):
        places = tie == law
        sums[:, places] = sums[:, places].sum(axis=1, keepdims=True)
    return sums


def coded(x: Floats) -> tuple[Int32s, Floats, Ints, Floats]:
    """Readings as numbers of their distinct values: codes, values, how many, how often each."""
    code = np.full(x.shape, -1, np.int32)
    every, often = [], []
    for h, row in enumerate(x):
        seen = np.isfinite(row)
        each, inverse, count = np.unique(row[seen], return_inverse=True, return_counts=True)
        code[h, seen] = inverse
        every.append(each)
        often.append(count)
    size = np.array([max(len(each), 1) for each in every], np.int64)
    values, weight = np.zeros((len(x), size.max())), np.zeros((len(x), size.max()))
    for h, (each, count) in enumerate(zip(every, often, strict=True)):
        values[h, : len(each)], weight[h, : len(each)] = each, count
    return code, values, size, weight
