"""Releases that may have been published and lost with the end of a ledger: noted, then booked.

A database that fails over to a standby without its last records would have the same intervals
published again with fresh noise. Where the witness (`ledger.witness`) has those records they are
put back. Where it has not, a record of kind `gap` says which steps may be missing, the zone
publishes its forecast, and `hushgrid resume` books the most that those steps can have cost.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hushgrid._numbers import sum_up
from hushgrid.curator.account_records import from_rows, has_other_history, to_rows
from hushgrid.curator.changes import as_begun
from hushgrid.curator.terms import (
    charges_due,
    digest_of,
    first_of,
    first_state,
    interval_promise,
)
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import LedgerError, LedgerHeldError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.weeks import in_week
from hushgrid.mechanism.scheduler import Scheduler
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import fold
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.entries import Cause, GapRecord, ResumeRecord
from hushgrid.stores.ledger.releases import until
from hushgrid.stores.ledger.rules import AccountRows
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.witness import Witness, open_witnesses
from hushgrid.stores.ledger.writer import Ledger, load, verify_signature
from hushgrid.stores.meters import MeterStore, open_meters
from hushgrid.stores.meters.tables import file_of

log = logging.getLogger("hushgrid.curator")

MOST = sys.float_info.max  # a cost without a bound, which JSON has no number for
CLOSE = 1e-9  # by which a calibration may exceed its epsilon
_NAME_IT = (
    " Stop the service, and run hushgrid resume with --lost-terms and the service file of those"
    " terms, once for each; with the same file where there were none."
)


def note_loss(
    service: ZoneService,
    ledger: Ledger,
    meters: MeterStore | None,
    now: float,
    *,
    has_lost_terms: bool = False,
) -> None:
    """Record a gap unless it is proven that the ledger lacks nothing that was published.

    Every opener calls it before it writes anything else: the service, one of several curators, a
    batch, a transfer for both zones, `hushgrid resume`, a change of terms. The proof is
    `OpenedLedger.complete`. Without it a gap is recorded where something shows a loss, from the
    last record on up to now, and never less than what the witness or the meter store show.

    Args:
        service: The zone.
        ledger: Its ledger, open for writing; `ledger.opening` says how it was found.
        meters: The meter store, which closes each interval before it is published: the second
            witness. None: there is none. On the timeline of the ledger's server it shows nothing
            that the ledger does not: an interval without a release was closed by a process that
            stopped before it published. Not so where the ledger came there from another place.
        now: [UTC s]
        has_lost_terms: The operator has named the terms that may be lost.

    Raises:
        LedgerError: The clock is behind the last release, so that the gap would be too short; or
            terms are known to be lost, and the operator has not named them.
    """
    standing, opening = ledger.standing, ledger.opening
    terms, before = standing.terms, standing.gap
    if terms is None or opening.complete:
        return
    if opening.other_terms and not has_lost_terms:
        raise LedgerError(
            f"records of other terms of zone {service.id!r} than the ledger's last ones are lost,"
            f" and what followed them may be too.{_NAME_IT}"
        )
    closed = None if meters is None else meters.last_closed(service.id)
    timeline = None if meters is None or opening.since else meters.timeline()
    shares_server = timeline is not None and timeline == opening.timeline
    # by time: terms that were set aside number later steps than those that are lost
    reach = reach_of(standing)
    beyond = closed is not None and _is_beyond(closed, standing)
    causes: dict[Cause, bool] = {
        "fork": opening.forked is not None,
        "witness": opening.lost,
        "failover": bool(opening.moved)
        or (opening.since > reach and (opening.moved is None or not standing.reach)),
        "meters": beyond and (opening.moved is None or (opening.blind and not shares_server)),
    }
    cause = next((name for name, holds in causes.items() if holds), None)
    if cause is None:
        return
    is_behind = bool(standing.releases) and now < standing.releases[-1].published_at
    if is_behind and cause != "meters":  # which is judged by what was closed, not by the time
        raise LedgerError(
            f"the clock is behind the last release of zone {service.id!r}, and releases after it"
            " may be lost; set the clock of this machine."
        )
    seconds, first = terms.seconds, standing.reach_step + 1
    last = max(opening.last_t, (closed or 0) // seconds if beyond else 0)
    due = math.floor(now / seconds) - 1  # the last step that can be out, at no grace
    if opening.forked is not None:
        first, last = min(first, opening.forked[0]), max(last, opening.forked[1])
    if opening.forked is None or opening.lost or opening.moved or beyond:
        last = max(last, due)
    least, heads = opening.least, opening.heads
    if before is not None:  # extended, so that all of it is booked together
        first, last = min(first, before.first), max(last, before.last)
        is_repeat, least_before = heads in (before.heads or ""), before.least or 0.0
        least = least_before if is_repeat else sum_up([least, least_before])
        heads = (before.heads or "") + ("" if is_repeat else heads)
        if (first, last) == (before.first, before.last):
            if is_repeat:
                return
            last += 1
    # steps before the terms have no place in a gap of them: `largest_loss` counts them
    first = max(first, terms.first)
    if last < first and cause == "failover" and (due + 1) * seconds <= reach:
        return
    last = max(first, last)
    ledger.write(GapRecord(first, last, cause, min(least, MOST) or None, heads or None))
    fields = {"zone": service.id, "first": first, "last": last, "why": cause}
    log.error("releases may be lost; run hushgrid resume", extra=fields)


def reach_of(standing: LedgerState) -> int:
    """The end of all releases and gaps on record; without one where the first terms begin [s].

    Args:
        standing: A ledger with terms.

    Returns:
        [UTC s]
    """
    return standing.reach or min(terms.begins for terms in standing.terms_records)


def _is_beyond(closed: int, standing: LedgerState) -> bool:
    """Whether an interval that the meter store closed ends after all that is on record.

    Args:
        closed: Its start [UTC s].
        standing: A ledger with terms.

    Returns:
        False also for the interval that the roster or step length of the last terms closed.
    """
    with_roster = {
        new.begins - new.seconds
        for old, new in pairwise(standing.terms_records[-2:])
        if (old.seconds, old.roster) != (new.seconds, new.roster)
    }
    return closed >= reach_of(standing) and closed not in with_roster


def largest_loss(
    service: ZoneService, standing: LedgerState, lost_terms: Sequence[ZoneService] = ()
) -> float:
    """The most that the open gap can have cost any house.

    One sum, whatever was lost: what the lost records that are known state, and the most that the
    present terms and each lost ones can have cost from the gap's first step to its end. A gap that
    begins with its terms counts from the `begins` of each of them.

    Args:
        service: The zone, with its present terms.
        standing: Its ledger, with the gap open.
        lost_terms: The zone with terms that may have begun and been lost; the present ones say that
            there were none.

    Returns:
        Epsilon; infinite where no bound is known.

    Raises:
        LedgerError: There is no gap, or other terms may be lost that began earlier.
    """
    gap, terms = standing.gap, standing.terms
    if gap is None or terms is None:
        raise LedgerError(f"zone {service.id!r} has no gap; there is nothing to book.")
    _check_lost_terms(service, standing, lost_terms)
    since = gap.first * terms.seconds if gap.first > terms.first else 0
    end = (gap.last + 1) * terms.seconds
    losses = [_most(zone, since, end) for zone in _zones(service, lost_terms)]
    least = math.inf if gap.least == MOST else gap.least or 0.0
    return sum_up([least, *losses])


def _check_lost_terms(
    service: ZoneService, standing: LedgerState, lost_terms: Sequence[ZoneService]
) -> None:
    """Refuse to book where terms may be lost that the file does not lead to.

    Those that began before the present ones.
    """
    gap, terms = standing.gap, standing.terms
    if lost_terms or gap is None or terms is None or gap.first > terms.first:
        return
    releases = standing.releases[: until(standing.releases, gap.seq - 1)]
    gaps = tuple(record for record in standing.gaps if record.seq < gap.seq)
    if replace(standing, releases=releases, gaps=gaps).reach < terms.begins:
        raise LedgerError(
            f"of the last terms of zone {service.id!r} nothing is on record, and terms that took"
            f" their place and began earlier may be lost.{_NAME_IT}"
        )


def _zones(service: ZoneService, lost_terms: Sequence[ZoneService]) -> list[ZoneService]:
    """The zone with its present terms, then with each of the lost ones that are not these."""
    present = (digest_of(service), service.since)
    return [
        service,
        *(terms for terms in lost_terms if (digest_of(terms), terms.since) != present),
    ]


def _most(service: ZoneService, start: int, end: int) -> float:
    """The most that these terms can have cost from `start` to `end` [UTC s], week by week.

    Each step its epsilon of the schedule; a block that it touches all its own.
    """
    lost, seconds = list[float](), service.seconds
    week = in_week(service, max(start // seconds, first_of(service)))
    while week.begins < end:
        policy, begins = week.policy, week.begins
        first, after = max((start - begins) // seconds, 0), -((begins - end) // seconds)
        if steps := range(first + 1, min(after, policy.horizon) + 1):
            scheduler = first_state(week).scheduler
            by_block = {policy.schedule.span(t): t for t in steps}  # a block loses all of it once
            lost += [_most_lost(week, scheduler, t) for t in by_block.values()]
        week = in_week(week, week.ends // seconds)
    return sum_up(lost) * (1 + CLOSE)


def _most_lost(service: ZoneService, scheduler: Scheduler, t: int) -> float:
    """The most that a release of a step loses about any house.

    Args:
        service: The zone over a week.
        scheduler: The week's scheduler.
        t: The week's step, from 1.

    Returns:
        The loss whatever anyone consumes; infinite where noise below eta = 1 follows demand that
        reacts to rates. Under an interval promise at least the policy's epsilon, for which the
        noise is planned.
    """
    if not scheduler.ahead:
        return math.inf
    least = 0.0 if interval_promise(service) is None else service.policy.epsilon
    return max(scheduler.most(t), scheduler.at(t).epsilon_any, least)


def book(service: ZoneService, ledger: Ledger, lost_terms: Sequence[ZoneService] = ()) -> None:
    """Book the open gap in full; releases may come from readings again.

    Under an interval promise the account goes on: every block that may have been opened is booked
    as planned. Where releases of other terms, or two histories, may be lost, nothing is believed of
    the past any more, and the public forecast is published until the account admits a block.

    Args:
        service: The zone, with its present terms.
        ledger: Its ledger, open for writing.
        lost_terms: As for `largest_loss`.
    """
    standing = ledger.standing
    epsilon = largest_loss(service, standing, lost_terms)
    if standing.gap is None or standing.terms is None:
        return
    first, last = standing.gap.first, standing.gap.last
    zones = _zones(service, lost_terms)
    for zone in zones:
        for charge in charges_due(zone, ledger.standing):
            ledger.write(charge)
    # more than its own schedule
    unknown = len(zones) > 1 or has_other_history(standing, standing.gap)
    rows, until = _account_after(zones, standing, unknown)
    account, *other_accounts = map(ZoneAccount, zones)
    windows = account.windows_after_loss(
        standing, first, last, other_accounts=other_accounts, anew=unknown
    )
    if windows is not None and until is None:
        until = last
    ledger.write(ResumeRecord(first, last, float(epsilon), 0, rows, until, windows))
    ledger.resumed()
    fields = {"zone": service.id, "first": first, "last": last, "epsilon": epsilon}
    log.warning("gap booked", extra=fields)


def _account_after(
    zones: Sequence[ZoneService], standing: LedgerState, unknown: bool
) -> tuple[AccountRows | None, int | None]:
    """The account after the open gap and its step, for every zone that promised an interval.

    The first zone is the present one, by whose steps time is counted.
    """
    seconds, gap = zones[0].seconds, standing.gap
    assert gap is not None
    start, stop = gap.first * seconds, (gap.last + 1) * seconds
    rows, ends = list[tuple[float, ...]](), [stop]
    with_promise = [
        service
        for service in zones
        if interval_promise(service) is not None and service.since < stop
    ]
    for service in with_promise:
        first, last = start // service.seconds, -(-stop // service.seconds) - 1
        booked, end = ZoneAccount(service).after_loss(standing, first, last, unknown=unknown)
        rows += booked
        ends.append((end + 1) * service.seconds)
    if not with_promise:
        return None, None
    until = -(-max(ends) // seconds) - 1
    return tuple(rows) if len(with_promise) == 1 else to_rows(
        (from_rows(tuple(rows)).merged(),), (max(row[0] for row in rows),)
    ), until


class Resumed(NamedTuple):
    """What became of a zone.

    Attributes:
        zone: The zone.
        state: `resumed`, `confirmed` (nothing is missing; the running service takes its clock for
            right), `asked` (the running service does it) or `no gap`.
        first: First step of the gap.
        last: Last step of the gap.
        epsilon: What is booked; None: it has no bound.
    """

    zone: str
    state: str
    first: int | None = None
    last: int | None = None
    epsilon: float | None = None


def resume_zones(
    deployment: Deployment,
    zone: str | None,
    now: float,
    patience: float = 30.0,
    lost_terms: Sequence[Deployment] = (),
) -> list[Resumed]:
    """Book the gaps of a service's zones, or of one of them.

    Where the service runs on this machine it is asked to do so, and waited for [s].

    Args:
        deployment: The service, with the terms of the ledger.
        zone: One zone; None: all of them.
        now: [UTC s]
        patience: How long to wait for a running service [s].
        lost_terms: The service with terms that may have begun and been lost; `deployment` itself:
            there were none.

    Returns:
        What became of each zone.

    Raises:
        LedgerError: The zone is unknown, its terms are not those of the ledger, or the service
            cannot be asked.
    """
    file, deployment = deployment, as_begun(deployment)
    zones = [service for service in deployment.zones if zone in (None, service.id)]
    if not zones:
        names = ", ".join(service.id for service in deployment.zones)
        raise LedgerError(f"zone is {zone!r}; give one of the service file: {names}.")
    # the same file says that there were no other terms: it is read as the present one
    lost = [deployment if terms_file is file else terms_file for terms_file in lost_terms]
    lost_zones = [service for terms_file in lost for service in terms_file.zones]
    with open_store(deployment.ledger) as store, open_witnesses(deployment) as witnesses:
        return [
            _resume_zone(
                deployment,
                zone,
                store,
                witnesses.of(zone.id),
                now,
                patience,
                [service for service in lost_zones if service.id == zone.id],
            )
            for zone in zones
        ]


def _resume_zone(
    deployment: Deployment,
    service: ZoneService,
    store: LedgerStore,
    witness: Witness,
    now: float,
    patience: float,
    lost_terms: Sequence[ZoneService],
) -> Resumed:
    standing = _standing(store, service.id)
    if standing is None and not witness.tails():
        return Resumed(service.id, "no gap")
    key = load(deployment.key)
    try:
        with Ledger.open(
            store, service.id, key, deployment.mode, now, witness=witness, forked=True
        ) as ledger:
            look_for_loss(deployment, service, ledger, now, has_lost_terms=bool(lost_terms))
            if ledger.standing.terms is None and ledger.opening.moved:
                raise LedgerError(
                    f"the ledger of zone {service.id!r} has no terms and is on another server than"
                    " before; start the service, which notes what may be lost, then run hushgrid"
                    " resume."
                )
            if ledger.standing.gap is None:
                ledger.settle()
                return Resumed(service.id, "no gap")
            terms = ledger.standing.terms
            if terms is None or digest_of(service) != terms.digest:
                raise LedgerError(
                    f"the terms of zone {service.id!r} are not those of its ledger, and releases"
                    " may be lost; run hushgrid resume with the service file of those terms, and"
                    " --lost-terms with this one if its terms may have begun."
                )
            _reach_out(ledger, lost_terms)
            book(service, ledger, lost_terms)
            ledger.settle()
            return _outcome(ledger.standing)
    except LedgerHeldError:
        if standing is None:
            return Resumed(service.id, "no gap")
        if standing.gap is not None and lost_terms:
            raise LedgerError(
                f"zone {service.id!r} has a writer, which knows no lost terms; stop the service,"
                " and run the same command again."
            ) from None
        _check_lost_terms(service, standing, lost_terms)
    return _ask(store, standing, witness, patience)


def _ask(store: LedgerStore, standing: LedgerState, witness: Witness, patience: float) -> Resumed:
    """Have the running service book the gap or, without one, take its clock for right."""
    head = standing.head.digest if standing.gap is None else standing.gap.head
    deadline = time.monotonic() + patience
    witness.ask(head)
    while witness.is_asked(head) and time.monotonic() < deadline:
        time.sleep(min(0.2, patience))
    after = _standing(store, standing.zone)
    if after is not None and len(after.booked) > len(standing.booked):
        return _outcome(after)
    is_confirmed = standing.gap is None and not witness.is_asked(head)
    return Resumed(standing.zone, "confirmed" if is_confirmed else "asked")


def _reach_out(ledger: Ledger, lost_terms: Sequence[ZoneService]) -> None:
    """Extend an open gap by one step where the steps of lost terms were shorter.

    The gap ends with the last whole step before it was noted; shorter steps after that may have
    been published too.
    """
    gap, terms = ledger.standing.gap, ledger.standing.terms
    if gap and terms and any(terms_zone.seconds < terms.seconds for terms_zone in lost_terms):
        ledger.write(replace(gap, last=gap.last + 1))


def look_for_loss(
    deployment: Deployment,
    service: ZoneService,
    ledger: Ledger,
    now: float,
    *,
    has_lost_terms: bool = False,
) -> None:
    """Run `note_loss` for a command, while the service does not run.

    Args:
        deployment: The service, whose meter store is opened for it.
        service: The zone.
        ledger: Its ledger, open for writing.
        now: [UTC s]
        has_lost_terms: As for `note_loss`.
    """
    path = file_of(deployment.meters)
    has_meters = path is None or path.exists() or Path(deployment.meters).is_dir()
    with open_meters(deployment.meters) if has_meters else nullcontext() as meters:
        note_loss(service, ledger, meters, now, has_lost_terms=has_lost_terms)


def _outcome(standing: LedgerState) -> Resumed:
    last = standing.booked[-1]
    epsilon = last.epsilon if math.isfinite(last.epsilon) else None
    return Resumed(standing.zone, "resumed", last.first, last.last, epsilon)


def _standing(store: LedgerStore, zone: str) -> LedgerState | None:
    records = list(store.records(zone))
    return fold(records, verify_signature) if records else None
