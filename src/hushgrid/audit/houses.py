"""What the releases of an epoch have cost every house, and whom the zone consists of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import NamedTuple

import numpy as np

from hushgrid._numbers import Floats, Int32s, Ints, sum_up
from hushgrid.accounting.composition import Account, compose
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.audit.bounds import Check
from hushgrid.audit.evidence import Evidence, Terms
from hushgrid.audit.recompute import Recomputed
from hushgrid.belief.filter import expected_readings, marginals
from hushgrid.errors import HushgridError
from hushgrid.mechanism.release import State
from hushgrid.model.laws import Law
from hushgrid.model.occupancy import OccupancyModel

# --------------------------------------------------------------------------------------------------
# What one release really tells about one house of a block, or under a prior mixed over Theta.
#
# Exact, by enumeration of a block's states and convolution of laws: the largest
# |log Pr[output | S_h = 1] / Pr[output | S_h = 0]| over all outputs, in the public's own belief.
# The
# rules `minimal` and `paper` do not bound it; `block` does (docs/proofs/blocks.md). No rule of one
# release bounds it for somebody who is unsure between models.


WORK = 200_000_000  # multiplications a figure may take


class Realised(NamedTuple):
    """The figure of one house at one step: in its block, or mixed over the models (or None)."""

    house: int
    step: int
    block: tuple[int, ...]
    model: int
    loss: float


def world_law(law: Law, end: int, eta: float) -> Floats:
    """The worst law within eta of the model: a share eta of all readings lies at one end."""
    pmf = np.zeros(max(law.top, end) + 1)
    pmf[: law.top + 1] = (1 - eta) * law.pmf
    pmf[end] += eta
    return pmf


def noisy(pmf: Floats, scale: float) -> Floats:
    """The law of the reading plus Laplace noise on 0..top, but for a constant factor.

    By two recursions with positive terms only, so that tails keep their precision.
    """
    from scipy.signal import lfilter  # type: ignore[attr-defined,unused-ignore]

    q = math.exp(-1 / scale)
    forth = lfilter([1.0], [1.0, -q], pmf)
    back = lfilter([1.0], [1.0, -q], pmf[::-1])[::-1]
    return np.asarray(forth + back - pmf)


def log_ratio(absent: Floats, present: Floats, scale: float) -> Floats:
    """log Pr[k | present] / Pr[k | absent] for k = 0..top; beyond the ends it stays as it is."""
    size = max(len(absent), len(present))
    f0, f1 = (np.pad(f, (0, size - len(f))) for f in (absent, present))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(noisy(f1, scale)) - np.log(noisy(f0, scale)))


def block_loss(
    states: Floats, laws: Sequence[tuple[Floats, Floats]], house: int, scale: float
) -> float:
    """The worst loss about one house (a place in the block) when its states have these chances.

    `laws` are (absent, present) of each house; the first house is the highest bit of a state.

    >>> far = [(np.eye(1001)[0], np.eye(1001)[1000])] * 2  # 0 Wh absent, 1000 Wh present
    >>> round(block_loss(np.array([.4999, .0001, .0001, .4999]), far, 0, 2000.0), 4)
    0.9998
    """
    m = len(laws)
    sides: list[Floats | None] = [None, None]
    for state, chance in enumerate(states.tolist()):
        if chance <= 0:
            continue
        bits = [state >> (m - 1 - j) & 1 for j in range(m)]
        load = reduce(np.convolve, [pair[bit] for pair, bit in zip(laws, bits, strict=True)])
        before = sides[bits[house]]
        sides[bits[house]] = chance * load if before is None else _added(before, chance * load)
    absent, present = sides
    if absent is None or present is None:  # certain: nothing to tell
        return 0.0
    found = log_ratio(absent / absent.sum(), present / present.sum(), scale)
    return float(np.abs(found).max())


def _added(one: Floats, other: Floats) -> Floats:
    size = max(len(one), len(other))
    return np.asarray(np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other))))


def worst_of_blocks(
    first: State, models: Sequence[OccupancyModel], t: int, scale: float
) -> list[Realised]:
    """For every house that some model moves with others: the worst figure over the models."""
    found: dict[int, Realised] = {}
    for theta, model in enumerate(models):
        if all(piece.size == 1 for piece in model.chains):
            continue
        belief = next(islice(marginals(model), t - 1, None))
        for piece, law in zip(model.chains, belief.laws, strict=True):
            if piece.size == 1:
                continue
            for houses, states in zip(piece.members, belief.of_blocks(law, piece), strict=True):
                laws = laws_of(first, houses.tolist(), t)
                if _work(laws) > WORK:
                    continue
                for place, house in enumerate(houses.tolist()):
                    loss = block_loss(states, laws, place, scale)
                    known = found.get(house)
                    if known is None or loss > known.loss:
                        found[house] = Realised(house, t, tuple(houses.tolist()), theta, loss)
    return [found[house] for house in sorted(found)]


def laws_of(first: State, houses: Sequence[int], t: int) -> list[tuple[Floats, Floats]]:
    """The worst laws within the policy's eta, (absent, present), of some houses at step t."""
    f, bound, eta = first.scheduler.consumption, first.zone.bound, first.policy.eta
    found = []
    for house in houses:
        kind = int(f.class_of[house])
        absent, present = (f.law(t, kind, occupied=o) for o in (False, True))
        ends = (0, int(bound[house])) if absent.mean <= present.mean else (int(bound[house]), 0)
        found.append((world_law(absent, ends[0], eta), world_law(present, ends[1], eta)))
    return found


def _work(laws: Sequence[tuple[Floats, Floats]]) -> int:
    reach, work = 0, 0
    for _, f1 in laws:
        work += reach * len(f1)
        reach += len(f1)
    return int(work * 2 ** len(laws))


def mixed(
    first: State, models: Sequence[OccupancyModel], house: int, t: int, scale: float
) -> float | None:
    """The loss about a house for somebody who holds every model equally likely.

    Exact for small zones of houses that stand alone; None where that is too much work.
    """
    houses = range(first.zone.n_houses)
    alone = all(piece.size == 1 for model in models for piece in model.chains)
    if not alone or len(models) < 2:
        return None
    laws = laws_of(first, houses, t)
    if _work(laws) // 2 ** len(laws) * len(models) > WORK:
        return None
    sides: list[Floats | None] = [None, None]
    for model in models:
        at_home = _home(model, t)
        others = reduce(
            np.convolve,
            [_blend(laws[j], at_home[j]) for j in houses if j != house],
            np.ones(1),
        )
        for s, chance in enumerate((1 - at_home[house], at_home[house])):
            if chance > 0:
                load, before = chance * np.convolve(others, laws[house][s]), sides[s]
                sides[s] = load if before is None else _added(before, load)
    absent, present = sides
    if absent is None or present is None:
        return 0.0
    return float(np.abs(log_ratio(absent / absent.sum(), present / present.sum(), scale)).max())


def _blend(pair: tuple[Floats, Floats], home: float) -> Floats:
    return _added((1 - home) * pair[0], home * pair[1])


def _home(model: OccupancyModel, t: int) -> Floats:
    """Each house's chance to be at home, for houses that stand alone."""
    belief = next(islice(marginals(model), t - 1, None))
    home = np.empty(model.n_houses)
    for law, piece in zip(belief.laws, model.chains, strict=True):
        home[piece.members[:, 0]] = belief.of_blocks(law, piece)[:, 1]
    return home


DELTA = 1e-6  # at which composition is shown beside the pure sum
_FEW = 8  # houses for which mixtures over Theta are worked out
_STEPS = 96 * 7  # looked at for the 15/15 rule


@dataclass(frozen=True, slots=True, eq=False)
class Houses:
    """One figure a house: (N,) arrays. Houses count from 0 in the order of the zone file.

    `loss` the largest of one release, `total` the sum over all, `leakage` the worst about one
    step from all releases, those of neighbouring epochs of the same terms included, `any_total`
    the sum whatever anyone consumes. `realised` says what one release really tells where houses
    move together, `mixture` where Theta has several models.
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
    realised: tuple[Realised, ...]
    mixture: tuple[tuple[int, float], ...]
    composed: float | None  # epsilon at DELTA of the worst house
    worst: int


def houses(made: Recomputed, leakage: Floats | None) -> Houses:
    """All figures of an epoch; `leakage` (N,) is one of `leakages`."""
    first, losses = made.first, made.losses
    stated = np.array(made.stated)
    if not len(losses):
        losses, stated = np.zeros((1, first.zone.n_houses)), np.zeros(1)
    with np.errstate(divide="ignore"):
        each = np.where(stated > 0, 1 / np.where(stated > 0, stated, 1), 0.0)
    exact = any(entry.scale == 0 for entry in made.used)  # no noise bounds nothing
    any_total = first.zone.bound * (math.inf if exact else each.sum())
    total = np.array([sum_up(column) for column in losses.T.tolist()])
    by = total if leakage is None else leakage
    worst = int(np.argmax(np.where(np.isfinite(by), by, math.inf)))
    realised, mixture = _realised(made)
    return Houses(
        first.zone.id,
        made.epoch.first,
        len(made.used),
        first.zone.bound,
        (losses > 0).sum(axis=0),
        losses.max(axis=0),
        total,
        leakage,
        any_total,
        realised,
        mixture,
        _composed(made, worst),
        worst,
    )


def leakages(recomputed: Sequence[Recomputed], evidence: Sequence[Evidence]) -> list[Floats | None]:
    """For each epoch the worst leakage about one step of every house, or None where it has none.

    Epochs of one zone and the same terms are one chain that goes on through them; others are
    counted on their own.
    """
    found: list[Floats | None] = [None] * len(recomputed)
    for run in _runs(recomputed, evidence):
        first = recomputed[run[0]]
        spans = [(m.epoch.first, _rows(m)) for m in map(recomputed.__getitem__, run)]
        begin, (last, rows) = spans[0][0], spans[-1]
        losses = np.zeros((last + len(rows) - begin, first.first.zone.n_houses))
        for at, own in spans:
            losses[at - begin : at - begin + len(own)] = own
        if first.terms.veiled or not np.isfinite(losses).all():
            continue
        elsewhere, models = first.terms.elsewhere, first.terms.models
        if elsewhere is not None and len(run) > 1:
            models = elsewhere.models(begin, len(losses))
        each = [np.zeros(losses.shape[1]) for _ in run]
        for members, column, total in leakage_by_houses(models, losses):
            for (at, own), worst in zip(spans, each, strict=True):
                here = total[at - begin : at - begin + len(own)].max(axis=0)
                worst[members] = here[column]
        for place, worst in zip(run, each, strict=True):
            found[place] = worst
    return found


def _runs(recomputed: Sequence[Recomputed], evidence: Sequence[Evidence]) -> Iterator[list[int]]:
    """Places of epochs that follow each other under the same terms."""
    used = [epoch for one in evidence for epoch in one.epochs if epoch.entries]
    place_of = {id(epoch): place for place, epoch in enumerate(used)}
    run: list[int] = []
    for place, made in enumerate(recomputed):
        if run:
            before, elsewhere = recomputed[run[-1]], made.terms.elsewhere
            same = elsewhere is not None and elsewhere is before.terms.elsewhere
            next_to = place_of.get(id(before.epoch), -2) + 1 == place_of.get(id(made.epoch))
            later = made.epoch.first >= before.epoch.first + len(_rows(before))
            if not (same and next_to and later):
                yield run
                run = []
        run.append(place)
    if run:
        yield run


def _rows(made: Recomputed) -> Floats:
    return made.losses if len(made.losses) else np.zeros((1, made.first.zone.n_houses))


def _composed(made: Recomputed, house: int) -> float | None:
    """The worst house's epsilon at DELTA: exact events where all steps are there, else sums."""
    if not made.used:
        return 0.0
    steps = [entry.step for entry in made.used]
    if steps == list(range(1, len(steps) + 1)):
        try:
            account = Account(made.first)
            for entry in made.used:
                account = account.add(made.release_of(entry))
            return account.epsilon(house, DELTA)
        except HushgridError:  # scales that the terms do not lead to: known from other checks
            pass
    column = made.losses[:, house]
    return compose(column[column > 0].tolist(), DELTA) if np.isfinite(column).all() else None


def _realised(made: Recomputed) -> tuple[tuple[Realised, ...], tuple[tuple[int, float], ...]]:
    """At the step of least noise: figures of houses that move together, and mixtures over Theta."""
    noisy = [entry for entry in made.used if entry.scale > 0]
    if not noisy or not made.terms.policy.schedule.per_release:
        return (), ()
    entry = min(noisy, key=lambda one: one.scale)
    blocks = worst_of_blocks(made.first, made.terms.models, entry.step, entry.scale)
    mixture = []
    for house in range(min(made.first.zone.n_houses, _FEW)):
        loss = mixed(made.first, made.terms.models, house, entry.step, entry.scale)
        if loss is not None:
            mixture.append((house, loss))
    return tuple(blocks), tuple(mixture)


def fifteen(terms: Terms) -> Check:
    """The 15/15 rule of regulators, on the public model's expectation. It proves nothing."""
    name, n = "fifteen_fifteen", terms.zone.n_houses
    said = " The rule is a custom, not a proof: promises rest on the noise."
    if n < 15:
        return Check(name, "noted", f"{n} customers, fewer than 15.{said}")
    if terms.veiled:
        return Check(
            name, "noted", f"{n} customers; what each is expected to use is private.{said}"
        )
    steps, worst, at, who = min(terms.policy.horizon, _STEPS), 0.0, 1, 0
    for t, belief in enumerate(islice(marginals(terms.models[0]), steps), 1):
        expected = expected_readings(belief, terms.models[0], terms.consumption)
        share = float(expected.max() / expected.sum()) if expected.sum() > 0 else 0.0
        if share > worst:
            worst, at, who = share, t, int(expected.argmax())
    if worst > 0.15:
        text = f"House {who} is expected to make up {worst:.0%} of the load at step {at}.{said}"
        return Check(name, "noted", text, at)
    text = f"{n} customers, none above {worst:.1%} of the expected load.{said}"
    return Check(name, "passed", text)
