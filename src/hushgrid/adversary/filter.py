"""The filter of every adversary: predict with the model, condition on a release (Eq. (2), (3)).

`watch` filters and `look_back` smooths a sequence of releases. Beliefs are kept as logarithms. No
release, however unlikely, makes a possible state impossible.

Where the noise lasts a block of steps its size M is a hidden state of the block: given M the noise
of its steps is independent and uniform, so the filter runs once for every M, and each M is weighed
by its releases. Once a release of another block comes, M is summed out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from array_api_compat import array_namespace

from hushgrid._frames import DataTable, Tabular
from hushgrid._numbers import brief, count_of
from hushgrid.adversary.knowledge import (
    HOST,
    Array,
    Blur,
    Knowledge,
    block_sizes,
    like,
    log_sum,
    on_host,
)
from hushgrid.errors import ModelError
from hushgrid.model.occupancy import OccupancyModel

if TYPE_CHECKING:
    from hushgrid.mechanism.release import Release

LEAST = 32  # sizes of a block's noise


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """Beliefs after step t, under each model of Theta separately.

    Attributes:
        t: The last step.
        laws: Log probabilities of the states, one array a model.
        evidence: Log probability of all releases so far under each model, (1,) or one a house.
        rate: The last published rate.
        digest: Digest of the terms of the releases so far.
        block: First step, steps and scale of the block of steps whose noise the last release has.
            The laws then have the size of that noise on a first axis.
    """

    t: int
    laws: tuple[Array, ...]
    evidence: tuple[Array, ...]
    rate: float | None = None
    digest: str | None = None
    block: tuple[int, int, float] | None = None


class Adversary(ABC):
    """Base of the filters: begin with `start`, then `step` (or `skip`); beliefs are values.

    Args:
        knowledge: What the adversary knows.
        like: An array of the library and device to work on; numpy by default.

    Attributes:
        houses: The houses it infers occupancy of.
        cells: Numbers that a law may have where the noise lasts a block of steps: what they leave
            for the sizes of that noise, LEAST at least.
    """

    houses: tuple[int, ...] | range
    cells: ClassVar[int] = 1 << 14

    def __init__(self, knowledge: Knowledge, like: Array = HOST) -> None:
        """Keep the knowledge and the array library; see the class."""
        self.knowledge, self.like = knowledge, like

    def __repr__(self) -> str:
        models = count_of("model", len(self.knowledge.models))
        return f"{type(self).__name__}({count_of('house', len(self.houses))}, {models})"

    @abstractmethod
    def prior(self, model: OccupancyModel) -> Array:
        """Pi."""

    @abstractmethod
    def predict(self, law: Array, model: OccupancyModel, t: int) -> Array:
        """Eq. (2): the law of step t from that of step t - 1, for each size of a block's noise."""

    @abstractmethod
    def predict_back(self, message: Array, model: OccupancyModel, t: int) -> Array:
        """E[message(S^t) given S^{t-1}], in logarithms: for smoothing."""

    @abstractmethod
    def likelihood(self, law: Array, t: int, rate: float | None, z: int, blur: Blur) -> Array:
        """log Pr[release given state], of the law's own shape; the noise's sizes come first."""

    @abstractmethod
    def home(self, law: Array) -> Array:
        """Pr[at home] of each of `houses`."""

    def total(self, law: Array) -> Array:
        """log of the total weight, as (1,)."""
        return array_namespace(law).reshape(log_sum(law), (1,))

    def normalised(self, law: Array) -> Array:
        """The law with weights that sum to 1."""
        return law - log_sum(law)

    def start(self) -> Beliefs:
        """Before the first release: t = 0."""
        laws = tuple(self.prior(model) for model in self.knowledge.models)
        return Beliefs(0, laws, tuple(0.0 * self.total(law) for law in laws))

    def step(self, beliefs: Beliefs, release: Release) -> Beliefs:
        """Beliefs after a release. Steps left out before it are only predicted."""
        return self.condition(beliefs, release)[0]

    def skip(self, beliefs: Beliefs, rate: float | None = None) -> Beliefs:
        """Beliefs after a step without a release; `rate` is the rate published instead."""
        t, models = beliefs.t + 1, self.knowledge.models
        laws = beliefs.laws
        if beliefs.t > 0:
            laws = tuple(self.predict(law, m, t) for law, m in zip(laws, models, strict=True))
        return replace(beliefs, t=t, laws=laws, rate=beliefs.rate if rate is None else rate)

    def condition(self, beliefs: Beliefs, release: Release) -> tuple[Beliefs, tuple[Array, ...]]:
        """`step`, and the likelihoods it used under each model."""
        blur = self.knowledge.check_release(release, beliefs.t, beliefs.digest)
        while beliefs.t < release.t:
            beliefs = self.skip(beliefs)
        block = _block_of(release)
        begins = block != beliefs.block
        if begins and beliefs.block is not None:
            beliefs = replace(beliefs, laws=tuple(log_sum(law, axis=0) for law in beliefs.laws))
        chances: Array = 0.0
        if block is not None:
            states = beliefs.laws[0].shape[0 if begins else 1 :]
            most = max(LEAST, self.cells // math.prod(states))
            sizes, logs = block_sizes(blur.scale, block[1], most)
            blur = blur._replace(sizes=sizes)
            if begins:  # what M is before any release of its block
                chances = like(logs.reshape(-1, *(1 for _ in states)), self.like)
        laws, evidence, weights = [], [], []
        load_hat = release.load_hat - self.knowledge.least
        for law, sum_before, model in zip(
            beliefs.laws, beliefs.evidence, self.knowledge.models, strict=True
        ):
            weight = self.likelihood(law, release.t, beliefs.rate, load_hat, blur)
            weight = weight + chances
            total = self.total(law + weight)
            if not bool(array_namespace(total).all(total > -float("inf"))):
                raise ModelError(
                    f"release of step {release.t} has probability 0 under model {model.name};"
                    " give a model and laws that allow it."
                )
            laws.append(self.normalised(law + weight))
            evidence.append(sum_before + total)
            weights.append(weight)
        after = Beliefs(
            release.t, tuple(laws), tuple(evidence), release.rate, release.digest, block
        )
        return after, tuple(weights)


def _block_of(release: Release) -> tuple[int, int, float] | None:
    """First step, steps and scale of the release's block of steps, if it has one."""
    if release.noise != "block" or release.block is None:
        return None
    return release.block["first"], release.block["length"], float(release.scale)


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors(Tabular):
    """Pr[at home] at steps 1, 2, ..., for each theta separately.

    Attributes:
        home: (models, steps, houses): probabilities.
        evidence: (models, steps, houses or 1): log probability of the releases that the beliefs of
            a step are based on.
        houses: The houses of the last axis.
    """

    home: Array
    evidence: Array
    houses: tuple[int, ...] | range

    def __repr__(self) -> str:
        models, steps, houses = self.home.shape
        shape = count_of("model", models), count_of("step", steps), count_of("house", houses)
        return brief(self, *shape, names=())

    def _table(self) -> DataTable:
        """A row a step, a column a house: the averaged beliefs."""
        beliefs = on_host(self.averaged)
        return DataTable(
            "step", range(1, len(beliefs) + 1), dict(zip(self.houses, beliefs.T, strict=True))
        )

    @property
    def weights(self) -> Array:
        """Posterior weight of each theta by its evidence, from equal weights."""
        xp = array_namespace(self.evidence)
        return xp.exp(self.evidence - log_sum(self.evidence, axis=0))

    @property
    def averaged(self) -> Array:
        """(steps, houses): the beliefs averaged over theta, weighted by evidence."""
        return array_namespace(self.home).sum(self.home * self.weights, axis=0)


def watch(adversary: Adversary, releases: Iterable[Release]) -> Posteriors:
    """Filtering: beliefs at each step from the releases up to that step.

    Args:
        adversary: The filter.
        releases: In order of their steps; gaps are predicted.

    Returns:
        The posteriors of every step up to the last release.
    """
    path = [beliefs for beliefs, _ in _forward(adversary, releases)]
    home = [[adversary.home(law) for law in beliefs.laws] for beliefs in path]
    return _posteriors(adversary, home, [beliefs.evidence for beliefs in path])


def look_back(adversary: Adversary, releases: Iterable[Release]) -> Posteriors:
    """Smoothing: beliefs about each step given all releases.

    Exact for `Exact` and `Population`; for `Factored` as accurate as its likelihoods.

    Args:
        adversary: The filter.
        releases: In order of their steps; gaps are predicted.

    Returns:
        The posteriors of every step up to the last release.
    """
    path = list(_forward(adversary, releases))
    models = adversary.knowledge.models
    message = [_nothing(weight) for weight in path[-1][1]] if path else []
    home: list[list[Array]] = []
    before = [None, *(beliefs.block for beliefs, _ in path)]
    for (beliefs, weights), block in zip(reversed(path), reversed(before[:-1]), strict=True):
        sharp = [
            adversary.normalised(law + back)
            for law, back in zip(beliefs.laws, message, strict=True)
        ]
        home.append([adversary.home(law) for law in sharp])
        message = [weight + back for weight, back in zip(weights, message, strict=True)]
        if beliefs.block not in (None, block):  # the first step of its block
            message = [log_sum(part, axis=0) for part in message]
        if beliefs.t > 1:
            message = [
                adversary.predict_back(part, model, beliefs.t)
                for part, model in zip(message, models, strict=True)
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
        beliefs, weights = adversary.condition(beliefs, release)
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
