"""Events: the loss of one release for one house, as data. Accountants fold over them.

Each event has a pure loss and a privacy-loss distribution that dominates both directions, since a
trajectory may flip either way at every step (docs/proofs/composition.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from hushgrid._numbers import Floats, is_real, is_whole
from hushgrid.errors import PolicyError, require
from hushgrid.mechanism.calibrators import loss_of_pmfs
from hushgrid.mechanism.policy import NoiseLaw
from hushgrid.mechanism.release import HasRelease, Release
from hushgrid.model.laws import Law

GRID = 1e-3  # spacing of privacy-loss distributions


class Event(ABC):
    """The loss of one release for one house."""

    @property
    @abstractmethod
    def pure(self) -> float:
        """Largest log-ratio of any output."""

    @abstractmethod
    def divergence(self, epsilons: Floats) -> Floats:
        """Hockey-stick divergence at each epsilon, the worse of the two directions."""

    @property
    def reach(self) -> float:
        """The largest epsilon at which the divergence is evaluated; beyond it is 0 or constant."""
        return self.pure


@dataclass(frozen=True, slots=True)
class Pure(Event):
    """Only a pure loss is known: the generic worst pair (0 < eta < 1, blocks).

    Attributes:
        epsilon: The loss [nats], 0 or more.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not (is_real(self.epsilon) and self.epsilon >= 0):
            raise PolicyError(f"loss is {self.epsilon}; give a finite loss of 0 or more.")

    @property
    def pure(self) -> float:
        """The loss itself."""
        return self.epsilon

    def divergence(self, epsilons: Floats) -> Floats:
        """Randomised response at this loss dominates every pure pair."""
        p = 1 / (1 + math.exp(-self.epsilon))
        return _hockey_stick(np.array([p, 1 - p]), np.array([1 - p, p]), epsilons)


@dataclass(frozen=True, slots=True)
class Laplace(Event):
    """Integer Laplace noise on loads up to `distance` apart (eta = 1).

    Attributes:
        distance: Distance of the loads, whole Wh.
        scale: Scale of the noise [Wh].
    """

    distance: int
    scale: float

    def __post_init__(self) -> None:
        _check_noise(self.distance, "scale", self.scale)

    @property
    def pure(self) -> float:
        """distance / scale."""
        return self.distance / self.scale

    def divergence(self, epsilons: Floats) -> Floats:
        """The two noises `distance` apart; each tail is one outcome."""
        point = np.zeros(self.distance + 1)
        point[0] = 1.0
        return _hockey_stick(*_lumped(point, point[::-1], self.scale), epsilons)


@dataclass(frozen=True, slots=True)
class Laws(Event):
    """Integer Laplace noise on readings that follow their laws (eta = 0).

    Attributes:
        before: Law of the reading in one state.
        after: Law of the reading in the other state.
        scale: Scale of the noise [Wh].
    """

    before: Law
    after: Law
    scale: float

    def __post_init__(self) -> None:
        _check_noise(1, "scale", self.scale)

    @property
    def pure(self) -> float:
        """The worst log-ratio."""
        bound = max(self.before.top, self.after.top, 1)
        return loss_of_pmfs(self.before.pmf, self.after.pmf, bound, self.scale, 0.0)

    def divergence(self, epsilons: Floats) -> Floats:
        """Both directions of the two noisy laws; each tail is one outcome."""
        size = max(self.before.top, self.after.top) + 1
        pmfs = [np.r_[law.pmf, np.zeros(size - law.pmf.size)] for law in (self.before, self.after)]
        return _hockey_stick(*_lumped(pmfs[0], pmfs[1], self.scale), epsilons)


@dataclass(frozen=True, slots=True)
class Worst(Event):
    """Any one of several events: at every epsilon the largest of their divergences.

    Attributes:
        events: The events.
    """

    events: tuple[Event, ...]

    @property
    def pure(self) -> float:
        """The largest of their pure losses."""
        return max(event.pure for event in self.events)

    def divergence(self, epsilons: Floats) -> Floats:
        """A maximum of convex curves is convex, so a pair of laws with this curve exists."""
        curves = [event.divergence(epsilons) for event in self.events]
        return np.asarray(np.max(curves, axis=0), np.float64)


@dataclass(frozen=True, slots=True)
class GaussianEvent(Event):
    """Integer Gaussian noise on loads up to `distance` apart.

    Attributes:
        distance: Distance of the loads, whole Wh.
        sigma: Standard deviation of the noise [Wh].
    """

    distance: int
    sigma: float

    def __post_init__(self) -> None:
        _check_noise(self.distance, "sigma", self.sigma)

    @property
    def pure(self) -> float:
        """Gaussian noise has no finite pure loss."""
        return math.inf

    @property
    def reach(self) -> float:
        """Losses beyond this have a probability below 1e-30."""
        mean = self.distance**2 / (2 * self.sigma**2)
        return mean + 12 * self.distance / self.sigma

    def divergence(self, epsilons: Floats) -> Floats:
        """Symmetric, so one direction is both; the sum over outputs up to 14 sigma out."""
        width = math.ceil(14 * self.sigma)
        k = np.arange(-width, width + self.distance + 1, dtype=np.float64)
        logs = [-((k - shift) ** 2) / (2 * self.sigma**2) for shift in (0, self.distance)]
        total = np.exp(-(np.arange(-width, width + 1) ** 2) / (2 * self.sigma**2)).sum()
        p, q = (np.exp(log) / total for log in logs)
        return np.asarray(_hockey_stick(p, q, epsilons) + 1e-30)


def noise_event(noise: NoiseLaw, distance: int, scale: float) -> Event:
    """The event of a release for any consumption, for loads up to `distance` apart.

    Args:
        noise: The law of its noise, as the schedule has it.
        distance: Distance of the loads, whole Wh.
        scale: Scale of the noise [Wh]; the standard deviation of Gaussian noise.

    Returns:
        The event.
    """
    if noise == "block":
        return Pure(distance / scale)  # of the whole block
    return (Laplace if noise == "laplace" else GaussianEvent)(distance, scale)


R = TypeVar("R", bound=Release | HasRelease)
_STATED: Callable[[Any], float] = attrgetter("epsilon")


def booked(
    releases: Iterable[R], before: R | None = None, loss: Callable[[R], float] = _STATED
) -> Iterator[float]:
    """What each release adds to a sum of losses: of a block of steps all of it, once.

    Every release of a block states the loss of the whole block. The first one here is counted with
    it and the others with nothing. Given in reverse, the last one is.

    Args:
        releases: Releases from readings of one zone, in order or in reverse.
        before: The release before them, where it is counted already.
        loss: The loss of a release [nats]; by default the one that it states.

    Yields:
        The loss to add for each release [nats].
    """
    last = None if before is None else _block(before)
    for release in releases:
        block = _block(release)
        yield 0.0 if block is not None and block == last else loss(release)
        last = block


def _block(release: Release | HasRelease) -> tuple[object, ...] | None:
    """Terms, first step and draw of a release's block, with the length of a step where known."""
    if release.block is None:
        return None
    mark = release.block.get("mark")  # noise that was drawn anew loses anew
    return release.digest, release.block["first"], mark, getattr(release, "start", 0) / release.t


def _check_noise(distance: int, name: str, width: float) -> None:
    if not (is_whole(distance) and distance >= 0):
        raise PolicyError(f"distance is {distance}; give whole Wh, 0 or more.")
    if not (is_real(width) and width > 0):
        raise PolicyError(f"{name} is {width}; give a positive width of the noise [Wh].")


def _lumped(f0: Floats, f1: Floats, scale: float) -> tuple[Floats, Floats]:
    """Laws of reading plus noise on 0..u; each tail has one ratio and is added to its end."""
    q = math.exp(-1 / scale)
    n = f0.size
    out = []
    powers = q ** np.arange(n)
    for f in (f0, f1):
        forward = _recursion(f, q)
        backward = _recursion(f[::-1], q)[::-1]
        p = (1 - q) / (1 + q) * (forward + backward - f)
        p[0] = float(f @ powers) / (1 + q)
        p[-1] = float(f[::-1] @ powers) / (1 + q)
        out.append(p)
    if n == 1:
        return np.ones(1), np.ones(1)
    return out[0], out[1]


def _recursion(f: Floats, q: float) -> Floats:
    from scipy.signal import lfilter  # type: ignore[attr-defined,unused-ignore]

    return np.asarray(lfilter([1.0], [1.0, -q], f))


def _hockey_stick(p: Floats, q: Floats, epsilons: Floats) -> Floats:
    """The worse direction of sum (p - e^eps q)_+, by sorted ratios: exact at every epsilon."""
    return np.maximum(_one_direction(p, q, epsilons), _one_direction(q, p, epsilons))


def _one_direction(p: Floats, q: Floats, epsilons: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        ratio = np.where(p > 0, np.log(p) - np.log(q), -np.inf)
    order = np.argsort(-ratio, kind="stable")
    ps, qs = np.r_[0.0, np.cumsum(p[order])], np.r_[0.0, np.cumsum(q[order])]
    count = np.searchsorted(-ratio[order], -epsilons, side="left")
    return np.asarray(np.maximum(ps[count] - np.exp(epsilons) * qs[count], 0.0))


@lru_cache(maxsize=4096)
def loss_distribution(event: Event) -> Any:
    """The event's privacy-loss distribution on the grid, pessimistic (connect the dots).

    Args:
        event: The event.

    Returns:
        A `PrivacyLossDistribution` of dp_accounting.

    Raises:
        ExtraError: If dp_accounting is not installed.
    """
    require("dp_accounting", "lab")
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots

    reach = max(1, math.ceil(event.reach / GRID))
    steps = np.arange(-reach, reach + 1)
    deltas = event.divergence(np.asarray(steps * GRID, np.float64))
    if math.isfinite(event.pure):
        deltas[-1] = 0.0
    deltas = np.minimum(np.maximum.accumulate(deltas[::-1])[::-1], 1.0)
    pmf = create_pmf_pessimistic_connect_dots(GRID, steps, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)
