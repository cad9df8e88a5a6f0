"""The terms of a file beside those of the ledger: what differs, and when the others begin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from hushgrid.curator.terms import digest_of, stated_fields
from hushgrid.errors import LedgerError, PlanError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.weeks import in_week, placed
from hushgrid.stores.ledger import is_there, open_store
from hushgrid.stores.ledger.chain import fold
from hushgrid.stores.ledger.duties import Checkpointed, LedgerStore
from hushgrid.stores.ledger.entries import TermsRecord
from hushgrid.stores.ledger.records import Record, canonical
from hushgrid.stores.ledger.state import LedgerState


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
    terms = _last_terms(store, service.id)
    return service if terms is None else zone_as_begun(service, terms)


def _last_terms(store: LedgerStore, zone: str) -> TermsRecord | None:
    """The last terms on record; None where there are none, or the ledger is damaged.

    A zone whose ledger is damaged is refused where it is opened.
    """
    try:
        newest = _newest(store, zone, "terms")
        return None if newest is None else TermsRecord.from_record(newest)
    except LedgerError:
        return None


def _newest(store: LedgerStore, zone: str, kind: str) -> Record | None:
    if isinstance(store, Checkpointed):  # no other record need be read
        return store.newest(zone, kind)
    return max(
        (record for record in store.records(zone) if record.kind == kind),
        key=lambda record: record.seq,
        default=None,
    )


def _at_last(service: ZoneService, store: LedgerStore) -> ZoneService:
    """The zone over the week of its last release."""
    try:
        newest = _newest(store, service.id, "release")
    except LedgerError:  # as `_last_terms`
        newest = None
    return service if newest is None else in_week(service, newest.body["t"])


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
        now: [UTC s]

    Returns:
        The service as it would run, and what changes.
    """
    opened = _opened(deployment)
    if opened is None:
        return Changes(deployment, {})
    zones, changed = list[ZoneService](), dict[str, str]()
    with opened as store:
        for zone in deployment.zones:
            terms = _last_terms(store, zone.id)
            if terms is not None and digest_of(zone) != terms.digest:
                standing = fold(store.records(zone.id))
                zone_at_terms = placed(zone, next_border(zone, standing, now))
                changed[zone.id] = change_of(zone_at_terms, standing)
            else:
                zone_at_terms = _at_last(_as_begun(zone, store), store)
            zones.append(zone_at_terms)
    return Changes(replace(deployment, zones=tuple(zones)), changed)


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
        terms = _last_terms(store, zone.id)
        if terms is None or digest_of(zone) == terms.digest:
            zones.append(_at_last(_as_begun(zone, store), store))
            continue
        differences[zone.id] = (
            f"zone {zone.id}: {_differing(zone, terms)} of the file are not those of the ledger;"
            " this curator does not serve the zone, give it the file of the active one."
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
    subject = _differing(service, standing.terms)
    at = _utc(service.begins)
    return (
        f"zone {service.id}: {subject} of the file begin at {at}; what is published stays counted."
    )


_NAMES = {
    "promise": "the promise",
    "occupancy": "the occupancy models",
    "roster": "the meters",
    "seconds": "the interval",
    "zone": "the contracts",
    "tariff": "the tariff",
    "consumption": "the laws of consumption",
    "time_zone": "the time zone",
    "plan": "the plan",
}


def _differing(service: ZoneService, terms: TermsRecord) -> str:
    """In what the terms of a zone differ from those on record."""
    recorded = terms.to_body()
    fields = stated_fields(service)
    differ = (name for name in _NAMES if canonical(fields[name]) != canonical(recorded[name]))
    return ", ".join(_NAMES[name] for name in differ)


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def zone_as_begun(service: ZoneService, terms: TermsRecord) -> ZoneService:
    """The zone with the terms of its file from the time on at which others begin; see `as_begun`.

    Args:
        service: The zone as its file is now.
        terms: The terms on record.

    Returns:
        The zone; as given where its steps have another length, or its promise cannot be kept.
    """
    if terms.seconds != service.seconds or terms.begins == service.begins:
        return service
    try:
        return placed(service, terms.begins)
    except PlanError:
        return service
