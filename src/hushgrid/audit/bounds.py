"""Checks and statistics of an audit: exact binomial bounds, and tests valid for any load.

Noise is symmetric with one peak. Adding anything independent of it makes its size larger in law,
never smaller (Anderson 1955). So |noisy load - public guess| is at least as large in law as
|noise|, however good the model is; a sum that is too small is evidence of missing noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincinv, expn, gammainc, gammaincc, gammaln

from hushgrid._numbers import Bools, Floats, Ints

CheckStatus = Literal["passed", "failed", "noted", "not_checked", "not_applicable"]

# a finding further left outweighs one further right
_WEIGHT: tuple[CheckStatus, ...] = ("failed", "noted", "passed", "not_checked", "not_applicable")

CHECKS = {
    "noise_scale": "The noise is as wide as stated, and no test certifies more than is promised.",
    "data_dependent_scale": "The scale of the noise depends on nothing but public models.",
    "float_noise": "Noise is a whole number of Wh and the rate follows from the noisy load.",
    "post_processing": "Estimates, forecasts and energy put back follow from public figures.",
    "republication": "A step that is published again is the same; its noise is never redrawn.",
    "protected_set": "The scale covers every house whose occupancy the public cannot know.",
    "budget": "No loss is understated: of a step, of a block, of lost steps, of models.",
    "promise": "All releases together say no more about one interval than is promised.",
    "account": "Records state the account of an interval promise that follows from those before.",
    "seed_reuse": "No two streams of noise are the same.",
    "chain": "Every record follows from the one before, is signed, and nothing is missing.",
    "terms": "Releases were made under the terms given; records of terms name their houses.",
    "steps": "Steps and the times of rates are in order; steps without a release are named.",
    "fifteen_fifteen": "At least 15 customers, none above 15 % of the expected load.",
}


@dataclass(frozen=True, slots=True)
class Check:
    """The finding of one check.

    Attributes:
        id: A key of `CHECKS`.
        status: Outcome.
        text: The finding in words.
        first_bad: First record (of a ledger or trace) or step that fails, or None.
    """

    id: str
    status: CheckStatus
    text: str
    first_bad: int | None = None


def merge_checks(findings: Iterable[Check]) -> tuple[Check, ...]:
    """Combine findings into one check for each id.

    Args:
        findings: Findings in any order.

    Returns:
        Checks in the order of `CHECKS`, each with its most severe status and all texts.
    """
    by_id: dict[str, list[Check]] = {}
    for check in findings:
        by_id.setdefault(check.id, []).append(check)
    return tuple(_one(by_id[name]) for name in CHECKS if name in by_id)


def _one(several: list[Check]) -> Check:
    ranked = sorted(several, key=lambda check: _WEIGHT.index(check.status))
    words = dict.fromkeys(check.text for check in ranked if check.status == ranked[0].status)
    also = [
        check.text
        for check in ranked
        if check.status != ranked[0].status and check.status != "not_applicable"
    ]
    return replace(ranked[0], text=" ".join(dict.fromkeys([*words, *also])))


def verdict(checks: Iterable[Check]) -> str:
    """Verdict over all checks.

    Args:
        checks: The checks.

    Returns:
        "failed", "incomplete" (none failed, some could not be checked) or "passed".
    """
    statuses = {check.status for check in checks}
    if "failed" in statuses:
        return "failed"
    return "incomplete" if "not_checked" in statuses else "passed"


FALSE_ALARM = 1e-4  # chance that a check of the noise fails a correct publisher
_CANDIDATES = 400  # thresholds looked at on the first part of the samples
TRAINING = 0.25  # share of the samples that chooses the event


def at_least(hits: ArrayLike, count: int, level: float) -> Floats:
    """Clopper-Pearson lower bound on a probability, with confidence 1 - level.

    >>> round(float(at_least(80, 100, 0.025)), 4)  # Clopper and Pearson 1934
    0.7082

    Args:
        hits: Number of successes; any shape.
        count: Number of trials.
        level: Probability of an error.

    Returns:
        The bound, in the shape of `hits`.
    """
    k = np.asarray(hits, np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 0.5), count - k + 1, level), 0.0)


def at_most(hits: ArrayLike, count: int, level: float) -> Floats:
    """Clopper-Pearson upper bound on a probability, with confidence 1 - level.

    Args:
        hits: Number of successes; any shape.
        count: Number of trials.
        level: Probability of an error.

    Returns:
        The bound, in the shape of `hits`.
    """
    k = np.asarray(hits, np.float64)
    return np.where(k < count, betaincinv(k + 1, np.maximum(count - k, 0.5), 1 - level), 1.0)


class Bound(NamedTuple):
    """A certified lower bound on epsilon, and the event that proves it.

    Attributes:
        epsilon: The bound.
        side: "above" or "below": the event is a score on this side of the threshold.
        threshold: Threshold of the score.
        toward: State (0 or 1) under which the event is more probable.
        high: Lower bound on its probability under that state.
        low: Upper bound on its probability under the other state.
        hits: Number of events under states 0 and 1.
        samples: Number of tested samples under states 0 and 1.
        score: Name of the score.
    """

    epsilon: float
    side: str
    threshold: float
    toward: int
    high: float
    low: float
    hits: tuple[int, int]
    samples: tuple[int, int]
    score: str = "load"


@dataclass(frozen=True, slots=True)
class BlackBox:
    """Losses certified by a black-box test, and those promised.

    Attributes:
        houses: The houses whose occupancy differed.
        samples: Samples for each world.
        confidence: Confidence of both bounds together.
        one_step: Bound for one release.
        promised: Loss promised for one release.
        trajectory: Bound for several releases; None for a block or a horizon of one step.
        promised_trajectory: Loss promised for them.
        steps: Their number.
        scale: Scale due at step 1 [Wh].
        p_frequent_small_noise: Probability that correct noise is as often as small as observed.
    """

    houses: tuple[int, ...]
    samples: int
    confidence: float
    one_step: Bound
    promised: float
    trajectory: Bound | None
    promised_trajectory: float
    steps: int
    scale: float
    p_frequent_small_noise: float = 1.0


def lower_bound(
    absent: Floats, present: Floats, *, confidence: float, score: str = "load"
) -> Bound:
    """Certify a loss from scores under both states: one part chooses an event, the rest tests it.

    One event is tested, with each of its probabilities bounded at half of 1 - confidence.

    Args:
        absent: Scores under state 0.
        present: Scores under state 1.
        confidence: Confidence of the bound.
        score: Name of the score.

    Returns:
        The bound.
    """
    cut0, cut1 = int(len(absent) * TRAINING), int(len(present) * TRAINING)
    level = (1 - confidence) / 2
    side, threshold, toward, _ = best_event(
        absent[:cut0], present[:cut1], len(absent) - cut0, len(present) - cut1, level
    )
    tests = (absent[cut0:], present[cut1:])
    hits = tuple(int(np.count_nonzero(_inside(x, side, threshold))) for x in tests)
    count = (len(tests[0]), len(tests[1]))
    high = float(at_least(hits[toward], count[toward], level))
    low = float(at_most(hits[1 - toward], count[1 - toward], level))
    epsilon = max(math.log(high / low), 0.0) if high > 0 and low > 0 else 0.0
    return Bound(epsilon, side, threshold, toward, high, low, (hits[0], hits[1]), count, score)


def best_event(
    absent: Floats, present: Floats, n0: int, n1: int, level: float
) -> tuple[str, float, int, float]:
    """Choose the threshold event that is expected to certify the largest loss.

    Args:
        absent: Training scores under state 0.
        present: Training scores under state 1.
        n0: Number of scores under state 0 to test.
        n1: Number of scores under state 1 to test.
        level: Probability of an error of each binomial bound.

    Returns:
        (side, threshold, state, expected bound).
    """
    pooled = np.sort(np.concatenate([absent, present]))
    places = np.linspace(0, len(pooled) - 1, _CANDIDATES).astype(int)
    thresholds = np.unique(pooled[places])
    best = ("above", float(thresholds[0]), 1, -math.inf)
    scores = [np.sort(absent), np.sort(present)]
    # shares are uncertain twice: here and in the test; else rare events look better than they are
    sure = [round(m * n / (m + n)) for m, n in ((len(absent), n0), (len(present), n1))]
    for side in ("above", "below"):
        share = [_share(x, thresholds, side) for x in scores]
        for toward in (0, 1):
            n_high, n_low = (sure[0], sure[1]) if toward == 0 else (sure[1], sure[0])
            high = at_least(share[toward] * n_high, n_high, level)
            low = at_most(share[1 - toward] * n_low, n_low, level)
            with np.errstate(divide="ignore", invalid="ignore"):
                worth = np.where(high > 0, np.log(np.maximum(high, 1e-300) / low), -math.inf)
            i = int(np.argmax(worth))
            if worth[i] > best[3]:
                best = (side, float(thresholds[i]), toward, float(worth[i]))
    return best


def _share(scores: Floats, thresholds: Floats, side: str) -> Floats:
    if side == "above":
        return 1 - np.searchsorted(scores, thresholds, side="left") / len(scores)
    return np.asarray(np.searchsorted(scores, thresholds, side="right") / len(scores))


def _inside(scores: Floats, side: str, threshold: float) -> Bools:
    return np.asarray(scores >= threshold if side == "above" else scores <= threshold)


def p_small_noise(sizes: ArrayLike, scales: ArrayLike, block: Ints | None = None) -> float:
    """Probability that noise of these scales has a sum of sizes this small or smaller.

    Laplace: |K| + 1 is at least exponential of mean b, so the sum over b is at least Gamma(n).
    Noise that lasts a block of steps: the largest of j sizes of a block, plus 1, is at least
    Gamma(j) of scale b, so the sum over blocks is at least Gamma(n) too.

    Args:
        sizes: |noisy load - something independent of the noise| [Wh].
        scales: Scale of each [Wh].
        block: Number of the block of steps of each, in order; None: noise of its own.

    Returns:
        A p-value; 1 without sizes.
    """
    size, b = np.abs(np.asarray(sizes, np.float64)), np.asarray(scales, np.float64)
    if not size.size:
        return 1.0
    return float(gammainc(size.size, float(largest((size + 1) / b, block).sum())))


def largest(values: Floats, block: Ints | None) -> Floats:
    """The largest value of each block of steps; all values without blocks.

    Args:
        values: One a step.
        block: Number of the block of each, in order; None: no blocks.

    Returns:
        One a block.
    """
    if block is None:
        return values
    return np.asarray(np.maximum.reduceat(values, np.flatnonzero(np.diff(block, prepend=-1))))


def p_frequent_small_noise(noise: ArrayLike, scale: float) -> float:
    """Probability that Laplace noise falls within a small radius as often as observed.

    Counts |noise| <= r at nine radii r from 0 to 8 scales, with a Bonferroni correction.

    Args:
        noise: Noise [Wh].
        scale: Its scale [Wh].

    Returns:
        A p-value; 1 without noise.
    """
    size, q = np.abs(np.rint(np.asarray(noise, np.float64))), math.exp(-1 / scale)
    if not size.size:
        return 1.0
    reach = np.unique(np.floor(scale * np.array([0, 0.01, 0.1, 0.3, 1, 2, 4, 6, 8])))
    chance = 1 - 2 * q ** (reach + 1) / (1 + q)
    hits = np.searchsorted(np.sort(size), reach, side="right")
    p_values = np.where(hits > 0, betainc(np.maximum(hits, 1), size.size - hits + 1, chance), 1.0)
    return min(float(p_values.min()) * len(reach), 1.0)


def p_repeated_noise(
    noise: ArrayLike, scales: ArrayLike, most: int = 96, block: Ints | None = None
) -> tuple[int, float]:
    """Search for the lag at which a stream of noise repeats itself.

    Given the past, noise minus any figure is at least as large in law as noise alone, so
    differences that are too small are evidence that the noise is not new. The same holds given the
    size of a block's noise, and so for the largest of a block.

    Args:
        noise: Noisy load - something public, per step [Wh].
        scales: Scale of each [Wh].
        most: Largest lag [steps].
        block: As for `p_small_noise`.

    Returns:
        (lag, p-value) of the lag with the smallest p-value.
    """
    k, b = np.asarray(noise, np.float64), np.asarray(scales, np.float64)
    lags = range(1, min(most, len(k) // 2) + 1)
    best = (0, 1.0)
    for lag in lags:
        for before in (k[:-lag], -k[:-lag], k[:-lag] * b[lag:] / b[:-lag]):
            block_marks = None if block is None else block[lag:]
            p = p_small_noise(k[lag:] - before, b[lag:], block=block_marks) * 3 * len(lags)
            best = min(best, (lag, p), key=lambda candidate: candidate[1])
    return best


def largest_scale_ratio(sizes: ArrayLike, scales: ArrayLike, level: float = FALSE_ALARM) -> float:
    """Upper bound on the ratio of the scale of noise to the scale due.

    Args:
        sizes: Noise [Wh].
        scales: Scale due of each [Wh].
        level: Probability that the bound is wrong.

    Returns:
        The bound.
    """
    from scipy.special import gammaincinv

    size, b = np.abs(np.asarray(sizes, np.float64)), np.asarray(scales, np.float64)
    return float(((size + 1) / b).sum() / gammaincinv(size.size, level))


def p_similar_noise(
    first: ArrayLike, second: ArrayLike, grain: ArrayLike, block: Ints | None = None
) -> float:
    """Probability that two independent streams of noise are as close as observed.

    Common shocks move both streams and only widen their difference: |L - L'| > x has probability
    e^-x (1 + x/2). Where the noise of one of them lasts blocks of steps, its difference from the
    other is at least as large as itself.

    Args:
        first: (noisy load - public guess) / scale of the first stream.
        second: The same of the second stream.
        grain: 1/scale + 1/scale of each pair, for the rounding to whole Wh.
        block: As for `p_small_noise`, of a stream whose noise lasts blocks of steps.

    Returns:
        A p-value; 1 without common steps.
    """
    x = np.abs(np.asarray(first, np.float64) - np.asarray(second, np.float64)) + np.asarray(grain)
    if not x.size:
        return 1.0
    if block is not None:
        return float(gammainc(x.size, float(largest(x, block).sum())))
    return float(gammainc(x.size, float((x - np.log1p(x / 2)).sum())))


class BlockNoise(NamedTuple):
    """Noise of the published steps of one block.

    Attributes:
        noise: (j,) noise [Wh].
        scale: Its scale [Wh].
        steps: Steps of the block, published or not.
    """

    noise: Floats
    scale: float
    steps: int


def p_split_blocks(blocks: Sequence[BlockNoise]) -> float:
    """Probability of noise that looks as much as this as if its size changed within blocks.

    The likelihood of the noise if sizes are drawn anew at every step, or from some step of each
    block on, over its likelihood with one size a block: above 1/p with a chance of p at most
    (Markov), for any number of blocks.

    Args:
        blocks: Noise of whole or partly published blocks.

    Returns:
        A p-value.
    """
    per_step = parts = 0.0
    for noise, b, steps in blocks:
        size, j = np.abs(noise), np.arange(1, len(noise))
        if not j.size:
            continue
        before = np.maximum.accumulate(size)[:-1]
        after = np.maximum.accumulate(size[::-1])[-2::-1]
        baseline = float(_log_density(size.max(), len(size), b, steps)) + _coarse(b, steps)
        per_step += float(_log_density(size, 1, b, steps).sum()) - baseline
        cut = _log_density(before, j, b, steps) + _log_density(after, j[::-1], b, steps)
        parts += float(np.logaddexp.reduce(cut)) - math.log(j.size) - baseline
    return min(1.0, math.exp(min(-np.logaddexp(per_step, parts) + math.log(2), 0.0)))


def p_joined_blocks(blocks: Sequence[BlockNoise]) -> float:
    """Probability of noise that looks as much as this as if two blocks in a row shared their size.

    As `p_split_blocks`, with pairs of blocks that have the size of the first.

    Args:
        blocks: Blocks in pairs, each of one publisher and next to each other.

    Returns:
        A p-value.
    """
    log_ratio = 0.0
    for first, second in zip(blocks[::2], blocks[1::2], strict=True):
        sizes = np.abs(np.concatenate([first.noise, second.noise]))
        log_ratio += float(_log_density(sizes.max(), sizes.size, first.scale, first.steps))
        for noise, b, steps in (first, second):
            baseline = float(_log_density(np.abs(noise).max(), len(noise), b, steps))
            log_ratio -= baseline + _coarse(b, steps)
    return min(1.0, math.exp(min(-log_ratio, 0.0)))


def _log_density(most: ArrayLike, j: ArrayLike, b: float, steps: int) -> Floats:
    """Log density of j steps of a block's noise whose largest size is `most` (for large b).

    M is Gamma(steps + 1), and each step uniform on -M..M: Gamma(steps + 1 - j, most/b) over
    steps! (2b)^j, the upper incomplete gamma function, also where its order is 0 or less.
    """
    x = np.maximum(np.asarray(most, np.float64) / b, 1e-9)
    order = np.asarray(steps + 1 - np.asarray(j), np.float64)
    above = gammaln(np.maximum(order, 1)) + np.log(
        np.maximum(gammaincc(np.maximum(order, 1), x), 1e-300)
    )
    below = order * np.log(x) + np.log(np.maximum(expn(np.maximum(1 - order, 0), x), 1e-300))
    log_gamma = np.where(order > 0, above, below)
    return np.asarray(log_gamma - gammaln(steps + 1) - np.asarray(j) * math.log(2 * b))


def _coarse(b: float, steps: int) -> float:
    """What whole Wh can add to a log likelihood of a block, generously."""
    return ((steps + 2) / b) ** 2 / 24
