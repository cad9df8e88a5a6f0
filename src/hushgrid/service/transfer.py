"""What a house has spent in a zone, and its move to another zone of the service.

A move is two records, each durable before the next: out of one zone, into the other. A command
that was stopped between them is run again; the second record is then made from the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from hushgrid._numbers import sum_up
from hushgrid.accounting.events import booked
from hushgrid.errors import LedgerError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.mechanism.release import State
from hushgrid.service.epoch import charge, check_same, house_names
from hushgrid.service.gaps import look_for_loss
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.records import (
    LedgerState,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
)
from hushgrid.service.ledger.witness import open_witnesses
from hushgrid.service.ledger.writer import Ledger, load
from hushgrid.service.replay import Replay
from hushgrid.service.same_terms import as_begun
from hushgrid.service.zone_account import ZoneAccount


class _Step(NamedTuple):
    t: int  # in the mechanism's own count
    rates: Sequence[float]  # before it
    record: ReleaseRecord


def spent_here(
    service: ZoneService,
    standing: LedgerState,
    house: int,
    name: str,
    span: int = 0,
    now: float = math.inf,
) -> float:
    """All that a house takes along when it leaves the zone.

    Args:
        service: The zone under the terms of its present epoch.
        standing: What the zone's ledger says.
        house: Its place in the roster.
        name: Its public name, as in a transfer.
        span: Time [s] over which a budget of the zone it goes to may count. What was lost within
            this time, or within the longest horizon of any epoch here, is taken along.
        now: [UTC epoch s]; releases of later steps, published while a clock was wrong, take
            nothing out of the account.

    Returns:
        What it came with; the releases of the present epoch at its own loss; those of earlier
        epochs since it came and within the span, at the loss they state, which is that of the
        house most is learnt about; gaps as they are booked, whenever it came; all that the zone's
        houses have spent on models. What it took along when it left before counts once.
    """
    left, since = _here_since(standing, name)
    before, _ = standing.spent.get(name, (0.0, 0.0))
    releases, gaps = _earlier(standing, left, since, span, now)
    earlier = [*booked(releases, loss=_stated), *(gap.epsilon for gap in gaps)]
    models = [one.epsilon for one in standing.charges if one.seq > left]
    return sum_up([before, spent_by(service, standing, house), *models, *earlier])


def _here_since(standing: LedgerState, name: str) -> tuple[int, int]:
    """The records by which a house last left, and by which it first came since; 0 without one.

    It may have come twice, where the record by which it left the other zone was lost and written
    again. A gap before it came may hold a time in which it was here.
    """
    own = [one for one in standing.transfers if one.house == name]
    left = max((one.seq for one in own if one.direction == "out"), default=0)
    return left, min((one.seq for one in own if one.seq > left), default=left)


def _stated(one: ReleaseRecord) -> float:
    """What a release of an earlier epoch states about any house; infinite where it has no bound.

    With a delta its epsilon is about the houses that were not left out.
    """
    if one.delta and math.isfinite(one.epsilon):
        return float(max(one.epsilon, one.epsilon_any))
    return float(one.epsilon)


def _earlier(
    standing: LedgerState, left: int, since: int, span: int, now: float
) -> tuple[list[ReleaseRecord], list[ResumeRecord]]:
    """Releases of earlier epochs after record `since`, gaps after `left`, that a budget may count.

    The present epoch may be shorter than those before it, and have published nothing: neither
    takes anything out of the account. A step counts until the span after its end is over.
    """
    epoch = standing.epoch
    if epoch is None:
        return [], []
    last = _end(standing, standing.releases[-1]) if standing.releases else 0
    reach = min(last, now) - max(span, standing.longest)
    return (
        [
            one
            for one in standing.releases
            if since < one.seq < epoch.seq
            and one.source == "readings"
            and _end(standing, one) > reach
        ],
        [
            gap
            for gap in standing.booked
            if left < gap.seq < epoch.seq and _end(standing, gap) > reach
        ],
    )


def _end(standing: LedgerState, one: ReleaseRecord | ResumeRecord) -> int:
    """When a release's step or a gap ended [UTC epoch s]."""
    seconds = standing.epoch_of(one).seconds
    return one.start + seconds if isinstance(one, ReleaseRecord) else (one.last + 1) * seconds


def takes_along(standing: LedgerState, name: str, now: float = math.inf) -> dict[str, Any]:
    """What the record of a house that leaves states, with no regard to budgets.

    Args:
        standing: The ledger of the zone that it leaves.
        name: The house, as in a transfer.
        now: [UTC epoch s]. Forecasts of later steps, published while a clock was wrong, say
            nothing and do not put off when it may be published about again.

    Returns:
        `total` and `last` of the record. No other zone publishes about the house before `last`.
    """
    left, since = _here_since(standing, name)
    own = (one for one in standing.transfers if one.house == name and one.seq > left)
    came = [one for one in own if one.direction == "in"]
    releases = [one for one in standing.releases if one.seq > since]
    releases = [one for one in releases if one.source == "readings" or one.start <= now]
    gaps = [one for one in standing.booked if one.seq > left]
    lost = booked(
        [one for one in releases if one.source == "readings"], loss=attrgetter("epsilon_any")
    )
    models = [*standing.charged.values()]  # of readings until the epoch was recorded: all of it
    total = max((one.total for one in came), default=0.0)
    ends = [_end(standing, one) for one in releases[-1:]]
    if standing.charges and math.isfinite(now):  # when they were charged is not on record
        ends.append(math.floor(now))
    ends += [_end(standing, gap) for gap in gaps]
    ends += [one.last for one in came]
    return {
        "total": sum_up([*models, total, *lost, *(gap.epsilon for gap in gaps)]),
        "last": max(ends, default=0),
    }


def spent_by(service: ZoneService, standing: LedgerState, house: int) -> float:
    """The cost of the present epoch for a house.

    Args:
        service: The zone under the terms of its present epoch.
        standing: What its ledger says.
        house: The house's place in the roster.

    Returns:
        Its releases at its own loss and gaps as they are booked.
    """
    each = _losses(service, standing, house)
    paid = [one for one in standing.current if one.t in each]
    lost = booked(paid, loss=lambda one: each[one.t])
    return sum_up([*lost, *(one.epsilon for one in standing.booked_now)])


def _losses(service: ZoneService, standing: LedgerState, house: int) -> dict[int, float]:
    """What each release of the present epoch loses about a house, by step; none where certain."""
    state = Replay(service).follow(standing).state
    return {step.record.t: _loss(state, step, house) for step in _steps(state, standing)}


def _steps(state: State, standing: LedgerState) -> Iterator[_Step]:
    """Releases from readings, each with the rates published before it, gaps filled."""
    for record in standing.current:
        if record.source == "readings" and standing.epoch is not None:
            own = standing.epoch.step(record.t)
            yield _Step(own, state.rates[: own - 1], record)


def _loss(state: State, step: _Step, house: int) -> float:
    if not state.policy.schedule.per_release:
        return math.inf
    if not step.record.scale:  # published without noise: what is booked is 0 or without a bound
        return step.record.release.epsilon
    return float(state.scheduler.losses(step.t, step.record.scale, step.rates)[house])


class Moved(NamedTuple):
    """A house in both ledgers.

    Attributes:
        house: Its public name.
        epsilon: What it has spent.
        delta: What it has spent.
        out: Digest of the record by which it left.
        into: Digest of the record by which it came.
        anew: False where both records were there already.
    """

    house: str
    epsilon: float
    delta: float
    out: str
    into: str
    anew: bool


def move(deployment: Deployment, meter: str, source: str, target: str, now: float) -> Moved:
    """Write both records; the service must be stopped, its rosters still the old ones.

    Both ledgers are judged first. A gap lets no house leave; it may come in. All that forbids the
    move is checked before the other zone's ledger is opened, which creates it.

    Args:
        deployment: The service.
        meter: The meter's id.
        source: The zone that it leaves.
        target: The zone that it comes to.
        now: [UTC epoch s]

    Returns:
        What was written.

    Raises:
        LedgerError: The meter is not in the zone, a gap is not booked, a policy does not go with
            moves, or what it has spent has no bound.
    """
    deployment = as_begun(deployment)
    leaves, comes = _zone(deployment, source), _zone(deployment, target)
    if source == target:
        raise LedgerError(f"the house is in zone {source!r} already; give another zone to go to.")
    key = load(deployment.key)
    (name,) = house_names(key, [meter])
    with open_store(deployment.ledger) as store, open_witnesses(deployment) as witnesses:
        if store.head(source) is None:
            raise LedgerError(
                f"zone {source!r} has published nothing, so nothing is to be carried; move the"
                " meter in the service file."
            )
        with Ledger.open(
            store, source, key, deployment.mode, now, witness=witnesses.of(source)
        ) as old:
            look_for_loss(deployment, leaves, old, now)
            old.settle()
            out = _left(old.standing, name, target)
            span = comes.policy.horizon * comes.seconds
            if out is None:  # refused before the other zone's ledger is created
                _check_kinds(leaves, comes)
                check_same(leaves, old.standing)
                charge(leaves, old)  # the process that recorded the epoch may have been killed
                _leaving(leaves, old, meter, name, target, span, now)
            with Ledger.open(
                store, target, key, deployment.mode, now, witness=witnesses.of(target)
            ) as new:
                look_for_loss(deployment, comes, new, now)
                new.settle()
                anew = out is None
                if out is None:
                    span = max(new.standing.longest, span)
                    entry = _leaving(leaves, old, meter, name, target, span, now)
                    out = TransferRecord.from_record(old.write(entry))
                into = _came(new.standing, out)
                if into is None:
                    anew = True
                    # it may have come before with more that a budget no longer counts
                    before = new.standing.spent.get(name, (0.0, 0.0))
                    epsilon, delta = max(out.epsilon, before[0]), max(out.delta, before[1])
                    entry = replace(out, epsilon=epsilon, delta=delta, out=out.head)
                    entry = replace(entry, direction="in", other=source)
                    into = TransferRecord.from_record(new.write(entry))
    return Moved(name, out.epsilon, out.delta, out.head, into.head, anew)


def _check_kinds(leaves: ZoneService, comes: ZoneService) -> None:
    """Refuse policies under which what a house lost is not a sum that is known ahead."""
    for zone, verb in ((leaves, "leaves"), (comes, "comes to")):
        if zone.policy.schedule.known_ahead:
            continue
        raise LedgerError(
            f"no house {verb} zone {zone.id!r} while its policy has gaussian or negligible; begin"
            " an epoch without them there (hushgrid serve --yes), transfer the house, and"
            " begin one with them afterwards."
        )


def _zone(deployment: Deployment, name: str) -> ZoneService:
    for zone in deployment.zones:
        if zone.id == name:
            return zone
    known = ", ".join(zone.id for zone in deployment.zones)
    raise LedgerError(f"zone is {name!r}; give one of the service file: {known}.")


def _left(standing: LedgerState, name: str, target: str) -> TransferRecord | None:
    """The record by which the house has left already."""
    last = standing.moved.get(name)
    if last is None or last.direction == "in":
        return None
    if last.other != target:
        raise LedgerError(f"the house has left zone {standing.zone!r} for {last.other!r} already.")
    return last


def _came(standing: LedgerState, out: TransferRecord) -> TransferRecord | None:
    return next((one for one in standing.transfers if one.out == out.head), None)


def _leaving(
    leaves: ZoneService, old: Ledger, meter: str, name: str, target: str, span: int, now: float
) -> TransferRecord:
    """The record by which the house leaves; all that forbids it is raised here."""
    check_same(leaves, old.standing)
    if meter not in leaves.meters:
        raise LedgerError(
            f"the meter is not in the roster of zone {leaves.id!r}; give its id as in the service"
            " file, and change rosters after the transfer."
        )
    house = leaves.meters.index(meter)
    cost = spent_here(leaves, old.standing, house, name, span, now)
    if math.isinf(cost):
        raise LedgerError(
            f"what the house has spent in zone {leaves.id!r} has no bound: a release or a booked"
            " gap of an earlier epoch states no epsilon. Transfer it in a later epoch, once those"
            " are older than the longest horizon of both zones."
        )
    stated = takes_along(old.standing, name, now)
    account = ZoneAccount(leaves)
    rows, end = account.leaving(old.standing)
    stated |= {"account": rows, "windows": account.leaving_windows(old.standing)}
    stated["last"] = max(stated["last"], end)
    entry = TransferRecord(name, "out", target, float(cost), **stated)
    old.check(entry)
    return entry


def check_arrived(moves: Mapping[str, Sequence[TransferRecord]]) -> None:
    """Refuse to run where a house left one zone and is not in the other: it would spend anew.

    Args:
        moves: The transfers of each zone's ledger.

    Raises:
        LedgerError: A house has not come in.
    """
    came = {one.out for some in moves.values() for one in some}
    for zone, some in moves.items():
        for one in some:
            if one.direction == "out" and one.other in moves and one.head not in came:
                raise LedgerError(
                    f"a house left zone {zone!r} for {one.other!r} (record {one.seq}) and has not"
                    " come in; run the same hushgrid ledger transfer again."
                )
