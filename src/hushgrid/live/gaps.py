"""Releases that may have been published and lost with the end of a ledger: noted, then booked.

A database that fails over to a standby without its last records would have the same intervals
published again with fresh noise. Where the witness (`ledger.witness`) has those records they are
put back. Where it has not, a record of kind `gap` says which steps may be missing, the zone
publishes its forecast, and `hushgrid resume` books the most that those steps can have cost.
"""

from __future__ import annotations

import logging
import math
import time
from typing import NamedTuple

from hushgrid.errors import LedgerError, LedgerHeldError, MeterError
from hushgrid.live.border import as_begun
from hushgrid.live.course import Course
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.ledger.bodies import Cause, gap, resume
from hushgrid.live.ledger.book import Ledger
from hushgrid.live.ledger.chain import fold
from hushgrid.live.ledger.keys import load, verify
from hushgrid.live.ledger.standing import Standing
from hushgrid.live.ledger.stores import LedgerStore, open_store
from hushgrid.live.ledger.witness import Witness
from hushgrid.live.meters.ports import Source
from hushgrid.live.terms import check_same, first_state
from hushgrid.sums import Spent, sum_up

log = logging.getLogger("hushgrid.curator")

CLOSE = 1e-9  # by which a calibration may exceed its epsilon


def note_loss(service: ZoneService, ledger: Ledger, meters: Source | None, now: float) -> None:
    """Record a gap where releases may have been shown that the ledger lacks.

    Args:
        service: The zone.
        ledger: Its ledger, open for writing; `ledger.found` says how it was found.
        meters: The zone's meter store, open; its last closed interval is the second witness.
            None: it is not asked.
        now: [UTC epoch s]
    """
    standing, found = ledger.standing, ledger.found
    if standing.gap is not None or standing.epoch is None:
        return
    known = max([standing.last_t, standing.epoch.first - 1, *(one.last for one in standing.gaps)])
    due = math.floor((now - service.grace) / service.seconds) - 1  # the last step that can be out
    why: Cause
    if found.forked:
        (first, last), why = found.forked, "fork"
    elif found.lost:
        first, last, why = known + 1, max(known + 1, due, found.last_t), "witness"
    elif found.own or found.moved is False:
        return
    elif found.moved and due > known:
        first, last, why = known + 1, due, "failover"
    elif meters is not None and (closed := _closed(service, standing, meters)) > known:
        first, last, why = known + 1, max(closed, due), "meters"
    else:
        return
    ledger.append("gap", gap(max(first, standing.epoch.first), last, why))
    told = {"zone": service.id, "first": first, "last": last, "why": why}
    log.error("releases may be lost; run hushgrid resume", extra=told)


def _closed(service: ZoneService, standing: Standing, meters: Source) -> int:
    """The last step whose interval was closed to be published; 0 where none was.

    Before its first release an epoch closes the intervals that passed without readings.
    """
    start = meters.last_closed(service.id)
    if start is None:
        return 0
    if not standing.current:
        try:
            interval = meters.get(service.id, start)
        except MeterError:  # deleted, which is done after a release
            return start // service.seconds
        if interval.missing == interval.houses:
            return 0
    return start // service.seconds


def largest_loss(service: ZoneService, standing: Standing, spent: Spent) -> tuple[float, float]:
    """The most that the steps of the open gap can have cost any house: (epsilon, delta).

    Each step its epsilon of the schedule, a window policy its budget for each window begun; never
    more than the zone's budget had left, since nothing is published from readings beyond it. With
    Gaussian noise no release has an epsilon of its own: infinite, at the policy's delta.

    Args:
        service: The zone, with the terms of its present epoch.
        standing: Its ledger, with the gap open.
        spent: What is spent without the gap.
    """
    open_, epoch, policy = standing.gap, standing.epoch, service.policy
    if open_ is None or epoch is None:
        raise LedgerError(f"zone {service.id!r} has no gap; there is nothing to book.")
    steps = range(epoch.step(open_.first), min(epoch.step(open_.last), policy.horizon) + 1)
    if not steps:
        return 0.0, 0.0
    if policy.gaussian is not None:
        return math.inf, policy.delta
    scheduler = first_state(service, epoch.digest).scheduler
    if policy.window is not None:
        most = max(scheduler.most(t, policy.epsilon) for t in steps)
        lost = most * math.ceil(len(steps) / policy.window.steps)
    else:
        lost = sum_up(scheduler.most(t) for t in steps)
    lost *= 1 + CLOSE
    return (lost if service.budget is None else min(lost, spent.left(service.budget))), 0.0


def book(service: ZoneService, ledger: Ledger, spent: Spent) -> None:
    """Book the open gap in full; releases may come from readings again."""
    standing = ledger.standing
    epsilon, delta = largest_loss(service, standing, spent)
    if standing.gap is None:
        return
    first, last = standing.gap.first, standing.gap.last
    ledger.append("resume", resume(first, last, epsilon=epsilon, delta=delta))
    ledger.resumed()
    told = {"zone": service.id, "first": first, "last": last, "epsilon": epsilon}
    log.warning("gap booked", extra=told)


def held_back(service: ZoneService, standing: Standing, t: int) -> bool:
    """Whether step t may take nothing from readings because of what may be lost.

    While a gap is open; and under a window policy as long as a window reaches into a gap, in which
    all of its budget may have been spent.
    """
    if standing.gap is not None:
        return True
    window = service.policy.window
    if window is None:
        return False
    for one in standing.booked:
        # no epoch begins within a gap: the last one begun before it is the gap's own
        seconds = next(e.seconds for e in reversed(standing.epochs) if e.first <= one.first)
        silent = t * service.seconds - (one.last + 1) * seconds
        if silent < (window.steps - 1) * max(seconds, service.seconds):
            return True
    return False


class Resumed(NamedTuple):
    """What became of a zone: `state` is `resumed`, `asked` (the service does it) or `no gap`."""

    zone: str
    state: str
    first: int | None = None
    last: int | None = None
    epsilon: float | None = None
    delta: float | None = None


def resume_zones(
    deployment: Deployment, zone: str | None, now: float, patience: float = 30.0
) -> list[Resumed]:
    """Book the gaps of a service's zones, or of one of them.

    Where the service runs on this machine it is asked to do so, and waited for [s].
    """
    deployment = as_begun(deployment)
    chosen = [one for one in deployment.zones if zone in (None, one.id)]
    if not chosen:
        names = ", ".join(one.id for one in deployment.zones)
        raise LedgerError(f"zone is {zone!r}; give one of the service file: {names}.")
    with open_store(deployment.ledger) as store, deployment.witnesses() as witnesses:
        return [
            _resume_zone(deployment, one, store, witnesses.of(one.id), now, patience)
            for one in chosen
        ]


def _resume_zone(
    deployment: Deployment,
    service: ZoneService,
    store: LedgerStore,
    witness: Witness,
    now: float,
    patience: float,
) -> Resumed:
    standing = _standing(store, service)
    if standing is None:
        return Resumed(service.id, "no gap")
    key, booked = load(deployment.key), len(standing.booked)
    try:
        with Ledger.open(
            store, service.id, key, deployment.mode, now, witness=witness, forked=True
        ) as ledger:
            note_loss(service, ledger, None, now)
            if ledger.standing.gap is None:
                return Resumed(service.id, "no gap")
            check_same(service, ledger.standing)
            course = Course(service)
            course.follow(ledger.standing)
            book(service, ledger, course.spent)
            return _told(service, ledger.standing)
    except LedgerHeldError:
        if standing.gap is None:
            return Resumed(service.id, "no gap")
    if not witness.ask():
        raise LedgerError(
            f"zone {service.id!r} has a writer and the service cannot be asked from here; stop it,"
            " run hushgrid resume, and start it again."
        )
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(min(0.2, patience))
        standing = _standing(store, service)
        if standing is not None and len(standing.booked) > booked:
            return _told(service, standing)
    return Resumed(service.id, "asked")


def _told(service: ZoneService, standing: Standing) -> Resumed:
    last = standing.booked[-1]
    epsilon = last.epsilon if math.isfinite(last.epsilon) else None
    return Resumed(service.id, "resumed", last.first, last.last, epsilon, last.delta)


def _standing(store: LedgerStore, service: ZoneService) -> Standing | None:
    records = list(store.records(service.id))
    return fold(records, verify) if records else None
