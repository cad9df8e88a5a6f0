"""Models of many homes that may be published: noisy sums, and bounds by a noisy count.

The unit of protection is a home with its whole history: all readings and labels of one meter of a
public list. Two datasets are neighbours when that history is replaced by any other: other values,
time stamps, durations, another number of readings, or none.

1. The design is public. Begin, end and step of the axis, the list of meters, time zone, habits, the
   family of laws, the number of slot groups, priors, starts and ties are arguments
   (`Histories.declared`, `export_models`).
2. A home's vector depends on the design and its own history alone, to the bit. Its row holds its
   own readings inside the axis (`histories_of`); what ails it is computed from its row (`ailments`)
   and drops that home only; its labels and days without activity come from its row; its fit from
   these and the design (`fit`). A home that is dropped or has no readings gives a vector of zeros.
3. A vector has whole numbers of 0 or more that add up to `PARTS * UNIT` at most, however many slot
   groups they are spread over.

So a neighbour differs in one term of the sum, and the sum moves by at most `2 * PARTS * UNIT` (L1).
Integer Laplace noise of scale 2 * PARTS * UNIT / epsilon on each entry makes the sums
epsilon-differentially private. The number of entries is the design's. The models are made of the
noisy sums and the design, so they cost nothing more. How many homes could be fitted is a secret;
how many are on the list is not, and only that number decides whether a pool is large enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, is_real
from hushgrid.errors import PolicyError
from hushgrid.learning.em import Fit
from hushgrid.learning.pools import pooled_fit
from hushgrid.mechanism.noise import Noise

LearnedFrom = Literal["public", "pooled", "private"]
LEAST_HOMES = 15
UNIT = 1_000_000  # a home's whole share, so that rounding to whole numbers costs little
PARTS = 4  # shares of readings, two features of their laws, and moves: each at most 1
_PERIODS = 4  # of a day, in which moves are counted; weekdays and weekends together


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Sums over homes in units of `UNIT`.

    Attributes:
        shares: (groups, K) shares of readings.
        laws: (laws, 2) features of the laws, weighted by their share.
        moves: (periods, K, K) shares of moves.
        homes: Number of homes on the public list, fitted or not.
        epsilon: Privacy loss of the noise; None without noise, not to be published.
    """

    shares: Ints
    laws: Ints
    moves: Ints
    homes: int
    epsilon: float | None

    @property
    def vector(self) -> Ints:
        """All entries in a row."""
        return np.concatenate([part.ravel() for part in (self.shares, self.laws, self.moves)])


def statistics(fits: Fit, top: int, homes: int | None = None) -> Statistics:
    """The sums without noise.

    Args:
        fits: Fits of the homes that could be fitted.
        top: Public bound that scales the features [Wh].
        homes: Public number of homes, fitted or not; None for the number of fits. Required where a
            home's own readings decide whether it is fitted.

    Returns:
        The sums.

    Raises:
        PolicyError: The law has other features than two.
    """
    if fits.design.family not in ("gamma", "lognormal"):
        raise PolicyError(f"law is {fits.design.family!r}; pooled models need gamma or lognormal.")
    shares, laws, moves = (
        np.sum(column, axis=0) for column in zip(*contributions(fits, top), strict=True)
    )
    return Statistics(shares, laws, moves, fits.homes if homes is None else homes, None)


def contributions(fits: Fit, top: int) -> list[tuple[Ints, Ints, Ints]]:
    """The term of each home: whole numbers of 0 or more, at most `PARTS * UNIT` together.

    Args:
        fits: Fits of the homes.
        top: Public bound that scales the features [Wh].

    Returns:
        (shares, laws, moves) of each home, in the shapes of `Statistics`.
    """
    period, tie = _period_of(fits.moves.shape[1]), _tie_of(fits)
    reach = _reach(fits.design.family, top)
    terms = []
    for sums, moves in zip(fits.sums, fits.moves, strict=True):
        n = np.where(np.isfinite(sums[..., 0]), sums[..., 0], 0.0)
        share = n / max(float(n.sum()), 1e-9)
        laws = []
        for law in range(int(tie.max()) + 1):
            mask = tie == law
            mean = sums[mask][:, 1:].sum(axis=0) / max(float(n[mask].sum()), 1e-9)
            laws.append(share[mask].sum() * np.clip(mean / reach, 0, 1))
        flows = np.stack([moves[period == p].sum(axis=0) for p in range(_PERIODS)])
        flows = flows / max(float(flows.sum()), 1e-9)
        terms.append((_whole(share, 1), _whole(np.array(laws), 2), _whole(flows, 1)))
    return terms


def _tie_of(fits: Fit) -> Int32s:
    """(groups, K) number of the law of each place."""
    shape = fits.sums.shape[1:3]
    tie = fits.design.tie
    return tie if tie.size else np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)


def _whole(parts: Floats, most: int) -> Ints:
    """Rounded down to units; an excess over `most` by floating-point rounding is removed."""
    units = np.floor(np.clip(np.nan_to_num(parts), 0, 1) * UNIT).astype(np.int64)
    excess = int(units.sum()) - most * UNIT
    if excess > 0:
        units.flat[int(units.argmax())] = max(int(units.max()) - excess, 0)
    return units if int(units.sum()) <= most * UNIT else np.zeros_like(units)


def _reach(family: str, top: int) -> Floats:
    """The largest values of the two features under the bound."""
    log = np.log(top + 1.0)
    return np.array([log, log**2]) if family == "lognormal" else np.array([top + 1.0, log])


def _period_of(slots: int) -> Ints:
    steps = slots // 2 if slots % 2 == 0 else slots
    return np.asarray((np.arange(slots) % steps) * _PERIODS // steps)


def add_noise(exact: Statistics, epsilon: float, noise: Noise) -> Statistics:
    """Add noise to sums; the result may be published at a cost of epsilon for every home.

    Args:
        exact: The sums without noise.
        epsilon: Privacy loss.
        noise: Source of integer Laplace noise.

    Returns:
        The noisy sums.

    Raises:
        PolicyError: Epsilon is not positive, or there are fewer than `LEAST_HOMES` homes.

    See: docs/proofs/pools.md.
    """
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"pool budget is {epsilon}; give a positive epsilon.")
    if exact.homes < LEAST_HOMES:
        raise PolicyError(
            f"there are {exact.homes} homes; a pooled model needs at least {LEAST_HOMES}: give"
            " more homes, or keep the model private."
        )
    noisy = exact.vector + noise.draws(_scale(2 * PARTS * UNIT, epsilon), exact.vector.size)
    parts = np.split(noisy, np.cumsum([exact.shares.size, exact.laws.size]))
    pairs = zip(parts, (exact.shares, exact.laws, exact.moves), strict=True)
    shares, laws, moves = (part.reshape(like.shape) for part, like in pairs)
    return Statistics(shares, laws, moves, exact.homes, float(epsilon))


def _scale(distance: int, epsilon: float) -> float:
    """The scale of noise on whole numbers with sensitivity `distance` (L1).

    A few units in the last place wider, so that OpenDP's own map, which rounds up, gives no more
    than epsilon.
    """
    return distance / epsilon * (1 + 2.0**-50)


def pooled_model(fits: Fit, noisy: Statistics, top: int) -> Fit:
    """One model for all homes, from noisy sums and public priors only.

    Negative entries count as 0, and spreads stay within `SPREADS`. Moves scale the prior's
    probabilities.

    Args:
        fits: A fit; only its design, which is public, is used.
        noisy: The noisy sums.
        top: Public bound that scales the features [Wh].

    Returns:
        A fit with one "home".
    """
    design, tie = fits.design, _tie_of(fits)
    share = np.maximum(noisy.shares, 0) / UNIT
    features = np.maximum(noisy.laws, 0) / UNIT
    reach = _reach(design.family, top)
    sums = np.zeros((*share.shape, 3))
    for law in range(int(tie.max()) + 1):
        mask = tie == law
        total = float(share[mask].sum())
        mean = _sensible(design.family, np.clip(features[law] / max(total, 0.1), 0, 1) * reach)
        weight = (share[mask] + 1e-6) * _A_DAY * _own_days(fits)
        sums[mask] = weight[:, None] * np.array([1.0, *mean])
    moves = _scaled_moves(fits, noisy)
    first = np.ones((1, design.states))
    return pooled_fit(fits, sums[None], moves[None], first, [noisy.homes])


def _sensible(family: str, mean: Floats) -> tuple[float, float]:
    """Features within the range of a law; noise may have moved them anywhere."""
    low, high = SPREADS
    first, second = float(mean[0]), float(mean[1])
    if family == "lognormal":
        return first, first**2 + min(max(second - first**2, low**2), high**2)
    first = max(first, 0.6)
    gap = np.log(first) - second  # about half the squared relative spread
    return first, float(np.log(first) - min(max(gap, low**2 / 2), high**2 / 2))


SPREADS = (0.2, 1.5)  # of the logarithm of a reading, within one state
_A_DAY = 48.0  # readings' worth of a home's share, against the prior on laws


def _own_days(fits: Fit) -> float:
    """Days of the axis, a public number: the weight of the sums against the priors."""
    return max(float(len(fits.design.slot)) / (float(fits.moves.shape[1]) / 2), 1.0)


def _scaled_moves(fits: Fit, noisy: Statistics) -> Floats:
    """(slots, K, K) pseudo-counts: the prior's, each period's moves scaled to the sums."""
    prior = fits.design.moves if fits.design.moves.ndim == 3 else fits.design.moves.mean(axis=0)
    period = _period_of(len(prior))
    change = np.zeros_like(prior)
    flows = np.maximum(noisy.moves, 0) / UNIT
    for p in range(_PERIODS):
        steps = period == p
        expected_moves = prior[steps].sum(axis=0)
        row = flows[p].sum(axis=1, keepdims=True)
        # seen moves out of each state against those the prior expects of as many
        ratio = (flows[p] + 0.02 * expected_moves / expected_moves.sum()) / (
            row * expected_moves / expected_moves.sum(axis=1, keepdims=True)
            + 0.02 * expected_moves / expected_moves.sum()
        )
        change[steps] = prior[steps] * (np.clip(ratio, 0.1, 10) - 1)
    return np.maximum(change, -0.9 * prior)


def bound_quantile(peaks: Ints, sizes: Ints, quantile: float, epsilon: float, noise: Noise) -> int:
    """The smallest public size that about `quantile` of homes never exceed.

    Each home counts in one size; replacing it moves two counts by 1, so noise of scale 2/epsilon on
    each makes the counts epsilon-differentially private, and the choice costs nothing more.

    Args:
        peaks: (homes,) largest readings [Wh].
        sizes: Public sizes [Wh].
        quantile: Share of homes, above 0 to 1.
        epsilon: Privacy loss.
        noise: Source of integer Laplace noise.

    Returns:
        The size [Wh].

    Raises:
        PolicyError: Epsilon is not positive, or quantile or sizes are out of range.
    """
    sizes = np.sort(np.asarray(sizes, np.int64))
    if not (is_real(epsilon) and epsilon > 0):
        raise PolicyError(f"bound budget is {epsilon}; give a positive epsilon.")
    if not (0 < quantile <= 1) or not sizes.size or sizes[0] < 1:
        raise PolicyError(f"quantile is {quantile} of {len(sizes)} sizes; give 0 to 1 and sizes.")
    at = np.minimum(np.searchsorted(sizes, peaks), len(sizes) - 1)
    counts = np.bincount(at, minlength=len(sizes))
    noisy = counts + noise.draws(_scale(2, epsilon), len(counts))
    below = np.cumsum(np.maximum(noisy, 0))
    return int(sizes[int(np.searchsorted(below, quantile * below[-1]))])


def contract_sizes(seconds: int) -> Ints:
    """Usual contracts of 1 to 50 kW.

    Args:
        seconds: Length of a step [s].

    Returns:
        Sizes [Wh a step].
    """
    kilowatts = np.array([1, 2, 3, 4.6, 6, 8, 10, 12, 15, 20, 30, 50])
    return (kilowatts * 1000 * seconds // 3600).astype(np.int64)
