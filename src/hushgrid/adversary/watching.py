"""A whole day of releases: what she believed at each step, and what she believes in hindsight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from array_api_compat import array_namespace

from hushgrid.adversary.arrays import Array, log_sum
from hushgrid.adversary.filtering import Adversary, Beliefs

if TYPE_CHECKING:
    from hushgrid.mechanism import Release


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Pr[at home] at steps 1, 2, ...: (models, steps, houses), for each theta apart.

    `evidence` (models, steps, houses or 1): log probability of the releases that the guesses of
    a step rest on; `houses` are those guessed about.
    """

    home: Array
    evidence: Array
    houses: tuple[int, ...] | range

    @property
    def weights(self) -> Array:
        """How likely each theta is by its evidence, of equal ones beforehand."""
        xp = array_namespace(self.evidence)
        return xp.exp(self.evidence - log_sum(self.evidence, axis=0))

    @property
    def averaged(self) -> Array:
        """(steps, houses): every theta's guess, weighted by its evidence."""
        return array_namespace(self.home).sum(self.home * self.weights, axis=0)


def watch(adversary: Adversary, releases: Iterable[Release]) -> Posteriors:
    """Filtering: what she believes at each step from the releases up to that step."""
    path = [beliefs for beliefs, _ in _forward(adversary, releases)]
    home = [[adversary.home(law) for law in beliefs.laws] for beliefs in path]
    return _posteriors(adversary, home, [beliefs.evidence for beliefs in path])


def look_back(adversary: Adversary, releases: Iterable[Release]) -> Posteriors:
    """Smoothing: what she believes of each step once all releases are out.

    Exact for `Exact` and `Population`; for `Factored` as good as its likelihoods.
    """
    path = list(_forward(adversary, releases))
    models = adversary.knowledge.models
    message = [_nothing(weight) for weight in path[-1][1]] if path else []
    home: list[list[Array]] = []
    for beliefs, weights in reversed(path):
        sharp = [
            adversary.normalised(law + back)
            for law, back in zip(beliefs.laws, message, strict=True)
        ]
        home.append([adversary.home(law) for law in sharp])
        message = [
            adversary.moved_back(weight + back, model, beliefs.t) if beliefs.t > 1 else back
            for weight, back, model in zip(weights, message, models, strict=True)
        ]
    return _posteriors(adversary, home[::-1], [path[-1][0].evidence] * len(path) if path else [])


def _forward(
    adversary: Adversary, releases: Iterable[Release]
) -> Iterator[tuple[Beliefs, tuple[Array, ...]]]:
    """Every step up to the last release, with what was learnt at it (nothing in a gap)."""
    beliefs = adversary.start()
    for release in releases:
        while beliefs.t < release.t - 1:
            beliefs = adversary.skip(beliefs)
            yield beliefs, tuple(_nothing(law) for law in beliefs.laws)
        beliefs, weights = adversary.seen(beliefs, release)
        yield beliefs, weights


def _nothing(law: Array) -> Array:
    return array_namespace(law).zeros_like(law)


def _posteriors(
    adversary: Adversary, home: list[list[Array]], evidence: list[tuple[Array, ...]]
) -> Posteriors:
    xp = array_namespace(adversary.like)
    models = range(len(adversary.knowledge.models))
    if not home:
        empty = xp.zeros((len(models), 0, len(adversary.houses)))
        return Posteriors(empty, empty[..., :1], adversary.houses)
    return Posteriors(
        xp.stack([xp.stack([row[m] for row in home]) for m in models]),
        xp.stack([xp.stack([row[m] for row in evidence]) for m in models]),
        adversary.houses,
    )
