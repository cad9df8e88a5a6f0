"""The status of a service: from its ledger, which others may be writing, or from the service."""

from __future__ import annotations

from typing import Any

from hushgrid.curator.status import Status, status_of
from hushgrid.errors import LedgerError, ServiceError, connection_reason
from hushgrid.files.deployment import Deployment
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.writer import verify_signature


def from_ledger(deployment: Deployment, now: float) -> list[Status]:
    """Status of every zone from its records, each verified; takes no lock.

    Args:
        deployment: The service.
        now: The time [UTC s].

    Returns:
        A status for each zone.

    Raises:
        LedgerError: A record is bad.
    """
    with open_store(deployment.ledger, create=False) as store:
        statuses = []
        for zone in deployment.zones:
            report = check(store.records(zone.id), verify_signature, {})
            if report.first_bad is not None:
                raise LedgerError(
                    f"the ledger of zone {zone.id!r} is bad at record {report.first_bad}"
                    f" ({report.reason}); see hushgrid ledger verify."
                )
            statuses.append(status_of(zone, report.standings.get(zone.id), now))
    return statuses


def from_service(url: str, token: str = "") -> list[Status]:
    """Status of every zone as a running service answers.

    Args:
        url: The service's address.
        token: A bearer token; with an operator's, `missing` is included.

    Returns:
        A status for each zone.

    Raises:
        ServiceError: The service cannot be reached, or gives another answer.
    """
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url.rstrip("/") + "/v1/status", timeout=10, headers=headers)
        answer.raise_for_status()
        zones: list[dict[str, Any]] = answer.json()["zones"]
        return [Status(**({"missing": None} | zone)) for zone in zones]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"cannot get the status of service {url} ({connection_reason(error)}); give the"
            " address of a running hushgrid serve, or its service file."
        ) from None
