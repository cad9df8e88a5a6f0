"""Composition of many releases: sums of pure losses, and privacy-loss distributions (Theorem 2).

An event is the loss of one release. It has a pure loss and a privacy-loss distribution that
dominates both directions, since occupancy may flip either way at every step
(docs/proofs/composition.md). `noise_multiple` gives the Gaussian noise of many releases, as a
multiple of the distance that they hide; `booked` counts a block of steps once.

`covers` says how far all prices can shift odds about a stretch of time. The blocks of steps that a
stretch touches lose e_1 .. e_k, whatever a home does in it (docs/proofs/blocks-of-steps.md); their
sum bounds the shift of odds. The AUC of the best test is bounded by that of k randomised responses
(docs/proofs/covers.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats, is_real, is_whole, sum_up
from hushgrid.errors import PlanError, PolicyError, require
from hushgrid.mechanism.release import HasRelease, Release

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
class GaussianEvent(Event):
    """Integer Gaussian noise on loads up to `distance` apart.

    Attributes:
        distance: Distance of the loads, whole Wh.
        sigma: Standard deviation of the noise [Wh].
    """

    distance: int
    sigma: float

    def __post_init__(self) -> None:
        if not (is_whole(self.distance) and self.distance >= 0):
            raise PolicyError(f"distance is {self.distance}; give whole Wh, 0 or more.")
        if not (is_real(self.sigma) and self.sigma > 0):
            raise PolicyError(f"sigma is {self.sigma}; give a positive width of the noise [Wh].")

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


def compose(losses: Iterable[float | Event], delta: float = 0.0) -> float:
    """The epsilon of all releases together: a sum at delta = 0, less at delta > 0.

    See: docs/proofs/composition.md.

    Args:
        losses: For each release an event, or its pure loss [nats] where only that is known.
        delta: Probability of exceeding epsilon, 0 to below 1.

    Returns:
        Epsilon [nats].

    Raises:
        ExtraError: If delta is above 0 and dp_accounting is not installed.

    >>> compose([0.5] * 96)
    48.0
    >>> round(compose([0.5] * 96, 1e-6), 2)
    32.39
    """
    _check_delta(delta)
    events = _events(losses)
    if delta == 0:
        return sum_up(event.pure for event in events)
    if not events:
        return 0.0
    pure = sum_up(event.pure for event in events)  # the grid can cost more than it saves
    return min(float(_composed(events).get_epsilon_for_delta(delta)), pure)


def _events(losses: Iterable[float | Event]) -> list[Event]:
    return [loss if isinstance(loss, Event) else Pure(loss) for loss in losses]


def _composed(events: Sequence[Event]) -> Any:
    """Equal events are composed at once, then in pairs: the order plays no part.

    In pairs each distribution is convolved log T times; one after the other, the growing total
    would be convolved T times.
    """
    parts = [loss_distribution(event).self_compose(n) for event, n in Counter(events).items()]
    while len(parts) > 1:
        pairs = [
            first.compose(second) for first, second in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _check_delta(delta: float) -> None:
    if not (is_real(delta) and 0 <= delta < 1):
        raise PolicyError(f"delta is {delta}; give 0, or a probability between 0 and 1.")


# ---- Gaussian noise of a horizon


_WIDE = 20_000  # [Wh]; at such widths the integer law depends on the multiple alone
_MOST = 5_000.0  # times the distance; beyond it the grid of losses is too coarse
_WIDTH = 1e-4  # relative width at which the search stops; the answer is the end that holds


@lru_cache(maxsize=256)
def noise_multiple(epsilon: float, delta: float, steps: int) -> float:
    """Smallest sigma/distance with (epsilon, delta) over `steps` integer Gaussian releases.

    Args:
        epsilon: Loss of all releases together [nats].
        delta: Probability of exceeding it, between 0 and 1.
        steps: Number of releases.

    Returns:
        Standard deviation of the noise over the distance of the loads.

    Raises:
        PolicyError: If delta is not between 0 and 1.
        PlanError: If epsilon is too small for any multiple that can be computed.

    >>> round(noise_multiple(1.0, 1e-6, 96), 1)
    41.4
    """
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; Gaussian noise needs one between 0 and 1.")

    def holds(multiple: float) -> bool:
        distance = max(round(_WIDE / multiple), 1)
        return compose([GaussianEvent(distance, multiple * distance)] * steps, delta) <= epsilon

    high = 1.0
    while not holds(high):
        high *= 2
        if high > _MOST:
            raise PlanError(
                f"epsilon is {epsilon:g} at delta = {delta:g} over {steps} steps, which takes noise"
                f" above {_MOST:g} times the bound; give a larger epsilon."
            )
    low = high / 2
    while low > 1e-3 and holds(low):
        low, high = low / 2, low
    while high - low > _WIDTH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


DURATIONS = {
    "PT15M": 900,
    "P1D": 86_400,
    "P7D": 604_800,
    "P14D": 1_209_600,
    "P30D": 2_592_000,
}  # [s]
_GRID = 32  # losses that differ are rounded up to this part of the largest
_CERTAIN = 50.0  # sum of e tanh(e/2) above which 1 - AUC is below 1e-10, and 1 is stated


class Cover(NamedTuple):
    """What all prices can say about a stretch of time, all else known.

    Attributes:
        duration: Of the stretch (ISO 8601).
        shift: The most by which they shift the odds between any two stories of a home in it
            [nats]; infinite without a bound.
        auc_limit: A bound on the AUC of any attack on a home that uses its limit.
        auc_typical: The same where two stories never differ by more than a typical home's use.
    """

    duration: str
    shift: float
    auc_limit: float
    auc_typical: float


def covers(
    lengths: Sequence[int],
    losses: Sequence[float],
    *,
    seconds: int,
    typical: float,
    window: tuple[int, float] | None = None,
) -> tuple[Cover, ...]:
    """What blocks of steps that repeat for ever cover, for each of `DURATIONS`.

    Args:
        lengths: Steps of each block.
        losses: What each block loses about a home that uses its limit, its reach over the scale
            [nats].
        seconds: Length of a step [s].
        typical: What a typical home uses at most in a step, as a share of the reach, 0 to 1.
        window: Of a promise about windows: the steps that a window touches, and its epsilon. The
            account admits no block beyond it.

    Returns:
        A cover for each duration.

    Raises:
        PolicyError: If there is no block, or lengths and losses do not fit.

    >>> day = covers([24], [0.2], seconds=900, typical=0.1, window=(97, 1.0))[1]
    >>> day.duration, round(day.shift, 3), round(day.auc_limit, 3), round(day.auc_typical, 3)
    ('P1D', 1.0, 0.621, 0.512)
    """
    if not lengths or len(lengths) != len(losses) or min(lengths) < 1:
        raise PolicyError(
            f"lengths has {len(lengths)} blocks and losses {len(losses)}; give 1 step or more and"
            " one loss for each block."
        )
    rows = []
    for duration, time in DURATIONS.items():
        steps = -(-time // seconds) + 1
        total, block_losses = _worst_stretch(lengths, losses, steps)
        allowed = math.inf if window is None else -(-steps // window[0]) * window[1]
        figures = (
            min(auc_bound(block_losses * share), _logistic(allowed * share))
            for share in (1.0, typical)
        )
        rows.append(Cover(duration, min(total, allowed), *figures))
    return tuple(rows)


def auc_bound(losses: ArrayLike) -> float:
    """The largest AUC of any test between two stories about which releases lose these epsilons.

    No test of an e-DP release has more than e^e / (1 + e^e), which randomised response attains;
    of several releases, none more than that of as many randomised responses (Kairouz, Oh and
    Viswanath 2015), each later release chosen with the earlier ones in view.

    See: docs/proofs/covers.md.

    Args:
        losses: Epsilon of each release [nats], 0 or more; they may be infinite.

    Returns:
        The bound, 0.5 to 1; exact where all losses are equal, else of losses rounded up.

    >>> round(auc_bound([1.0]), 3), round(auc_bound([0.2] * 5), 3), auc_bound([])
    (0.731, 0.621, 0.5)
    """
    e = np.asarray(losses, np.float64)
    e = e[e > 0]
    if not e.size:
        return 0.5
    if not np.isfinite(e).all() or float((e * np.tanh(e / 2)).sum()) > _CERTAIN:
        return 1.0
    unit = float(e.max()) / (1 if e.min() == e.max() else _GRID)
    steps, count = np.unique(np.ceil(e / unit - 1e-9).astype(np.int64), return_counts=True)
    # the sum of the two log-likelihood ratios, halved: +m, 0 or -m from each release of m units
    reach = int((steps * count).sum())
    angle = np.fft.rfftfreq(2 * reach + 2) * 2 * np.pi
    transform = np.ones(len(angle), np.complex128)
    for m, k in zip(steps.tolist(), count.tolist(), strict=True):
        p = _logistic(m * unit)
        turn = np.exp(1j * angle * m)
        transform *= (2 * p * (1 - p) + p**2 * turn.conj() + (1 - p) ** 2 * turn) ** k
    law = np.fft.irfft(transform, 2 * reach + 2)
    return min(float(law[1 : reach + 1].sum() + law[0] / 2), 1.0)


def _worst_stretch(
    lengths: Sequence[int], losses: Sequence[float], steps: int
) -> tuple[float, Floats]:
    """The largest sum of losses that a stretch of steps touches, and losses above any stretch's.

    A stretch that begins with the last step of a block touches no less than one that begins
    earlier in it. Stretches are compared by their losses in descending order, one by one.
    """
    times = 1 + -(-steps // sum(lengths))
    ends = np.cumsum(np.tile(lengths, times + 1))
    repeated = np.tile(np.asarray(losses, np.float64), times + 1)
    starts = np.arange(len(lengths))
    last = np.searchsorted(ends, ends[starts] + steps - 1)
    if min(losses) == max(losses):
        above = repeated[: int((last - starts).max()) + 1]
        return math.fsum(above), above
    total, above = 0.0, np.zeros(int((last - starts).max()) + 1)
    for start, end in zip(starts.tolist(), last.tolist(), strict=True):
        stretch = np.sort(repeated[start : end + 1])[::-1]
        total = max(total, math.fsum(stretch))
        np.maximum(above[: len(stretch)], stretch, out=above[: len(stretch)])
    return total, above


def _logistic(x: float) -> float:
    """e^x / (1 + e^x)."""
    return 1 / (1 + math.exp(-min(x, 700.0)))
