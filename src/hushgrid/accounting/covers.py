"""What a promise covers: how far all prices can shift odds about a stretch of time.

The blocks of steps that a stretch touches lose e_1 .. e_k, whatever a home does in it
(docs/proofs/blocks-of-steps.md). Their sum bounds the shift of odds. The AUC of the best test is
bounded by that of k randomised responses (docs/proofs/covers.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats
from hushgrid.errors import PolicyError

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
