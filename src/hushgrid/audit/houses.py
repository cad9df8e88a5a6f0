"""Losses of every house by the releases of a week, and the 15/15 rule.

Includes the exact loss of one release about a house of a block, or under a prior mixed over
Theta, by enumeration of a block's states and convolution of laws: the largest
|log Pr[output | S_h = 1] / Pr[output | S_h = 0]| over all outputs, in the public's own belief.
The rules `minimal` and `paper` do not bound it; `block` does (docs/proofs/blocks.md). No rule of
one release bounds it for an adversary that is unsure between models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, sum_up
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.audit.bounds import Check
from hushgrid.audit.evidence import Evidence, Terms
from hushgrid.audit.recompute import Recomputed
from hushgrid.belief.filter import expected_readings, marginals
from hushgrid.mechanism.release import State
from hushgrid.mechanism.support import joined_blocks
from hushgrid.model.laws import Law
from hushgrid.model.occupancy import OccupancyModel

WORK = 200_000_000  # multiplications a figure may take


class RealisedLoss(NamedTuple):
    """The exact loss about one house at one step.

    Attributes:
        house: The house.
        step: The step.
        block: The houses of its block.
        model: Index of the model with the largest loss.
        loss: The loss.
    """

    house: int
    step: int
    block: tuple[int, ...]
    model: int
    loss: float


def worst_law(law: Law, end: int, eta: float) -> Floats:
    """The worst law within eta of the model: a share eta of the readings lies at one end.

    Args:
        law: Law of the model.
        end: Reading of the share eta [Wh].
        eta: The share.

    Returns:
        (K,) probabilities of 0..K-1 Wh.
    """
    pmf = np.zeros(max(law.top, end) + 1)
    pmf[: law.top + 1] = (1 - eta) * law.pmf
    pmf[end] += eta
    return pmf


def _with_noise(pmf: Floats, scale: float) -> Floats:
    """The law of the reading plus Laplace noise on 0..top, up to a constant factor.

    By two recursions with positive terms only, so that tails keep their precision.
    """
    from scipy.signal import lfilter  # type: ignore[attr-defined,unused-ignore]

    q = math.exp(-1 / scale) if scale else 0.0
    forth = lfilter([1.0], [1.0, -q], pmf)
    back = lfilter([1.0], [1.0, -q], pmf[::-1])[::-1]
    return np.asarray(forth + back - pmf)


def log_ratio(absent: Floats, present: Floats, scale: float) -> Floats:
    """log Pr[k | present] / Pr[k | absent] for noisy loads k; constant beyond both ends.

    Args:
        absent: Probabilities of 0.. Wh without the house at home.
        present: The same with it.
        scale: Scale of the Laplace noise [Wh].

    Returns:
        (K,) log ratios for k = 0..K-1 Wh, K the longer of both lengths.
    """
    size = max(len(absent), len(present))
    f0, f1 = (np.pad(f, (0, size - len(f))) for f in (absent, present))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(_with_noise(f1, scale)) - np.log(_with_noise(f0, scale)))


def block_loss(
    states: Floats, laws: Sequence[tuple[Floats, Floats]], house: int, scale: float
) -> float:
    """The worst loss about one house of a block.

    >>> far = [(np.eye(1001)[0], np.eye(1001)[1000])] * 2  # 0 Wh absent, 1000 Wh present
    >>> round(block_loss(np.array([.4999, .0001, .0001, .4999]), far, 0, 2000.0), 4)
    0.9998

    Args:
        states: (2^m,) probabilities of the block's states; the first house is the highest bit.
        laws: (absent, present) probabilities of each house.
        house: Position of the house in the block.
        scale: Scale of the noise [Wh].

    Returns:
        The loss; 0 where the house's state is certain.
    """
    m = len(laws)
    sides = [np.zeros(1), np.zeros(1)]
    for state, chance in enumerate(states.tolist()):
        if chance <= 0:
            continue
        bits = [state >> (m - 1 - j) & 1 for j in range(m)]
        load = reduce(np.convolve, [pair[bit] for pair, bit in zip(laws, bits, strict=True)])
        sides[bits[house]] = _sum_laws(sides[bits[house]], chance * load)
    return _largest_ratio(sides, scale)


def _largest_ratio(sides: Sequence[Floats], scale: float) -> float:
    """Largest |log ratio| of the two laws, normalised; 0 where the state is certain."""
    absent, present = sides
    if not absent.any() or not present.any():
        return 0.0
    ratios = log_ratio(absent / absent.sum(), present / present.sum(), scale)
    return float(np.nanmax(np.abs(ratios)))  # without noise some loads have no chance at all


def _sum_laws(law: Floats, addend: Floats) -> Floats:
    size = max(len(law), len(addend))
    return np.asarray(np.pad(law, (0, size - len(law))) + np.pad(addend, (0, size - len(addend))))


def worst_of_blocks(
    first: State, models: Sequence[OccupancyModel], t: int, scale: float
) -> list[RealisedLoss]:
    """The worst loss over the models for every house that some model puts into a block.

    Args:
        first: State before the first step.
        models: Theta.
        t: Step.
        scale: Scale of the noise [Wh].

    Returns:
        Losses by house; blocks that take too much work are left out.
    """
    worst: dict[int, RealisedLoss] = {}
    for theta, model in enumerate(models):
        if all(piece.size == 1 for piece in model.chains):
            continue
        belief = next(islice(marginals(model), t - 1, None))
        for piece, law in zip(model.chains, belief.laws, strict=True):
            if piece.size == 1:
                continue
            for houses, states in zip(piece.members, belief.of_blocks(law, piece), strict=True):
                laws = _laws_of(first, houses.tolist(), t)
                if _work(laws) > WORK:
                    continue
                for place, house in enumerate(houses.tolist()):
                    loss = block_loss(states, laws, place, scale)
                    largest = worst.get(house)
                    if largest is None or loss > largest.loss:
                        worst[house] = RealisedLoss(house, t, tuple(houses.tolist()), theta, loss)
    return [worst[house] for house in sorted(worst)]


def _laws_of(first: State, houses: Sequence[int], t: int) -> list[tuple[Floats, Floats]]:
    """The worst laws within the policy's eta, (absent, present), of some houses at step t."""
    f, bound, eta = first.scheduler.consumption, first.zone.bound, first.policy.eta
    laws = []
    for house in houses:
        kind = int(f.class_of[house])
        absent, present = (f.law(t, kind, occupied=o) for o in (False, True))
        ends = (0, int(bound[house])) if absent.mean <= present.mean else (int(bound[house]), 0)
        laws.append((worst_law(absent, ends[0], eta), worst_law(present, ends[1], eta)))
    return laws


def _work(laws: Sequence[tuple[Floats, Floats]]) -> int:
    reach, work = 0, 0
    for _, f1 in laws:
        work += reach * len(f1)
        reach += len(f1)
    return int(work * 2 ** len(laws))


def mixture_loss(
    first: State, models: Sequence[OccupancyModel], house: int, t: int, scale: float
) -> float | None:
    """The loss about a house for an adversary that holds every model equally likely.

    Args:
        first: State before the first step.
        models: Theta.
        house: The house.
        t: Step.
        scale: Scale of the noise [Wh].

    Returns:
        The loss; None with blocks, with one model, or where it takes too much work.
    """
    houses = range(first.zone.n_houses)
    alone = all(piece.size == 1 for model in models for piece in model.chains)
    if not alone or len(models) < 2:
        return None
    laws = _laws_of(first, houses, t)
    if _work(laws) // 2 ** len(laws) * len(models) > WORK:
        return None
    sides = [np.zeros(1), np.zeros(1)]
    for model in models:
        at_home = _home(model, t)
        background = reduce(
            np.convolve, [_blend(laws[j], at_home[j]) for j in houses if j != house], np.ones(1)
        )
        for s, chance in enumerate((1 - at_home[house], at_home[house])):
            if chance > 0:
                sides[s] = _sum_laws(sides[s], chance * np.convolve(background, laws[house][s]))
    return _largest_ratio(sides, scale)


def _blend(pair: tuple[Floats, Floats], home: float) -> Floats:
    return _sum_laws((1 - home) * pair[0], home * pair[1])


def _home(model: OccupancyModel, t: int) -> Floats:
    """(N,) probabilities of being at home, for independent houses."""
    belief = next(islice(marginals(model), t - 1, None))
    home = np.empty(model.n_houses)
    for law, piece in zip(belief.laws, model.chains, strict=True):
        home[piece.members[:, 0]] = belief.of_blocks(law, piece)[:, 1]
    return home


_FEW = 8  # houses for which mixtures over Theta are worked out
_STEPS = 96 * 7  # looked at for the 15/15 rule


@dataclass(frozen=True, slots=True, eq=False)
class Houses:
    """Losses of every house; houses count from 0 in the order of `Terms.zone`.

    Attributes:
        zone: Id of the zone.
        first: First step of the week.
        releases: Number of releases from readings.
        bound: (N,) bounds of the readings [Wh].
        protected: (N,) numbers of releases in which the house was protected.
        loss: (N,) largest loss by one release.
        total: (N,) sums over all releases.
        leakage: (N,) worst leakage about one step from all releases, those of neighbouring weeks
            of the same terms included; None where there is no bound.
        any_total: (N,) sums of the loss for any consumption.
        realised: Exact losses of one release where houses form blocks.
        mixture: (house, loss) where Theta has several models.
        worst: The house with the largest leakage, or total.
    """

    zone: str
    first: int
    releases: int
    bound: Int32s
    protected: Ints
    loss: Floats
    total: Floats
    leakage: Floats | None
    any_total: Floats
    realised: tuple[RealisedLoss, ...]
    mixture: tuple[tuple[int, float], ...]
    worst: int


def houses(recomputed: Recomputed, leakage: Floats | None) -> Houses:
    """Compute the losses of every house in a week.

    Args:
        recomputed: The recomputed week.
        leakage: (N,) leakage, an element of the result of `leakages`.

    Returns:
        The losses.
    """
    first, losses = recomputed.first, recomputed.losses
    scales = np.array(recomputed.recorded_scale)
    if not len(losses):
        losses, scales = np.zeros((1, first.zone.n_houses)), np.zeros(1)
    inverse_scales = np.where(scales > 0, 1 / np.where(scales > 0, scales, 1), 0.0)
    for t in recomputed.week.lost if first.scheduler.ahead else ():  # booked by the schedule
        if t <= min(len(inverse_scales), first.policy.horizon) and not inverse_scales[t - 1]:
            inverse_scales[t - 1] = 1 / max(first.scheduler.at(t).scale, first.policy.min_scale)
    bare = any(entry.scale == 0 for entry in recomputed.releases)
    loss_per_wh = math.inf if bare else _by_blocks(recomputed, inverse_scales).sum()
    total = np.array([sum_up(column) for column in _by_blocks(recomputed, losses).T.tolist()])
    any_total = np.maximum(_reach(recomputed) * loss_per_wh, total)
    by = total if leakage is None else leakage
    worst = int(np.argmax(np.where(np.isfinite(by), by, math.inf)))
    realised, mixture = _realised(recomputed)
    return Houses(
        first.zone.id,
        recomputed.week.first,
        len(recomputed.releases),
        first.zone.bound,
        (losses > 0).sum(axis=0),
        losses.max(axis=0),
        total,
        leakage,
        any_total,
        realised,
        mixture,
        worst,
    )


def _reach(recomputed: Recomputed) -> Floats:
    """(N,) how far the readings of a house, and of those that move with it, can be apart [Wh]."""
    reach = recomputed.first.zone.bound.astype(np.float64)
    for block in joined_blocks(recomputed.terms.models):
        reach[list(block.houses)] = recomputed.first.zone.bound[list(block.houses)].sum()
    return reach


def _by_blocks(recomputed: Recomputed, steps: Floats) -> Floats:
    """Losses of steps, of each block of steps its own once: the largest of its releases."""
    lengths = recomputed.lengths(len(steps))
    if not lengths:
        return steps
    return np.asarray(np.maximum.reduceat(steps, np.cumsum([0, *lengths[:-1]])))


def leakages(recomputed: Sequence[Recomputed], evidence: Sequence[Evidence]) -> list[Floats | None]:
    """Worst leakage about one step of every house, for each week.

    Weeks of one zone and the same terms form one chain; others are counted separately.

    Args:
        recomputed: The recomputed weeks.
        evidence: The records they belong to.

    Returns:
        (N,) leakage for each week, None where there is no bound.
    """
    by_week: list[Floats | None] = [None] * len(recomputed)
    for run in _runs(recomputed, evidence):
        first = recomputed[run[0]]
        spans = [(m.week.first, _rows(m)) for m in map(recomputed.__getitem__, run)]
        begin, ends = spans[0][0], [at for at, _ in spans[1:]] + [max(a + len(r) for a, r in spans)]
        losses = np.zeros((ends[-1] - begin, first.first.zone.n_houses))
        lengths: tuple[int, ...] = ()
        for (at, rows), end, place in zip(spans, ends, run, strict=True):
            losses[at - begin : at - begin + len(rows)] += rows
            present = recomputed[place]
            for last, more in _booked_beyond(present, evidence):
                losses[min(last, len(losses) + begin - 1) - begin] += more
            if present.terms.policy.schedule.lengths:  # and steps between weeks, each its own
                steps = min(len(rows), end - at)
                lengths += (1,) * (at - begin - sum(lengths)) + present.lengths(steps)
        if not np.isfinite(losses).all():
            continue
        other_weeks, models = first.terms.other_weeks, first.terms.models
        if other_weeks is not None and len(run) > 1:
            models = other_weeks.models(begin, len(losses))
        worst_of_run = [np.zeros(losses.shape[1]) for _ in run]
        for members, column, total in leakage_by_houses(models, losses, lengths=lengths):
            for (at, rows), end, worst in zip(spans, ends, worst_of_run, strict=True):
                largest = total[at - begin : max(at + len(rows), end) - begin].max(axis=0)
                worst[members] = largest[column]
        for place, worst in zip(run, worst_of_run, strict=True):
            by_week[place] = worst
    return by_week


def _booked_beyond(
    recomputed: Recomputed, evidence: Sequence[Evidence]
) -> Iterator[tuple[int, float]]:
    """(last step, loss of any house) of gaps whose steps are on record as well: published twice."""
    week = recomputed.week
    sources = [source for source in evidence if any(member is week for member in source.weeks)]
    release_steps = {entry.step for entry in week.entries if entry.source == "readings"}
    for gap in (gap for source in sources for gap in source.gaps):
        steps = {t - week.first + 1 for t in range(gap.first, gap.last + 1)} & week.lost
        if gap.epsilon and steps & release_steps:
            yield gap.last, gap.epsilon


def promise_kept(recomputed: Recomputed, leakage: Floats | None) -> Check:
    """Compare what all releases say about one interval with an interval promise.

    Args:
        recomputed: The recomputed week.
        leakage: (N,) worst leakage about one step of it, None where there is no bound.

    Returns:
        The check; of other promises not applicable.
    """
    name, terms = "promise", recomputed.terms
    if terms.secret != "interval":
        return Check(name, "not_applicable", "The promise is not about an interval.")
    if leakage is None:
        return Check(name, "noted", "What all releases say about one interval has no bound here.")
    worst, promised = float(leakage.max(initial=0.0)), terms.promised
    text = (
        f"All releases of these terms leak {worst:.4g} about one interval of the worst house, where"
        f" {promised:.4g} is promised."
    )
    if worst > promised * (1 + 1e-6):  # as where terms begin
        return Check(name, "failed", text, recomputed.week.place)
    return Check(name, "passed", text)


def _runs(recomputed: Sequence[Recomputed], evidence: Sequence[Evidence]) -> Iterator[list[int]]:
    """Positions of weeks that follow each other under the same terms.

    One without a release, published or lost, comes alone and ends no run.
    """
    weeks = [week for source in evidence for week in source.weeks if week.entries or week.lost]
    place_of = {id(week): place for place, week in enumerate(weeks)}
    run: list[int] = []
    for place, present in enumerate(recomputed):
        if id(present.week) not in place_of:
            yield [place]
            continue
        if run:
            before = recomputed[run[-1]]
            next_to = place_of[id(before.week)] + 1 == place_of[id(present.week)]
            last = max((entry.step for entry in before.week.entries), default=0)
            later = present.week.first >= before.week.first + max(last, 1)
            if not (next_to and later and _same_terms(before, present)):
                yield run
                run = []
        run.append(place)
    if run:
        yield run


def _same_terms(before: Recomputed, present: Recomputed) -> bool:
    """Whether two weeks differ in their times alone, whichever files their terms are from."""
    return (
        present.terms.other_weeks is not None
        and before.terms.other_weeks is not None
        and present.terms.zone.id == before.terms.zone.id
        and present.week.digest == before.week.digest
    )


def _rows(recomputed: Recomputed) -> Floats:
    return (
        recomputed.losses
        if len(recomputed.losses)
        else np.zeros((1, recomputed.first.zone.n_houses))
    )


def _realised(
    recomputed: Recomputed,
) -> tuple[tuple[RealisedLoss, ...], tuple[tuple[int, float], ...]]:
    """Losses of houses in blocks, and mixtures over Theta: each at its house's worst release.

    That is the release with the house's largest loss by the rules, exact releases included.
    """
    schedule, models = recomputed.terms.policy.schedule, recomputed.terms.models
    if not recomputed.releases or schedule.lengths:
        return (), ()
    at = recomputed.losses[[entry.step - 1 for entry in recomputed.releases]].argmax(axis=0)
    block_houses = {i for m in models for p in m.chains if p.size > 1 for i in p.members.flat}
    blocks, mixture = dict[int, RealisedLoss](), []
    for place in sorted({int(at[house]) for house in block_houses}):
        entry = recomputed.releases[place]
        for worst_loss in worst_of_blocks(recomputed.first, models, entry.step, entry.scale):
            if at[worst_loss.house] == place:
                blocks[worst_loss.house] = worst_loss
    for house in range(min(recomputed.first.zone.n_houses, _FEW)):
        entry = recomputed.releases[at[house]]
        loss = mixture_loss(recomputed.first, models, house, entry.step, entry.scale)
        if loss is not None:
            mixture.append((house, loss))
    return tuple(blocks[house] for house in sorted(blocks)), tuple(mixture)


def fifteen_fifteen(terms: Terms) -> Check:
    """The 15/15 rule of regulators, on the public model's expectation. It proves nothing.

    Args:
        terms: The terms.

    Returns:
        The check, never failed.
    """
    name, n = "fifteen_fifteen", terms.zone.n_houses
    caveat = " The rule is a custom, not a proof: promises rest on the noise."
    if n < 15:
        return Check(name, "noted", f"{n} customers, fewer than 15.{caveat}")
    steps, worst, at, house = min(terms.policy.horizon, _STEPS), 0.0, 1, 0
    for t, belief in enumerate(islice(marginals(terms.models[0]), steps), 1):
        expected = expected_readings(belief, terms.models[0], terms.consumption)
        share = float(expected.max() / expected.sum()) if expected.sum() > 0 else 0.0
        if share > worst:
            worst, at, house = share, t, int(expected.argmax())
    if worst > 0.15:
        text = f"House {house} is expected to make up {worst:.0%} of the load at step {at} of"
        text += f" its week.{caveat}"
        return Check(name, "noted", text, at)
    text = f"{n} customers, none above {worst:.1%} of the expected load.{caveat}"
    return Check(name, "passed", text)
