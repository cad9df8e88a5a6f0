"""How far an adversary with the paper's knowledge gets on what is on record."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.adversary import Adversary, Exact, Factored, Knowledge, look_back
from hushgrid.arrays import Floats
from hushgrid.attack import SMALL
from hushgrid.audit.ledger import Recomputed
from hushgrid.belief import at_home, marginals
from hushgrid.errors import ModelError
from hushgrid.mechanism import Release

MOST = 5_000_000  # houses times steps that are looked at


@dataclass(frozen=True, slots=True, eq=False)
class LargestMove:
    """The largest move of the adversary's log odds from the prior, in hindsight, each theta apart.

    `moved` of every house, infinite where the adversary became certain; `house` and `step` where
    it was largest of all. `bound`: the most that all releases together can move them, None where
    there is no such bound. `releases` looked at.
    """

    zone: str
    filter: str
    moved: Floats
    house: int
    step: int
    bound: float | None
    releases: int


def watched(made: Recomputed) -> LargestMove | None:
    """Let her watch an epoch; None where no filter reads it."""
    terms, n = made.terms, made.terms.zone.n_houses
    releases = _releases(made)[: max(1, MOST // n)]
    if not releases or terms.veiled or any(release.look for release in releases):
        return None
    known = Knowledge(terms.zone, terms.models, terms.consumption, terms.policy.clamp)
    try:
        adversary: Adversary = Exact(known) if n <= SMALL else Factored(known)
        found = np.asarray(look_back(adversary, releases).home)
    except ModelError:  # many houses that move together; an exact load that a model rules out
        return None
    shift = np.zeros(found.shape[1:])
    for home, model in zip(found, terms.models, strict=True):
        prior = np.stack([at_home(b, model) for b in islice(marginals(model), len(home))])
        shift = np.maximum(shift, _moved(home, prior))
    t, house = np.unravel_index(int(shift.argmax()), shift.shape)
    losses, bound = made.losses[: len(shift)], None
    if np.isfinite(losses).all():  # Gaussian noise, or none at all, bounds nothing
        bound = worst_leakage(terms.models, losses).total
    name = type(adversary).__name__.lower()
    moved = shift.max(axis=0)
    return LargestMove(terms.zone.id, name, moved, int(house), int(t) + 1, bound, len(releases))


def _releases(made: Recomputed) -> list[Release]:
    """The mechanism's releases again; what came from no reading tells nothing."""
    return [
        made.release_of(entry)
        for entry in made.epoch.entries
        if entry.source == "readings" and entry.load_hat is not None
    ]


def _moved(home: Floats, prior: Floats) -> Floats:
    """|log odds - log odds|; nothing where the prior was sure already."""
    sure = (prior <= 0) | (prior >= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(np.log(home) - np.log1p(-home) - np.log(prior) + np.log1p(-prior))
    return np.where(sure, 0.0, found)
