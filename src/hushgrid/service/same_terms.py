"""The zone as an epoch of the same terms ran it, or will run it.

The same terms are those of the file but for `begins` and the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from hushgrid.errors import LedgerError, PlanError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.interval_plan import in_epoch, placed
from hushgrid.service.epoch import (
    first_state,
    interval_promise,
    occupancy_digest,
    roster_digest,
    terms_differ,
    window_promise,
)
from hushgrid.service.ledger import is_there, open_store
from hushgrid.service.ledger.chain import Checkpointed, LedgerStore, fold
from hushgrid.service.ledger.records import EpochRecord, LedgerState, from_fields


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
            rows = [row for row in store.columns(zone) if row[2] == "epoch"]
            epochs = [from_fields(*row) for row in rows[-1:]]
        else:
            epochs = [one for one in store.records(zone) if one.kind == "epoch"]
        return EpochRecord.from_record(epochs[-1]) if epochs else None
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


def changes_of(deployment: Deployment, now: float, *, again: bool = False) -> Changes:
    """What a start would change, by the file and the ledger.

    Args:
        deployment: The service as its file is now.
        now: [UTC epoch s]
        again: The same terms begin again where their horizon is over.

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
            begun = zone_as_begun(zone, epoch)
            if terms_differ(begun, epoch):
                standing = fold(store.records(zone.id))
                begun = placed(zone, next_border(zone, standing, now))
                changed[zone.id] = change_of(begun, standing)
            elif again and now >= begun.ends and not renews(begun):
                begun = placed(begun, next_border(begun, fold(store.records(zone.id)), now))
                changed[zone.id] = (
                    f"zone {zone.id}: the horizon is over, and the same terms begin again at"
                    f" {_utc(begun.begins)}."
                )
            zones.append(begun)
    return Changes(replace(deployment, zones=tuple(zones)), changed)


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
    ends += [] if windows is None else [block[1] + 1 for block in windows[0][1][-1:]]
    return math.ceil(max(ends) / service.seconds) * service.seconds


def change_of(service: ZoneService, standing: LedgerState) -> str:
    """What other terms change, and from when on.

    Args:
        service: The zone from their first interval on.
        standing: Its ledger, which has an epoch.

    Returns:
        A sentence.
    """
    epoch, parts = standing.epoch, list[str]()
    assert epoch is not None
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
    what = ", ".join(parts) or "the policy, the tariff or the laws of consumption"
    at = _utc(service.begins)
    return f"zone {service.id}: {what} of the file begin at {at}; what is published stays counted."


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def zone_as_begun(service: ZoneService, epoch: EpochRecord) -> ZoneService:
    """The zone with the policy and the times of its present epoch; see `as_begun`.

    Args:
        service: The zone as its file is now.
        epoch: Its present epoch.

    Returns:
        The zone as it began, or as given where these terms were not planned from it. An epoch
        that renewed itself begins whole horizons after the file's.
    """
    digest = epoch.digest
    if digest == first_state(service).digest and epoch.first * epoch.seconds == service.begins:
        return service
    if epoch.seconds != service.seconds:
        return service
    found = same_terms(service, digest, epoch.first, epoch.horizon)
    if found is None:  # no plan of its own: the file's terms from then on
        moved = placed(service, epoch.first * epoch.seconds)
        found = moved if first_state(moved).digest == digest else None
    return found or service


def next_epoch(service: ZoneService, t: int, *, renewed: bool = True) -> ZoneService | None:
    """The zone in the epoch that begins by itself once the horizon of the present one has ended.

    Args:
        service: The zone in its present epoch.
        t: The zone's step that is next.
        renewed: As in `in_epoch`: whether an epoch of these terms has published anything.

    Returns:
        The zone with the same terms in the horizon that holds the step, counted from the present
        one on. None while the horizon goes on, or where epochs do not renew themselves.
    """
    ahead = t - service.begins // service.seconds
    horizons = ahead // service.policy.horizon
    if horizons < 1 or not renews(service):
        return None
    begins = service.begins + horizons * service.policy.horizon * service.seconds
    return in_epoch(service, begins, renewed=renewed)


def renews(service: ZoneService) -> bool:
    """Whether the epochs of a zone follow each other by themselves."""
    return can_renew(service) and service.promise is not None and service.promise.renew


def can_renew(service: ZoneService) -> bool:
    """Whether they would with the key `renew`, which is no part of the terms."""
    if window_promise(service) is not None:
        return True
    return interval_promise(service) is not None and service.memory is not None


def same_terms(service: ZoneService, digest: str, first: int, horizon: int) -> ZoneService | None:
    """The zone as it ran in an epoch, if all but its times is as it is now.

    Args:
        service: the zone as it is now; without an interval promise its times are looked at as
            they are.
        digest: the epoch's terms, as its record has them.
        first: the zone's step at which it began.
        horizon: its steps.

    Returns:
        The zone in that epoch; None where its terms were others.
    """
    each = (one for one in _versions(service, first * service.seconds, horizon) if one)
    return next((one for one in each if first_state(one).digest == digest), None)


def _versions(service: ZoneService, begins: int, horizon: int) -> Iterator[ZoneService | None]:
    """The zone in an epoch, as it is planned where epochs renew themselves, and where they do not.

    Args:
        service: The zone.
        begins: Where the epoch begins [UTC epoch s].
        horizon: Its steps.

    Yields:
        The zone in that epoch; None where the promise cannot be kept.
    """
    if window_promise(service) is not None:
        yield _planned(service, begins, horizon)
    if interval_promise(service) is None:
        return
    if renews(service):
        yield _planned(service, begins, horizon, renewed=True)
    if service.promise is not None and service.promise.renew:
        once = replace(service, promise=replace(service.promise, renew=False))
        planned = _planned(once, begins, horizon)
        yield planned and replace(planned, promise=service.promise)
    yield _planned(service, begins, horizon)


def _planned(
    service: ZoneService, begins: int, horizon: int, *, renewed: bool = False
) -> ZoneService | None:
    """As `in_epoch`; None where the promise cannot be kept there."""
    try:
        return in_epoch(service, begins, horizon, renewed=renewed)
    except PlanError:
        return None
