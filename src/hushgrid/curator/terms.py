"""The terms of a zone's file beside those of its ledger; the zone from week to week."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from hushgrid.curator.epoch import (
    first_state,
    interval_promise,
    occupancy_digest,
    roster_digest,
    terms_differ,
    window_promise,
)
from hushgrid.errors import LedgerError, PlanError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.weeks import placed, week_of
from hushgrid.stores.ledger import is_there, open_store
from hushgrid.stores.ledger.chain import Checkpointed, LedgerStore, fold
from hushgrid.stores.ledger.records import EpochRecord, LedgerState


def as_begun(deployment: Deployment) -> Deployment:
    """The service with each zone's policy as its epoch has it.

    Args:
        deployment: The service as its file is now.

    Returns:
        The service as its ledger began it; as given where there is no ledger.
    """
    if not is_there(deployment.ledger):
        return deployment
    try:
        opened = open_store(deployment.ledger, create=False, still=True)
    except LedgerError:  # not made yet; anything else is raised where it is opened for writing
        return deployment
    with opened as store:
        zones = [_as_begun(zone, store) for zone in deployment.zones]
    return replace(deployment, zones=tuple(zones))


def _as_begun(service: ZoneService, store: LedgerStore) -> ZoneService:
    epoch = _last_epoch(store, service.id)
    return service if epoch is None else zone_as_begun(service, epoch)


def _last_epoch(store: LedgerStore, zone: str) -> EpochRecord | None:
    """The last record of an epoch; None where there is none, or the ledger is damaged.

    A zone whose ledger is damaged is refused where it is opened.
    """
    try:
        if isinstance(store, Checkpointed):  # no other record need be read
            newest = store.newest(zone, "epoch")
        else:
            epochs = [record for record in store.records(zone) if record.kind == "epoch"]
            newest = epochs[-1] if epochs else None
        return None if newest is None else EpochRecord.from_record(newest)
    except LedgerError:
        return None


class Changes(NamedTuple):
    """A service whose file has other terms than its ledger.

    Attributes:
        deployment: The service: zones with the terms of their ledgers as they began, the others
            with the file's terms from their next border of blocks on.
        zones: What changes in each of the others, a sentence by zone.
    """

    deployment: Deployment
    zones: Mapping[str, str]


def changes_of(deployment: Deployment, now: float) -> Changes:
    """What a start would change, by the file and the ledger.

    Args:
        deployment: The service as its file is now.
        now: [UTC epoch s]

    Returns:
        The service as it would run, and what changes.
    """
    if not is_there(deployment.ledger):
        return Changes(deployment, {})
    try:
        opened = open_store(deployment.ledger, create=False, still=True)
    except LedgerError:  # not made yet; anything else is raised where it is opened for writing
        return Changes(deployment, {})
    zones, changed = list[ZoneService](), dict[str, str]()
    with opened as store:
        for zone in deployment.zones:
            epoch = _last_epoch(store, zone.id)
            if epoch is None:
                zones.append(zone)
                continue
            epoch_zone = zone_as_begun(zone, epoch)
            if terms_differ(epoch_zone, epoch):
                standing = fold(store.records(zone.id))
                epoch_zone = placed(zone, next_border(zone, standing, now))
                changed[zone.id] = change_of(epoch_zone, standing)
            zones.append(epoch_zone)
    return Changes(replace(deployment, zones=tuple(zones)), changed)


def under_ledger_terms(deployment: Deployment, store: LedgerStore) -> Changes:
    """The service for a curator that begins no terms: zones whose file has those of the ledger.

    Args:
        deployment: The service as its file is now.
        store: Its ledger.

    Returns:
        The service with these zones alone, and where the file of each of the others differs.
    """
    zones, sentences = list[ZoneService](), dict[str, str]()
    for zone in deployment.zones:
        epoch = _last_epoch(store, zone.id)
        epoch_zone = zone if epoch is None else zone_as_begun(zone, epoch)
        if epoch is None or not terms_differ(epoch_zone, epoch):
            zones.append(epoch_zone)
            continue
        sentences[zone.id] = (
            f"zone {zone.id}: {_differing(epoch_zone, epoch)} of the file are not those of the"
            " ledger; this curator does not serve the zone, give it the file of the active one."
        )
    return Changes(replace(deployment, zones=tuple(zones)), sentences)


def unasked(changes: Mapping[str, str]) -> str:
    """The sentence with which a start ends that would change terms, and was not asked to.

    Args:
        changes: As in `Changes`.

    Returns:
        The sentence.
    """
    return (
        f"the file has other terms than the ledger: {' '.join(changes.values())} Put them back, or"
        " begin them with hushgrid serve --yes."
    )


def next_border(service: ZoneService, standing: LedgerState, now: float) -> int:
    """When other terms begin: with the next interval after all that is published or open.

    Or later, where the file says so.

    Args:
        service: The zone with these terms.
        standing: Its ledger.
        now: [UTC epoch s]

    Returns:
        [UTC epoch s], on a border of intervals.
    """
    newest, windows = standing.latest_account, standing.latest_windows
    ends = [standing.reach, now, service.begins]  # the file may name a later start
    ends += [] if newest is None else [newest.end]
    ends += [] if windows is None else [windows.end]
    return math.ceil(max(ends) / service.seconds) * service.seconds


def change_of(service: ZoneService, standing: LedgerState) -> str:
    """What other terms change, and from when on.

    Args:
        service: The zone from their first interval on.
        standing: Its ledger, which has an epoch.

    Returns:
        A sentence.
    """
    assert standing.epoch is not None
    difference = _differing(service, standing.epoch)
    at = _utc(service.begins)
    return (
        f"zone {service.id}: {difference} of the file begin at {at}; what is published stays"
        " counted."
    )


def _differing(service: ZoneService, epoch: EpochRecord) -> str:
    """In what the terms of a zone differ from those of an epoch, as far as its record says."""
    parts = list[str]()
    window = None if epoch.window is None else tuple(epoch.window)
    before = (epoch.interval, window)
    if before != (interval_promise(service), window_promise(service)):
        parts.append("the promise")
    if epoch.occupancy != occupancy_digest(service):
        parts.append("the occupancy models")
    if epoch.roster != roster_digest(service):
        parts.append("the meters")
    if epoch.seconds != service.seconds:
        parts.append("the interval")
    return ", ".join(parts) or "the policy, the tariff or the laws of consumption"


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def zone_as_begun(service: ZoneService, epoch: EpochRecord) -> ZoneService:
    """The zone with the terms of its file over the steps of an epoch; see `as_begun`.

    Args:
        service: The zone as its file is now.
        epoch: The epoch.

    Returns:
        The zone. Its digest is the epoch's where the terms are the same. As given where its steps
        have another length, or its promise cannot be kept.
    """
    begins = epoch.first * epoch.seconds
    if epoch.seconds != service.seconds or begins == service.begins:
        return service
    try:
        return placed(service, begins)
    except PlanError:
        return service


def zone_in_epoch(service: ZoneService, digest: str, first: int) -> ZoneService | None:
    """The zone as it ran in an epoch, if all but its times is as it is now.

    Args:
        service: The zone as its file is now.
        digest: The epoch's terms, as its record has them.
        first: The zone's step at which it began.

    Returns:
        The zone in that epoch; None where its terms were others.
    """
    begins = first * service.seconds
    try:
        epoch_zone = service if begins == service.begins else placed(service, begins)
    except PlanError:
        return None
    return epoch_zone if first_state(epoch_zone).digest == digest else None


def next_week(service: ZoneService, t: int) -> ZoneService | None:
    """The zone with the same terms in the week of a later step.

    Args:
        service: The zone over the steps of its present week.
        t: The zone's step that is next.

    Returns:
        The zone from the beginning of that week on; None where the step is in the present one.

    Raises:
        PlanError: The promise cannot be kept.
    """
    start, seconds = t * service.seconds, service.seconds
    if start < service.ends:
        return None
    if service.pattern is not None:
        first, _ = week_of(start, seconds, service.time_zone)
        return placed(service, max(first, service.ends))
    weeks = (start - service.begins) // (service.policy.horizon * seconds)
    return placed(service, service.begins + weeks * service.policy.horizon * seconds)
