"""Homes in k groups that share a model, so that models do not grow with the number of homes.

Homes begin in groups by what their own fits say; then, in turn, each group's model is fitted to the
expected counts of its homes, and each home goes to the model that explains it best. The likelihood
of all homes never falls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hushgrid.arrays import Floats, Indices
from hushgrid.errors import ModelError
from hushgrid.learn.em import Design, ExpectedCounts, Fit, expected, homes_of
from hushgrid.learn.families import Values, natural_of, parameters_of
from hushgrid.learn.fitting import tied

ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """`models`: a fit with one "home" for each prototype; `which` (homes,): the prototype of each.

    `log_likelihood` (rounds,) of all homes together.
    """

    models: Fit
    which: Indices
    log_likelihood: tuple[float, ...]

    @property
    def k(self) -> int:
        """How many models there are."""
        return self.models.homes


def prototypes(
    readings: Floats, own: Fit, k: int, *, tick: Callable[..., None] | None = None
) -> Prototypes:
    """k shared models of homes with fits of their own."""
    if not 1 <= k <= own.homes:
        raise ModelError(f"prototypes is {k} for {own.homes} homes; give 1 to {own.homes}.")
    if own.design.family == "normal":
        raise ModelError("law is 'normal', which is scaled by home; give gamma, lognormal or bins.")
    which = _grouped(own, k)
    models = grouped_models(
        own,
        ExpectedCounts(own.log_likelihood, own.log_likelihood, own.initial, own.moves, own.sums),
        which,
        k,
    )
    history: list[float] = []
    for _ in range(ROUNDS):
        under = [expected(readings, _spread(models, j, own.homes)) for j in range(k)]
        likelihood = np.stack([each.log_likelihood for each in under])
        better = likelihood.argmax(axis=0)
        history.append(float(likelihood.max(axis=0).sum()))
        seen = ExpectedCounts(
            *(np.stack(parts)[better, np.arange(own.homes)] for parts in zip(*under, strict=True))
        )
        which = _none_empty(better, likelihood, k)
        models = grouped_models(own, seen, which, k)
        if tick is not None:
            tick(1)
    return Prototypes(models, which, tuple(history))


def assign(readings: Floats, found: Prototypes, design: Design) -> tuple[Indices, Floats]:
    """The prototype of each new home, and (k, homes) log-likelihoods; `design` of their steps."""
    models = replace(found.models, design=replace(design, moves=found.models.design.moves))
    scores = np.stack(
        [
            expected(readings, _spread(models, j, len(readings))).log_likelihood
            for j in range(found.k)
        ]
    )
    return scores.argmax(axis=0), scores


def _spread(models: Fit, j: int, homes: int) -> Fit:
    """The model of one prototype for many homes."""
    return homes_of(models, np.full(homes, j))


def _grouped(own: Fit, k: int) -> Indices:
    """k-means over what fits say: sizes by state, and how much people are at home and active."""
    share = own.seen.sum(axis=1)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-9)
    mean = (own.seen * own.means).sum(axis=1) / np.maximum(own.seen.sum(axis=1), 1e-9)
    points = np.concatenate([np.log(mean + 1), 3 * share], axis=1)
    centres = points[[int(points[:, 0].argmin())]]
    while len(centres) < k:  # the farthest point next: no chance in it
        far = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        centres = np.concatenate([centres, points[[int(far.argmax())]]])
    which = np.zeros(len(points), np.intp)
    for _ in range(50):
        distance = ((points[:, None] - centres) ** 2).sum(axis=2)
        which = _none_empty(distance.argmin(axis=1), -distance.T, k)
        moved = np.stack([points[which == j].mean(axis=0) for j in range(k)])
        if np.allclose(moved, centres):
            break
        centres = moved
    return which


def _none_empty(which: Indices, liking: Floats, k: int) -> Indices:
    """A group that nobody chose takes the home that loses least by it."""
    which = which.astype(np.intp)
    for j in range(k):
        if (which == j).any():
            continue
        crowded = np.bincount(which, minlength=k)[which] > 1
        loss = liking[which, np.arange(len(which))] - liking[j]
        which[np.where(crowded, loss, np.inf).argmin()] = j
    return which


def grouped_models(own: Fit, seen: ExpectedCounts, which: Indices, k: int) -> Fit:
    """The shared models of groups, from the expected counts of their homes."""
    groups = [np.flatnonzero(which == j) for j in range(k)]
    sums = np.stack([seen.sums[g].sum(axis=0) for g in groups])
    moves = np.stack([seen.moves[g].sum(axis=0) for g in groups])
    first = np.stack([seen.first[g].sum(axis=0) for g in groups]) + own.design.first
    return pooled_fit(own, sums, moves, first, [own.readings[g].sum() for g in groups])


def pooled_fit(own: Fit, sums: Floats, moves: Floats, first: Floats, readings: object) -> Fit:
    """Models from sums (k, ...) of expected counts, under the design's priors."""
    design, k = own.design, len(sums)
    prior = sums.sum(axis=(1, 2))
    if design.family == "histogram":
        prior = prior + 0.5
        prior = prior / prior.sum(axis=1, keepdims=True)
    else:
        prior = prior / np.maximum(prior[:, :1], 1e-9)
    natural = natural_of(
        design.family, tied(sums + design.weight * prior[:, None, None], design.tie)
    )
    pseudo = design.moves if design.moves.ndim == 3 else design.moves.mean(axis=0)
    counts = moves + pseudo
    edges = own.edges[:1].repeat(k, axis=0)
    none = np.zeros(k)
    values = Values(
        np.zeros((k, 1, 3)),
        none.astype(np.int64),
        none,
        none + 1,
        np.zeros((1, 1), np.int32),
        edges,
        prior,
    )
    n = sums.sum(axis=-1) if design.family == "histogram" else sums[..., 0]
    return Fit(
        design=replace(design, moves=pseudo),
        initial=first / first.sum(axis=1, keepdims=True),
        transition=counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300),
        natural=natural,
        parameters=parameters_of(design.family, natural, values),
        edges=edges,
        seen=n,
        means=np.zeros_like(n),
        moves=moves,
        sums=sums,
        log_likelihood=none,
        readings=np.asarray(readings, np.int64),
        iterations=none.astype(np.int64),
        converged=none == 0,
        rising=np.zeros((0, k)),
        ordered=none == 0,
    )
