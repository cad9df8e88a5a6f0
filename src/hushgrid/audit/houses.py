"""What the releases of an epoch have cost every house, and whom the zone consists of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hushgrid.accounting.compose import Account, compose
from hushgrid.accounting.temporal import leakage_by_houses
from hushgrid.arrays import Floats, Int32s, Ints
from hushgrid.audit.evidence import Evidence
from hushgrid.audit.findings import Check
from hushgrid.audit.ledger import Recomputed
from hushgrid.audit.realised import Realised, mixed, worst_of_blocks
from hushgrid.audit.terms import Terms
from hushgrid.belief import expected_readings, marginals
from hushgrid.errors import HushgridError
from hushgrid.sums import sum_up

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
