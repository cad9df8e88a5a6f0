"""Models that homes share: prototypes, their laws, and the fit to all homes of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hushgrid._numbers import Floats, Indices
from hushgrid.errors import ModelError
from hushgrid.learning._families import Values, natural_of, parameters_of
from hushgrid.learning.em import (
    Design,
    ExpectedCounts,
    Fit,
    expected,
    select_homes,
    tie_sums,
)

ROUNDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """Models shared by homes.

    Attributes:
        models: A fit with one "home" for each prototype.
        group_of: (homes,) prototype of each home.
        log_likelihood: (rounds,) log-likelihood of all homes together.
    """

    models: Fit
    group_of: Indices
    log_likelihood: tuple[float, ...]

    @property
    def k(self) -> int:
        """Number of prototypes."""
        return self.models.homes


def prototypes(
    readings: Floats, fits: Fit, k: int, *, tick: Callable[..., None] | None = None
) -> Prototypes:
    """Fit k shared models.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        fits: Fits of the homes.
        k: Number of prototypes.
        tick: Called with 1 after each round.

    Returns:
        The prototypes.

    Raises:
        ModelError: k is out of range, or the law is normal.
    """
    if not 1 <= k <= fits.homes:
        raise ModelError(f"prototypes is {k} for {fits.homes} homes; give 1 to {fits.homes}.")
    if fits.design.family == "normal":
        raise ModelError("law is 'normal', which is scaled by home; give gamma, lognormal or bins.")
    group_of = _grouped(fits, k)
    models = grouped_models(
        fits,
        ExpectedCounts(
            fits.log_likelihood, fits.log_likelihood, fits.initial, fits.moves, fits.sums
        ),
        group_of,
        k,
    )
    history: list[float] = []
    for _ in range(ROUNDS):
        under = [expected(readings, _spread(models, j, fits.homes)) for j in range(k)]
        likelihood = np.stack([likelihoods.log_likelihood for likelihoods in under])
        better = likelihood.argmax(axis=0)
        history.append(float(likelihood.max(axis=0).sum()))
        counts = ExpectedCounts(
            *(np.stack(parts)[better, np.arange(fits.homes)] for parts in zip(*under, strict=True))
        )
        group_of = _none_empty(better, likelihood, k)
        models = grouped_models(fits, counts, group_of, k)
        if tick is not None:
            tick(1)
    return Prototypes(models, group_of, tuple(history))


def assign(readings: Floats, shared: Prototypes, design: Design) -> tuple[Indices, Floats]:
    """Assign new homes to prototypes.

    Args:
        readings: (homes, steps) readings [Wh], NaN where missing.
        shared: The prototypes.
        design: The design of these steps.

    Returns:
        (homes,) prototypes, and (k, homes) log-likelihoods.
    """
    models = replace(shared.models, design=replace(design, moves=shared.models.design.moves))
    scores = np.stack(
        [
            expected(readings, _spread(models, j, len(readings))).log_likelihood
            for j in range(shared.k)
        ]
    )
    return scores.argmax(axis=0), scores


def _spread(models: Fit, j: int, homes: int) -> Fit:
    """The model of one prototype for many homes."""
    return select_homes(models, np.full(homes, j))


def _grouped(fits: Fit, k: int) -> Indices:
    """k-means over the fits: mean readings by state, and shares of the states."""
    share = fits.counts.sum(axis=1)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-9)
    mean = (fits.counts * fits.means).sum(axis=1) / np.maximum(fits.counts.sum(axis=1), 1e-9)
    points = np.concatenate([np.log(mean + 1), 3 * share], axis=1)
    centres = points[[int(points[:, 0].argmin())]]
    while len(centres) < k:  # the farthest point next: no chance in it
        gap = ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        centres = np.concatenate([centres, points[[int(gap.argmax())]]])
    group_of = np.zeros(len(points), np.intp)
    for _ in range(50):
        distance = ((points[:, None] - centres) ** 2).sum(axis=2)
        group_of = _none_empty(distance.argmin(axis=1), -distance.T, k)
        moved = np.stack([points[group_of == j].mean(axis=0) for j in range(k)])
        if np.allclose(moved, centres):
            break
        centres = moved
    return group_of


def split_laws(models: Fit, starts: tuple[int, ...], design: Design, to: tuple[int, ...]) -> Fit:
    """The same models under other slot groups: each law is that of the hour it begins in.

    Args:
        models: Models of all of the year; every season of the new slot groups has their laws.
        starts: First hour of each of their slot groups.
        design: The design with the new slot groups.
        to: First hour of each of those.

    Returns:
        The models; readings have the same likelihood where each new group is part of an old one.
        Counts by slot group are those of the old ones.
    """
    of = np.tile(np.searchsorted(starts, to, side="right") - 1, design.seasons)
    parts = {
        name: getattr(models, name)[:, of]
        for name in ("natural", "parameters", "counts", "means", "sums")
    }
    return replace(models, design=replace(design, moves=models.design.moves), **parts)


def _none_empty(group_of: Indices, liking: Floats, k: int) -> Indices:
    """An empty group takes the home that loses least by it."""
    group_of = group_of.astype(np.intp)
    for j in range(k):
        if (group_of == j).any():
            continue
        crowded = np.bincount(group_of, minlength=k)[group_of] > 1
        loss = liking[group_of, np.arange(len(group_of))] - liking[j]
        group_of[np.where(crowded, loss, np.inf).argmin()] = j
    return group_of


def grouped_models(fits: Fit, counts: ExpectedCounts, group_of: Indices, k: int) -> Fit:
    """The models of groups, from the expected counts of their homes.

    Args:
        fits: Fits of the homes; design and edges are used.
        counts: Expected counts of the homes.
        group_of: (homes,) group of each home.
        k: Number of groups.

    Returns:
        A fit with one "home" for each group.
    """
    groups = [np.flatnonzero(group_of == j) for j in range(k)]
    sums = np.stack([counts.sums[g].sum(axis=0) for g in groups])
    moves = np.stack([counts.moves[g].sum(axis=0) for g in groups])
    first = np.stack([counts.first[g].sum(axis=0) for g in groups]) + fits.design.first
    return pooled_fit(fits, sums, moves, first, [fits.readings[g].sum() for g in groups])


def pooled_fit(fits: Fit, sums: Floats, moves: Floats, first: Floats, readings: object) -> Fit:
    """Models from sums of expected counts, under the design's priors.

    Args:
        fits: A fit; design and edges are used.
        sums: (k, groups, K, features) sufficient statistics of the laws.
        moves: (k, slots, K, K) moves.
        first: (k, K) first states.
        readings: (k,) numbers of readings.

    Returns:
        A fit with k "homes".
    """
    design, k = fits.design, len(sums)
    prior, more = sums.sum(axis=(1, 2)), _of_the_year(sums, design)
    if design.family == "histogram":
        prior = prior + 0.5
        prior = prior / prior.sum(axis=1, keepdims=True)
    else:
        prior = prior / np.maximum(prior[:, :1], 1e-9)
    natural = natural_of(
        design.family, tie_sums(sums + more + design.weight * prior[:, None, None], design.tie)
    )
    pseudo = design.moves if design.moves.ndim == 3 else design.moves.mean(axis=0)
    counts = moves + pseudo
    edges = fits.edges[:1].repeat(k, axis=0)
    zeros = np.zeros(k)
    values = Values(
        np.zeros((k, 1, 3)),
        zeros.astype(np.int64),
        zeros,
        zeros + 1,
        np.zeros((1, 1), np.int32),
        edges,
        prior,
    )
    n = _readings(sums + more, design)
    return Fit(
        design=replace(design, moves=pseudo),
        initial=first / first.sum(axis=1, keepdims=True),
        transition=counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300),
        natural=natural,
        parameters=parameters_of(design.family, natural, values),
        edges=edges,
        counts=n,
        means=np.zeros_like(n),
        moves=moves,
        sums=sums,
        log_likelihood=zeros,
        readings=np.asarray(readings, np.int64),
        iterations=zeros.astype(np.int64),
        converged=zeros == 0,
        rising=np.zeros((0, k)),
        ordered=zeros == 0,
    )


_SEASON = 48.0  # readings, spread as in all of the year, that a slot group of a season has more


def _of_the_year(sums: Floats, design: Design) -> Floats:
    """What each season has of all seasons at the same time of day, by state; zeros for one season.

    A season without readings has the laws of the year.
    """
    if design.seasons == 1:
        return np.zeros_like(sums)
    k, groups, *more = sums.shape
    total = sums.reshape(k, design.seasons, groups // design.seasons, *more).sum(axis=1)
    n = _readings(total, design).sum(axis=2)[..., None, None]
    return np.tile(_SEASON * total / np.maximum(n, 1e-9), (1, design.seasons, 1, 1))


def _readings(sums: Floats, design: Design) -> Floats:
    """Numbers of readings in sufficient statistics of laws."""
    return sums.sum(axis=-1) if design.family == "histogram" else sums[..., 0]


_PRIOR = 1.0  # readings, spread like all of the group, that each slot group has in addition
