"""The terms of a file beside those of the ledger: what differs, and when the others begin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from hushgrid.curator.terms import (
    digest_of,
    newest,
    same_tariff,
    stated_fields,
    tariff_begins,
)
from hushgrid.errors import LedgerError, PlanError, ZoneError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.weeks import in_week, placed, planned_with
from hushgrid.mechanism.digest import tariff_from
from hushgrid.stores.ledger import is_there, open_store
from hushgrid.stores.ledger.chain import fold
from hushgrid.stores.ledger.duties import Checkpointed, LedgerStore
from hushgrid.stores.ledger.records import canonical
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.terms import TariffRecord, TermsRecord


def as_begun(deployment: Deployment) -> Deployment:
    """The service with each zone's terms from the time on that its ledger has them.

    Args:
        deployment: The service as its file is now.

    Returns:
        The service as its ledger began it; as given where there is no ledger.
    """
    opened = _opened(deployment)
    if opened is None:
        return deployment
    with opened as store:
        zones = [_as_begun(zone, store) for zone in deployment.zones]
    return replace(deployment, zones=tuple(zones))


def _opened(deployment: Deployment) -> LedgerStore | None:
    """The ledger, to read; None where there is none."""
    if not is_there(deployment.ledger):
        return None
    try:
        return open_store(deployment.ledger, create=False, still=True)
    except LedgerError:  # not made yet; anything else is raised where it is opened for writing
        return None


def _as_begun(service: ZoneService, store: LedgerStore) -> ZoneService:
    terms = last_terms(store, service.id)
    if terms is None:
        return service
    return zone_as_begun(service, terms, _planned_with(store, service.id, terms))


def last_terms(store: LedgerStore, zone: str) -> TermsRecord | None:
    """The last terms on record.

    Args:
        store: The ledger.
        zone: Id of the zone.

    Returns:
        The record; None where there is none, or the ledger is damaged: such a zone is refused
        where it is opened.
    """
    try:
        record = newest(store, zone, "terms")
        return None if record is None else TermsRecord.from_record(record)
    except LedgerError:
        return None


def _last_tariff(store: LedgerStore, zone: str) -> TariffRecord | None:
    """The newest tariff on record, likewise."""
    try:
        record = newest(store, zone, "tariff")
        return None if record is None else TariffRecord.from_record(record)
    except LedgerError:
        return None


def _planned_with(store: LedgerStore, zone: str, terms: TermsRecord) -> TariffRecord | None:
    """The tariff that was the newest when terms were recorded: their plan was made with it."""
    last = _last_tariff(store, zone)
    if last is None or last.seq < terms.seq:
        return last
    try:
        records = store.others(zone) if isinstance(store, Checkpointed) else store.records(zone)
        earlier = [record for record in records if record.kind == "tariff"]
        return next(
            (TariffRecord.from_record(x) for x in reversed(earlier) if x.seq < terms.seq), None
        )
    except LedgerError:
        return None


def _at_last(service: ZoneService, store: LedgerStore) -> ZoneService:
    """The zone over the week of its last release."""
    try:
        last = newest(store, service.id, "release")
    except LedgerError:  # as `last_terms`
        last = None
    return service if last is None else in_week(service, last.body["t"])


class Changes(NamedTuple):
    """A service whose file has other terms than its ledger.

    Attributes:
        deployment: The service: zones with the terms of their ledgers as they began, the others
            with the file's terms from their next border of blocks on.
        zones: What changes in each of the others, a sentence by zone.
        borders: When those begin that need terms of their own [UTC s]; a tariff alone needs none.
    """

    deployment: Deployment
    zones: Mapping[str, str]
    borders: Mapping[str, int] = MappingProxyType({})


def changes_of(deployment: Deployment, now: float) -> Changes:
    """What a start would change, by the file and the ledger.

    Args:
        deployment: The service as its file is now.
        now: [UTC s]

    Returns:
        The service as it would run, and what changes.
    """
    opened = _opened(deployment)
    if opened is None:
        return Changes(deployment, {})
    zones, changed, borders = list[ZoneService](), dict[str, str](), dict[str, int]()
    with opened as store:
        for zone in deployment.zones:
            terms, tariff = last_terms(store, zone.id), _last_tariff(store, zone.id)
            zone_at_terms = _as_begun(zone, store)
            if terms is not None and digest_of(zone_at_terms) != terms.digest:
                standing = fold(store.records(zone.id))
                zone_at_terms = placed(zone, next_border(zone, standing, now))
                changed[zone.id] = change_of(zone_at_terms, standing)
                borders[zone.id] = zone_at_terms.begins
            else:
                zone_at_terms = _at_last(zone_at_terms, store)
                if terms is not None and tariff is not None and not same_tariff(zone, tariff):
                    standing = fold(store.records(zone.id))
                    changed[zone.id] = tariff_change(zone_at_terms, standing)
            zones.append(zone_at_terms)
    return Changes(replace(deployment, zones=tuple(zones)), changed, borders)


def under_ledger_terms(deployment: Deployment, store: LedgerStore) -> Changes:
    """The service for a curator that begins no terms: zones whose file has those of the ledger.

    Args:
        deployment: The service as its file is now.
        store: Its ledger.

    Returns:
        The service with these zones alone, and where the file of each of the others differs.
    """
    zones, differences = list[ZoneService](), dict[str, str]()
    for zone in deployment.zones:
        terms, tariff = last_terms(store, zone.id), _last_tariff(store, zone.id)
        begun = _as_begun(zone, store)
        same = terms is None or digest_of(begun) == terms.digest
        if terms is None or (same and (tariff is None or same_tariff(begun, tariff))):
            zones.append(_at_last(begun, store))
            continue
        differences[zone.id] = (
            f"zone {zone.id}: the file differs from the ledger in"
            f" {_differing(begun, terms, tariff)}; this curator does not serve the zone, give it"
            " the file of the active one."
        )
    return Changes(replace(deployment, zones=tuple(zones)), differences)


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
        now: [UTC s]

    Returns:
        [UTC s], on a border of intervals.
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
        standing: Its ledger, which has terms.

    Returns:
        A sentence.
    """
    assert standing.terms is not None
    subject = _differing(service, standing.terms, standing.tariff)
    at = _utc(service.begins)
    return (
        f"zone {service.id}: {subject} of the file begin at {at}; what is published stays counted."
    )


def tariff_change(service: ZoneService, standing: LedgerState) -> str:
    """What another tariff changes, and from when on.

    Args:
        service: The zone.
        standing: Its ledger.

    Returns:
        A sentence.
    """
    at = _utc(tariff_begins(service, standing))
    return (
        f"zone {service.id}: the tariff of the file begins at {at}, within the block that is open;"
        " its terms go on, and no forecast replaces a price."
    )


def begins_terms(service: ZoneService, terms: TermsRecord | None) -> bool:
    """Whether a zone whose file has changed needs terms of its own; a tariff alone needs none.

    Args:
        service: The zone as it is to run, from the beginning of its terms on.
        terms: The last terms on record; None: there are none.

    Returns:
        Whether it has others, or the same that begin later.
    """
    if terms is None or digest_of(service) != terms.digest:
        return True
    return service.since > terms.begins


_NAMES = {
    "promise": "the promise",
    "occupancy": "the occupancy models",
    "roster": "the meters",
    "seconds": "the interval",
    "zone": "the contracts",
    "consumption": "the laws of consumption",
    "time_zone": "the time zone",
    "plan": "the plan",
}


def _differing(service: ZoneService, terms: TermsRecord, tariff: TariffRecord | None) -> str:
    """In what the terms and the tariff of a zone differ from those on record; empty: in nothing."""
    recorded = terms.to_body()
    fields = stated_fields(service)
    differ = [
        _NAMES[name] for name in _NAMES if canonical(fields[name]) != canonical(recorded[name])
    ]
    if tariff is not None and not same_tariff(service, tariff):
        differ.append("the tariff")
    return ", ".join(differ)


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def zone_as_begun(
    service: ZoneService, terms: TermsRecord, tariff: TariffRecord | None
) -> ZoneService:
    """The zone with the terms of its file from the time on at which others begin; see `as_begun`.

    Args:
        service: The zone as its file is now.
        terms: The terms on record.
        tariff: The newest tariff when they were recorded: where the file's terms planned with it
            are those on record, so is its plan.

    Returns:
        The zone; as given where its steps have another length, or its promise cannot be kept.
    """
    if terms.seconds != service.seconds:
        return service
    try:
        service = _as_planned(service, terms, tariff)
        return service if terms.begins == service.begins else placed(service, terms.begins)
    except (PlanError, ZoneError):  # it is refused where the zone is opened
        return service


def _as_planned(
    service: ZoneService, terms: TermsRecord, tariff: TariffRecord | None
) -> ZoneService:
    """The zone with the plan of the terms on record, where its tariff alone is another."""
    if tariff is None or service.pattern is None or not service.planned:
        return service
    if digest_of(service) == terms.digest:
        return service
    recorded = planned_with(service, tariff_from(tariff.figures))
    return recorded if digest_of(recorded) == terms.digest else service
