"""The zone as an epoch of the same terms ran it, or will run it.

The same terms are those of the file but for `begins` and the horizon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hushgrid.errors import LedgerError, PlanError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.interval_plan import (
    in_epoch,
)
from hushgrid.mechanism.policy import Policy
from hushgrid.service.epoch import first_state, interval_promise
from hushgrid.service.ledger import is_there, open_store
from hushgrid.service.ledger.chain import LedgerStore
from hushgrid.service.ledger.records import EpochRecord

CLOSE = 1e-6  # relative: what a plan's search and its run leave open


def as_begun(deployment: Deployment) -> Deployment:
    """The service with each zone's policy, and the leakage accepted, as its epoch has them.

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
    try:
        epochs = [one for one in store.records(service.id) if one.kind == "epoch"]
    except LedgerError:  # a zone whose ledger is damaged is refused where it is opened
        epochs = []
    if not epochs:
        return service
    epoch = EpochRecord.from_record(epochs[-1])
    begun = zone_as_begun(service, epoch)
    return replace(begun, accepts=accepted(epoch) or None)


def zone_as_begun(service: ZoneService, epoch: EpochRecord) -> ZoneService:
    """The zone with the policy and the times of its present epoch; see `as_begun`.

    Args:
        service: The zone as its file is now.
        epoch: Its present epoch.

    Returns:
        The zone as it began, or as given where these terms were not planned from it. An epoch
        that renewed itself begins whole horizons after the file's.
    """
    first, horizon, digest = service.begins // service.seconds, service.policy.horizon, epoch.digest
    ahead = epoch.first - first if renews(service) and epoch.seconds == service.seconds else 0
    later = ahead > 0 and ahead % horizon == 0
    if not later and digest == first_state(service).digest:
        return service
    return same_terms(service, digest, epoch.first if later else first, horizon) or service


def accepted(epoch: EpochRecord) -> float:
    """The leakage that was accepted when the epoch began.

    Args:
        epoch: Its record.

    Returns:
        The figure; 0 where none was accepted.
    """
    return epoch.accepted or 0.0


def next_epoch(service: ZoneService, t: int, *, renewed: bool = True) -> ZoneService | None:
    """The zone in the epoch that begins by itself once the horizon of the present one has ended.

    Args:
        service: The zone in its present epoch.
        t: The zone's step that is next.
        renewed: As in `in_epoch`: whether an epoch of these terms has published anything.

    Returns:
        The zone with the same terms in the horizon that holds the step, counted from the present
        one on; nothing is accepted for it. None while the horizon goes on, or where epochs do not
        renew themselves.
    """
    ahead = t - service.begins // service.seconds
    horizons = ahead // service.policy.horizon
    if horizons < 1 or not renews(service):
        return None
    begins = service.begins + horizons * service.policy.horizon * service.seconds
    found = in_epoch(service, begins, renewed=renewed)
    return None if found is None else replace(found, accepts=None)


def renews(service: ZoneService) -> bool:
    """Whether the epochs of a zone follow each other by themselves."""
    return can_renew(service) and service.promise is not None and service.promise.renew


def can_renew(service: ZoneService) -> bool:
    """Whether they would with the key `renew`, which is no part of the terms."""
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
    each = (one for one in versions(service, first * service.seconds, horizon) if one)
    return next((one for one in each if first_state(one).digest == digest), None)


def versions(service: ZoneService, begins: int, horizon: int) -> Iterator[ZoneService | None]:
    """The zone in an epoch, as it is planned where epochs renew themselves, and where they do not.

    Args:
        service: The zone.
        begins: Where the epoch begins [UTC epoch s].
        horizon: Its steps.

    Yields:
        The zone in that epoch; None where the promise cannot be kept.
    """
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


def with_even_epsilons(policy: Policy) -> Policy:
    """The policy with the same epsilon at every step."""
    return replace(policy, schedule=policy.schedule.with_epsilons(()))
