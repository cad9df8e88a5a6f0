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

from hushgrid._numbers import sum_up
from hushgrid.errors import LedgerError, LedgerHeldError, MeterError, MeterRetryError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.service.border import as_begun, together
from hushgrid.service.epoch import check_same, first_state
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import fold
from hushgrid.service.ledger.ports import LedgerStore
from hushgrid.service.ledger.records import Cause, GapRecord, LedgerState, ResumeRecord
from hushgrid.service.ledger.witness import Witness, open_witnesses
from hushgrid.service.ledger.writer import Ledger, load, verify_signature
from hushgrid.service.meters import open_meters
from hushgrid.service.meters.ports import IntervalSource

log = logging.getLogger("hushgrid.curator")

CLOSE = 1e-9  # by which a calibration may exceed its epsilon


def note_loss(
    service: ZoneService, ledger: Ledger, meters: IntervalSource | None, now: float
) -> None:
    """Record a gap where releases may have been shown that the ledger lacks.

    Args:
        service: The zone.
        ledger: Its ledger, open for writing; `ledger.found` says how it was found.
        meters: The zone's meter store, open; its last closed interval is the second witness.
            None: it is not asked.
        now: [UTC epoch s]
    """
    standing, found = ledger.standing, ledger.found
    epoch, before = standing.epoch, standing.gap
    if epoch is None:
        return
    known = max([standing.last_t, epoch.first - 1, *(one.last for one in standing.gaps)])
    due = math.floor(now / epoch.seconds) - 1  # the last step that can be out, at no grace
    closed = 0 if meters is None else _closed(service, standing, meters)
    why: Cause
    if found.forked:
        (first, last), why = found.forked, "fork"
        if last < epoch.first:
            raise LedgerError(
                f"the witness of zone {service.id!r} has releases of steps {first} to {last} that"
                " the ledger lacks, before its present epoch, where they cannot be booked; put the"
                " right ledger back, or go on as docs/operations.md says of a ledger that is lost."
            )
        if found.lost or found.blind:  # the end of the other history is not known
            _check_clock(service, standing, now)
            last = max(last, due)
    elif found.lost:
        _check_clock(service, standing, now)
        least = known + (before is None)  # an open gap may be all of it
        first, last, why = known + 1, max(least, due, closed, found.last_t), "witness"
    elif found.own:
        return
    elif found.moved:
        _check_clock(service, standing, now)
        first, last, why = known + 1, max(due, closed), "failover"
    elif closed > known and (found.blind or found.moved is None):
        first, last, why = known + 1, max(closed, due), "meters"
    else:
        return
    if before is not None:  # extended, so that all of it is booked together
        first, last = min(first, before.first), max(last, before.last)
        if (first, last) == (before.first, before.last):
            return
    if last < first:
        return
    ledger.write(GapRecord(max(first, epoch.first), last, why))
    told = {"zone": service.id, "first": first, "last": last, "why": why}
    log.error("releases may be lost; run hushgrid resume", extra=told)


def _check_clock(service: ZoneService, standing: LedgerState, now: float) -> None:
    """What may be lost is judged by the time: not by a clock that is behind the ledger."""
    if standing.releases and now < standing.releases[-1].published_at:
        raise LedgerError(
            f"the clock is behind the last release of zone {service.id!r}, and releases after it"
            " may be lost; set the clock of this machine."
        )


def meters_of(service: ZoneService, meters: IntervalSource) -> IntervalSource | None:
    """The meter store with the zone open; None where it holds the zone under other terms."""
    try:
        meters.open_zone(service.id, service.meters, service.seconds)
    except MeterRetryError:
        raise
    except MeterError:
        return None
    return meters


def _closed(service: ZoneService, standing: LedgerState, meters: IntervalSource) -> int:
    """The last step whose interval was closed to be published; 0 where none was.

    An epoch without a release on record has closed the intervals that passed before it began.
    They have no readings; where one of its closed intervals has, or had, all of them count.
    """
    start, epoch = meters.last_closed(service.id), standing.epoch
    if start is None or epoch is None:
        return 0
    last = start // epoch.seconds
    if standing.current:
        return last
    for t in range(last, epoch.first - 1, -1):
        try:
            interval = meters.get(service.id, t * epoch.seconds)
        except MeterError:  # deleted, which is done after a release
            return last
        if interval.missing < interval.houses:
            return last
    return 0


def largest_loss(
    service: ZoneService, standing: LedgerState, lost_epoch: ZoneService | None = None
) -> tuple[float, float]:
    """The most that the steps of the open gap can have cost any house: (epsilon, delta).

    Each step its epsilon of the schedule, a window policy its budget for each window begun. A
    budget does not bound it: the present one need not be the one of then. With Gaussian noise no
    release has an epsilon of its own: infinite, at the policy's delta.

    Args:
        service: The zone, with the terms of its present epoch.
        standing: Its ledger, with the gap open.
        lost_epoch: The zone with terms whose epoch may have begun within the gap. From its
            `begins` on the larger of both counts.
    """
    open_, epoch = standing.gap, standing.epoch
    if open_ is None or epoch is None:
        raise LedgerError(f"zone {service.id!r} has no gap; there is nothing to book.")
    start, end = open_.first * epoch.seconds, (open_.last + 1) * epoch.seconds
    begins = epoch.first * epoch.seconds
    if lost_epoch is None or lost_epoch.begins >= end:
        return _most(service, begins, start, end, epoch.digest)
    border = max(start, lost_epoch.begins // epoch.seconds * epoch.seconds)
    earlier = _most(service, begins, start, border, epoch.digest)
    later = _most(service, begins, border, end, epoch.digest)
    other = _most(lost_epoch, lost_epoch.begins, border, end, None)
    both = zip(later, other, strict=True)
    epsilon, delta = (max(pair) for pair in both)
    return sum_up([earlier[0], epsilon]), min(earlier[1] + delta, 1.0)


def _most(
    service: ZoneService, begins: int, start: int, end: int, digest: str | None
) -> tuple[float, float]:
    """The most that an epoch from `begins` on can have cost from `start` to `end` [epoch s]."""
    policy, seconds = service.policy, service.seconds
    first, after = max((start - begins) // seconds, 0), -((begins - end) // seconds)
    steps = range(first + 1, min(after, policy.horizon) + 1)
    if not steps or end <= start:
        return 0.0, 0.0
    most = first_state(service, digest).scheduler.most
    lost = policy.schedule.lost_by([most(t) for t in steps])
    return lost * (1 + CLOSE), policy.schedule.delta


def book(service: ZoneService, ledger: Ledger, lost_epoch: ZoneService | None = None) -> None:
    """Book the open gap in full; releases may come from readings again.

    See `largest_loss` for the arguments.
    """
    standing = ledger.standing
    epsilon, delta = largest_loss(service, standing, lost_epoch)
    if standing.gap is None:
        return
    first, last = standing.gap.first, standing.gap.last
    n = None if lost_epoch is None else together(lost_epoch)
    ledger.write(ResumeRecord(first, last, float(epsilon), float(delta), together=n))
    ledger.resumed()
    told = {"zone": service.id, "first": first, "last": last, "epsilon": epsilon}
    log.warning("gap booked", extra=told)


def held_back(service: ZoneService, standing: LedgerState, t: int) -> bool:
    """Whether step t may take nothing from readings because of what may be lost.

    While a gap is open; and under a window policy as long as a window reaches into a gap, in which
    all of its budget may have been spent.
    """
    if standing.gap is not None:
        return True
    if not service.policy.schedule.adaptive:
        return False
    for one in standing.booked:
        # no epoch begins within a gap: the last one begun before it is the gap's own
        seconds = next(e.seconds for e in reversed(standing.epochs) if e.first <= one.first)
        silent = t * service.seconds - (one.last + 1) * seconds
        if silent < (service.policy.schedule.shared_by - 1) * max(seconds, service.seconds):
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
    deployment: Deployment,
    zone: str | None,
    now: float,
    patience: float = 30.0,
    lost_epoch: Deployment | None = None,
) -> list[Resumed]:
    """Book the gaps of a service's zones, or of one of them.

    Where the service runs on this machine it is asked to do so, and waited for [s].

    Args:
        deployment: The service, with the terms of the ledger's last epoch.
        zone: One zone; None: all of them.
        now: [UTC epoch s]
        patience: How long to wait for a running service [s].
        lost_epoch: The service with terms whose epoch may have begun and been lost.
    """
    deployment = as_begun(deployment)
    chosen = [one for one in deployment.zones if zone in (None, one.id)]
    if not chosen:
        names = ", ".join(one.id for one in deployment.zones)
        raise LedgerError(f"zone is {zone!r}; give one of the service file: {names}.")
    others = {} if lost_epoch is None else {one.id: one for one in lost_epoch.zones}
    with open_store(deployment.ledger) as store, open_witnesses(deployment) as witnesses:
        return [
            _resume_zone(
                deployment, one, store, witnesses.of(one.id), now, patience, others.get(one.id)
            )
            for one in chosen
        ]


def _resume_zone(
    deployment: Deployment,
    service: ZoneService,
    store: LedgerStore,
    witness: Witness,
    now: float,
    patience: float,
    other: ZoneService | None,
) -> Resumed:
    standing = _standing(store, service)
    if standing is None and not witness.tails():
        return Resumed(service.id, "no gap")
    key, booked = load(deployment.key), 0 if standing is None else len(standing.booked)
    try:
        with Ledger.open(
            store, service.id, key, deployment.mode, now, witness=witness, forked=True
        ) as ledger:
            look_for_loss(deployment, service, ledger, now, other)
            if ledger.standing.gap is None:
                return Resumed(service.id, "no gap")
            _check_terms(service, ledger.standing)
            book(service, ledger, other)
            ledger.settle()
            return _told(service, ledger.standing)
    except LedgerHeldError:
        if standing is None or standing.gap is None:
            return Resumed(service.id, "no gap")
        if other is not None:
            raise LedgerError(
                f"zone {service.id!r} has a writer, which knows no lost epoch; stop the service,"
                " and run the same command again."
            ) from None
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


def look_for_loss(
    deployment: Deployment,
    service: ZoneService,
    ledger: Ledger,
    now: float,
    other: ZoneService | None = None,
) -> None:
    """`note_loss` by a command: with the meter store, while the service does not run.

    Two histories say themselves which steps are lost; the meter store is not opened then. `other`:
    terms that the meter store may have instead of the zone's.
    """
    if ledger.found.forked:
        note_loss(service, ledger, None, now)
        return
    with open_meters(deployment.meters) as meters:
        found = meters_of(service, meters) or (meters_of(other, meters) if other else None)
        if found is None:
            raise LedgerError(
                f"the meter store holds zone {service.id!r} under other terms; give the service"
                " file of the epoch that the ledger is in, and to hushgrid resume the file of an"
                " epoch that may be lost as --lost-epoch."
            )
        note_loss(service, ledger, found, now)


def _check_terms(service: ZoneService, standing: LedgerState) -> None:
    try:
        check_same(service, standing)
    except LedgerError:
        raise LedgerError(
            f"the terms of zone {service.id!r} are not those of the last epoch in its ledger, and"
            " releases may be lost; run hushgrid resume with the service file of that epoch, and"
            " --lost-epoch with this one if its epoch may have begun."
        ) from None


def _told(service: ZoneService, standing: LedgerState) -> Resumed:
    last = standing.booked[-1]
    epsilon = last.epsilon if math.isfinite(last.epsilon) else None
    return Resumed(service.id, "resumed", last.first, last.last, epsilon, last.delta)


def _standing(store: LedgerStore, service: ZoneService) -> LedgerState | None:
    records = list(store.records(service.id))
    return fold(records, verify_signature) if records else None
